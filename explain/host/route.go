package host

import (
	"fmt"
	"net/netip"
	"slices"
)

// Route is the kernel's routing decision: for the node's own packets what ip_route_output gives, with the
// source address that it chooses; for others what ip_route_input and ip6_route_input look up. The checks
// that refuse a packet from outside are ReversePath and Forwards.
//
// Rules that were not captured are taken to be the kernel's own. Without captured routes a destination that
// is known to be the node's is still local; for any other the type is unknown.
func (h *Host) Route(q Query) Decision {
	if !q.Dst.IsValid() {
		return Decision{Type: "unknown", Because: "there is no destination"}
	}
	dst, src := q.Dst.Unmap().WithZone(""), q.Src
	if src.IsValid() {
		src = src.Unmap().WithZone("")
		if src.IsUnspecified() || src.Is4() != dst.Is4() {
			src = netip.Addr{}
		}
	}
	f := flow{src: src, dst: dst, mark: q.Mark, iif: q.In, iifKnown: q.InKnown}
	if q.Local {
		f.iif, f.iifKnown = "lo", true
	} else {
		f.srcOpen = !q.Src.IsValid()
	}
	family := familyOf(dst)
	if d, ok := h.fixedRoute(f, q.Local); ok {
		return d
	}
	if family == 6 && !q.Local && q.InKnown && q.In != "lo" && (dst.IsLinkLocalUnicast() || dst.IsLoopback()) {
		f.link = q.In
	}
	v := h.policy(family, f)
	d := h.decisionOf(v, dst, q.In)
	if family == 6 && dst.IsMulticast() && (d.Type == "unicast" || d.Type == "none" || d.Type == "unknown") {
		d.Type = "multicast"
	}
	if family == 4 && q.Local && d.Type == "unicast" && (dst == limitedBroadcast || dst.IsMulticast()) {
		// The route says where to, the address says how: without a gateway (__mkroute_output).
		d.Type, d.Via = "multicast", netip.Addr{}
		if dst == limitedBroadcast {
			d.Type = "broadcast"
		}
	}
	if q.Local {
		return h.output(d, v, f)
	}
	if d.Type == "local" || d.Type == "broadcast" {
		d.Out, d.Outs = "", nil
	}
	return d
}

// fixedRoute are the destinations that no table decides.
func (h *Host) fixedRoute(f flow, local bool) (Decision, bool) {
	switch {
	case local && f.dst.IsUnspecified():
		src := f.dst
		if f.src.IsValid() {
			src = f.src
		}
		return Decision{Type: "local", Out: "lo", Src: src, Because: f.dst.String() + " as a destination is the node itself"}, true
	case local && f.src.Is4() && (f.dst == limitedBroadcast || f.dst.IsMulticast()):
		// With a source given, its interface is taken and no route is looked up (ip_route_output).
		d := Decision{Type: "multicast", Src: f.src, Because: f.dst.String() + " goes out through the interface of its source " + f.src.String()}
		if f.dst == limitedBroadcast {
			d.Type = "broadcast"
		}
		for i := range h.Addrs {
			if h.Addrs[i].Prefix.Addr() == f.src {
				d.Out, d.Evidence = h.Addrs[i].Link, h.Addrs[i].Evidence
				break
			}
		}
		return d, true
	case local:
		return Decision{}, false
	case f.dst == limitedBroadcast:
		return Decision{Type: "broadcast", Because: f.dst.String() + " is broadcast on every host"}, true
	case f.dst.Is4() && f.dst.IsMulticast():
		return Decision{Type: "multicast", Because: f.dst.String() + " is a multicast group: delivered where a process has joined it, and not routed"}, true
	}
	return Decision{}, false
}

