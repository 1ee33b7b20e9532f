package e2e

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

const seedsDir = "testdata/seeds"

// seedFormats is what each file is. Files of dataplanes that this version does not evaluate are recognised all
// the same.
var seedFormats = map[string]snapshot.Format{
	"iptables-L-grep.txt":                  snapshot.IPTablesList,
	"iptables-L-v-n-1.txt":                 snapshot.IPTablesList,
	"iptables-L-v-n.txt":                   snapshot.IPTablesList,
	"iptables-S-1.txt":                     snapshot.IPTablesRules,
	"iptables-S-2.txt":                     snapshot.IPTablesRules,
	"iptables-S-3.txt":                     snapshot.IPTablesRules,
	"iptables-S-4.txt":                     snapshot.IPTablesRules,
	"iptables-S-5.txt":                     snapshot.IPTablesRules,
	"iptables-S-6.txt":                     snapshot.IPTablesRules,
	"ipvs-ipset-list.txt":                  snapshot.IPSetList,
	"ipvs-iptables-L-v-n.txt":              snapshot.IPTablesList,
	"ipvs-ipvsadm-Ln.txt":                  snapshot.IPVSList,
	"kube-apiserver-manifest-fragment.txt": snapshot.APIServerFlags,
	"kube-proxy-1.11.log":                  snapshot.ProxyLog,
	"kube-proxy-1.19.log":                  snapshot.ProxyLog,
	"svc-clusterip.yaml":                   snapshot.Objects,
	"userspace-L-v-n.txt":                  snapshot.IPTablesList,
	"weave.log":                            snapshot.CNILog,
}

func TestSeedsRecognised(t *testing.T) {
	files, err := os.ReadDir(seedsDir)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(seedFormats) {
		t.Errorf("%d files, and formats of %d", len(files), len(seedFormats))
	}
	for _, f := range files {
		s := load(t, "", filepath.Join(seedsDir, f.Name()))
		var got []snapshot.Format
		for _, e := range s.Evidence {
			got = append(got, e.Format)
		}
		if diff := cmp.Diff([]snapshot.Format{seedFormats[f.Name()]}, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", f.Name(), diff)
		}
	}
}

