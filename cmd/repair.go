package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/apply"
	"github.com/svcnet/svcnet/repair/plan"
)

// repairFlags are what `repair` is asked.
type repairFlags struct {
	audit    auditFlags
	finding  string
	apply    bool
	allow    []string
	rollback bool
	runs     bool
	force    bool
	journal  string
	failOn   string
}

// allowForeign is the value of --allow that lets steps change what is not kube-proxy's.
const allowForeign = "foreign"

func (a *app) repairCommand() *cobra.Command {
	f := &repairFlags{audit: auditFlags{output: newOutput("RepairPlan"), evidence: evidence{live: newLive()}}}
	c := &cobra.Command{
		Use:   "repair [TYPE/NAME ...]",
		Short: "Plan what puts Services back to work on a node, and do it",
		Long: "Print a plan: the steps that mend what an audit finds, each with why, what it changes, the exact command or " +
			"transaction, what it affects, what may go wrong, and what takes it back. Nothing is written. Where somebody else has " +
			"to do something, as to restart kube-proxy, that comes first.\n\n" +
			"With --apply the steps are done, on the node that this runs on and as root: the node is read again, and if the " +
			"plan would be another one now nothing is written. Each command is printed before it runs and written into a " +
			"journal. Afterwards the node is read once more: if it is worse than before, or nothing is mended, everything " +
			"is taken back. What is not kube-proxy's is changed only with --allow foreign.\n\n" +
			"With --rollback a run is taken back: the newest, or that of the ID. What somebody changed since is left alone. A run " +
			"that was killed in its middle is taken back the same way.\n\n" + exitStatus,
		Example: fmt.Sprintf(`  # What would mend everything on this machine, which is a node
  sudo %[1]s repair -A

  # One Service: look, then do it
  sudo %[1]s repair svc/web -n store
  sudo %[1]s repair svc/web -n store --apply

  # Also rules of other programs that stand in the way
  sudo %[1]s repair -A --apply --allow foreign

  # Take the last run back; list all of them
  sudo %[1]s repair --rollback
  sudo %[1]s repair --runs

  # A node that was recorded, on a laptop
  %[1]s repair -A -f node-1/`, a.name),
		RunE: func(c *cobra.Command, args []string) error {
			f.audit.namespaceSet = c.Flags().Changed("namespace")
			return a.repair(c.Context(), f, args)
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if f.rollback {
				return completeRuns(f.journal), cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeServices(&f.audit.evidence, &f.audit.namespace, 0)(c, args, toComplete)
		},
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.audit.namespace, "namespace", "n", "default", "Only Services of this namespace (all, when no Service is named)")
	fs.BoolVarP(&f.audit.all, "all-namespaces", "A", false, "Services of all namespaces")
	fs.StringVarP(&f.audit.selector, "selector", "l", "", "Only Services with these labels, as kubectl takes them")
	fs.StringVar(&f.finding, "finding", "", "Only what mends findings of this id")
	fs.BoolVar(&f.apply, "apply", false, "Do the steps")
	fs.StringSliceVar(&f.allow, "allow", nil, "What steps may change beside kube-proxy's state and sysctls: "+allowForeign+" (rules, routes and tables of others)")
	fs.BoolVar(&f.rollback, "rollback", false, "Take back the newest run, or that of the ID that is given")
	fs.BoolVar(&f.runs, "runs", false, "List the runs that the journal knows")
	fs.BoolVar(&f.force, "force", false, "With --rollback: take back also what somebody changed since")
	fs.StringVar(&f.journal, "journal", apply.DefaultFolder, "Folder for the journals of runs and their lock")
	fs.StringVar(&f.failOn, "fail-on", "", "Exit with 3 when a finding that is there, or with --apply one that remains, is at least this severe: "+strings.Join(failLevels, ", ")+` (default "never", with --apply "error")`)
	f.audit.evidence.addFlags(c)
	f.audit.output.addFlags(c)
	mustComplete(c, "allow", []string{allowForeign})
	mustComplete(c, "fail-on", failLevels)
	mustCompleteFunc(c, "finding", completeFindings)
	a.completeNodes(c, &f.audit.evidence)
	return c
}

// completeRuns offers the runs that can be taken back.
func completeRuns(folder string) []string {
	runs, _ := apply.Runs(apply.Options{Folder: folder})
	var out []string
	for _, r := range runs.Items {
		if r.State == report.RepairApplied || r.State == report.RepairInterrupted {
			out = append(out, r.ID+"\t"+string(r.State))
		}
	}
	return out
}

// check says what does not go together.
func (f *repairFlags) check(args []string) error {
	e := &f.audit.evidence
	writes := "--apply"
	if f.rollback {
		writes = "--rollback"
	}
	scoped := len(args) > 0 || f.audit.all || f.audit.namespaceSet || f.audit.selector != "" || f.finding != ""
	switch {
	case f.failOn != "" && !slices.Contains(failLevels, f.failOn):
		return usage("--fail-on %s is not one of: %s", f.failOn, strings.Join(failLevels, ", "))
	case f.apply && f.rollback, f.apply && f.runs, f.rollback && f.runs:
		return usage("--apply, --rollback and --runs exclude each other")
	case f.finding != "" && check.Lookup(f.finding) == nil:
		return usage("--finding %s is no finding (`%s explain` lists them)", f.finding, "svcnet")
	case slices.ContainsFunc(f.allow, func(v string) bool { return v != allowForeign }):
		return usage("--allow %s is not %s", strings.Join(f.allow, ","), allowForeign)
	case (f.rollback || f.runs) && (f.audit.all || f.audit.namespaceSet || f.audit.selector != "" || f.finding != ""):
		return usage("a run is taken back, or listed, as a whole: leave out what limits to some Services")
	case f.rollback && len(args) > 1:
		return usage("--rollback takes back one run: %s are several", strings.Join(args, ", "))
	case f.runs && len(args) > 0:
		return usage("--runs lists all runs: leave out %s", strings.Join(args, ", "))
	case f.force && !f.rollback:
		return usage("--force goes with --rollback")
	case len(f.allow) > 0 && !f.apply:
		return usage("--allow goes with --apply: the plan shows every step, whatever is allowed")
	case f.apply && !scoped:
		return usage("--apply: say what is to be repaired: a Service (svc/NAME), -A, or --finding ID")
	}
	if !f.apply && !f.rollback {
		return nil
	}
	switch {
	case e.offline():
		return usage("%s writes to the node that it runs on, and with -f or --demo there is none: leave it out, or run it on the node", writes)
	case e.live.root != "":
		return usage("%s writes where it runs, and with --root that is a pod: run it on the node itself", writes)
	case slices.Contains(e.files, "-"):
		return usage("%s reads the evidence several times: give a file in place of standard input", writes)
	}
	return nil
}

// repair plans, and does what it is asked to do.
func (a *app) repair(ctx context.Context, f *repairFlags, args []string) error {
	show, err := f.audit.output.printer(a)
	if err != nil {
		return err
	}
	if err := f.check(args); err != nil {
		return err
	}
	if f.runs {
		runs, err := apply.Runs(apply.Options{Folder: f.journal})
		if failed := a.print(show, runs); failed != nil {
			return failed
		}
		return err
	}
	names := args
	if f.rollback {
		names = nil
	}
	o, err := a.auditOptions(&f.audit, names)
	if err != nil {
		return err
	}
	nodes, err := a.nodes(ctx, &f.audit.evidence, nil)
	if err != nil {
		return err
	}
	if nodes != nil {
		return usage("a plan is for one node: name it with --node, or give the evidence of one with -f")
	}
	if f.apply || f.rollback {
		return a.write(ctx, f, o, args, show)
	}
	r, err := a.settledReading(ctx, f, o)
	if err != nil {
		return err
	}
	if !f.audit.evidence.offline() && f.audit.evidence.reach == nil && isTerminal(a.Err) {
		a.noteInterrupted(f.journal)
	}
	p := plan.Make(r, plan.Options{Finding: f.finding})
	if err := a.print(show, p); err != nil {
		return err
	}
	return planVerdict(p, r.Report, orNever(f.failOn))
}

func orNever(level string) string {
	if level == "" {
		return failNever
	}
	return level
}

// settledReading reads the node, as often as it takes.
func (a *app) settledReading(ctx context.Context, f *repairFlags, o explain.AuditOptions) (*explain.Reading, error) {
	listed := false
	read := func(ctx context.Context) (*snapshot.Snapshot, error) {
		s, err := f.audit.evidence.load(ctx, a)
		if err == nil && !listed {
			listed = true
			f.audit.evidence.list(a, s)
		}
		return s, err
	}
	if f.audit.evidence.offline() {
		s, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return readOnce(s, o)
	}
	return settled(ctx, read, o)
}

// settled reads a live node. What only the second of two looks at it shows may be kube-proxy at work.
func settled(ctx context.Context, read func(ctx context.Context) (*snapshot.Snapshot, error), o explain.AuditOptions) (*explain.Reading, error) {
	var first *explain.Reading
	for {
		s, err := read(ctx)
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := readOnce(s, o)
		switch {
		case err != nil:
			return nil, err
		case first != nil:
			r.Report = explain.Settled(first.Report, r.Report)
			return r, nil
		case !explain.MaySettle(r.Report):
			return r, nil
		}
		first = r
		if err := wait(ctx); err != nil {
			return nil, err
		}
	}
}

// readOnce is what was read, unless it lacks what was asked for.
func readOnce(s *snapshot.Snapshot, o explain.AuditOptions) (*explain.Reading, error) {
	r, err := explain.Read(s, o)
	if err != nil {
		return nil, err
	}
	return r, r.Lacks()
}

// write applies a plan, or takes a run back.
func (a *app) write(ctx context.Context, f *repairFlags, o explain.AuditOptions, args []string, show printer) error {
	if f.audit.evidence.reach != nil {
		return errors.New("write to a node through the cluster: svcnet writes only on the machine that it runs on (run it there, as root)")
	}
	done, ok := a.undo.begin()
	if !ok {
		return context.Canceled
	}
	defer done()
	people := f.audit.output.forPeople()
	var consents []string
	for _, v := range f.allow {
		consents = append(consents, "--allow "+v)
	}
	options := apply.Options{
		Folder: f.journal, Plan: plan.Options{Finding: f.finding}, Consents: consents, Force: f.force, Program: versionText(),
		Read: func(ctx context.Context) (*explain.Reading, error) { return a.settledReading(ctx, f, o) },
		Say: func(n apply.Notice) {
			a.note("%s", n.Text)
			// People have read the plan before; what takes steps back was only the beginning of it.
			if n.Command != nil && (!people || n.Command != &n.Step.Do) {
				for _, l := range render.RepairCommand(n.Command) {
					fmt.Fprintf(a.Err, "  %s\n", l)
				}
			}
		},
	}
	if f.rollback {
		id := ""
		if len(args) > 0 {
			id = args[0]
		}
		run, err := apply.RollBack(ctx, id, options)
		return a.tell(run, err, show)
	}
	r, err := a.settledReading(ctx, f, o)
	if err != nil {
		return err
	}
	p := plan.Make(r, plan.Options{Finding: f.finding})
	if people {
		if err := a.print(show, p); err != nil {
			return err
		}
		fmt.Fprintln(a.Out)
	}
	run, err := apply.Apply(ctx, p, options)
	if err := a.tell(run, err, show); err != nil {
		return err
	}
	level := f.failOn
	if level == "" {
		level = "error"
	}
	return runVerdict(run, p, level)
}

// tell prints what became of a run, also beside an error, unless nothing was written.
func (a *app) tell(run *report.RepairRun, err error, show printer) error {
	var refused *apply.Refusal
	if err != nil && (run == nil || errors.As(err, &refused)) {
		return err
	}
	return errors.Join(a.print(show, run), err)
}

// noteInterrupted says that a run on this machine ended in its middle.
func (a *app) noteInterrupted(folder string) {
	runs, err := apply.Runs(apply.Options{Folder: folder})
	if err != nil {
		return // who may not look has not run anything here either
	}
	for _, r := range runs.Items {
		if r.State == report.RepairInterrupted {
			a.note("run %s of repair was interrupted in its middle: `%s repair --rollback %s` takes back what it did", r.ID, a.name, r.ID)
		}
	}
}

// planVerdict is the exit code of a printed plan.
func planVerdict(p *report.RepairPlan, r *report.Report, failOn string) error {
	if fails(p.Findings, failOn) {
		return &exitError{exitFindings}
	}
	return missingVerdict(len(r.Unknown) > 0)
}

// runVerdict is the exit code of a run that was printed.
func runVerdict(run *report.RepairRun, p *report.RepairPlan, failOn string) error {
	switch run.State {
	case report.RepairApplied:
		if fails(run.Remaining, failOn) || fails(run.New, failOn) {
			return &exitError{exitFindings}
		}
		return missingVerdict(len(run.Unknown) > 0)
	case report.RepairNotApplied:
		if fails(p.Findings, failOn) {
			return &exitError{exitFindings}
		}
		return nil
	}
	return &exitError{exitFindings}
}
