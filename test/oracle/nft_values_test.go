//go:build linux

package oracle

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// An nftSlot is the place in which a rule is drawn, and what has been drawn of it so far.
type nftSlot struct {
	r     *rand.Rand
	table *nftTable
	kind  string // of the base chains that lead there
	hooks hookSet
	// ip is the family whose addresses the rule tests, proto the protocol that it is about, 0 for any.
	ip       netfilter.Family
	proto    uint8
	pool     pool
	callable []string
	kinds    []string
	open     bool // something of it is what a walk cannot decide
	// loose says that nft does not take what was said of the protocol for a test of it.
	loose bool
	// plain keeps named sets out: the rule stands alone.
	plain bool
}

func (s *nftSlot) note(kinds ...string) { s.kinds = append(s.kinds, kinds...) }

// word is ip or ip6.
func (s *nftSlot) word() string {
	if s.ip == netfilter.IPv6 {
		return "ip6"
	}
	return "ip"
}

// A span is a literal: one value or a range of values, as text and as bounds of the same length.
type span struct {
	text   string
	lo, hi []byte
	// many is set for a range or prefix.
	many bool
}

func (a span) meets(b span) bool {
	return bytes.Compare(a.lo, b.hi) <= 0 && bytes.Compare(b.lo, a.hi) <= 0
}

func number(text string, v uint64, size int) span {
	b := binary.BigEndian.AppendUint64(nil, v)[8-size:]
	return span{text: text, lo: b, hi: b}
}

func addrSpan(a netip.Addr) span { return span{text: a.String(), lo: a.AsSlice(), hi: a.AsSlice()} }

func prefixSpan(p netip.Prefix) span {
	lo, hi := p.Masked().Addr().AsSlice(), p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < 8*len(hi); i++ {
		hi[i/8] |= 0x80 >> (i % 8)
	}
	return span{text: p.String(), lo: lo, hi: hi, many: p.Bits() < 8*len(hi)}
}

func (s *nftSlot) oneAddr() span { return addrSpan(s.pool.addr(s.r)) }

// manyAddrs is a prefix or a range.
func (s *nftSlot) manyAddrs() span {
	if chance(s.r, 0.7) {
		return prefixSpan(netip.MustParsePrefix(pick(s.r, s.pool.nets)))
	}
	a, b := s.oneAddr(), s.oneAddr()
	if bytes.Compare(a.lo, b.lo) > 0 {
		a, b = b, a
	}
	if bytes.Equal(a.lo, b.lo) {
		return a
	}
	return span{text: a.text + "-" + b.text, lo: a.lo, hi: b.hi, many: true}
}

func portSpan(lo, hi uint16) span {
	text := fmt.Sprint(lo)
	if hi > lo {
		text = fmt.Sprintf("%d-%d", lo, hi)
	}
	return span{text: text, lo: binary.BigEndian.AppendUint16(nil, lo), hi: binary.BigEndian.AppendUint16(nil, hi), many: hi > lo}
}

func (s *nftSlot) onePort() span { p := pick(s.r, portPool); return portSpan(p, p) }

func (s *nftSlot) manyPorts() span {
	p := pick(s.r, portPool)
	return portSpan(p-uint16(s.r.IntN(20)), p+1+uint16(s.r.IntN(400)))
}

func (s *nftSlot) oneSource() span {
	p := pick(s.r, []uint16{1024, 20000, 30000, 40000, 60000}) + uint16(s.r.IntN(2000))
	return portSpan(p, p)
}

func (s *nftSlot) manySources() span {
	lo := pick(s.r, []uint16{1024, 20000, 30000, 40000})
	return portSpan(lo, pick(s.r, []uint16{lo + 1000, 45000, 65535}))
}

func (s *nftSlot) oneMark() span {
	m := pick(s.r, append([]uint32{0, 0}, markPool...))
	return number(fmt.Sprintf("%#x", m), uint64(m), 4)
}

func (s *nftSlot) manyMarks() span {
	a, b := s.oneMark(), s.oneMark()
	if bytes.Compare(a.lo, b.lo) > 0 {
		a, b = b, a
	}
	if bytes.Equal(a.lo, b.lo) {
		return a
	}
	return span{text: a.text + "-" + b.text, lo: a.lo, hi: b.hi, many: true}
}

// words are literals with names, all apart from each other; their numbers are of no account.
func nftWords(names ...string) func(*nftSlot) span {
	return func(s *nftSlot) span {
		i := s.r.IntN(len(names))
		return number(names[i], uint64(i), 4)
	}
}

// nftLikely is nftWords with the first name half of the time.
func nftLikely(names ...string) func(*nftSlot) span {
	every := nftWords(names...)
	return func(s *nftSlot) span {
		if chance(s.r, 0.5) {
			return number(names[0], 0, 4)
		}
		return every(s)
	}
}

