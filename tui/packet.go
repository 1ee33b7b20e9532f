package tui

import (
	"errors"
	"strings"

	"github.com/charmbracelet/bubbles/textinput"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/render"
)

// packet is a dialog that asks for one packet; enter walks it.
type packet struct {
	fields []packetField
	at     int
	// of is the Service whose first client stands in for who connects, until somebody types; nil: it is said already.
	of *explain.TraceOptions
	// wrong is what is not right about what was typed.
	wrong string
}

// packetField is a line of the dialog.
type packetField struct {
	name, hint string
	input      textinput.Model
	// given is true for what nobody typed yet: the first sign that is typed takes its place.
	given bool
}

// newPacket begins with what is under the cursor: the frontend of a path, or of a row.
func newPacket(m *Model) *packet {
	to, from := "", ""
	var of *explain.TraceOptions
	switch s := m.top().(type) {
	case *pathScreen:
		if _, c := s.shown(); c != nil {
			p := &c.paths[0]
			to, from = render.Dial(p.Frontend.Address, p.Frontend.Port)+"/"+strings.ToLower(p.Frontend.Protocol), p.Source
		}
	case *services:
		if s.cursor < len(s.shown) && len(s.shown[s.cursor].Frontends) > 0 {
			r := s.shown[s.cursor]
			f := r.Frontends[0]
			ask := asksFor(r.ServicePort)
			of = &ask
			to = render.Dial(f.Address, f.Port) + "/" + strings.ToLower(f.Protocol)
		}
	}
	p := &packet{of: of}
	for _, f := range []struct{ name, hint, value string }{
		{"to", "ADDRESS:PORT/PROTOCOL, such as 10.96.0.10:53/udp", to},
		{"from", "who connects: ADDRESS, ADDRESS:PORT or pod/NAMESPACE/NAME", from},
		{"origin", "pod, node or external; empty: by the source address", ""},
		{"interface", "that it comes in by; empty: by the route", ""},
	} {
		in := newInput("")
		in.SetValue(f.value)
		p.fields = append(p.fields, packetField{f.name, f.hint, in, f.value != ""})
	}
	p.fields[0].input.Focus()
	return p
}

func (s *packet) title(*Model) string                     { return "trace a packet" }
func (s *packet) keys(m *Model) []binding                 { return []binding{m.keys.open, m.keys.next} }
func (s *packet) document(*Model) any                     { return nil }
func (s *packet) mouse(*Model, tea.MouseMsg, int) tea.Cmd { return nil }
func (s *packet) types() bool                             { return true }

// clientMsg is who may connect to the Service that a dialog is about.
type clientMsg struct {
	to     *packet
	source string
}

// changed asks who connects to the Service, where nothing says it yet.
func (s *packet) changed(m *Model) tea.Cmd {
	if s.of == nil || m.moment == nil {
		return nil
	}
	of, ask := m.moment, *s.of
	s.of = nil
	return func() tea.Msg {
		of.lock.Lock()
		defer of.lock.Unlock()
		t, err := of.Reading.Trace(ask)
		if err != nil || len(t.Paths) == 0 {
			return nil
		}
		return clientMsg{s, t.Paths[0].Source}
	}
}

var _ answered = (*packet)(nil)

func (s *packet) answer(_ *Model, msg tea.Msg) tea.Cmd {
	if c, ok := msg.(clientMsg); ok && c.to == s && s.fields[1].input.Value() == "" {
		s.fields[1].input.SetValue(c.source)
		s.fields[1].given = true
	}
	return nil
}

func (s *packet) prompt(*Model) row {
	return row{}.add(accent, "enter").gap(1).add(faint, "walks it").gap(2).add(accent, "tab ↑ ↓").gap(1).add(faint, "other field").gap(2).add(accent, "ctrl-u").gap(1).add(faint, "clears").gap(2).add(accent, "esc").gap(1).add(faint, "leaves")
}

func (s *packet) key(m *Model, msg tea.KeyMsg) (tea.Cmd, bool) {
	switch msg.String() {
	case "esc":
		m.pop()
		return nil, true
	case "tab", "down":
		s.focus(s.at + 1)
		return nil, true
	case "shift+tab", "up":
		s.focus(s.at - 1)
		return nil, true
	case "enter":
		ask, err := s.ask()
		if err != nil {
			s.wrong = err.Error()
			return nil, true
		}
		s.wrong = ""
		return m.push(newWalk(ask)), true
	}
	var cmd tea.Cmd
	f := &s.fields[s.at]
	if f.given && msg.Type == tea.KeyRunes {
		f.input.SetValue("")
	}
	f.given = false
	f.input, cmd = f.input.Update(msg)
	return cmd, true
}

func (s *packet) focus(i int) {
	s.fields[s.at].input.Blur()
	s.at = (i + len(s.fields)) % len(s.fields)
	s.fields[s.at].input.Focus()
}

// ask is the question that was typed.
func (s *packet) ask() (explain.TraceOptions, error) {
	value := func(i int) string { return strings.TrimSpace(s.fields[i].input.Value()) }
	o := explain.TraceOptions{To: value(0), Origin: value(2), IncomingInterface: value(3)}
	if o.To == "" {
		return o, errors.New("where to is not said: ADDRESS:PORT/PROTOCOL")
	}
	if value(1) == "" {
		return o, errors.New("who connects is not said: an address, ADDRESS:PORT, or pod/NAMESPACE/NAME")
	}
	if from, ok := strings.CutPrefix(value(1), "pod/"); ok {
		o.FromPod = from
	} else {
		o.FromAddr = value(1)
	}
	if o.Origin == "host" {
		o.Origin = "node"
	}
	return o, nil
}

// packetWords are the arguments of `trace` that ask the same.
func packetWords(o explain.TraceOptions) []string {
	words := []string{"trace", "--to", o.To}
	switch {
	case o.FromPod != "":
		words = append(words, "--from", "pod/"+o.FromPod)
	case o.FromAddr != "":
		words = append(words, "--from", o.FromAddr)
	}
	if o.Origin != "" {
		words = append(words, "--origin", o.Origin)
	}
	if o.IncomingInterface != "" {
		words = append(words, "--iif", o.IncomingInterface)
	}
	return words
}

func (s *packet) draw(m *Model, width, _ int) []string {
	out := []string{""}
	for i := range s.fields {
		f := &s.fields[i]
		sign := " "
		line := row{}.add(strong, f.input.Value())
		if i == s.at {
			sign, line = "›", typed(&f.input)
		}
		head := row{{sign, accent}}.gap(1).cell(accent, f.name, 11)
		out = append(out, m.theme.line(append(head, line...), width, false), m.theme.line(row{}.gap(13).add(faint, f.hint), width, false))
	}
	if s.wrong != "" {
		out = append(out, "", m.theme.line(row{}.gap(2).add(bad, "✗ "+s.wrong), width, false))
	}
	return out
}
