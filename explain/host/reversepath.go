package host

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ReversePath tells whether the kernel lets a packet in whose source is src and whose destination, after any
// translation, is dst: Yes when it passes. For IPv4 these are the address checks of ip_route_input_slow and
// the source check of fib_validate_source with rp_filter, accept_local and src_valid_mark. IPv6 has no
// reverse path filter in its routing; only sources that cannot be are refused (ip6_rcv).
//
// Packets that come around through lo keep their route and are not checked; this is about those that are routed there
// again.
func (h *Host) ReversePath(in string, src, dst netip.Addr, mark uint32) Finding {
	if !src.IsValid() || !dst.IsValid() {
		return Finding{Because: "the addresses of the packet are not known"}
	}
	src, dst = src.Unmap().WithZone(""), dst.Unmap().WithZone("")
	switch {
	case src.Is6():
		if src.IsMulticast() || src.IsLoopback() && in != "lo" {
			return Finding{Is: No, Because: fmt.Sprintf("%s cannot be the source of a packet from outside", src)}
		}
		return Finding{Is: Yes, Because: "IPv6 routing has no reverse path filter"}
	}
	if f, ok := h.martian(in, src, dst); ok {
		return f
	}
	return h.sourceCheck(in, src, dst, mark)
}

// martian are the address checks before any lookup (ip_route_input_slow); ok is false when they say nothing.
func (h *Host) martian(in string, src, dst netip.Addr) (f Finding, ok bool) {
	switch {
	case src.IsMulticast() || src == limitedBroadcast:
		return Finding{Is: No, Because: fmt.Sprintf("%s cannot be the source of a packet", src)}, true
	case src.IsUnspecified() && dst != limitedBroadcast && !dst.IsUnspecified():
		return Finding{Is: No, Because: "0.0.0.0 is accepted as a source for broadcasts only"}, true
	case src.IsUnspecified():
		return Finding{Is: Yes, Because: "a broadcast without a source is not checked"}, true
	case dst.IsUnspecified():
		return Finding{Is: No, Because: "0.0.0.0 cannot be the destination of a packet from outside"}, true
	}
	loop, role := dst, "destination"
	if !loop.IsLoopback() {
		loop, role = src, "source"
	}
	if !loop.IsLoopback() {
		return Finding{}, false
	}
	l := h.routeLocalnet(in)
	switch l.Is {
	case No:
		l.Because = fmt.Sprintf("the loopback %s %s is refused on %s: %s", role, loop, in, l.Because)
		return l, true
	case Unknown:
		l.Because = fmt.Sprintf("whether the loopback %s %s is refused on %s is not known: %s", role, loop, in, l.Because)
		return l, true
	}
	return Finding{}, false
}

// The modes of rp_filter (ip-sysctl).
const (
	rpOff    = 0
	rpStrict = 1
	rpLoose  = 2
)

// sourceCheck is fib_validate_source with every mode of rp_filter that the captured sysctls allow.
func (h *Host) sourceCheck(in string, src, dst netip.Addr, mark uint32) Finding {
	modes, ev := h.rpFilter(in)
	var out Finding
	for i, mode := range modes {
		f := h.validateSource(mode, in, src, dst, mark)
		if f.Evidence == (Evidence{}) || f.Is == No && mode != rpOff {
			f.Evidence = ev
		}
		if i == 0 || f.Is == Unknown {
			out = f
		}
		if f.Is == Unknown {
			return out
		}
		if f.Is != out.Is {
			return Finding{Evidence: ev, Because: fmt.Sprintf("it depends on rp_filter of %s, which was not captured (sysctl %s %s)",
				in, confName(4, "all", "rp_filter"), confName(4, in, "rp_filter"))}
		}
	}
	return out
}

// rpFilter are the modes that can be in force on an interface: the larger of its own and that of "all".
func (h *Host) rpFilter(in string) ([]int, Evidence) {
	all, evAll, okAll := h.Sysctl(confName(4, "all", "rp_filter"))
	own, evOwn, okOwn := h.Sysctl(confName(4, in, "rp_filter"))
	mode := map[string]int{"0": rpOff, "1": rpStrict, "2": rpLoose}
	a, knownAll := mode[all]
	o, knownOwn := mode[own]
	knownAll, knownOwn = knownAll && okAll, knownOwn && okOwn
	ev := evAll
	if o > a || !knownAll {
		ev = evOwn
	}
	low := max(a, o) // an unread one counts as 0 here
	if knownAll && knownOwn || low == rpLoose {
		return []int{low}, ev
	}
	var modes []int
	for m := low; m <= rpLoose; m++ {
		modes = append(modes, m)
	}
	return modes, ev
}

// StrictSourceCheck tells whether rp_filter is 1 on an interface: what comes in there from a source must be on the
// way back to it. The larger of the interface's own value and that of "all" is in force.
func (h *Host) StrictSourceCheck(in string) (Known, Evidence) {
	modes, ev := h.rpFilter(in)
	if len(modes) > 1 {
		return Unknown, ev
	}
	return is(modes[0] == rpStrict), ev
}

