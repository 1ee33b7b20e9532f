package intent

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/explain/traits"
)

// TestUserspace: portals lead everybody to kube-proxy's own process, which goes round what Endpoints list as ready.
func TestUserspace(t *testing.T) {
	const taken, none = "redirect 10.244.1.5* 10.244.2.6*", "redirect"
	versions := []string{"1.14", "1.20", "1.25"}
	for _, tt := range []struct {
		name  string
		edits []func(*corev1.Service)
		eps   []string
		cells []cell
	}{
		{"cluster IP", nil, bothSides, []cell{
			{localPod, ClusterIP, taken}, {hairpin, ClusterIP, taken}, {theNode, ClusterIP, taken}, {outsider, ClusterIP, taken}}},
		{"everything else", []func(*corev1.Service){loadBalancer}, bothSides, []cell{
			{outsider, NodePort, taken}, {theNode, NodePort, taken}, {localPod, LoadBalancer, taken}, {theNode, LoadBalancer, taken}, {outsider, ExternalIP, taken}}},
		{"the node's own connections to external IPs", []func(*corev1.Service){loadBalancer}, bothSides, []cell{{theNode, ExternalIP, "no-match"}}},
		{"traffic policies say nothing", []func(*corev1.Service){loadBalancer, etpLocal, itpLocal}, elsewhere, []cell{
			{outsider, LoadBalancer, "redirect 10.244.2.6* 10.244.3.7*"}, {localPod, ClusterIP, "redirect 10.244.2.6* 10.244.3.7*"}}},
		{"source ranges neither", []func(*corev1.Service){loadBalancer, ranges("198.51.100.0/24")}, bothSides, []cell{{outsider, LoadBalancer, taken}, {localPod, LoadBalancer, taken}}},
		{"no endpoints: taken and closed", []func(*corev1.Service){loadBalancer}, nowhere, []cell{{localPod, ClusterIP, none}, {outsider, NodePort, none}}},
		{"ready ones only", nil, []string{"10.244.1.5 node-a notready", "10.244.2.6 node-b", "10.244.2.7 node-b leaving"}, []cell{{localPod, ClusterIP, "redirect 10.244.2.6*"}}},
	} {
		for _, v := range versions {
			p := proxy(v)
			p.Mode = "userspace"
			svc := service(tt.edits...)
			in := Input{Services: []*corev1.Service{svc}, SlicesRead: true, Node: nodeA(), Proxy: p}
			if len(tt.eps) > 0 {
				in.Slices = []*discoveryv1.EndpointSlice{slice("web-1", tt.eps...)}
				in.Endpoints = []*corev1.Endpoints{endpointsObject(in.Slices)}
			}
			sp := Compute(in).Ports[0]
			for _, c := range tt.cells {
				out := sp.Intend(at(t, sp, c.kind), c.client, p)
				if got := show(sp, out); got != c.want {
					t.Errorf("%s, kube-proxy %s: %s → %s: got %s, want %s (%s)", tt.name, v, c.client.Class, c.kind, got, c.want, out.Because)
				}
				if out.Alternative != nil && (c.kind != ExternalIP || c.client.Class != LocalPod) {
					t.Errorf("%s: %s → %s has the alternative %+v", tt.name, c.client.Class, c.kind, out.Alternative)
				}
			}
		}
	}
}

// A pod's packets to an external IP come in through a bridge, or do not: rules decide by that.
func TestUserspaceBridge(t *testing.T) {
	p := proxy("1.25")
	p.Mode = "userspace"
	sp := plan(t, p, service(loadBalancer), bothSides...)
	if out := sp.Intend(at(t, sp, ExternalIP), localPod, p); out.Result != "redirect" || out.Alternative == nil || out.Alternative.Result != "no-match" {
		t.Errorf("%+v, alternative %+v", out, out.Alternative)
	}
}

