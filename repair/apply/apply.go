// Package apply does what a plan says and takes it back: under a lock, with every command said before it runs and written
// into a journal, and with a look at the node afterwards.
//
// A run is taken back by what the journal holds and by what the node has: each object that a step changes is compared
// with what it was and with what the step made of it. What somebody else wrote since is left alone. So a run may end at
// any moment: where it stood is found out by looking, and never assumed.
//
// Steps are done by the native tools, which do each as one transaction. They read what they do from a file, and hold the
// lock as well: one that outlives svcnet does the whole of its step, and nobody else begins before it ends.
//
// It acts on the network namespace of the thread that calls it.
package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/plan"
)

// Options say how a plan is applied, or a run taken back.
type Options struct {
	// Folder holds the journals and the lock; empty: DefaultFolder. It is made where it is not there.
	Folder string
	// Read reads the node anew, with the options of the reading that the plan was made of.
	Read func(ctx context.Context) (*explain.Reading, error)
	// Plan are the options that the plan was made with.
	Plan plan.Options
	// Consents are those that were given, as steps ask for them ("--allow foreign").
	Consents []string
	// Say is told what is about to happen, before it does; nil: nobody is.
	Say func(Notice)
	// Force takes back also what somebody changed since.
	Force bool
	// Program is this release, for the journal; Now the clock; nil: time.Now.
	Program string
	Now     func() time.Time

	// tools do the steps; nil: those of the machine.
	tools tools
}

// Notice is something that a run says.
type Notice struct {
	Text string
	// Step is the step that is about to be done or taken back, with Command the command for that; nil for other notices.
	Step    *report.RepairStep
	Command *report.RepairCommand
}

// tools do single steps.
type tools interface {
	// check tells whether a command could be run, and changes nothing.
	check(kind string, c report.RepairCommand) error
	// run runs it to its end, whatever becomes of this process.
	run(ctx context.Context, kind string, c report.RepairCommand, held *lock) error
	// machine names what is written to.
	machine() (Machine, error)
}

// Refusal is why nothing was written.
type Refusal struct{ Text string }

