package host

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// routing is the host's routes and rules arranged for lookups: tables by longest prefix, rules by priority.
type routing struct {
	stamp  routingStamp
	tables map[tableKey]*table
	rules  map[int][]*Rule // by family, in the order of evaluation
	custom map[int]bool    // by family: rules other than the kernel's own
	// customLocal is true when a local route of IPv4 was added by hand; captured local tables only.
	customLocal bool
	local       map[int]basis // by family: what the local table rests on
}

// routingStamp tells whether the host changed since the lookup structures were built.
type routingStamp struct {
	links, addrs, routes, rules, nodeAddrs int
	local4, local6, hasAddrs               bool
	release                                string
}

type tableKey struct {
	family int
	name   string
}

// table is a routing table: its routes by prefix, and the prefix lengths in it, longest first.
type table struct {
	bits   []int
	routes map[netip.Prefix][]*entry
}

// entry is a route in a table. Routes of the local table may be derived from other captures.
type entry struct {
	*Route
	assumed bool
	because string // for a derived entry: from what
	// open is the question that decides whether the kernel has this entry at all; empty when it has.
	open string
}

// basis is what the local table rests on.
type basis int

const (
	// partial: some local addresses are known from routes or objects; there may be others.
	partial basis = iota
	derived       // from the captured addresses, as the kernel does it
	captured
)

// fib is the routing of the host, built at the first question and again after the host has changed.
func (h *Host) fib() *routing {
	stamp := routingStamp{
		links: len(h.Links), addrs: len(h.Addrs), routes: len(h.Routes), rules: len(h.Rules), nodeAddrs: len(h.NodeAddrs),
		local4: h.HasLocalTable[4], local6: h.HasLocalTable[6], hasAddrs: h.HasAddrs, release: h.Uname.Release,
	}
	if rt := h.routing.Load(); rt != nil && rt.stamp == stamp {
		return rt
	}
	rt := &routing{
		stamp: stamp, tables: make(map[tableKey]*table), rules: make(map[int][]*Rule),
		custom: make(map[int]bool), local: make(map[int]basis),
	}
	for i := range h.Routes {
		r := &h.Routes[i]
		rt.add(&entry{Route: r})
		rt.customLocal = rt.customLocal || r.Family == 4 && r.Type == "local" && r.Proto != "kernel"
	}
	for _, family := range []int{4, 6} {
		switch {
		case h.HasLocalTable[family]:
			rt.local[family] = captured
		case h.showsAddrs(family):
			rt.local[family] = derived
			rt.deriveLocal(h, family)
		default:
			rt.guessLocal(h, family)
		}
		rt.setRules(h, family)
	}
	for _, t := range rt.tables {
		t.sort()
	}
	h.routing.Store(rt)
	return rt
}

func (rt *routing) add(e *entry) {
	k := tableKey{e.Family, e.Table}
	t := rt.tables[k]
	if t == nil {
		t = &table{routes: make(map[netip.Prefix][]*entry)}
		rt.tables[k] = t
	}
	p := e.Dst.Masked()
	if _, ok := t.routes[p]; !ok && !slices.Contains(t.bits, p.Bits()) {
		t.bits = append(t.bits, p.Bits())
	}
	t.routes[p] = append(t.routes[p], e)
}

// sort brings the prefix lengths and the routes of each prefix into the order in which the kernel tries
// them: the narrower source first (IPv6), then the lower metric.
func (t *table) sort() {
	slices.SortFunc(t.bits, func(a, b int) int { return b - a })
	for _, list := range t.routes {
		slices.SortStableFunc(list, func(a, b *entry) int {
			return cmp.Or(b.From.Bits()-a.From.Bits(), cmp.Compare(a.Metric, b.Metric))
		})
	}
}

// showsAddrs tells whether the captured addresses answer for this family. A capture that holds addresses of
// the other family alone was limited to it (`ip -4 addr`).
func (h *Host) showsAddrs(family int) bool {
	if !h.HasAddrs {
		return false
	}
	for i := range h.Addrs {
		if familyOf(h.Addrs[i].Prefix.Addr()) == family {
			return true
		}
	}
	return len(h.Addrs) == 0
}

