package netfilter

// devgroupMatch is -m devgroup: the group of an interface. Listed as "src-group 0x1 [!] dst-group 0x2/0x3".
var devgroupMatch = unevaluated("devgroup", "the groups of interfaces are not captured", func(l *listing) bool {
	l.not()
	if !l.any("src-group", "dst-group") || l.next() == "" {
		return false
	}
	start := l.i
	l.not()
	if !l.word("dst-group") {
		l.i = start
		return true
	}
	return l.next() != ""
})
