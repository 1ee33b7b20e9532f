package host

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

func TestAddrs(t *testing.T) {
	h := load(t, "lab-ip-addr.txt", "lab-ip-d-link.txt")
	if !h.HasAddrs || !h.HasLinks {
		t.Error("HasAddrs and HasLinks must be set")
	}
	want := []Addr{
		{Link: "lo", Prefix: netip.MustParsePrefix("127.0.0.1/8"), Scope: "host"},
		{Link: "lo", Prefix: netip.MustParsePrefix("::1/128"), Scope: "host"},
		{Link: "v0", Prefix: netip.MustParsePrefix("10.0.0.1/24"), Scope: "global", Broadcast: addr("10.0.0.255")},
		{Link: "v0", Prefix: netip.MustParsePrefix("10.0.0.7/24"), Scope: "global", Flags: []string{"secondary"}},
	}
	if diff := cmp.Diff(want, h.Addrs[:4], ignoreEvidence, compareAddrs); diff != "" {
		t.Error(diff)
	}
	peer := h.Addrs[7]
	if peer.Prefix.String() != "10.2.0.1/32" || peer.Peer.String() != "10.2.0.2/32" {
		t.Errorf("point-to-point address: %+v", peer)
	}
	kinds := map[string]string{}
	for _, l := range h.Links {
		kinds[l.Name] = l.Kind + " " + l.Master + " " + l.Peer
	}
	if diff := cmp.Diff(map[string]string{
		"lo": "  ", "v0": "veth  if2", "v1": "veth  if3", "br0": "bridge  ", "w1": "veth  w0", "w0": "veth br0 w1",
		"x1": "veth  x0", "x0": "veth br0 x1", "vx1": "vxlan  ",
	}, kinds); diff != "" {
		t.Error(diff)
	}
	if w0, x0, br := h.Link("w0"), h.Link("x0"), h.Link("br0"); w0.Hairpin != Yes || x0.Hairpin != No || br.Hairpin != Unknown || !br.HasFlag("PROMISC") || !w0.Up {
		t.Errorf("bridge port flags: %+v %+v %+v", w0, x0, br)
	}
	if h.Link("eth0") != nil {
		t.Error("an interface that is not there")
	}
}

