package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// server is a virtual server to be made, dest one of its real servers.
type server struct {
	proto   uint16
	at      netip.AddrPort
	mark    uint32
	six     bool
	sched   string
	flags   uint32 // persistent 1, one packet 4, of the scheduler 8 and 16
	timeout uint32
	dests   []dest
}

type dest struct {
	to     netip.AddrPort
	weight int
	method uint32 // 0 masquerading, 2 tunnel, 3 route
}

const (
	persistent = 1
	onePacket  = 4
	fallback   = 8
)

// String is the virtual server in words, for failures.
func (s server) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%d %s", s.at, s.proto, s.sched)
	if s.mark != 0 {
		fmt.Fprintf(&b, " mark %d", s.mark)
	}
	for _, d := range s.dests {
		fmt.Fprintf(&b, " [%s w%d m%d]", d.to, d.weight, d.method)
	}
	return b.String()
}

// tell sends a command of IPVS: 1 makes a virtual server, 5 a real server, 17 removes all.
func tell(command uint8, parts ...*nl.RtAttr) error {
	family, err := netlink.GenlFamilyGet("IPVS")
	if err != nil {
		return err
	}
	req := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	req.AddData(&nl.Genlmsg{Command: command, Version: 1})
	for _, p := range parts {
		req.AddData(p)
	}
	_, err = req.Execute(unix.NETLINK_GENERIC, 0)
	return err
}

func u16(n uint16) []byte  { return binary.NativeEndian.AppendUint16(nil, n) }
func u32(n uint32) []byte  { return binary.NativeEndian.AppendUint32(nil, n) }
func be16(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

func addrBytes(a netip.Addr) []byte {
	var b [16]byte
	copy(b[:], a.AsSlice())
	return b[:]
}

func (s server) named() *nl.RtAttr {
	af := uint16(unix.AF_INET)
	if s.six || s.at.Addr().Is6() {
		af = unix.AF_INET6
	}
	a := nl.NewRtAttr(1|unix.NLA_F_NESTED, nil)
	a.AddRtAttr(1, u16(af))
	if s.mark != 0 {
		a.AddRtAttr(5, u32(s.mark))
		return a
	}
	a.AddRtAttr(2, u16(s.proto))
	a.AddRtAttr(3, addrBytes(s.at.Addr()))
	a.AddRtAttr(4, be16(s.at.Port()))
	return a
}

// make makes the virtual server, by netlink: ipvsadm need not be there.
func (s server) make() error {
	mask := []byte{255, 255, 255, 255}
	if s.six || s.at.Addr().Is6() {
		mask = u32(128)
	}
	a := s.named()
	a.AddRtAttr(6, append([]byte(s.sched), 0))
	a.AddRtAttr(7, append(u32(s.flags), u32(^uint32(0))...))
	a.AddRtAttr(8, u32(s.timeout))
	a.AddRtAttr(9, mask)
	if err := tell(1, a); err != nil {
		return fmt.Errorf("make %s: %w", s, err)
	}
	for _, d := range s.dests {
		if err := s.add(d); err != nil {
			return fmt.Errorf("add %s to %s: %w", d.to, s, err)
		}
	}
	return nil
}

func (s server) add(d dest) error {
	r := nl.NewRtAttr(2|unix.NLA_F_NESTED, nil)
	r.AddRtAttr(1, addrBytes(d.to.Addr()))
	r.AddRtAttr(2, be16(d.to.Port()))
	r.AddRtAttr(3, u32(d.method))
	r.AddRtAttr(4, u32(uint32(d.weight)))
	r.AddRtAttr(5, u32(0))
	r.AddRtAttr(6, u32(0))
	af := uint16(unix.AF_INET)
	if d.to.Addr().Is6() {
		af = unix.AF_INET6
	}
	r.AddRtAttr(11, u16(af))
	return tell(5, s.named(), r)
}

// flush removes all virtual servers.
func flush() error {
	err := tell(17)
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return err
}
