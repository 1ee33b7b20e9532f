package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/hns"
	"github.com/svcnet/svcnet/explain/report"
)

// hnsEndpointUnknown: a load balancer of HNS leads to endpoints that HNS itself does not have any more, so that a part
// of the connections goes nowhere.
var hnsEndpointUnknown = Check{
	ID: "hns-endpoint-unknown", Rests: onGrid, Severity: Error,
	Title: "load balancers of HNS that lead to endpoints that are not there",
	Port: func(p *Port) []report.Finding {
		if p.On.HNS == nil || !p.On.HNS.HasEndpoints {
			return nil
		}
		all, at := p.balancers()
		for i, b := range all {
			lost := lostEndpoints(p.On.HNS, b)
			if len(lost) == 0 {
				continue
			}
			return []report.Finding{{
				Subject: b.ID,
				Message: fmt.Sprintf("%s of new connections to %s %s (%s) are led to %s that HNS does not have: %s", percent(float64(len(lost))/float64(len(b.Endpoints))),
					at[i].Kind, b.At(), p.Key(), map[bool]string{true: "an endpoint", false: "endpoints"}[len(lost) == 1], list(lost, 3)),
				Want:     fmt.Sprintf("endpoints of HNS for %s", p.usable()),
				Got:      fmt.Sprintf("%d of %d are not there", len(lost), len(b.Endpoints)),
				Evidence: []report.Evidence{balancerEvidence(b), p.objectEvidence()},
				Causes: []string{
					"a pod was deleted, and kube-proxy has not made the load balancer anew since",
					"something other than kube-proxy deleted endpoints of HNS (a script that cleans up, a network plugin that starts)",
				},
				Remedy: "restart kube-proxy on this node: it deletes all load balancers of HNS when it starts, and makes them and the endpoints of other nodes anew",
			}}
		}
		return nil
	},
}

// lostEndpoints are the endpoints of a load balancer that HNS does not list, or lists without an address.
func lostEndpoints(s *hns.State, b *hns.LoadBalancer) []string {
	var out []string
	for _, id := range b.Endpoints {
		if e := s.Endpoint(id); e == nil || !b.Backend(e).IsValid() {
			out = append(out, id)
		}
	}
	return out
}
