package redact

import (
	"bytes"
	"fmt"
	"math/bits"
	"slices"

	"github.com/svcnet/svcnet/explain/nft"
)

// register is what one of the kernel's registers holds.
type register struct {
	kind valueKind
	bits int // of an address, how many bits a mask leaves
	// unsure is set for bytes that may be anything.
	unsure bool
}

// registers are those of a rule, in units of four bytes.
type registers struct {
	held map[uint32]register
	// wanted are registers whose value a later expression takes for an address.
	wanted map[uint32]bool
}

func newRegisters() *registers {
	return &registers{held: map[uint32]register{}, wanted: map[uint32]bool{}}
}

// place counts registers in units of four bytes: there are two numberings of the same ones.
func registerPlace(n uint32) uint32 {
	if n >= 8 {
		return n - 8
	}
	return (n - 1) * 4
}

func (g *registers) put(n []byte, r register) {
	if number(n) != 0 {
		g.held[registerPlace(number(n))] = r
	}
}

func (g *registers) of(n []byte) register { return g.held[registerPlace(number(n))] }

// addressRegisters are the attributes by which expressions take an address out of a register.
var addressRegisters = map[string][]uint16{"nat": {3, 4}, "tproxy": {2}, "dup": {1}, "fwd": {2}}

// expressions rewrites the list of expressions of a rule.
func (c *capture) expressions(table string, value []byte) ([]byte, error) {
	list, err := c.attributes(value)
	if err != nil {
		return nil, err
	}
	g := newRegisters()
	for _, l := range list {
		e, err := c.table(l.value)
		if err != nil {
			return nil, err
		}
		a, err := c.table(e[2])
		if err != nil {
			return nil, err
		}
		for _, n := range addressRegisters[cText(e[1])] {
			if a[n] != nil {
				g.wanted[registerPlace(number(a[n]))] = true
			}
		}
	}
	return c.each(value, func(_ uint16, value []byte) ([]byte, error) { return c.expression(g, table, value) })
}

// onlyNumbers are expressions that hold nothing but numbers, with the register that they write.
var onlyNumbers = map[string]uint16{
	"counter": 0, "limit": 0, "quota": 0, "connlimit": 0, "last": 0, "notrack": 0, "masq": 0, "redir": 0, "reject": 0, "numgen": 1, "hash": 2,
	"exthdr": 1, "socket": 2, "osf": 1, "synproxy": 0, "queue": 0, "byteorder": 2, "nat": 0, "tproxy": 0, "dup": 0, "fwd": 0,
}

// expression rewrites one expression (NFTA_EXPR_NAME, NFTA_EXPR_DATA).
func (c *capture) expression(g *registers, table string, value []byte) ([]byte, error) {
	e, err := c.table(value)
	if err != nil {
		return nil, err
	}
	a, err := c.table(e[2])
	if err != nil {
		return nil, err
	}
	rewrite, err := c.operation(g, table, cText(e[1]), a)
	if err != nil {
		return nil, err
	}
	return c.each(value, func(n uint16, v []byte) ([]byte, error) {
		if n != 2 || rewrite == nil {
			return v, nil
		}
		return c.each(v, rewrite)
	})
}

// asName rewrites an attribute that is a name.
func (c *capture) asName(v []byte) ([]byte, error) { return c.name(v, grammar), nil }

