package netfilter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/big"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/nft"
)

// value is what an expression of nftables says of a packet: bytes in network order.
type value struct {
	data []byte
	// unknown has the bits set that the evidence does not tell; nil where all are known. why says what they are.
	unknown []byte
	why     string
	// none: the packet has no such thing, and the rule ends (NFT_BREAK).
	none bool
}

func (v *value) open() bool {
	for _, b := range v.unknown {
		if b != 0 {
			return true
		}
	}
	return false
}

// evaluated is a value with the way that led to it: a random one has several.
type evaluated struct {
	progress
	value
}

func known(data ...byte) value { return value{data: data} }

func num32(n uint32) value { return value{data: binary.BigEndian.AppendUint32(nil, n)} }

func num16(n uint16) value { return value{data: binary.BigEndian.AppendUint16(nil, n)} }

func addressValue(a netip.Addr) value {
	if !a.IsValid() {
		return unknown(4, "the packet's source is not chosen yet")
	}
	return value{data: a.AsSlice()}
}

var absent = value{none: true}

// unknown is a value of some bytes of which nothing is known.
func unknown(size int, why string) value {
	u := make([]byte, size)
	for i := range u {
		u[i] = 0xff
	}
	return value{data: make([]byte, size), unknown: u, why: why}
}

// nftEval is an expression's value for a packet, with all ways that a random one can go.
func (r *run) nftEval(at *nftPlace, e nft.Expr, x progress) []evaluated {
	one := func(v value) []evaluated { return []evaluated{{x, v}} }
	switch e := e.(type) {
	case *nft.Const:
		return one(value{data: e.Data})
	case *nft.Payload:
		return one(payload(&x.state.p, e))
	case *nft.Meta:
		return one(r.meta(at.hook, &x.state.p, e.Key))
	case *nft.CT:
		if e.Key == "state" && x.state.p.Template {
			// A template of a connection counts as new (nft_ct_get_eval) and has nothing else.
			return one(num32(ctStateNew))
		}
		return one(connection(&x.state.p, e))
	case *nft.Fib:
		return one(r.fib(&x.state.p, e))
	case *nft.Numgen:
		if e.Mode == "inc" {
			x.state = x.note("numgen inc counts up with every packet: shares are those of many connections")
		}
		return spread(x, e.Mod, e.Offset)
	case *nft.Hash:
		x.state = x.note("a hash of the packet chooses: shares are those of many clients")
		if e.Of == nil {
			return spread(x, e.Mod, e.Offset)
		}
		var out []evaluated
		for _, v := range r.nftEval(at, e.Of, x) {
			if v.none {
				out = append(out, evaluated{v.progress, absent})
				continue
			}
			out = append(out, spread(v.progress, e.Mod, e.Offset)...)
		}
		return out
	case *nft.Concat:
		return r.nftConcat(at, e.Parts, x, value{})
	case *nft.Binary:
		return r.nftBinary(at, e, x)
	case *nft.MapExpr:
		var out []evaluated
		for _, k := range r.nftEval(at, e.Key, x) {
			y := k.progress
			entry, why := r.nftFind(at, e.Map, k.value, &y)
			switch {
			case why != "":
				out = append(out, evaluated{y, unknown(4, why)})
			case entry == nil:
				out = append(out, evaluated{y, absent})
			default:
				out = append(out, evaluated{y, value{data: entry.Data}})
			}
		}
		return out
	case *nft.Other:
		return one(unknown(max(e.Size, 1), e.Text+" is not evaluated"))
	case *nft.Socket:
		return one(unknown(4, "which socket a packet belongs to is not part of the question"))
	case *nft.ExtHdr:
		return one(unknown(1, "extension headers and options of packets are not part of the question"))
	}
	return one(unknown(4, fmt.Sprintf("%T is not evaluated", e)))
}

// spread divides a packet's way evenly among the values of a generator.
func spread(x progress, mod, offset uint32) []evaluated {
	const most = 65536 // no map of backends is larger
	if mod == 0 || mod > most {
		return []evaluated{{x, unknown(4, "the generator has too many values")}}
	}
	out := make([]evaluated, mod)
	x.prob /= float64(mod)
	x.p /= float64(mod)
	for i := range out {
		out[i] = evaluated{x, num32(offset + uint32(i))}
	}
	return out
}

