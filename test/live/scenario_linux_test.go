package live

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The scenario: node n1 is looked at. Node n2 has no kube-proxy and hands what its pods send on to n1, so that n1
// sees clients of every class: in a real cluster a remote pod's connection to a cluster IP is translated where the
// pod is. Node n3 is an ordinary other node with backends.

// A pod of the scenario; it serves TCP 8080 and 9090 and UDP 5353.
type pod struct {
	name, node string
	four, six  string
	host       bool // uses its node's network
}

var pods = []pod{
	// The tenth addresses of the ranges are what svcnet takes for a client.
	{name: "client-1", node: "n1", four: "10.244.1.10", six: "fd00:244:1::a"},
	{name: "client-2", node: "n2", four: "10.244.2.10", six: "fd00:244:2::a"},
	{name: "a1", node: "n1", four: "10.244.1.20", six: "fd00:244:1::20"},
	{name: "a2", node: "n1", four: "10.244.1.21", six: "fd00:244:1::21"},
	{name: "c1", node: "n3", four: "10.244.3.20", six: "fd00:244:3::20"},
	{name: "c2", node: "n3", four: "10.244.3.21", six: "fd00:244:3::21"},
	{name: "host-1", node: "n1", host: true},
}

// scene is one Service with its slices, and what is special about it.
type scene struct {
	svc    corev1.Service
	slices []discoveryv1.EndpointSlice
	// shares: enough connections are made to judge the shares of the backends, for one cell of each frontend kind.
	shares bool
	// none: there is nothing to dial, and a trace says so in one line.
	none bool
}

// An end is one endpoint of a slice.
type end struct {
	pod                           string
	notReady, serving, terminates bool
	zones, nodes                  []string
}

func ready(pods ...string) []end {
	var out []end
	for _, p := range pods {
		out = append(out, end{pod: p})
	}
	return out
}

type port struct {
	name     string
	proto    corev1.Protocol
	port     int32
	target   int32
	nodePort int32
}

func tcp() []port {
	return []port{{name: "web", proto: corev1.ProtocolTCP, port: 80, target: 8080}}
}
func udp(p int32) []port {
	return []port{{name: "dns", proto: corev1.ProtocolUDP, port: p, target: 5353}}
}

// service makes a dual-stack Service of type ClusterIP.
func service(name string, ports []port, change ...func(*corev1.Service)) corev1.Service {
	both := corev1.IPFamilyPolicyRequireDualStack
	s := corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "store"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: &both, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}},
	}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: p.name, Protocol: p.proto, Port: p.port, TargetPort: intstr.FromInt32(p.target), NodePort: p.nodePort})
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

func single(f corev1.IPFamily) func(*corev1.Service) {
	return func(s *corev1.Service) {
		one := corev1.IPFamilyPolicySingleStack
		s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &one, []corev1.IPFamily{f}
	}
}

func nodePort(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }

// balanced is a load balancer with an address of each family, the last byte of which is n.
func balanced(n int) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("198.51.100.%d", n)}, {IP: fmt.Sprintf("fd00:1b::%x", n)}}
	}
}

func modeProxy(s *corev1.Service) {
	mode := corev1.LoadBalancerIPModeProxy
	for i := range s.Status.LoadBalancer.Ingress {
		s.Status.LoadBalancer.Ingress[i].IPMode = &mode
	}
}

func externalIPs(n int) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.ExternalIPs = []string{fmt.Sprintf("198.51.100.%d", n), fmt.Sprintf("fd00:1b::%x", n)}
	}
}

func externalLocal(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func internalLocal(s *corev1.Service) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	s.Spec.InternalTrafficPolicy = &local
}

func noNodePorts(s *corev1.Service) {
	no := false
	s.Spec.AllocateLoadBalancerNodePorts = &no
}

func sourceRanges(r ...string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = r }
}

func affinity(s *corev1.Service) {
	seconds := int32(120)
	s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
}

func unready(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }

func label(k, v string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Labels = map[string]string{k: v} }
}

func headless(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} }

func externalName(s *corev1.Service) {
	s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"}
}

// slices are the EndpointSlices of a Service, one of each family.
func slices4and6(svc corev1.Service, suffix string, ends []end) []discoveryv1.EndpointSlice {
	var out []discoveryv1.EndpointSlice
	families := svc.Spec.IPFamilies
	if len(families) == 0 {
		families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	for _, f := range families {
		s := discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			ObjectMeta: metav1.ObjectMeta{
				Name:      svc.Name + "-" + map[corev1.IPFamily]string{corev1.IPv4Protocol: "4", corev1.IPv6Protocol: "6"}[f] + suffix,
				Namespace: svc.Namespace, Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name},
			},
			AddressType: discoveryv1.AddressType(f), Endpoints: []discoveryv1.Endpoint{},
		}
		for _, p := range svc.Spec.Ports {
			name, proto, target := p.Name, p.Protocol, p.TargetPort.IntVal
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &proto, Port: &target})
		}
		for _, e := range ends {
			s.Endpoints = append(s.Endpoints, e.endpoint(f))
		}
		out = append(out, s)
	}
	return out
}

func (e end) endpoint(f corev1.IPFamily) discoveryv1.Endpoint {
	p := podNamed(e.pod)
	addr := p.four
	if f == corev1.IPv6Protocol {
		addr = p.six
	}
	yes := func(b bool) *bool { return &b }
	out := discoveryv1.Endpoint{
		Addresses: []string{addr}, NodeName: &p.node,
		Conditions: discoveryv1.EndpointConditions{Ready: yes(!e.notReady && !e.terminates), Serving: yes(!e.notReady || e.serving), Terminating: yes(e.terminates)},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "store", Name: p.name},
	}
	if e.terminates {
		out.Conditions.Serving = yes(e.serving)
	}
	if len(e.zones)+len(e.nodes) > 0 {
		out.Hints = &discoveryv1.EndpointHints{}
		for _, z := range e.zones {
			out.Hints.ForZones = append(out.Hints.ForZones, discoveryv1.ForZone{Name: z})
		}
		for _, n := range e.nodes {
			out.Hints.ForNodes = append(out.Hints.ForNodes, discoveryv1.ForNode{Name: n})
		}
	}
	return out
}

