package check

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

const (
	podMissingFromSlicesID = "pod-missing-from-slices"
	controllerRemedy       = "look at the EndpointSlice controller, which is part of kube-controller-manager: whether it runs, leads, and logs errors about this Service (kubectl -n kube-system logs -l component=kube-controller-manager)"
)

// podMissingFromSlices: a pod is ready and selected, and no EndpointSlice of the Service lists it: no proxy can know
// of it.
var podMissingFromSlices = Check{
	ID: podMissingFromSlicesID, Severity: Error, Rests: onObjects,
	Title: "ready pods that are in no EndpointSlice",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, s := range n.services() {
			if len(s.Spec.Selector) == 0 {
				continue
			}
			pods, all := n.selected(s)
			missing := n.missingFromSlices(s, pods)
			switch {
			case len(missing) == 0 && !all && s.hasNoEndpoint():
				n.lacks(SelectedBy) // its pods are elsewhere, and nobody looked
			case len(missing) > 0 && n.Needs(Slices):
				out = append(out, n.missedPods(s, missing))
			}
		}
		return out
	},
}

// missingFromSlices are the ready pods that no slice of a Service lists, by name or by address.
func (n *Node) missingFromSlices(s *service, pods []objects.Pod) []objects.Pod {
	if len(pods) == 0 {
		return nil
	}
	names, addrs := make(map[string]bool), make(map[netip.Addr]bool)
	for _, slice := range n.Objects.SlicesOf(s.Namespace, s.Name) {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				names[e.TargetRef.Name] = true
			}
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil {
					addrs[a.Unmap()] = true
				}
			}
		}
	}
	var out []objects.Pod
	for _, p := range pods {
		if podReady(p.Pod) && !names[p.Name] && !slices.ContainsFunc(podAddrs(p.Pod), func(a netip.Addr) bool { return addrs[a] }) {
			out = append(out, p)
		}
	}
	return out
}

func (n *Node) missedPods(s *service, missing []objects.Pod) report.Finding {
	f := report.Finding{
		Object: s.object(), Subject: s.key(),
		Message: fmt.Sprintf("%s ready and selected by %s, but no EndpointSlice lists %s: kube-proxy cannot send anything there", areNamed(missing), s.key(), themOrIt(missing)),
		Want:    "every ready pod in an EndpointSlice", Got: fmt.Sprintf("%s in none", plural(len(missing), "pod")),
		Evidence: []report.Evidence{s.evidence()},
		Causes: []string{
			"kube-controller-manager has stopped, has lost its leader lease, or cannot write EndpointSlices (quota, admission webhook)",
			"somebody set or removed the label endpointslice.kubernetes.io/managed-by or kubernetes.io/service-name of a slice",
			"the pod became ready between the moments at which slices and pods were read",
		},
		Remedy: controllerRemedy,
	}
	for i, p := range missing {
		if i < podsShown {
			f.Evidence = append(f.Evidence, podEvidence(p, "is ready at "+p.Status.PodIP))
		}
	}
	return f
}

// areNamed is "pod a is" or "2 pods (a, b) are".
func areNamed(pods []objects.Pod) string {
	if len(pods) == 1 {
		return "pod " + pods[0].Name + " is"
	}
	return fmt.Sprintf("%d pods (%s) are", len(pods), list(podNames(pods), podsShown))
}

func themOrIt(pods []objects.Pod) string {
	if len(pods) == 1 {
		return "it"
	}
	return "them"
}