func (r *run) nftConcat(at *nftPlace, parts []nft.Expr, x progress, so value) []evaluated {
	if len(parts) == 0 {
		return []evaluated{{x, so}}
	}
	var out []evaluated
	for _, v := range r.nftEval(at, parts[0], x) {
		if v.none {
			out = append(out, evaluated{v.progress, absent})
			continue
		}
		next := so
		next.data = appendPadded(so.data[:len(so.data):len(so.data)], v.data)
		if v.unknown != nil || so.unknown != nil {
			u := append([]byte(nil), so.unknown...)
			u = append(u, make([]byte, len(so.data)-len(u))...)
			w := v.unknown
			if w == nil {
				w = make([]byte, len(v.data))
			}
			next.unknown = appendPadded(u, w)
			if next.why == "" {
				next.why = v.why
			}
		}
		out = append(out, r.nftConcat(at, parts[1:], v.progress, next)...)
	}
	return out
}

// appendPadded appends a part of a concatenation, which takes a multiple of four bytes.
func appendPadded(to, part []byte) []byte {
	to = append(to, part...)
	for len(to)%4 != 0 {
		to = append(to, 0)
	}
	return to
}

func (r *run) nftBinary(at *nftPlace, e *nft.Binary, x progress) []evaluated {
	var out []evaluated
	for _, a := range r.nftEval(at, e.Left, x) {
		for _, b := range r.nftEval(at, e.Right, a.progress) {
			out = append(out, evaluated{b.progress, combine(e.Op, a.value, b.value)})
		}
	}
	return out
}

// combine computes with bits. Only & makes unknown bits known: by zeros.
func combine(op string, a, b value) value {
	if a.none || b.none {
		return absent
	}
	n := max(len(a.data), len(b.data))
	x, y := widen(a.data, n), widen(b.data, n)
	out := value{data: make([]byte, n), why: a.why}
	if out.why == "" {
		out.why = b.why
	}
	if a.unknown != nil || b.unknown != nil {
		out.unknown = make([]byte, n)
	}
	ux, uy := widen(a.unknown, n), widen(b.unknown, n)
	switch op {
	case "<<", ">>":
		if a.open() || b.open() {
			return unknown(n, out.why)
		}
		v, by := new(big.Int).SetBytes(x), uint(min(number(y), uint32(8*n)))
		if op == "<<" {
			v.Lsh(v, by)
		} else {
			v.Rsh(v, by)
		}
		out.data = widen(v.Bytes(), n)
		return out
	}
	for i := range n {
		switch op {
		case "&":
			out.data[i] = x[i] & y[i]
			if out.unknown != nil {
				out.unknown[i] = ux[i]&(y[i]|uy[i]) | uy[i]&(x[i]|ux[i])
			}
		case "|":
			out.data[i] = x[i] | y[i]
			if out.unknown != nil {
				out.unknown[i] = ux[i]&^y[i] | uy[i]&^x[i]
			}
		case "^":
			out.data[i] = x[i] ^ y[i]
			if out.unknown != nil {
				out.unknown[i] = ux[i] | uy[i]
			}
		default:
			return unknown(n, "operator "+op+" is not evaluated")
		}
	}
	return out
}

// widen puts zeros before a number; of a longer one the end is kept.
func widen(b []byte, n int) []byte {
	if len(b) >= n {
		return b[len(b)-n:]
	}
	out := make([]byte, n)
	copy(out[n-len(b):], b)
	return out
}

