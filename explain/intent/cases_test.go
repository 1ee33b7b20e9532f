package intent

import (
	"encoding/json"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/svcnet/svcnet/explain/traits"
)

// deviation is what is wrong about the rules of a case, and so differs from the intent on purpose.
type deviation struct {
	ports  []string // service ports whose endpoints differ
	traces []int    // traces of expected.json, from 0, that do not end as intended
	proxy  func(*traits.Proxy)
}

// deviations by case. A case that is not listed has rules that are right.
var deviations = map[string]deviation{
	"01-endpoint-lost-in-partial-sync":       {ports: []string{"shop/ingress:http"}, traces: []int{0, 1}},
	"02-dns-rules-frozen-after-api-outage":   {ports: []string{"kube-system/kube-dns:dns", "kube-system/kube-dns:dns-tcp"}, traces: []int{0}},
	"04-hostnetwork-same-ip-two-ports":       {ports: []string{"shop/gw:http"}, traces: []int{0}},
	"12-udp-conntrack-after-scale-to-zero":   {traces: []int{1}}, // a tracked flow
	"18-backend-guess-after-nodelocaldns":    {traces: []int{0}}, // rules are missing
	"19-kube-firewall-lost-its-mark":         {traces: []int{0}}, // another chain drops
	"22-xtables-lock-held":                   {ports: []string{"shop/web:http"}},
	"23-docker-forward-policy-drop":          {traces: []int{0}}, // a policy drops
	"25-firewalld-reload-kills-hostport":     {traces: []int{0}}, // a hostPort, no Service
	"28-clustercidr-empty-no-masquerade":     {proxy: func(p *traits.Proxy) { p.LocalMode, p.ClusterCIDRs = "-", nil }},
	"31-nodelocaldns-output-not-exempt":      {traces: []int{0}}, // NOTRACK
	"33-etp-local-wrong-node-name":           {proxy: func(p *traits.Proxy) { p.NodeName = "192.168.10.11" }},
	"48-ipvs-ready-endpoint-weight-zero":     {traces: []int{0}, proxy: ipvsOf("1.20")},
	"36-lb-vip-skips-proxy-protocol":         {proxy: ipvsOf("1.28")},
	"50-ipvs-localhost-nodeport":             {traces: []int{0}, proxy: ipvsOf("1.19")}, // a martian
	"51-ipvs-etp-local-empty-virtual-server": {proxy: ipvsOf("1.18")},
	"52-ipvs-conn-reuse":                     {traces: []int{1}, proxy: ipvsOf("1.28")}, // a tracked connection
	"56-nft-localhost-nodeport":              {proxy: func(p *traits.Proxy) { p.Mode, p.Version = "nftables", version("1.32") }},
	"58-nft-mark-before-dnat":                {proxy: func(p *traits.Proxy) { p.Mode, p.Version = "nftables", version("1.32") }},
	"65-ipv4-external-ip-in-ipv6-cluster":    {ports: []string{"shop/edge:http", "shop/api:http"}},
	"kube-proxy-1.36-iptables":               {ports: []string{"store/web:http"}, proxy: func(p *traits.Proxy) { p.NodeName, p.Version = "node-1", version("1.36.3") }},
}

func ipvsOf(v string) func(*traits.Proxy) {
	return func(p *traits.Proxy) { p.Mode, p.Version = "ipvs", version(v) }
}

// TestCases sets the intent beside the rules of real reports: where the rules are right, every service port
// has the same endpoints, and every packet of expected.json ends as intended.
func TestCases(t *testing.T) {
	dirs, err := filepath.Glob("testdata/*/*")
	if err != nil || len(dirs) < 40 {
		t.Fatalf("%d cases, %v", len(dirs), err)
	}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			dev := deviations[name]
			p := proxy("1.28")
			if dev.proxy != nil {
				dev.proxy(&p)
			}
			in := readObjects(t, filepath.Join(dir, "objects.yaml"))
			in.Proxy = p
			got := Compute(in)
			if p.Mode == "iptables" {
				compareRules(t, dir, got, dev.ports)
			}
			compareTraces(t, filepath.Join(dir, "expected.json"), got, p, dev.traces)
		})
	}
}

