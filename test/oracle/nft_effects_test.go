//go:build linux

package oracle

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
)

// An nftEffect draws what a rule does once its tests hold.
type nftEffect struct {
	name   string
	weight int
	family netfilter.Family // 0: both
	chains string           // the types of chains where it is allowed, separated by spaces; "": all
	hooks  hookSet          // where it is allowed; 0: everywhere
	protos []uint8
	// open is set for effects that a walk cannot follow.
	open bool
	// ends is set where nothing of the rule can stand behind it; tells where a walk must name the rule that did it.
	ends, tells bool
	// ready tells whether the slot has what the effect needs; nil: nothing.
	ready func(s *nftSlot) bool
	text  func(s *nftSlot) string
}

func callable(s *nftSlot) bool { return len(s.callable) > 0 }

// nftEffects are the effects in the order of their names. A kind may stand several times, for its variants.
var nftEffects = []nftEffect{
	{name: "accept", weight: 14, ends: true, tells: true, text: one("accept")},
	{name: "continue", weight: 1, ends: true, text: one("continue")},
	{name: "counter", weight: 3, text: one("counter")},
	{name: "counter name", weight: 1, text: one(`counter name "c0"`)},
	{name: "counter map", weight: 1, protos: natPorts, text: func(s *nftSlot) string {
		return "counter name " + transport("dport")(s) + ` map { 80 : "c0", 443 : "c1" }`
	}},
	{name: "ct event set", weight: 1, text: one("ct event set new,destroy")},
	{name: "ct helper set", weight: 1, protos: tcpOnly, hooks: pre | out, text: one(`ct helper set "ftp-helper"`)},
	{name: "ct label set", weight: 1, text: one("ct label set 1")},
	{name: "ct mark set", weight: 8, tells: true, text: func(s *nftSlot) string { return "ct mark set " + s.markValue("ct mark", "meta mark") }},
	{name: "ct timeout set", weight: 1, protos: tcpOnly, hooks: pre | out, text: one(`ct timeout set "slow"`)},
	{name: "ct zone set", weight: 1, hooks: pre | out, text: one("ct zone set 7")},
	{name: "dnat", weight: 30, chains: "nat", hooks: pre | out, ends: true, tells: true, text: func(s *nftSlot) string { return s.nat("dnat") + s.pool.backend(s.r).String() + s.natFlags() }},
	{name: "dnat port", weight: 30, chains: "nat", hooks: pre | out, protos: natPorts, ends: true, tells: true, text: func(s *nftSlot) string {
		return s.nat("dnat") + s.withPort(s.pool.backend(s.r), s.somePorts()) + s.natFlags()
	}},
	{name: "dnat range", weight: 8, chains: "nat", hooks: pre | out, ends: true, tells: true, text: func(s *nftSlot) string {
		return s.nat("dnat") + fmt.Sprintf("%s-%s", s.pool.pod[0], s.pool.pod[1]) + s.natFlags()
	}},
	{name: "dnat port only", weight: 6, chains: "nat", hooks: pre | out, protos: natPorts, ends: true, tells: true, text: func(s *nftSlot) string {
		return "dnat to :" + s.somePorts() + s.natFlags()
	}},
	{name: "dnat map", weight: 16, chains: "nat", hooks: pre | out, ends: true, tells: true, text: func(s *nftSlot) string {
		fields := s.someFields()
		s.note("map")
		backend := func() string { return s.pool.backend(s.r).String() }
		if chance(s.r, 0.5) {
			return s.nat("dnat") + exprText(s, fields) + " map " + s.literalSet(fields, 2+s.r.IntN(4), backend)
		}
		return s.nat("dnat") + exprText(s, fields) + " map @" + s.namedSet(fields, addrType(s), backend)
	}},
	{name: "dnat address and port map", weight: 16, chains: "nat", hooks: pre | out, protos: natPorts, ends: true, tells: true, text: func(s *nftSlot) string {
		fields := s.someFields()
		s.note("map")
		backend := func() string { return fmt.Sprintf("%s . %d", s.pool.backend(s.r), pick(s.r, portPool)) }
		if chance(s.r, 0.5) {
			return "dnat " + s.word() + " to " + exprText(s, fields) + " map " + s.literalSet(fields, 2+s.r.IntN(4), backend)
		}
		return "dnat " + s.word() + " to " + exprText(s, fields) + " map @" + s.namedSet(fields, addrType(s)+" . inet_service", backend)
	}},
	{name: "dnat numgen map", weight: 16, chains: "nat", hooks: pre | out, ends: true, tells: true, text: func(s *nftSlot) string {
		s.note("map")
		return s.nat("dnat") + s.spread(func() string { return s.pool.backend(s.r).String() })
	}},
	{name: "dnat numgen address and port map", weight: 16, chains: "nat", hooks: pre | out, protos: natPorts, ends: true, tells: true, text: func(s *nftSlot) string {
		s.note("map")
		return "dnat " + s.word() + " addr . port to " + s.spread(func() string { return fmt.Sprintf("%s . %d", s.pool.backend(s.r), pick(s.r, portPool)) })
	}},
	{name: "dnat prefix", weight: 8, chains: "nat", hooks: pre | out, ends: true, tells: true, text: func(s *nftSlot) string {
		return fmt.Sprintf("dnat %s prefix to %s daddr map { %s : %s, %s : %s }", s.word(), s.word(), s.pool.nets[9], s.samePrefix(s.pool.nets[9], s.pool.podNets[0]),
			s.pool.nets[3], s.samePrefix(s.pool.nets[3], s.pool.podNets[1]))
	}},
	{name: "drop", weight: 2, ends: true, tells: true, text: one("drop")},
	{name: "goto", weight: 6, ready: callable, ends: true, text: func(s *nftSlot) string { return "goto " + pick(s.r, s.callable) }},
	{name: "ip address set", weight: 2, chains: "filter route", hooks: every, open: true, text: func(s *nftSlot) string {
		return s.word() + " daddr set " + pick(s.r, s.pool.pod).String()
	}},
	{name: "ip dscp set", weight: 1, text: func(s *nftSlot) string {
		return s.word() + pick(s.r, []string{" dscp set cs1", " dscp set ef", " ecn set ect0"})
	}},
	{name: "ip6 flowlabel set", weight: 1, family: netfilter.IPv6, text: one("ip6 flowlabel set 5")},
	{name: "ip ttl set", weight: 1, text: func(s *nftSlot) string {
		return map[netfilter.Family]string{netfilter.IPv4: "ip ttl set 33", netfilter.IPv6: "ip6 hoplimit set 33"}[s.ip]
	}},
	{name: "jump", weight: 22, ready: callable, ends: true, text: func(s *nftSlot) string { return "jump " + pick(s.r, s.callable) }},
	{name: "limit name", weight: 1, open: true, ends: true, text: func(s *nftSlot) string { return `limit name "slow"` + pick(s.r, []string{" accept", " drop"}) }},
	{name: "log", weight: 2, text: one(`log prefix "seen: " group 78`, "log group 78", "log group 78 snaplen 64")},
	{name: "masquerade", weight: 20, chains: "nat", hooks: post, ends: true, tells: true, text: func(s *nftSlot) string { return "masquerade" + s.natFlags() }},
	{name: "masquerade ports", weight: 6, chains: "nat", hooks: post, protos: natPorts, ends: true, tells: true, text: func(s *nftSlot) string {
		return "masquerade to :50000-51000" + s.natFlags()
	}},
	{name: "meta mark set", weight: 16, tells: true, text: func(s *nftSlot) string { return "meta mark set " + s.markValue("meta mark", "ct mark") }},
	{name: "meta mark set map", weight: 4, tells: true, text: func(s *nftSlot) string {
		fields := s.someFields()
		s.note("map")
		value := func() string { return s.oneMark().text }
		if chance(s.r, 0.5) {
			return "meta mark set " + exprText(s, fields) + " map " + s.literalSet(fields, 2+s.r.IntN(4), value)
		}
		return "meta mark set " + exprText(s, fields) + " map @" + s.namedSet(fields, "mark", value)
	}},
	{name: "meta mark set number", weight: 3, tells: true, open: true, text: func(s *nftSlot) string {
		return pick(s.r, []string{
			"meta mark set numgen random mod 2", "meta mark set numgen inc mod 2 offset 0x100", fmt.Sprintf("meta mark set jhash %s saddr mod 2 seed 0x1 offset 0x100", s.word()),
			"meta mark set symhash mod 2",
		})
	}},
	{name: "meta nftrace set", weight: 1, text: one("meta nftrace set 1")},
	{name: "meta pkttype set", weight: 1, hooks: pre, open: true, text: one("meta pkttype set host")},
	{name: "meta priority set", weight: 1, text: one("meta priority set 0x10002")},
	{name: "notrack", weight: 2, hooks: pre | out, text: one("notrack")},
	{name: "quota name", weight: 1, open: true, ends: true, text: func(s *nftSlot) string { return `quota name "q0"` + pick(s.r, []string{" accept", " drop"}) }},
	{name: "redirect", weight: 10, chains: "nat", hooks: pre | out, ends: true, tells: true, text: func(s *nftSlot) string { return "redirect" + s.natFlags() }},
	{name: "redirect port", weight: 10, chains: "nat", hooks: pre | out, protos: natPorts, ends: true, tells: true, text: func(s *nftSlot) string {
		return "redirect to :" + s.somePorts() + s.natFlags()
	}},
	{name: "reject", weight: 2, chains: "filter", hooks: pre | in | fwd | out, ends: true, tells: true, text: one("reject")},
	{name: "reject with", weight: 2, chains: "filter", hooks: pre | in | fwd | out, ends: true, tells: true, text: func(s *nftSlot) string {
		with := []string{"icmp port-unreachable", "icmp admin-prohibited", "icmp host-unreachable", "icmp net-unreachable", "icmp prot-unreachable", "icmp net-prohibited", "icmp host-prohibited"}
		if s.ip == netfilter.IPv6 {
			with = []string{"icmpv6 port-unreachable", "icmpv6 admin-prohibited", "icmpv6 addr-unreachable", "icmpv6 no-route", "icmpv6 policy-fail", "icmpv6 reject-route"}
		}
		if s.table.family == nft.Inet && chance(s.r, 0.6) {
			with = []string{"icmpx port-unreachable", "icmpx admin-prohibited", "icmpx host-unreachable", "icmpx no-route"}
		}
		return "reject with " + pick(s.r, with)
	}},
	{name: "reject with reset", weight: 2, chains: "filter", hooks: pre | in | fwd | out, protos: tcpOnly, ends: true, tells: true, text: one("reject with tcp reset")},
	{name: "return", weight: 5, ends: true, text: one("return")},
	{name: "snat", weight: 14, chains: "nat", hooks: in | post, ends: true, tells: true, text: func(s *nftSlot) string {
		return s.nat("snat") + s.pool.node[s.r.IntN(3)].String() + s.natFlags()
	}},
	{name: "snat map", weight: 6, chains: "nat", hooks: in | post, ends: true, tells: true, text: func(s *nftSlot) string {
		fields := s.someFields()
		s.note("map")
		return s.nat("snat") + exprText(s, fields) + " map " + s.literalSet(fields, 2+s.r.IntN(4), func() string { return s.pool.node[s.r.IntN(3)].String() })
	}},
	{name: "snat ports", weight: 8, chains: "nat", hooks: in | post, protos: natPorts, ends: true, tells: true, text: func(s *nftSlot) string {
		return s.nat("snat") + s.withPort(s.pool.node[s.r.IntN(3)], "50000-51000") + s.natFlags()
	}},
	// In INPUT it answers the node's own stack through lo, which answers it, without end.
	{name: "synproxy", weight: 3, chains: "filter", hooks: fwd, protos: tcpOnly, open: true, ends: true, text: one("synproxy mss 1460 wscale 7 timestamp sack-perm")},
	{name: "tcp option set", weight: 1, protos: tcpOnly, text: one("tcp option maxseg size set 1000", "reset tcp option sack-perm")},
	{name: "tcp option set", weight: 1, hooks: fwd | out | post, protos: tcpOnly, text: one("tcp option maxseg size set rt mtu")},
	{name: "tproxy", weight: 3, chains: "filter", hooks: pre, protos: []uint8{netfilter.ProtoTCP, netfilter.ProtoUDP}, tells: true, ends: true, open: true, text: func(s *nftSlot) string {
		return fmt.Sprintf("tproxy %s to :15001", s.word()) + pick(s.r, []string{"", " accept"})
	}},
	{name: "tproxy", weight: 2, chains: "filter", hooks: pre, protos: []uint8{netfilter.ProtoTCP, netfilter.ProtoUDP}, tells: true, ends: true, open: true, text: func(s *nftSlot) string {
		return fmt.Sprintf("tproxy %s to :15001 meta mark set 0x200 accept", s.word())
	}},
	{name: "vmap", weight: 16, ends: true, text: vmap},
	{name: "vmap", weight: 16, ends: true, text: vmap},
	{name: "vmap numgen", weight: 8, ends: true, text: func(s *nftSlot) string {
		n := 2 + s.r.IntN(3)
		var items []string
		for i := range n {
			items = append(items, fmt.Sprintf("%d : %s", i, s.verdict()))
		}
		return fmt.Sprintf("numgen %s mod %d vmap { %s }", pick(s.r, []string{"random", "random", "inc"}), n, strings.Join(items, ", "))
	}},
	{name: "vmap hash", weight: 4, ends: true, open: true, text: func(s *nftSlot) string {
		return pick(s.r, []string{fmt.Sprintf("jhash %s saddr mod 2 seed 0x%x", s.word(), s.r.Uint32()|1), "symhash mod 2", fmt.Sprintf("jhash %s saddr . %s daddr mod 2", s.word(), s.word())}) +
			fmt.Sprintf(" vmap { 0 : %s, 1 : %s }", s.verdict(), s.verdict())
	}},
}

