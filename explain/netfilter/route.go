package netfilter

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/host"
)

// fromInterface walks a packet that comes in on an interface: from a pod of this node or from outside.
func (r *run) fromInterface(s state) {
	s.p.Out = NoIface
	// On a bridge, br_netfilter runs the rules of PREROUTING before the IP layer has seen the packet.
	onBridge := r.isBridge(s.p.In)
	if !onBridge && r.refusedAtOnce(s) {
		return
	}
	dialled := s.p.Dst
	for _, s := range r.hook(Prerouting, []state{s}) {
		r.routeIn(s, dialled, onBridge)
	}
}

// refusedAtOnce ends packets that the IP layer refuses before it hands them to any rule.
func (r *run) refusedAtOnce(s state) bool {
	why := refused(&s.p)
	if why != "" {
		r.end(s.hop(Hop{Kind: HopRoute, Index: -1, Text: why, P: 1}), Martian, func(e *Ending) { e.Why = why })
	}
	return why != ""
}

// refused says why IPv6 refuses a packet at once (ip6_rcv_core), empty for one that it takes. IPv4 lets such
// packets through to the routing decision.
func refused(p *Packet) string {
	if p.Family != IPv6 || p.In.Name == "lo" {
		return ""
	}
	switch {
	case p.Src.IsLoopback(), p.Dst.IsLoopback():
		return "the kernel takes ::1 only from the loopback device"
	case p.Src.IsMulticast():
		return "the source is a multicast address"
	case p.Dst.IsInterfaceLocalMulticast():
		return "the destination does not leave an interface"
	}
	return ""
}

// routeIn is the routing decision after PREROUTING (ip_route_input_slow), then the way to the local
// process or through FORWARD. dialled is the destination with which the packet came in. onBridge tells that the IP layer
// has not seen the packet yet; one that stays on its bridge it never sees.
func (r *run) routeIn(s state, dialled netip.Addr, onBridge bool) {
	for _, s := range r.decide(s) {
		d := s.decision
		stays := d.Type == "unicast" && s.p.Dst != dialled && r.bridged(&s.p, d)
		if onBridge && !stays && r.refusedAtOnce(s.state) {
			continue
		}
		switch d.Type {
		case "local", "broadcast":
			if s, ok := r.acceptable(s.state, true); ok {
				r.deliver(s)
			}
		case "multicast":
			r.end(s.state, UnknownVerdict, func(e *Ending) { e.Why = "the evidence does not say which multicast groups the node is in" })
		case "unicast":
			s, ok := s.state, true
			if !stays {
				s, ok = r.acceptable(s, false)
			}
			if !ok {
				continue
			}
			for _, s := range r.hook(Forward, []state{s.leaveBy(r.Kernel, d)}) {
				r.send(s)
			}
		default:
			r.noRoute(s)
		}
	}
}

// fromNode walks a packet that a process of this node sends. The route is looked up first: it chooses the
// source address, and without one nothing is sent, whatever the rules say.
func (r *run) fromNode(s state) {
	s.p.In = NoIface
	for _, s := range r.decide(s) {
		switch d := s.decision; d.Type {
		case "local", "unicast", "broadcast", "multicast":
			behind := r.hook(Output, []state{s.leaveBy(r.Kernel, d)})
			for i := range behind {
				s := &behind[i]
				if s.out != (Iface{}) {
					s.p.Out, s.out = s.out, Iface{}
				}
				s.header, s.routed = rewritten{}, lookup{} // which count in OUTPUT only
			}
			for _, s := range mergeStates(behind) {
				r.send(s)
			}
		default:
			r.noRoute(s)
		}
	}
}

