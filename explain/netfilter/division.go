package netfilter

import (
	"net/netip"
	"slices"
)

// Division cuts the space of addresses and ports at every place where a rule or route tells two of them apart. What
// lies in one part of it fares alike wherever only these rules and routes decide.
type Division struct {
	// starts are the first addresses of the parts, sorted, by family; ports those of the parts of the ports.
	starts [2][]netip.Addr
	ports  []uint16
	sorted bool
}

// Addresses cuts around a prefix.
func (d *Division) Addresses(p netip.Prefix) {
	if !p.IsValid() {
		return
	}
	p = p.Masked()
	d.addressRange(p.Addr(), lastOf(p))
}

func (d *Division) addressRange(first, last netip.Addr) {
	at := &d.starts[familyAt(first)]
	*at = append(*at, first)
	if next := last.Next(); next.IsValid() {
		*at = append(*at, next)
	}
	d.sorted = false
}

// Ports cuts around a range of ports.
func (d *Division) Ports(first, last uint16) {
	d.ports = append(d.ports, first)
	if last < 65535 {
		d.ports = append(d.ports, last+1)
	}
	d.sorted = false
}

// OfAddress is the part that an address lies in.
func (d *Division) OfAddress(a netip.Addr) int {
	d.sort()
	at, found := slices.BinarySearchFunc(d.starts[familyAt(a)], a, netip.Addr.Compare)
	if found {
		at++
	}
	return at
}

// OfPort is the part that a port lies in.
func (d *Division) OfPort(p uint16) int {
	d.sort()
	at, found := slices.BinarySearch(d.ports, p)
	if found {
		at++
	}
	return at
}

func (d *Division) sort() {
	if d.sorted {
		return
	}
	for i := range d.starts {
		slices.SortFunc(d.starts[i], netip.Addr.Compare)
		d.starts[i] = slices.Compact(d.starts[i])
	}
	slices.Sort(d.ports)
	d.ports = slices.Compact(d.ports)
	d.sorted = true
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
	d.Addresses(r.Src.Prefix)
	d.Addresses(r.Dst.Prefix)
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
				d.addressRange(r.Min, r.Max)
			}
		}
	case *Conntrack:
		for _, a := range []AddrMatch{m.OrigSrc, m.OrigDst, m.ReplSrc, m.ReplDst} {
			d.Addresses(a.Prefix)
		}
		ports(m.OrigSrcPort, m.OrigDstPort, m.ReplSrcPort, m.ReplDstPort)
	case comment, *AddrType, *ConnMarkMatch, *Mark, *NFAcct, *Owner, *Physdev, *PktType, *RPFilter, *Socket, *Statistic, *HelperMatch, *Other:
		// They look at nothing that an address or port alone decides: what routes say of addresses is cut for itself.
	case *SetMatch:
		// No set's members are known, so what it says is open for every packet alike.
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
