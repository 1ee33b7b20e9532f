package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/test/shares"
)

// objects are the cluster of the tests: Services with pods a (on the node), c and d (on the other node) as backends.
func objects() string {
	const text = `
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDRs: [10.1.1.0/24, "fd01:1::/64"]}
status: {addresses: [{type: InternalIP, address: 172.16.0.1}, {type: InternalIP, address: "fd16::1"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: LoadBalancer
  clusterIPs: [10.96.0.10, "fd96::10"]
  clusterIP: 10.96.0.10
  ipFamilies: [IPv4, IPv6]
  externalIPs: [198.51.100.9]
  ports: [{name: http, port: 80, nodePort: 30080, protocol: TCP}]
status: {loadBalancer: {ingress: [{ip: 198.51.100.10}]}}
---
apiVersion: v1
kind: Service
metadata: {name: near, namespace: shop}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.11
  externalTrafficPolicy: Local
  healthCheckNodePort: 30999
  loadBalancerSourceRanges: [203.0.113.0/24]
  ports: [{name: http, port: 80, nodePort: 30081, protocol: TCP}]
status: {loadBalancer: {ingress: [{ip: 198.51.100.11}]}}
---
apiVersion: v1
kind: Service
metadata: {name: sticky, namespace: shop}
spec:
  clusterIP: 10.96.0.12
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 3}}
  ports: [{name: http, port: 80, protocol: TCP}]
---
apiVersion: v1
kind: Service
metadata: {name: dns, namespace: shop}
spec:
  type: NodePort
  clusterIPs: [10.96.0.53, "fd96::53"]
  clusterIP: 10.96.0.53
  ipFamilies: [IPv4, IPv6]
  ports: [{name: dns, port: 53, nodePort: 30053, protocol: UDP}]
---
apiVersion: v1
kind: Service
metadata: {name: empty, namespace: shop}
spec:
  clusterIP: 10.96.0.14
  ports: [{name: http, port: 80, protocol: TCP}]
---
apiVersion: v1
kind: Service
metadata: {name: inside, namespace: shop}
spec:
  clusterIP: 10.96.0.15
  internalTrafficPolicy: Local
  ports: [{name: http, port: 80, protocol: TCP}]
`
	var b strings.Builder
	b.WriteString(text)
	for _, name := range []string{"web", "near", "sticky", "dns", "inside"} {
		port, protocol := "http", "TCP"
		if name == "dns" {
			port, protocol = "dns", "UDP"
		}
		for i, family := range []string{"IPv4", "IPv6"} {
			if i == 1 && name != "web" && name != "dns" {
				continue
			}
			fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-%s, namespace: shop, labels: {kubernetes.io/service-name: %s}}\naddressType: %s\nports: [{name: %s, port: 8080, protocol: %s}]\nendpoints:\n", name, strings.ToLower(family), name, family, port, protocol)
			for _, pod := range []string{"a", "c", "d"} {
				node := "n2"
				if pod == "a" {
					node = "n1"
				}
				fmt.Fprintf(&b, "- {addresses: [%q], nodeName: %s, conditions: {ready: true}}\n", podAddrs[pod][i], node)
			}
		}
	}
	return b.String()
}

// cell is what one client gets at one address.
type cell struct {
	network, client, to, from string
	// want are the backends, or "refused", "reset" or "nothing".
	want string
}

