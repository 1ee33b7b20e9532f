// Package host is the node around the rules as data: interfaces, addresses, routes, routing rules,
// sysctls, tracked connections and listening sockets, with the parsers for every form in which they
// are captured, and the two questions that a packet walk asks of them: what kind of address is this
// (the kernel's local routing table), and where does this packet go (the policy routing lookup).
//
// The package is pure: it reads text and answers questions. It knows nothing of rules or objects.
package host

import (
	"net/netip"
	"sync/atomic"
)

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
	// AnyNodeAddrs are the addresses of all nodes, for a capture that does not tell whose it is: one of them may
	// be this node's, any other address is not.
	AnyNodeAddrs []netip.Addr
	// PodCIDRs are the pod ranges of this node that only objects give (Node.spec.podCIDRs).
	PodCIDRs []netip.Prefix

	// HasAllTables by family: every routing table was captured (`ip route show table all`), so that a table
	// without routes is empty.
	HasAllTables map[int]bool
	// SysctlEvidence says where each of Sysctls was read.
	SysctlEvidence map[string]Evidence
	// Recent are the lists of -m recent, HasRecent that they were captured.
	Recent    []RecentList
	HasRecent bool
	// Uname names the kernel; its Release is empty when it was not captured.
	Uname Uname
	// SysctlsWithin are the beginnings of names ("net.bridge") of which every sysctl that there is was captured.
	SysctlsWithin []SysctlTree
	// FlowStats are the counters of connection tracking, one for each CPU; nil when they were not captured.
	FlowStats []FlowStats
	// KernelLog are the messages of the kernel that say something about packets of Services, in the order of the log.
	KernelLog []KernelMessage
	// Offloads are what network interfaces do themselves (ethtool -k), by interface and feature.
	Offloads map[string]map[string]Offload

	// The lookup structures over the slices above, built at the first question.
	routing atomic.Pointer[routing]
	flows   atomic.Pointer[flowIndex]
}

// Link is a network interface.
type Link struct {
	Index  int
	Name   string
	Kind   string // veth, bridge, vxlan, dummy…; empty when the capture does not say
	Master string // the bridge or bond it belongs to
	MTU    int
	Up     bool
	// Peer is what stands after the "@": the lower device of a vlan, the other end of a veth in the same
	// namespace, or "if12" for one in another.
	Peer string
	// Flags are the interface flags as printed, e.g. BROADCAST, PROMISC, LOWER_UP.
	Flags []string
	// Hairpin tells whether the bridge sends a frame back out of the port that it came in on.
	Hairpin Known
	// BridgeEvidence is where Master (from brctl) or Hairpin was read, when that is another place.
	BridgeEvidence Evidence
	// Carrier is the interface whose packets carry those of a tunnel; empty for a tunnel that leaves it to the routes.
	Carrier string
	// CallsIPTables and CallsIP6Tables tell whether a bridge hands what it switches to the rules whatever the sysctls
	// net.bridge.bridge-nf-call-iptables and -ip6tables say.
	CallsIPTables, CallsIP6Tables Known
	Evidence
}

// Addr is an address of an interface.
type Addr struct {
	Link   string
	Prefix netip.Prefix // the address with its prefix length
	Scope  string       // global, link, host
	// Peer is the other end of a point-to-point address; Prefix is then the single address. Invalid for none.
	Peer netip.Prefix
	// Broadcast is the broadcast address of the interface's network; invalid when the capture shows none.
	Broadcast netip.Addr
	// Flags are the address flags as printed, e.g. secondary, deprecated, tentative, noprefixroute.
	Flags []string
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
	// LinkDown is true when Dead rests on linkdown alone: the carrier is lost, and the kernel still uses the
	// route unless ignore_routes_with_linkdown is set.
	LinkDown bool
	// From limits the route to these sources (IPv6 only); invalid for all.
	From netip.Prefix
	// Scope is global, site, link, host or nowhere; empty when the capture does not show it.
	Scope string
	// Proto is who made the route (kernel, static, dhcp…); empty for one made by hand ("boot").
	Proto string
	// TOS is the type of service that the route is for; empty for all.
	TOS string
	Evidence
}

// NextHop is one hop of a multipath route.
type NextHop struct {
	Via    netip.Addr
	Dev    string
	Weight int
	// Dead and LinkDown as for a Route.
	Dead, LinkDown bool
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
	// Action is "lookup", "blackhole", "unreachable", "prohibit", "goto" or "nop"; Table is set for lookup.
	Action string
	Table  string
	// Goto is the priority that a goto jumps to.
	Goto int
	// Suppress makes the rule pass over routes whose prefix is SuppressLength bits or shorter.
	Suppress       bool
	SuppressLength int
	// Detached is true when the interface of In or Out does not exist: the rule matches nothing.
	Detached bool
	// Other names a selector that this package does not evaluate (uidrange, ipproto, sport, dport, tos,
	// tun_id, l3mdev, suppress_ifgroup), as printed.
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
	// Zone is the conntrack zone, 0 for the usual one.
	Zone int
	// Offloaded is true for a flow in a flowtable: its packets do not pass the rules.
	Offloaded bool
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
	// V6Only says whether a socket on [::] takes IPv6 alone; Unknown where the capture does not tell.
	V6Only Known
	Evidence
}

// Evidence is where a datum was read.
type Evidence struct {
	File string
	Line int
	Text string
}
