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

// nodes is every node that was read: those that could not be, then kinds of nodes that are alike, the odd ones first.
type nodes struct {
	list
	filter filter
	rows   []nodeRow
	fleet  *report.Reports
	// turned are the kinds, by their item, that are not folded or unfolded as they are at first.
	turned map[string]bool
	at     nodeKey
	// reading is true while all nodes are read; then is the node to show when they are.
	reading bool
	then    string
	// failed is why the last reading of all nodes failed.
	failed error
}

// nodeRow is a line: a node, a kind of several, or what tells a kind from the others.
type nodeRow struct {
	nodeKey
	indent int
	mark   span
	name   string
	text   string
	// kind is there for kinds of several nodes, which fold.
	kind *report.Kindred
	open bool
}

// nodeKey tells rows apart.
type nodeKey struct {
	// node is the one that the row opens; empty for one that could not be read.
	node string
	what nodeWhat
	// number counts what differs.
	number int
}

type nodeWhat uint8

const (
	aNode nodeWhat = iota
	aKind
	difference
	unread
)

// nodesTab is where the screen lies.
const nodesTab = 2

func newNodes() *nodes { return &nodes{filter: newFilter(), turned: make(map[string]bool)} }

// Messages of reading all nodes.
type (
	// nodesMsg are all nodes, or why there are none.
	nodesMsg struct {
		turn  int
		fleet *report.Reports
		err   error
	}
	// progressMsg is how many nodes were read so far; next waits for the one after it.
	progressMsg struct {
		turn, done, all int
		next            tea.Cmd
	}
)

// nodesScreen is the screen of nodes, which knows whether they are being read.
func (m *Model) nodesScreen() *nodes { return m.tabs[nodesTab].(*nodes) }

// readNodes reads all nodes, outside of the loop.
func (m *Model) readNodes() tea.Cmd {
	m.reading.turn++
	m.reading.since, m.reading.done, m.reading.all = m.feed.Now(), 0, 0
	m.nodesScreen().reading = true
	turn, f, ctx := m.reading.turn, m.feed, m.ctx
	told := make(chan progressMsg, 1)
	next := func() tea.Msg {
		p, ok := <-told
		if !ok {
			return nil
		}
		return p
	}
	read := func() tea.Msg {
		defer close(told)
		fleet, err := f.Nodes(ctx, func(done, all int) {
			// Nobody has to see every number, but the last one: what was not seen yet makes room.
			select {
			case <-told:
			default:
			}
			select {
			case told <- progressMsg{turn, done, all, next}:
			default:
			}
		})
		return nodesMsg{turn, fleet, err}
	}
	return tea.Batch(read, next)
}

// nodesRead takes all nodes. The other screens show the first odd one, unless another was chosen.
func (m *Model) nodesRead(msg nodesMsg) tea.Cmd {
	s := m.nodesScreen()
	s.reading, s.failed = false, msg.err
	if msg.turn != m.reading.turn {
		return nil
	}
	m.reading.since, m.reading.failed = time.Time{}, msg.err
	m.reading.done, m.reading.all = 0, 0
	if msg.err == nil {
		m.fleet = msg.fleet
	}
	if m.moment == nil && m.node == "" && s.then == "" {
		m.goTo(nodesTab)
		if m.fleet != nil && len(m.fleet.Kinds) > 0 {
			m.node = m.fleet.Kinds[0].Item
		}
	}
	if name := s.then; name != "" {
		s.then = ""
		return tea.Batch(m.changed(), m.showNode(name))
	}
	// Reading the node that is shown stopped while all were read.
	if m.node == "" && m.moment == nil || m.paused && m.moment != nil {
		return m.changed()
	}
	return tea.Batch(m.changed(), m.read())
}

// showNode shows a node on all screens.
func (m *Model) showNode(name string) tea.Cmd {
	s := m.nodesScreen()
	if s.reading {
		s.then = name
		m.say(note, name+" is shown once all nodes are read")
		return nil
	}
	m.goTo(0)
	if m.moment != nil && m.moment.Node == name {
		return nil
	}
	m.node, m.moment, m.before, m.early = name, nil, nil, nil
	m.reading.failed = nil
	return tea.Batch(m.changed(), m.read())
}

func (s *nodes) title(m *Model) string {
	if m.fleet == nil {
		return "Nodes"
	}
	return fmt.Sprintf("Nodes (%d)", len(m.fleet.Items)+len(m.fleet.Unread))
}

func (s *nodes) keys(m *Model) []binding {
	if m.feed.Nodes == nil {
		return nil
	}
	return []binding{meaning(m.keys.open, "show the node"), m.keys.filter, meaning(m.keys.refresh, "read all again"), meaning(m.keys.pause, "fold")}
}

func (s *nodes) document(m *Model) any {
	if m.fleet == nil {
		return nil
	}
	return m.fleet
}

