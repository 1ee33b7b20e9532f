package host

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
)

// The address scopes of rtnetlink: the larger, the narrower.
const (
	scopeUniverse = 0
	scopeSite     = 200
	scopeLink     = 253
	scopeHost     = 254
	scopeNowhere  = 255
)

func scopeOf(s string) int {
	switch s {
	case "site":
		return scopeSite
	case "link":
		return scopeLink
	case "host":
		return scopeHost
	case "nowhere":
		return scopeNowhere
	}
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return scopeUniverse
}

// sourceOf is the address that the kernel puts into a packet of its own that has none, for a route that
// prefers none. Invalid where the addresses were not captured or none fits.
func (h *Host) sourceOf(e *entry, d Decision, dst netip.Addr) netip.Addr {
	if dst.Is6() {
		return h.source6(d.Out, dst)
	}
	return h.source4(d.Out, d.Via, scopeOf(e.Scope))
}

// source4 is inet_select_addr: the first primary address of the interface whose scope is wide enough, from
// the network of near where there is one; else such an address of any interface.
func (h *Host) source4(dev string, near netip.Addr, scope int) netip.Addr {
	localnet := scopeHost
	if h.routeLocalnet(dev).Is == Yes {
		localnet = scopeLink
	}
	var first, elsewhere netip.Addr
	for i := range h.Addrs {
		a := &h.Addrs[i]
		addr, own := a.Prefix.Addr(), scopeOf(a.Scope)
		switch {
		case !addr.Is4() || a.HasFlag("secondary"):
		case a.Link != dev:
			if !elsewhere.IsValid() && own != scopeLink && own <= scope {
				elsewhere = addr
			}
		case min(own, localnet) > scope:
		case near.Is4() && a.network().Contains(near):
			return addr
		case !first.IsValid():
			first = addr
		}
	}
	if first.IsValid() {
		return first
	}
	return elsewhere
}

// network is the network that the address makes on-link: that of the peer where it has one.
func (a *Addr) network() netip.Prefix {
	if a.Peer.IsValid() {
		return a.Peer
	}
	return a.Prefix
}

// source6 is ipv6_dev_get_saddr, the rules of RFC 6724 in the kernel's order: the address itself, scope,
// deprecated addresses last, the outgoing interface, the label, public before temporary, the longest common
// prefix; then the first one listed.
func (h *Host) source6(dev string, dst netip.Addr) netip.Addr {
	var best netip.Addr
	var bestScore []int
	for i := range h.Addrs {
		a := &h.Addrs[i]
		addr := a.Prefix.Addr()
		if addr.Is4() || a.HasFlag("dadfailed") || a.HasFlag("tentative") && !a.HasFlag("optimistic") || addr.IsMulticast() {
			continue
		}
		if a.Link != dev && (scope6(dst) <= scope6Link || dst.IsMulticast()) {
			continue
		}
		score := score6(a, dev, dst)
		if bestScore == nil || slices.Compare(score, bestScore) > 0 {
			best, bestScore = addr, score
		}
	}
	return best
}

// The scopes of IPv6 addresses as multicast addresses number them.
const (
	scope6Link   = 2
	scope6Site   = 5
	scope6Global = 14
)

func scope6(a netip.Addr) int {
	switch {
	case a.IsMulticast():
		return int(a.As16()[1] & 0xf)
	case a.IsLoopback(), a.IsLinkLocalUnicast():
		return scope6Link
	case siteLocal.Contains(a):
		return scope6Site
	}
	return scope6Global
}

func score6(a *Addr, dev string, dst netip.Addr) []int {
	addr := a.Prefix.Addr()
	yes := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	// Of scopes that reach the destination the narrowest is best, of the others the widest.
	scope := scope6(addr)
	if want := scope6(dst); scope >= want {
		scope = -scope
	} else {
		scope -= 128
	}
	common := min(commonBits(addr, dst), a.Prefix.Bits())
	return []int{
		yes(addr == dst), scope, yes(!a.HasFlag("deprecated")), yes(a.Link == dev), yes(label6(addr) == label6(dst)),
		yes(!a.HasFlag("temporary")), common,
	}
}

// commonBits is the length of the common prefix of two IPv6 addresses.
func commonBits(a, b netip.Addr) int {
	x, y := a.As16(), b.As16()
	for i := range x {
		if d := x[i] ^ y[i]; d != 0 {
			return i*8 + bits.LeadingZeros8(d)
		}
	}
	return 128
}

var siteLocal = netip.MustParsePrefix("fec0::/10")

// labels6 is the kernel's policy table (net/ipv6/addrlabel.c), narrowest prefix first.
var labels6 = []struct {
	prefix netip.Prefix
	label  int
}{
	{netip.MustParsePrefix("::1/128"), 0},
	{netip.MustParsePrefix("::ffff:0:0/96"), 4},
	{netip.MustParsePrefix("::/96"), 3},
	{netip.MustParsePrefix("2001::/32"), 6},
	{netip.MustParsePrefix("2001:10::/28"), 7},
	{netip.MustParsePrefix("3ffe::/16"), 12},
	{netip.MustParsePrefix("2002::/16"), 2},
	{netip.MustParsePrefix("fec0::/10"), 11},
	{netip.MustParsePrefix("fc00::/7"), 5},
	{netip.MustParsePrefix("::/0"), 1},
}

func label6(a netip.Addr) int {
	for _, l := range labels6 {
		if l.prefix.Contains(a) {
			return l.label
		}
	}
	return 1
}

// MasqueradeAddr is the address that masquerading puts into a packet to dst that leaves through out by way
// of the gateway via (invalid for none): for IPv4 inet_select_addr by the next hop, whatever source the
// route prefers; for IPv6 the source that the node would choose itself. Unknown where the addresses were not
// captured, No where the interface has none that fits: the packet is then dropped.
func (h *Host) MasqueradeAddr(out string, dst, via netip.Addr) (netip.Addr, Finding) {
	dst = dst.Unmap().WithZone("")
	if !dst.IsValid() || out == "" {
		return netip.Addr{}, Finding{Because: "the outgoing interface or the destination is not known"}
	}
	if family := familyOf(dst); !h.showsAddrs(family) {
		return netip.Addr{}, Finding{Because: fmt.Sprintf("the IPv%d addresses of %s were not captured (ip addr)", family, out)}
	}
	var a netip.Addr
	if dst.Is6() {
		a = h.source6(out, dst)
	} else {
		if !via.IsValid() {
			via = dst
		}
		a = h.source4(out, via, scopeUniverse)
	}
	if !a.IsValid() {
		return a, Finding{Is: No, Because: fmt.Sprintf("no address fits for packets through %s", out)}
	}
	f := Finding{Is: Yes, Because: fmt.Sprintf("%s is the address for packets through %s", a, out)}
	for i := range h.Addrs {
		if h.Addrs[i].Prefix.Addr() == a {
			f.Evidence = h.Addrs[i].Evidence
			break
		}
	}
	return a, f
}
