package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// endpointExtraAddressesIgnored: an endpoint has several addresses, of which kube-proxy uses the first.
var endpointExtraAddressesIgnored = Check{
	ID: "endpoint-extra-addresses-ignored", Rests: onObjects, Severity: Warning,
	Title: "endpoints with addresses that are never used",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, note := range n.noted(intent.NoteExtraAddresses) {
			addrs := n.addressesAt(&note)
			object := noteObject(&note)
			object.Endpoint = note.Endpoint
			out = append(out, report.Finding{
				Object: object, Subject: fmt.Sprintf("EndpointSlice %s, endpoint [%s]", note.Slice, strings.Join(addrs, " ")),
				Message: note.Text + ": the addresses of one endpoint are taken to be interchangeable",
				Want:    "one address in each endpoint", Got: list(addrs, podsShown),
				Evidence: []report.Evidence{noteEvidence(&note, fmt.Sprintf("EndpointSlice %s/%s: addresses [%s]", note.Namespace, note.Slice, list(addrs, podsShown)))},
				Causes:   []string{"whoever wrote the slice took addresses for a list of backends"},
				Remedy:   fmt.Sprintf("write an entry of its own under endpoints for each address: kubectl -n %s edit endpointslice %s", note.Namespace, note.Slice),
			})
		}
		return out
	},
}

// addressesAt are the addresses of the endpoint that a note is about.
func (n *Node) addressesAt(note *intent.Note) []string {
	slice, ok := n.slice(note.Namespace, note.Service, note.Slice)
	if !ok {
		return nil
	}
	for i := range slice.Endpoints {
		if addrs := slice.Endpoints[i].Addresses; len(addrs) > 1 && addrs[0] == note.Endpoint && strings.HasSuffix(note.Text, strings.Join(addrs[1:], ", ")) {
			return slices.Clone(addrs)
		}
	}
	return nil
}
