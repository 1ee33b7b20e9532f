package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
)

// services is every service port of the node: what it is, how many backends it has and ought to have, what is wrong with
// it, and how much comes in.
type services struct {
	list
	filter   filter
	problems bool
	order    int
	reverse  bool
	// touched is true once somebody moved the cursor: until then it stays at the top.
	touched bool
	// longest is how long the longest name is.
	longest int
	// rows are all of them, shown those that are left of filters, in their order.
	rows  []serviceRow
	shown []*serviceRow
	// key is the row under the cursor, which keeps it.
	at portKey
}

// serviceRow is a service port with what is looked for in it.
type serviceRow struct {
	*report.ServicePort
	text string
	// rate is new connections per second, known where counters are.
	rate  float64
	rated bool
}

// portKey tells service ports apart.
type portKey struct {
	namespace, name string
	port            int
	protocol        string
	family          string
	portName        string
}

func keyOf(p *report.ServicePort) portKey {
	return portKey{p.Namespace, p.Name, p.Port, p.Protocol, p.Family, p.PortName}
}

func newServices() *services { return &services{filter: newFilter()} }

// table are the service ports that are shown, nil where nothing was read yet.
func (m *Model) table() *report.NodeServices {
	if m.moment != nil {
		return m.moment.Services
	}
	return m.early
}

func (s *services) title(m *Model) string {
	if m.table() == nil {
		return "Services"
	}
	if n := len(s.shown); n != len(s.rows) {
		return fmt.Sprintf("Services (%d of %d)", n, len(s.rows))
	}
	return fmt.Sprintf("Services (%d)", len(s.rows))
}

func (s *services) keys(m *Model) []binding {
	return []binding{m.keys.open, m.keys.filter, m.keys.problems, m.keys.namespaces, m.keys.order, m.keys.reverse}
}

func (s *services) document(m *Model) any {
	if t := m.table(); t != nil {
		return t
	}
	return nil
}

func (s *services) types() bool { return s.filter.on }

func (s *services) prompt(m *Model) row {
	p := s.filter.prompt()
	if s.problems && !s.filter.on {
		p = row{}.add(warn, "only warnings, errors and what is not known").gap(2).add(accent, m.keys.problems.shown()).gap(1).add(faint, "shows all").gap(2).append(p)
	}
	return p
}

func (s *services) changed(m *Model) tea.Cmd {
	if m.table() == nil {
		s.rows = nil
		s.arrange()
		return nil
	}
	all := m.table().Services
	if len(s.rows) != len(all) || len(all) > 0 && s.rows[0].ServicePort != &all[0] {
		s.rows, s.longest = make([]serviceRow, len(all)), 0
		for i := range all {
			s.rows[i] = serviceRow{ServicePort: &all[i], text: searchText(&all[i])}
			s.longest = max(s.longest, len(all[i].Namespace)+1+len(all[i].Name))
		}
	}
	if m.moment != nil {
		s.rate(m.moment, m.before)
	}
	s.arrange()
	return nil
}

// searchText is everything of a row that a word may be found in.
func searchText(p *report.ServicePort) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s:%s %s %s", p.Namespace, p.Name, p.PortName, p.Type, p.Protocol)
	for _, f := range p.Frontends {
		b.WriteString(" " + render.Dial(f.Address, f.Port))
	}
	for _, id := range p.Findings {
		b.WriteString(" " + id)
	}
	b.WriteString(" " + p.Note)
	return strings.ToLower(b.String())
}

// rate is how many connections came in each second between two moments.
func (s *services) rate(now, before *Moment) {
	for i := range s.rows {
		s.rows[i].rated = false
	}
	if before == nil || now.At.Sub(before.At) < 100*time.Millisecond {
		return
	}
	took := now.At.Sub(before.At).Seconds()
	same := now.Services == before.Services
	var old map[portKey]*report.ServicePort
	if !same {
		old = make(map[portKey]*report.ServicePort, len(before.Services.Services))
		for i := range before.Services.Services {
			p := &before.Services.Services[i]
			old[keyOf(p)] = p
		}
	}
	for i := range s.rows {
		r := &s.rows[i]
		was := r.ServicePort
		if !same {
			if was = old[keyOf(r.ServicePort)]; was == nil {
				continue
			}
		}
		a, ok := before.Counters.Sum(was.Counted)
		b, ok2 := now.Counters.Sum(r.Counted)
		// A rule that was written again counts from nothing.
		if ok && ok2 && b.Connections >= a.Connections {
			r.rate, r.rated = float64(b.Connections-a.Connections)/took, true
		}
	}
}

