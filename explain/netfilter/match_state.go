package netfilter

var stateMatch = extension{
	name: "state",
	save: func(a *arena) saved { return (*stateOptions)(a.conntrack.new()) },
	list: listState,
}

// stateOptions reads -m state, the older spelling of -m conntrack --ctstate.
type stateOptions Conntrack

// Test is that of -m conntrack.
func (m *stateOptions) Test(k *Kernel, h Hook, p *Packet) Answer {
	return (*Conntrack)(m).Test(k, h, p)
}

func (m *stateOptions) option(o *option) bool {
	if o.name != "--state" {
		return false
	}
	v := o.value()
	var ok bool
	if m.States, ok = parseBits(v, ctState); !ok || m.States == 0 {
		o.fail("%q is not a list of states", v)
	}
	m.StatesNot = o.not
	return true
}

// listState reads "[!] state NEW,ESTABLISHED".
func listState(l *listing) Match {
	not := l.not()
	v, _ := l.after("state")
	states, ok := parseBits(v, ctState)
	if !ok || states == 0 {
		return nil
	}
	m := l.arena.conntrack.new()
	m.States, m.StatesNot = states, not
	return m
}
