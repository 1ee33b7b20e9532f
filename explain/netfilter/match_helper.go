package netfilter

// HelperMatch is -m helper: the connection was expected by a connection tracking helper.
type HelperMatch struct {
	Name string
	Not  bool
}

var helperMatch = extension{
	name: "helper",
	save: func(*arena) saved { return new(HelperMatch) },
	list: listHelper,
}

// Test looks at the connection that opened the way for this one; only a related packet has one (xt_helper.c).
func (m *HelperMatch) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	if p.State != StateRelated {
		return No.Negate(m.Not)
	}
	return Maybe(Fact{
		Key: "helper " + m.Name, Yes: "the connection was expected by helper " + m.Name, No: "the connection was not expected by helper " + m.Name,
		Because: "which helper expected a connection is not known",
	}).Negate(m.Not)
}

func (m *HelperMatch) option(o *option) bool {
	if o.name != "--helper" {
		return false
	}
	m.Name = o.value()
	m.Not = o.not
	return true
}

// listHelper reads `helper match [!] "ftp"`.
func listHelper(l *listing) Match {
	if !l.word("helper", "match") {
		return nil
	}
	m := &HelperMatch{Not: l.not()}
	l.skip()
	start := l.i
	if !l.quoted() {
		return nil
	}
	w := words{s: l.s[start:l.i]}
	m.Name, _ = w.next()
	return m
}
