package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// repeated is how many times the same rule has to stand in a chain to count. Two are what is left when kubelet and
// kube-proxy make a jump at the same moment, and do no harm.
const repeated = 3

// duplicateRules: one rule many times in one chain of kube-proxy or kubelet, or the jump to such a chain. Somebody adds
// it again and again because iptables does not find it.
var duplicateRules = Check{
	ID: "duplicate-rules", Rests: onRules, Severity: Warning,
	Title: "rules of kube-proxy or kubelet that stand many times in one chain",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, rs := range n.Rulesets {
			for _, t := range rs.Tables {
				for _, c := range t.Chains {
					out = append(out, duplicates(rs, t, c)...)
				}
			}
		}
		return out
	},
}

func duplicates(rs *netfilter.Ruleset, t *netfilter.Table, c *netfilter.Chain) []report.Finding {
	// Up to 1.23 a KUBE-FW chain holds the same rules once for each address of the load balancer.
	ours := dataplane.Stock(t.Name, c.Name) && !strings.HasPrefix(c.Name, dataplane.FWPrefix)
	if len(c.Rules) < repeated || !ours && c.Policy == "" {
		return nil
	}
	times := make(map[string]int, len(c.Rules))
	var order []*netfilter.Rule
	for i := range c.Rules {
		r := &c.Rules[i]
		if j, ok := r.Target.(netfilter.Jump); !ours && (!ok || !dataplane.Stock(t.Name, j.Chain)) {
			continue
		}
		if times[r.Text]++; times[r.Text] == repeated {
			order = append(order, r)
		}
	}
	var out []report.Finding
	for _, r := range order {
		count := times[r.Text]
		out = append(out, report.Finding{
			Subject:  fmt.Sprintf("%s/%s (%s)", t.Name, c.Name, tool(rs)),
			Message:  fmt.Sprintf("%s/%s of %s holds the same rule %d times: somebody adds it again and again because iptables does not find it; every packet passes all of them", t.Name, c.Name, tool(rs), count),
			Want:     "once",
			Got:      fmt.Sprintf("%d times: %s", count, r.Text),
			Evidence: []report.Evidence{RuleEvidence(rs, r)},
			Causes: []string{
				"iptables 1.8.0 to 1.8.2 in nft mode does not find a rule that is there, and kubelet adds it once a minute",
				"two iptables versions write the same rule in different ways (the host's and that of an image)",
			},
			Remedy: fmt.Sprintf("use iptables 1.8.3 or newer on the host and in images; then remove the copies: %s -t %s -D %s, %d times", tool(rs), t.Name, strings.TrimPrefix(r.Text, "-A "), count-1),
		})
	}
	return out
}
