package netfilter

import "strings"

// connlimitMatch is -m connlimit: the number of connections of a client. Listed as "#conn src/24 > 3".
var connlimitMatch = unevaluated("connlimit", "how many connections a client has is not counted", func(l *listing) bool {
	if !strings.HasPrefix(l.peek(), "#conn") {
		return false
	}
	if l.next() == "#conn" {
		l.next()
	}
	l.not()
	return l.any("<", "<=", ">", ">=", "!>") && l.next() != ""
})
