package cmd

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"time"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/docs/findings"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/tui"
	"github.com/svcnet/svcnet/watch"
)

// feed is where the interactive view gets what it shows. Evidence of one node is read once before it begins, where that
// takes no pod: what is wrong is an error then, and no empty screen. leave deletes what was made for it.
func (a *app) feed(ctx context.Context, e *evidence, o explain.AuditOptions) (f *tui.Feed, leave func() error, err error) {
	nodes, err := a.nodes(ctx, e, nil)
	if err != nil {
		return nil, nil, err
	}
	f = &tui.Feed{
		Version: release(), Name: a.name, Audit: o, Settle: settle, Now: time.Now, CPU: watch.CPUTime,
		Compare: changes, Page: findings.Page,
		Save: func(ctx context.Context, s *snapshot.Snapshot) (string, error) {
			return a.newBundle(ctx, s, time.Now())
		},
	}
	f.Repair = a.repairOf(o, nil)
	leave = func() error { return nil }
	var r *reach
	switch {
	case nodes != nil && nodes.bundles != nil:
		f.From = fmt.Sprintf("%d bundles", len(nodes.bundles))
		f.Read = func(ctx context.Context, node string) (*snapshot.Snapshot, error) {
			return bundleOf(ctx, nodes.bundles, node)
		}
		f.Nodes = a.compared(nodes, len(nodes.bundles), o)
		return f, leave, nil
	case nodes != nil:
		r = nodes.reach
		// The screen shows how far it is.
		r.silent = true
		f.From = fmt.Sprintf("%d nodes of the cluster", len(r.nodes))
		f.Nodes = a.compared(nodes, len(r.nodes), o)
	case e.reach != nil:
		r = e.reach
		f.From = "a pod on node " + r.nodes[0].Name
	}
	if r != nil {
		v := newVisit(ctx, r)
		f.Live, f.Read = true, v.read
		return f, v.leave, nil
	}
	first, err := e.load(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	e.list(a, first)
	if e.offline() {
		f.From = "files"
		switch {
		case e.demo:
			f.From = "the recorded node of --demo"
		case len(e.files) == 1 && e.files[0] == "-":
			f.From = "standard input"
		case len(e.files) == 1:
			f.From = filepath.Base(e.files[0])
		}
		f.Read = func(context.Context, string) (*snapshot.Snapshot, error) { return first, nil }
		return f, leave, nil
	}
	h, err := e.here(ctx, a, first)
	if err != nil {
		return nil, nil, err
	}
	f.Live, f.From, f.Read = true, "this machine", h.read
	f.Repair = a.repairOf(o, h.read)
	return f, leave, nil
}

// compared audits several nodes and compares them, and tells how far it is.
func (a *app) compared(nodes *readings, all int, o explain.AuditOptions) func(context.Context, func(done, all int)) (*report.Reports, error) {
	return func(ctx context.Context, progress func(done, all int)) (*report.Reports, error) {
		told := *nodes
		told.all = counted(nodes.all, func(done int) { progress(done, all) })
		return a.auditNodes(ctx, &told, o)
	}
}

// counted tells of each node that is handed out.
func counted(nodes iter.Seq[nodeEvidence], tell func(done int)) iter.Seq[nodeEvidence] {
	return func(yield func(nodeEvidence) bool) {
		done := 0
		for n := range nodes {
			done++
			tell(done)
			if !yield(n) {
				return
			}
		}
	}
}

// bundleOf reads the bundle of a node; empty: of the first. A node that nothing names goes by the bundle's path.
func bundleOf(ctx context.Context, bundles []snapshot.Bundle, node string) (*snapshot.Snapshot, error) {
	for _, b := range bundles {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		named := node == "" || node == b.Node || node == b.Path
		if !named && b.Node != "" {
			continue
		}
		s, err := snapshot.Load([]string{b.Path}, nil)
		if err != nil {
			if named {
				return nil, err
			}
			continue
		}
		// What a bundle does not say itself, its evidence may.
		if named || explain.Status(s).Node == node {
			return s, nil
		}
	}
	return nil, fmt.Errorf("none of %d bundles is of node %s", len(bundles), node)
}

// here reads this machine again and again. Objects are followed, as a list of them takes longer than the machine; rules
// are read each time, for their counters.
type here struct {
	live *live
	node string
	// first is what was read before the screen was there.
	first *snapshot.Snapshot
	// files are those of -f; nil: there are none.
	files    *snapshot.Snapshot
	api      *collectors.API
	objects  *collectors.Objects
	selected selected
}

// here is this machine, beside files where there are any. first is what was read of both.
func (e *evidence) here(ctx context.Context, a *app, first *snapshot.Snapshot) (*here, error) {
	h := &here{live: &e.live, node: first.Node, first: first}
	var err error
	if len(e.files) > 0 {
		if h.files, err = snapshot.Load(e.files, a.In); err != nil {
			return nil, err
		}
	}
	if h.api, err = e.live.api(); err != nil || h.api == nil {
		return h, err
	}
	h.objects, err = follow(ctx, h.api, h.node)
	return h, err
}

// read reads the machine.
func (h *here) read(ctx context.Context, _ string) (*snapshot.Snapshot, error) {
	if s := h.first; s != nil {
		h.first = nil
		return s, nil
	}
	begun := time.Now()
	var objects []snapshot.Evidence
	if h.objects != nil {
		var err error
		if objects, err = known(ctx, h.objects); err != nil {
			return nil, err
		}
	}
	if h.api != nil {
		objects = append(objects, h.selected.of(ctx, h.api, objects)...)
	}
	s, err := h.live.beside(ctx, h.node, h.api, objects, nil)
	if err != nil {
		return nil, err
	}
	s.Captured = begun.UTC().Format(time.RFC3339)
	if h.files != nil {
		if s, err = merge(s, h.files); err != nil {
			return nil, err
		}
	}
	if h.node != "" {
		s.Node = h.node
	}
	return s, nil
}

// selected are the pods of Services without ready endpoints. They are not followed, so they are listed anew when they are
// old.
type selected struct {
	pods []snapshot.Evidence
	at   time.Time
}

func (s *selected) of(ctx context.Context, api *collectors.API, objects []snapshot.Evidence) []snapshot.Evidence {
	if time.Since(s.at) > objectsAge {
		s.pods, s.at = collectors.SelectedPods(ctx, api, objects), time.Now()
	}
	return s.pods
}

// follow keeps objects up to date. What is told of each change is nobody's business here.
func follow(ctx context.Context, api *collectors.API, node string) (*collectors.Objects, error) {
	return collectors.Follow(ctx, api, node, func(collectors.Change) {}, func(error) {})
}

// known are the objects that are followed, as they are now. A server that does not answer any more shows as a source of
// its own: they are as they were.
func known(ctx context.Context, o *collectors.Objects) ([]snapshot.Evidence, error) {
	if err := o.Known(ctx); err != nil {
		return nil, err
	}
	all := o.Evidence()
	answered := slices.ContainsFunc(all, func(e snapshot.Evidence) bool { return e.Status.Answers() })
	if err := o.Err(); err != nil && answered {
		all = append(all, snapshot.Evidence{
			File: "api", Format: snapshot.Objects, Status: snapshot.Failed,
			Error: err.Error() + "; objects are those of the last answer",
		})
	}
	return all, nil
}
