package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// staleEndpointRule: traffic goes to an address that is no endpoint any more.
var staleEndpointRule = Check{ID: "stale-endpoint-rule", Severity: Error, Rests: onGrid, Title: "traffic to addresses that are no endpoints any more", Port: func(p *Port) []report.Finding {
	var out []report.Finding
	for _, e := range p.strays(ownStale) {
		out = append(out, e.provided(report.Finding{
			Object:  report.Object{Endpoint: e.address},
			Subject: e.address,
			Message: fmt.Sprintf("%s of new connections to %s go to %s, which no EndpointSlice of the Service lists", percent(e.share), p.Key(), e.address),
			Want:    "no traffic (endpoints: " + p.usable() + ")", Got: percent(e.share) + " at " + strings.Join(e.seen, ", "),
			Evidence: append(e.rules(), p.objectEvidence()),
			Causes: []string{
				proxyStopped,
				syncFailed,
				p.leftBehind(),
			},
			Remedy: restartProxy,
		}))
	}
	return out
}}

// leftBehind says how an endpoint may stay although kube-proxy syncs.
func (p *Port) leftBehind() string {
	if p.On.Proxy.Mode == kernelspace {
		return "HNS did not take a change of the load balancer (known of Windows Server 2025 with kube-proxy 1.31 and newer), or refused to delete it"
	}
	return "a partial sync left the chain behind (kube-proxy 1.27 and newer rewrites only chains of changed Services)"
}
