package lab

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// askDestination has the kernel tell with every datagram which address it came to.
func askDestination(fd int, ipv6 bool) error {
	if ipv6 {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
}

// destination takes that address out of a datagram's control messages, and makes the one that has the answer sent
// from it. Without it a pod on the host's network would answer from the address of the route, and conntrack would
// not know the answer.
func destination(control []byte) (netip.Addr, []byte) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return netip.Addr{}, nil
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			// struct in_pktinfo: interface, the local address, the address in the header.
			to := netip.AddrFrom4([4]byte(m.Data[8:12]))
			return to, unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: to.As4()})
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			to := netip.AddrFrom16([16]byte(m.Data[:16]))
			return to, unix.PktInfo6(&unix.Inet6Pktinfo{Addr: to.As16()})
		}
	}
	return netip.Addr{}, nil
}
