package cmd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcnet/svcnet/cmd/demo"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/tui"
)

func TestLookOf(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want tui.Look
	}{
		{[]string{"TERM", "xterm-256color"}, tui.Look{Colors: tui.Colors256}},
		{[]string{"TERM", "xterm-direct"}, tui.Look{Colors: tui.Colors256}},
		{[]string{"TERM", "alacritty", "COLORTERM", "truecolor"}, tui.Look{Colors: tui.Colors256}},
		{[]string{"TERM", "linux"}, tui.Look{Colors: tui.Colors16}},
		{[]string{"TERM", "xterm-256color", "NO_COLOR", "1"}, tui.Look{Colors: tui.NoColors}},
		{[]string{"TERM", "screen", "LANG", "C"}, tui.Look{Colors: tui.Colors16, ASCII: true}},
	} {
		if got := lookOf(environment(c.env...)); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.env, got, c.want)
		}
	}
}

func TestEvidenceOf(t *testing.T) {
	for line, want := range map[string]string{
		"--demo":                         "--demo",
		"-n store --ignore x -A":         "",
		"-f a.tar.gz -f b.tar.gz":        "-f a.tar.gz -f b.tar.gz",
		"-f my^folder -n store":          "-f 'my folder'",
		"--node n1,n2 --interval 5s":     "--node n1 --node n2",
		"--all-nodes --copy-binary":      "--all-nodes --copy-binary",
		"--all-nodes --copy-binary=x":    "--all-nodes --copy-binary=x",
		"--kubeconfig it's --context c1": `--kubeconfig 'it'\''s' --context c1`,
		"--live=true -f x --silent":      "--live -f x --silent",
	} {
		a := &app{env: environment(), name: "svcnet"}
		c := a.tuiCommand()
		var args []string
		for _, w := range strings.Fields(line) {
			args = append(args, strings.ReplaceAll(w, "^", " "))
		}
		if err := c.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		if got := evidenceOf(c.Flags()); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// TestNewBundle holds that a bundle takes nobody's place, and holds what collect writes.
func TestNewBundle(t *testing.T) {
	t.Chdir(t.TempDir())
	a := &app{env: environment(), name: "svcnet"}
	now := time.Date(2026, 1, 5, 13, 0, 0, 0, time.FixedZone("CET", 3600))
	for _, want := range []string{"svcnet-node-1-20260105T120000Z.tar.gz", "svcnet-node-1-20260105T120000Z-2.tar.gz", "svcnet-node-1-20260105T120000Z-3.tar.gz"} {
		before := map[string][]byte{}
		for _, e := range entries(t) {
			before[e] = contents(t, e)
		}
		got, err := a.newBundle(t.Context(), demoSnapshot(t), now)
		if err != nil || got != want {
			t.Errorf("saved %s (%v), want %s", got, err, want)
		}
		for name, data := range before {
			if string(contents(t, name)) != string(data) {
				t.Errorf("%s was overwritten", name)
			}
		}
		if len(entries(t)) != len(before)+1 {
			t.Errorf("there is %v", entries(t))
		}
	}
	if s, err := snapshot.Load([]string{entries(t)[0]}, nil); err != nil || s.Node != "node-1" {
		t.Errorf("the bundle: %v", err)
	}
	o := started(t, "", "collect", "--demo", "--node", "node-1", "-o", "collected.tar.gz")
	if o.code != 0 && o.code != exitMissing {
		t.Fatal(o.err)
	}
	if string(contents(t, "collected.tar.gz")) != string(contents(t, "svcnet-node-1-20260105T120000Z.tar.gz")) {
		t.Error("it is another bundle than that of collect")
	}

	// What is not written leaves nothing behind.
	over, cancel := context.WithCancel(t.Context())
	cancel()
	n := len(entries(t))
	if name, err := a.newBundle(over, demoSnapshot(t), now); !errors.Is(err, context.Canceled) || len(entries(t)) != n {
		t.Errorf("%s, %v, and there is %v", name, err, entries(t))
	}
}

// demoSnapshot is the recorded node of --demo.
func demoSnapshot(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	files, err := demo.Node()
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.LoadFS(files, "demo")
	if err != nil {
		t.Fatal(err)
	}
	s.Node = "node-1"
	return s
}

func entries(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("*")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func contents(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestFeedOfBundles holds that several bundles are compared, that each is read when it is looked at, and how far that is.
func TestFeedOfBundles(t *testing.T) {
	t.Chdir(t.TempDir())
	a := &app{env: environment(), name: "svcnet"}
	e := &evidence{live: newLive()}
	for _, node := range []string{"node-1", "node-2"} {
		s := demoSnapshot(t)
		s.Node = node
		name, err := a.newBundle(t.Context(), s, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		e.files = append(e.files, name)
	}
	f, leave, err := a.feed(t.Context(), e, explain.AuditOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Live || f.From != "2 bundles" {
		t.Errorf("live: %v, from %s", f.Live, f.From)
	}
	var told []int
	for range 2 { // it can be asked again
		l, err := f.Nodes(t.Context(), func(done, all int) { told = append(told, done, all) })
		if err != nil || len(l.Items) == 0 {
			t.Fatalf("%v, %v", l, err)
		}
	}
	if want := []int{1, 2, 2, 2, 1, 2, 2, 2}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	for _, node := range []string{"node-2", "node-1"} {
		if s, err := f.Read(t.Context(), node); err != nil || s.Node != node {
			t.Errorf("read %s: %v", node, err)
		}
	}
	if _, err := f.Read(t.Context(), "node-3"); err == nil || err.Error() != "none of 2 bundles is of node node-3" {
		t.Errorf("node-3: %v", err)
	}
	if err := leave(); err != nil {
		t.Error(err)
	}
}

// TestHere holds that this machine is read anew each time, beside objects that are listed once, and beside files.
func TestHere(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only a Linux machine is read")
	}
	v, api, _ := visiting(t, "n1")
	a := &app{env: environment(), name: "svcnet"}
	e := &evidence{live: newLive()}
	e.live.noAPI = true
	first := demoSnapshot(t)
	h, err := e.here(t.Context(), a, first)
	if err != nil {
		t.Fatal(err)
	}
	if h.api = v.reach.api; h.objects != nil {
		t.Error("objects are followed with --no-api")
	}
	if h.objects, err = v.follow("n1"); err != nil {
		t.Fatal(err)
	}
	if s, err := h.read(t.Context(), ""); err != nil || s != first {
		t.Errorf("what was read already is not what is shown first: %v", err)
	}
	for range 2 {
		s, err := h.read(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if at, err := time.Parse(time.RFC3339, s.Captured); err != nil || time.Since(at) > time.Minute || s.Node != "node-1" {
			t.Errorf("node %s, captured %s", s.Node, s.Captured)
		}
		if got := len(s.Of(snapshot.Objects)); got != 4 || len(s.Of(snapshot.Sysctl)) == 0 {
			t.Errorf("%d pieces of objects, of %d in all", got, len(s.Evidence))
		}
	}
	if n := api.lists["/api/v1/services"]; n != 1 {
		t.Errorf("Services were listed %d times, want once", n)
	}

	// Objects of files take the place of the API's.
	e.files, e.alsoLive = []string{filepath.Join(demoNode, "objects.yaml")}, true
	if _, err := os.Stat(e.files[0]); err != nil {
		t.Fatal(err)
	}
	if h, err = e.here(t.Context(), a, first); err != nil {
		t.Fatal(err)
	}
	h.first = nil
	s, err := h.read(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Of(snapshot.Objects); len(got) != 1 || !strings.HasSuffix(got[0].File, "objects.yaml") {
		t.Errorf("objects are %d pieces", len(got))
	}
}
