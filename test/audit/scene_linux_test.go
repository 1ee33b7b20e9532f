package audit

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcnet/svcnet/test/lab"
)

// A stage is a lab with one Service of each kind. Node n1 is looked at; n2 has no kube-proxy and hands on what its
// pods send, so that n1 sees clients of every class; n3 has backends.
type stage struct {
	*lab.Lab
	n1, n2, n3 *lab.Node
	pods       map[string]*lab.Pod
	acts       []*act
	// affinities are the sets of nftables that remember clients, as "FAMILY TABLE SET".
	affinities []string
	// primaryOnly says that node ports are served at n1's primary addresses alone, as in nftables mode.
	primaryOnly bool
	// ipvs says that virtual servers remember clients, and that nobody serves node ports at 127.0.0.1.
	ipvs bool
}

// An act is one Service with its slices.
type act struct {
	svc    corev1.Service
	slices []*discoveryv1.EndpointSlice
}

var stagePods = []struct{ name, node, four, six string }{
	// Two clients of a node, one in each half of its range.
	{"client-1", "n1", "10.244.1.10", "fd00:244:1::a"},
	{"client-1b", "n1", "10.244.1.210", "fd00:244:1:0:8000::a"},
	{"client-2", "n2", "10.244.2.10", "fd00:244:2::a"},
	{"a1", "n1", "10.244.1.20", "fd00:244:1::20"},
	{"a2", "n1", "10.244.1.220", "fd00:244:1:0:8000::20"},
	{"c1", "n3", "10.244.3.20", "fd00:244:3::20"},
	{"c2", "n3", "10.244.3.220", "fd00:244:3:0:8000::20"},
}

