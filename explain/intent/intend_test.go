package intent

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/traits"
)

// The clients of the tests, as a proxy with cluster CIDR 10.244.0.0/16 on 192.168.10.11 sees them.
var (
	localPod   = Client{Class: LocalPod, Addr: netip.MustParseAddr("10.244.1.9"), DetectedLocal: true}
	hairpin    = Client{Class: Hairpin, Addr: netip.MustParseAddr("10.244.1.5"), DetectedLocal: true}
	remotePod  = Client{Class: RemotePod, Addr: netip.MustParseAddr("10.244.2.9"), DetectedLocal: true}
	theNode    = Client{Class: Node, Addr: netip.MustParseAddr("192.168.10.11"), OnNode: true}
	remoteNode = Client{Class: RemoteNode, Addr: netip.MustParseAddr("192.168.10.12")}
	outsider   = Client{Class: External, Addr: netip.MustParseAddr("203.0.113.77")}
	localhost  = Client{Class: Localhost, Addr: netip.MustParseAddr("127.0.0.1"), OnNode: true}
)

// unseen is a client as a proxy without a local detector sees it.
func unseen(c Client) Client { c.DetectedLocal = false; return c }

// at is the first frontend of a kind that is not on loopback.
func at(t *testing.T, sp *ServicePort, kind FrontendKind) Frontend {
	t.Helper()
	for _, f := range sp.Frontends {
		if f.Kind == kind && !f.Addr.IsLoopback() {
			return f
		}
	}
	t.Fatalf("no %s frontend in %v", kind, frontends(sp))
	return Frontend{}
}

