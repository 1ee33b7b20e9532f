package netfilter

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/nft"
)

// nftNode is a node with a bridge for pods, eth0 to the outside, and a route for everything.
func nftNode(t *testing.T, rules string) *Walker {
	t.Helper()
	h := &host.Host{}
	read := func(parse func(*host.Host, string, string) ([]host.Problem, error), text string) {
		t.Helper()
		if problems, err := parse(h, text, "node"); err != nil || len(problems) > 0 {
			t.Fatal(err, problems)
		}
	}
	read(host.ParseAddrs, "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 state UNKNOWN\n    inet 127.0.0.1/8 scope host lo\n"+
		"2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 state UP\n    inet 172.30.0.11/24 brd 172.30.0.255 scope global eth0\n    inet6 fd00:30::11/64 scope global\n"+
		"3: cni0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 state UP\n    inet 10.244.1.1/24 brd 10.244.1.255 scope global cni0\n    inet6 fd00:244:1::1/64 scope global\n")
	read(host.ParseLinks, "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536\n2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500\n3: cni0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500\n    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff\n    bridge forward_delay 1500\n")
	for family, text := range map[int]string{
		4: "default via 172.30.0.1 dev eth0\n10.244.1.0/24 dev cni0 proto kernel scope link src 10.244.1.1\n172.30.0.0/24 dev eth0 proto kernel scope link src 172.30.0.11\n" +
			"local 10.244.1.1 dev cni0 table local proto kernel scope host src 10.244.1.1\nlocal 172.30.0.11 dev eth0 table local proto kernel scope host src 172.30.0.11\n" +
			"broadcast 172.30.0.255 dev eth0 table local proto kernel scope link src 172.30.0.11\nlocal 127.0.0.0/8 dev lo table local proto kernel scope host src 127.0.0.1\n",
		6: "default via fd00:30::1 dev eth0 metric 1024\nfd00:244:1::/64 dev cni0 proto kernel metric 256\nfd00:30::/64 dev eth0 proto kernel metric 256\nlocal fd00:30::11 dev eth0 table local proto kernel metric 0\n",
	} {
		if problems, err := host.ParseRoutes(h, family, text, "node"); err != nil || len(problems) > 0 {
			t.Fatal(err, problems)
		}
	}
	read(host.ParseSysctls, "net.ipv4.ip_forward = 1\nnet.ipv4.conf.all.forwarding = 1\nnet.ipv6.conf.all.forwarding = 1\nnet.ipv4.conf.all.rp_filter = 0\nnet.ipv4.conf.eth0.rp_filter = 0\nnet.ipv4.conf.cni0.rp_filter = 0\n")
	rs, err := nft.ParseText(rules, "nft.txt")
	if err != nil || len(rs.Problems) > 0 {
		t.Fatal(err, rs)
	}
	return &Walker{NFT: []*nft.Ruleset{rs}, Kernel: &Kernel{Host: h}}
}