// set puts the scene on a lab.
func set(t *testing.T, l *lab.Lab) *stage {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &stage{Lab: l, n1: l.Node("n1"), n2: l.Node("n2"), n3: l.Node("n3"), pods: map[string]*lab.Pod{}}
	must(l.Apply(ctx, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	for _, p := range stagePods {
		made, err := l.AddPod(ctx, lab.PodSpec{Name: p.name, Namespace: namespace, Node: p.node, IPv4: netip.MustParseAddr(p.four), IPv6: netip.MustParseAddr(p.six)})
		must(err)
		s.pods[p.name] = made
		_, err = made.Serve(corev1.ProtocolTCP, 8080)
		must(err)
		_, err = made.Serve(corev1.ProtocolUDP, 5353)
		must(err)
	}
	for _, r := range append(lab.ServiceRanges(), lab.ExternalRanges()...) {
		via := s.n1.IPv4
		if r.Addr().Is6() {
			via = s.n1.IPv6
		}
		must(s.n2.Netns().IP(ctx, fmt.Sprintf("route replace %s via %s", r, via)))
	}
	// A change may have n1 send a client elsewhere by ICMP redirect, and the client would remember.
	for _, at := range []lab.Place{s.n1, s.n2, s.n3, l.Client} {
		must(at.Netns().Sysctl("net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.eth0.send_redirects=0",
			"net.ipv4.conf.all.accept_redirects=0", "net.ipv4.conf.eth0.accept_redirects=0",
			"net.ipv6.conf.all.accept_redirects=0", "net.ipv6.conf.eth0.accept_redirects=0"))
	}
	s.acts = s.plan()
	for _, a := range s.acts {
		must(s.put(ctx, a))
	}
	must(s.n1.StartProxy(ctx))
	must(l.WaitSynced(ctx, s.n1))
	return s
}

// strike takes the scene away and wakes kube-proxy.
func (s *stage) strike(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range s.acts {
		for _, sl := range a.slices {
			must(s.Delete(ctx, "EndpointSlice", namespace, sl.Name))
		}
		must(s.Delete(ctx, "Service", namespace, a.svc.Name))
	}
	for _, p := range s.pods {
		must(p.Remove(ctx))
	}
	for _, r := range append(lab.ServiceRanges(), lab.ExternalRanges()...) {
		must(s.n2.Netns().IP(ctx, "route del "+r.String()))
	}
	must(s.n1.SignalProxy(syscall.SIGCONT))
}

// put brings a Service and its slices to the state of the act.
func (s *stage) put(ctx context.Context, a *act) error {
	return s.Apply(ctx, a.svc, a.slices)
}

// plan are the Services. Addresses and ports are fixed, so that one that was deleted comes back as it was.
func (s *stage) plan() []*act {
	var out []*act
	add := func(name string, proto corev1.Protocol, ends []lab.Endpoint, change ...func(n int, svc *corev1.Service)) {
		n := len(out) + 1
		both := corev1.IPFamilyPolicyRequireDualStack
		port := corev1.ServicePort{Name: "web", Protocol: proto, Port: 80, TargetPort: intstr.FromInt32(8080)}
		if proto == corev1.ProtocolUDP {
			port = corev1.ServicePort{Name: "dns", Protocol: proto, Port: 53, TargetPort: intstr.FromInt32(5353)}
		}
		svc := corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: &both, IPFamilies: bothFamilies,
				ClusterIP: fmt.Sprintf("10.96.7.%d", n), ClusterIPs: []string{fmt.Sprintf("10.96.7.%d", n), fmt.Sprintf("fd00:96::7%02x", n)},
				Ports: []corev1.ServicePort{port},
			},
		}
		for _, c := range change {
			c(n, &svc)
		}
		ports := lab.Ports(fmt.Sprintf("%s=%s:%d", port.Name, proto, port.TargetPort.IntVal))
		out = append(out, &act{svc, lab.EndpointSlices(namespace, name, ports, ends...)})
	}
	nodePort := func(n int, svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeNodePort
		svc.Spec.Ports[0].NodePort = int32(30700 + n)
	}
	balancer := func(n int, svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Spec.Ports[0].NodePort = int32(30700 + n)
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("198.51.100.%d", n)}, {IP: fmt.Sprintf("fd00:1b::%x", n)}}
	}
	external := func(n int, svc *corev1.Service) {
		svc.Spec.ExternalIPs = []string{fmt.Sprintf("198.51.100.%d", n), fmt.Sprintf("fd00:1b::%x", n)}
	}
	externalLocal := func(n int, svc *corev1.Service) {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
			svc.Spec.HealthCheckNodePort = int32(30800 + n)
		}
	}
	internalLocal := func(_ int, svc *corev1.Service) {
		svc.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	ranges := func(_ int, svc *corev1.Service) {
		svc.Spec.LoadBalancerSourceRanges = []string{"172.30.0.200/32", "10.244.1.0/25", "fd00:30::200/128", "fd00:244:1::/65"}
	}
	sticky := func(_ int, svc *corev1.Service) {
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(600))}}
	}
	pods := func(names ...string) []lab.Endpoint {
		var of []*lab.Pod
		for _, n := range names {
			of = append(of, s.pods[n])
		}
		return lab.Ready(of...)
	}
	const tcp, udp = corev1.ProtocolTCP, corev1.ProtocolUDP
	add("plain", tcp, pods("a1", "a2", "c1"))
	add("one", tcp, pods("c2"))
	add("dns", udp, pods("a1", "c1"))
	add("port", tcp, pods("a1", "c1"), nodePort)
	add("port-udp", udp, pods("a2", "c2"), nodePort)
	add("port-local", tcp, pods("a1", "c1"), nodePort, externalLocal)
	add("port-local-none", tcp, pods("c1"), nodePort, externalLocal)
	add("balanced", tcp, pods("a2", "c1"), balancer, ranges)
	add("balanced-local", tcp, pods("a1", "c2"), balancer, externalLocal)
	add("external", tcp, pods("a1", "c1"), external)
	add("sticky", tcp, pods("a1", "a2", "c1"), sticky)
	add("internal-local", tcp, pods("a1", "c1"), internalLocal)
	add("none", tcp, nil)
	add("none-port", tcp, nil, nodePort)
	leaving := append(pods("a1"), lab.Terminating(s.pods["c1"])...)
	leaving = append(leaving, lab.Endpoint{Pod: s.pods["c2"]})
	add("some-ready", tcp, leaving)
	return out
}

// listsAddr tells whether an address is one of the Service's endpoints.
func (a *act) listsAddr(addr string) bool {
	for _, sl := range a.slices {
		for _, e := range sl.Endpoints {
			if slices.Contains(e.Addresses, addr) {
				return true
			}
		}
	}
	return false
}

// actOf finds a Service by name.
func (s *stage) actOf(name string) *act {
	i := slices.IndexFunc(s.acts, func(a *act) bool { return a.svc.Name == name })
	return s.acts[i]
}
