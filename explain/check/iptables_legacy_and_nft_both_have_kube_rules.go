package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// iptablesLegacyAndNFTBothHaveKubeRules: the kernel holds kube-proxy's rules twice, once in each backend of iptables.
// It runs both; one of them is kept up to date.
var iptablesLegacyAndNFTBothHaveKubeRules = Check{
	ID: "iptables-legacy-and-nft-both-have-kube-rules", Rests: onRules, Severity: Critical,
	Title: "service rules in both backends of iptables",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
			legacy := n.copyIn(family, netfilter.Legacy)
			if legacy == nil {
				continue
			}
			if nft := n.copyIn(family, netfilter.NFT); nft != nil {
				out = append(out, twoCopies(legacy, nft))
			}
		}
		return out
	},
	Explains: []string{"missing-endpoint-rule", "stale-endpoint-rule"},
}

// copyOfRules is one backend's copy of the service rules.
type copyOfRules struct {
	rules  *netfilter.Ruleset
	first  *netfilter.Rule
	active bool
}

// copyIn is the copy of a backend; nil where it has none. A copy that packets get to comes before one that they do not.
func (n *Node) copyIn(family netfilter.Family, backend netfilter.Backend) *copyOfRules {
	var out *copyOfRules
	for _, rs := range n.Rulesets {
		if rs.Family != family || rs.Backend != backend {
			continue
		}
		first, active := dataplane.Serving(rs)
		if first != nil && (out == nil || active && !out.active) {
			out = &copyOfRules{rs, first, active}
		}
	}
	return out
}

func twoCopies(legacy, nft *copyOfRules) report.Finding {
	l, m := tool(legacy.rules), tool(nft.rules)
	f := report.Finding{
		Subject:  l + " and " + m,
		Message:  fmt.Sprintf("%s and %s both hold service rules; the kernel runs both, and whichever comes first translates a connection. Only one of them is kept up to date", l, m),
		Want:     "service rules in one backend",
		Got:      "service rules in both",
		Evidence: []report.Evidence{RuleEvidence(legacy.rules, legacy.first), RuleEvidence(nft.rules, nft.first)},
		Causes: []string{
			"iptables on the host or in kube-proxy's image was updated or switched (update-alternatives) without a reboot",
			"the image of kube-proxy chose the other backend when it started",
		},
		Remedy: fmt.Sprintf("find out which copy is old (the one that lacks a recent Service or endpoint), and remove it: reboot the node, or %s-save | grep -v KUBE- | %s-restore with the program of the old copy", l, l),
	}
	if !legacy.active || !nft.active {
		inert := l
		if legacy.active {
			inert = m
		}
		f.Severity = Warning
		f.Message = fmt.Sprintf("%s and %s both hold service rules; those of %s do nothing, because no built-in chain leads to them", l, m, inert)
	}
	return f
}
