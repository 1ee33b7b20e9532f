// Package tui is the interactive view: screens over what explain says of a node. It reads nothing itself; the command line
// hands in where nodes come from (Feed), and Run shows it on a terminal.
package tui

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/svcnet/svcnet/explain/report"
)

// The smallest terminal that everything fits into.
const (
	minWidth  = 60
	minHeight = 15
)

// screen is one thing that is looked at. It draws itself into a box, and gets the keys that mean nothing everywhere.
type screen interface {
	// title is what the tab, or the line above what lies over a tab, calls it.
	title(m *Model) string
	// keys are those that it understands beside those of everywhere, the most useful first.
	keys(m *Model) []binding
	// changed is told that there is another moment, or other nodes; the cursor stays on what it was on.
	changed(m *Model) tea.Cmd
	// key tells whether the key meant something.
	key(m *Model, msg tea.KeyMsg) (tea.Cmd, bool)
	// mouse gets clicks and the wheel; y counts from the first line drawn.
	mouse(m *Model, msg tea.MouseMsg, y int) tea.Cmd
	// draw returns at most height lines that are at most width wide.
	draw(m *Model, width, height int) []string
	// document is what is shown, as it is printed elsewhere; nil for what is no document.
	document(m *Model) any
}

// typing is a screen that somebody types into: it gets every key but ctrl-c.
type typing interface{ types() bool }

// Model is the program's state. Screens lie in tabs, and over these what was opened from them.
type Model struct {
	feed  *Feed
	theme *theme
	keys  *keyMap
	ctx   context.Context

	width, height int
	tabs          []screen
	tab           int
	over          []screen

	// moment is what is shown, nil before the first reading; before is what is kept of the one before it, for rates; marked is what Diff
	// compares with.
	moment, before, marked *Moment
	// early are the service ports before they are checked, shown until there is a moment.
	early *report.NodeServices
	// fleet is the comparison of several nodes, nil where there is one or it is not there yet.
	fleet *report.Reports
	// node is the one that is shown; empty: the only one.
	node string

	reading reading
	paused  bool
	// said is the message in the last line, and until when it stands.
	said      string
	saidTone  tone
	saidUntil time.Time
	// quitting is true once the program ends.
	quitting bool
	// tick is tea.Tick, and in tests a clock that stands.
	tick func(time.Duration, func(time.Time) tea.Msg) tea.Cmd
	// out takes what is written beside the screens: text for the clipboard.
	out func(string)
}

// reading is how it stands with reading the node.
type reading struct {
	// on since when; zero: it is not being read. failed is why the last one failed.
	since  time.Time
	failed error
	// turn counts readings that were asked for, so that an answer to an old question is not taken for one to a new one.
	turn int
	// done and all are how many of several nodes were read.
	done, all int
}

// New is the program over a feed. Out takes what is written to the terminal beside the screens; nil: nothing is.
func New(ctx context.Context, f *Feed, l Look, out func(string)) *Model {
	m := &Model{feed: f, theme: newTheme(l), keys: newKeyMap(), ctx: ctx, node: f.Node, out: out, tick: tea.Tick}
	m.tabs = []screen{newServices(), newFindings(), newNodes(), newStatus(), newSources(), newDiff()}
	return m
}

// Messages. Each is the answer to something that was asked outside of the loop.
type (
	// readMsg is a moment of a node, or why there is none.
	readMsg struct {
		turn   int
		moment *Moment
		err    error
		// took is the time from asking to answering, next how long to wait before the node is read again.
		took, next time.Duration
	}
	// earlyMsg are the service ports of a node that is being checked.
	earlyMsg struct {
		turn     int
		services *report.NodeServices
	}
	// dueMsg asks for a reading, unless somebody else did since.
	dueMsg struct{ turn int }
	// clockMsg comes each second, for what shows ages.
	clockMsg struct{}
	// saidMsg is something to say in the last line.
	saidMsg struct {
		text string
		tone tone
	}
)

// Init begins to read.
func (m *Model) Init() tea.Cmd {
	cmds := []tea.Cmd{m.clock()}
	if m.feed.Nodes != nil {
		cmds = append(cmds, m.readNodes())
	} else {
		cmds = append(cmds, m.read())
	}
	return tea.Batch(cmds...)
}

func (m *Model) clock() tea.Cmd {
	return m.tick(time.Second, func(time.Time) tea.Msg { return clockMsg{} })
}

