package redact

import (
	"bytes"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/nft"
)

// valueKind is what a register or a part of a key holds, as far as it matters here.
type valueKind int

const (
	numbers valueKind = iota
	address4
	address6
	linkAddress
	deviceName
)

func kindOfType(t nft.Type) (valueKind, bool) {
	switch t {
	case nft.TypeIPv4:
		return address4, true
	case nft.TypeIPv6:
		return address6, true
	case nft.TypeEther, nft.TypeLLAddr:
		return linkAddress, true
	case nft.TypeIfname, nft.TypeString:
		return deviceName, true
	case nft.TypeInteger, nft.TypeBitmask:
		return numbers, false // may be anything
	}
	return numbers, true
}

// value rewrites a value of one kind. bits is how many of its leading ones count where a mask leaves the others out.
func (c *capture) value(kind valueKind, v []byte, bits int) ([]byte, error) {
	switch kind {
	case address4, address6:
		width := 4
		if kind == address6 {
			width = 16
		}
		if len(v) == 0 || len(v) > width {
			return nil, fmt.Errorf("an address in it is %d bytes long", len(v))
		}
		whole := make([]byte, width)
		copy(whole, v)
		a, _ := netip.AddrFromSlice(whole)
		if len(v) < width {
			bits = min(bits, 8*len(v))
		}
		p := netip.PrefixFrom(a, min(bits, 8*width))
		return c.r.prefix(p).Addr().AsSlice()[:len(v)], nil
	case linkAddress:
		if len(v) < 6 {
			return nil, fmt.Errorf("part of a hardware address stands in it")
		}
		mac := c.r.hardware([6]byte(v[:6]))
		return append(mac[:], v[6:]...), nil
	case deviceName:
		text := cText(v)
		out := []byte(c.r.text(text, grammar))
		if len(v) == len(text) {
			return out, nil // the beginning of names
		}
		for len(out) < len(v) {
			out = append(out, 0)
		}
		return out, nil
	}
	return v, nil
}