// send is POSTROUTING and what follows: the packet leaves the node, or comes around through the loopback
// device when its destination is the node itself.
func (r *run) send(s state) {
	for _, s := range r.hook(Postrouting, []state{s}) {
		if !s.p.Local || s.p.Out != loopback {
			r.end(s, Forwarded, nil)
			continue
		}
		// Loopback keeps the packet's route and connection: the PREROUTING chains run, no second routing
		// decision is made (ip_rcv_finish finds the route in place).
		s.p.In, s.p.Out, s.p.Local, s.p.Confirmed = loopback, NoIface, false, true
		s = s.trackedAnew()
		dialled, bound := s.p.Dst, s.dstBound
		for _, s := range r.hook(Prerouting, []state{s}) {
			if s.dstBound && !bound && s.p.Dst != dialled {
				// A translation, and it alone, drops the route (nf_nat_ipv4_pre_routing).
				r.routeIn(s, dialled, false)
				continue
			}
			r.deliver(s)
		}
	}
}

// trackedAnew is a packet that comes around through lo without a connection, because connection tracking found it
// invalid: it looks for one again, in the zone that PREROUTING says.
func (s state) trackedAnew() state {
	if s.p.State != StateInvalid || s.lost == nil {
		return s
	}
	s.undo, s.lost = s.lost, nil
	s.begun, s.template, s.p.Zone = false, false, ""
	return s
}

var loopback = Iface{Name: "lo", Known: true}

// deliver is INPUT.
func (r *run) deliver(s state) {
	s.p.Out = NoIface
	for _, s := range r.hook(Input, []state{s}) {
		r.end(s, Delivered, nil)
	}
}

func (r *run) noRoute(s decided) {
	d := s.decision
	if d.Type == "unknown" {
		r.end(s.state, UnknownVerdict, func(e *Ending) { e.Why = d.Because })
		return
	}
	r.end(s.state.routeHop(d), NoRoute, func(e *Ending) { e.Why = d.Because })
}

// decided is a state with its route.
type decided struct {
	state
	decision host.Decision
}

// decide looks up the route of a packet, or forks where the evidence leaves open whether the destination is
// the node itself. Where routes were not captured it takes for granted that there is one, and says so.
func (r *run) decide(s state) []decided {
	if s.p.Local {
		s.routed = s.lookup()
	}
	if s.toSelf {
		return []decided{{s, host.Decision{Type: "local"}}}
	}
	d := r.route(&s)
	if d.Type != "unknown" {
		if d.Assumed && d.Because != "" {
			s = s.note("%s", d.Because)
		}
		return []decided{{s, d}}
	}
	kind, f := r.Kernel.Host.Type(s.p.Dst)
	if f.Is == host.Unknown {
		yes, no := s.fork(LocalFact(s.p.Dst, f.Because))
		var out []decided
		for _, s := range yes {
			out = append(out, decided{s, host.Decision{Type: "local"}})
		}
		for _, s := range no {
			out = append(out, decided{s.note("%s", takenForGranted(s.p.Dst, d)), host.Decision{Type: "unicast"}})
		}
		return out
	}
	if f.Assumed && f.Because != "" {
		s = s.note("%s", f.Because)
	}
	switch kind {
	case "local", "broadcast", "multicast":
		return []decided{{s, host.Decision{Type: kind}}}
	}
	return []decided{{s.note("%s", takenForGranted(s.p.Dst, d)), host.Decision{Type: "unicast"}}}
}

func takenForGranted(dst netip.Addr, d host.Decision) string {
	return fmt.Sprintf("a route to %s is taken for granted: %s", dst, d.Because)
}

// LocalFact is the question whether an address is the node's own.
func LocalFact(a netip.Addr, because string) Fact {
	return Fact{
		Key:     "local " + a.String(),
		Yes:     a.String() + " is an address of this node",
		No:      a.String() + " is not an address of this node",
		Because: because,
	}
}

func (r *run) route(s *state) host.Decision {
	return r.Kernel.Host.Route(host.Query{
		Src: s.p.Src, Dst: s.p.Dst, Mark: s.p.Mark, In: s.p.In.Name, InKnown: s.p.In.Known,
		// What IPVS sends on is routed as the node's own packets are.
		Local: s.p.Local || s.p.IPVS.Handled && s.p.In == NoIface,
	})
}

