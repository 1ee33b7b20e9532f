package nft

import (
	"bytes"
	"encoding/binary"
	"iter"
)

// Attributes are pairs of a type and a value, as in every netlink protocol (struct nlattr, include/uapi/linux/netlink.h).
// Their lengths and types are in the byte order of the machine; nf_tables writes its numbers in network order.

const (
	nlattrHeader = 4
	// The two highest bits of a type are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
	nlaTypeMask = 0x3fff
)

// maxAttribute is more than the highest attribute of nf_tables.
const maxAttribute = 32

// attributes are the values of a message or of a nested attribute by type, nil for those that are not there.
type attributes [maxAttribute][]byte

// eachAttribute yields attributes in their order. What does not hold together ends them.
func eachAttribute(order binary.ByteOrder, data []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(data) >= nlattrHeader {
			size := int(order.Uint16(data))
			if size < nlattrHeader || size > len(data) {
				return
			}
			if !yield(order.Uint16(data[2:])&nlaTypeMask, data[nlattrHeader:size:size]) {
				return
			}
			data = data[min(len(data), (size+3)&^3):]
		}
	}
}

// parseAttributes reads attributes by type; of several of one type the last counts. Types beyond those that are known
// are passed over, as newer kernels have more.
func parseAttributes(order binary.ByteOrder, data []byte) (a attributes) {
	for len(data) >= nlattrHeader {
		size := int(order.Uint16(data))
		if size < nlattrHeader || size > len(data) {
			break
		}
		if kind := order.Uint16(data[2:]) & nlaTypeMask; kind < maxAttribute {
			a[kind] = data[nlattrHeader:size:size]
		}
		data = data[min(len(data), (size+3)&^3):]
	}
	return a
}

func (a *attributes) has(kind int) bool { return a[kind] != nil }

// The numbers of attributes; one that is not there or of another size is 0.

func (a *attributes) u8(kind int) uint8 {
	if len(a[kind]) != 1 {
		return 0
	}
	return a[kind][0]
}

func (a *attributes) u16(kind int) uint16 {
	if len(a[kind]) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(a[kind])
}

func (a *attributes) u32(kind int) uint32 {
	if len(a[kind]) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(a[kind])
}

func (a *attributes) u64(kind int) uint64 {
	if len(a[kind]) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(a[kind])
}

// text is a string that may end with a zero.
func (a *attributes) text(kind int) string { return zeroEnded(a[kind]) }

func zeroEnded(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// A program's own notes on a table, chain, rule, set or entry (NFTA_*_USERDATA) are pairs of a type of one byte, a
// length of one byte, and the value. nft keeps comments there, and what a set was declared with (libnftnl,
// include/libnftnl/udata.h). The numbers among them are in the byte order of the machine that nft ran on.

// maxNote is more than the highest type of a note that is known.
const maxNote = 16

type notes [maxNote][]byte

// parseNotes reads the notes; what does not hold together ends them.
func parseNotes(data []byte) (n notes) {
	for len(data) >= 2 {
		size := 2 + int(data[1])
		if size > len(data) {
			break
		}
		if kind := data[0]; kind < maxNote {
			n[kind] = data[2:size:size]
		}
		data = data[size:]
	}
	return n
}

// comment is a note that is text. One without its zero at the end is none of nft's.
func (n *notes) comment(kind int) string {
	if b := n[kind]; len(b) == 0 || b[len(b)-1] != 0 {
		return ""
	}
	return zeroEnded(n[kind])
}

func (n *notes) number(order binary.ByteOrder, kind int) (uint32, bool) {
	if len(n[kind]) != 4 {
		return 0, false
	}
	return order.Uint32(n[kind]), true
}
