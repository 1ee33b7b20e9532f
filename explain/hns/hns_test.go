package hns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// read parses captures one after another.
func read(t *testing.T, files ...string) (*State, []Problem) {
	t.Helper()
	var (
		s   State
		all []Problem
	)
	for _, file := range files {
		b, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		problems, err := Parse(&s, string(b), file)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, problems...)
	}
	s.Settle()
	return &s, all
}

// shown is a load balancer in a line, with where it was read.
func shown(s *State) []string {
	var out []string
	for i := range s.Balancers {
		b := &s.Balancers[i]
		out = append(out, fmt.Sprintf("%s:%d %s", b.File, b.Line, b))
	}
	return out
}

func TestBalancersOfVersion2(t *testing.T) {
	s, problems := read(t, "loadbalancers.json")
	want := []string{
		"loadbalancers.json:2 load balancer 699f2a93-e3bb-4198-ad4b-ed5d70e7ccc5: 10.96.20.10:80/TCP to port 8080 of 3 endpoints, DSR",
		"loadbalancers.json:25 load balancer fbd707c2-4fbc-449f-b913-f72154da3d3d: :30080/TCP to port 8080 of 3 endpoints, LocalRoutedVIP, VipExternalIP",
		"loadbalancers.json:45 load balancer a22b0a47-726c-4a9c-851b-4055a5e2fd44: 10.96.20.12:9000/TCP to port 9000 of 2 endpoints, DSR, one endpoint for each client",
	}
	if d := cmp.Diff(want, shown(s)[:3]); d != "" || len(problems) > 0 {
		t.Errorf("-want +got\n%s\nproblems %v", d, problems)
	}
	if len(s.Balancers) != 11 || !s.HasBalancers || s.HasEndpoints {
		t.Errorf("%d load balancers, HasBalancers %t, HasEndpoints %t", len(s.Balancers), s.HasBalancers, s.HasEndpoints)
	}
}

// What one node shows in both schemas is the same, but for what version 1 lacks.
func TestVersionsAgree(t *testing.T) {
	two, _ := read(t, "loadbalancers.json", "endpoints.json")
	one, problems := read(t, "policylist.json", "endpoint.json")
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	if len(one.Balancers) != len(two.Balancers) {
		t.Fatalf("%d load balancers in version 1, %d in version 2", len(one.Balancers), len(two.Balancers))
	}
	for i := range two.Balancers {
		a, b := two.Balancers[i], one.Balancers[i]
		if !b.HasState || b.State != Applied || b.HasDistribution || !a.HasDistribution || a.HasState {
			t.Errorf("%s: state %d (%t), distribution (%t)", b.ID, b.State, b.HasState, b.HasDistribution)
		}
		for _, x := range []*LoadBalancer{&a, &b} {
			x.State, x.HasState, x.Distribution, x.HasDistribution, x.ExternalVIP, x.Evidence = 0, false, 0, false, false, Evidence{}
		}
		if d := cmp.Diff(a, b, cmp.AllowUnexported(LoadBalancer{}), cmp.Comparer(func(x, y netip.Addr) bool { return x == y })); d != "" {
			t.Errorf("load balancer %d, -version 2 +version 1\n%s", i, d)
		}
	}
	for i := range two.Endpoints {
		a, b := &two.Endpoints[i], &one.Endpoints[i]
		if a.ID != b.ID || a.Remote != b.Remote || !slices.Equal(a.Addrs, b.Addrs) || a.Addrs == nil {
			t.Errorf("endpoint %d: %+v in version 2, %+v in version 1", i, a, b)
		}
	}
}

