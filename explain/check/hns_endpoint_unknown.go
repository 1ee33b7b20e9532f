package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/hns"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// hnsEndpointUnknown: a load balancer of HNS leads to endpoints that HNS itself does not have any more, so that a part
// of the connections goes nowhere. HNS may also have taken them out of the load balancer, and left it with none.
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
			if len(b.Endpoints) == 0 && len(p.Usable) > 0 {
				return []report.Finding{p.emptied(b, at[i])}
			}
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
				Causes:   endpointsDeleted,
				Remedy:   makeAnew,
			}}
		}
		return nil
	},
}

// endpointsDeleted are the usual reasons why HNS lacks endpoints, and makeAnew is what helps.
var endpointsDeleted = []string{
	"a pod was deleted, and kube-proxy has not made the load balancer anew since",
	"something other than kube-proxy deleted endpoints of HNS (a script that cleans up, a network plugin that starts)",
}

const makeAnew = "restart kube-proxy on this node: it deletes all load balancers of HNS when it starts, and makes them and the endpoints of other nodes anew"

// emptied is a load balancer without any endpoint, which kube-proxy never makes.
func (p *Port) emptied(b *hns.LoadBalancer, f intent.Frontend) report.Finding {
	return report.Finding{
		Subject:  b.ID,
		Message:  fmt.Sprintf("the load balancer of HNS for %s %s (%s) has no endpoint any more: connections go nowhere", f.Kind, b.At(), p.Key()),
		Want:     fmt.Sprintf("endpoints of HNS for %s", p.usable()),
		Got:      "none",
		Evidence: []report.Evidence{balancerEvidence(b), p.objectEvidence()},
		Causes:   endpointsDeleted,
		Remedy:   makeAnew,
	}
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
