package ipset

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain/host"
)

func packet(proto uint8, src string, sport uint16, dst string, dport uint16) *Packet {
	p := &Packet{Family: 4, Proto: proto, Ports: [2]uint16{sport, dport}, KnowsPorts: [2]bool{sport != 0, true}}
	p.Addrs = [2]netip.Addr{netip.MustParseAddr(src), netip.MustParseAddr(dst)}
	if p.Addrs[Dst].Is6() {
		p.Family = 6
	}
	return p
}

func dirs(s string) []Dir {
	var out []Dir
	for d := range strings.SplitSeq(s, ",") {
		out = append(out, map[string]Dir{"src": Src, "dst": Dst}[d])
	}
	return out
}

// TestMembership: what TestKernel does not reach: things that are not known, ranges that people write, captures with
// entries missing. The kernel knows all of a packet, and holds no ranges.
func TestMembership(t *testing.T) {
	sets := parse(t, read(t, "save.txt")+`
create span hash:ip,port
add span 10.0.0.0/30,tcp:8000-8100
add span 10.0.9.1-10.0.9.5,udp:53
create spans hash:net
add spans 10.7.0.0-10.7.0.9
add spans 10.7.0.8 nomatch
create bspan bitmap:port range 0-65535
add bspan 30000-32767
create broken hash:ip
add broken 10.0.0.1
add broken 10.0.0
create colour hash:colour
create lists list:set
add lists lset
create some list:set
add some gone
add some ip
`)
	local := packet(protoTCP, "10.0.0.9", 1000, "10.0.0.1", 80)
	local.KnowsIfaces, local.Ifaces = [2]bool{true, true}, [2]string{"", "eth0"}
	from := func(in string) *Packet {
		p := packet(protoTCP, "10.0.0.9", 1000, "10.0.0.1", 80)
		p.KnowsIfaces, p.Ifaces = [2]bool{true, false}, [2]string{in, ""}
		return p
	}
	lost := packet(protoTCP, "10.0.0.9", 1000, "10.0.0.1", 80)
	lost.Addrs[Src] = netip.Addr{}
	for _, c := range []struct {
		set, dirs string
		p         *Packet
		want      string // yes, no, nomatch, or a part of the reason
	}{
		{"ipport", "dst,dst", packet(protoTCP, "10.9.9.9", 0, "10.0.0.1", 80), "yes"},
		{"ipport", "dst,src", packet(protoTCP, "10.9.9.9", 0, "10.0.0.1", 80), "client's port"},
		{"ipport", "src,src", packet(protoTCP, "10.9.9.9", 0, "10.0.0.1", 80), "no"},
		{"ipport", "dst,src", packet(132, "10.9.9.9", 0, "10.0.0.1", 80), "client's port"},
		{"ipport", "dst,src", packet(33, "10.9.9.9", 0, "10.0.0.1", 80), "no"},
		{"ipport", "dst", packet(protoTCP, "10.9.9.9", 0, "10.0.0.1", 80), "no"},
		{"net", "src", packet(protoTCP, "10.1.9.9", 0, "10.0.0.1", 80), "nomatch"},
		{"net", "src", packet(protoTCP, "10.1.1.9", 0, "10.0.0.1", 80), "yes"},
		{"net", "src", lost, "address of the packet is not known"},
		{"mac", "src", from("eth0"), "hardware addresses"},
		{"mac", "src", local, "no"},
		{"bipmac", "src,src", packet(protoTCP, "10.0.0.2", 0, "10.0.0.1", 80), "yes"},
		{"bipmac", "src,src", packet(protoTCP, "10.0.0.3", 0, "10.0.0.1", 80), "no"},
		{"netiface", "src,src", from("eth0"), "yes"},
		{"netiface", "src,dst", from("eth0"), "interface of the packet is not known"},
		{"netiface", "src,src", packet(protoTCP, "11.0.0.1", 0, "10.0.0.1", 80), "no"},
		{"span", "dst,dst", packet(protoTCP, "10.9.9.9", 0, "10.0.0.3", 8050), "yes"},
		{"span", "dst,dst", packet(protoTCP, "10.9.9.9", 0, "10.0.0.4", 8050), "no"},
		{"span", "dst,dst", packet(protoTCP, "10.9.9.9", 0, "10.0.0.3", 8101), "no"},
		{"span", "dst,dst", packet(protoUDP, "10.9.9.9", 0, "10.0.9.5", 53), "yes"},
		{"span", "dst,dst", packet(protoUDP, "10.9.9.9", 0, "10.0.9.6", 53), "no"},
		{"spans", "dst", packet(protoUDP, "10.9.9.9", 0, "10.7.0.9", 53), "yes"},
		{"spans", "dst", packet(protoUDP, "10.9.9.9", 0, "10.7.0.8", 53), "nomatch"},
		{"bspan", "dst", packet(protoUDP, "10.9.9.9", 0, "10.7.0.9", 32767), "yes"},
		{"bspan", "dst", packet(protoUDP, "10.9.9.9", 0, "10.7.0.9", 32768), "no"},
		{"bspan", "dst", packet(protoSCTP, "10.9.9.9", 0, "10.7.0.9", 32767), "no"},
		{"broken", "dst", packet(protoTCP, "10.9.9.9", 0, "10.0.0.1", 80), "yes"},
		{"broken", "dst", packet(protoTCP, "10.9.9.9", 0, "10.0.0.2", 80), "cannot be read"},
		{"colour", "dst", packet(protoTCP, "10.9.9.9", 0, "10.0.0.2", 80), "type hash:colour"},
		{"lset", "dst,dst", packet(protoTCP, "10.9.9.9", 0, "10.0.0.1", 80), "yes"},
		{"lists", "dst,dst", packet(protoTCP, "10.9.9.9", 0, "10.0.0.1", 80), "list itself"},
		{"some", "dst", packet(protoTCP, "10.9.9.9", 0, "10.0.0.1", 80), "yes"},
		{"some", "dst", packet(protoTCP, "10.9.9.9", 0, "10.0.9.1", 80), "gone"},
		{"ip6", "dst", packet(protoTCP, "10.9.9.9", 0, "10.0.9.1", 80), "no"},
		{"net6", "dst", packet(protoTCP, "fd09::1", 0, "fd00:1::1", 80), "nomatch"},
	} {
		a := sets[c.set].Test(func(n string) *Set { return sets[n] }, dirs(c.dirs), c.p)
		got := map[host.Known]string{host.Yes: "yes", host.No: "no", host.Unknown: a.Because}[a.Is]
		if a.NoMatch {
			got = "nomatch"
		}
		if got != c.want && !(a.Is == host.Unknown && strings.Contains(got, c.want)) {
			t.Errorf("set %s %s of %+v: %s, want %s", c.set, c.dirs, *c.p, got, c.want)
		}
		if (a.Is == host.Yes || a.NoMatch) && (a.Entry == nil || a.Set.At(a.Entry).Line == 0) {
			t.Errorf("set %s %s: no entry decided: %+v", c.set, c.dirs, a)
		}
	}
}

// TestIndexFollows: entries that are added later count.
func TestIndexFollows(t *testing.T) {
	s := parse(t, "create A hash:ip\nadd A 10.0.0.1\n")["A"]
	p := packet(protoTCP, "10.9.9.9", 0, "10.0.0.2", 80)
	if a := s.Test(nil, dirs("dst"), p); a.Is != host.No {
		t.Errorf("%+v", a)
	}
	e, err := s.element("10.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	s.Entries = append(s.Entries, e)
	if a := s.Test(nil, dirs("dst"), p); a.Is != host.Yes {
		t.Errorf("%+v", a)
	}
}
