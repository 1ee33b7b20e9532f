package netfilter

import "slices"

// MarkPartial marks the chains of which a capture may lack rules, so that a walk that falls off their end does
// not take what was cut off for what is not there. text is the capture that the rulesets were read from.
//
//   - A save that stops before COMMIT lacks the rest of the chain it was at, and the rules of all chains that
//     it had declared and not come to: iptables-save prints the rules chain by chain.
//   - Of a chain that is appended to without being declared (a grep over `iptables -S`, a listing without its
//     "Chain" line), the capture has the rules that somebody selected.
//   - Where "..." stands for what was left out, any chain of the text may lack rules.
func MarkPartial(rulesets []*Ruleset, text string) {
	if !slices.ContainsFunc(rulesets, (*Ruleset).Partial) {
		return
	}
	elided, saved := false, false
	for in := (lines{text: plain(text)}); ; {
		line, ok := in.next()
		if !ok {
			break
		}
		saved = saved || len(line) > 1 && line[0] == '*' && line[1] >= 'a' && line[1] <= 'z'
		elided = elided || isElision(line)
	}
	for _, rs := range rulesets {
		for _, t := range rs.Tables {
			if t.Complete {
				continue
			}
			var last *Chain
			for _, c := range t.Chains {
				c.Partial = elided || !c.Declared || saved && len(c.Rules) == 0
				// The name of an undeclared chain may itself be cut off: the last declared one counts.
				if n := len(c.Rules); c.Declared && n > 0 && (last == nil || c.Rules[n-1].Line > last.Rules[len(last.Rules)-1].Line) {
					last = c
				}
			}
			if saved && last != nil {
				last.Partial = true
			}
		}
	}
}
