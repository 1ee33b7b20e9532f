package check

import (
	"fmt"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

const managerConflictID = "endpointslice-manager-conflict"

// additive are managers that add slices to those of the EndpointSlice controller on purpose: backends of other
// clusters.
var additive = map[string]bool{"endpointslice-mesh-controller.cilium.io": true}

// endpointSliceManagerConflict: slices of one Service have different managers, each of which knows only its own;
// kube-proxy uses all of them.
var endpointSliceManagerConflict = Check{
	ID: managerConflictID, Severity: Warning, Rests: onObjects,
	Title: "Services whose EndpointSlices have several managers",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, s := range n.services() {
			if f := n.managerConflict(s); f != nil {
				out = append(out, *f)
			}
		}
		return out
	},
}

func (n *Node) managerConflict(s *service) *report.Finding {
	all := n.Objects.SlicesOf(s.Namespace, s.Name)
	if len(all) < 2 {
		return nil
	}
	byManager := make(map[string][]objects.EndpointSlice)
	var managers []string
	for _, slice := range all {
		by := slice.Labels[discoveryv1.LabelManagedBy]
		if len(slice.Endpoints) == 0 || additive[by] {
			continue // a manager that lists nothing is in nobody's way
		}
		if byManager[by] == nil {
			managers = append(managers, by)
		}
		byManager[by] = append(byManager[by], slice)
	}
	if len(managers) < 2 {
		return nil
	}
	slices.Sort(managers)
	var parts []string
	f := &report.Finding{
		Object: s.object(), Subject: s.key(),
		Want: "one manager for all slices of a Service", Got: fmt.Sprintf("%d managers", len(managers)),
		Evidence: []report.Evidence{s.evidence()},
		Causes:   []string{"somebody added a slice by hand or with a controller of his own", "the Service was changed between having and not having a selector"},
		Remedy:   fmt.Sprintf("find out which slices are wanted and delete the others: kubectl -n %s get endpointslices -l kubernetes.io/service-name=%s -L endpointslice.kubernetes.io/managed-by", s.Namespace, s.Name),
	}
	for _, by := range managers {
		for _, slice := range byManager[by] {
			parts = append(parts, fmt.Sprintf("%s of %s", slice.Name, managerName(by)))
			f.Evidence = append(f.Evidence, sliceEvidence(slice))
		}
	}
	f.Message = fmt.Sprintf("the EndpointSlices of %s have different managers (%s): each tends its own ones only, and kube-proxy uses the endpoints of all", s.key(), list(parts, podsShown))
	if mirrored := byManager[mirroringController]; len(mirrored) > 0 && len(byManager[sliceController]) > 0 && len(s.Spec.Selector) > 0 {
		names := sliceNames(mirrored)
		f.Severity = Error
		f.Message = fmt.Sprintf("%s has a selector, and beside the slices of the EndpointSlice controller it has %s of the mirroring controller, which is for Services without one: nobody updates it any more, and kube-proxy goes on sending to what it lists",
			s.key(), list(names, podsShown))
		f.Causes = []string{"the selector was taken away for a while and came back: kube-controller-manager does not clean the mirrored slice up"}
		f.Remedy = fmt.Sprintf("kubectl -n %s delete endpointslice %s; upgrade kube-controller-manager", s.Namespace, strings.Join(names, " "))
	}
	return f
}

func managerName(by string) string {
	switch by {
	case "":
		return "nobody"
	case sliceController:
		return "the EndpointSlice controller"
	case mirroringController:
		return "the mirroring controller"
	}
	return by
}

func sliceNames(all []objects.EndpointSlice) []string {
	var out []string
	for _, s := range all {
		out = append(out, s.Name)
	}
	return out
}