// What userspace mode takes no notice of is in no plan, so that nobody asks for it.
func TestUserspaceHeeds(t *testing.T) {
	p := proxy("1.25")
	p.Mode = "userspace"
	dual := func(svc *corev1.Service) { svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, "fd00:96::10") }
	sp := plan(t, p, service(loadBalancer, etpLocal, ranges("198.51.100.0/24"), dual), bothSides...)
	if sp.ExternalLocal || sp.SourceRanges != nil || sp.HealthCheckNodePort != 0 || sp.Family != 4 {
		t.Errorf("%+v", sp)
	}
	for _, f := range sp.Frontends {
		if f.Kind == HealthCheck {
			t.Errorf("a health check at %s:%d", f.Addr, f.Port)
		}
	}
	sticky := func(svc *corev1.Service) { svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }
	sp = plan(t, p, service(sticky), bothSides...)
	if out := sp.Intend(at(t, sp, ClusterIP), localPod, p); !strings.Contains(out.Because, "the client had before") {
		t.Errorf("session affinity: %s", out.Because)
	}
}

// The kernels of Windows by whether HNS is known to return directly: Server 2022, and Server 2019, which an update taught.
const (
	server2022 = "10.0.20348.2031"
	server2019 = "10.0.17763.4737"
)

// onWindows computes the one port of a Service in kernelspace mode on a Windows node.
func onWindows(t *testing.T, version, kernel string, svc *corev1.Service, endpoints ...string) (*ServicePort, traits.Proxy) {
	t.Helper()
	p := proxy(version)
	p.Mode = "kernelspace"
	n := nodeA()
	n.Status.NodeInfo.KernelVersion = kernel
	in := Input{Services: []*corev1.Service{svc}, SlicesRead: true, Node: n, Proxy: p}
	if len(endpoints) > 0 {
		in.Slices = []*discoveryv1.EndpointSlice{slice("web-1", endpoints...)}
		in.Endpoints = []*corev1.Endpoints{endpointsObject(in.Slices)}
	}
	out := Compute(in)
	if len(out.Ports) != 1 {
		t.Fatalf("got %d ports, want 1; skipped %+v", len(out.Ports), out.Skipped)
	}
	return out.Ports[0], p
}

// TestKernelspace has what kube-proxy makes in HNS: the same for every client, and nothing where there is no endpoint.
func TestKernelspace(t *testing.T) {
	const (
		all   = "dnat 10.244.1.5? 10.244.2.6?"
		here  = "dnat 10.244.1.5?"
		there = "dnat 10.244.2.6? 10.244.3.7?"
		none  = "no-match"
	)
	leaving := []string{"10.244.1.5 node-a leaving", "10.244.2.6 node-b leaving"}
	preserve := annotated("preserve-destination", "true")
	local := []func(*corev1.Service){loadBalancer, etpLocal}
	for _, tt := range []struct {
		name  string
		edits []func(*corev1.Service)
		eps   []string
		cells []cell
	}{
		{"cluster IP", nil, bothSides, []cell{{localPod, ClusterIP, all}, {hairpin, ClusterIP, all}, {theNode, ClusterIP, all}}},
		{"no endpoints", []func(*corev1.Service){loadBalancer}, nowhere, []cell{
			{localPod, ClusterIP, none}, {outsider, NodePort, none}, {outsider, LoadBalancer, none}, {outsider, ExternalIP, none}}},
		{"ETP Cluster", []func(*corev1.Service){loadBalancer}, bothSides, []cell{{outsider, NodePort, all}, {localPod, LoadBalancer, all}, {theNode, ExternalIP, all}}},
		{"ETP Local", local, bothSides, []cell{
			{outsider, NodePort, here}, {localPod, LoadBalancer, here}, {theNode, LoadBalancer, here}, {outsider, ExternalIP, here}, {localPod, ClusterIP, all}}},
		{"ETP Local, none here", local, elsewhere, []cell{{outsider, NodePort, none}, {outsider, LoadBalancer, none}, {localPod, ClusterIP, there}}},
		{"ITP Local", []func(*corev1.Service){loadBalancer, itpLocal}, bothSides, []cell{{localPod, ClusterIP, here}, {theNode, ClusterIP, here}, {outsider, LoadBalancer, all}}},
		{"ITP Local, none here", []func(*corev1.Service){itpLocal}, elsewhere, []cell{{localPod, ClusterIP, none}}},
		{"the annotation keeps node ports and load balancers here", []func(*corev1.Service){loadBalancer, preserve}, bothSides, []cell{
			{outsider, NodePort, here}, {outsider, LoadBalancer, here}, {outsider, ExternalIP, all}, {localPod, ClusterIP, all}}},
		{"source ranges are not known", []func(*corev1.Service){loadBalancer, ranges("198.51.100.0/24")}, bothSides, []cell{{outsider, LoadBalancer, all}}},
		{"all that there are terminate: without a load balancer none is used", nil, leaving, []cell{{localPod, ClusterIP, none}}},
		{"all that there are terminate: with one they are used for what it needs", []func(*corev1.Service){loadBalancer}, leaving, []cell{
			{localPod, ClusterIP, all}, {outsider, LoadBalancer, all}, {outsider, NodePort, none}, {outsider, ExternalIP, none}}},
	} {
		sp, p := onWindows(t, "1.30", server2022, service(tt.edits...), tt.eps...)
		for _, c := range tt.cells {
			out := sp.Intend(at(t, sp, c.kind), c.client, p)
			if got := show(sp, out); got != c.want || out.Alternative != nil {
				t.Errorf("%s: %s → %s: got %s (alternative %+v), want %s (%s)", tt.name, c.client.Class, c.kind, got, out.Alternative, c.want, out.Because)
			}
		}
	}
}

