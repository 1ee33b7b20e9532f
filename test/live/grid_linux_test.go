package live

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
	"github.com/svcnet/svcnet/test/shares"
)

// membership is how many connections show that a cell reaches what it should and nothing else, where shares are
// not judged: with four backends a fifth that takes a tenth of the traffic stays unseen once in 8 cells, and there
// are hundreds of cells.
const membership = 20

// ways are the dataplanes that the grid is walked and dialled through. In nftables mode nobody serves node ports on
// loopback addresses.
var ways = []struct {
	name, mode string
	backend    lab.Backend
	classes    []string
}{
	{"nft", "iptables", lab.NFT, []string{"local-pod", "hairpin", "remote-pod", "node", "localhost", "remote-node", "external"}},
	{"legacy", "iptables", lab.Legacy, []string{"local-pod", "hairpin", "remote-pod", "node", "localhost", "remote-node", "external"}},
	{"nftables", "nftables", lab.NFT, []string{"local-pod", "hairpin", "remote-pod", "node", "remote-node", "external"}},
}

// TestGrid makes connections for every frontend and source class of every Service of the scenario and compares what
// became of them with what svcnet says of node n1: which backend answers, what client address it saw, what is refused,
// and what gets no answer.
func TestGrid(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := set(t, labtest.Bring(t, lab.Options{Name: fmt.Sprintf("g%s%d", way.name[:2], os.Getpid()), Mode: way.mode, Backend: way.backend, NoProxy: true}))
			bundle := filepath.Join(t.TempDir(), "n1.tar.gz")
			if _, said, code := s.run(t, s.n1, "collect", "-o", bundle); code != 0 {
				t.Fatalf("collect: exit %d: %s", code, said)
			}
			snap, err := snapshot.Load([]string{bundle}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if snap.Node != "n1" {
				t.Fatalf("the snapshot is of node %q", snap.Node)
			}
			g := &grid{stage: s, seen: map[string]int{}}
			for _, sc := range scenes() {
				trace, err := explain.Trace(snap, explain.TraceOptions{Namespace: "store", Service: sc.svc.Name})
				if err != nil {
					t.Errorf("%s: %v", sc.svc.Name, err)
					continue
				}
				g.service(t, sc, trace)
			}
			t.Logf("%d Services, %d cells, %d connections; outcomes: %v", len(scenes()), g.cells, g.connections, g.seen)
			for _, class := range way.classes {
				if g.seen["class "+class] == 0 {
					t.Errorf("no cell of class %s", class)
				}
			}
			for _, kind := range []string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalIP", "HealthCheck"} {
				if g.seen["kind "+kind] == 0 {
					t.Errorf("no cell of kind %s", kind)
				}
			}
			for _, outcome := range []string{"answered", "refused", "silent"} {
				if g.seen[outcome] == 0 {
					t.Errorf("nothing was predicted to be %s", outcome)
				}
			}
			g.bites(t, snap, way.mode)
		})
	}
}

// bites shows that the comparison can fail: a backend's rule is taken away behind the prediction's back.
func (g *grid) bites(t *testing.T, snap *snapshot.Snapshot, mode string) {
	t.Helper()
	trace, err := explain.Trace(snap, explain.TraceOptions{Namespace: "store", Service: "many", Via: []string{"clusterip"}, From: []string{"local-pod"}})
	if err != nil {
		t.Fatal(err)
	}
	p := trace.Paths[0]
	chain := p.Backends[0].Hops[len(p.Backends[0].Hops)-1].Chain
	command := []string{"iptables", "-w", "-t", "nat", "-F", chain}
	if mode == "nftables" {
		other := p.Backends[1]
		command = strings.Fields(fmt.Sprintf("nft insert rule ip kube-proxy %s meta l4proto tcp dnat to %s:%d", chain, other.Address, other.Port))
	}
	if _, err := g.n1.Run(t.Context(), "", command...); err != nil {
		t.Fatal(err)
	}
	c := &cell{scene: scenes()[1], paths: []report.Path{p}}
	if err := g.prepare(t, c); err != nil {
		t.Fatal(err)
	}
	c.sample = shares.Connections // packets fall through to the other backends, so that only shares tell
	if g.compare(t, c) == "" {
		t.Errorf("chain %s was flushed, and nothing was noticed", chain)
	}
}

// grid is the comparison under way.
type grid struct {
	*stage
	cells, connections int
	seen               map[string]int
}

// A cell is all paths of one frontend and one client.
type cell struct {
	scene  scene
	paths  []report.Path
	name   string
	dst    netip.AddrPort
	proto  corev1.Protocol
	from   lab.Place
	source netip.Addr
	// want are the predicted shares of each fate.
	want   map[string]float64
	sample int
	sticky bool
}

