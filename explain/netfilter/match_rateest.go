package netfilter

import "strings"

// rateestMatch is -m rateest: a rate that a RATEEST target measures.
var rateestMatch = unevaluated("rateest", "measured rates are in no capture", func(l *listing) bool {
	if !l.word("rateest", "match") {
		return false
	}
	for {
		switch w := l.peek(); {
		case w == "delta", w == "!", w == "(delta)", w == "lt", w == "gt", w == "eq":
			l.next()
		case w == "bps", w == "pps":
			l.next()
			if _, ok := smallNumber(strings.TrimRight(l.peek(), "bitpsKMGkmg")); ok {
				l.next()
			}
		default:
			return l.next() != ""
		}
	}
})
