package explain

import (
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/traits"
)

// capturedAt is when the evidence was taken: what the collector says, else the newest time in the evidence, because
// nothing in it can be younger than that. Zero when nothing in it has a time.
func (r *reader) capturedAt(s *snapshot.Snapshot) time.Time {
	if t, err := time.Parse(time.RFC3339, s.Captured); err == nil {
		return t.UTC()
	}
	newest := r.saved
	later := func(t time.Time) {
		if t.After(newest) {
			newest = t.UTC()
		}
	}
	p := &r.model.proxy
	later(p.Health.At)
	for _, sync := range p.Health.Syncs {
		later(sync.Last)
		later(sync.Queued)
	}
	objectTimes(r.model.objects, later)
	if newest.IsZero() && p.LogEnds != "" {
		// The year does not matter where there is nothing else to compare with: a leap year has every day.
		newest = time.Date(2024, 12, 31, 23, 59, 59, 0, time.UTC)
		t, _ := traits.Event{Time: p.LogEnds}.When(newest)
		return t
	}
	if t, ok := (traits.Event{Time: p.LogEnds}).When(newest); ok {
		later(t)
	}
	return newest
}

// objectTimes gives the times at which somebody touched the objects.
func objectTimes(set *objects.Set, later func(time.Time)) {
	for _, o := range set.Services {
		later(o.CreationTimestamp.Time)
	}
	for _, o := range set.EndpointSlices {
		later(o.CreationTimestamp.Time)
		later(objects.LastChange(o.Annotations))
	}
	for _, o := range set.Endpoints {
		later(o.CreationTimestamp.Time)
		later(objects.LastChange(o.Annotations))
	}
	for _, o := range set.Pods {
		later(o.CreationTimestamp.Time)
		for _, c := range o.Status.Conditions {
			later(c.LastTransitionTime.Time)
		}
	}
	for _, o := range set.Nodes {
		later(o.CreationTimestamp.Time)
		for _, c := range o.Status.Conditions {
			later(c.LastHeartbeatTime.Time)
		}
	}
}
