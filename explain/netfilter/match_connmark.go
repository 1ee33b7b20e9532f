package netfilter

// ConnMarkMatch is -m connmark: (connection mark & Mask) == Value.
type ConnMarkMatch struct {
	Value, Mask uint32
	Not         bool
}

var connmarkMatch = extension{
	name: "connmark",
	save: func(*arena) saved { return new(ConnMarkMatch) },
	list: listConnmark,
}

// Test compares the connection's mark, or that of a template. A packet without a connection never passes, negated or
// not (xt_connmark.c, connmark_mt).
func (m *ConnMarkMatch) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	if !p.tracked() && !p.Template {
		return No
	}
	return Is((p.CTMark&m.Mask == m.Value) != m.Not)
}

// tracked tells whether the packet has a connection tracking entry.
func (p *Packet) tracked() bool { return p.State != StateInvalid && p.State != StateUntracked }

func (m *ConnMarkMatch) option(o *option) bool {
	if o.name != "--mark" {
		return false
	}
	m.Value, m.Mask = o.masked()
	m.Not = o.not
	return true
}

// listConnmark reads "connmark match [!] 0x80/0x80".
func listConnmark(l *listing) Match {
	if !l.word("connmark", "match") {
		return nil
	}
	m := new(ConnMarkMatch)
	var ok bool
	m.Value, m.Mask, m.Not, ok = l.mark()
	if !ok {
		return nil
	}
	return m
}
