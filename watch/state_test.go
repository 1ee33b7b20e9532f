package watch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// noon is when the tests begin; times are seconds after it.
var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func at(s float64) time.Time { return noon.Add(time.Duration(s * float64(time.Second))) }

// A step is something that the state is told.
type step func(*State) []report.NodeEvent

// change is one of slice web-1 of Service store/web, or of another one.
func change(s float64, more ...func(*Change)) step {
	c := Change{Kind: "EndpointSlice", Namespace: "store", Name: "web-1", Service: "web", What: "updated", ResourceVersion: "7", At: at(s)}
	for _, m := range more {
		m(&c)
	}
	return func(st *State) []report.NodeEvent { st.Changed(c); return nil }
}

func notice(s float64, process string) step {
	return func(st *State) []report.NodeEvent {
		st.Noticed(Notice{At: at(s), Process: process, PID: 42})
		return nil
	}
}

// found is a notice of a change that was made between two times.
func found(since, s float64) step {
	return func(st *State) []report.NodeEvent { st.Noticed(Notice{At: at(s), Since: at(since)}); return nil }
}

func api(s float64, why string) step {
	return func(st *State) []report.NodeEvent { return st.APIAnswers(at(s), why) }
}

func tick(s float64) step {
	return func(st *State) []report.NodeEvent { return st.Tick(at(s)) }
}

// reading is one that took a tenth of a second. asked is what the objects ask of store/web.
func reading(s float64, asked string, with ...func(*report.Report)) step {
	return func(st *State) []report.NodeEvent { return st.Read(readingAt(s, asked, with...)) }
}

func readingAt(s float64, asked string, with ...func(*report.Report)) Reading {
	r := &report.Report{Node: "n1", Sources: []report.Source{{Name: "iptables", File: "v4", Status: "ok"}}}
	for _, w := range with {
		w(r)
	}
	a := map[string]string{}
	if asked != "" {
		a["store/web"] = asked
	}
	return Reading{Objects: at(s), Begun: at(s), Ended: at(s + 0.1), Report: r, Asked: explain.AskedOf(a, r)}
}

// looked is a reading of a node whose rules are looked at, every second.
func looked(s float64, asked string) step {
	return func(st *State) []report.NodeEvent {
		r := readingAt(s, asked)
		r.Late = 2 * time.Second
		return st.Read(r)
	}
}

// slow is a reading for which objects were taken half a second before it began.
func slow(s float64, asked string, with ...func(*report.Report)) step {
	return func(st *State) []report.NodeEvent {
		r := readingAt(s, asked, with...)
		r.Objects = at(s - 0.5)
		return st.Read(r)
	}
}

// failed is an audit of which nothing came.
func failed() step {
	return func(st *State) []report.NodeEvent { st.Failed(); return nil }
}

func finding(id, severity, pending string) func(*report.Report) {
	return func(r *report.Report) {
		r.Findings = append(r.Findings, report.Finding{
			ID: id, Severity: severity, Pending: pending, Message: "it is so",
			Object: report.Object{Kind: "Service", Namespace: "store", Name: "web"},
		})
	}
}

// nodeFinding is one that names no Service.
func nodeFinding(id string) func(*report.Report) {
	return func(r *report.Report) {
		r.Findings = append(r.Findings, report.Finding{ID: id, Severity: "warning", Pending: "not told", Object: report.Object{Kind: "Node", Name: "n1"}})
	}
}

func unknown(id string) func(*report.Report) {
	return func(r *report.Report) { r.Unknown = append(r.Unknown, report.Unknown{ID: id}) }
}

func source(status string) func(*report.Report) {
	return func(r *report.Report) { r.Sources[0].Status = status }
}

// told are events in a line each.
func told(events []report.NodeEvent) []string {
	out := []string{}
	for _, e := range events {
		line := string(e.Type)
		switch {
		case e.Lag != nil:
			line += fmt.Sprintf(" %.1f to %.1f from %s", e.Lag.AtLeast, e.Lag.Seconds, e.Lag.From)
		case e.Finding != nil:
			line += " " + e.Finding.Severity + " " + e.Finding.ID
		case e.Source != nil:
			line += " " + e.Source.Name + " " + e.Before + " to " + e.Source.Status
		}
		for _, w := range e.Writers {
			line += " by " + w.Process
		}
		out = append(out, line)
	}
	return out
}

// missing is a check that compares rules with objects, hazard one that does not; stale is about Services that are gone.
const (
	missing = "missing-endpoint-rule"
	hazard  = "ip-forward-off"
	stale   = "stale-service-rule"
)

