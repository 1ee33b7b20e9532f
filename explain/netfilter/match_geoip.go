package netfilter

// geoipMatch is -m geoip (xtables-addons): the country of an address. Listed as "-m geoip --source-country XX".
var geoipMatch = unevaluated("geoip", "addresses are not mapped to countries", func(l *listing) bool {
	if !l.word("-m", "geoip") {
		return false
	}
	l.not()
	return l.any("--source-country", "--destination-country") && l.next() != ""
})
