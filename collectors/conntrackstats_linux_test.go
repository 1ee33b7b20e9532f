package collectors

import (
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/host"
)

// TestReadFlowStats: the kernel's file, its other answer and conntrack say the same.
func TestReadFlowStats(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		needs(t, "conntrack")
		got := readOne(t, p, readFlowStats, "conntrack-stats.txt")
		if got.Status == snapshot.NotCollected || got.Status == snapshot.Absent {
			t.Skip(got.Error)
		}
		if got.Status != snapshot.OK {
			t.Fatalf("%+v", got)
		}
		roundTrips(t, got)
		parse := anyFamily(host.ParseFlowStats)
		ours := parsed(t, parse, 0, string(got.Data), got.File)
		native := parsed(t, parse, 0, shell(t, "conntrack -S 2>/dev/null"), got.File)
		sameCounters(t, native, ours)
		if !p.kernel.has("nf_conntrack_netlink") {
			t.Skip("this kernel has no ctnetlink")
		}
		asked, err := askFlowStats()
		if err != nil {
			t.Fatal(err)
		}
		sameCounters(t, native, parsed(t, parse, 0, string(asked), got.File))
	})
}

// sameCounters compares what both have: a kernel's file and the tool leave out counters that stand still.
func sameCounters(t *testing.T, want, got *host.Host) {
	t.Helper()
	if len(got.FlowStats) == 0 || len(got.FlowStats) != len(want.FlowStats) {
		t.Errorf("%d CPUs, want %d", len(got.FlowStats), len(want.FlowStats))
	}
	for _, name := range []string{"found", "invalid", "insert", "insert_failed", "drop", "early_drop", "error", "search_restart"} {
		x, _, has := want.FlowCounter(name)
		if y, _, ok := got.FlowCounter(name); has && (!ok || x != y) {
			t.Errorf("%s is %d (%t), want %d", name, y, ok, x)
		}
	}
}
