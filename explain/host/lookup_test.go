package host

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestType(t *testing.T) {
	node := load(t, "node-iptables-ip-addr.txt", "node-iptables-ip-route.txt")
	addrsOnly := load(t, "node-iptables-ip-addr.txt")
	ipvs := load(t, "case-36-ip-addr.txt")
	routesOnly := load(t, "case-28-ip-route.txt")
	objects := &Host{NodeAddrs: []netip.Addr{addr("172.18.0.11"), addr("fd00:18::11")}}
	oneFamily := load(t, "case-67-ip-addr.txt") // ip -4 addr
	for _, c := range []struct {
		host    string
		h       *Host
		addr    string
		want    string
		is      Known
		assumed bool
	}{
		{"node", node, "172.18.0.11", "local", Yes, false},
		{"node", node, "172.18.0.255", "broadcast", Yes, false},
		{"node", node, "172.18.0.0", "unicast", Yes, false},
		{"node", node, "127.9.9.9", "local", Yes, false},
		{"node", node, "10.96.0.1", "unicast", Yes, false},
		{"node", node, "0.0.0.0", "broadcast", Yes, false},
		{"node", node, "224.0.0.1", "multicast", Yes, false},
		{"node", node, "fd00:18::11", "local", Yes, false},
		{"node", node, "::ffff:172.18.0.11", "local", Yes, false},
		{"node", node, "fd00:18::", "anycast", Yes, false},
		{"node", node, "fd00:96::1", "unicast", Yes, false},
		{"node", node, "::", "unspec", Yes, false},
		{"node", node, "ff02::1", "multicast", Yes, false},
		{"addresses", addrsOnly, "172.18.0.11", "local", Yes, false},
		{"addresses", addrsOnly, "172.18.0.255", "broadcast", Yes, false},
		{"addresses", addrsOnly, "172.18.0.0", "", Unknown, false}, // by kernel release
		{"addresses", addrsOnly, "172.18.0.12", "unicast", Yes, false},
		{"addresses", addrsOnly, "::1", "local", Yes, false},
		{"addresses", addrsOnly, "fd00:96::1", "unicast", Yes, false},
		{"IPVS", ipvs, "203.0.113.30", "local", Yes, false},
		{"IPVS", ipvs, "203.0.113.31", "unicast", Yes, false},
		{"routes", routesOnly, "10.244.1.1", "local", Yes, false}, // a route's source
		{"routes", routesOnly, "10.244.1.9", "unicast", Yes, true},
		{"routes", routesOnly, "127.0.0.1", "local", Yes, false},
		{"objects", objects, "172.18.0.11", "local", Yes, true},
		{"objects", objects, "10.244.1.9", "unicast", Yes, true},
		{"objects", objects, "fd00:18::11", "local", Yes, true},
		{"ip -4 addr", oneFamily, "fd00:18::11", "", Unknown, false},
		{"ip -4 addr", oneFamily, "192.168.20.11", "local", Yes, false},
		{"nothing", &Host{}, "10.0.0.1", "", Unknown, false},
		{"nothing", &Host{}, "127.0.0.1", "local", Yes, false},
		{"nothing", &Host{}, "255.255.255.255", "broadcast", Yes, false},
		{"nothing", &Host{}, "::1", "local", Yes, false},
	} {
		got, f := c.h.Type(addr(c.addr))
		if got != c.want || f.Is != c.is || f.Assumed != c.assumed || f.Because == "" {
			t.Errorf("%s: %s: %q, %+v; want %q, %d, assumed %v", c.host, c.addr, got, f, c.want, c.is, c.assumed)
		}
	}
	if _, f := (&Host{}).Type(netip.Addr{}); f.Is != Unknown {
		t.Error("no address has no type")
	}
}

