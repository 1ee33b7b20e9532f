package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
)

// diff is what changed between the marked moment and the one that is shown.
type diff struct {
	list
	// old and new are the moments that were compared last, doc what came of it and failed why nothing did.
	old, new *Moment
	doc      *report.Diff
	failed   error
	// running is true while two moments are compared; they are no others then until that is done.
	running bool
	rows    []diffRow
	at      diffKey
	split   int
}

// diffRow is a line: the title of a part, a finding, a Service, one of its paths, or a value.
type diffRow struct {
	diffKey
	// count is how many rows a title is of.
	count   int
	finding *report.Finding
	// gone is true for a finding that cleared.
	gone    bool
	service *report.ServiceDiff
	path    *report.PathDiff
	value   *report.SettingDiff
}

// diffKey tells rows apart when they are made again.
type diffKey struct{ part, namespace, name, what, clients string }

// comparedMsg is what changed between two moments, or why that is not known.
type comparedMsg struct {
	from, to *Moment
	doc      *report.Diff
	err      error
}

func newDiff() *diff { return &diff{} }

func (s *diff) title(*Model) string {
	if n := s.count(); n > 0 {
		return fmt.Sprintf("Diff (%d)", n)
	}
	return "Diff"
}

func (s *diff) count() int {
	if s.doc == nil {
		return 0
	}
	return len(s.doc.Services) + len(s.doc.Appeared) + len(s.doc.Cleared) + len(s.doc.Settings) + len(s.doc.Unknown) + len(s.doc.Sources)
}

func (s *diff) keys(m *Model) []binding {
	return []binding{meaning(m.keys.open, "the path"), m.keys.mark, m.keys.page, meaning(m.keys.wide, "all details")}
}

func (s *diff) document(*Model) any {
	if s.doc == nil {
		return nil
	}
	return s.doc
}

// changed compares with the moment that is shown now, unless a comparison is on: its answer asks again.
func (s *diff) changed(m *Model) tea.Cmd {
	if m.marked == nil || m.moment == nil || s.old != nil && s.old.Reading != m.marked.Reading {
		s.old, s.new, s.doc, s.failed = nil, nil, nil, nil
		s.arrange()
	}
	switch {
	case s.running || m.marked == nil || m.moment == nil || m.feed.Compare == nil:
		return nil
	case s.new != nil && s.new.Reading == m.moment.Reading:
		s.new = m.moment
		return nil
	case m.marked.Reading == m.moment.Reading:
		s.old, s.new, s.doc, s.failed = m.marked, m.moment, nil, nil
		s.arrange()
		return nil
	}
	s.running = true
	from, to, f, ctx := m.marked, m.moment, m.feed, m.ctx
	return func() tea.Msg {
		// They are two: moments that share a reading share its lock, and are not compared.
		from.lock.Lock()
		defer from.lock.Unlock()
		to.lock.Lock()
		defer to.lock.Unlock()
		doc, err := f.Compare(ctx, from.Reading, to.Reading)
		return comparedMsg{from, to, doc, err}
	}
}

// answer takes what changed. What it is the answer to may be asked no more.
func (s *diff) answer(m *Model, msg tea.Msg) tea.Cmd {
	c, ok := msg.(comparedMsg)
	if !ok {
		return nil
	}
	s.running = false
	if m.marked != nil && m.marked.Reading == c.from.Reading {
		s.old, s.new, s.doc, s.failed = c.from, c.to, c.doc, c.err
		s.arrange()
	}
	return s.changed(m)
}

// arrange makes the rows of the document; the cursor stays on what it was on.
func (s *diff) arrange() {
	s.rows = nil
	if s.doc != nil {
		s.gather()
	}
	s.resize(len(s.rows), s.height)
	if i := slices.IndexFunc(s.rows, func(r diffRow) bool { return r.diffKey == s.at }); i >= 0 {
		s.to(i)
	}
	s.remember()
}

func (s *diff) remember() {
	if s.cursor < len(s.rows) {
		s.at = s.rows[s.cursor].diffKey
	}
}

func (s *diff) gather() {
	d := s.doc
	part := func(title string, n int) {
		if n > 0 {
			s.rows = append(s.rows, diffRow{diffKey: diffKey{part: title}, count: n})
		}
	}
	found := func(title string, all []report.Finding, gone bool) {
		part(title, len(all))
		for i := range all {
			f := &all[i]
			s.rows = append(s.rows, diffRow{diffKey: diffKey{title, f.Object.Namespace, f.Object.Name, f.ID, f.Subject}, finding: f, gone: gone})
		}
	}
	values := func(title string, all []report.SettingDiff) {
		part(title, len(all))
		for i := range all {
			s.rows = append(s.rows, diffRow{diffKey: diffKey{part: title, name: all[i].Name}, value: &all[i]})
		}
	}
	found("Findings that appeared", d.Appeared, false)
	found("Findings that are gone", d.Cleared, true)
	const services = "Services"
	part(services, len(d.Services))
	for i := range d.Services {
		v := &d.Services[i]
		s.rows = append(s.rows, diffRow{diffKey: diffKey{part: services, namespace: v.Namespace, name: v.Name}, service: v})
		for k := range v.Paths {
			p := &v.Paths[k]
			key := diffKey{services, v.Namespace, v.Name, p.Frontend, ""}
			if len(p.SourceClasses) > 0 {
				key.clients = p.SourceClasses[0] // no other row of the frontend has it
			}
			s.rows = append(s.rows, diffRow{diffKey: key, service: v, path: p})
		}
	}
	values("Settings of the proxy", d.Settings)
	values("Checks answered on one side", d.Unknown)
	values("Sources", d.Sources)
}

