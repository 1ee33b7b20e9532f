//go:build linux

package oracle

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// protoOther is a protocol number for experiments (RFC 3692): connection tracking handles it by its generic
// tracker, without ports.
const protoOther = 253

// magic stands in the payload of every packet sent, followed by the packet's number: so a packet is known again
// after any translation, and inside the ICMP error that quotes it.
var magic = [4]byte{'s', 'v', 'c', 'n'}

const payloadLen = 8 // magic and number

// A datagram is the first packet of a connection or the first answer, as it is sent or as it is seen.
type datagram struct {
	id           uint32
	src, dst     netip.Addr
	proto        uint8
	sport, dport uint16 // the echo identifier is sport
	ttl, tos     uint8
	// answers is the packet that this one answers, 0 for the first packet of a connection.
	answers uint32
}

func (d datagram) family() netfilter.Family {
	if d.dst.Is4() {
		return netfilter.IPv4
	}
	return netfilter.IPv6
}

// hasPorts tells whether the protocol's first four bytes are ports.
func hasPorts(proto uint8) bool {
	switch proto {
	case netfilter.ProtoTCP, netfilter.ProtoUDP, netfilter.ProtoUDPLite, netfilter.ProtoSCTP, netfilter.ProtoDCCP:
		return true
	}
	return false
}

// bytes is the packet from its IP header on, with correct checksums.
func (d datagram) bytes() []byte {
	l4 := d.transport()
	if d.dst.Is4() {
		b := make([]byte, 20, 20+len(l4))
		b[0], b[1] = 0x45, d.tos
		binary.BigEndian.PutUint16(b[2:], uint16(20+len(l4)))
		binary.BigEndian.PutUint16(b[4:], uint16(d.id))
		b[8], b[9] = d.ttl, d.proto
		s, t := d.src.As4(), d.dst.As4()
		copy(b[12:], s[:])
		copy(b[16:], t[:])
		binary.BigEndian.PutUint16(b[10:], ^fold(sum(0, b)))
		return append(b, l4...)
	}
	b := make([]byte, 40, 40+len(l4))
	b[0], b[1] = 0x60|d.tos>>4, d.tos<<4
	binary.BigEndian.PutUint16(b[4:], uint16(len(l4)))
	b[6], b[7] = d.proto, d.ttl
	s, t := d.src.As16(), d.dst.As16()
	copy(b[8:], s[:])
	copy(b[24:], t[:])
	return append(b, l4...)
}

// transport is the packet after its IP header: a SYN, a datagram, an echo request, an INIT, a DCCP request; for an
// answer a SYN with ACK, a datagram, an echo reply.
func (d datagram) transport() []byte {
	pay := binary.BigEndian.AppendUint32(append([]byte(nil), magic[:]...), d.id)
	var b []byte
	ports := func(n int) {
		b = make([]byte, n, n+payloadLen)
		binary.BigEndian.PutUint16(b, d.sport)
		binary.BigEndian.PutUint16(b[2:], d.dport)
	}
	switch d.proto {
	case netfilter.ProtoTCP:
		ports(24)
		binary.BigEndian.PutUint32(b[4:], d.id)
		b[12], b[13] = 6<<4, 0x02 // 24 bytes of header, SYN
		if d.answers != 0 {
			b[13] |= 0x10
			binary.BigEndian.PutUint32(b[8:], d.answers+1+payloadLen)
		}
		binary.BigEndian.PutUint16(b[14:], 64240)
		copy(b[20:], []byte{2, 4, 1460 >> 8, 1460 & 0xff}) // MSS
		b = append(b, pay...)
		binary.BigEndian.PutUint16(b[16:], d.checksum(b))
	case netfilter.ProtoUDP, netfilter.ProtoUDPLite:
		ports(8)
		b = append(b, pay...)
		binary.BigEndian.PutUint16(b[4:], uint16(len(b))) // for UDP-Lite the coverage: all of it
		binary.BigEndian.PutUint16(b[6:], d.checksum(b))
	case netfilter.ProtoICMP, netfilter.ProtoICMPv6:
		b = make([]byte, 8, 8+payloadLen)
		b[0] = 8
		if d.proto == netfilter.ProtoICMPv6 {
			b[0] = 128
		}
		if d.answers != 0 && b[0] == 8 {
			b[0] = 0
		} else if d.answers != 0 {
			b[0] = 129
		}
		binary.BigEndian.PutUint16(b[4:], d.sport)
		b[7] = 1
		b = append(b, pay...)
		if d.proto == netfilter.ProtoICMP {
			binary.BigEndian.PutUint16(b[2:], ^fold(sum(0, b)))
		} else {
			binary.BigEndian.PutUint16(b[2:], d.checksum(b))
		}
	case netfilter.ProtoSCTP:
		ports(32)
		chunk := b[12:]
		chunk[0] = 1 // INIT
		binary.BigEndian.PutUint16(chunk[2:], uint16(20+4+payloadLen))
		binary.BigEndian.PutUint32(chunk[4:], d.id|1) // initiate tag, never 0
		binary.BigEndian.PutUint32(chunk[8:], 65535)
		chunk[13], chunk[15] = 1, 1 // one stream each way
		// A parameter that a receiver skips without a word carries the payload.
		b = append(b, 0x80, 0x99, 0, 4+payloadLen)
		b = append(b, pay...)
		binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	case netfilter.ProtoDCCP:
		ports(20)
		b[4] = 5    // data offset in words
		b[8] = 0x01 // type 0 (request), extended sequence numbers
		binary.BigEndian.PutUint32(b[12:], d.id)
		b = append(b, pay...)
		binary.BigEndian.PutUint16(b[6:], d.checksum(b))
	default:
		b = pay
	}
	return b
}

