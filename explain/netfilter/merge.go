package netfilter

import (
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/nft"
)

// mergeStates folds states that will fare alike from here on: equal packets whose histories differ only in
// the answer to one fact (the fact then makes no difference so far), or not at all (their shares add up).
// The first state's hops stand for all. Order is kept.
func mergeStates(in []state) []state {
	return fold(in, func(s *state) stateKey {
		return stateKey{
			packet: s.p.key(), out: s.out, template: s.template, untracked: s.untracked, begun: s.begun, toSelf: s.toSelf,
			dstBound: s.dstBound, srcBound: s.srcBound, dstBy: s.dstBy.step(), srcBy: s.srcBy.step(),
			tracked: s.tracked, undo: s.undo, lost: s.lost, header: s.header, routed: s.routed,
		}
	}, func(s *state) []RecentUpdate { return s.p.Recent },
		func(s *state) (*assumed, float64) { return s.assumed, s.prob },
		func(s *state, a *assumed, prob float64) { s.assumed, s.prob = a, prob })
}

// stateKey is everything that decides how a state fares from here on, but the recent lists.
type stateKey struct {
	packet                                                 packetKey
	out                                                    Iface
	template, untracked, begun, toSelf, dstBound, srcBound bool
	dstBy, srcBy                                           step
	tracked                                                any
	undo, lost                                             *undo
	header                                                 rewritten
	routed                                                 lookup
}

// step identifies a hop.
type step struct {
	kind   HopKind
	rule   *Rule
	native *nft.Rule
	text   string
}

func (h *hops) step() step {
	if h == nil {
		return step{}
	}
	return step{h.Kind, h.Rule, h.Native, h.Text}
}

// packetKey is all of a packet but its recent lists; a test holds it to that when fields are added.
type packetKey struct {
	family                                     Family
	src, dst, origSrc, origDst                 netip.Addr
	proto                                      uint8
	srcPort, dstPort, origSrcPort, origDstPort uint16
	hasSrcPort                                 bool
	icmpType, icmpCode                         uint8
	in, out                                    Iface
	mark, ctMark                               uint32
	state                                      CTState
	zone                                       string
	dnated, snated, answer, reply, local       bool
	inAssumed, confirmed, template             bool
	ipvs                                       VirtualConn
}

func (p *Packet) key() packetKey {
	return packetKey{
		p.Family, p.Src, p.Dst, p.OrigSrc, p.OrigDst, p.Proto, p.SrcPort, p.DstPort, p.OrigSrcPort, p.OrigDstPort,
		p.HasSrcPort, p.ICMPType, p.ICMPCode, p.In, p.Out, p.Mark, p.CTMark, p.State, p.Zone,
		p.DNATed, p.SNATed, p.Answer, p.Reply, p.Local, p.InAssumed, p.Confirmed, p.Template, p.IPVS,
	}
}

// mergeEndings does for endings what mergeStates does for states.
func mergeEndings(in []Ending) []Ending {
	type ending struct {
		Ending
		assumed *assumed
	}
	type endingKey struct {
		packet                        packetKey
		verdict                       Verdict
		table, chain, rejectWith, why string
		tracked                       any
		dstBy, srcBy                  step
	}
	es := make([]ending, len(in))
	for i, e := range in {
		es[i].Ending = e
		for _, a := range e.Assumed {
			es[i].assumed = &assumed{a, es[i].assumed}
		}
	}
	es = fold(es, func(e *ending) endingKey {
		return endingKey{e.Packet.key(), e.Verdict, e.Table, e.Chain, e.RejectWith, e.Why, e.Tracked, e.translator(e.DstBy), e.translator(e.SrcBy)}
	}, func(e *ending) []RecentUpdate { return e.Packet.Recent },
		func(e *ending) (*assumed, float64) { return e.assumed, e.P },
		func(e *ending, a *assumed, prob float64) { e.assumed, e.P = a, prob })
	out := make([]Ending, len(es))
	for i, e := range es {
		out[i] = e.Ending
		out[i].Assumed = nil
		for a := e.assumed; a != nil; a = a.prev {
			out[i].Assumed = append(out[i].Assumed, a.Assumption)
		}
		slices.Reverse(out[i].Assumed)
	}
	return out
}

func (e *Ending) translator(i int) step {
	if i < 0 {
		return step{}
	}
	h := &e.Hops[i]
	return step{kind: h.Kind, rule: h.Rule, native: h.Native}
}

// fold merges items that are alike: those of one key with equal recent lists. Items with the same assumptions add
// their shares; two items with the same share whose assumptions differ in one answer become one without that
// assumption. What was merged may merge again, so it goes on until nothing changes.
func fold[T any, K comparable](in []T, key func(*T) K, recent func(*T) []RecentUpdate, get func(*T) (*assumed, float64), set func(*T, *assumed, float64)) []T {
	if len(in) < 2 {
		return in
	}
	items := slices.Clone(in)
	groups := make(map[K][]int, len(items))
	gone := make([]bool, len(items))
	for i := range items {
		k := key(&items[i])
		groups[k] = append(groups[k], i)
	}
	for _, group := range groups {
		for changed := len(group) > 1; changed; {
			changed = false
			for x := 0; x < len(group); x++ {
				for y := x + 1; y < len(group); y++ {
					i, j := group[x], group[y]
					if !slices.Equal(recent(&items[i]), recent(&items[j])) {
						continue
					}
					a, p := get(&items[i])
					b, q := get(&items[j])
					rest, same, one := difference(a, b)
					switch {
					case same:
						set(&items[i], rest, p+q)
					case one && p == q:
						set(&items[i], rest, p)
					default:
						continue
					}
					gone[j] = true
					group = slices.Delete(group, y, y+1)
					y--
					changed = true
				}
			}
		}
	}
	out := items[:0]
	for i := range items {
		if !gone[i] {
			out = append(out, items[i])
		}
	}
	return out
}

// difference compares two sets of assumptions. same: they are equal. one: they differ in the answer to exactly
// one fact and nothing else; rest is then what they share.
func difference(x, y *assumed) (rest *assumed, same, one bool) {
	if x == y {
		return x, true, false
	}
	var xs, ys []Assumption
	for a := x; a != nil; a = a.prev {
		xs = append(xs, a.Assumption)
	}
	for a := y; a != nil; a = a.prev {
		ys = append(ys, a.Assumption)
	}
	if len(xs) != len(ys) {
		return nil, false, false
	}
	odd := -1
	for i, a := range xs {
		j := slices.IndexFunc(ys, func(b Assumption) bool { return a.Fact.Key == b.Fact.Key })
		switch {
		case j < 0:
			return nil, false, false
		case a.Answer == ys[j].Answer:
		case odd >= 0:
			return nil, false, false
		default:
			odd = i
		}
	}
	for i, a := range slices.Backward(xs) {
		if i != odd {
			rest = &assumed{a, rest}
		}
	}
	return rest, odd < 0, odd >= 0
}
