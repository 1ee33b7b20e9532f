package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
)

// pathScreen is what happens to connections to one service port: for each frontend and each kind of clients the way through the
// rules as a tree, with what is wrong in its place and the evidence of the row under the cursor below.
type pathScreen struct {
	list
	// at is the service port, and ask the question; for a packet that somebody described the question alone.
	at    portKey
	ask   explain.TraceOptions
	trace *report.Trace
	// of is the moment that the trace is of, asked the one that it is being made of; failed is why there is none.
	of, asked *Moment
	failed    string
	// frontends in the order of the trace, each with its cells.
	frontends []pathFrontend
	// frontend and client are the tabs that are shown, by what they are called, so that they stay when the trace changes.
	frontend, client string
	found            []report.Finding
	rows             []pathRow
	open             map[string]bool
	everything       bool
	// sought is a finding to put the cursor on, once there is a trace.
	sought *report.Finding
	chosen bool
	// head is how many lines stand above the tree: frontends, clients, what happens, what is asked for.
	head int
	// own are the frontends of the row that was opened: the trace has those of the other address family too.
	own []string
}

type pathFrontend struct {
	name  string
	cells []pathCell
}

// pathCell are the paths of one kind of clients, and how bad the worst of them is.
type pathCell struct {
	name  string
	paths []report.Path
	level render.Level
}

// tracedMsg is a trace, or why there is none.
type tracedMsg struct {
	to    *pathScreen
	of    *Moment
	trace *report.Trace
	err   error
}

func newPath(p *report.ServicePort) *pathScreen {
	s := &pathScreen{at: keyOf(p), ask: asksFor(p), open: make(map[string]bool)}
	for _, f := range p.Frontends {
		s.own = append(s.own, frontendName(f))
	}
	return s
}

// asksFor is the question about one service port. A port that only a node port in rules tells of has no number.
func asksFor(p *report.ServicePort) explain.TraceOptions {
	o := explain.TraceOptions{Namespace: p.Namespace, Service: p.Name}
	switch {
	case p.Port > 0:
		o.Ports = []string{strconv.Itoa(p.Port)}
	case p.PortName != "":
		o.Ports = []string{p.PortName}
	}
	return o
}

func frontendName(f report.Frontend) string {
	return f.Kind + " " + render.Dial(f.Address, f.Port) + "/" + f.Protocol
}

// newWalk is the path of one packet.
func newWalk(ask explain.TraceOptions) *pathScreen {
	return &pathScreen{ask: ask, open: make(map[string]bool)}
}

// lookFor puts the cursor on what a finding is about, as soon as that is known.
func (s *pathScreen) lookFor(f *report.Finding) { s.sought, s.chosen = f, false }

func (s *pathScreen) title(*Model) string {
	if s.ask.To != "" {
		return "packet to " + s.ask.To
	}
	port := strconv.Itoa(s.at.port)
	if s.at.portName != "" {
		port = s.at.portName
	}
	return s.at.namespace + "/" + s.at.name + ":" + port
}

func (s *pathScreen) keys(m *Model) []binding {
	return []binding{m.keys.frontends, m.keys.clients, m.keys.expand, m.keys.copy, m.keys.evidence, m.keys.wide, m.keys.page}
}

func (s *pathScreen) document(*Model) any {
	if s.trace == nil {
		return nil
	}
	return s.trace
}

// changed asks for the trace of a moment that was analysed anew.
func (s *pathScreen) changed(m *Model) tea.Cmd {
	if m.moment == nil {
		return nil
	}
	if s.of != nil && s.of.Reading == m.moment.Reading {
		return nil
	}
	if s.asked != nil && s.asked.Reading == m.moment.Reading {
		return nil
	}
	s.asked = m.moment
	of, ask := m.moment, s.ask
	return func() tea.Msg {
		of.lock.Lock()
		defer of.lock.Unlock()
		t, err := of.Reading.Trace(ask)
		return tracedMsg{s, of, t, err}
	}
}

