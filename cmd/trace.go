package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/cmd/demo"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// The values of flags that choose among few.
var (
	sourceClasses = []string{"local-pod", "hairpin", "remote-pod", "node", "localhost", "remote-node", "external"}
	frontendKinds = []string{"clusterip", "externalip", "healthcheck", "loadbalancer", "nodeport"}
	origins       = []string{"pod", "node", "host", "external"}
)

// traceFlags are what `trace` is asked.
type traceFlags struct {
	namespace    string
	namespaceSet bool
	ports        []string
	via          []string
	from         []string
	to           string
	origin       string
	iif          string
	mark         string
	failOn       string
	pods         []string
	evidence     evidence
	output       *output
}

func (a *app) traceCommand() *cobra.Command {
	f := &traceFlags{output: newOutput("Trace"), evidence: evidence{live: newLive()}}
	c := &cobra.Command{
		Use:   "trace (TYPE/NAME | --to ADDRESS:PORT/PROTOCOL --from CLIENT)",
		Short: "Show the path of packets to a Service, or of one packet",
		Long: "Show the path of packets to a Service through a node: for every address of the Service and every kind " +
			"of client the chains, the backends with the share of connections each gets, whether the backend sees " +
			"the client's address, and where any of it differs from what Services and EndpointSlices ask for.\n\n" +
			"With --to, show the path of one packet.\n\n" +
			"Without -f the machine that this runs on is read, if it is a node, with objects from the API server. " +
			"Elsewhere nodes are read through short-lived pods: those that --node or --all-nodes name, else those with " +
			"the Service's backends and one more. Looking changes nothing. With -f evidence comes from files: what is in a file decides what it is, names only help. A " +
			"source that could not be read is named as such and never taken for empty.\n\n" + exitStatus,
		Example: fmt.Sprintf(`  # A recorded node, to see what this looks like
  %[1]s trace svc/web --demo

  # This machine, which is a node
  sudo %[1]s trace svc/web -n store

  # Two nodes, from a workstation
  %[1]s trace svc/web -n store --node node-1 --node node-2

  # From files taken on a node and from the API
  iptables-save -c > iptables-save.txt
  kubectl get services,endpointslices,nodes,pods -A -o yaml > objects.yaml
  %[1]s trace svc/web -n store -f iptables-save.txt -f objects.yaml

  # Only what clients outside of the cluster meet at the node port
  %[1]s trace svc/web -n store -f node-1/ --via nodeport --from external

  # One packet
  %[1]s trace --to 10.96.20.10:80/TCP --from 10.244.1.7 -f node-1/

  # For scripts: fail when findings are errors or worse
  %[1]s trace svc/web -n store -f node-1/ -o json --fail-on error`, a.name),
		Args: cobra.MaximumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			f.namespaceSet = c.Flags().Changed("namespace")
			return a.trace(c.Context(), f, args)
		},
		ValidArgsFunction: a.completeServices(&f.evidence, &f.namespace, 1),
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.namespace, "namespace", "n", "default", "Namespace of the Service")
	fs.StringSliceVar(&f.ports, "port", nil, "Only these ports of the Service, by name or number")
	fs.StringSliceVar(&f.via, "via", nil, "Only these ways in: "+strings.Join(frontendKinds, ", "))
	fs.StringSliceVar(&f.from, "from", nil, "Only these clients: "+strings.Join(sourceClasses, ", ")+"; or pod/NAME; with --to, an address or ADDRESS:PORT")
	fs.StringVar(&f.to, "to", "", "Destination of one packet, ADDRESS:PORT/PROTOCOL")
	fs.StringVar(&f.origin, "origin", "", "Where the packet enters the node: pod, node (or host), external")
	fs.StringVar(&f.iif, "iif", "", "Interface that the packet comes in by")
	fs.StringVar(&f.mark, "mark", "", "Firewall mark that the packet carries, decimal or 0x…")
	fs.StringSliceVar(&f.pods, "pod", nil, "Also look into the network namespace of this pod of the node, NAMESPACE/NAME (repeatable); --from pod/NAME does so by itself")
	f.evidence.addFlags(c)
	f.output.addFlags(c)
	fs.StringVar(&f.failOn, "fail-on", failNever, "Exit with 3 when a finding is at least this severe: "+strings.Join(failLevels, ", "))
	mustComplete(c, "via", frontendKinds)
	mustComplete(c, "from", sourceClasses)
	mustComplete(c, "origin", origins)
	a.completeNodes(c, &f.evidence)
	mustComplete(c, "fail-on", failLevels)
	return c
}

