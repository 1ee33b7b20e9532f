package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
)

// findings is what differs from what is asked for, each with what follows from it below, and at the end the checks that
// could not be answered.
type findings struct {
	list
	filter filter
	// rows are all of them, shown those that are left of the filter.
	rows  []findingRow
	shown []*findingRow
	// of is the report and fleet the comparison that rows were made of.
	of    *report.Report
	fleet *report.Reports
	// at is the row under the cursor, which keeps it.
	at findingKey
	// split is how many columns the list has; clicks beyond it are none on a row.
	split int
}

// findingRow is a finding, or a check that could not be answered, with what is looked for in it.
type findingRow struct {
	*report.Finding
	unknown *report.Unknown
	depth   int
	text    string
	// nodes have the finding, where several were read.
	nodes []string
}

// findingKey tells findings apart.
type findingKey struct {
	id      string
	object  report.Object
	subject string
	node    string
	unknown bool
}

func (r *findingRow) key() findingKey {
	if r.unknown != nil {
		return findingKey{id: r.unknown.ID, unknown: true}
	}
	return findingKey{r.ID, r.Object, r.Subject, r.Node, false}
}

func (r *findingRow) id() string {
	if r.unknown != nil {
		return r.unknown.ID
	}
	return r.ID
}

func newFindings() *findings { return &findings{filter: newFilter()} }

func (s *findings) title(m *Model) string {
	if m.moment == nil {
		return "Findings"
	}
	return fmt.Sprintf("Findings (%d)", len(m.moment.Reading.Report.Findings))
}

func (s *findings) keys(m *Model) []binding {
	return []binding{meaning(m.keys.open, "where in the path"), m.keys.page, m.keys.filter, m.keys.copy, meaning(m.keys.wide, "all details")}
}

func (s *findings) document(m *Model) any {
	if m.moment == nil {
		return nil
	}
	return m.moment.Reading.Report
}

func (s *findings) types() bool { return s.filter.on }

func (s *findings) prompt(*Model) row { return s.filter.prompt() }

func (s *findings) changed(m *Model) tea.Cmd {
	if m.moment == nil {
		s.rows, s.of = nil, nil
		s.arrange()
		return nil
	}
	r := m.moment.Reading.Report
	if s.of == r && s.fleet == m.fleet {
		return nil
	}
	s.of, s.fleet = r, m.fleet
	s.rows = make([]findingRow, 0, len(r.Findings)+len(r.Unknown))
	nodes := nodesByFinding(m.fleet)
	for _, c := range render.ByCause(r.Findings) {
		f := c.Finding
		s.rows = append(s.rows, findingRow{Finding: f, depth: c.Depth, nodes: nodes[everywhereKey(f)], text: strings.ToLower(strings.Join([]string{
			f.ID, f.Severity, objectOf(&f.Object), f.Object.Kind, f.Object.Protocol, f.Object.Endpoint, f.Subject, f.Message, pendingWord(f), f.Pending}, " "))})
	}
	for i := range r.Unknown {
		u := &r.Unknown[i]
		s.rows = append(s.rows, findingRow{unknown: u, text: strings.ToLower(u.ID + " unknown " + strings.Join(u.Sources, " ") + " " + u.Text)})
	}
	s.arrange()
	return nil
}

// pendingWord is what is looked for in a finding that may be kube-proxy at work.
func pendingWord(f *report.Finding) string {
	if f.Pending == "" {
		return ""
	}
	return "pending"
}

// everywhereKey is what a finding has in common with the same one on other nodes.
func everywhereKey(f *report.Finding) findingKey {
	k := findingKey{id: f.ID, object: f.Object, subject: f.Subject}
	if k.object.Kind == "Node" {
		if k.subject == k.object.Name {
			k.subject = ""
		}
		k.object.Name = ""
	}
	return k
}

// nodesByFinding are the nodes that have each of the findings of a fleet; nil where there is none.
func nodesByFinding(fleet *report.Reports) map[findingKey][]string {
	if fleet == nil {
		return nil
	}
	out := make(map[findingKey][]string)
	for i := range fleet.Findings {
		f := &fleet.Findings[i]
		k := everywhereKey(&f.Finding)
		out[k] = append(out[k], f.Nodes...)
	}
	// One that differs in words only stands there more than once.
	for k, nodes := range out {
		slices.Sort(nodes)
		out[k] = slices.Compact(nodes)
	}
	return out
}

// objectOf names what a finding is about in few words.
func objectOf(o *report.Object) string {
	name := strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
	switch {
	case o.Kind == "Service" && o.Port != "":
		return name + ":" + o.Port
	case o.Kind == "Service":
		return name
	}
	return strings.TrimSpace(o.Kind + " " + name)
}

// arrange makes shown anew from the rows.
func (s *findings) arrange() {
	s.shown = s.shown[:0]
	for i := range s.rows {
		if r := &s.rows[i]; passes(s.filter.terms, r.has) {
			s.shown = append(s.shown, r)
		}
	}
	s.resize(len(s.shown), s.height)
	if i := slices.IndexFunc(s.shown, func(r *findingRow) bool { return r.key() == s.at }); i >= 0 {
		s.to(i)
	} else if s.filter.on {
		// While somebody types, the row is not forgotten: it may come back.
		s.to(0)
		return
	}
	s.remember()
}