// payload is a field of the packet's headers.
func payload(p *Packet, e *nft.Payload) value {
	protocol, field := e.Protocol, e.Field
	if protocol == "@nh" || protocol == "@th" {
		if protocol, field = namedPayload(p, e); field == "" {
			return headerBytes(p, e)
		}
	}
	switch protocol {
	case "ip", "ip6":
		if (protocol == "ip") != (p.Family == IPv4) {
			return absent
		}
		return networkField(p, field)
	case "tcp", "udp", "udplite", "sctp", "dccp", "th":
		if protocol != "th" && !ofProtocol(p, protocol) {
			return absent
		}
		return transportField(p, field)
	case "icmp", "icmpv6":
		if protocol == "icmp" && p.Proto != ProtoICMP || protocol == "icmpv6" && p.Proto != ProtoICMPv6 {
			return absent
		}
		switch field {
		case "type":
			return known(p.ICMPType)
		case "code":
			return known(p.ICMPCode)
		}
	case "ah", "esp", "comp", "igmp", "arp":
		if number, ok := protocolNumber(protocol); protocol != "arp" && ok && p.Proto == number {
			break
		}
		return absent
	}
	return unknown(payloadSize(e), fmt.Sprintf("%s %s of the packet is not part of the question", protocol, field))
}

// payloadSize is the width of a field of which nothing is known; where it is not said, that of most.
func payloadSize(e *nft.Payload) int {
	if e.Bits > 0 {
		return (e.Bits + 7) / 8
	}
	switch e.Field {
	case "saddr", "daddr":
		if e.Protocol == "ether" {
			return 6
		}
		return 4
	case "sport", "dport", "length", "checksum", "id", "frag-off", "type":
		return 2
	case "sequence", "ackseq", "vtag", "spi":
		return 4
	}
	return 1
}

// namedPayload is the name of a field that is given by its place.
func namedPayload(p *Packet, e *nft.Payload) (protocol, field string) {
	if e.Protocol == "@th" {
		switch {
		case e.Offset == 0 && e.Bits == 16:
			return "th", "sport"
		case e.Offset == 16 && e.Bits == 16:
			return "th", "dport"
		}
		return "", ""
	}
	protocol = "ip6"
	fields := map[[2]int]string{{64, 128}: "saddr", {192, 128}: "daddr", {48, 8}: "nexthdr"}
	if p.Family == IPv4 {
		protocol = "ip"
		fields = map[[2]int]string{{96, 32}: "saddr", {128, 32}: "daddr", {72, 8}: "protocol"}
	}
	return protocol, fields[[2]int{e.Offset, e.Bits}]
}

// headerBytes are whole bytes of a header. nft makes one test of two that stand side by side ("th sport 1 th dport 2").
func headerBytes(p *Packet, e *nft.Payload) value {
	const why = "bytes of the packet are not part of the question"
	var h, open []byte
	known := func(at int, b ...byte) {
		copy(h[at:], b)
		clear(open[at : at+len(b)])
	}
	size := map[string]int{"@nh": 20, "@th": 4}[e.Protocol]
	if e.Protocol == "@nh" && p.Family == IPv6 {
		size = 40
	}
	h, open = make([]byte, size), bytes.Repeat([]byte{0xff}, size)
	sport, hasSrc := p.sourcePort()
	dport, hasDst := p.destinationPort()
	switch {
	case e.Protocol == "@nh":
		protocol, src, dst := 9, 12, 16
		if p.Family == IPv6 {
			protocol, src, dst = 6, 8, 24
		}
		known(protocol, p.Proto)
		if p.Src.IsValid() {
			known(src, p.Src.AsSlice()...)
		}
		known(dst, p.Dst.AsSlice()...)
	case hasPorts(p.Proto):
		if hasSrc {
			known(0, byte(sport>>8), byte(sport))
		}
		if hasDst {
			known(2, byte(dport>>8), byte(dport))
		}
	case p.Proto == ProtoICMP || p.Proto == ProtoICMPv6:
		known(0, p.ICMPType, p.ICMPCode)
	}
	from, to := e.Offset/8, (e.Offset+e.Bits)/8
	if e.Offset < 0 || e.Bits <= 0 || e.Offset%8 != 0 || e.Bits%8 != 0 || to > size {
		return unknown(max(1, (e.Bits+7)/8), why)
	}
	return value{data: h[from:to], unknown: open[from:to], why: why}
}

func ofProtocol(p *Packet, name string) bool {
	n, ok := protocolNumber(name)
	return ok && p.Proto == n
}

