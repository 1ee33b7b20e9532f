package tui

import (
	"strings"
	"testing"

	tea "github.com/charmbracelet/bubbletea"
)

// broken is a model that panics where it is told to.
type broken struct{ in string }

func (b broken) panics(in string) {
	if b.in == in {
		panic("broken in " + in)
	}
}

func (b broken) Init() tea.Cmd {
	b.panics("init")
	return nil
}

func (b broken) Update(tea.Msg) (tea.Model, tea.Cmd) {
	b.panics("update")
	return b, func() tea.Msg {
		b.panics("command")
		return tea.BatchMsg{nil, func() tea.Msg {
			b.panics("batch")
			return nil
		}}
	}
}

func (b broken) View() string {
	b.panics("view")
	return ""
}

// TestGuarded holds that no panic of the model or of its commands gets through, and that each says where it was.
func TestGuarded(t *testing.T) {
	for _, in := range []string{"init", "update", "view", "command", "batch"} {
		var said []string
		g := &guarded{Model: broken{in}, failed: func(m *mistake) {
			m.name = "kubectl svcnet"
			said = append(said, m.Error())
		}}
		g.Init()
		model, cmd := g.Update(nil)
		if model != tea.Model(g) {
			t.Errorf("%s: the model is another", in)
		}
		if cmd != nil {
			if batch, ok := cmd().(tea.BatchMsg); ok {
				for _, c := range batch {
					if c != nil {
						c()
					}
				}
			}
		}
		g.View()
		want := "this is a mistake of svcnet: broken in " + in + ", tui.broken.panics at run_test.go:"
		if len(said) != 1 || !strings.HasPrefix(said[0], want) || !strings.HasSuffix(said[0], "(please report this line; `kubectl svcnet audit` prints what the screen shows)") {
			t.Errorf("%s: %q, want %q …", in, said, want)
		}
	}
}
