package netfilter

import (
	"net/netip"
	"slices"
	"sync/atomic"
)

// Family is the address family of a ruleset or packet: 4 or 6, as in IPv4 and IPv6.
type Family uint8

// The two families. iptables and ip6tables are separate programs with separate tables.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf is the family of an address; an IPv4 address in IPv6 form counts as IPv4.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() || a.Is4In6() {
		return IPv4
	}
	return IPv6
}

// Backend tells which of the kernel's two iptables implementations holds a ruleset. Both can be
// loaded at once, and then a packet meets both (iptables 1.8 ships iptables-legacy and iptables-nft).
type Backend string

// The backends. UnknownBackend is a capture that does not say, such as a pasted `iptables -S`.
const (
	UnknownBackend Backend = ""
	Legacy         Backend = "legacy"
	NFT            Backend = "nft"
)

// Ruleset is what one capture says of one family and one backend.
type Ruleset struct {
	Family  Family
	Backend Backend
	// Version is the iptables version that printed the capture ("1.8.9"), empty when it does not say.
	Version string
	// File names the capture for evidence lines.
	File string
	// Tables in order of appearance, each at most once.
	Tables []*Table
	// Problems are the lines that could not be read, in order. A ruleset with problems is still walked:
	// the rules concerned carry an Unreadable match or target.
	Problems []Problem
	// LegacyPresent is true when the capture itself warns that the other backend has tables as well
	// ("# Warning: iptables-legacy tables present").
	LegacyPresent bool
}

// Table returns the table of that name, nil when the capture has none.
func (r *Ruleset) Table(name string) *Table {
	for _, t := range r.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Partial tells whether the capture does not vouch for every chain and rule of every table that it has.
func (r *Ruleset) Partial() bool {
	return slices.ContainsFunc(r.Tables, func(t *Table) bool { return !t.Complete })
}

// Problem is a line of a capture that could not be read.
type Problem struct {
	Line int // 1-based
	Text string
	Why  string
}

// Table is one table: filter, nat, mangle, raw or security.
type Table struct {
	Name   string
	Chains []*Chain // in order of appearance
	// Complete is true when the capture vouches for every chain and rule of the table: it came from
	// iptables-save and reached COMMIT. Where false, a chain that is not there may exist on the node.
	Complete bool
	byName   map[string]*Chain
}

// NewTable returns an empty table.
func NewTable(name string) *Table {
	return &Table{Name: name, byName: make(map[string]*Chain)}
}

// Chain returns the chain of that name, nil when the table has none.
func (t *Table) Chain(name string) *Chain { return t.byName[name] }

// AddChain returns the chain of that name, adding it when the table has none.
func (t *Table) AddChain(name string) *Chain {
	if c := t.byName[name]; c != nil {
		return c
	}
	c := &Chain{Name: name}
	t.Chains = append(t.Chains, c)
	t.byName[name] = c
	return c
}

// Chain is a list of rules.
type Chain struct {
	Name string
	// Policy is ACCEPT or DROP for a built-in chain, empty for a user-defined one and for a built-in
	// chain whose policy the capture does not show.
	Policy string
	// PolicyPackets is how many packets the policy has decided about, 0 where the capture does not count.
	PolicyPackets uint64
	// Declared is true when the capture declares the chain (":NAME" or "-N NAME" or "Chain NAME"); a
	// chain that is only appended to comes from a partial capture.
	Declared bool
	// Partial is true when the capture may lack some of the chain's rules: see MarkPartial.
	Partial bool
	Line    int // of the declaration; 0 when not declared
	Rules   []Rule

	index atomic.Pointer[chainIndex] // built at the first walk through a long chain
}

// Rule is one rule. Address, interface and protocol tests that do not appear have their zero value.
type Rule struct {
	Src, Dst AddrMatch
	Ifaces   *Ifaces // nil for a rule that tests none, as most: a node has very many rules, and each is as small as can be
	Proto    ProtoMatch
	// Fragment is -f (true) or ! -f; rare, and IPv4 only.
	Fragment FragmentMatch
	// HasCounters is false where the capture shows no Packets and Bytes.
	HasCounters bool
	// Matches are the remaining tests in the order the kernel runs them. A rule applies when all do.
	Matches []Match
	// Target is what happens then; nil for a rule without target (it only counts).
	Target Target
	// Comment is the text of the first comment match.
	Comment string
	// Text is the rule as the capture prints it, without counters.
	Text string
	Line int // 1-based line of the capture
	// Packets and Bytes are the counters.
	Packets, Bytes uint64
}

// Ifaces are the tests -i and -o of a rule.
type Ifaces struct{ In, Out IfaceMatch }

// In is the test of the interface that the packet came in by.
func (r *Rule) In() IfaceMatch {
	if r.Ifaces == nil {
		return IfaceMatch{}
	}
	return r.Ifaces.In
}

// Out is the test of the interface that the packet goes out by.
func (r *Rule) Out() IfaceMatch {
	if r.Ifaces == nil {
		return IfaceMatch{}
	}
	return r.Ifaces.Out
}

// AddrMatch is -s or -d: an address prefix, perhaps negated. A prefix that is not valid tests nothing.
// Addresses with a mask that is no prefix (10.0.0.1/255.0.0.255) become a MaskedAddr match instead.
type AddrMatch struct {
	Prefix netip.Prefix
	Not    bool
}

// IfaceMatch is -i or -o. A name that ends in "+" matches every name with that beginning, "+" alone
// every name; an empty name tests nothing.
type IfaceMatch struct {
	Name string
	Not  bool
}

// ProtoMatch is -p: an IP protocol number, perhaps negated. Set is false where the rule does not test it
// (or says "all", the same thing).
type ProtoMatch struct {
	Number uint8
	Not    bool
	Set    bool
}

// FragmentMatch is -f. Fragments after the first never carry the ports of a new connection, so a walk
// of a first packet takes -f as false.
type FragmentMatch uint8

// The values of FragmentMatch.
const (
	AnyFragment FragmentMatch = iota
	OnlyFragments
	NoFragments
)

// IP protocol numbers that rules and packets of Services use.
const (
	ProtoICMP    = 1
	ProtoTCP     = 6
	ProtoUDP     = 17
	ProtoICMPv6  = 58
	ProtoSCTP    = 132
	ProtoUDPLite = 136
	ProtoDCCP    = 33
)
