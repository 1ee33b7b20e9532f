package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/report"
)

// conntrackStaleUDP: an entry of connection tracking still sends datagrams to an address that is no endpoint any more.
// Rules are asked for the first packet of a flow only, and every further one renews the entry: a client that keeps
// sending from one port never gets away from it. kube-proxy is to remove such entries.
var conntrackStaleUDP = Check{
	ID: "conntrack-stale-udp", Rests: onObjects, Severity: Error,
	Title: "UDP flows that connection tracking still sends to an address that is no endpoint any more",
	Port: func(p *Port) []report.Finding {
		if p.Protocol != "UDP" || !p.On.translatesByRules() {
			return nil
		}
		stale := p.staleFlows(func(*host.Flow) bool { return true })
		if len(stale) == 0 {
			return nil
		}
		n := countFlows(stale)
		f := p.staleFinding(stale, "flow")
		f.Message = fmt.Sprintf("%s to %s still %s to %s, which is no endpoint of %s: what the clients send there is lost (%s)",
			plural(n, "flow"), dialledAddrs(stale, p.Protocol), goOrGoes(n), several(goesTo(stale)), p.Key(), p.On.freshness(stale, udpTimeout))
		f.Want, f.Causes, f.Remedy = "flows to endpoints of the Service only", p.whyStaleUDP(), p.forget(stale)
		return []report.Finding{f}
	},
}

// whyStaleUDP is why kube-proxy may have left the entries.
func (p *Port) whyStaleUDP() []string {
	if p.hasNoEndpoint() {
		return []string{
			"the Service has no endpoint left: kube-proxy 1.32 and newer passes over such Services when it removes entries (kubernetes/kubernetes#139628)",
			proxyStopped,
		}
	}
	return []string{
		proxyStopped,
		"kube-proxy 1.29 to 1.31.1 leaves entries of deleted pods behind",
		"the conntrack program is missing in kube-proxy's image (1.31 and older)",
	}
}

func udpTimeout(f *host.Flow) string {
	if f.Assured {
		return timeoutUDPStream
	}
	return timeoutUDP
}

func goOrGoes(n int) string {
	if n == 1 {
		return "goes"
	}
	return "go"
}
