package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

const selectorMatchesNoPodsID = "selector-matches-no-pods"

// selectorMatchesNoPods: a Service has no endpoints because no pod of its namespace has the labels that it selects.
var selectorMatchesNoPods = Check{
	ID: selectorMatchesNoPodsID, Severity: Warning, Rests: onObjects,
	Title: "Services whose selector matches no pod",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, s := range n.emptyWithSelector() {
			pods, all := n.selected(s)
			if len(pods) > 0 {
				continue
			}
			if !all {
				n.lacks(SelectedBy)
				continue
			}
			out = append(out, n.matchesNoPod(s))
		}
		return out
	},
}

// emptyWithSelector are the Services that select pods and have no endpoint.
func (n *Node) emptyWithSelector() []*service {
	return slices.DeleteFunc(slices.Clone(n.services()), func(s *service) bool { return len(s.Spec.Selector) == 0 || !s.hasNoEndpoint() })
}

func (n *Node) matchesNoPod(s *service) report.Finding {
	f := report.Finding{
		Object: s.object(), Subject: s.key(),
		Message: fmt.Sprintf("no pod of namespace %s has the labels that %s selects (%s)", s.Namespace, s.key(), selectorOf(s)),
		Want:    "a pod with the labels " + selectorOf(s), Got: "none",
		Evidence: []report.Evidence{s.evidence()},
		Causes: []string{
			"the workload behind it is scaled to zero",
			"the selector and the labels of the pod template differ",
		},
		Remedy: fmt.Sprintf("compare the two: kubectl -n %s get service %s -o jsonpath='{.spec.selector}' and kubectl -n %s get pods --show-labels", s.Namespace, s.Name, s.Namespace),
	}
	if p, differs := n.nearest(s); p != nil {
		f.Message += fmt.Sprintf("; the nearest is pod %s, where %s", p.Name, differs)
		f.Evidence = append(f.Evidence, podEvidence(*p, "is not selected: "+differs))
		return f
	}
	if p := n.elsewhere(s); p != nil {
		f.Message += fmt.Sprintf("; pod %s in namespace %s does, but a selector looks into its own namespace only", p.Name, p.Namespace)
		f.Evidence = append(f.Evidence, podEvidence(*p, "is in another namespace"))
	}
	return f
}

// nearest is the pod of the namespace that has most of the labels of a selector, with what keeps it from having all;
// nil where none has any.
func (n *Node) nearest(s *service) (best *objects.Pod, differs string) {
	pods, _ := n.podsOf(s.Namespace)
	most := 0
	for i := range pods {
		same := 0
		var wrong []string
		for _, k := range slices.Sorted(maps.Keys(s.Spec.Selector)) {
			switch v, ok := pods[i].Labels[k]; {
			case ok && v == s.Spec.Selector[k]:
				same++
			case ok:
				wrong = append(wrong, fmt.Sprintf("%s is %q and not %q", k, v, s.Spec.Selector[k]))
			default:
				wrong = append(wrong, "there is no "+k)
			}
		}
		if same > most {
			most, best, differs = same, &pods[i], strings.Join(wrong, " and ")
		}
	}
	return best, differs
}

// elsewhere is a pod of another namespace that has all labels of a selector, nil for none.
func (n *Node) elsewhere(s *service) *objects.Pod {
	for i := range n.Objects.Pods {
		p := &n.Objects.Pods[i]
		matches := true
		for k, v := range s.Spec.Selector {
			matches = matches && p.Labels[k] == v
		}
		if matches {
			return p
		}
	}
	return nil
}
