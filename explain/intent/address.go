package intent

import (
	"net/netip"
	"strings"
)

// parseAddr reads an address as kube-proxy does: IPv4 octets may have leading zeros (older API servers
// let them in), and an IPv4 address in IPv6 form is an IPv4 address. Zones are refused.
func parseAddr(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		a, err = netip.ParseAddr(withoutLeadingZeros(s))
	}
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// parsePrefix reads a range the same way, around which blanks are allowed, and clears its host bits.
func parsePrefix(s string) (netip.Prefix, bool) {
	text, bits, ok := strings.Cut(strings.TrimSpace(s), "/")
	if !ok {
		return netip.Prefix{}, false
	}
	a, ok := parseAddr(text)
	if !ok {
		return netip.Prefix{}, false
	}
	p, err := netip.ParsePrefix(a.String() + "/" + bits)
	if err != nil {
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}

// withoutLeadingZeros rewrites "010.0.00.1" to "10.0.0.1"; anything else that is no IPv4 address stays no address.
func withoutLeadingZeros(s string) string {
	if len(s) > 64 {
		return s
	}
	octets := strings.Split(s, ".")
	for i, octet := range octets {
		if octet = strings.TrimLeft(octet, "0"); octet == "" && octets[i] != "" {
			octet = "0"
		}
		octets[i] = octet
	}
	return strings.Join(octets, ".")
}