func TestState(t *testing.T) {
	triggered := func(s float64) func(*Change) { return func(c *Change) { c.Triggered = at(s) } }
	tests := []struct {
		name  string
		steps []step
		want  []string
	}{
		{"a change that one writing of rules brings", []step{
			reading(0, "a"), change(10), notice(10.8, "iptables-restor"), reading(11, "b"),
		}, []string{"lag 0.8 to 0.8 from observed by iptables-restor"}},
		{"counted from the trigger", []step{
			reading(0, "a"), change(10, triggered(9.5)), notice(10.8, "x"), reading(11, "b"),
		}, []string{"lag 1.3 to 1.3 from triggered by x"}},
		{"a trigger of a clock that is ahead", []step{
			reading(0, "a"), change(10, triggered(10.5)), notice(10.8, "x"), reading(11, "b"),
		}, []string{"lag 0.8 to 0.8 from observed by x"}},
		{"one of two writings, it is not known which", []step{
			reading(0, "a"), change(10), notice(10.4, "x"), notice(10.8, "y"), reading(11, "b"),
		}, []string{"lag 0.4 to 0.8 from observed by x by y"}},
		{"the second of two writings", []step{
			reading(0, "a"), change(10), notice(10.4, "x"), reading(10.5, "b", finding(missing, "error", "")),
			notice(10.8, "y"), reading(11, "b"),
		}, []string{"lag 0.8 to 0.8 from observed by y"}},
		{"a writing before the change is not the one", []step{
			reading(0, "a"), notice(9, "x"), change(10), notice(10.8, "y"), reading(11, "b"),
		}, []string{"lag 0.8 to 0.8 from observed by y"}},
		{"rules that were there before the watch told", []step{
			reading(0, "a"), notice(9.9, "x"), change(10), reading(11.5, "b"),
		}, []string{"lag 0.0 to 0.0 from observed"}},
		{"rules that nobody tells of", []step{
			reading(0, "a"), change(10), reading(11.5, "b", finding(missing, "info", "young")), reading(13, "b"),
		}, []string{"lag 1.5 to 3.0 from observed"}},
		{"a writing that was found by looking", []step{
			reading(0, "a"), change(10), found(10.2, 12.2), reading(12.3, "b"),
		}, []string{"lag 0.2 to 2.2 from observed"}},
		{"a writing that was found by looking, perhaps from before", []step{
			reading(0, "a"), change(10), found(9, 11), reading(11.2, "b"),
		}, []string{"lag 0.0 to 1.0 from observed"}},
		{"a change that asks for no other rules", []step{
			reading(0, "a"), change(10), notice(10.8, "x"), reading(11, "a"),
		}, []string{}},
		{"a change that is undone before anybody looks", []step{
			reading(0, "a"), change(10), change(10.5), notice(10.8, "x"), reading(11, "a"),
		}, []string{}},
		{"a reading whose objects are older", []step{
			reading(0, "a"),
			func(st *State) []report.NodeEvent {
				st.Changed(Change{Namespace: "store", Service: "web", At: at(10.05)})
				return st.Read(readingAt(10, "a"))
			},
			notice(10.8, "x"), reading(11, "b"),
		}, []string{"lag 0.8 to 0.8 from observed by x"}},
		{"two changes, and what the first asked for is known when the second comes", []step{
			reading(0, "a"), change(10), reading(11, "b", finding(missing, "info", "young")),
			change(12), notice(12.5, "x"), reading(13, "a"),
		}, []string{"lag 0.5 to 0.5 from observed by x"}},
		{"a difference that stood before the change does not hold it up", []step{
			reading(0, "a", finding(missing, "error", "")), reading(5, "a", finding(missing, "error", "")),
			change(10), notice(10.8, "x"), reading(11, "b", finding(missing, "error", "")),
		}, []string{"appeared error " + missing, "lag 0.8 to 0.8 from observed by x"}},
		{"rules that could not be read show nothing", []step{
			reading(0, "a"), change(10), notice(10.8, "x"), reading(11, "b", unknown(missing)), reading(13, "b"),
		}, []string{"lag 0.8 to 0.8 from observed by x"}},
		{"a Service that is new, and one that is gone", []step{
			reading(0, ""), change(10), notice(10.5, "x"), reading(11, "a"),
			change(20), notice(20.5, "y"), reading(21, ""),
		}, []string{"lag 0.5 to 0.5 from observed by x", "lag 0.5 to 0.5 from observed by y"}},
		{"changes before the first reading are where the watch begins", []step{
			change(0), notice(0.5, "x"), reading(1, "a"), reading(5, "a"),
		}, []string{}},

		{"a Service that is gone while its rules are not", []step{
			reading(0, "a"), change(10), notice(10.4, "x"), reading(10.5, "", finding(stale, "warning", "")), notice(10.8, "y"), reading(11, ""),
		}, []string{"lag 0.8 to 0.8 from observed by y"}},
		{"one that is gone while its address and its sets are not, which name no Service", []step{
			reading(0, "a"), change(10), notice(10.4, "x"), reading(10.5, "", nodeFinding("ipvs-vip-without-service")), notice(10.8, "y"), reading(11, ""),
		}, []string{"lag 0.8 to 0.8 from observed by y"}},
		{"rules that are looked at, found after the reading that shows them", []step{
			looked(0, "a"), change(10), looked(11.5, "b"), found(10.3, 12.3), looked(12.5, "b"),
		}, []string{"lag 0.3 to 1.6 from observed"}},
		{"rules that are looked at, when another writing was found before", []step{
			looked(0, "a"), change(10), found(8.2, 10.2), looked(11.5, "b"), found(10.2, 12.3), looked(12.5, "b"),
		}, []string{"lag 0.0 to 1.6 from observed"}},
		{"rules that are looked at, and were there before the watch told", []step{
			looked(0, "a"), change(10), looked(11.5, "b"), looked(13, "b"), looked(16, "b"),
		}, []string{"lag 0.0 to 0.0 from observed"}},
		{"a Service that differed before, and nobody writes: not known to be in the rules", []step{
			reading(0, "a", finding(missing, "error", "")), reading(5, "a", finding(missing, "error", "")),
			change(10), reading(11.5, "b", finding(missing, "error", "")), reading(25, "b", finding(missing, "error", "")),
		}, []string{"appeared error " + missing}},
		{"a Service that differed before, read before the proxy writes", []step{
			reading(0, "a", finding(missing, "error", "")), reading(5, "a", finding(missing, "error", "")),
			change(10), reading(10.3, "b", finding(missing, "error", "")), notice(10.8, "x"), reading(11, "b", finding(missing, "error", "")),
		}, []string{"appeared error " + missing, "lag 0.8 to 0.8 from observed by x"}},
		{"a change that came in while objects were taken, and is among them", []step{
			reading(0, "a"), change(9.8), notice(9.9, "x"), slow(10, "b"), reading(12, "b"),
		}, []string{"lag 0.1 to 0.1 from observed by x"}},
		{"a change that came in while objects were taken, and is not among them", []step{
			reading(0, "a"), change(9.8), notice(9.9, "x"), slow(10, "a"), notice(10.3, "y"), reading(12, "b"),
		}, []string{"lag 0.1 to 0.5 from observed by x by y"}},
		{"a change that came in while objects were taken, behind one that is among them", []step{
			reading(0, "a"), change(9), change(9.8), notice(9.9, "x"), slow(10, "b"), notice(10.3, "y"), reading(12, "c"),
		}, []string{"lag 0.9 to 0.9 from observed by x", "lag 0.1 to 0.5 from observed by x by y"}},
		{"nobody could look for a long time: which writing it was is not known any more", []step{
			reading(0, "a"), change(10), notice(10.8, "x"), reading(11, "b", unknown(missing)), notice(300, "y"), reading(301, "b"),
		}, []string{}},
		{"audits failed for a long time", []step{
			reading(0, "a"), change(10), notice(10.8, "x"), failed(), notice(300, "y"), reading(301, "b"),
		}, []string{}},
		{"audits failed for a long time, and there was one writing", []step{
			reading(0, "a"), change(10), notice(10.8, "x"), failed(), reading(301, "b"),
		}, []string{"lag 0.8 to 0.8 from observed by x"}},

		{"a finding that stays appears, with who wrote before it was seen first", []step{
			reading(0, "a"), notice(9, "iptables"), reading(10, "a", finding(missing, "error", "")),
			reading(10.5, "a", finding(missing, "error", "")), notice(11, "other"), reading(12, "a", finding(missing, "error", "")),
			reading(20, "a", finding(missing, "error", "")),
		}, []string{"appeared error " + missing + " by iptables"}},
		{"one that is gone a moment later never was", []step{
			reading(0, "a"), reading(10, "a", finding(missing, "error", "")), reading(12, "a"),
		}, []string{}},
		{"one that is pending has not appeared", []step{
			reading(0, "a"), reading(10, "a", finding(missing, "info", "young")), reading(12, "a", finding(missing, "info", "young")),
			reading(30, "a", finding(missing, "error", "")),
		}, []string{"appeared error " + missing}},
		{"one that is no matter of rules has to stay as well: controllers take their time", []step{
			reading(0, "a"), reading(10, "a", finding(hazard, "error", "")), reading(11, "a"),
			reading(20, "a", finding(hazard, "error", "")), reading(22, "a", finding(hazard, "error", "")),
		}, []string{"appeared error " + hazard}},
		{"what is gone clears, with who wrote", []step{
			reading(0, "a", finding(hazard, "error", "")), reading(2, "a", finding(hazard, "error", "")), notice(9, "iptables"), reading(10, "a"), reading(20, "a"),
		}, []string{"appeared error " + hazard, "cleared error " + hazard + " by iptables"}},
		{"what could not be looked at is not gone", []step{
			reading(0, "a", finding(hazard, "error", "")), reading(2, "a", finding(hazard, "error", "")), reading(10, "a", unknown(hazard)), reading(20, "a", finding(hazard, "error", "")),
			reading(30, "a"),
		}, []string{"appeared error " + hazard, "cleared error " + hazard}},
		{"what becomes pending again is not gone", []step{
			reading(0, "a", finding(missing, "error", "")), reading(5, "a", finding(missing, "error", "")),
			reading(10, "a", finding(missing, "info", "young")), reading(20, "a", finding(missing, "error", "")),
		}, []string{"appeared error " + missing}},

		{"a source that changes, once it holds", []step{
			reading(0, "a"), reading(10, "a", source("denied")), reading(12, "a", source("denied")), reading(14, "a", source("denied")),
			reading(20, "a"), reading(22, "a"),
		}, []string{"source iptables ok to denied", "source iptables denied to ok"}},
		{"a source that could not be read once", []step{
			reading(0, "a"), reading(10, "a", source("failed")), reading(12, "a"), reading(14, "a", source("failed")),
		}, []string{}},
		{"the API is gone and comes back, told once", []step{
			reading(0, "a"), api(10, "refused"), tick(12), api(14, "refused"), tick(15), api(16, "refused"), api(40, ""), api(41, ""),
		}, []string{"source api ok to failed", "source api failed to ok"}},
		{"a watch that is taken up again is no news", []step{
			reading(0, "a"), api(10, "refused"), api(12, ""), tick(20),
		}, []string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var st State
			var events []report.NodeEvent
			for _, s := range tt.steps {
				events = append(events, s(&st)...)
			}
			if diff := cmp.Diff(tt.want, told(events)); diff != "" {
				t.Error(diff)
			}
			for _, e := range events {
				if e.Kind != "NodeEvent" || e.Writers == nil || e.Text == "" || strings.Contains(e.Text, "\n") || e.Time == "" {
					t.Errorf("event %+v", e)
				}
			}
		})
	}
}

