package netfilter

import "strings"

// policyMatch is -m policy: the IPsec policy of the packet. Listed as "policy match dir in pol none".
var policyMatch = unevaluated("policy", "IPsec policies are not captured", func(l *listing) bool {
	if !l.word("policy", "match", "dir") {
		return false
	}
	l.next()
	for {
		start := l.i
		l.not()
		switch {
		case l.word("strict"), strings.HasPrefix(l.peek(), "[") && l.next() != "":
		case l.any("pol", "reqid", "spi", "proto", "mode", "tunnel-src", "tunnel-dst"):
			l.next()
		default:
			l.i = start
			return true
		}
	}
})