var nftDevices = []string{`"eth0"`, `"eth1"`, `"cali1a2b3c"`, `"cni0"`, `"lo"`, `"absent0"`}

// nftProtocols are the protocols by nft's names.
var nftProtocols = map[uint8]string{
	netfilter.ProtoTCP: "tcp", netfilter.ProtoUDP: "udp", netfilter.ProtoSCTP: "sctp", netfilter.ProtoICMP: "icmp", netfilter.ProtoICMPv6: "ipv6-icmp",
	netfilter.ProtoUDPLite: "udplite", netfilter.ProtoDCCP: "dccp", protoOther: fmt.Sprint(protoOther),
}

func (s *nftSlot) oneProto() span {
	p := pick(s.r, []uint8{netfilter.ProtoTCP, netfilter.ProtoTCP, netfilter.ProtoUDP, netfilter.ProtoUDP, netfilter.ProtoSCTP, netfilter.ProtoICMP,
		netfilter.ProtoICMPv6, netfilter.ProtoUDPLite, netfilter.ProtoDCCP, protoOther})
	return number(nftProtocols[p], uint64(p), 1)
}

// An nftField is an expression that has a value for each packet, of which there are sets and maps.
type nftField struct {
	name string
	// typ is the data type, by family where it is an address.
	typ func(s *nftSlot) string
	// expr is the expression as it is written.
	expr func(s *nftSlot) string
	one  func(s *nftSlot) span
	many func(s *nftSlot) span // nil: there are no ranges of it
	// protos are those that the expression is about; nil: any.
	protos []uint8
	family netfilter.Family
	hooks  hookSet
	open   bool
	// oneSided says why only one answer can be had here.
	oneSided string
}

// fixed is the same text in every slot.
func fixed(name string) func(*nftSlot) string { return func(*nftSlot) string { return name } }

func addrType(s *nftSlot) string {
	if s.ip == netfilter.IPv6 {
		return "ipv6_addr"
	}
	return "ipv4_addr"
}

// network is "ip FIELD" or "ip6 FIELD".
func network(field string) func(*nftSlot) string {
	return func(s *nftSlot) string { return s.word() + " " + field }
}

// transport is the field by the name of the protocol, or of any protocol.
func transport(field string) func(*nftSlot) string {
	return func(s *nftSlot) string {
		if slices.Contains(portProtos, s.proto) && chance(s.r, 0.7) {
			return nftProtocols[s.proto] + " " + field
		}
		return "th " + field
	}
}

// nftFields are the fields that sets, maps and comparisons are drawn of.
var nftFields = []nftField{
	{name: "ip saddr", typ: addrType, expr: network("saddr"), one: (*nftSlot).oneAddr, many: (*nftSlot).manyAddrs},
	{name: "ip daddr", typ: addrType, expr: network("daddr"), one: (*nftSlot).oneAddr, many: (*nftSlot).manyAddrs},
	{name: "meta l4proto", typ: fixed("inet_proto"), expr: fixed("meta l4proto"), one: (*nftSlot).oneProto},
	{name: "dport", typ: fixed("inet_service"), expr: transport("dport"), one: (*nftSlot).onePort, many: (*nftSlot).manyPorts, protos: portProtos},
	{name: "sport", typ: fixed("inet_service"), expr: transport("sport"), one: (*nftSlot).oneSource, many: (*nftSlot).manySources, protos: portProtos},
	{name: "meta mark", typ: fixed("mark"), expr: fixed("meta mark"), one: (*nftSlot).oneMark, many: (*nftSlot).manyMarks},
	{name: "ct mark", typ: fixed("mark"), expr: fixed("ct mark"), one: (*nftSlot).oneMark, many: (*nftSlot).manyMarks},
	{name: "meta iifname", typ: fixed("ifname"), expr: fixed("iifname"), one: nftWords(nftDevices...)},
	{name: "meta oifname", typ: fixed("ifname"), expr: fixed("oifname"), one: nftWords(nftDevices...)},
	{name: "meta iif", typ: fixed("iface_index"), expr: fixed("iif"), one: nftWords(nftDevices[:5]...)},
	{name: "meta oif", typ: fixed("iface_index"), expr: fixed("oif"), one: nftWords(nftDevices[:5]...)},
	{name: "ct state", typ: fixed("ct_state"), expr: fixed("ct state"), one: nftLikely("new", "established", "invalid", "untracked", "related")},
	{name: "ct direction", typ: fixed("ct_dir"), expr: fixed("ct direction"), one: nftWords("original", "reply")},
	{name: "icmp type", typ: fixed("icmp_type"), expr: fixed("icmp type"), one: nftLikely("echo-request", "echo-reply", "destination-unreachable"),
		protos: []uint8{netfilter.ProtoICMP}, family: netfilter.IPv4},
	{name: "icmpv6 type", typ: fixed("icmpv6_type"), expr: fixed("icmpv6 type"), one: nftLikely("echo-request", "echo-reply", "nd-neighbor-solicit"),
		protos: []uint8{netfilter.ProtoICMPv6}, family: netfilter.IPv6},
	{name: "meta pkttype", typ: fixed("pkt_type"), expr: fixed("meta pkttype"), one: nftWords("host", "broadcast", "multicast", "other"), open: true},
	{name: "meta skuid", typ: fixed("uid"), expr: fixed("meta skuid"), one: nftWords("0", "1000"), hooks: out | post, open: true},
}