// nftOutcomes are the endings of a packet in one line each: share, verdict, where it fell, destination, mark, conditions.
func nftOutcomes(endings []Ending) []string {
	var out []string
	for _, e := range endings {
		s := fmt.Sprintf("%.3g %s", e.P, [...]string{"delivered", "forwarded", "dropped", "rejected", "no route", "martian", "stolen", "unknown"}[e.Verdict])
		if e.Table != "" {
			s += " by " + e.Table + " " + e.Chain
		}
		s += fmt.Sprintf(" to %s mark %#x", netip.AddrPortFrom(e.Packet.Dst, e.Packet.DstPort), e.Packet.Mark)
		if e.Packet.SNATed {
			s += " masqueraded"
		}
		for _, a := range e.Assumed {
			s += fmt.Sprintf(" if %s=%t", a.Fact.Key, a.Answer)
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// TestNFTWalk holds walks through rulesets of nftables against what the kernel was seen to do with the same packet.
func TestNFTWalk(t *testing.T) {
	pod := func(dst string, port uint16) Packet {
		a := netip.MustParseAddr(dst)
		p := Packet{Family: FamilyOf(a), Src: netip.MustParseAddr("10.244.1.10"), Dst: a, Proto: ProtoTCP, DstPort: port, In: Iface{Name: "cni0", Known: true}}
		if p.Family == IPv6 {
			p.Src = netip.MustParseAddr("fd00:244:1::a")
		}
		return p
	}
	for _, c := range []struct {
		name, rules string
		packet      Packet
		want        []string
	}{
		{"a verdict map and a numgen map", `table ip t {
	map services {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.10 . tcp . 80 : goto web }
	}
	chain n {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr . meta l4proto . th dport vmap @services
	}
	chain web {
		meta l4proto tcp dnat ip to numgen random mod 4 map { 0 : 10.244.1.20 . 8080, 1 : 10.244.1.20 . 8080, 2 : 10.244.1.21 . 8080, 3 : 10.244.1.22 . 8080 }
	}
}
`, pod("10.96.0.10", 80), []string{
			"0.25 forwarded to 10.244.1.21:8080 mark 0x0", "0.25 forwarded to 10.244.1.22:8080 mark 0x0", "0.5 forwarded to 10.244.1.20:8080 mark 0x0",
		}},
		{"the nat hook ends with the first translation", `table ip a {
	chain n {
		type nat hook prerouting priority -90; policy accept;
		ip daddr 10.96.0.10 dnat to 10.244.1.21
	}
}
table inet b {
	chain n {
		type nat hook prerouting priority -110; policy accept;
		ip daddr 10.96.0.10 dnat ip to 10.244.1.20
	}
}
`, pod("10.96.0.10", 80), []string{"1 forwarded to 10.244.1.20:80 mark 0x0"}},
		{"equal priority: the order is not known", `table ip a {
	chain n {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr 10.96.0.10 dnat to 10.244.1.21
	}
}
table ip b {
	chain n {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr 10.96.0.10 dnat to 10.244.1.20
	}
}
`, pod("10.96.0.10", 80), []string{
			"1 forwarded to 10.244.1.20:80 mark 0x0 if order PREROUTING the rules of table ip a the rules of table ip b=false",
			"1 forwarded to 10.244.1.21:80 mark 0x0 if order PREROUTING the rules of table ip a the rules of table ip b=true",
		}},
		{"accept ends its own base chain only", `table inet a {
	chain f {
		type filter hook forward priority 0; policy accept;
		tcp dport 80 accept
	}
	chain g {
		type filter hook forward priority 10; policy drop;
		tcp dport 443 accept
	}
}
`, pod("10.244.2.3", 80), []string{"1 dropped by inet a g(policy) to 10.244.2.3:80 mark 0x0"}},
		{"interfaces by number", `table inet a {
	chain f {
		type filter hook forward priority 0; policy accept;
		oif "eth0" meta mark set meta mark | 0x1
		iif { "cni0", "lo" } meta mark set meta mark | 0x2
		iifname "cni*" meta mark set meta mark | 0x4
		oifname != "eth0" meta mark set meta mark | 0x8
	}
}
`, pod("10.244.2.3", 80), []string{"1 forwarded to 10.244.2.3:80 mark 0x7"}},
		{"!= compares the whole status, of which not all bits are known", `table ip a {
	chain n {
		type nat hook prerouting priority dstnat; policy accept;
		dnat to 10.244.2.3
	}
	chain p {
		type filter hook postrouting priority 0; policy accept;
		ct status != dnat meta mark set meta mark | 0x1
		ct status dnat meta mark set meta mark | 0x2
	}
}
`, pod("10.96.0.10", 80), []string{
			"1 forwarded to 10.244.2.3:80 mark 0x2 if nft ip a p 0 0 10.244.1.10 10.244.2.3=false",
			"1 forwarded to 10.244.2.3:80 mark 0x3 if nft ip a p 0 0 10.244.1.10 10.244.2.3=true",
		}},
		{"a field of a header that is not there ends the rule", `table inet a {
	chain f {
		type filter hook forward priority 99; policy accept;
		ip6 dscp set cs1 return
		meta mark set 0x100
	}
}
`, pod("10.244.2.3", 80), []string{"1 forwarded to 10.244.2.3:80 mark 0x100"}},
		{"a map that the walk has added to", `table inet t {
	map marks {
		type ipv4_addr : mark
		size 65535
		flags dynamic
	}
	chain a {
		type filter hook forward priority -310; policy accept;
		add @marks { ip saddr : 0x00000100 }
	}
	chain b {
		type filter hook forward priority -110; policy accept;
		meta mark set ip saddr map @marks
	}
}
`, pod("10.244.2.3", 80), []string{"1 forwarded to 10.244.2.3:80 mark 0x100"}},
		{"a broadcast address of another interface is a unicast one", `table inet t {
	chain i {
		type filter hook prerouting priority 0; policy accept;
		fib daddr . iif type broadcast meta mark set 0x1
		fib daddr type broadcast meta mark set meta mark | 0x2
	}
}
`, pod("172.30.0.255", 80), []string{"1 delivered to 172.30.0.255:80 mark 0x2"}},
		{"a packet that goes back to its bridge has come in nowhere", `table ip t {
	chain n {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr 10.96.0.10 dnat to 10.244.1.20
	}
	chain p {
		type filter hook postrouting priority 150; policy accept;
		iifname { "cni0", "lo" } meta mark set 0x1
		iifname "" meta mark set 0x2
	}
}
`, pod("10.96.0.10", 80), []string{"1 forwarded to 10.244.1.20:80 mark 0x2"}},
		{"notrack leaves nothing to translate", `table inet t {
	chain r {
		type filter hook prerouting priority raw; policy accept;
		ip daddr 10.96.0.10 notrack
	}
	chain n {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr 10.96.0.10 dnat ip to 10.244.1.20
	}
}
`, pod("10.96.0.10", 80), []string{"1 forwarded to 10.96.0.10:80 mark 0x0"}},
		{"masquerading by mark", `table ip t {
	chain n {
		type nat hook prerouting priority dstnat; policy accept;
		ip saddr != 10.244.0.0/16 meta mark set meta mark | 0x4000
		ip saddr 10.244.1.0/28 meta mark set meta mark | 0x4000 dnat to 172.30.0.99
	}
	chain p {
		type nat hook postrouting priority srcnat; policy accept;
		meta mark & 0x4000 != 0x0 meta mark set meta mark ^ 0x4000 masquerade fully-random
	}
}
`, pod("10.96.0.10", 80), []string{"1 forwarded to 172.30.0.99:80 mark 0x0 masqueraded"}},
		{"a rate limit leaves both ways open", `table inet t {
	chain f {
		type filter hook forward priority 0; policy accept;
		limit rate over 10/second drop
	}
}
`, pod("10.244.2.3", 80), []string{
			"1 dropped by inet t f to 10.244.2.3:80 mark 0x0 if limit inet t f 0 0=false", "1 forwarded to 10.244.2.3:80 mark 0x0 if limit inet t f 0 0=true",
		}},
		{"IPv6 does not meet tables of IPv4", `table ip t {
	chain f {
		type filter hook forward priority 0; policy drop;
	}
}
table inet u {
	chain f {
		type filter hook forward priority 0; policy accept;
		meta nfproto ipv4 drop
		ip6 daddr fd00:244::/32 tcp dport { 80, 443 } reject with tcp reset
	}
}
`, pod("fd00:244:2::3", 443), []string{"1 rejected by inet u f to [fd00:244:2::3]:443 mark 0x0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := nftOutcomes(nftNode(t, c.rules).Walk(FromInterface, c.packet))
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
			}
		})
	}
}

// TestNFTBesideIPTables: tables that iptables-nft keeps count once, as those of iptables.
func TestNFTBesideIPTables(t *testing.T) {
	w := nftNode(t, `table ip filter {
	chain FORWARD {
		type filter hook forward priority filter; policy accept;
		tcp dport 80 drop
	}
}
`)
	p := Packet{Family: IPv4, Src: netip.MustParseAddr("10.244.1.10"), Dst: netip.MustParseAddr("10.244.2.3"), Proto: ProtoTCP, DstPort: 80, In: Iface{Name: "cni0", Known: true}}
	if got := nftOutcomes(w.Walk(FromInterface, p)); !slices.Equal(got, []string{"1 dropped by ip filter FORWARD to 10.244.2.3:80 mark 0x0"}) {
		t.Errorf("alone: %q", got)
	}
	rs, err := ParseSave("*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p tcp -m tcp --dport 443 -j DROP\nCOMMIT\n", "iptables-nft-save.txt", Hint{Family: IPv4, Backend: NFT})
	if err != nil {
		t.Fatal(err)
	}
	w.Rulesets = rs
	if got := nftOutcomes(w.Walk(FromInterface, p)); !slices.Equal(got, []string{"1 forwarded to 10.244.2.3:80 mark 0x0"}) {
		t.Errorf("beside iptables-save: %q", got)
	}
}
