package netfilter

import (
	"strconv"
	"strings"
)

// ICMP is -m icmp and -m icmp6: a type and a range of codes.
type ICMP struct {
	// Proto is ProtoICMP or ProtoICMPv6.
	Proto uint8
	// Any is --icmp-type any.
	Any              bool
	Type             uint8
	MinCode, MaxCode uint8
	Not              bool
}

var icmpMatch = extension{
	name: "icmp",
	save: func(*arena) saved { return &ICMP{Proto: ProtoICMP, Any: true} },
	list: func(l *listing) Match { return listICMP(l, ProtoICMP, "icmp") },
}

var icmp6Match = extension{
	name: "icmp6",
	save: func(*arena) saved { return &ICMP{Proto: ProtoICMPv6, Any: true} },
	list: func(l *listing) Match { return listICMP(l, ProtoICMPv6, "ipv6-icmp") },
}

// Test compares type and code. "any" is type 255 to the kernel, which it takes for every type.
func (m *ICMP) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	if p.Proto != m.Proto {
		return No
	}
	is := m.Any || p.ICMPType == m.Type && m.MinCode <= p.ICMPCode && p.ICMPCode <= m.MaxCode
	return Is(is != m.Not)
}

func (m *ICMP) idle() bool { return m.Any && !m.Not }

func (m *ICMP) option(o *option) bool {
	if o.name != "--icmp-type" && o.name != "--icmpv6-type" {
		return false
	}
	v := o.value()
	if m.Not = o.not; !m.parse(v) {
		o.fail("%q is not an ICMP type", v)
	}
	return true
}

// parse reads a name, TYPE, TYPE/CODE or TYPE/MIN-MAX.
func (m *ICMP) parse(s string) bool {
	if s == "any" {
		m.Any = true
		return true
	}
	if s == "" {
		return false
	}
	if s[0] < '0' || s[0] > '9' {
		return m.byName(s)
	}
	m.MinCode, m.MaxCode = 0, 255
	kind, codes, has := strings.Cut(s, "/")
	t, err := strconv.ParseUint(kind, 0, 8)
	if err != nil {
		return false
	}
	m.setType(uint8(t))
	return !has || m.codes(codes)
}

func (m *ICMP) setType(t uint8) {
	m.Type = t
	m.Any = m.Proto == ProtoICMP && t == 255
}

func (m *ICMP) codes(s string) bool {
	lo, hi, isRange := strings.Cut(s, "-")
	if !isRange {
		hi = lo
	}
	a, err := strconv.ParseUint(lo, 0, 8)
	if err != nil {
		return false
	}
	b, err := strconv.ParseUint(hi, 0, 8)
	m.MinCode, m.MaxCode = uint8(a), uint8(b)
	return err == nil
}

func (m *ICMP) byName(name string) bool {
	table := icmpNames
	if m.Proto == ProtoICMPv6 {
		table = icmp6Names
	}
	for _, row := range table {
		if strings.EqualFold(row.name, name) {
			m.setType(row.kind)
			m.MinCode, m.MaxCode = row.min, row.max
			return true
		}
	}
	return false
}

// icmpName is a name of iptables for a type, or for one of its codes.
type icmpName struct {
	name           string
	kind, min, max uint8
}

var icmpNames = []icmpName{
	{"echo-reply", 0, 0, 255},
	{"pong", 0, 0, 255},
	{"destination-unreachable", 3, 0, 255},
	{"network-unreachable", 3, 0, 0},
	{"host-unreachable", 3, 1, 1},
	{"protocol-unreachable", 3, 2, 2},
	{"port-unreachable", 3, 3, 3},
	{"fragmentation-needed", 3, 4, 4},
	{"source-route-failed", 3, 5, 5},
	{"network-unknown", 3, 6, 6},
	{"host-unknown", 3, 7, 7},
	{"network-prohibited", 3, 9, 9},
	{"host-prohibited", 3, 10, 10},
	{"TOS-network-unreachable", 3, 11, 11},
	{"TOS-host-unreachable", 3, 12, 12},
	{"communication-prohibited", 3, 13, 13},
	{"host-precedence-violation", 3, 14, 14},
	{"precedence-cutoff", 3, 15, 15},
	{"source-quench", 4, 0, 255},
	{"redirect", 5, 0, 255},
	{"network-redirect", 5, 0, 0},
	{"host-redirect", 5, 1, 1},
	{"TOS-network-redirect", 5, 2, 2},
	{"TOS-host-redirect", 5, 3, 3},
	{"echo-request", 8, 0, 255},
	{"ping", 8, 0, 255},
	{"router-advertisement", 9, 0, 255},
	{"router-solicitation", 10, 0, 255},
	{"time-exceeded", 11, 0, 255},
	{"ttl-exceeded", 11, 0, 255},
	{"ttl-zero-during-transit", 11, 0, 0},
	{"ttl-zero-during-reassembly", 11, 1, 1},
	{"parameter-problem", 12, 0, 255},
	{"ip-header-bad", 12, 0, 0},
	{"required-option-missing", 12, 1, 1},
	{"timestamp-request", 13, 0, 255},
	{"timestamp-reply", 14, 0, 255},
	{"address-mask-request", 17, 0, 255},
	{"address-mask-reply", 18, 0, 255},
}

var icmp6Names = []icmpName{
	{"destination-unreachable", 1, 0, 255},
	{"no-route", 1, 0, 0},
	{"communication-prohibited", 1, 1, 1},
	{"beyond-scope", 1, 2, 2},
	{"address-unreachable", 1, 3, 3},
	{"port-unreachable", 1, 4, 4},
	{"failed-policy", 1, 5, 5},
	{"reject-route", 1, 6, 6},
	{"packet-too-big", 2, 0, 255},
	{"time-exceeded", 3, 0, 255},
	{"ttl-exceeded", 3, 0, 255},
	{"ttl-zero-during-transit", 3, 0, 0},
	{"ttl-zero-during-reassembly", 3, 1, 1},
	{"parameter-problem", 4, 0, 255},
	{"bad-header", 4, 0, 0},
	{"unknown-header-type", 4, 1, 1},
	{"unknown-option", 4, 2, 2},
	{"echo-request", 128, 0, 255},
	{"ping", 128, 0, 255},
	{"echo-reply", 129, 0, 255},
	{"pong", 129, 0, 255},
	{"router-solicitation", 133, 0, 255},
	{"router-advertisement", 134, 0, 255},
	{"neighbour-solicitation", 135, 0, 255},
	{"neighbor-solicitation", 135, 0, 255},
	{"neighbour-advertisement", 136, 0, 255},
	{"neighbor-advertisement", 136, 0, 255},
	{"redirect", 137, 0, 255},
}

// listICMP reads "icmptype 3 [code 4|codes 0-4]", "icmp !type 3", and by name "icmp [!]echo-request".
func listICMP(l *listing, proto uint8, word string) Match {
	m := &ICMP{Proto: proto, MaxCode: 255}
	if l.word(word + "type") {
		return m.listed(l)
	}
	if !l.word(word) {
		return nil
	}
	name, not := negated(l.next())
	m.Not = not
	if name == "type" {
		return m.listed(l)
	}
	if !m.parse(name) {
		return nil
	}
	return m
}

// listed reads the numbers behind "type".
func (m *ICMP) listed(l *listing) Match {
	t, err := strconv.ParseUint(l.next(), 10, 8)
	if err != nil {
		return nil
	}
	m.setType(uint8(t))
	v, ok := l.after("code")
	if !ok {
		v, ok = l.after("codes")
	}
	if ok && !m.codes(v) {
		return nil
	}
	return m
}
