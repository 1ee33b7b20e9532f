package explain

import (
	"slices"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/report"
)

// Settled is the second of two audits of a live node, taken one after the other: a difference that only the second one
// shows may be kube-proxy at work on a change, and is reported as pending. One that both show is there to stay.
func Settled(first, second *report.Report) *report.Report {
	r := *second
	r.Findings = slices.Clone(second.Findings)
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Pending != "" || slices.ContainsFunc(first.Findings, func(g report.Finding) bool { return sameFinding(f, &g) }) {
			continue
		}
		f.Severity = check.Info
		f.Pending = "not there a moment before: kube-proxy may be at work on a change"
	}
	check.Sort(r.Findings)
	conclude(&r)
	return &r
}

// MaySettle tells whether an audit of a live node found anything that may be gone with a second look a moment later.
func MaySettle(r *report.Report) bool {
	return slices.ContainsFunc(r.Findings, func(f report.Finding) bool {
		return f.Severity != check.Info && check.Lookup(f.ID).MaySettle()
	})
}

func sameFinding(a, b *report.Finding) bool {
	return a.ID == b.ID && a.Object == b.Object && a.Subject == b.Subject
}
