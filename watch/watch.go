// Package watch audits a node again and again and says what happens on it: how long changes of objects take to get into
// the kernel, which findings appear and clear, which sources of evidence change. State decides what is told, as a
// function of what it is told itself; Run feeds it from a live node; Metrics are the same for Prometheus.
package watch

import (
	"context"
	"fmt"
	"time"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// Options say how a node is watched.
type Options struct {
	// Interval is the shortest time between two readings of the node; 0: DefaultInterval.
	Interval time.Duration
	// Again is the longest time between two readings, Full how often rules are read although nobody told of a change; 0:
	// DefaultAgain, DefaultFull.
	Again, Full time.Duration
	// Audit selects what is looked at.
	Audit explain.AuditOptions
	// CPU is the CPU time that was spent so far, by which the rate of audits is bounded; nil: the time that passed.
	CPU func() time.Duration
	// Metrics are kept up to date where there are any.
	Metrics *Metrics
}

// Defaults of Options.
const (
	DefaultInterval = 2 * time.Second
	DefaultAgain    = time.Minute
	DefaultFull     = 10 * time.Minute
)

// share bounds what audits take of one CPU: after one, the next waits for share times the CPU time that it took.
const share = 4

// Node is the live node as Run sees it.
type Node struct {
	// Objects are what is known of the API's; nil where none are read.
	Objects *collectors.Objects
	// Read reads the node beside those objects. Full has everything read that is kept otherwise.
	Read func(ctx context.Context, objects []snapshot.Evidence, full bool) (*snapshot.Snapshot, error)
	// Changes, Notices and Answers are what is told of the node. An answer is nil, or why the API server does not answer.
	Changes <-chan collectors.Change
	Notices <-chan collectors.Notice
	Answers <-chan error
	// Noticing says how changes of rules are known.
	Noticing collectors.Noticing
}

// Run watches a node until ctx ends, whose error it returns, and gives every event to tell, one after the other. An error of
// tell ends it, and so does a first audit that fails; a later one that does is told as source "audit".
func Run(ctx context.Context, n Node, o Options, tell func(report.NodeEvent) error) error {
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.Again == 0 {
		o.Again = DefaultAgain
	}
	if o.Full == 0 {
		o.Full = DefaultFull
	}
	if o.CPU == nil {
		begun := time.Now()
		o.CPU = func() time.Duration { return time.Since(begun) }
	}
	w := &watcher{node: n, options: o, tell: tell, begun: time.Now()}
	if n.Objects != nil {
		if err := n.Objects.Known(ctx); err != nil {
			return err
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case c := <-n.Changes:
			w.state.Changed(Change(c))
		case r := <-n.Notices:
			w.state.Noticed(Notice(r))
		case err := <-n.Answers:
			why := ""
			if err != nil {
				why = err.Error()
			}
			if err := w.say(w.state.APIAnswers(time.Now(), why)); err != nil {
				return err
			}
		case <-timer.C:
			if err := w.due(ctx); err != nil {
				return err
			}
		}
		timer.Reset(w.next(time.Now()))
	}
}

// watcher is one run.
type watcher struct {
	node    Node
	options Options
	tell    func(report.NodeEvent) error
	state   State
	// begun is when the run began.
	begun time.Time
	// earliest is when the node may be read again, again when it is read although nothing happened, full when rules are.
	earliest, again, full time.Time
	started               bool
	// failing is true once it was told that an audit failed.
	failing bool
}

// next is how long there is nothing to do unless something happens.
func (w *watcher) next(now time.Time) time.Duration {
	at := w.again
	if due, ok := w.state.Due(); ok && due.Before(at) {
		at = due
	}
	if at.Before(w.earliest) {
		at = w.earliest
	}
	if wake, ok := w.state.Wake(); ok && wake.Before(at) {
		at = wake
	}
	return max(at.Sub(now), 0)
}

// due does what it is time for.
func (w *watcher) due(ctx context.Context) error {
	now := time.Now()
	if err := w.say(w.state.Tick(now)); err != nil {
		return err
	}
	due, ok := w.state.Due()
	if now.Before(w.earliest) || now.Before(w.again) && (!ok || now.Before(due)) {
		return nil
	}
	full := !now.Before(w.full)
	spent := w.options.CPU()
	r, err := w.read(ctx, full)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	took := time.Since(now)
	w.earliest = time.Now().Add(max(w.options.Interval, share*(w.options.CPU()-spent)))
	w.again = time.Now().Add(w.options.Again)
	if full {
		w.full = time.Now().Add(w.options.Full)
	}
	if w.options.Metrics != nil {
		w.options.Metrics.read(took, err)
	}
	if err != nil && !w.started {
		return err
	}
	if said := w.outcome(err); len(said) > 0 {
		if err := w.say(said); err != nil {
			return err
		}
	}
	if err != nil {
		w.state.Failed()
		return nil
	}
	w.drain()
	events := w.state.Read(r)
	if !w.started {
		w.started = true
		events = append([]report.NodeEvent{w.begin(r)}, events...)
	}
	if w.options.Metrics != nil {
		w.options.Metrics.state(&w.state, r)
	}
	return w.say(events)
}

// outcome says that audits fail, and that they do no longer: once each.
func (w *watcher) outcome(err error) []report.NodeEvent {
	if (err != nil) == w.failing {
		return nil
	}
	w.failing = err != nil
	e := w.state.event(time.Now(), report.EventSource, "source audit is ok again")
	e.Source, e.Before = &report.Source{Name: "audit", Status: "ok"}, "failed"
	if err != nil {
		e = w.state.event(time.Now(), report.EventSource, "source audit is failed: "+err.Error())
		e.Source, e.Before = &report.Source{Name: "audit", Status: "failed", Error: oneLine(err.Error())}, "ok"
	}
	return []report.NodeEvent{e}
}

// drain takes in what was told while the node was read: that is part of the story of the reading.
func (w *watcher) drain() {
	for {
		select {
		case c := <-w.node.Changes:
			w.state.Changed(Change(c))
		case r := <-w.node.Notices:
			w.state.Noticed(Notice(r))
		default:
			return
		}
	}
}

func (w *watcher) say(events []report.NodeEvent) error {
	for _, e := range events {
		if w.options.Metrics != nil {
			w.options.Metrics.event(&e)
		}
		if err := w.tell(e); err != nil {
			return err
		}
	}
	if w.options.Metrics != nil {
		w.options.Metrics.api(w.node.Objects != nil, w.state.APIFailing())
	}
	return nil
}

// read audits the node once.
func (w *watcher) read(ctx context.Context, full bool) (Reading, error) {
	r := Reading{Objects: time.Now()}
	var objects []snapshot.Evidence
	if w.node.Objects != nil {
		objects = w.node.Objects.Evidence()
	}
	r.Begun = time.Now()
	s, err := w.node.Read(ctx, objects, full)
	if err != nil {
		return r, err
	}
	r.Ended = time.Now()
	s.Captured = r.Begun.UTC().Format(time.RFC3339)
	if r.Report, r.Asked, err = explain.AuditAsked(s, w.options.Audit); err != nil {
		return r, err
	}
	p := proxyMetrics(s)
	r.ProxyStarted, r.ProxySynced = p.started, p.synced
	r.Late = late(w.node.Noticing, r.Report.Proxy)
	// The time of the day and the time that passed go apart where the clock is set.
	r.Set = r.Begun.Round(0).Sub(w.begun.Round(0)) - r.Begun.Sub(w.begun)
	return r, nil
}

// late is how long after a change of a proxy's rules it is told of: where they are looked at, that takes a while itself.
func late(n collectors.Noticing, p report.Proxy) time.Duration {
	if n.NFT == "netlink" && (p.Mode == "nftables" || p.Mode == "iptables" && p.Backend == "nft") {
		return 0
	}
	return 2 * n.Poll
}

// begin is the first event.
func (w *watcher) begin(r Reading) report.NodeEvent {
	how := "the kernel tells of changes of nf_tables; legacy rules and virtual servers are looked at every " + w.node.Noticing.Poll.String()
	if w.node.Noticing.NFT != "netlink" {
		how = "rules are looked at every " + w.node.Noticing.Poll.String()
	}
	w.state.node = r.Report.Node
	return w.state.event(r.Ended, report.EventStarted, fmt.Sprintf("watching: %s %s", r.Report.Summary.Text, how))
}
