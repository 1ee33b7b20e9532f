package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/report"
)

// manyClashes is from how many lost insertions since boot on a check speaks. Some are lost on every node: two packets of
// one new flow at the same moment, as a resolver's questions for A and AAAA, clash, and one of them is sent again.
const manyClashes = 1000

// conntrackInsertFailed: connection tracking could not enter connections whose packets had passed all rules, and dropped
// these packets: two of them claimed the same translated addresses and ports.
var conntrackInsertFailed = Check{
	ID: "conntrack-insert-failed", Severity: Warning,
	Title: "connections lost because their translated addresses and ports were taken",
	Node: func(n *Node) []report.Finding {
		if !n.translatesByRules() || !n.Needs(FlowStats) {
			return nil
		}
		failed, cpus, ok := n.Host.FlowCounter("insert_failed")
		if !ok || failed < manyClashes {
			return nil
		}
		f := report.Finding{
			Subject: "insert_failed",
			Message: fmt.Sprintf("%d packets were dropped since boot because connection tracking could not enter their connections: two new ones claimed the same addresses and ports after translation", failed),
			Want:    fmt.Sprintf("insert_failed below %d, and standing still", manyClashes),
			Got:     fmt.Sprintf("insert_failed=%d", failed),
			Causes: []string{
				"many new connections of masqueraded clients to one address and port: their source ports run out or are drawn twice",
				"clients that send two datagrams at once from one socket, as resolvers do for A and AAAA: answers come after 5 s",
			},
			Remedy: "run conntrack -S twice, a minute apart: where it grows, use NodeLocal DNSCache for lookups, MASQUERADE with --random-fully (kube-proxy 1.16 and newer with iptables 1.6.2 and newer), or more source addresses",
		}
		f.Evidence = statsEvidence(cpus, 3)
		return []report.Finding{f}
	},
}

// statsEvidence are the counters of the first few CPUs.
func statsEvidence(cpus []host.FlowStats, few int) []report.Evidence {
	var out []report.Evidence
	for i := range cpus {
		if i < few {
			out = append(out, HostEvidence("conntrack", cpus[i].Evidence))
		}
	}
	return out
}
