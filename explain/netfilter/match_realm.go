package netfilter

// realmMatch is -m realm: the realm of the route. Listed as "[!] realm 0x5/0xff".
var realmMatch = unevaluated("realm", "the realms of routes are not evaluated", func(l *listing) bool {
	l.not()
	_, ok := l.after("realm")
	return ok
})