func (e *Refusal) Error() string { return e.Text }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// settled fills in what was left out.
func (o Options) settled() Options {
	if o.Folder == "" {
		o.Folder = DefaultFolder
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Say == nil {
		o.Say = func(Notice) {}
	}
	if o.tools == nil {
		o.tools = native{}
	}
	return o
}

func (o *Options) say(format string, args ...any) { o.Say(Notice{Text: fmt.Sprintf(format, args...)}) }

// Todo are the steps that would be done, and those that lack a consent.
func Todo(p *report.RepairPlan, consents []string) (todo, refused []report.RepairStep) {
	for _, s := range p.Steps {
		switch {
		case s.Kind == plan.KindAdvice:
		case s.Consent != "" && !slices.Contains(consents, s.Consent):
			refused = append(refused, s)
		default:
			todo = append(todo, s)
		}
	}
	return todo, refused
}

// Apply does what a plan says.
//
// The run that it returns says what became of it, also beside an error. Errors: a *Refusal where nothing was written;
// others where something was, and then the run says what, or why that is not known.
func Apply(ctx context.Context, p *report.RepairPlan, o Options) (*report.RepairRun, error) {
	o = o.settled()
	run := newRun(p.Node, "", p.Plan)
	todo, refused := Todo(p, o.Consents)
	run.Steps = planned(p, refused)
	if len(todo) == 0 {
		run.Summary.Text = "Nothing was written: " + nothingTodo(p, refused) + "."
		return run, nil
	}
	a, err := begin(ctx, p, todo, &o)
	if err != nil {
		run.Summary.Text = "Nothing was written: " + err.Error()
		return run, err
	}
	defer a.end()
	_, refused = Todo(a.plan, o.Consents)
	run.ID, run.Steps = a.journal.ID, planned(a.plan, refused)
	a.run = run
	// From here on the run goes to an end that is known, whoever waits for it.
	return run, a.apply(ctx)
}

// planned are the steps of a plan before any of them is done.
func planned(p *report.RepairPlan, refused []report.RepairStep) []report.RepairRunStep {
	out := []report.RepairRunStep{}
	for _, s := range p.Steps {
		step := report.RepairRunStep{Step: s.Step, Kind: s.Kind, Title: s.Title, State: stepNotDone}
		if slices.ContainsFunc(refused, func(r report.RepairStep) bool { return r.Step == s.Step }) {
			step.Text = "it needs " + s.Consent
		}
		out = append(out, step)
	}
	return out
}

func nothingTodo(p *report.RepairPlan, refused []report.RepairStep) string {
	switch {
	case len(refused) > 0:
		return fmt.Sprintf("every step needs a consent (%s)", refused[0].Consent)
	case len(p.Steps) > 0:
		return "what the plan says is for others to do"
	case len(p.Findings) > 0:
		return "no step mends what was found"
	}
	return "nothing was found"
}

// An application is a run under way.
type application struct {
	*Options
	plan    *report.RepairPlan
	held    *lock
	before  *explain.Reading
	journal *journal
	run     *report.RepairRun
}

// begin does all that comes before the first write: lock, tools, a second look, the journal.
func begin(ctx context.Context, p *report.RepairPlan, todo []report.RepairStep, o *Options) (*application, error) {
	for i := range todo {
		if err := o.tools.check(todo[i].Kind, todo[i].Do); err != nil {
			return nil, refuse("step %d (%s): %v", todo[i].Step, todo[i].Title, err)
		}
		if len(todo[i].Undo.Command) == 0 {
			continue
		}
		if err := o.tools.check(todo[i].Kind, todo[i].Undo); err != nil {
			return nil, refuse("step %d (%s) could not be taken back: %v", todo[i].Step, todo[i].Title, err)
		}
	}
	held, err := hold(o.Folder, "repair --apply")
	if err != nil {
		return nil, err
	}
	a := &application{Options: o, plan: p, held: held}
	if err := a.prepare(ctx); err != nil {
		held.release()
		return nil, err
	}
	return a, nil
}

func (a *application) prepare(ctx context.Context) error {
	all, err := journals(a.Folder, a.Now)
	if err != nil {
		return refuse("%v", err)
	}
	for _, j := range all {
		if j.state() == report.RepairInterrupted {
			return refuse("run %s was interrupted: take back what it did first (repair --rollback %s)", j.ID, j.ID)
		}
	}
	machine, err := a.tools.machine()
	if err != nil {
		return refuse("%v", err)
	}
	if a.before, err = a.Read(ctx); err != nil {
		return refuse("read the node again before writing: %v", err)
	}
	again := plan.Make(a.before, a.Options.Plan)
	if d := differs(a.plan, again); d != "" {
		return refuse("the node changed since the plan was made, and so would the plan: %s; look at the new one", d)
	}
	// Which connections are tracked changes all the time: those of now are removed.
	todo, _ := Todo(again, a.Consents)
	began := a.Now().UTC()
	a.journal, err = create(a.Folder, header{
		ID: began.Format("20060102T150405Z") + "-" + again.Plan, Started: began, Program: a.Program,
		Machine: machine, Node: again.Node, Plan: again.Plan, Steps: todo,
	}, a.Now)
	if err != nil {
		return refuse("%v", err)
	}
	a.plan = again
	return nil
}

// differs says what another plan has that the first has not, and the other way round; empty where they are the same.
func differs(first, second *report.RepairPlan) string {
	if first.Plan == second.Plan {
		return ""
	}
	title := func(p *report.RepairPlan, other *report.RepairPlan) []string {
		var out []string
		for _, s := range p.Steps {
			if s.Kind != plan.KindAdvice && !slices.ContainsFunc(other.Steps, func(o report.RepairStep) bool { return o.Title == s.Title }) {
				out = append(out, s.Title)
			}
		}
		return out
	}
	var out []string
	if gone := title(first, second); len(gone) > 0 {
		out = append(out, "not needed any more: "+strings.Join(gone, ", "))
	}
	if fresh := title(second, first); len(fresh) > 0 {
		out = append(out, "needed now: "+strings.Join(fresh, ", "))
	}
	if len(out) == 0 {
		return "the same steps, with other content"
	}
	return strings.Join(out, "; ")
}

func (a *application) end() {
	a.journal.close()
	a.held.release()
}

// apply does the steps and looks at what came of them.
func (a *application) apply(ctx context.Context) error {
	steps := a.journal.Steps
	for i := range steps {
		if err := ctx.Err(); err != nil {
			return a.takeBack("it was interrupted", err)
		}
		if err := a.do(&steps[i], i, len(steps)); err != nil {
			return a.takeBack(err.Error(), err)
		}
	}
	if err := ctx.Err(); err != nil {
		return a.takeBack("it was interrupted", err)
	}
	return a.verify(ctx)
}

// do does one step.
func (a *application) do(s *report.RepairStep, i, of int) error {
	a.Say(Notice{Text: fmt.Sprintf("step %d of %d: %s", i+1, of, s.Title), Step: s, Command: &s.Do})
	if err := a.journal.add(eventBegin, s.Step, ""); err != nil {
		return err
	}
	at := a.step(s)
	at.State = stepBegun
	if err := a.tools.run(context.Background(), s.Kind, s.Do, a.held); err != nil {
		at.Text = err.Error()
		// What cannot be written down now is found out by looking.
		return errors.Join(fmt.Errorf("step %d (%s): %w", s.Step, s.Title, err), a.journal.add(eventFailed, s.Step, err.Error()))
	}
	at.State = stepDone
	return a.journal.add(eventDone, s.Step, "")
}

func (a *application) step(s *report.RepairStep) *report.RepairRunStep { return stepOf(a.run, s.Step) }

// verify reads the node again and sees whether it is better for what was done.
func (a *application) verify(ctx context.Context) error {
	a.say("reading the node again")
	after, err := a.Read(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return a.takeBack("it was interrupted", err)
		}
		a.run.State = report.RepairInterrupted
		a.run.Summary.Text = fmt.Sprintf("The steps were done, and what came of them is not known: %v. `repair --rollback %s` takes them back.", err, a.journal.ID)
		return errors.Join(fmt.Errorf("read the node again: %w", err), a.journal.add(eventBroken, 0, err.Error()))
	}
	v := compare(a.before, after, a.plan, a.journal.Steps)
	a.run.Mended, a.run.Remaining, a.run.New, a.run.Unknown = v.mended, v.remaining, v.fresh, after.Report.Unknown
	if v.worse != "" {
		if err := a.journal.add(eventVerified, 0, v.worse); err != nil {
			return a.takeBack(v.worse, err)
		}
		return a.takeBack(v.worse, nil)
	}
	a.run.State = report.RepairApplied
	a.run.Summary.Text = v.text(a.journal.ID)
	return errors.Join(a.journal.add(eventVerified, 0, v.says()), a.journal.add(eventApplied, 0, ""))
}