// TestDue holds when the node is to be read.
func TestDue(t *testing.T) {
	tests := []struct {
		name  string
		steps []step
		want  float64 // -1: not before something happens
	}{
		{"nothing in the balance", []step{reading(0, "a")}, -1},
		{"a change waits for rules, and looks when none come", []step{reading(0, "a"), change(10)}, 11.5},
		{"and waits longer the next time", []step{reading(0, "a"), change(10), reading(11.5, "b", finding(missing, "info", "x")), reading(13.1, "b", finding(missing, "info", "x"))}, 16.2},
		{"rules changed", []step{reading(0, "a"), notice(10, "x")}, 10.1},
		{"a burst of changes", []step{reading(0, "a"), notice(10, "x"), notice(10.05, "x")}, 10.15},
		{"a burst without end", []step{reading(0, "a"), notice(10, "x"), notice(10.4, "x"), notice(10.6, "x")}, 10.5},
		{"rules changed while they were read", []step{reading(0, "a"), notice(0.05, "x")}, 0.15},
		{"rules changed before they were read", []step{notice(-1, "x"), reading(0, "a")}, -1},
		{"a finding that may go away", []step{reading(0, "a"), reading(10, "a", finding(missing, "error", ""))}, 11.6},
		{"a source that may come back", []step{reading(0, "a"), reading(10, "a", source("failed"))}, 11.6},
		{"a finding that was told", []step{reading(0, "a", finding(hazard, "error", "")), reading(2, "a", finding(hazard, "error", ""))}, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var st State
			for _, s := range tt.steps {
				s(&st)
			}
			due, ok := st.Due()
			if tt.want < 0 {
				if ok {
					t.Errorf("due %v after noon", due.Sub(noon))
				}
				return
			}
			if !ok || due.Sub(at(tt.want)).Abs() > time.Millisecond {
				t.Errorf("due %v (%v), want %v s after noon", due.Sub(noon), ok, tt.want)
			}
		})
	}
}