// decisionOf turns a verdict into a decision. Among IPv6 routes alike, those through the interface that the
// packet came in on are preferred (rt6_score_route).
func (h *Host) decisionOf(v verdict, dst netip.Addr, in string) Decision {
	d := Decision{Type: v.kind, Because: v.because, Assumed: v.assumed, Evidence: v.evidence}
	if len(v.entries) == 0 || rejects(v.kind) {
		if v.kind == "none" {
			d.Because = fmt.Sprintf("there is no route to %s: %s", dst, v.because)
		}
		return d
	}
	if !h.HasRules[familyOf(dst)] && v.kind == "unicast" {
		d.Because += "; routing rules were not captured, the kernel's own are assumed"
		d.Assumed = d.Assumed || h.otherTables(familyOf(dst))
	}
	entries := v.entries
	if i := slices.IndexFunc(entries, func(e *entry) bool { return in != "" && e.Dev == in }); i >= 0 && len(entries) > 1 {
		entries = entries[i : i+1]
	}
	d.Src = entries[0].Src
	var hops []NextHop
	for _, e := range entries {
		for _, hop := range e.hops() {
			if h.alive(hop, e.Family) {
				hops = append(hops, hop)
			}
		}
	}
	if len(hops) == 0 {
		return d
	}
	d.Out, d.Via = hops[0].Dev, hops[0].Via
	for _, hop := range hops {
		if hop.Dev != d.Out {
			d.Out = ""
		}
		if hop.Via != d.Via {
			d.Via = netip.Addr{}
		}
		if !slices.Contains(d.Outs, hop.Dev) {
			d.Outs = append(d.Outs, hop.Dev)
		}
	}
	if len(hops) == 1 {
		d.Outs = nil
	} else {
		d.Because += fmt.Sprintf("; one of %d next hops is taken per connection", len(hops))
	}
	return d
}

// otherTables tells whether routes of tables were captured that only custom rules lead to.
func (h *Host) otherTables(family int) bool {
	for k := range h.fib().tables {
		if k.family == family && k.name != "main" && k.name != "local" && k.name != "default" && k.name != "unspec" {
			return true
		}
	}
	return false
}

// output finishes the decision for a packet of the node itself: the loopback device for its own addresses,
// the source address, and the check that a loopback source stays on the node (__mkroute_output).
func (h *Host) output(d Decision, v verdict, f flow) Decision {
	switch d.Type {
	case "local":
		d.Out, d.Outs, d.Via = "lo", nil, netip.Addr{}
		if f.dst.Is6() && len(v.entries) > 0 {
			d.Src = h.source6(v.entries[0].Dev, f.dst)
		}
		if !d.Src.IsValid() {
			d.Src = f.dst
		}
	case "unicast", "broadcast", "multicast":
		if !d.Src.IsValid() && !f.src.IsValid() && d.Out != "" && len(v.entries) > 0 {
			d.Src = h.sourceOf(v.entries[0], d, f.dst)
		}
	}
	if f.src.IsValid() {
		d.Src = f.src
	}
	if f.src.IsValid() && f.src.Is4() && f.src.IsLoopback() && (d.Type == "unicast" || d.Type == "broadcast") {
		return h.loopbackOut(d, f.src)
	}
	return d
}

// loopbackOut refuses a loopback source on its way out through anything but lo, unless route_localnet lets
// it. Of several ways out each has to.
func (h *Host) loopbackOut(d Decision, src netip.Addr) Decision {
	outs := d.Outs
	if d.Out != "" {
		outs = []string{d.Out}
	}
	refused, last := 0, Finding{}
	for _, out := range outs {
		switch l := h.routeLocalnet(out); {
		case out == "lo" || l.Is == Yes:
		case l.Is == Unknown:
			return Decision{Type: "unknown", Because: fmt.Sprintf("whether the loopback source %s may leave through %s is not known: %s", src, out, l.Because)}
		default:
			refused++
			last = l
			last.Because = fmt.Sprintf("the kernel does not let the loopback source %s out through %s: %s", src, out, l.Because)
		}
	}
	switch {
	case refused == 0:
		return d
	case refused < len(outs):
		return Decision{Type: "unknown", Evidence: d.Evidence, Because: "it depends on the next hop that is taken: " + last.Because}
	}
	return Decision{Type: "none", Martian: true, Assumed: last.Assumed, Evidence: last.Evidence, Because: last.Because}
}
