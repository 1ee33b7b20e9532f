package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/report"
)

const policyDropID = "policy-drop"

// policyDrop: a NetworkPolicy implementation's chain drops the packet. That may be exactly what somebody wants; it is
// named because a Service that answers some clients only is otherwise hard to understand.
var policyDrop = Check{
	ID: policyDropID, Severity: Warning, Rests: onGrid,
	Title: "packets to Services that a NetworkPolicy implementation drops",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, o := range n.Obstacles() {
			if o.namedBy() != policyDropID {
				continue
			}
			owner := PolicyOwner(o.Chain)
			f := o.finding()
			f.Message += fmt.Sprintf(", which is %s's", owner)
			f.Want = "as the NetworkPolicies say"
			f.Remedy = fmt.Sprintf("look at the NetworkPolicies that select the backends; if none asks for this, look at %s on this node", owner)
			out = append(out, f)
		}
		return out
	},
}
