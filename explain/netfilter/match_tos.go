package netfilter

// tosMatch is -m tos: the type of service. Listed as "tos match0x10/0x3f", "tos match!0x10/0x3f" or "tos match Minimize-Delay".
var tosMatch = unevaluated("tos", "the TOS of a packet is not part of the question", func(l *listing) bool {
	if !l.word("tos") {
		return false
	}
	v, ok := l.value("match")
	if ok && (v == "" || v == "!") {
		return l.next() != ""
	}
	return ok
})