// Update is told what happened.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		return m, nil
	case tea.KeyMsg:
		return m, m.typed(msg)
	case tea.MouseMsg:
		return m, m.mouse(msg)
	case clockMsg:
		if m.said != "" && m.feed.Now().After(m.saidUntil) {
			m.said = ""
		}
		return m, m.clock()
	case earlyMsg:
		if msg.turn == m.reading.turn && m.moment == nil {
			m.early = msg.services
			return m, m.changed()
		}
		return m, nil
	case dueMsg:
		if msg.turn == m.reading.turn && m.reading.since.IsZero() && !m.paused {
			return m, m.read()
		}
		return m, nil
	case readMsg:
		return m, m.read1(msg)
	case saidMsg:
		m.say(msg.tone, msg.text)
		return m, nil
	case jsonMsg:
		return m, m.push(newJSON(msg.lines, msg.command))
	case nodesMsg:
		return m, m.nodesRead(msg)
	case progressMsg:
		if msg.turn == m.reading.turn {
			m.reading.done, m.reading.all = msg.done, msg.all
			return m, msg.next
		}
		return m, nil
	}
	// What else there is answers a question of a screen.
	var cmds []tea.Cmd
	for _, s := range slices.Concat(m.tabs, m.over) {
		if a, ok := s.(answered); ok {
			cmds = append(cmds, a.answer(m, msg))
		}
	}
	return m, tea.Batch(cmds...)
}

// answered is a screen that asks something outside of the loop; it takes its own answers and leaves others alone.
type answered interface {
	answer(m *Model, msg tea.Msg) tea.Cmd
}

// read reads the node that is shown, outside of the loop.
func (m *Model) read() tea.Cmd {
	m.reading.turn++
	m.reading.since = m.feed.Now()
	turn, node, before, f, ctx := m.reading.turn, m.node, m.moment, m.feed, m.ctx
	if before != nil && node != "" && before.Node != node {
		before = nil
	}
	// The first screen does not wait for the checks.
	early := make(chan *report.NodeServices, 1)
	planned := func(s *report.NodeServices) {
		select {
		case early <- s:
		default:
		}
	}
	read := func() tea.Msg {
		defer close(early)
		began, spent := f.Now(), f.spent()
		moment, err := f.look(ctx, node, before, planned)
		took := f.Now().Sub(began)
		// Collecting and analysing may take a fifth of one CPU, or of the time where CPU time is not known.
		next := max(f.Interval, 4*min(f.spent()-spent, took))
		return readMsg{turn, moment, err, took, next}
	}
	if before != nil {
		return read
	}
	return tea.Batch(read, func() tea.Msg {
		if s, ok := <-early; ok {
			return earlyMsg{turn, s}
		}
		return nil
	})
}

func (f *Feed) spent() time.Duration {
	if f.CPU == nil {
		return time.Duration(f.Now().UnixNano())
	}
	return f.CPU()
}

// look reads and analyses a node. The first reading of a live node that shows differences is no answer yet: they may be
// kube-proxy at work, and a second look tells.
func (f *Feed) look(ctx context.Context, node string, before *Moment, planned func(*report.NodeServices)) (*Moment, error) {
	f.one.Lock()
	defer f.one.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := f.Read(ctx, node)
		if err != nil {
			return nil, err
		}
		first, o := before == nil, f.Audit
		if first {
			o.Planned = planned
		}
		moment, err := newMoment(s, f.Now(), before, o, f.Live)
		if err != nil || !first || !f.Live || !moment.maySettle() {
			return moment, err
		}
		before = moment
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(f.Settle):
		}
	}
}

// read1 takes what was read.
func (m *Model) read1(msg readMsg) tea.Cmd {
	if msg.turn != m.reading.turn {
		return nil
	}
	before := m.reading.failed
	m.reading.since, m.reading.failed = time.Time{}, msg.err
	var cmds []tea.Cmd
	if msg.err != nil {
		if before == nil || before.Error() != msg.err.Error() {
			m.say(bad, "✗ "+msg.err.Error())
		}
		cmds = append(cmds, m.changed())
	} else {
		if m.moment == nil || m.moment.Node != msg.moment.Node {
			m.before, m.marked = nil, msg.moment
		} else {
			m.before = m.moment.counted()
		}
		m.moment, m.early = msg.moment, nil
		m.moment.Took = msg.took
		cmds = append(cmds, m.changed())
	}
	if m.feed.Live {
		turn := msg.turn
		cmds = append(cmds, m.tick(max(msg.next, m.feed.Interval), func(time.Time) tea.Msg { return dueMsg{turn} }))
	}
	return tea.Batch(cmds...)
}

// changed tells every screen.
func (m *Model) changed() tea.Cmd {
	var cmds []tea.Cmd
	for _, s := range slices.Concat(m.tabs, m.over) {
		cmds = append(cmds, s.changed(m))
	}
	return tea.Batch(cmds...)
}

// top is the screen that is seen.
func (m *Model) top() screen {
	if n := len(m.over); n > 0 {
		return m.over[n-1]
	}
	return m.tabs[m.tab]
}

// push puts a screen over what is seen; pop takes it away again.
func (m *Model) push(s screen) tea.Cmd {
	m.over = append(m.over, s)
	return s.changed(m)
}

func (m *Model) pop() {
	if n := len(m.over); n > 0 {
		m.over = m.over[:n-1]
	}
}

// goTo shows a tab.
func (m *Model) goTo(tab int) {
	m.tab, m.over = (tab+len(m.tabs))%len(m.tabs), nil
}

// say puts something into the last line for a while.
func (m *Model) say(t tone, text string) {
	m.said, m.saidTone, m.saidUntil = text, t, m.feed.Now().Add(8*time.Second)
}

