//go:build linux

package oracle

import "strings"

// clone copies a ruleset down to its rules.
func (rs *ruleset) clone() *ruleset {
	out := &ruleset{family: rs.family, backend: rs.backend}
	for _, t := range rs.tables {
		n := &tableText{name: t.name}
		for _, c := range t.chains {
			d := *c
			d.rules = append([]string(nil), c.rules...)
			n.chains = append(n.chains, &d)
		}
		out.tables = append(out.tables, n)
	}
	return out
}

// count is the number of rules.
func (rs *ruleset) count() (n int) {
	for _, t := range rs.tables {
		for _, c := range t.chains {
			n += len(c.rules)
		}
	}
	return n
}

// without is the ruleset without n rules from the i-th on, counted over all chains.
func (rs *ruleset) without(i, n int) *ruleset {
	out := rs.clone()
	at := 0
	for _, t := range out.tables {
		for _, c := range t.chains {
			var keep []string
			for _, r := range c.rules {
				if at < i || at >= i+n {
					keep = append(keep, r)
				}
				at++
			}
			c.rules = keep
		}
	}
	return out
}

// prune drops user-defined chains that no rule names.
func (rs *ruleset) prune() *ruleset {
	out := rs.clone()
	for _, t := range out.tables {
		for again := true; again; {
			again = false
			var keep []*chainText
			for _, c := range t.chains {
				if c.policy == "-" && !t.calls(c.name) {
					again = true
					continue
				}
				keep = append(keep, c)
			}
			t.chains = keep
		}
	}
	return out
}

func (t *tableText) calls(name string) bool {
	for _, c := range t.chains {
		for _, r := range c.rules {
			if _, target, ok := lastJump(r); ok && target == name {
				return true
			}
		}
	}
	return false
}

// shrink removes rules as long as the packet is still judged wrongly, and returns what is left. again tells whether
// a smaller set of rulesets still shows the disagreement.
func shrink(rulesets []*ruleset, again func([]*ruleset) bool) []*ruleset {
	for k := range rulesets {
		for step := max(rulesets[k].count()/2, 1); ; step /= 2 {
			for i := 0; i < rulesets[k].count(); {
				try := append([]*ruleset(nil), rulesets...)
				try[k] = rulesets[k].without(i, step)
				if again(try) {
					rulesets = try
				} else {
					i += step
				}
			}
			if step == 1 {
				break
			}
		}
	}
	for k := range rulesets {
		try := append([]*ruleset(nil), rulesets...)
		try[k] = rulesets[k].prune()
		if again(try) {
			rulesets = try
		}
	}
	return rulesets
}

// lastJump is what a rule's -j or -g names.
func lastJump(rule string) (how, target string, ok bool) {
	f := strings.Fields(rule)
	for i := len(f) - 2; i >= 0; i-- {
		if f[i] == "-j" || f[i] == "-g" {
			return f[i], f[i+1], true
		}
	}
	return "", "", false
}
