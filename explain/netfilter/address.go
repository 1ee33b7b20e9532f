package netfilter

import (
	"net/netip"
	"strconv"
	"strings"
)

// parseAddress reads ADDRESS, ADDRESS/LENGTH or ADDRESS/MASK. A mask that is no prefix length is returned
// apart; prefix is then not valid.
func parseAddress(s string) (prefix netip.Prefix, odd MaskedAddr, ok bool) {
	slash := strings.IndexByte(s, '/')
	if slash < 0 {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, MaskedAddr{}, false
		}
		return netip.PrefixFrom(a, a.BitLen()), MaskedAddr{}, true
	}
	a, err := netip.ParseAddr(s[:slash])
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, MaskedAddr{}, false
	}
	mask := s[slash+1:]
	if bits, ok := smallNumber(mask); ok {
		if bits > a.BitLen() {
			return netip.Prefix{}, MaskedAddr{}, false
		}
		return netip.PrefixFrom(a, bits).Masked(), MaskedAddr{}, true
	}
	m, err := netip.ParseAddr(mask)
	if err != nil || m.BitLen() != a.BitLen() {
		return netip.Prefix{}, MaskedAddr{}, false
	}
	if bits, ok := prefixLength(m); ok {
		return netip.PrefixFrom(a, bits).Masked(), MaskedAddr{}, true
	}
	return netip.Prefix{}, MaskedAddr{Addr: a, Mask: m}, true
}

func smallNumber(s string) (int, bool) {
	if len(s) == 0 || len(s) > 3 {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + int(s[i]-'0')
	}
	return n, true
}

// prefixLength counts the leading ones of a mask; ok is false when ones follow a zero.
func prefixLength(mask netip.Addr) (bits int, ok bool) {
	ended := false
	for _, b := range mask.AsSlice() {
		for bit := 7; bit >= 0; bit-- {
			one := b>>bit&1 == 1
			if one && ended {
				return 0, false
			}
			if one {
				bits++
			} else {
				ended = true
			}
		}
	}
	return bits, true
}

// masked keeps the bits of a that are set in mask. Addresses of different families stay as they are.
func masked(a, mask netip.Addr) netip.Addr {
	if a.BitLen() != mask.BitLen() {
		return a
	}
	x, m := a.AsSlice(), mask.AsSlice()
	for i := range x {
		x[i] &= m[i]
	}
	out, _ := netip.AddrFromSlice(x)
	return out
}

// parsePort reads a port by number or by a name of the IANA registry.
func parsePort(s string) (uint16, bool) {
	if len(s) == 0 {
		return 0, false
	}
	if s[0] >= '0' && s[0] <= '9' {
		n, err := strconv.ParseUint(s, 0, 16)
		return uint16(n), err == nil
	}
	return servicePort(s)
}

// parseProto reads a protocol by number or by name; "all" and 0 are no test.
func parseProto(s string) (m ProtoMatch, ok bool) {
	if s != "" && s[0] >= '0' && s[0] <= '9' {
		n, ok := smallNumber(s)
		if !ok || n > 255 {
			return ProtoMatch{}, false
		}
		return ProtoMatch{Number: uint8(n), Set: n != 0}, true
	}
	n, ok := protocolNumber(s)
	return ProtoMatch{Number: n, Set: n != 0}, ok
}