// show writes an outcome: "dnat 10.244.1.5 10.244.2.6*", * for masqueraded, ? for not known.
func show(sp *ServicePort, o Outcome) string {
	words := []string{o.Result}
	for i, b := range o.Backends {
		w := sp.Endpoints[b].Addr.String()
		switch {
		case o.Masquerade[i]:
			w += "*"
		case o.MasqueradeUnknown != "":
			w += "?"
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

var (
	bothSides = []string{"10.244.1.5 node-a", "10.244.2.6 node-b"}
	elsewhere = []string{"10.244.2.6 node-b", "10.244.3.7 node-c"}
	nowhere   []string
)

const (
	all        = "dnat 10.244.1.5 10.244.2.6"
	allMasq    = "dnat 10.244.1.5* 10.244.2.6*"
	here       = "dnat 10.244.1.5"
	there      = "dnat 10.244.2.6 10.244.3.7"
	thereMasq  = "dnat 10.244.2.6* 10.244.3.7*"
	theHairpin = "dnat 10.244.1.5* 10.244.2.6"
)

// cell is one question and its answer.
type cell struct {
	client Client
	kind   FrontendKind
	want   string
}

// TestIPTables asks rule by rule. Each case names the versions for which it holds; no version means all
// from 1.14 on.
func TestIPTables(t *testing.T) {
	former, current := []string{"1.14", "1.18", "1.19", "1.20", "1.21", "1.23"}, []string{"1.24", "1.25", "1.26", "1.30", "1.33", "1.34", "1.36", ""}
	every := append(append([]string{}, former...), current...)
	since := func(v string) (out []string) {
		for i, x := range every {
			if x == v {
				return every[i:]
			}
		}
		panic(v)
	}
	upTo := func(v string) (out []string) {
		for i, x := range every {
			if x == v {
				return every[:i+1]
			}
		}
		panic(v)
	}
	tests := []struct {
		name     string
		versions []string
		edits    []func(*corev1.Service)
		proxy    func(*traits.Proxy)
		eps      []string
		cells    []cell
	}{
		{"cluster IP", every, nil, nil, bothSides, []cell{
			{localPod, ClusterIP, all}, {remotePod, ClusterIP, all}, {hairpin, ClusterIP, theHairpin},
			{theNode, ClusterIP, allMasq}, {remoteNode, ClusterIP, allMasq}, {outsider, ClusterIP, allMasq}}},
		{"cluster IP, masqueradeAll", every, nil, func(p *traits.Proxy) { p.MasqueradeAll = true }, bothSides, []cell{
			{localPod, ClusterIP, allMasq}, {theNode, ClusterIP, allMasq}}},
		{"cluster IP, no detector", every, nil, func(p *traits.Proxy) { p.LocalMode, p.ClusterCIDRs = "-", nil }, bothSides, []cell{
			{unseen(localPod), ClusterIP, all}, {unseen(hairpin), ClusterIP, theHairpin}, {theNode, ClusterIP, all}, {outsider, ClusterIP, all}}},
		{"cluster IP, CIDR of the other family only", every, nil, func(p *traits.Proxy) { p.ClusterCIDRs = p.ClusterCIDRs[1:] }, bothSides, []cell{
			{theNode, ClusterIP, all}, {outsider, ClusterIP, all}}},
		{"cluster IP, detector not known", every, nil, func(p *traits.Proxy) { p.LocalMode, p.ClusterCIDRs = "", nil }, bothSides, []cell{
			{unseen(localPod), ClusterIP, "dnat 10.244.1.5? 10.244.2.6?"}, {unseen(hairpin), ClusterIP, "dnat 10.244.1.5* 10.244.2.6?"}}},
		{"cluster IP, bridge detector", every, nil, func(p *traits.Proxy) { p.LocalMode, p.ClusterCIDRs, p.LocalInterface = "BridgeInterface", nil, "cni0" }, bothSides, []cell{
			{localPod, ClusterIP, all}, {unseen(remotePod), ClusterIP, allMasq}, {theNode, ClusterIP, allMasq}}},
		{"no endpoints", every, nil, nil, nowhere, []cell{
			{localPod, ClusterIP, "reject"}, {theNode, ClusterIP, "reject"}, {outsider, ClusterIP, "reject"}}},

		{"ITP Local", since("1.24"), []func(*corev1.Service){itpLocal}, nil, bothSides, []cell{
			{localPod, ClusterIP, here}, {theNode, ClusterIP, "dnat 10.244.1.5*"}, {hairpin, ClusterIP, "dnat 10.244.1.5*"}}},
		{"ITP Local, one list", []string{"1.22", "1.23"}, []func(*corev1.Service){itpLocal}, nil, bothSides, []cell{{localPod, ClusterIP, here}}},
		{"ITP Local before it was known", upTo("1.21"), []func(*corev1.Service){itpLocal}, nil, bothSides, []cell{{localPod, ClusterIP, all}}},
		{"ITP Local, none here", since("1.25"), []func(*corev1.Service){itpLocal}, nil, elsewhere, []cell{
			{localPod, ClusterIP, "drop"}, {theNode, ClusterIP, "drop"}}},
		{"ITP Local, none here: the mark is not looked at in FORWARD", []string{"1.24"}, []func(*corev1.Service){itpLocal}, nil, elsewhere, []cell{
			{localPod, ClusterIP, "no-match"}, {theNode, ClusterIP, "drop"}}},
		{"ITP Local, none here", []string{"1.22", "1.23"}, []func(*corev1.Service){itpLocal}, nil, elsewhere, []cell{
			{localPod, ClusterIP, "reject"}, {theNode, ClusterIP, "reject"}}},
		{"ITP Local cuts down traffic from outside too", []string{"1.22", "1.23"}, []func(*corev1.Service){loadBalancer, itpLocal}, nil, elsewhere, []cell{
			{outsider, NodePort, "reject"}, {outsider, LoadBalancer, "reject"}}},
		{"ITP Local leaves traffic from outside alone", since("1.24"), []func(*corev1.Service){loadBalancer, itpLocal}, nil, elsewhere, []cell{
			{outsider, NodePort, thereMasq}, {outsider, LoadBalancer, thereMasq}, {outsider, ExternalIP, thereMasq}}},

		{"ETP Cluster", every, []func(*corev1.Service){loadBalancer}, nil, bothSides, []cell{
			{localPod, NodePort, allMasq}, {theNode, NodePort, allMasq}, {outsider, NodePort, allMasq}, {remoteNode, NodePort, allMasq}, {localhost, NodePort, allMasq},
			{localPod, LoadBalancer, allMasq}, {theNode, LoadBalancer, allMasq}, {outsider, LoadBalancer, allMasq},
			{outsider, ExternalIP, allMasq}}},
		{"ETP Cluster, externalIP", since("1.24"), []func(*corev1.Service){loadBalancer}, nil, bothSides, []cell{
			{localPod, ExternalIP, allMasq}, {theNode, ExternalIP, allMasq}}},
		{"ETP Cluster, externalIP spares pods", []string{"1.21", "1.22", "1.23"}, []func(*corev1.Service){loadBalancer}, nil, bothSides, []cell{
			{localPod, ExternalIP, all}, {theNode, ExternalIP, allMasq}, {outsider, ExternalIP, allMasq}}},
		{"and everybody without a detector is masqueraded", []string{"1.21", "1.23"}, []func(*corev1.Service){loadBalancer}, func(p *traits.Proxy) { p.LocalMode, p.ClusterCIDRs = "-", nil }, bothSides, []cell{
			{unseen(localPod), ExternalIP, allMasq}}},
		{"ETP Cluster, externalIP leaves the node out", upTo("1.20"), []func(*corev1.Service){loadBalancer}, nil, bothSides, []cell{
			{theNode, ExternalIP, "no-match"}, {localPod, ExternalIP, allMasq}}},

		{"ETP Local", since("1.19"), []func(*corev1.Service){loadBalancer, etpLocal}, nil, bothSides, []cell{
			{outsider, NodePort, here}, {outsider, LoadBalancer, here}, {outsider, ExternalIP, here}, {remoteNode, NodePort, here},
			{localPod, NodePort, all}, {localPod, LoadBalancer, all}, {hairpin, LoadBalancer, theHairpin},
			{theNode, NodePort, allMasq}, {theNode, LoadBalancer, allMasq}, {localhost, NodePort, allMasq}}},
		{"ETP Local, externalIP", since("1.21"), []func(*corev1.Service){loadBalancer, etpLocal}, nil, bothSides, []cell{
			{localPod, ExternalIP, all}, {theNode, ExternalIP, allMasq}}},
		{"ETP Local does not hold for externalIPs", upTo("1.18"), []func(*corev1.Service){loadBalancer, etpLocal}, nil, bothSides, []cell{
			{outsider, ExternalIP, allMasq}, {outsider, LoadBalancer, here}}},
		{"ETP Local has no shortcut for the node", []string{"1.14"}, []func(*corev1.Service){loadBalancer, etpLocal}, nil, bothSides, []cell{
			{theNode, NodePort, here}, {theNode, LoadBalancer, here}, {localhost, NodePort, "dnat 10.244.1.5*"}}},
		{"ETP Local, no detector: pods are like anybody", since("1.19"), []func(*corev1.Service){loadBalancer, etpLocal}, func(p *traits.Proxy) { p.LocalMode, p.ClusterCIDRs = "-", nil }, bothSides, []cell{
			{unseen(localPod), NodePort, here}, {theNode, NodePort, allMasq}}},
		{"ETP Local, none here", since("1.25"), []func(*corev1.Service){loadBalancer, etpLocal}, nil, elsewhere, []cell{
			{outsider, NodePort, "drop"}, {outsider, LoadBalancer, "drop"}, {outsider, ExternalIP, "drop"}, {remoteNode, NodePort, "drop"},
			{localPod, NodePort, there}, {theNode, NodePort, thereMasq}, {theNode, LoadBalancer, thereMasq}, {localhost, NodePort, thereMasq},
			{localPod, ClusterIP, there}}},
		{"ETP Local, none here: dropped in INPUT only", []string{"1.19", "1.21", "1.23", "1.24"}, []func(*corev1.Service){loadBalancer, etpLocal}, nil, elsewhere, []cell{
			{outsider, NodePort, "drop"}, {outsider, LoadBalancer, "no-match"}, {outsider, ExternalIP, "no-match"},
			{localPod, NodePort, there}, {theNode, NodePort, thereMasq}}},
		{"ETP Local, none here, no detector", since("1.25"), []func(*corev1.Service){loadBalancer, etpLocal}, func(p *traits.Proxy) { p.LocalMode, p.ClusterCIDRs = "-", nil }, elsewhere, []cell{
			{unseen(localPod), LoadBalancer, "drop"}}},
		{"ETP Local, terminating here", since("1.26"), []func(*corev1.Service){loadBalancer, etpLocal}, nil, []string{"10.244.1.5 node-a leaving", "10.244.2.6 node-b"}, []cell{
			{outsider, NodePort, here}, {localPod, NodePort, "dnat 10.244.2.6"}}},
		{"ETP Local, terminating here", []string{"1.25"}, []func(*corev1.Service){loadBalancer, etpLocal}, nil, []string{"10.244.1.5 node-a leaving", "10.244.2.6 node-b"}, []cell{
			{outsider, NodePort, "drop"}}},

		{"no endpoints, from outside", since("1.20"), []func(*corev1.Service){loadBalancer, etpLocal}, nil, nowhere, []cell{
			{outsider, NodePort, "reject"}, {outsider, LoadBalancer, "reject"}, {outsider, ExternalIP, "reject"}, {localPod, LoadBalancer, "reject"},
			{theNode, NodePort, "reject"}, {localhost, NodePort, "reject"}, {theNode, LoadBalancer, "no-match"}, {theNode, ExternalIP, "no-match"}}},
		{"no endpoints, from outside", upTo("1.19"), []func(*corev1.Service){loadBalancer}, nil, nowhere, []cell{
			{outsider, NodePort, "reject"}, {outsider, LoadBalancer, "reject"}, {theNode, LoadBalancer, "reject"},
			{outsider, ExternalIP, "no-match"}, {localPod, ExternalIP, "no-match"}, {theNode, ExternalIP, "no-match"}}},

		{"source ranges", since("1.25"), []func(*corev1.Service){loadBalancer, ranges("203.0.113.0/24")}, nil, bothSides, []cell{
			{outsider, LoadBalancer, allMasq}, {localPod, LoadBalancer, "drop"}, {theNode, LoadBalancer, "drop"}, {remoteNode, LoadBalancer, "drop"},
			{localPod, NodePort, allMasq}, {remoteNode, ExternalIP, allMasq}, {localPod, ClusterIP, all}}},
		{"source ranges: the mark is not looked at in FORWARD", upTo("1.24"), []func(*corev1.Service){loadBalancer, ranges("203.0.113.0/24")}, nil, bothSides, []cell{
			{outsider, LoadBalancer, allMasq}, {localPod, LoadBalancer, "no-match"}, {theNode, LoadBalancer, "drop"}}},
		{"source ranges come before the shortcut of ETP Local", since("1.25"), []func(*corev1.Service){loadBalancer, etpLocal, ranges("203.0.113.0/24")}, nil, bothSides, []cell{
			{outsider, LoadBalancer, here}, {localPod, LoadBalancer, "drop"}, {theNode, LoadBalancer, "drop"}, {localPod, NodePort, all}}},
		{"source ranges do not matter without endpoints", since("1.20"), []func(*corev1.Service){loadBalancer, ranges("203.0.113.0/24")}, nil, nowhere, []cell{
			{outsider, LoadBalancer, "reject"}, {localPod, LoadBalancer, "reject"}}},
		{"source range of all", every, []func(*corev1.Service){loadBalancer, ranges("0.0.0.0/0")}, nil, bothSides, []cell{
			{outsider, LoadBalancer, allMasq}, {localPod, LoadBalancer, allMasq}}},
		{"source range with the node: its load balancer address is a source too", every, []func(*corev1.Service){loadBalancer, ranges("192.168.10.0/24")}, nil, bothSides, []cell{
			{theNode, LoadBalancer, allMasq},
			{Client{Class: Node, Addr: netip.MustParseAddr("203.0.113.10"), OnNode: true}, LoadBalancer, allMasq}}},
		{"source range without the node", every, []func(*corev1.Service){loadBalancer, ranges("203.0.113.64/26")}, nil, bothSides, []cell{
			{Client{Class: Node, Addr: netip.MustParseAddr("203.0.113.10"), OnNode: true}, LoadBalancer, "drop"}}},

		{"health check", every, []func(*corev1.Service){loadBalancer, etpLocal}, nil, elsewhere, []cell{
			{outsider, HealthCheck, "local-process"}, {localPod, HealthCheck, "local-process"}, {localhost, HealthCheck, "local-process"}}},
		{"client of another family", every, nil, nil, bothSides, []cell{
			{Client{Class: External, Addr: netip.MustParseAddr("2001:db8::1")}, ClusterIP, "no-match"}}},
	}
	for _, tt := range tests {
		for _, v := range tt.versions {
			p := proxy(v)
			if tt.proxy != nil {
				tt.proxy(&p)
			}
			sp := plan(t, p, service(tt.edits...), tt.eps...)
			for _, c := range tt.cells {
				out := sp.Intend(at(t, sp, c.kind), c.client, p)
				if got := show(sp, out); got != c.want {
					t.Errorf("%s, kube-proxy %s: %s → %s:\n got %s\nwant %s\n(%s)", tt.name, v, c.client.Class, c.kind, got, c.want, out.Because)
				}
				if out.Because == "" {
					t.Errorf("%s: %s → %s: no reason", tt.name, c.client.Class, c.kind)
				}
			}
		}
	}
}

// A node's own address as external IP is local: the rules of every version hold for all clients.
func TestExternalIPOfTheNode(t *testing.T) {
	svc := service(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.168.10.11"} })
	for _, v := range []string{"1.14", "1.19", "1.20", "1.24", "1.36"} {
		sp := plan(t, proxy(v), svc, bothSides...)
		for _, c := range []Client{localPod, theNode, outsider} {
			out := sp.Intend(at(t, sp, ExternalIP), c, proxy(v))
			if got := show(sp, out); got != allMasq || out.Alternative != nil {
				t.Errorf("%s %s: got %s", v, c.Class, got)
			}
		}
		sp = plan(t, proxy(v), svc)
		for _, c := range []Client{localPod, theNode, outsider} {
			if got := show(sp, sp.Intend(at(t, sp, ExternalIP), c, proxy(v))); got != "reject" {
				t.Errorf("%s %s without endpoints: got %s", v, c.Class, got)
			}
		}
	}
}

func TestNodePortOnLoopback(t *testing.T) {
	loopback4, loopback6 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
	v6 := func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "fd00:96::a", nil }
	here6 := []string{"fd00:10:244:1::5 node-a"}
	off := func(p *traits.Proxy) { p.LocalhostNodePorts = false }
	mode := func(m string) func(*traits.Proxy) { return func(p *traits.Proxy) { p.Mode = m } }
	excluded := func(p *traits.Proxy) { p.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("192.168.10.0/24")} }
	local6 := Client{Class: Localhost, Addr: loopback6, OnNode: true}
	tests := []struct {
		name    string
		version string
		proxy   func(*traits.Proxy)
		edits   []func(*corev1.Service)
		eps     []string
		addr    netip.Addr
		client  Client
		want    string
	}{
		{"1.36", "1.36", nil, nil, bothSides, loopback4, localhost, allMasq},
		{"off", "1.36", off, nil, bothSides, loopback4, localhost, "no-match"},
		{"off in 1.25 means nothing", "1.25", off, nil, bothSides, loopback4, localhost, allMasq},
		{"off, no endpoints: the REJECT rule holds for every local address", "1.36", off, nil, nowhere, loopback4, localhost, "reject"},
		{"off, Local, none here: the DROP rule too", "1.36", off, []func(*corev1.Service){etpLocal}, elsewhere, loopback4, localhost, "drop"},
		{"off, Local, none here 1.24: there is no such rule", "1.24", excluded, []func(*corev1.Service){etpLocal}, elsewhere, loopback4, localhost, "no-match"},
		{"not in nodePortAddresses", "1.36", excluded, nil, bothSides, loopback4, localhost, "no-match"},
		{"a pod's loopback is its own", "1.36", nil, nil, bothSides, loopback4, localPod, "no-match"},
		{"ipvs", "1.36", mode("ipvs"), nil, bothSides, loopback4, localhost, "no-match"},
		{"nftables", "1.36", mode("nftables"), nil, bothSides, loopback4, localhost, "no-match"},
		{"nftables without endpoints", "1.36", mode("nftables"), nil, nowhere, loopback4, localhost, "no-match"},
		{"::1 1.25", "1.25", nil, []func(*corev1.Service){v6}, here6, loopback6, local6, "dnat fd00:10:244:1::5*"},
		{"::1 1.26", "1.26", nil, []func(*corev1.Service){v6}, here6, loopback6, local6, "no-match"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := proxy(tt.version)
			if tt.proxy != nil {
				tt.proxy(&p)
			}
			sp := plan(t, p, service(append([]func(*corev1.Service){loadBalancer}, tt.edits...)...), tt.eps...)
			out := sp.Intend(Frontend{Kind: NodePort, Addr: tt.addr, Port: 30080}, tt.client, p)
			if got := show(sp, out); got != tt.want {
				t.Errorf("got %s, want %s (%s)", got, tt.want, out.Because)
			}
		})
	}
}

func TestHealthCheck(t *testing.T) {
	excluded := proxy("1.36")
	excluded.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
	f := Frontend{Kind: HealthCheck, Addr: netip.MustParseAddr("192.168.10.11"), Port: 32100, OnNode: true}
	tests := []struct {
		name          string
		proxy         traits.Proxy
		eps           []string
		want, because string
	}{
		{"one here", proxy("1.36"), bothSides, "local-process", "node-a has 1 ready endpoint, it says 200"},
		{"two here", proxy("1.36"), []string{"10.244.1.5 node-a", "10.244.1.6 node-a"}, "local-process", "2 ready endpoints"},
		{"none here", proxy("1.36"), elsewhere, "local-process", "no ready endpoint, it says 503"},
		{"terminating ones do not count", proxy("1.36"), []string{"10.244.1.5 node-a leaving"}, "local-process", "503"},
		{"not listening there", excluded, bothSides, "no-match", "nodePortAddresses"},
	}
	for _, tt := range tests {
		sp := plan(t, tt.proxy, service(loadBalancer, etpLocal), tt.eps...)
		out := sp.Intend(f, outsider, tt.proxy)
		if out.Result != tt.want || !strings.Contains(out.Because, tt.because) {
			t.Errorf("%s: got %s: %s", tt.name, out.Result, out.Because)
		}
	}
}

// TestAlternatives are outcomes that the evidence leaves open.
func TestAlternatives(t *testing.T) {
	fromRules := func(low, high string) traits.Proxy {
		p := proxy(low)
		p.VersionFromRules, p.Newest = true, version(high)
		return p
	}
	unknownDetector := proxy("1.36")
	unknownDetector.LocalMode, unknownDetector.ClusterCIDRs = "", nil
	tests := []struct {
		name        string
		proxy       traits.Proxy
		edits       []func(*corev1.Service)
		eps         []string
		kind        FrontendKind
		client      Client
		want, other string
		condition   string
	}{
		{"range with one meaning", fromRules("1.24", "1.25"), nil, bothSides, ClusterIP, localPod, all, "", ""},
		{"range with two", fromRules("1.24", "1.25"), []func(*corev1.Service){itpLocal}, elsewhere, ClusterIP, localPod, "drop", "no-match", "as old as kube-proxy 1.24"},
		{"open range", fromRules("1.24", ""), []func(*corev1.Service){itpLocal}, elsewhere, ClusterIP, localPod, "drop", "no-match", "as old as kube-proxy 1.24"},
		{"range that begins before what is known", fromRules("1.2", "1.23"), []func(*corev1.Service){loadBalancer, etpLocal}, bothSides, NodePort, theNode, allMasq, here, "as old as kube-proxy 1.14"},
		{"no range at all", fromRules("", ""), []func(*corev1.Service){itpLocal}, elsewhere, ClusterIP, localPod, "drop", "", ""},
		{"pod behind a bridge", proxy("1.20"), []func(*corev1.Service){loadBalancer}, bothSides, ExternalIP, localPod, allMasq, "no-match", "bridge"},
		{"detector not known", unknownDetector, []func(*corev1.Service){loadBalancer, etpLocal}, bothSides, LoadBalancer, unseen(localPod), here, all, "knows the client for a pod"},
		{"detector not known, client from outside", unknownDetector, []func(*corev1.Service){loadBalancer, etpLocal}, bothSides, LoadBalancer, outsider, here, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sp := plan(t, tt.proxy, service(tt.edits...), tt.eps...)
			out := sp.Intend(at(t, sp, tt.kind), tt.client, tt.proxy)
			if got := show(sp, out); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			switch {
			case tt.other == "":
				if out.Alternative != nil {
					t.Errorf("alternative %s", show(sp, *out.Alternative))
				}
			case out.Alternative == nil:
				t.Error("no alternative")
			default:
				if got := show(sp, *out.Alternative); got != tt.other || !strings.Contains(out.Alternative.Condition, tt.condition) {
					t.Errorf("alternative %s if %s, want %s if %s", got, out.Alternative.Condition, tt.other, tt.condition)
				}
			}
		})
	}
}