// line is the row in few words.
func (r *diffRow) line() row {
	switch {
	case r.finding != nil:
		f := r.finding
		j := render.JudgeSeverity(f.Severity)
		t := toneOf(j.Level)
		if r.gone {
			t = faint
		}
		return row{}.gap(2).add(t, j.Sign+" "+f.Severity).gap(1).add(strong, f.ID).gap(1).add(plain, objectOf(&f.Object)).gap(2).add(faint, f.Message)
	case r.path != nil:
		p := r.path
		what := moved(p)
		if what == "" {
			what = cmp.Or(p.Before, noClients) + " → " + cmp.Or(p.After, noClients)
		}
		return row{}.gap(6).add(plain, p.Frontend).gap(1).add(plain, what).gap(1).add(faint, "from "+clientsOf(p.SourceClasses))
	case r.service != nil:
		v := r.service
		return row{}.gap(2).add(plain, signOfChange(v.Change)).gap(1).add(strong, v.Namespace+"/"+v.Name).gap(2).add(plain, v.Change)
	case r.value != nil:
		v := r.value
		return row{}.gap(2).add(plain, "~ "+v.Name+": "+cmp.Or(v.Before, "not known")+" → "+cmp.Or(v.After, "not known"))
	}
	return row{}.add(strong, fmt.Sprintf("%s (%d)", r.part, r.count))
}

// noClients stands where one side has no such path.
const noClients = "no such clients or address"

func signOfChange(change string) string {
	switch change {
	case "added":
		return "+"
	case "removed":
		return "-"
	}
	return "~"
}

// moved are the backends that came and went.
func moved(p *report.PathDiff) string {
	var words []string
	for _, b := range p.Gained {
		words = append(words, "+"+b)
	}
	for _, b := range p.Lost {
		words = append(words, "-"+b)
	}
	return strings.Join(words, " ")
}

func clientsOf(classes []string) string {
	names := make([]string, len(classes))
	for i, c := range classes {
		names[i] = render.Clients(c)
	}
	return strings.Join(names, ", ")
}

func (s *diff) row() *diffRow {
	if s.cursor < len(s.rows) {
		return &s.rows[s.cursor]
	}
	return nil
}

func (s *diff) key(m *Model, msg tea.KeyMsg) (tea.Cmd, bool) {
	k := m.keys
	if s.list.key(k, msg) {
		s.remember()
		return nil, true
	}
	r := s.row()
	if r == nil {
		return nil, false
	}
	switch {
	case k.open.matches(msg):
		return s.open(m), true
	case k.page.matches(msg) && r.finding != nil:
		return m.showPage(r.finding.ID), true
	case k.wide.matches(msg):
		of := *r
		doc := s.doc
		return m.push(newWhole("details", func(m *Model, width int) []row { return of.details(m.theme, doc, width) })), true
	}
	return nil, false
}

// open shows the path of the Service that the row under the cursor is about.
func (s *diff) open(m *Model) tea.Cmd {
	r := s.row()
	switch {
	case r == nil || m.moment == nil:
		return nil
	case r.finding != nil:
		return m.openFinding(r.finding)
	case r.service == nil:
		m.say(note, "this is about the node, and lies on no path of one Service")
		return nil
	}
	var p *report.ServicePort
	all := m.moment.Services.Services
	for i := range all {
		if all[i].Namespace != r.service.Namespace || all[i].Name != r.service.Name {
			continue
		}
		if p == nil || r.path != nil && hasFrontend(&all[i], r.path.Frontend) {
			p = &all[i]
			if r.path == nil || hasFrontend(p, r.path.Frontend) {
				break
			}
		}
	}
	if p == nil {
		m.say(note, r.service.Namespace+"/"+r.service.Name+" is gone: there is no path to it any more")
		return nil
	}
	return m.push(newPath(p))
}

// hasFrontend tells whether a service port has a frontend, by what a document of changes calls it.
func hasFrontend(p *report.ServicePort, name string) bool {
	return slices.ContainsFunc(p.Frontends, func(f report.Frontend) bool {
		return f.Kind+" "+render.Dial(f.Address, f.Port)+"/"+f.Protocol == name
	})
}

