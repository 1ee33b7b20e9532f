package relay

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/traits"
)

func of[T any](v T) *T { return &v }

// shop is a Service of type LoadBalancer with three backends, of which 10.1.1.2 is on node n1.
func shop(change func(*corev1.Service)) ([]*intent.ServicePort, Around) {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
			ExternalIPs: []string{"198.51.100.9"},
			Ports:       []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "198.51.100.10"}}}},
	}
	if change != nil {
		change(svc)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: of("http"), Port: of(int32(8080)), Protocol: of(corev1.ProtocolTCP)}},
	}
	for i, node := range []string{"n1", "n2", "n2"} {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.1.%d.2", i+1)}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: of(true)},
		})
	}
	proxy := traits.Proxy{Mode: "svcnet", NodeName: "n1", LocalMode: "ClusterCIDR", ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	addrs := []netip.Addr{netip.MustParseAddr("172.16.0.1"), netip.MustParseAddr("127.0.0.1")}
	p := intent.Compute(intent.Input{Services: []*corev1.Service{svc}, Slices: []*discoveryv1.EndpointSlice{slice}, SlicesRead: true, Proxy: proxy, NodeAddrs: addrs})
	return p.Ports, Around{
		NodeAddrs: addrs, LocalPods: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}, Pods: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		OtherNodes: []netip.Addr{netip.MustParseAddr("172.16.0.2")}, Proxy: proxy,
	}
}

// The clients of the tests.
const (
	localPod  = "10.1.1.7"
	remotePod = "10.1.2.7"
	theNode   = "172.16.0.1"
	neighbour = "172.16.0.2"
	outside   = "203.0.113.5"
)

// TestVerdicts: who gets which backends, as the documentation of Services has it.
func TestVerdicts(t *testing.T) {
	const all, mine = "10.1.1.2 10.1.2.2 10.1.3.2", "10.1.1.2"
	local := func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	elsewhere := func(s *corev1.Service) {
		local(s)
		s.Labels = map[string]string{"elsewhere": ""}
	}
	ranges := func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"} }
	internal := func(s *corev1.Service) {
		s.Spec.InternalTrafficPolicy = of(corev1.ServiceInternalTrafficPolicyLocal)
	}
	for _, tt := range []struct {
		name    string
		change  func(*corev1.Service)
		front   string
		clients []string
		want    string // backends, "drop" or "reject"
	}{
		{"cluster", nil, "10.96.0.10:80", []string{localPod, remotePod, theNode, neighbour, outside}, all},
		{"cluster", nil, "172.16.0.1:30080", []string{localPod, remotePod, theNode, neighbour, outside}, all},
		{"cluster", nil, "198.51.100.10:80", []string{localPod, remotePod, theNode, neighbour, outside}, all},
		{"cluster", nil, "198.51.100.9:80", []string{localPod, outside}, all},
		{"external local", local, "172.16.0.1:30080", []string{neighbour, outside}, mine},
		{"external local", local, "198.51.100.10:80", []string{neighbour, outside}, mine},
		{"external local", local, "198.51.100.10:80", []string{localPod, remotePod, theNode}, all},
		{"external local", local, "10.96.0.10:80", []string{localPod, outside}, all},
		{"external local, none here", elsewhere, "172.16.0.1:30080", []string{neighbour, outside}, "drop"},
		{"external local, none here", elsewhere, "172.16.0.1:30080", []string{localPod, theNode}, "10.1.2.2 10.1.3.2"},
		{"internal local", internal, "10.96.0.10:80", []string{localPod, theNode}, mine},
		{"internal local", internal, "172.16.0.1:30080", []string{localPod, outside}, all},
		{"source ranges", ranges, "198.51.100.10:80", []string{outside}, all},
		{"source ranges", ranges, "198.51.100.10:80", []string{localPod, neighbour}, "drop"},
		{"source ranges", ranges, "172.16.0.1:30080", []string{neighbour}, all},
	} {
		ports, around := shop(tt.change)
		if strings.Contains(tt.name, "none here") {
			without(ports, "10.1.1.2")
		}
		routes, unserved := (&table{}).routes(Want{Ports: ports, Around: around}, Options{}, Taken(ports))
		if len(unserved) > 0 && unserved[0].Kind != intent.HealthCheck {
			t.Fatalf("unserved: %v", unserved)
		}
		r := routes[frontKey{addr: netip.MustParseAddrPort(tt.front)}]
		if r == nil {
			t.Fatalf("%s: %s is not served", tt.name, tt.front)
		}
		for _, client := range tt.clients {
			v := r.verdict(netip.MustParseAddr(client))
			var got []string
			for _, b := range v.targets {
				got = append(got, b.addr.Addr().String())
			}
			slices.Sort(got)
			text := strings.Join(got, " ")
			switch {
			case v.drops:
				text += "drop"
			case text == "":
				text = "reject"
			}
			if text != tt.want {
				t.Errorf("%s: %s to %s: got %s, want %s (%s)", tt.name, client, tt.front, text, tt.want, v.because)
			}
			if again := r.verdict(netip.MustParseAddr(client)); again != v {
				t.Errorf("%s: the second question is answered anew", tt.name)
			}
		}
	}
}