func networkField(p *Packet, field string) value {
	switch field {
	case "saddr":
		v := addressValue(p.Src)
		if !p.Src.IsValid() && p.Family == IPv6 {
			v = unknown(16, v.why)
		}
		return v
	case "daddr":
		return addressValue(p.Dst)
	case "protocol", "nexthdr":
		return known(p.Proto)
	case "version":
		return known(byte(p.Family))
	case "hdrlength":
		return known(5)
	case "frag-off":
		return unknown(2, "whether packets may be fragmented is not part of the question")
	}
	return unknown(payloadSize(&nft.Payload{Field: field}), "ip "+field+" of the packet is not part of the question")
}

func transportField(p *Packet, field string) value {
	switch field {
	case "sport", "dport":
		if !hasPorts(p.Proto) {
			return unknown(2, "the packet has no ports, and what stands in their place is not part of the question")
		}
		port, ok := p.sourcePort()
		if field == "dport" {
			port, ok = p.destinationPort()
		}
		if !ok {
			return unknown(2, "the client's port is not known")
		}
		return num16(port)
	case "flags":
		if flags, ok := tcpFlags(p); ok && p.Proto == ProtoTCP {
			return known(flags)
		}
		return unknown(1, "the flags of the packet are not part of the question")
	}
	return unknown(payloadSize(&nft.Payload{Field: field}), field+" of the packet is not part of the question")
}

func hasPorts(proto uint8) bool {
	switch proto {
	case ProtoTCP, ProtoUDP, ProtoSCTP, ProtoUDPLite, ProtoDCCP:
		return true
	}
	return false
}

// The kernel's numbers for families (NFPROTO_*) and ether types.
const (
	nfprotoIPv4   = 2
	nfprotoIPv6   = 10
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
)

// meta is what the kernel knows of a packet besides its bytes.
func (r *run) meta(h Hook, p *Packet, key string) value {
	switch key {
	case "mark":
		return num32(p.Mark)
	case "l4proto":
		return known(p.Proto)
	case "nfproto":
		if p.Family == IPv6 {
			return known(nfprotoIPv6)
		}
		return known(nfprotoIPv4)
	case "protocol":
		if p.Family == IPv6 {
			return num16(etherTypeIPv6)
		}
		return num16(etherTypeIPv4)
	case "iifname", "oifname":
		i := r.incoming(h, p)
		if key == "oifname" {
			i = p.Out
		}
		if !i.Known {
			return unknown(ifNameSize, "the interface is not known")
		}
		return value{data: ifName(i.Name)}
	case "iif", "oif":
		// The name stands for the number; see ifIndexes.
		i := r.incoming(h, p)
		if key == "oif" {
			i = p.Out
		}
		if !i.Known {
			return unknown(ifNameSize, "the interface is not known")
		}
		return value{data: ifName(i.Name)}
	case "pkttype":
		if (&PktType{}).Test(r.Kernel, Prerouting, p).Truth == Undecided {
			return unknown(1, "how the link layer addressed a packet to a group is not known")
		}
		return known(0) // PACKET_HOST
	case "skuid", "skgid":
		if !p.Local {
			return absent
		}
		return unknown(4, "which process sends is not part of the question")
	case "iiftype", "oiftype":
		return unknown(2, "the kind of the interface is not evaluated")
	case "iifkind", "oifkind", "ibrname", "obrname", "sdifname":
		return unknown(ifNameSize, "meta "+key+" is not evaluated")
	}
	return unknown(4, "meta "+key+" is not evaluated")
}

// incoming is the interface that a packet came in on, as a hook knows it. One whose new destination is behind the
// bridge that it came from stays on that, and br_nf_post_routing does not say where it came in. (Routed packets have an
// incoming interface in POSTROUTING since Linux 5.7.)
func (r *run) incoming(h Hook, p *Packet) Iface {
	changed := p.Dst != p.OrigDst
	if p.Reply {
		changed = p.SNATed
	}
	if h == Postrouting && changed && p.In == p.Out && r.isBridge(p.In) {
		return NoIface
	}
	return p.In
}

const ifNameSize = 16 // IFNAMSIZ

