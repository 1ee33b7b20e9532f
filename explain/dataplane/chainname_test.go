package dataplane

import (
	"net/netip"
	"os"
	"strings"
	"testing"
)

// vectorRows is the number of data rows of chain-hash-vectors.tsv; a file cut short must not pass.
const vectorRows = 408

// vectorFields is the number of columns of a data row.
const vectorFields = 6

type vector struct{ servicePort, protocol, endpoint, kind, name string }

func readVectors(t testing.TB) []vector {
	t.Helper()
	data, err := os.ReadFile("testdata/chain-hash-vectors.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != vectorFields {
			t.Fatalf("row %q has %d fields, want %d", line, len(f), vectorFields)
		}
		vs = append(vs, vector{f[0], f[1], f[2], f[3], f[4]})
	}
	if len(vs) != vectorRows {
		t.Fatalf("%d data rows, want %d", len(vs), vectorRows)
	}
	return vs
}

func TestNames(t *testing.T) {
	byService := map[string]func(servicePort, protocol string) string{
		"SVC": SVCName, "SVL": SVLName, "EXT": EXTName, "FW": FWName, "XLB": XLBName,
		"nft-service": NFTServiceName, "nft-local": NFTLocalName,
		"nft-external": NFTExternalName, "nft-firewall": NFTFirewallName,
	}
	byEndpoint := map[string]func(servicePort, protocol, endpoint string) string{
		"SEP": SEPName, "nft-endpoint": NFTEndpointName, "nft-affinity": NFTAffinityName,
	}
	seen := map[string]int{}
	for _, v := range readVectors(t) {
		seen[v.kind]++
		var got, upper string
		switch {
		case byService[v.kind] != nil:
			got = byService[v.kind](v.servicePort, v.protocol)
			upper = byService[v.kind](v.servicePort, strings.ToUpper(v.protocol))
		case byEndpoint[v.kind] != nil:
			got = byEndpoint[v.kind](v.servicePort, v.protocol, v.endpoint)
			upper = byEndpoint[v.kind](v.servicePort, strings.ToUpper(v.protocol), v.endpoint)
		default:
			t.Fatalf("vector of unknown kind %q", v.kind)
		}
		if got != v.name {
			t.Errorf("%s of %s %s %s = %s, want %s", v.kind, v.servicePort, v.protocol, v.endpoint, got, v.name)
		}
		if upper != got {
			t.Errorf("%s of %s depends on the case of the protocol", v.kind, v.servicePort)
		}
	}
	if len(seen) != len(byService)+len(byEndpoint) {
		t.Errorf("vectors cover %v", seen)
	}
}

// Up to 1.18 a port without name keeps its colon in the hash; nft names (1.29+) never differ.
func TestUnnamedPortSpellings(t *testing.T) {
	if got := ChainID("default/nginx", "tcp"); got != "2CMXP7HKUVJN7L6M" {
		t.Errorf("1.19 spelling: %s", got)
	}
	if got := ChainID("default/nginx:", "tcp"); got != "4N57TFCL4MD7ZTDA" {
		t.Errorf("1.18 spelling: %s", got)
	}
	if a, b := NFTServiceName("default/nginx", "tcp"), NFTServiceName("default/nginx:", "tcp"); a != b {
		t.Errorf("nft names differ: %s and %s", a, b)
	}
}

// Reading a name back gives what it was made of.
func TestServicePortOfNFTVectors(t *testing.T) {
	for _, v := range readVectors(t) {
		key, protocol, endpoint, ok := ServicePortOfNFT(v.name)
		if !strings.HasPrefix(v.kind, "nft-") {
			if ok {
				t.Errorf("%s read as nft name of %s", v.name, key)
			}
			continue
		}
		if !ok || key != strings.TrimSuffix(v.servicePort, ":") || protocol != strings.ToUpper(v.protocol) {
			t.Errorf("%s = %q %q %v", v.name, key, protocol, ok)
		}
		var want netip.AddrPort
		if v.endpoint != "-" && !strings.HasSuffix(v.name, "...") {
			want = netip.MustParseAddrPort(v.endpoint)
		}
		if endpoint != want {
			t.Errorf("%s: endpoint %v, want %v", v.name, endpoint, want)
		}
	}
}

