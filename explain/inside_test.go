package explain

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// The node n1: Service store/web has a backend on it and one on n2, store/other one on n2. The client store/app and
// the backend store/web-1 are pods of n1.
const (
	nodeRules = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-WEB - [0:0]
:KUBE-SVC-OTHER - [0:0]
:KUBE-SEP-1 - [0:0]
:KUBE-SEP-2 - [0:0]
:KUBE-SEP-3 - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "store/web:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-WEB
-A KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m comment --comment "store/other:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-OTHER
-A KUBE-SVC-WEB -m comment --comment "store/web:http -> 10.244.1.20:8080" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-1
-A KUBE-SVC-WEB -m comment --comment "store/web:http -> 10.244.2.20:8080" -j KUBE-SEP-2
-A KUBE-SVC-OTHER -m comment --comment "store/other:http -> 10.244.2.30:9090" -j KUBE-SEP-3
-A KUBE-SEP-1 -p tcp -m comment --comment "store/web:http" -m tcp -j DNAT --to-destination 10.244.1.20:8080
-A KUBE-SEP-2 -p tcp -m comment --comment "store/web:http" -m tcp -j DNAT --to-destination 10.244.2.20:8080
-A KUBE-SEP-3 -p tcp -m comment --comment "store/other:http" -m tcp -j DNAT --to-destination 10.244.2.30:9090
COMMIT
`
	nodeAddrText = `1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 state UNKNOWN
    inet 127.0.0.1/8 scope host lo
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 state UP
    inet 172.18.0.2/16 scope global eth0
3: cni0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 state UP
    inet 10.244.1.1/24 scope global cni0
`
	nodeRoutes = `default via 172.18.0.1 dev eth0
10.244.1.0/24 dev cni0 proto kernel scope link src 10.244.1.1
10.244.2.0/24 via 172.18.0.3 dev eth0
172.18.0.0/16 dev eth0 proto kernel scope link src 172.18.0.2
`
	objectList = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDR: 10.244.1.0/24, podCIDRs: [10.244.1.0/24]}, status: {addresses: [{type: InternalIP, address: 172.18.0.2}]}}
- {apiVersion: v1, kind: Node, metadata: {name: n2}, spec: {podCIDR: 10.244.2.0/24, podCIDRs: [10.244.2.0/24]}, status: {addresses: [{type: InternalIP, address: 172.18.0.3}]}}
- apiVersion: v1
  kind: Service
  metadata: {name: web, namespace: store}
  spec: {type: ClusterIP, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ipFamilies: [IPv4], ports: [{name: http, port: 80, targetPort: 8080, protocol: TCP}]}
- apiVersion: v1
  kind: Service
  metadata: {name: other, namespace: store}
  spec: {type: ClusterIP, clusterIP: 10.96.0.20, clusterIPs: [10.96.0.20], ipFamilies: [IPv4], ports: [{name: http, port: 80, targetPort: 9090, protocol: TCP}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-x, namespace: store, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints:
  - {addresses: [10.244.1.20], nodeName: n1, conditions: {ready: true}, targetRef: {kind: Pod, namespace: store, name: web-1}}
  - {addresses: [10.244.2.20], nodeName: n2, conditions: {ready: true}, targetRef: {kind: Pod, namespace: store, name: web-2}}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: other-x, namespace: store, labels: {kubernetes.io/service-name: other}}
  addressType: IPv4
  ports: [{name: http, port: 9090, protocol: TCP}]
  endpoints:
  - {addresses: [10.244.2.30], nodeName: n2, conditions: {ready: true}, targetRef: {kind: Pod, namespace: store, name: other-1}}
- {apiVersion: v1, kind: Pod, metadata: {name: app, namespace: store}, spec: {nodeName: n1, containers: [{name: app}]}, status: {podIPs: [{ip: 10.244.1.10}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: store}, spec: {nodeName: n1, containers: [{name: web}]}, status: {podIPs: [{ip: 10.244.1.20}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: agent, namespace: store}, spec: {nodeName: n1, hostNetwork: true, containers: [{name: agent}]}, status: {podIPs: [{ip: 172.18.0.2}]}}
`
	noSockets = "Netid State  Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n"
	// istioRules are those of istio-init for all ports.
	istioRules = `*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:ISTIO_INBOUND - [0:0]
:ISTIO_IN_REDIRECT - [0:0]
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A OUTPUT -p tcp -j ISTIO_OUTPUT
-A ISTIO_INBOUND -p tcp -m tcp --dport 15008 -j RETURN
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A ISTIO_OUTPUT -s 127.0.0.6/32 -o lo -j RETURN
-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
`
)

