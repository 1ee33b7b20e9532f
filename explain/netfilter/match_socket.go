package netfilter

// Socket is -m socket: a socket of this node would take the packet.
type Socket struct {
	// Transparent and NoWildcard are the options of the same name; RestoreMark sets the packet's mark from the
	// socket's.
	Transparent, NoWildcard, RestoreMark bool
	Not                                  bool
}

var socketMatch = extension{
	name: "socket",
	save: func(*arena) saved { return new(Socket) },
	list: listSocket,
}

// Test fails when the listening sockets were captured and none has the packet's port. That one has it does not
// decide: the match also looks at the address it is bound to and its options.
func (m *Socket) Test(k *Kernel, _ Hook, p *Packet) Answer {
	because := "the sockets of the node were not captured (ss)"
	if k.Host.HasSockets && p.State == StateNew && !p.Answer {
		found := false
		for _, s := range k.Host.Sockets {
			found = found || s.Proto == p.Proto && s.Port == p.DstPort
		}
		if !found {
			return No.Negate(m.Not)
		}
		because = "whether the socket takes this packet depends on its options"
	}
	return Maybe(Fact{
		Key: "socket", Yes: "a socket of this node takes the packet", No: "no socket of this node takes the packet",
		Because: because,
	}).Negate(m.Not)
}

func (m *Socket) option(o *option) bool {
	switch o.name {
	case "--transparent":
		m.Transparent = true
	case "--nowildcard":
		m.NoWildcard = true
	case "--restore-skmark":
		m.RestoreMark = true
	default:
		return false
	}
	return true
}

// listSocket reads "socket" with the options of the save form.
func listSocket(l *listing) Match {
	if !l.word("socket") {
		return nil
	}
	m := new(Socket)
	for {
		switch {
		case l.word("--transparent"):
			m.Transparent = true
		case l.word("--nowildcard"):
			m.NoWildcard = true
		case l.word("--restore-skmark"):
			m.RestoreMark = true
		default:
			return m
		}
	}
}
