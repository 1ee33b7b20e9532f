package nft

import (
	"bytes"
	"math/big"
)

func (p *printer) set(s *Set) {
	switch {
	case s.Meter:
		p.str("\tmeter ")
	case s.IsMap:
		p.str("\tmap ")
	default:
		p.str("\tset ")
	}
	p.str(s.Name, " {\n\t\t")
	p.declaration(s)
	p.str("\n")
	if !s.Constant {
		if s.Policy != "" && s.Policy != "performance" {
			p.str("\t\tpolicy ", s.Policy, "\n")
		}
		if s.Size > 0 {
			p.str("\t\tsize ")
			p.int(s.Size)
			p.str("\n")
		}
	}
	p.setFlags(s)
	if len(s.Statements) > 0 {
		p.str("\t\t")
		p.statements(s.Statements, true)
		p.str("\n")
	}
	if s.AutoMerge {
		p.str("\t\tauto-merge\n")
	}
	if s.Timeout > 0 {
		p.str("\t\ttimeout ")
		p.b = appendDuration(p.b, s.Timeout)
		p.str("\n")
	}
	if s.GCInterval > 0 {
		p.str("\t\tgc-interval ")
		p.b = appendDuration(p.b, s.GCInterval)
		p.str("\n")
	}
	if s.Comment != "" {
		p.str("\t\tcomment ")
		p.quoted(s.Comment)
		p.str("\n")
	}
	if len(s.Entries) > 0 {
		p.str("\t\telements = ")
		p.elements(s)
		p.str("\n")
	}
	p.str("\t}\n")
}

// declaration writes what a set holds: "type ipv4_addr . inet_service : verdict".
func (p *printer) declaration(s *Set) {
	if s.TypeofKey != nil {
		p.str("typeof ")
		p.expr(s.TypeofKey)
	} else {
		p.str("type ")
		p.types(s.Key)
	}
	if !s.IsMap {
		return
	}
	p.str(" : ")
	if s.ObjectType != "" {
		p.str(s.ObjectType)
		return
	}
	if s.DataInterval {
		p.str("interval ")
	}
	switch {
	case s.Data == nil:
		p.str(string(TypeVerdict))
	case s.TypeofKey != nil && s.TypeofData != nil:
		p.expr(s.TypeofData)
	default:
		p.types(s.Data)
	}
}

func (p *printer) types(fields []Field) {
	for i, f := range fields {
		if i > 0 {
			p.str(" . ")
		}
		p.str(f.Type.declared())
	}
}

func (p *printer) setFlags(s *Set) {
	sep := "\t\tflags "
	for _, f := range [...]struct {
		name string
		set  bool
	}{
		{"constant", s.Constant}, {"dynamic", s.Dynamic}, {"interval", s.Interval},
		// nft names the flag only where there is no timeout for all, or other flags.
		{"timeout", s.HasTimeout && (s.Timeout == 0 || s.Constant || s.Dynamic || s.Interval)},
	} {
		if f.set {
			p.str(sep, f.name)
			sep = ","
		}
	}
	if sep == "," {
		p.str("\n")
	}
}

// elements writes the entries in braces, as many on a line as nft puts there (calculate_delim): those of anonymous sets
// all on one.
func (p *printer) elements(s *Set) {
	perLine := 1
	switch {
	case s.Name == "" || p.oneLine:
		perLine = 0
	case len(s.Key) == 1:
		perLine = max(1, typeOf(s.Key[0].Type).perLine)
	}
	p.str("{ ")
	onLine := 0
	for i := range s.Entries {
		if i > 0 {
			if onLine == perLine && perLine > 0 {
				p.str(",\n\t\t\t     ")
				onLine = 0
			} else {
				p.str(", ")
			}
		}
		p.entry(s, &s.Entries[i])
		onLine++
	}
	p.str(" }")
}

func (p *printer) entry(s *Set, e *Entry) {
	switch {
	case e.CatchAll:
		p.str("*")
	case e.End == nil || bytes.Equal(e.Start, e.End):
		p.key(s.Key, e.Start)
	default:
		p.keyRange(s.Key, e.Start, e.End, false)
	}
	for _, st := range e.Statements {
		p.str(" ")
		p.statement(st)
	}
	if e.Timeout > 0 {
		p.str(" timeout ")
		p.b = appendDuration(p.b, e.Timeout)
	}
	if e.Expires > 0 && !p.stateless {
		p.str(" expires ")
		p.b = appendDuration(p.b, e.Expires)
	}
	if e.Comment != "" {
		p.str(" comment ")
		p.quoted(e.Comment)
	}
	if !s.IsMap {
		return
	}
	p.str(" : ")
	switch {
	case e.Verdict != nil:
		p.verdict(e.Verdict)
	case e.Object != "":
		p.quoted(e.Object)
	case e.DataEnd != nil:
		p.keyRange(s.Data, e.Data, e.DataEnd, len(s.Data) == 1)
	default:
		p.key(s.Data, e.Data)
	}
}

