package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// xtPlace is a rule that evidence names, or a chain where it has no rule.
type xtPlace struct {
	rules *netfilter.Ruleset
	table *netfilter.Table
	chain *netfilter.Chain
	rule  *netfilter.Rule
}

// xtIndex finds rules by the lines of the captures that they were read from.
type xtIndex struct {
	of map[*netfilter.Ruleset][]xtSpan
}

// xtSpan are the lines of the rules of one chain.
type xtSpan struct {
	first, last int
	table       *netfilter.Table
	chain       *netfilter.Chain
}

func (x *xtIndex) spans(rs *netfilter.Ruleset) []xtSpan {
	if x.of == nil {
		x.of = make(map[*netfilter.Ruleset][]xtSpan)
	}
	if s, ok := x.of[rs]; ok {
		return s
	}
	var out []xtSpan
	for _, t := range rs.Tables {
		for _, c := range t.Chains {
			if n := len(c.Rules); n > 0 {
				out = append(out, xtSpan{c.Rules[0].Line, c.Rules[n-1].Line, t, c})
			}
		}
	}
	slices.SortFunc(out, func(a, b xtSpan) int { return cmp.Compare(a.first, b.first) })
	x.of[rs] = out
	return out
}

// place is what a piece of evidence shows, where that is a rule or a chain of iptables.
func (x *xtIndex) place(rulesets []*netfilter.Ruleset, e *report.Evidence) (xtPlace, bool) {
	if e.Line == 0 {
		return xtPlace{}, false
	}
	for _, rs := range rulesets {
		if rs.File != e.File {
			continue
		}
		spans := x.spans(rs)
		i, found := slices.BinarySearchFunc(spans, e.Line, func(s xtSpan, line int) int { return cmp.Compare(s.first, line) })
		if !found {
			i--
		}
		if i >= 0 && e.Line <= spans[i].last {
			s := spans[i]
			at, ok := slices.BinarySearchFunc(s.chain.Rules, e.Line, func(r netfilter.Rule, line int) int { return cmp.Compare(r.Line, line) })
			if ok && s.chain.Rules[at].Text == e.Text {
				return xtPlace{rs, s.table, s.chain, &s.chain.Rules[at]}, true
			}
			continue
		}
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				if c.Line == e.Line {
					return xtPlace{rs, t, c, nil}, true
				}
			}
		}
	}
	return xtPlace{}, false
}

// namedChains are the chains that a finding names: in its subject, and those of its evidence, with those that its rules
// lead to.
func (x *xtIndex) namedChains(rulesets []*netfilter.Ruleset, f *report.Finding) map[string]bool {
	out := make(map[string]bool)
	for word := range strings.FieldsFuncSeq(f.Subject, func(r rune) bool { return r == ' ' || r == '/' || r == '(' || r == ')' || r == ',' }) {
		out[word] = true
	}
	for i := range f.Evidence {
		p, ok := x.place(rulesets, &f.Evidence[i])
		if !ok {
			continue
		}
		out[p.chain.Name] = true
		if p.rule != nil {
			if j, ok := p.rule.Target.(netfilter.Jump); ok {
				out[j.Chain] = true
			}
		}
	}
	return out
}