var cells = []cell{
	{"tcp", "b", "10.96.0.10:80", "", "a c d"},
	{"tcp", "node", "10.96.0.10:80", "", "a c d"},
	{"tcp", "c", "10.96.0.10:80", "", "a c d"},
	{"tcp", "outside", "10.96.0.10:80", "", "a c d"},
	{"tcp", "a", "10.96.0.10:80", "", "a c d"}, // a backend itself
	{"tcp", "b", "[fd96::10]:80", "", "a c d"},
	{"tcp", "node", "[fd96::10]:80", "", "a c d"},
	{"tcp", "b", "198.51.100.9:80", "", "a c d"},
	{"tcp", "outside", "198.51.100.9:80", "", "a c d"},
	{"tcp", "outside", "198.51.100.10:80", "", "a c d"},
	{"tcp", "node", "198.51.100.10:80", "", "a c d"},
	{"tcp", "outside", "172.16.0.1:30080", "", "a c d"},
	{"tcp", "outside", "[fd16::1]:30080", "", "a c d"},
	{"tcp", "b", "172.16.0.1:30080", "", "a c d"},
	{"tcp", "node", "172.16.0.1:30080", "", "a c d"},
	{"tcp", "node", "127.0.0.1:30080", "", "a c d"},
	// externalTrafficPolicy Local, with source ranges
	{"tcp", "outside", "172.16.0.1:30081", "", "a"},
	{"tcp", "b", "172.16.0.1:30081", "", "a c d"},
	{"tcp", "node", "172.16.0.1:30081", "", "a c d"},
	{"tcp", "outside", "198.51.100.11:80", "203.0.113.9", "a"},
	{"tcp", "outside", "198.51.100.11:80", "172.16.0.9", "reset"},
	{"tcp", "b", "198.51.100.11:80", "", "reset"},
	{"tcp", "b", "10.96.0.11:80", "", "a c d"},
	// internalTrafficPolicy Local
	{"tcp", "b", "10.96.0.15:80", "", "a"},
	{"tcp", "node", "10.96.0.15:80", "", "a"},
	// nothing there
	{"tcp", "b", "10.96.0.14:80", "", "refused"},
	{"tcp", "node", "10.96.0.14:80", "", "refused"},
	{"tcp", "b", "10.96.0.10:81", "", "refused"},
	{"udp", "b", "10.96.0.53:54", "", "refused"},
	// UDP
	{"udp", "b", "10.96.0.53:53", "", "a c d"},
	{"udp", "node", "10.96.0.53:53", "", "a c d"},
	{"udp", "c", "10.96.0.53:53", "", "a c d"},
	{"udp", "b", "[fd96::53]:53", "", "a c d"},
	{"udp", "outside", "172.16.0.1:30053", "", "a c d"},
	{"udp", "outside", "[fd16::1]:30053", "", "a c d"},
	{"udp", "node", "172.16.0.1:30053", "", "a c d"},
}

func (w *world) place(name string) *namespace {
	switch name {
	case "node":
		return w.node
	case "outside":
		return w.outside
	}
	return w.pods[name]
}

// look makes connections until all backends that are wanted have answered, 40 at most, and says what came.
func (w *world) look(c cell) string {
	seen := make(map[string]bool)
	for range 40 {
		who, _, err := w.place(c.client).ask(c.network, c.to, c.from)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			who = "refused"
		case errors.Is(err, syscall.ECONNRESET):
			who = "reset"
		case err != nil:
			who = err.Error()
		}
		seen[who] = true
		if err != nil {
			break
		}
	}
	var all []string
	for who := range seen {
		all = append(all, who)
	}
	sort.Strings(all)
	return strings.Join(all, " ")
}

// noRules fails when the node has any rule of netfilter.
func (w *world) noRules(t *testing.T) {
	t.Helper()
	for _, c := range [][]string{{"nft", "list", "ruleset"}, {"iptables-legacy-save"}, {"ip6tables-legacy-save"}} {
		out, err := exec.Command("ip", append([]string{"netns", "exec", w.node.name}, c...)...).Output()
		if err != nil {
			t.Fatalf("%v: %v", c, err)
		}
		for _, line := range strings.Split(string(out), "\n") {
			if strings.Contains(line, "chain") || strings.HasPrefix(line, "-A") {
				t.Errorf("%v shows a rule: %s", c, line)
			}
		}
	}
}

