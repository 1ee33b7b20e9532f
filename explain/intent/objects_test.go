package intent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain/traits"
)

func ptr[T any](v T) *T { return &v }

// version reads "1.24" or "1.33.5"; "" is unknown.
func version(s string) traits.Version {
	v := traits.Version{Patch: -1}
	if s == "" {
		return traits.Version{}
	}
	if n, _ := fmt.Sscanf(s, "%d.%d.%d", &v.Major, &v.Minor, &v.Patch); n == 2 {
		v.Patch = -1
	}
	return v
}

// proxy is iptables mode on node-a with the cluster CIDR 10.244.0.0/16.
func proxy(v string) traits.Proxy {
	return traits.Proxy{
		Mode: "iptables", Version: version(v), NodeName: "node-a", LocalMode: "ClusterCIDR",
		ClusterCIDRs:       []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")},
		LocalhostNodePorts: true,
	}
}

func nodeA() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "node-a"},
			{Type: corev1.NodeInternalIP, Address: "192.168.10.11"},
			{Type: corev1.NodeInternalIP, Address: "fd00:192::11"},
		}},
	}
}

// service is shop/web with the port http 80 and the cluster IP 10.96.0.10, changed by edits.
func service(edits ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	for _, edit := range edits {
		edit(svc)
	}
	return svc
}

// loadBalancer gives the Service a node port, the address 203.0.113.10 and the external address 198.51.100.9.
func loadBalancer(svc *corev1.Service) {
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Spec.Ports[0].NodePort = 30080
	svc.Spec.ExternalIPs = []string{"198.51.100.9"}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.10"}}
}

func etpLocal(svc *corev1.Service) {
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		svc.Spec.HealthCheckNodePort = 32100
	}
}

func itpLocal(svc *corev1.Service) {
	svc.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
}

func ranges(rs ...string) func(*corev1.Service) {
	return func(svc *corev1.Service) { svc.Spec.LoadBalancerSourceRanges = rs }
}

func annotated(key, value string) func(*corev1.Service) {
	return func(svc *corev1.Service) {
		if svc.Annotations == nil {
			svc.Annotations = map[string]string{}
		}
		svc.Annotations[key] = value
	}
}

// slice is a slice of shop/web with port http 8080. An endpoint is written "address [node] [word…]", where
// a word is notready, leaving (serves and terminates), gone (terminates), zone=, forzone= or fornode=.
func slice(name string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		Ports:      []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(8080)), Protocol: ptr(corev1.ProtocolTCP)}},
	}
	for _, text := range endpoints {
		words := strings.Fields(text)
		e := discoveryv1.Endpoint{Addresses: []string{words[0]}}
		s.AddressType = discoveryv1.AddressTypeIPv4
		if strings.Contains(words[0], ":") {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			switch key {
			case "notready":
				e.Conditions = discoveryv1.EndpointConditions{Ready: ptr(false), Serving: ptr(false)}
			case "leaving":
				e.Conditions = discoveryv1.EndpointConditions{Ready: ptr(false), Serving: ptr(true), Terminating: ptr(true)}
			case "gone":
				e.Conditions = discoveryv1.EndpointConditions{Ready: ptr(false), Serving: ptr(false), Terminating: ptr(true)}
			case "zone":
				e.Zone = ptr(value)
			case "forzone", "fornode":
				if e.Hints == nil {
					e.Hints = &discoveryv1.EndpointHints{}
				}
				for _, v := range strings.Split(value, ",") {
					if key == "forzone" {
						e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: v})
					} else {
						e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: v})
					}
				}
			default:
				e.NodeName = ptr(w)
			}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// plan computes the one port of a Service with one slice.
func plan(t *testing.T, p traits.Proxy, svc *corev1.Service, endpoints ...string) *ServicePort {
	t.Helper()
	in := Input{Services: []*corev1.Service{svc}, SlicesRead: true, Node: nodeA(), Proxy: p}
	if len(endpoints) > 0 {
		in.Slices = []*discoveryv1.EndpointSlice{slice("web-1", endpoints...)}
	}
	if p.Version.Minor > 0 && p.Version.Minor < 19 {
		in.Endpoints = []*corev1.Endpoints{endpointsObject(in.Slices)}
	}
	out := Compute(in)
	if len(out.Ports) != 1 {
		t.Fatalf("got %d ports, want 1; skipped %+v", len(out.Ports), out.Skipped)
	}
	return out.Ports[0]
}

// endpointsObject is what the old API says of slices.
func endpointsObject(from []*discoveryv1.EndpointSlice) *corev1.Endpoints {
	out := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for _, s := range from {
		subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: *s.Ports[0].Name, Port: *s.Ports[0].Port, Protocol: corev1.ProtocolTCP}}}
		for _, e := range s.Endpoints {
			a := corev1.EndpointAddress{IP: e.Addresses[0], NodeName: e.NodeName}
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				subset.Addresses = append(subset.Addresses, a)
			} else {
				subset.NotReadyAddresses = append(subset.NotReadyAddresses, a)
			}
		}
		out.Subsets = append(out.Subsets, subset)
	}
	return out
}

// addrs writes a list of endpoints as addresses.
func addrs(sp *ServicePort, list []int) string {
	var out []string
	for _, i := range list {
		out = append(out, sp.Endpoints[i].Addr.String())
	}
	return strings.Join(out, " ")
}

func kinds(notes []Note) map[NoteKind]int {
	out := map[NoteKind]int{}
	for _, n := range notes {
		out[n.Kind]++
	}
	return out
}
