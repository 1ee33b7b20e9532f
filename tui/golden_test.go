package tui

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain/report"
)

// update tells whether golden files are written anew: -update, which teatest defines for its own.
func update() bool { return flag.Lookup("update").Value.String() == "true" }

// scenes are all screens, and the keys that lead there from the first one.
var scenes = []struct{ name, keys string }{
	{"services", ""},
	{"services-filter", "/sto !cart"},
	{"services-problems", "p"},
	{"services-nothing-left", "/nosuch<enter>"},
	{"namespaces", "n"},
	{"findings", "2"},
	{"findings-unknown", "2<end>"},
	{"nodes", "3"},
	{"status", "4"},
	{"sources", "5"},
	{"diff", "6"},
	{"path", "<enter>"},
	{"path-rules", "<enter>w"},
	{"path-other-clients", "<enter><right><tab><tab>"},
	{"path-refused", "/search<enter><enter>"},
	{"page", "<enter>d"},
	{"packet", "t"},
	{"packet-wrong", "t<end>x<enter>"},
	{"walk", "t<enter>"},
	{"json", "y"},
	{"command", ":s"},
	{"help", "?"},
	{"help-path", "<enter>?"},
	{"repair", "2R"},
	{"repair-asks", "2RAapp"},
}

var sizes = []struct{ width, height int }{{60, 15}, {100, 30}, {180, 50}}

var looks = []struct {
	name string
	look Look
}{
	{"colour", Look{Colors: Colors256}}, {"16", Look{Colors: Colors16}}, {"nocolor", Look{}}, {"ascii", Look{ASCII: true}},
}

// TestGolden holds every screen at three sizes and in four looks against what somebody looked at before. A file holds one
// look of a screen, on a terminal that grows.
func TestGolden(t *testing.T) {
	for _, scene := range scenes {
		for _, l := range looks {
			t.Run(scene.name+"/"+l.name, func(t *testing.T) {
				var b strings.Builder
				c := newConsole(t, sixNodes(t), l.look, sizes[0].width, sizes[0].height).press("1" + scene.keys)
				for _, size := range sizes {
					c.send(tea.WindowSizeMsg{Width: size.width, Height: size.height})
					view := c.View()
					fmt.Fprintf(&b, "%d×%d\n%s\n", size.width, size.height, view)
					fits(t, view, size.width, size.height)
					c.only(t, view, l.look)
				}
				golden(t, scene.name+"-"+l.name+".txt", b.String())
			})
		}
	}
}

// fits fails for a screen that is larger than the terminal: it would scroll, or wrap.
func fits(t *testing.T, view string, width, height int) {
	t.Helper()
	lines := strings.Split(view, "\n")
	if len(lines) > height {
		t.Errorf("%d lines on a terminal of %d", len(lines), height)
	}
	for i, line := range lines {
		if n := ansi.StringWidth(line); n > width {
			t.Errorf("line %d is %d wide on a terminal of %d: %q", i+1, n, width, ansi.Strip(line))
		}
	}
}

// only fails for what the look does not allow: other signs than ASCII, colours.
func (c *console) only(t *testing.T, view string, l Look) {
	t.Helper()
	if l.ASCII {
		for _, r := range ansi.Strip(view) {
			if r > 126 {
				t.Errorf("the screen has %q, which is not ASCII", r)
				return
			}
		}
	}
	for _, code := range codes(view) {
		color := strings.HasPrefix(code, "3") || strings.HasPrefix(code, "4") && code != "4" || strings.HasPrefix(code, "9")
		switch {
		case l.Colors == NoColors && color:
			t.Errorf("the screen has colour %s", code)
			return
		case l.Colors == Colors16 && (code == "38" || code == "48"):
			t.Error("the screen has one of 256 colours")
			return
		}
	}
}

// codes are the numbers of all SGR sequences.
func codes(view string) []string {
	var out []string
	for _, part := range strings.Split(view, "\x1b[")[1:] {
		seq, _, ok := strings.Cut(part, "m")
		if ok {
			out = append(out, strings.Split(seq, ";")...)
		}
	}
	return out
}

// golden compares text with a file below testdata/golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if update() {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test ./tui -update writes it)", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("the screen is another one (-want +got; go test ./tui -update writes it anew):\n%s", d)
	}
}

// sixNodes is the recorded node among five others.
func sixNodes(t *testing.T) *Feed {
	f := repairing(t, new([]Scope), nil)
	f.Node = "node-1"
	f.Nodes = func(context.Context, func(done, all int)) (*report.Reports, error) { return fleetOf(), nil }
	return f
}
