package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// danglingOrOrphanChain: chains of service ports or endpoints that no rule leads to. They do nothing; kube-proxy
// removes those that it knows, so that what stays tells of something that it does not.
var danglingOrOrphanChain = Check{
	ID: "dangling-or-orphan-chain", Rests: onRules, Severity: Info,
	Title: "chains of Services that nothing leads to",
	Node: func(n *Node) []report.Finding {
		if n.Proxy.Mode != "iptables" {
			return nil // chains of another mode are leftover-proxy-mode-rules
		}
		var out []report.Finding
		for _, rs := range n.served() {
			t := rs.Table("nat")
			if t == nil {
				continue
			}
			orphans := n.orphans(rs, t)
			if len(orphans) == 0 || !n.whole(rs, t) {
				continue
			}
			out = append(out, orphanFinding(rs, orphans))
		}
		return out
	},
}

// largeCluster is the number of endpoints from which kube-proxy takes its time to remove chains (since 1.25).
const largeCluster = 1000

// orphans are the chains of one service port or endpoint that no other chain leads to. That nothing leads to the chains
// that they hang from is a matter of kube-jump-missing.
func (n *Node) orphans(rs *netfilter.Ruleset, t *netfilter.Table) []*netfilter.Chain {
	if !n.Proxy.Within(0, 24) && n.endpoints(rs.Family) > largeCluster {
		return nil
	}
	var roots []*netfilter.Chain
	for _, c := range t.Chains {
		if !dataplane.PerService(c.Name) {
			roots = append(roots, c)
		}
	}
	reached := t.ReachedFrom(roots...)
	// 1.22 makes a chain for every endpoint, used or not.
	all := !n.Proxy.Within(0, 21) && !n.Proxy.Within(23, 0)
	var out []*netfilter.Chain
	for _, c := range t.Chains {
		if dataplane.PerService(c.Name) && !reached[c.Name] && !(all && strings.HasPrefix(c.Name, dataplane.SEPPrefix)) {
			out = append(out, c)
		}
	}
	return out
}

// endpoints counts the endpoints of a family as kube-proxy does: once for each service port.
func (n *Node) endpoints(family netfilter.Family) int {
	count := 0
	for _, sp := range n.Plan.Ports {
		if sp.Family == int(family) {
			count += len(sp.Endpoints)
		}
	}
	return count
}

func orphanFinding(rs *netfilter.Ruleset, orphans []*netfilter.Chain) report.Finding {
	f := report.Finding{
		Subject: fmt.Sprintf("nat (%s)", tool(rs)),
		Want:    "none: kube-proxy removes chains that it does not use",
		Got:     plural(len(orphans), "chain") + " without a jump to " + map[bool]string{true: "it", false: "them"}[len(orphans) == 1],
		Causes: []string{
			"kube-proxy was downgraded (1.23 and older do not know KUBE-EXT and KUBE-SVL chains)",
			"somebody restored saved rules",
			"a rule of KUBE-SERVICES or KUBE-NODEPORTS was removed by hand",
		},
		Remedy: fmt.Sprintf("nothing has to be done at once: no packet gets there. To be rid of them: %s -t nat -F NAME, then -X NAME", tool(rs)),
	}
	var names []string
	for _, c := range orphans {
		names = append(names, c.Name)
		if len(f.Evidence) < 3 {
			f.Evidence = append(f.Evidence, ChainEvidence(rs, c))
		}
	}
	f.Message = fmt.Sprintf("nothing leads to %s in nat of %s: %s", plural(len(orphans), "chain"), tool(rs), list(names, 3))
	return f
}