func listens(lines ...string) string {
	out := noSockets
	for _, l := range lines {
		addr, process, _ := strings.Cut(l, " ")
		out += fmt.Sprintf("tcp   LISTEN 0      0      %s 0.0.0.0:* users:((%q,pid=1,fd=3))\n", addr, process)
	}
	return out
}

func saw(file string, f snapshot.Format, family int, text string) snapshot.Evidence {
	e := snapshot.Evidence{File: file, Format: f, Family: family, Status: snapshot.OK, Data: []byte(text)}
	if f == snapshot.IPTablesSave {
		e.Backend = "nft"
	}
	return e
}

func missing(file string, f snapshot.Format, family int, status snapshot.Status, why string) snapshot.Evidence {
	return snapshot.Evidence{File: file, Format: f, Family: family, Status: status, Error: why}
}

// theNode is n1 with more evidence, objects changed by pairs of old and new text.
func theNode(change []string, more ...snapshot.Evidence) *snapshot.Snapshot {
	return &snapshot.Snapshot{Node: "n1", Evidence: append([]snapshot.Evidence{
		saw("iptables-save.txt", snapshot.IPTablesSave, 4, nodeRules),
		saw("ip-addr.txt", snapshot.IPAddr, 0, nodeAddrText),
		saw("ip-route.txt", snapshot.IPRoute, 4, nodeRoutes),
		saw("sysctl.txt", snapshot.Sysctl, 0, "net.ipv4.ip_forward = 1\n"),
		saw("objects.yaml", snapshot.Objects, 0, strings.NewReplacer(change...).Replace(objectList)),
	}, more...)}
}

// within is a pod of n1 that was looked into.
func within(pod, address, rules, sockets string) []snapshot.Evidence {
	dir := snapshot.PodDir(pod)
	out := []snapshot.Evidence{
		saw(dir+"ip-addr.txt", snapshot.IPAddr, 0, "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 state UNKNOWN\n    inet 127.0.0.1/8 scope host lo\n"+
			"2: eth0@if9: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 state UP\n    inet "+address+"/24 scope global eth0\n"),
		saw(dir+"ip-route.txt", snapshot.IPRoute, 4, "default via 10.244.1.1 dev eth0\n10.244.1.0/24 dev eth0 proto kernel scope link src "+address+"\n"),
	}
	if rules == "" {
		out = append(out, missing(dir+"iptables-nft-save.txt", snapshot.IPTablesSave, 4, snapshot.Absent, ""))
	} else {
		out = append(out, saw(dir+"iptables-nft-save.txt", snapshot.IPTablesSave, 4, rules))
	}
	if sockets != "" {
		out = append(out, saw(dir+"ss.txt", snapshot.SocketList, 0, sockets))
	}
	return out
}

// output are rules of a pod's own OUTPUT in a table.
func output(table string, rules ...string) string {
	return "*" + table + "\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT " + strings.Join(rules, "\n-A OUTPUT ") + "\nCOMMIT\n"
}

func app(rules string, more ...snapshot.Evidence) *snapshot.Snapshot {
	return theNode(nil, append(within("store/app", "10.244.1.10", rules, listens("0.0.0.0:15001 envoy", "0.0.0.0:8080 app")), more...)...)
}

