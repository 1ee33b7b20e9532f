package netfilter

var (
	notrackTarget = action{
		name: "NOTRACK", fixed: CT{NoTrack: true},
		list: func(l *listing) Target {
			_ = l.word("CT", "notrack") || l.word("NOTRACK")
			return CT{NoTrack: true}
		},
	}
	ctTarget = action{
		name: "CT",
		save: func(*arena) targetReader { return new(ctOptions) },
		list: listCT,
	}
)

// ctOptions reads CT. Helpers, events and timeouts do not decide where a packet goes.
type ctOptions struct{ CT }

func (t *ctOptions) option(o *option) bool {
	switch o.name {
	case "--notrack":
		t.NoTrack = true
	case "--zone", "--zone-orig", "--zone-reply":
		t.Zone = o.value()
	case "--helper", "--ctevents", "--expevents", "--timeout":
		o.value()
	default:
		return false
	}
	return true
}

func (t *ctOptions) done(*ruleReader) Target { return t.CT }

// listCT reads "CT notrack", "NOTRACK" and "CT helper ftp zone 5 …".
func listCT(l *listing) Target {
	if l.word("NOTRACK") {
		return CT{NoTrack: true}
	}
	if !l.word("CT") {
		return nil
	}
	var t CT
	for {
		switch {
		case l.word("notrack"):
			t.NoTrack = true
		case l.any("zone", "zone-orig", "zone-reply"):
			t.Zone = l.next()
		case l.any("helper", "ctevents", "expevents", "timeout"):
			l.next()
		default:
			return t
		}
	}
}
