//go:build linux

package oracle

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// A setModel is an ipset of the node together with what it holds, so that the harness can answer for the set. What
// the oracle proves with it is how the match hands directions and packet to the set, not how ipset dumps are read.
type setModel struct {
	name, kind string
	family     netfilter.Family // 0 for sets without addresses
	members    []string
	dirs       []string // the direction lists that rules use
	holds      func(m *setModel, dirs []netfilter.Dir, p *netfilter.Packet) bool
}

var setModels = []setModel{
	{name: "o-ip", kind: "hash:ip family inet", family: netfilter.IPv4, members: []string{"10.96.0.1", "10.244.1.2", "192.0.2.7"}, dirs: []string{"src", "dst"}, holds: holdsAddr},
	{name: "o-net", kind: "hash:net family inet", family: netfilter.IPv4, members: []string{"10.244.0.0/16", "172.30.0.0/24", "192.0.2.128/25"}, dirs: []string{"src", "dst"}, holds: holdsAddr},
	{name: "o-bip", kind: "bitmap:ip range 10.96.0.0/24", family: netfilter.IPv4, members: []string{"10.96.0.1", "10.96.0.10"}, dirs: []string{"src", "dst"}, holds: holdsAddr},
	{name: "o-ipport", kind: "hash:ip,port family inet", family: netfilter.IPv4, members: []string{"10.96.0.1,tcp:443", "10.96.0.10,udp:53", "10.244.1.2,tcp:8080", "10.96.7.7,sctp:80"},
		dirs: []string{"dst,dst", "src,dst"}, holds: holdsAddrPort},
	{name: "o-netport", kind: "hash:net,port family inet", family: netfilter.IPv4, members: []string{"10.96.0.0/24,tcp:80", "10.244.0.0/16,udp:53", "172.30.0.0/24,tcp:30080"},
		dirs: []string{"dst,dst", "src,dst"}, holds: holdsAddrPort},
	{name: "o-ipportip", kind: "hash:ip,port,ip family inet", family: netfilter.IPv4, members: []string{"10.96.0.1,tcp:443,10.244.1.2", "10.96.0.10,udp:53,10.244.1.3", "10.96.0.1,tcp:80,192.0.2.7"},
		dirs: []string{"dst,dst,src"}, holds: holdsAddrPortAddr},
	{name: "o-ipportnet", kind: "hash:ip,port,net family inet", family: netfilter.IPv4, members: []string{"10.96.0.1,tcp:443,10.244.0.0/16", "10.96.7.7,tcp:80,192.0.2.0/24"},
		dirs: []string{"dst,dst,src"}, holds: holdsAddrPortAddr},
	{name: "o-netiface", kind: "hash:net,iface family inet", family: netfilter.IPv4, members: []string{"10.244.1.0/24,cni0", "192.0.2.0/24,eth0"},
		dirs: []string{"src,src"}, holds: holdsAddrIface},
	{name: "o-port", kind: "bitmap:port range 0-65535", members: []string{"80", "443", "30080"}, dirs: []string{"dst", "src"}, holds: holdsPort},
	{name: "o6-ip", kind: "hash:ip family inet6", family: netfilter.IPv6, members: []string{"fd96::1", "fd44:1::2", "fd02::7"}, dirs: []string{"src", "dst"}, holds: holdsAddr},
	{name: "o6-net", kind: "hash:net family inet6", family: netfilter.IPv6, members: []string{"fd44::/16", "fd30::/64"}, dirs: []string{"src", "dst"}, holds: holdsAddr},
	{name: "o6-ipport", kind: "hash:ip,port family inet6", family: netfilter.IPv6, members: []string{"fd96::1,tcp:443", "fd96::10,udp:53", "fd44:1::2,tcp:8080"},
		dirs: []string{"dst,dst", "src,dst"}, holds: holdsAddrPort},
	{name: "o6-ipportnet", kind: "hash:ip,port,net family inet6", family: netfilter.IPv6, members: []string{"fd96::1,tcp:443,fd44::/16", "fd96::7:7,tcp:80,fd02::/64"},
		dirs: []string{"dst,dst,src"}, holds: holdsAddrPortAddr},
}