// TestLowestAddress: the kernel release decides what the lowest address of a network is.
func TestLowestAddress(t *testing.T) {
	for release, want := range map[string]string{"5.10.0": "broadcast", "5.14.0-70.el9": "unicast", "6.1.0": "unicast"} {
		h := host(t, map[string]string{"ip-addr": "2: eth0    inet 10.0.0.1/24 scope global eth0\n", "uname": "Linux a " + release})
		if got, _ := h.Type(addr("10.0.0.0")); got != want {
			t.Errorf("Linux %s: %s, want %s", release, got, want)
		}
	}
}

func TestOwnAddrs(t *testing.T) {
	for _, c := range []struct {
		h      *Host
		family int
		want   string
	}{
		{load(t, "node-iptables-ip-addr.txt", "node-iptables-ip-route.txt"), 4, "127.0.0.1 172.18.0.11"},
		{load(t, "node-iptables-ip-route.txt"), 4, "127.0.0.1 172.18.0.11"},
		{load(t, "case-36-ip-addr.txt"), 4, "10.96.0.1 10.96.62.9 127.0.0.1 192.168.10.11 203.0.113.30"},
		{load(t, "case-28-ip-route.txt"), 4, "10.0.2.15 10.244.1.1 192.168.10.11"},
		{&Host{NodeAddrs: []netip.Addr{addr("fd00::1"), addr("10.0.0.1")}}, 6, "::1 fd00::1"},
	} {
		var got []string
		for _, a := range c.h.OwnAddrs(c.family) {
			got = append(got, a.String())
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("got %s, want %s", s, c.want)
		}
	}
}

// via is a decision in one line.
func via(d Decision) string {
	s := d.Type
	if d.Out != "" {
		s += " " + d.Out
	}
	if len(d.Outs) > 0 {
		s += " " + strings.Join(d.Outs, "|")
	}
	if d.Via.IsValid() {
		s += " via " + d.Via.String()
	}
	if d.Src.IsValid() {
		s += " src " + d.Src.String()
	}
	return s
}

func TestRouteOfCases(t *testing.T) {
	eni := load(t, "case-67-ip-addr.txt", "case-67-ip-route.txt", "case-67-ip-rule.txt")
	overlap := load(t, "case-43-ip-addr.txt", "case-43-ip-route.txt")
	lab := load(t, "lab-ip-addr.txt", "lab-ip-route-all.txt", "lab-ip-rule-both.txt")
	rulesOnly := load(t, "case-58-ip-rule.txt")
	in := func(dev, src, dst string) Query { return Query{Src: addr(src), Dst: addr(dst), In: dev, InKnown: true} }
	own := func(dst string) Query { return Query{Dst: addr(dst), Local: true} }
	for _, c := range []struct {
		name string
		h    *Host
		q    Query
		want string
	}{
		{"to the pod", eni, in("eth0", "203.0.113.9", "10.244.1.140"), "unicast eni5f0aa1"},
		{"from the pod", eni, in("eni5f0aa1", "10.244.1.140", "203.0.113.9"), "unicast eth1 via 192.168.20.1"},
		{"own", eni, own("203.0.113.9"), "unicast eth0 via 192.168.10.1 src 192.168.10.11"},
		{"own to itself", eni, own("192.168.20.11"), "local lo src 192.168.20.11"},
		{"to the node", eni, in("eth1", "203.0.113.9", "192.168.20.11"), "local src 192.168.20.11"},
		{"cluster IP behind a pod network", overlap, own("10.96.0.10"), "unicast k8s src 10.96.0.1"},
		{"multipath", lab, in("w1", "10.4.0.9", "192.0.2.1"), "unicast v0|v1"},
		{"suppressed default goes on to main", lab, own("192.0.2.1"), "unicast v0|v1"},
		{"unreachable", lab, own("10.7.0.1"), "unreachable"},
		{"blackhole", lab, own("10.9.0.1"), "blackhole"},
		{"IPv6 prohibit", lab, own("fd00:9::1"), "prohibit"},
		{"IPv4 by an IPv6 gateway", lab, in("w1", "10.4.0.9", "10.6.0.1"), "unicast v0 via fe80::1"},
		{"preferred source", lab, own("10.5.0.1"), "unicast v1 src 10.0.1.1"},
		{"rules, and no routes", rulesOnly, in("eth0", "203.0.113.9", "10.244.1.9"), "unknown"},
		{"rules, and no routes, loopback", rulesOnly, own("127.0.0.1"), "local lo src 127.0.0.1"},
		{"nothing", &Host{}, own("10.0.0.1"), "unknown"},
		{"nothing, loopback", &Host{}, own("::1"), "local lo src ::1"},
		{"no destination", lab, Query{}, "unknown"},
	} {
		d := c.h.Route(c.q)
		if got := via(d); got != c.want || d.Because == "" {
			t.Errorf("%s: %s (%s), want %s", c.name, got, d.Because, c.want)
		}
	}
}

