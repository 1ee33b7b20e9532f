package check

import (
	"fmt"
	"slices"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

const podsNotReadyID = "pods-not-ready"

// podsNotReady: a Service has no endpoints because none of the pods that it selects is ready. It names them, and what
// each lacks.
var podsNotReady = Check{
	ID: podsNotReadyID, Severity: Warning, Rests: onObjects,
	Title: "Services whose pods are all not ready",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, s := range n.emptyWithSelector() {
			pods, all := n.selected(s)
			switch {
			case !all:
				n.lacks(SelectedBy)
			case len(pods) > 0 && !slices.ContainsFunc(pods, func(p objects.Pod) bool { return podReady(p.Pod) }):
				out = append(out, noneReady(s, pods))
			}
		}
		return out
	},
}

// podsShown is how many pods a message names and shows as evidence.
const podsShown = 5

func noneReady(s *service, pods []objects.Pod) report.Finding {
	f := report.Finding{
		Object: s.object(), Subject: s.key(),
		Want: "a ready pod", Got: fmt.Sprintf("0 of %s ready", plural(len(pods), "pod")),
		Evidence: []report.Evidence{s.evidence()},
	}
	var states []string
	for i, p := range pods {
		why := whyUnready(p.Pod)
		states = append(states, p.Name+" "+why)
		if i < podsShown {
			f.Evidence = append(f.Evidence, podEvidence(p, why))
		}
	}
	f.Message = fmt.Sprintf("%s selects %s, and none is ready: %s", s.key(), plural(len(pods), "pod"), list(states, podsShown))
	f.Remedy = fmt.Sprintf("kubectl -n %s describe pod %s (its events), and kubectl -n %s logs %s --previous where a container stops", s.Namespace, pods[0].Name, s.Namespace, pods[0].Name)
	return f
}