func ask(t *testing.T, s *snapshot.Snapshot, o TraceOptions) *report.Trace {
	t.Helper()
	d, err := Trace(s, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range d.Findings {
		if arranged[f.ID] == "" {
			t.Errorf("finding %s: %s", f.ID, f.Message)
		}
	}
	return d
}

// arranged are the findings that the node of these tests deserves.
var arranged = map[string]string{
	"nothing-listens":    "some of the tests take the listener away",
	"masquerade-missing": "its rules have no hairpin rule",
}

func fromApp(t *testing.T, s *snapshot.Snapshot) []report.Path {
	t.Helper()
	return ask(t, s, TraceOptions{Namespace: "store", Service: "web", FromPod: "store/app"}).Paths
}

// insideWeb1 is what becomes of packets inside the local backend, and what the path does not tell.
func insideWeb1(t *testing.T, s *snapshot.Snapshot) (*report.Inside, []string) {
	t.Helper()
	p := ask(t, s, TraceOptions{Namespace: "store", Service: "web", From: []string{"local-pod"}}).Paths[0]
	for _, b := range p.Backends {
		if b.Address == "10.244.1.20" {
			return b.Inside, p.NotEvaluated
		}
	}
	t.Fatalf("backends: %+v", p.Backends)
	return nil, nil
}

func backendNamed(p *report.Path, address string) *report.Backend {
	for i := range p.Backends {
		if p.Backends[i].Address == address {
			return &p.Backends[i]
		}
	}
	return nil
}

func hopChains(hops []report.Hop) string {
	var out []string
	for _, h := range hops {
		at := h.Chain
		if h.Pod != "" {
			at = "pod:" + at
		}
		out = append(out, at)
	}
	return strings.Join(out, " ")
}

func tells(texts []string, words ...string) bool {
	return slices.ContainsFunc(texts, func(s string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(s, w) })
	})
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

func TestSidecarTakesOver(t *testing.T) {
	paths := fromApp(t, app(istioRules))
	if len(paths) != 1 {
		t.Fatalf("%d paths, want 1: what the sidecar itself sends is no connection of the application", len(paths))
	}
	p := &paths[0]
	if p.Result != report.ResultRedirect || p.Probability != 1 || len(p.Uncertain) > 0 || p.Intended != nil || p.Reply != nil {
		t.Errorf("%s %v %v %v %v", p.Result, p.Probability, p.Uncertain, p.Intended, p.Reply)
	}
	if p.TranslatedBy != "ISTIO_REDIRECT" || p.Chain != "ISTIO_REDIRECT" || p.Table != "nat" {
		t.Errorf("translated by %q at %s %s", p.TranslatedBy, p.Table, p.Chain)
	}
	b := &p.Backends[0]
	if got := hopChains(slices.Concat(p.Hops, b.Hops)); got != "pod:OUTPUT pod:ISTIO_OUTPUT pod:ISTIO_REDIRECT" {
		t.Errorf("hops: %s", got)
	}
	if b.Address != "127.0.0.1" || b.Port != 15001 || b.Pod != "store/app" || b.Inside == nil || b.Inside.Result != report.ResultRedirect || !strings.Contains(b.Inside.Text, "envoy listens") {
		t.Errorf("backend %+v, inside %+v", b, b.Inside)
	}
	if !tells(p.NotEvaluated, "store/app", "sidecar", "user 1337 or group 1337") {
		t.Errorf("not evaluated: %q", p.NotEvaluated)
	}
}

// TestSidecarOfAnotherUser: the user of a sidecar is what its container says; of no other user is known that it is one.
func TestSidecarOfAnotherUser(t *testing.T) {
	rules := strings.ReplaceAll(istioRules, "owner 1337", "owner 4242")
	if n := len(fromApp(t, app(rules))); n != 3 {
		t.Errorf("%d paths, want one for each answer to who sends", n)
	}
	s := theNode([]string{"containers: [{name: app}]", "containers: [{name: app}, {name: istio-proxy, securityContext: {runAsUser: 4242, runAsGroup: 4242}}]"},
		within("store/app", "10.244.1.10", rules, listens("0.0.0.0:15001 envoy"))...)
	if paths := fromApp(t, s); len(paths) != 1 || paths[0].Result != report.ResultRedirect {
		t.Errorf("%d paths, the first %s", len(paths), paths[0].Result)
	}
}

func TestRedirectToNobody(t *testing.T) {
	s := theNode(nil, within("store/app", "10.244.1.10", istioRules, noSockets)...)
	p := fromApp(t, s)[0]
	if in := p.Backends[0].Inside; p.Result != report.ResultRedirect || in.Result != report.ResultNoMatch || !strings.Contains(in.Text, "nobody listens") {
		t.Errorf("%s, inside %+v", p.Result, in)
	}
	s = theNode(nil, within("store/app", "10.244.1.10", istioRules, "")...)
	p = fromApp(t, s)[0]
	if in := p.Backends[0].Inside; in.Result != report.ResultRedirect || !strings.Contains(in.Text, "not known who listens") {
		t.Errorf("without sockets: %+v", in)
	}
}

