package netfilter

// stringMatch is -m string: bytes somewhere in the packet. Listed as `STRING match  "GET" ALGO name bm FROM 1 TO 100 ICASE`.
var stringMatch = unevaluated("string", "what a packet carries is not part of the question", func(l *listing) bool {
	if !l.word("STRING", "match") {
		return false
	}
	l.not()
	if !l.quoted() {
		return false
	}
	if l.word("ALGO", "name") {
		l.next()
	}
	for l.any("FROM", "TO") {
		l.next()
	}
	l.word("ICASE")
	return true
})
