package tui

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	tea "github.com/charmbracelet/bubbletea"
)

// namespaces chooses one, or all of them.
type namespaces struct {
	list
	of     *services
	names  []string
	count  map[string]namespaceCount
	filter filter
}

// namespaceCount counts the service ports of a namespace, and those of them that have findings.
type namespaceCount struct{ ports, differ int }

func newNamespaces(of *services) *namespaces { return &namespaces{of: of, filter: newFilter()} }

func (s *namespaces) types() bool       { return s.filter.on }
func (s *namespaces) prompt(*Model) row { return s.filter.prompt() }

func (s *namespaces) title(*Model) string     { return "namespaces" }
func (s *namespaces) keys(m *Model) []binding { return []binding{m.keys.open, m.keys.filter} }
func (s *namespaces) document(*Model) any     { return nil }

func (s *namespaces) changed(*Model) tea.Cmd {
	s.count = make(map[string]namespaceCount)
	for i := range s.of.rows {
		r := &s.of.rows[i]
		for _, name := range []string{"", r.Namespace} {
			c := s.count[name]
			c.ports++
			if r.State == "differs" {
				c.differ++
			}
			s.count[name] = c
		}
	}
	s.arrange()
	return nil
}

// arrange keeps the names that pass the filter.
func (s *namespaces) arrange() {
	s.names = slices.DeleteFunc(slices.Sorted(maps.Keys(s.count)), func(name string) bool {
		return !passes(s.filter.terms, func(_, word string) bool { return strings.Contains(name, word) })
	})
	s.resize(len(s.names), s.height)
}

func (s *namespaces) key(m *Model, msg tea.KeyMsg) (tea.Cmd, bool) {
	switch {
	case s.filter.on:
		cmd := s.filter.key(m.keys, msg)
		s.arrange()
		return cmd, true
	case s.list.key(m.keys, msg):
	case m.keys.open.matches(msg):
		s.choose(m)
	case m.keys.filter.matches(msg):
		return s.filter.open(), true
	default:
		return nil, false
	}
	return nil, true
}

func (s *namespaces) mouse(m *Model, msg tea.MouseMsg, y int) tea.Cmd {
	if s.list.mouse(msg, y) {
		s.choose(m)
	}
	return nil
}

func (s *namespaces) choose(m *Model) {
	if s.cursor < len(s.names) {
		m.pop()
		s.of.only(s.names[s.cursor])
	}
}

func (s *namespaces) draw(m *Model, width, height int) []string {
	s.resize(len(s.names), height)
	var out []string
	from, to := s.visible()
	for i := from; i < to; i++ {
		name, c := s.names[i], s.count[s.names[i]]
		if name == "" {
			name = "all namespaces"
		}
		line := begun(i == s.cursor).gap(1).cell(plain, name, 40).add(faint, plural(c.ports, "service port"))
		if c.differ > 0 {
			line = line.add(bad, fmt.Sprintf("  ✗ %d with findings", c.differ))
		}
		out = append(out, m.theme.line(line, width, i == s.cursor))
	}
	return out
}
