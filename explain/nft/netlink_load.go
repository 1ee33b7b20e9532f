package nft

// Expressions that load something into a register (net/netfilter/nft_*.c), by the kernel's numbers for them.

// NFTA_PAYLOAD_*.
const (
	nftaPayloadDreg   = 1
	nftaPayloadBase   = 2
	nftaPayloadOffset = 3
	nftaPayloadLen    = 4
	nftaPayloadSreg   = 5
)

// NFTA_META_*, NFT_META_* and NFTA_CT_*, NFT_CT_* that matter by themselves.
const (
	nftaMetaDreg = 1
	nftaMetaKey  = 2
	nftaMetaSreg = 3

	nftMetaProtocol = 1
	nftMetaIifType  = 8
	nftMetaNFTrace  = 12
	nftMetaNFProto  = 15
	nftMetaL4Proto  = 16

	nftaCTDreg      = 1
	nftaCTKey       = 2
	nftaCTDirection = 3
	nftaCTSreg      = 4

	nftCTL3Protocol = 7
	nftCTSrc        = 8
	nftCTDst        = 9
	nftCTProtocol   = 10
)

// metaKeys are nft's words in the order of the kernel's numbers (enum nft_meta_keys).
var metaKeys = [...]string{
	"length", "protocol", "priority", "mark", "iif", "oif", "iifname", "oifname", "iiftype", "oiftype", "skuid", "skgid",
	"nftrace", "rtclassid", "secmark", "nfproto", "l4proto", "ibrname", "obrname", "pkttype", "cpu", "iifgroup", "oifgroup",
	"cgroup", "random", "ipsec", "iifkind", "oifkind", "ibrpvid", "ibrvproto", "time", "day", "hour", "sdif", "sdifname",
	"broute", "", "ibrhwaddr",
}

// metaOperand is "meta KEY", nil for a key that is not known.
func metaOperand(key uint32) *operand {
	if key >= uint32(len(metaKeys)) {
		return nil
	}
	f := fieldIn(metaFields, metaKeys[key])
	if f == nil {
		return nil
	}
	typ := valueType{f.typ, f.bits, f.typ.hostOrder()}
	// Integers of the machine; a random number has no order (nft's meta_templates).
	switch f.name {
	case "length", "cpu", "cgroup", "ibrpvid", "secmark":
		typ.host = true
	}
	return &operand{kind: opMeta, typ: typ, key: key, expr: &Meta{Key: f.name}}
}

// ctKey is one of the kernel's keys of conntrack (enum nft_ct_keys).
type ctKey struct {
	name   string
	family Family
}

var ctKeys = [...]ctKey{
	{name: "state"}, {name: "direction"}, {name: "status"}, {name: "mark"}, {name: "secmark"}, {name: "expiration"},
	{name: "helper"}, {name: "l3proto"}, {name: "saddr"}, {name: "daddr"}, {name: "protocol"}, {name: "proto-src"},
	{name: "proto-dst"}, {name: "label"}, {name: "packets"}, {name: "bytes"}, {name: "avgpkt"}, {name: "zone"},
	{name: "event"}, {"saddr", IP}, {"daddr", IP}, {"saddr", IP6}, {"daddr", IP6}, {name: "id"},
}

// ctOperand is "ct KEY"; direction is empty, original or reply. Nil for a key that is not known.
func ctOperand(key uint32, direction string) *operand {
	if key >= uint32(len(ctKeys)) {
		return nil
	}
	k := ctKeys[key]
	o := &operand{kind: opCT, key: key, expr: &CT{Key: k.name, Dir: direction, Family: k.family}}
	switch {
	case k.family == IP:
		o.typ = typed(TypeIPv4)
	case k.family == IP6:
		o.typ = typed(TypeIPv6)
	case key == nftCTSrc || key == nftCTDst:
		// As wide as the addresses of whatever family the rule has found out about.
	default:
		f := fieldIn(ctFields, k.name)
		o.typ = valueType{f.typ, f.bits, f.typ.hostOrder()}
		switch k.name {
		case "packets", "bytes", "avgpkt", "zone", "secmark":
			o.typ.host = true
		}
	}
	return o
}

// direction is nft's word for IP_CT_DIR_*.
func direction(a *attributes, kind int) string {
	if !a.has(kind) {
		return ""
	}
	if a.u8(kind) == 0 {
		return "original"
	}
	return "reply"
}

// NFTA_FIB_*, NFT_FIB_RESULT_*, NFTA_FIB_F_*.
const (
	nftaFibDreg   = 1
	nftaFibResult = 2
	nftaFibFlags  = 3

	nftFibOif     = 1
	nftFibOifname = 2
	nftFibType    = 3

	nftFibPresent = 1 << 5
)

func fibOperand(result, flags uint32) *operand {
	f := &Fib{Exists: flags&nftFibPresent != 0}
	for i, word := range [...]string{"saddr", "daddr", "mark", "iif", "oif"} {
		if flags&(1<<i) != 0 {
			f.Flags = append(f.Flags, word)
		}
	}
	if flags&^(1<<6-1) != 0 {
		return nil
	}
	o := &operand{expr: f}
	switch result {
	case nftFibOif:
		f.Result, o.typ = "oif", typed(TypeIfindex)
	case nftFibOifname:
		f.Result, o.typ = "oifname", typed(TypeIfname)
	case nftFibType:
		f.Result, o.typ = "type", typed(TypeFibType)
	default:
		return nil
	}
	if f.Exists {
		// The kernel writes one byte (nft_fib_store_result), and nft 1.0.6 compares four.
		o.typ = valueType{TypeBoolean, 32, true}
	}
	return o
}

