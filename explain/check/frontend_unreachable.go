package check

import (
	"cmp"

	"github.com/svcnet/svcnet/explain/report"
)

// frontendUnreachable: something that is none of the service proxy's refusals stops packets that ought to reach a
// backend. It speaks of what no check of one mechanism names.
var frontendUnreachable = Check{
	ID: "frontend-unreachable", Severity: Error, Rests: onGrid,
	Title: "packets to Services that an earlier rule, policy or missing jump stops",
	Rest: func(n *Node, found Findings) []report.Finding {
		return leftover(n, found, false, "find out which program made the rule; it has to come behind kube-proxy's, or to let packets of pods and Services pass")
	},
}

// leftover are obstacles that none of the findings names.
func leftover(n *Node, found Findings, reply bool, remedy string) []report.Finding {
	var out []report.Finding
	for _, o := range n.Obstacles() {
		if o.Reply != reply || found.names(o) {
			continue
		}
		f := o.finding()
		f.Remedy = cmp.Or(f.Remedy, remedy)
		out = append(out, f)
	}
	return out
}
