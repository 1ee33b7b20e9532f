package tui

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/charmbracelet/bubbles/textinput"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
)

// Scope is what a plan is about; empty: all that is found on the node.
type Scope struct {
	// Namespace and Service name a Service, Finding is the id of a finding.
	Namespace, Service, Finding string
}

// Repair is how plans are made and done; the command line hands it in.
type Repair struct {
	// Plan says what would mend what was found.
	Plan func(r *explain.Reading, about Scope) *report.RepairPlan
	// Apply does the steps of a plan but those that need a consent, and tells what it is about to do; nil where nothing can
	// be written, and Because says why.
	Apply   func(ctx context.Context, p *report.RepairPlan, about Scope, say func(string)) (*report.RepairRun, error)
	Because string
}

// repairScreen is a plan, and what became of it once it was done.
type repairScreen struct {
	text
	about Scope
	// of is the moment that the plan is of; later ones change nothing here: what is applied is what was read.
	of   *Moment
	plan *report.RepairPlan
	run  *report.RepairRun
	// said is what was told while the steps are done; doing is true for that time.
	said  []string
	doing bool
	// word is typed before anything is written; nil: nobody was asked.
	word *textinput.Model
	// drawn is the width that the lines were made for.
	drawn int
}

// confirmation is what has to be typed before anything is written.
const confirmation = "apply"

type (
	planMsg struct {
		to   *repairScreen
		plan *report.RepairPlan
	}
	doingMsg struct {
		to   *repairScreen
		text string
		next tea.Cmd
	}
	ranMsg struct {
		to  *repairScreen
		run *report.RepairRun
		err error
	}
)

// newRepair plans for what is under the cursor, or for the node.
func newRepair(m *Model) *repairScreen {
	s := &repairScreen{}
	switch top := m.top().(type) {
	case *findings:
		if r := top.row(); r != nil && r.unknown == nil {
			s.about.Finding = r.ID
			if r.Object.Kind == "Service" {
				s.about = Scope{r.Object.Namespace, r.Object.Name, r.ID}
			}
		}
	case *services:
		if top.cursor < len(top.shown) {
			s.about = Scope{Namespace: top.shown[top.cursor].Namespace, Service: top.shown[top.cursor].Name}
		}
	case *pathScreen:
		s.about = Scope{Namespace: top.ask.Namespace, Service: top.ask.Service}
	}
	return s
}

// planRepair shows a plan over what is seen.
func (m *Model) planRepair() tea.Cmd {
	switch {
	case m.feed.Repair == nil:
		m.say(note, "there are no plans of this")
		return nil
	case m.moment == nil:
		m.say(note, "not yet: the node is being read")
		return nil
	}
	if _, already := m.top().(*repairScreen); already {
		return nil
	}
	return m.push(newRepair(m))
}

// words are those of the command that prints the plan.
func (a Scope) words() []string {
	out := []string{"repair"}
	if a.Service != "" {
		out = append(out, "svc/"+a.Service, "-n", a.Namespace)
	} else if a.Finding == "" {
		out = append(out, "-A")
	}
	if a.Finding != "" {
		out = append(out, "--finding", a.Finding)
	}
	return out
}

func (s *repairScreen) title(*Model) string {
	switch {
	case s.about.Service != "":
		return "repair " + s.about.Namespace + "/" + s.about.Service
	case s.about.Finding != "":
		return "repair " + s.about.Finding
	}
	return "repair"
}

func (s *repairScreen) keys(m *Model) []binding {
	return append([]binding{m.keys.apply}, s.text.keys(m)...)
}

func (s *repairScreen) document(*Model) any {
	switch {
	case s.run != nil:
		return s.run
	case s.plan != nil:
		return s.plan
	}
	return nil
}

func (s *repairScreen) types() bool { return s.word != nil }

func (s *repairScreen) prompt(*Model) row {
	switch {
	case s.word != nil:
		return row{}.add(warn, fmt.Sprintf("type %s and enter to do the steps, esc to leave it: ", confirmation)).add(plain, s.word.Value()).add(accent, "_")
	case s.doing && len(s.said) > 0:
		return row{}.add(note, s.said[len(s.said)-1])
	}
	return nil
}

// changed plans, once: what is looked at does not move.
func (s *repairScreen) changed(m *Model) tea.Cmd {
	if s.of != nil || m.moment == nil {
		return nil
	}
	s.of = m.moment
	s.command = m.command(s.about.words()...)
	of, about, plan := s.of, s.about, m.feed.Repair.Plan
	return func() tea.Msg {
		of.lock.Lock()
		defer of.lock.Unlock()
		return planMsg{s, plan(of.Reading, about)}
	}
}

