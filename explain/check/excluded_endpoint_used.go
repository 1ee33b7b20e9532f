package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// excludedEndpointUsed: traffic goes to an endpoint that is ready but that this client should not get on this node:
// another node's under a Local policy, another zone's under topology hints.
var excludedEndpointUsed = Check{
	ID: "excluded-endpoint-used", Severity: Error, Rests: onGrid,
	Title: "traffic to endpoints that a policy or topology hints keep out here",
	Port: func(p *Port) []report.Finding {
		var out []report.Finding
		for _, e := range p.endpoints("excluded") {
			out = append(out, e.provided(report.Finding{
				Object:   report.Object{Endpoint: e.address},
				Subject:  e.address,
				Message:  fmt.Sprintf("%s of new connections to %s go to %s, which policy or topology hints keep out on this node", percent(e.share), p.Key(), e.address),
				Want:     "no traffic: " + e.path.Intended.Because,
				Got:      percent(e.share) + " at " + strings.Join(e.seen, ", "),
				Evidence: append(e.rules(), p.objectEvidence()),
				Causes:   []string{proxyStopped, "hints or policies changed after kube-proxy's last successful sync on this node"},
				Remedy:   restartProxy,
			}))
		}
		return out
	},
}