// typed takes keys one by one: what came in one piece, because somebody types fast or far away, is one message, and esc with a
// letter close behind it looks like alt, which no key here has.
func (m *Model) typed(msg tea.KeyMsg) tea.Cmd {
	if msg.Type != tea.KeyRunes || len(msg.Runes) < 2 && !msg.Alt || msg.Paste {
		return m.key(msg)
	}
	var cmds []tea.Cmd
	if msg.Alt {
		cmds = append(cmds, m.key(tea.KeyMsg{Type: tea.KeyEsc}))
	}
	for _, r := range msg.Runes {
		cmds = append(cmds, m.key(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}}))
	}
	return tea.Batch(cmds...)
}

func (m *Model) key(msg tea.KeyMsg) tea.Cmd {
	k := m.keys
	top := m.top()
	m.said = "" // it was there to be read until now
	switch {
	case msg.String() == "ctrl+c":
		return m.end()
	case msg.String() == "ctrl+z":
		return tea.Suspend
	}
	if t, ok := top.(typing); ok && t.types() {
		cmd, _ := top.key(m, msg)
		return cmd
	}
	if cmd, ok := top.key(m, msg); ok {
		return cmd
	}
	switch {
	case k.quit.matches(msg):
		if len(m.over) > 0 {
			m.pop()
			return nil
		}
		return m.end()
	case k.back.matches(msg):
		m.pop()
	case k.help.matches(msg):
		return m.push(newHelp(top))
	case k.command.matches(msg):
		return m.push(newCommand())
	case k.next.matches(msg):
		m.goTo(m.tab + 1)
	case k.previous.matches(msg):
		m.goTo(m.tab - 1)
	case k.packet.matches(msg):
		return m.push(newPacket(m))
	case k.repair.matches(msg):
		return m.planRepair()
	case k.json.matches(msg):
		return m.showJSON(top.document(m))
	case k.copy.matches(msg):
		return m.copy(m.printing(top.document(m)))
	case k.save.matches(msg):
		return m.save()
	case k.pause.matches(msg):
		return m.pause()
	case k.refresh.matches(msg):
		return m.again()
	case k.mark.matches(msg):
		if m.moment != nil {
			m.marked = m.moment
			m.say(good, "marked: the Diff screen (6) shows what changes from now on")
			return m.changed()
		}
	default:
		for i, b := range []binding{k.services, k.findings, k.nodes, k.status, k.sources, k.diff} {
			if b.matches(msg) {
				m.goTo(i)
			}
		}
	}
	return nil
}

func (m *Model) end() tea.Cmd {
	m.quitting = true
	return tea.Quit
}

// pause stops reading, or goes on.
func (m *Model) pause() tea.Cmd {
	if !m.feed.Live {
		m.say(note, "these are files: there is nothing to read again")
		return nil
	}
	m.paused = !m.paused
	if m.paused {
		m.say(note, "paused: what is shown stays (space goes on)")
		return nil
	}
	m.said = ""
	return m.again()
}

// again reads now.
func (m *Model) again() tea.Cmd {
	switch {
	case !m.feed.Live:
		m.say(note, "these are files: there is nothing to read again")
		return nil
	case !m.reading.since.IsZero():
		return nil
	case m.feed.Nodes != nil && m.moment == nil && m.node == "":
		return m.readNodes()
	}
	return m.read()
}

// save writes a bundle of what is shown.
func (m *Model) save() tea.Cmd {
	if m.moment == nil || m.feed.Save == nil {
		m.say(note, "there is nothing to save yet")
		return nil
	}
	s, save, ctx := m.moment.Snapshot, m.feed.Save, m.ctx
	m.say(note, "saving …")
	return func() tea.Msg {
		name, err := save(ctx, s)
		if err != nil {
			return saidMsg{err.Error(), bad}
		}
		return saidMsg{"saved here: " + name, good}
	}
}

func (m *Model) mouse(msg tea.MouseMsg) tea.Cmd {
	if msg.Y == 1 && len(m.over) == 0 && msg.Button == tea.MouseButtonLeft && msg.Action == tea.MouseActionPress {
		x := 0
		for i := range m.tabs {
			x += len([]rune(m.tabName(i))) + tabGap
			if msg.X < x {
				m.goTo(i)
				return nil
			}
		}
		return nil
	}
	return m.top().mouse(m, msg, msg.Y-headLines)
}

// View draws everything.
func (m *Model) View() string {
	if m.quitting || m.width == 0 {
		return ""
	}
	if m.width < minWidth || m.height < minHeight {
		return m.theme.show(fmt.Sprintf("needs %d×%d", minWidth, minHeight))
	}
	body := m.height - headLines - 1
	lines := make([]string, 0, m.height)
	lines = append(lines, m.theme.line(m.header(), m.width, false), m.theme.line(m.tabLine(), m.width, false))
	drawn := m.top().draw(m, m.width, body)
	lines = append(lines, drawn[:min(len(drawn), body)]...)
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, m.theme.line(m.footer(), m.width, false))
	return strings.Join(lines, "\n")
}
