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

// An nftTest draws one test of a rule.
type nftTest struct {
	name   string
	family netfilter.Family // 0: both
	hooks  hookSet          // where it is allowed; 0: everywhere
	protos []uint8          // those that the expression is about; nil: any
	inet   bool             // only in tables of both families
	// alone keeps a test out of tables of both families, where it means other things for packets of the other.
	alone bool
	// open is set for tests of what a walk is not told.
	open bool
	// oneSided says why only one answer can be had here.
	oneSided string
	text     func(s *nftSlot) string
}

// one draws one of the texts.
func one(texts ...string) func(*nftSlot) string {
	return func(s *nftSlot) string { return pick(s.r, texts) }
}

var (
	sctpOnly   = []uint8{netfilter.ProtoSCTP}
	udpOnly    = []uint8{netfilter.ProtoUDP}
	icmpOnly   = []uint8{netfilter.ProtoICMP}
	icmpv6Only = []uint8{netfilter.ProtoICMPv6}
	dccpOnly   = []uint8{netfilter.ProtoDCCP}
)

// neverHolds is why only one answer can be had of a test that never meets what it looks for.
const neverHolds = "never holds"

// nftTests are the tests besides the comparisons of fields, in the order of their names. A kind may stand several
// times, for its variants.
var nftTests = []nftTest{
	{name: "@ih", open: true, protos: udpOnly, text: one("@ih,0,32 0x7376636e", "@ih,0,32 != 0x7376636e", "@ih,0,32 0x1")},
	{name: "@ll", hooks: pre | in | fwd, open: true, text: one("@ll,48,48 0x20000000901", "@ll,0,48 0x20000000001", "@ll,96,16 0x800")},
	{name: "@nh", family: netfilter.IPv4, alone: true, text: func(s *nftSlot) string {
		return pick(s.r, []string{fmt.Sprintf("@nh,128,32 0x%x", pick(s.r, s.pool.service).As4()), fmt.Sprintf("@nh,96,32 != 0x%x", pick(s.r, s.pool.pod).As4()), "@nh,72,8 6", "@nh,72,8 != 17"})
	}},
	{name: "@nh", family: netfilter.IPv6, alone: true, text: func(s *nftSlot) string {
		return pick(s.r, []string{fmt.Sprintf("@nh,192,128 0x%x", pick(s.r, s.pool.service).As16()), fmt.Sprintf("@nh,64,128 != 0x%x", pick(s.r, s.pool.pod).As16()), "@nh,48,8 6", "@nh,48,8 != 17"})
	}},
	{name: "@nh bits", open: true, text: one("@nh,128,16 0x0a60", "@nh,128,8 != 10", "@nh,0,4 4", "@nh,192,16 0xfd96", "@nh,0,4 6", "@nh,0,8 & 0xf == 5")},
	{name: "@th", protos: portProtos, text: one("@th,16,16 80", "@th,16,16 != 443", "@th,0,16 > 30000", "@th,16,16 { 80, 443 }")},
	{name: "@th bits", open: true, text: one("@th,16,8 0", "@th,0,4 != 7", "@th,32,32 0")},
	{name: "bitwise address", text: func(s *nftSlot) string {
		if s.ip == netfilter.IPv6 {
			return s.word() + pick(s.r, []string{" daddr", " saddr"}) + pick(s.r, []string{" & ::ffff == ::1", " & ffff:: == fd44::", " & ::f != ::1", " & ffff:0:0:0:0:0:0:ffff == fd96::1"})
		}
		return s.word() + pick(s.r, []string{" daddr", " saddr"}) + pick(s.r, []string{" & 255.0.0.255 == 10.0.0.1", " & 0.0.0.15 != 0.0.0.1", " & 255.240.0.0 == 172.16.0.0", " & 0.0.0.1 == 0.0.0.1"})
	}},
	{name: "bitwise ct mark", text: func(s *nftSlot) string {
		m := pick(s.r, markPool)
		return pick(s.r, []string{fmt.Sprintf("ct mark & %#x == %#x", m, m), fmt.Sprintf("ct mark & %#x != 0", m), fmt.Sprintf("ct mark and %#x == 0", m)})
	}},
	{name: "bitwise mark", text: bitwiseMark},
	{name: "bitwise mark", text: bitwiseMark},
	{name: "bitwise port", protos: natPorts, text: func(s *nftSlot) string {
		return transport("dport")(s) + pick(s.r, []string{" & 0xff == 80", " & 0x1 == 0x1", " & 0xff00 != 0", " | 0x1 == 0x51"})
	}},
	{name: "ct avgpkt", open: true, text: one("ct avgpkt > 10", "ct original avgpkt < 1000", "ct avgpkt > 1000")},
	{name: "ct bytes", open: true, text: one("ct bytes < 100000", "ct original bytes > 10", "ct reply bytes 0")},
	{name: "ct count", open: true, text: one("ct count 3", "ct count over 2")},
	{name: "ct expiration", open: true, text: one("ct expiration > 1h", "ct expiration < 10h")},
	{name: "ct helper", open: true, oneSided: neverHolds, text: one(`ct helper "ftp"`, `ct helper != "ftp"`)},
	{name: "ct id", open: true, text: one("ct id 1", "ct id != 1")},
	{name: "ct l3proto", text: func(s *nftSlot) string {
		return "ct original l3proto " + pick(s.r, []string{s.nfproto(), "!= ipv4", "!= ipv6"})
	}},
	{name: "ct label", open: true, text: one("ct label 1", "ct label != 1")},
	{name: "ct original address", text: func(s *nftSlot) string { return s.ctAddress("original") }},
	{name: "ct original port", protos: natPorts, text: func(s *nftSlot) string {
		if chance(s.r, 0.5) {
			return s.ctPort("original", "src", s.oneSource, s.manySources)
		}
		return s.ctPort("original", "dst", s.onePort, s.manyPorts)
	}},
	{name: "ct packets", open: true, text: one("ct packets < 3", "ct original packets > 0", "ct reply packets 0")},
	{name: "ct protocol", text: func(s *nftSlot) string {
		return "ct " + pick(s.r, []string{"original", "reply"}) + " protocol " + s.looseProtos()
	}},
	{name: "ct reply address", text: func(s *nftSlot) string { return s.ctAddress("reply") }},
	{name: "ct reply port", protos: natPorts, text: func(s *nftSlot) string {
		if chance(s.r, 0.5) {
			return s.ctPort("reply", "dst", s.oneSource, s.manySources)
		}
		return s.ctPort("reply", "src", s.onePort, s.manyPorts)
	}},
	{name: "ct state flags", text: ctStateFlags},
	{name: "ct state flags", text: ctStateFlags},
	{name: "ct status", text: ctStatus},
	{name: "ct status", text: ctStatus},
	{name: "ct status as a whole", open: true, text: one("ct status != dnat", "ct status == dnat", "ct status == 0", "ct status > 8", "ct status != { dnat, snat }")},
	{name: "ct zone", text: one("ct zone 0", "ct zone != 0", "ct zone 7", "ct original zone 0")},
	{name: "concatenation", text: concatenation},
	{name: "concatenation", text: concatenation},
	{name: "concatenation", text: concatenation},
	{name: "dccp type", protos: dccpOnly, open: true, text: one("dccp type request", "dccp type != request", "dccp type { response, ack }")},
	{name: "ether", hooks: pre | in | fwd, open: true, text: func(s *nftSlot) string {
		return "ether " + pick(s.r, []string{"saddr 02:00:00:00:09:01", "saddr != 02:00:00:00:09:01", "daddr 02:00:00:00:00:01", "type " + s.word(), "type != ip"})
	}},
	{name: "exthdr", family: netfilter.IPv6, open: true, text: one("exthdr hbh exists", "exthdr frag missing", "exthdr rt missing", "exthdr dst exists")},
	{name: "fib oif", hooks: pre, text: func(s *nftSlot) string {
		return "fib " + pick(s.r, []string{"saddr . iif", "saddr . iif", "saddr . mark . iif"}) + " oif " + pick(s.r, []string{"exists", "missing"})
	}},
	{name: "fib oif name", hooks: pre, open: true, text: func(s *nftSlot) string {
		return "fib " + pick(s.r, []string{"saddr", "daddr", "saddr . mark"}) + pick(s.r, []string{" oif exists", " oif missing", ` oif "eth0"`, ` oifname "eth1"`, ` oifname != "eth0"`,
			` oif != "cni0"`, ` oifname { "eth0", "cni0" }`})
	}},
	{name: "fib type", text: fibType},
	{name: "fib type", text: fibType},
	{name: "fib type iif", hooks: pre | in | fwd, text: func(s *nftSlot) string {
		return "fib " + pick(s.r, []string{"daddr . iif", "saddr . iif"}) + " type " + s.fibTypes()
	}},
	{name: "fib type mark", family: netfilter.IPv4, alone: true, text: func(s *nftSlot) string {
		return "fib " + pick(s.r, []string{"daddr . mark", "saddr . mark"}) + " type " + s.fibTypes()
	}},
	{name: "fib type mark, IPv6", family: netfilter.IPv6, open: true, text: func(s *nftSlot) string {
		return "fib " + pick(s.r, []string{"daddr . mark", "saddr . mark"}) + " type " + s.fibTypes()
	}},
	{name: "fib type oif", hooks: fwd | out | post, text: func(s *nftSlot) string {
		return "fib " + pick(s.r, []string{"daddr . oif", "saddr . oif"}) + " type " + s.fibTypes()
	}},
	{name: "icmp", family: netfilter.IPv4, protos: icmpOnly, text: one("icmp code 0", "icmp code != 0", "icmp type { echo-request, echo-reply }", "icmp type != echo-reply",
		"icmp code > 3", "icmp type 3-8", "icmp type echo-request icmp code 0")},
	{name: "icmp id", family: netfilter.IPv4, protos: icmpOnly, open: true, text: one("icmp id < 20000", "icmp id > 40000", "icmp sequence 1", "icmp sequence != 1")},
	{name: "icmpv6", family: netfilter.IPv6, protos: icmpv6Only, text: one("icmpv6 code 0", "icmpv6 code != 0", "icmpv6 type { echo-request, echo-reply }", "icmpv6 type { echo-request, mld-listener-query }", "icmpv6 type != echo-reply",
		"icmpv6 code > 3", "icmpv6 type 1-128")},
	{name: "icmpv6 id", family: netfilter.IPv6, protos: icmpv6Only, open: true, text: one("icmpv6 id < 20000", "icmpv6 id > 40000", "icmpv6 sequence 1", "icmpv6 sequence != 1")},
	{name: "ip dscp", open: true, text: func(s *nftSlot) string {
		return s.word() + pick(s.r, []string{" dscp ef", " dscp != cs0", " dscp { cs0, af11 }", " ecn not-ect"})
	}},
	{name: "ip header", family: netfilter.IPv4, text: one("ip version 4", "ip hdrlength 5", "ip hdrlength > 5", "ip frag-off & 0x1fff != 0", "ip frag-off & 0x2000 == 0"), open: true},
	{name: "ip header", family: netfilter.IPv6, text: one("ip6 version 6", "ip6 flowlabel 0", "ip6 hoplimit 64", "ip6 hoplimit > 100", "ip6 length < 100"), open: true},
	{name: "ip length", family: netfilter.IPv4, open: true, text: one("ip length < 50", "ip length 40-60", "ip id 1", "ip checksum 0", "ip ttl 64", "ip ttl > 100")},
	{name: "ip option", family: netfilter.IPv4, open: true, text: one("ip option rr exists", "ip option lsrr missing", "ip option ssrr missing")},
	{name: "ip protocol", family: netfilter.IPv4, text: func(s *nftSlot) string { return "ip protocol " + s.someProtos() }},
	{name: "ip protocol", family: netfilter.IPv6, text: func(s *nftSlot) string { return "ip6 nexthdr " + s.someProtos() }},
	{name: "interface wildcard", text: func(s *nftSlot) string {
		dir := pick(s.r, []string{"iifname ", "oifname "})
		return dir + pick(s.r, []string{`"eth*"`, `"cali*"`, `!= "eth*"`, `!= "cni*"`, `{ "eth*", "lo" }`, `"c*"`})
	}},
	{name: "jhash", open: true, text: func(s *nftSlot) string {
		return fmt.Sprintf("jhash %s mod %d seed 0x%x %s", pick(s.r, []string{s.word() + " saddr", s.word() + " daddr", s.word() + " saddr . " + s.word() + " daddr"}), 2+s.r.IntN(3),
			s.r.Uint32()|1, pick(s.r, []string{"0", "!= 0", "< 1"}))
	}},
	{name: "limit", open: true, text: one("limit rate 1/hour", "limit rate over 1/hour", "limit rate 1/hour burst 3 packets", "limit rate over 100 bytes/hour burst 100 bytes", "limit rate 10/second")},
	{name: "meta cgroup", hooks: out | post, open: true, text: one("meta cgroup 0", "meta cgroup != 0", "meta cgroup 7")},
	{name: "meta cpu", open: true, text: one("meta cpu 0", "meta cpu 1", "meta cpu != 0")},
	{name: "meta day", open: true, text: one(`meta day "Monday"`, `meta day != "Monday"`, `meta day { "Tuesday", "Friday", "Saturday", "Sunday" }`)},
	{name: "meta group", open: true, text: one("iifgroup default", "iifgroup != default", "oifgroup default", "iifgroup 7")},
	{name: "meta hour", open: true, text: one(`meta hour "00:00"-"12:00"`, `meta hour > "12:00"`)},
	{name: "meta ifkind", open: true, text: one(`meta iifkind "veth"`, `meta iifkind "bridge"`, `meta oifkind "veth"`, `meta iifkind != "veth"`)},
	{name: "meta iftype", open: true, text: one("meta iiftype ether", "meta iiftype != loopback", "meta oiftype ether", "meta oiftype != ether")},
	{name: "meta ipsec", hooks: pre | in | fwd, open: true, text: one("meta ipsec exists", "meta ipsec missing")},
	{name: "meta length", open: true, text: one("meta length < 50", "meta length 40-60", "meta length != 52")},
	{name: "meta priority", open: true, text: one("meta priority none", "meta priority != none")},
	{name: "meta nfproto", inet: true, text: func(s *nftSlot) string {
		return "meta nfproto " + pick(s.r, []string{s.nfproto(), "!= ipv4", "!= ipv6"})
	}},
	{name: "meta protocol", text: func(s *nftSlot) string {
		return "meta protocol " + pick(s.r, []string{s.word(), "!= ip", "!= ip6", "!= { ip, arp }"})
	}},
	{name: "meta random", open: true, text: one("meta random < 2147483648", "meta random > 1000000000")},
	{name: "meta rtclassid", hooks: in | fwd | out | post, open: true, text: one("meta rtclassid 0", "meta rtclassid 5")},
	{name: "meta sdif", hooks: in | fwd, open: true, text: one("meta sdif 0", "meta sdif != 0", `meta sdifname "x"`)},
	{name: "meta skgid", hooks: out | post, open: true, text: one("meta skgid 0", "meta skgid != 0", "meta skgid 1000")},
	{name: "meta time", open: true, text: one(`meta time > "2001-01-01 00:00:00"`, `meta time < "2001-01-01 00:00:00"`)},
	{name: "numgen inc", text: func(s *nftSlot) string {
		n := 2 + s.r.IntN(3)
		return fmt.Sprintf("numgen inc mod %d %s", n, pick(s.r, []string{"0", "1", "!= 0", "< 1"}))
	}},
	{name: "numgen random", text: func(s *nftSlot) string {
		n := 2 + s.r.IntN(8)
		return fmt.Sprintf("numgen random mod %d %s", n, pick(s.r, []string{"0", "1", "!= 0", "< 1", "> 0", "{ 0, 1 }", "offset 10 11", "offset 1 != 1"}))
	}},
	{name: "osf", family: netfilter.IPv4, hooks: pre | in, protos: tcpOnly, open: true, text: one(`osf name "Linux"`, `osf name "unknown"`)},
	{name: "quota", open: true, text: func(s *nftSlot) string {
		return pick(s.r, []string{"quota ", "quota over "}) + fmt.Sprintf("%d bytes", 50+s.r.IntN(200))
	}},
	{name: "rt classid", hooks: out | post, open: true, text: one("rt classid 0", "rt classid != 0")},
	{name: "rt ipsec", hooks: fwd | out | post, open: true, text: one("rt ipsec missing", "rt ipsec exists")},
	{name: "rt mtu", hooks: fwd | out | post, protos: tcpOnly, open: true, text: one("rt mtu 1460", "rt mtu < 1400", "rt mtu > 1400")},
	{name: "rt nexthop", hooks: out | post, open: true, text: func(s *nftSlot) string {
		return fmt.Sprintf("rt %s nexthop %s", s.word(), pick(s.r, append(s.pool.pod[:3:3], s.pool.external[2], map[netfilter.Family]netip.Addr{
			netfilter.IPv4: netip.MustParseAddr("172.30.0.1"), netfilter.IPv6: netip.MustParseAddr("fd30::1"),
		}[s.ip])))
	}},
	{name: "sctp chunk", protos: sctpOnly, open: true, text: one("sctp chunk init exists", "sctp chunk data missing", "sctp chunk data exists", "sctp vtag 0", "sctp vtag != 0")},
	{name: "socket", hooks: pre | in, open: true, text: one("socket transparent 1", "socket transparent 0", "socket wildcard 1", "socket wildcard 0", "socket mark 0x0", "socket mark 0x1")},
	{name: "symhash", open: true, text: func(s *nftSlot) string {
		return fmt.Sprintf("symhash mod %d %s", 2+s.r.IntN(3), pick(s.r, []string{"0", "!= 0", "< 1"}))
	}},
	{name: "tcp flags", protos: tcpOnly, text: tcpFlags},
	{name: "tcp flags", protos: tcpOnly, text: tcpFlags},
	{name: "tcp header", protos: tcpOnly, open: true, text: one("tcp sequence 0", "tcp ackseq 0", "tcp ackseq != 0", "tcp window 64240", "tcp window < 1000", "tcp doff 6", "tcp urgptr 0", "tcp checksum 0")},
	{name: "tcp option", protos: tcpOnly, open: true, text: one("tcp option maxseg exists", "tcp option maxseg missing", "tcp option maxseg size 1460", "tcp option maxseg size < 1000",
		"tcp option sack-perm exists", "tcp option window missing")},
	{name: "udp header", protos: udpOnly, open: true, text: one("udp length 16", "udp length < 10", "udp checksum 0", "udp checksum != 0")},
}

