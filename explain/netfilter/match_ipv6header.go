package netfilter

// ipv6headerMatch is -m ipv6header: which extension headers a packet has. Listed as "ipv6header flags:!0x10 soft".
var ipv6headerMatch = unevaluated("ipv6header", "the extension headers of a packet are not part of the question", func(l *listing) bool {
	if !l.word("ipv6header") {
		return false
	}
	if _, ok := l.value("flags:"); !ok {
		return false
	}
	l.word("soft")
	return true
})