// deserved are the findings that the objects themselves deserve, by Service.
var deserved = map[string][]string{
	"internal-local-none":    {"local-policy-no-local-endpoints"},
	"node-port-local-none":   {"local-policy-no-local-endpoints"},
	"balancer-local-none":    {"local-policy-no-local-endpoints"},
	"balancer-ranges":        {"source-ranges-exclude-cluster"},
	"balancer-ranges-closed": {"source-ranges-exclude-cluster"},
}

func (g *grid) service(t *testing.T, sc scene, trace *report.Trace) {
	t.Helper()
	for _, f := range trace.Findings {
		if slices.Contains(deserved[sc.svc.Name], f.ID) {
			continue
		}
		t.Errorf("%s: finding %s on a node that does what it should: %s", sc.svc.Name, f.ID, f.Message)
	}
	if sc.none != (len(trace.Paths) == 0) {
		t.Errorf("%s: %d paths", sc.svc.Name, len(trace.Paths))
	}
	var cells []*cell
	for i := range trace.Paths {
		p := &trace.Paths[i]
		if n := len(cells); n > 0 && cells[n-1].paths[0].Frontend == p.Frontend && cells[n-1].paths[0].SourceClass == p.SourceClass && cells[n-1].paths[0].Source == p.Source {
			cells[n-1].paths = append(cells[n-1].paths, *p)
			continue
		}
		cells = append(cells, &cell{scene: sc, paths: []report.Path{*p}})
	}
	var (
		wait sync.WaitGroup
		slot = make(chan bool, 8)
	)
	judged := map[string]bool{} // frontend kinds whose shares are judged
	for _, c := range cells {
		if err := g.prepare(t, c); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		g.cells++
		g.seen["class "+c.paths[0].SourceClass]++
		g.seen["kind "+c.paths[0].Frontend.Kind]++
		c.sample = membership
		if kind := fmt.Sprint(c.paths[0].Frontend.Kind, c.dst.Addr().Is6()); sc.shares && len(c.want) > 1 && !judged[kind] {
			judged[kind] = true
			c.sample = shares.Connections
		}
		switch {
		case c.want["silent"] == 1:
			c.sample = 2
		case c.want["refused"] > 0:
			c.sample = 5
		}
		g.connections += c.sample
		for k := range c.want {
			if k == "refused" || k == "silent" {
				g.seen[k]++
			} else {
				g.seen["answered"]++
			}
		}
		wait.Add(1)
		slot <- true
		go func() {
			defer func() { <-slot; wait.Done() }()
			if why := g.compare(t, c); why != "" {
				t.Errorf("%s: %s", c.name, why)
			}
		}()
	}
	wait.Wait()
}

// prepare finds who is to connect, and what is predicted.
func (g *grid) prepare(t *testing.T, c *cell) error {
	p := &c.paths[0]
	c.name = fmt.Sprintf("%s %s %s:%d/%s from %s %s", c.scene.svc.Name, p.Frontend.Kind, p.Frontend.Address, p.Frontend.Port, p.Frontend.Protocol, p.SourceClass, p.Source)
	c.dst = netip.AddrPortFrom(netip.MustParseAddr(p.Frontend.Address), uint16(p.Frontend.Port))
	c.proto = corev1.Protocol(p.Frontend.Protocol)
	c.sticky = c.scene.svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
	var err error
	if c.source, err = netip.ParseAddr(p.Source); err != nil {
		return err
	}
	if c.from, err = g.client(t, p.SourceClass, c.source); err != nil {
		return err
	}
	c.want = map[string]float64{}
	for i := range c.paths {
		p := &c.paths[i]
		if len(p.Uncertain) > 0 {
			return fmt.Errorf("uncertain although everything was read: %s: %s", p.Uncertain[0].Condition, p.Uncertain[0].Because)
		}
		if len(p.NotEvaluated) > 0 {
			return fmt.Errorf("not evaluated although everything was read: %s", p.NotEvaluated[0])
		}
		if err := g.predict(c, p); err != nil {
			return err
		}
	}
	return nil
}

