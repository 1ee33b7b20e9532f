package netfilter

// action is a target extension of iptables: how its targets are written and listed.
type action struct {
	// name is the target's as in -j NAME. What is not in the index is the name of a chain.
	name string
	// fixed is the target where options cannot change it.
	fixed Target
	// save returns a reader of the target's options; nil where there are none.
	save func(*arena) targetReader
	// list reads the target's own words at the end of a line of `iptables -L`; nil when they are not
	// understood. Where it is nil too, fixed stands for all.
	list func(*listing) Target
}

// targetReader reads a target option by option from the save form and then gives the target.
type targetReader interface {
	option(o *option) bool
	done(p *ruleReader) Target
}

// actions are all targets that are known by name, sorted. It is the index of the target files.
var actions = []action{
	acceptTarget,
	passes("AUDIT"),
	passes("CHECKSUM"),
	passes("CLASSIFY"),
	opaque("CLUSTERIP", "whether this node of the cluster takes the packet depends on a hash"),
	connmarkTarget,
	passes("CONNSECMARK"),
	ctTarget,
	dnatTarget,
	opaque("DNPT", "stateless translation of IPv6 prefixes is not evaluated"),
	dropTarget,
	dscpTarget,
	ecnTarget,
	hlTarget,
	opaque("HMARK", "the mark comes from a hash that is not computed"),
	passes("IDLETIMER"),
	passes("LED"),
	passes("LOG"),
	markTarget,
	masqueradeTarget,
	netmapTarget,
	passes("NFLOG"),
	nfqueueTarget,
	notrackTarget,
	queueTarget,
	passes("RATEEST"),
	redirectTarget,
	rejectTarget,
	returnTarget,
	passes("SECMARK"),
	setTarget,
	snatTarget,
	opaque("SNPT", "stateless translation of IPv6 prefixes is not evaluated"),
	opaque("SYNPROXY", "the node answers in place of the server first"),
	passes("TCPMSS"),
	passes("TCPOPTSTRIP"),
	passes("TEE"),
	tosTarget,
	tproxyTarget,
	passes("TRACE"),
	passes("TTL"),
	passes("ULOG"),
}

// longestTarget is the length of the longest name in the index.
const longestTarget = len("CONNSECMARK")

func findAction(name string) *action {
	if len(name) > longestTarget {
		return nil
	}
	return actionByName()[name]
}

// actionByName is asked for every rule.
var actionByName = byName(actions, func(a *action) string { return a.name })
