package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	nodeDir   = "testdata/nodes/kube-proxy-1.36-iptables"
	nativeDir = "testdata/nodes/kube-proxy-1.36-nftables"
	goldenDir = "testdata/golden"
)

// nodeServices are the Services on the recorded node that have golden files.
var nodeServices = []service{
	{"store", "web"}, {"store", "checkout"}, {"store", "cart"}, {"store", "search"}, {"store", "db"}, {"infra", "dns"},
	{"default", "kubernetes"},
}

// TestNodeGolden compares what the program prints about the recorded nodes with what it printed before.
func TestNodeGolden(t *testing.T) {
	nodeGolden(t, nodeDir, "")
	nodeGolden(t, nativeDir, "nftables-")
}

func nodeGolden(t *testing.T, dir, prefix string) {
	t.Helper()
	for _, s := range nodeServices {
		for _, format := range []string{"json", "tree"} {
			t.Run(prefix+s.namespace+"-"+s.name+"."+format, func(t *testing.T) {
				args := []string{"trace", "svc/" + s.name, "-n", s.namespace, "-o", format}
				for _, f := range forwardingFiles(t, dir) {
					args = append(args, "-f", f)
				}
				r := run(t, args...)
				if r.code != 0 || r.stderr != "" {
					t.Errorf("exit %d, standard error %q", r.code, r.stderr)
				}
				got := r.stdout
				if format == "json" {
					valid(t, got)
					if strings.Count(got, "\n") != 1 {
						t.Errorf("the document takes %d lines where nobody looks on, want one", strings.Count(got, "\n"))
					}
					got = indented(t, got)
				}
				golden(t, prefix+s.namespace+"-"+s.name+"."+format, got)
			})
		}
	}
}

// indented spreads a document over lines, so that a diff of golden files can be read.
func indented(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(text), "", "  "); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join(goldenDir, name)
	if *update {
		if err := os.MkdirAll(goldenDir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (make it with: make golden)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", name, diff)
	}
}

// TestGoldenValid holds every golden document against the schema, those of other packages too.
func TestGoldenValid(t *testing.T) {
	var files []string
	for _, pattern := range []string{goldenDir + "/*.json", "../../explain/render/testdata/*.json"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < len(nodeServices) {
		t.Fatalf("found %d golden documents", len(files))
	}
	for _, f := range files {
		if filepath.Base(f) == "hostile.json" {
			// What the renderers must survive, and what the program never says.
			continue
		}
		t.Run(filepath.Base(f), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			valid(t, string(text))
		})
	}
}

// forwarding is the recorded node without its sysctls. It was recorded in a network namespace that does not
// forward (net.ipv4.ip_forward = 0); without that the rules alone decide, as on a node in service.
func forwarding(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	return load(t, "", forwardingFiles(t, nodeDir)...)
}

