package nft

import (
	"strconv"
	"strings"
)

// layer is where a header begins in a packet.
type layer uint8

const (
	linkLayer layer = iota
	networkLayer
	transportLayer
)

// headerField is a field of a header or of an option as nft 1.0.6 names it (src/proto.c, exthdr.c, tcpopt.c, ipopt.c,
// sctp_chunk.c): where it begins in bits, and what it holds.
type headerField struct {
	name         string
	typ          Type
	offset, bits int
}

func (f *headerField) field() Field { return Field{Type: f.typ, Size: (f.bits + 7) / 8} }

// header is a header, or an option or extension header.
type header struct {
	name   string
	layer  layer
	fields []headerField
}

// headers are the protocols whose fields have names. Of fields at one place the first is the one that nft prints.
var headers = []header{
	{"ether", linkLayer, []headerField{
		{"daddr", TypeEther, 0, 48}, {"saddr", TypeEther, 48, 48}, {"type", TypeEtherType, 96, 16},
	}},
	{"vlan", linkLayer, []headerField{
		{"pcp", TypeInteger, 0, 3}, {"dei", TypeInteger, 3, 1}, {"cfi", TypeInteger, 3, 1}, {"id", TypeInteger, 4, 12},
		{"type", TypeEtherType, 16, 16},
	}},
	{"arp", networkLayer, []headerField{
		{"htype", TypeInteger, 0, 16}, {"ptype", TypeEtherType, 16, 16}, {"hlen", TypeInteger, 32, 8},
		{"plen", TypeInteger, 40, 8}, {"operation", TypeARPOp, 48, 16}, {"saddr ether", TypeEther, 64, 48},
		{"saddr ip", TypeIPv4, 112, 32}, {"daddr ether", TypeEther, 144, 48}, {"daddr ip", TypeIPv4, 192, 32},
	}},
	{"ip", networkLayer, []headerField{
		{"version", TypeInteger, 0, 4}, {"hdrlength", TypeInteger, 4, 4}, {"dscp", TypeDSCP, 8, 6},
		{"ecn", TypeECN, 14, 2}, {"length", TypeInteger, 16, 16}, {"id", TypeInteger, 32, 16},
		{"frag-off", TypeInteger, 48, 16}, {"ttl", TypeInteger, 64, 8}, {"protocol", TypeProto, 72, 8},
		{"checksum", TypeInteger, 80, 16}, {"saddr", TypeIPv4, 96, 32}, {"daddr", TypeIPv4, 128, 32},
	}},
	{"ip6", networkLayer, []headerField{
		{"version", TypeInteger, 0, 4}, {"dscp", TypeDSCP, 4, 6}, {"ecn", TypeECN, 10, 2},
		{"flowlabel", TypeInteger, 12, 20}, {"length", TypeInteger, 32, 16}, {"nexthdr", TypeProto, 48, 8},
		{"hoplimit", TypeInteger, 56, 8}, {"saddr", TypeIPv6, 64, 128}, {"daddr", TypeIPv6, 192, 128},
	}},
	{"icmp", transportLayer, []headerField{
		{"type", TypeICMPType, 0, 8}, {"code", TypeICMPCode, 8, 8}, {"checksum", TypeInteger, 16, 16},
		{"id", TypeInteger, 32, 16}, {"sequence", TypeInteger, 48, 16}, {"gateway", TypeInteger, 32, 32},
		{"mtu", TypeInteger, 48, 16},
	}},
	{"icmpv6", transportLayer, []headerField{
		{"type", TypeICMPv6Type, 0, 8}, {"code", TypeICMPv6Code, 8, 8}, {"checksum", TypeInteger, 16, 16},
		{"parameter-problem", TypeInteger, 32, 32}, {"mtu", TypeInteger, 32, 32}, {"id", TypeInteger, 32, 16},
		{"sequence", TypeInteger, 48, 16}, {"max-delay", TypeInteger, 32, 16},
		// nft 1.0.8 and later.
		{"taddr", TypeIPv6, 64, 128}, {"daddr", TypeIPv6, 192, 128},
	}},
	{"igmp", transportLayer, []headerField{
		{"type", TypeIGMPType, 0, 8}, {"mrt", TypeInteger, 8, 8}, {"checksum", TypeInteger, 16, 16},
		{"group", TypeInteger, 32, 32},
	}},
	{"ah", transportLayer, []headerField{
		{"nexthdr", TypeProto, 0, 8}, {"hdrlength", TypeInteger, 8, 8}, {"reserved", TypeInteger, 16, 16},
		{"spi", TypeInteger, 32, 32}, {"sequence", TypeInteger, 64, 32},
	}},
	{"esp", transportLayer, []headerField{{"spi", TypeInteger, 0, 32}, {"sequence", TypeInteger, 32, 32}}},
	{"comp", transportLayer, []headerField{
		{"nexthdr", TypeProto, 0, 8}, {"flags", TypeBitmask, 8, 8}, {"cpi", TypeInteger, 16, 16},
	}},
	{"udp", transportLayer, []headerField{
		{"sport", TypeService, 0, 16}, {"dport", TypeService, 16, 16}, {"length", TypeInteger, 32, 16},
		{"checksum", TypeInteger, 48, 16},
	}},
	{"udplite", transportLayer, []headerField{
		{"sport", TypeService, 0, 16}, {"dport", TypeService, 16, 16}, {"csumcov", TypeInteger, 32, 16},
		{"checksum", TypeInteger, 48, 16},
	}},
	{"tcp", transportLayer, []headerField{
		{"sport", TypeService, 0, 16}, {"dport", TypeService, 16, 16}, {"sequence", TypeInteger, 32, 32},
		{"ackseq", TypeInteger, 64, 32}, {"doff", TypeInteger, 96, 4}, {"reserved", TypeInteger, 100, 4},
		{"flags", TypeTCPFlag, 104, 8}, {"window", TypeInteger, 112, 16}, {"checksum", TypeInteger, 128, 16},
		{"urgptr", TypeInteger, 144, 16},
	}},
	{"dccp", transportLayer, []headerField{
		{"sport", TypeService, 0, 16}, {"dport", TypeService, 16, 16}, {"type", TypeDCCPType, 67, 4},
	}},
	{"sctp", transportLayer, []headerField{
		{"sport", TypeService, 0, 16}, {"dport", TypeService, 16, 16}, {"vtag", TypeInteger, 32, 32},
		{"checksum", TypeInteger, 64, 32},
	}},
	{"th", transportLayer, []headerField{{"sport", TypeService, 0, 16}, {"dport", TypeService, 16, 16}}},
	// nft 1.0.8 and later.
	{"gre", transportLayer, []headerField{
		{"flags", TypeInteger, 0, 5}, {"version", TypeInteger, 13, 3}, {"protocol", TypeEtherType, 16, 16},
	}},
}

