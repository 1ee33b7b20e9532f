package tui

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/exp/teatest"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/test/scale"
)

// journey is what somebody came for: keys, and what the screen says behind each of them.
type journey struct {
	name  string
	steps []step
}

// step is one key, or a word that is typed, and what is then on the screen.
type step struct {
	keys string
	sees []string
}

// The main journeys, on a node of 5,000 Services of which one sends a fifth of its connections to a pod that is gone. The
// keystrokes of each are what its steps list, and no more.
var journeys = []journey{
	{"what is broken, why, and what mends it", []step{
		{"", []string{"›✗ team-042/service-01242", "wrong-translation +1"}},
		{"<enter>", []string{"stale: no endpoint of the Service", "want", "no traffic", "got", "20.0%", "remedy", "--to-destination 10.99.99.99:8080"}},
		{"d", []string{"What it means", "How to confirm", "What to do"}},
	}},
	{"is it my Service", []step{
		{"/", []string{"/_"}},
		{"service-00777", []string{"›✓ team-177/service-00777", "5/5"}},
		{"<enter>", []string{"filter service-00777"}},
		{"<enter>", []string{"chooses one of 5", "20.0%", "✓ source address kept"}},
	}},
	{"where does one packet go", []step{
		{"/service-00777<enter>", []string{"›✓ team-177/service-00777"}},
		{"t", []string{"trace a packet", ":80/tcp", "10.128."}},
		{"<enter>", []string{"packet to", "chooses one of 5"}},
	}},
	{"the finding, and its place", []step{
		{"2", []string{"wrong-translation", "missing-endpoint-rule"}},
		{"<enter>", []string{"team-042/service-01242", "evidence"}},
	}},
	{"what could not be looked at", []step{
		{"5", []string{"not-collected", "CHECKS"}},
	}},
	{"the command for a colleague", []step{
		{"", []string{"›✗ team-042/service-01242"}},
		{"<enter>", []string{"by hand"}},
		{"c", []string{"kubectl svcnet trace svc/service-01242 -n team-042"}},
	}},
	{"lost", []step{
		{"", []string{"›✗ team-042/service-01242"}},
		{"?", []string{"Everywhere", "filter", "problems only"}},
		{"<esc>", []string{"›✗ team-042/service-01242"}},
	}},
}

// brokenNode is that node.
func brokenNode(t testing.TB) *snapshot.Snapshot {
	t.Helper()
	name, files := scale.NewFleet(5000, 5).Node(0)
	dir := t.TempDir()
	rule := regexp.MustCompile(`(--comment "?team-042/service-01242:?[a-z]*"? .*--to-destination )\S+`)
	broken := 0
	for file, text := range files {
		if at := rule.FindSubmatchIndex(text); at != nil {
			files[file] = append(append(append([]byte{}, text[:at[3]]...), "10.99.99.99:8080"...), text[at[1]:]...)
			broken++
		}
	}
	if broken != 1 {
		t.Fatalf("%d rules were broken, want one", broken)
	}
	if err := scale.Write(dir, files); err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.Load([]string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Node = name
	return s
}

// TestJourneys runs each in the program itself, which draws on a terminal of teatest. What a screen shows is what was drawn
// since the key was pressed, so that nothing passes for what an earlier screen said.
func TestJourneys(t *testing.T) {
	s := brokenNode(t)
	for _, j := range journeys {
		t.Run(j.name, func(t *testing.T) {
			f := pagedFeed(s)
			f.Read = func(context.Context, string) (*snapshot.Snapshot, error) { return s, nil }
			m := New(context.Background(), f, Look{}, func(string) {})
			tm := teatest.NewTestModel(t, m, teatest.WithInitialTermSize(140, 40))
			keys := 0
			for _, st := range j.steps {
				pressed := press(st.keys)
				keys += len(pressed)
				for _, k := range pressed {
					tm.Send(k)
				}
				sees(t, tm, st)
			}
			t.Logf("%d keystrokes", keys)
			tm.Send(tea.KeyMsg{Type: tea.KeyCtrlC})
			tm.WaitFinished(t, teatest.WithFinalTimeout(10*time.Second))
		})
	}
}

// sees waits until a step's texts are on the screen, all at once.
func sees(t *testing.T, tm *teatest.TestModel, st step) {
	t.Helper()
	var drawn bytes.Buffer
	deadline := time.Now().Add(30 * time.Second)
	for {
		var b [1 << 16]byte
		n, _ := tm.Output().Read(b[:])
		drawn.Write(b[:n])
		text := ansi.Strip(drawn.String())
		missing := ""
		for _, want := range st.sees {
			if !strings.Contains(text, want) {
				missing = want
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %q the screen does not show %q:\n%s", st.keys, missing, text)
		}
		if n == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// press are the messages of keys, as console.press takes them.
func press(keys string) []tea.KeyMsg {
	names := map[string]tea.KeyType{"enter": tea.KeyEnter, "esc": tea.KeyEsc, "tab": tea.KeyTab, "down": tea.KeyDown, "right": tea.KeyRight}
	var out []tea.KeyMsg
	for keys != "" {
		if rest, ok := strings.CutPrefix(keys, "<"); ok {
			name, after, _ := strings.Cut(rest, ">")
			k, ok := names[name]
			if !ok {
				panic(fmt.Sprintf("no such key: %s", name))
			}
			out, keys = append(out, tea.KeyMsg{Type: k}), after
			continue
		}
		out, keys = append(out, tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{[]rune(keys)[0]}}), string([]rune(keys)[1:])
	}
	return out
}