// NFTA_SOCKET_*.
const (
	nftaSocketKey   = 1
	nftaSocketDreg  = 2
	nftaSocketLevel = 3
)

// socketKeys in the order of NFT_SOCKET_*.
var socketKeys = [...]string{"transparent", "mark", "wildcard", "cgroupv2"}

func socketOperand(key, level uint32) *operand {
	if key >= uint32(len(socketKeys)) {
		return nil
	}
	f := fieldIn(socketFields, socketKeys[key])
	s := &Socket{Key: f.name}
	if s.Key == "cgroupv2" {
		s.Level = int(level)
	}
	return &operand{typ: valueType{f.typ, f.bits, f.typ.hostOrder()}, expr: s}
}

// NFTA_RT_*.
const (
	nftaRTDreg = 1
	nftaRTKey  = 2
)

// rtKeys in the order of NFT_RT_*.
var rtKeys = [...]string{"classid", "ip nexthop", "ip6 nexthop", "mtu", "ipsec"}

func rtOperand(key uint32) *operand {
	if key >= uint32(len(rtKeys)) {
		return nil
	}
	f := fieldIn(rtFields, rtKeys[key])
	return &operand{typ: valueType{f.typ, f.bits, f.typ.hostOrder() || f.name == "mtu"}, expr: &RT{Key: f.name}}
}

// NFTA_NG_*, NFT_NG_*.
const (
	nftaNGDreg    = 1
	nftaNGModulus = 2
	nftaNGType    = 3
	nftaNGOffset  = 4

	nftNGIncremental = 0
	nftNGRandom      = 1
)

func numgenOperand(kind, modulus, offset uint32) *operand {
	n := &Numgen{Mod: modulus, Offset: offset}
	switch kind {
	case nftNGIncremental:
		n.Mode = "inc"
	case nftNGRandom:
		n.Mode = "random"
	default:
		return nil
	}
	return &operand{typ: hostInteger(32), expr: n}
}

// NFTA_HASH_*, NFT_HASH_*.
const (
	nftaHashSreg    = 1
	nftaHashDreg    = 2
	nftaHashLen     = 3
	nftaHashModulus = 4
	nftaHashSeed    = 5
	nftaHashOffset  = 6
	nftaHashType    = 7

	nftHashJenkins = 0
	nftHashSym     = 1
)

// NFTA_XFRM_*, NFT_XFRM_KEY_*.
const (
	nftaXfrmDreg  = 1
	nftaXfrmKey   = 2
	nftaXfrmDir   = 3
	nftaXfrmSPNum = 4
)

func xfrmOperand(key, spnum uint32, dir byte) *operand {
	o := &operand{}
	text := "ipsec in"
	switch dir { // XFRM_POLICY_IN, XFRM_POLICY_OUT
	case 0:
	case 1:
		text = "ipsec out"
	default:
		return nil
	}
	if spnum != 0 {
		text += " spnum " + decimalText(spnum)
	}
	switch key {
	case 1:
		text, o.typ = text+" ip daddr", typed(TypeIPv4)
	case 2:
		text, o.typ = text+" ip6 daddr", typed(TypeIPv6)
	case 3:
		text, o.typ = text+" ip saddr", typed(TypeIPv4)
	case 4:
		text, o.typ = text+" ip6 saddr", typed(TypeIPv6)
	case 5:
		text, o.typ = text+" reqid", hostInteger(32)
	case 6:
		text, o.typ = text+" spi", valueType{TypeInteger, 32, false}
	default:
		return nil
	}
	o.expr = &Other{text, o.typ.field()}
	return o
}

// NFTA_OSF_*, NFT_OSF_F_VERSION.
const (
	nftaOSFDreg  = 1
	nftaOSFTTL   = 2
	nftaOSFFlags = 3

	nftOSFVersion = 1
)

func osfOperand(ttl byte, flags uint32) *operand {
	text := "osf "
	switch ttl {
	case 1:
		text += "ttl loose "
	case 2:
		text += "ttl skip "
	}
	if flags&nftOSFVersion != 0 {
		text += "version"
	} else {
		text += "name"
	}
	o := &operand{typ: valueType{TypeString, 128, true}}
	o.expr = &Other{text, o.typ.field()}
	return o
}

// NFTA_TUNNEL_*.
const (
	nftaTunnelKey  = 1
	nftaTunnelDreg = 2
)

// tunnelOperand is what nft 1.1.4 and later call "tunnel path" and "tunnel id".
func tunnelOperand(key uint32) *operand {
	o := &operand{}
	switch key {
	case 0:
		o.typ = valueType{TypeBoolean, 8, false}
		o.expr = &Other{"tunnel path", o.typ.field()}
	case 1:
		o.typ = hostInteger(32)
		o.expr = &Other{"tunnel id", o.typ.field()}
	default:
		return nil
	}
	return o
}
