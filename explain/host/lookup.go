package host

import "net/netip"

// Known is a three-valued answer.
type Known uint8

// The values of Known.
const (
	Unknown Known = iota
	Yes
	No
)

// Finding is an answer with what it rests on.
type Finding struct {
	Is Known
	// Because says in words what the answer rests on or, for Unknown, what is missing.
	Because string
	// Assumed is true when the answer rests on an assumption (an object's word for an address) and not on
	// what the kernel said.
	Assumed bool
	Evidence
}

// Query is a packet as far as a routing lookup looks at it.
type Query struct {
	Src, Dst netip.Addr // Src invalid or unspecified: the kernel chooses it
	Mark     uint32
	// In is the incoming interface; empty for packets of the node itself. InKnown is false when the
	// packet came in on an interface that is not known.
	In      string
	InKnown bool
	// Local is true for packets that this node sends.
	Local bool
}

// Decision is where a packet goes.
type Decision struct {
	// Type is "unicast" (forward through Out), "local", "broadcast", "multicast", "blackhole", "unreachable", "prohibit",
	// "none" (no route matches), or "unknown" with the reason in Because.
	Type string
	Out  string // outgoing interface; empty when not known or none
	Via  netip.Addr
	// Src is the source address that the route prefers; invalid when it names none.
	Src     netip.Addr
	Because string
	// Outs are the interfaces of a multipath route, in its order; Out is empty when they differ.
	Outs []string
	// Martian is true when Type is "none" because the kernel refuses the packet's addresses on that path and
	// not for want of a route.
	Martian bool
	// Assumed is true when the decision rests on an assumption instead of a captured route.
	Assumed bool
	Evidence
}
