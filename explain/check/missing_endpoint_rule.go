package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/report"
)

// missingEndpointRule: a usable endpoint gets no traffic although others, or none, do. A frontend that
// reaches nothing at all is a matter of missing-service-rule or reject-rule-with-ready-endpoints.
var missingEndpointRule = Check{ID: "missing-endpoint-rule", Severity: Error, Rests: onGrid, Title: "usable endpoints that get no traffic", Port: func(p *Port) []report.Finding {
	var out []report.Finding
	var wrong []*byEndpoint
	for _, e := range p.endpoints("missing") {
		if !e.elsewhere() || e.atOtherPort() {
			continue
		}
		if wrong == nil {
			wrong = p.strays(ownWrong)
		}
		who := e.address
		if e.first.Pod != "" {
			who += " (pod " + e.first.Pod + ")"
		}
		// What its chain ought to bring goes elsewhere: that is the one thing which is wrong.
		cause := ""
		if slices.ContainsFunc(wrong, func(w *byEndpoint) bool { return p.namedFor(w, e.address) }) {
			cause = wrongTranslationID
		}
		place, evidence := p.placeOf(e)
		out = append(out, e.provided(report.Finding{
			Object:  report.Object{Endpoint: e.address},
			Subject: e.address,
			Message: fmt.Sprintf("%s is a usable endpoint of %s and gets no traffic on this node%s", who, p.Key(), place),
			Want:    percent(*e.first.Intended), Got: "0.0% at " + strings.Join(e.seen, ", "),
			Evidence: append(evidence, p.objectEvidence()),
			Causes: []string{
				proxyStopped,
				syncFailed,
			},
			Remedy:   restartProxy,
			CausedBy: cause,
		}))
	}
	return out
}}

// namedFor tells whether a chain that translates to a wrong address is the one that is named for an endpoint.
func (p *Port) namedFor(wrong *byEndpoint, endpoint string) bool {
	ap, ok := p.standsFor(wrong.first.TranslatedBy)
	return ok && ap.String() == endpoint
}

// elsewhere tells whether the path that lacks the endpoint reaches any other.
func (e *byEndpoint) elsewhere() bool {
	for _, b := range e.path.Backends {
		if b.Probability > 0 {
			return true
		}
	}
	return false
}

// placeOf says what there is of the endpoint's own chain, with the rule by which the frontend's other endpoints are
// chosen: where one for this endpoint would stand.
func (p *Port) placeOf(e *byEndpoint) (place string, evidence []report.Evidence) {
	if p.On.Proxy.Mode == kernelspace {
		return p.placeInHNS(e)
	}
	for i := range e.path.Backends {
		if all := rules(&e.path.Backends[i]); len(all) > 0 {
			evidence = all[:1]
			break
		}
	}
	ap, err := netip.ParseAddrPort(e.address)
	if err != nil {
		return "", evidence
	}
	if p.On.Proxy.Mode == "nftables" {
		place, where := p.nftEndpointPlace(ap.String())
		return place, append(evidence, where...)
	}
	for _, rs := range p.On.Rulesets {
		t := rs.Table("nat")
		if t == nil || int(rs.Family) != p.Family {
			continue
		}
		c := t.Chain(dataplane.SEPName(p.Key(), p.Protocol, ap.String()))
		switch {
		case c == nil:
			continue
		case len(c.Rules) == 0:
			place = fmt.Sprintf(": its chain %s is empty", c.Name)
		default:
			place = fmt.Sprintf(": its chain %s is there, and no packet gets a translation from it", c.Name)
		}
		return place, append(evidence, ChainEvidence(rs, c))
	}
	return "", evidence
}