func (s *pathScreen) answer(m *Model, msg tea.Msg) tea.Cmd {
	t, ok := msg.(tracedMsg)
	if !ok || t.to != s || t.of != s.asked {
		return nil
	}
	s.asked, s.of = nil, t.of
	if t.err != nil {
		s.trace, s.failed = nil, t.err.Error()
		return nil
	}
	s.trace, s.failed = t.trace, ""
	s.found = s.found[:0]
	if s.ask.To != "" {
		s.found = append(s.found, t.trace.Findings...)
	}
	for _, f := range t.of.Reading.Report.Findings {
		if s.ask.To == "" && f.Object.Kind == "Service" && f.Object.Namespace == s.at.namespace && f.Object.Name == s.at.name &&
			(f.Object.Port == "" || f.Object.Port == s.at.portName || f.Object.Port == strconv.Itoa(s.at.port)) {
			s.found = append(s.found, f)
		}
	}
	s.gather()
	first := !s.chosen
	if first {
		s.choose()
	}
	sought := s.sought != nil
	s.arrange()
	if first && !sought {
		s.toOdd()
	}
	return s.changed(m)
}

// gather sorts the paths of the trace into frontends and clients.
func (s *pathScreen) gather() {
	s.frontends = nil
	for i := range s.trace.Paths {
		p := &s.trace.Paths[i]
		name := frontendName(p.Frontend)
		if n := len(s.frontends); n == 0 || s.frontends[n-1].name != name {
			s.frontends = append(s.frontends, pathFrontend{name: name})
		}
		f := &s.frontends[len(s.frontends)-1]
		client := p.SourceClass + " " + p.Source
		if n := len(f.cells); n == 0 || f.cells[n-1].name != client {
			f.cells = append(f.cells, pathCell{name: client})
		}
		c := &f.cells[len(f.cells)-1]
		c.paths = append(c.paths, *p)
		c.level = max(c.level, levelOf(p))
	}
}

// levelOf is how bad the worst thing on a path is.
func levelOf(p *report.Path) render.Level {
	l := render.JudgePath(p).Level
	for i := range p.Backends {
		l = max(l, render.JudgeBackend(p, &p.Backends[i]).Level)
	}
	return max(l, render.JudgeReply(p.Reply).Level)
}

// choose shows the first cell on which what is sought rests, else the first one with something wrong, else the first one
// of the row that was opened.
func (s *pathScreen) choose() {
	s.chosen = true
	var best *pathCell
	for i := range s.frontends {
		f := &s.frontends[i]
		for k := range f.cells {
			c := &f.cells[k]
			if s.sought != nil && rests(s.sought, c.paths) {
				s.frontend, s.client = f.name, c.name
				return
			}
			if len(s.own) > 0 && !slices.Contains(s.own, f.name) {
				continue
			}
			if best == nil || c.level > best.level && c.level > render.Remark {
				best, s.frontend, s.client = c, f.name, c.name
			}
		}
	}
}

// toOdd puts the cursor on the first thing that is wrong: what it rests on and what to do about it then show below.
func (s *pathScreen) toOdd() {
	for i := range s.rows {
		if s.rows[i].kind == elsewhereLine {
			break
		}
		if f := s.rows[i].finding; f != nil && render.JudgeSeverity(f.Severity).Level >= render.Warning {
			s.to(i)
			return
		}
	}
	for i := range s.rows {
		if b := s.rows[i].backend; b != nil && render.JudgeBackend(s.rows[i].path, b).Level >= render.Warning {
			s.to(i)
			return
		}
	}
}

// rests tells whether a finding rests on anything of these paths.
func rests(f *report.Finding, paths []report.Path) bool {
	for i := range paths {
		for k := range paths[i].Hops {
			if restsOn(f, nil, &paths[i].Hops[k]) {
				return true
			}
		}
		for k := range paths[i].Backends {
			if restsOn(f, &paths[i].Backends[k], nil) {
				return true
			}
		}
	}
	return false
}

// shown are the frontend and the clients that are shown, nil where there are none.
func (s *pathScreen) shown() (*pathFrontend, *pathCell) {
	if len(s.frontends) == 0 {
		return nil, nil
	}
	f := &s.frontends[max(slices.IndexFunc(s.frontends, func(f pathFrontend) bool { return f.name == s.frontend }), 0)]
	return f, &f.cells[max(slices.IndexFunc(f.cells, func(c pathCell) bool { return c.name == s.client }), 0)]
}

