package intent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/explain/traits"
)

func inputOf(p traits.Proxy, svc *corev1.Service, endpoints ...string) Input {
	return Input{Services: []*corev1.Service{svc}, Slices: []*discoveryv1.EndpointSlice{slice("web-1", endpoints...)},
		Node: nodeA(), Proxy: p, NodeAddrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.168.10.11"), netip.MustParseAddr("10.244.1.1"),
			netip.MustParseAddr("::1"), netip.MustParseAddr("fd00:192::11"), netip.MustParseAddr("fe80::1%eth0")}}
}

func TestSkip(t *testing.T) {
	label := func(key, value string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Labels = map[string]string{key: value} }
	}
	tests := []struct {
		name    string
		version string
		svc     *corev1.Service
		want    SkipReason // empty: programmed
	}{
		{"plain", "1.36", service(), ""},
		{"headless", "1.36", service(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} }), SkipHeadless},
		{"headless, list only", "1.36", service(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", []string{"None"} }), SkipHeadless},
		{"ExternalName", "1.36", service(func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "", nil
		}), SkipExternalName},
		{"no address yet", "1.36", service(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil }), SkipNoClusterIP},
		{"other proxy", "1.14", service(label(labelProxyName, "mine")), SkipOtherProxy},
		{"other proxy, empty value", "1.36", service(label(labelProxyName, "")), SkipOtherProxy},
		{"headless label hides up to 1.35", "1.35", service(label(labelHeadless, "")), SkipHeadlessLabel},
		{"headless label 1.36", "1.36", service(label(labelHeadless, "")), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Compute(inputOf(proxy(tt.version), tt.svc, "10.244.1.5"))
			switch {
			case tt.want == "" && len(got.Ports) != 1:
				t.Errorf("skipped: %+v", got.Skipped)
			case tt.want != "" && (len(got.Skipped) != 1 || got.Skipped[0].Reason != tt.want || got.Skipped[0].Text == ""):
				t.Errorf("got %+v, want %s", got.Skipped, tt.want)
			}
		})
	}
}

func frontends(sp *ServicePort) []string {
	var out []string
	for _, f := range sp.Frontends {
		text := fmt.Sprintf("%s %s", f.Kind, netip.AddrPortFrom(f.Addr, uint16(f.Port)))
		if f.OnNode {
			text += " on node"
		}
		out = append(out, text)
	}
	return out
}

