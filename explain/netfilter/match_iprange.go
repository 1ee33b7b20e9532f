package netfilter

import (
	"net/netip"
	"strings"
)

// IPRange is -m iprange: addresses from one to another.
type IPRange struct {
	Src, Dst AddrRange
}

// AddrRange is a range of addresses, both ends included. It tests nothing while Min is not valid.
type AddrRange struct {
	Min, Max netip.Addr
	Not      bool
}

func (r AddrRange) test(a netip.Addr) bool {
	if !r.Min.IsValid() {
		return true
	}
	return (a.BitLen() == r.Min.BitLen() && r.Min.Compare(a) <= 0 && a.Compare(r.Max) <= 0) != r.Not
}

var iprangeMatch = extension{
	name: "iprange",
	save: func(*arena) saved { return new(IPRange) },
	list: listIPRange,
}

// Test compares the addresses.
func (m *IPRange) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	return Is(m.Src.test(p.Src) && m.Dst.test(p.Dst))
}

func (m *IPRange) option(o *option) bool {
	var into *AddrRange
	switch o.name {
	case "--src-range":
		into = &m.Src
	case "--dst-range":
		into = &m.Dst
	default:
		return false
	}
	v := o.value()
	if !into.parse(v) {
		o.fail("%q is not a range of addresses", v)
	}
	into.Not = o.not
	return true
}

func (r *AddrRange) parse(s string) bool {
	lo, hi, isRange := strings.Cut(s, "-")
	if !isRange {
		hi = lo
	}
	a, err := netip.ParseAddr(lo)
	if err != nil {
		return false
	}
	b, err := netip.ParseAddr(hi)
	if err != nil {
		return false
	}
	r.Min, r.Max = a, b
	return true
}

// listIPRange reads "source IP range [!] A-B" and "destination IP range [!] A-B", either or both.
func listIPRange(l *listing) Match {
	m := new(IPRange)
	read := func(word string, into *AddrRange) (found, ok bool) {
		if !l.word(word, "IP", "range") {
			return false, true
		}
		into.Not = l.not()
		return true, into.parse(l.next())
	}
	src, ok := read("source", &m.Src)
	if !ok {
		return nil
	}
	dst, ok := read("destination", &m.Dst)
	if !ok || !src && !dst {
		return nil
	}
	return m
}
