package nft

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// step is a statement of a rule while the rule is read: what follows may show that it was only there to make sure of
// something that is said later, or that it is half of a range.
type step struct {
	statement Statement
	// compares is set for comparisons.
	compares *relation
	gone     bool
}

// relation is a comparison as it was read.
type relation struct {
	left *operand
	op   string
	// data is the constant compared with, in network order, nil where that is something else.
	data []byte
	// x and the name are those of a field of a packet.
	named
}

// compared is the right side of a comparison: a constant, a range, or a set.
type compared struct {
	data, to []byte // as in a register
	set      *netlinkSet
}

// add puts a statement behind the others. What it does happens to packets that came this far: a comparison before it
// must stay where it is (rule_maybe_reset_payload_deps).
func (d *ruleDecoder) add(s Statement) {
	d.steps = append(d.steps, &step{statement: s})
	d.dependencies = [layers + 1]*step{}
	d.depends = 0
	d.previous = nil
}

// addMatch puts a comparison behind the others, or makes a range of it and the one before.
func (d *ruleDecoder) addMatch(m *Match, r relation) *step {
	s := &step{statement: m, compares: &r}
	if was := d.previous; was != nil && was.compares != nil && was.compares.left.sameLoad(r.left) {
		before, ok := was.statement.(*Match)
		lo, isLo := before.constRight(ok)
		hi, isHi := m.constRight(true)
		if isLo && isHi {
			switch {
			case r.op == "<=" && was.compares.op == ">=":
				m.Op, m.Right = "==", &Range{lo, hi}
				was.gone = true
			case r.op == ">" && was.compares.op == "<":
				m.Op, m.Right = "!=", &Range{lo, hi}
				was.gone = true
			}
		}
	}
	d.steps = append(d.steps, s)
	d.previous = s
	return s
}

// constRight is the constant on the right of a comparison.
func (m *Match) constRight(ok bool) (*Const, bool) {
	if !ok {
		return nil, false
	}
	c, is := m.Right.(*Const)
	return c, is
}

// compare reads a comparison of what is in a register.
func (d *ruleDecoder) compare(left *operand, op string, right compared) {
	equal := op == "==" || op == "!="
	switch {
	case left.kind == opPayload && equal && right.set == nil && right.to == nil:
		d.compareBytes(left, op, right.data)
		return
	case left.kind == opPayload:
		if right.set != nil && right.set.anonymous && equal {
			d.foundMessages(left, right.set)
		}
		n := d.name(left)
		d.addMatch(&Match{Left: n.expr, Op: op, Right: d.right(n.typ, right)}, relation{left: left, op: op, named: n})
		d.implies(n, left.layer)
		return
	case left.kind == opBinary && left.right == nil:
		d.compareMasked(left, op, right)
		return
	}
	expr, typ, ok := d.resolve(left)
	if !ok {
		d.unreadable("it compares something that is not known")
		return
	}
	if left.kind == opConcat {
		d.addMatch(&Match{Left: expr, Op: op, Right: d.concatRight(left, right)}, relation{left: left, op: op})
		return
	}
	r := relation{left: left, op: op}
	if right.set == nil && right.to == nil && len(right.data) == typ.size() {
		r.data = inNetworkOrder(d.order, typ, right.data)
	}
	s := d.addMatch(&Match{Left: expr, Op: op, Right: d.right(typ, right)}, r)
	if op == "==" && r.data != nil && (left.kind == opMeta || left.kind == opCT) {
		d.foundKey(s)
	}
}

// right is the right side of a comparison with a value of a type.
func (d *ruleDecoder) right(typ valueType, r compared) Expr {
	switch {
	case r.set != nil:
		return d.reference(r.set)
	case r.to != nil:
		lo, hi := d.constant(typ, r.data), d.constant(typ, r.to)
		if l, ok := lo.(*Const); ok {
			if h, ok := hi.(*Const); ok {
				return &Range{l, h}
			}
		}
		return lo
	}
	return d.constant(typ, r.data)
}

