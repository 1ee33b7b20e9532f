package nft

import (
	"encoding/binary"
	"encoding/hex"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Types that nft has beside those of type.go.
const (
	TypeBitmask  Type = "bitmask"
	TypeARPOp    Type = "arp_op"
	TypeDCCPType Type = "dccp_pkttype"
	TypeMHType   Type = "mh_type"
	TypeIGMPType Type = "igmp_type"
	TypeLLAddr   Type = "ll_addr"
	// TypeDate is that of "meta time": nanoseconds since 1970. nft calls it "time" as it does TypeTime, the milliseconds
	// of "ct expiration", and no listing declares a set of it but by typeof.
	TypeDate Type = "date"
	// TypeHex is that of bytes of the packet without a name (@th,0,16): an integer that prints in hexadecimal. nft calls
	// it "integer".
	TypeHex Type = "hex"
	// TypeMPTCP is that of the subtype of an option of multipath TCP. nft before 1.1 calls it "integer" and prints the
	// number.
	TypeMPTCP Type = "mptcpopt_subtype"
	// TypeInvalid is what nft gives the ports of a connection where the rule does not say of which protocol they are
	// (ct_expr_update_type), and in sets always: "ct reply proto-src { 0x50 [invalid type] }".
	TypeInvalid Type = "invalid"
)

// notation is how a value without a word of its own is printed.
type notation uint8

const (
	decimal notation = iota
	hexadecimal
	hex8 // 0x%08x
	hex4
	hex2
	hex1
	text
	addr4
	addr6
	linkAddr
	relativeTime
	date
	hourOfDay
	tcHandle
	interfaceName // an index, or its name: see TypeIfindex
	labelBit
	untyped // 0x50 [invalid type]
)

// datatype is one of nft's data types as nft 1.0.6 has it (src/datatype.c, `nft describe TYPE`).
type datatype struct {
	name Type
	// id is the number that the kernel keeps for the key or data of a set (enum datatypes of nft).
	id uint32
	// bits is 0 where the expression says how wide a value is.
	bits  int
	print notation
	// flags is set for types of single bits: several are printed with "|" or "," between them.
	flags bool
	// prefixes is set where a range that is a prefix is printed as one.
	prefixes bool
	// perLine is how many elements of a set stand on a line of a listing; 1 where it is 0 (calculate_delim).
	perLine int
	// quoted is set where words are printed in quotes.
	quoted bool
	// unprinted words are only read.
	unprinted bool
	words     []word
}

// word is a name for a value. Where several have one value the first is printed.
type word struct {
	name  string
	value uint64
}

// datatypes in the order of their numbers.
var datatypes = []datatype{
	{name: TypeInvalid, print: untyped},
	{name: TypeVerdict, id: 1},
	{name: TypeNFProto, id: 2, bits: 8, perLine: 5, words: []word{{"ipv4", 2}, {"ipv6", 10}}},
	{name: TypeBitmask, id: 3, print: hexadecimal},
	{name: TypeInteger, id: 4, perLine: 5},
	{name: TypeHex, id: 4, print: hexadecimal, perLine: 5},
	{name: TypeMPTCP, id: 4, bits: 4, perLine: 5, unprinted: true, words: []word{
		{"mp-capable", 0}, {"mp-join", 1}, {"dss", 2}, {"add-addr", 3}, {"remove-addr", 4}, {"mp-prio", 5}, {"mp-fail", 6},
		{"mp-fastclose", 7}, {"mp-tcprst", 8},
	}},
	{name: TypeString, id: 5, print: text},
	{name: TypeLLAddr, id: 6, print: linkAddr},
	{name: TypeIPv4, id: 7, bits: 32, print: addr4, prefixes: true, perLine: 2},
	{name: TypeIPv6, id: 8, bits: 128, print: addr6, prefixes: true},
	{name: TypeEther, id: 9, bits: 48, print: linkAddr},
	{name: TypeEtherType, id: 10, bits: 16, print: hex4, words: []word{
		{"ip", 0x0800}, {"arp", 0x0806}, {"ip6", 0x86dd}, {"8021q", 0x8100}, {"8021ad", 0x88a8}, {"vlan", 0x8100},
	}},
	{name: TypeARPOp, id: 11, bits: 16, perLine: 5, words: []word{
		{"request", 1}, {"reply", 2}, {"rrequest", 3}, {"rreply", 4}, {"inrequest", 8}, {"inreply", 9}, {"nak", 10},
	}},
	{name: TypeProto, id: 12, bits: 8, perLine: 5, words: protocolWords},
	{name: TypeService, id: 13, bits: 16, perLine: 5},
	{name: TypeICMPType, id: 14, bits: 8, words: []word{
		{"echo-reply", 0}, {"destination-unreachable", 3}, {"source-quench", 4}, {"redirect", 5}, {"echo-request", 8},
		{"router-advertisement", 9}, {"router-solicitation", 10}, {"time-exceeded", 11}, {"parameter-problem", 12},
		{"timestamp-request", 13}, {"timestamp-reply", 14}, {"info-request", 15}, {"info-reply", 16},
		{"address-mask-request", 17}, {"address-mask-reply", 18},
	}},
	{name: TypeTCPFlag, id: 15, bits: 8, print: hexadecimal, flags: true, perLine: 5, words: []word{
		{"fin", 1}, {"syn", 2}, {"rst", 4}, {"psh", 8}, {"ack", 16}, {"urg", 32}, {"ecn", 64}, {"cwr", 128},
	}},
	{name: TypeDCCPType, id: 16, bits: 4, perLine: 5, words: []word{
		{"request", 0}, {"response", 1}, {"data", 2}, {"ack", 3}, {"dataack", 4}, {"closereq", 5}, {"close", 6},
		{"reset", 7}, {"sync", 8}, {"syncack", 9},
	}},
	{name: TypeMHType, id: 17, bits: 8, words: []word{
		{"binding-refresh-request", 0}, {"home-test-init", 1}, {"careof-test-init", 2}, {"home-test", 3},
		{"careof-test", 4}, {"binding-update", 5}, {"binding-acknowledgement", 6}, {"binding-error", 7},
		{"fast-binding-update", 8}, {"fast-binding-acknowledgement", 9}, {"fast-binding-advertisement", 10},
		{"experimental-mobility-header", 11}, {"home-agent-switch-message", 12},
	}},
	{name: TypeTime, id: 18, bits: 32, print: relativeTime},
	{name: TypeMark, id: 19, bits: 32, print: hex8, prefixes: true, perLine: 5, quoted: true},
	{name: TypeIfindex, id: 20, bits: 32, print: interfaceName, perLine: 5},
	{name: TypeIftype, id: 21, bits: 16, words: []word{
		{"ether", 1}, {"ppp", 512}, {"ipip", 768}, {"ipip6", 769}, {"loopback", 772}, {"sit", 776}, {"ipgre", 778},
	}},
	{name: TypeRealm, id: 22, bits: 32, prefixes: true, quoted: true, words: []word{{"cosmos", 0}}},
	{name: TypeClassID, id: 23, bits: 32, print: tcHandle, perLine: 5},
	{name: TypeUID, id: 24, bits: 32, perLine: 5},
	{name: TypeGID, id: 25, bits: 32, perLine: 5},
	{name: TypeCTState, id: 26, bits: 32, print: hexadecimal, flags: true, perLine: 2, words: []word{
		{"invalid", 1}, {"new", 8}, {"established", 2}, {"related", 4}, {"untracked", 64},
	}},
	{name: TypeCTDir, id: 27, bits: 8, perLine: 5, words: []word{{"original", 0}, {"reply", 1}}},
	{name: TypeCTStatus, id: 28, bits: 32, print: hexadecimal, flags: true, perLine: 2, words: []word{
		{"expected", 1}, {"seen-reply", 2}, {"assured", 4}, {"confirmed", 8}, {"snat", 16}, {"dnat", 32}, {"dying", 512},
	}},
	{name: TypeICMPv6Type, id: 29, bits: 8, words: []word{
		{"destination-unreachable", 1}, {"packet-too-big", 2}, {"time-exceeded", 3}, {"parameter-problem", 4},
		{"echo-request", 128}, {"echo-reply", 129}, {"mld-listener-query", 130}, {"mld-listener-report", 131},
		{"mld-listener-done", 132}, {"mld-listener-reduction", 132}, {"nd-router-solicit", 133},
		{"nd-router-advert", 134}, {"nd-neighbor-solicit", 135}, {"nd-neighbor-advert", 136}, {"nd-redirect", 137},
		{"router-renumbering", 138}, {"ind-neighbor-solicit", 141}, {"ind-neighbor-advert", 142},
		{"mld2-listener-report", 143},
	}},
	{name: TypeCTLabel, id: 30, bits: 128, print: labelBit, flags: true},
	{name: TypePktType, id: 31, bits: 8, perLine: 2, words: []word{
		{"host", 0}, {"unicast", 0}, {"broadcast", 1}, {"multicast", 2}, {"other", 3},
	}},
	{name: TypeICMPCode, id: 32, bits: 8, words: []word{
		{"net-unreachable", 0}, {"host-unreachable", 1}, {"prot-unreachable", 2}, {"port-unreachable", 3},
		{"net-prohibited", 9}, {"host-prohibited", 10}, {"admin-prohibited", 13}, {"frag-needed", 4},
	}},
	{name: TypeICMPv6Code, id: 33, bits: 8, words: []word{
		{"no-route", 0}, {"admin-prohibited", 1}, {"addr-unreachable", 3}, {"port-unreachable", 4}, {"policy-fail", 5},
		{"reject-route", 6},
	}},
	{name: TypeICMPXCode, id: 34, bits: 8, words: []word{
		{"port-unreachable", 1}, {"admin-prohibited", 3}, {"no-route", 0}, {"host-unreachable", 2},
	}},
	{name: TypeDevgroup, id: 35, bits: 32, prefixes: true, quoted: true, words: []word{{"default", 0}}},
	{name: TypeDSCP, id: 36, bits: 6, print: hex2, words: []word{
		{"cs0", 0x00}, {"cs1", 0x08}, {"cs2", 0x10}, {"cs3", 0x18}, {"cs4", 0x20}, {"cs5", 0x28}, {"cs6", 0x30},
		{"cs7", 0x38}, {"df", 0x00}, {"be", 0x00}, {"lephb", 0x01}, {"af11", 0x0a}, {"af12", 0x0c}, {"af13", 0x0e},
		{"af21", 0x12}, {"af22", 0x14}, {"af23", 0x16}, {"af31", 0x1a}, {"af32", 0x1c}, {"af33", 0x1e}, {"af41", 0x22},
		{"af42", 0x24}, {"af43", 0x26}, {"va", 0x2c}, {"ef", 0x2e},
	}},
	{name: TypeECN, id: 37, bits: 2, print: hex1, words: []word{{"not-ect", 0}, {"ect1", 1}, {"ect0", 2}, {"ce", 3}}},
	{name: TypeFibType, id: 38, bits: 32, words: []word{
		{"unspec", 0}, {"unicast", 1}, {"local", 2}, {"broadcast", 3}, {"anycast", 4}, {"multicast", 5}, {"blackhole", 6},
		{"unreachable", 7}, {"prohibit", 8},
	}},
	{name: TypeBoolean, id: 39, bits: 1, words: []word{{"exists", 1}, {"missing", 0}}},
	{name: TypeCTEvent, id: 40, bits: 32, print: hexadecimal, flags: true, words: []word{
		{"new", 1 << 0}, {"related", 1 << 1}, {"destroy", 1 << 2}, {"reply", 1 << 3}, {"assured", 1 << 4},
		{"protoinfo", 1 << 5}, {"helper", 1 << 6}, {"mark", 1 << 7}, {"seqadj", 1 << 8}, {"secmark", 1 << 9},
		{"label", 1 << 10},
	}},
	{name: TypeIfname, id: 41, bits: 128, print: text},
	{name: TypeIGMPType, id: 42, bits: 8, words: []word{
		{"membership-query", 17}, {"membership-report-v1", 18}, {"membership-report-v2", 22},
		{"membership-report-v3", 34}, {"leave-group", 23},
	}},
	{name: TypeDate, id: 43, bits: 64, print: date},
	{name: TypeHour, id: 44, bits: 32, print: hourOfDay},
	{name: TypeDay, id: 45, bits: 8, quoted: true, words: []word{
		{"Sunday", 0}, {"Monday", 1}, {"Tuesday", 2}, {"Wednesday", 3}, {"Thursday", 4}, {"Friday", 5}, {"Saturday", 6},
	}},
	{name: TypeCGroupV2, id: 46, bits: 64},
}

// protocolWords are the names of /etc/protocols, which nft 1.0.6 prints, as Debian's netbase has them. Names that other
// files have for the same numbers stand behind them and are only read.
var protocolWords = []word{
	{"ip", 0}, {"icmp", 1}, {"igmp", 2}, {"ggp", 3}, {"ipencap", 4}, {"st", 5}, {"tcp", 6}, {"egp", 8}, {"igp", 9},
	{"pup", 12}, {"udp", 17}, {"hmp", 20}, {"xns-idp", 22}, {"rdp", 27}, {"iso-tp4", 29}, {"dccp", 33}, {"xtp", 36},
	{"ddp", 37}, {"idpr-cmtp", 38}, {"ipv6", 41}, {"ipv6-route", 43}, {"ipv6-frag", 44}, {"idrp", 45}, {"rsvp", 46},
	{"gre", 47}, {"esp", 50}, {"ah", 51}, {"skip", 57}, {"ipv6-icmp", 58}, {"ipv6-nonxt", 59}, {"ipv6-opts", 60},
	{"rspf", 73}, {"vmtp", 81}, {"eigrp", 88}, {"ospf", 89}, {"ax.25", 93}, {"ipip", 94}, {"etherip", 97},
	{"encap", 98}, {"pim", 103}, {"ipcomp", 108}, {"vrrp", 112}, {"l2tp", 115}, {"isis", 124}, {"sctp", 132},
	{"fc", 133}, {"mobility-header", 135}, {"udplite", 136}, {"mpls-in-ip", 137}, {"manet", 138}, {"hip", 139},
	{"shim6", 140}, {"wesp", 141}, {"rohc", 142}, {"ethernet", 143},
	{"hopopt", 0}, {"ipv4", 4}, {"icmpv6", 58}, {"ospfigp", 89}, {"comp", 108},
}

// typeOf is the description of a type; one that nft does not have is described as an integer.
func typeOf(t Type) *datatype {
	if d := datatypesByName[t]; d != nil {
		return d
	}
	return &unknownType
}

var unknownType = datatype{name: TypeInteger, print: decimal}

var datatypesByName = func() map[Type]*datatype {
	m := make(map[Type]*datatype, len(datatypes))
	for i := range datatypes {
		m[datatypes[i].name] = &datatypes[i]
	}
	return m
}()

// known tells whether nft has a type of that name.
func (t Type) known() bool { return datatypesByName[t] != nil }

// TypesOf are the types of a key or of data by the number that the kernel keeps for nft (NFTA_SET_KEY_TYPE,
// NFTA_SET_DATA_TYPE): six bits for each part, the first one uppermost. ok is false for numbers that nft 1.0.6 does not
// know.
func TypesOf(id uint32) (types []Type, ok bool) {
	for shift := 30; shift >= 0; shift -= 6 {
		part := id >> shift & 0x3f
		if part == 0 {
			if len(types) > 0 {
				return nil, false
			}
			continue
		}
		found := false
		for i := range datatypes {
			if datatypes[i].id == part && datatypes[i].name != TypeHex && datatypes[i].name != TypeMPTCP {
				types, found = append(types, datatypes[i].name), true
			}
		}
		if !found {
			return nil, false
		}
	}
	return types, len(types) > 0
}

// Size of a value in bytes; 0 where the type alone does not say.
func (t Type) Size() int { return (typeOf(t).bits + 7) / 8 }

// Flags tells whether a value of the type is a set of single bits, each with a meaning of its own.
func (t Type) Flags() bool { return typeOf(t).flags }

// declared is the type's name in the declaration of a set.
func (t Type) declared() string {
	switch t {
	case TypeDate:
		return string(TypeTime)
	case TypeHex, TypeMPTCP:
		return string(TypeInteger)
	}
	return string(t)
}

// fieldOf is a field of that type, as wide as the type says.
func fieldOf(t Type) Field { return Field{Type: t, Size: t.Size()} }

// number is a value of at most 8 bytes as a number.
func number(data []byte) (uint64, bool) {
	var v uint64
	for _, b := range data {
		if v>>56 != 0 {
			return 0, false
		}
		v = v<<8 | uint64(b)
	}
	return v, true
}

// numberBytes is a number as size bytes in network order; ok is false where it does not fit.
func numberBytes(v uint64, size int) (data []byte, ok bool) {
	if size < 8 && v>>(8*size) != 0 {
		return nil, false
	}
	data = make([]byte, size)
	for i := size - 1; i >= 0 && v != 0; i-- {
		data[i] = byte(v)
		v >>= 8
	}
	return data, true
}

// Text is a value as `nft list ruleset` prints it. An interface by index prints as a number: whoever knows names gives
// the name instead (see TypeIfindex).
func (t Type) Text(data []byte) string { return string(appendValue(nil, typeOf(t), data, false)) }

// appendValue appends a value as nft prints it. Numeric is how it prints the ends of a range: without words.
func appendValue(b []byte, t *datatype, data []byte, numeric bool) []byte {
	if len(t.words) > 0 && !numeric && !t.unprinted {
		if v, ok := number(data); ok {
			for _, w := range t.words {
				if w.value == v {
					if t.quoted {
						return append(append(append(b, '"'), w.name...), '"')
					}
					return append(b, w.name...)
				}
			}
		}
	}
	v, fits := number(data)
	switch t.print {
	case text:
		b = append(b, '"')
		b = append(b, stringValue(data)...)
		return append(b, '"')
	case addr4, addr6:
		if a, ok := netip.AddrFromSlice(data); ok && (t.print == addr4) == a.Is4() {
			return appendAddress(b, a)
		}
	case linkAddr:
		for i, c := range data {
			if i > 0 {
				b = append(b, ':')
			}
			b = hex.AppendEncode(b, []byte{c})
		}
		return b
	case interfaceName:
		if len(data) == ifNameSize && data[0] != 0 {
			return append(append(append(b, '"'), stringValue(data)...), '"')
		}
	case labelBit:
		bit := new(big.Int).SetBytes(data).TrailingZeroBits()
		return strconv.AppendUint(b, uint64(bit), 10)
	}
	if !fits {
		n := new(big.Int).SetBytes(data)
		if t.print == decimal {
			return n.Append(b, 10)
		}
		return n.Append(append(b, "0x"...), 16)
	}
	switch t.print {
	case hexadecimal, addr4, addr6:
		return appendHex(b, v, 0)
	case hex8:
		return appendHex(b, v, 8)
	case hex4:
		return appendHex(b, v, 4)
	case hex2:
		return appendHex(b, v, 2)
	case hex1:
		return appendHex(b, v, 1)
	case relativeTime:
		if numeric {
			return append(strconv.AppendUint(b, v/1000, 10), 's')
		}
		return appendDuration(b, time.Duration(min(v, uint64(longestDuration)))*time.Millisecond)
	case date:
		at := time.Unix(int64(v/1e9), 0).UTC()
		return append(at.AppendFormat(append(b, '"'), time.DateTime), '"')
	case hourOfDay:
		v %= 86400
		b = append(b, '"')
		b = appendTwo(b, v/3600)
		b = appendTwo(append(b, ':'), v/60%60)
		if v%60 != 0 {
			b = appendTwo(append(b, ':'), v%60)
		}
		return append(b, '"')
	case untyped:
		return append(appendHex(b, v, 0), untypedMark...)
	case tcHandle:
		switch v {
		case 0:
			return append(b, "none"...)
		case 0xffffffff:
			return append(b, "root"...)
		}
		b = strconv.AppendUint(b, v>>16&0xffff, 16)
		return strconv.AppendUint(append(b, ':'), v&0xffff, 16)
	}
	return strconv.AppendUint(b, v, 10)
}

// untypedMark stands behind a value of TypeInvalid.
const untypedMark = " [invalid type]"

// ifNameSize is IFNAMSIZ: what an interface's name takes with the zero behind it.
const ifNameSize = 16

// longestDuration in milliseconds is the longest that time.Duration holds.
const longestDuration = int64(1<<63-1) / int64(time.Millisecond)

// appendAddress appends an address as getnameinfo writes it, which has a dotted end where netip has none (::1.2.3.4)
// and the other way round for some (glibc's inet_ntop).
func appendAddress(b []byte, a netip.Addr) []byte {
	if !a.Is6() {
		return a.AppendTo(b)
	}
	raw := a.As16()
	zeros := 0
	for zeros < 16 && raw[zeros] == 0 {
		zeros++
	}
	// inet_ntop prints the last four bytes dotted where the first six words are zero and the seventh is not (IPv4
	// compatible), or where ffff stands in the sixth (IPv4 mapped).
	if zeros == 12 || zeros == 13 {
		v4 := netip.AddrFrom4([4]byte(raw[12:]))
		return v4.AppendTo(append(b, "::"...))
	}
	return a.AppendTo(b)
}

func appendTwo(b []byte, v uint64) []byte {
	return append(b, byte('0'+v/10%10), byte('0'+v%10))
}

func appendHex(b []byte, v uint64, digits int) []byte {
	s := strconv.FormatUint(v, 16)
	b = append(b, "0x"...)
	for i := len(s); i < digits; i++ {
		b = append(b, '0')
	}
	return append(b, s...)
}

// appendDuration appends a duration as nft does (time_print): "3h", "1d2h3m4s5ms".
func appendDuration(b []byte, d time.Duration) []byte {
	ms := d.Milliseconds()
	for _, u := range [...]struct {
		unit string
		ms   int64
	}{{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}} {
		if n := ms / u.ms; n > 0 {
			b = append(strconv.AppendInt(b, n, 10), u.unit...)
			ms %= u.ms
		}
	}
	return b
}

// stringValue is a string out of its bytes, without the zeros behind it. A star that is part of a name is written
// with a backslash before it, because nft takes one at the end for "any name that begins so".
func stringValue(data []byte) string {
	s := string(data)
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i]
		if strings.HasSuffix(s, "*") {
			s = s[:len(s)-1] + `\*`
		}
	}
	return s
}

// indexBytes is an interface's index as a value of TypeIfindex.
func indexBytes(index uint32) []byte { return binary.BigEndian.AppendUint32(nil, index) }
