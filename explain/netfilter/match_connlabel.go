package netfilter

// connlabelMatch is -m connlabel: a label of the connection. Listed as "[!] connlabel 5 [set]".
var connlabelMatch = unevaluated("connlabel", "the labels of connections are in no capture", func(l *listing) bool {
	l.not()
	if _, ok := l.after("connlabel"); !ok {
		return false
	}
	l.word("set")
	return true
})