// TestLeavesByChance: a pod that redirects some of its connections at random.
func TestLeavesByChance(t *testing.T) {
	paths := fromApp(t, app(output("nat", "-p tcp -m statistic --mode random --probability 0.20000000000 -j REDIRECT --to-ports 15001", "-p udp -j ACCEPT")))
	if len(paths) != 2 {
		t.Fatalf("%d paths", len(paths))
	}
	sum := 0.0
	for i := range paths {
		p := &paths[i]
		sum += p.Probability
		switch p.Result {
		case report.ResultRedirect:
			if !near(p.Probability, 0.2) || !near(p.Backends[0].Probability, 0.2) || hopChains(slices.Concat(p.Hops, p.Backends[0].Hops)) != "pod:OUTPUT" {
				t.Errorf("redirected: %v, %+v", p.Probability, p.Backends)
			}
		case report.ResultDNAT:
			if !near(p.Probability, 0.8) || len(p.Backends) != 2 || p.TranslatedBy != "KUBE-SVC-WEB" {
				t.Fatalf("sent on: %v by %s, %+v", p.Probability, p.TranslatedBy, p.Backends)
			}
			for _, b := range p.Backends {
				if !near(b.Probability, 0.4) || !near(b.Hops[len(b.Hops)-1].Cumulative, 0.4) {
					t.Errorf("%s: %v, cumulative %v", b.Address, b.Probability, b.Hops[len(b.Hops)-1].Cumulative)
				}
			}
		default:
			t.Errorf("%s", p.Result)
		}
	}
	if !near(sum, 1) {
		t.Errorf("the paths sum to %v", sum)
	}
}

// TestAfter: hops come in the order of the walk, and the translation shown is the node's.
func TestAfter(t *testing.T) {
	rules := output("mangle", "-p tcp -j MARK --set-xmark 0x1/0xffffffff") + output("filter", "-p tcp -j ACCEPT")
	p := fromApp(t, app(rules))[0]
	if p.Result != report.ResultDNAT || p.TranslatedBy != "KUBE-SVC-WEB" || *p.Masquerade {
		t.Errorf("%s by %q, masquerade %v", p.Result, p.TranslatedBy, *p.Masquerade)
	}
	b := backendNamed(&p, "10.244.1.20")
	all := slices.Concat(p.Hops, b.Hops)
	if got := hopChains(all); !strings.HasPrefix(got, "pod:OUTPUT") || !strings.HasSuffix(got, "PREROUTING KUBE-SERVICES KUBE-SVC-WEB KUBE-SEP-1") {
		t.Errorf("hops: %s", got)
	}
	if b.State != stateOK || p.Intended == nil {
		t.Errorf("state %s, intended %v: what only passes the pod is compared as ever", b.State, p.Intended)
	}

	left := netfilter.Ending{P: 0.5, Hops: make([]netfilter.Hop, 3), DstBy: 1, SrcBy: -1, Notes: []string{"a"}}
	left.Packet.DNATed = true
	left.Packet.Dst, left.Packet.OrigDst = netip.MustParseAddr("10.96.0.20"), netip.MustParseAddr("10.96.0.10")
	node := netfilter.Ending{P: 0.5, Hops: []netfilter.Hop{{Cumulative: 1}, {Cumulative: 0.5}}, DstBy: 1, SrcBy: 0, Notes: []string{"b"}}
	e := after(left, node)
	if e.P != 0.25 || len(e.Hops) != 5 || e.DstBy != 4 || e.SrcBy != 3 || e.Hops[3].Cumulative != 0.5 || e.Hops[4].Cumulative != 0.25 || strings.Join(e.Notes, "") != "ab" {
		t.Errorf("%+v", e)
	}
	if node.Hops[0].Cumulative != 1 || len(left.Notes) != 1 {
		t.Error("after changed what it was given")
	}
	node.DstBy, node.SrcBy = -1, -1
	if e := after(left, node); e.DstBy != 1 || e.SrcBy != -1 {
		t.Errorf("where the node translates nothing: %d, %d", e.DstBy, e.SrcBy)
	}
	left.Packet.Dst = left.Packet.OrigDst
	if e := after(left, node); e.DstBy != -1 {
		t.Errorf("a translation to the same: %d", e.DstBy)
	}
}