// leaveBy sets the outgoing interface, and the source of a packet whose sender left it to the route.
func (s state) leaveBy(k *Kernel, d host.Decision) state {
	s.p.Out = Iface{Name: d.Out, Known: d.Out != ""}
	if d.Out == "" {
		s.p.Out.Cluster = slices.ContainsFunc(k.ClusterRanges, func(p netip.Prefix) bool { return p.Contains(s.p.Dst) })
	}
	if d.Type == "local" {
		s.p.Out = loopback
	}
	if !s.p.Src.IsValid() || s.p.Src.IsUnspecified() {
		s.p.Src = d.Src
		if !s.p.OrigSrc.IsValid() || s.p.OrigSrc.IsUnspecified() {
			s.p.OrigSrc = d.Src
		}
	}
	return s
}

func (s state) routeHop(d host.Decision) state {
	text := d.Text
	if text == "" {
		text = d.Because
	}
	return s.hop(Hop{Kind: HopRoute, Index: -1, File: d.File, Line: d.Line, Text: text, P: 1})
}

// bridged tells whether a packet leaves by the bridge that it came in on. One of IPv6 whose destination was
// translated then stays on it: br_netfilter hands it to the other port, the IP layer makes none of its checks, and the
// node need not forward (br_nf_pre_routing_finish_ipv6). For IPv4 the route that it looks up is one for forwarding,
// which checks the source and fails where forwarding is off (br_nf_pre_routing_finish).
func (r *run) bridged(p *Packet, d host.Decision) bool {
	return p.Family == IPv6 && p.In.Name == d.Out && r.isBridge(p.In)
}

func (r *run) isBridge(i Iface) bool {
	if !i.Known {
		return false
	}
	link := r.Kernel.Host.Link(i.Name)
	return link != nil && link.Kind == "bridge"
}

// acceptable are the checks of a packet from outside that go with its routing decision: the reverse path,
// loopback addresses, forwarding (fib_validate_source, ip_route_input_slow). A refusal that rests on an
// assumed interface is noted and does not end the walk.
//
// stays tells that the packet is for the node, which need not forward.
func (r *run) acceptable(s state, stays bool) (state, bool) {
	refuse := func(f host.Finding) (state, bool) {
		if s.p.InAssumed {
			return s.note("if it comes in on %s, the kernel drops it: %s", s.p.In.Name, f.Because), true
		}
		r.end(s.hop(Hop{Kind: HopRoute, Index: -1, File: f.File, Line: f.Line, Text: f.Because, P: 1}), Martian, func(e *Ending) { e.Why = f.Because })
		return s, false
	}
	if s.p.In.Known {
		if f := r.Kernel.Host.ReversePath(s.p.In.Name, s.p.Src, s.p.Dst, s.p.Mark); f.Is == host.No {
			var ok bool
			if s, ok = refuse(f); !ok {
				return s, false
			}
		}
	}
	if stays {
		return s, true
	}
	in := ""
	if s.p.In.Known {
		in = s.p.In.Name
	}
	switch f := r.Kernel.Host.Forwards(int(s.p.Family), in); f.Is {
	case host.No:
		r.end(s.hop(Hop{Kind: HopRoute, Index: -1, File: f.File, Line: f.Line, Text: f.Because, P: 1}), NoRoute, func(e *Ending) { e.Why = f.Because })
		return s, false
	case host.Unknown:
		if f.Because != "" {
			s = s.note("forwarding is taken to be on: %s", f.Because)
		}
	}
	return s, true
}

// lookup is what the route of a packet was looked up by.
type lookup struct {
	src, dst netip.Addr
	mark     uint32
	toSelf   bool
}

func (s *state) lookup() lookup { return lookup{s.p.Src, s.p.Dst, s.p.Mark, s.toSelf} }

