package proxy

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/proxy/table"
)

// theHost is what `ip addr` and `ip route` say on theNode, and iptables rules that do nothing.
var theHost = map[string]string{
	"ip-addr.txt": `1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
       valid_lft forever preferred_lft forever
    inet6 ::1/128 scope host 
       valid_lft forever preferred_lft forever
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP group default qlen 1000
    link/ether 4e:93:ac:cd:64:51 brd ff:ff:ff:ff:ff:ff
    inet 172.30.0.11/24 scope global eth0
       valid_lft forever preferred_lft forever
    inet6 fd00:30::11/64 scope global nodad 
       valid_lft forever preferred_lft forever
3: cni0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP group default qlen 1000
    link/ether 4e:93:ac:cd:64:52 brd ff:ff:ff:ff:ff:ff
    inet 10.244.1.1/24 scope global cni0
       valid_lft forever preferred_lft forever
    inet6 fd00:244:1::1/64 scope global nodad 
       valid_lft forever preferred_lft forever
`,
	"ip-route.txt": `default via 172.30.0.1 dev eth0 
10.244.1.0/24 dev cni0 proto kernel scope link src 10.244.1.1 
10.244.2.0/24 via 172.30.0.12 dev eth0 
10.244.3.0/24 via 172.30.0.13 dev eth0 
172.30.0.0/24 dev eth0 proto kernel scope link src 172.30.0.11 
local 127.0.0.0/8 dev lo table local proto kernel scope host src 127.0.0.1 
local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1 
local 172.30.0.11 dev eth0 table local proto kernel scope host src 172.30.0.11 
local 10.244.1.1 dev cni0 table local proto kernel scope host src 10.244.1.1 
default via fd00:30::1 dev eth0 metric 1024 pref medium
fd00:30::/64 dev eth0 proto kernel metric 256 pref medium
fd00:244:1::/64 dev cni0 proto kernel metric 256 pref medium
fd00:244:2::/64 via fd00:30::12 dev eth0 metric 1024 pref medium
fd00:244:3::/64 via fd00:30::13 dev eth0 metric 1024 pref medium
local ::1 dev lo table local proto kernel metric 0 pref medium
local fd00:30::11 dev eth0 table local proto kernel metric 0 pref medium
local fd00:244:1::1 dev cni0 table local proto kernel metric 0 pref medium
`,
	"sysctl.txt":         "net.ipv4.ip_forward = 1\nnet.ipv6.conf.all.forwarding = 1\nnet.ipv4.conf.all.rp_filter = 0\nnet.ipv4.conf.eth0.rp_filter = 0\nnet.ipv4.conf.cni0.rp_filter = 0\n",
	"iptables-save.txt":  "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n",
	"ip6tables-save.txt": "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n",
}

