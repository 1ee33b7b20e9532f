package netfilter

import "fmt"

// rewritten is what rules of OUTPUT have written into the header of a packet of the node, of those fields besides the
// addresses that a chain of type route compares: of IPv4 the byte TOS, of IPv6 the first four bytes and the hop limit
// (nf_route_table_hook4, nf_route_table_hook6, ipt_mangle_out, ip6t_mangle_out). What the packet came with is not known.
//
// Bits 0 to 7 are TOS of IPv4; bits 0 to 31 the first four bytes of IPv6, 32 to 39 its hop limit.
type rewritten struct {
	value, known uint64
	// written are the bits that were written since the chain of type route began.
	written uint64
}

const (
	classShift6 = 20 // the traffic class of IPv6 among the bits
	hopShift6   = 32
)

// write sets the bits of a mask; those that are not known count as written all the same.
func (w *rewritten) write(value, mask, known uint64) {
	known &= mask
	w.value = w.value&^mask | value&known
	w.known = w.known&^mask | known
	w.written |= mask
}

// target does what a target of iptables writes.
func (w *rewritten) target(f Family, t Rewrite) {
	shift := 0
	switch {
	case t.Hops && f != IPv6:
		return
	case t.Hops:
		shift = hopShift6
	case f == IPv6:
		shift = classShift6
	}
	value, mask := uint64(t.Value)<<shift, uint64(t.Mask)<<shift
	if t.Open {
		w.write(0, mask, 0)
		return
	}
	w.write(value, mask, mask)
	if turned := value &^ mask; turned != 0 {
		w.write(^w.value, turned, w.known)
	}
}

// bytes writes a part of the header of nftables: bits from an offset, as the number v.
func (w *rewritten) bytes(f Family, offset, bits int, v *value) {
	for i := range bits {
		at, ok := comparedBit(f, offset+i)
		if !ok {
			continue
		}
		bit, known := uint64(0), uint64(0)
		if last := bits - 1 - i; last/8 < len(v.data) && (v.unknown == nil || v.unknown[len(v.unknown)-1-last/8]>>(last%8)&1 == 0) {
			bit, known = uint64(v.data[len(v.data)-1-last/8]>>(last%8)&1), 1
		}
		w.write(bit<<at, 1<<at, known<<at)
	}
}

// comparedBit is the place among the bits of rewritten of a bit of the header; ok is false for all others.
func comparedBit(f Family, offset int) (at int, ok bool) {
	switch {
	case f == IPv4 && offset >= 8 && offset < 16:
		return 15 - offset, true
	case f == IPv6 && offset >= 0 && offset < 32:
		return 31 - offset, true
	case f == IPv6 && offset >= 56 && offset < 64:
		return hopShift6 + 63 - offset, true
	}
	return 0, false
}

// since compares with what was there before a chain ran. Where the packet's own bits decide, the answer is open.
func (w *rewritten) since(before rewritten, chain string) Answer {
	both := before.known & w.known
	if w.written&both&(before.value^w.value) != 0 {
		return Yes
	}
	open := w.written &^ both
	if open == 0 {
		return No
	}
	f := Fact{
		Key:     fmt.Sprintf("header %#x/%#x", w.value&open, open),
		Yes:     chain + " change the DSCP or the hop limit of the packet",
		No:      "the packet was sent with the DSCP and hop limit that " + chain + " set",
		Because: "with which DSCP and hop limit a process sends is not part of the question",
	}
	if open&^w.known != 0 {
		f.Key += " by " + chain
	}
	return Maybe(f)
}