// tunnels are headers that carry packets, nft 1.0.8 and later: "vxlan vni", and fields of what is in them, "vxlan ip saddr".
// They stand in no fixed place of the packet.
var tunnels = []header{
	{"vxlan", 0, []headerField{{"flags", TypeBitmask, 0, 8}, {"vni", TypeInteger, 32, 24}}},
	{"geneve", 0, []headerField{{"type", TypeEtherType, 16, 16}, {"vni", TypeInteger, 32, 24}}},
	{"gretap", 0, nil},
	{"gre", 0, nil},
}

// tunnelled is a field in or of a tunnel; header is empty for its own.
func tunnelled(tunnel, protocol, field string) (Expr, bool) {
	h := headerOf(tunnels, tunnel)
	if h == nil {
		return nil, false
	}
	if protocol == "" {
		f, ok := fieldNamed(h.fields, field)
		return &Other{Text: tunnel + " " + field, Field: f}, ok
	}
	_, f, ok := PayloadField(protocol, field)
	return &Other{Text: tunnel + " " + protocol + " " + field, Field: f}, ok
}

// extensionHeaders are those of IPv6 ("exthdr").
var extensionHeaders = []header{
	{"hbh", 0, []headerField{{"nexthdr", TypeProto, 0, 8}, {"hdrlength", TypeInteger, 8, 8}}},
	{"rt", 0, []headerField{
		{"nexthdr", TypeProto, 0, 8}, {"hdrlength", TypeInteger, 8, 8}, {"type", TypeInteger, 16, 8},
		{"seg-left", TypeInteger, 24, 8},
	}},
	{"rt0", 0, []headerField{
		{"reserved", TypeInteger, 32, 8}, {"addr[1]", TypeIPv6, 64, 128}, {"addr[2]", TypeIPv6, 192, 128},
	}},
	{"srh", 0, []headerField{
		{"last-entry", TypeInteger, 32, 8}, {"flags", TypeInteger, 40, 8}, {"tag", TypeInteger, 48, 16},
		{"sid[1]", TypeIPv6, 64, 128}, {"sid[2]", TypeIPv6, 192, 128},
	}},
	{"frag", 0, []headerField{
		{"nexthdr", TypeProto, 0, 8}, {"reserved", TypeInteger, 8, 8}, {"frag-off", TypeInteger, 16, 13},
		{"reserved2", TypeInteger, 29, 2}, {"more-fragments", TypeInteger, 31, 1}, {"id", TypeInteger, 32, 32},
	}},
	{"dst", 0, []headerField{{"nexthdr", TypeProto, 0, 8}, {"hdrlength", TypeInteger, 8, 8}}},
	{"mh", 0, []headerField{
		{"nexthdr", TypeProto, 0, 8}, {"hdrlength", TypeInteger, 8, 8}, {"type", TypeMHType, 16, 8},
		{"reserved", TypeInteger, 24, 8}, {"checksum", TypeInteger, 32, 16},
	}},
}

