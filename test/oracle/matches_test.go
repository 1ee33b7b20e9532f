//go:build linux

package oracle

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// hookSet is a set of hooks, one bit each.
type hookSet uint8

const (
	pre   hookSet = 1 << netfilter.Prerouting
	in    hookSet = 1 << netfilter.Input
	fwd   hookSet = 1 << netfilter.Forward
	out   hookSet = 1 << netfilter.Output
	post  hookSet = 1 << netfilter.Postrouting
	every         = pre | in | fwd | out | post
)

// within tells whether a rule that may be reached from the hooks of s is allowed where only those of o are.
func (s hookSet) within(o hookSet) bool { return s&^o == 0 }

// A slot is the place in which a rule is drawn.
type slot struct {
	r     *rand.Rand
	fam   netfilter.Family
	table string
	hooks hookSet // of the base chains that lead there
	proto uint8   // what the rule says by -p, 0 for nothing
	pool  pool
}

// not puts an exclamation mark in front of an option now and then.
func (s *slot) not() string {
	if chance(s.r, 0.25) {
		return "! "
	}
	return ""
}

func (s *slot) ports() string {
	a := pick(s.r, portPool)
	if chance(s.r, 0.3) {
		return fmt.Sprintf("%d:%d", a, int(a)+1+s.r.IntN(400))
	}
	return fmt.Sprint(a)
}

func (s *slot) sports() string {
	lo := pick(s.r, []int{1024, 20000, 30000, 40000})
	return fmt.Sprintf("%d:%d", lo, pick(s.r, []int{lo + 1000, 45000, 65535}))
}

func (s *slot) mark() string {
	m := pick(s.r, markPool)
	switch s.r.IntN(3) {
	case 0:
		return fmt.Sprintf("%#x", m)
	case 1:
		return fmt.Sprintf("%#x/%#x", m, m)
	}
	return fmt.Sprintf("0/%#x", m)
}

// A matchKind draws the options of one match.
type matchKind struct {
	name string
	// protos are the protocols that a rule must name to use the match; nil for none.
	protos []uint8
	family netfilter.Family // 0: both
	hooks  hookSet          // where it is allowed; 0: everywhere
	tables string           // where it is allowed, separated by spaces; "": everywhere
	// open is set for tests of what a walk is not told (length, time, rate…): their outcome is one of two.
	open bool
	// decidedAs is the name of the type that decides the match, where that is not the name of the match.
	decidedAs string
	// oneSided says why only one answer can be had here, for matches that never meet what they look for.
	oneSided string
	args     func(s *slot) string
}

var portProtos = []uint8{netfilter.ProtoTCP, netfilter.ProtoUDP, netfilter.ProtoSCTP, netfilter.ProtoUDPLite, netfilter.ProtoDCCP}

