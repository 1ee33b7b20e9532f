package check

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

const targetPortUnresolvedID = "target-port-unresolved"

// targetPortUnresolved: a named target port leads nowhere, because selected pods have no container port of that name,
// or because the slices that somebody wrote name their ports otherwise than the Service.
var targetPortUnresolved = Check{
	ID: targetPortUnresolvedID, Severity: Warning, Rests: onObjects,
	Title: "service ports whose name finds no port behind the Service",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, s := range n.services() {
			var seen []string
			for _, p := range s.ports {
				u := n.unresolved(s, p)
				if u == nil || slices.Contains(seen, p.PortName+p.Protocol) { // both families tell the same
					continue
				}
				seen = append(seen, p.PortName+p.Protocol)
				f := report.Finding{
					Object: s.object(), Subject: u.subject, Message: u.text, Want: u.want, Got: u.got,
					Evidence: append([]report.Evidence{s.evidence()}, u.evidence...), Causes: u.causes, Remedy: u.remedy,
				}
				f.Object.Port, f.Object.Protocol = p.PortName, p.Protocol
				out = append(out, f)
			}
		}
		return out
	},
}

// unresolved is why addresses of a Service's slices are of no use to one of its ports.
type unresolved struct {
	subject, text, want, got, remedy string
	causes                           []string
	evidence                         []report.Evidence
}

// unresolved is nil for a port that every slice of its family has, and for slices that the controller is yet to write.
func (n *Node) unresolved(s *service, p *Port) *unresolved {
	spec := s.spec(p)
	if spec == nil {
		return nil
	}
	var without []objects.EndpointSlice
	for _, slice := range n.Objects.SlicesOf(s.Namespace, s.Name) {
		ofFamily := (slice.AddressType == discoveryv1.AddressTypeIPv6) == (p.Family == 6)
		if ofFamily && len(slice.Endpoints) > 0 && !hasPort(slice, p) {
			without = append(without, slice)
		}
	}
	switch {
	case len(without) == 0:
		return nil
	case len(s.Spec.Selector) == 0 && p.hasNoEndpoint():
		return misnamed(p, without)
	case len(s.Spec.Selector) > 0 && spec.TargetPort.Type == intstr.String:
		return n.unnamed(p, spec, without)
	}
	return nil
}

func hasPort(slice objects.EndpointSlice, p *Port) bool {
	return slices.ContainsFunc(slice.Ports, func(q discoveryv1.EndpointPort) bool {
		return q.Port != nil && q.Name != nil && *q.Name == p.PortName && (q.Protocol == nil && p.Protocol == "TCP" || q.Protocol != nil && string(*q.Protocol) == p.Protocol)
	})
}

// unnamed is about pods in slices that lack the port: they have no container port of the name. Nil where all of them
// have one now, so that the controller is about to mend it.
func (n *Node) unnamed(p *Port, spec *corev1.ServicePort, without []objects.EndpointSlice) *unresolved {
	target := spec.TargetPort.StrVal
	u := &unresolved{
		subject: fmt.Sprintf("targetPort %q", target),
		want:    fmt.Sprintf("a container port named %q (%s) in every selected pod", target, p.Protocol),
		causes:  []string{"the selector catches pods of another workload", "the name of the container port is missing or misspelt in the pod template"},
		remedy:  fmt.Sprintf("narrow the selector so that it leaves these pods out, or name the port %q in their pod template (kubectl -n %s get pods -o jsonpath='{..ports}')", target, p.Namespace),
	}
	var pods []string
	for _, slice := range without {
		before := len(pods)
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			name := strings.Join(e.Addresses, "+")
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				name = p.Namespace + "/" + e.TargetRef.Name
				if pod, ok := n.podByName(name); ok && declares(pod, p.Protocol, func(c corev1.ContainerPort) bool { return c.Name == target }) {
					continue
				}
			}
			pods = append(pods, name)
		}
		if len(pods) > before {
			u.evidence = append(u.evidence, sliceEvidence(slice))
		}
	}
	if len(pods) == 0 {
		return nil
	}
	who := "pod " + pods[0] + " has"
	if len(pods) > 1 {
		who = fmt.Sprintf("%d selected pods (%s) have", len(pods), list(pods, podsShown))
	}
	u.text = fmt.Sprintf("%s no container port named %q, which is the targetPort of %s: the EndpointSlice lists the address without the port, and kube-proxy sends nothing there", who, target, p.Key())
	u.got = fmt.Sprintf("none in %s", list(pods, podsShown))
	return u
}

// misnamed is about slices that somebody wrote for a Service without selector.
func misnamed(p *Port, without []objects.EndpointSlice) *unresolved {
	var have []string
	u := &unresolved{
		subject: fmt.Sprintf("port %q", p.PortName),
		want:    fmt.Sprintf("a port named %q (%s) in the EndpointSlice", p.PortName, p.Protocol),
		remedy:  fmt.Sprintf("give the port of the slice the name and protocol that the Service's port has (name: %q, protocol: %s) and a number", p.PortName, p.Protocol),
	}
	for _, slice := range without {
		for _, q := range slice.Ports {
			name := ""
			if q.Name != nil {
				name = *q.Name
			}
			have = append(have, fmt.Sprintf("%q", name))
		}
		u.evidence = append(u.evidence, sliceEvidence(slice))
	}
	u.got = "no ports"
	if len(have) > 0 {
		u.got = "ports named " + list(have, podsShown)
	}
	u.text = fmt.Sprintf("EndpointSlice %s has %s, and the Service's port is named %q (%s): names and protocols have to be the same, so %s gets no endpoint",
		without[0].Name, u.got, p.PortName, p.Protocol, p.Key())
	return u
}

// declares tells whether a pod has a container port of a protocol for which is holds. Sidecars among the init
// containers count.
func declares(pod objects.Pod, protocol string, is func(corev1.ContainerPort) bool) bool {
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, port := range c.Ports {
			if (port.Protocol == "" && protocol == "TCP" || string(port.Protocol) == protocol) && is(port) {
				return true
			}
		}
	}
	return false
}
