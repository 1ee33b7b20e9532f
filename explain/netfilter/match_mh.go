package netfilter

// mhMatch is -m mh: the type of a Mobile IPv6 message. Listed as "mh 1:3".
var mhMatch = unevaluated("mh", "the type of a Mobile IPv6 message is not part of the question", func(l *listing) bool {
	return l.rule.Proto.Number == 135 && l.word("mh") && l.next() != ""
})
