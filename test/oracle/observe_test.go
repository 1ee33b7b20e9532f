//go:build linux

package oracle

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// silence is how long nothing must have arrived anywhere before a batch of packets counts as through. The whole
// way of a packet runs within the send call or the next softirq; the wait covers a busy machine.
const silence = 25 * time.Millisecond

// An observation is all that was seen of one packet.
type observation struct {
	// left are the packets that came out of the node, with the interface of the node they left through.
	left []sighting
	// delivered are the packets that reached a local socket after INPUT.
	delivered []datagram
	// answers are the errors and resets that came back to the sender's side.
	answers []string
	// refused is the error of the send call, for a packet of the node itself.
	refused error
	// path are the places in the rules that the packet reached, in order.
	path []point
}

type sighting struct {
	datagram
	out string
}

func (o *observation) String() string {
	var b strings.Builder
	for _, s := range o.left {
		fmt.Fprintf(&b, "left through %s as %s:%d -> %s:%d; ", s.out, s.src, s.sport, s.dst, s.dport)
	}
	for _, d := range o.delivered {
		fmt.Fprintf(&b, "delivered as %s:%d -> %s:%d; ", d.src, d.sport, d.dst, d.dport)
	}
	if len(o.left)+len(o.delivered) == 0 {
		b.WriteString("neither left nor was delivered; ")
	}
	if len(o.answers) > 0 {
		fmt.Fprintf(&b, "answered %s; ", strings.Join(o.answers, ", "))
	}
	if o.refused != nil {
		fmt.Fprintf(&b, "send refused: %v; ", o.refused)
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// An observer watches every cable from outside, and the node's local delivery by raw sockets, which get their copy
// after INPUT (ip_local_deliver_finish, ip6_protocol_deliver_rcu).
type observer struct {
	cables []int
	local  []listener
	// sockets are the node's ordinary ones.
	sockets []int
}

type listener struct {
	fd     int
	family netfilter.Family
	proto  uint8
}

// protocolsOf are those of a family, its own ICMP first.
func protocolsOf(fam netfilter.Family) []uint8 {
	if fam == netfilter.IPv6 {
		return append([]uint8{netfilter.ProtoICMPv6}, protocols...)
	}
	return append([]uint8{netfilter.ProtoICMP}, protocols...)
}

// protocols are those that packets of both families are made of.
var protocols = []uint8{netfilter.ProtoTCP, netfilter.ProtoUDP, netfilter.ProtoSCTP, netfilter.ProtoUDPLite, netfilter.ProtoDCCP, protoOther}

func newObserver(l *lab) (*observer, error) {
	o := &observer{}
	err := l.outside.do(func() error {
		for _, p := range ports {
			fd, err := packetSocket(p.outer, unix.SOCK_DGRAM, unix.ETH_P_ALL)
			if err != nil {
				return err
			}
			o.cables = append(o.cables, fd)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return o, l.node.do(func() error {
		for _, p := range protocolsOf(netfilter.IPv4) {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(p))
			if err != nil {
				return fmt.Errorf("open raw socket for protocol %d: %w", p, err)
			}
			o.local = append(o.local, listener{fd, netfilter.IPv4, p})
		}
		for _, p := range protocolsOf(netfilter.IPv6) {
			fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(p))
			if err != nil {
				return fmt.Errorf("open raw IPv6 socket for protocol %d: %w", p, err)
			}
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1); err != nil {
				return fmt.Errorf("ask for the destination of IPv6 packets: %w", err)
			}
			o.local = append(o.local, listener{fd, netfilter.IPv6, p})
		}
		return o.listen()
	})
}

// listen opens ordinary UDP sockets of the node, which -m socket and TPROXY look for: one that is bound to any address,
// one to a single address, and a transparent one. Nobody reads them; what is delivered is seen by the raw sockets.
func (o *observer) listen() error {
	for _, l := range []struct {
		addr        netip.Addr
		port        uint16
		transparent bool
	}{
		{netip.IPv4Unspecified(), 8080, false}, {pools[netfilter.IPv4].node[0], 53, false}, {netip.IPv4Unspecified(), 15001, true},
		{netip.IPv6Unspecified(), 8080, false}, {pools[netfilter.IPv6].node[0], 53, false}, {netip.IPv6Unspecified(), 15001, true},
		{pools[netfilter.IPv4].node[1], 80, true}, {pools[netfilter.IPv6].node[1], 80, true},
	} {
		domain, level, v6only := unix.AF_INET, unix.SOL_IP, false
		option := unix.IP_TRANSPARENT
		if l.addr.Is6() {
			domain, level, v6only, option = unix.AF_INET6, unix.SOL_IPV6, true, unix.IPV6_TRANSPARENT
		}
		fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open UDP socket: %w", err)
		}
		o.sockets = append(o.sockets, fd)
		if l.transparent {
			err = unix.SetsockoptInt(fd, level, option, 1)
		}
		if err == nil && v6only {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
		}
		if err == nil {
			err = unix.Bind(fd, sockaddr(l.addr, l.port))
		}
		if err != nil {
			return fmt.Errorf("listen on %s: %w", netip.AddrPortFrom(l.addr, l.port), err)
		}
	}
	return nil
}

func (o *observer) close() {
	closeAll(o.cables)
	closeAll(o.sockets)
	for _, l := range o.local {
		unix.Close(l.fd)
	}
}

// fire sends the shots and returns what was seen of each, in the order of the shots.
func (l *lab) fire(shots []shot) ([]*observation, error) {
	byID := make(map[uint32]*observation, len(shots))
	out := make([]*observation, len(shots))
	for i, s := range shots {
		out[i] = &observation{}
		byID[s.id] = out[i]
	}
	refused, err := l.injector.send(shots)
	if err != nil {
		return nil, err
	}
	for i, e := range refused {
		out[i].refused = e
	}
	return out, l.collect(byID)
}

// await goes on collecting while a shot that must come out of the node has not, for up to two seconds: on a
// busy machine a whole batch can be late.
func (l *lab) await(shots []shot, obs []*observation) error {
	byID := make(map[uint32]*observation, len(shots))
	for i, s := range shots {
		byID[s.id] = obs[i]
	}
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); {
		if !slices.ContainsFunc(obs, func(o *observation) bool { return len(o.left) == 0 }) {
			return nil
		}
		if err := l.collect(byID); err != nil {
			return err
		}
	}
	return nil
}

