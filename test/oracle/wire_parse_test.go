//go:build linux

package oracle

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// TestWire reads back what it writes, in both families and every protocol.
func TestWire(t *testing.T) {
	for _, fam := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		for _, proto := range append([]uint8{netfilter.ProtoICMP, netfilter.ProtoICMPv6}, protocols...) {
			if proto == netfilter.ProtoICMP && fam == netfilter.IPv6 || proto == netfilter.ProtoICMPv6 && fam == netfilter.IPv4 {
				continue
			}
			want := datagram{id: 0x01020304, src: pools[fam].external[0], dst: pools[fam].service[1], proto: proto, sport: 40000, dport: 443, ttl: 64, tos: 0x10}
			if !hasPorts(proto) {
				want.dport = 0
			}
			if proto == protoOther {
				want.sport = 0
			}
			got, answer, ok := parse(want.bytes())
			if !ok || answer != "" {
				t.Errorf("protocol %d: ok %v answer %q", proto, ok, answer)
			}
			if d := cmp.Diff(want, got, cmp.AllowUnexported(datagram{}), cmpopts.EquateComparable(want.src)); d != "" {
				t.Errorf("protocol %d (-want +got):\n%s", proto, d)
			}
		}
	}
}

// TestWireAnswers recognises the answers by the packet that they quote or acknowledge.
func TestWireAnswers(t *testing.T) {
	syn := datagram{id: 0x01020304, src: pools[4].external[0], dst: pools[4].service[1], proto: netfilter.ProtoTCP, sport: 40000, dport: 443, ttl: 64}
	rst := datagram{id: 9, src: syn.dst, dst: syn.src, proto: netfilter.ProtoTCP, sport: 443, dport: 40000, ttl: 64}.bytes()
	rst[20+13] = 0x14
	binary.BigEndian.PutUint32(rst[20+8:], syn.id+1+payloadLen)
	icmp := datagram{id: 9, src: syn.dst, dst: syn.src, proto: netfilter.ProtoICMP, ttl: 64}.bytes()[:28]
	icmp[20], icmp[21] = 3, 13
	icmp = append(icmp, syn.bytes()...)
	for _, c := range []struct {
		name, answer string
		packet       []byte
		ok           bool
	}{
		{"reset", "tcp-reset", rst, true},
		{"prohibited", "icmp-admin-prohibited", icmp, true},
		{"nothing", "", nil, false},
		{"short", "", syn.bytes()[:30], false},
	} {
		d, answer, ok := parse(c.packet)
		if answer != c.answer || ok != c.ok || ok && d.id != syn.id {
			t.Errorf("%s: id %#x answer %q ok %v", c.name, d.id, answer, ok)
		}
	}
}

// TestDisagreement is the comparison itself: each kind of difference must be seen.
func TestDisagreement(t *testing.T) {
	a, b := pools[4].external[0], pools[4].pod[0]
	d := datagram{src: a, dst: b, proto: netfilter.ProtoTCP, sport: 1, dport: 80}
	p := netfilter.Packet{Family: 4, Src: a, Dst: b, Proto: netfilter.ProtoTCP, SrcPort: 1, DstPort: 80, HasSrcPort: true, Out: netfilter.Iface{Name: "eth0", Known: true}}
	end := func(v netfilter.Verdict, change func(*netfilter.Ending)) netfilter.Ending {
		e := netfilter.Ending{Verdict: v, Packet: p, P: 1}
		if change != nil {
			change(&e)
		}
		return e
	}
	left := &observation{left: []sighting{{d, "eth0"}}}
	delivered := &observation{delivered: []datagram{d}}
	lost := &observation{}
	for _, c := range []struct {
		name   string
		ending netfilter.Ending
		seen   *observation
		same   bool
	}{
		{"forwarded", end(netfilter.Forwarded, nil), left, true},
		{"forwarded, not delivered", end(netfilter.Forwarded, nil), delivered, false},
		{"forwarded, not lost", end(netfilter.Forwarded, nil), lost, false},
		{"other interface", end(netfilter.Forwarded, func(e *netfilter.Ending) { e.Packet.Out.Name = "eth1" }), left, false},
		{"other destination", end(netfilter.Forwarded, func(e *netfilter.Ending) { e.Packet.Dst = a }), left, false},
		{"other source", end(netfilter.Forwarded, func(e *netfilter.Ending) { e.Packet.Src = b }), left, false},
		{"other port", end(netfilter.Forwarded, func(e *netfilter.Ending) { e.Packet.DstPort = 81 }), left, false},
		{"other source port", end(netfilter.Forwarded, func(e *netfilter.Ending) { e.Packet.SrcPort = 81 }), left, false},
		{"unknown source port", end(netfilter.Forwarded, func(e *netfilter.Ending) { e.Packet.SrcPort, e.Packet.HasSrcPort = 81, false }), left, true},
		{"delivered", end(netfilter.Delivered, nil), delivered, true},
		{"delivered, not left", end(netfilter.Delivered, nil), left, false},
		{"dropped", end(netfilter.Dropped, nil), lost, true},
		{"dropped, not answered", end(netfilter.Dropped, nil), &observation{answers: []string{"tcp-reset"}}, false},
		{"dropped, not left", end(netfilter.Dropped, nil), left, false},
		{"rejected", end(netfilter.Rejected, func(e *netfilter.Ending) { e.RejectWith = "tcp-reset" }), &observation{answers: []string{"tcp-reset"}}, true},
		{"rejected otherwise", end(netfilter.Rejected, func(e *netfilter.Ending) { e.RejectWith = "icmp-port-unreachable" }), &observation{answers: []string{"tcp-reset"}}, false},
		{"dropped elsewhere", end(netfilter.Dropped, func(e *netfilter.Ending) { e.Table, e.Chain = "filter", "FORWARD(policy)" }),
			&observation{path: []point{{table: "filter", chain: "INPUT"}}}, false},
		{"other mark", end(netfilter.Forwarded, nil), &observation{left: left.left, path: []point{{table: "mangle", chain: "POSTROUTING", atEnd: true, mark: 1}}}, false},
	} {
		if why := disagreement(c.ending, c.seen); (why == "") != c.same {
			t.Errorf("%s: %q", c.name, why)
		}
	}
}
