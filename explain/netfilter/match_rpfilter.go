package netfilter

import (
	"github.com/svcnet/svcnet/explain/host"
)

// RPFilter is -m rpfilter: a packet to the source would leave by the interface that this one came in on.
type RPFilter struct {
	// Loose takes any interface, ValidMark includes the mark in the lookup, AcceptLocal takes sources that are
	// the node's own, Invert turns the test around.
	Loose, ValidMark, AcceptLocal, Invert bool
}

var rpfilterMatch = extension{
	name: "rpfilter",
	save: func(*arena) saved { return new(RPFilter) },
	list: listRPFilter,
}

// Test looks the way back up (xt_rpfilter: ipt_rpfilter.c, ip6t_rpfilter.c). Loopback always passes.
func (m *RPFilter) Test(k *Kernel, _ Hook, p *Packet) Answer {
	if p.In.Known && p.In.Name == loopback.Name {
		return Yes.Negate(m.Invert)
	}
	var mark uint32
	if m.ValidMark {
		mark = p.Mark
	}
	// The lookup is that of a packet back: from the destination to the source, as if it came in on lo.
	back := k.Host.Route(host.Query{Src: p.Dst, Dst: p.Src, Mark: mark, In: loopback.Name, InKnown: true})
	switch {
	case back.Type == "unicast" && m.Loose:
		return Yes.Negate(m.Invert)
	case back.Type == "unicast" && p.Family == IPv6 && back.Out != p.In.Name:
		// ip6t_rpfilter looks for a route through the incoming interface alone, and takes a less specific one too.
		back.Because = "whether a less specific route leads back through the incoming interface is not evaluated"
	case back.Type == "unicast" && back.Out != "" && p.In.Known:
		return Is(back.Out == p.In.Name).Negate(m.Invert)
	case back.Type == "local" && !m.AcceptLocal:
		return No.Negate(m.Invert)
	case back.Type == "local" && m.Loose:
		return Yes.Negate(m.Invert)
	case back.Type == "unicast", back.Type == "local", back.Type == "unknown":
	default:
		return No.Negate(m.Invert)
	}
	because := back.Because
	if because == "" {
		because = "the incoming interface or the way back is not known"
	}
	return Maybe(Fact{
		Key:     "rpfilter " + p.Src.String() + " " + p.In.Name,
		Yes:     "the way back to " + p.Src.String() + " is the way the packet came",
		No:      "the way back to " + p.Src.String() + " is not the way the packet came",
		Because: because,
	}).Negate(m.Invert)
}

func (m *RPFilter) option(o *option) bool {
	return m.set(o.name)
}

func (m *RPFilter) set(name string) bool {
	switch name {
	case "--loose", "loose":
		m.Loose = true
	case "--validmark", "validmark":
		m.ValidMark = true
	case "--accept-local", "accept-local":
		m.AcceptLocal = true
	case "--invert", "invert":
		m.Invert = true
	default:
		return false
	}
	return true
}

// listRPFilter reads "rpfilter [loose] [validmark] [accept-local] [invert]".
func listRPFilter(l *listing) Match {
	if !l.word("rpfilter") {
		return nil
	}
	m := new(RPFilter)
	for m.set(l.peek()) {
		l.next()
	}
	return m
}
