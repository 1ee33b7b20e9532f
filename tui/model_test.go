package tui

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/svcnet/svcnet/cmd/demo"
	"github.com/svcnet/svcnet/collectors/snapshot"
)

// noon is the time of all clocks of tests.
var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// demoNode is the recorded node of --demo, a copy that a test may change.
func demoNode(t testing.TB) *snapshot.Snapshot {
	t.Helper()
	files, err := demo.Node()
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.LoadFS(files, "demo")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// feedOf is a feed that reads what it is given.
func feedOf(s *snapshot.Snapshot) *Feed {
	return &Feed{
		From: "files", Name: "kubectl svcnet", Evidence: "--demo", Version: "v0.0.0", Interval: 2 * time.Second,
		Now:  func() time.Time { return noon },
		Read: func(context.Context, string) (*snapshot.Snapshot, error) { return s, nil },
	}
}

// console is a program without a terminal: keys go in, and what is on the screen comes out.
type console struct {
	*Model
	t testing.TB
	// ticks are what waits for time to pass.
	ticks []tea.Cmd
	wrote []string
}

func newConsole(t testing.TB, f *Feed, l Look, width, height int) *console {
	t.Helper()
	c := &console{t: t}
	c.Model = New(context.Background(), f, l, func(s string) { c.wrote = append(c.wrote, s) })
	c.tick = func(d time.Duration, msg func(time.Time) tea.Msg) tea.Cmd {
		c.ticks = append(c.ticks, func() tea.Msg { return msg(noon.Add(d)) })
		return nil
	}
	c.run(c.Init())
	c.send(tea.WindowSizeMsg{Width: width, Height: height})
	return c
}

// send tells the program something, and everything that follows from it.
func (c *console) send(msg tea.Msg) {
	c.t.Helper()
	_, cmd := c.Update(msg)
	c.run(cmd)
}

func (c *console) run(cmd tea.Cmd) {
	c.t.Helper()
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case nil:
	case tea.BatchMsg:
		for _, one := range msg {
			c.run(one)
		}
	case tea.QuitMsg:
	default:
		if fmt.Sprintf("%T", msg) == "cursor.initialBlinkMsg" || fmt.Sprintf("%T", msg) == "cursor.BlinkMsg" {
			return
		}
		c.send(msg)
	}
}

// press types keys: names of keys in angle brackets, everything else letter by letter.
func (c *console) press(keys string) *console {
	c.t.Helper()
	for keys != "" {
		if rest, ok := strings.CutPrefix(keys, "<"); ok {
			name, after, found := strings.Cut(rest, ">")
			if found && name != "" {
				c.send(named(c.t, name))
				keys = after
				continue
			}
		}
		r := []rune(keys)[0]
		keys = keys[len(string(r)):]
		if r == ' ' {
			c.send(tea.KeyMsg{Type: tea.KeySpace, Runes: []rune{' '}})
			continue
		}
		c.send(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}})
	}
	return c
}

func named(t testing.TB, name string) tea.KeyMsg {
	t.Helper()
	keys := map[string]tea.KeyType{
		"enter": tea.KeyEnter, "esc": tea.KeyEsc, "tab": tea.KeyTab, "shift+tab": tea.KeyShiftTab, "up": tea.KeyUp, "down": tea.KeyDown,
		"left": tea.KeyLeft, "right": tea.KeyRight, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd,
		"backspace": tea.KeyBackspace, "ctrl+c": tea.KeyCtrlC, "ctrl+z": tea.KeyCtrlZ,
	}
	k, ok := keys[name]
	if !ok {
		t.Fatalf("no such key: <%s>", name)
	}
	return tea.KeyMsg{Type: k}
}

// screen is what is seen, without colours.
func (c *console) screen() string {
	c.t.Helper()
	return ansi.Strip(c.View())
}

// shows fails unless every text is on the screen.
func (c *console) shows(texts ...string) *console {
	c.t.Helper()
	s := c.screen()
	for _, text := range texts {
		if !strings.Contains(s, text) {
			c.t.Errorf("the screen does not show %q:\n%s", text, s)
		}
	}
	return c
}