// constant is a value of a register, or the beginning of one, as an expression.
func (d *ruleDecoder) constant(typ valueType, data []byte) Expr {
	size := typ.size()
	if size == 0 {
		size = len(data)
	}
	switch {
	case typ.isString():
		// A name that does not end with a zero is the beginning of one ("eth*").
		if n := len(data); n > 0 && data[n-1] != 0 {
			return &Prefix{&Const{typ.Type, padded(data, size)}, 8 * n}
		}
		return &Const{typ.Type, padded(data, size)}
	case len(data) < size && !typ.host:
		return &Prefix{&Const{typ.Type, padded(data, size)}, 8 * len(data)}
	case typ.Type == TypeIfindex && len(data) == 4:
		index := inNetworkOrder(d.order, typ, data)
		if name := d.interfaceName(index); name[0] != 0 {
			return &Const{typ.Type, name}
		}
		return &Const{typ.Type, index}
	case typ.Type == TypeBoolean:
		size = 1
	}
	return &Const{typ.Type, wide(inNetworkOrder(d.order, typ, data), size)}
}

// interfaceName is the name of an interface in place of its index, with the index behind zeros where there is none (see
// TypeIfindex).
func (d *netlinkDecoder) interfaceName(index []byte) []byte {
	if n, ok := number(index); ok && n>>32 == 0 {
		if name := d.interfaces[uint32(n)]; name != "" {
			return padded([]byte(name), ifNameSize)
		}
	}
	return wide(index, ifNameSize)
}

// foundMessages takes in that a set of ICMP types is compared: the fields behind are those of the first
// (payload_icmp_check).
func (d *ruleDecoder) foundMessages(left *operand, set *netlinkSet) {
	x := d.found[left.layer]
	if d.icmpMessage != 0 || left.layer != atTransport || left.offset != 0 || left.typ.bits != 8 || len(set.Entries) == 0 {
		return
	}
	isICMP := x == d.protocols.icmp || x == d.protocols.icmp6
	if first := set.Entries[0]; isICMP && len(first.Start) == 1 && first.End == nil {
		d.icmpMessage = first.Start[0]
	}
}

// compareBytes reads a comparison of bytes of a packet: of one field, of the beginning of one, or of several that stand
// one behind the other, since nft compares those at once where it can (payload_expr_expand).
func (d *ruleDecoder) compareBytes(o *operand, op string, data []byte) {
	l, at, left := o.layer, o.offset, o.typ.bits
	if len(data) != o.typ.size() {
		d.unreadable("it compares bytes of a packet with a value of another size")
		return
	}
	var fields []named
	var values []Expr
	var raw [][]byte
	take := func(n named, bits int, value []byte) {
		fields = append(fields, n)
		raw = append(raw, value)
		if full := n.typ.bits; bits < full {
			// Bits of the beginning, with zeros behind.
			size := n.typ.size()
			value = padded(leftAligned(value, bits), size)
			if spare := 8*size - full; spare > 0 {
				value = shiftedRight(value, spare)
			}
			values = append(values, &Prefix{&Const{n.typ.Type, value}, bits})
		} else {
			values = append(values, d.constant(n.typ, value))
		}
		at += bits
		left -= bits
	}
	part := func(bits int) []byte { // the next bits of data, as a number
		b := wide(shiftedRight(data, left-bits), (bits+7)/8)
		if spare := 8*len(b) - bits; spare > 0 {
			b = slices.Clone(b)
			b[0] &= 0xff >> spare
		}
		return b
	}
	if x := d.found[l]; x != nil && x != d.protocols.unknown && x != d.protocols.inet {
		x, before := d.stackedAt(x, l, o.offset)
		for i := 1; i < len(x.fields) && left > 0; i++ {
			f := &x.fields[i]
			if f.offset != at-before || !d.ofMessage(f) {
				continue
			}
			bits := min(f.bits, left)
			take(d.fieldOf(x, i), bits, part(bits))
		}
	}
	if left > 0 {
		take(d.unnamed(l, at, left), left, part(left))
	}
	if op == "!=" && len(fields) > 1 {
		d.notAll(o, fields, values)
		return
	}
	base := l
	for i, n := range fields {
		r := relation{left: o, op: op, data: raw[i], named: n}
		if len(fields) > 1 {
			r.left = &operand{kind: opPayload, layer: l, offset: n.expr.Offset, typ: n.typ}
		}
		_, whole := values[i].(*Const)
		names := n.x != nil && d.protocols.namesProtocol(n.x, n.field)
		s := d.addMatch(&Match{Left: n.expr, Op: op, Right: values[i]}, r)
		d.previous = nil
		if op == "==" && names && whole {
			d.foundField(l, raw[i])
			// A header that follows at the same layer is said by the fields of that.
			if v, _ := number(raw[i]); d.found[l] != nil && base > noLayer {
				if above := d.protocols.above(d.found[l], uint32(v)); above != nil && above.layer == l {
					base--
				}
			}
		}
		d.implies(n, l)
		if op == "==" && names && whole {
			d.store(s, base)
		}
	}
}

