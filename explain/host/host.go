// Package host is the node around the rules as data: interfaces, addresses, routes, routing rules,
// sysctls, tracked connections and listening sockets, with the parsers for every form in which they
// are captured, and the two questions that a packet walk asks of them: what kind of address is this
// (the kernel's local routing table), and where does this packet go (the policy routing lookup).
//
// The package is pure: it reads text and answers questions. It knows nothing of rules or objects.
package host

import "net/netip"

// Host is what is known of one node in one network namespace. The Has fields tell apart "the capture
// shows none" from "not captured": an empty slice answers a question only when its Has field is set.
type Host struct {
	Links  []Link
	Addrs  []Addr
	Routes []Route
	Rules  []Rule
	// Sysctls by dotted name ("net.ipv4.ip_forward"); a name that is missing was not captured.
	Sysctls map[string]string
	Flows   []Flow
	Sockets []Socket

	HasLinks, HasAddrs, HasFlows, HasSockets bool
	// HasRoutes and HasRules by family 4 and 6: HasRoutes[4] is true when the main table of IPv4 was captured.
	HasRoutes, HasRules map[int]bool
	// HasLocalTable by family: the local table itself was captured (`ip route show table local|all`).
	HasLocalTable map[int]bool
	// NodeAddrs are addresses that only objects give to this node (Node.status.addresses). They count as
	// local only as a stated assumption, where neither addresses nor the local table were captured.
	NodeAddrs []netip.Addr
	// PodCIDRs are the pod ranges of this node that only objects give (Node.spec.podCIDRs).
	PodCIDRs []netip.Prefix
}

// Link is a network interface.
type Link struct {
	Index  int
	Name   string
	Kind   string // veth, bridge, vxlan, dummy…; empty when the capture does not say
	Master string // the bridge or bond it belongs to
	MTU    int
	Up     bool
	Evidence
}

// Addr is an address of an interface.
type Addr struct {
	Link   string
	Prefix netip.Prefix // the address with its prefix length
	Scope  string       // global, link, host
	Evidence
}

// Route is one route of one table.
type Route struct {
	Family int    // 4 or 6
	Table  string // "main", "local", "default", or a number as text
	// Type is unicast, local, broadcast, multicast, anycast, blackhole, unreachable, prohibit or throw.
	Type string
	Dst  netip.Prefix // 0.0.0.0/0 or ::/0 for default
	// Via is the gateway, invalid when on-link. Dev is empty for routes without an interface.
	Via    netip.Addr
	Dev    string
	Src    netip.Addr // preferred source, invalid when none
	Metric int
	// NextHops holds the hops of a multipath route; Via and Dev are then empty.
	NextHops []NextHop
	Dead     bool // linkdown or dead
	Evidence
}

// NextHop is one hop of a multipath route.
type NextHop struct {
	Via    netip.Addr
	Dev    string
	Weight int
}

// Rule is one routing policy rule.
type Rule struct {
	Family   int
	Priority int
	Not      bool
	From, To netip.Prefix // invalid: all
	In, Out  string       // iif, oif; empty: any
	Mark     uint32
	Mask     uint32 // 0: no mark test
	// Action is "lookup", "blackhole", "unreachable", "prohibit" or "goto"; Table is set for lookup.
	Action string
	Table  string
	// Other names a selector that this package does not evaluate (uidrange, ipproto, sport, dport, tos).
	Other string
	Evidence
}

// Flow is one tracked connection.
type Flow struct {
	Proto  uint8
	Family int
	State  string // ESTABLISHED, TIME_WAIT…; empty for UDP
	// The original tuple, and the reply tuple as the tracker expects it.
	Src, Dst, ReplySrc, ReplyDst                 netip.Addr
	SrcPort, DstPort, ReplySrcPort, ReplyDstPort uint16
	Mark                                         uint32
	Unreplied, Assured                           bool
	Timeout                                      int // seconds left
	Evidence
}

// Socket is a listening (or, for UDP, unconnected) socket.
type Socket struct {
	Proto   uint8
	Addr    netip.Addr // unspecified: any address; V6Only tells whether [::] takes IPv4 too
	Port    uint16
	Device  string // bound to this interface, as in 127.0.0.53%lo
	Process string // name of the owning process, empty when not shown
	PID     int
	Evidence
}

// Evidence is where a datum was read.
type Evidence struct {
	File string
	Line int
	Text string
}
