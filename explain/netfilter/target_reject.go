package netfilter

import "strings"

var rejectTarget = action{
	name: "REJECT",
	save: func(*arena) targetReader { return new(rejectOptions) },
	list: listReject,
}

type rejectOptions struct{ with string }

func (t *rejectOptions) option(o *option) bool {
	if o.name != "--reject-with" {
		return false
	}
	t.with = o.value()
	return true
}

// done fills in what iptables takes when the rule does not say, and notes the family that the answer is of.
func (t *rejectOptions) done(p *ruleReader) Target {
	switch {
	case t.with == "" && p.v6 > p.v4:
		return Reject{With: "icmp6-port-unreachable"}
	case t.with == "":
		return Reject{With: "icmp-port-unreachable"}
	case strings.HasPrefix(t.with, "icmp-"):
		p.v4++
	case strings.HasPrefix(t.with, "icmp6-"):
		p.v6++
	}
	return Reject{With: t.with}
}

// listReject reads "reject-with icmp-port-unreachable".
func listReject(l *listing) Target {
	with, ok := l.after("reject-with")
	if !ok {
		return nil
	}
	return Reject{With: with}
}
