package netfilter

import "slices"

// mergeStates folds states that will fare alike from here on: equal packets whose histories differ only in
// the answer to one fact (the fact then makes no difference so far), or not at all (their shares add up).
// The first state's hops stand for all. Order is kept.
func mergeStates(in []state) []state {
	return fold(in, (*state).like, func(s *state) *assumed { return s.assumed },
		func(s *state, a *assumed, prob float64) { s.assumed, s.prob = a, prob },
		func(s *state) float64 { return s.prob })
}

func (s *state) like(o *state) bool {
	return samePacket(&s.p, &o.p) && s.untracked == o.untracked && s.begun == o.begun && s.template == o.template && s.toSelf == o.toSelf && s.dstBound == o.dstBound && s.srcBound == o.srcBound &&
		s.tracked == o.tracked && s.undo == o.undo && s.dstBy.same(o.dstBy) && s.srcBy.same(o.srcBy)
}

// same tells whether two hops are the same step.
func (h *hops) same(o *hops) bool {
	if h == nil || o == nil {
		return h == o
	}
	return h.Rule == o.Rule && h.Kind == o.Kind && h.Text == o.Text
}

// samePacket compares all fields; a test holds it to that when fields are added.
func samePacket(a, b *Packet) bool {
	return a.Family == b.Family && a.Src == b.Src && a.Dst == b.Dst && a.Proto == b.Proto &&
		a.SrcPort == b.SrcPort && a.DstPort == b.DstPort && a.HasSrcPort == b.HasSrcPort &&
		a.ICMPType == b.ICMPType && a.ICMPCode == b.ICMPCode && a.In == b.In && a.Out == b.Out &&
		a.Mark == b.Mark && a.CTMark == b.CTMark && a.State == b.State && a.Zone == b.Zone && a.DNATed == b.DNATed && a.SNATed == b.SNATed &&
		a.OrigSrc == b.OrigSrc && a.OrigDst == b.OrigDst && a.OrigSrcPort == b.OrigSrcPort && a.OrigDstPort == b.OrigDstPort &&
		a.Reply == b.Reply && a.Local == b.Local && a.InAssumed == b.InAssumed && slices.Equal(a.Recent, b.Recent)
}

// mergeEndings does for endings what mergeStates does for states.
func mergeEndings(in []Ending) []Ending {
	type ending struct {
		Ending
		assumed *assumed
	}
	es := make([]ending, len(in))
	for i, e := range in {
		es[i].Ending = e
		for _, a := range e.Assumed {
			es[i].assumed = &assumed{a, es[i].assumed}
		}
	}
	es = fold(es, func(a, b *ending) bool {
		return a.Verdict == b.Verdict && a.Table == b.Table && a.Chain == b.Chain && a.RejectWith == b.RejectWith &&
			a.Why == b.Why && a.Tracked == b.Tracked && samePacket(&a.Packet, &b.Packet) &&
			a.translator(a.DstBy) == b.translator(b.DstBy) && a.translator(a.SrcBy) == b.translator(b.SrcBy)
	}, func(e *ending) *assumed { return e.assumed },
		func(e *ending, a *assumed, prob float64) { e.assumed, e.P = a, prob },
		func(e *ending) float64 { return e.P })
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

func (e *Ending) translator(i int) *Rule {
	if i < 0 {
		return nil
	}
	return e.Hops[i].Rule
}

// fold merges items that are alike. Items with the same assumptions add their shares; two items with the
// same share whose assumptions differ in one answer become one without that assumption. What was merged may
// merge again, so it goes on until nothing changes.
func fold[T any](in []T, like func(a, b *T) bool, get func(*T) *assumed, set func(*T, *assumed, float64), share func(*T) float64) []T {
	if len(in) < 2 {
		return in
	}
	out := slices.Clone(in)
	for changed := true; changed; {
		changed = false
		for i := 0; i < len(out); i++ {
			for j := i + 1; j < len(out); j++ {
				if !like(&out[i], &out[j]) {
					continue
				}
				a, same, one := difference(get(&out[i]), get(&out[j]))
				switch {
				case same:
					set(&out[i], a, share(&out[i])+share(&out[j]))
				case one && share(&out[i]) == share(&out[j]):
					set(&out[i], a, share(&out[i]))
				default:
					continue
				}
				out = slices.Delete(out, j, j+1)
				j--
				changed = true
			}
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
