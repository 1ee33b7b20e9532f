package netfilter

// dscpMatch is -m dscp: the DiffServ code point. Listed as "DSCP match [!]0x10".
var dscpMatch = unevaluated("dscp", "the DSCP of a packet is not part of the question", func(l *listing) bool {
	_, ok := l.after("DSCP", "match")
	return ok
})
