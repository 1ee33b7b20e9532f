package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/fleet"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// nodeEvidence is what was read of one node, or why nothing was.
type nodeEvidence struct {
	// node is the node's name; where it is empty, the evidence says it.
	node string
	// from is where the evidence comes from: the name of a node that nothing names.
	from     string
	snapshot *snapshot.Snapshot
	err      error
}

// readings are several nodes, read one after the other.
type readings struct {
	all iter.Seq[nodeEvidence]
	// again reads some of them once more, as they are then; nil for evidence that does not change.
	again func(ctx context.Context, names []string) iter.Seq[nodeEvidence]
	// bundles or reach are where they come from, one of them alone.
	bundles []snapshot.Bundle
	reach   *reach
}

// bundles are those that -f names, when they are of several nodes; nil when the evidence is that of one node.
func (e *evidence) bundles() ([]snapshot.Bundle, error) {
	if e.demo || len(e.files) == 0 {
		return nil, nil
	}
	found, others := snapshot.Bundles(e.files)
	switch {
	case len(found) < 2:
		return nil, nil
	case e.alsoLive:
		return nil, usage("--live reads this machine, and -f names %d bundles, which hold other readings: give one or the other", len(found))
	case len(others) > 0:
		return nil, usage("-f names %d bundles and beside them %s: whose evidence that is, nothing says; leave it out", len(found), strings.Join(others, ", "))
	case len(e.through.names) > 0:
		return nil, usage("--node says whose evidence this is, and -f names %d bundles, each of which says it itself: leave it out", len(found))
	}
	if flag := e.live.asked(); flag != "" {
		return nil, usage("%s is for reading a live node, and with -f nothing is read but files: leave it out", flag)
	}
	slices.SortStableFunc(found, func(a, b snapshot.Bundle) int { return strings.Compare(a.Node, b.Node) })
	for i := 1; i < len(found); i++ {
		if a, b := found[i-1], found[i]; a.Node == b.Node && a.Node != "" {
			return nil, usage("%s and %s are both of node %s: `diff %s %s` shows what changed between them; otherwise give one bundle for each node", a.Path, b.Path, a.Node, a.Path, b.Path)
		}
	}
	return found, nil
}

// ofBundles reads bundles one after the other: each is dropped before the next one is read.
func (a *app) ofBundles(ctx context.Context, e *evidence, found []snapshot.Bundle) iter.Seq[nodeEvidence] {
	return func(yield func(nodeEvidence) bool) {
		for _, b := range found {
			if ctx.Err() != nil {
				return
			}
			n := nodeEvidence{node: b.Node, from: b.Path}
			if n.snapshot, n.err = snapshot.Load([]string{b.Path}, nil); n.err == nil {
				e.list(a, n.snapshot)
			}
			if !yield(n) {
				return
			}
		}
	}
}

// nodes are the nodes that a question is about, when they are several; nil when it is one, which e.load reads. pick
// chooses among those of a cluster where nobody names any.
func (a *app) nodes(ctx context.Context, e *evidence, pick choice) (*readings, error) {
	found, err := e.bundles()
	if err != nil {
		return nil, err
	}
	if found != nil {
		if flag := e.through.asked(); flag != "" {
			return nil, usage("%s is for reading nodes through the cluster, and with -f nothing is read but files: leave it out", flag)
		}
		return &readings{all: a.ofBundles(ctx, e, found), bundles: found}, nil
	}
	r, err := a.reach(ctx, e, pick)
	switch {
	case err != nil || r == nil:
		return nil, err
	case len(r.nodes) == 1:
		e.reach = r
		return nil, nil
	}
	return &readings{all: r.each(ctx, r.nodes), again: r.again, reach: r}, nil
}

// answered is the document of one node: where it says whose it is, and what puts it among the others.
type answered struct {
	node *string
	add  func()
}

