package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/fleet"
	"github.com/svcnet/svcnet/explain/report"
)

// TestDiffGolden compares what is said of two moments of a node, and of two nodes, with what was said before.
func TestDiffGolden(t *testing.T) {
	tests := []struct{ name, before, after string }{
		{"diff-moments", node2, node2Later},
		{"diff-mended", node2Later, node2},
		{"diff-nodes", node1, node2Later},
		{"diff-alike", node1, node3},
	}
	for _, tt := range tests {
		for _, format := range []string{"tree", "json"} {
			t.Run(tt.name+"."+format, func(t *testing.T) {
				r := run(t, "diff", tt.before, tt.after, "-o", format)
				if r.code != 0 || r.stderr != "" {
					t.Errorf("exit %d, standard error %q", r.code, r.stderr)
				}
				got := r.stdout
				if format == "json" {
					ofKind(t, "Diff", got)
					got = indented(t, got)
				}
				golden(t, "fleet/"+tt.name+"."+format, got)
			})
		}
	}
}

// TestDiffSays: a deleted rule changes one Service, by the backend that it led to; what is alike has no difference.
func TestDiffSays(t *testing.T) {
	d := diffOf(t, node2, node2Later, explain.AuditOptions{})
	if len(d.Services) != 1 || d.Services[0].Name != "web" || d.Services[0].Change != "changed" {
		t.Fatalf("Services: %+v", d.Services)
	}
	for _, p := range d.Services[0].Paths {
		if !slices.Equal(p.Lost, []string{"10.244.3.2:8080"}) || len(p.Gained) > 0 {
			t.Errorf("%s from %v: lost %v, gained %v", p.Frontend, p.SourceClasses, p.Lost, p.Gained)
		}
	}
	if len(d.Appeared) == 0 || len(d.Cleared) > 0 || len(d.Settings) > 0 || d.Summary.Same {
		t.Errorf("appeared %d, cleared %d, settings %v, same %t", len(d.Appeared), len(d.Cleared), d.Settings, d.Summary.Same)
	}
	if d := diffOf(t, node1, node3, explain.AuditOptions{}); !d.Summary.Same {
		t.Errorf("two nodes that are alike: %s", d.Summary.Text)
	}
	if d := diffOf(t, node1, node1, explain.AuditOptions{}); !d.Summary.Same {
		t.Errorf("a reading and itself: %s", d.Summary.Text)
	}
}

// TestDiffEachByItself: Services that are left out because both sides do what is asked of them have no difference.
func TestDiffEachByItself(t *testing.T) {
	for _, pair := range [][2]string{
		{node2, node2Later}, {node1, node2Later}, {node1, node3},
		{recordedDir("1.36-iptables-nft"), recordedDir("1.35-iptables-nft")},
		{recordedDir("1.36-nftables"), recordedDir("1.29-nftables")},
		{recordedDir("1.36-iptables-nft"), recordedDir("1.36-nftables")},
		{recordedDir("1.36-ipvs"), recordedDir("1.33-ipvs")},
	} {
		some, err := json.Marshal(diffOf(t, pair[0], pair[1], explain.AuditOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		all, err := json.Marshal(diffOf(t, pair[0], pair[1], explain.AuditOptions{EachByItself: true}))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(some, all) {
			t.Errorf("%v: walking every Service says more:\n%s\n%s", pair, some, all)
		}
	}
}

func recordedDir(name string) string { return "../recorded/testdata/kube-proxy-" + name }

// TestDiffExit: a difference is a failure only where it is asked for.
func TestDiffExit(t *testing.T) {
	objects, err := os.ReadFile("testdata/cases/01-endpoint-lost-in-partial-sync/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	noRules := t.TempDir()
	if err := os.WriteFile(filepath.Join(noRules, "objects.yaml"), objects, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{node2, node2Later, "--fail-on", "any"}, 3, ""},
		{[]string{node2, node2Later, "--fail-on", "error"}, 3, ""},
		{[]string{node2, node2Later, "--fail-on", "critical"}, 0, ""},
		{[]string{node2Later, node2, "--fail-on", "info"}, 0, ""},
		{[]string{node2Later, node2, "--fail-on", "any"}, 3, ""},
		{[]string{node1, node3, "--fail-on", "any"}, 0, ""},
		{[]string{node2, node2Later, "-n", "kube-system", "--fail-on", "error"}, 0, ""},
		{[]string{node1, noRules}, 4, ""},
		{[]string{node1}, 2, "accepts 2 arg(s), received 1"},
		{[]string{"-", "-"}, 2, "standard input can be read once"},
		{[]string{node1, node3, "--fail-on", "sometimes"}, 2, "--fail-on sometimes is not one of: any, critical"},
		{[]string{node1, "testdata/nothing"}, 1, "testdata/nothing"},
	}
	for _, tt := range tests {
		if r := run(t, append([]string{"diff"}, tt.args...)...); r.code != tt.code || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("diff %q: exit %d, want %d: %s", tt.args, r.code, tt.code, r.stderr)
		}
	}
}

func diffOf(t *testing.T, before, after string, o explain.AuditOptions) *report.Diff {
	t.Helper()
	var r [2]*explain.Reading
	for i, dir := range []string{before, after} {
		s, err := snapshot.Load([]string{dir}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r[i], err = explain.Read(s, o); err != nil {
			t.Fatal(err)
		}
	}
	d := fleet.NewDiff(fleet.Side{Report: r[0].Report, Status: r[0].Status}, fleet.Side{Report: r[1].Report, Status: r[1].Status})
	for was, is := range explain.Changes(r[0], r[1]) {
		d.Service(was, is)
	}
	return d.Document()
}
