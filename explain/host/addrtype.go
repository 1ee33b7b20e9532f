package host

import (
	"fmt"
	"net/netip"
	"slices"
)

// Type is what the kernel takes an address for: "local", "unicast", "broadcast", "multicast", "anycast",
// "unspec", "unreachable", "blackhole" or "prohibit". It is what `fib daddr type` of nftables gives and,
// with the exceptions that HasType knows, what -m addrtype compares with.
//
// IPv4 (inet_addr_type) looks into the local table alone; whatever is not there is unicast, and 0.0.0.0
// counts as broadcast. IPv6 looks up the route: an address without one is unreachable.
//
// Where the evidence does not tell, the type is empty and the Finding is Unknown with what would decide.
func (h *Host) Type(a netip.Addr) (kind string, f Finding) {
	if !a.IsValid() {
		return "", Finding{Because: "there is no address"}
	}
	if a = a.Unmap().WithZone(""); a.Is6() {
		return h.type6(a)
	}
	switch {
	case a == limitedBroadcast || a.IsUnspecified():
		return "broadcast", Finding{Is: Yes, Because: a.String() + " is broadcast on every host"}
	case a.IsMulticast():
		return "multicast", Finding{Is: Yes, Because: a.String() + " is in the multicast network 224.0.0.0/4"}
	}
	e, merged := h.findLocal4(flow{dst: a, iif: "lo", iifKnown: true})
	switch {
	case e == nil:
		return h.notLocal(a)
	case e.open != "":
		return "", Finding{Because: e.open, Evidence: e.Evidence}
	}
	f = Finding{Is: Yes, Because: e.says(), Assumed: e.assumed || merged, Evidence: e.Evidence}
	if rejects(e.Type) || e.Type == "throw" || e.Type == "unicast" {
		return "unicast", f // a lookup that ends in an error leaves inet_addr_type at unicast
	}
	return e.Type, f
}

// findLocal4 looks into the local table of IPv4. As long as no rule was ever added, the kernel keeps the
// local and the main table as one (fib_trie: the local table is an alias), and a route of main that is
// narrower than a local one wins; merged is true for an answer that rests on that.
func (h *Host) findLocal4(f flow) (e *entry, merged bool) {
	local, main := h.find(4, "local", f), h.find(4, "main", f)
	switch {
	case len(local) == 0:
		return nil, false
	case len(main) > 0 && main[0].Dst.Bits() > local[0].Dst.Bits() && !h.fib().custom[4]:
		return main[0], true
	}
	return local[0], false
}

// notLocal is the answer for an address that no known local address matches.
func (h *Host) notLocal(a netip.Addr) (string, Finding) {
	family := familyOf(a)
	switch h.fib().local[family] {
	case captured:
		return "unicast", Finding{Is: Yes, Because: fmt.Sprintf("%s is not in the local table", a)}
	case derived:
		return "unicast", Finding{Is: Yes, Because: fmt.Sprintf("%s is not among the addresses of this node", a)}
	}
	switch {
	case slices.ContainsFunc(h.NodeAddrs, func(n netip.Addr) bool { return familyOf(n.Unmap()) == family }):
		return "unicast", Finding{Is: Yes, Assumed: true, Because: fmt.Sprintf("%s is not among the addresses that the Node object names; `ip addr` was not captured", a)}
	case slices.Contains(h.AnyNodeAddrs, a):
		return "", Finding{Because: fmt.Sprintf("%s is a node's address, and nothing tells whether it is this node's (--node NAME says whose evidence this is)", a)}
	case slices.ContainsFunc(h.AnyNodeAddrs, func(n netip.Addr) bool { return familyOf(n) == family }):
		return "unicast", Finding{Is: Yes, Assumed: true, Because: fmt.Sprintf("%s is not among the addresses of any Node object; `ip addr` was not captured", a)}
	case h.HasRoutes[family]:
		return "unicast", Finding{Is: Yes, Assumed: true, Because: fmt.Sprintf("no captured route names %s as a local address; `ip addr` was not captured", a)}
	}
	return "", Finding{Because: fmt.Sprintf("nothing tells whether %s is an address of this node: no `ip addr` capture and no IPv%d address in a Node object", a, family)}
}

