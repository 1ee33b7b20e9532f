package tui

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
)

// status is what serves Services on the node, how it is doing, how that is known, and what this program itself is at.
type status struct {
	text
	// of is the status that the lines were made of, for a width.
	of    *report.NodeStatus
	width int
	made  []row
}

func newStatus() *status { return &status{text: text{name: "Status"}} }

func (s *status) document(m *Model) any {
	if m.moment == nil {
		return nil
	}
	return m.moment.Reading.Status
}

func (s *status) changed(*Model) tea.Cmd { return nil }

func (s *status) draw(m *Model, width, height int) []string {
	var rows []row
	switch {
	case m.moment == nil && m.reading.failed != nil:
		rows = []row{row{}.gap(2).add(bad, m.reading.failed.Error())}
	case m.moment == nil:
		rows = []row{row{}.gap(2).add(note, "reading …")}
	default:
		if st := m.moment.Reading.Status; s.of != st || s.width != width {
			s.of, s.width, s.made = st, width, statusRows(m.theme, st, width)
		}
		rows = s.made
	}
	// Ages change each second, all else only with what was read.
	rows = slices.Concat(rows, s.own(m, width))
	s.n, s.line = len(rows), func(i int) row { return rows[i] }
	return s.text.draw(m, width, height)
}

// own is what this program is at.
func (s *status) own(m *Model, width int) []row {
	p := newProse(m.theme, min(width, readable))
	p.rows = append(p.rows, nil, row{}.add(strong, "This program"))
	p.named("version", plain, cmp.Or(m.feed.Version, "not known"))
	p.named("evidence", plain, m.feed.From)
	if m.moment != nil {
		at := m.moment.At.Format(time.TimeOnly)
		if m.feed.Live {
			at += ", " + ago(m.feed.Now().Sub(m.moment.At))
		}
		if m.moment.Took > 0 {
			at += ", reading and analysing took " + m.moment.Took.Round(10*time.Millisecond).String()
		}
		p.named("read", plain, at)
		if m.moment.Fresh != m.moment.At {
			p.named("analysed", plain, m.moment.Fresh.Format(time.TimeOnly)+": since then the rules and objects are the same")
		}
	}
	if since := m.reading.since; !since.IsZero() {
		p.named("now", note, "being read since "+seconds(m.feed.Now().Sub(since)))
	}
	if m.reading.failed != nil {
		p.named("failed", bad, "✗ "+m.reading.failed.Error())
	}
	switch {
	case !m.feed.Live:
		p.named("again", faint, "never: these are files")
	case m.paused:
		p.named("again", warn, "paused: space goes on")
	default:
		p.named("again", faint, "every "+m.feed.Interval.String()+", less often where reading takes long")
	}
	return p.rows
}

// judgeStatus is the mark of a verdict.
func judgeStatus(v report.StatusVerdict) span {
	severity := "warning"
	switch v {
	case report.StatusHealthyProgrammed:
		severity = ""
	case report.StatusNotRunning, report.StatusNotHealthy, report.StatusHealthyNotProgrammed, report.StatusNotProgrammed:
		severity = "error"
	}
	j := render.JudgeSeverity(severity)
	return span{j.Sign, toneOf(j.Level)}
}

// statusRows are the verdict, what it rests on, and the traits of the proxy with where each is known from.
func statusRows(t *theme, st *report.NodeStatus, width int) []row {
	p := newProse(t, width)
	p.flow(row{judgeStatus(st.Verdict)}.gap(1), 2, p.words(strong, st.Summary.Text))
	p.named("ports", plain, fmt.Sprintf("%d programmed as asked for, %d differ, %d not known, of %d", st.Ports.Programmed, st.Ports.Differ, st.Ports.Unknown, st.Ports.Total))
	p.heading("Rests on")
	for i := range st.Grounds {
		g := &st.Grounds[i]
		p.flow(row{}.gap(2), 4, p.words(plain, g.Text))
		for _, e := range g.Evidence {
			p.resting(4, "evidence", e)
		}
	}
	p.heading("The proxy")
	name := 0
	for i := range st.Traits {
		name = max(name, len(st.Traits[i].Name))
	}
	name = min(name, width/3)
	for i := range st.Traits {
		trait := &st.Traits[i]
		value := p.words(strong, trait.Value)
		if trait.Value == "" {
			value = p.words(note, "not known")
		}
		if trait.Note != "" {
			value = append(value, p.words(faint, "("+trait.Note+")")...)
		}
		p.flow(row{}.gap(2).cell(plain, trait.Name, name).gap(2), name+4, value)
		for _, f := range trait.Facts {
			from := cmp.Or(f.Note, "from")
			if f.Value != trait.Value && f.Value != "" {
				from = f.Value + " " + f.Note
			}
			p.resting(name+4, from, f.Evidence)
		}
	}
	if st.Captured != "" || st.Tool != "" {
		p.blank()
		by := ""
		if st.Tool != "" {
			by = " by " + st.Tool
		}
		p.text(faint, "Evidence taken "+st.Captured+by)
	}
	return p.rows
}

// resting writes behind an indent what something rests on, and how.
func (p *prose) resting(indent int, how string, e report.Evidence) {
	words := append(p.words(faint, how), p.words(strong, render.Place(e))...)
	p.flow(row{}.gap(indent), indent+2, append(words, p.words(faint, e.Text)...))
}
