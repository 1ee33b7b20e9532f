package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// notes are what the notes of expected.json say of a packet, by case and number of the trace.
var notes = []struct {
	name  string
	trace int
	check func(*testing.T, []report.Path)
}{
	{"01-endpoint-lost-in-partial-sync", 0, func(t *testing.T, paths []report.Path) {
		// Only the dead address: the endpoint that should answer gets nothing.
		for _, p := range paths {
			if missing := withState(p, "missing"); len(missing) == 0 {
				t.Errorf("no backend is missing")
			}
		}
	}},
	{"12-udp-conntrack-after-scale-to-zero", 0, func(t *testing.T, paths []report.Path) {
		for _, p := range paths {
			if p.TranslatedBy != "" {
				t.Errorf("a new flow is translated by %s", p.TranslatedBy)
			}
		}
	}},
	{"12-udp-conntrack-after-scale-to-zero", 1, func(t *testing.T, paths []report.Path) {
		for _, p := range paths {
			if p.TranslatedBy != "conntrack" {
				t.Errorf("translated by %q, want conntrack", p.TranslatedBy)
			}
		}
	}},
	{"19-kube-firewall-lost-its-mark", 1, func(t *testing.T, paths []report.Path) {
		// Pod traffic is forwarded and passes neither INPUT nor OUTPUT.
		for _, h := range allHops(paths) {
			if h.Chain == "INPUT" || h.Chain == "OUTPUT" || h.Chain == "KUBE-FIREWALL" {
				t.Errorf("the path goes through %s/%s", h.Table, h.Chain)
			}
		}
	}},
	{"23-docker-forward-policy-drop", 0, func(t *testing.T, paths []report.Path) {
		for _, p := range paths {
			if p.Masquerade != nil && *p.Masquerade {
				t.Errorf("masqueraded")
			}
		}
		if !slices.ContainsFunc(allHops(paths), func(h report.Hop) bool { return h.Kind == "policy" && h.Chain == "FORWARD" }) {
			t.Errorf("no hop shows the policy of FORWARD")
		}
	}},
	{"31-nodelocaldns-output-not-exempt", 0, func(t *testing.T, paths []report.Path) {
		hops := allHops(paths)
		if !slices.ContainsFunc(hops, func(h report.Hop) bool {
			return h.Table == "raw" && h.Chain == "PREROUTING" && strings.Contains(h.Text, "NOTRACK")
		}) {
			t.Errorf("no hop shows NOTRACK in raw PREROUTING")
		}
		if slices.ContainsFunc(hops, func(h report.Hop) bool { return h.Table == "nat" }) {
			t.Errorf("an untracked packet passes the nat table")
		}
	}},
	{"67-secondary-eni-rp-filter", 0, func(t *testing.T, paths []report.Path) {
		// The packet does not say by which interface it came: on eth0 the reverse path check drops it.
		for _, p := range paths {
			if words := strings.Join(p.NotEvaluated, " "); !strings.Contains(words, "rp_filter") || !strings.Contains(words, "eth0") {
				t.Errorf("nothing says that rp_filter drops what comes in on eth0: %q", words)
			}
		}
	}},
}

func TestCaseNotes(t *testing.T) {
	_, all := cases(t)
	for _, n := range notes {
		t.Run(n.name, func(t *testing.T) {
			e := all[n.name]
			if e == nil || n.trace >= len(e.Traces) {
				t.Fatal("no such trace")
			}
			tr := trace(t, load(t, e.Node, filepath.Join(casesDir, n.name)), e.Traces[n.trace].options())
			n.check(t, tr.Paths)
			if t.Failed() {
				t.Logf("paths:\n%s", brief(tr.Paths))
				for _, h := range allHops(tr.Paths) {
					t.Logf("hop %s/%s %s", h.Table, h.Chain, h.Text)
				}
			}
		})
	}
}

// TestCaseReversePath is case 67 with the interface named: nothing is open any more.
func TestCaseReversePath(t *testing.T) {
	s := load(t, "node-a", filepath.Join(casesDir, "67-secondary-eni-rp-filter"))
	for iif, want := range map[string]report.Result{"eth0": report.ResultMartian, "eth1": report.ResultDNAT} {
		tr := trace(t, s, explain.TraceOptions{To: "192.168.10.11:31080/TCP", FromAddr: "198.51.100.7", Origin: "external", IncomingInterface: iif})
		for _, p := range tr.Paths {
			if p.Result != want || len(p.Uncertain) > 0 {
				t.Errorf("in on %s: %s, want %s for sure\n%s", iif, p.Result, want, brief(tr.Paths))
			}
		}
	}
}

// allHops are those of paths and backends.
func allHops(paths []report.Path) []report.Hop {
	var out []report.Hop
	for _, p := range paths {
		out = append(out, p.Hops...)
		for _, b := range p.Backends {
			out = append(out, b.Hops...)
		}
	}
	return out
}

// withState are the backends of a path with that state, as "address:port".
func withState(p report.Path, state string) []string {
	var out []string
	for _, b := range p.Backends {
		if b.State == state {
			out = append(out, b.Address)
		}
	}
	return out
}

// servicesIn are the Services among the objects of a snapshot.
func servicesIn(t *testing.T, s *snapshot.Snapshot) []service {
	t.Helper()
	var set objects.Set
	for _, e := range s.Of(snapshot.Objects) {
		objects.Decode(&set, e.Data, e.File)
	}
	var out []service
	for _, sv := range set.Services {
		out = append(out, service{sv.Namespace, sv.Name})
	}
	return out
}