var tcpOptions = []header{
	{"eol", 0, []headerField{{"kind", TypeInteger, 0, 8}}},
	{"nop", 0, []headerField{{"kind", TypeInteger, 0, 8}}},
	{"maxseg", 0, []headerField{
		{"kind", TypeInteger, 0, 8}, {"length", TypeInteger, 8, 8}, {"size", TypeInteger, 16, 16},
	}},
	{"window", 0, []headerField{
		{"kind", TypeInteger, 0, 8}, {"length", TypeInteger, 8, 8}, {"count", TypeInteger, 16, 8},
	}},
	{"sack-perm", 0, []headerField{{"kind", TypeInteger, 0, 8}, {"length", TypeInteger, 8, 8}}},
	{"sack", 0, []headerField{
		{"kind", TypeInteger, 0, 8}, {"length", TypeInteger, 8, 8}, {"left", TypeInteger, 16, 32},
		{"right", TypeInteger, 48, 32},
	}},
	{"sack0", 0, []headerField{{"left", TypeInteger, 16, 32}, {"right", TypeInteger, 48, 32}}},
	{"sack1", 0, []headerField{{"left", TypeInteger, 80, 32}, {"right", TypeInteger, 112, 32}}},
	{"sack2", 0, []headerField{{"left", TypeInteger, 144, 32}, {"right", TypeInteger, 176, 32}}},
	{"sack3", 0, []headerField{{"left", TypeInteger, 208, 32}, {"right", TypeInteger, 240, 32}}},
	{"timestamp", 0, []headerField{
		{"kind", TypeInteger, 0, 8}, {"length", TypeInteger, 8, 8}, {"tsval", TypeInteger, 16, 32},
		{"tsecr", TypeInteger, 48, 32},
	}},
	{"md5sig", 0, []headerField{{"kind", TypeInteger, 0, 8}, {"length", TypeInteger, 8, 8}}},
	{"mptcp", 0, []headerField{
		{"kind", TypeInteger, 0, 8}, {"length", TypeInteger, 8, 8}, {"subtype", TypeMPTCP, 16, 4},
	}},
	{"fastopen", 0, []headerField{{"kind", TypeInteger, 0, 8}, {"length", TypeInteger, 8, 8}}},
}

