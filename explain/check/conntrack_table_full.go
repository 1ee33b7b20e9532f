package check

import (
	"fmt"
	"math"
	"strconv"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/report"
)

const (
	flowCount    = "net.netfilter.nf_conntrack_count"
	flowMax      = "net.netfilter.nf_conntrack_max"
	flowMaxAlias = "net.nf_conntrack_max" // the same under its older name
)

// The shares of the table from which it counts as full, and as close to it. Connections come in bursts: what lies
// between a capture and the next burst is room for one in a hundred, or in ten.
const (
	tableFull    = 0.98
	tableFilling = 0.90
)

// conntrackTableFull: connection tracking has no room for new connections, or hardly any, or had none a while ago by the
// kernel's log.
var conntrackTableFull = Check{
	ID: "conntrack-table-full", Severity: Critical,
	Title: "connection tracking tables without room for new connections",
	Node: func(n *Node) []report.Finding {
		refused := n.Host.KernelSaid(host.TableFull)
		count, limit, evidence, ok := n.flowTable()
		share := 0.0
		if ok {
			share = float64(count) / float64(limit)
		}
		used := fmt.Sprintf("%.2f%%", math.Floor(1e4*share)/100) // what is not full does not read as 100%
		f := report.Finding{
			Subject: "nf_conntrack", Evidence: evidence,
			Want: fmt.Sprintf("less than %.0f%% of the table in use", 100*tableFilling),
			Got:  fmt.Sprintf("%d of %d entries (%s)", count, limit, used),
			Causes: []string{
				"more connections than the limit allows: kube-proxy sets it by the number of CPUs (conntrack.maxPerCore, at least conntrack.min)",
				"one client, a scan or an attack opens very many connections (conntrack -L | awk counts by source)",
				"long timeouts keep entries of finished connections (nf_conntrack_tcp_timeout_established, _close_wait)",
			},
			Remedy: fmt.Sprintf("sysctl -w %s=%d for now; then raise conntrack.maxPerCore or conntrack.min in kube-proxy's configuration, which sets the limit when it starts, and look for the source of the connections", flowMax, max(2*limit, 262144)),
		}
		for i := max(0, len(refused)-3); i < len(refused); i++ {
			f.Evidence = append(f.Evidence, HostEvidence("dmesg", refused[i].Evidence))
		}
		said := ""
		if len(refused) > 0 {
			said = fmt.Sprintf("; the kernel's log has %s of packets dropped for it", plural(len(refused), "message"))
		}
		switch {
		case ok && share >= tableFull:
			f.Message = fmt.Sprintf("connection tracking is full: %d of %d entries (%s), new connections are dropped%s", count, limit, used, said)
		case ok && share >= tableFilling:
			f.Severity = Warning
			f.Message = fmt.Sprintf("connection tracking is nearly full: %d of %d entries (%s); when it is, new connections are dropped%s", count, limit, used, said)
		case len(refused) > 0:
			f.Severity = Warning
			f.Message = fmt.Sprintf("connection tracking was full and new connections were dropped: the kernel's log has %s of it", plural(len(refused), "message"))
			if ok {
				f.Message += fmt.Sprintf("; now %d of %d entries are in use", count, limit)
			} else {
				f.Got = refused[len(refused)-1].Text
			}
		default:
			return nil
		}
		return []report.Finding{f}
	},
}

// flowTable is how full the table of connections is. ok is false when it is not known, which makes the running check
// unknown, and on a node that tracks no connections.
func (n *Node) flowTable() (count, limit int, evidence []report.Evidence, ok bool) {
	if _, absent := n.Host.SysctlAbsent(flowCount); absent {
		return 0, 0, nil, false
	}
	c, ec, known := n.Sysctl(flowCount)
	if !known {
		return 0, 0, nil, false
	}
	name := flowMax
	if _, _, there := n.Host.Sysctl(flowMax); !there {
		if _, _, there := n.Host.Sysctl(flowMaxAlias); there {
			name = flowMaxAlias
		}
	}
	m, em, known := n.Sysctl(name)
	if !known {
		return 0, 0, nil, false
	}
	count, err1 := strconv.Atoi(c)
	limit, err2 := strconv.Atoi(m)
	return count, limit, []report.Evidence{ec, em}, err1 == nil && err2 == nil && count >= 0 && limit > 0
}