var _ answered = (*repairScreen)(nil)

func (s *repairScreen) answer(m *Model, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case planMsg:
		if msg.to == s {
			s.plan, s.drawn = msg.plan, 0
		}
	case doingMsg:
		if msg.to == s {
			s.said, s.drawn = append(s.said, msg.text), 0
			return msg.next
		}
	case ranMsg:
		if msg.to == s {
			return s.ran(m, msg)
		}
	}
	return nil
}

// ran shows what became of the steps, and has the node read again.
func (s *repairScreen) ran(m *Model, msg ranMsg) tea.Cmd {
	s.doing, s.run, s.drawn, s.top = false, msg.run, 0, 0
	if msg.err != nil {
		m.say(bad, msg.err.Error())
	}
	if m.reading.since.IsZero() && m.feed.Live {
		return m.read()
	}
	return nil
}

func (s *repairScreen) key(m *Model, msg tea.KeyMsg) (tea.Cmd, bool) {
	switch {
	case s.word != nil:
		return s.confirm(m, msg), true
	case m.keys.apply.matches(msg):
		s.ask(m)
		return nil, true
	}
	return s.text.key(m, msg)
}

// ask asks for the word that lets steps be done, or says why nobody can.
func (s *repairScreen) ask(m *Model) {
	switch {
	case s.plan == nil || s.doing:
		m.say(note, "not yet")
	case s.run != nil:
		m.say(note, "this plan is done: go back, and plan again")
	case m.feed.Repair.Apply == nil:
		m.say(warn, "nothing can be written: "+m.feed.Repair.Because)
	case len(s.plan.Steps) == 0:
		m.say(note, "there is no step to do")
	default:
		in := newInput("")
		in.Focus()
		s.word = &in
	}
}

func (s *repairScreen) confirm(m *Model, msg tea.KeyMsg) tea.Cmd {
	switch msg.Type {
	case tea.KeyEsc:
		s.word = nil
		return nil
	case tea.KeyEnter:
		typed := s.word.Value()
		s.word = nil
		if typed != confirmation {
			m.say(note, "nothing was written")
			return nil
		}
		return s.do(m)
	}
	in, cmd := s.word.Update(msg)
	s.word = &in
	return cmd
}

// do does the steps outside of the loop. Nothing that is told on the way is lost: it is what is written to the node.
func (s *repairScreen) do(m *Model) tea.Cmd {
	s.doing, s.drawn = true, 0
	told := make(chan string, 16)
	var next tea.Cmd
	next = func() tea.Msg {
		text, ok := <-told
		if !ok {
			return nil
		}
		return doingMsg{s, text, next}
	}
	ctx, plan, about, feed := m.ctx, s.plan, s.about, m.feed
	run := func() tea.Msg {
		defer close(told)
		// The node is read in there, and nobody else reads it in the middle of the steps.
		feed.one.Lock()
		defer feed.one.Unlock()
		r, err := feed.Repair.Apply(ctx, plan, about, func(text string) {
			select {
			case told <- text:
			case <-ctx.Done():
			}
		})
		return ranMsg{s, r, err}
	}
	return tea.Batch(run, next)
}

func (s *repairScreen) draw(m *Model, width, height int) []string {
	if s.drawn != width {
		lines := s.lines(m.theme, width)
		s.n, s.drawn = len(lines), width
		s.line = func(i int) row { return row{}.add(plain, lines[i]) }
	}
	return s.text.draw(m, width, height)
}

// lines are the documents as they are printed, what became of the plan first.
func (s *repairScreen) lines(t *theme, width int) []string {
	var out []string
	o := render.Options{Width: width, ASCII: t.look.ASCII}
	add := func(show func(w *bytes.Buffer) error) {
		var text bytes.Buffer
		if err := show(&text); err != nil {
			out = append(out, err.Error())
			return
		}
		out = append(out, strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")...)
		out = append(out, "")
	}
	if s.run != nil {
		add(func(w *bytes.Buffer) error { return render.RepairRun(w, s.run, o) })
	}
	for _, l := range s.said {
		out = append(out, render.Clean(l))
	}
	switch {
	case s.run != nil || s.doing:
	case s.plan == nil:
		out = append(out, "planning "+t.show("…"))
	default:
		add(func(w *bytes.Buffer) error { return render.RepairPlan(w, s.plan, o) })
	}
	return out
}