func (s *diff) mouse(m *Model, msg tea.MouseMsg, y int) tea.Cmd {
	if msg.X >= s.split {
		return nil
	}
	if s.list.mouse(msg, y-diffHead) {
		return s.open(m)
	}
	s.remember()
	return nil
}

// diffHead are the lines above the rows: what is compared, and what came of it.
const diffHead = 2

func (s *diff) draw(m *Model, width, height int) []string {
	head := []string{m.theme.line(s.sides(m), width, false), m.theme.line(s.summary(m), width, false)}
	if len(s.rows) == 0 {
		return head
	}
	return append(head, m.beside(width, height-diffHead, func(width, height int) []string { return s.drawList(m, width, height) }, func(width int) []row {
		if r := s.row(); r != nil {
			return r.details(m.theme, s.doc, width)
		}
		return nil
	})...)
}

// sides says which moments are compared.
func (s *diff) sides(m *Model) row {
	if m.marked == nil || m.moment == nil {
		return nil
	}
	clock := func(at time.Time) string { return at.Format(time.TimeOnly) }
	r := row{}.gap(1).add(faint, "from ").add(plain, "the moment marked, "+clock(m.marked.At))
	to := s.new
	if to == nil {
		to = m.moment
	}
	r = r.add(faint, ", to ").add(plain, clock(to.At))
	if m.feed.Live {
		r = r.add(faint, " ("+ago(m.feed.Now().Sub(to.At))+")")
	}
	if s.running && s.doc != nil {
		r = r.add(note, ", comparing with "+clock(m.moment.At)+" …")
	}
	return r
}

// summary says what came of it.
func (s *diff) summary(m *Model) row {
	r := row{}.gap(1)
	switch {
	case m.moment == nil && m.reading.failed != nil:
		return r.add(bad, m.reading.failed.Error())
	case m.moment == nil || m.marked == nil:
		return r.add(note, "reading …")
	case s.failed != nil:
		return r.add(bad, "✗ not compared: "+s.failed.Error())
	case m.feed.Compare == nil:
		return r.add(note, "nothing here can compare two moments")
	case s.doc == nil && s.running:
		return r.add(note, "comparing …")
	case s.doc != nil && !s.doc.Summary.Same:
		return r.add(s.worst()).add(strong, s.doc.Summary.Text)
	case !m.feed.Live:
		return r.add(note, "these are files: nothing changes. `"+m.feed.Name+" diff A B` compares two bundles")
	}
	return r.add(good, "✓ nothing changed since (").add(accent, m.keys.mark.shown()).add(good, " marks this moment anew)")
}

// worst is the mark of the worst that appeared.
func (s *diff) worst() (tone, string) {
	level := render.Warning
	for i := range s.doc.Appeared {
		level = max(level, render.JudgeSeverity(s.doc.Appeared[i].Severity).Level)
	}
	if level == render.Error {
		return bad, "✗ "
	}
	return warn, "! "
}

func (s *diff) drawList(m *Model, width, height int) []string {
	s.split = width
	s.resize(len(s.rows), height)
	out := make([]string, 0, height)
	from, to := s.visible()
	for i := from; i < to; i++ {
		out = append(out, m.theme.line(append(begun(i == s.cursor), s.rows[i].line()...), width, i == s.cursor))
	}
	return out
}

// details say everything of a row.
func (r *diffRow) details(t *theme, d *report.Diff, width int) []row {
	p := newProse(t, width)
	switch {
	case r.finding != nil:
		p.finding(r.finding, nil)
	case r.path != nil:
		p.text(strong, r.service.Namespace+"/"+r.service.Name)
		p.named("to", plain, r.path.Frontend)
		p.named("from", plain, clientsOf(r.path.SourceClasses))
		p.named("before", plain, cmp.Or(r.path.Before, noClients))
		p.named("after", plain, cmp.Or(r.path.After, noClients))
		p.named("gained", plain, strings.Join(r.path.Gained, ", "))
		p.named("lost", plain, strings.Join(r.path.Lost, ", "))
	case r.service != nil:
		p.text(strong, r.service.Namespace+"/"+r.service.Name)
		p.text(plain, r.service.Change)
		if n := len(r.service.Paths); n > 0 {
			p.text(faint, plural(n, "path")+" changed: each stands below with what it was before")
		}
	case r.value != nil:
		p.text(strong, r.value.Name)
		p.named("before", plain, cmp.Or(r.value.Before, "not known"))
		p.named("after", plain, cmp.Or(r.value.After, "not known"))
	default:
		p.text(plain, d.Summary.Text)
		for _, side := range []report.DiffSide{d.Before, d.After} {
			if len(side.Missing) > 0 {
				p.text(warn, "! Not read "+cmp.Or(side.Captured, "on one side")+": "+strings.Join(side.Missing, ", "))
			}
		}
	}
	return p.rows
}
