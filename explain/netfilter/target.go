package netfilter

import "net/netip"

// Target is what a rule does with a packet that passes all of its tests. The walk knows each type; the
// types hold only what the rule says.
type Target interface{ target() }

// The verdicts that a rule can give by itself.
type (
	// Accept ends the walk of the base chain.
	Accept struct{}
	// Drop ends the walk of the packet.
	Drop struct{}
	// Return goes back to the calling chain, in a base chain to its policy.
	Return struct{}
	// Queue hands the packet to a program (QUEUE, NFQUEUE); what it decides cannot be known from rules.
	Queue struct{ Num int }
	// Reject drops and answers. With is the answer as printed: icmp-port-unreachable, tcp-reset…
	Reject struct{ With string }
	// Jump goes on in another chain of the table; Goto is -g, which does not come back here.
	Jump struct {
		Chain string
		Goto  bool
	}
	// Continue has no effect on the walk: LOG, NFLOG, TRACE, CHECKSUM, TCPMSS, AUDIT, and the like. Name
	// is the target's.
	Continue struct{ Name string }
	// Unreadable is a target that the printing tool or this parser could not decode
	// ("DNAT [unsupported revision]" by an iptables older than the kernel's rule). Name is the target's.
	Unreadable struct{ Name, Why string }
)

// The targets that change or bind a packet.
type (
	// Translate is DNAT, SNAT, REDIRECT, MASQUERADE or NETMAP. Addresses and ports are ranges; a range
	// that is not valid keeps the packet's own value.
	Translate struct {
		Kind TranslateKind
		// Min and Max are the new addresses, both invalid when only the port changes.
		Min, Max netip.Addr
		// MinPort and MaxPort are the new ports, both 0 when the port is kept.
		MinPort, MaxPort uint16
		// BasePort is the third number of --to-destination A:min-max/base: ports are shifted instead of drawn.
		BasePort uint16
		// Random is --random, RandomFully --random-fully, Persistent --persistent.
		Random, RandomFully, Persistent bool
		// Prefix is the NETMAP range.
		Prefix netip.Prefix
	}
	// SetMark is MARK: mark = (mark &^ Mask) ^ Value, the kernel's xmark form, which covers --set-mark,
	// --and-mark, --or-mark and --xor-mark.
	SetMark struct{ Value, Mask uint32 }
	// ConnMark is CONNMARK.
	ConnMark struct {
		Op ConnMarkOp
		// Value and Mask are those of --set-xmark.
		Value, Mask uint32
		// NFMask and CTMask are those of --save-mark and --restore-mark; all ones when not given.
		NFMask, CTMask uint32
	}
	// CT is CT and NOTRACK. Zone is the text of --zone, --zone-orig or --zone-reply ("7", "mark"), empty for none:
	// an answer that is not put into the zone of its connection is no answer to it.
	CT struct {
		NoTrack bool
		Zone    string
	}
	// TProxy redirects to a local socket without translating; also sets the mark.
	TProxy struct {
		Port        uint16
		Addr        netip.Addr // invalid: the address of the incoming interface
		Value, Mask uint32
	}
	// SetAdd is SET: adds to or deletes from a set as packets pass. It changes what later packets meet.
	SetAdd struct {
		Set    string
		Delete bool
		Dirs   []Dir
	}
	// Rewrite is DSCP, TOS, ECN and HL: the traffic class (of IPv4 TOS), or with Hops the hop limit, becomes
	// (field &^ Mask) ^ Value. Nothing reads them on the way but the comparison that has a packet of the node routed
	// again. Open tells that the new value is not known. (CLASSIFY, TTL and the like rewrite what not even that reads:
	// see Continue.)
	Rewrite struct {
		Name        string
		Hops        bool
		Value, Mask uint8
		Open        bool
	}
)

// TranslateKind tells the address translations apart.
type TranslateKind uint8

// The translations. DNAT and Redirect change the destination, SNAT and Masquerade the source.
const (
	DNAT TranslateKind = iota
	Redirect
	SNAT
	Masquerade
	NetMap
)

// ConnMarkOp is what CONNMARK does.
type ConnMarkOp uint8

// The operations of CONNMARK.
const (
	ConnMarkSet ConnMarkOp = iota
	ConnMarkSave
	ConnMarkRestore
)

// Dir is a source or destination selector of a set match, "src" or "dst".
type Dir uint8

// The two directions.
const (
	DirSrc Dir = iota
	DirDst
)

func (Accept) target()     {}
func (Drop) target()       {}
func (Return) target()     {}
func (Queue) target()      {}
func (Reject) target()     {}
func (Jump) target()       {}
func (Continue) target()   {}
func (Unreadable) target() {}
func (*Translate) target() {}
func (SetMark) target()    {}
func (ConnMark) target()   {}
func (CT) target()         {}
func (*TProxy) target()    {}
func (*SetAdd) target()    {}
func (Rewrite) target()    {}
