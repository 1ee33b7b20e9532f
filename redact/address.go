package redact

import (
	"net/netip"
)

// Addresses are renamed so that any two share as many leading bits afterwards as before: what was a subnet is one
// still, and a rule for a range covers the same addresses. Of each address a keyed hash of its leading bits says
// whether the next bit is turned over. The method is that of Crypto-PAn (Xu, Fan, Ammar, Moon 2002), with three
// differences, each of which keeps answers the same:
//
//   - Ranges that mean something by themselves (keptRanges) stay, and nothing else is moved into or out of those that
//     are private or reserved (ownRanges).
//   - The last eight bits stay: ranges within them ("10.0.0.16-10.0.0.31") stay ranges, a broadcast address stays one,
//     and the first addresses of a subnet stay the first.
//   - The first bit that may be turned over always is, so that no address outside of keptRanges stays what it was.

// keptBits is how many bits at the end of an address stay.
const keptBits = 8

// keptRanges hold addresses that stay what they are: unspecified, loopback, link-local, multicast, reserved. Masks as
// 255.255.0.0 are among them.
var keptRanges = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("ff00::/8"),
}

// ownRanges are those whose addresses stay among themselves: private and shared addresses (RFC 1918, RFC 6598,
// RFC 4193), global IPv6, and those for benchmarks and documentation (RFC 2544, RFC 3849). The last is what svcnet
// itself takes for a client outside of the cluster.
var ownRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	benchmarks,
	netip.MustParsePrefix("fc00::/8"),
	netip.MustParsePrefix("fd00::/8"),
	netip.MustParsePrefix("2000::/3"),
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2001:db8:ffff::/64"),
	nat64, sixToFour, // renamed by the IPv4 address within
}

var benchmarks = netip.MustParsePrefix("198.18.0.0/15")

// documentation are the ranges of RFC 5737, from which svcnet picks a client outside of the cluster: nothing is
// renamed into them. Addresses of the input that lie in them become some of benchmarks.
var documentation = []netip.Prefix{
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
}

var (
	linkLocal = netip.MustParsePrefix("fe80::/64")
	// compatible is the old form of IPv4 in IPv6, which a tunnel device still has.
	compatible = netip.MustParsePrefix("::/96")
	mapped     = netip.MustParsePrefix("::ffff:0:0/96") // IPv4 in IPv6 (RFC 4291)
	nat64      = netip.MustParsePrefix("64:ff9b::/96")  // RFC 6052
	sixToFour  = netip.MustParsePrefix("2002::/16")     // RFC 3056
)

// Address is the new address of a.
func (r *renaming) address(a netip.Addr) netip.Addr {
	if zone := a.Zone(); zone != "" {
		return r.address(a.WithZone("")).WithZone(r.word(zone, grammar))
	}
	if out, ok := r.addresses[a]; ok {
		return out
	}
	out := r.newAddress(a)
	r.addresses[a] = out
	return out
}

func (r *renaming) newAddress(a netip.Addr) netip.Addr {
	b := a.As16()
	switch {
	case a.Is4():
		for i, p := range documentation {
			if p.Contains(a) {
				return r.documented(i, a)
			}
		}
	case mapped.Contains(a), nat64.Contains(a), compatible.Contains(a) && b[12] != 0:
		v4 := r.address(netip.AddrFrom4([4]byte(b[12:]))).As4()
		copy(b[12:], v4[:])
		return netip.AddrFrom16(b)
	case sixToFour.Contains(a):
		v4 := r.address(netip.AddrFrom4([4]byte(b[2:6]))).As4()
		copy(b[2:], v4[:])
		return netip.AddrFrom16(b)
	case linkLocal.Contains(a):
		return r.linkLocal(b)
	case b[0] == 0xff && b[11] == 1 && b[12] == 0xff: // a solicited node: the end of its address (RFC 4291)
		h := r.hash("solicited", string(b[13:]))
		b[13], b[14] = h[0], h[1]
		return netip.AddrFrom16(b)
	}
	return r.turned(a)
}

