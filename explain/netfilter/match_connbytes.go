package netfilter

// connbytesMatch is -m connbytes: what a connection has carried. Listed as "[!] connbytes 1:2 connbytes mode bytes connbytes direction both".
var connbytesMatch = unevaluated("connbytes", "how much a connection has carried is in no capture", func(l *listing) bool {
	l.not()
	if _, ok := l.after("connbytes"); !ok {
		return false
	}
	for l.word("connbytes", "mode") || l.word("connbytes", "direction") {
		l.next()
	}
	return true
})