// allowed tells whether a field can stand in a slot.
func (f *nftField) allowed(s *nftSlot) bool {
	return (f.family == 0 || f.family == s.ip) && (f.hooks == 0 || s.hooks.within(f.hooks)) && s.fits(f.protos)
}

// fits tells whether a rule that may be about some protocol can hold an expression about one of protos.
func (s *nftSlot) fits(protos []uint8) bool {
	if s.proto == severalProtos {
		return protos == nil || slices.Equal(protos, portProtos) // "th dport" is about any of them
	}
	return protos == nil || s.proto == 0 || slices.Contains(protos, s.proto)
}

// severalProtos stands for the protocol of a rule that tests for several.
const severalProtos = 255

// spans draws up to n literals of each field that have nothing in common: one list for each, with one literal of each
// field. ranged allows ranges and prefixes.
func (s *nftSlot) spans(fields []*nftField, n int, ranged bool) [][]span {
	var out [][]span
	for range n {
		var key []span
		for _, f := range fields {
			if ranged && f.many != nil && chance(s.r, 0.5) {
				key = append(key, f.many(s))
			} else {
				key = append(key, f.one(s))
			}
		}
		if !slices.ContainsFunc(out, func(other []span) bool { return meet(key, other) }) {
			out = append(out, key)
		}
	}
	return out
}

func haveRanges(fields []*nftField) bool {
	return slices.ContainsFunc(fields, func(f *nftField) bool { return f.many != nil })
}

func meet(a, b []span) bool {
	for i := range a {
		if !a[i].meets(b[i]) {
			return false
		}
	}
	return true
}

// keyText is a key of several parts as it is written.
func keyText(key []span) string {
	parts := make([]string, len(key))
	for i, k := range key {
		parts[i] = k.text
	}
	return strings.Join(parts, " . ")
}

func typeText(s *nftSlot, fields []*nftField) string {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = f.typ(s)
	}
	return strings.Join(parts, " . ")
}

// exprText is a concatenation of fields as it is written. One that names a protocol says what the rule is about.
func exprText(s *nftSlot, fields []*nftField) string {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = f.expr(s)
	}
	text := strings.Join(parts, " . ")
	s.pinned(text)
	return text
}

// field is the field of that name.
func fieldNamed(name string) *nftField {
	i := slices.IndexFunc(nftFields, func(f nftField) bool { return f.name == name })
	return &nftFields[i]
}

// someFields draws what a key is made of: one field, or a concatenation, often the ones that kube-proxy uses.
func (s *nftSlot) someFields() []*nftField {
	if s.fits(portProtos) && chance(s.r, 0.35) {
		fields := []*nftField{fieldNamed("ip daddr"), fieldNamed("meta l4proto"), fieldNamed("dport")}
		switch s.r.IntN(4) {
		case 0:
			fields = fields[1:]
		case 1:
			fields = []*nftField{fields[0], fields[2]}
		case 2:
			fields = append([]*nftField{fieldNamed("ip saddr")}, fields...)
		}
		return fields
	}
	var fields []*nftField
	want := pick(s.r, []int{1, 1, 1, 2, 2, 3})
	for range 30 {
		f := &nftFields[s.r.IntN(len(nftFields))]
		if len(fields) == want {
			break
		}
		if !f.allowed(s) || f.open || slices.Contains(fields, f) || len(f.protos) == 1 && want > 1 {
			continue
		}
		fields = append(fields, f)
	}
	if len(fields) == 0 {
		fields = append(fields, fieldNamed("ip daddr"))
	}
	return fields
}

// literalSet draws an anonymous set with something behind each key, as ": accept"; value nil for a set.
func (s *nftSlot) literalSet(fields []*nftField, n int, value func() string) string {
	ranged := chance(s.r, 0.4) && haveRanges(fields)
	var items []string
	for _, key := range s.spans(fields, n, ranged) {
		item := keyText(key)
		if value != nil {
			item += " : " + value()
		}
		items = append(items, item)
	}
	if value != nil && chance(s.r, 0.2) {
		items = append(items, "* : "+value())
		s.note("catch-all")
	}
	if ranged {
		s.note("interval set")
	}
	return "{ " + strings.Join(items, ", ") + " }"
}