// documented moves a documentation address among those for benchmarks.
func (r *renaming) documented(i int, a netip.Addr) netip.Addr {
	h := r.hash("documentation", "")
	n := (int(h[0])<<8 + int(h[1]) + i*171) % 512
	b := benchmarks.Addr().As4()
	b[1] += byte(n >> 8)
	b[2] = byte(n)
	b[3] = a.As4()[3]
	return netip.AddrFrom4(b)
}

// linkLocal renames the interface of a link-local address: one that was made of a hardware address is made of the new
// one. Those that people give ("fe80::1") stay.
func (r *renaming) linkLocal(b [16]byte) netip.Addr {
	iid := b[8:]
	switch {
	case [7]byte(iid[:7]) == [7]byte{}:
	case iid[3] == 0xff && iid[4] == 0xfe:
		mac := r.hardware([6]byte{iid[0] ^ 2, iid[1], iid[2], iid[5], iid[6], iid[7]})
		copy(iid, []byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
	default:
		h := r.hash("interface", string(iid))
		copy(iid, h[:7])
	}
	return netip.AddrFrom16(b)
}

// turned turns bits of the address over.
func (r *renaming) turned(a netip.Addr) netip.Addr {
	b := a.AsSlice()
	out := a.AsSlice()
	first := true
	for i := range len(b) - keptBits/8 {
		// One hash of what stands before a byte has a bit for each of the 255 places in it.
		h := r.hash("address", string(rune(len(b)))+string(b[:i]))
		at := 1
		for j := range 8 {
			bit := b[i] >> (7 - j) & 1
			if mayTurn(a, i*8+j) {
				if first || h[at/8]>>(at%8)&1 == 1 {
					out[i] ^= 1 << (7 - j)
				}
				first = false
			}
			at = at<<1 | int(bit)
		}
	}
	turned, _ := netip.AddrFromSlice(out)
	return turned
}

// mayTurn tells whether the bit of an address behind its first n bits may be turned over: what a range holds, and what
// leads to one, stays.
func mayTurn(a netip.Addr, n int) bool {
	for _, p := range keptRanges {
		if p.Addr().BitLen() == a.BitLen() && agree(p.Addr(), a, min(n, p.Bits())) {
			return false
		}
	}
	for _, ranges := range [][]netip.Prefix{ownRanges, documentation} {
		for _, p := range ranges {
			if p.Addr().BitLen() == a.BitLen() && n < p.Bits() && agree(p.Addr(), a, n) {
				return false
			}
		}
	}
	return !linkLocalPath(a, n)
}

func linkLocalPath(a netip.Addr, n int) bool {
	return a.Is6() && n < linkLocal.Bits() && agree(linkLocal.Addr(), a, n)
}

// agree tells whether two addresses of a family share their first n bits.
func agree(a, b netip.Addr, n int) bool {
	return netip.PrefixFrom(a, n).Contains(b)
}

// prefix is the new prefix of p. Its address keeps bits beyond the prefix where it has any.
func (r *renaming) prefix(p netip.Prefix) netip.Prefix {
	a := r.address(p.Addr())
	out := netip.PrefixFrom(a, p.Bits())
	if p == p.Masked() {
		return out.Masked()
	}
	return out
}

// known are hardware addresses that say nothing: none, all, and those that Calico gives every interface.
var known = map[[6]byte]bool{
	{}:                                   true,
	{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}: true,
	{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}: true,
}

// hardware is the new hardware address of one: of the local kind, whoever made the device.
func (r *renaming) hardware(mac [6]byte) [6]byte {
	if known[mac] || mac[0]&1 == 1 {
		return mac
	}
	h := r.hash("hardware", string(mac[:]))
	out := [6]byte(h[:6])
	out[0] = out[0]&^1 | 2
	return out
}
