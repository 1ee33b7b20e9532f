package collectors

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/host"
)

const labRoutes = `
	ip route add default via 10.0.0.254 dev eth0
	ip route add default via 10.0.0.253 dev eth0 metric 100 proto dhcp src 10.0.0.1
	ip route add 10.30.0.0/16 via 10.1.0.254 dev cni0 mtu 1400 advmss 1300
	ip route add 10.30.1.0/24 via 10.1.0.254 dev cni0 mtu lock 1300 initcwnd 20
	ip route add 10.30.4.0/24 via 10.0.0.254 dev eth0 metric 50
	ip route add 10.30.4.0/24 via 10.0.0.254 dev eth0 tos 0x10
	ip route add 10.30.5.0/24 dev eth0.100
	ip route add 10.30.6.0/24 via 10.1.0.254 dev cni0 src 10.96.0.10 realm 7
	ip route add 10.30.7.0/24 via 172.16.0.1 dev eth0 onlink
	ip route add blackhole 10.40.0.0/16
	ip route add unreachable 10.50.0.0/16
	ip route add prohibit 10.60.0.0/16
	ip route add throw 10.70.0.0/16
	ip route add 10.90.0.0/16 nexthop via 10.0.0.254 dev eth0 weight 3 nexthop via 10.1.0.254 dev cni0 weight 255
	ip route add 10.91.0.0/16 nexthop via 10.0.0.254 dev eth0 nexthop via inet6 fe80::9 dev cni0
	ip route add local 10.80.0.0/16 dev lo
	ip route add default via 10.1.0.254 dev cni0 table 100
	ip route add throw 10.0.0.0/16 table 100
	ip route add 10.0.0.0/8 dev eth0.100 table 4711 proto bird scope link
	ip route add 10.0.0.0/8 dev eth0.100 table default proto 201
	ip route add 10.99.0.0/16 encap ip id 7 dst 10.0.0.9 via 10.0.0.254 dev eth0
	ip nexthop add id 5 via 10.0.0.252 dev eth0
	ip nexthop add id 6 via 10.1.0.252 dev cni0
	ip nexthop add id 9 group 5,2/6,4
	ip route add 10.98.0.0/16 nhid 5
	ip route add 10.97.0.0/16 nhid 9
	ip -6 route add default via fd00:1::fe dev eth0
	ip -6 route add fd00:2::/64 dev cni0
	ip -6 route add fd00:30::/64 via fd00:2::fe dev cni0 metric 50 pref high
	ip -6 route add fd00:30::/64 via fd00:1::fe dev eth0 metric 60 pref low
	ip -6 route add fd00:31::/64 from fd00:77::/48 via fd00:1::fe dev eth0
	ip -6 route add fd00:32::/64 dev eth0.100 src fd00:1::1 mtu 1280 hoplimit 9
	ip -6 route add blackhole fd00:4::/64
	ip -6 route add unreachable fd00:5::/64
	ip -6 route add prohibit fd00:6::/64
	ip -6 route add throw fd00:7::/64 table 100
	ip -6 route add default via fd00:2::fe dev cni0 table 100 expires 1000
	ip -6 route add local fd00:8::/64 dev lo
	ip -6 route add fd00:9::/64 nexthop via fd00:1::fe dev eth0 weight 2 nexthop via fd00:2::fe dev cni0
`

func TestReadRoutes(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		nodeLab(t)
		build(t, labRoutes)
		rnd := rand.New(rand.NewPCG(3, 4))
		var b strings.Builder
		for i := range 40 {
			dev, via := "eth0", "10.0.0.254"
			if rnd.IntN(2) == 0 {
				dev, via = "cni0", "10.1.0.254"
			}
			fmt.Fprintf(&b, "ip route add 172.%d.%d.0/24 via %s dev %s metric %d table %d proto %d\n", 16+rnd.IntN(16), i, via, dev, rnd.IntN(1<<16), 1+rnd.IntN(2000), 3+rnd.IntN(250))
			fmt.Fprintf(&b, "ip -6 route add fd00:%x:%x::/%d dev %s metric %d table %d\n", 0x1000+rnd.IntN(1000), i, 48+rnd.IntN(81), dev, 1+rnd.IntN(1<<16), 1+rnd.IntN(2000))
		}
		// A route through an interface that then loses its carrier, and one that dies with it.
		b.WriteString("ip link set veth4 up; ip addr add 10.44.0.1/24 dev veth4; ip route add 10.45.0.0/16 via 10.44.0.2; ip link set veth3 down\n")
		build(t, b.String())
		settled(t)
		got := readTwice(t, p, readRoutes)
		for _, c := range []struct {
			family int
			file   string
		}{{4, "ip-route.txt"}, {6, "ip6-route.txt"}} {
			e := readOne(t, p, readRoutes, c.file)
			if e.Status != snapshot.OK || e.Family != c.family {
				t.Errorf("%s: %s of family %d: %s", e.File, e.Status, e.Family, e.Error)
			}
			native := parsed(t, host.ParseRoutes, c.family, nativeRoutes(t, c.family), c.file)
			ours := parsed(t, host.ParseRoutes, c.family, string(e.Data), c.file)
			sameHost(t, c.file, native, ours)
			if !ours.HasAllTables[c.family] || !ours.HasLocalTable[c.family] || !ours.HasRoutes[c.family] {
				t.Errorf("%s does not say that it is all: %v %v %v", c.file, ours.HasRoutes, ours.HasLocalTable, ours.HasAllTables)
			}
			if t.Failed() {
				t.Logf("%s", e.Data)
			}
		}
		bundled(t, got...)
		// "via inet6" shows both families to those who look at addresses alone.
		shell(t, "ip route del 10.91.0.0/16")
		roundTrips(t, readRoutes(t.Context(), p)...)
	})
}