// TestRouteSaysWhatItRestsOn: what was not captured is assumed in words, or leaves the answer open.
func TestRouteSaysWhatItRestsOn(t *testing.T) {
	main := "default via 10.0.0.254 dev eth0\n10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.1\n"
	dst := Query{Src: addr("10.5.0.1"), Dst: addr("192.0.2.1"), In: "eth1", InKnown: true}
	addrs := "1: lo    inet 127.0.0.1/8 scope host lo\n2: eth0    inet 10.0.0.1/24 scope global eth0\n"
	rule := func(s string) string {
		return "0:\tfrom all lookup local\n" + s + "\n32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n"
	}
	for _, c := range []struct {
		name    string
		files   map[string]string
		q       Query
		want    string
		assumed bool
		because string
	}{
		{"everything", map[string]string{"ip-addr": addrs, "ip-route": main, "ip-rule": rule("")}, dst, "unicast eth0 via 10.0.0.254", false, "default via"},
		{"no rules", map[string]string{"ip-addr": addrs, "ip-route": main}, dst, "unicast eth0 via 10.0.0.254", false, "the kernel's own are assumed"},
		{"no rules, and a table that only rules lead to", map[string]string{"ip-addr": addrs, "ip-route": main + "default dev eth1 table 7\n"}, dst, "unicast eth0 via 10.0.0.254", true, "the kernel's own are assumed"},
		{"no addresses", map[string]string{"ip-route": main, "ip-rule": rule("")}, dst, "unicast eth0 via 10.0.0.254", true, "taken not to be one"},
		{"a table that was not captured", map[string]string{"ip-addr": addrs, "ip-route": main, "ip-rule": rule("9:\tfrom all lookup 7")}, dst, "unknown", false, "ip route show table 7"},
		{"… that is not asked", map[string]string{"ip-addr": addrs, "ip-route": main, "ip-rule": rule("9:\tfrom 10.6.0.0/16 lookup 7")}, dst, "unicast eth0 via 10.0.0.254", false, ""},
		{"… but is known to be empty", map[string]string{"ip-route": main + "local 10.0.0.1 dev eth0 table local proto kernel scope host src 10.0.0.1\n", "ip-rule": rule("9:\tfrom all lookup 7")}, dst, "unicast eth0 via 10.0.0.254", false, ""},
		{"a selector that is not evaluated", map[string]string{"ip-addr": addrs, "ip-route": main + "default dev eth1 table 7\n", "ip-rule": rule("9:\tfrom all ipproto tcp dport 80 lookup 7")}, dst, "unknown", false, "ipproto tcp dport 80 is not evaluated"},
		{"… and does not matter", map[string]string{"ip-addr": addrs, "ip-route": main + "10.9.0.0/16 dev eth1 table 7\n", "ip-rule": rule("9:\tfrom all ipproto tcp lookup 7")}, dst, "unicast eth0 via 10.0.0.254", false, ""},
		{"… and leads the same way", map[string]string{"ip-addr": addrs, "ip-route": main + "default via 10.0.0.254 dev eth0 table 7\n", "ip-rule": rule("9:\tfrom all uidrange 1-2 lookup 7")}, dst, "unicast eth0 via 10.0.0.254", false, ""},
		{"… and jumps over what does not matter", map[string]string{"ip-addr": addrs, "ip-route": main, "ip-rule": rule("9:\tfrom all uidrange 1-2 goto 32766")}, dst, "unicast eth0 via 10.0.0.254", false, ""},
		{"… and jumps over what matters", map[string]string{"ip-addr": addrs, "ip-route": main, "ip-rule": rule("9:\tfrom all uidrange 1-2 goto 32766\n10:\tfrom all blackhole")}, dst, "unknown", false, "uidrange 1-2 is not evaluated"},
		{"an interface that is not known", map[string]string{"ip-addr": addrs, "ip-route": main, "ip-rule": rule("9:\tfrom all iif eth7 prohibit")}, Query{Src: addr("10.5.0.1"), Dst: addr("192.0.2.1")}, "unknown", false, "the incoming interface is not known"},
		{"a source that is not known", map[string]string{"ip-addr": addrs, "ip-route": main, "ip-rule": rule("9:\tfrom 10.6.0.0/16 prohibit")}, Query{Dst: addr("192.0.2.1"), In: "eth1", InKnown: true}, "unknown", false, "the source address is not known"},
		{"VRF rules without a VRF", map[string]string{"ip-link": "3: eth1: <UP> mtu 1500\n", "ip-addr": addrs, "ip-route": main, "ip-rule": rule("1000:\tfrom all lookup [l3mdev-table]")}, dst, "unicast eth0 via 10.0.0.254", false, ""},
		{"a source that may not leave", map[string]string{"ip-addr": addrs, "ip-route": main, "ip-rule": rule(""), "sysctl": "net.ipv4.conf.all.route_localnet = 0\n"}, Query{Src: addr("127.0.0.1"), Dst: addr("192.0.2.1"), Local: true}, "none", true, "route_localnet is 0"},
		{"a source that may leave", map[string]string{"ip-addr": addrs, "ip-route": main, "ip-rule": rule(""), "sysctl": "net.ipv4.conf.all.route_localnet = 1\n"}, Query{Src: addr("127.0.0.1"), Dst: addr("192.0.2.1"), Local: true}, "unicast eth0 via 10.0.0.254 src 127.0.0.1", false, ""},
		{"a source of which nothing is known", map[string]string{"ip-addr": addrs, "ip-route": main, "ip-rule": rule("")}, Query{Src: addr("127.0.0.1"), Dst: addr("192.0.2.1"), Local: true}, "unknown", false, "route_localnet was captured"},
		{"a lost carrier", map[string]string{"ip-addr": addrs, "ip-route": main + "192.0.2.0/24 dev eth3 linkdown\n", "ip-rule": rule("")}, dst, "unicast eth3", false, ""},
		{"a lost carrier that counts", map[string]string{"ip-addr": addrs, "ip-route": main + "192.0.2.0/24 dev eth3 linkdown\n", "ip-rule": rule(""), "sysctl": "net.ipv4.conf.all.ignore_routes_with_linkdown = 1\n"}, dst, "unicast eth0 via 10.0.0.254", false, ""},
		{"a dead route", map[string]string{"ip-addr": addrs, "ip-route": main + "192.0.2.0/24 dev eth3 dead linkdown\n", "ip-rule": rule("")}, dst, "unicast eth0 via 10.0.0.254", false, ""},
		{"the lower metric", map[string]string{"ip-addr": addrs, "ip-route": main + "192.0.2.0/24 dev eth3 metric 20\n192.0.2.0/24 dev eth4 metric 10\n", "ip-rule": rule("")}, dst, "unicast eth4", false, ""},
		{"no route", map[string]string{"ip-addr": addrs, "ip-route": "10.0.0.0/24 dev eth0\n", "ip-rule": rule("")}, dst, "none", false, "no route to 192.0.2.1"},
	} {
		d := host(t, c.files).Route(c.q)
		if got := via(d); got != c.want || d.Assumed != c.assumed || !strings.Contains(d.Because, c.because) {
			t.Errorf("%s: %s, assumed %v (%s); want %s, assumed %v, because %q", c.name, got, d.Assumed, d.Because, c.want, c.assumed, c.because)
		}
	}
}

