package netfilter

// AlwaysInvalid tells whether a rule applies to every packet that connection tracking finds to fit no connection, and to
// no others.
func (r *Rule) AlwaysInvalid() bool {
	invalid := false
	only := r.headless() && r.everyMatch(func(m Match) bool {
		if takesInvalid(m) {
			invalid = true
			return true
		}
		_, counter := m.(*NFAcct)
		return counter || testsNothing(m)
	})
	return only && invalid
}

func takesInvalid(m Match) bool {
	c, ok := m.(*Conntrack)
	return ok && *c == Conntrack{States: CTInvalid}
}