func TestServicePortOfNFTForeign(t *testing.T) {
	for _, name := range []string{
		"", "services", "service-", "service-endpoints-check", "nat-prerouting", "external-traffic",
		"service-YVSKLJHA", "service-YVSKLJHA-a/b/tcp", "service-YVSKLJHA-a/b/icmp/p", "service-YVSKLJHA-A/b/tcp/p",
		"endpoint-YVSKLJHA-a/b/tcp/p", "service-YVSKLJHA-a/b/tcp/p/q", "KUBE-SVC-NPX46M4PTMTKRN6Y",
	} {
		if key, _, _, ok := ServicePortOfNFT(name); ok {
			t.Errorf("%q read as %q", name, key)
		}
	}
}

func TestServicePortOf(t *testing.T) {
	for _, tt := range []struct{ comment, key, endpoint string }{
		{"store/web:http", "store/web:http", ""},
		{"store/web", "store/web", ""},
		{"default/my-nginx:", "default/my-nginx", ""},
		{"store/web:http cluster IP", "store/web:http", ""},
		{"default/my-nginx: cluster IP", "default/my-nginx", ""},
		{"default/my-nginx: loadbalancer IP", "default/my-nginx", ""},
		{"store/web external IP", "store/web", ""},
		{"store/web:http -> 10.244.1.11:8080", "store/web:http", "10.244.1.11:8080"},
		{"store/web -> [fd00::1]:80", "store/web", "[fd00::1]:80"},
		{"masquerade traffic for store/web:http external destinations", "store/web:http", ""},
		{"pod traffic for store/web:http external destinations", "store/web:http", ""},
		{"masquerade LOCAL traffic for store/web:http external destinations", "store/web:http", ""},
		{"route LOCAL traffic for store/web:http external destinations", "store/web:http", ""},
		{"masquerade LOCAL traffic for store/web:http LB IP", "store/web:http", ""},
		{"route LOCAL traffic for store/web: LB IP to service chain", "store/web", ""},
		{"Balancing rule 12 for store/web:http", "store/web:http", ""},
		{"store/search has no endpoints", "store/search", ""},
		{"store/search: has no endpoints", "store/search", ""},
		{"store/checkout:https has no local endpoints", "store/checkout:https", ""},
		{"store/checkout:https traffic not accepted by KUBE-FW-RTQJF7JFSCH2A3V6", "store/checkout:https", ""},
		{"other traffic to store/checkout:https will be dropped by KUBE-PROXY-FIREWALL", "store/checkout:https", ""},
		{"store/checkout:https health check node port", "store/checkout:https", ""},
	} {
		key, endpoint, ok := ServicePortOf(tt.comment)
		var want netip.AddrPort
		if tt.endpoint != "" {
			want = netip.MustParseAddrPort(tt.endpoint)
		}
		if !ok || key != tt.key || endpoint != want {
			t.Errorf("ServicePortOf(%q) = %q, %v, %v", tt.comment, key, endpoint, ok)
		}
	}
}

func TestServicePortOfForeign(t *testing.T) {
	for _, comment := range []string{
		"", " ", "/", ":", "a/", "/b", "a/b:c:d", "a/b c", "A/b",
		"kubernetes service portals",
		"kubernetes service nodeports; NOTE: this must be the last rule in this chain",
		"Redirect pods trying to reach external loadbalancer VIP to clusterIP",
		"Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose",
		"cali:Cy7Wq9Qm/X8c_DTX", "cilium-feeder: CILIUM_INPUT", "store/web -> nowhere", "x -> 10.0.0.1:80",
		"store/web traffic not accepted by somebody", "Balancing rule 3", "flanneld forward",
		"store/web\x00 cluster IP", "-a/b", "a-/b",
	} {
		if key, _, ok := ServicePortOf(comment); ok {
			t.Errorf("ServicePortOf(%q) = %q", comment, key)
		}
	}
}

func FuzzServicePortOf(f *testing.F) {
	for _, s := range []string{
		"store/web:http -> 10.244.1.11:8080", "Balancing rule 1 for a/b:", "masquerade traffic for a/b external destinations",
		"a/b traffic not accepted by KUBE-FW-X", "endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if key, _, ok := ServicePortOf(s); ok != isServicePort(key) {
			t.Errorf("ServicePortOf(%q) = %q, %v", s, key, ok)
		}
		if key, _, _, ok := ServicePortOfNFT(s); ok && !isServicePort(key) {
			t.Errorf("ServicePortOfNFT(%q) = %q", s, key)
		}
	})
}
