package host

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The tests of this file ask the kernel: they build a network namespace of their own, capture it as a user
// would, and compare every answer with `ip route get` or with what -m addrtype really matches.

// lab is a network namespace for one test, with a second one at the far end of its interfaces.
type lab struct {
	t         *testing.T
	name, far string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("needs root on Linux: it makes a network namespace")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs the ip command")
	}
	l := &lab{t: t, name: fmt.Sprintf("svcnet-host-test-%d", os.Getpid()), far: fmt.Sprintf("svcnet-host-far-%d", os.Getpid())}
	for _, ns := range []string{l.name, l.far} {
		if out, err := exec.Command("ip", "netns", "add", ns).CombinedOutput(); err != nil {
			t.Skipf("cannot make a network namespace: %v: %s", err, out)
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
	}
	return l
}

// ip runs `ip -n NAMESPACE …` and returns what it prints.
func (l *lab) ip(args string) string {
	l.t.Helper()
	out, err := l.try(args)
	if err != nil {
		l.t.Fatalf("ip %s: %v", args, err)
	}
	return out
}

func (l *lab) try(args string) (string, error) {
	cmd := exec.Command("ip", append([]string{"-n", l.name}, strings.Fields(args)...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

func (l *lab) inside(args ...string) string {
	l.t.Helper()
	out, err := exec.Command("ip", append([]string{"netns", "exec", l.name}, args...)...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (l *lab) script(commands string) {
	l.t.Helper()
	for line := range strings.Lines(commands) {
		if line = strings.TrimSpace(line); line != "" {
			l.ip(line)
		}
	}
}

// capture reads the namespace the way a node is captured, with its local table or without.
func (l *lab) capture(localTable bool) *Host {
	l.t.Helper()
	h := &Host{}
	parse := func(problems []Problem, err error) {
		l.t.Helper()
		if err != nil || len(problems) > 0 {
			l.t.Fatalf("parse: %v, problems %v", err, problems)
		}
	}
	parse(ParseAddrs(h, l.ip("-d addr"), "ip-addr.txt"))
	if localTable {
		parse(ParseRoutes(h, 0, l.ip("route show table all"), "ip-route.txt"))
	} else {
		for _, table := range []string{"main", "100", "200", "300"} {
			for _, family := range []int{4, 6} {
				// ip calls a table that was never used an error.
				if text, _ := l.try(fmt.Sprintf("-%d route show table %s", family, table)); text != "" {
					parse(ParseRoutes(h, family, "# table "+table+"\n"+text, "ip-route.txt"))
				}
			}
		}
	}
	parse(ParseRules(h, 4, l.ip("-4 rule"), "ip-rule.txt"))
	parse(ParseRules(h, 6, l.ip("-6 rule"), "ip-6-rule.txt"))
	parse(ParseSysctls(h, l.inside("sysctl", "-a", "-r", `^net\.ipv[46]\.(conf|ip_forward)`), "sysctl.txt"))
	parse(ParseUname(h, "Linux lab "+release(l.t)+" #1 SMP", "uname.txt"))
	return h
}

func release(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

const labNetwork = `
	link add v0 type veth peer name p0 netns FAR
	link add v1 type veth peer name p1 netns FAR
	link add v2 type veth peer name p2 netns FAR
	link set lo up
	link set v0 up
	link set v1 up
	link set v2 up
	addr add 10.0.0.1/24 brd + dev v0
	addr add 10.0.0.7/24 dev v0
	addr add 10.0.64.1/18 dev v0
	addr add 10.1.0.1/16 dev v1
	addr add 10.96.0.10/32 dev v1
	addr add 10.2.0.1 peer 10.2.0.2/32 dev v1
	-6 addr add fd00:1::1/64 dev v0 nodad
	-6 addr add fd00:1::7/64 dev v0 nodad
	-6 addr add fd00:2::1/64 dev v1 nodad
	-6 addr add fd00:96::10/128 dev v1 nodad
	-6 addr add 2001:10::5/64 dev v0 nodad
	-6 addr add 2a00:1::1/64 dev v0 nodad
	route add default via 10.0.0.254 dev v0
	route add 10.3.0.0/16 via 10.1.0.254 dev v1
	route add 10.3.4.0/24 via 10.0.0.254 dev v0 metric 50
	route add 10.3.4.0/24 via 10.1.0.254 dev v1 metric 20
	route add 10.3.5.0/24 dev v2
	route add 10.3.6.0/24 via 10.1.0.254 dev v1 src 10.96.0.10
	route add blackhole 10.4.0.0/16
	route add unreachable 10.5.0.0/16
	route add prohibit 10.6.0.0/16
	route add throw 10.7.0.0/16
	route add 10.8.5.0/24 via 10.0.0.254 dev v0
	route add 10.9.0.0/16 nexthop via 10.0.0.254 dev v0 nexthop via 10.1.0.254 dev v1
	-6 route add default via fd00:1::fe dev v0
	-6 route add fd00:3::/64 via fd00:2::fe dev v1
	-6 route add fd00:3:4::/64 via fd00:1::fe dev v0 metric 50
	-6 route add fd00:3:4::/64 via fd00:2::fe dev v1 metric 20
	-6 route add fd00:3:5::/64 dev v2
	-6 route add blackhole fd00:4::/64
	-6 route add unreachable fd00:5::/64
	-6 route add prohibit fd00:6::/64
	-6 route add throw fd00:7::/64
	-6 route add fd00:8::/80 via fd00:1::fe dev v0
`

// labLocal are whole networks made local by hand. With one of them the kernel checks sources in full.
const labLocal = `
	route add local 10.8.0.0/16 dev lo
	-6 route add local fd00:8::/64 dev lo
`

const labRules = `
	route add default via 10.1.0.254 dev v1 table 100
	route add 10.3.4.0/22 dev v2 table 100
	route add throw 10.0.0.0/16 table 100
	route add blackhole 10.3.7.0/24 table 100
	route add 10.0.0.0/8 dev v2 table 200
	route add default via 10.1.0.254 dev v1 table 300
	-6 route add default via fd00:2::fe dev v1 table 300
	-6 route add default via fd00:2::fe dev v1 table 100
	-6 route add throw fd00:3::/64 table 100
	rule add pref 100 from 10.96.0.0/16 lookup 100
	rule add pref 200 fwmark 0x80/0xf0 lookup 100
	rule add pref 300 not from 10.0.0.0/8 iif v1 lookup 200
	rule add pref 400 to 10.3.9.0/24 prohibit
	rule add pref 500 fwmark 0x1 goto 700
	rule add pref 600 iif v2 to 10.5.0.0/16 lookup 200
	rule add pref 650 iif lo to 10.3.10.0/24 unreachable
	rule add pref 700 fwmark 0x3/0x3 lookup main suppress_prefixlength 15
	rule add pref 750 fwmark 0x3/0x3 lookup 300
	rule add pref 800 to 10.3.11.0/24 blackhole
	rule add pref 900 iif nosuch blackhole
	-6 rule add pref 100 from fd00:96::/64 lookup 100
	-6 rule add pref 200 fwmark 0x80/0xf0 lookup 100
	-6 rule add pref 400 to fd00:3:9::/64 prohibit
	-6 rule add pref 700 fwmark 0x3/0x3 lookup main suppress_prefixlength 0
	-6 rule add pref 750 fwmark 0x3/0x3 lookup 300
`

func (l *lab) build(commands string) {
	l.t.Helper()
	l.script(strings.ReplaceAll(commands, "FAR", l.far))
	for _, p := range []string{"p0", "p1", "p2"} {
		if out, err := exec.Command("ip", "-n", l.far, "link", "set", p, "up").CombinedOutput(); err != nil {
			l.t.Fatalf("link set %s up: %v: %s", p, err, out)
		}
	}
}

func (l *lab) sysctl(settings ...string) {
	l.t.Helper()
	l.inside(append([]string{"sysctl", "-q", "-w"}, settings...)...)
}

// addrs4 and addrs6 are destinations around everything that the lab configures, and some at random.
func addrs4(rnd *rand.Rand, n int) []netip.Addr {
	out := parseAddrs("10.0.0.0 10.0.0.1 10.0.0.7 10.0.0.255 10.0.0.254 10.0.64.0 10.0.64.1 10.0.127.255 10.1.0.0 10.1.0.1 10.1.255.255",
		"10.96.0.10 10.96.0.11 10.2.0.1 10.2.0.2 10.2.0.3 10.8.1.2 10.8.5.9 127.0.0.1 127.0.0.0 127.9.9.9 127.255.255.255",
		"224.0.0.1 239.1.2.3 255.255.255.255 8.8.8.8 203.0.113.9 10.3.9.9 10.3.10.1 10.3.11.1 10.3.7.7 10.3.6.6 10.3.5.5")
	for len(out) < n {
		a := [4]byte{10, byte(rnd.IntN(10)), byte(rnd.IntN(13)), byte(rnd.IntN(256))}
		switch rnd.IntN(8) {
		case 0:
			a = [4]byte{10, 0, 0, byte(rnd.IntN(12))}
		case 1:
			a = [4]byte{byte(1 + rnd.IntN(222)), byte(rnd.IntN(256)), byte(rnd.IntN(256)), byte(rnd.IntN(256))}
		case 2:
			a = [4]byte{10, 0, byte(64 + rnd.IntN(80)), byte(rnd.IntN(256))}
		}
		out = append(out, netip.AddrFrom4(a))
	}
	return out
}

func addrs6(rnd *rand.Rand, n int) []netip.Addr {
	out := parseAddrs("::1 fd00:1:: fd00:1::1 fd00:1::7 fd00:2::1 fd00:96::10 fd00:96::11 2001:db8::1 fd00:3:: fd00:3:5:: fd00:8::99 fd00:3:9::1 fe80::99 ff02::1")
	for len(out) < n {
		var a [16]byte
		a[0], a[1], a[3] = 0xfd, 0, byte(1+rnd.IntN(9))
		if rnd.IntN(2) == 0 {
			a[5] = byte(rnd.IntN(10))
		}
		a[15] = byte(rnd.IntN(12))
		out = append(out, netip.AddrFrom16(a))
	}
	return out
}

func parseAddrs(lists ...string) []netip.Addr {
	var out []netip.Addr
	for _, l := range lists {
		for _, s := range strings.Fields(l) {
			out = append(out, netip.MustParseAddr(s))
		}
	}
	return out
}

// answer is what both sides say of a packet, in one form.
type answer struct{ kind, out, via, src string }

// kernelSays asks `ip route get` for each of the arguments, in one run.
func (l *lab) kernelSays(queries []string, local bool) []reply {
	l.t.Helper()
	cmd := exec.Command("ip", "-n", l.name, "-o", "-force", "-batch", "-")
	cmd.Stdin = strings.NewReader("route get " + strings.Join(queries, "\nroute get ") + "\n")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // one refused destination makes it fail
	failed := make(map[int]string)
	why := ""
	for line := range strings.Lines(errs.String()) {
		var n int
		if _, err := fmt.Sscanf(line, "Command failed -:%d", &n); err == nil {
			failed[n-1] = why
			continue
		}
		why = strings.TrimSpace(line)
	}
	answered := strings.Split(strings.TrimSpace(out.String()), "\n")
	replies := make([]reply, len(queries))
	for i := range queries {
		if why, ok := failed[i]; ok {
			replies[i] = reply{refusal(why), why}
			continue
		}
		if len(answered) == 0 {
			l.t.Fatalf("ip answered %d of %d queries: %s", i, len(queries), errs.String())
		}
		replies[i] = reply{routeGot(answered[0], local), answered[0]}
		answered = answered[1:]
	}
	return replies
}

type reply struct {
	answer
	text string
}

// refusal is an error of the lookup, by the errno's message.
func refusal(text string) answer {
	for message, kind := range map[string]string{
		"Invalid argument": "blackhole", "No route to host": "unreachable", "Permission denied": "prohibit",
		"Network is unreachable": "none", "Invalid cross-device link": "cross-device",
	} {
		if strings.Contains(text, message) {
			return answer{kind: kind}
		}
	}
	return answer{kind: "error: " + text}
}

func routeGot(text string, local bool) answer {
	words := strings.Fields(text)
	a := answer{kind: "unicast"}
	if routeTypes[words[0]] {
		a.kind = words[0]
	}
	if a.kind == "anycast" {
		a.kind = "local"
	}
	for i := 0; i+1 < len(words); i++ {
		switch words[i] {
		case "dev":
			a.out = words[i+1]
		case "via":
			a.via = words[i+1]
		case "src":
			a.src = words[i+1]
		case "error":
			switch words[i+1] {
			case "-22":
				a.kind = "blackhole"
			case "-113":
				a.kind = "unreachable"
			case "-13":
				a.kind = "prohibit"
			case "-101":
				a.kind = "none"
			}
		}
	}
	if rejects(a.kind) || a.kind == "none" {
		return answer{kind: a.kind}
	}
	if !local {
		a.src = ""
		if a.kind != "unicast" {
			a.out = ""
		}
	}
	return a
}

// weSay puts a decision into the same form. IPv6 answers all unreachable destinations alike.
func weSay(d Decision, local bool) answer {
	a := answer{kind: d.Type, out: d.Out}
	if rejects(d.Type) || d.Type == "none" {
		if d.Martian {
			return answer{kind: "blackhole"} // both are EINVAL
		}
		return answer{kind: d.Type}
	}
	if d.Via.IsValid() {
		a.via = d.Via.String()
	}
	if local && d.Src.IsValid() {
		a.src = d.Src.String()
	}
	if !local && d.Type != "unicast" {
		a.out, a.via = "", ""
	}
	return a
}

var labMarks = []uint32{0, 0, 0, 0x80, 0x81, 0x1, 0x3, 0xf0}

// TestRouteOfOwnPackets compares the routes of the node's own packets, source address included.
func TestRouteOfOwnPackets(t *testing.T) {
	l := newLab(t)
	l.build(labNetwork)
	l.build(labLocal)
	for _, rules := range []bool{false, true} {
		if rules {
			l.build(labRules)
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		var asked []Query
		var args []string
		for _, dst := range slices.Concat(addrs4(rnd, 400), addrs6(rnd, 250)) {
			q := Query{Dst: dst, Local: true}
			if rules {
				q.Mark = labMarks[rnd.IntN(len(labMarks))]
			}
			arg := fmt.Sprintf("%s mark %#x", dst, q.Mark)
			if rnd.IntN(3) == 0 {
				q.Src = pick(rnd, dst, "10.96.0.10 10.0.0.7 10.1.0.1 127.0.0.1", "fd00:96::10 fd00:1::7 fd00:2::1")
				arg = fmt.Sprintf("%s from %s mark %#x", dst, q.Src, q.Mark)
			}
			asked, args = append(asked, q), append(args, arg)
		}
		replies := l.kernelSays(args, true)
		for _, localTable := range []bool{true, false} {
			h := l.capture(localTable)
			for i, q := range asked {
				if !localTable && localByHand(q.Dst) {
					continue
				}
				want, d := replies[i].answer, h.Route(q)
				got := weSay(d, true)
				if slices.Contains(d.Outs, want.out) && d.Out == "" {
					got.out, got.via = want.out, want.via
					if d.Src == (netip.Addr{}) {
						got.src = want.src
					}
				}
				if q.Src.IsValid() {
					got.src, want.src = "", "" // ip prints none, or for IPv6 the one that it would have chosen
				}
				if got != want {
					t.Errorf("rules %v, local table %v: ip route get %s\n kernel: %+v (%s)\n svcnet: %+v (%s)", rules, localTable, args[i], want, replies[i].text, got, d.Because)
				}
			}
		}
	}
}

// localByHand tells whether an address is local by a route that was added by hand, which shows in the local
// table alone.
func localByHand(a netip.Addr) bool {
	return netip.MustParsePrefix("10.8.0.0/16").Contains(a) || netip.MustParsePrefix("fd00:8::/64").Contains(a)
}

func pick(rnd *rand.Rand, like netip.Addr, v4, v6 string) netip.Addr {
	list := v4
	if like.Is6() {
		list = v6
	}
	f := strings.Fields(list)
	return netip.MustParseAddr(f[rnd.IntN(len(f))])
}

// TestRouteOfForeignPackets compares packets that come in on an interface: the route, and with it the
// reverse path check, which `ip route get … iif` makes too.
func TestRouteOfForeignPackets(t *testing.T) {
	l := newLab(t)
	l.build(labNetwork)
	// An interface without an address, and one that is in no route.
	l.script("link add v3 type veth peer name p3 netns " + l.far + "\n link set v3 up\n route add 10.3.12.0/24 dev v3")
	l.sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	settings := [][]string{
		{"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"},
		{"net.ipv4.conf.all.rp_filter=1"},
		{"net.ipv4.conf.all.rp_filter=2"},
		{"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.v0.rp_filter=1", "net.ipv4.conf.v1.rp_filter=2", "net.ipv4.conf.v1.src_valid_mark=1", "net.ipv4.conf.v0.route_localnet=1"},
		{"net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.v1.accept_local=1", "net.ipv4.conf.all.src_valid_mark=1"},
		{"net.ipv4.conf.v1.forwarding=0", "net.ipv4.conf.all.rp_filter=0"},
		{"net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.v0.send_redirects=0", "net.ipv4.conf.v0.rp_filter=0", "net.ipv4.conf.v1.rp_filter=0"},
	}
	for i, more := range []string{"", labLocal, labRules} {
		rules := more == labRules
		l.build(more)
		l.sysctl("net.ipv4.conf.v0.rp_filter=0", "net.ipv4.conf.v1.rp_filter=0", "net.ipv4.conf.v2.rp_filter=0", "net.ipv4.conf.v3.rp_filter=0",
			"net.ipv4.conf.v1.src_valid_mark=0", "net.ipv4.conf.all.src_valid_mark=0", "net.ipv4.conf.v0.route_localnet=0",
			"net.ipv4.conf.v1.accept_local=0", "net.ipv4.conf.v1.forwarding=1", "net.ipv4.conf.all.send_redirects=1", "net.ipv4.conf.v0.send_redirects=1")
		for _, s := range settings {
			l.sysctl(s...)
			h := l.capture(true)
			rnd := rand.New(rand.NewPCG(3, uint64(i)))
			srcs := addrs4(rnd, 200)
			// Broadcast sources are checked where the packet would go back out the way it came (send_redirects).
			var asked []Query
			for _, in := range []string{"v0", "v1"} {
				for _, src := range parseAddrs("10.0.0.255 10.0.127.255 10.1.255.255 10.0.0.1 10.1.0.9") {
					asked = append(asked, Query{Src: src, Dst: addr("8.8.8.8"), In: in, InKnown: true}, Query{Src: src, Dst: addr("10.3.0.9"), In: in, InKnown: true})
				}
			}
			for _, dst := range slices.Concat(addrs4(rnd, 200), addrs6(rnd, 80)) {
				some := srcs
				if rnd.IntN(3) == 0 {
					some = srcs[:34] // the node's own and its broadcast addresses
				}
				q := Query{Src: some[rnd.IntN(len(some))], Dst: dst, In: []string{"v0", "v1", "v2", "v3"}[rnd.IntN(4)], InKnown: true}
				if dst.IsMulticast() {
					continue // it depends on the groups that processes have joined
				}
				if dst.Is6() {
					q.Src = pick(rnd, dst, "", "2001:db8::9 fd00:3::9 fd00:96::77 fd00:1::9")
				}
				if rules {
					q.Mark = labMarks[rnd.IntN(len(labMarks))]
				}
				asked = append(asked, q)
			}
			var args []string
			for _, q := range asked {
				args = append(args, fmt.Sprintf("%s from %s iif %s mark %#x", q.Dst, q.Src, q.In, q.Mark))
			}
			undecided := 0
			for j, r := range l.kernelSays(args, false) {
				if !compareForeign(t, h, asked[j], r, fmt.Sprintf("phase %d, %s: ip route get %s", i, s, args[j])) {
					undecided++
				}
			}
			if undecided > 5 {
				t.Errorf("phase %d, %s: %d of %d are undecided", i, s, undecided, len(asked))
			}
		}
	}
}

// compareForeign reports false for a packet that depends on the choice of a multipath route.
func compareForeign(t *testing.T, h *Host, q Query, r reply, args string) bool {
	t.Helper()
	want := r.answer
	src, dst := q.Src, q.Dst
	d, rp, fwd := h.Route(q), h.ReversePath(q.In, src, dst, q.Mark), h.Forwards(familyOf(dst), q.In)
	got, because := weSay(d, false), d.Because
	if slices.Contains(d.Outs, want.out) && d.Out == "" {
		got.out, got.via = want.out, want.via
	}
	early := src.IsLoopback() || dst.IsLoopback() || src.IsMulticast() || src == limitedBroadcast
	// The kernel refuses bad addresses and what is not forwarded before it looks at the source.
	switch {
	case rp.Is == Unknown && len(d.Outs) > 1:
		return false
	case got.kind == "unknown" || rp.Is == Unknown || fwd.Is == Unknown:
		t.Errorf("%s: undecided: %s; %s; %s", args, d.Because, rp.Because, fwd.Because)
		return true
	case dst.Is4() && fwd.Is == No && got.kind != "local" && got.kind != "broadcast" && !early:
		got, because = answer{kind: "unreachable"}, fwd.Because
	case rp.Is == No && (got.kind == "local" || got.kind == "broadcast" || got.kind == "unicast" || early):
		got, because = answer{kind: "refused"}, rp.Because
	case dst.Is4() && (rejects(got.kind) || got.kind == "none"):
		got = answer{kind: got.kind}
	}
	if got.kind == "refused" && (want.kind == "cross-device" || want.kind == "blackhole") {
		return true // EXDEV for the reverse path, EINVAL for other martians
	}
	if got != want {
		t.Errorf("%s\n kernel: %+v (%s)\n svcnet: %+v (%s)", args, want, r.text, got, because)
	}
	return true
}

// TestTypeOfAddresses sends packets with the addresses as their source past one -m addrtype rule for each
// type, and compares which rules counted them.
func TestTypeOfAddresses(t *testing.T) {
	l := newLab(t)
	for _, tool := range []string{"iptables-restore", "ip6tables-restore"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs " + tool)
		}
	}
	l.build(labNetwork)
	l.build(labLocal)
	for _, rules := range []bool{false, true} {
		if rules {
			l.build(labRules)
		}
		full, derivedOnly := l.capture(true), l.capture(false)
		rnd := rand.New(rand.NewPCG(5, 6))
		for _, family := range []int{4, 6} {
			addrs := append(parseAddrs("0.0.0.0"), addrs4(rnd, 120)...)
			kinds := []string{"UNICAST", "LOCAL", "BROADCAST", "MULTICAST", "ANYCAST", "UNSPEC", "BLACKHOLE", "UNREACHABLE", "PROHIBIT", "THROW"}
			if family == 6 {
				addrs = append(parseAddrs("::"), addrs6(rnd, 100)...)
				kinds = []string{"UNICAST", "LOCAL", "MULTICAST", "ANYCAST", "UNSPEC", "UNREACHABLE"}
			}
			slices.SortFunc(addrs, netip.Addr.Compare)
			addrs = slices.Compact(addrs)
			for a, matched := range l.addrtypes(family, addrs, kinds) {
				for _, kind := range kinds {
					want := is(slices.Contains(matched, kind))
					name := strings.ToLower(kind)
					if f := full.HasType(a, name); f.Is != want {
						t.Errorf("rules %v: %s is %s: got %d, the kernel says %d (%s)", rules, a, kind, f.Is, want, f.Because)
					}
					if localByHand(a) {
						continue
					}
					if f := derivedOnly.HasType(a, name); f.Is != want {
						t.Errorf("rules %v, without the local table: %s is %s: got %d, the kernel says %d (%s)", rules, a, kind, f.Is, want, f.Because)
					}
				}
			}
		}
	}
}

// addrtypes tells for each address which types the kernel takes it for.
func (l *lab) addrtypes(family int, addrs []netip.Addr, kinds []string) map[netip.Addr][]string {
	l.t.Helper()
	tool, size := "iptables", "/32"
	if family == 6 {
		tool, size = "ip6tables", "/128"
	}
	var in bytes.Buffer
	fmt.Fprint(&in, "*raw\n:OUTPUT ACCEPT [0:0]\n")
	for _, a := range addrs {
		for _, k := range kinds {
			fmt.Fprintf(&in, "-A OUTPUT -d %s%s -m addrtype --dst-type %s\n", a, size, k)
		}
	}
	fmt.Fprint(&in, "-A OUTPUT -j DROP\nCOMMIT\n")
	cmd := exec.Command("ip", "netns", "exec", l.name, tool+"-restore")
	cmd.Stdin = &in
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Skipf("%s-restore does not take addrtype rules here: %v: %s", tool, err, out)
	}
	var list []string
	for _, a := range addrs {
		list = append(list, a.String())
	}
	send := exec.Command("ip", "netns", "exec", l.name, os.Args[0], "-test.run=^TestSendRaw$")
	send.Env = append(os.Environ(), "SVCNET_SEND_RAW="+strings.Join(list, ","))
	if out, err := send.CombinedOutput(); err != nil {
		l.t.Fatalf("send: %v: %s", err, out)
	}
	got := make(map[netip.Addr][]string)
	seen := make(map[netip.Addr]int)
	scan := bufio.NewScanner(strings.NewReader(l.inside(tool+"-save", "-c", "-t", "raw")))
	i := 0
	for scan.Scan() {
		if !strings.Contains(scan.Text(), "-A OUTPUT -d ") {
			// 0.0.0.0/32 and ::/128 are kept; a rule without -d would be a match-all.
			if !strings.Contains(scan.Text(), "addrtype") {
				continue
			}
		}
		a, k := addrs[i/len(kinds)], kinds[i%len(kinds)]
		i++
		if !strings.HasPrefix(scan.Text(), "[0:0]") {
			got[a] = append(got[a], k)
		}
		seen[a]++
	}
	if i != len(addrs)*len(kinds) {
		l.t.Fatalf("%d rules came back, want %d", i, len(addrs)*len(kinds))
	}
	for _, a := range addrs {
		if got[a] == nil {
			got[a] = []string{}
		}
	}
	return got
}