func TestFrontends(t *testing.T) {
	nodePort := func(s *corev1.Service) { s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080 }
	with := func(p traits.Proxy, edit func(*traits.Proxy)) traits.Proxy { edit(&p); return p }
	prefixes := func(ps ...string) []netip.Prefix {
		var out []netip.Prefix
		for _, p := range ps {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	tests := []struct {
		name  string
		proxy traits.Proxy
		svc   *corev1.Service
		want  []string
	}{
		{"everything", proxy("1.36"), service(loadBalancer, etpLocal), []string{
			"ClusterIP 10.96.0.10:80", "ExternalIP 198.51.100.9:80", "LoadBalancer 203.0.113.10:80",
			"NodePort 10.244.1.1:30080 on node", "NodePort 127.0.0.1:30080 on node", "NodePort 192.168.10.11:30080 on node",
			"HealthCheck 10.244.1.1:32100 on node", "HealthCheck 127.0.0.1:32100 on node", "HealthCheck 192.168.10.11:32100 on node"}},
		{"localhostNodePorts off", with(proxy("1.36"), func(p *traits.Proxy) { p.LocalhostNodePorts = false }), service(nodePort), []string{
			"ClusterIP 10.96.0.10:80", "NodePort 10.244.1.1:30080 on node", "NodePort 192.168.10.11:30080 on node"}},
		{"localhostNodePorts does not exist before 1.26", with(proxy("1.25"), func(p *traits.Proxy) { p.LocalhostNodePorts = false }), service(nodePort), []string{
			"ClusterIP 10.96.0.10:80", "NodePort 10.244.1.1:30080 on node", "NodePort 127.0.0.1:30080 on node", "NodePort 192.168.10.11:30080 on node"}},
		{"nodePortAddresses", with(proxy("1.36"), func(p *traits.Proxy) { p.NodePortAddresses = prefixes("192.168.10.0/24") }), service(nodePort), []string{
			"ClusterIP 10.96.0.10:80", "NodePort 192.168.10.11:30080 on node"}},
		{"nodePortAddresses with loopback", with(proxy("1.36"), func(p *traits.Proxy) { p.NodePortAddresses = prefixes("192.168.10.0/24", "127.0.0.0/8") }), service(nodePort), []string{
			"ClusterIP 10.96.0.10:80", "NodePort 127.0.0.1:30080 on node", "NodePort 192.168.10.11:30080 on node"}},
		{"nodePortAddresses of the other family restrict nothing", with(proxy("1.36"), func(p *traits.Proxy) { p.NodePortAddresses = prefixes("fd00::/8") }), service(nodePort), []string{
			"ClusterIP 10.96.0.10:80", "NodePort 10.244.1.1:30080 on node", "NodePort 127.0.0.1:30080 on node", "NodePort 192.168.10.11:30080 on node"}},
		{"match-all range", with(proxy("1.36"), func(p *traits.Proxy) { p.NodePortAddresses = prefixes("10.9.0.0/16", "0.0.0.0/0") }), service(nodePort), []string{
			"ClusterIP 10.96.0.10:80", "NodePort 10.244.1.1:30080 on node", "NodePort 127.0.0.1:30080 on node", "NodePort 192.168.10.11:30080 on node"}},
		{"primary keyword", with(proxy("1.36"), func(p *traits.Proxy) { p.NodePortPrimary = true }), service(nodePort), []string{
			"ClusterIP 10.96.0.10:80", "NodePort 192.168.10.11:30080 on node"}},
		{"nftables", with(proxy("1.36"), func(p *traits.Proxy) { p.Mode = "nftables" }), service(nodePort), []string{
			"ClusterIP 10.96.0.10:80", "NodePort 192.168.10.11:30080 on node"}},
		{"nftables on all addresses", with(proxy("1.36"), func(p *traits.Proxy) { p.Mode, p.NodePortAddresses = "nftables", prefixes("0.0.0.0/0") }), service(nodePort), []string{
			"ClusterIP 10.96.0.10:80", "NodePort 10.244.1.1:30080 on node", "NodePort 192.168.10.11:30080 on node"}},
		{"ipvs", with(proxy("1.36"), func(p *traits.Proxy) { p.Mode = "ipvs" }), service(nodePort), []string{
			"ClusterIP 10.96.0.10:80", "NodePort 10.244.1.1:30080 on node", "NodePort 192.168.10.11:30080 on node"}},
		{"IPv6 1.25 serves ::1", proxy("1.25"), service(nodePort, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "fd00:96::a", nil }), []string{
			"ClusterIP [fd00:96::a]:80", "NodePort [::1]:30080 on node", "NodePort [fd00:192::11]:30080 on node"}},
		{"IPv6 1.26 does not", proxy("1.26"), service(nodePort, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "fd00:96::a", nil }), []string{
			"ClusterIP [fd00:96::a]:80", "NodePort [fd00:192::11]:30080 on node"}},
		{"health check 1.22 listens everywhere", with(proxy("1.22"), func(p *traits.Proxy) { p.NodePortAddresses = prefixes("192.168.10.0/24") }), service(loadBalancer, etpLocal), []string{
			"ClusterIP 10.96.0.10:80", "ExternalIP 198.51.100.9:80", "LoadBalancer 203.0.113.10:80", "NodePort 192.168.10.11:30080 on node",
			"HealthCheck 10.244.1.1:32100 on node", "HealthCheck 127.0.0.1:32100 on node", "HealthCheck 192.168.10.11:32100 on node"}},
		{"external IP that is the node's", proxy("1.36"), service(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.168.10.11", "192.168.10.11"} }), []string{
			"ClusterIP 10.96.0.10:80", "ExternalIP 192.168.10.11:80 on node"}},
		{"ipMode Proxy", proxy("1.30"), service(loadBalancer, func(s *corev1.Service) {
			s.Spec.ExternalIPs, s.Spec.Ports[0].NodePort = nil, 0
			s.Status.LoadBalancer.Ingress[0].IPMode = ptr(corev1.LoadBalancerIPModeProxy)
		}), []string{"ClusterIP 10.96.0.10:80"}},
		{"ipMode Proxy 1.29", proxy("1.29"), service(loadBalancer, func(s *corev1.Service) {
			s.Spec.ExternalIPs, s.Spec.Ports[0].NodePort = nil, 0
			s.Status.LoadBalancer.Ingress[0].IPMode = ptr(corev1.LoadBalancerIPModeProxy)
		}), []string{"ClusterIP 10.96.0.10:80", "LoadBalancer 203.0.113.10:80"}},
		{"hostname ingress, leading zeros", proxy("1.36"), service(func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"198.051.100.009"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.org"}}
		}), []string{"ClusterIP 10.96.0.10:80", "ExternalIP 198.51.100.9:80"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Compute(inputOf(tt.proxy, tt.svc, "10.244.1.5 node-a"))
			if diff := cmp.Diff(tt.want, frontends(got.Ports[0])); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDualStack(t *testing.T) {
	svc := service(loadBalancer, ranges("203.0.113.0/24"), func(s *corev1.Service) {
		s.Spec.ClusterIPs = []string{"10.96.0.10", "fd00:96::a"}
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
		s.Spec.ExternalIPs = []string{"198.51.100.9", "2001:db8::9"}
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: "2001:db8::10"})
	})
	in := inputOf(proxy("1.36"), svc, "10.244.1.5 node-a")
	in.Slices = append(in.Slices, slice("web-6", "fd00:10:244:1::5 node-a", "fd00:10:244:2::6 node-b"))
	got := Compute(in)
	if len(got.Ports) != 2 {
		t.Fatalf("got %d ports", len(got.Ports))
	}
	v4, v6 := got.Ports[0], got.Ports[1]
	if v4.Family != 4 || v6.Family != 6 || addrs(v4, v4.Cluster) != "10.244.1.5" || addrs(v6, v6.Cluster) != "fd00:10:244:1::5 fd00:10:244:2::6" {
		t.Errorf("families mixed: %s | %s", addrs(v4, v4.Cluster), addrs(v6, v6.Cluster))
	}
	if diff := cmp.Diff([]string{"ClusterIP [fd00:96::a]:80", "ExternalIP [2001:db8::9]:80", "LoadBalancer [2001:db8::10]:80", "NodePort [fd00:192::11]:30080 on node"}, frontends(v6)); diff != "" {
		t.Error(diff)
	}
	if len(v4.SourceRanges) != 1 || v6.SourceRanges != nil {
		t.Errorf("source ranges %v, %v", v4.SourceRanges, v6.SourceRanges)
	}
	if kinds(got.Notes)[NoteRangesOpen] != 1 || kinds(got.Notes)[NoteFamilyMismatch] != 0 {
		t.Errorf("notes %+v", got.Notes)
	}
	if v6.NodeIP != netip.MustParseAddr("fd00:192::11") {
		t.Errorf("node IP %s", v6.NodeIP)
	}
}

func TestSourceRanges(t *testing.T) {
	tests := []struct {
		version string
		ranges  []string
		want    string
	}{
		{"1.36", []string{" 203.0.113.7/24 ", "203.0.113.0/24", "10.0.0.0/8"}, "[203.0.113.0/24 10.0.0.0/8]"},
		{"1.36", []string{"rubbish", "203.0.113.0/33", "203.0.113.1"}, "[]"},
		{"1.34", []string{"10.0.0.0/8", "0.0.0.0/0"}, "[]"},
		{"1.33", []string{"10.0.0.0/8", "0.0.0.0/0"}, "[10.0.0.0/8 0.0.0.0/0]"},
		{"1.36", []string{"2001:db8::/32"}, "[]"},
	}
	for _, tt := range tests {
		sp := plan(t, proxy(tt.version), service(loadBalancer, ranges(tt.ranges...)), "10.244.1.5")
		if got := fmt.Sprint(sp.SourceRanges); got != tt.want {
			t.Errorf("%s %q: got %s, want %s", tt.version, tt.ranges, got, tt.want)
		}
	}
}

func TestPortDetails(t *testing.T) {
	svc := service(loadBalancer, etpLocal, func(s *corev1.Service) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53})
	})
	got := Compute(inputOf(proxy("1.36"), svc, "10.244.1.5"))
	if len(got.Ports) != 2 {
		t.Fatalf("got %d ports", len(got.Ports))
	}
	first, second := got.Ports[0], got.Ports[1]
	if first.AffinitySeconds != 10800 || first.HealthCheckNodePort != 32100 || second.HealthCheckNodePort != 32100 {
		t.Errorf("affinity %d, health check ports %d and %d", first.AffinitySeconds, first.HealthCheckNodePort, second.HealthCheckNodePort)
	}
	if !hasKind(first.Frontends, HealthCheck) || hasKind(second.Frontends, HealthCheck) || hasKind(second.Frontends, NodePort) {
		t.Error("the health check belongs to the first port only, a port without nodePort has no NodePort frontend")
	}
	if first.Key() != "shop/web:http" || second.FrontendProtocol(Frontend{Kind: HealthCheck}) != "TCP" || second.FrontendProtocol(Frontend{Kind: ClusterIP}) != "UDP" {
		t.Errorf("key %s, protocols wrong", first.Key())
	}
	svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr(int32(60))}}
	if got := Compute(inputOf(proxy("1.36"), svc, "10.244.1.5")).Ports[0].AffinitySeconds; got != 60 {
		t.Errorf("affinity %d, want 60", got)
	}
	if n := kinds(got.Notes)[NoteNodePortTwice]; n != 0 {
		t.Errorf("the two ports of one Service share their health check port, yet: %+v", got.Notes)
	}
}