func TestAddrLines(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"2: eth0    inet 10.0.0.4/24 metric 100 brd 10.0.0.255 scope global dynamic eth0", "eth0 inet 10.0.0.4/24 brd 10.0.0.255 scope global dynamic eth0"},
		{"    inet 10.0.0.4/24 brd 10.0.0.255 scope global eth0:1", "eth0 inet 10.0.0.4/24 brd 10.0.0.255 scope global eth0"},
		{"eth0@if5   UP   10.0.0.4/24", "eth0 inet 10.0.0.4/24 eth0"},
		{"wg0 UNKNOWN 10.9.0.1 peer 10.9.0.2/32", "wg0 inet 10.9.0.1 peer 10.9.0.2/32 wg0"},
		{"3: eth1    inet6 fe80::1/64 scope link tentative dadfailed \\       valid_lft forever preferred_lft forever", "eth1 inet6 fe80::1/64 scope link tentative dadfailed eth1"},
		{`[{"ifname":"eth0","flags":["UP"],"addr_info":[{},{"family":"inet","local":"10.0.0.4","prefixlen":24,"scope":"global"}]}]`, "eth0 inet 10.0.0.4/24 scope global eth0"},
	} {
		h := &Host{}
		problems, err := ParseAddrs(h, c.text, "f")
		if err != nil || len(problems) > 0 || len(h.Addrs) != 1 {
			t.Errorf("%s: %d addresses, %v, %v", c.text, len(h.Addrs), problems, err)
			continue
		}
		if got := h.Addrs[0].Link + " " + h.Addrs[0].String(); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

func TestRoutes(t *testing.T) {
	h := load(t, "lab-ip-route-all.txt")
	for family, want := range map[int][3]bool{4: {true, true, true}, 6: {true, true, true}} {
		if got := [3]bool{h.HasRoutes[family], h.HasLocalTable[family], h.HasAllTables[family]}; got != want {
			t.Errorf("IPv%d: has routes, local table, all tables: %v", family, got)
		}
	}
	var got []string
	for _, r := range h.Routes {
		if r.Table == "local" || r.Family == 6 && r.Dst.Addr().IsLinkLocalUnicast() {
			continue
		}
		got = append(got, r.Table+": "+r.String())
	}
	if diff := cmp.Diff([]string{
		"100: throw 10.8.0.0/16",
		"main: default nexthop via 10.0.0.2 dev v0 nexthop via 10.0.1.2 dev v1",
		"main: 10.0.0.0/24 dev v0 src 10.0.0.1",
		"main: 10.0.1.0/24 dev v1 src 10.0.1.1",
		"main: 10.2.0.2 dev v1 src 10.2.0.1",
		"main: 10.4.0.0/16 dev w1",
		"main: 10.5.0.0/16 dev v1 src 10.0.1.1 metric 50",
		"main: 10.6.0.0/16 via fe80::1 dev v0",
		"main: unreachable 10.7.0.0/16 metric 5",
		"main: blackhole 10.9.0.0/16",
		"100: throw fd00:8::/64 dev lo metric 1024",
		"main: fd00:1::/64 dev v0 metric 256",
		"main: fd00:2::/64 dev v1 metric 256",
		"main: prohibit fd00:9::/64 dev lo metric 1024",
		"main: default metric 1024 nexthop via fd00:1::2 dev v0 nexthop via fd00:2::2 dev v1",
	}, got); diff != "" {
		t.Error(diff)
	}
	if hops := h.Routes[1].NextHops; hops[1].Weight != 2 {
		t.Errorf("weights: %+v", hops)
	}
}

func TestRouteTables(t *testing.T) {
	// Headings and table names on the line say the same.
	h := load(t, "case-67-ip-route.txt")
	var got []string
	for _, r := range h.Routes {
		got = append(got, r.Table)
	}
	if diff := cmp.Diff([]string{"main", "main", "main", "2", "2"}, got); diff != "" || !h.HasRoutes[4] || h.HasLocalTable[4] || h.HasAllTables[4] || h.HasRoutes[6] {
		t.Errorf("%s: %+v", diff, h)
	}
	// A listing of the local table alone says nothing of main.
	h = load(t, "case-49-ip-route-local.txt")
	if !h.HasLocalTable[4] || h.HasRoutes[4] || h.HasAllTables[4] || h.HasLocalTable[6] {
		t.Errorf("local table: %v %v %v", h.HasLocalTable, h.HasRoutes, h.HasAllTables)
	}
	for _, c := range []struct {
		file, text, table string
		family            int
	}{
		{"ip-route.txt", "default dev ppp0 scope link", "main", 4},
		{"ip-6-route.txt", "blackhole default", "main", 6},
		{"ip-route.txt", "fd00::/64 dev eth0 metric 256\ndefault dev wg0", "main", 6},
		{"ip-route.txt", "blackhole default\nfd00::/64 dev eth0 metric 256", "main", 6},
		{"ip-route.txt", "default dev wg0 metric 1024 pref medium", "main", 6},
		{"ip-route-table-200.txt", "default via 10.0.0.1 dev eth0", "200", 4},
		{"ip-route.txt", "# ip route show table 200\ndefault via 10.0.0.1 dev eth0", "200", 4},
		{"ip-route.txt", "root@node-a:~# ip -6 route show table 7\ndefault dev eth0", "7", 6},
		{"ip-route.txt", "10.0.0.0/8 via 10.0.0.1 dev eth0 table 254", "main", 4},
		{"ip-route.txt", "10.1.2.3 encap ip id 7 src 10.0.0.1 dst 10.0.0.2 ttl 0 tos 0 via 10.0.0.254 dev tun0", "main", 4},
	} {
		h := &Host{}
		problems, err := ParseRoutes(h, 0, c.text, c.file)
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v, %v", c.text, problems, err)
			continue
		}
		for _, r := range h.Routes {
			if r.Table != c.table || r.Family != c.family || (r.Dst.Addr().Is4()) != (c.family == 4) || r.Src.IsValid() {
				t.Errorf("%s (%s): %+v, want table %s of IPv%d", c.text, c.file, r, c.table, c.family)
			}
		}
	}
	r := host(t, map[string]string{"ip-route.txt": "10.1.0.0/16 via 10.0.0.1 dev eth0 linkdown\n10.2.0.0/16 via 10.0.0.1 dev eth1 dead linkdown\n10.3.0.0/16 dev x onlink\n"}).Routes
	if !r[0].Dead || !r[0].LinkDown || !r[1].Dead || r[1].LinkDown || r[2].Dead {
		t.Errorf("flags: %+v", r)
	}
}

