package check

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/traits"
)

// nftNode is a node in nftables mode with the tables of a text.
func nftNode(t *testing.T, text string, ports ...*intent.ServicePort) *Node {
	t.Helper()
	rs, err := nft.ParseText(text, "nft.txt")
	if err != nil || len(rs.Problems) > 0 {
		t.Fatalf("%v, %v", err, rs.Problems)
	}
	return &Node{
		NFT: []*nft.Ruleset{rs}, Plan: &intent.Plan{Ports: ports}, Answers: map[Source]string{},
		Proxy: traits.Proxy{Mode: "nftables", Version: traits.Version{Major: 1, Minor: 36}},
	}
}

// stickyTable is a table with one Service that asks for session affinity, as kube-proxy 1.36 writes it.
const stickyTable = `table ip kube-proxy {
	set affinity-25BMXBJX-store/sticky/tcp/web__10.244.1.20/8080 {
		type ipv4_addr
		size 65535
		flags dynamic,timeout
		timeout 10m
	}

	chain endpoint-25BMXBJX-store/sticky/tcp/web__10.244.1.20/8080 {
		update @affinity-25BMXBJX-store/sticky/tcp/web__10.244.1.20/8080 { ip saddr }
		meta l4proto tcp dnat to 10.244.1.20:8080
	}

	chain service-WRSL62MS-store/sticky/tcp/web {
		ip saddr @affinity-25BMXBJX-store/sticky/tcp/web__10.244.1.20/8080 goto endpoint-25BMXBJX-store/sticky/tcp/web__10.244.1.20/8080
		numgen random mod 1 vmap { 0 : goto endpoint-25BMXBJX-store/sticky/tcp/web__10.244.1.20/8080 }
	}
}
`

func TestNFTAffinity(t *testing.T) {
	const endpoint = "store/sticky/tcp/web__10.244.1.20/8080"
	const (
		update = "\t\tupdate @affinity-25BMXBJX-" + endpoint + " { ip saddr }\n"
		dnat   = "\t\tmeta l4proto tcp dnat to 10.244.1.20:8080\n"
		keep   = "\t\tip saddr @affinity-25BMXBJX-" + endpoint + " goto endpoint-25BMXBJX-" + endpoint + "\n"
		choice = "\t\tnumgen random mod 1 vmap { 0 : goto endpoint-25BMXBJX-" + endpoint + " }\n"
	)
	for _, tt := range []struct {
		name, old, now string
		got            string // of the finding; empty for none
	}{
		{"as it should be", "", "", ""},
		{"another time", "timeout 10m", "timeout 30s", "30 s"},
		{"nothing remembers", update, "", "never remembered"},
		{"remembered behind the translation", update + dnat, dnat + update, "never remembered"},
		{"the other end is remembered", "{ ip saddr }", "{ ip daddr }", "never remembered"},
		{"nobody is sent back", keep, "", "none"},
		{"sent back behind the choice", keep + choice, choice + keep, "none"},
		{"sent back by the other end", "ip saddr @affinity", "ip daddr @affinity", "none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(stickyTable, tt.old) {
				t.Fatalf("the table has no %q", tt.old)
			}
			sp := &intent.ServicePort{Namespace: "store", Name: "sticky", PortName: "web", Protocol: "TCP", Family: 4, AffinitySeconds: 600}
			p := &Port{ServicePort: sp, On: nftNode(t, strings.Replace(stickyTable, tt.old, tt.now, 1), sp)}
			f, ok := p.nftAffinity()
			if ok != (tt.got != "") || f.Got != tt.got {
				t.Errorf("found %t, got %q, want %q: %s", ok, f.Got, tt.got, f.Message)
			}
		})
	}
}

