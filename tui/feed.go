package tui

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// Feed is where everything that is shown comes from, and what can be done beside showing it; the command line hands it in.
// Functions are called outside of the loop that draws, one at a time, with a context that ends with the program; their
// errors are one line each and are shown.
type Feed struct {
	// From says in a few words where the evidence comes from: "this machine", "2 bundles".
	From string
	// Live is true where reading again may show something else.
	Live bool
	// Node is the node that is shown first, empty: the only one.
	Node string
	// Read reads a node; empty: the only one.
	Read func(ctx context.Context, node string) (*snapshot.Snapshot, error)
	// Nodes audits all nodes and compares them; nil where there is one. Each node that was read is told to progress.
	Nodes func(ctx context.Context, progress func(done, all int)) (*report.Reports, error)
	// Compare says what changed between two moments.
	Compare func(ctx context.Context, before, after *explain.Reading) (*report.Diff, error)
	// Save writes a bundle of what was read, and returns the name of the file.
	Save func(ctx context.Context, s *snapshot.Snapshot) (string, error)
	// Page is the page of a finding as Markdown, and whether there is one.
	Page func(id string) (string, bool)
	// Repair plans what would mend what was found, and does it; nil: nobody can.
	Repair *Repair
	// Version of the program, for the first line.
	Version string
	// Name is what the user types to get this program, Evidence the flags behind it that read the same evidence: both
	// together begin the commands that are copied.
	Name, Evidence string
	// Audit selects what is looked at.
	Audit explain.AuditOptions
	// Now is the clock; Settle the time after which a live node that shows differences is looked at again; Interval the
	// time between two readings.
	Now              func() time.Time
	Settle, Interval time.Duration
	// CPU is the CPU time that was spent so far, by which readings are bounded; nil: the time that passed.
	CPU func() time.Duration

	// one is held while a node is read.
	one sync.Mutex
}

// Moment is a node as it was read once: what all screens show.
type Moment struct {
	Node     string
	Snapshot *snapshot.Snapshot
	Reading  *explain.Reading
	Services *report.NodeServices
	Counters *explain.Counters
	// At is when the evidence was complete, by the feed's clock.
	At time.Time
	// Fresh is when it was analysed as a whole; what changed since are counters, or surroundings that had no new analysis.
	Fresh time.Time
	// Took is how long reading and analysing took together.
	Took time.Duration
	// lock is held by who uses the Reading, which is for one goroutine at a time.
	lock *sync.Mutex
	// raw is the report before what may be kube-proxy at work was told apart.
	raw *report.Report
}

// lookAgain is how often a node is analysed of which nothing changed but counters, or surroundings: connections, logs,
// sysctls. Some findings rest on these.
const lookAgain = time.Minute

// newMoment analyses what was read. before is the moment that was shown until now, nil at first: what did not change
// since is kept, and a difference that it did not show may be kube-proxy at work.
func newMoment(s *snapshot.Snapshot, at time.Time, before *Moment, o explain.AuditOptions, live bool) (*Moment, error) {
	m := &Moment{Node: s.Node, Snapshot: s, At: at, Fresh: at, Counters: explain.CountersOf(s), lock: &sync.Mutex{}}
	if before.stands(s, at) {
		m.Node, m.Reading, m.Services, m.raw, m.Fresh, m.lock = before.Node, before.Reading, before.Services, before.raw, before.Fresh, before.lock
		return m, nil
	}
	r, err := explain.Read(s, o)
	if err != nil {
		return nil, err
	}
	m.Reading, m.raw, m.Node = r, r.Report, cmp.Or(r.Report.Node, s.Node)
	if live && before != nil && explain.MaySettle(r.Report) {
		r.Report = explain.Settled(before.raw, r.Report)
	}
	m.Services = r.Services()
	return m, nil
}

// counted is what rates need of a moment that is over. Its rules and objects are not kept: those of a large cluster are large.
func (m *Moment) counted() *Moment {
	return &Moment{Node: m.Node, At: m.At, Counters: m.Counters, Services: m.Services, raw: m.raw}
}

// maySettle tells whether a second look may show less.
func (m *Moment) maySettle() bool { return explain.MaySettle(m.Reading.Report) }

// stands tells whether the analysis of m holds for what was read at a later moment.
func (m *Moment) stands(s *snapshot.Snapshot, at time.Time) bool {
	if m == nil || at.Sub(m.Fresh) >= lookAgain {
		return false
	}
	// What may be kube-proxy at work is looked at until that is known.
	if slices.ContainsFunc(m.Reading.Report.Findings, func(f report.Finding) bool { return f.Pending != "" }) {
		return false
	}
	return explain.Same(m.Snapshot, s) != explain.Different
}
