//go:build linux

package oracle

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// The ports of the lab by which packets of these tests come in; fromNode are those of the node itself.
const (
	fromNode   = -1
	fromEth0   = 0
	fromBridge = 3
)

// seen is where a packet came out, in words: the interface and its destination, "delivered" or "dropped".
func seen(o *observation) string {
	switch {
	case len(o.left) == 1:
		return o.left[0].out + " " + o.left[0].dst.String()
	case len(o.delivered) > 0:
		return "delivered"
	}
	return "dropped"
}

// ipt is a ruleset of iptables of a few rules: "-t TABLE -A CHAIN …" each.
func ipt(fam netfilter.Family, backend netfilter.Backend, rules ...string) *ruleset {
	rs := empty(fam, backend)
	for _, r := range rules {
		f := strings.SplitN(r, " ", 5)
		c := rs.table(f[1]).chain(f[3])
		c.rules = append(c.rules, f[4])
	}
	return rs
}

// A mendedCase is one kind of packet that the kernel and the walk were once at odds about.
type mendedCase struct {
	name string
	// nft are rules of nftables, each loaded by itself, and iptables some of iptables, loaded before them.
	nft      []string
	iptables *ruleset
	// variant is a setting of the node.
	variant int
	// The packet: TCP to port 80.
	entry    int
	src, dst string
	tos, ttl uint8
	// want is where the kernel sends it. asks is the first word of the question that the walk leaves open, empty for
	// none.
	want, asks string
}

