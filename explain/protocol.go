package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
)

// parseTarget reads "address:port/protocol", the address of IPv6 in brackets.
func parseTarget(s string) (netip.AddrPort, uint8, error) {
	text, protocol, ok := strings.Cut(s, "/")
	if !ok {
		protocol = "tcp"
	}
	number := dataplane.ProtocolNumber(protocol)
	if number == 0 {
		return netip.AddrPort{}, 0, fmt.Errorf("protocol %q is not tcp, udp or sctp", protocol)
	}
	ap, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}, 0, fmt.Errorf("%q is not ADDRESS:PORT/PROTOCOL, such as 10.96.0.10:53/udp or [fd00::10]:53/udp", s)
	}
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port()), number, nil
}

// parseClient reads "address" or "address:port"; an IPv6 address may go without brackets when it has no port.
func parseClient(s string) (netip.Addr, uint16, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return a.Unmap(), 0, nil
	}
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("%q is not ADDRESS or ADDRESS:PORT", s)
	}
	return ap.Addr().Unmap(), ap.Port(), nil
}

// splitKey parts "namespace/name:port".
func splitKey(key string) (namespace, name, port string) {
	namespace, rest, _ := strings.Cut(key, "/")
	name, port, _ = strings.Cut(rest, ":")
	return namespace, name, port
}
