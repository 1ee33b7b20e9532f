package netfilter

// limitMatch is -m limit: a token bucket that all packets that reach the rule share. Listed as "limit: avg 3/min burst 7".
var limitMatch = unevaluated("limit", "how full a rate limit is at a given moment is in no capture", func(l *listing) bool {
	_, ok := l.after("limit:", "avg")
	if !ok {
		return false
	}
	if l.word("burst") {
		l.next()
	}
	return true
})
