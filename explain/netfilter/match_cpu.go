package netfilter

// cpuMatch is -m cpu: the CPU that handles the packet. Listed as "cpu [!] 1".
var cpuMatch = unevaluated("cpu", "which CPU handles a packet is not part of the question", func(l *listing) bool {
	if !l.word("cpu") {
		return false
	}
	l.not()
	_, ok := smallNumber(l.next())
	return ok
})
