package netfilter

// UDP is -m udp and -m udplite: ports.
type UDP struct {
	// Proto is ProtoUDP or ProtoUDPLite.
	Proto        uint8
	Sport, Dport PortRange
}

var udpMatch = extension{
	name: "udp",
	save: func(a *arena) saved { return newUDP(a, ProtoUDP) },
	list: func(l *listing) Match { return listUDP(l, "udp", ProtoUDP) },
}

var udpliteMatch = extension{
	name: "udplite",
	save: func(a *arena) saved { return newUDP(a, ProtoUDPLite) },
	list: func(l *listing) Match { return listUDP(l, "udplite", ProtoUDPLite) },
}

func newUDP(a *arena, proto uint8) *UDP {
	m := a.udp.new()
	m.Proto = proto
	return m
}

// Test reads the ports.
func (m *UDP) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	if p.Proto != m.Proto {
		return No
	}
	return bothPorts(m.Sport, m.Dport, p)
}

func (m *UDP) idle() bool { return !m.Sport.Set && !m.Dport.Set }

func (m *UDP) option(o *option) bool {
	switch o.name {
	case "--sport", "--source-port":
		m.Sport = o.portRange()
	case "--dport", "--destination-port":
		m.Dport = o.portRange()
	default:
		return false
	}
	return true
}

func listUDP(l *listing, word string, proto uint8) Match {
	if !l.word(word) {
		return nil
	}
	m := newUDP(l.arena, proto)
	for l.ports(&m.Sport, &m.Dport) {
		continue
	}
	return m
}