func TestRules(t *testing.T) {
	h := load(t, "lab-ip-rule-both.txt")
	var got []string
	for _, r := range h.Rules {
		got = append(got, map[int]string{4: "4 ", 6: "6 "}[r.Family]+r.String())
	}
	if diff := cmp.Diff([]string{
		"4 0: from all lookup local",
		"4 100: not from 10.0.0.0/8 to 10.3.0.0/16 fwmark 0x1/0xf iif v0 lookup 100",
		"4 200: from all uidrange 5-6 ipproto tcp dport 80-90 lookup 100",
		"4 300: from all lookup main suppress_prefixlength 0",
		"4 400: from all iif zz9 [detached] goto 500",
		"4 500: from all to 10.77.0.0/16 blackhole",
		"4 32766: from all lookup main",
		"4 32767: from all lookup default",
		"6 0: from all lookup local",
		"6 200: from fd00:1::/64 fwmark 0x80 lookup 100",
		"6 32766: from all lookup main",
	}, got); diff != "" {
		t.Error(diff)
	}
	if !h.HasRules[4] || !h.HasRules[6] {
		t.Errorf("has rules: %v", h.HasRules)
	}
	// Only IPv4 has a rule for the default table, and a file may say what it is.
	for file, family := range map[string]int{"ip-rule.txt": 6, "ip-6-rule.txt": 6} {
		h := host(t, map[string]string{file: "0:\tfrom all lookup local\n32766:\tfrom all lookup main\n"})
		if h.Rules[0].Family != family || len(h.HasRules) != 1 {
			t.Errorf("%s: %+v", file, h.Rules)
		}
	}
}

func TestSysctlNames(t *testing.T) {
	h := host(t, map[string]string{"sysctl.txt": strings.Join([]string{
		"net.ipv4.ip_forward = 1",
		"net.ipv4.conf.eth0/100.rp_filter = 2",
		"net.core.somaxconn: 4096",
		"net.ipv4.tcp_syncookies=1",
		"/proc/sys/net/ipv4/conf/all/rp_filter:1",
		"/proc/sys/net/ipv4/conf/eth1.7/rp_filter = 0",
		"net/ipv4/conf/br0.1/forwarding = 1",
		"net.ipv4.ip_local_port_range = 32768\t60999",
		"kernel.core_pattern = |/lib/x %p=%s",
		"net.ipv4.ip_local_reserved_ports = ",
		"# sysctl -a | head",
	}, "\n")})
	want := map[string]string{
		"net.ipv4.ip_forward": "1", "net.ipv4.conf.eth0/100.rp_filter": "2", "net.core.somaxconn": "4096", "net.ipv4.tcp_syncookies": "1",
		"net.ipv4.conf.all.rp_filter": "1", "net.ipv4.conf.eth1/7.rp_filter": "0", "net.ipv4.conf.br0/1.forwarding": "1",
		"net.ipv4.ip_local_port_range": "32768\t60999", "kernel.core_pattern": "|/lib/x %p=%s", "net.ipv4.ip_local_reserved_ports": "",
	}
	if diff := cmp.Diff(want, h.Sysctls); diff != "" {
		t.Error(diff)
	}
	if v, ev, ok := h.Sysctl("net.ipv4.conf.all.rp_filter"); v != "1" || !ok || ev.Line != 5 {
		t.Errorf("%q %+v %v", v, ev, ok)
	}
	// What could not be read is not there, and said.
	h = &Host{}
	problems, err := ParseSysctls(h, "net.ipv4.ip_forward = 1\nsysctl: permission denied on key 'net.ipv4.tcp_fastopen_key'\n", "f")
	if err != nil || len(problems) != 1 || problems[0].Line != 2 || len(h.Sysctls) != 1 {
		t.Errorf("%v %v %v", problems, err, h.Sysctls)
	}
}