// ifIndex is the number of an interface by its name, as wide as the kernel has it; ok is false where that is not known.
func (r *run) ifIndex(name []byte) (index []byte, ok bool) {
	s := string(bytes.TrimRight(name, "\x00"))
	if s == "" {
		return make([]byte, 4), true
	}
	l := r.Kernel.Host.Link(s)
	if l == nil || l.Index == 0 {
		return nil, false
	}
	return num32(uint32(l.Index)).data, true
}

// ifIndexes puts numbers in the place of the names of interfaces in a key, for a set that has numbers there: listings
// print names, the kernel has numbers. ok is false where a number is not known.
func (r *run) ifIndexes(s *nft.Set, key []byte) (out []byte, ok bool) {
	for _, f := range s.Key {
		n := f.Width()
		if f.Type == nft.TypeIfindex && f.Size == 4 && len(key) >= ifNameSize {
			index, known := r.ifIndex(key[:ifNameSize])
			if !known {
				return nil, false
			}
			out, key = append(out, index...), key[ifNameSize:]
			continue
		}
		n = min(n, len(key))
		out, key = append(out, key[:n]...), key[n:]
	}
	return append(out, key...), true
}

func ifName(name string) []byte {
	b := make([]byte, ifNameSize)
	copy(b, name)
	return b
}

// The bits of ct state and ct status (nf_conntrack_common.h, include/uapi/linux/netfilter/nf_tables.h).
const (
	ctStateInvalid     = 1
	ctStateEstablished = 2
	ctStateRelated     = 4
	ctStateNew         = 8
	ctStateUntracked   = 64

	ctStatusExpected  = 1
	ctStatusSeenReply = 2
	ctStatusAssured   = 4
	ctStatusConfirmed = 8
	ctStatusSNAT      = 16
	ctStatusDNAT      = 32
)

var ctStates = [...]uint32{
	StateNew: ctStateNew, StateEstablished: ctStateEstablished, StateRelated: ctStateRelated,
	StateInvalid: ctStateInvalid, StateUntracked: ctStateUntracked,
}

// connection is what connection tracking says of a packet. One that has no connection has a state only.
func connection(p *Packet, e *nft.CT) value {
	if e.Key == "state" {
		return num32(ctStates[p.State])
	}
	if !p.tracked() {
		return absent
	}
	switch e.Key {
	case "mark":
		return num32(p.CTMark)
	case "direction":
		if p.Reply {
			return known(1)
		}
		return known(0)
	case "status":
		return statusBits(p)
	case "l3proto":
		if p.Family == IPv6 {
			return known(nfprotoIPv6)
		}
		return known(nfprotoIPv4)
	case "protocol":
		return known(p.Proto)
	case "zone":
		if p.Zone == "" {
			return num16(0)
		}
		return unknown(2, "the zone of the connection is not evaluated")
	case "saddr", "daddr":
		return connectionAddr(p, e)
	case "proto-src", "proto-dst":
		return connectionPort(p, e)
	}
	return unknown(4, "ct "+e.Key+" is not evaluated")
}

func connectionAddr(p *Packet, e *nft.CT) value {
	why := "the addresses of the connection are not known here"
	size := 4
	if p.Family == IPv6 {
		size = 16
	}
	if e.Family != "" && e.Family != nftFamily(p.Family) {
		return absent
	}
	a := netip.Addr{}
	switch {
	case e.Dir == "original" && e.Key == "saddr":
		a = p.OrigSrc
	case e.Dir == "original":
		a = p.OrigDst
	case e.Dir == "reply" && !p.Reply && e.Key == "saddr":
		a = p.Dst
	case e.Dir == "reply" && !p.Reply:
		a = p.Src
	}
	if !a.IsValid() {
		return unknown(size, why)
	}
	return addressValue(a)
}

func connectionPort(p *Packet, e *nft.CT) value {
	src, srcKnown := p.sourcePort()
	switch {
	case e.Dir == "original" && e.Key == "proto-src" && (p.OrigSrcPort != 0 || p.HasSrcPort):
		return num16(p.OrigSrcPort)
	case e.Dir == "original" && e.Key == "proto-dst":
		return num16(p.OrigDstPort)
	case e.Dir == "reply" && !p.Reply && e.Key == "proto-src":
		return num16(p.DstPort)
	case e.Dir == "reply" && !p.Reply && srcKnown:
		return num16(src)
	}
	return unknown(2, "the ports of the connection are not known here")
}