// The columns by which rows are ordered.
var serviceOrders = []struct {
	name, column string
	compare      func(a, b *serviceRow) int
}{
	{"worst first", "FINDING", func(a, b *serviceRow) int {
		return cmp.Or(cmp.Compare(severityRank(b), severityRank(a)), compareNames(a, b))
	}},
	{"name", "SERVICE", compareNames},
	{"type", "TYPE", func(a, b *serviceRow) int { return cmp.Or(cmp.Compare(a.Type, b.Type), compareNames(a, b)) }},
	{"backends", "BACKENDS", func(a, b *serviceRow) int {
		return cmp.Or(cmp.Compare(count(b.Programmed), count(a.Programmed)), compareNames(a, b))
	}},
	{"new connections", "NEW/S", func(a, b *serviceRow) int { return cmp.Or(cmp.Compare(b.rate, a.rate), compareNames(a, b)) }},
}

func compareNames(a, b *serviceRow) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port),
		strings.Compare(a.Protocol, b.Protocol), strings.Compare(a.Family, b.Family), strings.Compare(a.PortName, b.PortName))
}

// severityRank orders rows by what is wrong with them.
func severityRank(r *serviceRow) int {
	n := 2 * int(render.JudgeSeverity(r.Severity).Level)
	if r.Severity == "critical" || r.State == "unknown" {
		n++
	}
	return n
}

func count(n *int) int {
	if n == nil {
		return -1
	}
	return *n
}

// arrange makes shown anew from the rows.
func (s *services) arrange() {
	s.shown = s.shown[:0]
	for i := range s.rows {
		r := &s.rows[i]
		if s.problems && r.State != "differs" && r.State != "unknown" {
			continue
		}
		if passes(s.filter.terms, r.has) {
			s.shown = append(s.shown, r)
		}
	}
	order := serviceOrders[s.order].compare
	if s.reverse {
		forth := order
		order = func(a, b *serviceRow) int { return forth(b, a) }
	}
	slices.SortStableFunc(s.shown, order)
	s.resize(len(s.shown), s.height)
	if !s.touched {
		// Who did not choose a row looks at the first one, which is the worst.
		s.to(0)
		return
	}
	if i := slices.IndexFunc(s.shown, func(r *serviceRow) bool { return keyOf(r.ServicePort) == s.at }); i >= 0 {
		s.to(i)
	} else if s.filter.on {
		// While somebody types, the row is not forgotten: it may come back.
		s.to(0)
		return
	}
	s.remember()
}

// remember keeps which row the cursor is on.
func (s *services) remember() {
	if s.cursor < len(s.shown) {
		s.at = keyOf(s.shown[s.cursor].ServicePort)
	}
}

// has tells whether a row has a word in a column.
func (r *serviceRow) has(column, word string) bool {
	switch column {
	case "ns":
		return strings.Contains(strings.ToLower(r.Namespace), word)
	case "type":
		return strings.Contains(strings.ToLower(r.Type), word)
	case "id":
		return slices.ContainsFunc(r.Findings, func(id string) bool { return strings.Contains(id, word) })
	case "sev":
		return r.Severity != "" && atLeast(r.Severity, word)
	case "node":
		return true
	}
	return strings.Contains(r.text, word)
}

// severities from the worst on.
var severities = []string{"critical", "error", "warning", "info"}

// atLeast tells whether a severity is this bad or worse; the beginning of the word is enough.
func atLeast(severity, word string) bool {
	wanted := slices.IndexFunc(severities, func(s string) bool { return strings.HasPrefix(s, word) })
	return wanted >= 0 && slices.Index(severities, severity) <= wanted
}