func TestPodSendsElsewhere(t *testing.T) {
	t.Run("to another Service", func(t *testing.T) {
		d := ask(t, app(output("nat", "-d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.96.0.20:80")), TraceOptions{Namespace: "store", Service: "web", FromPod: "store/app"})
		p := &d.Paths[0]
		if len(d.Paths) != 1 || p.Result != report.ResultDNAT || p.TranslatedBy != "KUBE-SEP-3" || len(p.Backends) != 1 || p.Intended != nil {
			t.Fatalf("%+v", d.Paths)
		}
		b := &p.Backends[0]
		if b.Address != "10.244.2.30" || b.Pod != "store/other-1" || b.State != "unknown" {
			t.Errorf("backend %+v", b)
		}
		if got := hopChains(slices.Concat(p.Hops, b.Hops)); got != "pod:OUTPUT PREROUTING KUBE-SERVICES KUBE-SVC-OTHER KUBE-SEP-3" {
			t.Errorf("hops: %s", got)
		}
	})
	t.Run("to a backend", func(t *testing.T) {
		p := fromApp(t, app(output("nat", "-d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.2.30:9090")))[0]
		if p.Result != report.ResultDNAT || p.TranslatedBy != "OUTPUT" || len(p.Backends) != 1 || p.Backends[0].Address != "10.244.2.30" {
			t.Errorf("%s by %q, %+v", p.Result, p.TranslatedBy, p.Backends)
		}
	})
	t.Run("to itself", func(t *testing.T) {
		p := fromApp(t, app(output("nat", "-d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.1.10:8080")))[0]
		if p.Result != report.ResultRedirect || p.Backends[0].Inside == nil || !strings.Contains(p.Backends[0].Inside.Text, "app listens") {
			t.Errorf("%s, %+v", p.Result, p.Backends)
		}
	})
}

func TestEndsInClientPod(t *testing.T) {
	for _, c := range []struct {
		name, rules string
		result      report.Result
		chain       string
	}{
		{"dropped", output("filter", "-d 10.96.0.0/16 -j DROP"), report.ResultDrop, "OUTPUT"},
		{"refused", output("filter", "-d 10.96.0.0/16 -p tcp -j REJECT --reject-with tcp-reset"), report.ResultReject, "OUTPUT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := fromApp(t, app(c.rules))[0]
			if p.Result != c.result || p.Chain != c.chain || p.Hops[len(p.Hops)-1].Pod != "store/app" || p.Intended != nil || len(p.Backends) > 0 {
				t.Errorf("%s at %s, hops %s, intended %v", p.Result, p.Chain, hopChains(p.Hops), p.Intended)
			}
		})
	}
	t.Run("no route", func(t *testing.T) {
		s := app(output("filter", "-j ACCEPT"))
		for i := range s.Evidence {
			if s.Evidence[i].File == "pods/store/app/ip-route.txt" {
				s.Evidence[i].Data = []byte("10.244.1.0/24 dev eth0 proto kernel scope link src 10.244.1.10\n")
			}
		}
		p := fromApp(t, s)[0]
		if p.Result != report.ResultNoRoute || !strings.HasPrefix(p.Because, "inside pod store/app: ") {
			t.Errorf("%s because %q", p.Result, p.Because)
		}
	})
	// The pod's own address is no business of the node, and neither are the node's sockets.
	for port, want := range map[int]report.Result{8080: report.ResultLocalProcess, 22: report.ResultNoMatch} {
		s := app("", saw("ss.txt", snapshot.SocketList, 0, listens("0.0.0.0:22 sshd")))
		p := ask(t, s, TraceOptions{To: fmt.Sprintf("10.244.1.10:%d/TCP", port), FromPod: "store/app"}).Paths[0]
		if p.Result != want {
			t.Errorf("port %d: %s, want %s", port, p.Result, want)
		}
	}
}