// TestNodeOfAnotherName: with captured routes and the addresses of all nodes, one of those may be this
// node's: the route stays open, as the type does.
func TestNodeOfAnotherName(t *testing.T) {
	h := host(t, map[string]string{"ip-route": "default via 10.0.0.254 dev eth0\n"})
	h.AnyNodeAddrs = []netip.Addr{addr("10.0.0.1"), addr("10.0.0.2")}
	if d := h.Route(Query{Dst: addr("10.0.0.1"), Local: true}); d.Type != "unknown" {
		t.Errorf("%+v", d)
	}
	if d := h.Route(Query{Dst: addr("10.244.0.1"), Local: true}); d.Type != "unicast" || !d.Assumed {
		t.Errorf("%+v", d)
	}
}

func TestReversePath(t *testing.T) {
	eni := []string{"case-67-ip-addr.txt", "case-67-ip-route.txt", "case-67-ip-rule.txt"}
	with := func(sysctls string, files ...string) *Host {
		h := load(t, files...)
		if sysctls == "" {
			return h
		}
		if _, err := ParseSysctls(h, sysctls, "sysctl.txt"); err != nil {
			t.Fatal(err)
		}
		return h
	}
	conf := func(all, eth0 string) string {
		return fmt.Sprintf("net.ipv4.conf.all.rp_filter = %s\nnet.ipv4.conf.eth0.rp_filter = %s\n", all, eth0)
	}
	for _, c := range []struct {
		name     string
		h        *Host
		in       string
		src, dst string
		want     Known
		because  string
	}{
		{"strict, back through another interface", load(t, append(eni, "case-67-sysctl.txt")...), "eth0", "203.0.113.9", "10.244.1.140", No, "eth1"},
		{"strict, to the node itself", load(t, append(eni, "case-67-sysctl.txt")...), "eth0", "203.0.113.9", "192.168.10.11", Yes, "eth0"},
		{"loose", with(conf("1", "2"), eni...), "eth0", "203.0.113.9", "10.244.1.140", Yes, "another interface"},
		{"off", with(conf("0", "0"), eni...), "eth0", "203.0.113.9", "10.244.1.140", Yes, ""},
		{"only all captured", with("net.ipv4.conf.all.rp_filter = 0\n", eni...), "eth0", "203.0.113.9", "10.244.1.140", Unknown, "rp_filter of eth0"},
		{"nothing captured, and the way back is right", with("", eni...), "eth0", "203.0.113.9", "192.168.10.11", Yes, ""},
		{"only all captured, and loose", with("net.ipv4.conf.all.rp_filter = 2\n", eni...), "eth0", "203.0.113.9", "10.244.1.140", Yes, ""},
		{"own address from outside", with(conf("0", "0"), eni...), "eth0", "192.168.10.11", "10.244.1.140", No, "own address"},
		{"no routes, off", with(conf("0", "0"), "case-67-ip-addr.txt"), "eth0", "203.0.113.9", "10.244.1.140", Yes, ""},
		{"no routes, strict", with(conf("0", "1"), "case-67-ip-addr.txt"), "eth0", "203.0.113.9", "10.244.1.140", Unknown, "ip route"},
		{"multicast source", with("", eni...), "eth0", "224.0.0.1", "10.244.1.140", No, "cannot be the source"},
		{"loopback destination", with("net.ipv4.conf.all.route_localnet = 0\nnet.ipv4.conf.eth0.route_localnet = 0", eni...), "eth0", "203.0.113.9", "127.0.0.1", No, "route_localnet"},
		{"loopback destination, not captured", with("", eni...), "eth0", "203.0.113.9", "127.0.0.1", Unknown, "route_localnet"},
		{"loopback destination let in", with("net.ipv4.conf.eth0.route_localnet = 1\n"+conf("0", "0"), eni...), "eth0", "203.0.113.9", "127.0.0.1", Yes, ""},
		{"own address, routed again on lo", with(conf("0", "0")+"net.ipv4.conf.lo.rp_filter = 0\n", eni...), "lo", "192.168.10.11", "10.244.1.140", No, "own address"},
		{"IPv6 loopback source on lo", with("", eni...), "lo", "::1", "fd00::1", Yes, "IPv6"},
		{"IPv6", with("", eni...), "eth0", "2001:db8::1", "fd00::1", Yes, "IPv6"},
		{"IPv6 loopback source", with("", eni...), "eth0", "::1", "fd00::1", No, ""},
		{"nothing known", &Host{}, "eth0", "203.0.113.9", "10.244.1.140", Unknown, ""},
	} {
		f := c.h.ReversePath(c.in, addr(c.src), addr(c.dst), 0)
		if f.Is != c.want || f.Because == "" || !strings.Contains(f.Because, c.because) {
			t.Errorf("%s: %+v, want %d because %q", c.name, f, c.want, c.because)
		}
	}
	f := load(t, append(eni, "case-67-sysctl.txt")...).ReversePath("eth0", addr("203.0.113.9"), addr("10.244.1.140"), 0)
	if f.File != "case-67-sysctl.txt" || f.Text == "" {
		t.Errorf("a refusal shows the setting: %+v", f.Evidence)
	}
}

