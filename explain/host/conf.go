package host

import "fmt"

// conf4 is a per-interface switch of IPv4 that is in force when it is set for the interface or for "all".
// What was not captured is off, as the kernel starts with it: the Finding is then Assumed, or Unknown where
// neither of the two was captured.
func (h *Host) conf4(iface, key string) Finding {
	all, own := confName(4, "all", key), confName(4, iface, key)
	a, evAll, okAll := h.Sysctl(all)
	o, evOwn, okOwn := h.Sysctl(own)
	switch {
	case okOwn && o != "0":
		return Finding{Is: Yes, Because: own + " is " + o, Evidence: evOwn}
	case okAll && a != "0":
		return Finding{Is: Yes, Because: all + " is " + a, Evidence: evAll}
	case okAll && okOwn:
		return Finding{Is: No, Because: fmt.Sprintf("%s and %s are 0", all, own), Evidence: evOwn}
	case okAll:
		return Finding{Is: No, Assumed: true, Evidence: evAll, Because: fmt.Sprintf("%s is 0; %s was not captured and is taken to be 0, as it is by default", all, own)}
	case okOwn:
		return Finding{Is: No, Assumed: true, Evidence: evOwn, Because: fmt.Sprintf("%s is 0; %s was not captured and is taken to be 0, as it is by default", own, all)}
	}
	return Finding{Because: fmt.Sprintf("neither %s nor %s was captured", all, own)}
}

// routeLocalnet tells whether loopback addresses are routed on an interface.
func (h *Host) routeLocalnet(iface string) Finding { return h.conf4(iface, "route_localnet") }

// Forwards tells whether the node forwards packets of this family, 4 or 6, that come in on an interface;
// empty: one that is not known. IPv4 asks the interface's own switch, which follows net.ipv4.ip_forward
// until somebody sets it alone. IPv6 asks the one of "all", and since Linux 6.17 force_forwarding of the
// interface.
func (h *Host) Forwards(family int, in string) Finding {
	if family == 6 {
		return h.forwards6(in)
	}
	if in != "" {
		name := confName(4, in, "forwarding")
		if v, ev, ok := h.Sysctl(name); ok {
			return Finding{Is: is(v != "0"), Because: name + " is " + v, Evidence: ev}
		}
	}
	for _, name := range []string{"net.ipv4.ip_forward", confName(4, "all", "forwarding")} {
		v, ev, ok := h.Sysctl(name)
		switch {
		case !ok:
		case v != "0":
			return Finding{Is: Yes, Because: name + " is " + v + " and switches every interface", Evidence: ev}
		default:
			return Finding{Is: No, Assumed: true, Because: name + " is " + v + "; that of the interface was not captured and is taken to be the same", Evidence: ev}
		}
	}
	return Finding{Because: "net.ipv4.ip_forward was not captured"}
}

func (h *Host) forwards6(in string) Finding {
	name := confName(6, "all", "forwarding")
	v, ev, ok := h.Sysctl(name)
	switch {
	case !ok:
		return Finding{Because: name + " was not captured"}
	case v != "0":
		return Finding{Is: Yes, Because: name + " is " + v, Evidence: ev}
	}
	if in != "" {
		force := confName(6, in, "force_forwarding")
		if v, ev, ok := h.Sysctl(force); ok && v != "0" {
			return Finding{Is: Yes, Because: force + " is " + v, Evidence: ev}
		}
	}
	return Finding{Is: No, Because: name + " is 0", Evidence: ev}
}