// nodeAddr is a node's address of each family.
func nodeAddr(node string) (four, six string) {
	return "172.30.0.1" + node[1:], "fd00:30::1" + node[1:]
}

func podNamed(name string) pod {
	for _, p := range pods {
		if p.name == name {
			if p.host {
				p.four, p.six = nodeAddr(p.node)
			}
			return p
		}
	}
	panic("no pod " + name)
}

// scenes are one Service for every kind of intent.
func scenes() []scene {
	make1 := func(svc corev1.Service, ends []end) scene { return scene{svc: svc, slices: slices4and6(svc, "", ends)} }
	shares := func(s scene) scene { s.shares = true; return s }
	all := ready("a1", "a2", "c1", "c2")
	local, far := ready("a1", "a2"), ready("c1", "c2")

	two := service("two-slices", tcp())
	empty := service("no-slices", tcp())
	out := []scene{
		make1(service("one", tcp()), ready("a1")),
		shares(make1(service("many", tcp()), all)),
		{svc: empty},
		make1(service("no-endpoints", tcp()), nil),
		make1(service("none-ready", tcp()), []end{{pod: "a1", notReady: true}, {pod: "c1", notReady: true}}),
		make1(service("all-terminating", tcp()), []end{{pod: "a1", terminates: true, serving: true}, {pod: "c1", terminates: true, serving: true}, {pod: "c2", terminates: true}}),
		shares(make1(service("some-ready", tcp()), []end{{pod: "a1"}, {pod: "a2", notReady: true}, {pod: "c1"}, {pod: "c2", terminates: true, serving: true}})),
		make1(service("publish-unready", tcp(), unready), ready("a1", "c1")),
		make1(service("two-ports", []port{{"web", corev1.ProtocolTCP, 80, 8080, 0}, {"admin", corev1.ProtocolTCP, 81, 9090, 0}}), ready("a1", "c1")),
		shares(make1(service("udp", udp(53)), ready("a1", "c1", "c2"))),
		make1(service("udp-and-tcp", []port{{"dns", corev1.ProtocolUDP, 53, 5353, 0}, {"dns-tcp", corev1.ProtocolTCP, 53, 8080, 0}}), ready("a2", "c1")),
		make1(service("sticky", tcp(), affinity), all),
		shares(make1(service("internal-local", tcp(), internalLocal), all)),
		make1(service("internal-local-none", tcp(), internalLocal), far),
		shares(make1(service("node-port", tcp(), nodePort), all)),
		make1(service("node-port-udp", udp(53), nodePort), ready("a1", "c1")),
		make1(service("node-port-local", tcp(), nodePort, externalLocal), ready("a1", "a2", "c1")),
		make1(service("node-port-local-none", tcp(), nodePort, externalLocal), far),
		make1(service("node-port-none", tcp(), nodePort), nil),
		make1(service("balancer", tcp(), balanced(10)), all),
		make1(service("balancer-local", tcp(), balanced(11), externalLocal), ready("a1", "c1")),
		make1(service("balancer-local-none", tcp(), balanced(12), externalLocal), far),
		make1(service("balancer-ranges", tcp(), balanced(13), sourceRanges("192.0.2.0/24", "10.244.1.0/25", "2001:db8::/32", "fd00:244:1::/64")), all),
		make1(service("balancer-ranges-closed", tcp(), balanced(14), sourceRanges("203.0.113.0/24", "2001:db8:ffff::/48")), local),
		make1(service("balancer-proxy-mode", tcp(), balanced(15), modeProxy), local),
		make1(service("balancer-no-node-port", tcp(), balanced(16), noNodePorts), ready("a1", "c1")),
		make1(service("balancer-sticky", tcp(), balanced(17), affinity), all),
		make1(service("balancer-empty", tcp(), balanced(18)), nil),
		make1(service("external-ip", tcp(), externalIPs(30)), all),
		make1(service("external-ip-local", tcp(), nodePort, externalIPs(31), externalLocal), ready("a2", "c2")),
		make1(service("zone-hints", tcp()), []end{{pod: "a1", zones: []string{"west"}}, {pod: "a2", zones: []string{"east"}}, {pod: "c1", zones: []string{"west"}}}),
		make1(service("node-hints", tcp()), []end{{pod: "a1", nodes: []string{"n1"}}, {pod: "c1", nodes: []string{"n3"}}}),
		make1(service("four-only", tcp(), single(corev1.IPv4Protocol), nodePort), ready("a1", "c1")),
		make1(service("six-only", tcp(), single(corev1.IPv6Protocol), nodePort), ready("a1", "c1")),
		make1(service("host-network", tcp()), ready("host-1")),
		make1(service("host-network-node-port", tcp(), nodePort), ready("host-1", "c1")),
		{svc: two, slices: append(slices4and6(two, "-x", ready("a1", "c1")), slices4and6(two, "-y", ready("c1", "c2"))...)},
		{svc: service("headless", tcp(), headless), slices: slices4and6(service("headless", tcp()), "", local), none: true},
		{svc: service("external-name", nil, externalName), none: true},
		{svc: service("other-proxy", tcp(), label("service.kubernetes.io/service-proxy-name", "other")), slices: slices4and6(service("other-proxy", tcp()), "", local), none: true},
	}
	return out
}
