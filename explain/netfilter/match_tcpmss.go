package netfilter

// tcpmssMatch is -m tcpmss: the segment size of a SYN. Listed as "tcpmss match [!]500:600".
var tcpmssMatch = unevaluated("tcpmss", "the segment size that a client announces is not part of the question", func(l *listing) bool {
	_, ok := l.after("tcpmss", "match")
	return ok
})