// The tables lack ports: with them alone nothing is served, and with another capture they change nothing.
func TestTable(t *testing.T) {
	s, problems := read(t, "hnsdiag-list-all.txt")
	if len(problems) > 0 || len(s.Balancers) != 11 || s.HasEndpoints {
		t.Errorf("%d load balancers, HasEndpoints %t, problems %v", len(s.Balancers), s.HasEndpoints, problems)
	}
	b := s.Balancers[0]
	if b.Complete() || b.Line != 25 || !slices.Equal(b.VIPs, []netip.Addr{netip.MustParseAddr("10.96.20.10")}) || len(b.Endpoints) != 3 {
		t.Errorf("%+v", b)
	}
	if got := s.Serving(netip.MustParseAddrPort("10.96.20.10:80"), 6, false); len(got) > 0 {
		t.Errorf("serves without a port: %v", got)
	}
	alone, _ := read(t, "loadbalancers.json")
	for _, files := range [][]string{{"hnsdiag-list-all.txt", "loadbalancers.json"}, {"loadbalancers.json", "hnsdiag-list-all.txt"}} {
		both, problems := read(t, files...)
		if d := cmp.Diff(shown(alone), shown(both)); d != "" || len(problems) > 0 {
			t.Errorf("%v: -alone +with the table\n%s\nproblems %v", files, d, problems)
		}
	}
}

// The list form hides the addresses, which the table has.
func TestListForm(t *testing.T) {
	s, problems := read(t, "policylist.list.txt")
	if len(problems) > 0 || len(s.Balancers) != 2 {
		t.Fatalf("%v, problems %v", shown(s), problems)
	}
	b := s.Balancers[0]
	if b.Complete() || b.ExternalPort != 80 || b.InternalPort != 8080 || b.State != Applied || b.SourceVIP.String() != "10.244.4.2" || b.Line != 3 {
		t.Errorf("%+v", b)
	}
	if d := cmp.Diff([]string{"7eedd703-0d5e-490e-bfd9-11b619f6a5f4", "4536625b-93d3-49a4-901c-d79d2cc4122e", "c16267ce-b91c-47a1-a7eb-f47b8eb46fc7"}, b.Endpoints); d != "" {
		t.Errorf("references over two lines: %s", d)
	}
	for _, files := range [][]string{{"policylist.list.txt", "hnsdiag-list-all.txt"}, {"hnsdiag-list-all.txt", "policylist.list.txt"}} {
		s, _ := read(t, files...)
		got := s.Serving(netip.MustParseAddrPort("10.96.20.12:53"), 17, false)
		if len(got) != 1 || got[0].State != 3 || !strings.HasSuffix(got[0].String(), "state 3 (not applied)") {
			t.Errorf("%v: %v", files, got)
		}
	}
}

func TestEverythingInJSON(t *testing.T) {
	s, problems := read(t, "hnsdiag-list-all-d.txt")
	want := []string{
		"hnsdiag-list-all-d.txt:38 load balancer 699f2a93-e3bb-4198-ad4b-ed5d70e7ccc5: 10.96.20.10:80/TCP to port 8080 of 2 endpoints, source 10.244.4.2, DSR, VipExternalIP, one endpoint for each client",
		"hnsdiag-list-all-d.txt:47 load balancer fbd707c2-4fbc-449f-b913-f72154da3d3d: :30080/TCP to port 8080 of 1 endpoint, LocalRoutedVIP",
	}
	if d := cmp.Diff(want, shown(s)); d != "" || len(problems) > 0 {
		t.Errorf("-want +got\n%s\nproblems %v", d, problems)
	}
	if len(s.Endpoints) != 2 || s.Endpoints[0].Remote || !s.Endpoints[1].Remote || !s.Overlay() || s.Endpoints[1].Line != 21 {
		t.Errorf("%+v", s.Endpoints)
	}
	// A node port takes any address of the node, of its own family.
	for dst, want := range map[string]int{"10.0.0.4:30080": 0, "[fd00::4]:30080": 1, "[fd00::4]:30081": 0} {
		if got := s.Serving(netip.MustParseAddrPort(dst), 6, true); len(got) != want {
			t.Errorf("%s: %d load balancers, want %d", dst, len(got), want)
		}
	}
	if got := s.Serving(netip.MustParseAddrPort("[fd00::4]:30080"), 6, false); len(got) > 0 {
		t.Errorf("a node port takes another node's address: %v", got)
	}
	b := &s.Balancers[1]
	if got := b.Backend(s.Endpoint(b.Endpoints[0])); got != netip.MustParseAddrPort("[fd00:10:244:4::11]:8080") {
		t.Errorf("the endpoint of an IPv6 load balancer is at %v", got)
	}
	if e := s.EndpointAt(netip.MustParseAddr("fd00:10:244:4::11")); e == nil || e.Name != "pod_10.244.4.11" {
		t.Errorf("the endpoint at an address: %+v", e)
	}
}

