package netfilter

// ipvsMatch is -m ipvs: properties of a connection that IPVS schedules. Listed as "[!] ipvs vaddr 10.0.0.1 vport 80".
var ipvsMatch = unevaluated("ipvs", "the IPVS properties of a connection are not evaluated", func(l *listing) bool {
	l.not()
	if !l.word("ipvs") && !ipvsWord(l) {
		return false
	}
	for ipvsWord(l) {
		continue
	}
	return true
})

func ipvsWord(l *listing) bool {
	start := l.i
	l.not()
	if l.any("vproto", "vaddr", "vport", "vdir", "vmethod", "vportctl") && l.next() != "" {
		return true
	}
	l.i = start
	return false
}