// compareRules sets the endpoints of each port beside those that the rules hold.
func compareRules(t *testing.T, dir string, plan *Plan, odd []string) {
	t.Helper()
	for fam, file := range map[int]string{4: "iptables-save.txt", 6: "ip6tables-save.txt"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		rules := readRules(string(text))
		for _, sp := range plan.Ports {
			if sp.Family != fam {
				continue
			}
			want := programmed{state: "dnat", cluster: texts(sp, sp.Cluster), local: texts(sp, sp.Local)}
			switch {
			case len(sp.Usable) == 0:
				want.state = "reject"
			case sp.InternalLocal && len(sp.Local) == 0:
				want.state = "drop"
			}
			if equal := cmp.Equal(want, rules[sp.Key()], cmp.AllowUnexported(programmed{})); equal == slices.Contains(odd, sp.Key()) {
				t.Errorf("%s: equal is %t: objects %+v, rules %+v", sp.Key(), equal, want, rules[sp.Key()])
			}
		}
	}
}

func texts(sp *ServicePort, list []int) []string {
	var out []string
	for _, i := range list {
		out = append(out, sp.Endpoints[i].String())
	}
	slices.Sort(out)
	return out
}

// programmed is what rules hold for one service port: the state of its cluster IP and the endpoints of the
// KUBE-SVC and KUBE-SVL chains.
type programmed struct {
	state          string
	cluster, local []string
}

var (
	clusterIPRule = regexp.MustCompile(`^-A KUBE-SERVICES .*--comment "(\S+) cluster IP".* -j KUBE-(?:SVC|SVL)-(\S+)$`)
	refusalRule   = regexp.MustCompile(`^-A KUBE-SERVICES .*--comment "(\S+) has no (?:local )?endpoints".* -j (REJECT|DROP)`)
	choiceRule    = regexp.MustCompile(`^-A KUBE-(SVC|SVL)-(\S+) .*-j (KUBE-SEP-\S+)$`)
	// Some tools cannot print the target; the hairpin rule and comments then tell.
	translationRule = regexp.MustCompile(`^-A (KUBE-SEP-\S+) .*-j DNAT --to-destination (\S+)$`)
	choiceComment   = regexp.MustCompile(`--comment "\S+ -> (\S+)"`)
)

func readRules(text string) map[string]programmed {
	out := map[string]programmed{}
	ports, to := map[string]string{}, map[string]string{}
	chains := map[string][]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") { // counters
			_, line, _ = strings.Cut(line, "] ")
		}
		if m := clusterIPRule.FindStringSubmatch(line); m != nil {
			ports[m[2]] = m[1]
		} else if m := refusalRule.FindStringSubmatch(line); m != nil {
			out[m[1]] = programmed{state: strings.ToLower(m[2])}
		} else if m := translationRule.FindStringSubmatch(line); m != nil {
			to[m[1]] = m[2]
		} else if m := choiceRule.FindStringSubmatch(line); m != nil && !strings.Contains(line, "--rcheck") {
			chains[m[1]+m[2]] = append(chains[m[1]+m[2]], m[3])
			if c := choiceComment.FindStringSubmatch(line); c != nil && to[m[3]] == "" {
				to[m[3]] = c[1]
			}
		}
	}
	for hash, port := range ports {
		p := programmed{state: "dnat"}
		for _, sep := range chains["SVC"+hash] {
			p.cluster = append(p.cluster, to[sep])
		}
		for _, sep := range chains["SVL"+hash] {
			p.local = append(p.local, to[sep])
		}
		slices.Sort(p.cluster)
		slices.Sort(p.local)
		out[port] = p
	}
	return out
}