// each answers the same question for every node and drops its evidence before the next one. What one node lacks is no
// reason to give up the others; errors are only those of the question itself, and of no node at all.
func each(ctx context.Context, nodes iter.Seq[nodeEvidence], answer func(s *snapshot.Snapshot) (answered, error), unread func(node string, err error)) error {
	var failed []error
	names := make(map[string]bool)
	for n := range nodes {
		if err := ctx.Err(); err != nil {
			return err
		}
		name, err := n.answered(answer, names)
		var question *explain.UsageError
		switch {
		case err == nil:
		case errors.As(err, &question), errors.Is(err, context.Canceled):
			return err
		default:
			failed = append(failed, err)
			unread(name, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(names) == 0 {
		return noNodes(failed)
	}
	return nil
}

// answered answers for one node; names are those of the nodes before it.
func (n *nodeEvidence) answered(answer func(s *snapshot.Snapshot) (answered, error), names map[string]bool) (name string, err error) {
	name = cmp.Or(n.node, n.from)
	if n.err != nil {
		return name, n.err
	}
	a, err := answer(n.snapshot)
	if err != nil {
		return name, err
	}
	name = cmp.Or(n.node, *a.node, n.from)
	if names[name] {
		return name, fmt.Errorf("read node %s: another reading of it came before (give each node once; `diff` compares two)", name)
	}
	names[name], *a.node = true, name
	a.add()
	return name, nil
}

// noNodes is the error when not one node could be read.
func noNodes(failed []error) error {
	switch len(failed) {
	case 0:
		return errors.New("there is no node to read")
	case 1:
		return failed[0]
	}
	var lines []string
	for _, err := range failed {
		if line := err.Error(); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 1 {
		return failed[0]
	}
	return fmt.Errorf("none of %d nodes could be read: %s; and %d more", len(failed), lines[0], len(failed)-1)
}

// asideMost is how many nodes wait for their second look at a time: so many documents are held at most.
const asideMost = 32

// auditNodes audits every node. Live nodes that show differences are looked at twice, as in check.
func (a *app) auditNodes(ctx context.Context, nodes *readings, o explain.AuditOptions) (*report.Reports, error) {
	var all fleet.Reports
	o.Memory = &objects.Memory{}
	aside := make(map[string]*report.Report)
	err := each(ctx, nodes.all, func(s *snapshot.Snapshot) (answered, error) {
		r, err := explain.Audit(s, o)
		if err != nil {
			return answered{}, err
		}
		return answered{&r.Node, func() {
			if nodes.again == nil || !explain.MaySettle(r) {
				all.Add(r)
				return
			}
			if aside[r.Node] = r; len(aside) == asideMost {
				lookAgain(ctx, nodes, o, aside, &all)
			}
		}}, nil
	}, all.Unread)
	if err != nil {
		return nil, err
	}
	lookAgain(ctx, nodes, o, aside, &all)
	return all.List(), ctx.Err()
}

// lookAgain gives nodes their second look, and empties the list. A node that cannot be read any more has what it showed
// the first time.
func lookAgain(ctx context.Context, nodes *readings, o explain.AuditOptions, aside map[string]*report.Report, all *fleet.Reports) {
	if len(aside) == 0 || wait(ctx) != nil {
		return
	}
	for n := range nodes.again(ctx, slices.Sorted(maps.Keys(aside))) {
		if n.err != nil {
			continue
		}
		if second, err := explain.Audit(n.snapshot, o); err == nil {
			second.Node = n.node
			all.Add(explain.Settled(aside[n.node], second))
			delete(aside, n.node)
		}
	}
	for _, r := range aside {
		all.Add(r)
	}
	clear(aside)
}

// traceNodes traces the same Service, or packet, on every node.
func (a *app) traceNodes(ctx context.Context, nodes *readings, o explain.TraceOptions, namespaceSet bool) (*report.TraceList, error) {
	var all fleet.Traces
	o.Memory = &objects.Memory{}
	err := each(ctx, nodes.all, func(s *snapshot.Snapshot) (answered, error) {
		t, err := a.answer(s, o, namespaceSet)
		if err != nil {
			return answered{}, err
		}
		return answered{&t.Node, func() { all.Add(t) }}, nil
	}, all.Unread)
	if err != nil {
		return nil, err
	}
	return all.List(), nil
}

// statusNodes says what serves Services on every node.
func (a *app) statusNodes(ctx context.Context, nodes *readings) (*report.NodeStatusList, error) {
	var all fleet.Statuses
	err := each(ctx, nodes.all, func(s *snapshot.Snapshot) (answered, error) {
		d := explain.Status(s)
		return answered{&d.Node, func() { all.Add(d) }}, nil
	}, all.Unread)
	if err != nil {
		return nil, err
	}
	return all.List(), nil
}