func TestForwards(t *testing.T) {
	for _, c := range []struct {
		sysctls string
		family  int
		in      string
		want    Known
		assumed bool
	}{
		{"net.ipv4.ip_forward = 1", 4, "eth0", Yes, false},
		{"net.ipv4.ip_forward = 0", 4, "eth0", No, true},
		{"net.ipv4.ip_forward = 1\nnet.ipv4.conf.eth0.forwarding = 0", 4, "eth0", No, false},
		{"net.ipv4.ip_forward = 0\nnet.ipv4.conf.eth0/7.forwarding = 1", 4, "eth0.7", Yes, false},
		{"net.ipv4.conf.all.forwarding = 1", 4, "", Yes, false},
		{"net.ipv4.ip_forward = 1", 6, "eth0", Unknown, false},
		{"net.ipv6.conf.all.forwarding = 1", 6, "eth0", Yes, false},
		{"net.ipv6.conf.all.forwarding = 0\nnet.ipv6.conf.eth0.forwarding = 1", 6, "eth0", No, false},
		{"net.ipv6.conf.all.forwarding = 0\nnet.ipv6.conf.eth0.force_forwarding = 1", 6, "eth0", Yes, false},
		{"net.core.somaxconn = 1", 4, "eth0", Unknown, false},
	} {
		f := host(t, map[string]string{"sysctl": c.sysctls}).Forwards(c.family, c.in)
		if f.Is != c.want || f.Assumed != c.assumed || f.Because == "" {
			t.Errorf("%q, IPv%d %s: %+v, want %d", c.sysctls, c.family, c.in, f, c.want)
		}
	}
}