// TestSeedsLater: a file of a dataplane that comes later is answered with one clear line, those of others are read.
func TestSeedsLater(t *testing.T) {
	later := filepath.Join(t.TempDir(), "cilium-bpf-lb-list.txt")
	text := "SERVICE ADDRESS        BACKEND ADDRESS (REVNAT_ID) (SLOT)\n10.96.0.1:443/TCP (0)  0.0.0.0:0 (1) (0) [ClusterIP, non-routable]\n"
	if err := os.WriteFile(later, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []string{seed("iptables-S-3.txt"), seed("ipvs-ipset-list.txt"), seed("ipvs-ipvsadm-Ln.txt"), later}
	tr := trace(t, load(t, "", files...), explain.TraceOptions{Namespace: "default", Service: "svc-clusterip"})
	if len(tr.Sources) != len(files) {
		t.Fatalf("%d sources of %d files", len(tr.Sources), len(files))
	}
	for _, src := range tr.Sources {
		want := snapshot.OK
		if src.File == filepath.Base(later) {
			want = snapshot.Unsupported
		}
		if src.Status != string(want) || strings.Contains(src.Error, "\n") || (src.Error == "") != (want == snapshot.OK) {
			t.Errorf("%s: status %s with %q, want %s with one line", src.File, src.Status, src.Error, want)
		}
	}
}

// seedTrace is a question about pasted output, with what a person finds in it by hand.
type seedTrace struct {
	name  string
	files []string
	ask   explain.TraceOptions
	// endpoints are the shares of the KUBE-SEP chains as the rules give them.
	endpoints map[string]float64
	// backends are those whose addresses the files hold.
	backends map[string]float64
	result   report.Result
	// masquerade is "true", "false" or "undecided"; empty: not asked.
	masquerade string
	// because stands in the text of a hop; open in what is not decided, not evaluated, or said of a source.
	because, open string
}

var seedTraces = []seedTrace{
	{
		name: "iptables -L, cluster IP from a pod", files: []string{"iptables-L-v-n-1.txt"},
		ask:       explain.TraceOptions{Service: "my-nginx-nodeport", Via: []string{"clusterip"}, From: []string{"local-pod"}},
		endpoints: thirds, open: "KUBE-SEP-",
	},
	{
		name: "iptables -L, cluster IP from outside of the pod range", files: []string{"iptables-L-v-n-1.txt"},
		ask:       explain.TraceOptions{Service: "my-nginx-nodeport", Via: []string{"clusterip"}, From: []string{"external"}},
		endpoints: thirds, because: "!192.167.0.0/16", open: "KUBE-SEP-",
	},
	{
		name: "iptables -L, node port", files: []string{"iptables-L-v-n-1.txt"},
		ask:       explain.TraceOptions{Service: "my-nginx-nodeport", Via: []string{"nodeport"}, From: []string{"external"}},
		endpoints: thirds, because: "KUBE-MARK-MASQ", open: "KUBE-SEP-",
	},
	{
		name: "iptables -L, a Service whose chain was not pasted", files: []string{"iptables-L-v-n-1.txt"},
		ask:    explain.TraceOptions{Service: "my-nginx-cluster", Via: []string{"clusterip"}, From: []string{"local-pod"}},
		result: report.ResultUnknown, open: "KUBE-SVC-52FY5WPFTOHXARFK",
	},
	{
		name: "iptables -L, one of three endpoints pasted", files: []string{"iptables-L-v-n.txt"},
		ask:       explain.TraceOptions{Service: "my-nginx-loadbalancer", Via: []string{"clusterip"}, From: []string{"local-pod"}},
		endpoints: thirds, backends: map[string]float64{"192.167.2.231:80": 0.33332999982}, open: "KUBE-SEP-",
	},
	{
		name: "iptables -L, load balancer address", files: []string{"iptables-L-v-n.txt"},
		ask:       explain.TraceOptions{Service: "my-nginx-loadbalancer", Via: []string{"loadbalancer"}, From: []string{"external"}},
		endpoints: thirds, backends: map[string]float64{"192.167.2.231:80": 0.33332999982}, because: "KUBE-FW-TNQCJ2KHUMKABQTD", open: "KUBE-SEP-",
	},
	{
		name: "iptables -S with gaps, cluster IP from a pod", files: []string{"iptables-S-1.txt"},
		ask:    explain.TraceOptions{Namespace: "kube-system", Service: "kube-ops-view", Via: []string{"clusterip"}, From: []string{"local-pod"}},
		result: report.ResultDNAT, backends: map[string]float64{"10.10.0.5:8080": 1}, endpoints: map[string]float64{"KUBE-SEP-2ZVL7EJZGLLRN3QG": 1},
	},
	{
		name: "iptables -S with gaps, cluster IP from outside of the pod range", files: []string{"iptables-S-1.txt"},
		ask:     explain.TraceOptions{Namespace: "kube-system", Service: "kube-ops-view", Via: []string{"clusterip"}, From: []string{"external"}},
		because: "! -s 10.10.0.0/16", backends: map[string]float64{"10.10.0.5:8080": 1},
	},
	{
		name: "iptables -S with gaps, node port", files: []string{"iptables-S-1.txt"},
		ask:     explain.TraceOptions{Namespace: "kube-system", Service: "kube-ops-view", Via: []string{"nodeport"}, From: []string{"external"}},
		because: "masquerade traffic for kube-system/kube-ops-view:http external destinations", backends: map[string]float64{"10.10.0.5:8080": 1},
	},
	{
		name: "iptables -S with gaps, a chain that is cut short", files: []string{"iptables-S-1.txt"},
		ask:       explain.TraceOptions{Namespace: "kube-system", Service: "kube-dns", Ports: []string{"dns-tcp"}, Via: []string{"clusterip"}, From: []string{"local-pod"}},
		endpoints: map[string]float64{"KUBE-SEP-XVHB3NIW2NQLTFP3": 0.5}, backends: map[string]float64{"10.10.0.2:53": 0.5}, open: "KUBE-SVC-ERIFXISQEP7F7OF4",
	},
	{
		name: "grep that kept two rules", files: []string{"iptables-S-2.txt"},
		ask:  explain.TraceOptions{Service: "svc-clusterip", Via: []string{"clusterip"}, From: []string{"local-pod"}},
		open: "KUBE-SVC-KBDEBIL6IU6WL7RF", result: report.ResultUnknown,
	},
	{
		name: "grep of one Service's chain", files: []string{"iptables-S-3.txt"},
		ask:       explain.TraceOptions{Service: "svc-clusterip", Via: []string{"clusterip"}, From: []string{"local-pod"}},
		endpoints: ladder, backends: podThirds, result: report.ResultDNAT,
	},
	{
		name: "grep of one Service's chain, with its manifest", files: []string{"iptables-S-3.txt", "svc-clusterip.yaml"},
		ask:       explain.TraceOptions{Service: "svc-clusterip", Via: []string{"clusterip"}, From: []string{"local-pod"}},
		endpoints: ladder, backends: podThirds, result: report.ResultDNAT,
	},
	{
		name: "node port with a broken target", files: []string{"iptables-S-4.txt"},
		ask:    explain.TraceOptions{Service: "svc-clusterip", Via: []string{"nodeport"}, From: []string{"external"}},
		result: report.ResultUnknown, open: "chain c",
	},
	{
		name: "node port whose Service chain was not pasted", files: []string{"iptables-S-5.txt"},
		ask:    explain.TraceOptions{Service: "svc-clusterip", Via: []string{"nodeport"}, From: []string{"external"}},
		result: report.ResultUnknown, masquerade: "undecided", open: "KUBE-SVC-KBDEBIL6IU6WL7RF",
	},
	{
		name: "grep with the node port's chain", files: []string{"iptables-S-6.txt"},
		ask:       explain.TraceOptions{Service: "svc-clusterip", Via: []string{"clusterip"}, From: []string{"local-pod"}},
		endpoints: ladder, backends: podThirds, result: report.ResultDNAT,
	},
	{
		name: "two pastes that complete each other", files: []string{"iptables-S-5.txt", "iptables-S-6.txt"},
		ask:       explain.TraceOptions{Service: "svc-clusterip", Via: []string{"clusterip"}, From: []string{"local-pod"}},
		endpoints: ladder, backends: podThirds,
	},
}

// thirds are shares as kube-proxy wrote them up to 1.16, with five digits.
var thirds = map[string]float64{
	"KUBE-SEP-6HM47TA5RTJFOZFJ": 0.33332999982,
	"KUBE-SEP-AHRDCNDYGFSFVA64": 0.33333500009,
	"KUBE-SEP-BK523K4AX5Y34OZL": 0.33333500009,
}

// ladder and podThirds are a third each, as it is written today.
var (
	ladder = map[string]float64{
		"KUBE-SEP-TBW2IYJKUCAC7GB3": 1. / 3,
		"KUBE-SEP-DOIEFYKPESCDTYCH": 1. / 3,
		"KUBE-SEP-K7ALM6KJRBAYOHKX": 1. / 3,
	}
	podThirds = map[string]float64{"10.10.1.2:80": 1. / 3, "10.10.2.2:80": 1. / 3, "10.10.3.3:80": 1. / 3}
)

func TestSeedTraces(t *testing.T) {
	for _, tt := range seedTraces {
		t.Run(tt.name, func(t *testing.T) {
			if tt.ask.Namespace == "" {
				tt.ask.Namespace = "default"
			}
			var files []string
			for _, f := range tt.files {
				files = append(files, seed(f))
			}
			tr := trace(t, load(t, "", files...), tt.ask)
			tt.check(t, tr)
			if t.Failed() {
				t.Logf("summary: %s\npaths:\n%s", tr.Summary.Text, brief(tr.Paths))
				for _, s := range tr.Sources {
					t.Logf("source %s %s %s %s", s.Name, s.File, s.Status, s.Error)
				}
			}
		})
	}
}

func (tt *seedTrace) check(t *testing.T, tr *report.Trace) {
	t.Helper()
	if len(tr.Paths) == 0 {
		t.Fatal("no paths")
	}
	known := addressesIn(t, tt.files)
	for _, c := range cellsOf(tr) {
		if tt.endpoints != nil {
			got := endpointShares(c.paths)
			if !closeShares(got, tt.endpoints) {
				t.Errorf("%s: endpoint chains %v, want %v", c.name, got, tt.endpoints)
			}
		}
		if tt.backends != nil {
			if got := shares(c.paths); !closeShares(got, tt.backends) {
				t.Errorf("%s: backends %v, want %v", c.name, got, tt.backends)
			}
		}
		for backend := range shares(c.paths) {
			if !known[host(backend)] {
				t.Errorf("%s: backend %s stands in none of the files", c.name, backend)
			}
		}
		for _, p := range c.paths {
			if tt.result != "" && p.Result != tt.result {
				t.Errorf("%s: result %s, want %s", c.name, p.Result, tt.result)
			}
			if tt.masquerade != "" && word(p.Masquerade) != tt.masquerade {
				t.Errorf("%s: masquerade %s, want %s", c.name, word(p.Masquerade), tt.masquerade)
			}
		}
		if tt.because != "" && !slices.ContainsFunc(allHops(c.paths), func(h report.Hop) bool { return strings.Contains(h.Text, tt.because) }) {
			t.Errorf("%s: no hop says %q", c.name, tt.because)
		}
		if tt.open != "" && !strings.Contains(openWords(tr, c.paths), tt.open) {
			t.Errorf("%s: nothing that is left open names %q", c.name, tt.open)
		}
	}
}

// endpointShares are the cumulative shares of the jumps to KUBE-SEP chains.
func endpointShares(paths []report.Path) map[string]float64 {
	sep := regexp.MustCompile(`KUBE-SEP-[A-Z0-9]{16}`)
	out := map[string]float64{}
	for _, p := range paths {
		for _, b := range append([]report.Backend{{}}, p.Backends...) {
			for _, h := range append(slices.Clone(p.Hops), b.Hops...) {
				if name := sep.FindString(h.Text); name != "" && strings.HasPrefix(h.Chain, "KUBE-SVC-") {
					out[name] = max(out[name], h.Cumulative)
				}
			}
		}
	}
	return out
}

// closeShares compares shares with what the rules' own rounding allows.
func closeShares(got, want map[string]float64) bool {
	if len(got) != len(want) {
		return false
	}
	for k, w := range want {
		if g, ok := got[k]; !ok || math.Abs(g-w) > 1e-5 {
			return false
		}
	}
	return true
}

// openWords is all that a trace says of what it does not know about the paths.
func openWords(tr *report.Trace, paths []report.Path) string {
	var words []string
	for _, p := range paths {
		words = append(words, p.NotEvaluated...)
		for _, u := range p.Uncertain {
			words = append(words, u.Condition, u.Because)
		}
	}
	for _, s := range tr.Sources {
		words = append(words, s.Error)
	}
	return strings.Join(words, "\n")
}

// addressesIn are all IPv4 addresses that the files hold.
func addressesIn(t *testing.T, files []string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(seed(f))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range regexp.MustCompile(`\d+\.\d+\.\d+\.\d+`).FindAllString(string(text), -1) {
			out[a] = true
		}
	}
	return out
}

