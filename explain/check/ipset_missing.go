package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/report"
)

// ipsetMissing: a set that rules ask, or that kube-proxy keeps in IPVS mode, is not there.
var ipsetMissing = Check{
	ID: "ipset-missing", Rests: onGrid, Severity: Critical,
	Title: "IP sets that rules need and that are not there",
	Node: func(n *Node) []report.Finding {
		questions, kube := n.setQuestions(), n.kubeSets()
		if len(questions)+len(kube) == 0 || !n.readIPSets() {
			return nil
		}
		var out []report.Finding
		asked := make(map[string]bool)
		for _, q := range questions {
			if n.Sets[q.asks.Set] != nil || asked[q.asks.Set] {
				continue
			}
			asked[q.asks.Set] = true
			out = append(out, report.Finding{
				Subject:  q.asks.Set,
				Message:  fmt.Sprintf("a rule of chain %s asks IP set %s, which is not there: whom the rule is for is not known", q.chain.Name, q.asks.Set),
				Want:     "set " + q.asks.Set,
				Got:      "no such set",
				Evidence: []report.Evidence{RuleEvidence(q.rules, q.rule)},
				Causes: []string{
					"rules and sets were captured at different moments, or the capture of the sets is not whole: the kernel keeps a set as long as a rule asks it",
					"the rules are those of another network namespace",
				},
				Remedy: "look again: ipset list -t " + q.asks.Set + "; where it is really gone, restart what owns it (kube-proxy, the network plugin)",
			})
		}
		// kube-proxy writes rules for sets that have entries: without the others nothing is amiss.
		needed := make(map[string]bool)
		for _, sp := range n.Plan.Ports {
			for _, w := range dataplane.IPVSElements(sp) {
				needed[w.Set] = needed[w.Set] || !w.May
			}
		}
		var gone, does []string
		for _, s := range kube {
			if n.Sets[s.Name] == nil && !asked[s.Name] && needed[s.Name] {
				gone, does = append(gone, s.Name), append(does, s.Does)
			}
		}
		if len(gone) == 0 {
			return out
		}
		f := report.Finding{
			Subject: strings.Join(gone, ", "),
			Message: fmt.Sprintf("IP set %s of kube-proxy is not there, nor a rule that asks it: %s", gone[0], does[0]),
			Want:    "set " + gone[0],
			Got:     "no such set",
			Causes:  []string{proxyStopped, "kube-proxy could not make the set (its log says why), and then writes no rules either", "something other than kube-proxy destroyed its rules and sets"},
			Remedy:  restartProxy,
		}
		if len(gone) > 1 {
			f.Message = fmt.Sprintf("%d IP sets of kube-proxy are not there, nor rules that ask them: %s", len(gone), strings.Join(gone, ", "))
			f.Want, f.Got = "these sets", "none of them"
		}
		if names := slices.Sorted(maps.Keys(n.Sets)); len(names) > 0 {
			f.Evidence = []report.Evidence{{Source: "ipset", File: n.captured(names[0]).File, Text: fmt.Sprintf("%d sets: %s", len(names), strings.Join(names, ", "))}}
		}
		return append(out, f)
	},
	Explains: []string{"frontend-unreachable", "reply-blocked", "masquerade-missing"},
}
