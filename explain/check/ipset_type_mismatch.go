package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/ipset"
	"github.com/svcnet/svcnet/explain/report"
)

// ipsetTypeMismatch: a set is not what the rules that ask it, or kube-proxy, take it for.
var ipsetTypeMismatch = Check{
	ID: "ipset-type-mismatch", Rests: onRules, Severity: Critical,
	Title: "IP sets of a type or family that their rules cannot ask",
	Node: func(n *Node) []report.Finding {
		questions, kube := n.setQuestions(), n.kubeSets()
		if len(questions)+len(kube) == 0 || !n.Needs(IPSets) {
			return nil
		}
		var out []report.Finding
		named := make(map[string]bool)
		for _, s := range kube {
			set := n.captured(s.Name)
			if set == nil || set.Type == "" || set.Type == s.Type && (s.Family == 0 || set.Family == s.Family) {
				continue
			}
			named[s.Name] = true
			f := report.Finding{
				Subject:  s.Name,
				Message:  fmt.Sprintf("IP set %s is %s, and kube-proxy keeps it as %s: it cannot add its entries", s.Name, typeText(set), kindText(s.Type, s.Family)),
				Want:     kindText(s.Type, s.Family),
				Got:      typeText(set),
				Evidence: []report.Evidence{HostEvidence("ipset", set.Evidence)},
				Causes:   []string{"something other than kube-proxy made a set of this name, and kube-proxy takes it as it is", "an older version of kube-proxy left it"},
				Remedy:   "kube-proxy --cleanup on this node, then start kube-proxy: it makes its sets anew",
			}
			out = append(out, f)
		}
		for _, q := range questions {
			set := n.captured(q.asks.Set)
			if set == nil || named[q.asks.Set] {
				continue
			}
			f := report.Finding{
				Subject:  q.asks.Set,
				Evidence: []report.Evidence{RuleEvidence(q.rules, q.rule), HostEvidence("ipset", set.Evidence)},
				Causes:   []string{"the set was made anew with another type while no rule asked it", "whoever wrote the rule took the set for another one"},
				Remedy:   "correct the rule, or make the set as the rule needs it; find out who writes them",
			}
			switch {
			case set.Family != 0 && set.Family != int(q.rules.Family):
				f.Message = fmt.Sprintf("a rule of chain %s for IPv%d asks IP set %s, which holds IPv%d: it is asked in vain", q.chain.Name, q.rules.Family, set.Name, set.Family)
				f.Want, f.Got = fmt.Sprintf("a set of IPv%d", q.rules.Family), typeText(set)
			case set.Dimensions() > len(q.asks.Dirs):
				f.Message = fmt.Sprintf("a rule of chain %s asks IP set %s with %d of the %d parts that its entries have: it is asked in vain", q.chain.Name, set.Name, len(q.asks.Dirs), set.Dimensions())
				f.Want, f.Got = fmt.Sprintf("a set whose entries have %d parts, at most", len(q.asks.Dirs)), typeText(set)
			default:
				continue
			}
			named[set.Name] = true
			out = append(out, f)
		}
		return out
	},
	Explains: []string{"frontend-unreachable", "reply-blocked", "ipset-entry-missing", "ipset-entry-stale"},
}

// typeText is a set's type and family as ipset creates it: "hash:ip,port family inet".
func typeText(s *ipset.Set) string { return kindText(s.Type, s.Family) }

func kindText(kind string, family int) string {
	switch family {
	case 4:
		return kind + " family inet"
	case 6:
		return kind + " family inet6"
	}
	return kind
}
