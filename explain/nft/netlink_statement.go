package nft

import (
	"strconv"
	"time"
)

// Expressions that act (net/netfilter/nft_*.c), by the kernel's numbers for their attributes.
const (
	nftaCounterBytes   = 1
	nftaCounterPackets = 2

	nftaLimitRate  = 1
	nftaLimitUnit  = 2
	nftaLimitBurst = 3
	nftaLimitType  = 4
	nftaLimitFlags = 5

	nftLimitBytes    = 1 // NFT_LIMIT_PKT_BYTES
	nftLimitInverted = 1

	nftaQuotaBytes    = 1
	nftaQuotaFlags    = 2
	nftaQuotaConsumed = 4

	nftQuotaInverted = 1

	nftaConnlimitCount = 1
	nftaConnlimitFlags = 2

	nftConnlimitInverted = 1

	nftaLastSet   = 1
	nftaLastMsecs = 2

	nftaLogGroup      = 1
	nftaLogPrefix     = 2
	nftaLogSnaplen    = 3
	nftaLogQThreshold = 4
	nftaLogLevel      = 5
	nftaLogFlags      = 6

	nftaRejectType = 1
	nftaRejectCode = 2

	nftRejectICMP  = 0
	nftRejectTCP   = 1
	nftRejectICMPX = 2

	nftaDupAddr = 1
	nftaDupDev  = 2

	nftaFwdDev     = 1
	nftaFwdAddr    = 2
	nftaFwdNFProto = 3

	nftaQueueNum   = 1
	nftaQueueTotal = 2
	nftaQueueFlags = 3
	nftaQueueSreg  = 4

	nftQueueBypass = 1
	nftQueueFanout = 2

	nftaFlowTable = 1

	nftaSynproxyMSS    = 1
	nftaSynproxyWScale = 2
	nftaSynproxyFlags  = 3

	// NF_SYNPROXY_OPT_*, include/uapi/linux/netfilter/nf_synproxy.h
	synproxyMSS       = 1 << 0
	synproxyWScale    = 1 << 1
	synproxySackPerm  = 1 << 2
	synproxyTimestamp = 1 << 3

	// NFTA_MATCH_* and NFTA_TARGET_*, nf_tables_compat.h
	nftaXTName = 1
	nftaXTRev  = 2
	nftaXTInfo = 3
)

// action reads an expression that acts; it is false for one that is not known.
func (d *ruleDecoder) action(name string, a *attributes) bool {
	switch name {
	case "counter":
		d.add(&Counter{Packets: a.u64(nftaCounterPackets), Bytes: a.u64(nftaCounterBytes)})
	case "limit":
		d.add(limitOf(a))
	case "quota":
		q := &Quota{Bytes: a.u64(nftaQuotaBytes), Used: a.u64(nftaQuotaConsumed)}
		q.Over = a.u32(nftaQuotaFlags)&nftQuotaInverted != 0
		d.add(q)
	case "connlimit":
		d.add(&ConnLimit{Over: a.u32(nftaConnlimitFlags)&nftConnlimitInverted != 0, Count: a.u32(nftaConnlimitCount)})
	case "last":
		d.add(&Passing{Name: "last", Text: lastOf(a)})
	case "log":
		d.add(&Passing{Name: "log", Text: logOf(a)})
	case "reject":
		d.reject(a)
	case "nat":
		d.nat(a)
	case "masq":
		d.translateOwn(Masquerade, a.u32(nftaMasqFlags), a.u32(nftaMasqProtoMin), a.u32(nftaMasqProtoMax))
	case "redir":
		d.translateOwn(Redirect, a.u32(nftaRedirFlags), a.u32(nftaRedirProtoMin), a.u32(nftaRedirProtoMax))
	case "tproxy":
		d.tproxy(a)
	case "notrack":
		d.add(NoTrack{})
	case "dup":
		d.dup(a)
	case "fwd":
		d.fwd(a)
	case "queue":
		d.queue(a)
	case "dynset":
		d.dynset(a)
	case "objref":
		d.objref(a)
	case "flow_offload":
		d.add(&FlowOffload{Table: a.text(nftaFlowTable)})
	case "synproxy":
		d.add(&Passing{Name: "synproxy", Text: "synproxy" + synproxyOf(a)})
	case "match", "target":
		x := &XT{Kind: name, Name: a.text(nftaXTName), Revision: int(a.u32(nftaXTRev)), Info: a[nftaXTInfo]}
		if name == "target" && d.family == Bridge && (x.Name == "log" || x.Name == "nflog") {
			x.Kind = "watcher" // of ebtables: it looks on and does not decide
		}
		d.add(x)
	case "inner":
		d.inner(a)
	default:
		return false
	}
	return true
}

func limitOf(a *attributes) *Limit {
	return &Limit{
		Over: a.u32(nftaLimitFlags)&nftLimitInverted != 0, Rate: a.u64(nftaLimitRate), Burst: uint64(a.u32(nftaLimitBurst)),
		Bytes: a.u32(nftaLimitType) == nftLimitBytes,
		Per:   time.Duration(min(a.u64(nftaLimitUnit), uint64(longestDuration/1000))) * time.Second,
	}
}

