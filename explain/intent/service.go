package intent

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Labels that hide a Service from kube-proxy.
const (
	labelProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless  = corev1.IsHeadlessService
)

// defaultAffinity is the ClientIP timeout that the API server fills in.
const defaultAffinity = 10800

// skip says whether the proxy leaves a Service out altogether. The label service-proxy-name counts with
// any value, even an empty one; the label for headless Services hid Services up to 1.35, because one
// selector served the watches of Services and slices alike.
func (b *planner) skip(svc *corev1.Service) (Skipped, bool) {
	s := Skipped{Namespace: svc.Namespace, Name: svc.Name, Evidence: b.evidence(svc)}
	key := svc.Namespace + "/" + svc.Name
	_, otherProxy := svc.Labels[labelProxyName]
	_, headless := svc.Labels[labelHeadless]
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		s.Reason = SkipExternalName
		s.Text = fmt.Sprintf("%s is an ExternalName Service: DNS answers with %q, no proxy forwards anything", key, svc.Spec.ExternalName)
	case svc.Spec.ClusterIP == corev1.ClusterIPNone || slices.Contains(svc.Spec.ClusterIPs, corev1.ClusterIPNone):
		s.Reason = SkipHeadless
		s.Text = fmt.Sprintf("%s is headless: DNS answers with the endpoints themselves, no proxy forwards anything", key)
	case svc.Spec.ClusterIP == "" && len(svc.Spec.ClusterIPs) == 0:
		s.Reason = SkipNoClusterIP
		s.Text = fmt.Sprintf("%s has no cluster IP (yet): kube-proxy skips it", key)
	case otherProxy:
		s.Reason = SkipOtherProxy
		s.Text = fmt.Sprintf("%s carries the label %s=%s: kube-proxy leaves it to another proxy", key, labelProxyName, svc.Labels[labelProxyName])
	case headless && !b.does(splitSelectors):
		s.Reason = SkipHeadlessLabel
		s.Text = fmt.Sprintf("%s carries the label %s: kube-proxy up to 1.35 does not see it", key, labelHeadless)
	default:
		return Skipped{}, false
	}
	return s, true
}

// servicePorts makes the service ports of one Service in each family in which it has a cluster IP.
func (b *planner) servicePorts(svc *corev1.Service, endpointsUnknown bool) []*ServicePort {
	var ports []*ServicePort
	where := b.evidence(svc)
	for _, fam := range []int{4, 6} {
		vip, ok := b.clusterIP(svc, fam)
		if !ok || b.unserved(svc, fam) {
			continue
		}
		external := b.externalAddrs(svc, fam)
		ranges := b.sourceRanges(svc, fam)
		if len(svc.Spec.LoadBalancerSourceRanges) > 0 && ranges == nil && hasKind(external, LoadBalancer) {
			b.noteOpenFamily(svc, fam)
		}
		for i, p := range svc.Spec.Ports {
			sp := &ServicePort{
				Namespace: svc.Namespace, Name: svc.Name, PortName: p.Name,
				Family: fam, Protocol: protocol(p.Protocol), Port: int(p.Port), NodePort: int(p.NodePort),
				InternalLocal:    b.internalLocal(svc),
				ExternalLocal:    externalLocal(svc),
				AffinitySeconds:  affinity(svc),
				SourceRanges:     ranges,
				EndpointsUnknown: endpointsUnknown,
				NodeIP:           b.node.primary[fam],
				dsr:              b.node.dsr,
				Evidence:         where,
			}
			if needsHealthCheck(svc) {
				sp.HealthCheckNodePort = int(svc.Spec.HealthCheckNodePort)
			}
			b.heed(sp)
			sp.Frontends = append(sp.Frontends, Frontend{Kind: ClusterIP, Addr: vip, Port: sp.Port})
			for _, f := range external {
				f.Port = sp.Port
				sp.Frontends = append(sp.Frontends, f)
			}
			if sp.NodePort != 0 {
				sp.Frontends = append(sp.Frontends, b.nodeFrontends(NodePort, sp.NodePort, fam)...)
			}
			if sp.HealthCheckNodePort != 0 && i == 0 {
				sp.Frontends = append(sp.Frontends, b.nodeFrontends(HealthCheck, sp.HealthCheckNodePort, fam)...)
			}
			b.fillEndpoints(svc, sp)
			b.choose(svc, sp)
			ports = append(ports, sp)
		}
	}
	if needsHealthCheck(svc) && svc.Spec.HealthCheckNodePort == 0 {
		b.note(Note{Kind: NoteHealthCheckMissing, Namespace: svc.Namespace, Service: svc.Name, Evidence: where,
			Text: fmt.Sprintf("%s/%s has externalTrafficPolicy Local but no healthCheckNodePort: a load balancer cannot tell which nodes have endpoints", svc.Namespace, svc.Name)})
	}
	return ports
}

