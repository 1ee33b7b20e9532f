//go:build linux

package oracle

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/host"
)

// bridge is the node's bridge, behind which pods are.
const bridge = "cni0"

// A port is one end of a cable into the node: the name of the interface on the node (of the bridge, for a bridge
// port), and the name of the other end in the namespace of the surroundings.
type port struct {
	node  string
	outer string
	mac   [6]byte // of the node's interface
}

// The node's interfaces. The ends outside have no addresses and no stack that answers: they only send frames
// that we make and watch what arrives.
var ports = []port{
	{node: "eth0", outer: "x-eth0", mac: [6]byte{2, 0, 0, 0, 0, 1}},
	{node: "eth1", outer: "x-eth1", mac: [6]byte{2, 0, 0, 0, 0, 2}},
	{node: "cali1a2b3c", outer: "x-cali", mac: [6]byte{2, 0, 0, 0, 0, 3}},
	{node: bridge, outer: "x-pod0", mac: [6]byte{2, 0, 0, 0, 0, 4}},
	{node: bridge, outer: "x-pod1", mac: [6]byte{2, 0, 0, 0, 0, 4}},
}

// A lab is a node and its surroundings.
type lab struct {
	node, outside *namespace
	injector      *injector
	observer      *observer
	tracer        *tracer
	variant       int // the variant that is set now, -1 for none
	hosts         []*host.Host
	nextID        uint32
	legacyDirty   uint8 // the families, by bits, that hold rules of iptables-legacy
}

// A variant is one setting of the node's sysctls.
type variant struct {
	name    string
	sysctls []string
}

// variants are the settings that a ruleset can meet.
var variants = []variant{
	{name: "router", sysctls: filters(0)},
	{name: "strict reverse path", sysctls: filters(1)},
	{name: "loose reverse path, marks count", sysctls: append(filters(2), "net.ipv4.conf.all.src_valid_mark=1")},
	{name: "localhost is routed, own source accepted", sysctls: append(filters(0), "net.ipv4.conf.all.route_localnet=1",
		"net.ipv4.conf.eth0.accept_local=1")},
	{name: "no forwarding", sysctls: append(filters(0), "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0")},
}

// filters are the sysctls that variants differ in, at their plain values, with a reverse path filter.
func filters(mode int) []string {
	s := []string{
		"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv4.conf.all.src_valid_mark=0", "net.ipv4.conf.all.route_localnet=0", "net.ipv4.conf.eth0.accept_local=0",
	}
	for _, dev := range []string{"all", "default", "eth0", "eth1", "cali1a2b3c", "cni0", "lo"} {
		m := mode
		if dev == "eth1" && mode == 1 {
			m = 2
		}
		s = append(s, fmt.Sprintf("net.ipv4.conf.%s.rp_filter=%d", dev, m))
	}
	return s
}

// layout is the node in ip -batch form. Interfaces resolve no neighbours (arp off): every next hop is on the cable.
const layout = `
link set lo up
link set dev eth0 address 02:00:00:00:00:01 arp off
link set dev eth1 address 02:00:00:00:00:02 arp off
link set dev cali1a2b3c address 02:00:00:00:00:03 arp off
link add cni0 address 02:00:00:00:00:04 type bridge
link set pod0 master cni0
link set pod1 master cni0
link set eth0 up
link set eth1 up
link set cali1a2b3c up
link set pod0 up
link set pod1 up
link set cni0 up
addr add 172.30.0.11/24 brd + dev eth0
addr add 172.31.0.11/24 brd + dev eth1
addr add 10.244.1.1/27 brd + dev cni0
addr add 203.0.113.77/32 dev lo
addr add fd30::11/64 dev eth0 nodad
addr add fd31::11/64 dev eth1 nodad
addr add fd44:1::1/123 dev cni0 nodad
addr add fd13::77/128 dev lo nodad
route add default via 172.30.0.1 dev eth0
route add 10.244.2.0/28 dev cali1a2b3c
route add 10.244.3.0/24 via 172.30.0.12 dev eth0
route add 10.245.0.0/16 via 172.31.0.12 dev eth1 metric 50
route add 10.245.0.0/16 via 172.30.0.13 dev eth0 metric 90
route add blackhole 198.51.100.0/26
route add unreachable 198.51.100.64/26
route add prohibit 198.51.100.128/26
route add default via 172.31.0.1 dev eth1 table 100
route add throw 10.244.3.0/24 table 100
route add local default dev lo table 200
route add 192.0.2.0/24 via 172.31.0.2 dev eth1 src 172.30.0.11 table 300
rule add priority 1000 fwmark 0x100/0x100 lookup 100
rule add priority 1001 fwmark 0x200/0x200 lookup 200
rule add priority 1002 from 10.244.2.8/29 lookup 300
rule add priority 1003 to 192.0.2.128/25 iif eth1 blackhole
`

