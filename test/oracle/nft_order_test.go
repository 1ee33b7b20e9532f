//go:build linux

package oracle

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// clientShot is a new connection of a client outside to port 80 of an address, by TCP.
func (l *lab) clientShot(fam netfilter.Family) shot {
	s := shot{datagram: datagram{src: pools[fam].external[0], dst: pools[fam].service[0], proto: netfilter.ProtoTCP, sport: 40000, dport: 80, ttl: 64}, srcMAC: [6]byte{2, 0, 0, 0, 9, 0}}
	s.id = l.id()
	return s
}

// whereTo is where a packet went, in a word: "dropped", or the address that it had in the end.
func whereTo(o *observation) string {
	if len(o.left) == 1 {
		return o.left[0].dst.String()
	}
	return "dropped"
}

func whereEnds(e netfilter.Ending) string {
	if e.Verdict == netfilter.Forwarded {
		return e.Packet.Dst.String()
	}
	return verdictWords[e.Verdict]
}

// chainText is a table with one base chain.
func oneChain(table, base string, rules ...string) string {
	return fmt.Sprintf("table %s {\n\tchain c {\n\t\ttype %s; policy accept;\n\t\t%s\n\t}\n}\n", table, base, strings.Join(rules, "\n\t\t"))
}

// nftAlone is what a walk is given of the node: rules of nftables in one form, and none of iptables but those named.
func (l *lab) nftAlone(t *testing.T, form string, rulesets ...*ruleset) *netfilter.Walker {
	t.Helper()
	w, err := l.nftWalker(&nftTrial{trial: trial{rulesets: rulesets}, form: form})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestNFTEqualPriority: of base chains with the same priority at a hook the one registered last runs first. No capture
// tells which that is, so the walk must have both ways, as an assumption, and the kernel must go one of them.
func TestNFTEqualPriority(t *testing.T) {
	l := requireLab(t)
	if err := l.use(0); err != nil {
		t.Fatal(err)
	}
	vip, a, b := pools[4].service[0], pools[4].pod[0], pools[4].pod[2]
	legacy := empty(4, netfilter.Legacy)
	legacy.table("filter").chain("FORWARD").rules = []string{"-m mark --mark 0x1 -j DROP"}
	nat := empty(4, netfilter.NFT)
	nat.table("nat").chain("PREROUTING").rules = []string{fmt.Sprintf("-d %s -j DNAT --to-destination %s", vip, a)}
	type load func() error
	loadNFT := func(text string) load {
		return func() error { _, err := l.node.run(text, "nft", "-f", "-"); return err }
	}
	loadIPT := func(rs *ruleset) load {
		return func() error {
			_, err := l.node.run(rs.text(false), program(rs.family, rs.backend, "restore"))
			return err
		}
	}
	dropMarked := "meta mark 0x1 drop"
	for _, c := range []struct {
		name string
		// first and second are loaded in this order and in the other; wantSecond is where the packet goes when second
		// was loaded last and so runs first, wantFirst where it goes otherwise.
		first, second         load
		wantSecond, wantFirst string
		rulesets              []*ruleset
		entry                 int
	}{
		{name: "two tables", first: loadNFT(oneChain("ip one", "filter hook forward priority 7", "meta mark set 0x1")),
			second: loadNFT(oneChain("ip two", "filter hook forward priority 7", dropMarked)), wantSecond: vip.String(), wantFirst: "dropped"},
		{name: "families", first: loadNFT(oneChain("ip one", "filter hook prerouting priority 0", "meta mark set 0x1")),
			second: loadNFT(oneChain("inet two", "filter hook prerouting priority 0", dropMarked)), wantSecond: vip.String(), wantFirst: "dropped"},
		{name: "types", first: loadNFT(oneChain("ip one", "route hook output priority -5", "meta mark set 0x1")),
			second: loadNFT(oneChain("ip two", "filter hook output priority -5", dropMarked)), wantSecond: vip.String(), wantFirst: "dropped", entry: -1},
		{name: "nat", first: loadNFT(oneChain("ip one", "nat hook prerouting priority -90", "ip daddr "+vip.String()+" dnat to "+a.String())),
			second:     loadNFT(oneChain("inet two", "nat hook prerouting priority -90", "ip daddr "+vip.String()+" dnat ip to "+b.String())),
			wantSecond: b.String(), wantFirst: a.String()},
		{name: "the nat hook", first: loadNFT(oneChain("ip one", "nat hook prerouting priority 5", "ip daddr "+vip.String()+" dnat to "+a.String())),
			second:     loadNFT(oneChain("ip two", "filter hook prerouting priority -100", "ip daddr "+a.String()+" drop")),
			wantSecond: a.String(), wantFirst: "dropped"},
		{name: "connection tracking", first: loadNFT("table ip one {\n\tchain c {\n\t\tct state new\n\t}\n}\n"),
			second:     loadNFT(oneChain("ip two", "filter hook prerouting priority -200", "meta mark set 0x1 ct state new drop")),
			wantSecond: vip.String(), wantFirst: "dropped"},
		{name: "iptables-nft nat", first: loadIPT(nat), second: loadNFT(oneChain("ip two", "nat hook prerouting priority dstnat", "ip daddr "+vip.String()+" dnat to "+b.String())),
			wantSecond: b.String(), wantFirst: a.String(), rulesets: []*ruleset{nat}},
		{name: "iptables-legacy filter", first: loadIPT(legacy), second: loadNFT(oneChain("ip two", "filter hook forward priority filter", "meta mark set 0x1")),
			wantSecond: "dropped", rulesets: []*ruleset{legacy}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, order := range []struct {
				loads []load
				want  string
			}{{[]load{c.first, c.second}, c.wantSecond}, {[]load{c.second, c.first}, c.wantFirst}} {
				if order.want == "" {
					continue // legacy tables are registered once, and then stay
				}
				if _, err := l.node.run("flush ruleset", "nft", "-f", "-"); err != nil {
					t.Fatal(err)
				}
				for _, f := range order.loads {
					if err := f(); err != nil {
						t.Fatal(err)
					}
				}
				if err := l.forget(); err != nil {
					t.Fatal(err)
				}
				s := l.clientShot(4)
				if c.entry < 0 {
					s.entry, s.src = -1, pools[4].node[0]
				}
				obs, err := l.fire([]shot{s})
				if err != nil {
					t.Fatal(err)
				}
				got := whereTo(obs[0])
				if got != order.want {
					t.Errorf("the kernel: %s, want %s: the chain registered last does not run first", got, order.want)
				}
				for _, form := range []string{"text", "json", "netlink"} {
					w := l.nftAlone(t, form, c.rulesets...)
					var ends []string
					for _, e := range w.Walk(s.packet()) {
						ends = append(ends, whereEnds(e))
						if !slices.ContainsFunc(e.Assumed, func(a netfilter.Assumption) bool { return strings.HasPrefix(a.Fact.Key, "order") }) {
							t.Errorf("%s: an ending assumes no order: %s", form, describe(e))
						}
					}
					if !slices.Contains(ends, got) || len(ends) != 2 || ends[0] == ends[1] {
						t.Errorf("%s: the walk ends in %v, the kernel in %s", form, ends, got)
					}
				}
			}
			if slices.Contains(c.rulesets, legacy) {
				if err := loadIPT(empty(4, netfilter.Legacy))(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestNFTNatHook: all nat chains of a hook run inside of the one nat hook, at its priority whatever their own are, and by
// their own priority among themselves. The first that binds a translation ends it; accept ends its chain only.
func TestNFTNatHook(t *testing.T) {
	l := requireLab(t)
	if err := l.use(0); err != nil {
		t.Fatal(err)
	}
	for _, fam := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		p, ip := pools[fam], fmt.Sprintf("ip%s", map[netfilter.Family]string{netfilter.IPv6: "6"}[fam])
		vip, a, b, client, node := p.service[0].String(), p.pod[0].String(), p.pod[2].String(), p.external[0].String(), p.node[1].String()
		dnat := func(to string) string { return fmt.Sprintf("%s daddr %s dnat %s to %s", ip, vip, ip, to) }
		ipt := empty(fam, netfilter.NFT)
		ipt.table("nat").chain("PREROUTING").rules = []string{fmt.Sprintf("-d %s -j DNAT --to-destination %s", vip, a)}
		for _, c := range []struct {
			name   string
			texts  []string
			want   string
			beside *ruleset
		}{
			{name: "late nat chain, filter sees the new destination", want: "dropped", texts: []string{
				oneChain("inet n", "nat hook prerouting priority 300", dnat(a)), oneChain("inet f", "filter hook prerouting priority 0", ip+" daddr "+a+" drop")}},
			{name: "early nat chain, filter before the hook sees the old destination", want: "dropped", texts: []string{
				oneChain("inet n", "nat hook prerouting priority -190", dnat(a)), oneChain("inet f", "filter hook prerouting priority -101", ip+" daddr "+vip+" drop")}},
			{name: "early nat chain, filter before the hook does not see the new destination", want: a, texts: []string{
				oneChain("inet n", "nat hook prerouting priority -190", dnat(a)), oneChain("inet f", "filter hook prerouting priority -101", ip+" daddr "+a+" drop")}},
			{name: "by priority", want: b, texts: []string{
				oneChain("inet n", "nat hook prerouting priority -90", dnat(a)), oneChain(ip+" m", "nat hook prerouting priority -91", dnat(b))}},
			{name: "by priority, loaded the other way round", want: b, texts: []string{
				oneChain(ip+" m", "nat hook prerouting priority -91", dnat(b)), oneChain("inet n", "nat hook prerouting priority -90", dnat(a))}},
			{name: "accept ends its own chain only", want: a, texts: []string{
				oneChain("inet n", "nat hook prerouting priority -90", dnat(a)), oneChain(ip+" m", "nat hook prerouting priority -91", "accept", dnat(b))}},
			{name: "a translation to itself binds", want: vip, texts: []string{
				oneChain("inet n", "nat hook prerouting priority -90", dnat(a)), oneChain(ip+" m", "nat hook prerouting priority -91", dnat(vip))}},
			{name: "before iptables", want: b, beside: ipt, texts: []string{oneChain(ip+" m", "nat hook prerouting priority -101", dnat(b))}},
			{name: "behind iptables", want: a, beside: ipt, texts: []string{oneChain(ip+" m", "nat hook prerouting priority -99", dnat(b))}},
			{name: "filter before the source is translated", want: "dropped", texts: []string{
				oneChain("inet n", "nat hook postrouting priority -50", "snat "+ip+" to "+node), oneChain("inet f", "filter hook postrouting priority 99", ip+" saddr "+client+" drop")}},
			{name: "filter behind the translation of the source", want: "dropped", texts: []string{
				oneChain("inet n", "nat hook postrouting priority 300", "snat "+ip+" to "+node), oneChain("inet f", "filter hook postrouting priority 101", ip+" saddr "+node+" drop")}},
			{name: "filter behind the translation does not see the client", want: vip, texts: []string{
				oneChain("inet n", "nat hook postrouting priority 300", "snat "+ip+" to "+node), oneChain("inet f", "filter hook postrouting priority 101", ip+" saddr "+client+" drop")}},
		} {
			t.Run(fmt.Sprintf("IPv%d/%s", fam, c.name), func(t *testing.T) {
				if _, err := l.node.run("flush ruleset", "nft", "-f", "-"); err != nil {
					t.Fatal(err)
				}
				var rulesets []*ruleset
				if c.beside != nil {
					rulesets = append(rulesets, c.beside)
					if _, err := l.node.run(c.beside.text(false), program(fam, netfilter.NFT, "restore")); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := l.node.run(harness().text(true)+strings.Join(c.texts, ""), "nft", "-f", "-"); err != nil {
					t.Fatal(err)
				}
				if err := l.forget(); err != nil {
					t.Fatal(err)
				}
				s := l.clientShot(fam)
				obs, err := l.fire([]shot{s})
				if err != nil {
					t.Fatal(err)
				}
				if got := whereTo(obs[0]); got != c.want {
					t.Errorf("the kernel: %s, want %s", got, c.want)
				}
				for _, form := range []string{"text", "json", "netlink"} {
					v := compare(l.nftAlone(t, form, rulesets...).Walk(s.packet()), obs[0], false, false)
					if v.wrong != "" || !v.decided || v.random {
						t.Errorf("%s: %s: %v", form, v.wrong, v.endings)
					}
				}
			})
		}
	}
}
