package netfilter

import (
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/host"
)

// AddrType is -m addrtype: what the routing tables say an address is.
type AddrType struct {
	// Src and Dst are sets of types; an empty set is no test.
	Src, Dst       AddrTypes
	SrcNot, DstNot bool
	// LimitIn and LimitOut are --limit-iface-in and --limit-iface-out: an address counts as local only when it
	// belongs to the interface that the packet comes in on or leaves by.
	LimitIn, LimitOut bool
}

// AddrTypes is a set of address types, one bit each.
type AddrTypes uint16

// The bits of AddrTypes, in the kernel's order (xt_addrtype.h).
const (
	TypeUnspec AddrTypes = 1 << iota
	TypeUnicast
	TypeLocal
	TypeBroadcast
	TypeAnycast
	TypeMulticast
	TypeBlackhole
	TypeUnreachable
	TypeProhibit
	TypeThrow
	TypeNAT
	TypeXResolve
)

var addrTypeNames = [...]string{
	"UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT", "THROW", "NAT", "XRESOLVE",
}

// String lists the types as a rule does.
func (t AddrTypes) String() string {
	var names []string
	for i, name := range addrTypeNames {
		if t>>i&1 == 1 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

func addrType(name string) (AddrTypes, bool) {
	if name == "LOCAL" {
		return TypeLocal, true
	}
	for i, n := range addrTypeNames {
		if n == name {
			return 1 << i, true
		}
	}
	return 0, false
}

var addrtypeMatch = extension{
	name: "addrtype",
	save: func(a *arena) saved { return a.addrtype.new() },
	list: listAddrtype,
}

// Test asks the host what the addresses are.
func (m *AddrType) Test(k *Kernel, _ Hook, p *Packet) Answer {
	a := Yes
	if m.Src != 0 {
		if a = m.side(k, p, p.Src, m.Src).Negate(m.SrcNot); a.Truth == False {
			return No
		}
	}
	if m.Dst != 0 {
		if b := m.side(k, p, p.Dst, m.Dst).Negate(m.DstNot); b.Truth != True {
			return b
		}
	}
	return a
}

func (m *AddrType) side(k *Kernel, p *Packet, a netip.Addr, types AddrTypes) Answer {
	if !a.IsValid() {
		return Maybe(typeFact(a, types, "the packet's source is not chosen yet"))
	}
	if p.Family == IPv6 {
		return m.side6(k, p, a, types)
	}
	// inet_addr_type: a few ranges by themselves, then the local table; what it does not hold is unicast.
	is, open := m.kind(k, p, a, types)
	if open != nil {
		return Maybe(*open)
	}
	return Is(types&is != 0)
}

// side6 follows match_type6 of xt_addrtype.c: MULTICAST, UNICAST and UNSPEC are properties of the address, and
// all that are asked for must hold; the rest is a route lookup.
func (m *AddrType) side6(k *Kernel, p *Packet, a netip.Addr, types AddrTypes) Answer {
	if types&TypeMulticast != 0 && !a.IsMulticast() ||
		types&TypeUnicast != 0 && (a.IsMulticast() || a.IsUnspecified()) ||
		types&TypeUnspec != 0 && !a.IsUnspecified() {
		return No
	}
	types &= TypeLocal | TypeAnycast | TypeProhibit | TypeUnreachable
	switch {
	case types == 0:
		return Yes
	case (m.LimitIn || m.LimitOut) && types&TypeUnreachable != 0:
		// The lookup is then bound to the interface, and any failure of it counts as unreachable.
		return Maybe(typeFact(a, types, "a route lookup bound to one interface is not evaluated"))
	}
	is, open := m.kind(k, p, a, types)
	switch {
	case open != nil:
		return Maybe(*open)
	case is == TypeBlackhole, is == TypeProhibit:
		// The lookup tells only that the route rejects.
		is = TypeUnreachable
	}
	return Is(types&is != 0)
}

// kind is the type of an address, or the question that is open.
func (m *AddrType) kind(k *Kernel, p *Packet, a netip.Addr, types AddrTypes) (is AddrTypes, open *Fact) {
	kind, f := k.Host.Type(a)
	if f.Is == host.Unknown {
		fact := typeFact(a, types, f.Because)
		return 0, &fact
	}
	is, _ = addrType(strings.ToUpper(kind))
	if is != TypeLocal && is != TypeBroadcast || a == broadcast || !m.LimitIn && !m.LimitOut {
		return is, nil
	}
	on := p.In
	if m.LimitOut {
		on = p.Out
	}
	if !on.Known || !k.Host.HasAddrs {
		fact := typeFact(a, types, "which interface has the address, or the packet, is not known")
		fact.Key += " on the interface"
		return 0, &fact
	}
	// Any entry of the local table counts only if its device is the one given (inet_dev_addr_type).
	for _, have := range k.Host.Addrs {
		switch {
		case have.Link != on.Name:
		case is == TypeLocal && have.Prefix.Addr() == a:
			return TypeLocal, nil
		case is == TypeBroadcast && have.Prefix.Contains(a) && (lastOf(have.Prefix.Masked()) == a || have.Prefix.Masked().Addr() == a):
			return TypeBroadcast, nil
		}
	}
	return TypeUnicast, nil
}

// typeFact asks for the type of an address. Whether it is local is the question that routing asks too.
func typeFact(a netip.Addr, types AddrTypes, because string) Fact {
	if types == TypeLocal && a.IsValid() {
		return LocalFact(a, because)
	}
	return Fact{
		Key:     "type " + a.String() + " " + types.String(),
		Yes:     a.String() + " is of type " + types.String(),
		No:      a.String() + " is not of type " + types.String(),
		Because: because,
	}
}

func (m *AddrType) option(o *option) bool {
	switch o.name {
	case "--src-type":
		m.Src = o.types()
		m.SrcNot = o.not
	case "--dst-type":
		m.Dst = o.types()
		m.DstNot = o.not
	case "--limit-iface-in":
		m.LimitIn = true
	case "--limit-iface-out":
		m.LimitOut = true
	default:
		return false
	}
	return true
}

func (o *option) types() AddrTypes {
	v := o.value()
	t, ok := parseBits(v, addrType)
	if !ok {
		o.fail("%q is not a list of address types", v)
	}
	return t
}

// listAddrtype reads "ADDRTYPE match [src-type [!]X] [dst-type [!]X] [limit-in|limit-out]".
func listAddrtype(l *listing) Match {
	if !l.word("ADDRTYPE", "match") {
		return nil
	}
	m := l.arena.addrtype.new()
	for {
		if v, ok := l.after("src-type"); ok {
			v, m.SrcNot = negated(v)
			if m.Src, ok = parseBits(v, addrType); !ok {
				return nil
			}
			continue
		}
		if v, ok := l.after("dst-type"); ok {
			v, m.DstNot = negated(v)
			if m.Dst, ok = parseBits(v, addrType); !ok {
				return nil
			}
			continue
		}
		switch {
		case l.word("limit-in"):
			m.LimitIn = true
		case l.word("limit-out"):
			m.LimitOut = true
		default:
			return m
		}
	}
}
