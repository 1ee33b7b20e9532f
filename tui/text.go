package tui

import (
	"bytes"
	"encoding/json"
	"strings"

	tea "github.com/charmbracelet/bubbletea"
)

// text is n lines to read, each made when it is drawn.
type text struct {
	list
	name string
	line func(i int) row
	// command prints the same; empty: none does.
	command string
}

func (s *text) title(*Model) string { return s.name }
func (s *text) keys(m *Model) []binding {
	keys := []binding{m.keys.down, m.keys.pageDown, m.keys.bottom}
	if s.command != "" {
		keys = append(keys, m.keys.copy)
	}
	return keys
}
func (s *text) changed(*Model) tea.Cmd { return nil }
func (s *text) document(*Model) any    { return nil }
func (s *text) key(m *Model, msg tea.KeyMsg) (tea.Cmd, bool) {
	if m.keys.copy.matches(msg) && s.command != "" {
		return m.copy(s.command), true
	}
	return nil, s.scroll(m.keys, msg)
}

// scroll moves what is seen by the keys that move, and not a cursor in it.
func (s *text) scroll(k *keyMap, msg tea.KeyMsg) bool {
	switch {
	case k.up.matches(msg):
		s.top--
	case k.down.matches(msg):
		s.top++
	case k.pageUp.matches(msg):
		s.top -= s.height
	case k.pageDown.matches(msg):
		s.top += s.height
	case k.top.matches(msg):
		s.top = 0
	case k.bottom.matches(msg):
		s.top = s.n
	default:
		return false
	}
	s.clamp()
	return true
}

func (s *text) clamp() { s.top = min(max(s.top, 0), max(s.n-s.height, 0)) }

func (s *text) mouse(_ *Model, msg tea.MouseMsg, _ int) tea.Cmd {
	switch msg.Button {
	case tea.MouseButtonWheelUp:
		s.top -= 3
	case tea.MouseButtonWheelDown:
		s.top += 3
	}
	s.clamp()
	return nil
}

func (s *text) draw(m *Model, width, height int) []string {
	if s.height = height; s.n > height {
		s.height--
	}
	s.clamp()
	var out []string
	end := min(s.top+s.height, s.n)
	for i := s.top; i < end; i++ {
		out = append(out, m.theme.line(s.line(i), width, false))
	}
	if s.n > height {
		left := "end"
		if end < s.n {
			left = plural(s.n-end, "more line")
		}
		out = append(out, m.theme.line(row{}.add(faint, "── "+left), width, false))
	}
	return out
}

// jsonMsg is a document as text.
type jsonMsg struct {
	lines [][]byte
	// command prints the same.
	command string
}

// showJSON shows a document as it is printed elsewhere. That of 10,000 Services takes a moment.
func (m *Model) showJSON(document any) tea.Cmd {
	if document == nil {
		m.say(note, "there is no document of this")
		return nil
	}
	command := m.printing(document)
	return func() tea.Msg {
		data, err := json.MarshalIndent(document, "", "  ")
		if err != nil {
			return saidMsg{err.Error(), bad}
		}
		return jsonMsg{bytes.Split(data, []byte("\n")), command}
	}
}

func newJSON(lines [][]byte, command string) *text {
	return &text{list: list{n: len(lines)}, name: "JSON", command: command, line: func(i int) row { return jsonLine(string(lines[i])) }}
}

// jsonLine tells the names of fields from their values.
func jsonLine(l string) row {
	if name, value, ok := strings.Cut(l, `": `); ok && strings.HasPrefix(strings.TrimLeft(name, " "), `"`) {
		return row{}.add(accent, name+`"`).add(plain, ": "+value)
	}
	return row{}.add(plain, l)
}