// deriveLocal makes the local table that the kernel keeps for the captured addresses (fib_add_ifaddr,
// addrconf): each address is local, even on an interface that is down; lo makes its whole network local;
// the highest address of an IPv4 network is broadcast while the interface is up.
func (rt *routing) deriveLocal(h *Host, family int) {
	up := make(map[string]bool, len(h.Links))
	for i := range h.Links {
		up[h.Links[i].Name] = h.Links[i].Up
	}
	type network struct {
		link   string
		prefix netip.Prefix
	}
	primary := make(map[network]netip.Addr)
	for i := range h.Addrs {
		a := &h.Addrs[i]
		addr := a.Prefix.Addr()
		if familyOf(addr) != family {
			continue
		}
		// The route to a secondary address prefers the primary one of its network as source.
		src := addr
		if n := (network{a.Link, a.Prefix.Masked()}); !a.HasFlag("secondary") {
			primary[n] = addr
		} else if p, ok := primary[n]; ok {
			src = p
		}
		put := func(kind string, dst netip.Prefix, open string) {
			rt.add(&entry{
				Route:   &Route{Family: family, Table: "local", Type: kind, Dst: dst, Dev: a.Link, Src: src, Evidence: a.Evidence},
				because: addr.String() + " is an address of " + a.Link, open: open,
			})
		}
		put("local", single(addr), "")
		if family == 6 {
			if isUp, ok := up[a.Link]; a.Link != "lo" && (isUp || !ok) && addr.IsLinkLocalUnicast() {
				src = netip.Addr{}
				put("multicast", multicast6, "")
			}
			continue
		}
		if a.Link == "lo" && a.Prefix.Bits() < 32 {
			put("local", a.Prefix.Masked(), "")
		}
		if isUp, ok := up[a.Link]; ok && !isUp {
			continue
		}
		if a.Broadcast.IsValid() && a.Broadcast != limitedBroadcast {
			put("broadcast", single(a.Broadcast), "")
		}
		if a.Prefix.Bits() < 31 && !a.Peer.IsValid() {
			put("broadcast", single(lastOf(a.Prefix)), "")
			lowest := a.Prefix.Masked().Addr()
			switch h.KernelAtLeast(5, 14) {
			case No:
				put("broadcast", single(lowest), "")
			case Unknown:
				put("broadcast", single(lowest), fmt.Sprintf("the lowest address of %s is broadcast before Linux 5.14 and unicast since; the kernel release was not captured (uname -r)", a.Prefix.Masked()))
			}
		}
	}
	if !h.showsLoopback() {
		rt.addLoopback(family)
	}
}

// showsLoopback tells whether the captured addresses include those of lo, or show that it has none.
func (h *Host) showsLoopback() bool {
	for i := range h.Addrs {
		if h.Addrs[i].Link == "lo" {
			return true
		}
	}
	return h.HasLinks && h.Link("lo") != nil
}

func (rt *routing) addLoopback(family int) {
	p, src := loopback4, netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if family == 6 {
		src = netip.IPv6Loopback()
		p = single(src)
	}
	rt.add(&entry{
		Route:   &Route{Family: family, Table: "local", Type: "local", Dst: p, Dev: "lo", Src: src},
		because: p.String() + " is the loopback network",
	})
}

// guessLocal collects what is known of the local addresses where neither they nor the local table were
// captured: the kernel lets a route prefer a local address only (fib_valid_prefsrc), and objects name some.
func (rt *routing) guessLocal(h *Host, family int) {
	rt.addLoopback(family)
	seen := make(map[netip.Addr]bool)
	for i := range h.Routes {
		r := &h.Routes[i]
		if r.Family != family || !r.Src.IsValid() || seen[r.Src] || r.Src.Is4() != (family == 4) {
			continue
		}
		seen[r.Src] = true
		dev := "" // another route's preferred source may belong to any interface
		if r.Via == (netip.Addr{}) && r.Dst.Contains(r.Src) {
			dev = r.Dev
		}
		rt.add(&entry{
			Route:   &Route{Family: family, Table: "local", Type: "local", Dst: single(r.Src), Dev: dev, Src: r.Src, Evidence: r.Evidence},
			because: "a route prefers " + r.Src.String() + " as source, which the kernel allows for local addresses only",
		})
	}
	for _, a := range h.NodeAddrs {
		if a = a.Unmap().WithZone(""); familyOf(a) != family || seen[a] {
			continue
		}
		seen[a] = true
		rt.add(&entry{
			Route:   &Route{Family: family, Table: "local", Type: "local", Dst: single(a), Src: a},
			assumed: true, because: "the Node object names " + a.String() + " as an address of this node; `ip addr` was not captured",
		})
	}
}

// kernelRules are the rules that a network namespace starts with; IPv6 has no default table.
var kernelRules = map[int][]Rule{
	4: {
		{Family: 4, Priority: 0, Action: "lookup", Table: "local"},
		{Family: 4, Priority: 32766, Action: "lookup", Table: "main"},
		{Family: 4, Priority: 32767, Action: "lookup", Table: "default"},
	},
	6: {
		{Family: 6, Priority: 0, Action: "lookup", Table: "local"},
		{Family: 6, Priority: 32766, Action: "lookup", Table: "main"},
	},
}

func (rt *routing) setRules(h *Host, family int) {
	own := kernelRules[family]
	if !h.HasRules[family] {
		for i := range own {
			rt.rules[family] = append(rt.rules[family], &own[i])
		}
		return
	}
	var rules []*Rule
	for i := range h.Rules {
		if h.Rules[i].Family == family {
			rules = append(rules, &h.Rules[i])
		}
	}
	slices.SortStableFunc(rules, func(a, b *Rule) int { return cmp.Compare(a.Priority, b.Priority) })
	rt.rules[family] = rules
	rt.custom[family] = !slices.EqualFunc(rules, own, func(a *Rule, b Rule) bool {
		plain := *a
		plain.Evidence = Evidence{}
		return plain == b
	})
}