func TestConntrack(t *testing.T) {
	h := load(t, "case-12-conntrack.txt")
	want := Flow{
		Proto: 17, Family: 4, Src: addr("10.244.1.7"), Dst: addr("10.96.40.9"), SrcPort: 43145, DstPort: 8125,
		ReplySrc: addr("10.244.2.88"), ReplyDst: addr("10.244.1.7"), ReplySrcPort: 8125, ReplyDstPort: 43145, Unreplied: true, Timeout: 29,
	}
	if diff := cmp.Diff(want, h.Flows[0], ignoreEvidence, compareAddrs); diff != "" {
		t.Error(diff)
	}
	if f := h.FlowOf(6, addr("10.244.1.7"), 41000, addr("10.96.0.1"), 443); f == nil || f.State != "ESTABLISHED" || !f.Assured || f.Line != 3 {
		t.Errorf("FlowOf: %+v", f)
	}
	if f := h.ReplyOf(6, addr("192.168.10.10"), 6443, addr("10.244.1.7"), 41000); f == nil || f.DstPort != 443 {
		t.Errorf("ReplyOf: %+v", f)
	}
	if f := h.FlowOf(17, addr("10.244.1.7"), 41000, addr("10.96.0.1"), 443); f != nil {
		t.Errorf("a UDP flow that is not there: %+v", f)
	}
	for _, c := range []struct {
		line string
		want Flow
	}{
		{"sctp     132 8 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=5 dport=6 src=10.0.0.2 dst=10.0.0.1 sport=6 dport=5 [ASSURED] mark=16384 zone=3 use=1",
			Flow{Proto: 132, Family: 4, State: "ESTABLISHED", Src: addr("10.0.0.1"), Dst: addr("10.0.0.2"), SrcPort: 5, DstPort: 6, ReplySrc: addr("10.0.0.2"), ReplyDst: addr("10.0.0.1"), ReplySrcPort: 6, ReplyDstPort: 5, Mark: 0x4000, Assured: true, Timeout: 8, Zone: 3}},
		{"tcp      6 src=10.0.0.1 dst=10.0.0.2 sport=5 dport=6 packets=3 bytes=180 src=10.0.0.2 dst=10.0.0.1 sport=6 dport=5 packets=1 bytes=60 [OFFLOAD] mark=0x80 secctx=system_u:object_r:x use=1",
			Flow{Proto: 6, Family: 4, Src: addr("10.0.0.1"), Dst: addr("10.0.0.2"), SrcPort: 5, DstPort: 6, ReplySrc: addr("10.0.0.2"), ReplyDst: addr("10.0.0.1"), ReplySrcPort: 6, ReplyDstPort: 5, Mark: 0x80, Offloaded: true}},
		{"unknown  2 599 src=10.0.0.1 dst=224.0.0.1 [UNREPLIED] src=224.0.0.1 dst=10.0.0.1 mark=0 use=1",
			Flow{Proto: 2, Family: 4, Src: addr("10.0.0.1"), Dst: addr("224.0.0.1"), ReplySrc: addr("224.0.0.1"), ReplyDst: addr("10.0.0.1"), Unreplied: true, Timeout: 599}},
	} {
		h := host(t, map[string]string{"conntrack.txt": c.line})
		if diff := cmp.Diff(c.want, h.Flows[0], ignoreEvidence, compareAddrs); diff != "" {
			t.Errorf("%s:\n%s", c.line, diff)
		}
	}
}

func TestConntrackSaysWhatIsMissing(t *testing.T) {
	flow := "udp 17 29 src=10.0.0.1 dst=10.0.0.2 sport=5 dport=6 src=10.0.0.2 dst=10.0.0.1 sport=6 dport=5\n"
	h := &Host{}
	if problems, err := ParseConntrack(h, "conntrack v1.4.7 (conntrack-tools): 0 flow entries have been shown.\n", "f"); err != nil || len(problems) > 0 || !h.HasFlows {
		t.Errorf("an empty table: %v %v %v", problems, err, h.HasFlows)
	}
	for name, text := range map[string]string{
		"cut":    flow + "conntrack v1.4.7 (conntrack-tools): 2 flow entries have been shown.\n",
		"event":  flow + "    [NEW] udp 17 30 src=10.0.0.1 dst=10.0.0.2 sport=5 dport=6 [UNREPLIED] src=10.0.0.2 dst=10.0.0.1 sport=6 dport=5\n",
		"broken": flow + "udp 17 29 src=10.0.0.1 dst=10.0.0.2 sport=99999 dport=6 src=10.0.0.2 dst=10.0.0.1 sport=6 dport=5\n",
		"half":   flow + "udp 17 29 src=10.0.0.1 dst=10.0.0.2 sport=5 dport=6\n",
	} {
		h := &Host{}
		problems, err := ParseConntrack(h, text, "f")
		if err != nil || len(problems) != 1 || problems[0].Line != 2 || len(h.Flows) != 1 {
			t.Errorf("%s: %v %v, %d flows", name, problems, err, len(h.Flows))
		}
	}
}

