package netfilter

// cgroupMatch is -m cgroup: the control group of the sender. Listed as "cgroup [!] 1234".
var cgroupMatch = unevaluated("cgroup", "which process sends is not part of the question", func(l *listing) bool {
	if !l.word("cgroup") {
		return false
	}
	l.word("path")
	l.not()
	return l.next() != ""
})
