package netfilter

// Mark is -m mark: (packet mark & Mask) == Value.
type Mark struct {
	Value, Mask uint32
	Not         bool
}

var markMatch = extension{
	name: "mark",
	save: func(a *arena) saved { return a.mark.new() },
	list: listMark,
}

// Test compares the packet's mark.
func (m *Mark) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	return Is((p.Mark&m.Mask == m.Value) != m.Not)
}

func (m *Mark) option(o *option) bool {
	if o.name != "--mark" {
		return false
	}
	m.Value, m.Mask = o.masked()
	m.Not = o.not
	return true
}

// listMark reads "mark match [!] 0x4000/0x4000"; iptables before 1.4 wrote "MARK match".
func listMark(l *listing) Match {
	if !l.word("mark", "match") && !l.word("MARK", "match") {
		return nil
	}
	m := l.arena.mark.new()
	var ok bool
	m.Value, m.Mask, m.Not, ok = l.mark()
	if !ok {
		return nil
	}
	return m
}

// mark reads "[!] VALUE[/MASK]".
func (l *listing) mark() (value, mask uint32, not, ok bool) {
	not = l.not()
	value, mask, ok = parseMasked(l.next())
	return value, mask, not, ok
}