// parts calls f with the bytes of each field of a key.
func parts(fields []Field, key []byte, f func(i int, part []byte)) {
	for i, field := range fields {
		if len(fields) == 1 {
			f(0, key)
			return
		}
		if field.Size > len(key) {
			f(i, nil)
			key = nil
			continue
		}
		f(i, key[:field.Size])
		key = key[min(field.Width(), len(key)):]
	}
}

func (p *printer) key(fields []Field, key []byte) {
	parts(fields, key, func(i int, part []byte) {
		if i > 0 {
			p.str(" . ")
		}
		p.value(typeOf(fields[i].Type), part, " | ")
	})
}

// keyRange writes a range of keys, each part for itself: as one value, a prefix, or a range. Data of maps that are no
// concatenations are printed as prefixes whatever their type (range_expr_to_prefix).
func (p *printer) keyRange(fields []Field, start, end []byte, prefixes bool) {
	ends := make([][]byte, 0, len(fields))
	parts(fields, end, func(_ int, part []byte) { ends = append(ends, part) })
	parts(fields, start, func(i int, lo []byte) {
		if i > 0 {
			p.str(" . ")
		}
		if i < len(ends) {
			p.interval(fields[i], lo, ends[i], prefixes)
		}
	})
}

func (p *printer) interval(f Field, lo, hi []byte, prefixes bool) {
	t := typeOf(f.Type)
	if !prefixes && bytes.Equal(lo, hi) {
		p.value(t, lo, " | ")
		return
	}
	if bits := prefixBits(lo, hi); bits >= 0 {
		switch {
		case t.print == text:
			// A name with any end: what follows the beginning is zeros and ones.
			if n := bits / 8; bits%8 == 0 && n > 0 && bytes.IndexByte(lo[:n], 0) < 0 {
				p.str(`"`, string(lo[:n]), `*"`)
				return
			}
		case t.prefixes || prefixes:
			p.value(t, lo, " | ")
			p.str("/")
			p.int(bits + f.Type.bitsOf(len(lo)) - 8*len(lo))
			return
		}
	}
	numeric := p.numeric
	p.numeric = true
	p.value(t, lo, " | ")
	p.str("-")
	p.value(t, hi, " | ")
	p.numeric = numeric
}

// bitsOf is how many bits a value of some bytes has: fewer than 8 a byte for types as dscp.
func (t Type) bitsOf(size int) int {
	if bits := typeOf(t).bits; bits > 0 && (bits+7)/8 == size {
		return bits
	}
	return 8 * size
}

// prefixBits is the length of the prefix that a range is, -1 where it is none.
func prefixBits(lo, hi []byte) int {
	if len(lo) != len(hi) {
		return -1
	}
	bits := 0
	i := 0
	for ; i < len(lo) && lo[i] == hi[i]; i++ {
		bits += 8
	}
	if i == len(lo) {
		return bits
	}
	diff := lo[i] ^ hi[i]
	n := 0
	for diff>>n != 0 {
		n++
	}
	if diff != 1<<n-1 || lo[i]&diff != 0 {
		return -1
	}
	for j := i + 1; j < len(lo); j++ {
		if lo[j] != 0 || hi[j] != 0xff {
			return -1
		}
	}
	return bits + 8 - n
}

// value writes a constant. Bits of a type of flags stand one after the other, the lowest first.
func (p *printer) value(t *datatype, data []byte, between string) {
	if t.flags {
		if t.print == labelBit || len(data) > 8 {
			n := new(big.Int).SetBytes(data)
			first := true
			for i := range n.BitLen() {
				if n.Bit(i) == 0 {
					continue
				}
				if !first {
					p.str(between)
				}
				first = false
				p.int(i)
			}
			return
		}
		v, _ := number(data)
		if v&(v-1) != 0 {
			first := true
			for bit := range 64 {
				if v>>bit&1 == 0 {
					continue
				}
				if !first {
					p.str(between)
				}
				first = false
				one, _ := numberBytes(1<<bit, 8)
				p.b = appendValue(p.b, t, one, p.numeric)
			}
			return
		}
	}
	p.b = appendValue(p.b, t, data, p.numeric)
}
