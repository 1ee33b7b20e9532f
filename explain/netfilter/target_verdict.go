package netfilter

var (
	acceptTarget = action{name: "ACCEPT", fixed: Accept{}}
	dropTarget   = action{name: "DROP", fixed: Drop{}}
	returnTarget = action{name: "RETURN", fixed: Return{}}
)

// ignored reads the options of a target that goes on, or that is not evaluated: they do not matter.
type ignored struct{ is Target }

func (t *ignored) option(o *option) bool {
	skipValues(o.words)
	return true
}

func (t *ignored) done(*ruleReader) Target { return t.is }

// passes is a target after which the packet goes on as it is, as far as any rule looks at it.
func passes(name string) action { return unchanged(name, Continue{Name: name}) }

// opaque is a target whose effect is not evaluated.
func opaque(name, why string) action { return unchanged(name, Unreadable{Name: name, Why: why}) }

func unchanged(name string, t Target) action {
	return action{
		name: name,
		save: func(*arena) targetReader { return &ignored{t} },
		list: func(l *listing) Target {
			l.i = len(l.s)
			return t
		},
	}
}