func (s *nodes) types() bool { return s.filter.on }

func (s *nodes) prompt(*Model) row { return s.filter.prompt() }

func (s *nodes) changed(m *Model) tea.Cmd {
	if s.fleet != m.fleet {
		s.fleet = m.fleet
		s.arrange()
	}
	return nil
}

// judgeReport is the mark of an audit.
func judgeReport(s report.AuditSummary) span {
	severity := ""
	switch {
	case s.Critical+s.Error > 0:
		severity = "error"
	case s.Warning > 0:
		severity = "warning"
	case s.Unknown > 0:
		return span{"?", note}
	}
	j := render.JudgeSeverity(severity)
	return span{j.Sign, toneOf(j.Level)}
}

// arrange makes the rows anew; the cursor stays on what it was on.
func (s *nodes) arrange() {
	s.rows = nil
	if s.fleet != nil {
		s.gather()
	}
	s.resize(len(s.rows), s.height)
	if i := slices.IndexFunc(s.rows, func(r nodeRow) bool { return r.nodeKey == s.at }); i >= 0 {
		s.to(i)
	} else if s.filter.on {
		// While somebody types, the row is not forgotten: it may come back.
		s.to(0)
		return
	}
	s.remember()
}

func (s *nodes) gather() {
	add := func(r nodeRow) { s.rows = append(s.rows, r) }
	has := func(text string) bool {
		text = strings.ToLower(text)
		return passes(s.filter.terms, func(column, word string) bool {
			return (column == "" || column == "node") && strings.Contains(text, word)
		})
	}
	for i, u := range s.fleet.Unread {
		if has(u.Node + " not read " + u.Error) {
			add(nodeRow{nodeKey: nodeKey{"", unread, i}, mark: span{"✗", bad}, name: u.Node, text: "not read: " + u.Error})
		}
	}
	items := make(map[string]*report.Report, len(s.fleet.Items))
	for i := range s.fleet.Items {
		items[s.fleet.Items[i].Node] = &s.fleet.Items[i]
	}
	for i := range s.fleet.Kinds {
		k := &s.fleet.Kinds[i]
		about := " " + k.Text + " " + strings.Join(k.Differs, " ")
		named := k.Nodes
		if len(s.filter.terms) > 0 {
			named = slices.DeleteFunc(slices.Clone(named), func(n string) bool { return !has(n + about) })
		}
		if len(named) == 0 {
			continue
		}
		mark := span{" ", plain}
		if r := items[k.Item]; r != nil {
			mark = judgeReport(r.Summary)
		}
		differs := func(indent int) {
			for n, d := range k.Differs {
				add(nodeRow{nodeKey: nodeKey{k.Item, difference, n}, indent: indent, mark: span{" ", plain}, text: "differs: " + d})
			}
		}
		if len(k.Nodes) == 1 {
			add(nodeRow{nodeKey: nodeKey{k.Item, aNode, 0}, mark: mark, name: k.Item, text: k.Text})
			differs(1)
			continue
		}
		// Odd nodes are what one came for; the usual ones only stand for how it ought to be.
		open := (k.Odd && len(k.Nodes) <= foldedFrom) != s.turned[k.Item]
		name := fmt.Sprintf("%d nodes alike", len(k.Nodes))
		text := k.Text
		if !open {
			name += ": " + someNodes(named)
		}
		add(nodeRow{nodeKey: nodeKey{k.Item, aKind, 0}, mark: mark, name: name, text: text, kind: k, open: open})
		differs(1)
		if open {
			for _, n := range named {
				text := ""
				if r := items[n]; r != nil {
					text = render.Proxy(r.Proxy)
				}
				add(nodeRow{nodeKey: nodeKey{n, aNode, 0}, indent: 1, mark: mark, name: n, text: text})
			}
		}
	}
}

// foldedFrom is how many odd nodes of one kind are shown without asking.
const foldedFrom = 10

func (s *nodes) remember() {
	if s.cursor < len(s.rows) {
		s.at = s.rows[s.cursor].nodeKey
	}
}

func (s *nodes) key(m *Model, msg tea.KeyMsg) (tea.Cmd, bool) {
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
	var r nodeRow
	if s.cursor < len(s.rows) {
		r = s.rows[s.cursor]
	}
	switch {
	case m.feed.Nodes == nil:
		return nil, false
	case k.refresh.matches(msg):
		switch {
		case !m.feed.Live:
			m.say(note, "these are files: there is nothing to read again")
		case s.reading || !m.reading.since.IsZero():
			m.say(note, "being read already")
		default:
			return m.readNodes(), true
		}
	case k.filter.matches(msg) && m.fleet != nil:
		return s.filter.open(), true
	case k.back.matches(msg) && s.filter.text() != "":
		s.filter.set("")
		s.arrange()
	case k.open.matches(msg):
		return s.open(m), true
	case k.pause.matches(msg) && r.kind != nil:
		s.fold(r.kind)
	case k.copy.matches(msg) && r.node != "":
		return m.copy(m.command("audit", "--node", r.node)), true
	default:
		return nil, false
	}
	return nil, true
}

