package nft

import "strconv"

// ruleDecoder reads the expressions of one rule. Each does one thing: loads something into a register, compares what is
// in one, or acts. What a rule says is put together from them.
type ruleDecoder struct {
	*netlinkDecoder
	context
	table *netlinkTable
	regs  registers
	steps []*step
	// reading is the name of the expression that is being read, for messages.
	reading string
	// nesting bounds expressions within expressions.
	nesting int
}

// NFTA_IMMEDIATE_*, NFTA_CMP_*, NFTA_RANGE_*, NFTA_LOOKUP_*, NFTA_BITWISE_*, NFTA_BYTEORDER_*.
const (
	nftaImmediateDreg = 1
	nftaImmediateData = 2

	nftaCmpSreg = 1
	nftaCmpOp   = 2
	nftaCmpData = 3

	nftaRangeSreg = 1
	nftaRangeOp   = 2
	nftaRangeFrom = 3
	nftaRangeTo   = 4

	nftaLookupSet   = 1
	nftaLookupSreg  = 2
	nftaLookupDreg  = 3
	nftaLookupFlags = 5

	nftLookupInverted = 1

	nftaBitwiseSreg  = 1
	nftaBitwiseDreg  = 2
	nftaBitwiseLen   = 3
	nftaBitwiseMask  = 4
	nftaBitwiseXor   = 5
	nftaBitwiseOp    = 6
	nftaBitwiseData  = 7
	nftaBitwiseSreg2 = 8

	nftBitwiseMaskXor = 0
	nftBitwiseLShift  = 1
	nftBitwiseRShift  = 2
	// Of two registers, since 6.13.
	nftBitwiseAnd = 3
	nftBitwiseOr  = 4
	nftBitwiseXor = 5

	nftaByteorderSreg = 1
	nftaByteorderDreg = 2
	nftaByteorderLen  = 4
)

// cmpOps are NFT_CMP_* in nft's words.
var cmpOps = [...]string{"==", "!=", "<", "<=", ">", ">="}

