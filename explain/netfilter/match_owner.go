package netfilter

import "strings"

// Owner is -m owner: the process behind the socket that sent the packet.
type Owner struct {
	UID, GID       string // a name, number or range, as printed
	UIDNot, GIDNot bool
	Socket         Trait // --socket-exists
	// SupplGroups lets --gid-owner match supplementary groups too.
	SupplGroups bool
}

var ownerMatch = extension{
	name: "owner",
	save: func(*arena) saved { return new(Owner) },
	list: listOwner,
}

// Test follows owner_mt of xt_owner.c: a packet without a socket (it was forwarded, or came around over
// loopback) passes exactly if all tests are negated. Whose process sends is not part of the question.
func (m *Owner) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	if !p.Local {
		return Is((m.UID == "" || m.UIDNot) && (m.GID == "" || m.GIDNot) && m.Socket != WithTrait)
	}
	if m.Socket == WithoutTrait {
		return No
	}
	ask := func(what, id string, not bool) Answer {
		return Maybe(Fact{
			Key: "owner " + what + " " + id, Not: not,
			Yes: "the sending process has " + what + " " + id, No: "the sending process does not have " + what + " " + id,
			Because: "which process sends is not part of the question",
		})
	}
	switch {
	case m.UID != "":
		return ask("user", m.UID, m.UIDNot)
	case m.GID != "":
		return ask("group", m.GID, m.GIDNot)
	}
	return Yes
}

func (m *Owner) option(o *option) bool {
	switch o.name {
	case "--uid-owner":
		m.UID = o.value()
		m.UIDNot = o.not
	case "--gid-owner":
		m.GID = o.value()
		m.GIDNot = o.not
	case "--socket-exists":
		m.Socket = trait(o.not)
	case "--suppl-groups":
		m.SupplGroups = true
	default:
		return false
	}
	return true
}

// listOwner reads "[!] owner UID match X", "[!] owner GID match X", "[!] owner socket exists", any of them.
func listOwner(l *listing) Match {
	m := new(Owner)
	found := false
	for {
		start := l.i
		not := l.not()
		if !l.word("owner") {
			l.i = start
			break
		}
		switch what := l.next(); {
		case what == "UID" && m.UID == "" && l.word("match"):
			m.UID, m.UIDNot = l.next(), not
		case what == "GID" && m.GID == "" && l.word("match"):
			m.GID, m.GIDNot = l.next(), not
		case what == "socket" && l.word("exists"):
			m.Socket = trait(not)
		default:
			return nil
		}
		found = true
		if strings.HasPrefix(l.peek(), "incl.") && l.word("incl.", "suppl.", "groups") {
			m.SupplGroups = true
		}
	}
	if !found {
		return nil
	}
	return m
}
