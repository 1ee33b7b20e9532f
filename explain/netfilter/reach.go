package netfilter

// Always tells whether a rule applies to every packet that gets to it: it tests nothing.
func (r *Rule) Always() bool {
	return r.headless() && r.everyMatch(func(m Match) bool { return testsNothing(m) })
}

// AlwaysNew tells the same of every first packet of a connection: it tests nothing, or only that.
func (r *Rule) AlwaysNew() bool {
	return r.headless() && r.everyMatch(func(m Match) bool { return testsNothing(m) || takesNew(m) })
}

// headless tells whether the rule tests neither addresses nor interfaces nor the protocol.
func (r *Rule) headless() bool {
	anyIface := func(m IfaceMatch) bool { return m.Name == "" || m.Name == "+" && !m.Not }
	return !r.Src.Prefix.IsValid() && !r.Dst.Prefix.IsValid() && !r.Proto.Set && r.Fragment == AnyFragment &&
		anyIface(r.In()) && anyIface(r.Out())
}

func (r *Rule) everyMatch(test func(Match) bool) bool {
	for _, m := range r.Matches {
		if !test(m) {
			return false
		}
	}
	return true
}

func testsNothing(m Match) bool {
	i, ok := m.(idler)
	return ok && i.idle()
}

func takesNew(m Match) bool {
	c, ok := m.(*Conntrack)
	return ok && c.States&CTNew != 0 && *c == Conntrack{States: c.States}
}

// Reached are the chains of a table that packets can get to: the built-in ones and all that rules lead to from there.
func (t *Table) Reached() map[string]bool {
	reached := make(map[string]bool)
	var next []*Chain
	for h := Prerouting; h <= Postrouting; h++ {
		if c := t.Chain(h.String()); c != nil {
			next = append(next, c)
			reached[c.Name] = true
		}
	}
	return t.reach(reached, next)
}

// ReachedFrom are the chains that rules lead to from some chains, and these themselves.
func (t *Table) ReachedFrom(from ...*Chain) map[string]bool {
	reached := make(map[string]bool)
	for _, c := range from {
		reached[c.Name] = true
	}
	return t.reach(reached, from)
}

func (t *Table) reach(reached map[string]bool, next []*Chain) map[string]bool {
	for len(next) > 0 {
		c := next[len(next)-1]
		next = next[:len(next)-1]
		for i := range c.Rules {
			j, ok := c.Rules[i].Target.(Jump)
			if !ok || reached[j.Chain] {
				continue
			}
			if to := t.Chain(j.Chain); to != nil {
				reached[j.Chain] = true
				next = append(next, to)
			}
		}
	}
	return reached
}

// Ends tells whether no packet that a rule of a built-in chain applies to gets behind it: its target ends the chain,
// or the chain that it leads to does in any case.
func (t *Table) Ends(r *Rule) bool { return t.ends(r, nil) }

func (t *Table) ends(r *Rule, stack []string) bool {
	switch to := r.Target.(type) {
	case Accept, Drop, Reject, *TProxy, *Translate:
		return true
	case Return:
		return len(stack) == 0
	case Jump:
		return t.chainEnds(to, stack)
	}
	return false
}

// chainEnds tells whether a called chain lets no new connection come back: one of its rules ends all of them, and none
// before it returns.
func (t *Table) chainEnds(to Jump, stack []string) bool {
	c := t.Chain(to.Chain)
	if c == nil {
		return false
	}
	for _, on := range stack {
		if on == to.Chain {
			return false
		}
	}
	stack = append(stack[:len(stack):len(stack)], to.Chain)
	for i := range c.Rules {
		r := &c.Rules[i]
		switch target := r.Target.(type) {
		case Return:
			return false
		case Jump:
			if target.Goto {
				return false
			}
		}
		if r.AlwaysNew() && t.ends(r, stack) {
			return true
		}
	}
	return false
}
