package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain/report"
)

// Three nodes of one lab, each collected by itself, and n2 again after one rule of default/web was deleted on it by hand.
const (
	node1      = "testdata/fleet/n1"
	node2      = "testdata/fleet/n2"
	node2Later = "testdata/fleet/n2-damaged"
	node3      = "testdata/fleet/n3"
)

func bundles(args []string, dirs ...string) []string {
	args = slices.Clone(args)
	for _, d := range dirs {
		args = append(args, "-f", d)
	}
	return args
}

// TestFleetGolden compares what is said of three nodes, one of which was damaged, with what was said before.
func TestFleetGolden(t *testing.T) {
	tests := []struct {
		name, kind string
		args       []string
		code       int
	}{
		{"audit", "ReportList", []string{"audit"}, 3},
		{"trace-web", "TraceList", []string{"trace", "svc/web"}, 0},
		{"trace-local", "TraceList", []string{"trace", "svc/local"}, 0},
		{"status", "NodeStatusList", []string{"status"}, 0},
	}
	for _, tt := range tests {
		for _, format := range []string{"tree", "json"} {
			t.Run(tt.name+"."+format, func(t *testing.T) {
				r := run(t, bundles(append(tt.args, "-o", format), node3, node2Later, node1)...)
				if r.code != tt.code || r.stderr != "" {
					t.Errorf("exit %d, want %d; standard error %q", r.code, tt.code, r.stderr)
				}
				got := r.stdout
				noMachinePath(t, got)
				if format == "json" {
					ofKind(t, tt.kind, got)
					got = indented(t, got)
				}
				golden(t, "fleet/"+tt.name+"."+format, got)
			})
		}
	}
}

// TestDamagedNodeStandsOut: of three nodes the damaged one is odd, and the others are one line; undamaged, all three are.
func TestDamagedNodeStandsOut(t *testing.T) {
	audit := func(dirs ...string) report.Reports {
		t.Helper()
		r := run(t, bundles([]string{"audit", "-o", "json", "--fail-on", "never"}, dirs...)...)
		if r.code != 0 {
			t.Fatalf("exit %d: %s", r.code, r.stderr)
		}
		var l report.Reports
		if err := json.Unmarshal([]byte(r.stdout), &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := audit(node1, node2Later, node3)
	if len(l.Kinds) != 2 || !l.Kinds[0].Odd || !slices.Equal(l.Kinds[0].Nodes, []string{"n2"}) || !slices.Equal(l.Kinds[1].Nodes, []string{"n1", "n3"}) {
		t.Errorf("kinds of nodes: %+v", l.Kinds)
	}
	var nodes []string
	for _, i := range l.Items {
		nodes = append(nodes, i.Node+"="+i.Like)
	}
	if want := []string{"n1=", "n2=", "n3=n1"}; !slices.Equal(nodes, want) {
		t.Errorf("items %q, want %q", nodes, want)
	}
	for _, f := range l.Findings {
		on := strings.Join(f.Nodes, " ")
		switch {
		case f.Finding.Severity == "error" && on != "n2":
			t.Errorf("%s is on %s", f.Finding.ID, on)
		case f.Finding.ID == "service-without-endpoints" && (on != "n1 n2 n3" || !f.Everywhere):
			t.Errorf("%s is on %s, everywhere: %t", f.Finding.ID, on, f.Everywhere)
		}
	}
	if l.Summary.Error == 0 || l.Verdict != report.VerdictFail {
		t.Errorf("summary %+v, verdict %s", l.Summary, l.Verdict)
	}

	if l = audit(node1, node2, node3); len(l.Kinds) != 1 || l.Kinds[0].Odd || len(l.Kinds[0].Nodes) != 3 || l.Summary.Error != 0 {
		t.Errorf("three sound nodes: %+v, %+v", l.Kinds, l.Summary)
	}
}

// TestFleetOrder: the order in which nodes come changes nothing.
func TestFleetOrder(t *testing.T) {
	for _, command := range [][]string{{"audit"}, {"trace", "svc/local"}, {"status"}} {
		args := append(command, "-o", "json")
		first, second := run(t, bundles(args, node1, node2Later, node3)...), run(t, bundles(args, node3, node1, node2Later)...)
		if first.stdout != second.stdout || first.stdout == "" {
			t.Errorf("%v depends on the order of nodes", command)
		}
	}
}

// TestFleetUsage: what cannot be many nodes is refused in one line that says what to do.
func TestFleetUsage(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{bundles([]string{"audit"}, node2, node2Later), "both of node n2: `diff " + node2 + " " + node2Later + "` shows what changed between them"},
		{bundles([]string{"audit"}, node1, node2, nodeDir), "beside them " + nodeDir + ": whose evidence that is, nothing says"},
		{append(bundles([]string{"trace", "svc/web"}, node1, node2), "--node", "n1"), "-f names 2 bundles, each of which says it itself"},
		{append(bundles([]string{"status"}, node1, node2), "--live"), "--live reads this machine, and -f names 2 bundles"},
		{bundles([]string{"collect", "-o", "-"}, node1, node2), "-f names 2 bundles, and a bundle is of one node"},
	}
	for _, tt := range tests {
		if r := run(t, tt.args...); r.code != 2 || !strings.Contains(r.stderr, tt.want) || r.stdout != "" {
			t.Errorf("%q: exit %d: %s", tt.args, r.code, r.stderr)
		}
	}
	// A folder of bundles is its bundles; a Service that no node has is no document.
	if r := run(t, "status", "-o", "name", "-f", "testdata/fleet"); r.code != 2 || !strings.Contains(r.stderr, "both of node n2") {
		t.Errorf("a folder of bundles: exit %d: %s", r.code, r.stderr)
	}
	if r := run(t, bundles([]string{"status", "-o", "name"}, node3, node1)...); r.stdout != "nodestatus.svcnet.dev/n1\nnodestatus.svcnet.dev/n3\n" {
		t.Errorf("-o name: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if r := run(t, bundles([]string{"trace", "svc/none"}, node1, node3)...); r.code != 1 || !strings.Contains(r.stderr, "Service default/none is neither among the objects") {
		t.Errorf("a Service that is not there: exit %d: %s", r.code, r.stderr)
	}
}