// clusterIP is the Service's own address in one family. A Service has at most one in each.
func (b *planner) clusterIP(svc *corev1.Service, fam int) (netip.Addr, bool) {
	all := svc.Spec.ClusterIPs
	if len(all) == 0 {
		all = []string{svc.Spec.ClusterIP}
	}
	for _, text := range all {
		a, ok := parseAddr(text)
		if !ok {
			b.note(Note{Kind: NoteUnreadableAddress, Namespace: svc.Namespace, Service: svc.Name, Evidence: b.evidence(svc),
				Text: fmt.Sprintf("cluster IP %q of %s/%s is no address", text, svc.Namespace, svc.Name)})
			continue
		}
		if family(a) == fam {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// externalAddrs are the external and load balancer addresses of one family, as frontends without a port.
// Addresses of the other family belong to it if the Service has a cluster IP there; otherwise nobody
// programs them. What the type of the Service is does not matter, nor does loadBalancerClass.
func (b *planner) externalAddrs(svc *corev1.Service, fam int) []Frontend {
	var out []Frontend
	add := func(kind FrontendKind, field, text string) {
		a, ok := parseAddr(text)
		if !ok {
			b.note(Note{Kind: NoteUnreadableAddress, Namespace: svc.Namespace, Service: svc.Name, Evidence: b.evidence(svc),
				Text: fmt.Sprintf("%s %q of %s/%s is no address", field, text, svc.Namespace, svc.Name)})
			return
		}
		if family(a) != fam {
			if _, ok := b.clusterIP(svc, family(a)); !ok {
				b.note(Note{Kind: NoteFamilyMismatch, Namespace: svc.Namespace, Service: svc.Name, Endpoint: a.String(), Evidence: b.evidence(svc),
					Text: fmt.Sprintf("%s %s of %s/%s is IPv%d but the Service has no IPv%d cluster IP: kube-proxy drops it", field, a, svc.Namespace, svc.Name, family(a), family(a))})
			}
			return
		}
		f := Frontend{Kind: kind, Addr: a, OnNode: b.node.has(a)}
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	for _, text := range svc.Spec.ExternalIPs {
		add(ExternalIP, "externalIP", text)
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		switch {
		case in.IP == "":
			b.note(Note{Kind: NoteHostnameOnly, Namespace: svc.Namespace, Service: svc.Name, Evidence: b.evidence(svc),
				Text: fmt.Sprintf("load balancer %q of %s/%s has a name and no address: kube-proxy programs nothing for it", in.Hostname, svc.Namespace, svc.Name)})
		case in.IPMode != nil && *in.IPMode == corev1.LoadBalancerIPModeProxy && b.does(honoursIPMode):
			b.note(Note{Kind: NoteIPModeProxy, Namespace: svc.Namespace, Service: svc.Name, Endpoint: in.IP, Evidence: b.evidence(svc),
				Text: fmt.Sprintf("load balancer address %s of %s/%s has ipMode Proxy: connections to it leave the node for the load balancer", in.IP, svc.Namespace, svc.Name)})
		default:
			add(LoadBalancer, "load balancer address", in.IP)
		}
	}
	slices.SortFunc(out, compareFrontends)
	return out
}

// sourceRanges are the loadBalancerSourceRanges of one family, nil when there is no restriction. Where a
// Service has ranges, but none of this family, kube-proxy restricts nothing in this family.
func (b *planner) sourceRanges(svc *corev1.Service, fam int) []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range svc.Spec.LoadBalancerSourceRanges {
		p, ok := parsePrefix(text)
		if !ok {
			b.note(Note{Kind: NoteUnreadableAddress, Namespace: svc.Namespace, Service: svc.Name, Evidence: b.evidence(svc),
				Text: fmt.Sprintf("source range %q of %s/%s is no address range", text, svc.Namespace, svc.Name)})
			continue
		}
		if other := family(p.Addr()); other != fam {
			if _, ok := b.clusterIP(svc, other); !ok {
				b.note(Note{Kind: NoteFamilyMismatch, Namespace: svc.Namespace, Service: svc.Name, Endpoint: p.String(), Evidence: b.evidence(svc),
					Text: fmt.Sprintf("source range %s of %s/%s is IPv%d but the Service has no IPv%d cluster IP: kube-proxy drops it", p, svc.Namespace, svc.Name, other, other)})
			}
			continue
		}
		if p.Bits() == 0 && b.does(zeroRangeOpens) {
			return nil
		}
		if !slices.Contains(ranges, p) {
			ranges = append(ranges, p)
		}
	}
	return ranges
}

// noteOpenFamily notes that source ranges restrict nothing in one family.
func (b *planner) noteOpenFamily(svc *corev1.Service, fam int) {
	b.note(Note{Kind: NoteRangesOpen, Namespace: svc.Namespace, Service: svc.Name, Family: fam, Evidence: b.evidence(svc),
		Text: fmt.Sprintf("the loadBalancerSourceRanges of %s/%s restrict nothing for IPv%d: its IPv%d load balancer addresses are open to all", svc.Namespace, svc.Name, fam, fam)})
}

// internalLocal is internalTrafficPolicy Local, where the version knows it.
func (b *planner) internalLocal(svc *corev1.Service) bool {
	policy := svc.Spec.InternalTrafficPolicy
	if policy == nil || *policy != corev1.ServiceInternalTrafficPolicyLocal {
		return false
	}
	if b.does(internalPolicy) {
		return true
	}
	b.note(Note{Kind: NoteInternalPolicyIgnored, Namespace: svc.Namespace, Service: svc.Name, Evidence: b.evidence(svc),
		Text: fmt.Sprintf("internalTrafficPolicy Local of %s/%s has no effect: kube-proxy looks at it from 1.22 on", svc.Namespace, svc.Name)})
	return false
}

// externalLocal is externalTrafficPolicy Local of a Service that can be reached from outside.
func externalLocal(svc *corev1.Service) bool {
	if svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return false
	}
	switch svc.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeClusterIP, "":
		return len(svc.Spec.ExternalIPs) > 0
	}
	return false
}

func needsHealthCheck(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && externalLocal(svc)
}

func affinity(svc *corev1.Service) int {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		return int(*c.ClientIP.TimeoutSeconds)
	}
	return defaultAffinity
}

// protocol fills in the API's default.
func protocol(p corev1.Protocol) string {
	if p == "" {
		return string(corev1.ProtocolTCP)
	}
	return string(p)
}

// reachableFromOutside says whether the port has any address that is not its cluster IP.
func (s *ServicePort) reachableFromOutside() bool {
	if s.NodePort != 0 {
		return true
	}
	return hasKind(s.Frontends, ExternalIP) || hasKind(s.Frontends, LoadBalancer)
}