const policy = `{"ID":"A","References":["/endpoints/E"],"State":2,"Policies":[{"Type":"ELB","VIPs":["10.96.0.1"],"ExternalPort":443,"InternalPort":6443,"Protocol":6}]}`

func TestParse(t *testing.T) {
	const served = "load balancer a: 10.96.0.1:443/TCP to port 6443 of 1 endpoint"
	for name, tc := range map[string]struct {
		text     string
		want     []string
		problems []Problem
		err      string
	}{
		"one object":                     {text: policy, want: []string{"x:1 " + served}},
		"list as Windows PowerShell has": {text: "{\n \"value\": [\n  " + policy + "\n ],\n \"Count\": 1\n}", want: []string{"x:3 " + served}},
		"objects one after another":      {text: policy + "\r\n\r\n" + strings.Replace(policy, `"A"`, `"B"`, 1), want: []string{"x:1 " + served, "x:3 " + strings.Replace(served, " a:", " b:", 1)}},
		"names in another case":          {text: strings.NewReplacer("ExternalPort", "externalPort", "VIPs", "Vips", `"ID"`, `"Id"`).Replace(policy), want: []string{"x:1 " + served}},
		"after the command":              {text: "PS C:\\k> Get-HnsPolicyList | ConvertTo-Json -Depth 10\n" + policy, want: []string{"x:2 " + served}},
		"none":                           {text: "[]", err: "neither load balancers nor endpoints"},
		"an empty table":                 {text: "ID                                   | Virtual IPs      | Direct IP IDs\n"},
		"other objects":                  {text: `[{"ID":"A","Subnets":[],"Name":"nat"}]`, err: "neither load balancers nor endpoints"},
		"another policy list":            {text: strings.Replace(policy, "ELB", "ROUTE", 1)},
		"too shallow": {
			text:     `{"ID":"A","References":"/endpoints/E","State":2,"Policies":["@{ExternalPort=443; InternalPort=6443; Protocol=6; Type=ELB; VIPs=System.Object[]}"]}`,
			want:     []string{"x:1 load balancer a: :443/TCP to port 6443 of 1 endpoint"},
			problems: nil,
		},
		"far too shallow": {
			text:     `{"ID":"A","References":"/endpoints/E","State":2,"Policies":"System.Object[]"}`,
			problems: []Problem{{1, "the policies of a are cut off (capture them with ConvertTo-Json -Depth 10)"}},
		},
		"mappings too shallow": {
			text:     "{\"ID\":\"A\",\n\"FrontendVIPs\":[\"10.96.0.1\"],\"PortMappings\":[\"\"],\"HostComputeEndpoints\":[]}",
			want:     []string{"x:1 load balancer a: 10.96.0.1:0/0 to port 0 of 0 endpoints"},
			problems: []Problem{{1, "the load balancer a shows no port mapping (capture it with ConvertTo-Json -Depth 10)"}},
		},
		"cut off": {
			text:     "[\n" + policy + ",\n" + policy[:40],
			want:     []string{"x:2 " + served},
			problems: []Problem{{2, "the list cannot be read on from here: unexpected EOF"}},
		},
		"cut off after an object": {
			text:     "[\n" + policy + ",\n",
			want:     []string{"x:2 " + served},
			problems: []Problem{{2, "the list cannot be read on from here: EOF"}},
		},
		"cut off in one object": {text: policy[:60], err: "line 1: JSON cannot be read on from here: unexpected EOF"},
		"no address": {
			text:     strings.Replace(policy, "10.96.0.1", "10.96.0.256", 1),
			want:     []string{"x:1 load balancer a: :443/TCP to port 6443 of 1 endpoint"},
			problems: []Problem{{1, `the load balancer A has "10.96.0.256" in place of an address`}},
		},
		"no port": {
			text:     strings.Replace(policy, ":443,", ":70443,", 1),
			problems: []Problem{{1, "the policy of a has a port that is none"}},
		},
		"no identifier": {
			text:     strings.Replace(policy, `"A"`, `"a b"`, 1) + "\n" + policy,
			want:     []string{"x:2 " + served},
			problems: []Problem{{1, "a policy list without an ID"}},
		},
		"a row that is none": {
			text:     "ID | Virtual IPs | Direct IP IDs\nA | 10.96.0.1\nB | 10.96.0.2 | E",
			want:     []string{"x:3 load balancer b: 10.96.0.2:0/0 to port 0 of 1 endpoint"},
			problems: []Problem{{2, "no row of hnsdiag's table of load balancers"}},
		},
		"the next command after a table": {
			text: "ID | Virtual IPs | Direct IP IDs\nPS C:\\Users\\x> hnsdiag list endpoints\nName             ID                                   Virtual Network Name\nEthernet         A vxlan0",
		},
		"words of the schema": {
			text: `{"ID":"A","HostComputeEndpoints":["E"],"FrontendVIPs":["10.96.0.1"],"Flags":"EnableDirectServerReturn","PortMappings":[{"Protocol":"UDP","InternalPort":53,"ExternalPort":53,"DistributionType":"SourceIP","Flags":"EnableInternalLoadBalancer, LocalRoutedVip"}]}`,
			want: []string{"x:1 load balancer a: 10.96.0.1:53/UDP to port 53 of 1 endpoint, DSR, ILB, LocalRoutedVIP, one endpoint for each client"},
		},
		"two ports": {
			text: `{"ID":"A","HostComputeEndpoints":["E"],"FrontendVIPs":["10.96.0.1"],"PortMappings":[{"Protocol":17,"InternalPort":53,"ExternalPort":53},{"Protocol":6,"InternalPort":53,"ExternalPort":53}]}`,
			want: []string{"x:1 load balancer a: 10.96.0.1:53/UDP to port 53 of 1 endpoint", "x:1 load balancer a: 10.96.0.1:53/TCP to port 53 of 1 endpoint"},
		},
		"nothing of HNS": {text: "kube-proxy is running\n", err: "neither load balancers nor endpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			var s State
			problems, err := Parse(&s, tc.text, "x")
			s.Settle()
			if got := fmt.Sprint(err); tc.err == "" && err != nil || !strings.Contains(got, tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			if tc.err == "neither load balancers nor endpoints" && !errors.Is(err, ErrNothing) {
				t.Errorf("error %v is not ErrNothing", err)
			}
			if d := cmp.Diff(tc.want, shown(&s)); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			if d := cmp.Diff(tc.problems, problems); d != "" {
				t.Errorf("problems, -want +got\n%s", d)
			}
		})
	}
}

