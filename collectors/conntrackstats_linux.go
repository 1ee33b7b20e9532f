package collectors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// readFlowStats reads the counters of connection tracking, one line for each CPU: the kernel's file, or where a kernel
// has none what ctnetlink says, if it is loaded, in the text of `conntrack -S`.
func readFlowStats(ctx context.Context, p *place) []snapshot.Evidence {
	file := p.dir + "conntrack-stats.txt"
	data, err := os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
	switch {
	case err == nil:
	case !errors.Is(err, fs.ErrNotExist):
	case p.kernel.has("nf_conntrack_netlink"):
		data, err = askFlowStats()
	case p.kernel.has("nf_conntrack"):
		return []snapshot.Evidence{missed(file, snapshot.ConntrackStats, snapshot.NotCollected, errors.New(
			"read counters of connection tracking: this kernel shows them through nf_conntrack_netlink alone, which is not loaded (conntrack -S loads it; give its output with -f)"))}
	default:
		why, certain := p.kernel.why("nf_conntrack")
		if certain {
			return []snapshot.Evidence{absent(file, snapshot.ConntrackStats, why)}
		}
		return []snapshot.Evidence{missed(file, snapshot.ConntrackStats, snapshot.NotCollected, fmt.Errorf("read counters of connection tracking: %s", why))}
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return []snapshot.Evidence{couldNot(file, snapshot.ConntrackStats, "counters of connection tracking", reasonOf(err))}
	}
	return []snapshot.Evidence{evidence(file, snapshot.ConntrackStats, data)}
}

// ctStats are the counters by the numbers of their attributes (enum ctattr_stats_cpu); those without a name are no
// longer counted.
var ctStats = [...]string{
	2: "found", 4: "invalid", 8: "insert", 9: "insert_failed", 10: "drop", 11: "early_drop", 12: "error", 13: "search_restart",
	14: "clash_resolve", 15: "chaintoolong",
}

// askFlowStats reads the counters from ctnetlink, which must be loaded. It answers for one CPU after the other.
func askFlowStats() ([]byte, error) {
	c, err := openNFNetlink()
	if err != nil {
		return nil, err
	}
	defer c.close()
	var b bytes.Buffer
	cpu := 0
	err = c.ask(unix.NFNL_SUBSYS_CTNETLINK, ctGetStatsCPU, unix.AF_UNSPEC, true, nil, func(_ byte, attrs []byte) {
		fmt.Fprintf(&b, "cpu=%d ", cpu)
		cpu++
		for kind, v := range rtAttributes(attrs) {
			if int(kind) < len(ctStats) && ctStats[kind] != "" {
				fmt.Fprintf(&b, " %s=%d", ctStats[kind], ctU32(v))
			}
		}
		b.WriteByte('\n')
	})
	if errors.Is(err, errInterrupted) {
		err = nil // counters count on
	}
	return b.Bytes(), err
}

// ctGetStatsCPU is IPCTNL_MSG_CT_GET_STATS_CPU, next to the messages that the netlink package names.
const ctGetStatsCPU = nl.IPCTNL_MSG_CT_DELETE + 2