var ipOptions = []header{
	{"lsrr", 0, routeOption},
	{"rr", 0, routeOption},
	{"ssrr", 0, routeOption},
	{"ra", 0, []headerField{
		{"type", TypeInteger, 0, 8}, {"length", TypeInteger, 8, 8}, {"value", TypeInteger, 16, 16},
	}},
}

var routeOption = []headerField{
	{"type", TypeInteger, 0, 8}, {"length", TypeInteger, 8, 8}, {"ptr", TypeInteger, 16, 8},
	{"addr", TypeInteger, 24, 32},
}

var sctpChunks = []header{
	sctpChunk("data", headerField{"tsn", TypeInteger, 32, 32}, headerField{"stream", TypeInteger, 64, 16},
		headerField{"ssn", TypeInteger, 80, 16}, headerField{"ppid", TypeInteger, 96, 32}),
	sctpChunk("init", sctpInit...),
	sctpChunk("init-ack", sctpInit...),
	sctpChunk("sack", headerField{"cum-tsn-ack", TypeInteger, 32, 32}, headerField{"a-rwnd", TypeInteger, 64, 32},
		headerField{"num-gap-ack-blocks", TypeInteger, 96, 16}, headerField{"num-dup-tsns", TypeInteger, 112, 16}),
	sctpChunk("heartbeat"),
	sctpChunk("heartbeat-ack"),
	sctpChunk("abort"),
	sctpChunk("shutdown", headerField{"cum-tsn-ack", TypeInteger, 32, 32}),
	sctpChunk("shutdown-ack"),
	sctpChunk("error"),
	sctpChunk("cookie-echo"),
	sctpChunk("cookie-ack"),
	sctpChunk("ecne", headerField{"lowest-tsn", TypeInteger, 32, 32}),
	sctpChunk("cwr", headerField{"lowest-tsn", TypeInteger, 32, 32}),
	sctpChunk("shutdown-complete"),
	sctpChunk("asconf-ack", headerField{"seqno", TypeInteger, 32, 32}),
	sctpChunk("forward-tsn", headerField{"new-cum-tsn", TypeInteger, 32, 32}),
	sctpChunk("asconf", headerField{"seqno", TypeInteger, 32, 32}),
}

var sctpInit = []headerField{
	{"init-tag", TypeInteger, 32, 32}, {"a-rwnd", TypeInteger, 64, 32}, {"num-outbound-streams", TypeInteger, 96, 16},
	{"num-inbound-streams", TypeInteger, 112, 16}, {"initial-tsn", TypeInteger, 128, 32},
}

// sctpChunk is a chunk with the fields that every one has and its own.
func sctpChunk(name string, own ...headerField) header {
	fields := []headerField{{"type", TypeInteger, 0, 8}, {"flags", TypeInteger, 8, 8}, {"length", TypeInteger, 16, 16}}
	return header{name, 0, append(fields, own...)}
}