func TestNFTBases(t *testing.T) {
	const table = `table ip kube-proxy {
	chain nat-prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}

	chain filter-output {
		type filter hook output priority filter; policy accept;
		ct state new jump service-endpoints-check
		ct state new jump cluster-ips-check
	}

	chain services {
	}

	chain service-endpoints-check {
	}

	chain cluster-ips-check {
	}
}
`
	for _, tt := range []struct {
		name, old, now string
		want           []string
	}{
		{"as it should be", "", "", nil},
		{"before connection tracking", "output priority filter", "output priority -310",
			[]string{"warning ip kube-proxy filter-output: type filter hook output priority -310 policy accept"}},
		{"at another hook", "hook prerouting priority dstnat", "hook input priority -100",
			[]string{"warning ip kube-proxy nat-prerouting: type nat hook input priority -100 policy accept"}},
		{"policy drop", "priority filter; policy accept", "priority filter; policy drop",
			[]string{"ip kube-proxy filter-output: type filter hook output priority 0 policy drop"}},
		{"no base chain", "\t\ttype nat hook prerouting priority dstnat; policy accept;\n", "",
			[]string{"ip kube-proxy nat-prerouting: no base chain"}},
		{"dormant", "table ip kube-proxy {\n", "table ip kube-proxy {\n\tflags dormant\n",
			[]string{"ip kube-proxy: flags dormant"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(table, tt.old) {
				t.Fatalf("the table has no %q", tt.old)
			}
			var got []string
			for _, f := range nftNode(t, strings.Replace(table, tt.old, tt.now, 1)).nftUnreached() {
				if strings.Contains(f.Message, "lacks the rule") {
					continue // the table here is none of a whole kube-proxy
				}
				got = append(got, strings.TrimSpace(f.Severity+" "+f.Subject+": "+f.Got))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestNFTStockBases(t *testing.T) {
	for minor, want := range map[int]int{29: 3, 31: 3, 33: 3, 34: 8, 36: 8} {
		p := traits.Proxy{Version: traits.Version{Major: 1, Minor: minor}}
		if got := len(dataplane.NFTStockBases(p.Within)); got != want {
			t.Errorf("1.%d: %d base chains, want %d", minor, got, want)
		}
	}
	unknown := traits.Proxy{}
	if got := len(dataplane.NFTStockBases(unknown.Within)); got != 3 {
		t.Errorf("of a version that is not known: %d base chains, want those that all have", got)
	}
}

// TestNFTStrange changes rules in the chains that all Services share.
func TestNFTStrange(t *testing.T) {
	const table = `table ip6 kube-proxy {
	set cluster-ips {
		type ipv6_addr
	}

	map service-ips {
		type ipv6_addr . inet_proto . inet_service : verdict
	}

	chain services {
		ip6 daddr @cluster-ips ip6 saddr != { fd00:244::/32, fd00:245::/32 } meta mark set meta mark | 0x00004000 comment "masquerade clusterIP traffic from outside cluster"
		ip6 daddr . meta l4proto . th dport vmap @service-ips
	}

	chain masquerading {
		meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random
	}

	chain cluster-ips-check {
		ip6 daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"
		ip6 daddr fd00:96::/112 drop comment "Drop traffic to unallocated ClusterIPs"
	}
}
`
	for _, tt := range []struct{ name, old, now, want string }{
		{"as it should be", "", "", ""},
		{"the other end is tested", "ip6 daddr . meta", "ip6 saddr . meta", "ip6 saddr . meta l4proto . th dport vmap @service-ips"},
		{"the range itself", "ip6 saddr != {", "ip6 saddr {",
			`ip6 daddr @cluster-ips ip6 saddr { fd00:244::/32, fd00:245::/32 } meta mark set meta mark | 0x00004000 comment "masquerade clusterIP traffic from outside cluster"`},
		{"another mark", "mark ^ 0x00004000", "mark ^ 0x00008000",
			"meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00008000 masquerade fully-random"},
		{"a rule more", "\tchain cluster-ips-check {\n", "\tchain cluster-ips-check {\n\t\taccept\n", "accept"},
		{"accepted and not refused", "@cluster-ips reject", "@cluster-ips accept",
			`ip6 daddr @cluster-ips accept comment "Reject traffic to invalid ports of ClusterIPs"`},
		{"a chain of somebody's own", "\tchain cluster-ips-check {\n", "\tchain mine {\n\t\taccept\n\t}\n\n\tchain cluster-ips-check {\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(table, tt.old) {
				t.Fatalf("the table has no %q", tt.old)
			}
			n := nftNode(t, strings.Replace(table, tt.old, tt.now, 1))
			n.Proxy.MasqueradeMark = 0x4000
			got := ""
			for _, f := range n.nftStrange(n.NFT[0], n.NFT[0].Tables[0]) {
				got += f.Got
			}
			if got != tt.want {
				t.Errorf("strange is %q, want %q", got, tt.want)
			}
		})
	}
}
