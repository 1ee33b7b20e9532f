package relay

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// sockaddr is an address of a socket in the kernel's form: struct sockaddr_in or sockaddr_in6.
type sockaddr struct {
	raw [unix.SizeofSockaddrInet6]byte
	len uint32
}

func sockaddrOf(a netip.AddrPort) sockaddr {
	var s sockaddr
	if a.Addr().Is4() {
		binary.NativeEndian.PutUint16(s.raw[0:], unix.AF_INET)
		binary.BigEndian.PutUint16(s.raw[2:], a.Port())
		x := a.Addr().As4()
		copy(s.raw[4:], x[:])
		s.len = unix.SizeofSockaddrInet4
		return s
	}
	binary.NativeEndian.PutUint16(s.raw[0:], unix.AF_INET6)
	binary.BigEndian.PutUint16(s.raw[2:], a.Port())
	x := a.Addr().As16()
	copy(s.raw[8:], x[:])
	s.len = unix.SizeofSockaddrInet6
	return s
}

func (s *sockaddr) family() int { return int(binary.NativeEndian.Uint16(s.raw[0:])) }

// addrPort is the address without zone, an IPv4 one as such. Not valid where it is of another family.
func (s *sockaddr) addrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(s.raw[2:])
	switch s.family() {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.raw[4:8])), port)
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(s.raw[8:24])).Unmap(), port)
	}
	return netip.AddrPort{}
}
