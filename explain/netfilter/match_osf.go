package netfilter

// osfMatch is -m osf: the client's operating system. Listed as "OS fingerprint match [!] Linux".
var osfMatch = unevaluated("osf", "the operating system of a client is not part of the question", func(l *listing) bool {
	if !l.word("OS", "fingerprint", "match") {
		return false
	}
	l.not()
	return l.next() != ""
})
