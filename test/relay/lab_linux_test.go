package relay

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/traits"
	"github.com/svcnet/svcnet/repair/proxy/userspace"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// cluster is a lab without kube-proxy, with pods on two nodes.
type cluster struct {
	*lab.Lab
	n1, n2 *lab.Node
	pods   []*lab.Pod
	// byAddr finds the pod that answers at an address.
	byAddr map[netip.Addr]*lab.Pod
	client *lab.Pod // on n1, no backend
	remote *lab.Pod // on n2, no backend
}

func bring(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv(programEnv) == "" {
		t.Skip("network namespaces need root")
	}
	ctx := t.Context()
	c := &cluster{Lab: labtest.Bring(t, lab.Options{Name: fmt.Sprintf("u%d", os.Getpid()), Nodes: 2, NoProxy: true}), byAddr: make(map[netip.Addr]*lab.Pod)}
	c.n1, c.n2 = c.Node("n1"), c.Node("n2")
	for i, node := range []string{"n1", "n1", "n2", "n2", "n2"} {
		p, err := c.AddPod(ctx, lab.PodSpec{Name: fmt.Sprintf("back-%d", i), Node: node})
		must(t, err)
		for _, at := range []struct {
			proto corev1.Protocol
			port  int
		}{{corev1.ProtocolTCP, 8080}, {corev1.ProtocolUDP, 8080}} {
			_, err := p.Serve(at.proto, at.port)
			must(t, err)
		}
		c.pods = append(c.pods, p)
		c.byAddr[p.IPv4], c.byAddr[p.IPv6] = p, p
	}
	var err error
	c.client, err = c.AddPod(ctx, lab.PodSpec{Name: "client", Node: "n1"})
	must(t, err)
	c.remote, err = c.AddPod(ctx, lab.PodSpec{Name: "remote", Node: "n2"})
	must(t, err)
	// Pods of the other node have no proxy of their own: this node serves them.
	for _, r := range append(lab.ServiceRanges(), lab.ExternalRanges()...) {
		via := c.n1.IPv4
		if r.Addr().Is6() {
			via = c.n1.IPv6
		}
		must(t, c.n2.Netns().IP(ctx, fmt.Sprintf("route replace %s via %s", r, via)))
	}
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start runs the proxy on n1, against the API server, until the test ends.
func (c *cluster) start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{log: &bytes.Buffer{}, out: make(chan error, 1)}
	serving := make(chan struct{})
	err := c.n1.Netns().Do(func() error {
		r.cmd = exec.Command(os.Getenv(programEnv), append([]string{"proxy", "-A", "--userspace", "--apply", "--runtime-folder", filepath.Join(t.TempDir(), "run"), "--cluster-cidr", "10.244.0.0/16,fd00:244::/32"}, args...)...)
		r.cmd.Env = append(c.n1.Env(), "HOME=/nonexistent", "KUBECONFIG="+c.Kubeconfig("admin"))
		r.cmd.Stderr = &tee{to: r.log, word: "serving ", seen: serving}
		r.cmd.Stdout = r.cmd.Stderr
		return r.cmd.Start()
	})
	must(t, err)
	go func() { r.out <- r.cmd.Wait() }()
	select {
	case <-serving:
	case err := <-r.out:
		t.Fatalf("the proxy ended: %v\n%s", err, r.log)
	case <-time.After(time.Minute):
		_ = r.cmd.Process.Kill()
		t.Fatalf("the proxy does not serve within a minute:\n%s", r.log)
	}
	t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			r.stop(t, syscall.SIGTERM)
		}
		if t.Failed() {
			t.Logf("the proxy said:\n%s", r.log)
		}
	})
	return r
}

// tee keeps what is written and tells when a word came by.
type tee struct {
	mu   sync.Mutex
	to   *bytes.Buffer
	word string
	seen chan struct{}
}

func (w *tee) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to.Write(b)
	if w.word != "" && strings.Contains(w.to.String(), w.word) {
		close(w.seen)
		w.word = ""
	}
	return len(b), nil
}

