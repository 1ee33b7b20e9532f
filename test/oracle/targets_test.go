//go:build linux

package oracle

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// A targetKind draws one target with its options.
type targetKind struct {
	name   string
	weight int
	protos []uint8
	family netfilter.Family
	hooks  hookSet
	tables string
	// open is set for targets whose outcome a walk cannot be told.
	open bool
	// tests must stand in the rule for the target to load.
	tests string
	args  func(s *slot) string
}

var (
	tcpOnly  = []uint8{netfilter.ProtoTCP}
	natPorts = []uint8{netfilter.ProtoTCP, netfilter.ProtoUDP, netfilter.ProtoSCTP}
)

func plain(*slot) string { return "" }

// targetKinds are the targets in the order of their names. A kind may stand several times, for its variants.
var targetKinds = []targetKind{
	{name: "ACCEPT", weight: 8, args: plain},
	{name: "AUDIT", weight: 1, args: func(s *slot) string { return "--type accept" }},
	{name: "CHECKSUM", weight: 1, tables: "mangle", protos: []uint8{netfilter.ProtoUDP}, args: func(s *slot) string { return "--checksum-fill" }},
	{name: "CLASSIFY", weight: 1, tables: "mangle", hooks: fwd | out | post, args: func(s *slot) string { return "--set-class 1:1" }},
	{name: "CONNMARK", weight: 5, args: func(s *slot) string {
		m := pick(s.r, markPool)
		return pick(s.r, []string{
			fmt.Sprintf("--set-xmark %#x/%#x", m, m), fmt.Sprintf("--set-mark %#x", m), "--save-mark", "--restore-mark",
			fmt.Sprintf("--restore-mark --nfmask %#x --ctmask %#x", m, m), fmt.Sprintf("--save-mark --nfmask %#x --ctmask %#x", m, m),
			fmt.Sprintf("--and-mark %#x", m), fmt.Sprintf("--or-mark %#x", m), fmt.Sprintf("--xor-mark %#x", m),
		})
	}},
	{name: "CT", weight: 2, tables: "raw", args: func(s *slot) string { return "--notrack" }},
	{name: "CT", weight: 1, tables: "raw", args: func(s *slot) string { return "--zone 7" }},
	{name: "DNAT", weight: 10, tables: "nat", hooks: pre | out, args: func(s *slot) string { return "--to-destination " + s.pool.backend(s.r).String() }},
	{name: "DNAT", weight: 20, tables: "nat", hooks: pre | out, protos: natPorts, args: func(s *slot) string {
		a := s.pool.backend(s.r)
		switch s.r.IntN(8) {
		case 0:
			return fmt.Sprintf("--to-destination :%d", pick(s.r, portPool))
		case 1:
			return fmt.Sprintf("--to-destination %s --persistent", netip.AddrPortFrom(a, pick(s.r, portPool)))
		case 2:
			return fmt.Sprintf("--to-destination %s-%d", netip.AddrPortFrom(a, 8080), 8083)
		case 3:
			return fmt.Sprintf("--to-destination %s-%d --random", netip.AddrPortFrom(a, 8080), 8083)
		case 4:
			lo, hi := s.pool.pod[0], s.pool.pod[1]
			if s.fam == netfilter.IPv6 {
				return fmt.Sprintf("--to-destination [%s-%s]:8080", lo, hi)
			}
			return fmt.Sprintf("--to-destination %s-%s:8080", lo, hi)
		}
		return "--to-destination " + netip.AddrPortFrom(a, pick(s.r, portPool)).String()
	}},
	{name: "DNPT", weight: 15, tables: "mangle", hooks: pre, family: netfilter.IPv6, open: true, args: func(s *slot) string {
		return "--src-pfx fd96::/64 --dst-pfx fd44:3::/64"
	}},
	{name: "DROP", weight: 3, tables: "raw mangle filter", args: plain},
	{name: "DSCP", weight: 1, tables: "mangle", args: func(s *slot) string { return "--set-dscp 0x0a" }},
	{name: "ECN", weight: 1, tables: "mangle", family: netfilter.IPv4, protos: tcpOnly, args: func(s *slot) string { return "--ecn-tcp-remove" }},
	{name: "HL", weight: 1, tables: "mangle", family: netfilter.IPv6, args: func(s *slot) string { return "--hl-set 33" }},
	{name: "HMARK", weight: 3, tables: "mangle", open: true, args: func(s *slot) string {
		return "--hmark-tuple src,dst --hmark-mod 4 --hmark-offset 0x100 --hmark-rnd 0xfeed"
	}},
	{name: "IDLETIMER", weight: 1, tables: "mangle filter", args: func(s *slot) string { return "--timeout 600 --label oracle" }},
	{name: "LOG", weight: 1, args: func(s *slot) string { return `--log-prefix "a: "` }},
	{name: "MARK", weight: 16, args: func(s *slot) string {
		m := pick(s.r, markPool)
		return pick(s.r, []string{
			fmt.Sprintf("--set-xmark %#x/%#x", m, m), fmt.Sprintf("--or-mark %#x", m), fmt.Sprintf("--set-mark %#x", m),
			fmt.Sprintf("--and-mark %#x", ^m), fmt.Sprintf("--xor-mark %#x", m), fmt.Sprintf("--set-mark %#x/%#x", m, m|0xff),
		})
	}},
	{name: "MASQUERADE", weight: 8, tables: "nat", hooks: post, args: func(s *slot) string { return pick(s.r, []string{"", "--random-fully", "--random"}) }},
	{name: "MASQUERADE", weight: 4, tables: "nat", hooks: post, protos: natPorts, args: func(s *slot) string { return "--to-ports 61000-62000" }},
	{name: "NETMAP", weight: 4, tables: "nat", args: func(s *slot) string { return "--to " + pick(s.r, s.pool.podNets) }},
	{name: "NFLOG", weight: 1, args: func(s *slot) string { return "--nflog-group 9" }},
	{name: "NFQUEUE", weight: 1, tables: "raw mangle filter", args: func(s *slot) string { return "--queue-num 5" }},
	{name: "NOTRACK", weight: 3, tables: "raw", args: plain},
	{name: "REDIRECT", weight: 5, tables: "nat", hooks: pre | out, args: plain},
	{name: "REDIRECT", weight: 5, tables: "nat", hooks: pre | out, protos: natPorts, args: func(s *slot) string {
		return pick(s.r, []string{"--to-ports 8080", "--to-ports 8080-8083", "--to-ports 443 --random"})
	}},
	{name: "REJECT", weight: 4, tables: "filter", hooks: in | fwd | out, family: netfilter.IPv4, args: func(s *slot) string {
		return "--reject-with " + pick(s.r, []string{"icmp-net-unreachable", "icmp-host-unreachable", "icmp-port-unreachable", "icmp-proto-unreachable",
			"icmp-net-prohibited", "icmp-host-prohibited", "icmp-admin-prohibited"})
	}},
	{name: "REJECT", weight: 4, tables: "filter", hooks: in | fwd | out, family: netfilter.IPv6, args: func(s *slot) string {
		return "--reject-with " + pick(s.r, []string{"icmp6-no-route", "icmp6-adm-prohibited", "icmp6-addr-unreachable", "icmp6-port-unreachable",
			"icmp6-policy-fail", "icmp6-reject-route"})
	}},
	{name: "REJECT", weight: 3, tables: "filter", hooks: in | fwd | out, protos: tcpOnly, args: func(s *slot) string { return "--reject-with tcp-reset" }},
	{name: "RETURN", weight: 6, args: plain},
	{name: "SET", weight: 1, args: func(s *slot) string {
		name := addedSet
		if s.fam == netfilter.IPv6 {
			name = addedSet6
		}
		return pick(s.r, []string{"--add-set ", "--del-set "}) + name + pick(s.r, []string{" src", " dst"})
	}},
	{name: "SNAT", weight: 8, tables: "nat", hooks: in | post, args: func(s *slot) string { return "--to-source " + s.pool.node[s.r.IntN(3)].String() }},
	{name: "SNAT", weight: 6, tables: "nat", hooks: in | post, protos: natPorts, args: func(s *slot) string {
		return fmt.Sprintf("--to-source %s-%d%s", netip.AddrPortFrom(s.pool.node[s.r.IntN(3)], 50000), 51000, pick(s.r, []string{"", " --random-fully"}))
	}},
	{name: "SNPT", weight: 30, tables: "mangle", hooks: post, family: netfilter.IPv6, open: true, args: func(s *slot) string {
		return "--src-pfx fd44:1::/64 --dst-pfx fd99:1::/64"
	}},
	{name: "SYNPROXY", weight: 20, tables: "filter", hooks: in | fwd, protos: tcpOnly, open: true, args: func(s *slot) string { return "--sack-perm --mss 1460" }},
	{name: "TCPMSS", weight: 1, tables: "mangle filter", hooks: fwd | out | post, protos: tcpOnly, tests: "-m tcp --tcp-flags SYN,RST SYN ", args: func(s *slot) string {
		return pick(s.r, []string{"--set-mss 1000", "--clamp-mss-to-pmtu"})
	}},
	{name: "TCPOPTSTRIP", weight: 1, tables: "mangle", protos: tcpOnly, args: func(s *slot) string { return "--strip-options timestamp" }},
	{name: "TOS", weight: 1, tables: "mangle", args: func(s *slot) string { return "--set-tos 0x10/0x3f" }},
	{name: "TPROXY", weight: 3, tables: "mangle", hooks: pre, protos: []uint8{netfilter.ProtoTCP, netfilter.ProtoUDP}, args: func(s *slot) string {
		return pick(s.r, []string{"--on-port 15001 --tproxy-mark 0x1/0x1", "--on-port 15001 --tproxy-mark 0x200/0x200"})
	}},
	{name: "TRACE", weight: 1, tables: "raw", args: plain},
	{name: "TTL", weight: 1, tables: "mangle", family: netfilter.IPv4, args: func(s *slot) string { return "--ttl-set 33" }},
}

func (k *targetKind) allowed(s *slot) bool {
	return (k.family == 0 || k.family == s.fam) && (k.hooks == 0 || s.hooks.within(k.hooks)) && inTable(k.tables, s.table)
}
