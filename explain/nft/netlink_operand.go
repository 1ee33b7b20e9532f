package nft

import (
	"encoding/binary"
	"slices"
)

// operand is what a register holds: an expression of which it may yet turn out what it is called. Bytes of a packet
// have a name only when a rule has found out which header they belong to.
type operand struct {
	kind operandKind
	typ  valueType
	// expr is the expression itself, but for the kinds that are resolved later.
	expr Expr
	// layer and offset, in bits, are where bytes of a packet stand.
	layer  protocolLayer
	offset int
	// key is NFT_META_* or NFT_CT_*.
	key uint32
	// option says which header or option an exthdr expression reads.
	option option
	// op is &, |, ^, << or >>, of left and either right or the constant data; data is also that of a constant, as it
	// stands in the register.
	op          string
	left, right *operand
	data        []byte
	parts       []*operand
	set         *netlinkSet
	// nodes is how many operands it is built out of.
	nodes int
}

type operandKind byte

const (
	opOther operandKind = iota // what it is stands in expr
	opPayload
	opMeta
	opCT
	opOption
	opConst
	opBinary
	opSwapped // byteorder: left in the other order
	opConcat
	opMap
	opHash
)

// maxNodes is more than a rule comes to that is no attack: it has 16 registers, and calculates a few times with each.
const maxNodes = 256

// slots is how many registers of four bytes the operand takes.
func (o *operand) slots() int { return max(1, (o.typ.size()+3)/4) }

// constOperand is a constant as it stands in a register.
func constOperand(data []byte) *operand {
	return &operand{kind: opConst, typ: valueType{bits: 8 * len(data)}, data: data}
}

// sameLoad tells whether two operands read the same thing, so that comparisons of both are of one value.
func (o *operand) sameLoad(p *operand) bool {
	if o.kind != p.kind || o.typ.bits != p.typ.bits {
		return false
	}
	switch o.kind {
	case opPayload:
		return o.layer == p.layer && o.offset == p.offset
	case opMeta:
		return o.key == p.key
	case opCT:
		return o.key == p.key && o.expr.(*CT).Dir == p.expr.(*CT).Dir
	case opOption:
		return o.option == p.option && o.offset == p.offset
	case opSwapped:
		return o.left.sameLoad(p.left)
	}
	return o == p
}

// registers are the values that the rule has loaded so far, in registers of four bytes.
type registers [nftReg32Last - nftReg32First + 1]*operand

// slot is the place of a register by the kernel's number; ok is false for the verdict register and for numbers that
// are none.
func slot(number uint32) (at int, ok bool) {
	switch {
	case number >= nftReg1 && number <= nftReg4:
		return int(number-nftReg1) * 4, true
	case number >= nftReg32First && number <= nftReg32Last:
		return int(number - nftReg32First), true
	}
	return 0, false
}

// set puts a value into a register. What stood in its place, whole or in part, is gone.
func (r *registers) set(number uint32, o *operand) bool {
	at, ok := slot(number)
	if !ok || o == nil {
		return false
	}
	end := min(at+o.slots(), len(r))
	for i, was := range r[:end] {
		if was != nil && i+was.slots() > at {
			r[i] = nil
		}
	}
	r[at] = o
	return true
}

// get is the value of so many bytes that begins at a register: one operand, or several that were loaded one behind
// the other. It is nil where not all of it was loaded. Bytes of 0 takes what is there.
func (r *registers) get(number uint32, bytes int) *operand {
	at, ok := slot(number)
	if !ok || r[at] == nil {
		return nil
	}
	if first := r[at]; bytes == 0 || first.typ.size() >= bytes || first.typ.bits == 0 {
		return first
	}
	concat := &operand{kind: opConcat, typ: valueType{bits: 8 * bytes}}
	for bytes > 0 {
		if at >= len(r) || r[at] == nil {
			return nil
		}
		part := r[at]
		concat.parts = append(concat.parts, part)
		concat.nodes += part.nodes + 1
		at += part.slots()
		bytes -= 4 * part.slots()
	}
	return concat
}

// Bytes of values. In an expression they are in network order.

// inNetworkOrder are the bytes of a value that stands in a register.
func inNetworkOrder(order binary.ByteOrder, typ valueType, data []byte) []byte {
	data = slices.Clone(data)
	if typ.host && !typ.isString() && order == binary.LittleEndian {
		slices.Reverse(data)
	}
	return data
}

// wide is a number as size bytes: zeros before it, or its last bytes.
func wide(data []byte, size int) []byte {
	if len(data) >= size {
		return data[len(data)-size:]
	}
	return append(make([]byte, size-len(data)), data...)
}

// padded is text or a key as size bytes: zeros behind it, or its first bytes.
func padded(data []byte, size int) []byte {
	if len(data) >= size {
		return data[:size]
	}
	return append(slices.Clone(data), make([]byte, size-len(data))...)
}

// bitAt is a bit of a number, counted from the lowest.
func bitAt(data []byte, n int) bool {
	at := len(data) - 1 - n/8
	return at >= 0 && data[at]>>(n%8)&1 != 0
}

// shiftedRight is a number divided by 2^n, with as many bytes.
func shiftedRight(data []byte, n int) []byte {
	out := make([]byte, len(data))
	for i := range 8 * len(data) {
		if bitAt(data, i+n) {
			out[len(out)-1-i/8] |= 1 << (i % 8)
		}
	}
	return out
}

func isZero(data []byte) bool {
	for _, b := range data {
		if b != 0 {
			return false
		}
	}
	return true
}

// run is where the ones of a mask begin and end, counted from the lowest bit; ok is false where they are none, or not
// all one behind the other.
func run(mask []byte) (from, to int, ok bool) {
	bits := 8 * len(mask)
	for from < bits && !bitAt(mask, from) {
		from++
	}
	to = from
	for to < bits && bitAt(mask, to) {
		to++
	}
	for i := to; i < bits; i++ {
		if bitAt(mask, i) {
			return 0, 0, false
		}
	}
	return from, to, to > from
}

// bitwise is a calculation of two numbers of the same size, bit by bit.
func bitwise(op string, a, b []byte) []byte {
	out := make([]byte, len(a))
	for i := range out {
		var y byte
		if i < len(b) {
			y = b[i]
		}
		switch op {
		case "&":
			out[i] = a[i] & y
		case "|":
			out[i] = a[i] | y
		case "^":
			out[i] = a[i] ^ y
		case "&^":
			out[i] = a[i] &^ y
		}
	}
	return out
}

// ones is a number of so many bytes with all bits set.
func ones(size int) []byte {
	out := make([]byte, size)
	for i := range out {
		out[i] = 0xff
	}
	return out
}