// mended sends the packet of a case and compares the kernel with what is wanted and with the walk.
func (l *lab) mended(t *testing.T, c mendedCase) {
	t.Helper()
	if err := l.use(c.variant); err != nil {
		t.Fatal(err)
	}
	load := func(text string, argv ...string) {
		t.Helper()
		if _, err := l.node.run(text, argv...); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	load("flush ruleset\n"+harness().text(true), "nft", "-f", "-")
	var rulesets []*ruleset
	if rs := c.iptables; rs != nil {
		rulesets = append(rulesets, rs)
		load(rs.text(false), program(rs.family, rs.backend, "restore"))
		if rs.backend == netfilter.Legacy {
			defer load(empty(rs.family, rs.backend).text(false), program(rs.family, rs.backend, "restore"))
		}
	}
	for _, text := range c.nft {
		load(text, "nft", "-f", "-")
	}
	if err := l.forget(); err != nil {
		t.Fatal(err)
	}
	s := l.clientShot(netfilter.IPv4)
	s.entry, s.src, s.dst, s.tos = c.entry, netip.MustParseAddr(c.src), netip.MustParseAddr(c.dst), c.tos
	if c.ttl != 0 {
		s.ttl = c.ttl
	}
	obs, err := l.fire([]shot{s})
	if err != nil {
		t.Fatal(err)
	}
	if got := seen(obs[0]); got != c.want {
		t.Errorf("the kernel: %s, want %s", got, c.want)
	}
	for _, form := range []string{"text", "json", "netlink"} {
		v := compare(l.nftAlone(t, form, rulesets...).Walk(s.packet()), obs[0], false, false)
		if _, asked := v.questions()[c.asks]; v.wrong != "" || v.random || v.decided != (c.asks == "") || !v.decided && !asked {
			t.Errorf("%s: %s: questions %v", form, v.wrong, v.questions())
			for _, e := range v.endings {
				t.Log(describe(e))
			}
		}
		if c.nft == nil {
			return
		}
	}
}

// TestBridgedBack: what a translation sends back over the bridge that it came from does not go through the IP layer. The
// checks of ip6_rcv_core and of the sources are then not made; IPv4 makes them when it looks for the route.
func TestBridgedBack(t *testing.T) {
	l := requireLab(t)
	dnat := func(to string) []string {
		family := "ip"
		if strings.Contains(to, ":") {
			family = "ip6"
		}
		return []string{oneChain("inet n", "nat hook prerouting priority dstnat", "dnat "+family+" to "+to)}
	}
	for _, c := range []mendedCase{
		{name: "::1", nft: dnat("fd44:1::3"), src: "::1", dst: "fd96::1", want: "cni0 fd44:1::3"},
		{name: "::1 by iptables", iptables: ipt(6, netfilter.Legacy, "-t nat -A PREROUTING -j DNAT --to-destination fd44:1::3"), src: "::1", dst: "fd96::1", want: "cni0 fd44:1::3"},
		{name: "::1, no forwarding", nft: dnat("fd44:1::3"), src: "::1", dst: "fd96::1", variant: 4, want: "cni0 fd44:1::3"},
		{name: "multicast source", nft: dnat("fd44:1::3"), src: "ff05::7", dst: "fd96::1", want: "cni0 fd44:1::3"},
		{name: "to ::1", nft: dnat("fd44:1::3"), src: "fd44:1::2", dst: "::1", want: "cni0 fd44:1::3"},
		{name: "::1 to another interface", nft: dnat("fd44:2::3"), src: "::1", dst: "fd96::1", want: "dropped"},
		{name: "::1 to the node", nft: dnat("fd44:1::1"), src: "::1", dst: "fd96::1", want: "dropped"},
		{name: "::1 to nowhere", nft: dnat("fd51:1::5"), src: "::1", dst: "fd96::1", want: "dropped"},
		{name: "::1 without translation", nft: []string{oneChain("inet n", "nat hook prerouting priority dstnat", "accept")}, src: "::1", dst: "fd44:1::3", want: "dropped"},
		{name: "::1 with another port only", nft: []string{oneChain("inet n", "nat hook prerouting priority dstnat", "meta l4proto tcp dnat to :8080")},
			src: "::1", dst: "fd44:1::3", want: "dropped"},
		{name: "::1 through eth0", nft: dnat("fd44:1::3"), entry: fromEth0, src: "::1", dst: "fd96::1", want: "dropped"},
		{name: "127.0.0.1", nft: dnat("10.244.1.3"), src: "127.0.0.1", dst: "10.96.0.1", want: "dropped"},
		{name: "127.0.0.1 routed", nft: dnat("10.244.1.3"), src: "127.0.0.1", dst: "10.96.0.1", variant: 3, want: "dropped"},
		{name: "127.0.0.1, no forwarding", nft: dnat("10.244.1.3"), src: "127.0.0.1", dst: "10.96.0.1", variant: 4, want: "dropped"},
		{name: "IPv4 multicast source", nft: dnat("10.244.1.3"), src: "224.0.0.9", dst: "10.96.0.1", want: "dropped"},
		{name: "IPv4 own source", nft: dnat("10.244.1.3"), src: "172.30.0.11", dst: "10.96.0.1", want: "dropped"},
	} {
		if c.name != "::1 through eth0" {
			c.entry = fromBridge
		}
		t.Run(c.name, func(t *testing.T) { l.mended(t, c) })
	}
}

// TestMarkWithoutConnection: before connection tracking, and where it is off, there is no connection that could have a
// mark. A template of a connection has one.
func TestMarkWithoutConnection(t *testing.T) {
	l := requireLab(t)
	const eth0, eth1 = "eth0 192.0.2.200", "eth1 192.0.2.200"
	route := "-t mangle -A PREROUTING -m connmark --mark 0x100/0x100 -j MARK --set-mark 0x100"
	for _, backend := range []netfilter.Backend{netfilter.Legacy, netfilter.NFT} {
		for _, c := range []struct {
			name  string
			rules []string
			want  string
		}{
			{"set behind tracking", []string{"-t mangle -A PREROUTING -j CONNMARK --set-mark 0x100", route}, eth1},
			{"set", []string{"-t raw -A PREROUTING -j CONNMARK --set-mark 0x100", route}, eth0},
			{"save", []string{"-t raw -A PREROUTING -j MARK --set-mark 0x100", "-t raw -A PREROUTING -j CONNMARK --save-mark",
				"-t raw -A PREROUTING -j MARK --set-mark 0", route}, eth0},
			{"restore", []string{"-t raw -A PREROUTING -j MARK --set-mark 0x100", "-t raw -A PREROUTING -j CONNMARK --restore-mark"}, eth1},
			{"set and restore", []string{"-t raw -A PREROUTING -j CONNMARK --set-mark 0x100", "-t raw -A PREROUTING -j CONNMARK --restore-mark"}, eth0},
			{"untracked set", []string{"-t raw -A PREROUTING -j CT --notrack", "-t mangle -A PREROUTING -j CONNMARK --set-mark 0x100",
				"-t mangle -A PREROUTING -j CONNMARK --restore-mark"}, eth0},
			{"untracked restore", []string{"-t raw -A PREROUTING -j CT --notrack", "-t mangle -A PREROUTING -j MARK --set-mark 0x100",
				"-t mangle -A PREROUTING -j CONNMARK --restore-mark"}, eth1},
			{"asked for none", []string{"-t raw -A PREROUTING -m connmark --mark 0 -j MARK --set-mark 0x100"}, eth0},
			{"asked for another", []string{"-t raw -A PREROUTING -m connmark ! --mark 1 -j MARK --set-mark 0x100"}, eth0},
			{"restore from a template", []string{"-t raw -A PREROUTING -j MARK --set-mark 0x100", "-t raw -A PREROUTING -j CT --zone 7",
				"-t raw -A PREROUTING -j CONNMARK --restore-mark"}, eth0},
			{"set on a template", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -j CONNMARK --set-mark 0x100",
				"-t raw -A PREROUTING -j CONNMARK --restore-mark"}, eth1},
			{"set on a template, behind tracking", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -j CONNMARK --set-mark 0x100", route}, eth0},
			{"asked of a template", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -m connmark ! --mark 1 -j MARK --set-mark 0x100"}, eth1},
			{"state of a template", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -m conntrack --ctstate NEW -j MARK --set-mark 0x100"}, eth1},
			{"not the state of a template", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -m conntrack ! --ctstate INVALID -j MARK --set-mark 0x100"}, eth1},
			{"protocol of a template", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -m conntrack --ctproto 6 -j MARK --set-mark 0x100"}, eth0},
			{"another protocol than that of a template", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -m conntrack ! --ctproto 6 -j MARK --set-mark 0x100"}, eth1},
			{"a template is confirmed", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -m conntrack --ctstatus CONFIRMED -j MARK --set-mark 0x100"}, eth1},
			{"original destination of a template", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -m conntrack --ctorigdst 192.0.2.200 -j MARK --set-mark 0x100"}, eth0},
			{"another original destination than that of a template", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -m conntrack ! --ctorigdst 192.0.2.200 -j MARK --set-mark 0x100"}, eth1},
			{"reply source of a template", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -m conntrack --ctreplsrc 0.0.0.0 -j MARK --set-mark 0x100"}, eth1},
			{"direction of a template", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -m conntrack --ctdir ORIGINAL -j MARK --set-mark 0x100"}, eth1},
			{"other direction of a template", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -m conntrack --ctdir REPLY -j MARK --set-mark 0x100"}, eth0},
			{"original port of a template", []string{"-t raw -A PREROUTING -j CT --zone 7", "-t raw -A PREROUTING -m conntrack --ctproto 6 --ctorigdstport 80 -j MARK --set-mark 0x100"}, eth0},
		} {
			t.Run(fmt.Sprintf("%s/%s", backend, c.name), func(t *testing.T) {
				l.mended(t, mendedCase{iptables: ipt(4, backend, c.rules...), entry: 2, src: "10.244.2.3", dst: "192.0.2.200", want: c.want})
			})
		}
	}
	route = "ct mark and 0x100 == 0x100 meta mark set 0x100"
	for _, c := range []struct {
		name       string
		raw, later []string
		want       string
	}{
		{"set", []string{"ct mark set 0x100"}, []string{route}, eth0},
		{"set behind tracking", []string{"accept"}, []string{"ct mark set 0x100", route}, eth1},
		{"save", []string{"meta mark set 0x100", "ct mark set meta mark", "meta mark set 0"}, []string{route}, eth0},
		{"restore", []string{"meta mark set 0x100", "meta mark set ct mark"}, []string{"accept"}, eth1},
		{"untracked set", []string{"notrack"}, []string{"ct mark set 0x100", "meta mark set ct mark"}, eth0},
		{"untracked restore", []string{"notrack"}, []string{"meta mark set 0x100", "meta mark set ct mark"}, eth1},
		{"asked for another", []string{"ct mark != 1 meta mark set 0x100"}, []string{"accept"}, eth0},
		{"set on a template", []string{"ct zone set 7", "ct mark set 0x100"}, []string{route}, eth0},
		{"restore from a template", []string{"ct zone set 7", "meta mark set 0x100", "meta mark set ct mark"}, []string{"accept"}, eth1},
		{"asked of a template", []string{"ct zone set 7", "ct mark != 1 meta mark set 0x100"}, []string{"accept"}, eth0},
	} {
		t.Run("nftables/"+c.name, func(t *testing.T) {
			l.mended(t, mendedCase{
				nft:   []string{oneChain("ip one", "filter hook prerouting priority -300", c.raw...), oneChain("ip two", "filter hook prerouting priority -150", c.later...)},
				entry: 2, src: "10.244.2.3", dst: "192.0.2.200", want: c.want,
			})
		})
	}
}

// TestRouteChain: a chain of type route at OUTPUT has a packet routed again when what routing looks at has changed while
// the chain itself ran, and so does the mangle table. What changed before or behind it does not count, but then has its
// say in the new route.
func TestRouteChain(t *testing.T) {
	l := requireLab(t)
	for _, fam := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		p, ip, hops := pools[fam], "ip", "TTL --ttl-set 33"
		if fam == netfilter.IPv6 {
			ip, hops = "ip6", "HL --hl-set 33"
		}
		eth0, eth1 := "eth0 "+p.external[1].String(), "eth1 "+p.external[1].String()
		byHops := eth0
		if fam == netfilter.IPv6 {
			byHops = eth1
		}
		filter := func(prio int, rules ...string) string {
			return oneChain(fmt.Sprintf("%s f%d", ip, -prio), fmt.Sprintf("filter hook output priority %d", prio), rules...)
		}
		route := func(prio int, rules ...string) string {
			return oneChain(ip+" r", fmt.Sprintf("route hook output priority %d", prio), rules...)
		}
		mark := "meta mark set 0x100"
		header := func(set string) []string { return []string{filter(-10, mark), route(-5, set)} }
		for _, c := range []mendedCase{
			{name: "mark", nft: []string{route(-5, mark)}, want: eth1},
			{name: "mark of a chain of type filter", nft: []string{filter(-5, mark)}, want: eth0},
			{name: "mark set before", nft: []string{filter(-10, mark), route(-5, "counter")}, want: eth0},
			{name: "mark set behind", nft: []string{route(-10, "counter"), filter(-5, mark)}, want: eth0},
			{name: "mark set before and added to", nft: []string{filter(-10, mark), route(-5, "meta mark set meta mark | 0x1")}, want: eth1},
			{name: "mark set and taken back", nft: []string{filter(-10, mark), route(-5, "meta mark set 0", mark)}, want: eth0},
			{name: "same priority, filter first", nft: []string{route(-5, "counter"), filter(-5, mark)}, want: eth0},
			{name: "same priority, route first", nft: []string{filter(-5, mark), route(-5, "counter")}, want: eth0},
			{name: "same priority as mangle", iptables: ipt(fam, netfilter.NFT, "-t mangle -A OUTPUT -m mark --mark 0x4000 -j ACCEPT"), nft: []string{filter(-150, mark)}, want: eth0},

			{name: "dscp", nft: header(ip + " dscp set cs1"), want: eth1, asks: "header"},
			{name: "dscp as it was", nft: header(ip + " dscp set cs1"), tos: 0x20, want: eth0, asks: "header"},
			{name: "dscp twice", nft: header(ip + " dscp set cs1 " + ip + " dscp set cs2"), tos: 0x20, want: eth1, asks: "header"},
			{name: "dscp of a chain of type filter", nft: []string{filter(-10, mark), filter(-9, ip+" dscp set cs1")}, want: eth0},
			{name: "dscp known to change", nft: []string{filter(-10, mark, ip+" dscp set cs2"), route(-5, ip+" dscp set cs1")}, tos: 0x20, want: eth1},
			{name: "dscp known to stay", nft: []string{filter(-10, mark, ip+" dscp set cs1"), route(-5, ip+" dscp set cs1")}, want: eth0},
			{name: "dscp of no matter", nft: []string{route(-5, ip+" dscp set cs1")}, want: eth0},
			{name: "ecn", nft: header(ip + " ecn set ect0"), want: eth1, asks: "header"},
			{name: "ecn known to change", nft: []string{filter(-10, mark, ip+" ecn set ce"), route(-5, ip+" ecn set ect1")}, want: eth1},
			{name: "hops", nft: header(map[string]string{"ip": "ip ttl set 33", "ip6": "ip6 hoplimit set 33"}[ip]), want: byHops, asks: map[string]string{"ip6": "header"}[ip]},

			{name: "DSCP", iptables: ipt(fam, netfilter.Legacy, "-t raw -A OUTPUT -j MARK --set-mark 0x100", "-t mangle -A OUTPUT -j DSCP --set-dscp 0x8"), want: eth1, asks: "header"},
			{name: "DSCP as it was", iptables: ipt(fam, netfilter.NFT, "-t raw -A OUTPUT -j MARK --set-mark 0x100", "-t mangle -A OUTPUT -j DSCP --set-dscp 0x8"), tos: 0x20, want: eth0, asks: "header"},
			{name: "TOS", iptables: ipt(fam, netfilter.NFT, "-t raw -A OUTPUT -j MARK --set-mark 0x100", "-t mangle -A OUTPUT -j TOS --set-tos 0x10/0x3f"), want: eth1, asks: "header"},
			{name: "TOS as it was", iptables: ipt(fam, netfilter.Legacy, "-t raw -A OUTPUT -j MARK --set-mark 0x100", "-t mangle -A OUTPUT -j TOS --set-tos 0x10/0x3f"), tos: 0x10, want: eth0, asks: "header"},
			{name: "TOS known to stay", iptables: ipt(fam, netfilter.NFT, "-t raw -A OUTPUT -j MARK --set-mark 0x100", "-t mangle -A OUTPUT -j TOS --set-tos 0x10/0x3f"),
				nft: []string{filter(-310, ip+" dscp set 4", ip+" ecn set not-ect")}, want: eth0},
			{name: "no DSCP", iptables: ipt(fam, netfilter.Legacy, "-t raw -A OUTPUT -j MARK --set-mark 0x100", "-t mangle -A OUTPUT -m mark --mark 0x200 -j DSCP --set-dscp 0x8"), want: eth0},
			{name: hops, iptables: ipt(fam, netfilter.Legacy, "-t raw -A OUTPUT -j MARK --set-mark 0x100", "-t mangle -A OUTPUT -j "+hops), want: byHops, asks: map[string]string{"ip6": "header"}[ip]},
		} {
			c.entry, c.src, c.dst = fromNode, p.node[0].String(), p.external[1].String()
			t.Run(fmt.Sprintf("IPv%d/%s", fam, c.name), func(t *testing.T) { l.mended(t, c) })
		}
	}
	for _, c := range []mendedCase{
		{name: "flow label", nft: []string{oneChain("ip6 f", "filter hook output priority -10", "meta mark set 0x100"), oneChain("ip6 r", "route hook output priority -5", "ip6 flowlabel set 5")}, want: "eth1 fd02::1:0:c8", asks: "header"},
		{name: "HL --hl-inc", iptables: ipt(6, netfilter.Legacy, "-t raw -A OUTPUT -j MARK --set-mark 0x100", "-t mangle -A OUTPUT -j HL --hl-inc 1"), want: "eth1 fd02::1:0:c8", asks: "header"},
		{name: "HL as it was", iptables: ipt(6, netfilter.Legacy, "-t raw -A OUTPUT -j MARK --set-mark 0x100", "-t mangle -A OUTPUT -j HL --hl-set 33"), ttl: 33, want: "eth0 fd02::1:0:c8", asks: "header"},
	} {
		c.entry, c.src, c.dst = fromNode, "fd30::11", "fd02::1:0:c8"
		t.Run(c.name, func(t *testing.T) { l.mended(t, c) })
	}
}

// TestAnswerInAnotherZone: an answer of the node to itself that a zone keeps from its connection begins none where it is no
// request: it comes around through lo without one, and is tracked there again, in the zone that PREROUTING says. What SNAT
// in INPUT had translated is put back then, and the answer leaves the node.
func TestAnswerInAnotherZone(t *testing.T) {
	l := requireLab(t)
	for _, fam := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		p, echo := pools[fam], uint8(netfilter.ProtoICMP)
		if fam == netfilter.IPv6 {
			echo = netfilter.ProtoICMPv6
		}
		snat := "-t nat -A INPUT -j SNAT --to-source " + p.node[1].String()
		back, dropped := "cni0 "+p.pod[0].String(), "dropped"
		if fam == netfilter.IPv4 {
			back = dropped // IPv4 takes no packet with an address of its own as the source when it looks for a route
		}
		for _, c := range []struct {
			name  string
			proto uint8
			zones []string
			want  string
		}{
			{"no zone", echo, nil, "cni0 " + p.pod[0].String()},
			{"zone of the answer", echo, []string{"-t raw -A OUTPUT -j CT --zone 7"}, back},
			{"zone of both", echo, []string{"-t raw -A OUTPUT -j CT --zone 7", "-t raw -A PREROUTING -i lo -j CT --zone 7"}, "delivered"},
			{"a request", netfilter.ProtoUDP, []string{"-t raw -A OUTPUT -j CT --zone 7"}, "delivered"},
			{"not tracked", echo, []string{"-t raw -A OUTPUT -j CT --notrack"}, "delivered"},
		} {
			t.Run(fmt.Sprintf("IPv%d/%s", fam, c.name), func(t *testing.T) {
				s := l.clientShot(fam).of(c.proto)
				s.entry, s.src, s.dst = fromBridge, p.pod[0], p.node[1]
				if c.proto == netfilter.ProtoUDP {
					s.dport = 53
				}
				res, err := l.run(&trial{family: fam, rulesets: []*ruleset{ipt(fam, netfilter.Legacy, append(c.zones, snat)...)}, shots: []shot{s}})
				if err != nil {
					t.Fatal(err)
				}
				if len(res.replies) != 1 {
					t.Fatalf("%d answers; the packet: %s, %s", len(res.replies), seen(res.obs[0]), res.verdicts[0].wrong)
				}
				if re := res.replies[0]; seen(re.seen) != c.want || re.wrong != "" {
					t.Errorf("the kernel: %s, want %s; the walk: %s %v", seen(re.seen), c.want, re.wrong, re.endings)
				}
			})
		}
	}
}
