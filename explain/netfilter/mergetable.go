package netfilter

import "slices"

// mergeTable adds one part of a paste to the table that parts before it have begun. The same rule may stand in both
// (two greps that overlap). What a later part shows of a chain replaces what is there if it holds all of it;
// rules that are there already are not repeated.
func mergeTable(into, from *Table) {
	into.Complete = false
	for _, c := range from.Chains {
		have := into.AddChain(c.Name)
		if c.Declared && !have.Declared {
			have.Declared, have.Line = true, c.Line
		}
		if c.Policy != "" {
			have.Policy = c.Policy
		}
		switch {
		case within(c.Rules, have.Rules):
		case within(have.Rules, c.Rules):
			have.Rules = c.Rules
		default:
			have.Rules = appendMissing(have.Rules, c.Rules)
		}
	}
}

// within tells whether the rules of part stand in whole, in the same order.
func within(part, whole []Rule) bool {
	i := 0
	for j := 0; i < len(part) && j < len(whole); j++ {
		if part[i].Text == whole[j].Text {
			i++
		}
	}
	return i == len(part)
}

func appendMissing(rules, more []Rule) []Rule {
	count := make(map[string]int, len(rules))
	for i := range rules {
		count[rules[i].Text]++
	}
	rules = slices.Clip(rules)
	for i := range more {
		if count[more[i].Text] > 0 {
			count[more[i].Text]--
			continue
		}
		rules = append(rules, more[i])
	}
	return rules
}
