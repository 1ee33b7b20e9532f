package watch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/svcnet/svcnet/explain/report"
)

// start is what a lag counts from.
func (p *pendingChange) start() time.Time {
	if !p.Triggered.IsZero() && p.Triggered.Before(p.At) {
		return p.Triggered
	}
	return p.At
}

// leftovers are the checks that say that rules of what is gone are still there. explain.Asked leaves them out: they rest
// on rules alone, or, in IPVS mode, name no Service.
var leftovers = []string{"ipset-entry-stale", "ipvs-vip-without-service", "stale-service-rule"}

// ofNode is the key of differences that are of no Service.
const ofNode = ""

// differences are those between rules and objects, by Service.
func differences(r Reading) map[string]map[findingKey]bool {
	out := make(map[string]map[findingKey]bool)
	add := func(f *report.Finding) {
		key := ofNode
		if f.Object.Kind == "Service" {
			key = f.Object.Namespace + "/" + f.Object.Name
		}
		if out[key] == nil {
			out[key] = make(map[findingKey]bool)
		}
		out[key][keyOf(f)] = true
	}
	for i := range r.Asked.Differ {
		add(&r.Asked.Differ[i])
	}
	for i := range r.Report.Findings {
		if f := &r.Report.Findings[i]; slices.Contains(leftovers, f.ID) {
			add(f)
		}
	}
	return out
}

// patience is how long a writing of rules is waited for where a Service differs as much as before its change: nothing but
// that writing says that the change is in the rules.
const patience = 10 * time.Second

// lags says which pending changes the reading shows.
func (s *State) lags(r Reading) []report.NodeEvent {
	var out []report.NodeEvent
	differ := differences(r)
	var left []*pendingChange
	// earlier are the Services that a change before the one at hand was of.
	earlier := make(map[string]bool)
	for _, p := range s.pending {
		key := p.Namespace + "/" + p.Service
		asked := r.Asked.Digests[key]
		// A change that came in while objects were taken is among them if they ask for something else, and no other change
		// can be the reason.
		among := !p.At.After(r.Objects) || !p.At.After(r.Begun) && r.Asked.Judged && asked != p.before && !earlier[key]
		earlier[key] = true
		switch {
		case !p.shown.begun.IsZero():
			left, out = s.shown(left, out, p, r)
		case !among:
			// The objects of this reading are older: it says what was asked before.
			if r.Asked.Judged {
				p.before, p.standing, p.standingOfNode = asked, differ[key], differ[ofNode]
			}
			left = append(left, p)
		case !r.Asked.Judged:
			p.unread = true
			if r.Ended.Sub(p.At) > unmeasured {
				s.Unmeasured.Unknown++
				continue
			}
			left = append(left, p)
		case asked == p.before:
			// It asks for the rules that are there, or is undone already.
			s.Unmeasured.NothingAsked++
		case lacks(differ[key], p.standing), asked == "" && lacks(differ[ofNode], p.standingOfNode):
			p.notBefore, p.unread = r.Begun, false
			if r.Ended.Sub(p.At) > unmeasured {
				s.Unmeasured.GivenUp++
				continue
			}
			left = append(left, p)
		case len(differ[key]) > 0 && !s.written(p, r):
			// The differences may be those that stood before, or hide that this change is not in the rules either.
			if r.Begun.Sub(p.At) >= patience {
				s.Unmeasured.Unknown++
				continue
			}
			left = append(left, p)
		default:
			p.shown = span{r.Begun, r.Ended}
			left, out = s.shown(left, out, p, r)
		}
	}
	s.pending = left
	slices.SortStableFunc(out, func(a, b report.NodeEvent) int { return cmp.Compare(a.Lag.Observed, b.Lag.Observed) })
	return out
}