// evidence is what would be captured of theNode with tables as listed.
func (c *cluster) evidence(t *testing.T, listing string) *snapshot.Snapshot {
	t.Helper()
	var items []any
	items = append(items, nodeObject())
	for _, name := range c.names() {
		items = append(items, c.services[name].svc)
		for _, s := range c.services[name].slices {
			items = append(items, s)
		}
	}
	objects, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{"objects.json": {Data: objects}, "nft.txt": {Data: []byte(listing)}}
	for name, text := range theHost {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	s, err := snapshot.LoadFS(files, "node")
	if err != nil {
		t.Fatal(err)
	}
	s.Node = theNode
	return s
}

// states are the tables of both families for all Services.
func (c *cluster) states(facts table.Facts) map[int]*table.State {
	out := map[int]*table.State{4: table.NewState(nft.IP, facts), 6: table.NewState(nft.IP6, facts)}
	for _, name := range c.names() {
		namespace, service, _ := strings.Cut(name, "/")
		for f, ports := range c.ports(name) {
			out[f].Update(table.Service{Namespace: namespace, Name: service}, ports)
		}
	}
	return out
}

// TestTablesDoWhatIsAsked walks packets of every client to every frontend of random Services through the tables, and
// compares what becomes of them with what the objects ask for.
func TestTablesDoWhatIsAsked(t *testing.T) {
	const sets = 25
	seen := map[report.Result]int{}
	masqueraded := map[bool]int{}
	cells := 0
	for seed := range uint64(sets) {
		c := newCluster(100+seed, 10)
		proxy := theProxy()
		facts := table.FactsOf(&proxy, nodePortIPs)
		states := c.states(facts)
		listing := states[4].Table().Print() + states[6].Table().Print()
		s := c.evidence(t, listing)
		for _, name := range c.names() {
			namespace, service, _ := strings.Cut(name, "/")
			trace, err := explain.Trace(s, explain.TraceOptions{Namespace: namespace, Service: service})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if trace.Proxy.Mode != "svcnet" {
				t.Fatalf("seed %d: the proxy's mode is %q", seed, trace.Proxy.Mode)
			}
			for i := range trace.Paths {
				p := &trace.Paths[i]
				if p.Frontend.Kind == "HealthCheck" || p.Intended == nil {
					continue
				}
				cells++
				seen[p.Result]++
				if wrong := deviates(p); wrong != "" {
					object, _ := json.Marshal(c.services[name].svc)
					t.Errorf("seed %d: %s: %s %s:%d/%s from %s %s: %s\n%s", seed, name, p.Frontend.Kind, p.Frontend.Address, p.Frontend.Port,
						p.Frontend.Protocol, p.SourceClass, p.Source, wrong, object)
				}
				for _, b := range p.Backends {
					if b.Masquerade != nil {
						masqueraded[*b.Masquerade]++
					}
				}
			}
		}
		if t.Failed() {
			t.Fatal(listing)
		}
	}
	t.Logf("%d paths: %v, masqueraded %v", cells, seen, masqueraded)
	for _, r := range []report.Result{report.ResultDNAT, report.ResultReject, report.ResultDrop} {
		if seen[r] < 20 {
			t.Errorf("only %d paths end in %s", seen[r], r)
		}
	}
}

// deviates says how a path differs from what is intended, empty where it does not.
func deviates(p *report.Path) string {
	if len(p.Uncertain) > 0 || len(p.NotEvaluated) > 0 {
		return fmt.Sprint("not decided: ", p.Uncertain, p.NotEvaluated)
	}
	if p.Result != p.Intended.Result {
		return fmt.Sprintf("%s (%s %s) and not %s (%s)", p.Result, p.Table, p.Chain, p.Intended.Result, p.Intended.Because)
	}
	if p.Result != report.ResultDNAT {
		return ""
	}
	if len(p.Backends) != len(p.Intended.Backends) {
		return fmt.Sprintf("%d backends and not %d", len(p.Backends), len(p.Intended.Backends))
	}
	for _, b := range p.Backends {
		switch {
		case b.State != "ok":
			return fmt.Sprintf("%s is %s", b.Address, b.State)
		case math.Abs(b.Probability-*b.Intended) > 1e-9:
			return fmt.Sprintf("%s has %.3f and not %.3f", b.Address, b.Probability, *b.Intended)
		case b.MasqueradeIntended != nil && (b.Masquerade == nil || *b.Masquerade != *b.MasqueradeIntended):
			return fmt.Sprintf("masquerade to %s is not %v", b.Address, *b.MasqueradeIntended)
		}
	}
	return ""
}

// TestTablesAreAlike compares an audit that takes Services of a kind together with one that walks each by itself, on tables
// as they ought to be and with elements missing or wrong.
func TestTablesAreAlike(t *testing.T) {
	const sets = 12
	for seed := range uint64(sets) {
		c := newCluster(300+seed, 12)
		c.repeat(24)
		proxy := theProxy()
		states := c.states(table.FactsOf(&proxy, nodePortIPs))
		tables := []*nft.Table{states[4].Table(), states[6].Table()}
		if seed%3 > 0 {
			c.damage(tables[c.dice.IntN(2)])
		}
		s := c.evidence(t, tables[0].Print()+tables[1].Print())
		var texts [2]string
		for i, each := range []bool{false, true} {
			r, err := explain.Audit(s, explain.AuditOptions{EachByItself: each})
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.MarshalIndent(r, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			texts[i] = string(text)
		}
		if texts[0] != texts[1] {
			t.Errorf("seed %d: taken together:\n%.3000s\neach by itself:\n%.3000s", seed, texts[0], texts[1])
		}
	}
}

// repeat adds Services that are like others but for their names and addresses.
func (c *cluster) repeat(n int) {
	for range n {
		like := c.services[choose(c, c.names()...)]
		c.made++
		svc := like.svc.DeepCopy()
		svc.Name = fmt.Sprintf("s-%d", c.made)
		for i, ip := range svc.Spec.ClusterIPs {
			if strings.Contains(ip, ":") {
				svc.Spec.ClusterIPs[i] = fmt.Sprintf("fd00:96::%x", c.made)
			} else {
				svc.Spec.ClusterIPs[i] = fmt.Sprintf("10.96.%d.%d", c.made/250, 1+c.made%250)
			}
		}
		svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
		for i := range svc.Spec.Ports {
			if svc.Spec.Ports[i].NodePort != 0 {
				svc.Spec.Ports[i].NodePort = int32(30000 + 4*c.made + i)
			}
		}
		svc.Spec.HealthCheckNodePort, svc.Spec.ExternalIPs, svc.Status = 0, nil, corev1.ServiceStatus{}
		m := &member{svc: svc}
		for _, sl := range like.slices {
			copied := sl.DeepCopy()
			copied.Name = svc.Name + copied.Name
			copied.Labels["kubernetes.io/service-name"] = svc.Name
			m.slices = append(m.slices, copied)
		}
		c.services[svc.Namespace+"/"+svc.Name] = m
	}
}

// damage takes an element away, or changes what a map has for it.
func (c *cluster) damage(t *nft.Table) {
	var with []*nft.Set
	for _, s := range t.Sets {
		if len(s.Entries) > 0 {
			with = append(with, s)
		}
	}
	s := choose(c, with...)
	i := c.dice.IntN(len(s.Entries))
	if e := &s.Entries[i]; e.Data != nil && c.chance(50) {
		e.Data[3] ^= 1
		return
	}
	s.Entries = append(s.Entries[:i:i], s.Entries[i+1:]...)
}