// Topology hints say nothing on Windows.
func TestKernelspaceTopology(t *testing.T) {
	svc := service(annotated("service.kubernetes.io/topology-mode", "Auto"))
	sp, p := onWindows(t, "1.30", server2022, svc, "10.244.1.5 node-a zone=zone-a forzone=zone-a", "10.244.2.6 node-b zone=zone-b forzone=zone-b")
	if got := show(sp, sp.Intend(at(t, sp, ClusterIP), localPod, p)); got != "dnat 10.244.1.5? 10.244.2.6?" {
		t.Errorf("got %s", got)
	}
}

// An HNS that may not support direct server return may make kube-proxy ignore externalTrafficPolicy Local.
func TestKernelspaceWithoutDSR(t *testing.T) {
	for kernel, unsure := range map[string]bool{server2022: false, server2019: true, "": true, "10.0": true, "5.15.0": true} {
		sp, p := onWindows(t, "1.30", kernel, service(loadBalancer, etpLocal), bothSides...)
		out := sp.Intend(at(t, sp, LoadBalancer), outsider, p)
		if got := show(sp, out); got != "dnat 10.244.1.5?" || (out.Alternative != nil) != unsure {
			t.Errorf("%q: got %s, alternative %+v", kernel, got, out.Alternative)
		}
		if out.Alternative != nil && show(sp, *out.Alternative) != "dnat 10.244.1.5? 10.244.2.6?" {
			t.Errorf("%q: alternative %s", kernel, show(sp, *out.Alternative))
		}
		if out := sp.Intend(at(t, sp, ClusterIP), localPod, p); out.Alternative != nil {
			t.Errorf("%q: an alternative for the cluster IP: %+v", kernel, out.Alternative)
		}
	}
}

// A network of type overlay has one family, whatever the Service has.
func TestKernelspaceOneFamily(t *testing.T) {
	svc := service(func(svc *corev1.Service) { svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, "fd00:96::10") })
	in := Input{Services: []*corev1.Service{svc}, SlicesRead: true, Node: nodeA(), Proxy: proxy("1.30")}
	in.Proxy.Mode = "kernelspace"
	for only, want := range map[int]int{0: 2, 4: 1, 6: 1} {
		in.OnlyFamily = only
		out := Compute(in)
		if len(out.Ports) != want || only != 0 && out.Ports[0].Family != only {
			t.Errorf("family %d only: %d ports", only, len(out.Ports))
		}
	}
}