// addedSet is filled by the SET target and read by no rule.
const addedSet, addedSet6 = "o-added", "o6-added"

// setScript creates and fills the sets, in ipset restore form.
func setScript() string {
	var b strings.Builder
	for _, m := range setModels {
		fmt.Fprintf(&b, "create %s %s\n", m.name, m.kind)
		for _, e := range m.members {
			fmt.Fprintf(&b, "add %s %s\n", m.name, e)
		}
	}
	fmt.Fprintf(&b, "create %s hash:ip family inet\ncreate %s hash:ip family inet6\n", addedSet, addedSet6)
	return b.String()
}

func setArgs(s *slot) string {
	m := pick(s.r, setModels)
	for m.family != 0 && m.family != s.fam {
		m = pick(s.r, setModels)
	}
	return fmt.Sprintf("%s--match-set %s %s", s.not(), m.name, pick(s.r, m.dirs))
}

// sets are the sets as the walk is given them.
func sets() map[string]*netfilter.Set {
	out := make(map[string]*netfilter.Set)
	for _, m := range setModels {
		kind, _, _ := strings.Cut(m.kind, " ")
		out[m.name] = &netfilter.Set{Name: m.name, Type: kind, Contains: func(dirs []netfilter.Dir, p *netfilter.Packet) netfilter.Answer {
			if m.family != 0 && m.family != p.Family {
				return netfilter.No
			}
			return netfilter.Is(m.holds(&m, dirs, p))
		}}
	}
	return out
}

func side(d netfilter.Dir, p *netfilter.Packet) (netip.Addr, uint16) {
	if d == netfilter.DirSrc {
		return p.Src, p.SrcPort
	}
	return p.Dst, p.DstPort
}

func covers(member string, a netip.Addr) bool {
	if p, err := netip.ParsePrefix(member); err == nil {
		return p.Contains(a)
	}
	m, err := netip.ParseAddr(member)
	return err == nil && m == a
}

var setProtos = map[string]uint8{"tcp": netfilter.ProtoTCP, "udp": netfilter.ProtoUDP, "sctp": netfilter.ProtoSCTP}

func holdsAddr(m *setModel, dirs []netfilter.Dir, p *netfilter.Packet) bool {
	a, _ := side(dirs[0], p)
	return slices.ContainsFunc(m.members, func(e string) bool { return covers(e, a) })
}

func holdsAddrPort(m *setModel, dirs []netfilter.Dir, p *netfilter.Packet) bool {
	a, _ := side(dirs[0], p)
	_, port := side(dirs[1], p)
	return slices.ContainsFunc(m.members, func(e string) bool {
		f := strings.Split(e, ",")
		proto, n, _ := strings.Cut(f[1], ":")
		return covers(f[0], a) && setProtos[proto] == p.Proto && n == fmt.Sprint(port)
	})
}

func holdsAddrPortAddr(m *setModel, dirs []netfilter.Dir, p *netfilter.Packet) bool {
	a, _ := side(dirs[0], p)
	_, port := side(dirs[1], p)
	b, _ := side(dirs[2], p)
	return slices.ContainsFunc(m.members, func(e string) bool {
		f := strings.Split(e, ",")
		proto, n, _ := strings.Cut(f[1], ":")
		return covers(f[0], a) && setProtos[proto] == p.Proto && n == fmt.Sprint(port) && covers(f[2], b)
	})
}

func holdsAddrIface(m *setModel, dirs []netfilter.Dir, p *netfilter.Packet) bool {
	a, _ := side(dirs[0], p)
	dev := p.In.Name
	if dirs[1] == netfilter.DirDst {
		dev = p.Out.Name
	}
	return slices.ContainsFunc(m.members, func(e string) bool {
		f := strings.Split(e, ",")
		return covers(f[0], a) && f[1] == dev
	})
}

// holdsPort: bitmap:port looks at TCP and UDP only (ip_set_bitmap_port.c).
func holdsPort(m *setModel, dirs []netfilter.Dir, p *netfilter.Packet) bool {
	if p.Proto != netfilter.ProtoTCP && p.Proto != netfilter.ProtoUDP {
		return false
	}
	_, port := side(dirs[0], p)
	return slices.Contains(m.members, fmt.Sprint(port))
}