func lastOf(a *attributes) string {
	if a.u32(nftaLastSet) == 0 {
		return "last used never"
	}
	return string(appendDuration([]byte("last used "), milliseconds(a.u64(nftaLastMsecs))))
}

// logLevels in the order of NFT_LOGLEVEL_*.
var logLevels = [...]string{"emerg", "alert", "crit", "err", "warn", "notice", "info", "debug", "audit"}

// logOf is "log" as nft prints it (log_stmt_print).
func logOf(a *attributes) string {
	text := "log"
	if a.has(nftaLogPrefix) {
		text += ` prefix "` + a.text(nftaLogPrefix) + `"`
	}
	number := func(kind int, word string, n uint64) {
		if a.has(kind) {
			text += " " + word + " " + strconv.FormatUint(n, 10)
		}
	}
	number(nftaLogGroup, "group", uint64(a.u16(nftaLogGroup)))
	number(nftaLogSnaplen, "snaplen", uint64(a.u32(nftaLogSnaplen)))
	number(nftaLogQThreshold, "queue-threshold", uint64(a.u16(nftaLogQThreshold)))
	if level := a.u32(nftaLogLevel); a.has(nftaLogLevel) && level != 4 { // warn
		word := "unknown"
		if level < uint32(len(logLevels)) {
			word = logLevels[level]
		}
		text += " level " + word
	}
	// NF_LOG_*, include/uapi/linux/netfilter/nf_log.h
	flags := a.u32(nftaLogFlags)
	if flags&0x2f == 0x2f {
		return text + " flags all"
	}
	switch flags & 3 {
	case 1:
		text += " flags tcp sequence"
	case 2:
		text += " flags tcp options"
	case 3:
		text += " flags tcp sequence,options"
	}
	for _, f := range [...]struct {
		bit  uint32
		word string
	}{{4, " flags ip options"}, {8, " flags skuid"}, {0x20, " flags ether"}} {
		if flags&f.bit != 0 {
			text += f.word
		}
	}
	return text
}

// synproxyOf is what stands behind "synproxy" (synproxy_stmt_print).
func synproxyOf(a *attributes) string {
	flags := a.u32(nftaSynproxyFlags)
	var text string
	if flags&(synproxyMSS|synproxyWScale) != 0 {
		text = " mss " + strconv.Itoa(int(a.u16(nftaSynproxyMSS))) + " wscale " + strconv.Itoa(int(a.u8(nftaSynproxyWScale)))
	}
	if flags&synproxyTimestamp != 0 {
		text += " timestamp"
	}
	if flags&synproxySackPerm != 0 {
		text += " sack-perm"
	}
	return text
}

// value is what is in a register, as a value of a type; false where nothing is.
func (d *ruleDecoder) value(o *operand, typ valueType) (Expr, bool) {
	if o == nil {
		return nil, false
	}
	if o.kind == opConst {
		return d.constant(typ, o.data), true
	}
	e, _, ok := d.resolve(o)
	return e, ok
}

// valueIn is that of a register by number.
func (d *ruleDecoder) valueIn(register uint32, typ valueType) (Expr, bool) {
	return d.value(d.regs.get(register, 0), typ)
}

// assign sets a key of meta or ct, or a field of an option.
func (d *ruleDecoder) assign(to, value *operand) {
	e, ok := d.value(value, to.typ)
	if !ok {
		d.unreadable("nothing is in its register")
		return
	}
	if to.kind == opMeta && to.key == nftMetaNFTrace {
		d.add(&Passing{Name: "meta nftrace", Text: "meta nftrace set " + ExpressionText(e)})
		return
	}
	d.add(&Assign{To: to.expr, Value: e})
}

// assignPayload writes bytes of a packet. A field that is not made of whole bytes is written with the bytes around it:
// those are read, masked, and written back (stmt_payload_binop_postprocess).
func (d *ruleDecoder) assignPayload(to, value *operand) {
	if field, data, ok := d.fieldWithin(to, value); ok {
		n := d.name(field)
		d.implies(n, to.layer)
		d.add(&Assign{To: n.expr, Value: d.constant(n.typ, data)})
		return
	}
	n := d.name(to)
	d.implies(n, to.layer)
	e, ok := d.value(value, n.typ)
	if !ok {
		d.unreadable("nothing is in its register")
		return
	}
	d.add(&Assign{To: n.expr, Value: e})
}

