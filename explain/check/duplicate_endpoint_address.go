package check

import (
	"fmt"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// duplicateEndpointAddress: one address:port of a Service stands under two pods. The same pod in two slices is how
// controllers move endpoints, and means nothing.
var duplicateEndpointAddress = Check{
	ID: "duplicate-endpoint-address", Rests: onObjects, Severity: Warning,
	Title: "endpoint addresses that several pods claim",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, note := range n.noted(intent.NoteEndpointTwice) {
			pods, evidence := n.claimants(&note)
			seen := slices.ContainsFunc(out, func(f report.Finding) bool { return f.Object == noteObject(&note) })
			if len(pods) < 2 || seen {
				continue
			}
			out = append(out, report.Finding{
				Object: noteObject(&note), Subject: note.Endpoint,
				Message: fmt.Sprintf("%s of %s/%s stands in its EndpointSlices under %d pods (%s): kube-proxy keeps one of the entries, and with it that one's conditions",
					note.Endpoint, note.Namespace, note.Service, len(pods), list(pods, podsShown)),
				Want: "one pod for each address and port", Got: list(pods, podsShown),
				Evidence: evidence,
				Causes: []string{
					"pods in the host's network of one node listen on the same port",
					"the address of a pod that is gone was given to a new one, and the old one's entry is still there",
					"the address ranges of two nodes overlap",
				},
				Remedy: fmt.Sprintf("see which of the pods has the address now: kubectl -n %s get pods -o wide; delete the one that has ended, or give host-network pods ports of their own", note.Namespace),
			})
		}
		return out
	},
}

// claimants are the pods under which slices list the address of a note.
func (n *Node) claimants(note *intent.Note) (pods []string, evidence []report.Evidence) {
	at, err := netip.ParseAddrPort(note.Endpoint)
	if err != nil {
		return nil, nil
	}
	for _, slice := range n.Objects.SlicesOf(note.Namespace, note.Service) {
		if !slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool {
			return p.Port != nil && *p.Port == int32(at.Port()) && p.Name != nil && *p.Name == note.Port
		}) {
			continue
		}
		before := len(pods)
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 || e.TargetRef == nil || e.TargetRef.Kind != "Pod" || slices.Contains(pods, e.TargetRef.Name) {
				continue
			}
			if a, err := netip.ParseAddr(e.Addresses[0]); err == nil && a.Unmap() == at.Addr() {
				pods = append(pods, e.TargetRef.Name)
			}
		}
		if len(pods) > before {
			evidence = append(evidence, sliceEvidence(slice))
		}
	}
	return pods, evidence
}
