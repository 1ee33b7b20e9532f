package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/traits"
	"github.com/svcnet/svcnet/repair/proxy/table"
)

// A cluster is what the API may hold, without a server: every kind of Service with every kind of endpoint, at random. It
// is for tests that need thousands of sets of objects.
type cluster struct {
	dice     *rand.Rand
	services map[string]*member
	made     int
}

// member is a Service with its slices.
type member struct {
	svc    *corev1.Service
	slices []*discoveryv1.EndpointSlice
}

// theNode is where the proxy runs.
const theNode = "n1"

// nodeObject is that of theNode.
func nodeObject() *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: theNode, Labels: map[string]string{corev1.LabelTopologyZone: "west"}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24", "fd00:244:1::/64"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "172.30.0.11"}, {Type: corev1.NodeInternalIP, Address: "fd00:30::11"}, {Type: corev1.NodeHostName, Address: theNode},
		}},
	}
}

// nodeAddrs are theNode's addresses.
var nodeAddrs = []netip.Addr{
	netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("::1"),
	netip.MustParseAddr("fd00:30::11"), netip.MustParseAddr("fd00:244:1::1"),
}

// theProxy is what the fallback proxy is like.
func theProxy() traits.Proxy {
	return traits.Proxy{
		Mode: "svcnet", NodeName: theNode, LocalMode: "ClusterCIDR", MasqueradeMark: 0x4000,
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")},
	}
}

func newCluster(seed uint64, services int) *cluster {
	c := &cluster{dice: rand.New(rand.NewPCG(seed, 0)), services: map[string]*member{}}
	for range services {
		c.add()
	}
	return c
}

func (c *cluster) chance(percent int) bool { return c.dice.IntN(100) < percent }

func choose[T any](c *cluster, of ...T) T { return of[c.dice.IntN(len(of))] }

// names of the Services, sorted.
func (c *cluster) names() []string {
	var out []string
	for name := range c.services {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// change changes one Service, and tells which.
func (c *cluster) change() string {
	names := c.names()
	switch n := c.dice.IntN(100); {
	case n < 15 || len(names) < 3:
		return c.add()
	case n < 30 && len(names) > 8:
		name := choose(c, names...)
		delete(c.services, name)
		return name
	case n < 50:
		name := choose(c, names...)
		m := c.services[name]
		c.features(m.svc, m.svc.Annotations["number"])
		c.endpoints(m)
		return name
	default:
		name := choose(c, names...)
		c.endpoints(c.services[name])
		return name
	}
}

func (c *cluster) add() string {
	c.made++
	svc := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("s-%d", c.made), Namespace: choose(c, "shop", "bank"), Annotations: map[string]string{"number": fmt.Sprint(c.made)},
			CreationTimestamp: metav1.NewTime(time.Unix(1700000000+int64(c.dice.IntN(5)), 0)),
		},
	}
	svc.Spec.IPFamilies = choose(c, []corev1.IPFamily{corev1.IPv4Protocol}, []corev1.IPFamily{corev1.IPv6Protocol}, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol})
	for _, f := range svc.Spec.IPFamilies {
		ip := fmt.Sprintf("10.96.%d.%d", c.made/250, 1+c.made%250)
		if f == corev1.IPv6Protocol {
			ip = fmt.Sprintf("fd00:96::%x", c.made)
		}
		svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, ip)
	}
	svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	c.features(svc, fmt.Sprint(c.made))
	m := &member{svc: svc}
	c.endpoints(m)
	name := svc.Namespace + "/" + svc.Name
	c.services[name] = m
	return name
}