// remember keeps which row the cursor is on.
func (s *findings) remember() {
	if r := s.row(); r != nil {
		s.at = r.key()
	}
}

// row is the one under the cursor, nil where there is none.
func (s *findings) row() *findingRow {
	if s.cursor < len(s.shown) {
		return s.shown[s.cursor]
	}
	return nil
}

// has tells whether a row has a word in a column.
func (r *findingRow) has(column, word string) bool {
	if column == "id" {
		return strings.Contains(r.id(), word)
	}
	if r.unknown != nil {
		return column == "" && strings.Contains(r.text, word)
	}
	switch column {
	case "ns":
		return strings.Contains(strings.ToLower(r.Object.Namespace), word)
	case "type":
		return strings.Contains(strings.ToLower(r.Object.Kind), word)
	case "sev":
		return atLeast(r.Severity, word)
	case "node":
		return strings.Contains(strings.ToLower(r.Node), word) ||
			slices.ContainsFunc(r.nodes, func(n string) bool { return strings.Contains(strings.ToLower(n), word) })
	}
	return strings.Contains(r.text, word)
}

func (s *findings) key(m *Model, msg tea.KeyMsg) (tea.Cmd, bool) {
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
	r := s.row()
	switch {
	case k.filter.matches(msg):
		return s.filter.open(), true
	case k.back.matches(msg) && s.filter.text() != "":
		s.filter.set("")
		s.arrange()
		return nil, true
	case !k.open.matches(msg) && !k.page.matches(msg) && !k.copy.matches(msg) && !k.wide.matches(msg):
		return nil, false
	case r == nil:
		m.say(note, "there is no finding under the cursor")
	case k.open.matches(msg):
		return s.open(m), true
	case k.page.matches(msg):
		return m.showPage(r.id()), true
	case k.copy.matches(msg):
		return m.copy(m.feed.Name + " explain " + ShellWord(r.id())), true
	default:
		return m.push(newWhole(r.id(), func(m *Model, width int) []row { return r.details(m.theme, width) })), true
	}
	return nil, true
}

// open shows the place in the path that the finding under the cursor is about.
func (s *findings) open(m *Model) tea.Cmd {
	r := s.row()
	switch {
	case r == nil:
		return nil
	case r.unknown != nil:
		cmd := m.showPage(r.unknown.ID)
		m.say(note, "not known: "+r.unknown.Text)
		return cmd
	}
	return m.openFinding(r.Finding)
}

// openFinding shows where in the path of its Service a finding is, or the page of one that is about no Service.
func (m *Model) openFinding(f *report.Finding) tea.Cmd {
	p := m.portOf(f)
	if p == nil {
		cmd := m.showPage(f.ID)
		switch f.Object.Kind {
		case "Node", "":
			m.say(note, "this is about the node, and lies on no path of one Service")
		case "Service":
			m.say(note, objectOf(&f.Object)+" is none of the Services that are shown")
		default:
			m.say(note, "this is about "+objectOf(&f.Object)+", and lies on no path of one Service")
		}
		return cmd
	}
	path := newPath(p)
	path.lookFor(f)
	return m.push(path)
}

// portOf is the service port that a finding is about: the one that it names, else the first one of its Service that has
// it. Nil for one that is about no Service.
func (m *Model) portOf(f *report.Finding) *report.ServicePort {
	o := &f.Object
	if o.Kind != "Service" || m.moment == nil {
		return nil
	}
	var found *report.ServicePort
	best := -1
	all := m.moment.Services.Services
	for i := range all {
		p := &all[i]
		if p.Namespace != o.Namespace || p.Name != o.Name {
			continue
		}
		n := 0
		if o.Port == p.PortName || o.Port == strconv.Itoa(p.Port) {
			n += 4
		}
		if o.Protocol == p.Protocol {
			n += 2
		}
		// Ports of both address families have one name.
		if slices.Contains(p.Findings, f.ID) {
			n++
		}
		if n > best {
			found, best = p, n
		}
	}
	return found
}

func (s *findings) mouse(m *Model, msg tea.MouseMsg, y int) tea.Cmd {
	if msg.X >= s.split {
		return nil
	}
	if s.list.mouse(msg, y-1) {
		return s.open(m)
	}
	s.remember()
	return nil
}

func (s *findings) draw(m *Model, width, height int) []string {
	return m.beside(width, height, func(width, height int) []string { return s.drawList(m, width, height) }, func(width int) []row {
		if r := s.row(); r != nil {
			return r.details(m.theme, width)
		}
		return nil
	})
}

// findingColumns are how wide the columns are; 0: left out.
type findingColumns struct{ severity, id, object, nodes, message int }

