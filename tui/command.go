package tui

import (
	"strings"

	"github.com/charmbracelet/bubbles/textinput"
	tea "github.com/charmbracelet/bubbletea"
)

// command is a line to type where to go.
type command struct {
	input textinput.Model
}

func newCommand() *command {
	c := &command{input: newInput(":")}
	c.input.Focus()
	return c
}

// commands are what can be typed, with what it does. The shortest beginning that only one has is enough.
var commands = []struct {
	name, does string
	do         func(m *Model, rest string) tea.Cmd
}{
	{"services", "every Service port", goes(0)},
	{"findings", "what differs", goes(1)},
	{"nodes", "the nodes that were read", goes(2)},
	{"status", "what serves Services", goes(3)},
	{"sources", "what was read", goes(4)},
	{"diff", "what changed since the mark", goes(5)},
	{"ns", "NAME: one namespace; without a name all", func(m *Model, rest string) tea.Cmd {
		s := m.tabs[0].(*services)
		m.goTo(0)
		s.only(rest)
		return nil
	}},
	{"node", "NAME: another node", func(m *Model, rest string) tea.Cmd {
		if rest == "" || m.feed.Nodes == nil {
			m.goTo(2)
			return nil
		}
		return m.showNode(rest)
	}},
	{"packet", "ask for one packet", func(m *Model, _ string) tea.Cmd { return m.push(newPacket(m)) }},
	{"repair", "plan what mends this", func(m *Model, _ string) tea.Cmd { return m.planRepair() }},
	{"explain", "ID: the page of a finding", func(m *Model, rest string) tea.Cmd { return m.showPage(rest) }},
	{"save", "write a bundle", func(m *Model, _ string) tea.Cmd { return m.save() }},
	{"help", "keys", func(m *Model, _ string) tea.Cmd { return m.push(newHelp(m.top())) }},
	{"quit", "end", func(m *Model, _ string) tea.Cmd { return m.end() }},
}

func goes(tab int) func(*Model, string) tea.Cmd {
	return func(m *Model, _ string) tea.Cmd { m.goTo(tab); return nil }
}

func (s *command) title(*Model) string                     { return "command" }
func (s *command) keys(*Model) []binding                   { return nil }
func (s *command) changed(*Model) tea.Cmd                  { return nil }
func (s *command) document(*Model) any                     { return nil }
func (s *command) mouse(*Model, tea.MouseMsg, int) tea.Cmd { return nil }
func (s *command) types() bool                             { return true }
func (s *command) prompt(*Model) row {
	return typed(&s.input).gap(2).add(faint, "enter does it, esc leaves")
}

func (s *command) key(m *Model, msg tea.KeyMsg) (tea.Cmd, bool) {
	switch {
	case m.keys.back.matches(msg), msg.String() == "backspace" && s.input.Value() == "":
		m.pop()
		return nil, true
	case m.keys.next.matches(msg):
		if all := matching(s.input.Value()); len(all) == 1 {
			s.input.SetValue(commands[all[0]].name + " ")
			s.input.CursorEnd()
		}
		return nil, true
	case m.keys.open.matches(msg):
		m.pop()
		name, rest, _ := strings.Cut(strings.TrimSpace(s.input.Value()), " ")
		if name == "" {
			return nil, true
		}
		if all := matching(name); len(all) > 0 {
			return commands[all[0]].do(m, strings.TrimSpace(rest)), true
		}
		m.say(warn, "no such command: "+name+" (? shows the keys)")
		return nil, true
	}
	var cmd tea.Cmd
	s.input, cmd = s.input.Update(msg)
	return cmd, true
}

// matching are the commands that begin with what was typed, the one that is it alone.
func matching(typed string) []int {
	name, _, _ := strings.Cut(strings.TrimSpace(typed), " ")
	var out []int
	for i, c := range commands {
		switch {
		case c.name == name, name == "q" && c.name == "quit":
			return []int{i}
		case strings.HasPrefix(c.name, name):
			out = append(out, i)
		}
	}
	return out
}

func (s *command) draw(m *Model, width, height int) []string {
	var out []string
	for _, i := range matching(s.input.Value()) {
		out = append(out, m.theme.line(row{}.gap(2).cell(accent, commands[i].name, 12).add(plain, commands[i].does), width, false))
	}
	return out
}