// routeChain runs a chain of OUTPUT behind which a packet is routed again: where its mark, an address or another field
// of the header that the kernel compares is another than before the chain (nf_route_table_hook4, ipt_mangle_out).
func (r *run) routeChain(b base, before state) []state {
	before.header.written = 0
	var out []state
	for _, s := range r.finish(r.baseChain(b, []state{before})) {
		changed := Is(s.p.Dst != before.p.Dst || s.p.Src != before.p.Src || s.p.Mark != before.p.Mark || s.toSelf != before.toSelf)
		// Where nothing has changed since the last route, another lookup comes to the same.
		if changed.Truth == False && s.routed != s.lookup() {
			changed = s.header.since(before.header, b.name())
		}
		s.header.written = 0
		yes, no := []state{s}, []state(nil)
		switch changed.Truth {
		case False:
			yes, no = no, yes
		case Undecided:
			yes, no = s.fork(changed.Fact)
		}
		out = append(out, no...)
		for _, s := range yes {
			out = append(out, r.reroute(s)...)
		}
	}
	return mergeStates(out)
}

// rerouteTranslated looks up the route again where the nat hook of OUTPUT has changed the destination
// (nf_nat_ipv4_local_fn).
func (r *run) rerouteTranslated(before state, after []state) []state {
	var out []state
	for _, s := range after {
		if s.p.Dst == before.p.Dst && s.toSelf == before.toSelf {
			out = append(out, s)
		} else {
			out = append(out, r.reroute(s)...)
		}
	}
	return out
}

// reroute looks up the route of a packet of the node again (ip_route_me_harder). The rules of OUTPUT go on to see the
// interface of the first route; the new one counts from POSTROUTING on.
func (r *run) reroute(s state) []state {
	var out []state
	for _, d := range r.decide(s) {
		switch d.decision.Type {
		case "local", "unicast", "broadcast", "multicast":
			again := d.leaveBy(r.Kernel, d.decision)
			again.out, again.p.Out = again.p.Out, s.p.Out
			out = append(out, again)
		default:
			r.noRoute(d)
		}
	}
	return out
}

// answerTo is the ICMP type that answers an echo request.
func answerTo(p Packet) uint8 {
	switch {
	case p.Proto == ProtoICMP && p.ICMPType == 8:
		return 0
	case p.Proto == ProtoICMPv6 && p.ICMPType == 128:
		return 129
	}
	return p.ICMPType
}

// ephemeralPort stands for the port of a client whose port is not known, in the packets that come back to it: one
// from the range that systems draw from, which no Service rule names.
const ephemeralPort = 50007

// Reply walks the first answer to the packet of an ending that was delivered or forwarded: back from where
// it went, through connection tracking, which undoes the translations. The endings' packets are seen from
// the client's side: an answer whose source is not the address that the client dialled is no answer to it.
func (w *Walker) Reply(e Ending) []Ending {
	p := e.Packet
	if !p.HasSrcPort && p.SrcPort == 0 {
		p.SrcPort, p.OrigSrcPort = ephemeralPort, ephemeralPort
	}
	back := Packet{
		Family: p.Family, Src: p.Dst, Dst: p.Src, Proto: p.Proto, SrcPort: p.DstPort, DstPort: p.SrcPort, HasSrcPort: true,
		ICMPType: answerTo(p), ICMPCode: p.ICMPCode,
		OrigSrc: p.OrigSrc, OrigDst: p.OrigDst, OrigSrcPort: p.OrigSrcPort, OrigDstPort: p.OrigDstPort, Answer: true,
		IPVS: p.IPVS,
	}
	back.IPVS.Handled = false
	u := &undo{dst: p.OrigSrc, dstPort: p.OrigSrcPort, src: p.OrigDst, srcPort: p.OrigDstPort, hasDst: p.SNATed, hasSrc: p.DNATed, ctMark: p.CTMark, zone: p.Zone}
	if p.State == StateUntracked {
		u = nil
	}
	entry := FromInterface
	if e.Verdict == Delivered {
		entry, back.Local = FromNode, true
	} else {
		back.In, back.InAssumed = p.Out, true
	}
	return w.start(entry, state{p: back, prob: 1, undo: u})
}
