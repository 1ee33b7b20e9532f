package tui

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// liveNode is a live node whose clock and rules a test moves.
type liveNode struct {
	now   time.Time
	s     *snapshot.Snapshot
	err   error
	reads int
}

func (n *liveNode) feed() *Feed {
	f := feedOf(n.s)
	f.Live = true
	f.Now = func() time.Time { return n.now }
	f.Read = func(context.Context, string) (*snapshot.Snapshot, error) {
		n.reads++
		return n.s, n.err
	}
	return f
}

// change replaces text in the rules of IPv4.
func (n *liveNode) change(t *testing.T, old, with string) {
	t.Helper()
	s := *n.s
	s.Evidence = slices.Clone(s.Evidence)
	for i := range s.Evidence {
		e := &s.Evidence[i]
		if e.File == "iptables-save.txt" {
			changed := bytes.ReplaceAll(e.Data, []byte(old), []byte(with))
			if bytes.Equal(changed, e.Data) {
				t.Fatalf("the rules do not have %q", old)
			}
			e.Data = changed
		}
	}
	n.s = &s
}

// pass lets time pass, and has due what is due then.
func (c *console) pass(n *liveNode, d time.Duration) {
	c.t.Helper()
	n.now = n.now.Add(d)
	ticks := c.ticks
	c.ticks = nil
	for _, one := range ticks {
		c.send(one())
	}
}

// TestRates holds that counters of rules become new connections per second, on the row and on the hops of its path.
func TestRates(t *testing.T) {
	n := &liveNode{now: noon, s: demoNode(t)}
	const rule = `-A KUBE-SEP-FKQCEK7VL5TXMI7M -p tcp -m comment --comment "default/kubernetes:https" -m tcp -j DNAT`
	c := newConsole(t, n.feed(), Look{}, 130, 30).press("/kubernetes<enter>")
	if strings.Contains(c.under(), "5.0") {
		t.Fatalf("a rate of nothing: %s", c.under())
	}
	n.change(t, "[0:0] "+rule, "[10:600] "+rule)
	c.pass(n, 2*time.Second)
	if row := c.under(); !strings.Contains(row, "5.0") {
		t.Errorf("10 packets in 2 s are no 5.0 on the row: %s", row)
	}
	c.press("<enter>").shows("5.0/s").pass(n, 2*time.Second)
	c.shows("0/s")
	// A rule that was written again counts from nothing, which is no rate.
	n.change(t, "[10:600] "+rule, "[4:240] "+rule)
	c.pass(n, 2*time.Second)
	for _, line := range strings.Split(c.screen(), "\n") {
		if strings.Contains(line, "→ ✓ 172.18.0.11") && strings.Contains(line, "/s") {
			t.Errorf("a rate of a counter that fell: %s", line)
		}
	}
}

// TestReadingAgain holds what the first line says of reading, and that nothing is lost when it fails.
func TestReadingAgain(t *testing.T) {
	n := &liveNode{now: noon, s: demoNode(t)}
	c := newConsole(t, n.feed(), Look{}, 130, 30)
	// The node shows differences: two looks before the first screen.
	if n.reads != 2 {
		t.Errorf("%d readings before the first screen, want 2", n.reads)
	}
	c.shows("live, now", "store/web")
	c.pass(n, 3*time.Second)
	if n.reads != 3 {
		t.Errorf("%d readings, want 3", n.reads)
	}
	n.err = errors.New("read nat table: permission denied (run as root, or --node NAME)")
	c.press("<down>")
	row := c.under()
	c.pass(n, 2*time.Second)
	c.shows("read failed, this is 2s old", "store/web")
	if c.under() != row {
		t.Errorf("the cursor is on %q, was on %q", c.under(), row)
	}
	n.err = nil
	c.pass(n, 2*time.Second)
	c.shows("live, now").press(" ").shows("paused")
	before := n.reads
	c.pass(n, time.Minute)
	if n.reads != before {
		t.Errorf("read while paused")
	}
	c.shows("60s old").press(" ")
	if n.reads != before+1 {
		t.Errorf("not read when going on")
	}
}

// TestFast holds that keys which come in one piece are as good as single ones.
func TestFast(t *testing.T) {
	c := newConsole(t, feedOf(demoNode(t)), Look{}, 130, 30)
	c.send(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("/kuber")})
	c.shows("/kuber_", "Services (1 of 8)").press("<enter><enter>").shows("default/kubernetes:https")
	c.send(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("2"), Alt: true})
	c.shows("SEVERITY")
}

// TestPending holds that a difference which one reading alone shows is pending, and an error once two do.
func TestPending(t *testing.T) {
	n := &liveNode{now: noon, s: demoNode(t)}
	c := newConsole(t, n.feed(), Look{}, 130, 30)
	c.shows("2 errors")
	n.change(t, "--to-destination 10.244.1.31:", "--to-destination 10.99.99.99:")
	c.pass(n, 2*time.Second)
	c.shows("2 errors").press("2/pending").shows("pending  wrong-translation").press("<esc>")
	c.pass(n, 2*time.Second)
	if s := c.screen(); strings.Contains(s, "✗ 2 errors") {
		t.Errorf("still two errors:\n%s", s)
	}
}

// TestHostileRule holds that the comment of a rule moves no cursor and hides nothing, in the tree, in the evidence, and in what is
// copied.
func TestHostileRule(t *testing.T) {
	s := edited(demoNode(t), func(data []byte) []byte {
		return bytes.ReplaceAll(data, []byte(`"kubernetes service portals"`), []byte("\"\x1b[2J\x1b]0;owned\x07\u202egnihtyreve\""))
	})
	c := newConsole(t, feedOf(s), Look{}, 130, 30).press("<enter><home>")
	c.shows(`\x1b[2J`, `\u202e`)
	for _, keys := range []string{"", "e", "<esc>w", "c", "y", "<esc><esc>6"} {
		view := c.press(keys).View()
		for _, bad := range []string{"\x1b[2J", "\x1b]0", "\x07", "\u202e"} {
			if strings.Contains(view, bad) {
				t.Errorf("after %q the screen has %q", keys, bad)
			}
		}
	}
	for _, text := range c.wrote {
		if strings.Contains(text, "owned") {
			t.Errorf("copied: %q", text)
		}
	}
}