// compareTraces asks for each packet of expected.json what is intended.
func compareTraces(t *testing.T, file string, plan *Plan, p traits.Proxy, odd []int) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		return
	}
	var expected struct {
		Traces []struct {
			Src, Origin, Dst, Result string
			Backends                 map[string]float64
			Masquerade               *bool
		}
	}
	if err := json.Unmarshal(data, &expected); err != nil {
		t.Fatal(err)
	}
	for i, tr := range expected.Traces {
		sp, f, ok := frontendAt(t, plan, tr.Dst)
		if !ok {
			if !slices.Contains(odd, i) {
				t.Errorf("trace %d: no frontend %s", i, tr.Dst)
			}
			continue
		}
		out := sp.Intend(f, clientAt(t, tr.Src, tr.Origin, p), p)
		same := out.Result == tr.Result && len(out.Backends) == len(tr.Backends)
		for j, at := range out.Backends {
			share, has := tr.Backends[sp.Endpoints[at].String()]
			same = same && has && math.Abs(share-out.Share()) < 1e-4
			if tr.Masquerade != nil {
				same = same && out.MasqueradeUnknown == "" && out.Masquerade[j] == *tr.Masquerade
			}
		}
		if tr.Result == out.Result && tr.Backends == nil { // the case names no backends
			same = true
		}
		if same == slices.Contains(odd, i) {
			t.Errorf("trace %d %s → %s: same is %t: intended %s (%s), expected %s %v", i, tr.Src, tr.Dst, same, show(sp, out), out.Because, tr.Result, tr.Backends)
		}
	}
}

func frontendAt(t *testing.T, plan *Plan, dst string) (*ServicePort, Frontend, bool) {
	t.Helper()
	at, proto, _ := strings.Cut(dst, "/")
	ap, err := netip.ParseAddrPort(at)
	if err != nil {
		t.Fatal(err)
	}
	var loopback *ServicePort
	for _, kind := range kindOrder {
		for _, sp := range plan.Ports {
			for _, f := range sp.Frontends {
				if f.Kind == kind && f.Addr == ap.Addr() && f.Port == int(ap.Port()) && strings.EqualFold(sp.FrontendProtocol(f), proto) {
					return sp, f, true
				}
			}
			if sp.NodePort == int(ap.Port()) {
				loopback = sp
			}
		}
	}
	if ap.Addr().IsLoopback() && loopback != nil {
		return loopback, Frontend{Kind: NodePort, Addr: ap.Addr(), Port: int(ap.Port()), OnNode: true}, true
	}
	return nil, Frontend{}, false
}

func clientAt(t *testing.T, src, origin string, p traits.Proxy) Client {
	t.Helper()
	addr, err := netip.ParseAddr(src)
	if ap, apErr := netip.ParseAddrPort(src); apErr == nil {
		addr, err = ap.Addr(), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	c := Client{Addr: addr}
	switch {
	case origin == "host" && addr.IsLoopback():
		c.Class, c.OnNode = Localhost, true
	case origin == "host":
		c.Class, c.OnNode = Node, true
	case origin == "pod":
		c.Class = LocalPod
	default:
		c.Class = External
	}
	for _, r := range p.ClusterCIDRs {
		c.DetectedLocal = c.DetectedLocal || r.Contains(addr)
	}
	return c
}

// readObjects reads documents as they stand in files, lists included.
func readObjects(t testing.TB, file string) Input {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in := Input{SlicesRead: true}
	for i, doc := range strings.Split("\n"+string(data), "\n---") {
		if err := addObject(&in, []byte(doc)); err != nil {
			t.Fatalf("%s: document %s: %v", file, strconv.Itoa(i), err)
		}
	}
	return in
}

func addObject(in *Input, doc []byte) error {
	var head struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := yaml.Unmarshal(doc, &head); err != nil {
		return err
	}
	for _, item := range head.Items {
		if err := addObject(in, item); err != nil {
			return err
		}
	}
	switch head.Kind {
	case "Service":
		return decode(doc, &in.Services)
	case "EndpointSlice":
		return decode(doc, &in.Slices)
	case "Endpoints":
		return decode(doc, &in.Endpoints)
	case "Node":
		var nodes []*corev1.Node
		if err := decode(doc, &nodes); err != nil {
			return err
		}
		if name := nodes[0].Name; name == "node-a" || name == "node-1" {
			in.Node = nodes[0]
		}
	}
	return nil
}

func decode[T corev1.Service | discoveryv1.EndpointSlice | corev1.Endpoints | corev1.Node](doc []byte, into *[]*T) error {
	var obj T
	if err := yaml.Unmarshal(doc, &obj); err != nil {
		return err
	}
	*into = append(*into, &obj)
	return nil
}
