package netfilter

// stateMatch is -m state, the older spelling of -m conntrack --ctstate.
var stateMatch = extension{
	name: "state",
	save: func(a *arena) saved { return a.conntrack.new() },
	list: listState,
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