// A node port's family is not in captures of version 1: its endpoints have it, whichever capture comes first.
func TestFamilyOfNodePort(t *testing.T) {
	const (
		balancer = `{"ID":"A","References":["/endpoints/E"],"State":2,"Policies":[{"Type":"ELB","ExternalPort":30080,"InternalPort":80,"Protocol":6}]}`
		endpoint = `{"ID":"E","IPv6Address":"fd00::1","IsRemoteEndpoint":true,"Name":"Ethernet"}`
	)
	for _, texts := range [][]string{{balancer, endpoint}, {endpoint, balancer}} {
		var s State
		for _, text := range texts {
			if _, err := Parse(&s, text, "x"); err != nil {
				t.Fatal(err)
			}
		}
		s.Settle()
		six := s.Serving(netip.MustParseAddrPort("[fd00::4]:30080"), 6, true)
		four := s.Serving(netip.MustParseAddrPort("10.0.0.4:30080"), 6, true)
		if len(six) != 1 || len(four) != 0 {
			t.Errorf("%d load balancers for IPv6, %d for IPv4", len(six), len(four))
		}
	}
}

func TestSeveralServe(t *testing.T) {
	var s State
	text := policy + strings.Replace(policy, `"A"`, `"B"`, 1) + strings.NewReplacer(`"A"`, `"C"`, "6443", "8443").Replace(policy)
	if _, err := Parse(&s, text, "x"); err != nil {
		t.Fatal(err)
	}
	s.Settle()
	got := s.Serving(netip.MustParseAddrPort("10.96.0.1:443"), 6, false)
	if len(got) != 3 || !got[0].LeadsAs(got[1]) || got[0].LeadsAs(got[2]) {
		t.Errorf("%v", got)
	}
}

