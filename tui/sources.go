package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/svcnet/svcnet/explain/report"
)

// sources is everything that was read and everything that could not be, which comes first.
type sources struct {
	list
	filter filter
	rows   []sourceRow
	shown  []*sourceRow
	of     *report.Report
	at     report.Source
	split  int
}

// sourceRow is a source with the checks that could not be answered without it.
type sourceRow struct {
	report.Source
	text string
	// unknown are the ids of these checks.
	unknown []string
	rank    int
}

func newSources() *sources { return &sources{filter: newFilter()} }

func (s *sources) title(m *Model) string {
	n := 0
	for i := range s.rows {
		if s.rows[i].rank < fine {
			n++
		}
	}
	if n == 0 {
		return "Sources"
	}
	return fmt.Sprintf("Sources (%d not read)", n)
}

func (s *sources) keys(m *Model) []binding {
	return []binding{meaning(m.keys.open, "all details"), m.keys.filter}
}

func (s *sources) document(m *Model) any {
	if m.moment == nil {
		return nil
	}
	return m.moment.Reading.Report
}

func (s *sources) types() bool { return s.filter.on }

func (s *sources) prompt(*Model) row { return s.filter.prompt() }

// The order of sources: what was tried in vain, what nobody tried, what was answered.
const (
	vain = iota
	untried
	fine
)

func rankOf(status string) int {
	switch status {
	case "ok", "empty", "absent":
		return fine
	case notCollected, "unsupported":
		return untried
	}
	return vain
}

const notCollected = "not-collected"

func (s *sources) changed(m *Model) tea.Cmd {
	if m.moment == nil {
		s.rows, s.of = nil, nil
		s.arrange()
		return nil
	}
	r := m.moment.Reading.Report
	if s.of == r {
		return nil
	}
	s.of, s.rows = r, nil
	for _, src := range r.Sources {
		s.rows = append(s.rows, sourceRow{Source: src})
	}
	kinds := make(map[string]int)
	for i := range r.Unknown {
		u := &r.Unknown[i]
		told := false
		for i := range s.rows {
			if row := &s.rows[i]; row.explains(u) {
				row.unknown = append(row.unknown, u.ID)
				told = true
			}
		}
		if told {
			continue
		}
		// Of what nobody collected there is no source: it has the name by which checks ask for it.
		for _, name := range u.Sources {
			at, ok := kinds[name]
			if !ok {
				at = len(s.rows)
				kinds[name] = at
				s.rows = append(s.rows, sourceRow{Source: report.Source{Name: name, Status: notCollected}})
			}
			row := &s.rows[at]
			row.unknown = append(row.unknown, u.ID)
			if len(u.Sources) == 1 || row.Error == "" {
				row.Error = u.Text
			}
		}
	}
	for i := range s.rows {
		row := &s.rows[i]
		row.rank = rankOf(row.Status)
		if row.Name == "unrecognised" && row.rank == fine {
			row.rank = untried // an empty file that is nothing answers nothing
		}
		row.text = strings.ToLower(strings.Join([]string{row.Name, row.Status, row.File, row.Error, strings.Join(row.unknown, " ")}, " "))
	}
	slices.SortStableFunc(s.rows, func(a, b sourceRow) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File))
	})
	s.arrange()
	return nil
}

// explains tells whether a check could not be answered because of this source: what the check says is then what the
// source says.
func (r *sourceRow) explains(u *report.Unknown) bool {
	if rankOf(r.Status) == fine {
		return false
	}
	return r.Error != "" && strings.Contains(u.Text, r.Error) || r.File != "" && strings.Contains(u.Text, r.File+" is "+r.Status)
}

func (s *sources) arrange() {
	s.shown = s.shown[:0]
	for i := range s.rows {
		r := &s.rows[i]
		if passes(s.filter.terms, func(column, word string) bool {
			switch column {
			case "id":
				return slices.ContainsFunc(r.unknown, func(id string) bool { return strings.Contains(id, word) })
			case "":
				return strings.Contains(r.text, word)
			}
			return false
		}) {
			s.shown = append(s.shown, r)
		}
	}
	s.resize(len(s.shown), s.height)
	if i := slices.IndexFunc(s.shown, func(r *sourceRow) bool { return r.Name == s.at.Name && r.File == s.at.File }); i >= 0 {
		s.to(i)
	} else if s.filter.on {
		// While somebody types, the row is not forgotten: it may come back.
		s.to(0)
		return
	}
	s.remember()
}

func (s *sources) remember() {
	if r := s.row(); r != nil {
		s.at = r.Source
	}
}