// TestServiceNotes has one odd object each and names the note that must come, and no other.
func TestServiceNotes(t *testing.T) {
	tests := []struct {
		name    string
		version string
		svc     *corev1.Service
		more    *corev1.Service
		want    NoteKind
	}{
		{"external IP of another family", "1.36", service(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"2001:db8::1"} }), nil, NoteFamilyMismatch},
		{"load balancer address of another family", "1.36", service(func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "2001:db8::1"}}
		}), nil, NoteFamilyMismatch},
		{"range of another family", "1.36", service(ranges("2001:db8::/32")), nil, NoteFamilyMismatch},
		{"no address", "1.36", service(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"300.1.2.3"} }), nil, NoteUnreadableAddress},
		{"hostname", "1.36", service(func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "x.example"}}
		}), nil, NoteHostnameOnly},
		{"ipMode", "1.36", service(func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1", IPMode: ptr(corev1.LoadBalancerIPModeProxy)}}
		}), nil, NoteIPModeProxy},
		{"internal policy before 1.22", "1.21", service(itpLocal), nil, NoteInternalPolicyIgnored},
		{"no health check port", "1.36", service(loadBalancer, etpLocal, func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 0 }), nil, NoteHealthCheckMissing},
		{"twice", "1.36", service(), service(), NoteServiceTwice},
		{"external address twice", "1.36", service(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"198.51.100.1"} }),
			service(func(s *corev1.Service) { s.Name, s.Spec.ExternalIPs = "other", []string{"198.51.100.1"} }), NoteExternalTwice},
		{"node port twice", "1.36", service(loadBalancer, etpLocal),
			service(func(s *corev1.Service) { s.Name, s.Spec.Ports[0].NodePort = "other", 32100 }), NoteNodePortTwice},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := inputOf(proxy(tt.version), tt.svc, "10.244.1.5 node-a")
			if tt.more != nil {
				in.Services = append(in.Services, tt.more)
			}
			if diff := cmp.Diff(map[NoteKind]int{tt.want: 1}, kinds(Compute(in).Notes)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNodeFacts(t *testing.T) {
	in := inputOf(proxy("1.36"), service(loadBalancer), "10.244.1.5 node-a")
	in.NodeAddrs = nil
	got := Compute(in)
	if kinds(got.Notes)[NoteNodeAddrsFromObject] != 1 || !strings.Contains(strings.Join(frontends(got.Ports[0]), ","), "NodePort 192.168.10.11:30080") {
		t.Errorf("addresses of the Node object are not used: %v %+v", frontends(got.Ports[0]), got.Notes)
	}
	in.Node = nil
	if got = Compute(in); kinds(got.Notes)[NoteNodeAddrsUnknown] != 1 {
		t.Errorf("no note that addresses are unknown: %+v", got.Notes)
	}
	in.NodeAddrs, in.Proxy.Mode = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, "nftables"
	if got = Compute(in); kinds(got.Notes)[NoteNodeIPUnknown] != 1 || hasKind(got.Ports[0].Frontends, NodePort) {
		t.Errorf("primary address guessed: %v %+v", frontends(got.Ports[0]), got.Notes)
	}
	in.NodeAddrs = in.NodeAddrs[:2]
	if got = Compute(in); !hasKind(got.Ports[0].Frontends, NodePort) || got.Ports[0].NodeIP != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("the only address is not taken for the primary one: %v", frontends(got.Ports[0]))
	}
	in.Proxy.NodeName = ""
	if got = Compute(in); kinds(got.Notes)[NoteNodeNameUnknown] != 1 || got.Ports[0].Endpoints[0].Local {
		t.Errorf("no note that the node name is unknown: %+v", got.Notes)
	}
}

// In IPVS mode the addresses on kube-ipvs0 are service addresses, not the node's.
func TestIPVSDummyDevice(t *testing.T) {
	p := proxy("1.36")
	p.Mode = "ipvs"
	in := inputOf(p, service(loadBalancer), "10.244.1.5 node-a")
	in.NodeAddrs = append(in.NodeAddrs, netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("203.0.113.10"))
	want := []string{"ClusterIP 10.96.0.10:80", "ExternalIP 198.51.100.9:80", "LoadBalancer 203.0.113.10:80 on node",
		"NodePort 10.244.1.1:30080 on node", "NodePort 192.168.10.11:30080 on node"}
	if diff := cmp.Diff(want, frontends(Compute(in).Ports[0])); diff != "" {
		t.Error(diff)
	}
}
