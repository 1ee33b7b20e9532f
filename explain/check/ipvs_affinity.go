package check

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/report"
)

// ipvsAffinity compares the persistence of a service port's virtual servers with what the Service asks for, and says the
// first difference.
func (p *Port) ipvsAffinity() (found report.Finding, ok bool) {
	if !p.On.Needs(ServiceTables) {
		return found, false
	}
	asked := fmt.Sprintf("%d s", p.AffinitySeconds)
	p.On.servers(p, func(_ netip.AddrPort, s *ipvs.Service) {
		if ok {
			return
		}
		kept := fmt.Sprintf("%d s", s.Timeout)
		if s.Timeout == 0 {
			kept = "kept" // a capture that does not say for how long in seconds
		}
		want, got, what := asked, kept, ""
		switch {
		case p.AffinitySeconds == 0 && s.Persistent:
			want, what = "none", "keeps clients at their backend, and the Service does not ask for session affinity"
		case p.AffinitySeconds != 0 && !s.Persistent:
			got, what = "none", fmt.Sprintf("does not send clients back to their backend, and the Service asks for session affinity for %s", asked)
		case s.Persistent && s.Timeout != 0 && s.Timeout != p.AffinitySeconds:
			what = fmt.Sprintf("keeps clients at their backend for %s, and the Service asks for %s", kept, asked)
		default:
			return
		}
		ok = true
		found = report.Finding{
			Subject: p.Key(), Message: fmt.Sprintf("virtual server %s %s", serverText(s), what), Want: want, Got: got,
			Evidence: []report.Evidence{HostEvidence("ipvs", s.Evidence), p.objectEvidence()},
			Causes: []string{
				"kube-proxy has not synced since sessionAffinity of the Service was changed",
				"something other than kube-proxy changed the virtual server",
			},
			Remedy: restartProxy,
		}
	})
	return found, ok
}
