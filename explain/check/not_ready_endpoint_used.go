package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// notReadyEndpointUsed: traffic goes to an endpoint that is not ready and no permitted terminating fallback.
var notReadyEndpointUsed = Check{ID: "not-ready-endpoint-used", Severity: Error, Rests: onGrid, Title: "traffic to endpoints that are not ready", Port: func(p *Port) []report.Finding {
	var out []report.Finding
	for _, e := range p.endpoints("not-ready") {
		out = append(out, e.provided(report.Finding{
			Object:  report.Object{Endpoint: e.address},
			Subject: e.address,
			Message: fmt.Sprintf("%s of new connections to %s go to %s, which is %s", percent(e.share), p.Key(), e.address, e.first.Ready),
			Want:    "no traffic", Got: percent(e.share) + " at " + strings.Join(e.seen, ", "),
			Evidence: append(e.rules(), p.objectEvidence()),
			Causes:   []string{"the endpoint turned unready after kube-proxy's last successful sync on this node"},
			Remedy:   restartProxy,
		}))
	}
	return out
}}
