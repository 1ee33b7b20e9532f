package netfilter

import "strings"

// macMatch is -m mac: the sender's link layer address. Listed as "MAC [!] 00:11:22:33:44:55".
var macMatch = unevaluated("mac", "the sender's link layer address is not part of the question", func(l *listing) bool {
	if !l.word("MAC") {
		return false
	}
	l.not()
	return strings.Count(l.next(), ":") == 5
})
