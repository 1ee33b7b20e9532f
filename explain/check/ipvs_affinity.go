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
		case p.AffinitySeconds == 0 && bySource[s.Scheduler] && p.On.odd(s):
			want, got = "clients are distributed", "scheduler "+s.Scheduler
			what = fmt.Sprintf("has the scheduler %s, which keeps clients at their backend, and other virtual servers have another: the Service does not ask for session affinity", s.Scheduler)
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

// bySource are the schedulers that choose by the client's address.
var bySource = map[string]bool{"sh": true, "mh": true}

// odd tells whether a virtual server has another scheduler than most: kube-proxy gives all the one that it was told.
func (n *Node) odd(s *ipvs.Service) bool {
	same, other := 0, 0
	for i := range n.IPVS.Services {
		switch o := &n.IPVS.Services[i]; {
		case o.FWMark != 0:
		case o.Scheduler == s.Scheduler:
			same++
		default:
			other++
		}
	}
	return other > same
}