// trace answers the question and prints the document.
func (a *app) trace(ctx context.Context, f *traceFlags, args []string) error {
	show, err := f.output.printer(a)
	if err != nil {
		return err
	}
	if !slices.Contains(failLevels, f.failOn) {
		return usage("--fail-on %s is not one of: %s", f.failOn, strings.Join(failLevels, ", "))
	}
	if !f.namespaceSet && !f.evidence.offline() {
		if ns := f.evidence.live.namespace(); ns != "" {
			f.namespace = ns
		}
	}
	o, err := a.question(f, args)
	if err != nil {
		return err
	}
	f.evidence.pods = f.pods
	if o.FromPod != "" && !slices.Contains(f.pods, o.FromPod) {
		f.evidence.pods = append(f.evidence.pods, o.FromPod)
	}
	nodes, err := a.nodes(ctx, &f.evidence, nodesOf(o, f.namespaceSet))
	if err != nil {
		return err
	}
	if nodes != nil {
		l, err := a.traceNodes(ctx, nodes, o, f.namespaceSet)
		if err != nil {
			return err
		}
		if err := a.print(show, l); err != nil {
			return err
		}
		return traceListVerdict(l, f.failOn)
	}
	t, err := a.look(ctx, f, o)
	if err != nil {
		return err
	}
	if err := a.print(show, t); err != nil {
		return err
	}
	return verdict(t, f.failOn)
}

// looks is how often a live node is looked at while what differs keeps changing.
const looks = 3

// look reads the evidence and answers. Where a live node differs from what the objects ask for, it is read again a
// little later: a difference that is gone then, or another one, was kube-proxy at work on a change.
func (a *app) look(ctx context.Context, f *traceFlags, o explain.TraceOptions) (*report.Trace, error) {
	var last []string
	for n := 1; ; n++ {
		s, err := f.evidence.load(ctx, a)
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if n == 1 {
			f.evidence.list(a, s)
		}
		t, err := a.answer(s, o, f.namespaceSet)
		if err != nil || f.evidence.offline() || len(t.Findings) == 0 {
			return t, err
		}
		var now []string
		for i := range t.Findings {
			now = append(now, t.Findings[i].ID+" "+t.Findings[i].Subject)
		}
		if n == looks || slices.Equal(now, last) {
			return t, nil
		}
		last = now
		if err := wait(ctx); err != nil {
			return nil, err
		}
	}
}

// answer traces; a Service that is not in the default namespace but in exactly one other is traced there, if
// no namespace was asked for.
func (a *app) answer(s *snapshot.Snapshot, o explain.TraceOptions, namespaceSet bool) (*report.Trace, error) {
	t, err := explain.Trace(s, o)
	var notFound *explain.NotFoundError
	if errors.As(err, &notFound) && o.Service != "" && !namespaceSet {
		if all := namespacesOf(s, o.Service); len(all) == 1 && all[0] != o.Namespace {
			a.note("Service %s is not in namespace %s; showing the only one of that name, in %s (-n %s)", o.Service, o.Namespace, all[0], all[0])
			o.Namespace = all[0]
			return explain.Trace(s, o)
		}
	}
	return t, err
}

// question turns flags and arguments into what explain is asked.
func (a *app) question(f *traceFlags, args []string) (explain.TraceOptions, error) {
	o := explain.TraceOptions{
		Ports: f.ports, Via: lower(f.via), To: f.to, Origin: f.origin, IncomingInterface: f.iif,
	}
	if o.Origin == "host" {
		o.Origin = "node"
	}
	service, err := serviceName(args)
	if err != nil {
		return o, err
	}
	if service == "" && f.to == "" && f.evidence.demo {
		service = demo.Service
		if !f.namespaceSet {
			f.namespace, f.namespaceSet = demo.Namespace, true
		}
		a.note("tracing svc/%s -n %s of the recorded node", service, f.namespace)
	}
	if service != "" {
		o.Service, o.Namespace = service, f.namespace
	}
	if f.mark != "" {
		mark, err := strconv.ParseUint(f.mark, 0, 32)
		if err != nil {
			return o, usage("--mark %s is no number of 32 bits", f.mark)
		}
		o.Mark, o.HasMark = uint32(mark), true
	}
	return o, f.clients(&o)
}

