package check

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// endpointsDifferFromSlices: the Endpoints object of a Service says something else than its slices, which are what
// kube-proxy reads.
var endpointsDifferFromSlices = Check{
	ID: "endpoints-differ-from-slices", Rests: onObjects, Severity: Info,
	Title: "Endpoints objects that say something else than the EndpointSlices",
	Node: func(n *Node) []report.Finding {
		// Older proxies read Endpoints themselves; without slices, Endpoints stand in for them.
		if !n.Proxy.AtLeast(1, 19) || !n.Has(Slices) {
			return nil
		}
		legacy := make(map[string]objects.Endpoints, len(n.Objects.Endpoints))
		for _, ep := range n.Objects.Endpoints {
			// With more than a thousand addresses the object holds some of them only.
			if _, cut := ep.Annotations[corev1.EndpointsOverCapacity]; !cut {
				legacy[ep.Namespace+"/"+ep.Name] = ep
			}
		}
		var out []report.Finding
		for _, s := range n.services() {
			ep, ok := legacy[s.key()]
			for _, p := range s.ports {
				if !ok || p.Family != s.firstFamily() {
					continue // an Endpoints object holds one family
				}
				if f := differs(s, p, ep); f != nil {
					out = append(out, *f)
				}
			}
		}
		return out
	},
}

// readyAddrs are the ready addresses of an Endpoints object for a port, sorted.
func readyAddrs(ep *corev1.Endpoints, p *Port) []string {
	var out []string
	for _, subset := range ep.Subsets {
		for _, port := range subset.Ports {
			if port.Name != p.PortName || protocolName(port.Protocol) != p.Protocol {
				continue
			}
			for _, a := range subset.Addresses {
				if addr, err := netip.ParseAddr(a.IP); err == nil {
					out = append(out, netip.AddrPortFrom(addr.Unmap(), uint16(port.Port)).String())
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// differs compares an Endpoints object with the slices of a port; nil where they say the same. Pods that terminate are
// not in the one and may be in the other.
func differs(s *service, p *Port, ep objects.Endpoints) *report.Finding {
	legacy := readyAddrs(ep.Endpoints, p)
	var slice []string
	evidence := []report.Evidence{ObjectEvidence(ep.Evidence, fmt.Sprintf("Endpoints %s: [%s]", s.key(), list(legacy, podsShown)))}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		if e.Terminating || !e.Ready {
			continue
		}
		slice = append(slice, e.String())
		if len(evidence) == 1 {
			evidence = append(evidence, report.Evidence{Source: "objects", File: e.Evidence.File, Line: e.Evidence.Line, Text: fmt.Sprintf("EndpointSlice %s/%s lists %s", s.Namespace, e.Slice, e)})
		}
	}
	slices.Sort(slice)
	if slice = slices.Compact(slice); slices.Equal(slice, legacy) {
		return nil
	}
	f := &report.Finding{
		Object: s.object(), Subject: "Endpoints " + s.key(),
		Message: fmt.Sprintf("the Endpoints object of %s lists [%s] and its EndpointSlices list [%s]: kube-proxy reads the slices only, the Endpoints object has no effect", p.Key(), list(legacy, podsShown), list(slice, podsShown)),
		Want:    "[" + list(slice, podsShown) + "]", Got: "[" + list(legacy, podsShown) + "]",
		Evidence: evidence,
		Causes:   []string{"the Endpoints object was edited by hand; its controller puts it back at the next change of a pod"},
		Remedy:   "for a backend of your own remove the selector from the Service, or write an EndpointSlice; do not edit Endpoints",
	}
	if len(s.Spec.Selector) == 0 {
		f.Causes = []string{
			"Endpoints of a Service without selector are copied to slices by kube-controller-manager, which has not done so (yet)",
			"the label endpointslice.kubernetes.io/skip-mirror keeps them from being copied, or slices of another manager stand in their place",
		}
		f.Remedy = "write EndpointSlices instead of Endpoints, or see why they are not copied (log of kube-controller-manager)"
	}
	f.Object.Port, f.Object.Protocol = p.PortName, p.Protocol
	return f
}