// randomService is a Service of any kind that the proxy serves, with some of the pods behind it, some of which are
// leaving.
func (c *cluster) randomService(dice *rand.Rand, i int) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	some := func(n int) bool { return dice.IntN(n) == 0 }
	svc := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("s%d", i)},
		Spec: corev1.ServiceSpec{
			Type:           []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}[dice.IntN(3)],
			ClusterIP:      fmt.Sprintf("10.96.7.%d", i+1),
			IPFamilyPolicy: ptr(corev1.IPFamilyPolicySingleStack),
		},
	}
	if some(2) {
		svc.Spec.IPFamilyPolicy = ptr(corev1.IPFamilyPolicyRequireDualStack)
		svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP, fmt.Sprintf("fd00:96::7%02x", i+1)}
	}
	protocols := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}[:1+dice.IntN(2)]
	for j, p := range protocols {
		port := corev1.ServicePort{Name: strings.ToLower(string(p)), Protocol: p, Port: int32(80 + j), TargetPort: intstr.FromInt32(8080)}
		if svc.Spec.Type != corev1.ServiceTypeClusterIP {
			port.NodePort = int32(31000 + 10*i + j)
		}
		svc.Spec.Ports = append(svc.Spec.Ports, port)
	}
	if some(3) {
		svc.Spec.ExternalIPs = []string{fmt.Sprintf("198.51.100.%d", i+1)}
	}
	if svc.Spec.Type != corev1.ServiceTypeClusterIP && some(2) {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if some(4) {
		svc.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("198.51.100.%d", 100+i)}}
		if some(2) {
			svc.Spec.LoadBalancerSourceRanges = []string{[]string{"172.30.0.200/32", "10.244.0.0/16", "172.30.0.0/24"}[dice.IntN(3)]}
		}
	}
	var endpoints []lab.Endpoint
	pods := c.pods
	if some(4) {
		pods = pods[3:] // none on n1
	}
	if some(5) {
		pods = nil
	}
	for _, p := range pods {
		switch dice.IntN(6) {
		case 0:
			endpoints = append(endpoints, lab.Terminating(p)...)
		case 1, 2, 3:
			endpoints = append(endpoints, lab.Ready(p)...)
		}
	}
	var of []discoveryv1.EndpointPort
	for _, p := range protocols {
		of = append(of, discoveryv1.EndpointPort{Name: ptr(strings.ToLower(string(p))), Protocol: ptr(p), Port: ptr(int32(8080))})
	}
	return svc, lab.EndpointSlices("default", svc.Name, of, endpoints...)
}

func ptr[T any](v T) *T { return &v }

// caller is a place that connections are made from, and what the proxy ought to take it for.
type caller struct {
	place  lab.Place
	class  intent.Class
	v4, v6 netip.Addr
}

func (c *cluster) callers() []caller {
	return []caller{
		{c.client, intent.LocalPod, c.client.IPv4, c.client.IPv6},
		{c.remote, intent.RemotePod, c.remote.IPv4, c.remote.IPv6},
		{c.n1, intent.Node, c.n1.IPv4, c.n1.IPv6},
		{c.n2, intent.RemoteNode, c.n2.IPv4, c.n2.IPv6},
		{c.Client, intent.External, c.Client.IPv4, c.Client.IPv6},
	}
}

