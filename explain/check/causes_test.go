package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// TestPossible: of a proxy that answers nobody is told that it has stopped, and of one that counts no failed sync not
// that its last one failed.
func TestPossible(t *testing.T) {
	counted := traits.Sync{FailureEvidence: traits.Fact{File: "metrics.txt", Line: 3}}
	failed := counted
	failed.Failures = 2
	for _, c := range []struct {
		name string
		p    traits.Proxy
		want []string
	}{
		{"nothing is known", traits.Proxy{}, []string{proxyStopped, syncFailed}},
		{"gone", traits.Proxy{Presence: traits.Gone}, []string{proxyGone, syncFailed}},
		{"a process", traits.Proxy{Presence: traits.Running}, []string{proxyHung, syncFailed}},
		{"healthy", traits.Proxy{Presence: traits.Running, Health: traits.Health{Word: traits.Healthy}}, []string{proxyDeaf, syncFailed}},
		{"unhealthy", traits.Proxy{Presence: traits.Running, Health: traits.Health{Word: traits.Unhealthy}}, []string{proxyHung, syncFailed}},
		{"no failures", traits.Proxy{Health: traits.Health{Word: traits.Healthy, Syncs: []traits.Sync{counted, counted}}}, []string{proxyDeaf}},
		{"failures of one family", traits.Proxy{Health: traits.Health{Word: traits.Healthy, Syncs: []traits.Sync{counted, failed}}}, []string{proxyDeaf, syncFailed}},
		{"failures are not counted", traits.Proxy{Health: traits.Health{Syncs: []traits.Sync{{}}}}, []string{proxyStopped, syncFailed}},
	} {
		shared := []string{proxyStopped, syncFailed}
		fs := []report.Finding{{Causes: shared}, {Causes: []string{"something else"}}}
		(&Node{Proxy: c.p}).possible(fs)
		if d := cmp.Diff(c.want, fs[0].Causes); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		if fs[1].Causes[0] != "something else" || shared[0] != proxyStopped {
			t.Errorf("%s: other causes changed", c.name)
		}
	}
}
