package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// settles is how long a change of objects may be on its way into the rules before a difference is worth a word:
// kube-proxy waits minSyncPeriod (a second by default) and then writes, which takes seconds in a big cluster.
const settles = 10 * time.Second

// pend marks differences that may be kube-proxy at work: those of Services that changed a moment before the evidence was
// taken. They are information then. Where a proxy that needs minutes for a sync is in the middle of one, they are
// warnings: what it writes is not there yet.
func (n *Node) pend(fs []report.Finding) {
	if e := n.syncing(); e != nil {
		for i := range fs {
			if f := &fs[i]; f.Object.Kind == "Service" && slices.Contains(unsynced, f.ID) && Rank(f.Severity) < Rank(Warning) {
				f.Severity = Warning
				f.Message += fmt.Sprintf("; a sync has been running since %s, and what it writes is not there yet", n.timeOf(e))
			}
		}
	}
	if n.Taken.IsZero() {
		return
	}
	for i := range fs {
		f := &fs[i]
		if f.Object.Kind != "Service" || !slices.Contains(unsynced, f.ID) || Rank(f.Severity) >= Rank(Info) {
			continue
		}
		changed := n.changed(f.Object.Namespace, f.Object.Name)
		if age := n.Taken.Sub(changed); !changed.IsZero() && age < settles && age > -settles {
			f.Severity = Info
			f.Pending = fmt.Sprintf("changed %s before this was read: kube-proxy may be at work on it", max(age, 0).Round(100*time.Millisecond))
		}
	}
}

// changed is when a Service or its endpoints changed last, as far as the objects say; zero when they do not.
func (n *Node) changed(namespace, name string) time.Time {
	var last time.Time
	see := func(t time.Time) {
		if t.After(last) {
			last = t
		}
	}
	if svc, ok := n.Objects.Service(namespace, name); ok {
		see(svc.CreationTimestamp.Time)
	}
	for _, s := range n.Objects.SlicesOf(namespace, name) {
		see(s.CreationTimestamp.Time)
		see(objects.LastChange(s.Annotations))
	}
	return last.UTC()
}
