package netfilter

// eui64Match is -m eui64: the interface identifier of the source is that of the sender's link layer address. Listed as "eui64" by
// iptables-legacy; iptables-nft leaves it out.
var eui64Match = unevaluated("eui64", "the sender's link layer address is not part of the question", func(l *listing) bool {
	return l.word("eui64")
})