// layout6 are the IPv6 routes and rules, for ip -6 -batch.
const layout6 = `
route add default via fd30::1 dev eth0
route add fd44:2::/124 dev cali1a2b3c
route add fd44:3::/64 via fd30::12 dev eth0
route add fd45::/32 via fd31::12 dev eth1 metric 50
route add fd45::/32 via fd30::13 dev eth0 metric 90
route add blackhole fd51:1::/64
route add unreachable fd51:2::/64
route add prohibit fd51:3::/64
route add default via fd31::1 dev eth1 table 100
route add throw fd44:3::/64 table 100
route add local default dev lo table 200
route add fd02::/64 via fd31::2 dev eth1 src fd30::11 table 300
rule add priority 1000 fwmark 0x100/0x100 lookup 100
rule add priority 1001 fwmark 0x200/0x200 lookup 200
rule add priority 1002 from fd44:2::8/125 lookup 300
rule add priority 1003 to fd02::1:0:0/96 iif eth1 blackhole
`

// bridgeNeighbours gives every address of the pod ranges behind the bridge a link-layer address, in ip -batch form.
func bridgeNeighbours() string {
	var b strings.Builder
	for i := 2; i < 31; i++ {
		fmt.Fprintf(&b, "neigh add 10.244.1.%d lladdr 02:00:00:00:01:%02x dev cni0 nud permanent\n", i, i)
		fmt.Fprintf(&b, "neigh add fd44:1::%x lladdr 02:00:00:00:01:%02x dev cni0 nud permanent\n", i, i)
	}
	return b.String()
}

// labs numbers the labs of this process.
var labs atomic.Int32

// requireLab makes a lab, or skips with the reason why there can be none. It is removed when the test ends.
func requireLab(t *testing.T) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the kernel oracle needs root: it makes network namespaces and loads rules in them")
	}
	for _, tool := range []string{"ip", "iptables-nft-restore", "iptables-legacy-restore", "ip6tables-nft-restore",
		"ip6tables-legacy-restore", "conntrack", "ipset", "nft", "sysctl"} {
		requireTool(t, tool)
	}
	l := &lab{variant: -1, hosts: make([]*host.Host, len(variants)), nextID: 0x01000000}
	var err error
	prefix := fmt.Sprintf("svcnet-oracle-%d-%d-", os.Getpid(), labs.Add(1))
	if l.node, err = addNamespace(prefix + "node"); err != nil {
		if errors.Is(err, unix.EPERM) || strings.Contains(err.Error(), "not permitted") {
			t.Skip("the kernel oracle may not make network namespaces here: ", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.node.remove(); err != nil {
			t.Error(err)
		}
	})
	if l.outside, err = addNamespace(prefix + "out"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.outside.remove(); err != nil {
			t.Error(err)
		}
	})
	if err := l.build(); err != nil {
		t.Fatal(err)
	}
	if l.injector, err = newInjector(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.injector.close)
	if l.observer, err = newObserver(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.observer.close)
	if l.tracer, err = newTracer(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.tracer.close)
	return l
}