func TestEnter(t *testing.T) {
	tproxy := "*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -j TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x539/0xffffffff\nCOMMIT\n"
	input := func(rules ...string) string {
		return "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT " + strings.Join(rules, "\n-A INPUT ") + "\nCOMMIT\n"
	}
	ambient := "*nat\n:PREROUTING ACCEPT [0:0]\n:ISTIO_PRERT - [0:0]\n-A PREROUTING -j ISTIO_PRERT\n-A ISTIO_PRERT -s 169.254.7.127/32 -p tcp -m tcp -j ACCEPT\n" +
		"-A ISTIO_PRERT ! -d 127.0.0.1/32 -p tcp -m tcp ! --dport 15008 -m mark ! --mark 0x539/0xfff -j REDIRECT --to-ports 15006\nCOMMIT\n"
	for _, c := range []struct {
		name, rules, sockets string
		result               report.Result
		text, chains         string
	}{
		{"somebody listens", "", listens("0.0.0.0:8080 nginx"), report.ResultLocalProcess, "nginx listens on 10.244.1.20:8080", ""},
		{"only on loopback", "", listens("127.0.0.1:8080 nginx"), report.ResultNoMatch, "nobody listens on 10.244.1.20:8080", ""},
		{"nobody at all", "", noSockets, report.ResultNoMatch, "nobody listens", ""},
		{"sockets not read", "", "", report.ResultUnknown, "sockets were not read", ""},
		{"sidecar", istioRules, listens("0.0.0.0:15006 envoy", "0.0.0.0:8080 nginx"), report.ResultRedirect, "redirect it to 10.244.1.20:15006, where envoy listens", "pod:PREROUTING pod:ISTIO_INBOUND pod:ISTIO_IN_REDIRECT"},
		{"sidecar that is gone", istioRules, listens("0.0.0.0:8080 nginx"), report.ResultNoMatch, "15006, where nobody listens", "pod:PREROUTING pod:ISTIO_INBOUND pod:ISTIO_IN_REDIRECT"},
		{"ambient", ambient, listens("0.0.0.0:15006 ztunnel"), report.ResultRedirect, "where ztunnel listens", "pod:PREROUTING pod:ISTIO_PRERT"},
		{"transparent proxy", tproxy, listens("0.0.0.0:15006 envoy"), report.ResultRedirect, "transparent proxy on port 15006", "pod:PREROUTING"},
		{"dropped", input("-p tcp -m tcp --dport 8080 -j DROP"), listens("0.0.0.0:8080 nginx"), report.ResultDrop, "its own rules drop it", "pod:INPUT"},
		{"refused", input("-p tcp -j REJECT --reject-with tcp-reset"), listens("0.0.0.0:8080 nginx"), report.ResultReject, "its own rules refuse it", "pod:INPUT"},
		{"by chance", input("-m statistic --mode random --probability 0.5 -j DROP"), listens("0.0.0.0:8080 nginx"), report.ResultUnknown, "not decided: ", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, notes := insideWeb1(t, theNode(nil, within("store/web-1", "10.244.1.20", c.rules, c.sockets)...))
			if in == nil || in.Pod != "store/web-1" || in.Result != c.result || !strings.Contains(in.Text, c.text) {
				t.Fatalf("inside: %+v", in)
			}
			if c.chains != "" && hopChains(in.Hops) != c.chains {
				t.Errorf("hops: %s, want %s", hopChains(in.Hops), c.chains)
			}
			if tells(notes, "own rules", "may take") {
				t.Errorf("all was read, yet: %q", notes)
			}
			if (c.result == report.ResultRedirect) != tells(notes, "what the proxy in pod store/web-1 does") {
				t.Errorf("not evaluated: %q", notes)
			}
		})
	}
}

// TestInsideNFTables: rules of nftables in a pod take connections over as those of iptables do.
func TestInsideNFTables(t *testing.T) {
	const mesh = `table inet istio-proxy-nat {
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		meta l4proto tcp tcp dport 8080 redirect to :15006
	}
}
`
	evidence := append(within("store/web-1", "10.244.1.20", "", listens("0.0.0.0:15006 envoy", "0.0.0.0:8080 app")),
		saw("pods/store/web-1/nft.txt", snapshot.NFTText, 0, mesh))
	in, _ := insideWeb1(t, theNode(nil, evidence...))
	if in == nil || in.Result != report.ResultRedirect || len(in.Hops) == 0 || in.Hops[0].Table != "inet istio-proxy-nat" {
		t.Errorf("inside: %+v", in)
	}
}