// matchKinds are the matches in the order of their names. A kind may stand several times, for its variants.
var matchKinds = []matchKind{
	{name: "addrtype", args: addrtypeArgs},
	{name: "bpf", open: true, args: func(s *slot) string {
		offset := 9
		if s.fam == netfilter.IPv6 {
			offset = 6
		}
		return fmt.Sprintf(`--bytecode "4,48 0 0 %d,21 0 1 %d,6 0 0 65535,6 0 0 0"`, offset, pick(s.r, []int{6, 17}))
	}},
	{name: "cgroup", hooks: out | post, open: true, args: func(s *slot) string { return s.not() + "--cgroup " + pick(s.r, []string{"0", "7"}) }},
	{name: "cluster", open: true, args: func(s *slot) string {
		return fmt.Sprintf("--cluster-total-nodes 2 %s--cluster-local-node 1 --cluster-hash-seed %#x", s.not(), s.r.Uint32())
	}},
	{name: "comment", oneSided: "is always true", args: func(s *slot) string { return `--comment "any \"text\" -j DROP"` }},
	{name: "connbytes", open: true, args: func(s *slot) string {
		return s.not() + "--connbytes " + pick(s.r, []string{"0:5", "1", "2:9"}) + " --connbytes-dir original --connbytes-mode packets"
	}},
	{name: "connlimit", open: true, args: func(s *slot) string {
		return pick(s.r, []string{"--connlimit-above", "--connlimit-upto"}) + fmt.Sprintf(" %d --connlimit-mask 0", s.r.IntN(6))
	}},
	{name: "connmark", decidedAs: "connmarkmatch", args: func(s *slot) string { return s.not() + "--mark " + s.mark() }},
	{name: "conntrack", args: conntrackArgs},
	{name: "conntrack", args: conntrackArgs},
	{name: "conntrack", open: true, args: func(s *slot) string { return s.not() + "--ctexpire 0:432000" }},
	{name: "conntrack", protos: portProtos[:3], args: func(s *slot) string {
		return s.not() + pick(s.r, []string{"--ctorigsrcport ", "--ctrepldstport "}) + s.sports()
	}},
	{name: "conntrack", protos: portProtos[:3], args: func(s *slot) string {
		return s.not() + pick(s.r, []string{"--ctorigdstport ", "--ctreplsrcport "}) + s.ports()
	}},
	{name: "cpu", open: true, args: func(s *slot) string { return s.not() + fmt.Sprintf("--cpu %d", s.r.IntN(2)) }},
	{name: "dccp", protos: []uint8{netfilter.ProtoDCCP}, args: func(s *slot) string {
		return pick(s.r, []string{s.not() + "--dport " + s.ports(), s.not() + "--sport " + s.sports(), s.not() + "--dccp-types REQUEST", s.not() + "--dccp-types RESPONSE,ACK"})
	}},
	{name: "devgroup", hooks: pre | in | fwd, open: true, args: func(s *slot) string { return s.not() + fmt.Sprintf("--src-group 0x%d", s.r.IntN(2)) }},
	{name: "dscp", open: true, args: func(s *slot) string { return s.not() + "--dscp " + pick(s.r, []string{"0x00", "0x2e", "0x04"}) }},
	{name: "ecn", open: true, args: func(s *slot) string { return s.not() + fmt.Sprintf("--ecn-ip-ect %d", s.r.IntN(2)) }},
	{name: "hashlimit", open: true, args: func(s *slot) string {
		return fmt.Sprintf("--hashlimit-%s 1/hour --hashlimit-burst 3 --hashlimit-mode dstip --hashlimit-name h%d",
			pick(s.r, []string{"above", "upto"}), s.r.IntN(1e6))
	}},
	{name: "helper", open: true, args: func(s *slot) string { return s.not() + `--helper "ftp"` }},
	{name: "hl", family: netfilter.IPv6, open: true, args: func(s *slot) string {
		return pick(s.r, []string{"--hl-eq 64", "! --hl-eq 64", "--hl-lt 100", "--hl-gt 100"})
	}},
	{name: "icmp", protos: []uint8{netfilter.ProtoICMP}, family: netfilter.IPv4, args: func(s *slot) string {
		return s.not() + "--icmp-type " + pick(s.r, []string{"8", "echo-request", "echo-reply", "any", "3/4", "destination-unreachable"})
	}},
	{name: "icmp6", decidedAs: "icmp", protos: []uint8{netfilter.ProtoICMPv6}, family: netfilter.IPv6, args: func(s *slot) string {
		return s.not() + "--icmpv6-type " + pick(s.r, []string{"128", "echo-request", "echo-reply", "1/4", "packet-too-big"})
	}},
	{name: "iprange", args: func(s *slot) string {
		a, b := s.pool.addr(s.r), s.pool.addr(s.r)
		if b.Less(a) {
			a, b = b, a
		}
		return s.not() + fmt.Sprintf("--%s-range %s-%s", pick(s.r, []string{"src", "dst"}), a, b)
	}},
	{name: "ipv6header", family: netfilter.IPv6, open: true, args: func(s *slot) string {
		return s.not() + "--header " + pick(s.r, []string{"none", "prot", "hop,frag"}) + " --soft"
	}},
	{name: "length", open: true, args: func(s *slot) string { return s.not() + "--length " + pick(s.r, []string{"0:40", "30:52", "60:1500"}) }},
	{name: "limit", open: true, args: func(s *slot) string { return fmt.Sprintf("--limit 1/hour --limit-burst %d", 1+s.r.IntN(3)) }},
	{name: "mac", hooks: pre | in | fwd, open: true, args: func(s *slot) string {
		return s.not() + "--mac-source " + macText([6]byte{2, 0, 0, 0, 9, byte(s.r.IntN(3))})
	}},
	{name: "mark", args: func(s *slot) string { return s.not() + "--mark " + s.mark() }},
	{name: "multiport", protos: portProtos, args: func(s *slot) string {
		list := func(one func() string) string {
			var items []string
			for range 1 + s.r.IntN(3) {
				items = append(items, one())
			}
			return strings.Join(items, ",")
		}
		switch s.r.IntN(3) {
		case 0:
			return s.not() + "--dports " + list(s.ports)
		case 1:
			return s.not() + "--sports " + list(s.sports)
		}
		return s.not() + "--ports " + list(s.ports)
	}},
	{name: "nfacct", open: true, oneSided: "is always true without a quota", args: func(s *slot) string { return "--nfacct-name " + acctName }},
	{name: "owner", hooks: out | post, open: true, args: func(s *slot) string {
		return s.not() + pick(s.r, []string{"--uid-owner 0", "--uid-owner 1000", "--uid-owner 1-2000", "--gid-owner 0", "--socket-exists"})
	}},
	{name: "physdev", hooks: pre | in | fwd, args: func(s *slot) string {
		return pick(s.r, []string{s.not() + "--physdev-in pod0", s.not() + "--physdev-in pod+", s.not() + "--physdev-is-in", s.not() + "--physdev-is-bridged"})
	}},
	{name: "pkttype", open: true, args: func(s *slot) string {
		return s.not() + "--pkt-type " + pick(s.r, []string{"unicast", "broadcast", "multicast"})
	}},
	{name: "policy", hooks: pre | in | fwd, open: true, args: func(s *slot) string { return "--dir in --pol " + pick(s.r, []string{"none", "ipsec"}) }},
	{name: "quota", open: true, args: func(s *slot) string { return s.not() + fmt.Sprintf("--quota %d", 50+s.r.IntN(200)) }},
	{name: "realm", family: netfilter.IPv4, hooks: in | fwd | out | post, open: true, args: func(s *slot) string { return s.not() + "--realm " + pick(s.r, []string{"0", "5"}) }},
	{name: "recent", args: func(s *slot) string {
		side := pick(s.r, []string{"--rsource", "--rdest"})
		list := fmt.Sprintf(" --name svcnet%d ", s.r.IntN(2))
		switch s.r.IntN(5) {
		case 0, 1:
			return "--set" + list + side
		case 2:
			return s.not() + "--rcheck --seconds 3600" + list + side
		case 3:
			return s.not() + "--update --seconds 3600 --hitcount 2" + list + side
		}
		return "--remove" + list + side
	}},
	{name: "rpfilter", hooks: pre, tables: "raw mangle", args: func(s *slot) string {
		return strings.TrimSpace(pick(s.r, []string{"", "--loose", "--validmark", "--accept-local", "--validmark --loose"}) + " " + pick(s.r, []string{"", "--invert"}))
	}},
	{name: "sctp", protos: []uint8{netfilter.ProtoSCTP}, args: func(s *slot) string {
		return pick(s.r, []string{s.not() + "--dport " + s.ports(), s.not() + "--sport " + s.sports(), s.not() + "--chunk-types any INIT", s.not() + "--chunk-types all INIT_ACK,DATA"})
	}},
	{name: "set", decidedAs: "setmatch", args: setArgs},
	{name: "set", decidedAs: "setmatch", args: setArgs},
	{name: "socket", hooks: pre | in, tables: "raw mangle filter", open: true, args: func(s *slot) string { return pick(s.r, []string{"", "--nowildcard", "--transparent"}) }},
	{name: "socket", hooks: pre | in, tables: "raw mangle filter", open: true, args: func(s *slot) string { return pick(s.r, []string{"", "--nowildcard", "--transparent"}) }},
	{name: "state", decidedAs: "conntrack", args: func(s *slot) string {
		return s.not() + "--state " + pick(s.r, []string{"NEW", "ESTABLISHED,RELATED", "INVALID", "UNTRACKED"})
	}},
	{name: "statistic", args: statisticArgs},
	{name: "string", open: true, args: func(s *slot) string {
		return s.not() + `--string "` + pick(s.r, []string{"svcn", "absent"}) + `" --algo ` + pick(s.r, []string{"bm", "kmp"}) + " --to 1500"
	}},
	{name: "tcp", protos: []uint8{netfilter.ProtoTCP}, args: tcpArgs},
	{name: "tcp", protos: []uint8{netfilter.ProtoTCP}, args: tcpArgs},
	{name: "tcp", protos: []uint8{netfilter.ProtoTCP}, open: true, args: func(s *slot) string { return s.not() + "--tcp-option " + pick(s.r, []string{"2", "8"}) }},
	{name: "tcpmss", protos: []uint8{netfilter.ProtoTCP}, open: true, args: func(s *slot) string { return s.not() + "--mss " + pick(s.r, []string{"1460", "500:600", "1000:2000"}) }},
	{name: "time", open: true, args: func(s *slot) string {
		return pick(s.r, []string{"--timestart 00:00 --timestop 12:00", "--timestart 12:00 --timestop 23:59", "--datestart 2001-01-01", "--datestop 2001-01-01",
			"--weekdays Mon,Wed,Fri"})
	}},
	{name: "tos", open: true, args: func(s *slot) string {
		return s.not() + "--tos " + pick(s.r, []string{"0x10", "0x00/0xff", "0xb8/0xfc"})
	}},
	{name: "ttl", family: netfilter.IPv4, open: true, args: func(s *slot) string {
		return pick(s.r, []string{"--ttl-eq 64", "! --ttl-eq 64", "--ttl-lt 100", "--ttl-gt 100"})
	}},
	{name: "u32", open: true, args: func(s *slot) string {
		return s.not() + `--u32 "` + pick(s.r, []string{"0>>28=4", "0>>28=6", "6&0xFF=6"}) + `"`
	}},
	{name: "udp", protos: []uint8{netfilter.ProtoUDP}, args: func(s *slot) string {
		return pick(s.r, []string{s.not() + "--dport " + s.ports(), s.not() + "--sport " + s.sports(), "--sport " + s.sports() + " " + s.not() + "--dport " + s.ports()})
	}},
}