// TestGivenUp: a change that no rules show is not waited for for ever, and what is kept is bounded.
func TestGivenUp(t *testing.T) {
	var st State
	st.Read(readingAt(0, "a"))
	for i := range 2 * maxPending {
		st.Changed(Change{Namespace: "store", Service: "web", Name: fmt.Sprint(i), At: at(10)})
	}
	for i := range 2 * maxNotices {
		st.Noticed(Notice{At: at(10 + float64(i)/1000)})
	}
	if len(st.pending) != maxPending || len(st.notices) != maxNotices {
		t.Errorf("%d changes and %d notices are kept", len(st.pending), len(st.notices))
	}
	st.Read(readingAt(20, "b", finding(missing, "error", "")))
	if len(st.pending) != maxPending || st.Unmeasured.GivenUp != 0 {
		t.Errorf("%d changes wait after 10 s, %d were given up", len(st.pending), st.Unmeasured.GivenUp)
	}
	events := st.Read(readingAt(10+unmeasured.Seconds()+1, "b", finding(missing, "error", "")))
	if len(st.pending) != 0 || st.Unmeasured.GivenUp != maxPending {
		t.Errorf("%d changes wait, %d were given up", len(st.pending), st.Unmeasured.GivenUp)
	}
	if slices.ContainsFunc(events, func(e report.NodeEvent) bool { return e.Type == report.EventLag }) {
		t.Error("a lag of what no rules show")
	}
}

