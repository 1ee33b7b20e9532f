//go:build linux

package oracle

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// The literals that rules and packets draw from. They are few, so that random rules and random packets meet.
type pool struct {
	service, pod, node, external, nowhere []netip.Addr
	nets                                  []string // prefixes that rules test
	podNets                               []string // for NETMAP: networks with a route, whose every address is on a cable
}

var pools = map[netfilter.Family]pool{
	netfilter.IPv4: {
		service:  addrs("10.96.0.1", "10.96.0.10", "10.96.7.7"),
		pod:      addrs("10.244.1.2", "10.244.1.3", "10.244.2.3", "10.244.2.9", "10.244.3.5", "10.245.0.9"),
		node:     addrs("172.30.0.11", "172.31.0.11", "10.244.1.1", "203.0.113.77", "127.0.0.1"),
		external: addrs("192.0.2.7", "192.0.2.200", "172.30.0.99", "172.31.0.5"),
		nowhere:  addrs("198.51.100.5", "198.51.100.70", "198.51.100.130", "172.30.0.255", "0.0.0.1", "224.0.0.9", "255.255.255.255"),
		nets: []string{"10.96.0.0/16", "10.244.0.0/16", "10.244.1.0/24", "10.244.2.8/29", "172.30.0.0/24", "192.0.2.128/25", "0.0.0.0/0",
			"10.0.0.0/8", "172.16.0.0/12", "10.96.0.0/29", "198.51.100.0/24", "127.0.0.0/8"},
		podNets: []string{"10.244.3.0/24", "10.245.7.0/24", "192.0.2.0/25"},
	},
	netfilter.IPv6: {
		service:  addrs("fd96::1", "fd96::10", "fd96::7:7"),
		pod:      addrs("fd44:1::2", "fd44:1::3", "fd44:2::3", "fd44:2::9", "fd44:3::5", "fd45::9"),
		node:     addrs("fd30::11", "fd31::11", "fd44:1::1", "fd13::77", "::1"),
		external: addrs("fd02::7", "fd02::1:0:c8", "fd30::99", "fd31::5"),
		nowhere:  addrs("fd51:1::5", "fd51:2::5", "fd51:3::5"),
		nets: []string{"fd96::/108", "fd44::/16", "fd44:1::/64", "fd44:2::8/125", "fd30::/64", "fd02::1:0:0/96", "::/0",
			"fd00::/8", "fd30::/15", "fd96::/123", "fd51::/16", "::1/128"},
		podNets: []string{"fd44:3::/64", "fd45:7::/64", "fd02::/64"},
	},
}

// portPool are the destination ports in use; sources are drawn from 1024 up.
var portPool = []uint16{53, 80, 443, 8080, 30080, 31000}

// markPool are masks and marks of kube-proxy, and the bits that the node's routing rules read (0x100, 0x200).
var markPool = []uint32{0x4000, 0x8000, 0x100, 0x200, 0x1, 0x10000}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// chance is true with probability p.
func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

// addr draws an address that a packet may go to.
func (p pool) addr(r *rand.Rand) netip.Addr {
	switch n := r.IntN(20); {
	case n < 7:
		return pick(r, p.service)
	case n < 13:
		return pick(r, p.pod)
	case n < 16:
		return pick(r, p.node)
	case n < 19:
		return pick(r, p.external)
	default:
		return pick(r, p.nowhere)
	}
}

// prefix draws an address or network that a rule tests.
func (p pool) prefix(r *rand.Rand) string {
	if chance(r, 0.5) {
		return pick(r, p.nets)
	}
	a := p.addr(r)
	return netip.PrefixFrom(a, a.BitLen()).String()
}

// backend draws an address that DNAT may lead to; all of them are reachable.
func (p pool) backend(r *rand.Rand) netip.Addr {
	switch r.IntN(10) {
	case 0:
		return p.node[r.IntN(4)]
	case 1:
		return p.external[r.IntN(3)]
	default:
		return pick(r, p.pod)
	}
}

// plausible draws the source of a packet that comes in through a port.
func (p pool) plausible(r *rand.Rand, entry int) netip.Addr {
	if chance(r, 0.1) {
		return p.addr(r)
	}
	switch ports[entry].outer {
	case "x-eth0":
		return pick(r, append(p.external[:3:3], p.pod[4]))
	case "x-eth1":
		return pick(r, []netip.Addr{p.external[3], p.pod[5], p.external[0]})
	case "x-cali":
		return pick(r, p.pod[2:4])
	default:
		return pick(r, p.pod[:2])
	}
}

// shot draws a packet. taken holds the source ports in use, so that each packet is a connection of its own.
func (l *lab) shot(r *rand.Rand, fam netfilter.Family, taken map[uint16]bool) shot {
	p := pools[fam]
	s := shot{entry: -1}
	s.id = l.id()
	s.ttl, s.tos = uint8(pick(r, []int{64, 63, 128, 255})), uint8(pick(r, []int{0, 0, 0, 0x10, 0xb8}))
	switch n := r.IntN(20); {
	case n < 10:
		s.proto = netfilter.ProtoTCP
	case n < 15:
		s.proto = netfilter.ProtoUDP
	case n < 17:
		s.proto = netfilter.ProtoICMP
		if fam == netfilter.IPv6 {
			s.proto = netfilter.ProtoICMPv6
		}
	case n < 19:
		s.proto = netfilter.ProtoSCTP
	default:
		s.proto = pick(r, []uint8{netfilter.ProtoUDPLite, netfilter.ProtoDCCP, protoOther})
	}
	s.dst = p.addr(r)
	for {
		s.sport = pick(r, []uint16{1024, 20000, 30000, 40000, 60000}) + uint16(r.IntN(2000))
		if !taken[s.sport] {
			taken[s.sport] = true
			break
		}
	}
	s.dport = pick(r, portPool)
	if chance(r, 0.1) {
		s.dport = uint16(1 + r.IntN(65535))
	}
	if r.IntN(4) > 0 {
		s.entry = r.IntN(len(ports))
		s.src = p.plausible(r, s.entry)
		s.srcMAC = [6]byte{2, 0, 0, 0, 9, byte(r.IntN(3))}
		return s
	}
	if !hasPorts(s.proto) {
		s.dport = 0
	}
	if chance(r, 0.15) {
		s.mark = pick(r, markPool)
	}
	if chance(r, 0.3) {
		s.uid = 1000
	}
	s.src = pick(r, p.node)
	if s.dst.IsMulticast() || s.dst == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || s.dst == netip.MustParseAddr("172.30.0.255") {
		s.dst = pick(r, p.service) // sockets would need SO_BROADCAST; multicast needs a chosen interface
	}
	if s.proto == netfilter.ProtoUDP && chance(r, 0.4) {
		s.anySource, s.tos, s.ttl = true, 0, 64
	}
	return s
}

// of is the shot with another protocol.
func (s shot) of(proto uint8) shot {
	s.proto = proto
	s.anySource = s.anySource && proto == netfilter.ProtoUDP
	if !hasPorts(proto) {
		s.dport = 0
	} else if s.dport == 0 {
		s.dport = portPool[int(s.id)%len(portPool)]
	}
	return s
}

func macText(m [6]byte) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}
