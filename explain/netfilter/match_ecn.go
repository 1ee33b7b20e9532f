package netfilter

import "strings"

// ecnMatch is -m ecn: the bits of explicit congestion notification. Listed as "ECN match !ECE CWR ECT=1".
var ecnMatch = unevaluated("ecn", "the ECN bits of a packet are not part of the question", func(l *listing) bool {
	if !l.word("ECN", "match") {
		return false
	}
	for {
		w, _ := negated(l.peek())
		if w != "ECE" && w != "CWR" && !strings.HasPrefix(w, "ECT=") {
			return true
		}
		l.next()
	}
})
