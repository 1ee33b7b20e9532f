package netfilter

// lengthMatch is -m length: the length of the packet. Listed as "length [!]100:200".
var lengthMatch = unevaluated("length", "the length of a packet is not part of the question", func(l *listing) bool {
	_, ok := l.after("length")
	return ok
})