// metaFields are the keys of meta (meta_templates) in nft 1.0.6, and broute of later versions.
var metaFields = []headerField{
	{"length", TypeInteger, 0, 32}, {"protocol", TypeEtherType, 0, 16}, {"nfproto", TypeNFProto, 0, 8},
	{"l4proto", TypeProto, 0, 8}, {"priority", TypeClassID, 0, 32}, {"mark", TypeMark, 0, 32},
	{"iif", TypeIfindex, 0, 32}, {"iifname", TypeIfname, 0, 128}, {"iiftype", TypeIftype, 0, 16},
	{"oif", TypeIfindex, 0, 32}, {"oifname", TypeIfname, 0, 128}, {"oiftype", TypeIftype, 0, 16},
	{"skuid", TypeUID, 0, 32}, {"skgid", TypeGID, 0, 32}, {"nftrace", TypeInteger, 0, 1},
	{"rtclassid", TypeRealm, 0, 32}, {"ibrname", TypeIfname, 0, 128}, {"obrname", TypeIfname, 0, 128},
	{"pkttype", TypePktType, 0, 8}, {"cpu", TypeInteger, 0, 32}, {"iifgroup", TypeDevgroup, 0, 32},
	{"oifgroup", TypeDevgroup, 0, 32}, {"cgroup", TypeInteger, 0, 32}, {"random", TypeInteger, 0, 32},
	{"ipsec", TypeBoolean, 0, 8}, {"iifkind", TypeIfname, 0, 128}, {"oifkind", TypeIfname, 0, 128},
	{"ibrpvid", TypeInteger, 0, 16}, {"ibrvproto", TypeEtherType, 0, 16}, {"time", TypeDate, 0, 64},
	{"day", TypeDay, 0, 8}, {"hour", TypeHour, 0, 32}, {"secmark", TypeInteger, 0, 32}, {"sdif", TypeIfindex, 0, 32},
	{"sdifname", TypeIfname, 0, 128}, {"broute", TypeInteger, 0, 8}, {"ibrhwaddr", TypeEther, 0, 48},
	{"secpath", TypeBoolean, 0, 8},
}

// ctFields are the keys of ct (ct_templates). The addresses of nft before 0.8.3 (saddr and daddr without a family) are
// as wide as those of the family of the table.
var ctFields = []headerField{
	{"state", TypeCTState, 0, 32}, {"direction", TypeCTDir, 0, 8}, {"status", TypeCTStatus, 0, 32},
	{"mark", TypeMark, 0, 32}, {"expiration", TypeTime, 0, 32}, {"helper", TypeString, 0, 128},
	{"l3proto", TypeNFProto, 0, 8}, {"protocol", TypeProto, 0, 8}, {"proto-src", TypeService, 0, 16},
	{"proto-dst", TypeService, 0, 16}, {"label", TypeCTLabel, 0, 128}, {"bytes", TypeInteger, 0, 64},
	{"packets", TypeInteger, 0, 64}, {"avgpkt", TypeInteger, 0, 64}, {"zone", TypeInteger, 0, 16},
	{"event", TypeCTEvent, 0, 32}, {"secmark", TypeInteger, 0, 32}, {"id", TypeInteger, 0, 32},
}

var rtFields = []headerField{
	{"classid", TypeRealm, 0, 32}, {"ip nexthop", TypeIPv4, 0, 32}, {"ip6 nexthop", TypeIPv6, 0, 128},
	{"mtu", TypeInteger, 0, 16}, {"ipsec", TypeBoolean, 0, 8},
}

var socketFields = []headerField{
	{"transparent", TypeInteger, 0, 8}, {"mark", TypeMark, 0, 32}, {"wildcard", TypeInteger, 0, 8},
	{"cgroupv2", TypeCGroupV2, 0, 64},
}

func headerOf(table []header, name string) *header {
	for i := range table {
		if table[i].name == name {
			return &table[i]
		}
	}
	return nil
}

func fieldIn(fields []headerField, name string) *headerField {
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
	}
	return nil
}

// PayloadField is the field "PROTOCOL FIELD" of a packet with its place in the header in bits; ok is false where nft
// has no such field.
func PayloadField(protocol, field string) (p Payload, f Field, ok bool) {
	h := headerOf(headers, protocol)
	if h == nil {
		return Payload{}, Field{}, false
	}
	in := fieldIn(h.fields, field)
	if in == nil {
		return Payload{}, Field{}, false
	}
	return Payload{Protocol: protocol, Field: field, Offset: in.offset, Bits: in.bits}, in.field(), true
}