// arrange makes the rows of what is shown; the cursor stays on what it was on.
func (s *pathScreen) arrange() {
	id := ""
	if s.cursor < len(s.rows) {
		id = s.rows[s.cursor].id
	}
	s.rows = nil
	if _, c := s.shown(); c != nil {
		s.rows = treeOf(c.paths, s.found, s.open, s.everything)
	}
	s.resize(len(s.rows), s.height)
	if s.sought != nil {
		id = ""
		for i := range s.rows {
			if f := s.rows[i].finding; f != nil && f.ID == s.sought.ID && f.Subject == s.sought.Subject && f.Object == s.sought.Object {
				id = s.rows[i].id
			}
		}
		s.sought = nil
	}
	if i := slices.IndexFunc(s.rows, func(r pathRow) bool { return r.id == id }); i >= 0 {
		s.to(i)
	}
}

func (s *pathScreen) key(m *Model, msg tea.KeyMsg) (tea.Cmd, bool) {
	k := m.keys
	f, c := s.shown()
	switch {
	case s.list.key(k, msg):
		return nil, true
	case c == nil:
		return nil, false
	case k.left.matches(msg), k.right.matches(msg):
		by := 1
		if k.left.matches(msg) {
			by = -1
		}
		i := slices.IndexFunc(s.frontends, func(o pathFrontend) bool { return o.name == f.name })
		s.frontend = s.frontends[(i+by+len(s.frontends))%len(s.frontends)].name
		s.arrange()
	case k.next.matches(msg), k.previous.matches(msg):
		by := 1
		if k.previous.matches(msg) {
			by = -1
		}
		i := slices.IndexFunc(f.cells, func(o pathCell) bool { return o.name == c.name })
		s.client = f.cells[(i+by+len(f.cells))%len(f.cells)].name
		s.arrange()
	case k.wide.matches(msg):
		s.everything = !s.everything
		clear(s.open)
		s.arrange()
	case k.expand.matches(msg):
		return s.enter(m), true
	case k.copy.matches(msg):
		return m.copy(s.commandOf(m)), true
	case k.evidence.matches(msg):
		return m.push(newWhole("evidence", func(m *Model, width int) []row { return s.evidenceRows(m, width) })), true
	case k.page.matches(msg):
		if r := s.row(); r != nil && r.finding != nil {
			return m.showPage(r.finding.ID), true
		}
		m.say(note, "the row under the cursor is no finding")
	default:
		return nil, false
	}
	return nil, true
}

func (s *pathScreen) row() *pathRow {
	if s.cursor < len(s.rows) {
		return &s.rows[s.cursor]
	}
	return nil
}

// enter opens what is under the cursor: the hops of a backend, the page of a finding.
func (s *pathScreen) enter(m *Model) tea.Cmd {
	r := s.row()
	switch {
	case r == nil:
	case r.finding != nil:
		return m.showPage(r.finding.ID)
	case r.kind == backendLine:
		s.open[r.id] = !s.open[r.id]
		s.arrange()
	}
	return nil
}

// commandOf is the command that shows by hand what is under the cursor.
func (s *pathScreen) commandOf(m *Model) string {
	r := s.row()
	switch {
	case r == nil && s.ask.To != "":
		return m.command(packetWords(s.ask)...)
	case r == nil:
		return ""
	case r.kind == backendLine && r.hop == nil:
		return fmt.Sprintf("kubectl -n %s get endpointslices -l kubernetes.io/service-name=%s -o wide", s.at.namespace, s.at.name)
	case r.hop != nil:
		return byHand(r.path, r.hop)
	}
	if s.ask.To != "" {
		return m.command(packetWords(s.ask)...)
	}
	words := []string{"trace", "svc/" + s.at.name, "-n", s.at.namespace, "--port", strconv.Itoa(s.at.port)}
	if r.path.SourceClass != "" {
		words = append(words, "--from", r.path.SourceClass)
	}
	return m.command(append(words, "--via", strings.ToLower(r.path.Frontend.Kind))...)
}

func (s *pathScreen) mouse(m *Model, msg tea.MouseMsg, y int) tea.Cmd {
	if s.list.mouse(msg, y-s.head) {
		return s.enter(m)
	}
	return nil
}