func bitwiseMark(s *nftSlot) string {
	m, k := pick(s.r, markPool), pick(s.r, markPool)
	return pick(s.r, []string{
		fmt.Sprintf("meta mark & %#x == %#x", m, m), fmt.Sprintf("meta mark & %#x != 0", m), fmt.Sprintf("meta mark & %#x == 0", m|k),
		fmt.Sprintf("meta mark and %#x == %#x", m|k, m), fmt.Sprintf("meta mark | %#x == %#x", m, m|k), fmt.Sprintf("meta mark ^ %#x != %#x", m, k),
		fmt.Sprintf("meta mark & %#x { 0, %#x, %#x }", m|k, m, k),
	})
}

func (s *nftSlot) ctAddress(dir string) string {
	expr := fmt.Sprintf("ct %s %s %s", dir, s.word(), pick(s.r, []string{"saddr", "daddr"}))
	switch s.r.IntN(5) {
	case 0:
		return expr + " != " + s.oneAddr().text
	case 1, 2:
		return expr + " " + s.manyAddrs().text
	case 3:
		return expr + " { " + s.oneAddr().text + ", " + s.oneAddr().text + " }"
	}
	return expr + " " + s.oneAddr().text
}

// ctPort tests a port of the connection. nft takes that only behind a test that says what has the port.
func (s *nftSlot) ctPort(dir, side string, single, several func() span) string {
	expr := fmt.Sprintf("ct %s proto-%s ", dir, side)
	if s.proto == 0 || s.loose {
		if s.proto == 0 {
			s.proto = pick(s.r, natPorts)
		}
		s.loose = false
		expr = "meta l4proto " + nftProtocols[s.proto] + " " + expr
	}
	switch s.r.IntN(5) {
	case 0:
		return expr + "!= " + single().text
	case 1, 2, 3:
		return expr + several().text
	}
	return expr + single().text
}