func TestMasqueradeAddr(t *testing.T) {
	h := load(t, "lab-ip-addr.txt")
	for _, c := range []struct{ out, dst, via, want string }{
		{"v0", "192.0.2.1", "10.0.0.2", "10.0.0.1"},
		{"v1", "192.0.2.1", "10.2.0.2", "10.2.0.1"}, // the gateway is the far end of a point-to-point address
		{"v1", "192.0.2.1", "", "10.0.1.1"},
		{"v0", "2001:db8::1", "fd00:1::2", "fd00:1::1"},
		{"v1", "fd00:2::9", "", "fd00:2::1"},
		{"br0", "192.0.2.1", "", "10.0.0.1"}, // no address there: one of another interface
	} {
		got, f := h.MasqueradeAddr(c.out, addr(c.dst), addr(c.via))
		if got != addr(c.want) || f.Is != Yes || f.Text == "" {
			t.Errorf("%+v: %s, %+v", c, got, f)
		}
	}
	if _, f := (&Host{}).MasqueradeAddr("eth0", addr("192.0.2.1"), netip.Addr{}); f.Is != Unknown {
		t.Errorf("without addresses: %+v", f)
	}
}

func TestHasTypeOfIPv6(t *testing.T) {
	h := load(t, "lab-ip-addr.txt", "lab-ip-route-all.txt", "lab-ip-6-rule.txt")
	got := map[string]string{}
	for _, a := range []string{"fd00:1::1", "fd00:1::5", "fd00:9::1", "ff02::1", "::"} {
		for _, kind := range []string{"unicast", "local", "multicast", "unspec", "unreachable", "prohibit"} {
			if h.HasType(addr(a), kind).Is == Yes {
				got[a] += kind + " "
			}
		}
	}
	if diff := cmp.Diff(map[string]string{
		"fd00:1::1": "unicast local ", "fd00:1::5": "unicast ", "fd00:9::1": "unicast unreachable ", "ff02::1": "multicast ", "::": "unspec ",
	}, got); diff != "" {
		t.Error(diff)
	}
}

