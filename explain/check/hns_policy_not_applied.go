package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/hns"
	"github.com/svcnet/svcnet/explain/report"
)

// hnsPolicyNotApplied: HNS has the load balancer of a frontend and says itself that it is not in force.
var hnsPolicyNotApplied = Check{
	ID: "hns-policy-not-applied", Rests: onGrid, Severity: Error,
	Title: "load balancers of HNS that are not in force",
	Port: func(p *Port) []report.Finding {
		all, at := p.balancers()
		for i, b := range all {
			if !b.HasState || b.State == hns.Applied {
				continue
			}
			return []report.Finding{{
				Subject:  b.ID,
				Message:  fmt.Sprintf("HNS has a load balancer for %s %s (%s), and it is not in force: its state is %d", at[i].Kind, b.At(), p.Key(), b.State),
				Want:     fmt.Sprintf("state %d (applied)", hns.Applied),
				Got:      fmt.Sprintf("state %d", b.State),
				Evidence: []report.Evidence{balancerEvidence(b), p.objectEvidence()},
				Causes: []string{
					"the virtual switch did not take the policy (the event log of Host-Network-Service has the reason)",
					"the network of the endpoints is being made anew",
				},
				Remedy: "restart kube-proxy on this node; where that does not help, restart HNS (Restart-Service hns), after which network plugin and kube-proxy make their objects anew",
			}}
		}
		return nil
	},
}