// checksum is the internet checksum over the pseudo header and b, whose own checksum field is still zero.
func (d datagram) checksum(b []byte) uint16 {
	s := uint32(d.proto) + uint32(len(b))
	s = sum(sum(s, d.src.AsSlice()), d.dst.AsSlice())
	c := ^fold(sum(s, b))
	if c == 0 {
		c = 0xffff
	}
	return c
}

func sum(s uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// parse reads an IP packet that was seen. answer is the kind of answer that it is, in the words of REJECT, empty
// for one of our own packets; then d is the packet that was answered, as far as its number. ok is false when the
// packet has nothing to do with ours.
func parse(b []byte) (d datagram, answer string, ok bool) {
	d, l4, ok := parseIP(b)
	if !ok {
		return d, "", false
	}
	return parseTransport(d, l4)
}

func parseIP(b []byte) (d datagram, l4 []byte, ok bool) {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4 && len(b) >= int(b[0]&15)*4:
		d.src, _ = netip.AddrFromSlice(b[12:16])
		d.dst, _ = netip.AddrFromSlice(b[16:20])
		d.proto, d.ttl, d.tos = b[9], b[8], b[1]
		return d, b[int(b[0]&15)*4:], true
	case len(b) >= 40 && b[0]>>4 == 6:
		d.src, _ = netip.AddrFromSlice(b[8:24])
		d.dst, _ = netip.AddrFromSlice(b[24:40])
		d.proto, d.ttl, d.tos = b[6], b[7], b[0]<<4|b[1]>>4
		return d, b[40:], true
	}
	return d, nil, false
}

// parseTransport goes on after the IP header, whose fields are in d.
func parseTransport(d datagram, l4 []byte) (_ datagram, answer string, ok bool) {
	if hasPorts(d.proto) && len(l4) >= 8 {
		d.sport, d.dport = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	}
	switch {
	case d.proto == netfilter.ProtoTCP && len(l4) >= 20 && l4[13]&0x04 != 0: // RST
		// A reset of our SYN acknowledges the SYN and its payload.
		d.id = binary.BigEndian.Uint32(l4[8:]) - 1 - payloadLen
		return d, "tcp-reset", d.id != 0
	case d.proto == netfilter.ProtoICMP && len(l4) >= 8:
		if l4[0] == 3 {
			answer = icmpUnreachable[l4[1]&15]
		} else if l4[0] != 8 && l4[0] != 0 {
			return d, "", false
		}
		d.sport = binary.BigEndian.Uint16(l4[4:])
	case d.proto == netfilter.ProtoICMPv6 && len(l4) >= 8:
		if l4[0] == 1 {
			answer = icmp6Unreachable[l4[1]&7]
		} else if l4[0] != 128 && l4[0] != 129 {
			return d, "", false
		}
		d.sport = binary.BigEndian.Uint16(l4[4:])
	}
	for i := 0; i+payloadLen <= len(l4); i++ {
		if [4]byte(l4[i:]) == magic {
			d.id = binary.BigEndian.Uint32(l4[i+4:])
			return d, answer, true
		}
	}
	return d, "", false
}

// The answers by code, as --reject-with spells them (iptables 1.8).
var (
	icmpUnreachable = [16]string{
		0: "icmp-net-unreachable", 1: "icmp-host-unreachable", 2: "icmp-proto-unreachable", 3: "icmp-port-unreachable",
		4: "icmp-fragmentation-needed", 9: "icmp-net-prohibited", 10: "icmp-host-prohibited", 13: "icmp-admin-prohibited",
	}
	icmp6Unreachable = [8]string{
		0: "icmp6-no-route", 1: "icmp6-adm-prohibited", 3: "icmp6-addr-unreachable", 4: "icmp6-port-unreachable",
		5: "icmp6-policy-fail", 6: "icmp6-reject-route",
	}
)
