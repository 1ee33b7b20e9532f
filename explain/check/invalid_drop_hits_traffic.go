package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// From how many packets, and from which share of those that kube-proxy's chain counted, the INVALID rule hits more than
// the late and damaged packets that it is for. They are a few in a thousand.
const (
	manyInvalid  = 100
	shareInvalid = 0.02
)

// invalidDropHitsTraffic: the rule against INVALID packets drops a good part of the traffic. That is so where the node
// sees one direction of connections only.
var invalidDropHitsTraffic = Check{
	ID: "invalid-drop-hits-traffic", Severity: Warning,
	Title: "traffic that is dropped as INVALID because the node sees one direction of it only",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, family := range bothFamilies(n.Plan.Ports) {
			rs, forward := n.forwarding(family)
			if forward == nil {
				if n.Proxy.Mode == "iptables" {
					n.Needs(RulesOf(family))
				}
				continue
			}
			drop, others, counted := invalidShare(forward)
			switch {
			case drop == nil:
			case !counted:
				n.lacks(RuleCounters)
			case drop.Packets >= manyInvalid && float64(drop.Packets) >= shareInvalid*float64(drop.Packets+others):
				out = append(out, droppedAsInvalid(rs, drop, others))
			}
		}
		return out
	},
}

// invalidShare is the rule of kube-proxy's chain that drops INVALID packets, nil for none, and how many packets the
// other rules of the chain took; counted is false for a capture without counters.
func invalidShare(forward *netfilter.Chain) (drop *netfilter.Rule, others uint64, counted bool) {
	counted = true
	for i := range forward.Rules {
		r := &forward.Rules[i]
		counted = counted && r.HasCounters
		if _, drops := r.Target.(netfilter.Drop); drops && r.AlwaysInvalid() && drop == nil {
			drop = r
			continue
		}
		others += r.Packets
	}
	return drop, others, counted
}

func droppedAsInvalid(rs *netfilter.Ruleset, drop *netfilter.Rule, others uint64) report.Finding {
	share := float64(drop.Packets) / float64(drop.Packets+others)
	return report.Finding{
		Subject: tool(rs) + " filter/KUBE-FORWARD",
		Message: fmt.Sprintf("KUBE-FORWARD dropped %d packets as INVALID beside %d that it let pass (%s): connections whose packets take another way in the other direction break here", drop.Packets, others, percent(share)),
		Want:    fmt.Sprintf("less than %s of the packets", percent(shareInvalid)), Got: fmt.Sprintf("%d packets, %s", drop.Packets, percent(share)),
		Evidence: []report.Evidence{RuleEvidence(rs, drop)},
		Causes: []string{
			"asymmetric routes: requests come in through this node, and answers leave through another (a second interface, direct server return, a router in between)",
			"entries that were removed while their connections were in use (conntrack -F, a table that was full)",
		},
		Remedy: fmt.Sprintf("make both directions take the same way; where that cannot be, sysctl -w %s=1 and restart kube-proxy 1.29 or newer, which then leaves the rule out", beLiberal),
	}
}