// features sets everything that may change in a Service.
func (c *cluster) features(svc *corev1.Service, number string) {
	n, err := strconv.Atoi(number)
	if err != nil {
		panic(err)
	}
	s := &svc.Spec
	s.Type = choose(c, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer)
	s.SessionAffinity, s.SessionAffinityConfig, s.InternalTrafficPolicy, s.ExternalTrafficPolicy, s.ExternalIPs, s.LoadBalancerSourceRanges = "", nil, nil, "", nil, nil
	s.HealthCheckNodePort = 0
	svc.Status = corev1.ServiceStatus{}
	offers := []corev1.ServicePort{
		{Name: "web", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "alt", Protocol: corev1.ProtocolTCP, Port: 81},
		{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}, {Name: "sip", Protocol: corev1.ProtocolSCTP, Port: 5060},
	}
	c.dice.Shuffle(len(offers), func(i, j int) { offers[i], offers[j] = offers[j], offers[i] })
	s.Ports = slices.Clone(offers[:1+c.dice.IntN(2)])
	if len(s.Ports) == 1 && c.chance(30) {
		s.Ports[0].Name = ""
	}
	if s.Type != corev1.ServiceTypeClusterIP && c.chance(85) {
		for i := range s.Ports {
			s.Ports[i].NodePort = int32(30000 + 4*n + i)
		}
	}
	if c.chance(20) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(choose(c, 60, 600, 10800)))}}
	}
	if c.chance(20) {
		s.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	addresses := func(from int) (out []string) {
		for _, f := range s.IPFamilies {
			// Some are claimed by two Services.
			i := from + n%60
			if f == corev1.IPv6Protocol {
				out = append(out, fmt.Sprintf("fd00:1b::%x", i))
			} else {
				out = append(out, fmt.Sprintf("198.51.100.%d", i))
			}
		}
		return out
	}
	if c.chance(25) {
		s.ExternalIPs = addresses(100)
	}
	if (s.Type != corev1.ServiceTypeClusterIP || len(s.ExternalIPs) > 0) && c.chance(45) {
		s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if s.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	if s.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		s.HealthCheckNodePort = int32(40000 + n)
	}
	for _, a := range addresses(1) {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a, IPMode: new(corev1.LoadBalancerIPModeVIP)})
	}
	if c.chance(40) {
		for _, r := range []string{"192.0.2.0/24", "192.0.3.0/24", "192.0.2.7/32", "10.244.1.0/24", "172.30.0.11/32", "203.0.113.0/25", "2001:db8::/32", "fd00:244:1::/64", "fd00:30::11/128"} {
			if c.chance(35) {
				s.LoadBalancerSourceRanges = append(s.LoadBalancerSourceRanges, r)
			}
		}
	}
}

// endpoints writes the slices of a Service.
func (c *cluster) endpoints(m *member) {
	m.slices = nil
	for _, f := range m.svc.Spec.IPFamilies {
		for i := range c.dice.IntN(3) {
			sl := &discoveryv1.EndpointSlice{
				TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
				ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("%s-%s-%d", m.svc.Name, f, i), Namespace: m.svc.Namespace, Labels: map[string]string{discoveryv1.LabelServiceName: m.svc.Name},
				},
				AddressType: discoveryv1.AddressType(f), Endpoints: []discoveryv1.Endpoint{},
			}
			for _, p := range m.svc.Spec.Ports {
				sl.Ports = append(sl.Ports, discoveryv1.EndpointPort{Name: new(p.Name), Protocol: new(p.Protocol), Port: new(8000 + p.Port)})
			}
			hints := c.chance(15)
			for range c.dice.IntN(5) {
				node := choose(c, "n1", "n2", "n3")
				e := discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.%s.%d", node[1:], 20+c.dice.IntN(12))}, NodeName: &node}
				if f == corev1.IPv6Protocol {
					e.Addresses[0] = fmt.Sprintf("fd00:244:%s::%x", node[1:], 20+c.dice.IntN(12))
				}
				switch n := c.dice.IntN(100); {
				case n < 65:
					e.Conditions = discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}
				case n < 80:
					e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(false)}
				default:
					e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
				}
				if hints {
					e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: choose(c, "west", "east")}}}
				}
				sl.Endpoints = append(sl.Endpoints, e)
			}
			m.slices = append(m.slices, sl)
		}
	}
}

// ports are what a Service asks of the tables, by family.
func (c *cluster) ports(name string) map[int][]*table.Port {
	out := map[int][]*table.Port{}
	m := c.services[name]
	if m == nil {
		return out
	}
	plan := intent.Compute(intent.Input{
		Services: []*corev1.Service{m.svc}, Slices: m.slices, SlicesRead: true, Node: nodeObject(), Proxy: theProxy(), NodeAddrs: nodeAddrs,
	})
	for i, sp := range plan.Ports {
		out[sp.Family] = append(out[sp.Family], table.PortOf(sp, m.svc.CreationTimestamp.Time, i))
	}
	return out
}

// nodePortIPs are the addresses on which theNode takes node ports.
var nodePortIPs = []netip.Addr{nodeAddrs[1], nodeAddrs[2], nodeAddrs[4], nodeAddrs[5]}