// extensions is the table of a kind of ExtHdr.
func extensions(kind string) []header {
	switch kind {
	case "exthdr":
		return extensionHeaders
	case "tcp option":
		return tcpOptions
	case "ip option":
		return ipOptions
	case "sctp chunk":
		return sctpChunks
	}
	return nil
}

// ExpressionFields are the parts of an expression's value: one, or those of a concatenation or of what a map gives. A
// Size of 0 says that the width is not known. It is nil for constants without a type and for maps that are not there.
func (t *Table) ExpressionFields(e Expr) []Field {
	if c, ok := e.(*Concat); ok {
		var fields []Field
		for _, p := range c.Parts {
			fields = append(fields, t.ExpressionFields(p)...)
		}
		return fields
	}
	if m, ok := e.(*MapExpr); ok {
		switch s := m.Map.(type) {
		case SetRef:
			if set := t.Set(s.Name); set != nil {
				return set.Data
			}
		case SetLit:
			return s.Data
		}
		return nil
	}
	if f, ok := t.expressionField(e); ok {
		return []Field{f}
	}
	return nil
}

// expressionField is the type and width of an expression that has one value.
func (t *Table) expressionField(e Expr) (Field, bool) {
	switch e := e.(type) {
	case *Payload:
		if e.Protocol != "" && e.Protocol[0] == '@' {
			return Field{Type: TypeHex, Size: (e.Bits + 7) / 8}, e.Bits > 0
		}
		_, f, ok := PayloadField(e.Protocol, e.Field)
		return f, ok
	case *Meta:
		return fieldNamed(metaFields, e.Key)
	case *CT:
		switch e.Key {
		case "saddr", "daddr", "src", "dst":
			switch e.Family {
			case IP:
				return fieldOf(TypeIPv4), true
			case IP6:
				return fieldOf(TypeIPv6), true
			}
			return Field{}, false
		}
		return fieldNamed(ctFields, e.Key)
	case *Fib:
		switch {
		case e.Exists:
			return fieldOf(TypeBoolean), true
		case e.Result == "type":
			return fieldOf(TypeFibType), true
		case e.Result == "oif":
			return fieldOf(TypeIfindex), true
		case e.Result == "oifname":
			return fieldOf(TypeIfname), true
		}
	case *Numgen, *Hash:
		return Field{Type: TypeInteger, Size: 4}, true
	case *Socket:
		return fieldNamed(socketFields, e.Key)
	case *RT:
		return fieldNamed(rtFields, e.Key)
	case *ExtHdr:
		return e.field()
	case *Other:
		return e.Field, e.Field.Type != ""
	case *Const:
		return Field{Type: e.Type, Size: len(e.Data)}, e.Type != ""
	case *Range:
		return t.expressionField(e.Lo)
	case *Prefix:
		return t.expressionField(e.Value)
	case *Binary:
		return t.expressionField(e.Left)
	case *MapExpr:
		if f := t.ExpressionFields(e); len(f) == 1 {
			return f[0], true
		}
	}
	return Field{}, false
}

func fieldNamed(fields []headerField, name string) (Field, bool) {
	if f := fieldIn(fields, name); f != nil {
		return f.field(), true
	}
	return Field{}, false
}

// field is the type and width of an option or extension header; of its presence where that is asked.
func (e *ExtHdr) field() (Field, bool) {
	if e.Exists {
		return fieldOf(TypeBoolean), true
	}
	if e.Kind == "tcp option" && strings.HasPrefix(e.Name, "@") {
		// "@KIND,OFFSET,BITS": bytes of an option without a name.
		if i := strings.LastIndexByte(e.Name, ','); i >= 0 {
			if bits, err := strconv.Atoi(e.Name[i+1:]); err == nil && bits > 0 && bits <= 2048 {
				return Field{Type: TypeInteger, Size: (bits + 7) / 8}, true
			}
		}
		return Field{}, false
	}
	h := headerOf(extensions(e.Kind), e.Name)
	if h == nil {
		return Field{}, false
	}
	return fieldNamed(h.fields, e.Field)
}
