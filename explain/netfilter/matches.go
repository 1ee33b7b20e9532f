package netfilter

// extension is a match extension of iptables: how its matches are written and listed. Each stands in a file of
// its own.
type extension struct {
	// name is the extension's name as in -m NAME.
	name string
	// save returns an empty match, to be filled from the options of the save form.
	save func(*arena) saved
	// list reads the match off a line of `iptables -L`, where it stands next; nil when something else does.
	list func(*listing) Match
}

// extensions are all matches that are known by name, sorted. It is the index of the match files: another match
// is one file and one line here.
var extensions = []extension{
	addrtypeMatch,
	ahMatch,
	bpfMatch,
	cgroupMatch,
	clusterMatch,
	commentMatch,
	connbytesMatch,
	connlabelMatch,
	connlimitMatch,
	connmarkMatch,
	conntrackMatch,
	cpuMatch,
	dccpMatch,
	devgroupMatch,
	dscpMatch,
	dstMatch,
	ecnMatch,
	espMatch,
	eui64Match,
	fragMatch,
	geoipMatch,
	hashlimitMatch,
	hbhMatch,
	helperMatch,
	hlMatch,
	icmpMatch,
	icmp6Match,
	iprangeMatch,
	ipv6headerMatch,
	ipvsMatch,
	lengthMatch,
	limitMatch,
	macMatch,
	markMatch,
	mhMatch,
	multiportMatch,
	nfacctMatch,
	osfMatch,
	ownerMatch,
	physdevMatch,
	pkttypeMatch,
	policyMatch,
	quotaMatch,
	rateestMatch,
	realmMatch,
	recentMatch,
	rpfilterMatch,
	rtMatch,
	sctpMatch,
	setMatch,
	socketMatch,
	srhMatch,
	stateMatch,
	statisticMatch,
	stringMatch,
	tcpMatch,
	tcpmssMatch,
	timeMatch,
	tosMatch,
	ttlMatch,
	u32Match,
	udpMatch,
	udpliteMatch,
}

// newMatch returns an empty match of the named extension. One that is not known is kept as text and leaves
// the rule undecided.
func newMatch(a *arena, name string) saved {
	e := extensionByName()[name]
	if e == nil {
		return &Other{Name: name, Because: "match " + name + " is not evaluated"}
	}
	return e.save(a)
}

// extensionByName is asked twice for every rule.
var extensionByName = byName(extensions, func(e *extension) string { return e.name })
