package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// endpointWithoutPod: a Service that selects pods has a usable endpoint that no pod stands for. Endpoints that somebody
// wrote for a Service without selector need no pod, and of pods that nobody looked at nothing is said.
var endpointWithoutPod = Check{
	ID: "endpoint-without-pod", Rests: onObjects, Severity: Error,
	Title: "endpoints that no pod stands for",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, s := range n.services() {
			if len(s.Spec.Selector) == 0 {
				continue
			}
			cause := ""
			if n.managerConflict(s) != nil {
				cause = managerConflictID
			}
			for _, p := range s.ports {
				for i := range p.Endpoints {
					e := &p.Endpoints[i]
					if why := n.podless(p, e); why != "" {
						out = append(out, s.endpointWithout(p, e, why, cause))
					}
				}
			}
		}
		return out
	},
}

// podless says why an endpoint that gets traffic has no pod; empty for one that has, or of whose pod nothing is known.
func (n *Node) podless(p *Port, e *intent.Endpoint) string {
	if !e.Ready {
		return ""
	}
	if e.Pod == "" {
		return n.nobodyHas(p, e)
	}
	pod, known := n.podByName(e.Pod)
	switch {
	case !known && n.podGone(e):
		return fmt.Sprintf("pod %s, which it is to stand for, does not exist", e.Pod)
	case !known:
		return ""
	case podEnded(pod.Pod):
		return fmt.Sprintf("pod %s, which it stands for, has ended (%s)", e.Pod, pod.Status.Phase)
	}
	addrs := podAddrs(pod.Pod)
	for _, a := range addrs {
		if a == e.Addr {
			return ""
		}
	}
	if len(addrs) == 0 {
		return fmt.Sprintf("pod %s, which it stands for, has no address", e.Pod)
	}
	return fmt.Sprintf("pod %s, which it stands for, has the address %s", e.Pod, addrs[0])
}

// podGone tells whether the pod of an endpoint, which is not among the evidence, would be if it existed.
func (n *Node) podGone(e *intent.Endpoint) bool {
	namespace, _, _ := strings.Cut(e.Pod, "/")
	return n.wouldKnow(namespace, e.NodeName)
}

// nobodyHas is about an endpoint of a Service with selector that names no pod. The controller names one always, so
// that this address was written by something else; whether a pod has it all the same, pods tell.
func (n *Node) nobodyHas(p *Port, e *intent.Endpoint) string {
	pods, all := n.podsOf(p.Namespace)
	for _, pod := range pods {
		for _, a := range podAddrs(pod.Pod) {
			if a == e.Addr && !podEnded(pod.Pod) {
				return ""
			}
		}
	}
	if !all && !n.wouldKnow(p.Namespace, e.NodeName) {
		n.lacks(SelectedBy)
		return ""
	}
	return "no pod of the namespace has this address, and the EndpointSlice names none"
}

func (s *service) endpointWithout(p *Port, e *intent.Endpoint, why, cause string) report.Finding {
	f := report.Finding{
		Object: s.object(), Subject: e.String(), CausedBy: cause,
		Message: fmt.Sprintf("%s is listed as a ready endpoint of %s in EndpointSlice %s, but %s: connections that are sent there fail", e, p.Key(), e.Slice, why),
		Want:    "a running pod with the address " + e.Addr.String(), Got: "none",
		Evidence: []report.Evidence{
			{Source: "objects", File: e.Evidence.File, Line: e.Evidence.Line, Text: fmt.Sprintf("EndpointSlice %s/%s lists %s", s.Namespace, e.Slice, e)},
			s.evidence(),
		},
		Causes: []string{
			"the slice is no longer kept up to date: it was written by hand or by another controller, or kube-controller-manager has stopped",
			"the pod was deleted between the moments at which slices and pods were read",
		},
		Remedy: fmt.Sprintf("see who manages the slice (kubectl -n %s get endpointslice %s -o yaml, label endpointslice.kubernetes.io/managed-by); delete it if nobody does: the EndpointSlice controller makes a new one", s.Namespace, e.Slice),
	}
	f.Object.Port, f.Object.Protocol, f.Object.Endpoint = p.PortName, p.Protocol, e.String()
	return f
}