func (s *pathScreen) draw(m *Model, width, height int) []string {
	f, c := s.shown()
	if c == nil {
		return []string{"", m.theme.line(s.nothing(), width, false)}
	}
	out := []string{
		m.theme.line(s.frontendTabs(f, width), width, false),
		m.theme.line(clientTabs(f, c, width), width, false),
	}
	asked := 2
	if height < 20 {
		asked = 1
	}
	out = append(out, s.outcome(m, c, width, asked)...)
	s.head = len(out)
	// The evidence has a third, and what the tree leaves.
	evidence := max(height/3, 5, height-s.head-len(s.rows))
	s.resize(len(s.rows), height-s.head-evidence)
	if s.cursor == s.top && s.top > 0 && s.height > 2 {
		s.top-- // what a finding is about stands above it
	}
	share := 8
	barWidth, rate := 10, 8
	if width < 90 {
		barWidth = 0
	}
	room := width - 1 - share - barWidth - rate - 2
	from, to := s.visible()
	for i := from; i < to; i++ {
		r := &s.rows[i]
		sign := " "
		switch {
		case i == s.cursor:
			sign = "›"
		case i == from && from > 0:
			sign = "↑" // there is more
		case i == to-1 && to < len(s.rows):
			sign = "↓"
		}
		line := row{{sign, accent}}
		text := r.text()
		if r.share < 0 {
			out = append(out, m.theme.line(append(line, text...), width, i == s.cursor))
			continue
		}
		line = append(line, fitRow(text, room)...)
		line = line.right(plain, render.Percent(r.share), share).gap(1)
		if barWidth > 0 {
			line = append(line, span{m.theme.bar(r.share, barWidth), bar})
		}
		line = line.right(faint, s.rateOf(m, r), rate)
		out = append(out, m.theme.line(line, width, i == s.cursor))
	}
	for len(out) < height-evidence {
		out = append(out, "")
	}
	return append(out, s.evidence(m, width, evidence)...)
}

// fitRow cuts or fills a row to a width.
func fitRow(r row, width int) row {
	if r.width() > width {
		r = cut(r, width)
	}
	return r.gap(width - r.width())
}

func (s *pathScreen) nothing() row {
	switch {
	case s.failed != "":
		return row{}.gap(2).add(bad, s.failed)
	case s.trace != nil:
		return row{}.gap(2).add(plain, s.trace.Summary.Text)
	}
	return row{}.gap(2).add(note, "walking …")
}

// frontendTabs shows the frontends with the one that is shown marked.
func (s *pathScreen) frontendTabs(shown *pathFrontend, width int) row {
	var tabs []row
	at := 0
	for i := range s.frontends {
		f := &s.frontends[i]
		level := render.Fine
		for k := range f.cells {
			level = max(level, f.cells[k].level)
		}
		if f == shown {
			at = i
		}
		tabs = append(tabs, tab(f.name, level, f == shown))
	}
	return tabsLine("to  ", tabs, at, width)
}

func clientTabs(f *pathFrontend, shown *pathCell, width int) row {
	var tabs []row
	at := 0
	for i := range f.cells {
		c := &f.cells[i]
		name := render.Clients(c.paths[0].SourceClass)
		// Who stands for the clients that are shown: others of the class may fare otherwise.
		if c.paths[0].SourceClass == "" || c == shown || several(f, c) {
			name = strings.TrimSpace(name + " " + c.paths[0].Source)
		}
		if c == shown {
			at = i
		}
		tabs = append(tabs, tab(name, c.level, c == shown))
	}
	return tabsLine("from", tabs, at, width)
}

// several tells whether a class of clients has more than one cell.
func several(f *pathFrontend, c *pathCell) bool {
	n := 0
	for i := range f.cells {
		if f.cells[i].paths[0].SourceClass == c.paths[0].SourceClass {
			n++
		}
	}
	return n > 1
}

// tab is one of a line of tabs: what is wrong there shows by its sign.
func tab(name string, level render.Level, shown bool) row {
	t := faint
	if shown {
		t = accent
		name = "[" + name + "]"
	}
	return row{}.add(t, name).add(toneOf(level), " "+level.Sign())
}

// tabsLine puts as many tabs beside each other as fit, those around the one that is shown.
func tabsLine(label string, tabs []row, at, width int) row {
	first := at
	used := tabs[at].width() + len(label) + 6
	for first > 0 && used+tabs[first-1].width()+2 <= width {
		first--
		used += tabs[first].width() + 2
	}
	out := row{}.add(faint, label)
	if first > 0 {
		out = out.add(faint, " …")
	}
	for i := first; i < len(tabs); i++ {
		if out.width()+tabs[i].width()+3 > width {
			return out.add(faint, " …")
		}
		out = append(out.gap(2), tabs[i]...)
	}
	return out
}

