package netfilter

import (
	"net/netip"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/ipset"
)

// SetsOf makes the sets that rules ask out of captured ones. A set that is in several captures counts as the first says.
func SetsOf(captured []*ipset.Set) map[string]*Set {
	byName := make(map[string]*ipset.Set, len(captured))
	out := make(map[string]*Set, len(captured))
	member := func(name string) *ipset.Set { return byName[name] }
	for _, c := range captured {
		if byName[c.Name] != nil {
			continue
		}
		byName[c.Name] = c
		s := &Set{Name: c.Name, Type: c.Type, Captured: c, member: member}
		s.Contains = func(dirs []Dir, p *Packet) Answer { return s.contains(dirs, p, false) }
		out[c.Name] = s
	}
	return out
}

// contains asks the captured set. With returnNoMatch, exceptions ("nomatch") count as matches and everything else that
// is in the set does not (IPSET_FLAG_RETURN_NOMATCH).
func (s *Set) contains(dirs []Dir, p *Packet, returnNoMatch bool) Answer {
	a := s.Lookup(dirs, p)
	because := a.Because
	switch {
	case a.Is == host.Unknown:
	case returnNoMatch && s.Type == "list:set" && a.Is == host.Yes:
		because = "exceptions in the sets of a list are not evaluated"
	case returnNoMatch && (a.Is == host.Yes || a.NoMatch) && takesNoMatch(s.Type):
		return Is(a.NoMatch)
	default:
		return Is(a.Is == host.Yes)
	}
	return Maybe(setFact(s.Name+" "+dirsString(dirs), p, because))
}

// takesNoMatch tells whether a type can have exceptions (IPSET_TYPE_NOMATCH): those with networks.
func takesNoMatch(kind string) bool {
	switch kind {
	case "hash:net", "hash:net,iface", "hash:net,net", "hash:net,port", "hash:net,port,net", "hash:ip,port,net":
		return true
	}
	return false
}

// sources are the source networks that a captured set tells clients of a packet apart by.
func (s *Set) sources(dirs []Dir, p *Packet) []netip.Prefix {
	if s.Captured == nil {
		return nil
	}
	q, sides := setQuestion(dirs, p)
	return s.Captured.Sources(s.member, sides, q)
}

// Lookup says which entry of a captured set decides whether the packet is in it. Captured must not be nil.
func (s *Set) Lookup(dirs []Dir, p *Packet) ipset.Answer {
	q, sides := setQuestion(dirs, p)
	return s.Captured.Test(s.member, sides, q)
}

// setQuestion is a packet as sets look at it, with the sides that the directions select.
func setQuestion(dirs []Dir, p *Packet) (*ipset.Packet, []ipset.Dir) {
	q := ipset.Packet{
		Family: int(p.Family), Proto: p.Proto, Mark: p.Mark,
		Ifaces: [2]string{p.In.Name, p.Out.Name}, KnowsIfaces: [2]bool{p.In.Known, p.Out.Known},
	}
	q.Addrs[ipset.Src], q.Addrs[ipset.Dst] = p.Src, p.Dst
	switch p.Proto {
	case ProtoICMP, ProtoICMPv6:
		code := uint16(p.ICMPType)<<8 | uint16(p.ICMPCode)
		q.Ports, q.KnowsPorts = [2]uint16{code, code}, [2]bool{true, true}
	default:
		q.Ports[ipset.Src], q.KnowsPorts[ipset.Src] = p.sourcePort()
		q.Ports[ipset.Dst], q.KnowsPorts[ipset.Dst] = p.destinationPort()
	}
	sides := make([]ipset.Dir, len(dirs))
	for i, d := range dirs {
		if sides[i] = ipset.Src; d == DirDst {
			sides[i] = ipset.Dst
		}
	}
	return &q, sides
}

// setFact is the question whether a packet is in a set, which text names with the directions.
func setFact(text string, p *Packet, because string) Fact {
	return Fact{
		Key:     "set " + text + " " + p.Src.String() + " " + p.Dst.String(),
		Yes:     "the packet is in set " + text,
		No:      "the packet is not in set " + text,
		Because: because,
	}
}
