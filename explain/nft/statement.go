package nft

import "time"

// Statement is one statement of a rule.
type Statement interface{ statement() }

// Match goes on with the rule where Left stands in the relation Op to Right.
type Match struct {
	Left Expr
	// Op is ==, !=, <, >, <= or >=. With a Right that is a set, a range or a prefix, == means "is in".
	Op    string
	Right Expr
	// AnyBit is set for a test of flags without an operator ("ct state new,established", "tcp flags syn"): it holds
	// where Left and Right have a bit in common. Op is then ==, or != for "none of them".
	AnyBit bool
}

// VerdictKind is what a verdict does.
type VerdictKind string

// The verdicts. Queue is the statement "queue".
const (
	Accept   VerdictKind = "accept"
	Drop     VerdictKind = "drop"
	Continue VerdictKind = "continue"
	Return   VerdictKind = "return"
	Jump     VerdictKind = "jump"
	Goto     VerdictKind = "goto"
	// Break is what a match does that does not hold: the next rule is next.
	Break VerdictKind = "break"
)

// Verdict ends a rule.
type Verdict struct {
	Kind VerdictKind
	// Chain is where jump and goto lead.
	Chain string
}

// VerdictMap looks a verdict up: "KEY vmap @name", "KEY vmap { … }". Without an entry for the key the rule ends, as
// for a match that does not hold.
type VerdictMap struct {
	Key Expr
	Map Expr // SetRef or SetLit
}

// Counter counts. A named one has a Name, and no numbers here.
type Counter struct {
	Name           string
	Packets, Bytes uint64
}

// Assign sets a field: "meta mark set …", "ct mark set …", "ip dscp set …".
type Assign struct {
	To    Expr // Meta, CT, Payload or ExtHdr
	Value Expr
}

// NATKind tells translations apart.
type NATKind string

// The translations.
const (
	DNAT       NATKind = "dnat"
	SNAT       NATKind = "snat"
	Masquerade NATKind = "masquerade"
	Redirect   NATKind = "redirect"
)

// NAT binds a translation and ends the nat hook for the packet.
type NAT struct {
	Kind NATKind
	// Family is that of the address, needed and set in inet tables or where a map gives it; else empty.
	Family Family
	// Addr is a Const, Range, Prefix or a MapExpr; nil for none. A MapExpr whose data has two fields (an address and a
	// port) gives both, and Port is then nil.
	Addr Expr
	// Port is a Const, Range or MapExpr; nil for none.
	Port Expr
	// Random, FullyRandom and Persistent are the flags; NetMap is set for "dnat ip prefix to …".
	Random, FullyRandom, Persistent, NetMap bool
}

// Reject drops and answers. With is what is answered as printed behind "reject with", empty for the default
// (icmpx/icmp port-unreachable).
type Reject struct{ With string }

// NoTrack takes the packet out of connection tracking.
type NoTrack struct{}

// Limit holds (goes on) up to a rate; with Over beyond it.
type Limit struct {
	Name string // of a named one; the rest is then empty
	Over bool
	// Rate per Per; Bytes is set where bytes are counted and not packets.
	Rate  uint64
	Bytes bool
	Per   time.Duration
	Burst uint64
}

// Quota holds up to an amount of bytes; with Over beyond it.
type Quota struct {
	Name        string
	Over        bool
	Bytes, Used uint64
}

// ConnLimit is "ct count": it holds up to a number of connections; with Over beyond it.
type ConnLimit struct {
	Over  bool
	Count uint32
}

// SetUpdate is "add @set { … }", "update @set { … }", "delete @set { … }" in a rule; with Map also data.
type SetUpdate struct {
	Op      string // add, update, delete, or meter ("meter NAME size N { … }")
	Set     string
	Size    int // of a meter
	Key     Expr
	Data    Expr // nil for sets
	Timeout time.Duration
	// Statements are those in the braces ("limit rate …", "counter"); a match among them decides whether the rule goes on.
	Statements []Statement
}

// Queue hands the packet to a program.
type Queue struct {
	Num    string // "0", "0-3" or an expression as printed
	Bypass bool
	Fanout bool
}

// TProxy hands the packet to a local transparent proxy.
type TProxy struct {
	Family Family
	Addr   Expr
	Port   Expr
}

// Passing is a statement (synproxy, flow add, dup, fwd, log, last and the like) that goes on as if it were not there, as
// far as where a packet goes is concerned. Text is the statement as printed.
type Passing struct {
	Name string // log, last, meta nftrace, dup, synproxy, flow add…
	Text string
}

// FlowOffload is "flow add @name": later packets of the connection may bypass the rules.
type FlowOffload struct{ Table string }

// ObjectRef uses a named object: "ct helper set …", "counter name …" is a Counter.
type ObjectRef struct {
	Kind string // "ct helper", "ct timeout", "ct expectation", "secmark", "synproxy"
	Name string
	Map  Expr // where a map chooses the object: then Name is empty
}

// XT is an extension of iptables inside of a rule (nft_compat): its kind is match, target or watcher, empty where the
// capture does not say. Name is empty where a listing shows nothing but a blank: -m comment, for one, but also others.
type XT struct {
	Kind, Name string
	Revision   int
	// Info is the extension's own data as the kernel gave it; nil where the capture does not hold it.
	Info []byte
}

// Unreadable is a statement that could not be read, or whose effect is not known.
type Unreadable struct{ Text, Why string }

func (*Match) statement()       {}
func (*Verdict) statement()     {}
func (*VerdictMap) statement()  {}
func (*Counter) statement()     {}
func (*Assign) statement()      {}
func (*NAT) statement()         {}
func (*Reject) statement()      {}
func (NoTrack) statement()      {}
func (*Limit) statement()       {}
func (*Quota) statement()       {}
func (*ConnLimit) statement()   {}
func (*SetUpdate) statement()   {}
func (*Queue) statement()       {}
func (*TProxy) statement()      {}
func (*Passing) statement()     {}
func (*FlowOffload) statement() {}
func (*ObjectRef) statement()   {}
func (*XT) statement()          {}
func (*Unreadable) statement()  {}
