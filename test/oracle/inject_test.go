//go:build linux

package oracle

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// A shot is a packet with the way it enters the node.
type shot struct {
	datagram
	// entry is the port that it comes in through, -1 for a packet of the node itself.
	entry int
	// mark and uid are those of the sending socket, for a packet of the node itself.
	mark, uid uint32
	// anySource leaves the source address to the kernel (UDP of the node itself only).
	anySource bool
	// srcMAC is the source address of the frame, for one that comes in through a port.
	srcMAC [6]byte
}

func (s shot) String() string {
	from := "node"
	if s.entry >= 0 {
		from = ports[s.entry].node
	}
	return fmt.Sprintf("#%x from %s proto %d %s:%d -> %s:%d mark %#x uid %d any-source %v tos %#x ttl %d", s.id, from, s.proto, s.src, s.sport,
		s.dst, s.dport, s.mark, s.uid, s.anySource, s.tos, s.ttl)
}

// An injector sends packets into the node: as frames from outside, and from sockets of the node itself.
type injector struct {
	lab    *lab
	frames []int // an AF_PACKET socket for each port
}

func newInjector(l *lab) (*injector, error) {
	in := &injector{lab: l}
	return in, l.outside.do(func() error {
		for _, p := range ports {
			fd, err := packetSocket(p.outer, unix.SOCK_RAW, 0)
			if err != nil {
				return err
			}
			in.frames = append(in.frames, fd)
		}
		return nil
	})
}

func (in *injector) close() { closeAll(in.frames) }

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// packetSocket opens an AF_PACKET socket on an interface. protocol 0 receives nothing.
func packetSocket(dev string, kind, protocol int) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open packet socket on %s: %w", dev, err)
	}
	req, err := unix.NewIfreq(dev)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req)
	}
	if err == nil && protocol != 0 {
		// A batch of packets must fit, whatever the machine is busy with meanwhile.
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	}
	if err == nil && protocol != 0 {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swap(uint16(protocol)), Ifindex: int(req.Uint32())})
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("bind packet socket to %s: %w", dev, err)
	}
	return fd, nil
}

func swap(v uint16) uint16 { return v<<8 | v>>8 }

// send sends the shots in order. The result holds, for each shot of the node itself, the error that its send call
// returned: the kernel answers EPERM where a rule drops it and ENETUNREACH and the like where no route leads on.
func (in *injector) send(shots []shot) ([]error, error) {
	refused := make([]error, len(shots))
	err := in.lab.node.do(func() error {
		for i, s := range shots {
			if s.entry >= 0 {
				if _, err := unix.Write(in.frames[s.entry], frame(s)); err != nil {
					return fmt.Errorf("send %v: %w", s, err)
				}
				continue
			}
			var err error
			if refused[i], err = sendFromNode(s); err != nil {
				return fmt.Errorf("send %v: %w", s, err)
			}
		}
		return nil
	})
	return refused, err
}

func frame(s shot) []byte {
	b := make([]byte, 14, 128)
	copy(b, ports[s.entry].mac[:])
	copy(b[6:], s.srcMAC[:])
	kind := uint16(unix.ETH_P_IP)
	if s.family() == netfilter.IPv6 {
		kind = unix.ETH_P_IPV6
	}
	binary.BigEndian.PutUint16(b[12:], kind)
	return append(b, s.bytes()...)
}

// sendFromNode sends one packet from a socket of its own; the calling thread is in the node's namespace and is not
// used for anything else.
func sendFromNode(s shot) (refused, err error) {
	domain := unix.AF_INET
	if s.family() == netfilter.IPv6 {
		domain = unix.AF_INET6
	}
	kind, proto, packet := unix.SOCK_RAW, unix.IPPROTO_RAW, s.bytes()
	if s.anySource {
		kind, proto, packet = unix.SOCK_DGRAM, 0, s.transport()[8:]
	}
	// The owner that -m owner sees is the file system user at the time of opening.
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(s.uid), 0, 0)
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, proto)
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(s.mark)); err != nil {
		return nil, fmt.Errorf("set mark: %w", err)
	}
	bound := s.src
	if s.anySource {
		bound = netip.IPv4Unspecified()
		if s.family() == netfilter.IPv6 {
			bound = netip.IPv6Unspecified()
		}
	}
	local := s.sport
	if !s.anySource {
		local = 0
	}
	if err := unix.Bind(fd, sockaddr(bound, local)); err != nil {
		return nil, fmt.Errorf("bind to %s: %w", bound, err)
	}
	to := s.dport
	if !s.anySource {
		to = 0
	}
	return unix.Sendto(fd, packet, unix.MSG_DONTWAIT, sockaddr(s.dst, to)), nil
}

func sockaddr(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: int(port)}
	}
	return &unix.SockaddrInet6{Addr: a.As16(), Port: int(port)}
}
