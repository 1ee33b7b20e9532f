package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// conntrackUntranslatedServiceFlow: a flow to a service address that was set up while no rule translated it, and that
// connection tracking therefore never translates. The flows of a frontend that has no rule even now are a consequence of
// that. Addresses of the node itself may mean a process of the node: those are left out.
var conntrackUntranslatedServiceFlow = Check{
	ID: "conntrack-untranslated-service-flow", Rests: onObjects, Severity: Error,
	Title: "flows to a service address that were set up before its rules and stay untranslated",
	Port: func(p *Port) []report.Finding {
		if p.EndpointsUnknown || len(p.Usable) == 0 || !p.On.translatesByRules() {
			return nil
		}
		stuck := p.untranslated()
		if len(stuck) == 0 {
			p.On.Needs(Flows)
			return nil
		}
		freshestFirst(stuck)
		n := countFlows(stuck)
		return []report.Finding{{
			Subject: dialledAddrs(stuck, p.Protocol),
			Message: fmt.Sprintf("%s to %s %s tracked without translation: packets of %s never reach an endpoint of %s, whatever the rules say now (%s)",
				plural(n, "flow"), dialledAddrs(stuck, p.Protocol), be(n), theseOrThis(n), p.Key(), p.On.freshness(stuck, p.On.timeoutOf)),
			Want: fmt.Sprintf("translation to one of %s", plural(len(p.Usable), "endpoint")), Got: fmt.Sprintf("%s to the service address itself", plural(n, "flow")),
			Evidence: p.flowEvidence(stuck),
			Causes: []string{
				"the clients began to send before kube-proxy had programmed the Service, or while its rules were flushed",
				"the Service had no endpoint when the flow began, on a kube-proxy that does not refuse its packets",
			},
			Remedy: p.forget(stuck),
		}}
	},
}

// untranslated are the flows to addresses of the Service itself, where rules translate new ones.
func (p *Port) untranslated() []*sent {
	var out []*sent
	for _, s := range p.flows(func(f *host.Flow) bool { return !translated(f) && f.State != "TIME_WAIT" && f.State != "CLOSE" }) {
		if !s.frontend.OnNode && !p.passes(s.frontend) {
			out = append(out, s)
		}
	}
	return out
}

// passes tells whether new connections to a frontend are not translated either.
func (p *Port) passes(f intent.Frontend) bool {
	for _, paths := range p.Cells {
		of := &paths[0].Frontend
		if of.Kind == string(f.Kind) && of.Address == f.Addr.String() && of.Port == f.Port && paths[0].Result == report.ResultNoMatch {
			return true
		}
	}
	return false
}

func (n *Node) timeoutOf(f *host.Flow) string {
	switch {
	case f.State == "ESTABLISHED":
		return n.tcpTimeout(f)
	case f.State == "":
		return udpTimeout(f)
	}
	return ""
}

func theseOrThis(n int) string {
	if n == 1 {
		return "this one"
	}
	return "these"
}
