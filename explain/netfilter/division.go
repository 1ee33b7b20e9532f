package netfilter

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// Division sorts addresses and ports by what tells them apart: the tests of rules, each for itself, and other ranges by
// what they are said to mean. Addresses of one kind fare alike wherever only these decide.
type Division struct {
	// Sets are the IP sets that rules ask, by name; a set that is not in it is not known.
	Sets map[string]*Set
	// Apart are sets that the caller tells addresses and ports apart by itself.
	Apart map[string]bool

	cuts  []cut
	ports []uint16
	built bool
	// starts are the first addresses of the parts between all ends of ranges, sorted, by family; kinds says of what
	// kind each part is, and what lies before the first one is of kind 0.
	starts [2][]netip.Addr
	kinds  [2][]int
}

// cut is a range with what it means.
type cut struct {
	prefix  netip.Prefix
	meaning string
}

// Addresses tells the addresses of a range from others. Ranges with one meaning are alike: all that counts of an address
// is the meanings of the ranges that it is in, the widest first.
func (d *Division) Addresses(p netip.Prefix, meaning string) {
	if p.IsValid() {
		d.cuts = append(d.cuts, cut{p.Masked(), meaning})
		d.built = false
	}
}

// tested is a range that a rule tests: it means itself.
func (d *Division) tested(p netip.Prefix) {
	if p.IsValid() {
		d.Addresses(p, p.String())
	}
}

// testedRange is a range of addresses that a rule tests, as the prefixes that it consists of.
func (d *Division) testedRange(first, last netip.Addr) {
	meaning := first.String() + "-" + last.String()
	for a := first; a.IsValid() && a.Compare(last) <= 0; {
		bits := a.BitLen()
		for bits > 0 {
			wider := netip.PrefixFrom(a, bits-1)
			if wider.Masked().Addr() != a || lastOf(wider).Compare(last) > 0 {
				break
			}
			bits--
		}
		p := netip.PrefixFrom(a, bits)
		d.Addresses(p, meaning)
		a = lastOf(p).Next()
	}
}

// Ports tells a range of ports from others.
func (d *Division) Ports(first, last uint16) {
	d.ports = append(d.ports, first)
	if last < 65535 {
		d.ports = append(d.ports, last+1)
	}
	d.built = false
}

// OfAddress is the kind of an address.
func (d *Division) OfAddress(a netip.Addr) int {
	d.build()
	f := familyAt(a)
	at, found := slices.BinarySearchFunc(d.starts[f], a, netip.Addr.Compare)
	if !found {
		at--
	}
	if at < 0 {
		return 0
	}
	return d.kinds[f][at]
}

// OfPort is the part that a port lies in.
func (d *Division) OfPort(p uint16) int {
	d.build()
	at, found := slices.BinarySearch(d.ports, p)
	if found {
		at++
	}
	return at
}

func (d *Division) build() {
	if d.built {
		return
	}
	d.built = true
	slices.Sort(d.ports)
	d.ports = slices.Compact(d.ports)
	slices.SortFunc(d.cuts, func(a, b cut) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()), cmp.Compare(a.meaning, b.meaning))
	})
	d.cuts = slices.Compact(d.cuts)
	kinds := make(map[string]int)
	for f := range d.starts {
		d.sweep(f, kinds)
	}
}

// sweep goes through the addresses of a family. Prefixes nest, so those that an address is in are a stack.
func (d *Division) sweep(family int, kinds map[string]int) {
	var starts []netip.Addr
	var cuts []cut
	for _, c := range d.cuts {
		if familyAt(c.prefix.Addr()) != family {
			continue
		}
		cuts = append(cuts, c)
		starts = append(starts, c.prefix.Addr())
		if next := lastOf(c.prefix).Next(); next.IsValid() {
			starts = append(starts, next)
		}
	}
	slices.SortFunc(starts, netip.Addr.Compare)
	starts = slices.Compact(starts)
	d.starts[family], d.kinds[family] = starts, make([]int, len(starts))
	var in []cut
	for i, at := range starts {
		for len(in) > 0 && !in[len(in)-1].prefix.Contains(at) {
			in = in[:len(in)-1]
		}
		for len(cuts) > 0 && cuts[0].prefix.Addr() == at {
			in, cuts = append(in, cuts[0]), cuts[1:]
		}
		if len(in) == 0 {
			continue // outside of all ranges, as is what lies before the first one
		}
		var b strings.Builder
		for _, c := range in {
			b.WriteString(c.meaning)
			b.WriteByte(0)
		}
		kind, known := kinds[b.String()]
		if !known {
			kind = len(kinds) + 1
			kinds[b.String()] = kind
		}
		d.kinds[family][i] = kind
	}
}

func familyAt(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// lastOf is the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Rule cuts where a rule tells addresses and ports apart. It returns false for a rule that does so in a way that cuts
// cannot express (a mask that is no prefix, a set whose members are known, bytes of the packet): then nothing can be
// said of what fares alike.
func (d *Division) Rule(r *Rule) bool {
	d.tested(r.Src.Prefix)
	d.tested(r.Dst.Prefix)
	for _, m := range r.Matches {
		if !d.match(m) {
			return false
		}
	}
	return true
}

func (d *Division) match(m Match) bool {
	ports := func(all ...PortRange) {
		for _, p := range all {
			if p.Set {
				d.Ports(p.Min, p.Max)
			}
		}
	}
	switch m := m.(type) {
	case *TCP:
		ports(m.Sport, m.Dport)
	case *UDP:
		ports(m.Sport, m.Dport)
	case *SCTP:
		ports(m.Sport, m.Dport)
	case *Multiport:
		for _, p := range m.Ports {
			d.Ports(p.Min, p.Max)
		}
	case *IPRange:
		for _, r := range []AddrRange{m.Src, m.Dst} {
			if r.Min.IsValid() {
				d.testedRange(r.Min, r.Max)
			}
		}
	case *Conntrack:
		for _, a := range []AddrMatch{m.OrigSrc, m.OrigDst, m.ReplSrc, m.ReplDst} {
			d.tested(a.Prefix)
		}
		ports(m.OrigSrcPort, m.OrigDstPort, m.ReplSrcPort, m.ReplDstPort)
	case comment, *AddrType, *ConnMarkMatch, *Mark, *NFAcct, *Owner, *Physdev, *PktType, *RPFilter, *Socket, *Statistic, *HelperMatch, *Other:
		// They look at nothing that an address or port alone decides: what routes say of addresses is cut for itself.
	case *IPVSMatch:
		d.tested(m.Addr.Prefix)
		if m.Port.Set {
			d.Ports(m.Port.Min, m.Port.Max)
		}
	case *SetMatch:
		if set := d.Sets[m.Set]; set != nil && !d.Apart[m.Set] {
			return set.divide(d)
		}
		// A set whose members are not known: what it says is open for every packet alike.
	default:
		return false
	}
	return true
}

// Candidates yields the indexes of the rules of a chain that may match packets to a destination, in order.
func (c *Chain) Candidates(dst netip.Addr, proto uint8, port uint16) []int {
	var out []int
	for i := range c.candidates(&Packet{Dst: dst, Proto: proto, DstPort: port}) {
		out = append(out, i)
	}
	return out
}
