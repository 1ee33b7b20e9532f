package netfilter

// quotaMatch is -m quota: bytes that are left. Listed as "quota: 1000 bytes", without the "!" of a negated one.
var quotaMatch = unevaluated("quota", "how much of a quota is left is in no capture", func(l *listing) bool {
	_, ok := l.after("quota:")
	return ok && l.word("bytes")
})
