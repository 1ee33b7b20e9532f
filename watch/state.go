package watch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// Times of the state machine.
const (
	// settle is how long something that a reading shows for the first time is given to go away again before it is told:
	// kube-proxy follows a change within its minSyncPeriod, a second by default.
	settle = 1500 * time.Millisecond
	// longestWait is the longest time between two readings while something is in the balance: the first comes after
	// settle, each later one after twice as long.
	longestWait = 10 * time.Second
	// silence is how long the API may not answer before that is told. A watch that ends and is taken up again is no
	// silence.
	silence = 5 * time.Second
	// quiet is how long no rules change before a burst of changes is over, and longestBurst how long that is waited for.
	quiet        = 100 * time.Millisecond
	longestBurst = 500 * time.Millisecond
	// unmeasured is the age at which a change that no rules show is given up: by then it is a finding.
	unmeasured = 15 * time.Minute
)

// Limits of what is kept.
const (
	maxPending  = 10000 // changes that are waited for
	maxNotices  = 512   // changes of rules that are remembered
	maxWriters  = 8     // of them told with an event
	maxReadings = 64
)

// A Change is one of a Service or an EndpointSlice, as the API server tells it.
type Change struct {
	Kind, Namespace, Name string
	// Service is the name of the Service whose rules may change.
	Service string
	// What is added, updated or deleted.
	What            string
	ResourceVersion string
	// At is when it came in. Triggered and Written are what the object says; zero where it does not.
	At, Triggered, Written time.Time
}

// A Notice says that rules of the node changed, or that they may have, at At; or after Since and before that, for a change
// that was found by looking. Process is empty where the kernel does not say whose change it was.
type Notice struct {
	At, Since time.Time
	Process   string
	PID       int
}

// A Reading is one audit of the node.
type Reading struct {
	// Objects is when the objects were taken for it, before Begun, when the reading of the node began; Ended is when
	// that had ended. The rules are of a moment between the two.
	Objects, Begun, Ended time.Time
	Report                *report.Report
	Asked                 explain.Asked
	// ProxyStarted is when the kube-proxy that answers was started, ProxySynced when it last wrote its rules; zero when
	// none says.
	ProxyStarted, ProxySynced time.Time
	// Late is how long after a change of the proxy's rules somebody tells of it, where rules are looked at; 0 where the
	// kernel tells of each change.
	Late time.Duration
	// Set is how far the clock of the machine was set since the watch began.
	Set time.Duration
}

// State is what is known of a node. It is a function of what it is told and of nothing else: times come from outside.
type State struct {
	began bool
	node  string

	pending []*pendingChange
	asked   map[string]string
	// standing are the differences between rules and objects that the last reading showed, by Service.
	standing map[string]map[findingKey]bool

	notices []Notice
	// forgotten is when the newest one was that there was no room for.
	forgotten time.Time
	// readings are the times of the last ones, oldest first.
	readings []span
	// changed is when objects changed last.
	changed time.Time

	findings map[findingKey]*knownFinding
	sources  map[string]*knownSource
	// proxy is when kube-proxy was started, proxySet how far the clock was set when it said so.
	proxy    time.Time
	proxySet time.Duration

	// apiDown is since when the API does not answer; zero while it does. apiSaid is true once that was told.
	apiDown time.Time
	apiWhy  string
	apiSaid bool

	last Reading
	// wait is how long the last wait for something in the balance was.
	wait time.Duration

	// Unmeasured counts changes without a lag: nothing asks for rules of them, no rules showed them, or nobody could look.
	Unmeasured struct{ NothingAsked, GivenUp, Unknown int }
}

// pendingChange is a change whose rules are waited for.
type pendingChange struct {
	Change
	// before is what the objects asked of its Service in the last reading without the change, empty: nothing; standing are
	// the differences that the Service had then.
	before   string
	standing map[findingKey]bool
	// standingOfNode are those of no Service.
	standingOfNode map[findingKey]bool
	// notBefore: a reading that began then did not show it.
	notBefore time.Time
	// unread: since then some audit failed or could not judge.
	unread bool
	// shown is the first reading that shows it; zero: none yet.
	shown span
}

// span is the time that a reading took.
type span struct{ begun, ended time.Time }

type findingKey struct {
	id, subject string
	object      report.Object
}

// knownFinding is a finding that some reading showed and none since has not.
type knownFinding struct {
	finding report.Finding
	first   time.Time
	// told is when it was told; zero: not yet.
	told time.Time
}

// knownSource is the status of a source that was told, and one that may take its place.
type knownSource struct {
	told report.Source
	next report.Source
	// since is when next was first seen; zero while told holds.
	since time.Time
}

// Changed takes in a change of objects.
func (s *State) Changed(c Change) {
	if !s.began {
		return
	}
	if len(s.pending) >= maxPending {
		s.Unmeasured.Unknown++
		return
	}
	key := c.Namespace + "/" + c.Service
	p := &pendingChange{Change: c, before: s.asked[key], standing: s.standing[key], standingOfNode: s.standing[ofNode]}
	s.pending = append(s.pending, p)
	s.changed, s.wait = c.At, 0
}

// Noticed takes in a change of rules.
func (s *State) Noticed(n Notice) {
	if len(s.notices) >= maxNotices {
		s.forgotten = s.notices[0].At
		s.notices = slices.Delete(s.notices, 0, 1)
	}
	s.notices = append(s.notices, n)
	s.wait = 0
}

