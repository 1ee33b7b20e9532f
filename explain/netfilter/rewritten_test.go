package netfilter

import "testing"

// What rules write is compared bit by bit with what stood there; bits that the packet came with are not known.
func TestRewritten(t *testing.T) {
	dscp := func(value uint8) Rewrite { return Rewrite{Name: "DSCP", Value: value << 2, Mask: 0xfc} }
	hops := Rewrite{Name: "HL", Hops: true, Value: 33, Mask: 0xff}
	for _, c := range []struct {
		name           string
		family         Family
		before, inside []Rewrite
		want           Truth
	}{
		{"nothing", IPv4, nil, nil, False},
		{"for the first time", IPv4, nil, []Rewrite{dscp(8)}, Undecided},
		{"for the first time", IPv6, nil, []Rewrite{dscp(8)}, Undecided},
		{"again", IPv6, []Rewrite{dscp(8)}, []Rewrite{dscp(8)}, False},
		{"another", IPv6, []Rewrite{dscp(8)}, []Rewrite{dscp(9)}, True},
		{"another and back", IPv4, []Rewrite{dscp(8)}, []Rewrite{dscp(9), dscp(8)}, False},
		{"before only", IPv4, []Rewrite{dscp(8)}, nil, False},
		{"more bits", IPv4, []Rewrite{dscp(8)}, []Rewrite{{Name: "TOS", Value: 0x20, Mask: 0xff}}, Undecided},
		{"more bits, some others", IPv4, []Rewrite{dscp(8)}, []Rewrite{{Name: "TOS", Value: 0x24, Mask: 0xff}}, True},
		{"turned", IPv4, []Rewrite{dscp(8)}, []Rewrite{{Name: "TOS", Value: 0x20}}, True},
		{"turned twice", IPv4, []Rewrite{dscp(8)}, []Rewrite{{Name: "TOS", Value: 0x20}, {Name: "TOS", Value: 0x20}}, False},
		{"not told", IPv4, []Rewrite{dscp(8)}, []Rewrite{{Name: "DSCP", Mask: 0xfc, Open: true}}, Undecided},
		{"hops", IPv6, []Rewrite{dscp(8)}, []Rewrite{hops}, Undecided},
		{"hops again", IPv6, []Rewrite{hops}, []Rewrite{dscp(8), hops}, Undecided},
		{"no hop limit in IPv4", IPv4, nil, []Rewrite{hops}, False},
	} {
		var w rewritten
		for _, t := range c.before {
			w.target(c.family, t)
		}
		before := w
		before.written = 0
		w = before
		for _, t := range c.inside {
			w.target(c.family, t)
		}
		if a := w.since(before, "the rules"); a.Truth != c.want {
			t.Errorf("%s, IPv%d: %v, want %v", c.name, c.family, a.Truth, c.want)
		}
	}
	// iptables and nftables write the same bits.
	for _, c := range []struct {
		family       Family
		offset, bits int
		value        byte
		target       Rewrite
	}{
		{IPv4, 8, 6, 8, dscp(8)}, {IPv6, 4, 6, 8, dscp(8)}, {IPv6, 56, 8, 33, hops}, {IPv4, 14, 2, 2, Rewrite{Name: "ECN", Value: 2, Mask: 3}},
	} {
		var a, b rewritten
		v := known(c.value)
		a.bytes(c.family, c.offset, c.bits, &v)
		b.target(c.family, c.target)
		if a != b {
			t.Errorf("IPv%d bits %d+%d: %+v, by %s %+v", c.family, c.offset, c.bits, a, c.target.Name, b)
		}
	}
}