func TestSockets(t *testing.T) {
	h := load(t, "case-27-ss.txt")
	if diff := cmp.Diff([]Socket{
		{Proto: 6, Addr: addr("0.0.0.0"), Port: 32445, Process: "legacy-agent", PID: 2211},
		{Proto: 6, Addr: addr("127.0.0.1"), Port: 10248, Process: "kubelet", PID: 902},
	}, h.Sockets, ignoreEvidence, compareAddrs); diff != "" {
		t.Error(diff)
	}
	want := []Socket{
		{Proto: 17, Addr: addr("0.0.0.0"), Port: 68, Device: "v0"},
		{Proto: 17, Addr: addr("0.0.0.0"), Port: 34448},
		{Proto: 17, Addr: addr("0.0.0.0"), Port: 57670},
		{Proto: 17, Addr: addr("::"), Port: 5353, V6Only: No},
		{Proto: 6, Addr: addr("127.0.0.1"), Port: 8080},
		{Proto: 6, Addr: addr("::1"), Port: 8080, V6Only: Unknown},
		{Proto: 6, Addr: addr("::"), Port: 9091, V6Only: Yes},
		{Proto: 6, Addr: addr("::"), Port: 9090, V6Only: No},
	}
	if diff := cmp.Diff(want, load(t, "lab-ss-H.txt").Sockets, ignoreEvidence, compareAddrs); diff != "" {
		t.Errorf("ss -H: %s", diff)
	}
	if diff := cmp.Diff(want[4:], load(t, "lab-ss-lnt.txt").Sockets, ignoreEvidence, compareAddrs); diff != "" {
		t.Errorf("ss -lnt, without the Netid column: %s", diff)
	}
	want[5].V6Only = Yes
	if diff := cmp.Diff(want, load(t, "lab-ss-e.txt").Sockets, ignoreEvidence, compareAddrs); diff != "" {
		t.Errorf("ss -e: %s", diff)
	}
	if s := load(t, "lab-ss-lntup.txt").Sockets[3]; s.Process != "python3" || s.PID != 7200 {
		t.Errorf("%+v", s)
	}
}

func TestSocketForms(t *testing.T) {
	old := host(t, map[string]string{"ss.txt": "State      Recv-Q Send-Q Local Address:Port               Peer Address:Port\nLISTEN     0      128          *:22                       *:*\nLISTEN     0      128         :::22                      :::*\n"})
	if old.Sockets[0].Addr != addr("0.0.0.0") || old.Sockets[1].Addr != addr("::") || old.Sockets[1].V6Only != Unknown {
		t.Errorf("old form: %+v", old.Sockets)
	}
	odd := host(t, map[string]string{"ss.txt": "udp UNCONN 0 0 127.0.0.53%lo:53 0.0.0.0:*\nudp UNCONN 0 0 [fe80::1]%eth0:546 [::]:*\ntcp LISTEN 0 5 [::ffff:10.0.0.1]:80 *:*\nu_str LISTEN 0 5 /run/x 1 * 0\ntcp ESTAB 0 0 10.0.0.1:22 10.0.0.2:999\ntcp LISTEN 0 5 0.0.0.0:81 0.0.0.0:* users:((\"a (b)\",pid=7,fd=3),(\"c\",pid=8,fd=3))\n"})
	if diff := cmp.Diff([]Socket{
		{Proto: 17, Addr: addr("127.0.0.53"), Port: 53, Device: "lo"}, {Proto: 17, Addr: addr("fe80::1"), Port: 546, Device: "eth0"},
		{Proto: 6, Addr: addr("10.0.0.1"), Port: 80}, {Proto: 6, Addr: addr("0.0.0.0"), Port: 81, Process: "a (b)", PID: 7},
	}, odd.Sockets, ignoreEvidence, compareAddrs); diff != "" {
		t.Error(diff)
	}
	h := &Host{}
	problems, err := ParseSockets(h, "Netid State Recv-Q Send-Q Local Address:Port Peer Address:Port\ntcp LISTEN 0 5 0.0.0.0:ssh 0.0.0.0:*\n", "f")
	if err != nil || len(problems) != 1 || !h.HasSockets || len(h.Sockets) != 0 {
		t.Errorf("a port by name: %v %v %+v", problems, err, h.Sockets)
	}
	for _, c := range []struct {
		socket Socket
		to     string
		want   Known
	}{
		{Socket{Addr: addr("0.0.0.0")}, "10.0.0.1", Yes}, {Socket{Addr: addr("0.0.0.0")}, "fd00::1", No},
		{Socket{Addr: addr("::"), V6Only: Yes}, "10.0.0.1", No}, {Socket{Addr: addr("::"), V6Only: No}, "10.0.0.1", Yes},
		{Socket{Addr: addr("::")}, "10.0.0.1", Unknown}, {Socket{Addr: addr("::")}, "fd00::1", Yes},
		{Socket{Addr: addr("127.0.0.1")}, "127.0.0.1", Yes}, {Socket{Addr: addr("127.0.0.1")}, "10.0.0.1", No},
	} {
		if got := c.socket.Takes(addr(c.to)); got != c.want {
			t.Errorf("%s (v6only %d) takes %s: %d, want %d", c.socket.Addr, c.socket.V6Only, c.to, got, c.want)
		}
	}
}

