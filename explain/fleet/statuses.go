package fleet

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain/report"
)

// Statuses gathers what serves Services on many nodes. The zero value is ready.
type Statuses struct {
	kinds
	items []report.NodeStatus
}

// Add takes in the status of one node. Nodes have different names.
func (l *Statuses) Add(s *report.NodeStatus) {
	l.add(s.Node, withoutNode(s.Summary.Text, s.Node), statusRank(s), statusParts(s))
	l.items = append(l.items, *s)
}

// List is the document of all nodes so far.
func (l *Statuses) List() *report.NodeStatusList {
	out := &report.NodeStatusList{
		TypeMeta: metav1.TypeMeta{APIVersion: report.APIVersion, Kind: "NodeStatusList"},
		Items:    append([]report.NodeStatus{}, l.items...), Kinds: l.kindred(), Unread: l.unreadNodes(),
	}
	slices.SortFunc(out.Items, func(a, b report.NodeStatus) int { return cmp.Compare(a.Node, b.Node) })
	out.Summary.Text = l.text() + "."
	return out
}

func statusRank(s *report.NodeStatus) int {
	switch s.Verdict {
	case report.StatusHealthyProgrammed:
		return 2
	case report.StatusHealthy, report.StatusProgrammed, report.StatusUnknown:
		return 1
	}
	return 0
}

// perNode are the traits that every node has its own value of.
var perNode = []string{"lastSync", "nodeName", "nodePodCIDR"}

// statusParts is what a status says.
func statusParts(s *report.NodeStatus) []part {
	o := ownOf(s.Node, s.Own)
	parts := []part{
		{key: "verdict\n" + string(s.Verdict), words: string(s.Verdict)},
		{
			key:   fmt.Sprintf("ports\n%d %d %d %d", s.Ports.Total, s.Ports.Programmed, s.Ports.Differ, s.Ports.Unknown),
			words: fmt.Sprintf("%d of %d service ports programmed", s.Ports.Programmed, s.Ports.Total),
		},
	}
	for _, t := range s.Traits {
		if !slices.Contains(perNode, t.Name) {
			parts = append(parts, part{key: "trait " + t.Name + "\n" + o.in(t.Value), words: t.Name + " " + cmp.Or(t.Value, "not known")})
		}
	}
	return append(parts, sourceParts(s.Sources)...)
}