// namedSet draws a named set or map of the table, and returns its name. data is empty for a set; else value draws what
// stands behind each key.
func (s *nftSlot) namedSet(fields []*nftField, data string, value func() string) string {
	key := typeText(s, fields)
	var fitting []*nftSet
	for _, t := range s.table.sets {
		// Sets of verdicts lead to chains, which not every chain may call.
		if t.key == key && t.data == data && data != "verdict" {
			fitting = append(fitting, t)
		}
	}
	if len(fitting) > 0 && chance(s.r, 0.6) {
		return pick(s.r, fitting).name
	}
	ranged := chance(s.r, 0.4) && haveRanges(fields)
	t := &nftSet{name: fmt.Sprintf("s%d", len(s.table.sets)), keyword: "set", key: key, data: data}
	typ := "type " + key
	if data != "" {
		t.keyword = "map"
		typ += " : " + data
	}
	t.spec = append(t.spec, typ)
	var flags []string
	timeout, counter := chance(s.r, 0.1), chance(s.r, 0.1)
	if ranged {
		flags = append(flags, "interval")
	}
	if timeout {
		flags = append(flags, "timeout")
	}
	if flags != nil {
		t.spec = append(t.spec, "flags "+strings.Join(flags, ","))
	}
	if counter {
		t.spec = append(t.spec, "counter")
	}
	if chance(s.r, 0.2) {
		t.spec = append(t.spec, `comment "drawn by the oracle"`)
	}
	for i, key := range s.spans(fields, 2+s.r.IntN(6), ranged) {
		item := keyText(key)
		switch {
		case timeout && chance(s.r, 0.7):
			item += " timeout 2h"
		case chance(s.r, 0.1):
			item += fmt.Sprintf(" comment \"element %d\"", i)
		}
		if value != nil {
			item += " : " + value()
		}
		t.elements = append(t.elements, item)
	}
	if value != nil && chance(s.r, 0.2) {
		t.elements = append(t.elements, "* : "+value())
	}
	s.table.sets = append(s.table.sets, t)
	return t.name
}

// relate compares a field with literals in one of the ways that there are.
func (s *nftSlot) relate(f *nftField) string {
	expr := f.expr(s)
	s.note(f.name)
	if len(f.protos) == 1 {
		s.proto = f.protos[0]
	} else if word, _, _ := strings.Cut(expr, " "); f.protos != nil && word != "th" {
		for p, name := range nftProtocols {
			if name == word {
				s.proto = p
			}
		}
	}
	fields := []*nftField{f}
	n := s.r.IntN(20)
	if f.name == "meta l4proto" && n >= 7 && (n < 17 || s.plain) {
		if s.proto != 0 { // nft takes no test that the one before it contradicts
			n = 5
		} else {
			s.proto = severalProtos
			// A set with one protocol would be that protocol for nft, which cannot print "th" behind some.
			s.note("!=", "anonymous set")
			return expr + pick(s.r, []string{" { tcp, udp }", " { tcp, udp, sctp }", " { icmp, ipv6-icmp }", " != { udp, 253 }", " { udp, 253, dccp }", " != { tcp, udp, sctp }"})
		}
	}
	switch {
	case n < 5:
		one := f.one(s)
		if f.name == "meta l4proto" {
			if p := one.lo[0]; s.proto == 0 && chance(s.r, 0.8) {
				s.proto = p
			} else {
				s.note("!=")
				return expr + " != " + one.text
			}
		}
		s.note("==")
		return expr + " " + one.text
	case n < 7:
		s.note("!=")
		return expr + " != " + f.one(s).text
	case n < 12 && f.many != nil:
		m := f.many(s)
		s.note("range or prefix")
		if chance(s.r, 0.3) {
			s.note("!= range or prefix")
			return expr + " != " + m.text
		}
		return expr + " " + m.text
	case n < 14 && f.many != nil:
		op := pick(s.r, []string{"<", ">", "<=", ">="})
		s.note(op)
		v := f.one(s)
		if strings.Trim(v.text, "0x.:") == "" && op == "<" { // nft takes no test that nothing passes
			op = ">="
		}
		if f.typ(s) == "mark" && op == "<" && v.text == "0x0" {
			op = ">="
		}
		return expr + " " + op + " " + v.text
	case n < 17 || s.plain:
		s.note("anonymous set")
		not := ""
		if chance(s.r, 0.3) {
			not = "!= "
			s.note("!= set")
		}
		return expr + " " + not + s.literalSet(fields, 1+s.r.IntN(4), nil)
	}
	s.note("named set")
	not := ""
	if chance(s.r, 0.3) {
		not = "!= "
		s.note("!= set")
	}
	return expr + " " + not + "@" + s.namedSet(fields, "", nil)
}
