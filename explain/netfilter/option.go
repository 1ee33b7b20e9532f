package netfilter

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// option is one option of a rule in the save form: its name, whether "!" stands before it, and the
// words behind it, from which the match or target that owns it takes its values.
type option struct {
	name  string
	not   bool
	words *words
	rule  *Rule
	// why is the first thing that could not be read.
	why string
}

func (o *option) fail(format string, args ...any) {
	if o.why == "" {
		o.why = o.name + ": " + fmt.Sprintf(format, args...)
	}
}

// value takes the next word. The old place of the negation, "--dport ! 80", turns the option around.
func (o *option) value() string {
	v, ok := o.words.next()
	if ok && v == "!" {
		o.not = !o.not
		v, ok = o.words.next()
	}
	if !ok {
		o.fail("has no value")
	}
	return v
}

// number takes an unsigned number, decimal, 0x or 0 octal as strtoul reads it, of at most the given bits.
func (o *option) number(bits int) uint64 {
	v := o.value()
	n, err := strconv.ParseUint(v, 0, bits)
	if err != nil {
		o.fail("%q is not a number of %d bits", v, bits)
	}
	return n
}

// masked takes VALUE or VALUE/MASK; without a mask all bits count.
func (o *option) masked() (value, mask uint32) {
	v := o.value()
	value, mask, ok := parseMasked(v)
	if !ok {
		o.fail("%q is not a mark", v)
	}
	return value, mask
}

func parseMasked(s string) (value, mask uint32, ok bool) {
	head, tail, has := strings.Cut(s, "/")
	v, err := strconv.ParseUint(head, 0, 32)
	if err != nil {
		return 0, 0, false
	}
	if !has {
		return uint32(v), 0xffffffff, true
	}
	m, err := strconv.ParseUint(tail, 0, 32)
	return uint32(v), uint32(m), err == nil
}

// addr takes an address.
func (o *option) addr() netip.Addr {
	v := o.value()
	a, err := netip.ParseAddr(v)
	if err != nil {
		o.fail("%q is not an address", v)
	}
	return a
}

// dirs takes the direction list of a set: src,dst,…
func (o *option) dirs() []Dir {
	v := o.value()
	d, ok := parseDirs(v)
	if !ok {
		o.fail("%q is not a list of src and dst", v)
	}
	return d
}

// parseDirs reads at most six directions, as many as an ipset can have dimensions.
func parseDirs(s string) ([]Dir, bool) {
	if strings.Count(s, ",") > 5 {
		return nil, false
	}
	var out []Dir
	for part := range strings.SplitSeq(s, ",") {
		switch part {
		case "src":
			out = append(out, DirSrc)
		case "dst":
			out = append(out, DirDst)
		default:
			return nil, false
		}
	}
	return out, true
}

// names counts the bits of the names in a comma-separated list.
func parseBits[T ~uint8 | ~uint16](s string, bit func(name string) (T, bool)) (T, bool) {
	var set T
	for part := range strings.SplitSeq(s, ",") {
		b, ok := bit(part)
		if !ok {
			return 0, false
		}
		set |= b
	}
	return set, true
}