func forwardingFiles(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, e := range entries {
		if e.Name() != "sysctl.txt" {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files
}

// TestNodeDoesNotForward: the sysctls of the recorded node say that it forwards nothing. Perfect rules do not
// help a pod then; the node's own connections are not forwarded and arrive.
func TestNodeDoesNotForward(t *testing.T) {
	s := load(t, "", nodeDir)
	for class, want := range map[string]report.Result{"local-pod": report.ResultNoRoute, "node": report.ResultDNAT} {
		tr := trace(t, s, explain.TraceOptions{Namespace: "store", Service: "web", Via: []string{"clusterip"}, From: []string{class}})
		if len(tr.Paths) == 0 {
			t.Errorf("%s: no paths", class)
		}
		for _, p := range tr.Paths {
			if p.Result != want {
				t.Errorf("%s: %s, want %s", class, p.Result, want)
			}
			said := compact(t, p) + tr.Summary.Text
			if want == report.ResultNoRoute && !strings.Contains(said, "ip_forward") {
				t.Errorf("%s: nothing says that ip_forward is off\n%s", class, brief(tr.Paths))
			}
		}
	}
}

// TestNodeWeb is what the recording was made for: kube-proxy stood still while a pod was replaced.
func TestNodeWeb(t *testing.T) {
	tr := trace(t, forwarding(t), explain.TraceOptions{Namespace: "store", Service: "web"})
	if tr.Node != "node-1" {
		t.Errorf("node %q, want node-1", tr.Node)
	}
	if tr.Proxy.Mode != "iptables" || tr.Proxy.Version != "1.36.3" || tr.Proxy.Backend != "nft" {
		t.Errorf("proxy %s %s %s, want iptables 1.36.3 nft", tr.Proxy.Mode, tr.Proxy.Version, tr.Proxy.Backend)
	}
	ways := map[string]bool{}
	for _, c := range cellsOf(tr) {
		p := c.paths[0]
		if p.Frontend.Kind == "HealthCheck" {
			t.Errorf("%s: the Service has no health check port", c.name)
		}
		ways[p.Frontend.Kind+" "+p.SourceClass] = true
		// Packets of the outside world to 127.0.0.1 or to pods' own loopback are another matter.
		if c.uncertain() || p.Result != report.ResultDNAT {
			t.Errorf("%s: %s, want dnat for sure\n%s", c.name, p.Result, brief(c.paths))
			continue
		}
		want := map[string]float64{"10.244.1.11:8080": 1. / 3, "10.244.2.11:8080": 1. / 3, "10.244.3.11:8080": 1. / 3}
		if got := shares(c.paths); !sameShares(got, want) {
			t.Errorf("%s: shares %v, want %v", c.name, got, want)
		}
		for _, p := range c.paths {
			if got := withState(p, "stale"); !slices.Equal(got, []string{"10.244.1.11"}) {
				t.Errorf("%s: stale %v, want 10.244.1.11", c.name, got)
			}
			if got := withState(p, "missing"); !slices.Equal(got, []string{"10.244.2.12"}) {
				t.Errorf("%s: missing %v, want 10.244.2.12", c.name, got)
			}
		}
	}
	for _, way := range []string{"ClusterIP local-pod", "ClusterIP node", "NodePort external", "NodePort local-pod", "NodePort node"} {
		if !ways[way] {
			t.Errorf("no path for %s", way)
		}
	}
	for _, id := range []string{"stale-endpoint-rule", "missing-endpoint-rule"} {
		if !slices.ContainsFunc(tr.Findings, func(f report.Finding) bool { return f.ID == id }) {
			t.Errorf("no finding %s", id)
		}
	}
}

// nodeCell is one cell of the recorded node with what its rules do, read by hand.
type nodeCell struct {
	service  service
	ask      explain.TraceOptions
	result   report.Result
	backends map[string]float64
	// masquerade is "true", "false" or empty: not asked.
	masquerade   string
	table, chain string
}

var nodeCells = []nodeCell{
	// The pod range is 10.244.0.0/16: other clients of a ClusterIP are masqueraded.
	{service{"store", "web"}, via("clusterip", "local-pod"), "dnat", nil, "false", "nat", ""},
	{service{"store", "web"}, via("clusterip", "node"), "dnat", nil, "true", "nat", ""},
	{service{"store", "web"}, via("nodeport", "external"), "dnat", nil, "true", "nat", ""},
	{service{"store", "checkout"}, via("clusterip", "local-pod"), "dnat", checkout, "false", "nat", ""},
	// externalTrafficPolicy Local without a backend here: clients outside are dropped, pods and the node are not.
	{service{"store", "checkout"}, via("nodeport", "external"), "drop", nil, "", "filter", "KUBE-EXTERNAL-SERVICES"},
	{service{"store", "checkout"}, via("nodeport", "local-pod"), "dnat", checkout, "false", "nat", ""},
	{service{"store", "checkout"}, via("nodeport", "node"), "dnat", checkout, "true", "nat", ""},
	// The source range takes pods and the node out of the load balancer's address.
	{service{"store", "checkout"}, via("loadbalancer", "local-pod"), "drop", nil, "", "filter", "KUBE-PROXY-FIREWALL"},
	{service{"store", "cart"}, via("clusterip", "local-pod"), "dnat", map[string]float64{"10.244.1.31:9000": 1}, "", "nat", ""},
	{service{"store", "search"}, via("clusterip", "local-pod"), "reject", nil, "", "filter", "KUBE-SERVICES"},
	{service{"store", "search"}, via("clusterip", "node"), "reject", nil, "", "filter", "KUBE-SERVICES"},
	{service{"infra", "dns"}, via("clusterip", "local-pod"), "dnat", map[string]float64{"10.244.1.53:53": 0.5, "10.244.2.53:53": 0.5}, "false", "nat", ""},
	{service{"default", "kubernetes"}, via("clusterip", "local-pod"), "dnat", map[string]float64{"172.18.0.11:16443": 1}, "", "nat", ""},
}

var checkout = map[string]float64{"10.244.2.21:8443": 0.5, "10.244.3.21:8443": 0.5}

func via(frontend, class string) explain.TraceOptions {
	return explain.TraceOptions{Via: []string{frontend}, From: []string{class}}
}

func TestNodeCells(t *testing.T) {
	s := forwarding(t)
	for _, want := range nodeCells {
		o := want.ask
		o.Namespace, o.Service = want.service.namespace, want.service.name
		t.Run(o.Service+" "+o.Via[0]+" "+o.From[0], func(t *testing.T) {
			tr := trace(t, s, o)
			if len(tr.Paths) == 0 {
				t.Fatal("no paths")
			}
			for _, c := range cellsOf(tr) {
				for _, p := range c.paths {
					if p.Result != want.result {
						t.Errorf("%s: result %s, want %s", c.name, p.Result, want.result)
					}
					if p.Table != want.table || want.chain != "" && p.Chain != want.chain {
						t.Errorf("%s: verdict in %s/%s, want %s/%s", c.name, p.Table, p.Chain, want.table, want.chain)
					}
					// A client that may be its own backend is masqueraded there and nowhere else.
					if withItself := slices.ContainsFunc(p.Backends, func(b report.Backend) bool { return b.Address == p.Source }); withItself {
						continue
					}
					if want.masquerade != "" && word(p.Masquerade) != want.masquerade {
						t.Errorf("%s: masquerade %s, want %s", c.name, word(p.Masquerade), want.masquerade)
					}
				}
				if got := shares(c.paths); want.backends != nil && !sameShares(got, want.backends) {
					t.Errorf("%s: shares %v, want %v", c.name, got, want.backends)
				}
			}
			if t.Failed() {
				t.Logf("paths:\n%s", brief(tr.Paths))
			}
		})
	}
}

// TestNodePackets asks for single packets to the load balancer's address, where the client's address decides.
func TestNodePackets(t *testing.T) {
	s := forwarding(t)
	for _, tt := range []struct {
		from, to, origin string
		result           report.Result
		chain            string
	}{
		{"203.0.113.9", "198.51.100.43:443/TCP", "external", "drop", "KUBE-PROXY-FIREWALL"},
		{"192.0.2.1", "198.51.100.43:443/TCP", "external", "drop", "KUBE-PROXY-FIREWALL"},
		{"10.244.1.9", "198.51.100.43:443/tcp", "pod", "drop", "KUBE-PROXY-FIREWALL"},
		{"192.0.2.1", "172.18.0.11:32523/TCP", "external", "local-process", ""},
		{"192.0.2.1", "172.18.0.11:22/TCP", "external", "no-match", ""},
	} {
		tr := trace(t, s, explain.TraceOptions{To: tt.to, FromAddr: tt.from, Origin: tt.origin})
		for _, p := range tr.Paths {
			if p.Result != tt.result || tt.chain != "" && p.Chain != tt.chain {
				t.Errorf("%s to %s: %s in %s, want %s in %s\n%s", tt.from, tt.to, p.Result, p.Chain, tt.result, tt.chain, brief(tr.Paths))
			}
		}
	}
}

// TestNodeHeadless: a Service without an address has no path, and one line says so.
func TestNodeHeadless(t *testing.T) {
	r := run(t, "trace", "svc/db", "-n", "store", "-f", nodeDir)
	if r.code != 0 || r.stderr != "" {
		t.Errorf("exit %d, standard error %q", r.code, r.stderr)
	}
	if !strings.Contains(r.stdout, "headless") {
		t.Errorf("the answer does not say that the Service is headless:\n%s", r.stdout)
	}
}

// TestNodeArchive: a folder, its files one by one, and an archive of it are the same evidence.
func TestNodeArchive(t *testing.T) {
	folder := run(t, "trace", "svc/web", "-n", "store", "-f", nodeDir, "-o", "json")
	entries, err := os.ReadDir(nodeDir)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"trace", "svc/web", "-n", "store", "-o", "json"}
	slices.Reverse(entries)
	for _, e := range entries {
		args = append(args, "-f", filepath.Join(nodeDir, e.Name()))
	}
	if diff := cmp.Diff(folder.stdout, run(t, args...).stdout); diff != "" {
		t.Errorf("the files one by one give another document\n%s", diff)
	}
}
