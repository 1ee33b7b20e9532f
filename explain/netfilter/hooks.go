package netfilter

import (
	"cmp"
	"fmt"
	"slices"
)

// Priorities at which connection tracking, translation and the tables of iptables hook in
// (include/uapi/linux/netfilter_ipv4.h).
const (
	prioRaw         = -300
	prioConntrack   = -200
	prioMangle      = -150
	prioDestination = -100
	prioFilter      = 0
	prioSecurity    = 50
	prioSource      = 100
)

// tablePriorities are where the tables of iptables hook in. The chains of nat run inside of the nat hook.
var tablePriorities = []struct {
	table    string
	priority int
}{{"raw", prioRaw}, {"mangle", prioMangle}, {"filter", prioFilter}, {"security", prioSecurity}}

// station is all that a packet meets at one priority of a hook.
type station struct {
	priority int
	posts    []post
}

// post is one thing that is registered at a hook: a base chain, connection tracking, the nat hook with all its chains,
// or IPVS.
type post struct {
	kind postKind
	base base // of a chain
}

type postKind uint8

const (
	postChain postKind = iota
	postTracking
	postTranslation
	postIPVS
)

// stations are what a packet meets at a hook, in the order of priority.
func (r *run) stations(h Hook) []station {
	if r.byHook[h] != nil {
		return r.byHook[h]
	}
	var out []station
	at := func(priority int, p post) {
		i, found := slices.BinarySearchFunc(out, priority, func(s station, p int) int { return cmp.Compare(s.priority, p) })
		if !found {
			out = slices.Insert(out, i, station{priority: priority})
		}
		out[i].posts = append(out[i].posts, p)
	}
	if h == Prerouting || h == Output {
		at(prioConntrack, post{kind: postTracking})
	}
	switch h {
	case Prerouting, Output:
		at(prioDestination, post{kind: postTranslation})
	case Input, Postrouting:
		at(prioSource, post{kind: postTranslation})
	}
	if r.Kernel.IPVS != nil {
		switch h {
		case Input:
			at(prioIPVSInput, post{kind: postIPVS})
		case Forward:
			at(prioIPVSForward, post{kind: postIPVS})
		case Output:
			at(prioIPVSOutput, post{kind: postIPVS})
		}
	}
	for _, t := range tablePriorities {
		for _, b := range r.bases(h, t.table) {
			at(t.priority, post{base: b})
		}
	}
	for _, b := range r.nftBases(h, false) {
		at(b.priority, post{base: b})
	}
	r.byHook[h] = out
	return out
}

// hook runs all stations of a hook.
func (r *run) hook(h Hook, in []state) []state {
	for _, st := range r.stations(h) {
		if len(in) == 0 {
			return nil
		}
		in = each(in, func(s state) []state { return r.station(h, st, s) })
	}
	return in
}

// station runs what is registered at one priority. Packets of the node are routed again behind a chain of type route,
// which the mangle table's is, and behind the nat hook; chains of type filter do not care for it.
func (r *run) station(h Hook, st station, s state) []state {
	several := orders(h, st.posts, post.name, s)
	var out []state
	for _, o := range several {
		live := []state{o.state}
		for _, p := range o.posts {
			switch {
			case p.kind == postTracking:
				live = each(live, r.track)
			case p.kind == postTranslation:
				live = each(live, func(s state) []state {
					after := r.natStage(h, s)
					if h == Output {
						after = r.rerouteTranslated(s, after)
					}
					return after
				})
			case p.kind == postIPVS:
				live = each(live, func(s state) []state { return r.ipvsStage(h, s) })
			case h == Output && p.base.routes():
				live = each(live, func(s state) []state { return r.routeChain(p.base, s) })
			default:
				live = r.finish(r.baseChain(p.base, live))
			}
		}
		if len(several) == 1 {
			return mergeStates(live)
		}
		out = append(out, live...)
	}
	return mergeStates(out)
}

func each(in []state, f func(state) []state) []state {
	if len(in) == 1 {
		return f(in[0])
	}
	var out []state
	for _, s := range in {
		out = append(out, f(s)...)
	}
	return out
}

