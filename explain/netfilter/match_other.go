package netfilter

import (
	"strings"
)

// Other is a match that depends on something that no capture shows (how full a rate limit is, what a packet
// carries) or that is not known at all. It is kept as text, and whether it passes stays open.
type Other struct {
	// Name is the extension's, Args its options as the capture prints them.
	Name, Args string
	// Because says why it cannot be decided.
	Because string
}

// Test is undecided: two matches with the same text are the same question.
func (m *Other) Test(*Kernel, Hook, *Packet) Answer {
	text := m.Name
	if m.Args != "" {
		text += " " + m.Args
	}
	return Maybe(Fact{
		Key:     text,
		Yes:     "the packet passes " + text,
		No:      "the packet does not pass " + text,
		Because: m.Because,
	})
}

func (m *Other) option(o *option) bool {
	start := o.words.i
	skipValues(o.words)
	arg := o.name + strings.TrimRight(o.words.s[start:o.words.i], " \t")
	if o.not {
		arg = "! " + arg
	}
	if m.Args != "" {
		m.Args += " "
	}
	m.Args += arg
	return true
}

// unevaluated is the extension of a match that is kept as text. listed takes the match's words off a line of
// `iptables -L` and answers whether it stood there.
func unevaluated(name, because string, listed func(*listing) bool) extension {
	return extension{
		name: name,
		save: func(*arena) saved { return &Other{Name: name, Because: because} },
		list: func(l *listing) Match {
			start := l.i
			if !listed(l) {
				return nil
			}
			return &Other{Name: name, Args: strings.TrimSpace(l.s[start:l.i]), Because: because}
		},
	}
}

// UnreadableMatch is a test of a rule that could not be read. Whether a packet passes it stays open.
type UnreadableMatch struct {
	// Text is the test, as far as it is known, Why the reason.
	Text, Why string
	// Rule is the rule that holds it: what is unreadable in two rules need not be the same.
	Rule string
}

// Test is undecided.
func (m *UnreadableMatch) Test(*Kernel, Hook, *Packet) Answer {
	return Maybe(Fact{
		Key:     "unreadable " + m.Text + " in " + m.Rule,
		Yes:     "the packet passes the test " + m.Text + ", which cannot be read",
		No:      "the packet does not pass the test " + m.Text + ", which cannot be read",
		Because: m.Why,
	})
}

func (m *UnreadableMatch) option(o *option) bool {
	skipValues(o.words)
	return true
}