func TestReasons(t *testing.T) {
	tests := []struct {
		version string
		edits   []func(*corev1.Service)
		eps     []string
		kind    FrontendKind
		client  Client
		want    string
	}{
		{"1.36", []func(*corev1.Service){loadBalancer, etpLocal}, elsewhere, NodePort, outsider, "externalTrafficPolicy is Local and node-a has no ready endpoint: kube-proxy 1.25+ drops"},
		{"1.36", nil, bothSides, ClusterIP, theNode, "internalTrafficPolicy is Cluster: any ready endpoint; ClusterCIDR does not hold for the client: masqueraded"},
		{"1.36", nil, []string{"10.244.1.5 node-a leaving"}, ClusterIP, localPod, "internalTrafficPolicy is Cluster: any ready endpoint; none is ready, those that still serve while they terminate are used (kube-proxy 1.26+); the client counts as a pod of this cluster and keeps its address"},
		{"1.36", nil, nil, ClusterIP, localPod, "the port has no usable endpoint: kube-proxy rejects"},
		{"1.23", []func(*corev1.Service){itpLocal}, elsewhere, ClusterIP, localPod, "internalTrafficPolicy is Local and node-a has no ready endpoint: kube-proxy up to 1.23 rejects as if there were none at all"},
		{"1.23", []func(*corev1.Service){loadBalancer, itpLocal}, elsewhere, NodePort, outsider, "internalTrafficPolicy is Local and node-a has no ready endpoint: kube-proxy up to 1.23 rejects traffic from outside too"},
		{"1.36", []func(*corev1.Service){loadBalancer, ranges("203.0.113.0/24")}, bothSides, LoadBalancer, localPod, "10.244.1.9 is in none of the loadBalancerSourceRanges: kube-proxy 1.25+ drops in KUBE-PROXY-FIREWALL"},
	}
	for _, tt := range tests {
		sp := plan(t, proxy(tt.version), service(tt.edits...), tt.eps...)
		if got := sp.Intend(at(t, sp, tt.kind), tt.client, proxy(tt.version)).Because; got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

func TestSourceRangesNeedTheClient(t *testing.T) {
	sp := plan(t, proxy("1.36"), service(loadBalancer, ranges("203.0.113.0/24")), bothSides...)
	if got := sp.Intend(at(t, sp, LoadBalancer), Client{Class: External}, proxy("1.36")).Result; got != "unknown" {
		t.Errorf("got %s", got)
	}
}

// Modes of other proxies get what the API asks for and no word on the client's address.
func TestOtherModes(t *testing.T) {
	p := proxy("1.20")
	p.Mode = "cilium"
	sp := plan(t, p, service(loadBalancer), bothSides...)
	out := sp.Intend(at(t, sp, ClusterIP), hairpin, p)
	if got := show(sp, out); got != "dnat 10.244.1.5* 10.244.2.6?" || !strings.Contains(out.MasqueradeUnknown, "cilium") {
		t.Errorf("got %s (%s)", got, out.MasqueradeUnknown)
	}
}
