package netfilter

import (
	"net/netip"
	"strings"
)

// The tests that every rule can have, on the header of a packet and its interfaces.

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Test says whether a passes. An address that is not known yet passes only where nothing is tested.
func (m AddrMatch) Test(a netip.Addr) bool {
	if !m.Prefix.IsValid() {
		return true
	}
	return m.Prefix.Contains(a) != m.Not
}

// Test says whether a packet on interface i passes; out says which of the two interfaces of a packet it is. Where
// the interface is not known the answer is open, and an assumed exact name becomes the packet's interface.
func (m IfaceMatch) Test(i Iface, out bool) Answer {
	if m.Name == "" || m.Name == "+" {
		return Is(m.Name == "" || !m.Not)
	}
	if i.Known {
		return Is(m.covers(i.Name) != m.Not)
	}
	if i.Cluster && PrivateBridge(m.Name) {
		return Is(m.Not)
	}
	f := Fact{
		Key:     "iface-in=" + m.Name,
		Not:     m.Not,
		Yes:     "the packet comes in on " + m.Name,
		No:      "the packet does not come in on " + m.Name,
		Because: "the incoming interface is not known",
	}
	if out {
		f.Key = "iface-out=" + m.Name
		f.Yes, f.No = "the packet leaves by "+m.Name, "the packet does not leave by "+m.Name
		f.Because = "the outgoing interface is not known"
	}
	if m.exact() {
		name := m.Name
		f.Assume = func(p *Packet) {
			if out {
				p.Out = Iface{Name: name, Known: true}
			} else {
				p.In = Iface{Name: name, Known: true}
			}
		}
	}
	return Maybe(f)
}

// PrivateBridge tells whether an interface of this name is the bridge of a program that puts its own containers or
// machines behind it, and never pods (since dockershim went in 1.24) or other nodes: Docker's docker0 and
// br-<12 hex digits>, libvirt's virbr0, LXC's lxcbr0, Podman's podman0 and cni-podman0.
func PrivateBridge(name string) bool {
	name = strings.TrimSuffix(name, "+")
	for _, b := range [...]string{"docker", "virbr", "lxcbr", "lxdbr", "podman", "cni-podman"} {
		if number, ok := strings.CutPrefix(name, b); ok && strings.Trim(number, "0123456789") == "" {
			return true
		}
	}
	id, ok := strings.CutPrefix(name, "br-")
	return ok && len(id) == 12 && strings.Trim(id, "0123456789abcdef") == ""
}

func (m IfaceMatch) exact() bool { return m.Name[len(m.Name)-1] != '+' }

// covers tells whether the name matches, a "+" at the end standing for anything.
func (m IfaceMatch) covers(name string) bool {
	if m.exact() {
		return name == m.Name
	}
	beginning := m.Name[:len(m.Name)-1]
	return len(name) >= len(beginning) && name[:len(beginning)] == beginning
}

// Test says whether a packet of protocol proto passes.
func (m ProtoMatch) Test(proto uint8) bool {
	return !m.Set || (proto == m.Number) != m.Not
}

// ExactDst returns what the rule says of the destination if it names exactly one: one address, one protocol, one
// port, each not negated. An index of rules by destination is built from it.
func (r *Rule) ExactDst() (addr netip.Addr, proto uint8, port uint16, hasAddr, hasProto, hasPort bool) {
	if p := r.Dst.Prefix; p.IsValid() && !r.Dst.Not && p.IsSingleIP() {
		addr, hasAddr = p.Addr(), true
	}
	if r.Proto.Set && !r.Proto.Not {
		proto, hasProto = r.Proto.Number, true
	}
	for _, m := range r.Matches {
		if d := destinationPorts(m); d.Set && !d.Not && d.Min == d.Max {
			return addr, proto, d.Min, hasAddr, hasProto, true
		}
	}
	return addr, proto, 0, hasAddr, hasProto, false
}

// destinationPorts is the range of --dport.
func destinationPorts(m Match) PortRange {
	switch m := m.(type) {
	case *TCP:
		return m.Dport
	case *UDP:
		return m.Dport
	case *SCTP:
		return m.Dport
	case *DCCP:
		return m.Dport
	}
	return PortRange{}
}