// outcome says what happens to connections of the cell, and in so many lines what the objects ask for.
func (s *pathScreen) outcome(m *Model, c *pathCell, width, lines int) []string {
	p := &c.paths[0]
	j := render.JudgePath(p)
	line := row{}.add(toneOf(c.level), c.level.Sign()+" ").add(plain, j.Text)
	for _, odd := range oddBackends(p) {
		line = line.add(plain, ", ").add(bad, odd)
	}
	if p.Result == report.ResultNoMatch && c.level == render.Fine {
		line = row{}.add(note, "· ").add(plain, j.Text) // neither well nor wrong: it is nobody's
	}
	if len(c.paths) > 1 {
		line = row{}.add(toneOf(c.level), fmt.Sprintf("%d ways, ", len(c.paths))).add(plain, "each with its share below")
		if len(p.Uncertain) > 0 {
			line = row{}.add(warn, "? ").add(plain, "depends on what the evidence does not say")
		}
	}
	asked := row{}
	if in := p.Intended; in != nil {
		what := string(in.Result)
		if n := len(in.Backends); n > 0 {
			what = plural(n, "backend")
		}
		asked = newProse(m.theme, width).words(faint, "asked for: "+what+", "+in.Because)
	}
	out := []string{m.theme.line(line, width, false)}
	if lines == 1 {
		words := row{}
		for i, w := range asked {
			words = append(words.gap(min(i, 1)), w)
		}
		return append(out, m.theme.line(words, width, false))
	}
	broken := newProse(m.theme, width)
	broken.flow(row{}, 11, asked)
	for _, l := range broken.rows[:min(len(broken.rows), lines)] {
		out = append(out, m.theme.line(l, width, false))
	}
	return out
}

// oddBackends counts the backends of a path that are not as they should be, by state.
func oddBackends(p *report.Path) []string {
	var states []string
	n := make(map[string]int)
	for i := range p.Backends {
		state := p.Backends[i].State
		if state == "ok" || state == "unknown" || state == "" {
			continue
		}
		if n[state] == 0 {
			states = append(states, state)
		}
		n[state]++
	}
	for i, state := range states {
		states[i] = fmt.Sprintf("%d %s", n[state], state)
	}
	return states
}

// rateOf is how many packets a row counted each second; empty where nothing counts there, or nothing tells yet.
func (s *pathScreen) rateOf(m *Model, r *pathRow) string {
	if r.hop == nil || m.moment == nil || m.before == nil || m.before.raw != m.moment.raw || s.of == nil || s.of.Reading != m.moment.Reading {
		return ""
	}
	took := m.moment.At.Sub(m.before.At).Seconds()
	var was, is uint64
	for _, e := range r.counted() {
		a, ok := m.before.Counters.At(e)
		b, ok2 := m.moment.Counters.At(e)
		if !ok || !ok2 || b.Packets < a.Packets {
			return ""
		}
		was, is = was+a.Packets, is+b.Packets
	}
	if took <= 0 {
		return ""
	}
	return perSecond(float64(is-was)/took) + "/s"
}

// counted are the rules that count what passes a row: of a chain that chooses, each that does.
func (r *pathRow) counted() []report.Evidence {
	if r.kind != chainLine {
		return []report.Evidence{r.hop.Evidence}
	}
	var out []report.Evidence
	for i := range r.path.Backends {
		if b := &r.path.Backends[i]; len(b.Hops) > 0 {
			out = append(out, b.Hops[0].Evidence)
		}
	}
	return out
}

// evidence is what the row under the cursor rests on, as far as it fits.
func (s *pathScreen) evidence(m *Model, width, height int) []string {
	lines := s.evidenceRows(m, width)
	head := row{}.add(faint, "── evidence ")
	if n := len(lines) - (height - 1); n > 0 {
		head = head.add(note, plural(n, "more line")+" ").add(accent, m.keys.evidence.shown()+" ").add(faint, "shows them ")
		lines = lines[:height-1]
	}
	head = head.add(faint, strings.Repeat("─", max(width-head.width(), 0)))
	out := []string{m.theme.line(head, width, false)}
	for _, l := range lines {
		out = append(out, m.theme.line(l, width, false))
	}
	return out
}

