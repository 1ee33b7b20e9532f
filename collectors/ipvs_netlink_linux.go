package collectors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Virtual servers are asked for with IPVS's own messages of generic netlink. The package github.com/moby/ipvs would ask
// them too, but it runs modprobe first, which may load more than what is there already (modprobe.d has softdeps and
// install lines), and it does not notice a table that changes while it reads.

// openGeneric opens a connection to generic netlink, which every kernel has built in. Its messages have the shape of
// nfnetlink's: a header of four bytes behind netlink's own (struct genlmsghdr: the command, a version, nothing).
func openGeneric() (*nfnetlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: netlinkWait})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return &nfnetlink{fd: fd, buf: make([]byte, 1<<17)}, nil
}

// askGeneric asks a family for a list.
func (c *nfnetlink) askGeneric(family uint16, command byte, attrs []byte, each func(attrs []byte)) error {
	return c.ask(int(family>>8), int(family&0xff), command, true, attrs, func(_ byte, attrs []byte) { each(attrs) })
}

// genericFamily is the number of a family. All families are listed and the one is looked for among them: asked by its
// name the kernel would load a module for one that it lacks (ctrl_getfamily). The error is fs.ErrNotExist then.
func (c *nfnetlink) genericFamily(name string) (uint16, error) {
	var found uint16
	err := c.askGeneric(unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, nil, func(attrs []byte) {
		var id uint16
		is := false
		for kind, v := range rtAttributes(attrs) {
			switch kind {
			case unix.CTRL_ATTR_FAMILY_ID:
				id = rtU16(v)
			case unix.CTRL_ATTR_FAMILY_NAME:
				is = cString(v) == name
			}
		}
		if is {
			found = id
		}
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("list the families of generic netlink: %w", err)
	case found == 0:
		return 0, fmt.Errorf("generic netlink has no family %s: %w", name, fs.ErrNotExist)
	}
	return found, nil
}

// Numbers of IPVS's messages (include/uapi/linux/ip_vs.h), which no package of the Go project names.
const (
	ipvsCmdGetService  = 4
	ipvsCmdGetDest     = 8
	ipvsCmdAttrService = 1
	ipvsCmdAttrDest    = 2

	ipvsSvcAF       = 1
	ipvsSvcProtocol = 2
	ipvsSvcAddr     = 3
	ipvsSvcPort     = 4
	ipvsSvcFWMark   = 5
	ipvsSvcSched    = 6
	ipvsSvcFlags    = 7
	ipvsSvcTimeout  = 8
	ipvsSvcNetmask  = 9
	ipvsSvcStats    = 10
	ipvsSvcPE       = 11
	ipvsSvcStats64  = 12

	ipvsDestAddr     = 1
	ipvsDestPort     = 2
	ipvsDestMethod   = 3
	ipvsDestWeight   = 4
	ipvsDestUpper    = 5
	ipvsDestLower    = 6
	ipvsDestActive   = 7
	ipvsDestInact    = 8
	ipvsDestStats    = 10
	ipvsDestAF       = 11
	ipvsDestStats64  = 12
	ipvsDestTunType  = 13
	ipvsDestTunPort  = 14
	ipvsDestTunFlags = 15

	// IPVS_STATS_ATTR_*, the same in both kinds of counters.
	ipvsStatsConns    = 1
	ipvsStatsInPkts   = 2
	ipvsStatsOutPkts  = 3
	ipvsStatsInBytes  = 4
	ipvsStatsOutBytes = 5

	ipvsPersistent = 1 << 0
	ipvsOnePacket  = 1 << 2
	ipvsSched1     = 1 << 3 // and two more

	ipvsMethodMask   = 7
	ipvsMethodLocal  = 1
	ipvsMethodTunnel = 2
	ipvsMethodRoute  = 3

	ipvsTunCsum    = 1 << 0
	ipvsTunRemCsum = 1 << 1
)

// virtualServer is a virtual server as the kernel tells it.
type virtualServer struct {
	af, proto, port uint16
	addr            netip.Addr
	mark            uint32
	sched, pe       string
	flags, timeout  uint32
	mask            int
	stats           serverStats
	reals           []realServer
}

type realServer struct {
	addr                  netip.Addr
	port                  uint16
	method, weight        uint32
	upper, lower          uint32
	active, inactive      uint32
	tunType               uint8
	tunPort, tunFlags, af uint16
	stats                 serverStats
}

// serverStats are what a virtual server or a real server has counted.
type serverStats struct {
	conns, inPkts, outPkts, inBytes, outBytes uint64
	// whole tells that they are of 64 bits. Kernels before 4.1 give the others alone.
	whole bool
}

// take takes counters from a message, which may have them twice. In those of 32 bits connections and packets begin again
// from zero behind the last number.
func (s *serverStats) take(b []byte, whole bool) {
	if s.whole && !whole {
		return
	}
	*s = serverStats{whole: whole}
	for kind, v := range rtAttributes(b) {
		n := uint64(rtU32(v))
		if len(v) >= 8 {
			n = binary.NativeEndian.Uint64(v)
		}
		switch kind {
		case ipvsStatsConns:
			s.conns = n
		case ipvsStatsInPkts:
			s.inPkts = n
		case ipvsStatsOutPkts:
			s.outPkts = n
		case ipvsStatsInBytes:
			s.inBytes = n
		case ipvsStatsOutBytes:
			s.outBytes = n
		}
	}
}

// virtualServers asks for all virtual servers and their real servers: one list, and one for each.
func (c *nfnetlink) virtualServers(family uint16) ([]virtualServer, error) {
	var out []virtualServer
	interrupted := false
	ask := func(command byte, attrs []byte, each func(attrs []byte)) error {
		err := c.askGeneric(family, command, attrs, each)
		if errors.Is(err, errInterrupted) {
			interrupted, err = true, nil
		}
		return err
	}
	err := ask(ipvsCmdGetService, nil, func(attrs []byte) {
		for kind, v := range rtAttributes(attrs) {
			if kind == ipvsCmdAttrService {
				out = append(out, virtualServerOf(v))
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list virtual servers: %w", err)
	}
	for i := range out {
		s := &out[i]
		err := ask(ipvsCmdGetDest, s.named(), func(attrs []byte) {
			for kind, v := range rtAttributes(attrs) {
				if kind == ipvsCmdAttrDest {
					s.reals = append(s.reals, realServerOf(v, s.af))
				}
			}
		})
		if err != nil {
			return out, fmt.Errorf("list real servers: %w", err)
		}
	}
	if interrupted {
		return out, errInterrupted
	}
	return out, nil
}

// named is the virtual server as a request names it.
func (s *virtualServer) named() []byte {
	in := attribute(nil, ipvsSvcAF, native16(s.af)...)
	if s.mark != 0 {
		in = attribute(in, ipvsSvcFWMark, binary.NativeEndian.AppendUint32(nil, s.mark)...)
	} else {
		var addr [16]byte
		copy(addr[:], s.addr.AsSlice())
		in = attribute(in, ipvsSvcProtocol, native16(s.proto)...)
		in = attribute(in, ipvsSvcAddr, addr[:]...)
		in = attribute(in, ipvsSvcPort, binary.BigEndian.AppendUint16(nil, s.port)...)
	}
	return attribute(nil, ipvsCmdAttrService|unix.NLA_F_NESTED, in...)
}

func native16(n uint16) []byte { return binary.NativeEndian.AppendUint16(nil, n) }

func virtualServerOf(b []byte) virtualServer {
	var s virtualServer
	var addr, mask []byte
	for kind, v := range rtAttributes(b) {
		switch kind {
		case ipvsSvcAF:
			s.af = rtU16(v)
		case ipvsSvcProtocol:
			s.proto = rtU16(v)
		case ipvsSvcAddr:
			addr = v
		case ipvsSvcPort:
			s.port = uint16(ctPort(v))
		case ipvsSvcFWMark:
			s.mark = rtU32(v)
		case ipvsSvcSched:
			s.sched = cString(v)
		case ipvsSvcFlags:
			s.flags = rtU32(v)
		case ipvsSvcTimeout:
			s.timeout = rtU32(v)
		case ipvsSvcNetmask:
			mask = v
		case ipvsSvcPE:
			s.pe = cString(v)
		case ipvsSvcStats, ipvsSvcStats64:
			s.stats.take(v, kind == ipvsSvcStats64)
		}
	}
	s.addr = addrOf(s.af, addr)
	switch {
	case s.af == unix.AF_INET6:
		s.mask = int(rtU32(mask)) // a length, in the machine's own order
	case len(mask) >= 4:
		for m := ctU32(mask); m != 0; m <<= 1 {
			s.mask++
		}
	}
	return s
}

func realServerOf(b []byte, af uint16) realServer {
	r := realServer{af: af}
	var addr []byte
	for kind, v := range rtAttributes(b) {
		switch kind {
		case ipvsDestAddr:
			addr = v
		case ipvsDestAF:
			r.af = rtU16(v)
		case ipvsDestPort:
			r.port = uint16(ctPort(v))
		case ipvsDestMethod:
			r.method = rtU32(v)
		case ipvsDestWeight:
			r.weight = rtU32(v)
		case ipvsDestUpper:
			r.upper = rtU32(v)
		case ipvsDestLower:
			r.lower = rtU32(v)
		case ipvsDestActive:
			r.active = rtU32(v)
		case ipvsDestInact:
			r.inactive = rtU32(v)
		case ipvsDestTunType:
			r.tunType = rtU8(v)
		case ipvsDestTunPort:
			r.tunPort = uint16(ctPort(v))
		case ipvsDestTunFlags:
			r.tunFlags = rtU16(v)
		case ipvsDestStats, ipvsDestStats64:
			r.stats.take(v, kind == ipvsDestStats64)
		}
	}
	r.addr = addrOf(r.af, addr)
	return r
}

// addrOf is an address of a union of IPv4 and IPv6.
func addrOf(af uint16, b []byte) netip.Addr {
	size := 4
	if af == unix.AF_INET6 {
		size = 16
	}
	if len(b) < size {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(b[:size])
	return a
}