func (s *nodes) fold(k *report.Kindred) {
	s.turned[k.Item] = !s.turned[k.Item]
	s.arrange()
}

// open shows the node under the cursor, or the nodes of a kind.
func (s *nodes) open(m *Model) tea.Cmd {
	if s.cursor >= len(s.rows) {
		return nil
	}
	switch r := s.rows[s.cursor]; {
	case r.kind != nil:
		s.fold(r.kind)
	case r.what == unread:
		m.say(note, r.name+" could not be read: "+s.fleet.Unread[r.number].Error)
	default:
		return m.showNode(r.node)
	}
	return nil
}

func (s *nodes) mouse(m *Model, msg tea.MouseMsg, y int) tea.Cmd {
	if s.list.mouse(msg, y-nodesHead) {
		return s.open(m)
	}
	s.remember()
	return nil
}

// nodesHead is how many lines are above the rows.
const nodesHead = 2

func (s *nodes) draw(m *Model, width, height int) []string {
	if m.fleet == nil {
		p := newProse(m.theme, width-2)
		s.without(m, p)
		out := make([]string, 0, height)
		for _, r := range p.rows[:min(len(p.rows), height)] {
			out = append(out, m.theme.line(append(row{}.gap(2), r...), width, false))
		}
		return out
	}
	// What the row under the cursor has no room for stands below.
	const below = 4
	s.resize(len(s.rows), height-nodesHead-below)
	summary := row{}.gap(1)
	summary = append(summary, judgeReport(m.fleet.Summary)).gap(1)
	switch {
	case s.reading:
		summary = summary.add(note, fmt.Sprintf("reading all nodes again: %d of %d … ", m.reading.done, m.reading.all))
	case s.failed != nil:
		summary = summary.add(bad, "not read again: "+s.failed.Error()+" ")
	}
	out := []string{m.theme.line(summary.add(strong, m.fleet.Summary.Text), width, false), ""}
	if len(s.rows) == 0 {
		return append(out, m.theme.line(row{}.gap(2).add(note, "no node is left of the filter (esc drops it)"), width, false))
	}
	name := 0
	for i := range s.rows {
		if s.rows[i].kind == nil {
			name = max(name, len([]rune(s.rows[i].name)))
		}
	}
	name = min(name, width/3)
	from, to := s.visible()
	for i := from; i < to; i++ {
		out = append(out, m.theme.line(s.rows[i].line(m, name, i == s.cursor), width, i == s.cursor))
	}
	for len(out) < height-below {
		out = append(out, "")
	}
	out = append(out, m.theme.line(row{}.add(faint, strings.Repeat("─", width)), width, false))
	p := newProse(m.theme, width)
	r := &s.rows[s.cursor]
	p.flow(append(row{r.mark}, span{" ", plain}), 2, append(p.words(strong, r.name), p.words(plain, r.text)...))
	return append(out, m.fitting(p.rows, width, below-1)...)
}

// without says why there are no nodes to compare.
func (s *nodes) without(m *Model, p *prose) {
	p.blank()
	switch {
	case m.feed.Nodes == nil:
		name := "one node"
		if m.moment != nil {
			name = cmp.Or(m.moment.Node, "one node that the evidence does not name")
		}
		p.text(plain, "This is "+name+". With "+m.feed.Name+" tui --all-nodes every node of the cluster is read, and those that differ from the others come first.")
	case s.failed != nil:
		p.text(bad, "✗ "+s.failed.Error())
	case m.reading.all > 0:
		p.text(note, fmt.Sprintf("read %d of %d nodes …", m.reading.done, m.reading.all))
	default:
		p.text(note, "reading all nodes …")
	}
}

// line draws the row.
func (r *nodeRow) line(m *Model, name int, cursor bool) row {
	out := begun(cursor).gap(3 * r.indent)
	switch {
	case r.kind != nil:
		fold := "▸"
		if r.open {
			fold = "▾"
		}
		return append(out, r.mark).gap(1).add(faint, fold).gap(1).add(strong, r.name).gap(2).add(faint, r.text)
	case r.what == difference:
		return out.add(faint, r.text)
	}
	out = append(out, r.mark).gap(1).cell(strong, r.name, name)
	if m.moment != nil && m.moment.Node == r.node && r.node != "" {
		out = out.gap(1).add(accent, "(shown)")
	}
	t := plain
	if r.what == unread {
		t = bad
	}
	return out.gap(2).add(t, r.text)
}
