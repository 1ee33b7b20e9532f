package netfilter

// hlMatch is -m hl: the hop limit of an IPv6 packet. Listed as "HL match HL == 64".
var hlMatch = unevaluated("hl", "the hop limit of a packet is not part of the question", func(l *listing) bool {
	return comparison(l, "HL")
})