func (s *findings) columns(m *Model, width int) findingColumns {
	c := findingColumns{severity: len("critical")}
	if m.fleet != nil {
		c.nodes = len("NODES")
	}
	rest := width - 3 - c.severity - 1 - c.nodes - min(c.nodes, 1)
	if rest < 75 {
		c.id = min(rest*3/5, 40)
		c.object = rest - c.id - 1
		return c
	}
	c.id, c.object = 30, 24
	c.message = rest - c.id - c.object - 2
	return c
}

func (s *findings) drawList(m *Model, width, height int) []string {
	s.split = width
	s.resize(len(s.shown), height-1)
	c := s.columns(m, width)
	head := row{}.gap(3).cell(faint, "SEVERITY", c.severity).gap(1).cell(faint, "FINDING", c.id).gap(1)
	if c.nodes > 0 {
		head = head.right(faint, "NODES", c.nodes).gap(1)
	}
	head = head.cell(faint, "ABOUT", c.object)
	if c.message > 0 {
		head = head.gap(1).add(faint, "WHAT")
	}
	out := []string{m.theme.line(head, width, false)}
	if len(s.shown) == 0 {
		return append(out, "", m.theme.line(s.nothing(m), width, false))
	}
	from, to := s.visible()
	for i := from; i < to; i++ {
		out = append(out, m.theme.line(s.shown[i].line(c, i == s.cursor), width, i == s.cursor))
	}
	return out
}

// nothing says why no row is shown.
func (s *findings) nothing(m *Model) row {
	switch {
	case m.reading.failed != nil && m.moment == nil:
		return row{}.gap(3).add(bad, m.reading.failed.Error())
	case m.moment == nil:
		return row{}.gap(3).add(note, "reading …")
	case len(s.rows) == 0:
		return row{}.gap(3).add(good, "✓ nothing differs from what is asked for, and every check was answered")
	}
	return row{}.gap(3).add(note, "no finding is left of the filter (esc drops it)")
}

// line draws the row.
func (r *findingRow) line(c findingColumns, cursor bool) row {
	out := begun(cursor)
	var severity, about, what string
	t, said := plain, note
	if u := r.unknown; u != nil {
		out = append(out, span{"?", note})
		severity, about, what = "unknown", strings.Join(u.Sources, ", "), u.Text
		t = faint
	} else {
		j := render.JudgeSeverity(r.Severity)
		said = toneOf(j.Level)
		out = append(out, span{j.Sign, said})
		severity, about, what = r.Severity, objectOf(&r.Object), r.Message
		if r.Pending != "" {
			severity = "pending"
		}
	}
	id := r.id()
	if r.depth > 0 {
		id = strings.Repeat("  ", r.depth-1) + "└ " + id
	}
	out = out.gap(1).cell(said, severity, c.severity).gap(1).cell(t, id, c.id).gap(1)
	if c.nodes > 0 {
		text := ""
		if len(r.nodes) > 0 {
			text = strconv.Itoa(len(r.nodes))
		}
		out = out.right(plain, text, c.nodes).gap(1)
	}
	out = out.cell(t, about, c.object)
	if c.message > 0 {
		out = out.gap(1).cell(t, what, c.message)
	}
	return out
}

// details say everything of a row.
func (r *findingRow) details(t *theme, width int) []row {
	if u := r.unknown; u != nil {
		p := newProse(t, width)
		p.flow(row{}.add(note, "? unknown "), 2, p.words(strong, u.ID))
		p.text(plain, u.Text)
		for _, name := range u.Sources {
			p.named("needs", plain, name)
		}
		p.text(faint, "The finding is neither raised nor excluded.")
		return p.rows
	}
	p := newProse(t, width)
	p.finding(r.Finding, r.nodes)
	return p.rows
}

// finding says everything of a finding; nodes have it, where several were read.
func (p *prose) finding(f *report.Finding, nodes []string) {
	j := render.JudgeSeverity(f.Severity)
	p.flow(row{}.add(toneOf(j.Level), j.Sign+" "+f.Severity+" "), 2, append(p.words(strong, f.ID), p.words(plain, objectOf(&f.Object))...))
	p.text(plain, f.Message)
	p.named("want", plain, f.Want)
	p.named("got", plain, f.Got)
	p.named("pending", note, f.Pending)
	p.named("follows", plain, causedBy(f))
	for _, e := range f.Evidence {
		p.evidence("evidence", e)
	}
	for _, c := range f.Causes {
		p.named("cause", plain, c)
	}
	p.named("remedy", plain, f.Remedy)
	p.named("nodes", plain, someNodes(nodes))
	p.named("more", faint, f.Docs+", which d shows")
}

func causedBy(f *report.Finding) string {
	if f.CausedBy == "" {
		return ""
	}
	return "from " + f.CausedBy
}

// someNodes names the first few nodes.
func someNodes(nodes []string) string {
	const named = 8
	if n := len(nodes); n > named+1 {
		return strings.Join(nodes[:named], ", ") + fmt.Sprintf(" and %d more", n-named)
	}
	return strings.Join(nodes, ", ")
}