// takeBack takes the steps back that were done. It goes on where somebody interrupts.
func (a *application) takeBack(because string, cause error) error {
	a.say("taking back what was done: %s", because)
	ctx := context.Background()
	b := &back{Options: a.Options, held: a.held, journal: a.journal, run: a.run}
	err := b.roll(ctx)
	if err == nil {
		a.run.Summary.Text = "Taken back, because " + because + ": the node is as it was before."
		if n := b.kept; n > 0 {
			a.run.Summary.Text = fmt.Sprintf("Taken back, because %s, but for %s that cannot be taken back.", because, plural(n, "step"))
		}
		if !b.did {
			a.run.State = report.RepairNotApplied
			a.run.Summary.Text = "Nothing was written: " + because + "."
		}
	} else {
		a.run.State = report.RepairInterrupted
		a.run.Summary.Text = fmt.Sprintf("%s, and not all could be taken back: %v. `repair --rollback %s` tries again.", upper(because), err, a.journal.ID)
	}
	return errors.Join(cause, err)
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// run is a document without content.
func newRun(node, id, of string) *report.RepairRun {
	return &report.RepairRun{
		TypeMeta: metav1.TypeMeta{APIVersion: report.APIVersion, Kind: "RepairRun"},
		Node:     node, ID: id, Plan: of, State: report.RepairNotApplied,
		Steps: []report.RepairRunStep{}, Mended: []report.Finding{}, Remaining: []report.Finding{}, New: []report.Finding{}, Unknown: []report.Unknown{},
	}
}
