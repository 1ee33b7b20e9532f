package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const webAndDNS = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  ipFamilyPolicy: RequireDualStack
  clusterIP: 10.96.0.80
  clusterIPs: [10.96.0.80, "fd00:96::80"]
  selector: {app: web}
  type: NodePort
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
---
apiVersion: v1
kind: Service
metadata: {name: dns}
spec:
  ipFamilyPolicy: RequireDualStack
  clusterIP: 10.96.0.53
  clusterIPs: [10.96.0.53, "fd00:96::53"]
  selector: {app: web}
  ports: [{port: 53, targetPort: 5353, protocol: UDP}]
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec:
  ipFamilyPolicy: RequireDualStack
  clusterIP: 10.96.0.99
  clusterIPs: [10.96.0.99, "fd00:96::99"]
  ports: [{port: 80, name: tcp}, {port: 80, name: udp, protocol: UDP}]
`

// TestLab brings a cluster up, reaches what is to be reached from everywhere, and leaves nothing behind.
func TestLab(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	if _, err := Binaries(ctx); err != nil { // apart, so that the time below is the lab's
		t.Fatal(err)
	}
	name := fmt.Sprintf("t%d", os.Getpid())
	start := time.Now()
	l, err := Up(ctx, Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up after %s", time.Since(start).Round(time.Millisecond))
	down := func() {
		start := time.Now()
		if err := l.Down(); err != nil {
			t.Error(err)
		}
		t.Logf("down after %s", time.Since(start).Round(time.Millisecond))
	}
	defer down()

	start = time.Now()
	var pods []*Pod
	for i, node := range l.Nodes {
		p, err := l.AddPod(ctx, PodSpec{Name: fmt.Sprintf("web-%d", i+1), Node: node.Name, Labels: map[string]string{"app": "web"}})
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, p)
		serve(t, p, corev1.ProtocolTCP, 8080)
		serve(t, p, corev1.ProtocolUDP, 5353)
	}
	err = l.Apply(ctx, webAndDNS,
		EndpointSlices("default", "web", Ports("TCP:8080"), Ready(pods...)...),
		EndpointSlices("default", "dns", Ports("UDP:5353"), Ready(pods...)...))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.WaitSynced(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("objects synced after %s", time.Since(start).Round(time.Millisecond))

	start = time.Now()
	t.Run("reach", func(t *testing.T) { reach(ctx, t, l, pods) })
	t.Run("no endpoints", func(t *testing.T) { noEndpoints(ctx, t, l) })
	t.Run("outcomes", func(t *testing.T) { outcomes(ctx, t, l, pods) })
	t.Run("host network", func(t *testing.T) { hostNetwork(ctx, t, l) })
	t.Run("replaced", func(t *testing.T) { replaced(ctx, t, l, pods[0]) })
	t.Run("conversation", func(t *testing.T) { conversation(ctx, t, l) })
	t.Run("proxy", func(t *testing.T) { proxyStopsAndStarts(ctx, t, l, pods) })
	t.Run("api", func(t *testing.T) { statusAndRights(ctx, t, l) })
	t.Logf("asked for %s", time.Since(start).Round(time.Millisecond))

	pids := []int{}
	for _, p := range l.processes {
		pids = append(pids, p.cmd.Process.Pid)
	}
	down()
	if len(pids) != 2+len(l.Nodes) {
		t.Errorf("%d programs ran at the end, want etcd, kube-apiserver and %d kube-proxies", len(pids), len(l.Nodes))
	}
	leftNothing(t, l, pids)
}

// reach asks the web and dns Services in every way, and expects all pods, and the client address that kube-proxy
// leaves: that of a pod or of the node itself, and that of the node where masquerading takes its place.
func reach(ctx context.Context, t *testing.T, l *Lab, pods []*Pod) {
	n1 := l.Nodes[0]
	tests := []struct {
		name  string
		from  Place
		proto corev1.Protocol
		to    string
		// saw are the addresses that pods may see: of the given family.
		saw []netip.Addr
	}{
		{"pod to ClusterIP", pods[0], corev1.ProtocolTCP, "10.96.0.80:80", []netip.Addr{pods[0].IPv4, first(n1.gateways())}},
		{"pod to ClusterIP", pods[0], corev1.ProtocolTCP, "[fd00:96::80]:80", []netip.Addr{pods[0].IPv6, second(n1.gateways())}},
		{"pod to dns", pods[0], corev1.ProtocolUDP, "10.96.0.53:53", []netip.Addr{pods[0].IPv4, first(n1.gateways())}},
		{"pod to dns", pods[0], corev1.ProtocolUDP, "[fd00:96::53]:53", []netip.Addr{pods[0].IPv6, second(n1.gateways())}},
		// The node's own connections to a ClusterIP come from outside of the pod range: masqueraded, by the
		// address of the interface that they leave by.
		{"node to ClusterIP", n1, corev1.ProtocolTCP, "10.96.0.80:80", []netip.Addr{n1.IPv4, first(n1.gateways())}},
		{"node to ClusterIP", n1, corev1.ProtocolTCP, "[fd00:96::80]:80", []netip.Addr{n1.IPv6, second(n1.gateways())}},
		{"node to dns", n1, corev1.ProtocolUDP, "10.96.0.53:53", []netip.Addr{n1.IPv4, first(n1.gateways())}},
		{"node to dns", n1, corev1.ProtocolUDP, "[fd00:96::53]:53", []netip.Addr{n1.IPv6, second(n1.gateways())}},
		{"client to ClusterIP", l.Client, corev1.ProtocolTCP, "10.96.0.80:80", []netip.Addr{n1.IPv4, first(n1.gateways())}},
		{"client to dns", l.Client, corev1.ProtocolUDP, "[fd00:96::53]:53", []netip.Addr{n1.IPv6, second(n1.gateways())}},
		{"client to NodePort", l.Client, corev1.ProtocolTCP, "172.30.0.11:30080", []netip.Addr{n1.IPv4, first(n1.gateways())}},
		{"client to NodePort", l.Client, corev1.ProtocolTCP, "[fd00:30::11]:30080", []netip.Addr{n1.IPv6, second(n1.gateways())}},
	}
	for _, tt := range tests {
		t.Run(tt.name+" "+string(tt.proto)+" "+tt.to, func(t *testing.T) {
			got, err := l.Many(ctx, 60, tt.from, tt.proto, netip.MustParseAddrPort(tt.to), DialOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{"web-1", "web-2", "web-3"}; !got.All(Answered) || !slices.Equal(got.Pods(), want) {
				t.Errorf("%s, want all answered, by %v", got, want)
			}
			for saw := range got.ByClient() {
				if !slices.Contains(tt.saw, saw) {
					t.Errorf("a pod saw client %s, want one of %s; all: %s", saw, tt.saw, got)
				}
			}
		})
	}
}

func noEndpoints(ctx context.Context, t *testing.T, l *Lab) {
	for _, from := range []Place{l.Nodes[1], l.Client} {
		for _, proto := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			for _, to := range []string{"10.96.0.99:80", "[fd00:96::99]:80"} {
				got, err := l.Many(ctx, 20, from, proto, netip.MustParseAddrPort(to), DialOptions{})
				if err != nil || !got.All(Refused) {
					t.Errorf("%s to %s %s: %s (%v), want all refused", from, proto, to, got, err)
				}
			}
		}
	}
}

// outcomes meets every other ending of a connection.
func outcomes(ctx context.Context, t *testing.T, l *Lab, pods []*Pod) {
	other := pods[1].Node.ns
	for _, save := range []string{"iptables", "ip6tables"} {
		if _, err := pods[1].Node.Run(ctx, "", save, "-I", "FORWARD", "-p", "tcp", "--dport", "4444", "-j", "DROP"); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.IP(ctx, "route add unreachable 198.51.100.7", "route add unreachable fd00:1b::7"); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		from Place
		to   netip.AddrPort
		want Outcome
	}{
		{pods[0], netip.AddrPortFrom(pods[1].IPv4, 9999), Refused},
		{pods[0], netip.AddrPortFrom(pods[1].IPv6, 9999), Refused},
		{pods[0], netip.AddrPortFrom(pods[1].IPv4, 4444), TimedOut},
		{pods[0], netip.AddrPortFrom(pods[1].IPv6, 4444), TimedOut},
		{pods[1], netip.MustParseAddrPort("198.51.100.7:80"), Unreachable},
		{pods[1], netip.MustParseAddrPort("[fd00:1b::7]:80"), Unreachable},
		{other, netip.MustParseAddrPort("198.51.100.7:80"), Unreachable},
	}
	for _, tt := range tests {
		o := DialOptions{}
		if tt.want == TimedOut {
			o.Timeout = time.Second
		}
		got, err := l.Dial(ctx, tt.from, corev1.ProtocolTCP, tt.to, o)
		if err != nil || got.Outcome != tt.want {
			t.Errorf("%s to %s: %s (%v), want %s", tt.from, tt.to, got, err, tt.want)
		}
	}
	// What the sender's own rules do to its datagrams: DROP and REJECT both refuse to send.
	if _, err := other.Run(ctx, "", "iptables", "-A", "OUTPUT", "-p", "udp", "--dport", "4445", "-j", "DROP"); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Dial(ctx, other, corev1.ProtocolUDP, netip.AddrPortFrom(pods[0].IPv4, 4445), DialOptions{}); err != nil || got.Outcome != Unreachable {
		t.Errorf("own datagram dropped: %s (%v), want %s", got, err, Unreachable)
	}
	if _, err := l.Dial(ctx, pods[0], corev1.ProtocolTCP, netip.MustParseAddrPort("10.96.0.80:80"), DialOptions{SourceIP: netip.MustParseAddr("192.0.2.9")}); err == nil {
		t.Error("a source address that is not there is no error")
	}
	if _, err := pods[0].Serve(corev1.ProtocolSCTP, 7000); errors.Is(err, ErrUnsupported) {
		t.Logf("SCTP not tried: %v", err)
	} else if err != nil {
		t.Error(err)
	} else if got, err := l.Dial(ctx, pods[1], corev1.ProtocolSCTP, netip.AddrPortFrom(pods[0].IPv4, 7000), DialOptions{}); err != nil || got.Pod != "web-1" {
		t.Errorf("SCTP: %s (%v)", got, err)
	}
}

// hostNetwork reaches a pod on the network of its node, UDP at an address that is not that of the route back.
func hostNetwork(ctx context.Context, t *testing.T, l *Lab) {
	p, err := l.AddPod(ctx, PodSpec{Name: "host", Node: "n2", HostNetwork: true})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, p, corev1.ProtocolTCP, 9100)
	serve(t, p, corev1.ProtocolUDP, 9100)
	gateway4, gateway6 := p.Node.gateways()
	for _, proto := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		for _, to := range []netip.Addr{p.IPv4, p.IPv6, gateway4, gateway6} {
			got, err := l.Dial(ctx, l.Client, proto, netip.AddrPortFrom(to, 9100), DialOptions{SourcePort: 9999})
			if err != nil || got.Pod != "host" || got.Server.Addr() != to || got.Client != got.Local || got.Local.Port() != 9999 {
				t.Errorf("%s %s: %s at %s (%v)", proto, to, got, got.Server, err)
			}
		}
	}
	if err := p.Remove(ctx); err != nil {
		t.Error(err)
	}
	if got, err := l.Dial(ctx, l.Client, corev1.ProtocolTCP, netip.AddrPortFrom(p.IPv4, 9100), DialOptions{}); err != nil || got.Outcome != Refused {
		t.Errorf("after Remove: %s (%v)", got, err)
	}
}

// conversation stays with one pod for as long as a connection, or the port of a UDP client.
func conversation(ctx context.Context, t *testing.T, l *Lab) {
	for proto, to := range map[corev1.Protocol]string{corev1.ProtocolTCP: "10.96.0.80:80", corev1.ProtocolUDP: "[fd00:96::53]:53"} {
		c, first, err := l.Open(ctx, l.Nodes[2], proto, netip.MustParseAddrPort(to), DialOptions{})
		if err != nil || first.Outcome != Answered {
			t.Errorf("%s %s: %s (%v)", proto, to, first, err)
			continue
		}
		for range 10 {
			if a, err := c.Ask(ctx); err != nil || a.Pod != first.Pod || a.Client != first.Client {
				t.Errorf("%s %s: %s (%v), at first %s", proto, to, a, err, first)
			}
		}
		c.Close()
	}
}

// proxyStopsAndStarts keeps a node from learning what changes, and lets it learn later.
func proxyStopsAndStarts(ctx context.Context, t *testing.T, l *Lab, pods []*Pod) {
	n3 := l.Nodes[2]
	before := n3.ProxyPID()
	if err := n3.StopProxy(); err != nil {
		t.Fatal(err)
	}
	if err := l.Apply(ctx, EndpointSlices("default", "web", Ports("TCP:8080"), Ready(pods[0])...)); err != nil {
		t.Fatal(err)
	}
	if err := l.WaitSynced(ctx); err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddrPort("10.96.0.80:80")
	for from, want := range map[*Node]int{l.Nodes[1]: 1, n3: 3} {
		got, err := l.Many(ctx, 60, from, corev1.ProtocolTCP, to, DialOptions{})
		if err != nil || len(got.Pods()) != want {
			t.Errorf("kube-proxy stopped on n3, from %s: %s (%v), want %d pods", from, got, err, want)
		}
	}
	n3.ConfigureProxy(func(config map[string]any) { Section(config, "iptables")["masqueradeAll"] = true })
	if err := n3.StartProxy(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.WaitSynced(ctx, n3); err != nil {
		t.Fatal(err)
	}
	got, err := l.Many(ctx, 20, pods[2], corev1.ProtocolTCP, to, DialOptions{})
	if err != nil || !slices.Equal(got.Pods(), []string{"web-1"}) || got.ByClient()[n3.IPv4] != 20 {
		t.Errorf("kube-proxy started with masqueradeAll on n3: %s (%v), want web-1 alone, seeing %s", got, err, n3.IPv4)
	}
	if now := n3.ProxyPID(); before == 0 || now == 0 || now == before {
		t.Errorf("kube-proxy had pid %d, now %d", before, now)
	}
	if metrics, err := n3.Get(ctx, "http://127.0.0.1:10249/metrics"); err != nil || !bytes.Contains(metrics, []byte("kubeproxy_sync_proxy_rules_duration_seconds_count")) {
		t.Errorf("metrics of kube-proxy: %d bytes (%v)", len(metrics), err)
	}
}

// statusAndRights writes a status and reads it back, and asks as one who may not.
func statusAndRights(ctx context.Context, t *testing.T, l *Lab) {
	var s corev1.Service
	s.Name = "balanced"
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
	if err := l.Apply(ctx, s); err != nil {
		t.Fatal(err)
	}
	var got corev1.Service
	if err := l.Get(ctx, "Service", "", "balanced", &got); err != nil || len(got.Status.LoadBalancer.Ingress) != 1 || got.Status.LoadBalancer.Ingress[0].IP != "198.51.100.1" {
		t.Errorf("status of balanced: %+v (%v)", got.Status, err)
	}
	if err := l.Delete(ctx, "Service", "", "balanced"); err != nil {
		t.Error(err)
	}
	if err := l.Delete(ctx, "Service", "", "balanced"); err != nil {
		t.Errorf("delete what is not there: %v", err)
	}
	var refused *APIError
	if err := l.Get(ctx, "Service", "", "balanced", &got); !errors.As(err, &refused) || refused.Code != http.StatusNotFound {
		t.Errorf("get what is not there: %v", err)
	}
	for user, want := range map[string]bool{"admin": true, "proxy": true, "viewer": false} {
		_, err := l.RequestAs(ctx, user, http.MethodGet, "/api/v1/services", "", nil)
		if want != (err == nil) || !want && (!errors.As(err, &refused) || refused.Code != http.StatusForbidden) {
			t.Errorf("services as %s: %v", user, err)
		}
		kubectl, err := exec.LookPath("kubectl")
		if err != nil {
			continue // the proxies show that a kubeconfig works
		}
		out, err := l.Nodes[0].Run(ctx, "", kubectl, "--kubeconfig="+l.Kubeconfig(user), "get", "services", "-o", "name")
		if want != (err == nil) || want && !strings.Contains(out, "service/web") {
			t.Errorf("kubectl as %s: %q (%v)", user, out, err)
		}
	}
}

func leftNothing(t *testing.T, l *Lab, pids []int) {
	t.Helper()
	names, err := os.ReadDir("/run/netns")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasPrefix(n.Name(), l.Name+"-") {
			t.Errorf("network namespace %s is left", n.Name())
		}
	}
	for _, pid := range pids {
		if _, err := startTime(pid); err == nil {
			t.Errorf("process %d is left", pid)
		}
	}
	for _, path := range append(l.state.Folders, l.Dir) {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left (%v)", path, err)
		}
	}
}

// replaced reaches a pod that took the addresses of another one at once.
func replaced(ctx context.Context, t *testing.T, l *Lab, from *Pod) {
	var last *Pod
	for i := range 3 {
		spec := PodSpec{Name: fmt.Sprintf("replaced-%d", i), Node: from.Node.Name}
		if last != nil {
			if err := last.Remove(ctx); err != nil {
				t.Fatal(err)
			}
			spec.IPv4, spec.IPv6 = last.IPv4, last.IPv6
		}
		p, err := l.AddPod(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		serve(t, p, corev1.ProtocolTCP, 8080)
		for _, from := range []Place{from, p.Node, l.Nodes[1], l.Client} {
			for _, to := range []netip.Addr{p.IPv4, p.IPv6} {
				start := time.Now()
				got, err := l.Dial(ctx, from, corev1.ProtocolTCP, netip.AddrPortFrom(to, 8080), DialOptions{})
				if err != nil || got.Pod != spec.Name {
					t.Errorf("%s to %s at %s: %s (%v) after %s", from, spec.Name, to, got, err, time.Since(start))
				}
			}
		}
		last = p
	}
}

func serve(t *testing.T, p *Pod, proto corev1.Protocol, port int) {
	t.Helper()
	if _, err := p.Serve(proto, port); err != nil {
		t.Fatal(err)
	}
}

func first(a, _ netip.Addr) netip.Addr  { return a }
func second(_, a netip.Addr) netip.Addr { return a }