func (s *services) key(m *Model, msg tea.KeyMsg) (tea.Cmd, bool) {
	k := m.keys
	if s.filter.on {
		cmd := s.filter.key(k, msg)
		s.arrange()
		return cmd, true
	}
	if s.list.key(k, msg) {
		s.touched = true
		s.remember()
		return nil, true
	}
	switch {
	case k.open.matches(msg):
		return s.open(m), true
	case k.filter.matches(msg):
		return s.filter.open(), true
	case k.back.matches(msg) && s.filter.text() != "":
		s.filter.set("")
	case k.problems.matches(msg):
		s.problems = !s.problems
	case k.order.matches(msg):
		s.order, s.reverse = (s.order+1)%len(serviceOrders), false
		m.say(note, "ordered by "+serviceOrders[s.order].name)
	case k.reverse.matches(msg):
		s.reverse = !s.reverse
	case k.namespaces.matches(msg):
		return m.push(newNamespaces(s)), true
	default:
		return nil, false
	}
	s.arrange()
	return nil, true
}

// open opens the path of the row under the cursor.
func (s *services) open(m *Model) tea.Cmd {
	if s.cursor >= len(s.shown) {
		return nil
	}
	return m.push(newPath(s.shown[s.cursor].ServicePort))
}

func (s *services) mouse(m *Model, msg tea.MouseMsg, y int) tea.Cmd {
	if s.list.mouse(msg, y-1) {
		return s.open(m)
	}
	s.touched = true
	s.remember()
	return nil
}

// serviceColumns are how wide the columns are; 0: left out.
type serviceColumns struct{ name, port, kind, frontends, backends, rate, finding int }

// columns shares a width out: first to names, which tell rows apart, then to findings, then to what else there is room for.
func (s *services) columns(width int, live bool) serviceColumns {
	c := serviceColumns{port: 12, backends: 9}
	if live {
		c.rate = 7
	}
	rest := width - 3 - c.port - c.backends - c.rate - 4
	c.name = min(max(s.longest, 18), max(rest-12, 18), 60)
	rest -= c.name
	c.finding = min(rest, 30)
	rest -= c.finding
	if rest >= 14 {
		c.kind = 13
		rest -= c.kind + 1
	}
	if rest >= 16 {
		c.frontends = min(rest-1, 34)
		rest -= c.frontends + 1
	}
	c.finding += max(rest, 0)
	return c
}