func addrtypeArgs(s *slot) string {
	kinds := []string{"LOCAL", "LOCAL", "LOCAL", "UNICAST", "MULTICAST", "UNREACHABLE", "LOCAL,UNICAST"}
	if s.fam == netfilter.IPv4 {
		kinds = append(kinds, "BROADCAST", "BLACKHOLE", "PROHIBIT", "ANYCAST", "UNSPEC")
	}
	a := s.not() + "--" + pick(s.r, []string{"dst", "dst", "src"}) + "-type " + pick(s.r, kinds)
	switch {
	case s.hooks.within(pre|in) && chance(s.r, 0.2):
		a += " --limit-iface-in"
	case s.hooks.within(fwd|out|post) && chance(s.r, 0.2):
		a += " --limit-iface-out"
	}
	return a
}

func conntrackArgs(s *slot) string {
	switch s.r.IntN(10) {
	case 0, 1, 2:
		return s.not() + "--ctstate " + pick(s.r, []string{"NEW", "RELATED,ESTABLISHED", "INVALID", "UNTRACKED", "DNAT", "SNAT", "NEW,UNTRACKED", "DNAT,SNAT"})
	case 3:
		return s.not() + "--ctproto " + pick(s.r, []string{"6", "17", "132"})
	case 4:
		return s.not() + "--ctorigsrc " + s.pool.prefix(s.r)
	case 5:
		return s.not() + "--ctorigdst " + s.pool.prefix(s.r)
	case 6:
		return s.not() + "--ctreplsrc " + s.pool.prefix(s.r)
	case 7:
		return s.not() + "--ctrepldst " + s.pool.prefix(s.r)
	case 8:
		return s.not() + "--ctstatus " + pick(s.r, []string{"NONE", "EXPECTED", "SEEN_REPLY", "ASSURED", "CONFIRMED", "NONE,CONFIRMED"})
	}
	return pick(s.r, []string{"--ctdir ORIGINAL", "--ctdir REPLY"})
}

