package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// endpointSliceLabelledForOtherProxy: kube-proxy forwards the Service, and a label on its slice hides the endpoints.
// A Service that carries the label itself is another proxy's, with its slices.
var endpointSliceLabelledForOtherProxy = Check{
	ID: "endpointslice-labelled-for-other-proxy", Rests: onObjects, Severity: Error,
	Title: "EndpointSlices that a label hides from kube-proxy",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, note := range n.noted(intent.NoteSliceHidden) {
			f := report.Finding{
				Object: noteObject(&note), Subject: "EndpointSlice " + note.Slice,
				Message: fmt.Sprintf("%s, while Service %s/%s has no such label: its endpoints in this slice get no traffic", note.Text, note.Namespace, note.Service),
				Want:    "the label on both or on neither", Got: "the label on the slice alone",
				Evidence: []report.Evidence{noteEvidence(&note, fmt.Sprintf("EndpointSlice %s/%s, label service.kubernetes.io/service-proxy-name", note.Namespace, note.Slice))},
				Causes: []string{
					"the label was taken off the Service, and the slice has kept it (the controller copies labels of the Service, others than its own stay)",
					"whoever wrote the slice meant another proxy",
				},
				Remedy: fmt.Sprintf("kubectl -n %s label endpointslice %s service.kubernetes.io/service-proxy-name-", note.Namespace, note.Slice),
			}
			out = append(out, f)
		}
		return out
	},
}
