package host

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestSendRaw is no test of its own: TestTypeOfAddresses runs it inside its namespace to send one packet to
// each address, past whatever the routes say. The header carries the address, and the packet is routed by
// another one (the socket's), so that addresses without a route are seen by OUTPUT too.
func TestSendRaw(t *testing.T) {
	list := os.Getenv("SVCNET_SEND_RAW")
	if list == "" {
		return // only TestTypeOfAddresses runs it, in a process and namespace of its own
	}
	for s := range strings.SplitSeq(list, ",") {
		a := netip.MustParseAddr(s)
		if err := sendRaw(a); err != nil {
			t.Fatalf("send to %s: %v", a, err)
		}
	}
}

func sendRaw(dst netip.Addr) error {
	if dst.Is4() {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer syscall.Close(fd)
		p := make([]byte, 28)
		p[0], p[8], p[9] = 0x45, 64, syscall.IPPROTO_UDP
		binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
		copy(p[12:], []byte{10, 0, 0, 1})
		to := dst.As4()
		copy(p[16:], to[:])
		binary.BigEndian.PutUint16(p[24:], 8)
		return ignoreDrop(syscall.Sendto(fd, p, 0, &syscall.SockaddrInet4{Addr: [4]byte{8, 8, 8, 8}}))
	}
	fd, err := syscall.Socket(syscall.AF_INET6, syscall.SOCK_RAW, syscall.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	p := make([]byte, 48)
	p[0], p[6], p[7] = 0x60, syscall.IPPROTO_UDP, 64
	binary.BigEndian.PutUint16(p[4:], 8)
	src, to := netip.MustParseAddr("fd00:1::1").As16(), dst.As16()
	copy(p[8:], src[:])
	copy(p[24:], to[:])
	binary.BigEndian.PutUint16(p[44:], 8)
	via := netip.MustParseAddr("2001:db8::1").As16()
	return ignoreDrop(syscall.Sendto(fd, p, 0, &syscall.SockaddrInet6{Addr: via}))
}

// ignoreDrop accepts the error of a packet that OUTPUT dropped, as it does here with every one.
func ignoreDrop(err error) error {
	if errors.Is(err, syscall.EPERM) {
		return nil
	}
	return err
}
