//go:build linux

package oracle

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// serviceRules draws a ruleset of the shape that kube-proxy writes in iptables mode: dispatch by destination, a
// chain per service, the statistic ladder over the endpoints, masquerading by mark, node ports behind addrtype.
func serviceRules(r *rand.Rand, fam netfilter.Family, backend netfilter.Backend) *ruleset {
	rs := empty(fam, backend)
	p := pools[fam]
	nat, filter := rs.table("nat"), rs.table("filter")
	add := func(t *tableText, chain, format string, args ...any) {
		c := t.chain(chain)
		c.rules = append(c.rules, fmt.Sprintf(format, args...))
	}
	one := func(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }
	cluster := p.nets[1]
	for _, base := range []string{"PREROUTING", "OUTPUT"} {
		add(nat, base, `-m comment --comment "kubernetes service portals" -j KUBE-SERVICES`)
	}
	add(nat, "POSTROUTING", `-m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`)
	add(nat, "KUBE-POSTROUTING", "-m mark ! --mark 0x4000/0x4000 -j RETURN")
	add(nat, "KUBE-POSTROUTING", "-j MARK --xor-mark 0x4000")
	add(nat, "KUBE-POSTROUTING", "-j MASQUERADE%s", pick(r, []string{"", " --random-fully"}))
	add(nat, "KUBE-MARK-MASQ", "-j MARK --or-mark 0x4000")
	for _, base := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		add(filter, base, "-m conntrack --ctstate NEW -j KUBE-SERVICES")
		add(filter, base, "-j KUBE-FIREWALL")
	}
	add(filter, "FORWARD", "-j KUBE-FORWARD")
	add(filter, "KUBE-FORWARD", "-m conntrack --ctstate INVALID -j DROP")
	add(filter, "KUBE-FORWARD", "-m mark --mark 0x4000/0x4000 -j ACCEPT")
	add(filter, "KUBE-FORWARD", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	add(filter, "KUBE-FIREWALL", "-m mark --mark 0x8000/0x8000 -j DROP")
	if chance(r, 0.5) {
		filter.chain("FORWARD").policy = "DROP"
	}
	filter.chain("KUBE-SERVICES")
	for i, vip := range p.service {
		proto, port := pick(r, []string{"tcp", "udp", "sctp"}), pick(r, portPool[:4])
		if chance(r, 0.6) {
			proto = "tcp"
		}
		at := fmt.Sprintf("-p %s -m comment --comment \"ns/svc%d:p\" -m %s --dport", proto, i, proto)
		backends := r.IntN(5)
		if backends == 0 {
			add(filter, "KUBE-SERVICES", "-d %s %s %d -j REJECT", one(vip), at, port)
			continue
		}
		svc, ext := fmt.Sprintf("KUBE-SVC-%d", i), fmt.Sprintf("KUBE-EXT-%d", i)
		add(nat, "KUBE-SERVICES", "-d %s %s %d -j %s", one(vip), at, port, svc)
		if chance(r, 0.6) {
			lb := pick(r, p.external)
			add(nat, "KUBE-SERVICES", "-d %s %s %d -j %s", one(lb), at, port, ext)
		}
		if chance(r, 0.6) {
			add(nat, "KUBE-NODEPORTS", "%s %d -j %s", at, portPool[4+r.IntN(2)], ext)
		}
		local := chance(r, 0.3)
		if local {
			add(nat, ext, "-s %s -j %s", cluster, svc)
			add(nat, ext, "-m addrtype --src-type LOCAL -j KUBE-MARK-MASQ")
			add(nat, ext, "-m addrtype --src-type LOCAL -j %s", svc)
		} else {
			add(nat, ext, "-j KUBE-MARK-MASQ")
			add(nat, ext, "-j %s", svc)
		}
		if chance(r, 0.7) {
			add(nat, svc, "! -s %s -d %s %s %d -j KUBE-MARK-MASQ", cluster, one(vip), at, port)
		}
		for j := range backends {
			pod := p.pod[(i+j)%len(p.pod)]
			sep := fmt.Sprintf("KUBE-SEP-%d-%d", i, j)
			ladder := ""
			if left := backends - j; left > 1 {
				ladder = fmt.Sprintf("-m statistic --mode random --probability %.11f ", 1/float64(left))
			}
			add(nat, svc, "%s-j %s", ladder, sep)
			add(nat, sep, "-s %s -j KUBE-MARK-MASQ", one(pod))
			add(nat, sep, "-p %s -m %s -j DNAT --to-destination %s", proto, proto, netip.AddrPortFrom(pod, 8080))
			if local && j == 0 {
				add(nat, ext, "-j %s", sep)
			}
		}
	}
	nat.chain("KUBE-NODEPORTS")
	add(nat, "KUBE-SERVICES", `-m comment --comment "must be last" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`)
	for _, t := range rs.tables {
		for _, c := range t.chains {
			for i := range c.rules {
				c.rules[i] = strings.TrimSpace(c.rules[i])
			}
		}
	}
	return rs
}
