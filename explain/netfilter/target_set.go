package netfilter

var setTarget = action{
	name: "SET",
	save: func(*arena) targetReader { return new(SetAdd) },
	list: listSetTarget,
}

func (t *SetAdd) option(o *option) bool {
	switch o.name {
	case "--add-set", "--del-set":
		if t.Set != "" {
			// A rule may add to one set and delete from another; the first stands for the rule.
			o.value()
			o.dirs()
			return true
		}
		t.Delete = o.name == "--del-set"
		t.Set = o.value()
		t.Dirs = o.dirs()
	case "--exist", "--map-mark", "--map-prio", "--map-queue":
	case "--timeout":
		o.value()
	case "--map-set":
		o.value()
		o.value()
		o.fail("marks that come from a set are not evaluated")
	default:
		return false
	}
	return true
}

func (t *SetAdd) done(p *ruleReader) Target {
	if t.Set == "" {
		const why = "no set is shown"
		p.fail("-j SET", why)
		return Unreadable{Name: "SET", Why: why}
	}
	return t
}

// listSetTarget reads "add-set NAME src exist timeout 60 del-set NAME dst".
func listSetTarget(l *listing) Target {
	t := new(SetAdd)
	for {
		w := l.peek()
		switch w {
		case "add-set", "del-set":
			l.next()
			name := l.next()
			dirs, ok := parseDirs(l.next())
			if !ok {
				return nil
			}
			if t.Set == "" {
				t.Set, t.Dirs, t.Delete = name, dirs, w == "del-set"
			}
		case "exist":
			l.next()
		case "timeout":
			l.next()
			l.next()
		default:
			if t.Set == "" {
				return nil
			}
			return t
		}
	}
}