// predict adds the fates of one path to what is expected.
func (g *grid) predict(c *cell, p *report.Path) error {
	answered := func(reply *report.Reply) bool { return reply == nil || reply.Result == report.ReplyDelivered }
	switch p.Result {
	case report.ResultDNAT:
		for _, b := range p.Backends {
			if b.State == "missing" {
				continue
			}
			reply := p.Reply
			if b.Reply != nil {
				reply = b.Reply
			}
			if reply == nil && strings.HasPrefix(p.SourceClass, "remote-") && b.Node != "n1" && (b.Masquerade == nil || !*b.Masquerade) {
				// n2 hands on what a real node would have translated itself: the answer goes to n2 without coming
				// back through n1, and svcnet says of a way back that it does not see nothing.
				c.want["silent"] += b.Probability
				continue
			}
			fate := "silent"
			if b.Result == report.ResultDNAT && answered(reply) {
				if b.Masquerade == nil {
					return fmt.Errorf("masquerade of %s is not decided", b.Address)
				}
				saw := c.source.String()
				if *b.Masquerade {
					saw = b.SnatTo
				}
				fate = fmt.Sprintf("%s:%d saw %s", b.Pod, b.Port, saw)
			}
			c.want[fate] += b.Probability
		}
	case report.ResultReject:
		c.want["refused"] += p.Probability
	case report.ResultDrop, report.ResultMartian:
		c.want["silent"] += p.Probability
	case report.ResultLocalProcess:
		c.want["process"] += p.Probability
	case report.ResultNoMatch:
		// Nothing of the Service's: the node's own address has nobody who listens, another leads nowhere.
		if c.dst.Addr() == g.n1.IPv4 || c.dst.Addr() == g.n1.IPv6 || c.dst.Addr().IsLoopback() || g.onN1(c.dst.Addr()) {
			c.want["refused"] += p.Probability
		} else {
			c.want["nobody"] += p.Probability
		}
	case report.ResultNoRoute:
		c.want["nobody"] += p.Probability
	default:
		return fmt.Errorf("result %s", p.Result)
	}
	return nil
}

// onN1 tells the gateway addresses of n1's pods.
func (g *grid) onN1(a netip.Addr) bool {
	return a == g.n1.PodCIDRIPv4.Addr().Next() || a == g.n1.PodCIDRIPv6.Addr().Next()
}

// client is the place that has the address of a client. Clients that stand for a range get their address.
func (g *grid) client(t *testing.T, class string, a netip.Addr) (lab.Place, error) {
	switch class {
	case "node", "localhost":
		return g.n1, nil
	}
	if p := g.byAddr[a]; p != nil {
		return p, nil
	}
	var p lab.Place
	switch class {
	case "local-pod":
		p = g.pods["client-1"]
	case "remote-pod":
		p = g.pods["client-2"]
	case "external":
		p = g.Client
		// Answers go by the node's default gateway.
		via := "172.30.0.200"
		if a.Is6() {
			via = "fd00:30::200"
		}
		if err := g.ControlPlane.Netns().IP(t.Context(), fmt.Sprintf("route replace %s via %s", netip.PrefixFrom(a, a.BitLen()), via)); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("nobody of class %s has the address %s", class, a)
	}
	add := fmt.Sprintf("addr add %s dev eth0", netip.PrefixFrom(a, a.BitLen()))
	if a.Is6() {
		add += " nodad preferred_lft 0" // never chosen by itself
	}
	if err := p.Netns().IP(t.Context(), add); err != nil {
		return nil, err
	}
	g.byAddr[a] = p
	return p, nil
}

// compare makes the connections of a cell.
func (g *grid) compare(t *testing.T, c *cell) string {
	o := lab.DialOptions{Timeout: 5 * time.Second}
	if c.paths[0].SourceClass != "node" {
		o.SourceIP = c.source
	}
	if c.want["silent"]+c.want["nobody"] > 0 {
		o.Timeout = 1500 * time.Millisecond
	}
	if c.want["process"] > 0 {
		return g.knock(c)
	}
	answers, err := g.Many(t.Context(), c.sample, c.from, c.proto, c.dst, o)
	if err != nil {
		return err.Error()
	}
	got := map[string]int{}
	for _, a := range answers {
		got[fate(a, c.want)]++
	}
	describe := fmt.Sprintf("predicted %v, met %v", c.want, got)
	for k := range got {
		if c.want[k] == 0 {
			return describe
		}
	}
	if c.sticky && len(got) > 1 {
		return "one client reached several backends: " + describe
	}
	if c.sample == shares.Connections && !c.sticky {
		if why := shares.Improbable(got, c.want); why != "" {
			return why
		}
	}
	return ""
}

// fate says what became of a connection in the words of predict.
func fate(a lab.Answer, want map[string]float64) string {
	switch a.Outcome {
	case lab.Answered:
		return fmt.Sprintf("store/%s:%d saw %s", a.Pod, a.Port, a.Client.Addr())
	case lab.Refused, lab.Unreachable, lab.TimedOut:
		if want["nobody"] > 0 {
			return "nobody"
		}
	}
	switch a.Outcome {
	case lab.Refused:
		return "refused"
	case lab.TimedOut:
		return "silent"
	}
	return a.String()
}

// knock connects to a process of the node, which is no server of the lab.
func (g *grid) knock(c *cell) string {
	err := c.from.Netns().Do(func() error {
		d := net.Dialer{Timeout: 5 * time.Second, FallbackDelay: -1}
		if c.paths[0].SourceClass != "node" {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.source, 0))
		}
		conn, err := d.Dial("tcp", c.dst.String())
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		return fmt.Sprintf("predicted that a process of the node answers: %v", err)
	}
	return ""
}
