package cmd

import (
	"context"
	"os"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/apply"
	"github.com/svcnet/svcnet/repair/plan"
	"github.com/svcnet/svcnet/tui"
)

// repairOf is how the interactive view plans and repairs. read reads the machine that it runs on; nil: what is looked at
// is another one, to which nothing can be written.
func (a *app) repairOf(o explain.AuditOptions, read func(ctx context.Context, node string) (*snapshot.Snapshot, error)) *tui.Repair {
	options := func(about tui.Scope) plan.Options {
		return plan.Options{Finding: about.Finding, Namespace: about.Namespace, Service: about.Service}
	}
	out := &tui.Repair{
		Plan: func(r *explain.Reading, about tui.Scope) *report.RepairPlan { return plan.Make(r, options(about)) },
	}
	switch {
	case read == nil:
		out.Because = "svcnet writes only on the machine that it runs on (run it on the node, as root)"
		return out
	case os.Geteuid() != 0:
		out.Because = "permission denied (run as root)"
		return out
	}
	again := func(ctx context.Context) (*explain.Reading, error) {
		return settled(ctx, func(ctx context.Context) (*snapshot.Snapshot, error) { return read(ctx, "") }, o)
	}
	out.Apply = func(ctx context.Context, p *report.RepairPlan, about tui.Scope, say func(string)) (*report.RepairRun, error) {
		// Whoever leaves in the middle waits until it is known how that ended.
		done, ok := a.undo.begin()
		if !ok {
			return nil, context.Canceled
		}
		defer done()
		return apply.Apply(ctx, p, apply.Options{
			Plan: options(about), Program: versionText(), Read: again,
			Say: func(n apply.Notice) {
				say(n.Text)
				if n.Command != nil {
					say("  " + strings.Join(render.RepairCommand(n.Command), "\n  "))
				}
			},
		})
	}
	return out
}