// collect reads all sockets until nothing more comes.
func (l *lab) collect(byID map[uint32]*observation) error {
	o := l.observer
	var fds []unix.PollFd
	for _, fd := range o.cables {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	for _, r := range o.local {
		fds = append(fds, unix.PollFd{Fd: int32(r.fd), Events: unix.POLLIN})
	}
	fds = append(fds, unix.PollFd{Fd: int32(l.tracer.fd), Events: unix.POLLIN})
	buf := make([]byte, 1<<16)
	for {
		n, err := unix.Poll(fds, int(silence.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for packets: %w", err)
		}
		if n == 0 {
			return nil
		}
		for i, p := range fds {
			if p.Revents == 0 {
				continue
			}
			switch {
			case i < len(o.cables):
				readCable(int(p.Fd), ports[i].node, buf, byID)
			case i < len(fds)-1:
				readLocal(o.local[i-len(o.cables)], buf, byID)
			default:
				if err := l.tracer.read(buf, byID); err != nil {
					return err
				}
			}
		}
	}
}

func readCable(fd int, dev string, buf []byte, byID map[uint32]*observation) {
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return
		}
		d, answer, ok := parse(buf[:n])
		ob := byID[d.id]
		switch {
		case !ok || ob == nil:
		case answer != "":
			ob.answer(answer)
		default:
			s := sighting{d, dev}
			// The bridge floods a frame for an unknown neighbour to both of its ports.
			if !slices.ContainsFunc(ob.left, func(t sighting) bool { return t == s }) {
				ob.left = append(ob.left, s)
			}
		}
	}
}

func readLocal(r listener, buf []byte, byID map[uint32]*observation) {
	oob := make([]byte, 256)
	for {
		n, m, _, from, err := unix.Recvmsg(r.fd, buf, oob, 0)
		if err != nil {
			return
		}
		var d datagram
		var answer string
		var ok bool
		if r.family == netfilter.IPv4 {
			d, answer, ok = parse(buf[:n])
		} else {
			d.proto = r.proto
			if sa, is := from.(*unix.SockaddrInet6); is {
				d.src = netip.AddrFrom16(sa.Addr)
			}
			d.dst = destination(oob[:m])
			d, answer, ok = parseTransport(d, buf[:n])
		}
		ob := byID[d.id]
		switch {
		case !ok || ob == nil:
		case answer != "":
			ob.answer(answer)
		default:
			d.ttl, d.tos = 0, 0
			ob.delivered = append(ob.delivered, d)
		}
	}
}

// destination is the address in an IPV6_PKTINFO control message.
func destination(oob []byte) netip.Addr {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.Addr{}
	}
	for _, m := range msgs {
		if m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 16 {
			return netip.AddrFrom16([16]byte(m.Data))
		}
	}
	return netip.Addr{}
}

func (o *observation) answer(kind string) {
	if !slices.Contains(o.answers, kind) {
		o.answers = append(o.answers, kind)
	}
}