// TestProxyStarted: a kube-proxy that is started again is told once.
func TestProxyStarted(t *testing.T) {
	var st State
	var events []report.NodeEvent
	for i, started := range []float64{-100, -99.9, 0, 9, 9.01, 0} {
		r := readingAt(float64(10*i), "a")
		if started != 0 {
			r.ProxyStarted = at(started)
		}
		events = append(events, st.Read(r)...)
	}
	if diff := cmp.Diff([]string{"proxy"}, told(events)); diff != "" {
		t.Error(diff)
	}
}

// TestUnknown: what nobody could look at was not given up, which would say that rules do not show it.
func TestUnknown(t *testing.T) {
	var st State
	st.Read(readingAt(0, "a"))
	change(10)(&st)
	for s := 20.0; s < 10+2*unmeasured.Seconds(); s += 60 {
		st.Read(readingAt(s, "b", unknown(missing)))
	}
	if u := st.Unmeasured; len(st.pending) != 0 || u.GivenUp != 0 || u.Unknown != 1 {
		t.Errorf("%d changes wait, %+v", len(st.pending), u)
	}
	// More changes at once than are kept.
	for range maxPending + 3 {
		change(5000)(&st)
	}
	if st.Unmeasured.Unknown != 4 {
		t.Errorf("%+v after too many changes", st.Unmeasured)
	}
}

// TestForgotten: a bound that rests on notices which are not kept any more is none.
func TestForgotten(t *testing.T) {
	var st State
	st.Read(readingAt(0, "a"))
	change(10)(&st)
	for i := range 2 * maxNotices {
		st.Noticed(Notice{At: at(10.5 + float64(i)/1000)})
	}
	events := st.Read(readingAt(13, "b"))
	if diff := cmp.Diff([]string{"lag 0.0 to 1.5 from observed"}, told(events)); diff != "" {
		t.Error(diff)
	}
}

// TestClockSet: a clock that is set makes no new kube-proxy of an old one, and neither does a machine that slept.
func TestClockSet(t *testing.T) {
	var st State
	var events []report.NodeEvent
	for i, now := range []struct{ started, set float64 }{{-100, 0}, {3500, 3600}, {3500, 3600}, {3500, 7200}, {3500, 7200}, {8000, 7200}} {
		r := readingAt(float64(10*i), "a")
		r.ProxyStarted, r.Set = at(now.started), time.Duration(now.set*float64(time.Second))
		events = append(events, st.Read(r)...)
	}
	if diff := cmp.Diff([]string{"proxy"}, told(events)); diff != "" {
		t.Error(diff)
	}
}