// vmap looks a verdict up.
func vmap(s *nftSlot) string {
	fields := s.someFields()
	for _, f := range fields {
		s.note(f.name)
	}
	expr := exprText(s, fields)
	if s.plain || chance(s.r, 0.5) {
		return expr + " vmap " + s.literalSet(fields, 1+s.r.IntN(5), s.verdict)
	}
	return expr + " vmap @" + s.namedSet(fields, "verdict", s.verdict)
}

// verdict draws a verdict of a map.
func (s *nftSlot) verdict() string {
	if len(s.callable) > 0 && chance(s.r, 0.55) {
		return pick(s.r, []string{"jump ", "goto "}) + pick(s.r, s.callable)
	}
	return pick(s.r, []string{"accept", "accept", "continue", "continue", "return", "return", "drop"})
}

// markValue is what a mark is set to; own is the mark itself, other the one that it may be copied from.
func (s *nftSlot) markValue(own, other string) string {
	m, k := pick(s.r, markPool), pick(s.r, markPool)
	return pick(s.r, []string{
		fmt.Sprintf("%#x", m), "0", fmt.Sprintf("%s | %#x", own, m), fmt.Sprintf("%s or %#x", own, m), fmt.Sprintf("%s & %#x", own, ^m), fmt.Sprintf("%s ^ %#x", own, m),
		fmt.Sprintf("%s & %#x | %#x", own, ^(m | k), m), other, fmt.Sprintf("%s & %#x", other, m|k), fmt.Sprintf("%s | %#x", other, m), fmt.Sprintf("%s and 0xffff0000 xor %#x", own, m),
	})
}

