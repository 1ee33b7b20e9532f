package check

import (
	"fmt"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// The managers that Kubernetes has of its own.
const (
	sliceController     = "endpointslice-controller.k8s.io"
	mirroringController = "endpointslicemirroring-controller.k8s.io"
)

// noted are the notes of a kind about the Services whose ports are looked at.
func (n *Node) noted(kind intent.NoteKind) []intent.Note {
	var out []intent.Note
	for _, note := range n.Plan.Notes {
		if note.Kind == kind && len(n.Plan.Of(note.Namespace, note.Service)) > 0 {
			out = append(out, note)
		}
	}
	return out
}

// noteObject is the Service port that a note is about.
func noteObject(note *intent.Note) report.Object {
	return report.Object{
		Kind: "Service", Namespace: note.Namespace, Name: note.Service, Port: note.Port, Protocol: note.Protocol, Endpoint: note.Endpoint,
	}
}

func noteEvidence(note *intent.Note, text string) report.Evidence {
	return report.Evidence{Source: "objects", File: note.Evidence.File, Line: note.Evidence.Line, Text: text}
}

// sliceEvidence is a slice with what it lists, for a finding.
func sliceEvidence(s objects.EndpointSlice) report.Evidence {
	var addrs []string
	for _, e := range s.Endpoints {
		addrs = append(addrs, strings.Join(e.Addresses, "+"))
	}
	text := fmt.Sprintf("EndpointSlice %s/%s", s.Namespace, s.Name)
	if by := s.Labels[discoveryv1.LabelManagedBy]; by != "" {
		text += " of " + by
	}
	return ObjectEvidence(s.Evidence, fmt.Sprintf("%s: [%s]", text, list(addrs, podsShown)))
}

// slice is the slice of a name in a namespace, false when it is not there.
func (n *Node) slice(namespace, service, name string) (objects.EndpointSlice, bool) {
	for _, s := range n.Objects.SlicesOf(namespace, service) {
		if s.Name == name {
			return s, true
		}
	}
	return objects.EndpointSlice{}, false
}