// Hostile captures cost no more than their length.
func TestBounds(t *testing.T) {
	t.Run("mappings", func(t *testing.T) {
		var one []string
		for port := range 5000 {
			one = append(one, fmt.Sprintf(`{"Protocol":6,"InternalPort":1,"ExternalPort":%d}`, port+1))
		}
		var s State
		problems, err := Parse(&s, `{"ID":"A","HostComputeEndpoints":[],"PortMappings":[`+strings.Join(one, ",")+`]}`, "x")
		if err != nil || len(s.Balancers) != maxMappings || len(problems) != maxProblems {
			t.Errorf("%d mappings, %d problems, %v", len(s.Balancers), len(problems), err)
		}
	})
	t.Run("nesting", func(t *testing.T) {
		text := strings.Repeat(`{"value":[`, 3000) + policy + strings.Repeat(`]}`, 3000)
		var s State
		if _, err := Parse(&s, text, "x"); !errors.Is(err, ErrNothing) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a value without end", func(t *testing.T) {
		var s State
		text := "ID : A\nReferences : {/endpoints/E,\n" + strings.Repeat("   /endpoints/0123456789,\n", 100_000)
		_, err := Parse(&s, text, "x")
		if err != nil || len(s.Balancers) != 0 {
			t.Errorf("%v, %d load balancers", err, len(s.Balancers))
		}
	})
	t.Run("addresses", func(t *testing.T) {
		var s State
		for i := range 300 {
			text := fmt.Sprintf(`{"ID":"E","IPAddress":"10.0.%d.%d"}`, i/256, i%256)
			if _, err := Parse(&s, text, "x"); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.Endpoints[0].Addrs); n != maxAddresses {
			t.Errorf("%d addresses", n)
		}
	})
}

// Whatever a capture holds, it is read without harm and can be asked.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil || len(files) < 7 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add(policy)
	f.Add("{\n \"value\": [\n  " + policy + "\n ],\n \"Count\": 1\n}")
	f.Fuzz(func(t *testing.T, text string) {
		var s State
		problems, err := Parse(&s, text, "x")
		s.Settle()
		lines := strings.Count(text, "\n") + 1
		for _, p := range problems {
			if p.Line < 1 || p.Line > lines || p.Why == "" {
				t.Errorf("problem %+v of %d lines", p, lines)
			}
		}
		if err != nil && len(s.Balancers)+len(s.Endpoints) > 0 {
			t.Errorf("an error, and yet read: %v", err)
		}
		for i := range s.Balancers {
			b := &s.Balancers[i]
			if b.Line < 1 || b.Line > lines || b.ID == "" || b.String() == "" {
				t.Errorf("load balancer %+v of %d lines", b, lines)
			}
			for _, id := range b.Endpoints {
				if e := s.Endpoint(id); e != nil {
					b.Backend(e)
				}
			}
			dst := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 4}), b.ExternalPort)
			if len(b.VIPs) > 0 {
				dst = netip.AddrPortFrom(b.VIPs[0], b.ExternalPort)
			} else if b.IPv6 {
				dst = netip.AddrPortFrom(netip.IPv6Loopback(), b.ExternalPort)
			}
			if got := s.Serving(dst, b.Protocol, true); b.Complete() && !slices.Contains(got, b) {
				t.Errorf("%s does not serve %s", b, dst)
			}
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if s.Endpoint(e.ID) != e {
				t.Errorf("%+v is not found", e)
			}
			for _, a := range e.Addrs {
				if s.EndpointAt(a) == nil {
					t.Errorf("no endpoint at %s", a)
				}
			}
		}
	})
}
