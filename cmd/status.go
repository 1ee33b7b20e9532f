package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// statusFlags are what `status` is asked.
type statusFlags struct {
	evidence evidence
	output   *output
}

func (a *app) statusCommand() *cobra.Command {
	f := &statusFlags{output: newOutput("NodeStatus"), evidence: evidence{live: newLive()}}
	c := &cobra.Command{
		Use:   "status",
		Short: "Say what serves Services on a node, and how that is known",
		Long: "Say what serves Services on a node: which proxy in which mode and version, whether it runs, what it says of " +
			"its health, and whether its rules are what Services and EndpointSlices ask for. One verdict, with what it " +
			"rests on; then every setting that decides about Services, with the file and line that says it and those " +
			"that say otherwise.\n\n" + exitStatus,
		Example: fmt.Sprintf(`  # This machine, which is a node
  sudo %[1]s status

  # A recorded node, to see what this looks like
  %[1]s status --demo

  # For scripts
  %[1]s status -f node-1/ -o 'jsonpath={.verdict}'`, a.name),
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.status(c.Context(), f) },
	}
	c.Flags().SortFlags = false
	f.evidence.addFlags(c)
	f.output.addFlags(c)
	a.completeNodes(c, &f.evidence)
	return c
}

// status reads the evidence and prints the document.
func (a *app) status(ctx context.Context, f *statusFlags) error {
	show, err := f.output.printer(a)
	if err != nil {
		return err
	}
	nodes, err := a.nodes(ctx, &f.evidence, nil)
	if err != nil {
		return err
	}
	if nodes != nil {
		l, err := a.statusNodes(ctx, nodes)
		if err != nil {
			return err
		}
		if err := a.print(show, l); err != nil {
			return err
		}
		return statusListVerdict(l)
	}
	doc, err := a.statusOf(ctx, f)
	if err != nil {
		return err
	}
	if err := a.print(show, doc); err != nil {
		return err
	}
	return statusVerdict(doc)
}

// statusOf reads the evidence. Rules of a live node that differ may be kube-proxy at work on a change: a second look, a
// moment later, decides.
func (a *app) statusOf(ctx context.Context, f *statusFlags) (*report.NodeStatus, error) {
	for again := false; ; again = true {
		s, err := f.evidence.load(ctx, a)
		if err != nil {
			return nil, err
		}
		if !again {
			f.evidence.list(a, s)
		}
		doc := explain.Status(s)
		if again || f.evidence.offline() || doc.Ports.Differ == 0 {
			return doc, nil
		}
		if err := wait(ctx); err != nil {
			return nil, err
		}
	}
}

// statusVerdict is the exit code of a printed status: what is found wrong is the document's business and no failure of
// the command; that something could not be looked at is.
func statusVerdict(s *report.NodeStatus) error {
	if s.Verdict == report.StatusUnknown || len(explain.MissingSources(s.Sources)) > 0 {
		return &exitError{exitMissing}
	}
	return nil
}
