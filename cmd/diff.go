package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/fleet"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// failAny makes every difference a failure.
const failAny = "any"

// diffFailLevels are the values of --fail-on of diff.
var diffFailLevels = append([]string{failAny}, failLevels...)

// diffFlags are what `diff` is asked.
type diffFlags struct {
	namespace string
	selector  string
	failOn    string
	ignore    []string
	output    *output
}

func (a *app) diffCommand() *cobra.Command {
	f := &diffFlags{output: newOutput("Diff")}
	c := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Show what changed between two nodes, bundles or moments",
		Long: "Show what changed between two readings of one node, or differs between two nodes: Services with the clients for " +
			"whom their outcomes, backends or shares are others, findings that appeared and those that are gone, settings of the " +
			"proxy and sources. The order of rules, counters and dates are no changes. Between two nodes neither is what belongs " +
			"to each of them by intent: names, addresses, pod ranges, local endpoints of a Local policy.\n\n" +
			"BEFORE and AFTER each are a bundle, a folder or an archive with the evidence of one node. A difference is no failure: the " +
			"exit status is 0 with and without one, unless --fail-on says otherwise.\n\n" + exitStatus,
		Example: fmt.Sprintf(`  # What changed on a node
  %[1]s diff svcnet-node-1-20260105T100000Z.tar.gz svcnet-node-1-20260105T103000Z.tar.gz

  # A node that fares badly beside one that does not
  %[1]s diff node-1/ node-2/

  # For scripts: fail when anything changed
  %[1]s diff before.tar.gz after.tar.gz -o json --fail-on any`, a.name),
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error { return a.diff(c.Context(), f, args) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.namespace, "namespace", "n", "", "Only Services of this namespace")
	fs.StringVarP(&f.selector, "selector", "l", "", "Only Services with these labels, as kubectl takes them")
	fs.StringSliceVar(&f.ignore, "ignore", nil, "Leave out a finding everywhere (ID) or for one Service (ID=NAMESPACE/NAME); repeatable")
	fs.StringVar(&f.failOn, "fail-on", failNever, "Exit with 3 when a finding appeared that is at least this severe, or when there is any difference: "+strings.Join(diffFailLevels, ", "))
	f.output.addFlags(c)
	mustComplete(c, "fail-on", diffFailLevels)
	return c
}

// diff compares and prints the document.
func (a *app) diff(ctx context.Context, f *diffFlags, args []string) error {
	show, err := f.output.printer(a)
	if err != nil {
		return err
	}
	if !slices.Contains(diffFailLevels, f.failOn) {
		return usage("--fail-on %s is not one of: %s", f.failOn, strings.Join(diffFailLevels, ", "))
	}
	if args[0] == "-" && args[1] == "-" {
		return usage("standard input can be read once: name a file for BEFORE or AFTER")
	}
	o := explain.AuditOptions{Namespace: f.namespace, Memory: &objects.Memory{}}
	if f.selector != "" {
		if o.Selector, err = labels.Parse(f.selector); err != nil {
			return usage("-l %s: %v", f.selector, err)
		}
	}
	if o.Ignore, err = ignored(f.ignore); err != nil {
		return err
	}
	var readings [2]*explain.Reading
	for i, path := range args {
		s, err := snapshot.Load([]string{path}, a.In)
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if readings[i], err = explain.Read(s, o); err != nil {
			return err
		}
	}
	doc, err := changes(ctx, readings[0], readings[1])
	if err != nil {
		return err
	}
	if err := a.print(show, doc); err != nil {
		return err
	}
	return diffVerdict(doc, f.failOn)
}

// changes compares two readings.
func changes(ctx context.Context, before, after *explain.Reading) (*report.Diff, error) {
	d := fleet.NewDiff(sideOf(before), sideOf(after))
	for was, is := range explain.Changes(before, after) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d.Service(was, is)
	}
	return d.Document(), nil
}

func sideOf(r *explain.Reading) fleet.Side {
	s := fleet.Side{Report: r.Report, Status: r.Status}
	for _, m := range explain.MissingSources(r.Report.Sources) {
		s.Missing = append(s.Missing, m.Name)
	}
	return s
}

// diffVerdict is the exit code of a printed diff.
func diffVerdict(d *report.Diff, failOn string) error {
	if failOn == failAny && !d.Summary.Same || failOn != failAny && fails(d.Appeared, failOn) {
		return &exitError{exitFindings}
	}
	return missingVerdict(len(d.Before.Missing)+len(d.After.Missing) > 0)
}
