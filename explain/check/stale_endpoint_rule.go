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
			Evidence: append(rules(e.first), p.objectEvidence()),
			Causes: []string{
				proxyStopped,
				syncFailed,
				"a partial sync left the chain behind (kube-proxy 1.27 and newer rewrites only chains of changed Services)",
			},
			Remedy: restartProxy,
		}))
	}
	return out
}}
