package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// missingEndpointRule: a usable endpoint gets no traffic although others, or none, do. A frontend that
// reaches nothing at all is a matter of missing-service-rule or reject-rule-with-ready-endpoints.
var missingEndpointRule = Check{ID: "missing-endpoint-rule", Severity: Error, Rests: onGrid, Title: "usable endpoints that get no traffic", Port: func(p *Port) []report.Finding {
	var out []report.Finding
	for _, e := range p.endpoints("missing") {
		if !e.elsewhere() {
			continue
		}
		who := e.address
		if e.first.Pod != "" {
			who += " (pod " + e.first.Pod + ")"
		}
		out = append(out, report.Finding{
			Object:  report.Object{Endpoint: e.address},
			Subject: e.address,
			Message: fmt.Sprintf("%s is a usable endpoint of %s and gets no traffic on this node", who, p.Key()),
			Want:    percent(*e.first.Intended), Got: "0.0% at " + strings.Join(e.seen, ", "),
			Evidence: []report.Evidence{p.objectEvidence()},
			Causes: []string{
				proxyStopped,
				syncFailed,
			},
			Remedy: restartProxy,
		})
	}
	return out
}}

// elsewhere tells whether the path that lacks the endpoint reaches any other.
func (e *byEndpoint) elsewhere() bool {
	for _, b := range e.path.Backends {
		if b.Probability > 0 {
			return true
		}
	}
	return false
}