// notAll is "not all of these fields have these values": nft prints "A != 1 B != 2", which is something else.
func (d *ruleDecoder) notAll(o *operand, fields []named, values []Expr) {
	left, right := &Concat{}, &Concat{}
	for i, n := range fields {
		left.Parts, right.Parts = append(left.Parts, n.expr), append(right.Parts, values[i])
	}
	d.addMatch(&Match{Left: left, Op: "!=", Right: right}, relation{left: o, op: "!="})
	for _, n := range fields {
		d.implies(n, o.layer)
	}
}

// leftAligned is a number of so many bits with its highest bit in the highest of the first byte.
func leftAligned(data []byte, bits int) []byte {
	spare := 8*len(data) - bits
	if spare <= 0 {
		return data
	}
	out := make([]byte, len(data))
	for i := range 8 * len(data) {
		if i >= spare && bitAt(data, i-spare) {
			out[len(out)-1-i/8] |= 1 << (i % 8)
		}
	}
	return out
}

// compareMasked reads a comparison of something that was calculated with a constant first: flags, a prefix, a field
// that is not made of whole bytes, or what it says.
func (d *ruleDecoder) compareMasked(o *operand, op string, right compared) {
	if inner, by, ok := d.trimmed(o); ok && d.spendSet(right.set) {
		if moved, ok := right.shifted(by, inner.typ); ok {
			d.compare(inner, op, moved)
			return
		}
	}
	isConst := right.set == nil && right.to == nil
	if o.op != "&" || !isConst || (op != "==" && op != "!=") {
		d.compareCalculated(o, op, right)
		return
	}
	left, typ, ok := d.resolve(o.left)
	if !ok || len(right.data) != len(o.data) || typ.isString() {
		d.compareCalculated(o, op, right)
		return
	}
	mask, value := inNetworkOrder(d.order, typ, o.data), inNetworkOrder(d.order, typ, right.data)
	r := relation{left: o, op: op}
	from, to, contiguous := run(mask)
	switch bits := typ.bits; {
	case typ.singleBits() && isZero(value):
		// "ct state new,established" holds where one of the bits is set.
		m := &Match{Left: left, Op: "==", Right: &Const{typ.Type, wide(mask, typ.size())}, AnyBit: true}
		if op == "==" {
			m.Op = "!="
		}
		d.addMatch(m, r)
	case typeOf(typ.Type).prefixes && isZero(mask) && isZero(value):
		d.addMatch(&Match{Left: left, Op: op, Right: &Prefix{d.constant(typ, right.data).(*Const), 0}}, r)
	case typeOf(typ.Type).prefixes && contiguous && to == bits && isZero(bitwise("&^", value, mask)):
		c := d.constant(typ, right.data).(*Const)
		d.addMatch(&Match{Left: left, Op: op, Right: &Prefix{c, bits - from}}, r)
	default:
		d.compareCalculated(o, op, right)
	}
}

// compareCalculated reads a comparison with a calculated value that has no shorter form.
func (d *ruleDecoder) compareCalculated(o *operand, op string, right compared) {
	left, typ, ok := d.resolve(o)
	if !ok {
		d.unreadable("it compares something that is not known")
		return
	}
	d.addMatch(&Match{Left: left, Op: op, Right: d.right(typ, right)}, relation{left: o, op: op})
}