// shown tells of a change that some reading showed, once all that was written until then was told.
func (s *State) shown(left []*pendingChange, out []report.NodeEvent, p *pendingChange, r Reading) ([]*pendingChange, []report.NodeEvent) {
	told := r.Late == 0 || r.Begun.Sub(p.shown.ended) >= r.Late || slices.ContainsFunc(s.notices, func(n Notice) bool {
		return !n.Since.IsZero() && n.At.After(p.shown.ended)
	})
	if !told {
		return append(left, p), out
	}
	first, last := s.bounds(p)
	// Where nobody could look, many may have written meanwhile: the last of them says nothing of this change.
	if p.unread && last.Sub(first) > longestWait {
		s.Unmeasured.Unknown++
		return left, out
	}
	return left, append(out, s.lag(p, r, first, last))
}

// Failed takes in that an audit failed: rules were not looked at.
func (s *State) Failed() {
	for _, p := range s.pending {
		p.unread = true
	}
}

// lacks tells whether there is a difference that was not there before.
func lacks(now, before map[findingKey]bool) bool {
	for k := range now {
		if !before[k] {
			return true
		}
	}
	return false
}

// after is when the rules that show a change were written at the earliest.
func (p *pendingChange) after() time.Time {
	if from := p.start(); !p.notBefore.After(from) {
		return from
	}
	return p.notBefore
}

// by tells whether rules that a notice tells of may have been there at a time.
func (n *Notice) by(t time.Time) bool {
	return !n.At.After(t) || !n.Since.IsZero() && n.Since.Before(t)
}

// written tells whether anybody changed rules that the reading may show, since what a change counts from.
func (s *State) written(p *pendingChange, r Reading) bool {
	after := p.after()
	return slices.ContainsFunc(s.notices, func(n Notice) bool { return !n.At.Before(after) && n.by(r.Ended) })
}

// bounds are the first and the last moment at which the rules may have been written that the first reading showed which
// showed a change. They are those of one change of rules after the last reading that did not; which of them is not known
// where there were several.
func (s *State) bounds(p *pendingChange) (first, last time.Time) {
	after := p.after()
	for i := range s.notices {
		n := &s.notices[i]
		if n.At.Before(after) || !n.by(p.shown.ended) {
			continue
		}
		if first.IsZero() {
			if first = n.At; !n.Since.IsZero() {
				if first = n.Since; first.Before(after) {
					first = after
				}
			}
		}
		if last = n.At; last.After(p.shown.ended) {
			last = p.shown.ended
		}
	}
	if !s.forgotten.IsZero() && !s.forgotten.Before(after) {
		// There were more than are remembered.
		if first = after; last.IsZero() {
			last = p.shown.ended
		}
	}
	if last.IsZero() {
		// Nobody told of a change of rules. Either they were there before the watch told of the object, or somebody changed
		// them in a way that nobody tells of, which this reading found.
		first, last = p.At, p.At
		if !p.notBefore.IsZero() {
			first, last = p.notBefore, p.shown.begun
		}
	}
	return first, last
}

// lag is the event of a change, whose rules were written at some moment from first to last.
func (s *State) lag(p *pendingChange, r Reading, first, last time.Time) report.NodeEvent {
	from := p.start()
	l := &report.Lag{
		Kind: p.Kind, Namespace: p.Namespace, Name: p.Name, Service: p.Service,
		Change: p.What, ResourceVersion: p.ResourceVersion,
		Triggered: stamp(p.Triggered), Written: stamp(p.Written), Observed: stamp(p.At), Shown: stamp(last), From: "observed",
		Seconds: seconds(last.Sub(from)), AtLeast: seconds(first.Sub(from)),
	}
	if from != p.At {
		l.From = "triggered"
	}
	about := fmt.Sprintf("%s %s/%s %s", p.Kind, p.Namespace, p.Name, p.What)
	if p.Name != p.Service {
		about += " (Service " + p.Service + ")"
	}
	e := s.event(r.Ended, report.EventLag, fmt.Sprintf("%s: in the kernel %.3f s after it was %s", about, l.Seconds, l.From))
	e.Lag = l
	e.Writers = s.writers(p.after().Add(-time.Nanosecond), p.shown.ended)
	return e
}

// seconds are those of a duration to the microsecond, never below 0: clocks of two machines differ.
func seconds(d time.Duration) float64 { return max(d, 0).Round(time.Microsecond).Seconds() }