// key rewrites a key or data of a set, part by part.
func (c *capture) key(types []nft.Type, v []byte) ([]byte, error) {
	parts, err := partsOf(types, len(v))
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, p := range parts {
		part, err := c.value(p.kind, v[p.from:p.to], 128)
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	if len(out) != len(v) {
		return nil, fmt.Errorf("a key in it would change its length")
	}
	return out, nil
}

type keyPart struct {
	kind     valueKind
	from, to int
}

// partsOf cuts a key into its parts; each of several takes whole registers.
func partsOf(types []nft.Type, length int) ([]keyPart, error) {
	if len(types) == 0 {
		if length < 4 {
			return []keyPart{{numbers, 0, length}}, nil
		}
		return nil, fmt.Errorf("a set in it does not say what its keys are")
	}
	var out []keyPart
	at := 0
	for i, t := range types {
		kind, sure := kindOfType(t)
		width := length
		if len(types) > 1 {
			width = max(4, (t.Size()+3)&^3)
			if t == nft.TypeIfname || t == nft.TypeString {
				width = 16
			}
			if i == len(types)-1 {
				width = length - at
			}
		}
		if !sure && width >= 4 {
			return nil, fmt.Errorf("a set in it has keys of numbers, which may be addresses")
		}
		if at+width > length || width <= 0 {
			return nil, fmt.Errorf("a key in it is %d bytes long, and its types are longer", length)
		}
		out = append(out, keyPart{kind, at, at + width})
		at += width
	}
	return out, nil
}

// span rewrites the two ends of a range of addresses, both of them in it: what is a prefix becomes the new one, what lies
// within the last bits of addresses goes with them.
func (c *capture) span(from, to []byte) (newFrom, newTo []byte, err error) {
	a, ok1 := netip.AddrFromSlice(from)
	b, ok2 := netip.AddrFromSlice(to)
	if !ok1 || !ok2 || b.Less(a) {
		return nil, nil, fmt.Errorf("a range in it has no two ends")
	}
	shared := sharedBits(from, to)
	if shared >= 8*len(from)-keptBits {
		return c.r.address(a).AsSlice(), c.r.address(b).AsSlice(), nil
	}
	p := netip.PrefixFrom(a, shared)
	if p.Masked().Addr() != a || !bytes.Equal(lastOf(p), to) {
		return nil, nil, fmt.Errorf("a range in it is no prefix, and could not be one afterwards")
	}
	fresh := c.r.prefix(p).Masked()
	return fresh.Addr().AsSlice(), lastOf(fresh), nil
}

// sharedBits is how many leading bits two values share.
func sharedBits(a, b []byte) int {
	for i := range a {
		if x := a[i] ^ b[i]; x != 0 {
			return 8*i + bits.LeadingZeros8(x)
		}
	}
	return 8 * len(a)
}

// lastOf is the last address of a prefix.
func lastOf(p netip.Prefix) []byte {
	out := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < 8*len(out); i++ {
		out[i/8] |= 0x80 >> (i % 8)
	}
	return out
}

// before is the address before v, after the one behind it; ok is false at the ends.
func before(v []byte) ([]byte, bool) {
	a, _ := netip.AddrFromSlice(v)
	if a = a.Prev(); !a.IsValid() {
		return nil, false
	}
	return a.AsSlice(), true
}

func after(v []byte) ([]byte, bool) {
	a, _ := netip.AddrFromSlice(v)
	if a = a.Next(); !a.IsValid() {
		return nil, false
	}
	return a.AsSlice(), true
}

// element is an element of a set while its set is rewritten.
type element struct {
	key []byte
	end bool
}

// elements rewrites elements of a set.
func (c *capture) elements(table, set string, value []byte) ([]byte, error) {
	s, ok := c.sets[c.setName(table, set)]
	if !ok {
		return nil, fmt.Errorf("elements of a set that is not declared stand in it")
	}
	fresh := map[string][]byte{} // keys of intervals, told apart by which end they are
	if s.interval && len(s.key) == 1 {
		if err := c.intervals(s, value, fresh); err != nil {
			return nil, err
		}
	}
	return c.each(value, func(_ uint16, value []byte) ([]byte, error) {
		a, err := c.table(value)
		if err != nil {
			return nil, err
		}
		return c.each(value, func(n uint16, value []byte) ([]byte, error) {
			switch n {
			case 1:
				return c.each(value, func(n uint16, v []byte) ([]byte, error) {
					if out, ok := fresh[fmt.Sprint(number(a[3])&1, v)]; ok {
						return out, nil
					}
					if end, ok := a[10]; ok {
						e, err := c.table(end)
						if err != nil {
							return nil, err
						}
						out, _, err := c.spans(s, v, e[1])
						return out, err
					}
					if s.counts() {
						return v, nil
					}
					return c.key(s.key, v)
				})
			case 10:
				return c.each(value, func(n uint16, v []byte) ([]byte, error) {
					k, err := c.table(a[1])
					if err != nil {
						return nil, err
					}
					_, out, err := c.spans(s, k[1], v)
					return out, err
				})
			case 2:
				return c.data(s, value)
			case 3, 4, 5, 8:
				return value, nil
			case 6:
				return c.notes(12, value)
			case 7:
				return c.expression(newRegisters(), table, value)
			case 9:
				return c.name(value, grammar), nil
			case 11:
				return c.expressions(table, value)
			}
			return nil, fmt.Errorf("it holds attribute %d of an element, which nobody knows", n)
		})
	})
}

// spans rewrites both ends of a key of several parts, each of them a range.
func (c *capture) spans(s setTypes, from, to []byte) (newFrom, newTo []byte, err error) {
	parts, err := partsOf(s.key, len(from))
	if err != nil {
		return nil, nil, err
	}
	if len(from) != len(to) {
		return nil, nil, fmt.Errorf("a range in it has ends of %d and of %d bytes", len(from), len(to))
	}
	for _, p := range parts {
		a, b := from[p.from:p.to], to[p.from:p.to]
		if p.kind == address4 || p.kind == address6 {
			a, b, err = c.span(a, b)
		} else {
			if a, err = c.value(p.kind, a, 128); err == nil {
				b, err = c.value(p.kind, b, 128)
			}
		}
		if err != nil {
			return nil, nil, err
		}
		newFrom, newTo = append(newFrom, a...), append(newTo, b...)
	}
	return newFrom, newTo, nil
}

// intervals finds the new keys of a set of intervals: each begins at an element and ends before the next one, which has a
// mark where nothing begins there.
func (c *capture) intervals(s setTypes, value []byte, fresh map[string][]byte) error {
	kind, sure := kindOfType(s.key[0])
	if !sure && s.keySize >= 4 {
		return fmt.Errorf("a set in it has keys of numbers, which may be addresses")
	}
	if kind != address4 && kind != address6 {
		return nil
	}
	list, err := c.attributes(value)
	if err != nil {
		return err
	}
	var elements []element
	for _, l := range list {
		a, err := c.table(l.value)
		if err != nil {
			return err
		}
		k, err := c.table(a[1])
		if err != nil {
			return err
		}
		if k[1] != nil {
			elements = append(elements, element{key: k[1], end: number(a[3])&1 != 0})
		}
	}
	slices.SortStableFunc(elements, func(a, b element) int { return bytes.Compare(a.key, b.key) })
	for i, e := range elements {
		if e.end {
			if i == 0 || elements[i-1].end { // before the first interval
				fresh[fmt.Sprint(1, e.key)] = e.key
			}
			continue
		}
		if i+1 == len(elements) { // up to the last address that there is
			last := bytes.Repeat([]byte{0xff}, len(e.key))
			from, to, err := c.span(e.key, last)
			if err != nil || !bytes.Equal(to, last) {
				return fmt.Errorf("a range in it goes on to the last address")
			}
			fresh[fmt.Sprint(0, e.key)] = from
			continue
		}
		next := elements[i+1]
		last, ok := before(next.key)
		if !ok || !next.end {
			return fmt.Errorf("two ranges in it lie side by side, and would not afterwards")
		}
		from, to, err := c.span(e.key, last)
		if err != nil {
			return err
		}
		end, ok := after(to)
		if !ok {
			return fmt.Errorf("a range in it goes on to the last address")
		}
		fresh[fmt.Sprint(0, e.key)], fresh[fmt.Sprint(1, next.key)] = from, end
	}
	return nil
}

// data rewrites what an element leads to: a value, or a verdict.
func (c *capture) data(s setTypes, value []byte) ([]byte, error) {
	return c.each(value, func(n uint16, v []byte) ([]byte, error) {
		switch {
		case n == 2:
			return c.verdict(v)
		case n != 1:
			return nil, fmt.Errorf("it holds data of kind %d, which nobody knows", n)
		case s.dataInterval:
			half := len(v) / 2
			from, to, err := c.spans(setTypes{key: s.data, keySize: half}, v[:half], v[half:])
			return append(from, to...), err
		}
		return c.key(s.data, v)
	})
}

// verdict rewrites the chain that a verdict leads to.
func (c *capture) verdict(value []byte) ([]byte, error) {
	return c.each(value, func(n uint16, v []byte) ([]byte, error) {
		if n == 2 {
			return c.name(v, grammar), nil
		}
		return v, nil // its code, or the number of a chain
	})
}