// bases are the base chains of a table of iptables at a hook, one for each backend that has the table.
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
		out = append(out, base{hook: h, rules: rs, table: t})
	}
	return out
}

// natChains are the chains of the nat hook, those of one priority together (nf_nat_register_fn).
func (r *run) natChains(h Hook) [][]base {
	if r.natByHook[h] != nil {
		return r.natByHook[h]
	}
	all := r.bases(h, "nat")
	for i := range all {
		all[i].priority = prioSource
		if h == Prerouting || h == Output {
			all[i].priority = prioDestination
		}
	}
	all = append(all, r.nftBases(h, true)...)
	slices.SortStableFunc(all, func(a, b base) int { return cmp.Compare(a.priority, b.priority) })
	out := [][]base{}
	for i, b := range all {
		if i > 0 && all[i-1].priority == b.priority {
			out[len(out)-1] = append(out[len(out)-1], b)
		} else {
			out = append(out, []base{b})
		}
	}
	r.natByHook[h] = out
	return out
}

// ordered is a state with the order in which it meets what has the same priority.
type ordered[T any] struct {
	state
	posts []T
}

// maxOrdered bounds the things of one priority whose orders are all gone through.
const maxOrdered = 5

// orders are the orders in which things of one priority can run. The kernel runs the one that was registered last
// first (nf_hook_entries_grow), and nothing that is saved or printed tells which that was.
func orders[T any](h Hook, posts []T, name func(T) string, s state) []ordered[T] {
	if len(posts) < 2 {
		return []ordered[T]{{s, posts}}
	}
	if len(posts) > maxOrdered {
		s = s.note("%d chains have the same priority at %s: their order is not known, and the one of the capture is taken", len(posts), h)
		return []ordered[T]{{s, posts}}
	}
	last := posts[len(posts)-1]
	var out []ordered[T]
	for _, o := range orders(h, posts[:len(posts)-1], name, s) {
		// The last one comes before the first of the others that it does not come after.
		open := []state{o.state}
		for i, other := range o.posts {
			var after []state
			for _, s := range open {
				yes, no := s.fork(orderFact(h, name(other), name(last)))
				after = append(after, yes...)
				for _, s := range no {
					out = append(out, ordered[T]{s, slices.Insert(slices.Clone(o.posts), i, last)})
				}
			}
			open = after
		}
		for _, s := range open {
			out = append(out, ordered[T]{s, append(slices.Clone(o.posts), last)})
		}
	}
	return out
}

func orderFact(h Hook, first, second string) Fact {
	return Fact{
		Key:     "order " + h.String() + " " + first + " " + second,
		Yes:     fmt.Sprintf("%s run before %s at %s", first, second, h),
		No:      fmt.Sprintf("%s run before %s at %s", second, first, h),
		Because: "order unknown: both have the same priority, the kernel runs the one that was registered last first, and saved rules do not hold that order",
	}
}

// name is what is registered, in words.
func (p post) name() string {
	switch p.kind {
	case postTracking:
		return "connection tracking"
	case postTranslation:
		return "translations"
	case postIPVS:
		return "IPVS"
	}
	return p.base.name()
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
	// What a template was marked with stays with it.
	s.p.Template, s.p.CTMark = false, 0
	switch {
	case s.undo != nil && s.undo.zone == s.p.Zone:
		s.p.State, s.p.Reply, s.p.CTMark, s.p.DNATed, s.p.SNATed = StateEstablished, true, s.undo.ctMark, s.undo.hasSrc, s.undo.hasDst
		return []state{s}
	}
	s.lost, s.undo = s.undo, nil
	if s.p.Answer {
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
	// The translation of IPVS is none of connection tracking's: the packet goes to IPVS as it is.
	s.p.DNATed = (f.ReplySrc != f.Dst || f.ReplySrcPort != f.DstPort) && !r.ipvsFlow(f)
	s.p.SNATed = f.ReplyDst != f.Src || f.ReplyDstPort != f.SrcPort
	return []state{s.hop(Hop{Kind: HopCT, Index: -1, File: f.File, Line: f.Line, Text: f.Text, P: 1})}
}