// TestListener: a socket on the address is reached before one on any, and an IPv6-only one by IPv6 alone.
func TestListener(t *testing.T) {
	h := load(t, "lab-ss-H.txt", "case-27-ss.txt")
	for _, c := range []struct {
		addr string
		port uint16
		want string
	}{
		{"127.0.0.1", 8080, "127.0.0.1"}, {"10.0.0.1", 8080, ""}, {"10.0.0.1", 9090, "::"}, {"10.0.0.1", 9091, ""}, {"fd00::1", 9091, "::"},
		{"10.0.0.1", 32445, "0.0.0.0"}, {"fd00::1", 32445, ""},
	} {
		got := ""
		if s := h.Listener(6, addr(c.addr), c.port); s != nil {
			got = s.Addr.String()
		}
		if got != c.want {
			t.Errorf("%s:%d: %q, want %q", c.addr, c.port, got, c.want)
		}
	}
}

// TestQuestionsInBetween: what is captured after a question counts for the next one, and questions can be
// asked by several at once.
func TestQuestionsInBetween(t *testing.T) {
	h := load(t, "case-67-ip-addr.txt")
	if kind, _ := h.Type(addr("10.1.1.1")); kind != "unicast" {
		t.Fatal(kind)
	}
	if _, err := ParseAddrs(h, "9: kube-ipvs0    inet 10.1.1.1/32 scope global kube-ipvs0\n", "more.txt"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if kind, _ := h.Type(addr("10.1.1.1")); kind != "local" {
				t.Error(kind)
			}
		})
	}
	wg.Wait()
}

// nodeWithVIPs is an IPVS node with n addresses on kube-ipvs0.
func nodeWithVIPs(n int) string {
	var b strings.Builder
	b.WriteString("1: lo    inet 127.0.0.1/8 scope host lo\n2: eth0    inet 192.168.10.11/24 scope global eth0\n")
	for i := range n {
		fmt.Fprintf(&b, "3: kube-ipvs0    inet 10.%d.%d.%d/32 scope global kube-ipvs0\\       valid_lft forever preferred_lft forever\n", 96+i>>16, i>>8&255, i&255)
	}
	return b.String()
}

func BenchmarkParseAddrs(b *testing.B) {
	text := nodeWithVIPs(10000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := ParseAddrs(&Host{}, text, "f"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkType(b *testing.B) {
	h := &Host{}
	if _, err := ParseAddrs(h, nodeWithVIPs(10000), "f"); err != nil {
		b.Fatal(err)
	}
	a, other := addr("10.96.17.4"), addr("10.244.1.9")
	for b.Loop() {
		h.Type(a)
		h.Type(other)
	}
}
