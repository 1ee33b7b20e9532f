package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/plan"
)

// RollBack takes a run back: that of the id, or with an empty one the newest that can be. Objects that are neither as they
// were before the run nor as it left them are left alone, unless o.Force says otherwise.
//
// Errors: a *Refusal where nothing was written.
func RollBack(ctx context.Context, id string, o Options) (*report.RepairRun, error) {
	o = o.settled()
	held, err := hold(o.Folder, "repair --rollback")
	if err != nil {
		return nil, err
	}
	defer held.release()
	j, err := choose(id, &o)
	if err != nil {
		return nil, err
	}
	if j, err = open(j.path, true, o.Now); err != nil {
		return nil, refuse("%v", err)
	}
	defer j.close()
	if err := sameMachine(j, &o); err != nil {
		return nil, err
	}
	for i := range j.Steps {
		s := &j.Steps[i]
		if j.last(s.Step).Event == "" || len(s.Undo.Command) == 0 {
			continue
		}
		if err := o.tools.check(s.Kind, s.Undo); err != nil {
			return nil, refuse("step %d (%s) cannot be taken back: %v", s.Step, s.Title, err)
		}
	}
	run := j.run()
	b := &back{Options: &o, held: held, journal: j, run: run}
	if err := b.roll(ctx); err != nil {
		run.State = j.state()
		run.Summary.Text = fmt.Sprintf("Not all could be taken back: %v", err)
		return run, err
	}
	run.Summary.Text = b.text()
	return run, nil
}

// choose finds the run to take back.
func choose(id string, o *Options) (*journal, error) {
	all, err := journals(o.Folder, o.Now)
	if id == "" {
		for _, j := range all {
			if s := j.state(); s == report.RepairInterrupted || s == report.RepairApplied {
				return j, nil
			}
		}
		if err != nil {
			return nil, refuse("%v", err)
		}
		return nil, refuse("there is no run in %s that could be taken back", o.Folder)
	}
	for _, j := range all {
		if j.ID == id {
			if j.state() == report.RepairRolledBack && !o.Force {
				return nil, refuse("run %s was taken back already (--force looks again)", id)
			}
			return j, nil
		}
	}
	if err != nil {
		return nil, refuse("%v", err)
	}
	return nil, refuse("there is no run %s in %s", id, o.Folder)
}

// sameMachine refuses to take back what was written elsewhere, or is gone with a restart of the machine.
func sameMachine(j *journal, o *Options) error {
	m, err := o.tools.machine()
	switch {
	case err != nil:
		return refuse("%v", err)
	case m.Boot != j.Machine.Boot && !o.Force:
		return refuse("run %s was before the machine started the last time: what it wrote is gone with that (--force takes back what is found all the same)", j.ID)
	case m.Boot == j.Machine.Boot && m.Namespace != j.Machine.Namespace:
		return refuse("run %s wrote into another network namespace (%s) than the one here (%s)", j.ID, j.Machine.Namespace, m.Namespace)
	}
	return nil
}

// back takes steps back.
type back struct {
	*Options
	held    *lock
	journal *journal
	run     *report.RepairRun
	// did tells that something was taken back; kept counts the steps that were not.
	did  bool
	kept int
	// known is the node as it was read last, written what was taken back since.
	known   *explain.Reading
	written []*report.RepairStep
}

// read reads the node, unless nothing was written since that a step is about.
func (b *back) read(ctx context.Context, s *report.RepairStep) (*explain.Reading, error) {
	if b.known != nil && !slices.ContainsFunc(b.written, func(w *report.RepairStep) bool { return overlap(w, s) }) {
		return b.known, nil
	}
	r, err := b.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the node: %w", err)
	}
	b.known, b.written = r, nil
	return r, nil
}

// overlap tells whether two steps change the same object. Setting one sysctl may set others.
func overlap(a, b *report.RepairStep) bool {
	if a.Kind == b.Kind && a.Kind == "sysctl" {
		return true
	}
	return slices.ContainsFunc(a.Edits, func(e report.RepairEdit) bool {
		return slices.ContainsFunc(b.Edits, func(f report.RepairEdit) bool { return e.Table == f.Table && e.Object == f.Object })
	})
}

