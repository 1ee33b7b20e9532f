package netfilter

import "fmt"

// Priorities at which the tables of iptables hook in (include/uapi/linux/netfilter_ipv4.h). Connection
// tracking runs between raw and mangle, at -200.
const (
	prioRaw         = -300
	prioConntrack   = -200
	prioMangle      = -150
	prioDestination = -100
	prioFilter      = 0
	prioSecurity    = 50
	prioSource      = 100
)

// stage is one priority at one hook.
type stage struct {
	priority int
	table    string
}

// stages are what a packet meets at each hook, in the order of priority. Connection tracking has no table.
var stages = [...][]stage{
	Prerouting:  {{prioRaw, "raw"}, {prioConntrack, ""}, {prioMangle, "mangle"}, {prioDestination, "nat"}},
	Input:       {{prioMangle, "mangle"}, {prioFilter, "filter"}, {prioSecurity, "security"}, {prioSource, "nat"}},
	Forward:     {{prioMangle, "mangle"}, {prioFilter, "filter"}, {prioSecurity, "security"}},
	Output:      {{prioRaw, "raw"}, {prioConntrack, ""}, {prioMangle, "mangle"}, {prioDestination, "nat"}, {prioFilter, "filter"}, {prioSecurity, "security"}},
	Postrouting: {{prioMangle, "mangle"}, {prioSource, "nat"}},
}

// hook runs all stages of a hook. Packets of the node itself are routed again when the mangle or nat stage
// of OUTPUT changed what routing looks at (ip_route_me_harder).
func (r *run) hook(h Hook, in []state) []state {
	for _, st := range stages[h] {
		if len(in) == 0 {
			return nil
		}
		var out []state
		for _, s := range in {
			var after []state
			switch st.table {
			case "":
				after = r.track(s)
			case "nat":
				after = r.natStage(h, s)
			default:
				after = r.filterStage(h, st, s)
			}
			if h == Output && (st.table == "mangle" || st.table == "nat") {
				after = r.reroute(s, after, st.table == "mangle")
			}
			out = append(out, after...)
		}
		in = out
	}
	return in
}

// bases are the base chains of a table at a hook, one for each backend that has the table.
func (r *run) bases(h Hook, table string) []base {
	var out []base
	for _, rs := range r.rulesets {
		t := rs.Table(table)
		if t == nil {
			continue
		}
		c := t.Chain(h.String())
		if c == nil || (len(c.Rules) == 0 && c.Policy != "DROP") {
			continue
		}
		out = append(out, base{h, rs, t})
	}
	return out
}

// filterStage runs the base chains of one priority. ACCEPT ends its own chain only.
func (r *run) filterStage(h Hook, st stage, s state) []state {
	bases := r.bases(h, st.table)
	var out []state
	for _, o := range r.orders(h, st.table, bases, s) {
		live := []state{o.state}
		for _, b := range o.bases {
			live = r.finish(r.baseChain(b, live))
		}
		out = append(out, live...)
	}
	return mergeStates(out)
}

// ordered is a state with the order in which it meets base chains.
type ordered struct {
	state
	bases []base
}

// orders are the orders in which the base chains of one priority can run. The kernel runs the chain that was
// registered last first, and nothing that is saved or printed tells which that was.
func (r *run) orders(h Hook, table string, bases []base, s state) []ordered {
	if len(bases) < 2 {
		return []ordered{{s, bases}}
	}
	first, second := bases[0], bases[1]
	name := func(b base) string {
		if b.rules.Backend == UnknownBackend {
			return b.rules.File
		}
		return string(b.rules.Backend)
	}
	where := fmt.Sprintf("at %s %s", table, h)
	f := Fact{
		Key:     "order " + table + " " + h.String(),
		Yes:     fmt.Sprintf("the %s rules run before the %s rules %s", name(first), name(second), where),
		No:      fmt.Sprintf("the %s rules run before the %s rules %s", name(second), name(first), where),
		Because: "order unknown: both have the same priority, the kernel runs the one that was registered last first, and saved rules do not hold that order (iptables-legacy and iptables-nft both loaded)",
	}
	var out []ordered
	yes, no := s.fork(f)
	for _, s := range yes {
		out = append(out, ordered{s, bases})
	}
	for _, s := range no {
		out = append(out, ordered{s, []base{second, first}})
	}
	return out
}

// startsAs is the state of a packet that belongs to no known connection. ICMP has requests, with which a connection
// begins, and others, with which none does (icmp_pkt_to_tuple, nf_conntrack_icmpv6_init); neighbour discovery and
// multicast listener messages are never tracked.
func startsAs(p *Packet) CTState {
	switch p.Proto {
	case ProtoICMP:
		switch p.ICMPType {
		case 8, 13, 15, 17:
			return StateNew
		}
		return StateInvalid
	case ProtoICMPv6:
		switch t := p.ICMPType; {
		case t == 128, t == 139:
			return StateNew
		case t >= 130 && t <= 136, t == 143:
			return StateUntracked
		}
		return StateInvalid
	}
	return StateNew
}

// track is connection tracking: it finds the connection of a packet, or starts one. Until it has run, in the
// raw table, a packet has no connection, which matches call INVALID.
func (r *run) track(s state) []state {
	switch {
	case s.untracked:
		s.p.State = StateUntracked
		return []state{s}
	case s.begun:
		return []state{s} // comes around through lo with its connection
	}
	s.begun = true
	switch {
	case s.undo != nil && s.undo.zone == s.p.Zone:
		s.p.State, s.p.Reply, s.p.CTMark, s.p.DNATed, s.p.SNATed = StateEstablished, true, s.undo.ctMark, s.undo.hasSrc, s.undo.hasDst
		return []state{s}
	}
	if s.undo = nil; s.p.Answer {
		s.p.OrigSrc, s.p.OrigDst, s.p.OrigSrcPort, s.p.OrigDstPort = s.p.Src, s.p.Dst, s.p.SrcPort, s.p.DstPort
	}
	switch {
	case s.p.Answer && (s.p.Proto == ProtoTCP || s.p.Proto == ProtoSCTP):
		// The answer to a packet that was not tracked, or in another zone: no connection begins with it
		// (tcp_new, sctp_new).
		return []state{s}
	}
	if s.p.State = startsAs(&s.p); s.p.State != StateNew {
		return []state{s}
	}
	if !s.p.HasSrcPort || s.p.Answer || s.p.Zone != "" || !r.Kernel.Host.HasFlows {
		return []state{s}
	}
	f := r.Kernel.Host.FlowOf(s.p.Proto, s.p.Src, s.p.SrcPort, s.p.Dst, s.p.DstPort)
	if f == nil {
		return []state{s}
	}
	s.tracked = f
	s.p.CTMark = f.Mark
	if !f.Unreplied {
		s.p.State = StateEstablished
	}
	s.p.DNATed = f.ReplySrc != f.Dst || f.ReplySrcPort != f.DstPort
	s.p.SNATed = f.ReplyDst != f.Src || f.ReplyDstPort != f.SrcPort
	return []state{s.hop(Hop{Kind: HopCT, Index: -1, File: f.File, Line: f.Line, Text: f.Text, P: 1})}
}