func statisticArgs(s *slot) string {
	if chance(s.r, 0.3) {
		n := 2 + s.r.IntN(3)
		return fmt.Sprintf("--mode nth %s--every %d --packet %d", s.not(), n, s.r.IntN(n))
	}
	return "--mode random " + s.not() + "--probability " + pick(s.r, []string{"0.5", "0.33333333349", "0.2", "0.00000000000", "1.00000000000"})
}

func tcpArgs(s *slot) string {
	switch s.r.IntN(5) {
	case 0, 1:
		return s.not() + "--dport " + s.ports()
	case 2:
		return s.not() + "--sport " + s.sports()
	case 3:
		return pick(s.r, []string{"--syn", "! --syn", s.not() + "--tcp-flags SYN,RST SYN", s.not() + "--tcp-flags ALL NONE", s.not() + "--tcp-flags FIN,ACK ACK"})
	}
	return "--sport " + s.sports() + " --dport " + s.ports()
}

// allowed tells whether a match can stand in a slot as far as table, hooks and family go.
func (m *matchKind) allowed(s *slot) bool {
	return (m.family == 0 || m.family == s.fam) && (m.hooks == 0 || s.hooks.within(m.hooks)) && inTable(m.tables, s.table)
}

func inTable(tables, table string) bool {
	if tables == "" {
		return true
	}
	for t := range strings.FieldsSeq(tables) {
		if t == table {
			return true
		}
	}
	return false
}
