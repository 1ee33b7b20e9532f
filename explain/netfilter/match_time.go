package netfilter

// timeMatch is -m time: the time of day and the date. Listed as "TIME from 08:00:00 to 17:00:00 on Mon,Tue".
var timeMatch = unevaluated("time", "rules that depend on the time of day are not evaluated", func(l *listing) bool {
	if !l.word("TIME") {
		return false
	}
	for {
		switch {
		case l.word("starting", "from"), l.word("until", "date"):
			l.next()
			l.next()
		case l.any("from", "to", "on", "until"):
			l.next()
		case l.any("UTC", "contiguous"):
		default:
			return true
		}
	}
})
