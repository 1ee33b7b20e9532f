package check

import (
	"slices"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// nodePortAllocatedTwice: one port of the nodes has two purposes, as node ports or health check ports.
var nodePortAllocatedTwice = Check{
	ID: "nodeport-allocated-twice", Rests: onObjects, Severity: Error,
	Title: "node ports and health check ports that are given out twice",
	Node: func(n *Node) []report.Finding {
		if !n.Needs(Services) {
			return nil
		}
		var out []report.Finding
		var said []string
		for i := range n.Plan.Notes {
			note := &n.Plan.Notes[i]
			if note.Kind != intent.NoteNodePortTwice || slices.Contains(said, note.Text) {
				continue // both families of a dual-stack Service say the same
			}
			said = append(said, note.Text)
			out = append(out, n.allocatedTwice(note))
		}
		return out
	},
}

func (n *Node) allocatedTwice(note *intent.Note) report.Finding {
	f := report.Finding{
		Object:   report.Object{Kind: "Service", Namespace: note.Namespace, Name: note.Service, Port: note.Port, Protocol: note.Protocol},
		Subject:  note.Namespace + "/" + note.Service,
		Message:  note.Text + ": only one of them can have it",
		Want:     "a port number for one purpose",
		Got:      "two purposes",
		Evidence: []report.Evidence{planEvidence(note.Evidence, "Service "+note.Namespace+"/"+note.Service)},
		Causes: []string{
			"the API server's record of allocated ports was lost or is damaged (a restored etcd, several API servers with different ranges)",
			"healthCheckNodePort was set by hand",
		},
		Remedy: "re-create one of the Services so that it gets another port (kube-apiserver only reports such a clash, as an event PortAlreadyAllocated)",
	}
	for _, other := range n.sharing(note) {
		f.Evidence = append(f.Evidence, serviceEvidence(other))
	}
	for _, e := range n.Proxy.Events {
		if e.Kind == traits.PortTaken && strings.Contains(e.Subject, note.Namespace+"/"+note.Service) {
			f.Evidence = append(f.Evidence, report.Evidence{Source: "kube-proxy log", File: e.File, Line: e.Line, Text: e.Text})
			break
		}
	}
	return f
}

// sharing are the other Services that have a port of the note's service port, one port of each.
func (n *Node) sharing(note *intent.Note) []*intent.ServicePort {
	taken := make(map[string]bool)
	for _, sp := range n.Plan.Of(note.Namespace, note.Service) {
		if sp.PortName == note.Port && sp.Protocol == note.Protocol && sp.Family == note.Family {
			for _, port := range nodePortsOf(sp) {
				taken[port] = true
			}
		}
	}
	var out []*intent.ServicePort
	for _, sp := range n.Plan.Ports {
		if sp.Family != note.Family || sp.Namespace == note.Namespace && sp.Name == note.Service {
			continue
		}
		for _, port := range nodePortsOf(sp) {
			if taken[port] && (len(out) == 0 || out[len(out)-1].Namespace != sp.Namespace || out[len(out)-1].Name != sp.Name) {
				out = append(out, sp)
			}
		}
	}
	return out
}

// nodePortsOf are the ports of nodes that a service port takes, as "30080/TCP".
func nodePortsOf(sp *intent.ServicePort) []string {
	var out []string
	if sp.NodePort != 0 {
		out = append(out, strconv.Itoa(sp.NodePort)+"/"+sp.Protocol)
	}
	if sp.HealthCheckNodePort != 0 {
		out = append(out, strconv.Itoa(sp.HealthCheckNodePort)+"/TCP")
	}
	return out
}