// operation follows what an expression does to registers and says how its attributes are rewritten; nil: they stay.
func (c *capture) operation(g *registers, table, what string, a map[uint16][]byte) (func(uint16, []byte) ([]byte, error), error) {
	// at rewrites the attributes of the given numbers, and leaves the others.
	at := func(rewrite func([]byte) ([]byte, error), numbers ...uint16) func(uint16, []byte) ([]byte, error) {
		return func(n uint16, v []byte) ([]byte, error) {
			if slices.Contains(numbers, n) {
				return rewrite(v)
			}
			return v, nil
		}
	}
	valueOf := func(r register) func([]byte) ([]byte, error) {
		return func(v []byte) ([]byte, error) {
			return c.each(v, func(n uint16, v []byte) ([]byte, error) {
				switch {
				case n == 2:
					return c.verdict(v)
				case r.unsure && len(v) >= 4:
					return nil, fmt.Errorf("a rule in it compares bytes of a packet that may be addresses")
				}
				return c.value(r.kind, v, r.bits)
			})
		}
	}
	if n, ok := onlyNumbers[what]; ok {
		if n != 0 {
			was := g.of(a[1])
			r := register{}
			if what == "byteorder" {
				r = was
			}
			g.put(a[n], r)
		}
		return nil, nil
	}
	switch what {
	case "payload":
		if a[1] != nil {
			r, err := c.payload(number(a[2]), number(a[3]), number(a[4]))
			g.put(a[1], r)
			return nil, err
		}
		return nil, nil // writes: of a value that was an immediate one
	case "meta":
		r := register{}
		switch number(a[2]) {
		case 6, 7, 17, 18, 34: // names of interfaces
			r.kind = deviceName
		case 37:
			r.kind = linkAddress
		}
		g.put(a[1], r)
		return nil, nil
	case "ct":
		r := register{bits: 128}
		switch number(a[2]) {
		case 8, 9: // of either family
			r.kind = address4
			if c.family == 10 {
				r.kind = address6
			}
		case 19, 20:
			r.kind = address4
		case 21, 22:
			r.kind = address6
		}
		g.put(a[1], r)
		return nil, nil
	case "rt":
		r := register{bits: 128}
		switch number(a[2]) {
		case 1:
			r.kind = address4
		case 2:
			r.kind = address6
		}
		g.put(a[1], r)
		return nil, nil
	case "fib":
		r := register{}
		if number(a[2]) == 2 { // the name of the interface
			r.kind = deviceName
		}
		g.put(a[1], r)
		return nil, nil
	case "bitwise":
		r := g.of(a[1])
		if r.kind == address4 || r.kind == address6 {
			mask, xor := c.dataOf(a[4]), c.dataOf(a[5])
			n, ok := prefixOf(mask)
			if !ok || len(bytes.Trim(xor, "\x00")) > 0 {
				return nil, fmt.Errorf("a rule in it masks addresses by other than their leading bits")
			}
			r.bits = min(r.bits, n)
		}
		g.put(a[2], r)
		return nil, nil
	case "cmp":
		return at(valueOf(g.of(a[1])), 3), nil
	case "range":
		r := g.of(a[1])
		if r.kind == address4 || r.kind == address6 {
			from, to, err := c.span(c.dataOf(a[3]), c.dataOf(a[4]))
			if err != nil {
				return nil, err
			}
			return func(n uint16, v []byte) ([]byte, error) {
				if n != 3 && n != 4 {
					return v, nil
				}
				return c.each(v, func(uint16, []byte) ([]byte, error) {
					if n == 3 {
						return from, nil
					}
					return to, nil
				})
			}, nil
		}
		return at(valueOf(r), 3, 4), nil
	case "lookup":
		if s, ok := c.sets[c.setName(table, cText(a[1]))]; ok && a[3] != nil && !s.verdicts {
			c.spread(g, number(a[3]), s.data)
		}
		return at(c.asName, 1), nil
	case "dynset":
		return func(n uint16, v []byte) ([]byte, error) {
			switch n {
			case 1:
				return c.asName(v)
			case 7:
				return c.expression(newRegisters(), table, v)
			case 10:
				return c.expressions(table, v)
			}
			return v, nil
		}, nil
	case "immediate":
		r := register{bits: 128}
		if g.wanted[registerPlace(number(a[1]))] {
			switch len(c.dataOf(a[2])) {
			case 4:
				r.kind = address4
			case 16:
				r.kind = address6
			}
		}
		g.put(a[1], r)
		return at(valueOf(r), 2), nil
	case "objref":
		return at(c.asName, 2, 4), nil
	case "flow_offload":
		return at(c.asName, 1), nil
	case "log":
		return at(func(v []byte) ([]byte, error) { return c.name(v, name), nil }, 2), nil
	case "match", "target":
		// What an extension of iptables was told stands in bytes of its own. iptables-save says the same as text.
		return at(func(v []byte) ([]byte, error) { return make([]byte, len(v)), nil }, 3), nil
	}
	return nil, fmt.Errorf("a rule in it has an expression %q, in which there may be addresses", c.r.text(what, grammar))
}

// spread puts the parts of a map's data into the registers that they fill.
func (c *capture) spread(g *registers, n uint32, types []nft.Type) {
	at := registerPlace(n)
	for _, t := range types {
		kind, sure := kindOfType(t)
		g.held[at] = register{kind: kind, bits: 128, unsure: !sure}
		at += uint32(max(1, (t.Size()+3)/4))
	}
}

// dataOf is the value of nested data.
func (c *capture) dataOf(nested []byte) []byte {
	a, err := c.table(nested)
	if err != nil {
		return nil
	}
	return a[1]
}

// prefixOf is the length of a mask of leading bits.
func prefixOf(mask []byte) (int, bool) {
	n, over := 0, false
	for _, b := range mask {
		lead := bits.LeadingZeros8(^b)
		if over && b != 0 || b != 0xff<<(8-lead)&0xff && lead < 8 {
			return 0, false
		}
		n += lead
		over = over || lead < 8
	}
	return n, true
}

// payload is what a field of a packet is: the addresses of network headers and of Ethernet are known by where they stand.
func (c *capture) payload(base, offset, length uint32) (register, error) {
	within := func(from, to uint32) bool { return offset < to && offset+length > from }
	r := register{bits: 128}
	field := func(kind valueKind, width uint32, starts ...uint32) (register, error) {
		if !slices.Contains(starts, offset) || length > width {
			return r, fmt.Errorf("a rule in it reads bytes of a packet across its addresses")
		}
		r.kind = kind
		return r, nil
	}
	switch base {
	case 0: // of the link
		if within(0, 12) {
			return field(linkAddress, 6, 0, 6)
		}
	case 1: // of the network
		switch {
		case c.family == 3 && within(8, 28):
			return r, fmt.Errorf("a rule in it reads addresses of ARP")
		case c.family == 10 && within(8, 40), c.family != 2 && length > 4 && within(8, 40), c.family != 2 && offset >= 24 && within(24, 40):
			return field(address6, 16, 8, 24)
		case within(12, 20):
			return field(address4, 4, 12, 16)
		case c.family != 2 && offset == 8 && length > 1:
			return r, fmt.Errorf("a rule in it reads bytes of a packet that may be an address")
		}
	case 2:
	default:
		r.unsure = true
	}
	return r, nil
}
