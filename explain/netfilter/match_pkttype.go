package netfilter

// PktType is -m pkttype: how the link layer addressed the packet.
type PktType struct {
	Type string // unicast, broadcast, multicast or a number
	Not  bool
}

var pkttypeMatch = extension{
	name: "pkttype",
	save: func(*arena) saved { return new(PktType) },
	list: listPktType,
}

// Test takes a packet to a unicast address as addressed to this node's own interface: the IP stack drops the
// others it sees, and what the node sends is marked so as well.
func (m *PktType) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	if p.OrigDst.IsMulticast() || p.Dst.IsMulticast() || p.Dst == broadcast {
		return Maybe(Fact{
			Key: "pkttype " + m.Type, Not: m.Not,
			Yes:     "the packet's link layer type is " + m.Type,
			No:      "the packet's link layer type is not " + m.Type,
			Because: "how the link layer addressed a packet to a group is not known",
		})
	}
	return Is((m.Type == "unicast" || m.Type == "host") != m.Not)
}

func (m *PktType) option(o *option) bool {
	if o.name != "--pkt-type" {
		return false
	}
	m.Type = o.value()
	m.Not = o.not
	return true
}

// listPktType reads "PKTTYPE = multicast" or "PKTTYPE != unicast".
func listPktType(l *listing) Match {
	if !l.word("PKTTYPE") {
		return nil
	}
	m := new(PktType)
	switch l.next() {
	case "=":
	case "!=":
		m.Not = true
	default:
		return nil
	}
	if m.Type = l.next(); m.Type == "" {
		return nil
	}
	return m
}
