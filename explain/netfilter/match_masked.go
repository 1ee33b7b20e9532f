package netfilter

import (
	"net/netip"
)

// MaskedAddr is -s or -d with a mask that is no prefix: (address & Mask) == (Addr & Mask).
type MaskedAddr struct {
	Addr, Mask netip.Addr
	Dst        bool // -d, otherwise -s
	Not        bool
}

// Test compares the masked addresses.
func (m *MaskedAddr) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	a := p.Src
	if m.Dst {
		a = p.Dst
	}
	return Is((a.BitLen() == m.Mask.BitLen() && masked(a, m.Mask) == masked(m.Addr, m.Mask)) != m.Not)
}

func (m *MaskedAddr) option(*option) bool { return false }