// roll takes back all steps of the run that may have been done, the last one first.
func (b *back) roll(ctx context.Context) error {
	var wrong []error
	steps := b.journal.Steps
	for i := range slices.Backward(steps) {
		s := &steps[i]
		last := b.journal.last(s.Step).Event
		if last == "" || last == eventUndone && !b.Force {
			continue
		}
		if err := ctx.Err(); err != nil {
			return errors.Join(append(wrong, err)...)
		}
		if err := b.undo(ctx, s); err != nil {
			wrong = append(wrong, fmt.Errorf("step %d (%s): %w", s.Step, s.Title, err))
		}
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	b.run.State = report.RepairRolledBack
	return b.journal.add(eventRolled, 0, "")
}

// undo takes one step back, by what the node has now.
func (b *back) undo(ctx context.Context, s *report.RepairStep) error {
	at := stepOf(b.run, s.Step)
	keep := func(why string) error {
		b.kept++
		at.State, at.Text = stepKept, why
		b.say("step %d (%s) is not taken back: %s", s.Step, s.Title, why)
		return b.journal.add(eventKept, s.Step, why)
	}
	if len(s.Undo.Command) == 0 {
		if b.journal.last(s.Step).Event == eventFailed {
			at.State = stepNotDone
			return nil
		}
		return keep("it cannot be taken back")
	}
	r, err := b.read(ctx, s)
	if err != nil {
		return err
	}
	present, changed, err := standing(r, s)
	switch {
	case err != nil && !b.Force:
		return err
	case len(changed) > 0 && !b.Force:
		return keep(strings.Join(changed, ", ") + " changed since (--force takes it back all the same)")
	case !present && err == nil && len(changed) == 0:
		at.State, at.Text = stepUndone, "it is as it was before"
		return b.journal.add(eventUndone, s.Step, at.Text)
	}
	b.Say(Notice{Text: fmt.Sprintf("taking back step %d: %s", s.Step, s.Title), Step: s, Command: &s.Undo})
	// A journal that cannot be written to must not keep what was done from being taken back: what is there is looked at.
	noted := b.journal.add(eventUndo, s.Step, "")
	b.written = append(b.written, s)
	if err := b.tools.run(context.Background(), s.Kind, s.Undo, b.held); err != nil {
		at.State, at.Text = stepBegun, err.Error()
		return errors.Join(err, noted)
	}
	b.did = true
	at.State, at.Text = stepUndone, ""
	return errors.Join(noted, b.journal.add(eventUndone, s.Step, ""))
}

// standing tells whether anything that a step makes is present, and which of its objects are neither as they were nor as
// it makes them.
func standing(r *explain.Reading, s *report.RepairStep) (present bool, changed []string, err error) {
	n := r.Node()
	for _, e := range s.Edits {
		at, err := plan.StandingOf(n, s.Kind, e)
		if err != nil {
			return false, nil, err
		}
		switch at {
		case plan.Done:
			present = true
		case plan.Otherwise:
			changed = append(changed, e.Table+": "+e.Object)
		}
	}
	return present, changed, nil
}

func (b *back) text() string {
	switch {
	case b.kept > 0:
		return fmt.Sprintf("Run %s is taken back but for %s.", b.journal.ID, plural(b.kept, "step"))
	case !b.did:
		return fmt.Sprintf("Nothing of run %s was there to be taken back.", b.journal.ID)
	}
	return fmt.Sprintf("Run %s is taken back.", b.journal.ID)
}

// stepOf finds a step of a run.
func stepOf(r *report.RepairRun, number int) *report.RepairRunStep {
	for i := range r.Steps {
		if r.Steps[i].Step == number {
			return &r.Steps[i]
		}
	}
	r.Steps = append(r.Steps, report.RepairRunStep{Step: number})
	return &r.Steps[len(r.Steps)-1]
}

// Runs are those that the journals of a folder tell of, the newest first. What could not be read is an error beside the
// others.
func Runs(o Options) (*report.RepairRuns, error) {
	o = o.settled()
	all, err := journals(o.Folder, o.Now)
	out := &report.RepairRuns{TypeMeta: metav1.TypeMeta{APIVersion: report.APIVersion, Kind: "RepairRunList"}, Items: []report.RepairRun{}}
	for _, j := range all {
		out.Items = append(out.Items, *j.run())
	}
	return out, err
}