// nat is the beginning of a translation; in tables of both families it says of which the address is.
func (s *nftSlot) nat(verb string) string {
	if s.table.family == nft.Inet || chance(s.r, 0.1) {
		return verb + " " + s.word() + " to "
	}
	return verb + " to "
}

func (s *nftSlot) withPort(a netip.Addr, ports string) string {
	if a.Is6() {
		return fmt.Sprintf("[%s]:%s", a, ports)
	}
	return fmt.Sprintf("%s:%s", a, ports)
}

func (s *nftSlot) somePorts() string {
	if chance(s.r, 0.2) {
		return "8080-8083"
	}
	return fmt.Sprint(pick(s.r, portPool))
}

func (s *nftSlot) natFlags() string {
	return pick(s.r, []string{"", "", "", "", "", " random", " fully-random", " persistent"})
}

// spread draws the map of a choice among values.
func (s *nftSlot) spread(value func() string) string {
	n := 1 + s.r.IntN(4)
	var items []string
	for i := range n {
		items = append(items, fmt.Sprintf("%d : %s", i, value()))
	}
	mode := pick(s.r, []string{"random", "random", "random", "inc"})
	if chance(s.r, 0.1) {
		items = items[:max(1, n-1)] // packets that get the last number find nothing
	}
	return fmt.Sprintf("numgen %s mod %d map { %s }", mode, n, strings.Join(items, ", "))
}

