package netfilter

import (
	"strings"
)

// SetMatch is -m set: what the directions select from the packet is in an ipset.
type SetMatch struct {
	Set  string
	Dirs []Dir
	Not  bool
	// Extra are the options that look at an entry's counters or at "nomatch" entries, as printed.
	Extra string
}

var setMatch = extension{
	name: "set",
	save: func(a *arena) saved { return a.set.new() },
	list: listSet,
}

// Test asks the set. What looks at an entry's counters is left open where there is an entry: every packet changes them.
func (m *SetMatch) Test(k *Kernel, _ Hook, p *Packet) Answer {
	set := k.Sets[m.Set]
	if set == nil || set.Contains == nil {
		because := "set " + m.Set + " is not in the capture (ipset save): the kernel takes no rule whose set is not there, so the sets and the rules are of different moments"
		if k.Sets == nil {
			because = "no ipset was captured (ipset save)"
		}
		return m.ask(because, p).Negate(m.Not)
	}
	var a Answer
	switch {
	case m.Extra == "":
		a = set.Contains(m.Dirs, p)
	case m.Extra == returnNoMatch && set.Captured != nil:
		a = set.contains(m.Dirs, p, true)
	default:
		if a = set.Contains(m.Dirs, p); a.Truth != False || strings.Contains(m.Extra, returnNoMatch) {
			a = m.ask("the set's "+m.Extra+" is not evaluated", p)
		}
	}
	return a.Negate(m.Not)
}

const returnNoMatch = "return-nomatch"

func (m *SetMatch) ask(because string, p *Packet) Answer {
	text := m.Set + " " + dirsString(m.Dirs)
	if m.Extra != "" {
		text += " " + m.Extra
	}
	return Maybe(setFact(text, p, because))
}

func dirsString(dirs []Dir) string {
	var b strings.Builder
	for i, d := range dirs {
		if i > 0 {
			b.WriteByte(',')
		}
		if d == DirSrc {
			b.WriteString("src")
		} else {
			b.WriteString("dst")
		}
	}
	return b.String()
}

func (m *SetMatch) option(o *option) bool {
	switch o.name {
	case "--match-set", "--set":
		m.Set = o.value()
		m.Dirs = o.dirs()
		m.Not = o.not
	case "--update-counters", "--update-subcounters":
		// These only keep an entry's counters from being updated.
	case "--return-nomatch":
		m.extra(returnNoMatch)
	case "--packets-eq", "--packets-lt", "--packets-gt", "--bytes-eq", "--bytes-lt", "--bytes-gt":
		v := o.value()
		not := ""
		if o.not {
			not = "! "
		}
		m.extra(not + o.name[2:] + " " + v)
	default:
		return false
	}
	return true
}

func (m *SetMatch) extra(s string) {
	if m.Extra != "" {
		m.Extra += " "
	}
	m.Extra += s
}

// listSet reads "[!] match-set NAME src,dst [return-nomatch] [! update-counters] [[!] packets-eq N] …".
func listSet(l *listing) Match {
	not := l.not()
	name, ok := l.after("match-set")
	if !ok {
		return nil
	}
	m := l.arena.set.new()
	m.Set, m.Not = name, not
	if m.Dirs, ok = parseDirs(l.next()); !ok {
		return nil
	}
	for {
		start := l.i
		not := ""
		if l.not() {
			not = "! "
		}
		switch w := l.peek(); w {
		case "update-counters", "update-subcounters":
			l.next()
		case "return-nomatch":
			l.next()
			m.extra(w)
		case "packets-eq", "packets-lt", "packets-gt", "bytes-eq", "bytes-lt", "bytes-gt":
			v, ok := l.after(w)
			if !ok {
				return nil
			}
			m.extra(not + w + " " + v)
		default:
			l.i = start
			return m
		}
	}
}