func ctStateFlags(s *nftSlot) string {
	s.note("flags")
	return pick(s.r, []string{"ct state new,established", "ct state established,related", "ct state new,untracked", "ct state invalid,untracked", "ct state != new",
		"ct state != established", "ct state ! new", "ct state & (new | untracked) == 0", "ct state & (established | related) != 0", "ct state != { established, related }"})
}

func ctStatus(s *nftSlot) string {
	s.note("flags")
	return pick(s.r, []string{"ct status dnat", "ct status snat", "ct status dnat,snat", "ct status confirmed", "ct status seen-reply", "ct status ! dnat", "ct status & dnat == 0",
		"ct status & (dnat | snat) != 0", "ct status expected", "ct status assured"})
}

func tcpFlags(s *nftSlot) string {
	s.note("flags")
	return pick(s.r, []string{"tcp flags syn", "tcp flags syn,ack", "tcp flags ack", "tcp flags & (syn | ack) == syn", "tcp flags & (fin | syn | rst | ack) == syn", "tcp flags & (syn | rst) != syn",
		"tcp flags ! ack", "tcp flags != syn", "tcp flags == syn", "tcp flags syn / syn,ack", "tcp flags ack / syn,ack", "tcp flags { syn, ack }"})
}

// someProtos tests a protocol. What is one protocol for nft decides which fields the rest of the rule may name.
func (s *nftSlot) someProtos() string {
	not := []string{"!= tcp", "!= { udp, sctp }", "!= 6-17"}
	if s.proto != 0 {
		return pick(s.r, not)
	}
	if chance(s.r, 0.5) {
		s.proto = pick(s.r, natPorts)
		return nftProtocols[s.proto]
	}
	s.proto = severalProtos
	return pick(s.r, append(not, "{ tcp, udp }", "{ tcp, sctp }", "6-17"))
}