// clients sorts the values of --from: classes, one pod, or one address.
func (f *traceFlags) clients(o *explain.TraceOptions) error {
	for _, c := range f.from {
		kind, name, slash := strings.Cut(c, "/")
		switch {
		case slash && slices.Contains([]string{"pod", "pods", "po"}, strings.ToLower(kind)):
			if name == "" || len(f.from) > 1 {
				return usage("--from %s: name one pod, as pod/NAME or pod/NAMESPACE/NAME, and nothing else", strings.Join(f.from, ","))
			}
			if !strings.Contains(name, "/") {
				name = f.namespace + "/" + name
			}
			o.FromPod = name
		case isClient(c):
			if len(f.from) > 1 {
				return usage("--from %s: one address at a time", strings.Join(f.from, ","))
			}
			o.FromAddr = c
		default:
			o.From = append(o.From, strings.ToLower(c))
		}
	}
	if o.To != "" && len(o.From) > 0 {
		return usage("--from %s: one packet has one client: an address, ADDRESS:PORT or pod/NAME", strings.Join(f.from, ","))
	}
	return nil
}

// isClient tells whether s is an address, or an address and port.
func isClient(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	_, err := netip.ParseAddrPort(s)
	return err == nil
}

// serviceName reads svc/NAME, service/NAME, NAME, or TYPE NAME as two arguments; empty when there is none.
func serviceName(args []string) (string, error) {
	var kind, name string
	switch len(args) {
	case 0:
		return "", nil
	case 1:
		before, after, slash := strings.Cut(args[0], "/")
		kind, name = before, after
		if !slash {
			kind, name = "service", before
		}
	default:
		kind, name = args[0], args[1]
	}
	switch strings.ToLower(kind) {
	case "svc", "service", "services":
	default:
		return "", usage("%q is no type that can be traced: name a Service, as svc/NAME", kind)
	}
	if name == "" || strings.Contains(name, "/") {
		return "", usage("%q names no Service: use svc/NAME, with the namespace in -n", strings.Join(args, " "))
	}
	return name, nil
}

func lower(all []string) []string {
	out := slices.Clone(all)
	for i := range out {
		out[i] = strings.ToLower(out[i])
	}
	return out
}

// nodesOf chooses the nodes that matter for a question: those that have the Service's backends, and one more, for what a
// node without one does; or the node of the pod that the packet comes from.
func nodesOf(o explain.TraceOptions, namespaceSet bool) choice {
	return func(set *objects.Set) (nodes []string, why string, err error) {
		switch {
		case o.FromPod != "":
			namespace, name, _ := strings.Cut(o.FromPod, "/")
			if pod, ok := set.Pod(namespace, name); ok && pod.Spec.NodeName != "" {
				return []string{pod.Spec.NodeName}, "where pod " + o.FromPod + " is", nil
			}
			return nil, "", usage("on which node is pod %s? Name it with --node NAME", o.FromPod)
		case o.Service == "":
			return nil, "", usage("which node does the packet come to? Name it with --node NAME")
		}
		namespace := o.Namespace
		if _, ok := set.Service(namespace, o.Service); !ok {
			for _, s := range set.Services {
				if s.Name == o.Service && !namespaceSet {
					namespace = s.Namespace
				}
			}
		}
		has := make(map[string]bool)
		for _, slice := range set.SlicesOf(namespace, o.Service) {
			for _, e := range slice.Endpoints {
				if e.NodeName != nil {
					has[*e.NodeName] = true
				}
			}
		}
		more := ""
		for _, n := range set.Nodes {
			switch {
			case has[n.Name]:
				nodes = append(nodes, n.Name)
			case more == "" && ready(n.Node):
				more = n.Name
			}
		}
		why = "those with its backends"
		if more != "" {
			nodes, why = append(nodes, more), why+" and one more"
		}
		if len(has) == 0 {
			why = "any one, as it has no backends"
		}
		return nodes, why, nil
	}
}

// ready tells whether a node's kubelet says so, and whether it is one that pods can read.
func ready(n *corev1.Node) bool {
	return n.Status.NodeInfo.OperatingSystem != "windows" && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