// evidenceRows are all that the row under the cursor rests on.
func (s *pathScreen) evidenceRows(m *Model, width int) []row {
	var lines []row
	text := func(t tone, label, text string) {
		if text == "" {
			return
		}
		for _, l := range m.theme.wrap(t, text, width-12) {
			lines = append(lines, append(row{}.cell(faint, label, 11), l...))
			label = ""
		}
	}
	r := s.row()
	if r == nil {
		text(plain, "rules", "none that was read has to do with this packet")
		text(faint, "by hand", s.commandOf(m))
		return lines
	}
	switch {
	case r.finding != nil:
		f := r.finding
		text(plain, "finding", f.Message)
		text(plain, "want", f.Want)
		text(plain, "got", f.Got)
		text(note, "pending", f.Pending)
		text(plain, "remedy", f.Remedy)
		for _, e := range f.Evidence {
			text(faint, "rests on", strings.TrimSpace(render.Place(e)+"  "+e.Text))
		}
	case r.kind == backendLine:
		s.ofBackend(m, r, text)
	case r.kind == replyLine && r.path.Reply == nil:
		text(plain, "answer", "the backend knows its own way to this client, or what was read does not say it")
	case r.kind == replyLine:
		text(plain, "answer", r.path.Reply.Text)
		text(faint, "rests on", strings.TrimSpace(render.Place(r.path.Reply.Evidence)+"  "+r.path.Reply.Evidence.Text))
	case r.kind == pathLine:
		for _, u := range r.path.Uncertain {
			text(plain, "if", u.Condition)
			text(faint, "because", u.Because)
		}
	case r.kind == elsewhereLine:
		text(plain, "findings", "of other frontends or clients of this Service, or of the Service itself")
	case r.kind == chainLine:
		for i := range r.path.Backends {
			b := &r.path.Backends[i]
			if len(b.Hops) > 0 {
				h := &b.Hops[0]
				text(plain, "rule", fmt.Sprintf("%s of what gets to it, %s of all: %s  %s", render.Percent(h.Probability), render.Percent(h.Cumulative), render.Brief(h), render.Place(h.Evidence)))
			}
		}
	default:
		s.ofHop(m, r.hop, text)
	}
	text(faint, "by hand", s.commandOf(m))
	for _, n := range r.path.NotEvaluated {
		text(note, "outside", n)
	}
	return lines
}

// ofHop says what a hop rests on and what it counted.
func (s *pathScreen) ofHop(m *Model, h *report.Hop, text func(t tone, label, text string)) {
	text(plain, h.Kind, h.Text)
	text(faint, "in", strings.TrimSpace(h.Table+" "+h.Chain+" "+position(h)+" "+render.Place(h.Evidence)))
	if n, ok := m.moment.Counters.At(h.Evidence); ok {
		text(faint, "counted", fmt.Sprintf("%d packets, %d bytes", n.Packets, n.Bytes))
	}
	if h.Probability < 1 {
		text(plain, "share", fmt.Sprintf("%s of what gets here, %s of all", render.Percent(h.Probability), render.Percent(h.Cumulative)))
	}
}

func position(h *report.Hop) string {
	if h.Rule == 0 {
		return ""
	}
	return fmt.Sprintf("rule %d,", h.Rule)
}

// ofBackend says what a backend rests on: its share beside the one asked for and the one counted, and its rules.
func (s *pathScreen) ofBackend(m *Model, r *pathRow, text func(t tone, label, text string)) {
	b := r.backend
	share := render.Percent(b.Probability)
	if b.Intended != nil {
		share += ", asked for " + render.Percent(*b.Intended)
	}
	if all, own := s.counted(m, r); all > 0 {
		share += fmt.Sprintf(", counted %s of %d connections of all frontends since its rules were written", render.Percent(float64(own)/float64(all)), all)
	}
	text(plain, "share", share)
	who := strings.TrimSpace(b.Pod)
	if b.Node != "" {
		who += " on " + b.Node
	}
	if b.Ready != "" {
		who += ", " + b.Ready
	}
	text(plain, "endpoint", strings.TrimLeft(who, " ,"))
	for i := range b.Hops {
		h := &b.Hops[i]
		text(plain, h.Kind, h.Text+"  "+render.Place(h.Evidence))
	}
}

// counted is how many connections the rules of all backends of a path counted, and those of one of them. Rules that other
// frontends share count theirs too.
func (s *pathScreen) counted(m *Model, r *pathRow) (all, own uint64) {
	for i := range r.path.Backends {
		b := &r.path.Backends[i]
		h := translating(b)
		if h == nil {
			continue
		}
		n, ok := m.moment.Counters.At(h.Evidence)
		if !ok {
			return 0, 0
		}
		all += n.Packets
		if b == r.backend {
			own = n.Packets
		}
	}
	return all, own
}
