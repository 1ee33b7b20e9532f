package netfilter

import "net/netip"

// Packet is the first packet of a connection at one moment of its walk (or, for a reply walk, the first
// answer). It is a value: the walk copies it when a decision splits.
type Packet struct {
	Family   Family
	Src, Dst netip.Addr
	Proto    uint8
	// SrcPort and DstPort; HasSrcPort is false when the client's port is not known, which is usual.
	SrcPort, DstPort uint16
	HasSrcPort       bool
	// ICMPType and ICMPCode matter only for ICMP.
	ICMPType, ICMPCode uint8

	// In and Out are the interfaces as far as known at this hook.
	In, Out Iface
	// Mark is the packet mark, CTMark the connection's.
	Mark, CTMark uint32
	// State is the connection tracking state.
	State CTState
	// Confirmed is true once the packet's connection is in the table: for answers, and for a packet of the node
	// to itself that comes around through lo.
	Confirmed bool
	// Template is true for a packet that has a template of a connection, which a CT rule gave it: before connection
	// tracking. For matches and targets of iptables it is one, with a mark (CTMark).
	Template bool
	// Zone is the connection tracking zone that a CT rule chose, empty for the usual one.
	Zone string
	// DNATed and SNATed are the conntrack status bits: the connection's destination or source has been translated.
	DNATed, SNATed bool
	// OrigSrc and friends are the connection's original tuple, before any translation.
	OrigSrc, OrigDst         netip.Addr
	OrigSrcPort, OrigDstPort uint16
	// Answer is true for a packet that answers another (a SYN-ACK, an echo reply), Reply for one that travels
	// in the reply direction of its connection: an answer that connection tracking cannot relate to the packet
	// that it answers begins a connection of its own.
	Answer, Reply bool
	// Local is true for a packet that a process of this node sent: it starts in OUTPUT and has an owner.
	Local bool
	// InAssumed is true when In is only the likely interface (the one that holds the address dialled, or
	// the way back to the client). A refusal by the reverse path check is then reported as a note, not as
	// the outcome.
	InAssumed bool
	// IPVS is the packet's connection through a virtual server.
	IPVS VirtualConn
	// Recent are the additions to recent lists that rules have made on this walk, oldest first.
	Recent []RecentUpdate
}

// Iface is an interface as far as known. Known with an empty name means there is none, as for the
// incoming interface in OUTPUT.
type Iface struct {
	Name  string
	Known bool
	// Cluster narrows an interface whose name is not known: it leads to a pod, a node or the outside, and so is
	// none of the bridges behind which other programs keep their own containers and machines (PrivateBridge).
	Cluster bool
}

// NoIface is the interface of a hook that has none.
var NoIface = Iface{Known: true}

// CTState is a packet's connection tracking state (nf_conntrack, enum ip_conntrack_info).
type CTState uint8

// The states, as -m conntrack --ctstate names them.
const (
	StateNew CTState = iota
	StateEstablished
	StateRelated
	StateInvalid
	StateUntracked
)

// Truth is the answer of a test.
type Truth uint8

// The answers. Random is true with the probability that goes with it.
const (
	False Truth = iota
	True
	Random
	Undecided
)

// Answer is what a match says of a packet.
type Answer struct {
	Truth Truth
	// P is the probability of a Random answer, 0 < P < 1.
	P float64
	// Fact is the undecided question of an Undecided answer.
	Fact Fact
}

// Fact is a question that the evidence does not answer. Two tests that ask the same question have the
// same Key, and a walk that has assumed an answer keeps to it.
type Fact struct {
	// Key identifies the question, e.g. "iface-in=cni0" or "set BLOCKED dst 10.0.0.1".
	Key string
	// Not turns the test around: the match holds when the answer to Key is no.
	Not bool
	// Yes and No say in words what each answer assumes, e.g. "the packet comes in on cni0" and
	// "the packet does not come in on cni0".
	Yes, No string
	// Because says why the evidence does not decide, with what would: "no xt_recent list was collected".
	Because string
	// Assume, when not nil, narrows the packet once the answer is yes (an interface becomes known).
	Assume func(*Packet)
}

// The plain answers.
var (
	Yes = Answer{Truth: True}
	No  = Answer{Truth: False}
)

// Is turns a decided test into an answer.
func Is(b bool) Answer {
	if b {
		return Yes
	}
	return No
}

// Maybe is the answer that depends on a fact.
func Maybe(f Fact) Answer { return Answer{Truth: Undecided, Fact: f} }

// Negate turns an answer around when not is set, as "!" does in front of a match.
func (a Answer) Negate(not bool) Answer {
	if !not {
		return a
	}
	switch a.Truth {
	case False:
		return Yes
	case True:
		return No
	case Random:
		a.P = 1 - a.P
	case Undecided:
		a.Fact.Not = !a.Fact.Not
	}
	return a
}