// flow is a packet as the lookup sees it (struct flowi4, flowi6).
type flow struct {
	src, dst netip.Addr // src invalid: not chosen yet
	mark     uint32
	iif      string // "lo" for packets of the node itself
	iifKnown bool
	// oif limits the routes to those through this interface, and is what `oif` rules look at; empty: any.
	oif string
	// link limits the routes to those through this interface without rules seeing it: IPv6 keeps link-local
	// and loopback destinations to the interface that the packet came in on (rt6_need_strict).
	link string
	// srcOpen: the packet has a source, but it is not known.
	srcOpen bool
}

// find is the kernel's lookup in one table: the longest prefix that has a usable route, and there the routes
// of lowest metric. IPv6 may have several alike; IPv4 uses the first.
func (h *Host) find(family int, name string, f flow) []*entry {
	t := h.fib().tables[tableKey{family, name}]
	if t == nil {
		return nil
	}
	for _, bits := range t.bits {
		p, err := f.dst.Prefix(bits)
		if err != nil {
			return nil
		}
		var best []*entry
		for _, e := range t.routes[p] {
			if len(best) > 0 && (family == 4 || e.Metric != best[0].Metric || e.From != best[0].From) {
				break
			}
			if h.usable(e, f) {
				best = append(best, e)
			}
		}
		if len(best) > 0 {
			return best
		}
	}
	return nil
}

// usable tells whether a lookup may take this route. Services set no type of service, so routes for one are
// passed over.
func (h *Host) usable(e *entry, f flow) bool {
	if e.TOS != "" && e.TOS != "0" && e.TOS != "0x0" && e.TOS != "0x00" && e.TOS != "default" {
		return false
	}
	if e.From.IsValid() && e.From.Bits() > 0 && (!f.src.IsValid() || !e.From.Contains(f.src)) {
		return false
	}
	if rejects(e.Type) || e.Type == "throw" {
		return f.link == ""
	}
	for _, hop := range e.hops() {
		if h.alive(hop, e.Family) && (f.oif == "" || hop.Dev == f.oif) && (f.link == "" || hop.Dev == f.link) {
			return true
		}
	}
	return false
}

// hops are the next hops of a route: one, unless it is a multipath route.
func (r *Route) hops() []NextHop {
	if len(r.NextHops) > 0 {
		return r.NextHops
	}
	return []NextHop{{Via: r.Via, Dev: r.Dev, Dead: r.Dead, LinkDown: r.LinkDown}}
}

// alive tells whether a next hop can be used. A lost carrier (linkdown) alone does not take it away.
func (h *Host) alive(hop NextHop, family int) bool {
	switch {
	case !hop.Dead:
		return true
	case !hop.LinkDown:
		return false
	case h.Sysctls[confName(family, hop.Dev, "ignore_routes_with_linkdown")] == "1":
		return false
	}
	return family == 6 || h.Sysctls[confName(4, "all", "ignore_routes_with_linkdown")] != "1"
}

func rejects(kind string) bool {
	return kind == "blackhole" || kind == "unreachable" || kind == "prohibit"
}

// knows tells whether the capture answers for a table: a route that is not there is then not in the kernel.
// The default table is empty on every ordinary node.
func (h *Host) knows(family int, name string) bool {
	switch {
	case h.HasAllTables[family] || name == "default":
		return true
	case name == "main":
		return h.HasRoutes[family]
	case name == "local":
		return h.fib().local[family] != partial
	}
	return h.fib().tables[tableKey{family, name}] != nil
}

var (
	loopback4        = netip.MustParsePrefix("127.0.0.0/8")
	multicast6       = netip.MustParsePrefix("ff00::/8")
	limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
)

// lastOf is the highest address of an IPv4 network.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

// says is a route with its table, for an explanation.
func (e *entry) says() string {
	if e.because != "" {
		return e.because
	}
	text := e.Text
	if text == "" || strings.HasPrefix(text, "{") {
		text = e.Route.String()
	}
	if strings.Contains(text, " table ") {
		return "route " + text
	}
	return "table " + e.Table + ": " + text
}

// String is the route as `ip route` prints it, without the attributes that decide nothing.
func (r *Route) String() string {
	words := []string{r.Dst.String()}
	if r.Dst.Bits() == 0 {
		words[0] = "default"
	} else if r.Dst.IsSingleIP() {
		words[0] = r.Dst.Addr().String()
	}
	if r.Type != "unicast" {
		words = append([]string{r.Type}, words...)
	}
	if r.Via.IsValid() {
		words = append(words, "via", r.Via.String())
	}
	if r.Dev != "" {
		words = append(words, "dev", r.Dev)
	}
	if r.Src.IsValid() {
		words = append(words, "src", r.Src.String())
	}
	if r.Metric != 0 {
		words = append(words, "metric", fmt.Sprint(r.Metric))
	}
	for _, hop := range r.NextHops {
		words = append(words, "nexthop", "via", hop.Via.String(), "dev", hop.Dev)
	}
	return strings.Join(words, " ")
}

// prefixText writes a single address without its length, as iproute2 does.
func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