// TestRandomServices: what clients get of random Services is what the objects ask for, with the objects from a real API
// server.
func TestRandomServices(t *testing.T) {
	const seed, many = 20, 14
	c := bring(t)
	ctx := t.Context()
	dice := rand.New(rand.NewPCG(seed, many))
	var services []*corev1.Service
	var sliced []*discoveryv1.EndpointSlice
	for i := range many {
		svc, of := c.randomService(dice, i)
		must(t, c.Apply(ctx, svc))
		for _, s := range of {
			must(t, c.Apply(ctx, s))
		}
		services, sliced = append(services, svc), append(sliced, of...)
	}
	c.start(t)
	proxy := userspace.Behaviour(traits.Proxy{NodeName: "n1", LocalMode: "ClusterCIDR", ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")}})
	for _, svc := range services {
		if len(svc.Spec.ClusterIPs) == 0 {
			svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
		}
	}
	plan := intent.Compute(intent.Input{Services: services, Slices: sliced, SlicesRead: true, Proxy: proxy, NodeAddrs: []netip.Addr{c.n1.IPv4, c.n1.IPv6, netip.MustParseAddr("127.0.0.1")}})
	outcomes := make(map[string]int)
	for _, sp := range plan.Ports {
		for _, f := range sp.Frontends {
			if f.Kind == intent.HealthCheck {
				continue
			}
			for _, who := range c.callers() {
				addr := who.v4
				if sp.Family == 6 {
					addr = who.v6
				}
				if f.Addr.IsLoopback() && who.class != intent.Node {
					continue
				}
				class := intent.Client{Class: who.class, Addr: addr, OnNode: who.class == intent.Node,
					DetectedLocal: slices.ContainsFunc(proxy.ClusterCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })}
				out := sp.Intend(f, class, proxy)
				got, want := c.meet(t, sp, f, who, out), wanted(sp, out)
				outcomes[out.Result]++
				if got != want {
					t.Errorf("%s %s %s %s:%d from %s: got %s, want %s (%s)", sp.Key(), f.Kind, sp.Protocol, f.Addr, f.Port, who.class, got, want, out.Because)
				}
			}
		}
	}
	t.Logf("outcomes: %v", outcomes)
	for _, result := range []string{"dnat", "reject", "drop"} {
		if outcomes[result] < 3 {
			t.Errorf("only %d cells are to be %s: another seed", outcomes[result], result)
		}
	}
}

// wanted is an outcome as connections show it: the backends, or what a client hears without one. A process cannot drop a
// connection without a word: it resets it.
func wanted(sp *intent.ServicePort, out intent.Outcome) string {
	switch {
	case out.Result == "reject", out.Result == "no-match":
		// iptables mode leaves some packets alone where there is no endpoint (no-match): a process that has the address
		// refuses.
		return "refused"
	case out.Result == "drop" && sp.Protocol == "TCP":
		return "reset"
	case out.Result == "drop":
		return "timed out"
	}
	var addrs []string
	for _, i := range out.Backends {
		addrs = append(addrs, sp.Endpoints[i].Addr.String())
	}
	slices.Sort(addrs)
	return strings.Join(addrs, " ")
}

// meet makes connections until all backends that may answer have, thirty at most.
func (c *cluster) meet(t *testing.T, sp *intent.ServicePort, f intent.Frontend, who caller, out intent.Outcome) string {
	t.Helper()
	o := lab.DialOptions{}
	if len(out.Backends) == 0 && sp.Protocol == "UDP" {
		o.Timeout = 500 * time.Millisecond
	}
	seen := make(map[string]bool)
	for range 40 {
		a, err := c.Dial(t.Context(), who.place, corev1.Protocol(sp.Protocol), netip.AddrPortFrom(f.Addr, uint16(f.Port)), o)
		must(t, err)
		switch {
		case a.Outcome != lab.Answered:
			// A reset may come while the connection is made.
			seen[string(a.Outcome)] = true
		default:
			seen[a.Server.Addr().Unmap().String()] = true
		}
		if len(seen) > len(out.Backends) || a.Outcome != lab.Answered {
			break
		}
	}
	return strings.Join(slices.Sorted(func(yield func(string) bool) {
		for s := range seen {
			if !yield(s) {
				return
			}
		}
	}), " ")
}

// TestFollows: what changes at the API server is served a moment later; what is known is served while the server is gone.
func TestFollows(t *testing.T) {
	c := bring(t)
	ctx := t.Context()
	ports := lab.Ports("TCP:8080")
	service := func(name, ip string) *corev1.Service {
		return &corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.ServiceSpec{ClusterIP: ip, IPFamilyPolicy: ptr(corev1.IPFamilyPolicySingleStack), Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
		}
	}
	slices := func(name string, pods ...*lab.Pod) {
		t.Helper()
		for _, s := range lab.EndpointSlices("default", name, ports, lab.Ready(pods...)...) {
			must(t, c.Apply(ctx, s))
		}
	}
	must(t, c.Apply(ctx, service("web", "10.96.9.1")))
	slices("web", c.pods[0])
	p := c.start(t)
	web, other := netip.MustParseAddrPort("10.96.9.1:80"), netip.MustParseAddrPort("10.96.9.2:80")
	who := func(at netip.AddrPort) string {
		t.Helper()
		a, err := c.Dial(ctx, c.client, corev1.ProtocolTCP, at, lab.DialOptions{Timeout: 5 * time.Second})
		must(t, err)
		if a.Outcome == lab.Answered {
			return a.Pod
		}
		return string(a.Outcome)
	}
	soon := func(at netip.AddrPort, want string) {
		t.Helper()
		begun := time.Now()
		got := ""
		for time.Since(begun) < 15*time.Second {
			if got = who(at); got == want {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("%s: got %s, want %s", at, got, want)
	}
	soon(web, "back-0")
	slices("web", c.pods[3])
	soon(web, "back-3")
	for range 20 {
		if got := who(web); got != "back-3" {
			t.Fatalf("got %s after the change", got)
		}
	}
	must(t, c.Apply(ctx, service("other", "10.96.9.2")))
	soon(other, "refused")
	slices("other", c.pods[1])
	soon(other, "back-1")
	slices("web")
	soon(web, "refused")
	slices("web", c.pods[2])
	soon(web, "back-2")
	stop := make(chan struct{})
	failed := make(chan string, 1)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if a, err := c.Dial(context.Background(), c.client, corev1.ProtocolTCP, web, lab.DialOptions{Timeout: 5 * time.Second}); err != nil || a.Pod != "back-2" {
				select {
				case failed <- fmt.Sprint(a, err):
				default:
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	must(t, c.RestartAPIServer(ctx, 3*time.Second))
	slices("other", c.pods[4])
	soon(other, "back-4")
	close(stop)
	all.Wait()
	select {
	case why := <-failed:
		t.Errorf("a connection failed while the API server was gone: %s", why)
	default:
	}
	must(t, c.Delete(ctx, "Service", "default", "other"))
	soon(other, "unreachable") // nothing routes the address any more
	p.stop(t, syscall.SIGTERM)
	for _, want := range []string{"the API server does not answer", "the API server answers again"} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
}

// TestHandsBack: when kube-proxy is there again and does what is asked, the proxy ends by itself, and of the connections
// made throughout none fails.
func TestHandsBack(t *testing.T) {
	c := bring(t)
	ctx := t.Context()
	must(t, c.Apply(ctx, &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.9.1", IPFamilyPolicy: ptr(corev1.IPFamilyPolicySingleStack), Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}))
	for _, s := range lab.EndpointSlices("default", "web", lab.Ports("TCP:8080"), lab.Ready(c.pods...)...) {
		must(t, c.Apply(ctx, s))
	}
	p := c.start(t, "--until-kube-proxy-healthy", "--healthy-interval", "1s", "--drain", "5s")
	web := netip.MustParseAddrPort("10.96.9.1:80")
	stop := make(chan struct{})
	var mu sync.Mutex
	made, failures := 0, map[string]int{}
	var all sync.WaitGroup
	for _, from := range []lab.Place{c.client, c.n1, c.client, c.remote} {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a, err := c.Dial(context.Background(), from, corev1.ProtocolTCP, web, lab.DialOptions{Timeout: 10 * time.Second})
				mu.Lock()
				made++
				if err != nil || a.Outcome != lab.Answered {
					failures[fmt.Sprint(from, " ", a, err)]++
				}
				mu.Unlock()
			}
		})
	}
	time.Sleep(time.Second)
	must(t, c.n1.StartProxy(ctx))
	select {
	case err := <-p.out:
		if err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the proxy does not hand back")
		_ = p.cmd.Process.Kill()
	}
	time.Sleep(time.Second)
	close(stop)
	all.Wait()
	// Where the kernel had no rules it did not track connections either. Those that are open in the moment in which
	// kube-proxy writes its first rules are new ones to it, and translated in their middle: at most one of each client.
	sum := 0
	for _, n := range failures {
		sum += n
	}
	t.Logf("%d connections, failed: %v", made, failures)
	if sum > 4 || made < 1000 {
		t.Errorf("%d connections of %d failed: %v", sum, made, failures)
	}
	if !strings.Contains(p.log.String(), "kube-proxy serves again") {
		t.Error("the log does not say why it ended")
	}
}