// TestServices: every address of every Service, for every kind of client, without a rule.
func TestServices(t *testing.T) {
	for _, reach := range []string{"namespace", "local"} {
		t.Run(reach, func(t *testing.T) {
			w := newWorld(t)
			before := w.state(t)
			p := w.proxy(t, objects(), "-A", "--reach", reach)
			for _, c := range cells {
				if got := w.look(c); got != c.want {
					t.Errorf("%s from %s %s to %s: got %s, want %s", c.network, c.client, c.from, c.to, got, c.want)
				}
			}
			if t.Failed() {
				t.Logf("routes:\n%s", w.node.ip(t, "route show table local"))
			}
			w.noRules(t)
			p.stop(t, unix.SIGTERM)
			if after := w.state(t); after != before {
				t.Errorf("something is left:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// state is what the proxy could leave on the node: devices, addresses, routes, and listening sockets.
func (w *world) state(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, c := range []string{"-o link show", "-o addr show", "route show table all", "-6 route show table all", "rule show"} {
		for _, line := range strings.Split(w.node.ip(t, c), "\n") {
			// State and queue of a device may change by themselves, and how long an address is valid.
			if f := strings.Fields(line); len(f) > 0 {
				f = slices.DeleteFunc(f, func(s string) bool {
					return strings.HasSuffix(s, "sec") || strings.Contains(s, "LOWER_UP") || s == "UP" || s == "UNKNOWN"
				})
				fmt.Fprintln(&out, strings.Join(f, " "))
			}
		}
	}
	return out.String()
}

// TestShares: connections spread as the objects ask, and as kube-proxy's rules would spread them.
func TestShares(t *testing.T) {
	w := newWorld(t)
	w.proxy(t, objects(), "-A")
	third := map[string]float64{"a": 1. / 3, "c": 1. / 3, "d": 1. / 3}
	for _, c := range []cell{
		{"tcp", "b", "10.96.0.10:80", "", ""}, {"tcp", "node", "[fd96::10]:80", "", ""}, {"tcp", "outside", "172.16.0.1:30080", "", ""},
		{"udp", "b", "10.96.0.53:53", "", ""}, {"udp", "outside", "172.16.0.1:30053", "", ""},
	} {
		counts := make(map[string]int)
		for range shares.Connections {
			who, saw, err := w.place(c.client).ask(c.network, c.to, c.from)
			if err != nil {
				t.Fatalf("%s from %s to %s: %v", c.network, c.client, c.to, err)
			}
			if !slices.Contains([]string{"172.16.0.1", "fd16::1", "10.1.1.1", "fd01:1::1"}, saw) {
				t.Fatalf("%s from %s to %s: the backend saw %s, no address of the node", c.network, c.client, c.to, saw)
			}
			counts[who]++
		}
		if why := shares.Improbable(counts, third); why != "" {
			t.Errorf("%s from %s to %s: %s", c.network, c.client, c.to, why)
		}
	}
}

// TestAffinity: a client keeps its backend, until it has been away for as long as the Service says.
func TestAffinity(t *testing.T) {
	w := newWorld(t)
	w.proxy(t, objects(), "-A")
	ask := func() string {
		t.Helper()
		who, _, err := w.pods["b"].ask("tcp", "10.96.0.12:80", "")
		if err != nil {
			t.Fatal(err)
		}
		return who
	}
	first := ask()
	for range 100 {
		if who := ask(); who != first {
			t.Fatalf("%s answered after %s", who, first)
		}
	}
	for range 12 {
		time.Sleep(3100 * time.Millisecond)
		if ask() != first {
			return
		}
	}
	t.Error("after a pause of the timeout the client always had the same backend")
}

// TestKilled: killed, the proxy leaves nothing with a namespace of its own; with local routes they are left, and removed
// by cleanup and by the next start.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	before := w.state(t)
	t.Run("namespace", func(t *testing.T) {
		w.proxy(t, objects(), "-A", "--reach", "namespace").stop(t, unix.SIGKILL)
		for range 100 {
			if w.state(t) == before {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if after := w.state(t); after != before {
			t.Fatalf("something is left:\n%s\nbefore:\n%s", after, before)
		}
		// The next one can start at once.
		p := w.proxy(t, objects(), "-A", "--reach", "namespace")
		p.stop(t, unix.SIGKILL)
		p = w.proxy(t, objects(), "-A", "--reach", "namespace")
		if who, _, err := w.pods["b"].ask("tcp", "10.96.0.10:80", ""); err != nil {
			t.Errorf("after a restart: %s, %v", who, err)
		}
		p.stop(t, unix.SIGTERM)
	})
	t.Run("local", func(t *testing.T) {
		w.proxy(t, objects(), "-A", "--reach", "local").stop(t, unix.SIGKILL)
		if w.state(t) == before {
			t.Fatal("the routes are gone: what are they removed by?")
		}
		w.proxy(t, objects(), "-A", "--reach", "local").stop(t, unix.SIGTERM)
		if after := w.state(t); after != before {
			t.Fatalf("a second run does not remove what the first one left:\n%s\nbefore:\n%s", after, before)
		}
		w.proxy(t, objects(), "-A", "--reach", "local").stop(t, unix.SIGKILL)
		out, _ := exec.Command("ip", "netns", "exec", w.node.name, w.program, "cleanup").CombinedOutput()
		if after := w.state(t); after != before {
			t.Fatalf("cleanup leaves something:\n%s\nbefore:\n%s\nit said:\n%s", after, before, out)
		}
	})
}

// TestWildcard: processes of the node that listen on all addresses are not in the way of Services with the same port, and
// clients of the Services never get to them.
func TestWildcard(t *testing.T) {
	w := newWorld(t)
	for _, port := range []string{":80", ":81"} {
		var l net.Listener
		var err error
		w.node.do(func() { l, err = net.Listen("tcp", port) })
		if err != nil {
			t.Fatal(err)
		}
		defer shut(l)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(c, "wrong x hello")
				shut(c)
			}
		}()
	}
	w.proxy(t, objects(), "-A")
	for _, c := range []cell{
		{"tcp", "b", "10.96.0.10:80", "", "a c d"}, {"tcp", "node", "10.96.0.10:80", "", "a c d"}, {"tcp", "outside", "198.51.100.10:80", "", "a c d"},
		{"tcp", "b", "10.96.0.10:81", "", "refused"}, {"tcp", "node", "10.96.0.14:80", "", "refused"},
	} {
		if got := w.look(c); got != c.want {
			t.Errorf("%s to %s: got %s, want %s", c.client, c.to, got, c.want)
		}
	}
}

// TestWildcardLocal: where service addresses become the node's own, one of which a process has a port is left alone:
// nobody gets to a process that is no backend. It is served once the process is gone.
func TestWildcardLocal(t *testing.T) {
	w := newWorld(t)
	var l net.Listener
	var err error
	w.node.do(func() { l, err = net.Listen("tcp", ":80") })
	if err != nil {
		t.Fatal(err)
	}
	defer shut(l)
	p := w.proxy(t, objects(), "-A", "--reach", "local")
	for _, c := range []cell{
		{"tcp", "b", "10.96.0.10:80", "", "a c d"}, {"tcp", "node", "10.96.0.14:80", "", "refused"}, {"tcp", "node", "198.51.100.10:80", "", "a c d"},
	} {
		who, _, err := w.place(c.client).ask(c.network, c.to, "")
		if err == nil {
			t.Errorf("%s to %s: %s answered", c.client, c.to, who)
		}
	}
	for _, c := range []cell{{"udp", "b", "10.96.0.53:53", "", "a c d"}, {"tcp", "outside", "172.16.0.1:30080", "", "a c d"}} {
		if got := w.look(c); got != c.want {
			t.Errorf("%s to %s: got %s, want %s", c.client, c.to, got, c.want)
		}
	}
	shut(l)
	served := false
	for range 150 { // it is tried again every ten seconds
		if _, _, err := w.pods["b"].ask("tcp", "10.96.0.10:80", ""); err == nil {
			served = true
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if !served {
		t.Error("the address is not served although its port is free")
	}
	p.stop(t, unix.SIGTERM)
	if !strings.Contains(p.log.String(), "has port 80 of TCP on all addresses") {
		t.Error("nobody was told")
	}
}

// TestDrain: told to end, the proxy lets connections go on and takes no new ones.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(t, objects(), "-A", "--drain", "20s")
	var c net.Conn
	var err error
	w.pods["b"].do(func() { c, err = net.DialTimeout("tcp", "10.96.0.10:80", 3*time.Second) })
	if err != nil {
		t.Fatal(err)
	}
	defer shut(c)
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	_, _ = c.Write([]byte("hel"))
	time.Sleep(100 * time.Millisecond)
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	time.Sleep(300 * time.Millisecond)
	if _, _, err := w.pods["b"].ask("tcp", "10.96.0.10:80", ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection while draining: %v", err)
	}
	_, _ = c.Write([]byte("lo"))
	_ = c.(*net.TCPConn).CloseWrite()
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if err != nil || !strings.HasSuffix(string(buf[:n]), " hello") {
		t.Errorf("the old connection: %q, %v", buf[:n], err)
	}
	shut(c)
	select {
	case err := <-p.out:
		t.Logf("the proxy ended: %v", err)
	case <-time.After(5 * time.Second):
		t.Error("the proxy does not end although no connection is left")
		_ = p.cmd.Process.Kill()
	}
}

// TestClientAddress: by the PROXY protocol the backend learns who the client is and what it dialled, for the Service that
// asks for it and no other.
func TestClientAddress(t *testing.T) {
	w := newWorld(t)
	w.proxy(t, objects(), "-A", "--proxy-protocol", "shop/web=v1")
	raw := func(from *namespace, to string) string {
		t.Helper()
		var c net.Conn
		var err error
		from.do(func() { c, err = net.DialTimeout("tcp", to, 3*time.Second) })
		if err != nil {
			t.Fatal(err)
		}
		defer shut(c)
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = c.Write([]byte("hello"))
		_ = c.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(got), " ")
		_, after, _ = strings.Cut(after, " ")
		mine := c.LocalAddr().(*net.TCPAddr).Port
		return strings.ReplaceAll(after, fmt.Sprint(mine), "PORT")
	}
	for _, tt := range []struct {
		from     *namespace
		to, want string
	}{
		{w.pods["b"], "10.96.0.10:80", "PROXY TCP4 10.1.1.3 10.96.0.10 PORT 80\r\nhello"},
		{w.node, "10.96.0.10:80", "PROXY TCP4 172.16.0.1 10.96.0.10 PORT 80\r\nhello"},
		{w.outside, "[fd16::1]:30080", "PROXY TCP6 fd16::9 fd16::1 PORT 30080\r\nhello"},
		{w.pods["b"], "10.96.0.11:80", "hello"},
	} {
		if got := raw(tt.from, tt.to); got != tt.want {
			t.Errorf("%s: the backend got %q, want %q", tt.to, got, tt.want)
		}
	}
}

// TestMetricsAndHealth: what Prometheus asks, and what load balancers ask.
func TestMetricsAndHealth(t *testing.T) {
	w := newWorld(t)
	w.proxy(t, objects(), "-A", "--metrics", "127.0.0.1:9411", "--metrics-per-service")
	for range 7 {
		if _, _, err := w.pods["b"].ask("tcp", "10.96.0.10:80", ""); err != nil {
			t.Fatal(err)
		}
	}
	get := func(from *namespace, host, path string) string {
		t.Helper()
		var c net.Conn
		var err error
		from.do(func() { c, err = net.DialTimeout("tcp", host, 3*time.Second) })
		if err != nil {
			t.Fatal(err)
		}
		defer shut(c)
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		fmt.Fprintf(c, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, host)
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	text := get(w.node, "127.0.0.1:9411", "/metrics")
	for _, want := range []string{
		`svcnet_relay_opened_total{family="IPv4",namespace="shop",port="http",protocol="TCP",service="web"} 7`,
		`svcnet_relay_bytes_to_backends_total{family="IPv4",namespace="shop",port="http",protocol="TCP",service="web"} 35`,
		`svcnet_relay_limit{protocol="TCP"} `,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
	// near has a backend on this node.
	if got := get(w.outside, "172.16.0.1:30999", "/healthz"); !strings.Contains(got, "200 OK") || !strings.Contains(got, `"localEndpoints":1`) {
		t.Errorf("health check: %s", got)
	}
}

// TestLargeDatagrams: datagrams that do not fit into a packet arrive, the first one of a client included.
func TestLargeDatagrams(t *testing.T) {
	w := newWorld(t)
	w.pods["b"].ip(t, "link set eth0 mtu 1400")
	w.node.ip(t, "link set vethb mtu 1400")
	w.proxy(t, objects(), "-A")
	for _, to := range []string{"10.96.0.53:53", "[fd96::53]:53"} {
		for _, size := range []int{1300, 1450, 9000, 60000} {
			var c net.Conn
			var err error
			w.pods["b"].do(func() { c, err = net.Dial("udp", to) })
			if err != nil {
				t.Fatal(err)
			}
			defer shut(c)
			sent := bytes.Repeat([]byte{'x'}, size)
			if _, err := c.Write(sent); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
			got := make([]byte, 65536)
			n, err := c.Read(got)
			if err != nil || !bytes.HasSuffix(got[:n], sent) {
				t.Errorf("%d bytes to %s: %d came back, %v", size, to, n, err)
			}
		}
	}
}
