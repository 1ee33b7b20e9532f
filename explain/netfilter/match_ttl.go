package netfilter

// ttlMatch is -m ttl: the time to live of an IPv4 packet. Listed as "TTL match TTL == 64".
var ttlMatch = unevaluated("ttl", "the TTL of a packet is not part of the question", func(l *listing) bool {
	return comparison(l, "TTL")
})

// comparison reads "NAME match NAME == 64".
func comparison(l *listing, name string) bool {
	return l.word(name, "match", name) && l.any("==", "!=", "<", ">") && l.next() != ""
}