func (s *nftSlot) looseProtos() string {
	s.loose = s.loose || s.proto == 0
	return s.someProtos()
}

func (s *nftSlot) fibTypes() string {
	kinds := []string{"local", "local", "unicast", "multicast", "unreachable"}
	if s.ip == netfilter.IPv4 {
		kinds = append(kinds, "broadcast", "blackhole", "prohibit")
	}
	switch s.r.IntN(6) {
	case 0:
		return "!= " + pick(s.r, kinds)
	case 1:
		return "{ local, multicast, " + pick(s.r, []string{"broadcast", "unicast"}) + " }"
	}
	return pick(s.r, kinds)
}

func fibType(s *nftSlot) string {
	return "fib " + pick(s.r, []string{"daddr", "daddr", "saddr"}) + " type " + s.fibTypes()
}

// concatenation tests several fields at once against a set.
func concatenation(s *nftSlot) string {
	var fields []*nftField
	for len(fields) < 2 {
		fields = s.someFields()
	}
	for _, f := range fields {
		s.note(f.name)
	}
	expr := exprText(s, fields)
	not := ""
	if chance(s.r, 0.2) {
		not = "!= "
		s.note("!= set")
	}
	if s.plain || chance(s.r, 0.4) {
		s.note("anonymous set")
		return expr + " " + not + s.literalSet(fields, 2+s.r.IntN(5), nil)
	}
	s.note("named set")
	return expr + " " + not + "@" + s.namedSet(fields, "", nil)
}

