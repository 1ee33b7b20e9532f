package check

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// service is a Service that the proxy forwards, with its ports in both families.
type service struct {
	objects.Service
	ports []*Port
}

func (s *service) key() string { return s.Namespace + "/" + s.Name }

// services are the Services of the node's ports, in their order. They are gathered once.
func (n *Node) services() []*service {
	if n.servicesOf != nil {
		return n.servicesOf
	}
	out := make([]*service, 0, len(n.Ports))
	for i := range n.Ports {
		p := &n.Ports[i]
		if last := len(out) - 1; last >= 0 && out[last].Namespace == p.Namespace && out[last].Name == p.Name {
			out[last].ports = append(out[last].ports, p)
			continue
		}
		if svc, ok := n.Objects.Service(p.Namespace, p.Name); ok {
			out = append(out, &service{Service: svc, ports: []*Port{p}})
		}
	}
	n.servicesOf = out
	return out
}

// object names the Service for a finding.
func (s *service) object() report.Object {
	return report.Object{Kind: "Service", Namespace: s.Namespace, Name: s.Name}
}

func (s *service) evidence() report.Evidence {
	return ObjectEvidence(s.Evidence, "Service "+s.key())
}

// spec is the port of the Service's spec that a service port was made of; nil for none.
func (s *service) spec(p *Port) *corev1.ServicePort {
	for i := range s.Spec.Ports {
		if sp := &s.Spec.Ports[i]; sp.Name == p.PortName && int(sp.Port) == p.ServicePort.Port {
			return sp
		}
	}
	return nil
}

// firstFamily is the family that the Service has first, 4 or 6.
func (s *service) firstFamily() int {
	if len(s.Spec.IPFamilies) > 0 && s.Spec.IPFamilies[0] == corev1.IPv6Protocol {
		return 6
	}
	return s.ports[0].Family
}

// hasNoEndpoint tells whether a port has nothing to send connections to: no endpoint is ready, and none still serves while
// it terminates. It is false where endpoints are not known.
func (p *Port) hasNoEndpoint() bool {
	if p.EndpointsUnknown || len(p.Usable) > 0 {
		return false
	}
	for i := range p.Endpoints {
		if p.Endpoints[i].Ready {
			return false // what a Local policy keeps out is there all the same
		}
	}
	return true
}

// hasNoEndpoint tells the same of all ports of a Service.
func (s *service) hasNoEndpoint() bool {
	return !slices.ContainsFunc(s.ports, func(p *Port) bool { return !p.hasNoEndpoint() })
}