func (s *services) draw(m *Model, width, height int) []string {
	s.resize(len(s.shown), height-1)
	c := s.columns(width, m.feed.Live)
	// The column by which rows are ordered has a mark.
	by := func(name string) string {
		if serviceOrders[s.order].column != name {
			return name
		}
		if s.reverse {
			return name + "▴"
		}
		return name + "▾"
	}
	head := row{}.gap(3).cell(faint, by("SERVICE"), c.name).gap(1).cell(faint, "PORT", c.port)
	if c.kind > 0 {
		head = head.gap(1).cell(faint, by("TYPE"), c.kind)
	}
	if c.frontends > 0 {
		head = head.gap(1).cell(faint, "FRONTENDS", c.frontends)
	}
	head = head.gap(1).right(faint, by("BACKENDS"), c.backends)
	if c.rate > 0 {
		head = head.gap(1).right(faint, by("NEW/S"), c.rate)
	}
	head = head.gap(1).cell(faint, by("FINDING"), c.finding)
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
func (s *services) nothing(m *Model) row {
	switch {
	case m.reading.failed != nil && m.moment == nil:
		return row{}.gap(2).add(bad, m.reading.failed.Error())
	case m.moment == nil:
		return row{}.gap(2).add(note, "reading …")
	case len(s.rows) == 0 && len(explain.MissingSources(m.moment.Reading.Report.Sources)) > 0:
		miss := explain.MissingSources(m.moment.Reading.Report.Sources)[0]
		return row{}.gap(2).add(bad, "✗ "+miss.Name+": "+cmp.Or(miss.Error, miss.Status)).add(plain, " (5 Sources)")
	case len(s.rows) == 0:
		return row{}.gap(2).add(note, "no Services: nothing that was read knows any (5 Sources says what was read)")
	case s.problems && s.filter.text() == "":
		return row{}.gap(2).add(good, "✓ no service port has findings (p shows all)")
	}
	return row{}.gap(2).add(note, "no service port is left of the filter (esc drops it)")
}

// line draws the row.
func (r *serviceRow) line(c serviceColumns, cursor bool) row {
	j := render.JudgeSeverity(r.Severity)
	mark := span{j.Sign, toneOf(j.Level)}
	switch r.State {
	case "unknown":
		mark = span{"?", note}
	case "skipped":
		mark = span{"–", faint}
	}
	out := append(begun(cursor), mark).gap(1)
	name := r.Namespace + "/" + r.Name
	t := plain
	if r.State == "skipped" {
		t = faint
	}
	out = out.cell(t, name, c.name).gap(1).cell(t, r.port(), c.port)
	if c.kind > 0 {
		out = out.gap(1).cell(faint, r.Type, c.kind)
	}
	if c.frontends > 0 {
		out = out.gap(1).cell(t, r.frontends(), c.frontends)
	}
	b, bt := r.backends()
	out = out.gap(1).right(bt, b, c.backends)
	if c.rate > 0 {
		out = out.gap(1).right(plain, r.rateText(), c.rate)
	}
	out = out.gap(1)
	if len(r.Findings) == 0 {
		return out.add(faint, r.Note)
	}
	text := r.Findings[0]
	if n := len(r.Findings) - 1; n > 0 {
		text += fmt.Sprintf(" +%d", n)
	}
	return out.add(toneOf(j.Level), text)
}

// port is the name or number with the protocol.
func (r *serviceRow) port() string {
	text := strconv.Itoa(r.Port)
	if r.PortName != "" {
		text = r.PortName + ":" + text
	}
	if r.Protocol != "TCP" {
		text += "/" + r.Protocol
	}
	if r.Family == "IPv6" {
		text += " v6"
	}
	return text
}

// frontends are the addresses, the first one and how many more.
func (r *serviceRow) frontends() string {
	if len(r.Frontends) == 0 {
		return ""
	}
	text := render.Dial(r.Frontends[0].Address, r.Frontends[0].Port)
	if n := len(r.Frontends) - 1; n > 0 {
		text += fmt.Sprintf(" +%d", n)
	}
	return text
}

// backends are those that get connections, of those that are ready.
func (r *serviceRow) backends() (string, tone) {
	if r.State == "skipped" {
		return "", faint
	}
	if r.Ready == nil || r.Programmed == nil {
		known := func(n *int) string {
			if n == nil {
				return "?"
			}
			return strconv.Itoa(*n)
		}
		return known(r.Programmed) + "/" + known(r.Ready), note
	}
	right := *r.Programmed - r.Unasked
	text := fmt.Sprintf("%d/%d", right, *r.Ready)
	switch {
	case r.Unasked > 0:
		return fmt.Sprintf("%s+%d", text, r.Unasked), bad
	case right != *r.Ready:
		return text, bad
	case right == 0:
		return text, warn
	}
	return text, plain
}

func (r *serviceRow) rateText() string {
	if !r.rated {
		return ""
	}
	return perSecond(r.rate)
}

// perSecond is a rate in a few characters.
func perSecond(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 10:
		return fmt.Sprintf("%.1f", rate)
	case rate < 10000:
		return fmt.Sprintf("%.0f", rate)
	}
	return fmt.Sprintf("%.0fk", rate/1000)
}

// only shows one namespace, or all of them for an empty name.
func (s *services) only(namespace string) {
	words := []string{}
	for _, w := range strings.Fields(s.filter.text()) {
		if !strings.HasPrefix(w, "ns:") {
			words = append(words, w)
		}
	}
	if namespace != "" {
		words = append(words, "ns:"+namespace)
	}
	s.filter.set(strings.Join(words, " "))
	s.arrange()
}
