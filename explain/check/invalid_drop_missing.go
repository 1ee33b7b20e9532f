package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

const beLiberal = "net.netfilter.nf_conntrack_tcp_be_liberal"

// invalidDropMissing: kube-proxy's forwarding chain has no rule against packets that connection tracking finds INVALID.
// Such a packet is not translated: an answer that leaves with the pod's own address makes the client reset the
// connection. kube-proxy 1.29 and newer leaves the rule out where tracking is liberal and finds hardly any packet INVALID.
// Only iptables mode has the rule: IPVS translates by its own table, and nftables mode does without since 1.30.
var invalidDropMissing = Check{
	ID: "invalid-drop-missing", Rests: onGrid, Severity: Warning,
	Title: "nodes that let INVALID packets of Services pass untranslated",
	Node: func(n *Node) []report.Finding {
		if n.Proxy.Mode != "iptables" {
			return nil
		}
		var lacking []report.Evidence
		for _, family := range bothFamilies(n.Plan.Ports) {
			rs, forward := n.forwarding(family)
			if forward == nil {
				n.Needs(RulesOf(family))
				continue
			}
			if drop, _ := n.invalidDrop(family); drop == nil && n.whole(rs, rs.Table("filter")) {
				lacking = append(lacking, ChainEvidence(rs, forward))
			}
		}
		if len(lacking) == 0 {
			return nil
		}
		liberal, evidence, ok := n.Sysctl(beLiberal)
		if !ok || liberal != "0" {
			return nil
		}
		f := report.Finding{
			Subject: "filter/KUBE-FORWARD",
			Message: fmt.Sprintf("KUBE-FORWARD has no rule that drops INVALID packets, and %s is 0: such a packet leaves untranslated, and the client resets its connection", beLiberal),
			Want:    "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP, or " + beLiberal + " = 1",
			Got:     "neither of them",
			Causes:  []string{"kube-proxy before 1.15", "kube-proxy 1.29 or newer started while the sysctl was 1, and it was set back to 0", "something removed the rule"},
			Remedy:  fmt.Sprintf("upgrade kube-proxy to 1.15 or newer, or restart it; until then sysctl -w %s=1", beLiberal),
		}
		f.Evidence = append(lacking, evidence)
		if sum, cpus, ok := n.Host.FlowCounter("invalid"); ok && sum > 0 {
			f.Message += fmt.Sprintf(" (%d packets were INVALID since boot)", sum)
			f.Evidence = append(f.Evidence, statsEvidence(cpus, 1)...)
		}
		return []report.Finding{f}
	},
}

// forwarding is kube-proxy's chain for forwarded packets of a family; nil where there is none.
func (n *Node) forwarding(family netfilter.Family) (*netfilter.Ruleset, *netfilter.Chain) {
	for _, rs := range n.served() {
		t := rs.Table("filter")
		if rs.Family != family || t == nil {
			continue
		}
		if c := t.Chain("KUBE-FORWARD"); c != nil && len(c.Rules) > 0 {
			return rs, c
		}
	}
	return nil, nil
}

// invalidDrop is the rule that drops forwarded packets which are INVALID: kube-proxy's, or another program's in a chain
// that every such packet passes.
func (n *Node) invalidDrop(family netfilter.Family) (*netfilter.Rule, *netfilter.Ruleset) {
	for _, rs := range n.Rulesets {
		if rs.Family != family {
			continue
		}
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				if c.Name != "KUBE-FORWARD" && c.Name != netfilter.Forward.String() && c.Name != netfilter.Prerouting.String() {
					continue
				}
				for i := range c.Rules {
					if _, drop := c.Rules[i].Target.(netfilter.Drop); drop && c.Rules[i].AlwaysInvalid() {
						return &c.Rules[i], rs
					}
				}
			}
		}
	}
	return nil, nil
}
