package netfilter

// hashlimitMatch is -m hashlimit: a token bucket for each address or port. Listed as "limit: up to 50/sec burst 5 mode srcip-dstport".
var hashlimitMatch = unevaluated("hashlimit", "how full a rate limit is at a given moment is in no capture", func(l *listing) bool {
	_, ok := l.after("limit:", "up", "to")
	if !ok {
		_, ok = l.after("limit:", "above")
	}
	if !ok {
		return false
	}
	for l.any("burst", "mode", "srcmask", "dstmask", "htable-size", "htable-max", "htable-gcinterval", "htable-expire", "rate-interval") {
		l.next()
	}
	l.word("rate-match")
	return true
})