// trimmed tells whether a mask, and a shift after it, only take a field out of the bytes that it stands in: "ip dscp" is
// six bits of a byte. Then it is that field, and the value it is compared with is to be shifted by what is returned.
func (d *ruleDecoder) trimmed(o *operand) (field *operand, shift int, ok bool) {
	masked, undone := o, 0
	if o.op == ">>" && o.left != nil && o.left.kind == opBinary {
		masked, undone = o.left, o.count(d.order)
	}
	if masked.op != "&" || masked.right != nil || masked.left == nil {
		return nil, 0, false
	}
	inner := masked.left
	// Masks are of what is in network order here.
	from, to, contiguous := run(masked.data)
	if !contiguous || len(masked.data) != inner.typ.size() {
		return nil, 0, false
	}
	skip := 8*len(masked.data) - to
	switch inner.kind {
	case opPayload:
		if !d.isField(inner, skip, to-from) {
			return nil, 0, false
		}
	case opOption:
		if inner.option.present {
			return nil, 0, false
		}
		if e, _, ok := inner.option.read(inner.offset+skip, to-from); !ok || e.Field == "" {
			return nil, 0, false
		}
	default:
		return nil, 0, false
	}
	if from == 0 && to == inner.typ.bits && undone == 0 {
		return nil, 0, false
	}
	if o != masked && undone != from {
		return nil, 0, false
	}
	field = &operand{kind: inner.kind, layer: inner.layer, option: inner.option, offset: inner.offset + skip}
	field.typ = valueType{bits: to - from}
	if inner.kind == opOption {
		var e *ExtHdr
		e, field.typ, _ = inner.option.read(field.offset, to-from)
		field.expr = e
	}
	if o != masked {
		from = 0 // it is done already
	}
	return field, from, true
}

// count is by how much a shift shifts; -1 where that makes no sense.
func (o *operand) count(order binary.ByteOrder) int {
	if len(o.data) != 4 {
		return -1
	}
	n := order.Uint32(o.data)
	if n >= 32 {
		return -1
	}
	return int(n)
}

// isField tells whether some bits within bytes of a packet are fields of the header from end to end, fewer than all of
// the bytes (payload_expr_trim).
func (d *ruleDecoder) isField(o *operand, skip, bits int) bool {
	x := d.found[o.layer]
	if x == nil {
		return false
	}
	x, before := d.stackedAt(x, o.layer, o.offset)
	at, end := o.offset-before+skip, o.offset-before+skip+bits
	if bits >= o.typ.bits {
		return false
	}
	for i := 1; i < len(x.fields); i++ {
		f := &x.fields[i]
		if f.offset != at {
			continue
		}
		if at += f.bits; at >= end {
			return at == end
		}
	}
	return false
}

// shifted is the right side of a comparison with a field that was taken out of its bytes; ok is false where bits are
// compared that the field does not have, so that the comparison never holds.
func (r compared) shifted(n int, typ valueType) (compared, bool) {
	size := typ.size()
	one := func(b []byte) ([]byte, bool) {
		if b == nil {
			return nil, true
		}
		moved := shiftedRight(b, n)
		if !isZero(moved[:max(0, len(moved)-size)]) {
			return nil, false
		}
		moved = wide(moved, size)
		back := bytes.Equal(shiftedRight(leftShifted(moved, n, len(b)), n), wide(moved, len(b)))
		lost := false
		for i := range n {
			lost = lost || bitAt(b, i)
		}
		over := false
		for i := typ.bits; i < 8*size; i++ {
			over = over || bitAt(moved, i)
		}
		return moved, back && !lost && !over
	}
	if r.set != nil {
		if !r.set.anonymous || n == 0 && len(r.set.key) == 1 && r.set.key[0].size() == size {
			return r, n == 0
		}
		set, ok := r.set.shiftedBy(one)
		return compared{set: set}, ok
	}
	lo, ok := one(r.data)
	hi, ok2 := one(r.to)
	return compared{data: lo, to: hi}, ok && ok2
}

// leftShifted is a number times 2^n, as size bytes.
func leftShifted(data []byte, n, size int) []byte {
	out := make([]byte, size)
	for i := n; i < 8*size; i++ {
		if bitAt(data, i-n) {
			out[size-1-i/8] |= 1 << (i % 8)
		}
	}
	return out
}

// concatRight is the right side of a comparison of several values at once.
func (d *ruleDecoder) concatRight(left *operand, r compared) Expr {
	if r.set != nil {
		return d.reference(r.set)
	}
	c := &Concat{}
	data := r.data
	for _, part := range left.parts {
		_, typ, ok := d.resolve(part)
		room := min(4*part.slots(), len(data))
		if !ok || typ.size() > room {
			return &Other{Text: "?"}
		}
		c.Parts = append(c.Parts, d.constant(typ, data[:typ.size()]))
		data = data[room:]
	}
	return c
}