// TestNotLookedInto: what could not be read inside a pod is never an answer.
func TestNotLookedInto(t *testing.T) {
	dir := "pods/store/web-1/"
	good := within("store/web-1", "10.244.1.20", "", noSockets)
	with := func(change ...snapshot.Evidence) []snapshot.Evidence {
		out := slices.Clone(good)
		for _, e := range change {
			out = slices.DeleteFunc(out, func(o snapshot.Evidence) bool { return o.File == e.File })
			out = append(out, e)
		}
		return out
	}
	for _, c := range []struct {
		name     string
		evidence []snapshot.Evidence
		why      string
	}{
		{"denied", with(missing(dir+"iptables-nft-save.txt", snapshot.IPTablesSave, 4, snapshot.Denied, "read iptables (nft): permission denied")), "permission denied"},
		{"one place of two", with(missing(dir+"iptables-legacy-save.txt", snapshot.IPTablesSave, 4, snapshot.Failed, "read iptables (legacy): it is not installed")), "not installed"},
		{"cut off", with(snapshot.Evidence{File: dir + "iptables-nft-save.txt", Format: snapshot.IPTablesSave, Family: 4, Backend: "nft", Status: snapshot.Truncated, Error: "no end", Data: []byte("*nat\n:PREROUTING ACCEPT [0:0]\n")}), "no end"},
		{"not to be parsed", with(saw(dir+"iptables-nft-save.txt", snapshot.IPTablesSave, 4, "\x00\x01")), ""},
		{"the namespace", []snapshot.Evidence{missing(dir+"iptables-nft-save.txt", snapshot.IPTablesSave, 0, snapshot.NotCollected, "read the network namespace of pod store/web-1: it is no pod of this node")}, "no pod of this node"},
		{"nftables that could not be read", with(missing(dir+"nft.json", snapshot.NFTJSON, 0, snapshot.Failed, "read nft: nft is not installed")), "nft is not installed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, notes := insideWeb1(t, theNode(nil, c.evidence...))
			if in == nil || in.Result != report.ResultUnknown {
				t.Errorf("inside: %+v", in)
			}
			if !tells(notes, "own rules of pod store/web-1", c.why) {
				t.Errorf("not evaluated: %q", notes)
			}
			// The same of a client: it is shown as the node sees it, and what its pod does is not known.
			var client []snapshot.Evidence
			for _, e := range c.evidence {
				e.File = strings.Replace(e.File, "web-1", "app", 1)
				e.Error = strings.ReplaceAll(e.Error, "web-1", "app")
				e.Data = []byte(strings.ReplaceAll(string(e.Data), "10.244.1.20", "10.244.1.10"))
				client = append(client, e)
			}
			paths := fromApp(t, theNode(nil, client...))
			if len(paths) != 1 || paths[0].Result != report.ResultDNAT || len(paths[0].Uncertain) > 0 || !tells(paths[0].NotEvaluated, "own rules of pod store/app", c.why) {
				t.Errorf("as a client: %+v", paths)
			}
		})
	}
}

// TestSocketsAlone: of a pod of which nobody says what rules it has, nothing is said but what a mesh may do.
func TestSocketsAlone(t *testing.T) {
	mesh := []string{"name: web-1, namespace: store}, spec", "name: web-1, namespace: store, annotations: {linkerd.io/proxy-version: x}}, spec",
		"name: app, namespace: store}, spec", "name: app, namespace: store, annotations: {linkerd.io/proxy-version: x}}, spec"}
	for _, change := range [][]string{nil, mesh} {
		s := theNode(change, saw("pods/store/web-1/ss.txt", snapshot.SocketList, 0, noSockets), saw("pods/store/app/ss.txt", snapshot.SocketList, 0, noSockets))
		in, notes := insideWeb1(t, s)
		if in == nil || in.Result != report.ResultUnknown || tells(notes, "pod store/web-1", "mesh of Linkerd") != (change != nil) {
			t.Errorf("inside: %+v, not evaluated: %q", in, notes)
		}
		p := fromApp(t, s)[0]
		if p.Result != report.ResultDNAT || tells(p.NotEvaluated, "pod store/app", "mesh of Linkerd") != (change != nil) {
			t.Errorf("as a client: %s, not evaluated: %q", p.Result, p.NotEvaluated)
		}
	}
}