// without takes an endpoint away.
func without(ports []*intent.ServicePort, addr string) {
	for _, sp := range ports {
		keep := func(list []int) []int {
			var out []int
			for _, i := range list {
				if sp.Endpoints[i].Addr.String() != addr {
					out = append(out, i)
				}
			}
			return out
		}
		sp.Cluster, sp.Local, sp.Usable = keep(sp.Cluster), keep(sp.Local), keep(sp.Usable)
	}
}

func TestClients(t *testing.T) {
	_, around := shop(nil)
	around.LocalPods = append(around.LocalPods, netip.MustParsePrefix("fd01:1::/64"))
	around.Pods = append(around.Pods, netip.MustParsePrefix("fd01::/16"))
	c := clientsOf(around, []netip.Addr{netip.MustParseAddr("10.96.0.10")})
	for addr, want := range map[string]intent.Class{
		localPod: intent.LocalPod, remotePod: intent.RemotePod, theNode: intent.Node, neighbour: intent.RemoteNode, outside: intent.External,
		"127.0.0.1": intent.Localhost, "::1": intent.Localhost, "10.96.0.10": intent.Node, "fd01:1::7": intent.LocalPod, "fd01:2::7": intent.RemotePod, "2001:db8::1": intent.External,
	} {
		got := c.client(netip.MustParseAddr(addr))
		if got.Class != want {
			t.Errorf("%s is %s, want %s", addr, got.Class, want)
		}
		if on := want == intent.Node || want == intent.Localhost; got.OnNode != on {
			t.Errorf("%s: on the node: %v", addr, got.OnNode)
		}
		if pod := strings.HasPrefix(addr, "10.1."); got.DetectedLocal != pod {
			t.Errorf("%s: detected as local: %v", addr, got.DetectedLocal)
		}
	}
}

// TestTable: what is known lives on, what is not wanted any more is forgotten, and claims are settled.
func TestTable(t *testing.T) {
	ports, around := shop(nil)
	var known table
	w := Want{Ports: ports, Around: around}
	first, _ := known.routes(w, Options{}, nil)
	second, _ := known.routes(w, Options{}, nil)
	for k, r := range first {
		if second[k].service != r.service || second[k].backends[0] != r.backends[0] {
			t.Fatalf("%v: what was remembered is lost", k)
		}
	}
	// A second Service wants the same external address: the first one keeps it.
	rival := *ports[0]
	rival.Name = "rival"
	w.Ports = append(slices.Clone(ports), &rival)
	third, unserved := known.routes(w, Options{}, nil)
	for k, r := range third {
		if r.service.key.name != "web" {
			t.Errorf("%v went to %s", k, r.service.key.name)
		}
	}
	if len(unserved) != len(rival.Frontends) || !strings.Contains(unserved[0].String(), "has this address already") {
		t.Errorf("unserved: %v", unserved)
	}
	known.routes(Want{}, Options{}, nil)
	if len(known.services)+len(known.backends) != 0 {
		t.Errorf("%d services and %d backends are still known", len(known.services), len(known.backends))
	}
	// What cannot be served says why.
	odd := *ports[0]
	odd.Protocol = "SCTP"
	_, unserved = known.routes(Want{Ports: []*intent.ServicePort{&odd}, Around: around}, Options{}, nil)
	if len(unserved) == 0 || !strings.Contains(unserved[0].Reason, "SCTP") {
		t.Errorf("SCTP: %v", unserved)
	}
}