func TestRecent(t *testing.T) {
	text := "src=10.244.1.7 ttl: 64 last_seen: 4295012345 oldest_pkt: 2 4295011345, 4295012345\n"
	for file, c := range map[string]struct{ text, name string }{
		"KUBE-SEP-A.txt":                     {text, "KUBE-SEP-A"},
		"bundle.tar.gz:xt_recent/KUBE-SEP-A": {text, "KUBE-SEP-A"},
		"xt_recent.txt":                      {"==> /proc/net/xt_recent/KUBE-SEP-A <==\n" + text, "KUBE-SEP-A"},
		"recent.txt":                         {"/proc/net/xt_recent/KUBE-SEP-A:" + text, "KUBE-SEP-A"},
	} {
		h := &Host{}
		problems, err := ParseRecent(h, c.text, file)
		if err != nil || len(problems) > 0 || len(h.Recent) != 1 {
			t.Errorf("%s: %v %v %+v", file, problems, err, h.Recent)
			continue
		}
		e := h.Recent[0].Entries[0]
		if h.Recent[0].Name != c.name || e.Addr != addr("10.244.1.7") || e.TTL != 64 || e.LastSeen != 4295012345 || len(e.Stamps) != 2 {
			t.Errorf("%s: %+v", file, h.Recent)
		}
		if now := h.NewestStamp(); now != 4295012345 || Age(e.Stamps[0], now, 250) != 4 {
			t.Errorf("%s: newest %d, age %v", file, now, Age(e.Stamps[0], now, 250))
		}
	}
	h := &Host{}
	if _, err := ParseRecent(h, "", "KUBE-SEP-B"); err != nil || !h.HasRecent || len(h.Recent) != 1 || len(h.Recent[0].Entries) != 0 {
		t.Errorf("an empty list is a list: %v %+v", err, h.Recent)
	}
}

func TestBridges(t *testing.T) {
	h := load(t, "case-29-brctl.txt")
	if b := h.Link("cni0"); b == nil || b.Kind != "bridge" || h.HasLinks {
		t.Errorf("bridge: %+v", b)
	}
	for _, port := range []string{"veth1a2b3c4d", "veth5e6f7a8b"} {
		if p := h.Link(port); p == nil || p.Master != "cni0" {
			t.Errorf("%s: %+v", port, p)
		}
	}
	h = load(t, "case-30-hairpin.txt", "case-30-ip-link.txt")
	for _, port := range []string{"veth1a2b3c4d", "veth5e6f7a8b"} {
		if p := h.Link(port); p == nil || p.Master != "cni0" || p.Hairpin != No || p.BridgeEvidence.File != "case-30-hairpin.txt" || p.File != "case-30-ip-link.txt" {
			t.Errorf("%s: %+v", port, p)
		}
	}
	if h.Link("cni0").HasFlag("PROMISC") {
		t.Error("cni0 is not promiscuous")
	}
	h = host(t, map[string]string{"brctl.txt": "bridge name\tbridge id\t\tSTP enabled\tinterfaces\ndocker0\t\t8000.0242ac110001\tno\t\t\ncni0\t\t8000.0a58\tno\t\tveth1\n\t\t\t\t\t\t\tveth2\n",
		"hairpin.txt": "/sys/class/net/veth1/brport/hairpin_mode:1\n"})
	if h.Link("docker0") == nil || h.Link("veth2").Master != "cni0" || h.Link("veth1").Hairpin != Yes {
		t.Errorf("%+v", h.Links)
	}
}

