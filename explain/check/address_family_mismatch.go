package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// addressFamilyMismatch: an address of a family in which the Service has no cluster IP, or an endpoint that is not of
// its slice's family. Nobody programs it.
var addressFamilyMismatch = Check{
	ID: "address-family-mismatch", Rests: onObjects, Severity: Error,
	Title: "addresses of a family that the Service or the slice does not have",
	Node: func(n *Node) []report.Finding {
		if !n.Needs(Services) {
			return nil
		}
		var out []report.Finding
		for i := range n.Plan.Notes {
			note := &n.Plan.Notes[i]
			switch {
			case note.Kind != intent.NoteFamilyMismatch:
			case note.Slice != "":
				out = append(out, endpointOfOtherFamily(note))
			default:
				if f, ok := n.addressOfOtherFamily(note); ok {
					out = append(out, f)
				}
			}
		}
		return out
	},
}

func endpointOfOtherFamily(note *intent.Note) report.Finding {
	return report.Finding{
		Object:   report.Object{Kind: "EndpointSlice", Namespace: note.Namespace, Name: note.Slice, Protocol: note.Protocol, Endpoint: note.Endpoint},
		Subject:  note.Slice,
		Message:  note.Text,
		Want:     "addresses of the slice's addressType",
		Got:      "another family",
		Evidence: []report.Evidence{planEvidence(note.Evidence, "EndpointSlice "+note.Namespace+"/"+note.Slice)},
		Causes:   []string{"the slice is written by hand or by a controller of its own"},
		Remedy:   "put the address into an EndpointSlice of its own family",
	}
}

// addressOfOtherFamily is the finding of an address in the Service itself. A source range of another family is common
// and harmless as long as another one restricts the family that the Service has.
func (n *Node) addressOfOtherFamily(note *intent.Note) (report.Finding, bool) {
	svc, ok := n.Objects.Service(note.Namespace, note.Service)
	if !ok {
		return report.Finding{}, false
	}
	families := bothFamilies(n.Plan.Of(note.Namespace, note.Service))
	own := make([]string, len(families))
	for i, f := range families {
		own[i] = familyName(f)
	}
	key := note.Namespace + "/" + note.Service
	where := ObjectEvidence(svc.Evidence, "Service "+key)
	f := report.Finding{
		Object:   report.Object{Kind: "Service", Namespace: note.Namespace, Name: note.Service},
		Subject:  note.Endpoint,
		Message:  note.Text,
		Want:     "addresses of " + strings.Join(own, " and ") + ", the families in which the Service has a cluster IP",
		Evidence: []report.Evidence{where},
	}
	if _, err := netip.ParsePrefix(note.Endpoint); err == nil {
		f.Got = "spec.loadBalancerSourceRanges " + note.Endpoint
		f.Message += fmt.Sprintf(", and no range is left to restrict %s: the load balancer addresses are open to all", strings.Join(own, " and "))
		f.Remedy = fmt.Sprintf("give %s a source range of %s", key, strings.Join(own, " and "))
		return f, !slices.ContainsFunc(families, func(family netfilter.Family) bool { return hasRange(svc.Service, family) })
	}
	field := "spec.externalIPs"
	f.Remedy = fmt.Sprintf("remove %s from the externalIPs of %s, or make the Service dual-stack (ipFamilyPolicy)", note.Endpoint, key)
	if ingress, ok := ingressOf(svc.Service, note.Endpoint); ok {
		field = ingress
		f.Remedy = "the load balancer's controller must publish an address of the Service's family; or make the Service dual-stack (ipFamilyPolicy)"
		if hasIngress(svc.Service, families) {
			f.Severity = Info
			f.Message += "; the load balancer has an address of the Service's own family too, and connections to this one go to the load balancer itself"
		}
	}
	f.Got = field + " " + note.Endpoint
	if e, ok := n.refused(note.Endpoint); ok {
		f.Severity = Error
		f.Message += "; kube-proxy's log says that the kernel tool refuses the address, and with it every change of any Service"
		f.Evidence = append(f.Evidence, e)
		f.Causes = append(f.Causes, "this kube-proxy writes such addresses into its rules unchecked (before dual-stack support came, about 1.20)")
	}
	return f, true
}

// ingressOf is the field that holds an address of the load balancer.
func ingressOf(svc *corev1.Service, address string) (field string, ok bool) {
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP == address {
			return "status.loadBalancer.ingress", true
		}
	}
	return "", false
}

// hasIngress tells whether the load balancer has an address of one of the families.
func hasIngress(svc *corev1.Service, families []netfilter.Family) bool {
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil && slices.Contains(families, netfilter.FamilyOf(a.Unmap())) {
			return true
		}
	}
	return false
}

// hasRange tells whether a source range restricts, or opens, a family.
func hasRange(svc *corev1.Service, family netfilter.Family) bool {
	for _, text := range svc.Spec.LoadBalancerSourceRanges {
		if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil && netfilter.FamilyOf(p.Addr().Unmap()) == family {
			return true
		}
	}
	return false
}

// refused is where the log says that a sync failed because of an address.
func (n *Node) refused(address string) (report.Evidence, bool) {
	for _, e := range n.Proxy.Events {
		if e.Kind == traits.SyncFailed && strings.Contains(e.Text, address) {
			return report.Evidence{Source: "kube-proxy log", File: e.File, Line: e.Line, Text: e.Text}, true
		}
	}
	return report.Evidence{}, false
}