// APIAnswers takes in that the API server answers, or why it does not.
func (s *State) APIAnswers(at time.Time, why string) []report.NodeEvent {
	if why != "" {
		if s.apiDown.IsZero() {
			s.apiDown = at
		}
		s.apiWhy = why
		return s.Tick(at)
	}
	since, said := s.apiDown, s.apiSaid
	s.apiDown, s.apiWhy, s.apiSaid = time.Time{}, "", false
	if !said {
		return nil
	}
	e := s.event(at, report.EventSource, fmt.Sprintf("source api is ok again: the API server answers, after %s", at.Sub(since).Round(time.Second)))
	e.Source, e.Before = &report.Source{Name: "api", Status: "ok"}, "failed"
	return []report.NodeEvent{e}
}

// Tick says what is to be told because time has passed.
func (s *State) Tick(now time.Time) []report.NodeEvent {
	if s.apiDown.IsZero() || s.apiSaid || now.Sub(s.apiDown) < silence {
		return nil
	}
	s.apiSaid = true
	e := s.event(now, report.EventSource, "source api is failed: "+s.apiWhy+"; going on with the objects known so far")
	e.Source, e.Before = &report.Source{Name: "api", Status: "failed", Error: s.apiWhy}, "ok"
	return []report.NodeEvent{e}
}

// APIFailing tells whether it was told that the API server does not answer.
func (s *State) APIFailing() bool { return s.apiSaid }

// Due is when the node is to be read next although nothing more happens; false: only when something does.
func (s *State) Due() (time.Time, bool) {
	if !s.began {
		return time.Time{}, true
	}
	var due time.Time
	if s.balance() {
		due = s.last.Ended
		if s.changed.After(due) {
			due = s.changed
		}
		due = due.Add(max(s.wait, settle))
	}
	// Changes of rules come in bursts, one for each family at least: the reading waits for the end of one, not for long.
	for i := range s.notices {
		if first := s.notices[i].At; first.After(s.last.Begun) {
			at := s.notices[len(s.notices)-1].At.Add(quiet)
			if latest := first.Add(longestBurst); at.After(latest) {
				at = latest
			}
			if due.IsZero() || at.Before(due) {
				due = at
			}
			break
		}
	}
	return due, !due.IsZero()
}

// Wake is the next time at which Tick may have something to tell; false: none.
func (s *State) Wake() (time.Time, bool) {
	if s.apiDown.IsZero() || s.apiSaid {
		return time.Time{}, false
	}
	return s.apiDown.Add(silence), true
}

// balance tells whether anything waits for another reading.
func (s *State) balance() bool {
	if len(s.pending) > 0 {
		return true
	}
	for _, f := range s.findings {
		if f.told.IsZero() {
			return true
		}
	}
	for _, k := range s.sources {
		if !k.since.IsZero() {
			return true
		}
	}
	return false
}

// Read takes in a reading and says what it shows that is new: first lags, then the proxy and sources, then findings that
// cleared, then those that appeared.
func (s *State) Read(r Reading) []report.NodeEvent {
	var out []report.NodeEvent
	s.node = r.Report.Node
	if s.began {
		out = append(out, s.lags(r)...)
	}
	out = append(out, s.proxyOf(r)...)
	out = append(out, s.sourcesOf(r)...)
	out = append(out, s.findingsOf(r)...)
	if r.Asked.Judged {
		s.asked, s.standing = r.Asked.Digests, differences(r)
	}
	s.forget(r)
	if s.balance() {
		s.wait = min(max(2*s.wait, settle), longestWait)
	} else {
		s.wait = 0
	}
	s.began, s.last = true, r
	if s.readings = append(s.readings, span{r.Begun, r.Ended}); len(s.readings) > maxReadings {
		s.readings = slices.Delete(s.readings, 0, 1)
	}
	return out
}

// forget drops notices that no later reading can need: those from before it that may show no pending change.
func (s *State) forget(r Reading) {
	keep := r.Begun.Add(-time.Minute)
	for _, p := range s.pending {
		if t := p.after(); t.Before(keep) {
			keep = t
		}
	}
	s.notices = slices.DeleteFunc(s.notices, func(n Notice) bool { return n.At.Before(keep) })
}

// event begins an event.
func (s *State) event(at time.Time, kind report.EventType, text string) report.NodeEvent {
	e := report.NodeEvent{Time: stamp(at), Node: s.node, Type: kind, Text: oneLine(text), Writers: []report.Writer{}}
	e.APIVersion, e.Kind = report.APIVersion, "NodeEvent"
	if s.apiSaid {
		e.ObjectsOf = stamp(s.apiDown)
	}
	return e
}

// writers are the programs that changed rules after one time and up to another.
func (s *State) writers(after, until time.Time) []report.Writer {
	out := []report.Writer{}
	for _, n := range s.notices {
		if n.Process != "" && n.At.After(after) && !n.At.After(until) {
			out = append(out, report.Writer{Time: stamp(n.At), Process: n.Process, PID: n.PID})
		}
	}
	if len(out) > maxWriters {
		out = out[len(out)-maxWriters:]
	}
	return out
}

// stamp is a time as events say it.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