func (l *lab) build() error {
	quiet := []string{"net.ipv6.conf.all.accept_ra=0", "net.ipv6.conf.default.accept_ra=0", "net.ipv6.conf.default.accept_dad=0",
		"net.ipv6.conf.all.addr_gen_mode=1", "net.ipv6.conf.default.addr_gen_mode=1"}
	// Connection tracking of this kernel takes the checksum of UDP-Lite to be that of UDP and calls every such packet
	// INVALID (udplite_error); so it does not look at checksums.
	if err := l.node.setSysctls(append(quiet, "net.netfilter.nf_conntrack_checksum=0",
		"net.ipv4.icmp_ratelimit=0", "net.ipv4.icmp_echo_ignore_all=1", "net.ipv6.icmp.ratelimit=0", "net.ipv6.icmp.echo_ignore_all=1",
		"net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.default.send_redirects=0")...); err != nil {
		return err
	}
	if err := l.outside.setSysctls("net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"); err != nil {
		return err
	}
	var cables strings.Builder
	for i, p := range ports {
		inner := p.node
		if inner == bridge {
			inner = strings.TrimPrefix(p.outer, "x-")
		}
		fmt.Fprintf(&cables, "link add %s type veth peer name %s netns %s\n", inner, ports[i].outer, l.outside.name)
	}
	if _, err := l.node.run(cables.String(), "ip", "-batch", "-"); err != nil {
		return err
	}
	var up strings.Builder
	for _, p := range ports {
		fmt.Fprintf(&up, "link set %s up\n", p.outer)
	}
	if _, err := l.outside.run(up.String(), "ip", "-batch", "-"); err != nil {
		return err
	}
	if _, err := l.node.run(layout+bridgeNeighbours(), "ip", "-batch", "-"); err != nil {
		return err
	}
	if _, err := l.node.run(layout6, "ip", "-6", "-batch", "-"); err != nil {
		return err
	}
	// Connection tracking runs in a namespace as long as a rule somewhere needs it; without, the kernel skips the nat
	// tables. A node with Service rules always has one. This rule is in no packet's way and only keeps it on.
	if _, err := l.node.run("table inet oracle { chain on { ct state new ; } ; }", "nft", "-f", "-"); err != nil {
		return err
	}
	if _, err := l.node.run(setScript(), "ipset", "restore"); err != nil {
		return err
	}
	return l.settle()
}

// settle waits until the bridge forwards: its ports come up with a delay of up to a second (linkwatch), and what
// arrives before is lost.
func (l *lab) settle() error {
	for range 100 {
		out, err := l.node.run("", "ip", "-d", "link", "show", "master", bridge)
		if err != nil {
			return err
		}
		if strings.Count(out, "state forwarding") == 2 {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("the ports of %s do not come up", bridge)
}

// id is the next packet number.
func (l *lab) id() uint32 { l.nextID++; return l.nextID }

// use sets a variant, and captures the host as it then is.
func (l *lab) use(v int) error {
	if l.variant == v {
		return nil
	}
	if err := l.node.setSysctls(variants[v].sysctls...); err != nil {
		return err
	}
	l.variant = v
	if l.hosts[v] != nil {
		return nil
	}
	h, err := l.captureHost()
	if err != nil {
		return fmt.Errorf("capture the host as %q: %w", variants[v].name, err)
	}
	l.hosts[v] = h
	return nil
}

// host is the host as captured under the variant in use.
func (l *lab) host() *host.Host { return l.hosts[l.variant] }

// addrs of the node that a pool may name.
func addrs(texts ...string) []netip.Addr {
	out := make([]netip.Addr, len(texts))
	for i, s := range texts {
		out[i] = netip.MustParseAddr(s)
	}
	return out
}