// validateSource is fib_validate_source for one mode, for every interface that the packet may leave by.
func (h *Host) validateSource(mode int, in string, src, dst netip.Addr, mark uint32) Finding {
	fwd := h.Route(Query{Src: src, Dst: dst, Mark: mark, In: in, InKnown: true})
	f := flow{src: dst, dst: src, iif: "lo", iifKnown: true}
	switch {
	case fwd.Type == "unicast" && fwd.Out != "":
		f.iif = fwd.Out
	case fwd.Type == "unicast" && len(fwd.Outs) > 0:
		var out Finding
		for i, dev := range fwd.Outs {
			f.iif = dev
			next := h.validateWay(mode, in, f, mark)
			if i > 0 && next.Is != out.Is {
				return Finding{Because: fmt.Sprintf("it depends on which of %s the packet leaves by: %s", strings.Join(fwd.Outs, ", "), next.Because)}
			}
			out = next
		}
		return out
	case fwd.Type == "unknown" || fwd.Type == "unicast":
		f.iifKnown = false
	}
	return h.validateWay(mode, in, f, mark)
}

// validateWay looks up the answer's way back. The flow is that of the answer; it is looked up as if it came
// in on the interface that the packet leaves by (lo for the node itself), and with the packet's mark only
// where src_valid_mark is set.
func (h *Host) validateWay(mode int, in string, f flow, mark uint32) Finding {
	src := f.dst
	acceptLocal := h.conf4(in, "accept_local").Is == Yes
	if mode == rpOff && !(f.iifKnown && f.iif == in && h.redirects(in)) {
		custom := h.fib().custom[4] || h.fib().customLocal // then the kernel looks the source up in full
		switch {
		case acceptLocal:
			return Finding{Is: Yes, Because: "rp_filter is off, and accept_local lets the node's own addresses in"}
		case custom:
		case !slices.Contains(h.OwnAddrs(4), src):
			return Finding{Is: Yes, Because: fmt.Sprintf("rp_filter is off on %s, and %s is not the node's own address", in, src)}
		default:
			return h.ownSource(src)
		}
	}
	if h.conf4(in, "src_valid_mark").Is == Yes {
		f.mark = mark
	}
	v := h.policy(4, f)
	found := Finding{Assumed: v.assumed, Evidence: v.evidence}
	refuse := func(format string, args ...any) Finding {
		found.Is = No
		found.Because = fmt.Sprintf(format, args...)
		return found
	}
	pass := func(format string, args ...any) Finding {
		found.Is = Yes
		found.Because = fmt.Sprintf(format, args...)
		return found
	}
	setting := fmt.Sprintf("rp_filter is %d on %s", mode, in)
	switch {
	case v.kind == "unknown":
		if mode == rpOff && h.notOwn(src) {
			return pass("%s, and %s is not the node's own address", setting, src)
		}
		found.Because = fmt.Sprintf("%s, and the way back to %s is not known: %s", setting, src, v.because)
		return found
	case v.kind == "none" || rejects(v.kind):
		if mode == rpOff {
			return pass("%s: no way back to %s is needed", setting, src)
		}
		return refuse("%s, and there is no way back to %s: %s", setting, src, v.because)
	case v.kind == "local" && !acceptLocal:
		return refuse("%s is the node's own address (%s), and packets from outside must not carry it", src, v.because)
	case v.kind != "unicast" && v.kind != "local":
		return refuse("%s is a %s address (%s) and cannot be a source", src, v.kind, v.because)
	}
	var devs []string
	for _, hop := range v.entries[0].hops() {
		if hop.Dev == in {
			return pass("the way back to %s leaves through %s, where the packet came in (%s)", src, in, v.because)
		}
		devs = append(devs, hop.Dev)
	}
	back := strings.Join(devs, " or ")
	if mode == rpStrict {
		return refuse("%s: packets from %s must come in on %s, where the way back leads (%s), and this one came in on %s", setting, src, back, v.because, in)
	}
	switch h.hasAddr4(in) {
	case No:
		if mode != rpOff {
			return refuse("%s, the way back to %s leads through %s (%s), and %s has no IPv4 address of its own", setting, src, back, v.because, in)
		}
	case Unknown:
		if mode != rpOff {
			found.Because = fmt.Sprintf("%s: other interfaces on the way back are allowed only if %s has an IPv4 address, and the addresses were not captured (ip addr)", setting, in)
			return found
		}
	}
	return pass("%s: the way back to %s may lead through another interface, here %s (%s)", setting, src, back, v.because)
}

// ownSource is the refusal of a packet from outside that carries an address of the node as its source.
func (h *Host) ownSource(src netip.Addr) Finding {
	_, own := h.Type(src)
	own.Is = No
	own.Because = fmt.Sprintf("%s is the node's own address (%s), and packets from outside must not carry it", src, own.Because)
	return own
}

// redirects tells whether the kernel sends ICMP redirects on an interface: it is on unless both switches
// are off.
func (h *Host) redirects(in string) bool {
	return h.Sysctls[confName(4, "all", "send_redirects")] != "0" || h.Sysctls[confName(4, in, "send_redirects")] != "0"
}

// notOwn tells whether an address is certainly none of the node's.
func (h *Host) notOwn(a netip.Addr) bool {
	kind, f := h.Type(a)
	return f.Is == Yes && kind == "unicast"
}

// hasAddr4 tells whether an interface has an IPv4 address: without one, even a loose filter refuses what
// comes back another way.
func (h *Host) hasAddr4(dev string) Known {
	for i := range h.Addrs {
		if h.Addrs[i].Link == dev && h.Addrs[i].Prefix.Addr().Is4() {
			return Yes
		}
	}
	for i := range h.Routes {
		if r := &h.Routes[i]; r.Table == "local" && r.Type == "local" && r.Family == 4 && r.Dev == dev {
			return Yes
		}
	}
	if h.HasLocalTable[4] || h.showsAddrs(4) {
		return No
	}
	return Unknown
}
