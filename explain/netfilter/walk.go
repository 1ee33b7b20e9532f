package netfilter

import (
	"net/netip"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/nft"
)

// Walker walks packets through rulesets as the kernel does. Its rulesets may be of both families and both
// backends; a walk uses those of the packet's family.
type Walker struct {
	Rulesets []*Ruleset
	// NFT are the rulesets of nftables, of all families. Tables that Rulesets hold as well, because iptables-nft keeps
	// them, count once: as those of iptables.
	NFT    []*nft.Ruleset
	Kernel *Kernel
	// MaxEndings bounds the number of distinct endings of one walk; 0 means 16384. What lies beyond the bound
	// is one ending with verdict Unknown.
	MaxEndings int
	// OnSource, when not nil, is told each source prefix that a rule tests on the way, for packets that pass the
	// rule's protocol and destination. Whoever walks one packet for a whole class of clients learns from it
	// where the class would have to be divided.
	OnSource func(netip.Prefix)
}

// Entry is where a packet enters the node's network stack.
type Entry uint8

// The entries: from an interface (a pod on this node or the outside), or from a process of the node itself.
const (
	FromInterface Entry = iota
	FromNode
)

// Verdict is how a walk ends.
type Verdict uint8

// The verdicts.
const (
	// Delivered: to a local socket (the packet's final Dst and DstPort say which).
	Delivered Verdict = iota
	// Forwarded: left the node through Packet.Out (for a packet of the node itself: sent).
	Forwarded
	// Dropped: by a rule or policy.
	Dropped
	// Rejected: dropped with an answer.
	Rejected
	// NoRoute: no route, or an unreachable, prohibit or blackhole one.
	NoRoute
	// Martian: refused by the source check, the loopback check, or because the node does not forward.
	Martian
	// Stolen: handed to a program (NFQUEUE) or a transparent proxy (TPROXY).
	Stolen
	// UnknownVerdict: cannot be decided from the evidence; Ending.Why says why.
	UnknownVerdict
)

// Ending is one way that a walk can end.
type Ending struct {
	Verdict Verdict
	// P is the share of packets that end so, given that the assumptions hold.
	P float64
	// Assumed are the undecided facts with the answers that this ending assumes, in the order met.
	Assumed []Assumption
	// Packet is the packet as it is at the end: translated addresses, mark, interfaces.
	Packet Packet
	// Hops are the steps that decided something, in order.
	Hops []Hop
	// Table and Chain are where the verdict fell; a policy is "FORWARD(policy)".
	Table, Chain string
	// RejectWith is the answer of a Rejected ending, as the rule prints it.
	RejectWith string
	// Why says in words what decided, for the verdicts that no rule gives.
	Why string
	// Notes are what the walk took for granted because nothing in the evidence speaks against it, e.g. a
	// route that was not captured.
	Notes []string
	// DstBy and SrcBy are the indexes into Hops of the steps that chose the destination and the source
	// (a translating rule or a tracked connection), -1 for none.
	DstBy, SrcBy int
	// Tracked is the connection tracking entry that decided, nil for a new connection.
	Tracked *host.Flow
}

// Assumption is an undecided fact with the answer assumed for it.
type Assumption struct {
	Fact   Fact
	Answer bool
}

// RecentUpdate is an address added to (or refreshed in) a list of -m recent, or removed from it; or an entry of a set or
// map of nftables, whose List then holds the key and which has no Addr.
type RecentUpdate struct {
	List    string
	Addr    netip.Addr
	Removed bool
	// Data is what a map of nftables got with the entry.
	Data string
}

// HopKind tells steps apart.
type HopKind string

// The kinds of steps.
const (
	HopRule   HopKind = "rule"
	HopPolicy HopKind = "policy"
	HopRoute  HopKind = "route"
	HopCT     HopKind = "conntrack"
)

// Hop is a step of a walk that decided something: rules that matched without any effect leave none.
type Hop struct {
	Kind    HopKind
	Hook    Hook
	Backend Backend
	Table   string
	Chain   string
	// Index is the position of the rule in its chain from 0, -1 for other hops.
	Index int
	// Rule is the rule of iptables, Native that of nftables; nil for other hops. NFT tells that the hop is one of
	// nftables, be it a rule or a policy.
	Rule   *Rule
	Native *nft.Rule
	NFT    bool
	// Target is what was done; nil for other hops than rules. NAT tells that it was done inside of the nat hook.
	Target Target
	NAT    bool
	File   string
	Line   int
	Text   string
	// P is the probability of this step alone, 1 where nothing is random; Cumulative that of the walk so far.
	P, Cumulative float64
}
