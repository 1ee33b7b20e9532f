package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// auditFlags are what `audit` is asked.
type auditFlags struct {
	namespace    string
	namespaceSet bool
	all          bool
	selector     string
	failOn       string
	ignore       []string
	pods         []string
	evidence     evidence
	output       *output
}

func (a *app) auditCommand() *cobra.Command {
	f := &auditFlags{output: newOutput("Report"), evidence: evidence{live: newLive()}}
	c := &cobra.Command{
		Use:   "audit [TYPE/NAME ...]",
		Short: "Find what differs between Services and what the node does",
		Long: "Check every Service on a node: what Services and EndpointSlices ask for against what the node does with " +
			"packets, and the mechanisms around that. Findings come worst first, grouped by root cause, each with what " +
			"was wanted, what was found, the rule or object it rests on, and what to do. What is as it should be is " +
			"counted and not shown.\n\n" +
			"A check whose evidence is missing is named as not known: it is neither passed nor failed.\n\n" + exitStatus,
		Example: fmt.Sprintf(`  # This machine, which is a node
  sudo %[1]s audit

  # Every node of the cluster, from a workstation, with nothing installed there
  %[1]s audit -A --all-nodes

  # A recorded node, to see what this looks like
  %[1]s audit --demo

  # One Service, from files
  %[1]s audit svc/web -n store -f node-1/

  # For scripts: any warning fails, but not that one
  %[1]s audit -o json --fail-on warning --ignore local-policy-no-local-endpoints=ingress/edge`, a.name),
		RunE: func(c *cobra.Command, args []string) error {
			f.namespaceSet = c.Flags().Changed("namespace")
			return a.audit(c.Context(), f, args)
		},
		ValidArgsFunction: a.completeServices(&f.evidence, &f.namespace, 0),
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.namespace, "namespace", "n", "default", "Only Services of this namespace (all, when no Service is named)")
	fs.BoolVarP(&f.all, "all-namespaces", "A", false, "Services of all namespaces, which is what happens when nothing else is asked for")
	fs.StringVarP(&f.selector, "selector", "l", "", "Only Services with these labels, as kubectl takes them")
	fs.StringSliceVar(&f.ignore, "ignore", nil, "Leave out a finding everywhere (ID) or for one Service (ID=NAMESPACE/NAME); repeatable")
	fs.StringVar(&f.failOn, "fail-on", "error", "Exit with 3 when a finding is at least this severe: "+strings.Join(failLevels, ", "))
	fs.StringSliceVar(&f.pods, "pod", nil, "Also look into the network namespace of this pod of the node, NAMESPACE/NAME: whether somebody listens (repeatable)")
	f.evidence.addFlags(c)
	f.output.addFlags(c)
	mustComplete(c, "fail-on", failLevels)
	mustCompleteFunc(c, "ignore", completeFindings)
	a.completeNodes(c, &f.evidence)
	return c
}

// audit checks and prints the document.
func (a *app) audit(ctx context.Context, f *auditFlags, args []string) error {
	show, err := f.output.printer(a)
	if err != nil {
		return err
	}
	if !slices.Contains(failLevels, f.failOn) {
		return usage("--fail-on %s is not one of: %s", f.failOn, strings.Join(failLevels, ", "))
	}
	o, err := a.auditOptions(f, args)
	if err != nil {
		return err
	}
	f.evidence.pods = f.pods
	nodes, err := a.nodes(ctx, &f.evidence, nil)
	if err != nil {
		return err
	}
	if nodes != nil {
		l, err := a.auditNodes(ctx, nodes, o)
		if err != nil {
			return err
		}
		if err := a.print(show, l); err != nil {
			return err
		}
		return auditListVerdict(l, f.failOn)
	}
	r, err := a.check(ctx, f, o)
	if err != nil {
		return err
	}
	if err := a.print(show, r); err != nil {
		return err
	}
	return auditVerdict(r, f.failOn)
}

// auditOptions turns flags and arguments into what explain is asked.
func (a *app) auditOptions(f *auditFlags, args []string) (explain.AuditOptions, error) {
	var o explain.AuditOptions
	if f.all && f.namespaceSet {
		return o, usage("-A and -n exclude each other: all namespaces or one")
	}
	for _, arg := range args {
		name, err := serviceName([]string{arg})
		if err != nil {
			return o, err
		}
		o.Services = append(o.Services, name)
	}
	if f.all && len(o.Services) > 0 {
		return o, usage("a Service is named within one namespace: use -n and not -A")
	}
	if f.namespaceSet || len(o.Services) > 0 {
		o.Namespace = f.namespace
		if ns := ""; !f.namespaceSet && !f.evidence.offline() {
			if ns = f.evidence.live.namespace(); ns != "" {
				o.Namespace = ns
			}
		}
	}
	if f.selector != "" {
		s, err := labels.Parse(f.selector)
		if err != nil {
			return o, usage("-l %s: %v", f.selector, err)
		}
		o.Selector = s
	}
	for _, text := range f.ignore {
		id, object, limited := strings.Cut(text, "=")
		i := explain.Ignored{ID: id}
		if limited {
			var ok bool
			if i.Namespace, i.Name, ok = strings.Cut(object, "/"); !ok || i.Namespace == "" || i.Name == "" {
				return o, usage("--ignore %s: name the Service as NAMESPACE/NAME", text)
			}
		}
		o.Ignore = append(o.Ignore, i)
	}
	return o, nil
}

// check reads the evidence and audits. On a live node that shows differences it looks twice: what is gone the second
// time was kube-proxy at work on a change.
func (a *app) check(ctx context.Context, f *auditFlags, o explain.AuditOptions) (*report.Report, error) {
	var first *report.Report
	for {
		s, err := f.evidence.load(ctx, a)
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if first == nil {
			f.evidence.list(a, s)
		}
		r, err := explain.Audit(s, o)
		if err != nil || f.evidence.offline() {
			return r, err
		}
		if first != nil {
			return explain.Settled(first, r), nil
		}
		if !explain.MaySettle(r) {
			return r, nil
		}
		first = r
		if err := wait(ctx); err != nil {
			return nil, err
		}
	}
}