func decimalText(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// rule reads a rule.
func (d *netlinkDecoder) rule(t *netlinkTable, a *attributes) *Rule {
	note := parseNotes(a[nftaRuleUserdata])
	r := &Rule{Handle: a.u64(nftaRuleHandle), Comment: note.comment(0)} // NFTNL_UDATA_RULE_COMMENT
	dec := ruleDecoder{netlinkDecoder: d, context: newContext(d.protocols, t.Family), table: t}
	for kind, e := range eachAttribute(d.order, a[nftaRuleExpressions]) {
		if kind == nftaListElem {
			dec.expression(e)
		}
	}
	for _, s := range dec.steps {
		if s.gone {
			continue
		}
		r.Statements = append(r.Statements, s.statement)
		if c, ok := s.statement.(*Counter); ok && c.Name == "" && !r.HasCounter {
			r.Packets, r.Bytes, r.HasCounter = c.Packets, c.Bytes, true
		}
	}
	return r
}

// statements reads the expressions that an element or a set holds, one by itself or in a list.
func (d *netlinkDecoder) statements(t *netlinkTable, one, list []byte) []Statement {
	if one == nil && list == nil {
		return nil
	}
	dec := ruleDecoder{netlinkDecoder: d, context: newContext(d.protocols, t.Family), table: t, nesting: 1}
	if list == nil {
		dec.expression(one)
	}
	for kind, e := range eachAttribute(d.order, list) {
		if kind == nftaListElem {
			dec.expression(e)
		}
	}
	var out []Statement
	for _, s := range dec.steps {
		if !s.gone {
			out = append(out, s.statement)
		}
	}
	return out
}

// unreadable puts the expression that is being read where its statement would stand.
func (d *ruleDecoder) unreadable(why string) {
	d.add(&Unreadable{Text: d.reading, Why: why})
	d.problem("expression "+d.reading+" of a rule in table "+d.table.String(), why)
}

// expression reads one expression.
func (d *ruleDecoder) expression(data []byte) {
	outer := parseAttributes(d.order, data)
	name := outer.text(nftaExprName)
	a := parseAttributes(d.order, outer[nftaExprData])
	was := d.reading
	d.reading = name
	defer func() { d.reading = was }()
	if d.nesting > 4 {
		d.unreadable("it stands too deep within others")
		return
	}
	switch name {
	case "immediate":
		d.immediate(&a)
	case "payload":
		d.payload(&a)
	case "cmp":
		d.cmp(&a)
	case "range":
		d.rangeOf(&a)
	case "lookup":
		d.lookup(&a)
	case "bitwise":
		d.bitwise(&a)
	case "byteorder":
		left := d.regs.get(a.u32(nftaByteorderSreg), int(a.u32(nftaByteorderLen)))
		if left == nil {
			d.unreadable("nothing is in its register")
			return
		}
		d.load(a.u32(nftaByteorderDreg), &operand{kind: opSwapped, typ: left.typ, left: left, nodes: left.nodes + 1})
	case "meta":
		d.meta(&a)
	case "ct":
		d.ct(&a)
	case "exthdr", "tcpopt":
		d.exthdr(&a)
	case "fib":
		d.load(a.u32(nftaFibDreg), fibOperand(a.u32(nftaFibResult), a.u32(nftaFibFlags)))
	case "socket":
		d.load(a.u32(nftaSocketDreg), socketOperand(a.u32(nftaSocketKey), a.u32(nftaSocketLevel)))
	case "rt":
		d.load(a.u32(nftaRTDreg), rtOperand(a.u32(nftaRTKey)))
	case "numgen":
		d.load(a.u32(nftaNGDreg), numgenOperand(a.u32(nftaNGType), a.u32(nftaNGModulus), a.u32(nftaNGOffset)))
	case "hash":
		d.hash(&a)
	case "xfrm":
		d.load(a.u32(nftaXfrmDreg), xfrmOperand(a.u32(nftaXfrmKey), a.u32(nftaXfrmSPNum), a.u8(nftaXfrmDir)))
	case "osf":
		d.load(a.u32(nftaOSFDreg), osfOperand(a.u8(nftaOSFTTL), a.u32(nftaOSFFlags)))
	case "tunnel":
		d.load(a.u32(nftaTunnelDreg), tunnelOperand(a.u32(nftaTunnelKey)))
	default:
		if !d.action(name, &a) {
			d.unreadable("an expression of this name is not known")
		}
	}
}

// load puts what an expression reads into its register.
func (d *ruleDecoder) load(register uint32, o *operand) {
	switch {
	case o == nil:
		d.unreadable("what it reads has a number that is not known")
	case o.nodes > maxNodes:
		d.unreadable("it is calculated out of too many others")
	case !d.regs.set(register, o):
		d.unreadable("its register is none")
	}
}

func (d *ruleDecoder) immediate(a *attributes) {
	data := parseAttributes(d.order, a[nftaImmediateData])
	if a.u32(nftaImmediateDreg) != nftRegVerdict {
		d.load(a.u32(nftaImmediateDreg), constOperand(data[nftaDataValue]))
		return
	}
	v, ok := d.verdict(data[nftaDataVerdict])
	if !ok {
		d.unreadable("its verdict is not known")
		return
	}
	d.add(v)
}

func (d *ruleDecoder) payload(a *attributes) {
	l, offset, size := protocolLayer(a.u32(nftaPayloadBase))+atLink, int(a.u32(nftaPayloadOffset)), int(a.u32(nftaPayloadLen))
	if l < atLink || l >= layers || offset > 1<<16 || size <= 0 || size > 64 {
		d.unreadable("it is about bytes at a place that is not known")
		return
	}
	o := &operand{kind: opPayload, layer: l, offset: 8 * offset, typ: valueType{bits: 8 * size}}
	if a.has(nftaPayloadDreg) {
		d.load(a.u32(nftaPayloadDreg), o)
		return
	}
	value := d.regs.get(a.u32(nftaPayloadSreg), size)
	if value == nil {
		d.unreadable("nothing is in its register")
		return
	}
	d.assignPayload(o, value)
}

func (d *ruleDecoder) cmp(a *attributes) {
	data := parseAttributes(d.order, a[nftaCmpData])
	op := a.u32(nftaCmpOp)
	value := data[nftaDataValue]
	left := d.regs.get(a.u32(nftaCmpSreg), len(value))
	switch {
	case left == nil:
		d.unreadable("nothing is in its register")
	case op >= uint32(len(cmpOps)) || len(value) == 0:
		d.unreadable("how it compares, or with what, is not known")
	default:
		d.compare(left, cmpOps[op], compared{data: value})
	}
}

func (d *ruleDecoder) rangeOf(a *attributes) {
	from, to := parseAttributes(d.order, a[nftaRangeFrom]), parseAttributes(d.order, a[nftaRangeTo])
	lo, hi := from[nftaDataValue], to[nftaDataValue]
	left := d.regs.get(a.u32(nftaRangeSreg), len(lo))
	switch op := a.u32(nftaRangeOp); {
	case left == nil:
		d.unreadable("nothing is in its register")
	case op > 1 || len(lo) == 0 || len(lo) != len(hi) || left.kind == opConcat:
		d.unreadable("how it compares, or with what, is not known")
	default:
		d.compare(left, cmpOps[op], compared{data: lo, to: hi})
	}
}

func (d *ruleDecoder) lookup(a *attributes) {
	set := d.table.sets[a.text(nftaLookupSet)]
	if set == nil {
		d.unreadable("it looks into a set that is not in the capture")
		return
	}
	left := d.regs.get(a.u32(nftaLookupSreg), set.keyBytes)
	if left == nil {
		d.unreadable("nothing is in its register")
		return
	}
	op := "=="
	if a.u32(nftaLookupFlags)&nftLookupInverted != 0 {
		op = "!="
	}
	switch {
	case !a.has(nftaLookupDreg):
		d.compare(left, op, compared{set: set})
	case a.u32(nftaLookupDreg) == nftRegVerdict:
		m := &operand{kind: opMap, left: left, set: set, nodes: left.nodes + 1}
		e, _, ok := d.resolve(m)
		if !ok {
			d.unreadable("it looks something up that is not known")
			return
		}
		x := e.(*MapExpr)
		// A map is a comparison too: what is said before it may be said by it.
		s := &step{statement: &VerdictMap{Key: x.Key, Map: x.Map}}
		d.steps = append(d.steps, s)
		d.previous = nil
	default:
		m := &operand{kind: opMap, left: left, set: set, nodes: left.nodes + 1}
		if len(set.data) == 1 {
			m.typ = set.data[0]
		} else {
			m.typ.bits = 8 * keyBytes(set.data)
		}
		if set.DataInterval {
			m.typ.bits = 16 * keyBytes(set.data)
		}
		d.load(a.u32(nftaLookupDreg), m)
	}
}

func (d *ruleDecoder) bitwise(a *attributes) {
	size := int(a.u32(nftaBitwiseLen))
	left := d.regs.get(a.u32(nftaBitwiseSreg), size)
	if left == nil || left.kind == opConcat {
		d.unreadable("nothing that can be calculated with is in its register")
		return
	}
	o := &operand{kind: opBinary, typ: left.typ, left: left, nodes: left.nodes + 1}
	value := func(kind int) []byte {
		v := parseAttributes(d.order, a[kind])
		return v[nftaDataValue]
	}
	switch op := a.u32(nftaBitwiseOp); op {
	case nftBitwiseMaskXor:
		mask, xor := value(nftaBitwiseMask), value(nftaBitwiseXor)
		if len(mask) != size || len(xor) != size {
			d.unreadable("its numbers have another size than what is in its register")
			return
		}
		o = maskXor(left, mask, xor)
	case nftBitwiseLShift, nftBitwiseRShift:
		if o.op, o.data = "<<", value(nftaBitwiseData); op == nftBitwiseRShift {
			o.op = ">>"
		}
		if o.count(d.order) < 0 {
			d.unreadable("by how much it shifts is not known")
			return
		}
	case nftBitwiseAnd, nftBitwiseOr, nftBitwiseXor:
		o.op = [...]string{"&", "|", "^"}[op-nftBitwiseAnd]
		if o.right = d.regs.get(a.u32(nftaBitwiseSreg2), size); o.right == nil {
			d.unreadable("nothing is in its second register")
			return
		}
		o.nodes += o.right.nodes + 1
	default:
		d.unreadable("what it calculates is not known")
		return
	}
	d.load(a.u32(nftaBitwiseDreg), o)
}

// maskXor is (left & mask) ^ xor, which every calculation with constants can be written as, in the words that it was
// written in: bits that are cleared and then set are set with "|".
func maskXor(left *operand, mask, xor []byte) *operand {
	or := bitwise("&^", xor, mask)
	xor = bitwise("&", xor, mask)
	mask = bitwise("|", mask, or)
	o := left
	with := func(op string, data []byte) {
		o = &operand{kind: opBinary, typ: left.typ, op: op, left: o, data: data, nodes: o.nodes + 1}
	}
	if !isZero(bitwise("^", mask, ones(len(mask)))) {
		with("&", mask)
	}
	if !isZero(xor) {
		with("^", xor)
	}
	if !isZero(or) {
		with("|", or)
	}
	return o
}

func (d *ruleDecoder) meta(a *attributes) {
	o := metaOperand(a.u32(nftaMetaKey))
	if a.has(nftaMetaDreg) {
		d.load(a.u32(nftaMetaDreg), o)
		return
	}
	if o == nil {
		d.unreadable("what it sets has a number that is not known")
		return
	}
	value := d.regs.get(a.u32(nftaMetaSreg), 0)
	d.assign(o, value)
}

func (d *ruleDecoder) ct(a *attributes) {
	o := ctOperand(a.u32(nftaCTKey), direction(a, nftaCTDirection))
	if a.has(nftaCTDreg) {
		d.load(a.u32(nftaCTDreg), o)
		return
	}
	if o == nil {
		d.unreadable("what it sets has a number that is not known")
		return
	}
	d.assign(o, d.regs.get(a.u32(nftaCTSreg), 0))
}

func (d *ruleDecoder) exthdr(a *attributes) {
	x := option{op: a.u32(nftaExthdrOp), kind: a.u8(nftaExthdrType), present: a.u32(nftaExthdrFlags)&nftExthdrPresent != 0}
	offset, size := 8*int(a.u32(nftaExthdrOffset)), int(a.u32(nftaExthdrLen))
	if offset > 1<<16 || size > 64 {
		d.unreadable("it is about bytes at a place that is not known")
		return
	}
	o := &operand{kind: opOption, option: x, offset: offset, typ: valueType{TypeInteger, 8 * size, false}}
	if e, typ, ok := x.read(offset, 8*size); ok {
		o.expr, o.typ = e, typ
	}
	switch {
	case a.has(nftaExthdrDreg):
		if o.expr == nil && x.word() == "" {
			o = nil
		}
		d.load(a.u32(nftaExthdrDreg), o)
	case a.has(nftaExthdrSreg):
		if o.expr == nil {
			d.unreadable("what it sets is not known")
			return
		}
		d.assign(o, d.regs.get(a.u32(nftaExthdrSreg), size))
	default:
		o.option.present = true
		e, _, ok := o.option.read(0, 0)
		if !ok {
			d.unreadable("what it takes away is not known")
			return
		}
		d.add(&Passing{Name: "reset", Text: "reset " + ExpressionText(e)})
	}
}

func (d *ruleDecoder) hash(a *attributes) {
	h := &Hash{Mod: a.u32(nftaHashModulus), Offset: a.u32(nftaHashOffset)}
	h.Seed, h.HasSeed = a.u32(nftaHashSeed), a.has(nftaHashSeed)
	o := &operand{kind: opHash, typ: hostInteger(32), expr: h}
	switch a.u32(nftaHashType) {
	case nftHashJenkins:
		if o.left = d.regs.get(a.u32(nftaHashSreg), int(a.u32(nftaHashLen))); o.left == nil {
			d.unreadable("nothing is in its register")
			return
		}
		o.nodes = o.left.nodes + 1
	case nftHashSym:
	default:
		o = nil
	}
	d.load(a.u32(nftaHashDreg), o)
}