func (s *sources) row() *sourceRow {
	if s.cursor < len(s.shown) {
		return s.shown[s.cursor]
	}
	return nil
}

func (s *sources) key(m *Model, msg tea.KeyMsg) (tea.Cmd, bool) {
	k := m.keys
	if s.filter.on {
		cmd := s.filter.key(k, msg)
		s.arrange()
		return cmd, true
	}
	if s.list.key(k, msg) {
		s.remember()
		return nil, true
	}
	switch {
	case k.filter.matches(msg):
		return s.filter.open(), true
	case k.back.matches(msg) && s.filter.text() != "":
		s.filter.set("")
		s.arrange()
		return nil, true
	case k.open.matches(msg), k.wide.matches(msg):
		if r := s.row(); r != nil {
			return m.push(newWhole(r.Name, func(m *Model, width int) []row { return r.details(m.theme, width) })), true
		}
		return nil, true
	}
	return nil, false
}

func (s *sources) mouse(_ *Model, msg tea.MouseMsg, y int) tea.Cmd {
	if msg.X < s.split {
		s.list.mouse(msg, y-1)
		s.remember()
	}
	return nil
}

func (s *sources) draw(m *Model, width, height int) []string {
	return m.beside(width, height, func(width, height int) []string { return s.drawList(m, width, height) }, func(width int) []row {
		if r := s.row(); r != nil {
			return r.details(m.theme, width)
		}
		return nil
	})
}

func (s *sources) drawList(m *Model, width, height int) []string {
	s.split = width
	s.resize(len(s.shown), height-1)
	const status, checks = len(notCollected), 6
	rest := width - 3 - status - checks - 3
	name := len("SOURCE")
	for _, r := range s.shown {
		name = max(name, len([]rune(r.Name)))
	}
	name = min(name, rest*2/3)
	out := []string{m.theme.line(row{}.gap(3).cell(faint, "STATUS", status).gap(1).cell(faint, "SOURCE", name).gap(1).
		right(faint, "CHECKS", checks).gap(1).cell(faint, "FILE", rest-name), width, false)}
	if len(s.shown) == 0 {
		return append(out, "", m.theme.line(s.nothing(m), width, false))
	}
	from, to := s.visible()
	for i := from; i < to; i++ {
		r := s.shown[i]
		mark := r.mark()
		missing := ""
		if n := len(r.unknown); n > 0 {
			missing = fmt.Sprintf("? %d", n)
		}
		line := append(begun(i == s.cursor), mark).gap(1).cell(mark.tone, r.Status, status).gap(1).cell(plain, r.Name, name).gap(1).
			right(note, missing, checks).gap(1).cell(faint, r.File, rest-name)
		out = append(out, m.theme.line(line, width, i == s.cursor))
	}
	return out
}

// mark is the sign of a source.
func (r *sourceRow) mark() span {
	switch r.rank {
	case vain:
		return span{"✗", bad}
	case untried:
		return span{"?", note}
	}
	return span{"✓", good}
}

func (s *sources) nothing(m *Model) row {
	switch {
	case m.reading.failed != nil && m.moment == nil:
		return row{}.gap(3).add(bad, m.reading.failed.Error())
	case m.moment == nil:
		return row{}.gap(3).add(note, "reading …")
	case len(s.rows) == 0:
		return row{}.gap(3).add(note, "nothing was read")
	}
	return row{}.gap(3).add(note, "no source is left of the filter (esc drops it)")
}

// says is what a status means; "could not look" is never "not there".
var says = map[string]string{
	"ok":          "read",
	"empty":       "looked at: there is nothing in it",
	"absent":      "looked at: this node has no such thing",
	notCollected:  "nobody read it: what it holds is not known (svcnet collect, on the node, reads what there is)",
	"unsupported": "this version cannot read it: what it holds is not known",
	"denied":      "not allowed to read it: what it holds is not known",
	"failed":      "could not be read: what it holds is not known",
	"truncated":   "cut off: what the rest holds is not known",
}

// details say everything of a source.
func (r *sourceRow) details(t *theme, width int) []row {
	p := newProse(t, width)
	mark := r.mark()
	p.flow(append(row{mark}, span{" ", plain}), 2, append(p.words(strong, r.Name), p.words(mark.tone, r.Status)...))
	p.text(plain, says[r.Status])
	p.named("file", plain, r.File)
	p.named("error", plain, r.Error)
	if len(r.unknown) > 0 {
		p.named("unknown", note, fmt.Sprintf("? %s not answered without it: %s", plural(len(r.unknown), "check"), strings.Join(r.unknown, ", ")))
	}
	return p.rows
}
