package collectors

import "time"

// A Notice says that somebody changed rules of the node, or may have.
type Notice struct {
	// At is when it was told. Since is when there was no such change yet, for one that was found by looking; zero for one
	// that the kernel told of.
	At, Since time.Time
	// Process and PID are who changed rules of nf_tables, as the kernel calls it; empty for what was found by looking.
	Process string
	PID     int
}

// Noticing says how changes of rules come to be known.
type Noticing struct {
	// NFT is "netlink" where the kernel tells of each change of nf_tables, "poll" where it is asked, and empty where it
	// has none. What stands beside it, tables of iptables' old interface and virtual servers, is looked at every Poll.
	NFT  string
	Poll time.Duration
}
