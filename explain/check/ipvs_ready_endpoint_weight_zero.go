package check

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/report"
)

// ipvsReadyEndpointWeightZero: a real server that ought to get traffic has weight 0, as kube-proxy gives it to one that
// is on its way out (graceful termination, 1.13+).
var ipvsReadyEndpointWeightZero = Check{
	ID: "ipvs-ready-endpoint-weight-zero", Rests: onGrid, Severity: Error,
	Title: "ready endpoints whose real server has weight 0",
	Port: func(p *Port) []report.Finding {
		if p.On.Proxy.Mode != ipvsMode {
			return nil
		}
		var out []report.Finding
		seen := make(map[netip.AddrPort]bool)
		p.On.servers(p, func(at netip.AddrPort, s *ipvs.Service) {
			takes := 0
			for i := range s.Dests {
				if d := &s.Dests[i]; !d.HasWeight || d.Weight > 0 {
					takes++
				}
			}
			for i := range s.Dests {
				d := &s.Dests[i]
				e := p.endpointAt(d.AddrPort())
				if !d.HasWeight || d.Weight > 0 || e == nil || !e.Ready || !p.isUsed(d.AddrPort()) || seen[d.AddrPort()] {
					continue
				}
				seen[d.AddrPort()] = true
				f := report.Finding{
					Object:  report.Object{Endpoint: d.AddrPort().String()},
					Subject: serverText(s),
					Message: fmt.Sprintf("%s is a ready endpoint of %s, and its real server of virtual server %s has weight 0: it gets no new connections", d.AddrPort(), p.Key(), serverText(s)),
					Want:    "weight 1", Got: "weight 0",
					Evidence: []report.Evidence{destEvidence(s, d), p.objectEvidence()},
					Causes: []string{
						"the endpoint was on its way out and came back before its connections were gone, and kube-proxy did not raise the weight again",
						"something other than kube-proxy changed the weight",
					},
					Remedy: "restart kube-proxy on this node; by hand: " + fmt.Sprintf("ipvsadm -e -t %s -r %s -m -w 1", at, d.AddrPort()),
				}
				if takes == 0 {
					f.Message += "; no other real server takes connections, so that clients are refused"
				}
				out = append(out, f)
			}
		})
		return out
	},
	Explains: []string{"reject-rule-with-ready-endpoints", "missing-endpoint-rule"},
}