// TestSeedProxy reads mode and version from what the logs say.
func TestSeedProxy(t *testing.T) {
	for _, tt := range []struct{ log, version string }{
		{"kube-proxy-1.11.log", "1.11.8"},
		{"kube-proxy-1.19.log", "1.19.0"},
	} {
		tr := trace(t, load(t, "", seed("iptables-S-3.txt"), seed(tt.log)), explain.TraceOptions{Namespace: "default", Service: "svc-clusterip"})
		if tr.Proxy.Mode != "iptables" || tr.Proxy.Version != tt.version {
			t.Errorf("%s: mode %q version %q, want iptables %s", tt.log, tr.Proxy.Mode, tr.Proxy.Version, tt.version)
		}
		if !slices.ContainsFunc(tr.Proxy.Evidence, func(e report.Evidence) bool { return e.File == tt.log && e.Line > 0 }) {
			t.Errorf("%s: no evidence names the log and a line", tt.log)
		}
	}
}

// TestSeedUserspace: userspace mode redirects to ports of the proxy. Its rules alone do not tell the backends.
func TestSeedUserspace(t *testing.T) {
	s := load(t, "", seed("userspace-L-v-n.txt"))
	tr, err := explain.Trace(s, explain.TraceOptions{Namespace: "default", Service: "my-nginx-cluster"})
	var notFound *explain.NotFoundError
	if errors.As(err, &notFound) {
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("more than one line: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range tr.Paths {
		switch p.Result {
		case report.ResultRedirect, report.ResultDNAT, report.ResultUnknown:
		default:
			t.Errorf("result %s from %s", p.Result, p.SourceClass)
		}
		for backend := range shares([]report.Path{p}) {
			if strings.HasPrefix(backend, "192.167.") {
				t.Errorf("backend %s: userspace rules hold no endpoints", backend)
			}
		}
	}
}

// TestSeedProgram gives every seed alone to the program: it answers with a document, or with one clear line.
func TestSeedProgram(t *testing.T) {
	for name := range seedFormats {
		t.Run(name, func(t *testing.T) {
			for _, service := range []string{"svc-clusterip", "my-nginx-nodeport", "db-service", "nothing"} {
				r := run(t, "trace", "svc/"+service, "-f", seed(name), "-o", "json")
				switch r.code {
				case 0, 4:
					valid(t, r.stdout)
				case 1:
					r.oneLine(t)
					if r.stdout != "" {
						t.Errorf("exit 1 with output: %s", r.stdout)
					}
				default:
					t.Errorf("svc/%s: exit %d: %s", service, r.code, r.stderr)
				}
			}
		})
	}
}

func seed(name string) string { return filepath.Join(seedsDir, name) }