// nativeRoutes are the routes as ip shows them, without the lines of -d that repeat a next hop object.
func nativeRoutes(t *testing.T, family int) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(shell(t, fmt.Sprintf("ip -%d -d route show table all", family))) {
		if !strings.HasPrefix(line, "\tnh_info ") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

func TestReadRoutesOfNothing(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		for _, e := range readRoutes(t.Context(), p) {
			if e.Status != snapshot.Empty || e.Family == 0 {
				t.Errorf("%s: %s, family %d: %s", e.File, e.Status, e.Family, e.Data)
			}
		}
		bundled(t, readRoutes(t.Context(), p)...)
	})
}

const labRules = `
	ip link add cni0 type bridge
	ip rule add pref 100 from 10.96.0.0/16 lookup 100
	ip rule add pref 110 from 10.96.0.7 to 10.97.0.0/16 lookup 4711
	ip rule add pref 200 fwmark 0x80/0xf0 lookup 100
	ip rule add pref 210 fwmark 7 lookup 100
	ip rule add pref 300 not from 10.0.0.0/8 iif cni0 lookup 200
	ip rule add pref 310 iif nosuch oif cni0 lookup 200
	ip rule add pref 320 oif nosuch lookup 200
	ip rule add pref 400 to 10.3.9.0/24 prohibit
	ip rule add pref 410 to 10.3.9.0/24 unreachable
	ip rule add pref 420 to 10.3.9.0/24 blackhole
	ip rule add pref 430 from 10.3.9.0/24 nop
	ip rule add pref 500 fwmark 0x1 goto 700
	ip rule add pref 510 fwmark 0x1 goto 32700
	ip rule add pref 600 tos 0x10 iif lo lookup 200
	ip rule add pref 610 uidrange 1000-2000 lookup 200
	ip rule add pref 620 ipproto tcp sport 1-99 dport 53 lookup 200
	ip rule add pref 630 ipproto udp dport 53 lookup 200
	ip rule add pref 640 tun_id 7 lookup 200
	ip rule add pref 650 l3mdev protocol static
	ip rule add pref 700 fwmark 0x3/0x3 lookup main suppress_prefixlength 0
	ip rule add pref 710 lookup main suppress_ifgroup 7
	ip rule add pref 720 from 10.1.0.0/16 lookup 200 realms 3/4
	ip -6 rule add pref 100 from fd00:96::/64 lookup 100
	ip -6 rule add pref 110 from fd00:96::1 to fd00:97::1 lookup 100
	ip -6 rule add pref 200 fwmark 0x80/0xf0 lookup 100
	ip -6 rule add pref 300 not from fd00::/8 iif cni0 lookup 200
	ip -6 rule add pref 400 to fd00:3:9::/64 prohibit
	ip -6 rule add pref 500 fwmark 0x1 goto 700
	ip -6 rule add pref 620 ipproto tcp sport 1-99 dport 53 lookup 200
	ip -6 rule add pref 700 fwmark 0x3/0x3 lookup main suppress_prefixlength 0
	ip -6 rule add pref 800 fwmark 0x3 blackhole
`

func TestReadRules(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		needs(t, "ip")
		build(t, labRules)
		rnd := rand.New(rand.NewPCG(5, 6))
		var b strings.Builder
		for i := range 40 {
			selectors := []string{fmt.Sprintf("fwmark %#x/%#x", rnd.Uint32(), rnd.Uint32()|1), "iif cni0", "oif cni0", "iif gone",
				fmt.Sprintf("ipproto tcp dport %d-%d", 1+i, 100+rnd.IntN(60000)), fmt.Sprintf("from 10.%d.0.0/16", i), "not"}
			words := []string{selectors[i%6]}
			if rnd.IntN(3) == 0 {
				words = append(words, "not")
			}
			fmt.Fprintf(&b, "ip rule add pref %d %s lookup %d\n", 2000+i, strings.Join(words, " "), 1+rnd.IntN(5000))
		}
		build(t, b.String())
		got := readTwice(t, p, readRules)
		roundTrips(t, got...)
		for _, c := range []struct {
			family int
			file   string
		}{{4, "ip-rule.txt"}, {6, "ip6-rule.txt"}} {
			e := readOne(t, p, readRules, c.file)
			native := parsed(t, host.ParseRules, c.family, shell(t, fmt.Sprintf("ip -%d rule show", c.family)), c.file)
			ours := parsed(t, host.ParseRules, c.family, string(e.Data), c.file)
			sameHost(t, c.file, native, ours)
			if t.Failed() {
				t.Logf("%s", e.Data)
			}
		}
	})
}

// TestRuleOfTomorrow gives a rule a selector that nobody knows yet.
func TestRuleOfTomorrow(t *testing.T) {
	m := append([]byte{2, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0}, 8, 0, 99, 0, 1, 2, 3, 4)
	var b bytes.Buffer
	writeRule(&b, 2, m)
	if want := "0:\tfrom all selector-99 lookup main\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	h := parsed(t, host.ParseRules, 4, b.String(), "ip-rule.txt")
	if len(h.Rules) != 1 || h.Rules[0].Other == "" {
		t.Errorf("%+v", h.Rules)
	}
}

// messageText decodes a message as each kind that has text.
func messageText(ls links, family int, m []byte) string {
	var b bytes.Buffer
	writeRoute(&b, ls, family, m)
	writeRule(&b, family, m)
	writePort(&b, ls, m)
	return b.String()
}
