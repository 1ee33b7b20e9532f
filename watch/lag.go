package watch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// start is what a lag counts from.
func (p *pendingChange) start() time.Time {
	if !p.Triggered.IsZero() && p.Triggered.Before(p.At) {
		return p.Triggered
	}
	return p.At
}

// differences are those between rules and objects, by Service.
func differences(a explain.Asked) map[string]map[findingKey]bool {
	out := make(map[string]map[findingKey]bool)
	for i := range a.Differ {
		f := &a.Differ[i]
		key := f.Object.Namespace + "/" + f.Object.Name
		if out[key] == nil {
			out[key] = make(map[findingKey]bool)
		}
		out[key][keyOf(f)] = true
	}
	return out
}

// lags says which pending changes the reading shows.
func (s *State) lags(r Reading) []report.NodeEvent {
	var out []report.NodeEvent
	differ := differences(r.Asked)
	var left []*pendingChange
	for _, p := range s.pending {
		key := p.Namespace + "/" + p.Service
		switch {
		case p.At.After(r.Objects):
			// The objects of this reading are older: it says what was asked before.
			if r.Asked.Judged {
				p.before, p.standing = r.Asked.Digests[key], differ[key]
			}
			left = append(left, p)
		case !r.Asked.Judged:
			left = s.keep(left, p, r)
		case r.Asked.Digests[key] == p.before:
			// It asks for the rules that are there, or is undone already.
			s.Unmeasured.NothingAsked++
		case lacks(differ[key], p.standing):
			p.notBefore = r.Begun
			left = s.keep(left, p, r)
		default:
			out = append(out, s.lag(p, r))
		}
	}
	s.pending = left
	slices.SortStableFunc(out, func(a, b report.NodeEvent) int { return cmp.Compare(a.Lag.Observed, b.Lag.Observed) })
	return out
}

// keep waits on for a change, unless it is too old.
func (s *State) keep(left []*pendingChange, p *pendingChange, r Reading) []*pendingChange {
	if r.Ended.Sub(p.At) > unmeasured {
		s.Unmeasured.GivenUp++
		return left
	}
	return append(left, p)
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

// lag is the event of a change that a reading shows. The rules that show it are those of one change of rules after the
// last reading that did not, up to the end of this one; which of them is not known where there were several.
func (s *State) lag(p *pendingChange, r Reading) report.NodeEvent {
	from := p.start()
	after := from
	if p.notBefore.After(after) {
		after = p.notBefore
	}
	var first, last time.Time
	for _, n := range s.notices {
		if n.At.Before(after) || n.At.After(r.Ended) {
			continue
		}
		if first.IsZero() {
			if first = n.At; !n.Since.IsZero() {
				if first = n.Since; first.Before(after) {
					first = after
				}
			}
		}
		last = n.At
	}
	if last.IsZero() {
		// Nobody told of a change of rules. Either they were there before the watch told of the object, or somebody changed
		// them in a way that nobody tells of, which this reading found.
		first, last = p.At, p.At
		if !p.notBefore.IsZero() {
			first, last = p.notBefore, r.Begun
		}
	}
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
	e.Writers = s.writers(after.Add(-time.Nanosecond), r.Ended)
	return e
}

// seconds are those of a duration to the microsecond, never below 0: clocks of two machines differ.
func seconds(d time.Duration) float64 { return max(d, 0).Round(time.Microsecond).Seconds() }
