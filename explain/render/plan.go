package render

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// RepairPlan writes a plan: what it comes to, then each step with why, what it changes and the command, and what is left.
func RepairPlan(w io.Writer, r *report.RepairPlan, o Options) error {
	p := newPage(w, o)
	m := markWarn
	if len(r.Findings) == 0 {
		m = markOK
	}
	p.write("", "", 2, line{}.cell(m.tone, m.sign).prose(strong, r.Summary.Text).cell(noTone, "("+proxyName(r.Proxy)+")"))
	for i := range r.Steps {
		p.blank()
		p.step(&r.Steps[i])
	}
	p.left(r.Left)
	p.sources(r.Sources)
	return p.flush()
}

// The most lines that are shown of what a step changes, and of what takes it back. What it does is shown whole.
const (
	shownEdits = 12
	shownUndo  = 12
)

// step writes one step.
func (p *page) step(s *report.RepairStep) {
	l := line{}.cell(strong, fmt.Sprintf("%d.", s.Step)).prose(strong, s.Title)
	switch {
	case s.Kind == "advice":
		l = l.cell(warn, "not done by svcnet")
	case s.Consent != "":
		l = l.cell(warn, "with "+s.Consent)
	}
	p.write("", "", 3, l)
	const in = "   "
	p.detail(in, "why", s.Reason)
	p.detail(in, "mends", strings.Join(mends(s), ", "))
	p.edits(in, s.Edits)
	p.detail(in, "affects", s.Affects)
	p.detail(in, "risk", s.Risk)
	p.detail(in, "lasts", s.Lasts)
	if s.Kind == "advice" && len(s.Do.Command) == 0 {
		return
	}
	p.write(in, in, 0, line{}.prose(faint, "run:"))
	p.command(in, &s.Do, 0)
	switch {
	case len(s.Undo.Command) > 0:
		p.write(in, in, 0, line{}.prose(faint, "undo:"))
		p.command(in, &s.Undo, shownUndo)
	case s.Kind != "advice":
		p.detail(in, "undo", "it cannot be taken back")
	}
}

// mends are the ids of the findings that a step mends.
func mends(s *report.RepairStep) []string {
	var out []string
	for _, e := range s.Edits {
		for _, id := range e.Findings {
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// edits names what a step changes, with why where that is not why the step is done.
func (p *page) edits(in string, all []report.RepairEdit) {
	if len(all) == 0 {
		return
	}
	p.write(in, in, 0, line{}.prose(faint, "changes:"))
	for i := range all {
		e := &all[i]
		if i == shownEdits && len(all) > shownEdits+1 {
			p.write(in+"  ", in+"  ", 0, line{}.prose(noTone, fmt.Sprintf("and %d more (-o json has them all)", len(all)-i)))
			return
		}
		what := "changes"
		switch {
		case e.Absent:
			what = "makes"
		case e.Remove:
			what = "removes"
		}
		l := line{}.cell(noTone, e.Table).join(":").prose(noTone, what+" "+e.Object)
		if len(all) > 1 && e.Reason != "" {
			l = l.join(":").prose(faint, e.Reason)
		}
		p.write(in+"  ", in+"  ", 2, l)
	}
}

// command writes a command as a shell would take it: with input it begins at the edge, where it can be taken from. limit is
// how many lines of the input are shown; 0 for all.
func (p *page) command(in string, c *report.RepairCommand, limit int) {
	if in += "  "; c.Input != "" {
		in = ""
	}
	for _, l := range commandLines(c, limit) {
		p.write(in, in, 0, line{}.cell(noTone, l))
	}
}

// commandLines is a command with its input as a here-document.
func commandLines(c *report.RepairCommand, limit int) []string {
	var words []string
	for _, w := range c.Command {
		words = append(words, quoted(w))
	}
	text := strings.Join(words, " ")
	if c.Input == "" {
		return []string{text}
	}
	input := strings.Split(strings.TrimSuffix(c.Input, "\n"), "\n")
	end := "END"
	for slices.Contains(input, end) {
		end += "D"
	}
	if limit > 0 && len(input) > limit+1 {
		input = append(slices.Clone(input[:limit]), fmt.Sprintf("… and %d more lines (-o json has them all)", len(input)-limit))
	}
	out := append([]string{text + " <<'" + end + "'"}, input...)
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], "\t", "    ")
	}
	return append(out, end)
}

// quoted is a word as a shell takes it.
func quoted(w string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r)
	}
	if w != "" && strings.IndexFunc(w, func(r rune) bool { return !plain(r) }) < 0 {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// left lists the findings that no step mends, those that are left for one reason together.
func (p *page) left(all []report.RepairLeft) {
	if len(all) == 0 {
		return
	}
	p.blank()
	p.write("", "", 0, line{}.cell(strong, "Left"))
	for i := range all {
		l := &all[i]
		name := strings.TrimPrefix(l.Object.Namespace+"/"+l.Object.Name, "/")
		if l.Object.Kind == "Node" || name == "" {
			name = l.Subject
		}
		p.write("  ", "  ", 2, line{}.cell(strong, l.ID).cell(noTone, name).join(":").prose(noTone, l.Because))
		p.detail("    ", "instead", l.Instead)
	}
}

// RepairRun writes what became of a run.
func RepairRun(w io.Writer, r *report.RepairRun, o Options) error {
	p := newPage(w, o)
	p.run(r)
	p.findingsThat("Mended", r.Mended, false)
	p.findingsThat("Not mended", r.Remaining, true)
	p.findingsThat("Not there before", r.New, true)
	return p.flush()
}

// run is the summary and the steps.
func (p *page) run(r *report.RepairRun) {
	m := map[report.RepairRunState]mark{
		report.RepairApplied: markOK, report.RepairInterrupted: markError, report.RepairRolledBack: markWarn, report.RepairNotApplied: markWarn,
	}[r.State]
	p.write("", "", 2, line{}.cell(m.tone, m.sign+" "+string(r.State)+":").prose(noTone, r.Summary.Text))
	for _, s := range r.Steps {
		sign := map[string]string{"done": "✓", "undone": "<", "begun": "?", "kept": "!"}[s.State]
		l := line{}.cell(noTone, fmt.Sprintf("%s %d.", orElse(sign, "·"), s.Step)).prose(noTone, s.Title).cell(faint, strings.ReplaceAll(s.State, "-", " "))
		if s.Text != "" {
			l = l.join(":").prose(faint, s.Text)
		}
		p.write("  ", "  ", 5, l)
	}
}

// RepairRunList writes the runs that a journal knows.
func RepairRunList(w io.Writer, r *report.RepairRuns, o Options) error {
	p := newPage(w, o)
	for i := range r.Items {
		if i > 0 {
			p.blank()
		}
		p.write("", "", 0, line{}.cell(strong, r.Items[i].ID))
		p.run(&r.Items[i])
	}
	if len(r.Items) == 0 {
		p.write("", "", 2, line{}.prose(noTone, "No run is known here."))
	}
	return p.flush()
}

// RepairCommand is a command with all of its input, as a shell would take it, in lines that are safe to show.
func RepairCommand(c *report.RepairCommand) []string {
	out := commandLines(c, 0)
	for i := range out {
		out[i] = Clean(out[i])
	}
	return out
}
