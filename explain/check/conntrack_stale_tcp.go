package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/report"
)

// inUse is for how many seconds after its last packet a TCP connection counts as in use.
const inUse = 120

// conntrackStaleTCP: clients still send on an established connection to an address that is no endpoint any more.
// kube-proxy leaves TCP alone, and an entry of a connection that nobody closed stays for hours without any harm: only
// one that a packet passed on lately, or that waits for an answer, is worth a word.
var conntrackStaleTCP = Check{
	ID: "conntrack-stale-tcp", Rests: onObjects, Severity: Warning,
	Title: "TCP connections in use to an address that is no endpoint any more",
	Port: func(p *Port) []report.Finding {
		if p.Protocol != "TCP" || !p.On.translatesByRules() {
			return nil
		}
		stale := p.staleFlows(establishedTCP)
		if len(stale) == 0 {
			return nil
		}
		if _, _, ok := p.On.Sysctl(timeoutTCPEstablished); !ok {
			return nil
		}
		stale = p.On.used(stale)
		if len(stale) == 0 {
			return nil
		}
		n := countFlows(stale)
		f := p.staleFinding(stale, "connection")
		f.Message = fmt.Sprintf("%s in use to %s %s to %s, which is no endpoint of %s: if the pod is gone, the clients wait for answers until they time out (%s)",
			plural(n, "connection"), dialledAddrs(stale, p.Protocol), goOrGoes(n), several(goesTo(stale)), p.Key(), p.On.freshness(stale, p.On.tcpTimeout))
		f.Want = "connections to endpoints of the Service, or closed"
		f.Causes = []string{
			"the pod or its node went away without closing its connections",
			"the pod runs on, and its labels do not fit the Service's selector any more",
		}
		f.Remedy = "close or restart the clients' connections; to make the clients notice: " + p.forget(stale)
		return []report.Finding{f}
	},
}

// used keeps the connections that a packet passed on lately, and those with packets that were not acknowledged.
func (n *Node) used(of []*sent) []*sent {
	var out []*sent
	for _, s := range of {
		kept := &sent{frontend: s.frontend, to: s.to}
		for _, f := range s.flows {
			full, known := n.seconds(n.tcpTimeout(f))
			if known && full-f.Timeout <= inUse || n.retransmits(f) {
				kept.flows = append(kept.flows, f)
			}
		}
		if len(kept.flows) > 0 {
			out = append(out, kept)
		}
	}
	return out
}

// retransmits tells whether an established connection has the short timeout of one whose packets are sent again and
// again. It is then one in trouble, or one that was idle for all but the last minutes of its long timeout.
func (n *Node) retransmits(f *host.Flow) bool {
	short, known := n.seconds(timeoutTCPRetrans)
	return known && f.Timeout <= short
}

func (n *Node) tcpTimeout(f *host.Flow) string {
	if n.retransmits(f) {
		return timeoutTCPRetrans
	}
	return timeoutTCPEstablished
}
