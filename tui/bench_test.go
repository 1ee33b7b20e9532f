package tui

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/test/scale"
)

// largeNode is a simulated node of 10,000 Services with 5 endpoints each.
func largeNode(t testing.TB, n int) *snapshot.Snapshot {
	t.Helper()
	name, files := scale.NewFleet(10000, 5).Node(n)
	dir := t.TempDir()
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

// BenchmarkFirst is the time from evidence to the first screen, on which service ports are still being checked, and, as
// checked-ms, to the one with what was found. The budget of the first is one second.
func BenchmarkFirst(b *testing.B) {
	s := largeNode(b, 0)
	var checked time.Duration
	n := 0
	for b.Loop() {
		runtime.GC()
		began := time.Now()
		m := New(context.Background(), feedOf(s), Look{Colors: Colors256}, nil)
		m.tick = func(time.Duration, func(time.Time) tea.Msg) tea.Cmd { return nil }
		told := make(chan tea.Msg, 8)
		m.Update(tea.WindowSizeMsg{Width: 200, Height: 60})
		tell(m.Init(), told)
		for m.moment == nil {
			_, cmd := m.Update(<-told)
			tell(cmd, told)
			if m.early != nil {
				b.StopTimer() // the first screen
			}
			if m.table() != nil && len(m.View()) < 1000 {
				b.Fatal("nothing is drawn")
			}
		}
		checked += time.Since(began)
		n++
		b.StartTimer()
	}
	b.ReportMetric(float64(checked.Milliseconds())/float64(n), "checked-ms")
}

// tell runs what was asked for outside of the loop, as the program does it.
func tell(cmd tea.Cmd, told chan<- tea.Msg) {
	if cmd == nil {
		return
	}
	go func() {
		switch msg := cmd().(type) {
		case nil:
		case tea.BatchMsg:
			for _, one := range msg {
				tell(one, told)
			}
		default:
			told <- msg
		}
	}()
}

// BenchmarkKeys is the time from a key to its frame; p99-ms is reported beside the mean. The budget is 50 ms.
func BenchmarkKeys(b *testing.B) {
	c := newConsole(b, feedOf(largeNode(b, 0)), Look{Colors: Colors256}, 200, 60)
	keys := []string{
		"<down>", "<pgdown>", "<end>", "<up>", "<home>", "/", "s", "e", "r", "v", "i", "c", "e", "-", "0", "1", "<backspace>", "<esc>",
		"p", "p", "o", "O", "o", "o", "o", "o", "n", "<down>", "<enter>", "<esc>", "<enter>", "<down>", "<right>", "<tab>", "w", "<esc>", "2", "<down>", "1",
	}
	var took []time.Duration
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		key := keys[i%len(keys)]
		began := time.Now()
		c.press(key)
		c.View()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// recounted is the same node with other packet counters, in memory of its own.
func recounted(s *snapshot.Snapshot) *snapshot.Snapshot {
	out := *s
	out.Evidence = slices.Clone(s.Evidence)
	for i := range out.Evidence {
		e := &out.Evidence[i]
		e.Data = slices.Clone(e.Data)
		if e.Format != snapshot.IPTablesSave {
			continue
		}
		for at := range e.Data {
			if e.Data[at] == '[' && at > 0 && e.Data[at-1] == '\n' {
				e.Data[at+1] = '9'
			}
		}
	}
	return &out
}

// BenchmarkRefresh is what a reading costs beyond collecting, when only counters changed: telling so, and drawing rates. At a
// reading every 2 s, 10% of a core are 200 ms.
func BenchmarkRefresh(b *testing.B) {
	s := largeNode(b, 0)
	again := recounted(s)
	c := newConsole(b, feedOf(s), Look{Colors: Colors256}, 200, 60)
	first := c.moment
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		next, err := newMoment(again, noon.Add(2*time.Second), c.moment, explain.AuditOptions{}, true)
		if err != nil {
			b.Fatal(err)
		}
		if next.Reading != first.Reading {
			b.Fatal("analysed again")
		}
		c.moment, c.before = next, first
		c.run(c.changed())
		c.View()
	}
}

var _ tea.Model = (*Model)(nil)