func TestUname(t *testing.T) {
	for text, want := range map[string]string{
		"Linux node-a 4.18.0-80.el8.x86_64 #1 SMP x86_64 GNU/Linux\n": "node-a 4.18.0-80.el8.x86_64",
		"5.15.0-1034-aws\n": " 5.15.0-1034-aws",
		"Linux 6.1.0\n":     " 6.1.0",
	} {
		h := host(t, map[string]string{"uname.txt": text})
		if got := h.Uname.Node + " " + h.Uname.Release; got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	h := load(t, "case-66-uname.txt")
	if h.KernelAtLeast(4, 18) != Yes || h.KernelAtLeast(4, 19) != No || h.KernelAtLeast(5, 0) != No || (&Host{}).KernelAtLeast(1, 0) != Unknown {
		t.Error("kernel versions")
	}
}

// TestUseless: a text of another kind is an error, an empty one ErrEmpty, and neither sets a Has field.
func TestUseless(t *testing.T) {
	for _, name := range []string{"ip-addr", "ip-link", "ip-route", "ip-rule", "sysctl", "conntrack", "ss", "brctl", "bridge", "hairpin", "uname", "conntrack-S", "dmesg", "ethtool"} {
		parse := parserOf(name)
		for _, text := range []string{"", " \r\n\n", "Error: command not found\n", "bash: ip: command not found", "\x00\x01\xff\xfe\x00", "\xff\xfed\x00e\x00f\x00", "[", "[{}]", `[{"a":`, "[[[[", "{}", strings.Repeat("x", 1<<20)} {
			h := &Host{}
			_, err := parse(h, text, "file")
			if err == nil {
				t.Errorf("%s: %.20q: no error", name, text)
			}
			if strings.TrimSpace(text) == "" && !errors.Is(err, ErrEmpty) {
				t.Errorf("%s: %q: %v, want ErrEmpty", name, text, err)
			}
			if h.HasAddrs || h.HasFlows || h.HasLinks || h.HasSockets || h.HasRecent || len(h.FlowStats)+len(h.KernelLog)+len(h.Offloads)+len(h.SysctlsWithin)+len(h.HasRoutes)+len(h.HasRules)+len(h.HasLocalTable)+len(h.Sysctls) > 0 {
				t.Errorf("%s: %.20q: counts as captured: %+v", name, text, h)
			}
		}
	}
}

// TestProblems: one bad line does not hide the others and is named.
func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		line int
	}{
		"ip-addr":  {"1: lo: <UP> mtu 65536\n    inet 127.0.0.1/8 scope host lo\n    inet 10.0.0.300/8 scope host lo\n", 3},
		"ip-addr2": {`[{"ifindex":1,"ifname":"lo"},` + "\n" + `{"ifindex":"x","ifname":"y"}]`, 2},
		"ip-route": {"10.0.0.0/8 dev eth0\n10.0.0.0/99 dev eth0\n", 2},
		"ip-rule":  {"0:\tfrom all lookup local\n5:\tfrom nonsense lookup 7\n", 2},
		"hairpin":  {"/sys/class/net/veth1/brport/hairpin_mode:1\n/sys/class/net/veth2/brport/hairpin_mode:x\n", 2},
		"ss":       {"tcp LISTEN 0 5 0.0.0.0:80 0.0.0.0:*\ntcp LISTEN 0 5 nonsense 0.0.0.0:*\n", 2},
	} {
		problems, err := parserOf(name)(&Host{}, c.text, name)
		if err != nil || len(problems) != 1 || problems[0].Line != c.line || problems[0].Why == "" || problems[0].Text == "" {
			t.Errorf("%s: %+v, %v", name, problems, err)
		}
	}
}
