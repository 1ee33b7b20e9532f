package explain

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// Reading is a snapshot that was read once, for all questions about it: what an audit and a status say of it, its Services,
// traces, and what changed against another one. It is used by one goroutine at a time: whoever asks it something, and
// whoever compares it, has it alone.
type Reading struct {
	Report *report.Report
	Status *report.NodeStatus

	model   *model
	options AuditOptions
	// ports are the service ports of the plan that were asked for, in its order; named those that only rules name.
	ports, named []observedPort
	// told are the Services of which an audit has anything to say.
	told map[serviceKey]bool
	// onNode are the findings that are of no Service, sorted.
	onNode []string
}

type serviceKey struct{ namespace, name string }

func compareKeys(a, b serviceKey) int {
	return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
}

// Read audits a snapshot so that more can be asked of it, and Changes can set it beside another one. Errors are those of Audit, but a Service that
// the evidence does not have is none: the other reading may have it.
func Read(s *snapshot.Snapshot, o AuditOptions) (*Reading, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	m := newModelOf(s, o.Memory)
	if o.Planned != nil {
		o.Planned(m.planned(o))
	}
	n, found := m.audited(o)
	r := &Reading{Report: m.report(o, found), Status: m.status(s, n, found), model: m, options: o, told: make(map[serviceKey]bool)}
	counts := backendCounts{m, make(map[asked]int32), m.refusals()}
	for i := range n.Ports {
		p := &n.Ports[i]
		obstacles, clean := p.Alike, true
		if p.Cells != nil {
			obstacles, clean = check.Clean(p)
		}
		if !clean || len(obstacles) > 0 {
			r.told[serviceKey{p.Namespace, p.Name}] = true
		}
		r.ports = append(r.ports, counts.of(p, clean && len(obstacles) == 0))
	}
	r.named = m.portsOnlyRulesName(o, counts.refusals)
	for i := range found.Findings {
		switch f := &found.Findings[i]; f.Object.Kind {
		case "Service":
			r.told[serviceKey{f.Object.Namespace, f.Object.Name}] = true
		default:
			r.onNode = append(r.onNode, f.ID+" "+f.Subject)
		}
	}
	slices.Sort(r.onNode)
	return r, nil
}

// Lacks is a *NotFoundError for the first Service that was asked for by name and that the evidence does not have; nil where
// it has them all.
func (r *Reading) Lacks() error { return r.model.lacks(r.options) }

// Changes gives the Services whose paths may differ between two readings, by namespace and name, with the traces of
// both; nil where a reading does not have the Service.
//
// A Service of which an audit has nothing to say does what the objects ask for. Where that is so on both sides, the
// objects ask the same and nothing else that was found differs, the Service is left out, unless the options say
// EachByItself.
func Changes(before, after *Reading) iter.Seq2[*report.Trace, *report.Trace] {
	return func(yield func(*report.Trace, *report.Trace) bool) {
		each := before.options.EachByItself || after.options.EachByItself || !slices.Equal(before.onNode, after.onNode)
		keys := slices.Concat(before.services(), after.services())
		slices.SortFunc(keys, compareKeys)
		for _, k := range slices.Compact(keys) {
			if !each && bothAsAsked(before, after, k) {
				continue
			}
			if !yield(before.trace(k), after.trace(k)) {
				return
			}
		}
	}
}

// services are those that the objects have and that were asked for.
func (r *Reading) services() []serviceKey {
	var out []serviceKey
	for _, s := range r.model.objects.Services {
		if k := (serviceKey{s.Namespace, s.Name}); r.options.selects(r.model, k.namespace, k.name) {
			out = append(out, k)
		}
	}
	// Without objects the rules know the Services that they name.
	for _, sp := range r.model.plan.Ports {
		if k := (serviceKey{sp.Namespace, sp.Name}); r.options.selects(r.model, k.namespace, k.name) {
			out = append(out, k)
		}
	}
	return out
}

// trace is what the node does with packets to a Service, nil where neither objects nor rules know it.
func (r *Reading) trace(k serviceKey) *report.Trace {
	t, err := r.model.traced(TraceOptions{Namespace: k.namespace, Service: k.name})
	if err != nil {
		return nil // the only error here is that it is not found
	}
	return t
}

// bothAsAsked tells whether both readings do what the objects ask for a Service, and the objects ask the same.
func bothAsAsked(a, b *Reading, k serviceKey) bool {
	one, other := a.model.proxyReport(), b.model.proxyReport()
	// Another version may do the same by other chains.
	if a.told[k] || b.told[k] || one.Mode != other.Mode || one.Backend != other.Backend || one.Version != other.Version {
		return false
	}
	ours, theirs := a.model.plan.Of(k.namespace, k.name), b.model.plan.Of(k.namespace, k.name)
	if len(ours) != len(theirs) || len(ours) == 0 {
		return false
	}
	node := a.model.node == b.model.node
	for i := range ours {
		if a.model.unobserved(ours[i]) || b.model.unobserved(theirs[i]) || asks(ours[i], node) != asks(theirs[i], node) {
			return false
		}
	}
	return true
}

// asks is what the objects ask for a service port, as text. Of two nodes what depends on the node is left out, and a
// port of which that decides is like no other.
func asks(sp *intent.ServicePort, sameNode bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d %s %d %t %t %d %v %v %v %t %t %d %d %s", sp.PortName, sp.Family, sp.Protocol, sp.Port, sp.InternalLocal, sp.ExternalLocal,
		sp.AffinitySeconds, sp.SourceRanges, sp.Cluster, sp.Usable, sp.LocalDestination, sp.ByChance, sp.NodePort, sp.HealthCheckNodePort, sp.TopologyNote)
	if !sameNode && (sp.InternalLocal || sp.ExternalLocal || sp.TopologyNote != "") {
		fmt.Fprintf(&b, " %p", sp)
	}
	for _, f := range sp.Frontends {
		if sameNode || f.Kind != intent.NodePort && f.Kind != intent.HealthCheck {
			fmt.Fprintf(&b, " %s %s %d %t", f.Kind, f.Addr, f.Port, f.OnNode)
		}
	}
	for i := range sp.Endpoints {
		e := &sp.Endpoints[i]
		fmt.Fprintf(&b, " %s %d %t %t %t", e.Addr, e.Port, e.Ready, e.Serving, e.Terminating)
		if sameNode {
			fmt.Fprintf(&b, " %t", e.Local)
		}
	}
	return b.String()
}

// Node is the node as the checks see it, without its service ports: rules, sets, virtual servers, host, objects and what
// they ask for, for who plans what to change. Nothing of it may be changed.
func (r *Reading) Node() *check.Node { return r.model.checked() }