// statusBits are the bits of the connection's status; see Conntrack.status.
func statusBits(p *Packet) value {
	var bits, open uint32
	switch {
	case p.Reply:
		bits = ctStatusSeenReply | ctStatusConfirmed
		if p.Proto != ProtoTCP {
			open = ctStatusAssured
		}
		open |= ctStatusExpected
	case p.State == StateRelated:
		bits = ctStatusExpected
	case p.State == StateNew && p.Confirmed:
		bits = ctStatusConfirmed
	case p.State != StateNew:
		open = ctStatusExpected | ctStatusSeenReply | ctStatusAssured | ctStatusConfirmed
	}
	if p.SNATed {
		bits |= ctStatusSNAT
	}
	if p.DNATed {
		bits |= ctStatusDNAT
	}
	// The other bits say how far the kernel has come with the connection: translations done, dying, offloaded.
	const others = ^uint32(ctStatusExpected | ctStatusSeenReply | ctStatusAssured | ctStatusConfirmed | ctStatusSNAT | ctStatusDNAT)
	v := num32(bits)
	v.unknown, v.why = num32(open|others).data, "the status of a connection that is under way is not known"
	return v
}

// fib is what the routing tables say of an address of the packet.
func (r *run) fib(p *Packet, e *nft.Fib) value {
	has := func(flag string) bool { return slices.Contains(e.Flags, flag) }
	if e.Result != "type" {
		if !has("saddr") || has("oif") {
			return unknown(4, "a route lookup of this kind is not evaluated")
		}
		if kind, f := r.Kernel.Host.Type(p.Src); f.Is != host.Unknown && kind != "unicast" && kind != "local" {
			// nft_fib4_eval takes the route of a broadcast address, which rpfilter does not.
			return unknown(4, "a route lookup of this kind is not evaluated")
		}
		a := (&RPFilter{Loose: !has("iif"), ValidMark: has("mark")}).Test(r.Kernel, Prerouting, p)
		if !e.Exists || a.Truth == Undecided {
			return unknown(4, "a route lookup of this kind is not evaluated")
		}
		if a.Truth == True {
			return known(1)
		}
		return known(0)
	}
	a := p.Dst
	if has("saddr") {
		a = p.Src
	}
	if !a.IsValid() {
		return unknown(4, "the packet's source is not chosen yet")
	}
	if p.Family == IPv6 && a.IsMulticast() {
		return num32(fibMulticast)
	}
	if p.Family == IPv6 && has("mark") && p.Mark != 0 {
		// For IPv6 the type is that of the route, which the mark may choose (__nft_fib6_eval_type).
		return unknown(4, "the type of an address by the mark is not evaluated")
	}
	is, open := (&AddrType{LimitIn: has("iif"), LimitOut: has("oif")}).kind(r.Kernel, p, a, TypeLocal)
	if open != nil {
		return unknown(4, open.Because)
	}
	for i := range addrTypeNames {
		if is == 1<<i {
			return num32(uint32(i))
		}
	}
	return unknown(4, "the kind of the address is not known")
}

const fibMulticast = 5 // RTN_MULTICAST

// fibFact is the question whether an address is of a type, where the routing tables do not tell.
func (r *run) fibFact(p *Packet, e *nft.Fib, code uint32) (a Answer, ok bool) {
	if e.Result != "type" || code >= uint32(len(addrTypeNames)) {
		return a, false
	}
	m := AddrType{LimitIn: slices.Contains(e.Flags, "iif"), LimitOut: slices.Contains(e.Flags, "oif")}
	addr := p.Dst
	if slices.Contains(e.Flags, "saddr") {
		addr = p.Src
	}
	if !addr.IsValid() {
		return Maybe(typeFact(addr, 1<<code, "the packet's source is not chosen yet")), true
	}
	_, open := m.kind(r.Kernel, p, addr, 1<<code)
	if open == nil {
		return a, false
	}
	return Maybe(*open), true
}
