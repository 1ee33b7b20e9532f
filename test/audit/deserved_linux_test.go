package audit

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// a verdict is one finding as far as objects decide about it.
type verdict struct{ id, service string }

// deserved is what the objects of a world deserve on a node, whatever the rules: true where the finding must be there,
// false where it may be. It shares no code with the program.
func (w *world) deserved(node string) map[verdict]bool {
	out := map[verdict]bool{}
	for _, s := range w.services {
		if !s.proxied() {
			continue
		}
		add := func(id string) { out[verdict{id, s.Name}] = true }
		empty := true
		for _, f := range s.Spec.IPFamilies {
			for _, p := range s.Spec.Ports {
				s.judge(f, p, node, w.ipvs, add)
				empty = empty && !s.usable(f, p, "")
			}
		}
		if empty && s.app != "" {
			if len(w.ofApp(s.app)) == 0 {
				add("selector-matches-no-pods")
			} else {
				add("pods-not-ready") // one that is ready would be an endpoint, even while it leaves
			}
		}
		if s.Spec.TrafficDistribution != nil {
			// Hints are for Cluster policies: where every way in is Local nobody goes by them.
			out[verdict{"topology-hints-absent", s.Name}] = s.unhinted() && !s.localOnly()
		}
		for _, sl := range s.slices {
			for _, e := range sl.Endpoints {
				if len(e.Addresses) > 1 {
					add("endpoint-extra-addresses-ignored")
				}
			}
		}
		for _, a := range s.Spec.ExternalIPs {
			if !s.has(familyOf(a)) {
				add("address-family-mismatch")
			}
		}
	}
	return out
}

// proxied tells whether kube-proxy programs a Service.
func (s *worldService) proxied() bool {
	_, other := s.Labels["service.kubernetes.io/service-proxy-name"]
	return !other && s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ClusterIP != corev1.ClusterIPNone
}

// judge judges one service port of one family. ipvs: kube-proxy runs in IPVS mode, where a Local policy without endpoints
// leaves nobody out as long as the Service can be reached from outside: those of other nodes serve.
func (s *worldService) judge(f corev1.IPFamily, p corev1.ServicePort, node string, ipvs bool, add func(id string)) {
	here, anywhere := s.usable(f, p, node), s.usable(f, p, "")
	if !anywhere {
		add("service-without-endpoints")
		if s.app == "" && s.misses(f, p) {
			add("target-port-unresolved")
		}
		return
	}
	if here {
		return
	}
	internal := s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	external := s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && s.reachable(f)
	if ipvs {
		if internal && !s.reachable(f) {
			add("local-policy-no-local-endpoints")
		}
		return
	}
	// A load balancer asks the health check port and leaves this node out: that is a remark, no warning.
	checked := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	if internal || external && !checked {
		add("local-policy-no-local-endpoints")
	}
}

// usable tells whether any endpoint on a node (on all nodes: "") may get traffic: a ready one, or one that still
// serves while it leaves where none is ready. Either will do here.
func (s *worldService) usable(f corev1.IPFamily, p corev1.ServicePort, node string) bool {
	for _, sl := range s.slices {
		if string(sl.AddressType) != string(f) || !offers(sl, p) {
			continue
		}
		for _, e := range sl.Endpoints {
			c := e.Conditions
			ready := c.Ready == nil || *c.Ready
			leaving := (c.Serving == nil || *c.Serving) && c.Terminating != nil && *c.Terminating
			at := e.NodeName != nil && *e.NodeName == node
			if (node == "" || at) && (ready || leaving) {
				return true
			}
		}
	}
	return false
}

// misses tells whether endpoints are listed without the port.
func (s *worldService) misses(f corev1.IPFamily, p corev1.ServicePort) bool {
	for _, sl := range s.slices {
		if string(sl.AddressType) == string(f) && len(sl.Endpoints) > 0 && !offers(sl, p) {
			return true
		}
	}
	return false
}

// unhinted tells whether in some family ready endpoints are listed of which one has no hints: then nobody goes by any.
func (s *worldService) unhinted() bool {
	for _, sl := range s.slices {
		for _, e := range sl.Endpoints {
			if e.Hints == nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) && offers(sl, s.Spec.Ports[0]) {
				return true
			}
		}
	}
	return false
}

// localOnly tells whether a Service is dialled under a Local policy alone.
func (s *worldService) localOnly() bool {
	internal := s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	outside := s.reachable(corev1.IPv4Protocol) || s.reachable(corev1.IPv6Protocol)
	return internal && !outside
}

func offers(sl discoveryv1.EndpointSlice, p corev1.ServicePort) bool {
	for _, o := range sl.Ports {
		if *o.Name == p.Name && *o.Protocol == p.Protocol {
			return true
		}
	}
	return false
}

// reachable tells whether a Service has an address for clients outside of the cluster.
func (s *worldService) reachable(f corev1.IPFamily) bool {
	for _, a := range s.Spec.ExternalIPs {
		if familyOf(a) == f {
			return true
		}
	}
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeLoadBalancer:
		for _, in := range s.Status.LoadBalancer.Ingress {
			if familyOf(in.IP) == f && *in.IPMode != corev1.LoadBalancerIPModeProxy {
				return true
			}
		}
		return s.Spec.AllocateLoadBalancerNodePorts == nil
	}
	return false
}

func (s *worldService) has(f corev1.IPFamily) bool {
	for _, g := range s.Spec.IPFamilies {
		if f == g {
			return true
		}
	}
	return false
}

// familyOf is the family of an address or a range.
func familyOf(text string) corev1.IPFamily {
	address, _, _ := strings.Cut(text, "/")
	if netip.MustParseAddr(address).Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
