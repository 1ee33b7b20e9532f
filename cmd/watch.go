package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/watch"
)

// DefaultListen is the port of deploy/daemonset.yaml. The range that exporters share, 9100 to 9999, is given away; this
// one is registered for nobody, and lies below the node ports of a cluster and the ports that a kernel hands out.
const DefaultListen = ":19420"

// watchFlags are what `audit --watch` is asked.
type watchFlags struct {
	on       bool
	interval time.Duration
	listen   string
	// flags are those of the command.
	changed func(name string) bool
}

func (f *watchFlags) addFlags(c *cobra.Command) {
	fs := c.Flags()
	fs.BoolVar(&f.on, "watch", false, "Go on auditing this node and print what happens: how long changes take to get into the kernel, findings that appear and clear")
	fs.DurationVar(&f.interval, "interval", watch.DefaultInterval, "With --watch: the shortest time between two audits")
	fs.StringVar(&f.listen, "listen", "", "With --watch: address on which to answer Prometheus (/metrics, /healthz), such as "+DefaultListen)
	f.changed = fs.Changed
}

// check finds what does not go together.
func (f *watchFlags) check(a *auditFlags) error {
	if !f.on {
		for _, name := range []string{"interval", "listen"} {
			if f.changed(name) {
				return usage("--%s goes with --watch", name)
			}
		}
		return nil
	}
	for _, name := range []string{"all-nodes", "node-selector", "image", "copy-binary", "print-pod"} {
		if f.changed(name) {
			return usage("--watch is for the node that it runs on: leave out --%s (deploy/daemonset.yaml runs it on every node)", name)
		}
	}
	switch {
	case a.evidence.offline() || a.evidence.alsoLive:
		return usage("--watch is for a live node: leave out -f, --demo and --live")
	case f.changed("fail-on"):
		return usage("--watch ends when it is interrupted, and not with what it finds: leave out --fail-on")
	case len(a.pods) > 0:
		return usage("--watch does not look into pods: leave out --pod")
	case a.output.format != "" && a.output.format != "json" && a.output.format != defaultFormat:
		return usage("--watch prints an event a line: -o json, or -o %s for people", defaultFormat)
	case f.interval < 100*time.Millisecond:
		return usage("--interval %s is too short: a tenth of a second at least", f.interval)
	}
	return nil
}

// Room for what is told while the node is read.
const (
	roomForChanges = 16384
	roomForNotices = 1024
)

// watch watches this machine until it is interrupted.
func (a *app) watch(ctx context.Context, f *auditFlags, o explain.AuditOptions) error {
	options := watch.Options{Interval: f.watch.interval, Audit: o, CPU: watch.CPUTime}
	if f.watch.listen != "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.watch.listen)
		if err != nil {
			return fmt.Errorf("answer Prometheus: %w (give another address with --listen)", err)
		}
		defer func() { _ = l.Close() }() // the server closes it first
		// A node that is audited once a minute at least, or every --interval where that is longer, is not well when nothing
		// came of the last ten.
		options.Metrics = watch.NewMetrics(versionText(), 10*max(watch.DefaultAgain, f.watch.interval))
		server := &http.Server{Handler: options.Metrics.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 16}
		defer func() { _ = server.Close() }()
		go func() { _ = server.Serve(l) }()
	}
	// The first reading says which node this is, and whether it is one.
	first, err := f.evidence.load(ctx, a)
	if err != nil {
		return err
	}
	f.evidence.list(a, first)
	n, err := f.evidence.live.node(ctx, first.Node, f.watch.interval)
	if err != nil {
		return err
	}
	return watch.Run(ctx, n, options, a.eventWriter(f.output))
}

// node is this machine as watch sees it.
func (l *live) node(ctx context.Context, name string, poll time.Duration) (watch.Node, error) {
	var n watch.Node
	api, err := l.api()
	if err != nil {
		return n, err
	}
	changes := make(chan collectors.Change, roomForChanges)
	notices := make(chan collectors.Notice, roomForNotices)
	answers := latest[error]{c: make(chan error, 1)}
	n.Changes, n.Notices, n.Answers = changes, notices, answers.c
	if api != nil {
		n.Objects, err = collectors.Follow(ctx, api, name, func(c collectors.Change) {
			// More changes at once than anybody waits for: the lags of those beyond are not told.
			select {
			case changes <- c:
			default:
			}
		}, answers.put)
		if err != nil {
			return n, err
		}
	}
	n.Noticing, err = collectors.FollowRules(ctx, poll, func(c collectors.Notice) {
		for {
			select {
			case notices <- c:
				return
			default:
			}
			// What there is no room for is the oldest: lags end with the newest.
			select {
			case <-notices:
			default:
			}
		}
	})
	if err != nil {
		return n, err
	}
	kept := &collectors.Kept{}
	n.Read = func(ctx context.Context, objects []snapshot.Evidence, full bool) (*snapshot.Snapshot, error) {
		if full {
			kept.Forget()
		}
		return l.beside(ctx, name, api, objects, kept)
	}
	return n, nil
}

// latest hands on the newest value: one that nobody took yet is replaced.
type latest[T any] struct {
	mu sync.Mutex
	c  chan T
}

func (l *latest[T]) put(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.c:
	default:
	}
	l.c <- v
}

// eventWriter writes events, each with one write: JSON unless a person looks, or asks for it.
func (a *app) eventWriter(o *output) func(report.NodeEvent) error {
	text := isTerminal(a.Out) && o.format == "" || o.format == defaultFormat
	options := renderOptions(a.Out, o.color, a.env)
	return func(e report.NodeEvent) error {
		var b bytes.Buffer
		if text {
			if err := render.Event(&b, &e, options); err != nil {
				return err
			}
		} else {
			data, err := json.Marshal(&e)
			if err != nil {
				return fmt.Errorf("print an event: %w", err)
			}
			b.Write(append(data, '\n'))
		}
		if _, err := a.Out.Write(b.Bytes()); err != nil {
			return fmt.Errorf("write an event: %w", err)
		}
		return nil
	}
}