// type6 follows nft_fib6_eval_type: the route that the node's own packets would take, then the kind of
// address. As in xt_addrtype, no source, mark or interface is looked at.
func (h *Host) type6(a netip.Addr) (string, Finding) {
	switch {
	case a.IsMulticast():
		return "multicast", Finding{Is: Yes, Because: a.String() + " is in the multicast network ff00::/8"}
	case a.IsUnspecified():
		return "unspec", Finding{Is: Yes, Because: ":: is the unspecified address"}
	}
	f := flow{dst: a, iif: "lo", iifKnown: true}
	if local := h.find(6, "local", f); len(local) > 0 && (local[0].Type == "local" || local[0].Type == "anycast") {
		e := local[0]
		return e.Type, Finding{Is: Yes, Because: e.says(), Assumed: e.assumed, Evidence: e.Evidence}
	}
	if h.fib().local[6] == partial && !h.HasRoutes[6] {
		return h.notLocal(a)
	}
	p := h.policy(6, f)
	found := Finding{Is: Yes, Because: p.because, Assumed: p.assumed, Evidence: p.evidence}
	switch {
	case p.kind == "unknown" || p.kind == "none" && !h.HasRoutes[6]:
		return h.notLocal(a)
	case p.kind == "none":
		found.Because = fmt.Sprintf("there is no route to %s", a)
		return "unreachable", found
	case rejects(p.kind):
		return p.kind, found
	case p.kind == "local":
		return "local", found
	case len(p.entries) > 0 && subnetRouter(p.entries[0], a):
		found.Because = fmt.Sprintf("%s is the subnet-router anycast address of %s", a, p.entries[0].says())
		return "anycast", found
	}
	if h.fib().local[6] == partial {
		return h.notLocal(a)
	}
	found.Because = fmt.Sprintf("%s is not an address of this node; %s", a, p.because)
	return "unicast", found
}

// subnetRouter tells whether an address is the lowest of an on-link network: the anycast address of its
// routers (ipv6_anycast_destination).
func subnetRouter(e *entry, a netip.Addr) bool {
	return e.Type == "anycast" || e.Dst.Bits() < 127 && e.Dst.Addr() == a && len(e.NextHops) == 0 && !e.Via.IsValid()
}

// HasType tells whether -m addrtype takes an address for this type, by its name in lower case. For IPv4 that
// is Type; for IPv6 an address can be several (xt_addrtype): every address that is neither multicast nor
// unspecified is unicast too, local ones as well, and a blackholed or prohibited one is only "unreachable".
func (h *Host) HasType(a netip.Addr, kind string) Finding {
	got, f := h.Type(a)
	v6 := a.IsValid() && !a.Is4() && !a.Is4In6()
	switch {
	case v6 && kind == "unicast":
		f = Finding{Is: is(!a.IsMulticast() && !a.IsUnspecified()), Because: "every IPv6 address but multicast and :: counts as unicast"}
	case f.Is == Unknown:
	case v6 && rejects(got):
		f.Is = is(kind == "unreachable")
	default:
		f.Is = is(got == kind)
	}
	return f
}

// OwnAddrs are the known addresses of this node, sorted, each once: the captured ones or those of the
// captured local table; where neither was captured, those that routes and the Node object name.
func (h *Host) OwnAddrs(family int) []netip.Addr {
	var out []netip.Addr
	t := h.fib().tables[tableKey{family, "local"}]
	if t != nil {
		for p, list := range t.routes {
			if p.IsSingleIP() && slices.ContainsFunc(list, func(e *entry) bool { return e.Type == "local" }) {
				out = append(out, p.Addr())
			}
		}
	}
	for i := range h.Addrs {
		if a := h.Addrs[i].Prefix.Addr(); familyOf(a) == family {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