// fieldWithin tells whether bytes are written back with only some bits of them changed, those of one field.
func (d *ruleDecoder) fieldWithin(to, value *operand) (field *operand, data []byte, ok bool) {
	var mask, bits []byte // what is kept, what is set
	inner := value
	if inner.kind == opBinary && inner.op == "|" && inner.right == nil {
		bits, inner = inner.data, inner.left
	}
	if inner.kind == opBinary && inner.op == "&" && inner.right == nil {
		mask, inner = inner.data, inner.left
	}
	if inner.kind != opPayload || !inner.sameLoad(to) || mask == nil && bits == nil {
		return nil, nil, false
	}
	size := to.typ.size()
	if d.name(to).x != nil || bits != nil && len(bits) != size || mask != nil && len(mask) != size {
		return nil, nil, false
	}
	// Bits that are set need not be cleared first: those of the field are what is cleared or set.
	changed := make([]byte, size)
	if mask != nil {
		changed = bitwise("^", mask, ones(size))
	}
	if bits == nil {
		bits = make([]byte, size)
	}
	changed = bitwise("|", changed, bits)
	from, end, contiguous := run(changed)
	if !contiguous || !d.isField(to, 8*size-end, end-from) {
		return nil, nil, false
	}
	field = &operand{kind: opPayload, layer: to.layer, offset: to.offset + 8*size - end, typ: valueType{bits: end - from}}
	return field, wide(shiftedRight(bits, from), field.typ.size()), true
}

func (d *ruleDecoder) reject(a *attributes) {
	code := []byte{a.u8(nftaRejectCode)}
	r := &Reject{}
	of := d.family
	if d.family.severalNetworks() {
		switch d.found[atNetwork] {
		case d.protocols.ip:
			of = IP
		case d.protocols.ip6:
			of = IP6
		}
	}
	switch a.u32(nftaRejectType) {
	case nftRejectTCP:
		r.With = "tcp reset"
		if dep, at := d.dependency(atTransport); dep != nil && !d.family.severalNetworks() && d.isTCP(dep.compares) {
			d.hide(at)
		}
	case nftRejectICMPX:
		if code[0] != 1 { // port-unreachable
			r.With = "icmpx " + TypeICMPXCode.Text(code)
		}
	case nftRejectICMP:
		switch {
		case of == IP && (d.family != IP || code[0] != 3): // port-unreachable
			r.With = "icmp " + TypeICMPCode.Text(code)
		case of == IP6 && (d.family != IP6 || code[0] != 4): // port-unreachable
			r.With = "icmpv6 " + TypeICMPv6Code.Text(code)
		}
		if dep, at := d.dependency(atNetwork); dep != nil && r.With != "" && d.family.severalNetworks() {
			d.hide(at)
		}
	default:
		d.unreadable("what it answers is not known")
		return
	}
	d.add(r)
}

// isTCP tells a comparison that says that the packet is TCP, which "reject with tcp reset" says by itself.
func (d *ruleDecoder) isTCP(r *relation) bool {
	v, ok := number(r.data)
	return ok && v == 6 && r.x != d.protocols.ip6 && r.left.kind != opCT
}

func (d *ruleDecoder) dup(a *attributes) {
	text := "dup"
	typ := typed(TypeIPv4)
	if d.family == IP6 {
		typ = typed(TypeIPv6)
	}
	before := " to "
	for _, x := range [...]struct {
		register uint32
		typ      valueType
	}{{a.u32(nftaDupAddr), typ}, {a.u32(nftaDupDev), typed(TypeIfindex)}} {
		if x.register == 0 {
			continue
		}
		e, ok := d.valueIn(x.register, x.typ)
		if !ok {
			d.unreadable("nothing is in its registers")
			return
		}
		text += before + ExpressionText(e)
		before = " device "
	}
	d.add(&Passing{Name: "dup", Text: text})
}

func (d *ruleDecoder) fwd(a *attributes) {
	dev, ok := d.valueIn(a.u32(nftaFwdDev), typed(TypeIfindex))
	if !ok {
		d.unreadable("nothing is in its registers")
		return
	}
	text := "fwd to " + ExpressionText(dev)
	if r := a.u32(nftaFwdAddr); r != 0 {
		family, typ := "ip", typed(TypeIPv4)
		if a.u32(nftaFwdNFProto) == nfprotoIPv6 {
			family, typ = "ip6", typed(TypeIPv6)
		}
		addr, ok := d.valueIn(r, typ)
		if !ok {
			d.unreadable("nothing is in its registers")
			return
		}
		text = "fwd " + family + " to " + ExpressionText(addr) + " device " + ExpressionText(dev)
	}
	d.add(&Passing{Name: "fwd", Text: text})
}

func (d *ruleDecoder) queue(a *attributes) {
	flags := a.u16(nftaQueueFlags)
	q := &Queue{Bypass: flags&nftQueueBypass != 0, Fanout: flags&nftQueueFanout != 0}
	if r := a.u32(nftaQueueSreg); r != 0 {
		e, ok := d.valueIn(r, hostInteger(16))
		if !ok {
			d.unreadable("nothing is in its register")
			return
		}
		q.Num = ExpressionText(e)
	} else {
		first, total := int(a.u16(nftaQueueNum)), int(a.u16(nftaQueueTotal))
		if q.Num = strconv.Itoa(first); total > 1 {
			q.Num += "-" + strconv.Itoa(first+total-1)
		}
	}
	d.add(q)
}