// samePrefix is a network inside of another that is as large as a third.
func (s *nftSlot) samePrefix(size, within string) string {
	a, b := netip.MustParsePrefix(size), netip.MustParsePrefix(within)
	return netip.PrefixFrom(b.Addr(), max(a.Bits(), b.Bits())).Masked().String()
}

func (e *nftEffect) allowed(s *nftSlot) bool {
	return (e.family == 0 || e.family == s.ip) && (e.hooks == 0 || s.hooks.within(e.hooks)) && inTable(e.chains, s.kind) && s.fits(e.protos) &&
		(e.ready == nil || e.ready(s))
}

// draw writes an effect. Where it is about ports and the rule names no protocol yet, the rule gets a test of one,
// which draw returns too.
func (e *nftEffect) draw(s *nftSlot) (test, text string) {
	if e.protos != nil && (s.proto == 0 || s.loose) {
		if s.proto == 0 {
			s.proto = pick(s.r, e.protos)
		}
		s.loose = false
		test = "meta l4proto " + nftProtocols[s.proto]
	}
	s.note(e.name)
	s.open = s.open || e.open
	text = e.text(s)
	return test, text
}

// nftObjects are the named objects of a table that effects refer to.
var nftObjects = []string{
	"counter c0 {\n\t}", "counter c1 {\n\t}", "quota q0 {\n\t\tover 150 bytes\n\t}", "limit slow {\n\t\trate 1/hour\n\t}",
	"ct helper ftp-helper {\n\t\ttype \"ftp\" protocol tcp;\n\t}",
	"ct timeout slow {\n\t\tprotocol tcp;\n\t\tpolicy = { established : 100 }\n\t}",
}

// needsObjects tells whether a rule names an object of its table.
func needsObjects(text string) bool {
	return slices.ContainsFunc([]string{"counter name", "quota name", "limit name", "ct helper set", "ct timeout set"}, func(w string) bool { return strings.Contains(text, w) })
}