func TestMeshNote(t *testing.T) {
	for _, c := range []struct{ pod, want string }{
		{"annotations: {sidecar.istio.io/status: '{}'}", "Istio"},
		{"annotations: {ambient.istio.io/redirection: enabled}", "Istio (ambient mode)"},
		{"annotations: {ambient.istio.io/redirection: disabled}", ""},
		{"annotations: {linkerd.io/proxy-version: edge-25.1.1}", "Linkerd"},
		{"annotations: {consul.hashicorp.com/connect-inject-status: injected}", "Consul"},
		{"annotations: {kuma.io/sidecar-injected: 'true'}", "Kuma"},
		{"annotations: {kuma.io/sidecar-injected: 'false'}", ""},
		{"annotations: {openservicemesh.io/sidecar-injection: enabled}", "Open Service Mesh"},
		{"annotations: {openservicemesh.io/sidecar-injection: disabled}", ""},
		{"labels: {app: web}", ""},
	} {
		t.Run(c.pod, func(t *testing.T) {
			change := []string{"name: web-1, namespace: store}, spec", "name: web-1, namespace: store, " + c.pod + "}, spec"}
			in, notes := insideWeb1(t, theNode(change))
			if in != nil || tells(notes, "pod store/web-1") != (c.want != "") || c.want != "" && !tells(notes, "mesh of "+c.want+",", "--pod store/web-1") {
				t.Errorf("inside %v, not evaluated: %q", in, notes)
			}
			if _, notes := insideWeb1(t, theNode(change, within("store/web-1", "10.244.1.20", "", listens("0.0.0.0:8080 nginx"))...)); len(notes) > 0 {
				t.Errorf("looked into, yet: %q", notes)
			}
			// A pod dialled by its own address.
			p := ask(t, theNode(change), TraceOptions{To: "10.244.1.20:8080/TCP", FromPod: "store/app"}).Paths[0]
			if tells(p.NotEvaluated, "mesh of") != (c.want != "") {
				t.Errorf("by its own address: %q", p.NotEvaluated)
			}
			// A client that is not named stands for any pod.
			client := []string{"name: app, namespace: store}, spec", "name: app, namespace: store, " + c.pod + "}, spec"}
			if notes := fromApp(t, theNode(client))[0].NotEvaluated; tells(notes, "pod store/app", "mesh of "+c.want) != (c.want != "") {
				t.Errorf("as a client: %q", notes)
			}
			if notes := ask(t, theNode(client), TraceOptions{Namespace: "store", Service: "web"}).Paths[0].NotEvaluated; len(notes) > 0 {
				t.Errorf("as one of a class: %q", notes)
			}
		})
	}
	// Sidecars of images that write no annotation are known by their container.
	for _, m := range meshes {
		if m.container == "" {
			continue
		}
		init := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: m.container}}}}
		if got := meshOf(init); got != m.name {
			t.Errorf("container %s: %q, want %s", m.container, got, m.name)
		}
	}
	if got := meshOf(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: ""}}}}); got != "" {
		t.Errorf("a container without a name: %q", got)
	}
}

// TestInsideAt: addresses that every namespace has tell no pod, and a pod of the node's network has none of its own.
func TestInsideAt(t *testing.T) {
	m := newModel(app(istioRules, missing("pods/store/agent/iptables-nft-save.txt", snapshot.IPTablesSave, 0, snapshot.NotCollected, "it uses the node's")))
	for a, want := range map[string]string{"10.244.1.10": "store/app", "127.0.0.1": "", "172.18.0.2": "", "10.244.1.20": ""} {
		got := ""
		if in := m.insideAt(netip.MustParseAddr(a)); in != nil {
			got = in.pod
		}
		if got != want {
			t.Errorf("%s: %q, want %q", a, got, want)
		}
	}
	// Without objects a pod is known by its addresses.
	s := app(istioRules)
	s.Evidence = slices.DeleteFunc(s.Evidence, func(e snapshot.Evidence) bool { return e.Format == snapshot.Objects })
	if in := newModel(s).insideAt(netip.MustParseAddr("10.244.1.10")); in == nil || in.pod != "store/app" {
		t.Errorf("without objects: %+v", in)
	}
}
