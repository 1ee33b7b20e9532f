package render

import "github.com/svcnet/svcnet/explain/report"

// Caused is a finding with how many others stand between it and one that stands for itself: 0 for a root cause.
type Caused struct {
	*report.Finding
	Depth int
}

// ByCause puts findings in the order in which Report shows them, each with what follows from it behind it: behind the
// one of the same object where there is one, else behind all that may have caused it.
func ByCause(all []report.Finding) []Caused {
	type object struct{ namespace, name string }
	follows := make(map[*report.Finding][]*report.Finding)
	var place func(groups []*group)
	place = func(groups []*group) {
		for _, g := range groups {
			cause := make(map[object]*report.Finding)
			for _, f := range g.findings {
				if at := (object{f.Object.Namespace, f.Object.Name}); cause[at] == nil {
					cause[at] = f
				}
			}
			for _, kids := range g.follows {
				for _, f := range kids.findings {
					from := cause[object{f.Object.Namespace, f.Object.Name}]
					if from == nil {
						from = g.findings[len(g.findings)-1]
					}
					follows[from] = append(follows[from], f)
				}
			}
			place(g.follows)
		}
	}
	top := roots(onOneNode(all))
	place(top)
	out := make([]Caused, 0, len(all))
	var add func(findings []*report.Finding, depth int)
	add = func(findings []*report.Finding, depth int) {
		for _, f := range findings {
			out = append(out, Caused{f, depth})
			add(follows[f], depth+1)
		}
	}
	for _, g := range top {
		add(g.findings, 0)
	}
	return out
}