// nfproto is the slot's family in the words of meta nfproto.
func (s *nftSlot) nfproto() string {
	if s.ip == netfilter.IPv6 {
		return "ipv6"
	}
	return "ipv4"
}

// pinned notes the protocol that an expression names.
func (s *nftSlot) pinned(expr string) {
	if i := strings.IndexAny(expr, "{@"); i >= 0 {
		expr = expr[:i]
	}
	for p, name := range nftProtocols {
		if slices.ContainsFunc(strings.Split(expr, " . "), func(part string) bool {
			word, _, _ := strings.Cut(part, " ")
			return word == name || name == "ipv6-icmp" && word == "icmpv6"
		}) {
			s.proto = p
		}
	}
}

// allowed tells whether a test can stand in a slot.
func (t *nftTest) allowed(s *nftSlot) bool {
	return (t.family == 0 || t.family == s.ip) && (!t.inet || s.table.family == nft.Inet) && !(t.alone && s.table.family == nft.Inet) && (t.hooks == 0 || s.hooks.within(t.hooks)) && s.fits(t.protos)
}

// draw writes a test and pins the rule's protocol where the expression does.
func (t *nftTest) draw(s *nftSlot) string {
	text := t.text(s)
	s.note(t.name)
	s.open = s.open || t.open
	s.loose = s.loose || s.proto == 0 && (t.name == "tcp option" || t.name == "sctp chunk")
	if len(t.protos) == 1 && !strings.HasPrefix(text, "@") && t.name != "osf" {
		s.proto = t.protos[0]
	}
	s.pinned(text)
	return text
}

// allNFTTests are the tests and the comparisons of fields.
func allNFTTests() []nftTest {
	out := slices.Clone(nftTests)
	for i := range nftFields {
		f := &nftFields[i]
		t := nftTest{name: f.name, family: f.family, hooks: f.hooks, protos: f.protos, open: f.open, oneSided: f.oneSided, text: func(s *nftSlot) string { return s.relate(f) }}
		out = append(out, t)
		if i < 8 { // what rules test most
			out = append(out, t)
		}
	}
	return out
}
