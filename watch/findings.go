package watch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/svcnet/svcnet/explain/report"
)

func keyOf(f *report.Finding) findingKey {
	return findingKey{id: f.ID, subject: f.Subject, object: f.Object}
}

// compareKeys orders findings that a reading no longer shows.
func compareKeys(a, b findingKey) int {
	return cmp.Or(strings.Compare(a.id, b.id), strings.Compare(a.object.Namespace, b.object.Namespace),
		strings.Compare(a.object.Name, b.object.Name), strings.Compare(a.object.Port, b.object.Port), strings.Compare(a.subject, b.subject))
}

// findingsOf says which findings are gone and which are new. One whose check could not be answered is not gone. One is new
// when it is still there a moment later, and no longer called pending: the proxy, or a controller, may have been at work.
func (s *State) findingsOf(r Reading) []report.NodeEvent {
	if s.findings == nil {
		s.findings = make(map[findingKey]*knownFinding)
	}
	now := make(map[findingKey]*report.Finding, len(r.Report.Findings))
	for i := range r.Report.Findings {
		now[keyOf(&r.Report.Findings[i])] = &r.Report.Findings[i]
	}
	unknown := make(map[string]bool, len(r.Report.Unknown))
	for _, u := range r.Report.Unknown {
		unknown[u.ID] = true
	}
	var out []report.NodeEvent
	for _, k := range slices.SortedFunc(maps.Keys(s.findings), compareKeys) {
		f := s.findings[k]
		if now[k] != nil || unknown[k.id] {
			continue
		}
		delete(s.findings, k)
		if f.told.IsZero() {
			continue
		}
		e := s.event(r.Ended, report.EventCleared, fmt.Sprintf("%s cleared: %s", k.id, f.finding.Message))
		e.Finding, e.Since, e.Writers = &f.finding, stamp(f.told), s.writers(s.last.Begun, r.Ended)
		out = append(out, e)
	}
	// As the report orders them, worst first.
	for i := range r.Report.Findings {
		f := &r.Report.Findings[i]
		k := keyOf(f)
		was := s.findings[k]
		if was == nil {
			was = &knownFinding{first: r.Ended}
			s.findings[k] = was
		}
		if !was.told.IsZero() {
			if f.Pending == "" {
				was.finding = *f
			}
			continue
		}
		was.finding = *f
		if f.Pending != "" || r.Begun.Sub(was.first) < settle {
			continue
		}
		was.told = r.Ended
		e := s.event(r.Ended, report.EventAppeared, fmt.Sprintf("%s %s: %s", f.Severity, f.ID, f.Message))
		e.Finding, e.Writers = &was.finding, s.writers(s.before(was.first), was.first)
		out = append(out, e)
	}
	return out
}

// before is when the reading before the one that ended at a time began, as far as it is remembered; that one may have
// seen a change of rules that was made while it went on.
func (s *State) before(ended time.Time) time.Time {
	var begun time.Time
	for _, r := range s.readings {
		if r.ended.Before(ended) {
			begun = r.begun
		}
	}
	return begun
}

// Open are the findings that were told and are not gone, by id, then object and subject.
func (s *State) Open() []report.Finding {
	var out []report.Finding
	for _, k := range slices.SortedFunc(maps.Keys(s.findings), compareKeys) {
		if f := s.findings[k]; !f.told.IsZero() {
			out = append(out, f.finding)
		}
	}
	return out
}

// sourcesOf says which sources have another status than was told. A status has to hold for a moment: a source that
// could not be read once because rules kept changing is no news.
func (s *State) sourcesOf(r Reading) []report.NodeEvent {
	if s.sources == nil {
		s.sources = make(map[string]*knownSource)
	}
	var out []report.NodeEvent
	now := make(map[string]report.Source)
	for _, src := range r.Report.Sources {
		now[sourceKey(src)] = src
	}
	for _, k := range slices.Sorted(maps.Keys(s.sources)) {
		if _, ok := now[k]; !ok {
			// A file that is read in place of another one, or that only some nodes have.
			was := s.sources[k].told
			now[k] = report.Source{Name: was.Name, File: was.File, Status: "absent"}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(now)) {
		src := now[k]
		was := s.sources[k]
		switch {
		case was == nil && !s.began:
			s.sources[k] = &knownSource{told: src}
			continue
		case was == nil:
			was = &knownSource{told: report.Source{Name: src.Name, File: src.File, Status: "absent"}}
			s.sources[k] = was
		}
		if src.Status == was.told.Status {
			was.told, was.since = src, time.Time{}
			continue
		}
		if was.since.IsZero() || was.next.Status != src.Status {
			was.next, was.since = src, r.Ended
			continue
		}
		if r.Begun.Sub(was.since) < settle {
			continue
		}
		text := fmt.Sprintf("source %s (%s) is %s, was %s", src.Name, src.File, src.Status, was.told.Status)
		if src.Error != "" {
			text += ": " + src.Error
		}
		e := s.event(r.Ended, report.EventSource, text)
		e.Source, e.Before = &src, was.told.Status
		was.told, was.since = src, time.Time{}
		out = append(out, e)
	}
	return out
}

func sourceKey(s report.Source) string { return s.Name + " " + s.File }

// Sources are the statuses that were told, by name and file.
func (s *State) Sources() []report.Source {
	var out []report.Source
	for _, k := range slices.Sorted(maps.Keys(s.sources)) {
		out = append(out, s.sources[k].told)
	}
	return out
}

// proxyOf says that another kube-proxy answers than before.
func (s *State) proxyOf(r Reading) []report.NodeEvent {
	was := s.proxy
	if r.ProxyStarted.IsZero() {
		return nil
	}
	set := r.Set - s.proxySet
	s.proxy, s.proxySet = r.ProxyStarted, r.Set
	// It says when it was started to a hundredth of a second, and counts that from when the machine was.
	moved := r.ProxyStarted.Sub(was)
	if was.IsZero() || moved.Abs() < time.Second {
		return nil
	}
	// A clock that is set moves the start of what has run all the time. (A machine that slept sets the clock as this
	// program sees it, and moves no start.)
	if (moved - set).Abs() < time.Second {
		return nil
	}
	e := s.event(r.Ended, report.EventProxy, "kube-proxy was started again at "+r.ProxyStarted.UTC().Format(time.RFC3339))
	return []report.NodeEvent{e}
}
