package netfilter

import (
	"fmt"
	"slices"

	"github.com/svcnet/svcnet/explain/host"
)

// state is one packet on its way, together with everything that was assumed, met and decided so far.
// It is copied when the way forks, so what it points to is never changed in place.
type state struct {
	p       Packet
	prob    float64
	assumed *assumed
	hops    *hops
	notes   *notes

	// template is set by the first CT or NOTRACK rule: later ones have no say. untracked is set by NOTRACK
	// before connection tracking runs; begun tells that it has run.
	template, untracked, begun bool
	// dstBound and srcBound tell that the connection has its destination and source translation, be it the
	// translation to itself: the nat hook of that direction is then over for the connection.
	dstBound, srcBound bool
	// toSelf is set by REDIRECT: the new destination is an address of this node, even if not known which.
	toSelf       bool
	dstBy, srcBy *hops
	// out is the interface of a new route that was looked up in OUTPUT; it takes effect in POSTROUTING.
	out Iface
	// header is what rules of OUTPUT have rewritten, routed by what the last route was looked up. Both are set in OUTPUT
	// only.
	header  rewritten
	routed  lookup
	tracked *host.Flow
	// undo is what a reply's translations put back, lost the same of a connection that tracking did not find.
	undo, lost *undo
}

// The histories of a state are linked lists: forks share their past.
type (
	assumed struct {
		Assumption
		prev *assumed
	}
	hops struct {
		Hop
		prev *hops
		n    int
	}
	notes struct {
		text string
		prev *notes
	}
)

func (s state) hop(h Hop) state {
	h.Cumulative = s.prob
	n := 1
	if s.hops != nil {
		n = s.hops.n + 1
	}
	s.hops = &hops{h, s.hops, n}
	return s
}

func (s state) note(format string, args ...any) state {
	text := fmt.Sprintf(format, args...)
	for n := s.notes; n != nil; n = n.prev {
		if n.text == text {
			return s
		}
	}
	s.notes = &notes{text, s.notes}
	return s
}

// assume returns the state in which the answer to f is taken to be yes or no.
func (s state) assume(f Fact, answer bool) state {
	s.assumed = &assumed{Assumption{f, answer}, s.assumed}
	if answer && f.Assume != nil {
		f.Assume(&s.p)
	}
	return s
}

// answered looks up what the state has already assumed about a fact.
func (s *state) answered(key string) (answer, ok bool) {
	for a := s.assumed; a != nil; a = a.prev {
		if a.Fact.Key == key {
			return a.Answer, true
		}
	}
	return false, false
}

// fork splits a state at a fact that the evidence does not decide. Either slice is empty when the state
// has assumed the other answer before.
func (s state) fork(f Fact) (yes, no []state) {
	if answer, ok := s.answered(f.Key); ok {
		if answer {
			return []state{s}, nil
		}
		return nil, []state{s}
	}
	return []state{s.assume(f, true)}, []state{s.assume(f, false)}
}

// run is one walk under way.
type run struct {
	*Walker
	family   Family
	rulesets []*Ruleset // those of the packet's family
	// byHook and natByHook are what the packet meets at each hook, gathered at the first question.
	byHook    [Postrouting + 1][]station
	natByHook [Postrouting + 1][][]base
	endings   []Ending
	cut       float64 // the share of the endings beyond the limit
}

// Walk follows p from its entry to all its endings. The shares of the endings sum to 1 within each consistent
// choice of assumptions. The result is the same for the same input.
func (w *Walker) Walk(entry Entry, p Packet) []Ending {
	p.OrigSrc, p.OrigDst, p.OrigSrcPort, p.OrigDstPort = p.Src, p.Dst, p.SrcPort, p.DstPort
	p.Local = entry == FromNode
	return w.start(entry, state{p: p, prob: 1})
}

// Through walks a packet that no routing decision leads through its hooks, in their order: a message of neighbour
// discovery, which the kernel sends to the neighbour that it asks for (ndisc_send_skb), or a frame that a bridge switches
// (br_netfilter). What passes them all is Forwarded. The packet's Local tells whether this node sends it.
func (w *Walker) Through(p Packet, hooks ...Hook) []Ending {
	p.OrigSrc, p.OrigDst, p.OrigSrcPort, p.OrigDstPort = p.Src, p.Dst, p.SrcPort, p.DstPort
	return w.run(state{p: p, prob: 1}, func(r *run, s state) {
		live := []state{s}
		for _, h := range hooks {
			live = r.hook(h, live)
		}
		for _, s := range live {
			r.end(s, Forwarded, nil)
		}
	})
}

func (w *Walker) start(entry Entry, s state) []Ending {
	return w.run(s, func(r *run, s state) {
		if entry == FromNode {
			r.fromNode(s)
		} else {
			r.fromInterface(s)
		}
	})
}

func (w *Walker) run(s state, walk func(*run, state)) []Ending {
	s.p.State = StateInvalid
	r := &run{Walker: w, family: s.p.Family}
	for _, rs := range w.Rulesets {
		if rs.Family == s.p.Family {
			r.rulesets = append(r.rulesets, rs)
		}
	}
	walk(r, s)
	out := mergeEndings(r.endings)
	if r.cut > 0 {
		out = append(out, Ending{
			Verdict: UnknownVerdict, P: r.cut, Packet: s.p, DstBy: -1, SrcBy: -1,
			Why: fmt.Sprintf("the rules leave more than %d ways open; the rest is not shown", r.limit()),
		})
	}
	return out
}

// end records an ending. Beyond the limit only the share of what is not shown is kept.
func (r *run) end(s state, v Verdict, fill func(*Ending)) {
	if len(r.endings) >= r.limit() {
		r.cut += s.prob
		return
	}
	e := Ending{Verdict: v, P: s.prob, Packet: s.p, DstBy: -1, SrcBy: -1, Tracked: s.tracked}
	for h := s.hops; h != nil; h = h.prev {
		if h == s.dstBy {
			e.DstBy = h.n - 1
		}
		if h == s.srcBy {
			e.SrcBy = h.n - 1
		}
		e.Hops = append(e.Hops, h.Hop)
	}
	slices.Reverse(e.Hops)
	for a := s.assumed; a != nil; a = a.prev {
		e.Assumed = append(e.Assumed, a.Assumption)
	}
	slices.Reverse(e.Assumed)
	for n := s.notes; n != nil; n = n.prev {
		e.Notes = append(e.Notes, n.text)
	}
	slices.Reverse(e.Notes)
	if fill != nil {
		fill(&e)
	}
	r.endings = append(r.endings, e)
}

func (r *run) limit() int {
	if r.MaxEndings > 0 {
		return r.MaxEndings
	}
	return 16384
}

// finish records the endings of states that left a hook for good and returns those that go on.
func (r *run) finish(left []leaving) []state {
	var on []state
	for _, l := range left {
		switch l.how {
		case accepted, fell:
			on = append(on, l.state)
		case dropped:
			r.end(l.state, Dropped, l.place)
		case rejected:
			r.end(l.state, Rejected, func(e *Ending) { l.place(e); e.RejectWith = l.with })
		case stolen:
			r.end(l.state, Stolen, func(e *Ending) { l.place(e); e.Why = l.with })
		case lost:
			r.end(l.state, UnknownVerdict, func(e *Ending) { l.place(e); e.Why = l.with })
		}
	}
	return mergeStates(on)
}
