package ipvs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// insideFlag marks the process that runs in the guest.
const insideFlag = "SVCNET_IPVS_INSIDE"

// setup is one state of the node: virtual servers, rules and settings, and who dials what.
type setup struct {
	name    string
	servers []server
	// rules are by "TABLE CHAIN", those of chains of their own by "TABLE :CHAIN", for both families.
	rules, rules6 map[string][]string
	forward       string // the policy of FORWARD
	sets          string
	conntrack     int
	vips          []string
	// whole reads all of the node, as svcnet does; else what has changed.
	whole bool
	// counts looks at what its virtual servers have counted.
	counts bool
	dials  []dialling
}

// dialling is what a client does in a setup.
type dialling struct {
	from  client
	entry netfilter.Entry
	proto string
	to    netip.AddrPort
	times int
	// stays: all connections reach one server. evenly: the shares are met but for a connection.
	stays, evenly bool
}

// guest is the test inside.
type guest struct {
	*world
	t         *testing.T
	listening map[netip.AddrPort]bool
	dummy     netlink.Link
	number    uint32
	// What was looked at.
	setups, connections, datagrams, reached, refused, dropped, chains int
}

// TestInGuest is run by TestWalkAgainstKernel in the guest.
func TestInGuest(t *testing.T) {
	if os.Getenv(insideFlag) == "" {
		return // no test here
	}
	g := &guest{world: newWorld(t), t: t, listening: make(map[netip.AddrPort]bool)}
	for _, a := range slices.Concat(podServers, podServers6, []string{outServer, nodeAddr, nodeAddr6, "127.0.0.1"}) {
		g.listening[netip.AddrPortFrom(netip.MustParseAddr(a), serverPort)] = true
	}
	g.listening[at(directAddr, 80)] = true
	g.texts()
	var err error
	if g.dummy, err = netlink.LinkByName("kube-ipvs0"); err != nil {
		t.Fatal(err)
	}
	for i, s := range g.fixed() {
		s.whole = i%4 == 0 || s.counts || s.name == "kube-proxy" || s.name == "by mark" // whose family the kernel does not print
		g.run(s)
	}
	for n := range 10 {
		g.run(g.random(n))
	}
	t.Logf("%d setups, %d connections and %d single datagrams: %d reached a server, %d were refused, %d dropped; %d visits of chains compared",
		g.setups, g.connections, g.datagrams, g.reached, g.refused, g.dropped, g.chains)
	if g.setups < 20 || g.connections+g.datagrams < 300 || g.refused == 0 || g.dropped == 0 {
		t.Error("too little was looked at")
	}
}

func (g *guest) run(s setup) {
	g.t.Helper()
	g.setups++
	if err := flush(); err != nil {
		g.t.Fatal(err)
	}
	if s.sets != "" {
		g.restore("ipset", s.sets)
	}
	if s.forward == "" {
		s.forward = "ACCEPT"
	}
	g.restore("iptables-legacy-restore", withMarkers(s.rules, s.forward))
	if text := withMarkers(s.rules6, s.forward); g.rules6 == "" || s.rules6 != nil {
		g.restore("ip6tables-legacy-restore", text)
		g.rules6 = g.sh("ip6tables-legacy-save")
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/vs/conntrack", fmt.Append(nil, s.conntrack), 0o644); err != nil {
		g.t.Fatal(err)
	}
	for _, vip := range s.vips {
		a, err := netlink.ParseAddr(netip.PrefixFrom(netip.MustParseAddr(vip), netip.MustParseAddr(vip).BitLen()).String())
		if err != nil {
			g.t.Fatal(err)
		}
		a.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrReplace(g.dummy, a); err != nil {
			g.t.Fatal(err)
		}
	}
	for _, v := range s.servers {
		if err := v.make(); err != nil {
			g.t.Fatal(err)
		}
	}
	var w *netfilter.Walker
	if s.whole {
		w = g.look()
	} else {
		w = g.glance(s.sets != "")
	}
	failed := g.t.Failed()
	for _, d := range s.dials {
		g.dials(s, w, d)
		g.visits(s, w, d)
	}
	if s.counts {
		g.counts(s)
	}
	if g.t.Failed() && !failed {
		g.t.Logf("setup %s:\n%s\n%s\n%s", s.name, g.sh("cat /proc/net/ip_vs; ip -br addr; ipset save"), g.sh("iptables-legacy-save -c"), g.sh("ip6tables-legacy-save -c"))
	}
}

// texts holds what svcnet reads of virtual servers of every kind against the kernel's own list and, where it is there,
// against ipvsadm.
func (g *guest) texts() {
	g.t.Helper()
	some := []dest{{to: at("10.1.1.1", 80), weight: 1}, {to: at("10.1.1.10", 80), weight: 100}, {to: at("10.1.1.9", 80), weight: 0, method: 2}, {to: at("10.1.1.9", 443), weight: 7, method: 3}}
	all := []server{
		{proto: unix.IPPROTO_TCP, at: at("10.96.0.1", 443), sched: "rr", dests: some},
		{proto: unix.IPPROTO_UDP, at: at("10.96.0.1", 443), sched: "wrr", flags: onePacket, dests: some[:1]},
		{proto: unix.IPPROTO_SCTP, at: at("203.0.113.9", 99), sched: "wlc"},
		{proto: unix.IPPROTO_TCP, at: at("10.96.0.2", 80), sched: "sh", flags: persistent | fallback | 16, timeout: 10800, dests: some[1:]},
		{proto: unix.IPPROTO_TCP, at: at("10.96.0.2", 81), sched: "mh", flags: 16},
		{proto: unix.IPPROTO_TCP, at: at("10.96.0.2", 82), sched: "lc", flags: fallback | 32},
		{proto: unix.IPPROTO_TCP, at: at("10.96.0.2", 0), sched: "rr", flags: persistent, timeout: 1},
		{mark: 7, sched: "dh", dests: []dest{{to: netip.AddrPortFrom(netip.MustParseAddr("10.1.1.1"), 0), weight: 1}}},
		{mark: 7, six: true, sched: "fo", flags: persistent, timeout: 60},
		{proto: unix.IPPROTO_TCP, at: at("fd00:96::1", 80), sched: "sed", flags: persistent, timeout: 300, dests: []dest{{to: at("fd00::5", 8080), weight: 3}}},
	}
	for _, s := range all {
		if err := s.make(); err != nil {
			g.t.Fatal(err)
		}
	}
	before := g.sh("cut -d' ' -f1 /proc/modules | sort")
	g.look()
	if after := g.sh("cut -d' ' -f1 /proc/modules | sort"); after != before {
		g.t.Errorf("reading loaded modules: before\n%s\nafter\n%s", before, after)
	}
	read := make(map[string]string)
	for _, e := range g.seen.Evidence {
		read[e.File] = string(e.Data)
	}
	table := func(texts ...string) []ipvs.Service {
		var t ipvs.Table
		for _, text := range texts {
			if problems, err := ipvs.Parse(&t, text, "f"); err != nil || len(problems) > 0 {
				g.t.Fatalf("%v, %v\n%s", err, problems, text)
			}
		}
		return t.Services
	}
	same := cmp.Options{
		cmpopts.IgnoreTypes(host.Evidence{}), cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty(),
		cmpopts.SortSlices(func(a, b ipvs.Service) bool { return a.String() < b.String() }),
		cmpopts.SortSlices(func(a, b ipvs.Dest) bool { return a.AddrPort().Compare(b.AddrPort()) < 0 }),
	}
	// The kernel's list lacks flags, seconds, tunnels and the family of marks.
	lacks := cmp.Options{same, cmpopts.IgnoreFields(ipvs.Service{}, "SchedFlags", "Timeout"), cmpopts.IgnoreFields(ipvs.Dest{}, "Tunnel"),
		cmpopts.IgnoreSliceElements(func(s ipvs.Service) bool { return s.FWMark != 0 })}
	own := g.sh("grep -v '^FWM.*fo' /proc/thread-self/net/ip_vs")
	if diff := cmp.Diff(table(own), table(read["ipvsadm-save.txt"], read["ipvsadm-list.txt"]), lacks); diff != "" {
		g.t.Errorf("not what the kernel lists: %s", diff)
	}
	if _, err := exec.LookPath("ipvsadm"); err != nil {
		g.t.Log("ipvsadm is not installed: texts were compared with the kernel's list alone")
		return
	}
	for file, tool := range map[string]string{"ipvsadm-save.txt": "ipvsadm -Sn", "ipvsadm-list.txt": "ipvsadm -Ln", "ipvsadm-stats.txt": "ipvsadm -Ln --stats --exact"} {
		if diff := cmp.Diff(anyOrder(g.sh(tool)), anyOrder(read[file])); diff != "" {
			g.t.Errorf("not what %s prints: %s", tool, diff)
		}
	}
	g.t.Logf("ipvsadm prints the same %d lines", len(anyOrder(read["ipvsadm-save.txt"]))+len(anyOrder(read["ipvsadm-list.txt"]))+len(anyOrder(read["ipvsadm-stats.txt"])))
}

// anyOrder are the lines of a list: ipvsadm subtracts addresses to sort them, and is wrong about those that are far apart.
func anyOrder(text string) []string {
	l := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(l)
	return l
}

// counts holds what is told of the connections through virtual servers of TCP against those that were made, all of which
// reached a server, and against ipvsadm where it is there.
func (g *guest) counts(s setup) {
	g.t.Helper()
	made := make(map[netip.AddrPort]uint64)
	for _, d := range s.dials {
		if d.proto == "tcp" {
			made[d.to] += uint64(d.times)
		}
	}
	const list = "ipvsadm -Ln --stats --exact"
	_, err := exec.LookPath("ipvsadm")
	tool := err == nil
	before := explain.CountersOf(g.seen)
	// The kernel adds up its counters every two seconds, and the last packets of a connection may still be on their way.
	time.Sleep(5 * time.Second)
	for try := 0; ; try++ {
		var first, second string
		if tool {
			first = g.sh(list)
		}
		g.look()
		if tool {
			second = g.sh(list)
		}
		if first == second {
			if diff := cmp.Diff(anyOrder(second), anyOrder(text(g.seen, "ipvsadm-stats.txt"))); tool && diff != "" {
				g.t.Errorf("%s: not what %s prints: %s", s.name, list, diff)
			}
			break
		}
		if try == 10 {
			g.t.Errorf("%s: %s changes all the time: %s\n%s", s.name, list, first, second)
			return
		}
	}
	after := explain.CountersOf(g.seen)
	since := func(line int) explain.Count {
		at := report.Evidence{File: "ipvsadm-save.txt", Line: line}
		was, ok := before.At(at)
		is, ok2 := after.At(at)
		if !ok || !ok2 {
			g.t.Fatalf("%s: line %d counts nothing", s.name, line)
		}
		return explain.Count{Packets: is.Packets - was.Packets, Bytes: is.Bytes - was.Bytes, Connections: is.Connections - was.Connections}
	}
	var all, of explain.Count
	looked := 0
	check := func() {
		if looked > 0 && all != of {
			g.t.Errorf("%s: a virtual server counted %v, and its real servers %v", s.name, all, of)
		}
	}
	for i, line := range strings.Split(text(g.seen, "ipvsadm-save.txt"), "\n") {
		words := strings.Fields(line)
		if len(words) < 3 || words[1] != "-t" {
			continue
		}
		n := since(i + 1)
		if words[0] == "-A" {
			check()
			want := made[netip.MustParseAddrPort(words[2])]
			// A connection is a SYN, an ACK and a FIN at least.
			if n.Connections != want || n.Packets < 3*want || n.Bytes < 40*n.Packets {
				g.t.Errorf("%s: %d connections were made, and counted: %+v: %s", s.name, want, n, line)
			}
			all, of = n, explain.Count{}
			looked++
			continue
		}
		if strings.HasSuffix(line, " -w 0") && n != (explain.Count{}) {
			g.t.Errorf("%s: a real server that gets no connections counted %+v: %s", s.name, n, line)
		}
		of.Connections += n.Connections
		of.Packets += n.Packets
		of.Bytes += n.Bytes
	}
	check()
	if looked == 0 {
		g.t.Errorf("%s: no virtual server was looked at", s.name)
	}
	if !g.t.Failed() {
		g.t.Logf("%s: virtual servers counted the connections that were made, and ipvsadm says so (%t): %v", s.name, tool, made)
	}
}

// text is what was read into a file.
func text(s *snapshot.Snapshot, file string) string {
	i := slices.IndexFunc(s.Evidence, func(e snapshot.Evidence) bool { return e.File == file })
	if i < 0 {
		return ""
	}
	return string(s.Evidence[i].Data)
}

func (d dialling) packet() netfilter.Packet {
	p := netfilter.Packet{Family: netfilter.IPv4, Dst: d.to.Addr(), DstPort: d.to.Port(), Proto: netfilter.ProtoTCP, Src: d.from.from}
	if d.proto == "udp" {
		p.Proto = netfilter.ProtoUDP
	}
	if d.to.Addr().Is6() {
		p.Family = netfilter.IPv6
	}
	return p
}

func (d dialling) String() string {
	who := "the node"
	if d.from.in != nil {
		who = d.from.in.name
	}
	return fmt.Sprintf("%s (%s) -> %s/%s", who, d.from.from, d.to, d.proto)
}

// dials makes the connections of a client and compares.
func (g *guest) dials(s setup, w *netfilter.Walker, d dialling) {
	g.t.Helper()
	shares, _, all := foretell(w, g.listening, d.entry, d.packet(), true)
	wait := longPatience
	if shares[outcome{failed: "dropped"}] > 0 {
		d.times = min(d.times, 2)
		wait = patience
	}
	counts := make(map[outcome]int)
	for range d.times {
		a, failed, err := d.from.dial(d.proto, d.to, wait)
		if err != nil {
			g.t.Errorf("%s: %s: %v", s.name, d, err)
			return
		}
		o := outcome{failed: failed, server: a.server, source: a.client.Addr()}
		g.connections++
		switch failed {
		case "":
			g.reached++
		case "refused":
			g.refused++
		default:
			g.dropped++
		}
		if counts[o]++; shares[o] == 0 {
			g.t.Errorf("%s: %s: the kernel: %s, the walk: %v", s.name, d, o, shares)
			for _, e := range all {
				g.t.Logf("%s: P %v, %s, assumed %v, notes %v", o, e.P, words(e), e.Assumed, e.Notes)
			}
			return
		}
	}
	if d.stays && len(counts) > 1 {
		g.t.Errorf("%s: %s: a client stays with its server: %v", s.name, d, counts)
	}
	if d.evenly {
		for o, share := range shares {
			if n := float64(counts[o]) - share*float64(d.times); n < -2 || n > 2 {
				g.t.Errorf("%s: %s: %d of %d connections: %s, which has a share of %v", s.name, d, counts[o], d.times, o, share)
			}
		}
	}
}

// words is an ending in short.
func words(e netfilter.Ending) string {
	var b strings.Builder
	for _, h := range e.Hops {
		fmt.Fprintf(&b, "%s %s %s %s; ", h.Kind, h.Table, h.Hook, h.Text)
	}
	return fmt.Sprintf("verdict %d, %s:%d -> %s:%d, %s %s %s (%s)", e.Verdict, e.Packet.Src, e.Packet.SrcPort, e.Packet.Dst, e.Packet.DstPort, e.Table, e.Chain, e.Why, b.String())
}

// visits sends single datagrams that nobody answers, and compares the chains that they came by.
func (g *guest) visits(s setup, w *netfilter.Walker, d dialling) {
	g.t.Helper()
	if d.proto != "udp" {
		return
	}
	_, behind, all := foretell(w, g.listening, d.entry, d.packet(), false)
	family := 4
	if d.to.Addr().Is6() {
		family = 6
	}
	before := g.passed(family)
	g.number++
	if err := d.from.hush(d.to, g.number); err != nil {
		g.t.Errorf("%s: %s: %v", s.name, d, err)
		return
	}
	g.datagrams++
	// A datagram that is late, in a guest without a CPU of its own, has not been dropped.
	for late := time.Now().Add(longPatience); ; {
		a, arrived := g.arrived(g.number)
		met := make(map[string]int)
		for chain, n := range g.passed(family) {
			if n -= before[chain]; n > 0 {
				met[chain] = n
			}
		}
		var endings []netfilter.Ending
		if arrived {
			endings = behind[outcome{server: a.server, source: a.client.Addr()}]
		} else {
			for o, e := range behind {
				if o.failed != "" {
					endings = append(endings, e...)
				}
			}
		}
		if slices.ContainsFunc(endings, func(e netfilter.Ending) bool { return maps.Equal(visited(e), met) }) {
			g.chains += len(met)
			if arrived {
				g.reached++
			}
			return
		}
		if arrived || time.Now().After(late) {
			g.t.Errorf("%s: %s: arrived %v at %s, and came by %v", s.name, d, arrived, a.server, met)
			for _, e := range all {
				g.t.Logf("the walk: %v, %s", visited(e), words(e))
			}
			return
		}
	}
}

func at(a string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(a), port)
}

func (g *guest) outside() client { return client{g.out, netip.MustParseAddr(outClient)} }
func (g *guest) pod() client     { return client{g.podc, netip.MustParseAddr(podClient)} }

// masquerade marks what is for an address, and masquerades what is marked.
func masquerade(vip string) map[string][]string {
	return map[string][]string{
		"nat PREROUTING":  {"-d " + vip + " -j MARK --set-xmark 0x4000/0x4000"},
		"nat OUTPUT":      {"-d " + vip + " -j MARK --set-xmark 0x4000/0x4000"},
		"nat POSTROUTING": {"-m mark --mark 0x4000/0x4000 -j MASQUERADE"},
	}
}

// fixed are setups with a purpose.
func (g *guest) fixed() []setup {
	pods := func(weights ...int) []dest {
		var out []dest
		for i, w := range weights {
			out = append(out, dest{to: at(podServers[i], serverPort), weight: w})
		}
		return out
	}
	everyone := func(proto string, to netip.AddrPort, times int) []dialling {
		return []dialling{
			{from: g.outside(), proto: proto, to: to, times: times},
			{from: g.pod(), proto: proto, to: to, times: times},
			{entry: netfilter.FromNode, proto: proto, to: to, times: times},
		}
	}
	evenly := func(d []dialling) []dialling {
		for i := range d {
			d[i].evenly = true
		}
		return d
	}
	var out []setup
	add := func(s setup) { out = append(out, s) }
	const vip = "10.96.200."

	add(setup{name: "nothing there", conntrack: 1, vips: []string{vip + "1"}, servers: []server{{proto: unix.IPPROTO_TCP, at: at(vip+"1", 80), sched: "rr"}, {proto: unix.IPPROTO_UDP, at: at(vip+"1", 80), sched: "rr"}},
		dials: append(everyone("tcp", at(vip+"1", 80), 3), everyone("udp", at(vip+"1", 80), 2)...)})
	add(setup{name: "all on their way out", conntrack: 1, vips: []string{vip + "2"}, servers: []server{{proto: unix.IPPROTO_TCP, at: at(vip+"2", 80), sched: "rr", dests: pods(0, 0)}},
		dials: everyone("tcp", at(vip+"2", 80), 3)})
	add(setup{name: "round robin", counts: true, conntrack: 1, vips: []string{vip + "3"}, rules: masquerade(vip + "3"), servers: []server{
		{proto: unix.IPPROTO_TCP, at: at(vip+"3", 80), sched: "rr", dests: pods(1, 5, 0, 1)}, {proto: unix.IPPROTO_UDP, at: at(vip+"3", 80), sched: "rr", dests: pods(1, 1)}},
		dials: append(evenly(everyone("tcp", at(vip+"3", 80), 15)), everyone("udp", at(vip+"3", 80), 4)...)})
	add(setup{name: "by weight", conntrack: 1, vips: []string{vip + "4"}, rules: masquerade(vip + "4"), servers: []server{{proto: unix.IPPROTO_TCP, at: at(vip+"4", 80), sched: "wrr", dests: pods(1, 2, 4)}},
		dials: evenly(everyone("tcp", at(vip+"4", 80), 28))})
	add(setup{name: "without connection tracking", conntrack: 0, vips: []string{vip + "5"}, rules: masquerade(vip + "5"), servers: []server{
		{proto: unix.IPPROTO_TCP, at: at(vip+"5", 80), sched: "rr", dests: pods(1, 1)}, {proto: unix.IPPROTO_UDP, at: at(vip+"5", 80), sched: "rr", dests: pods(1)}},
		dials: append(everyone("tcp", at(vip+"5", 80), 4), everyone("udp", at(vip+"5", 80), 3)...)})
	add(setup{name: "FORWARD drops all that is new", conntrack: 1, forward: "DROP", vips: []string{vip + "6"},
		rules: map[string][]string{"filter FORWARD": {"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"}},
		servers: []server{
			{proto: unix.IPPROTO_TCP, at: at(vip+"6", 80), sched: "rr", dests: pods(1, 1)}, {proto: unix.IPPROTO_UDP, at: at(vip+"6", 80), sched: "rr", dests: pods(1)}},
		dials: append(everyone("tcp", at(vip+"6", 80), 4), everyone("udp", at(vip+"6", 80), 2)...)})
	add(setup{name: "a client stays", conntrack: 1, vips: []string{vip + "7"}, servers: []server{{proto: unix.IPPROTO_TCP, at: at(vip+"7", 80), sched: "rr", flags: persistent, timeout: 600, dests: pods(1, 1, 1)}},
		dials: func() []dialling {
			d := everyone("tcp", at(vip+"7", 80), 6)
			for i := range d {
				d[i].stays = true
			}
			return d
		}()})
	add(setup{name: "real servers on the node", conntrack: 1, vips: []string{vip + "8"}, rules: masquerade(vip + "8"), servers: []server{
		{proto: unix.IPPROTO_TCP, at: at(vip+"8", 80), sched: "rr", dests: []dest{{to: at(nodeAddr, serverPort), weight: 1}, {to: at(podServers[0], serverPort), weight: 1}}},
		{proto: unix.IPPROTO_UDP, at: at(vip+"8", 80), sched: "rr", dests: []dest{{to: at(nodeAddr, serverPort), weight: 1}}},
		{proto: unix.IPPROTO_TCP, at: at(vip+"8", 81), sched: "rr", dests: []dest{{to: at("127.0.0.1", serverPort), weight: 1}}}},
		dials: slices.Concat(everyone("tcp", at(vip+"8", 80), 6), everyone("udp", at(vip+"8", 80), 3), everyone("tcp", at(vip+"8", 81), 2))})
	add(setup{name: "no way to the real server", conntrack: 1, vips: []string{vip + "9"}, servers: []server{{proto: unix.IPPROTO_TCP, at: at(vip+"9", 80), sched: "rr", dests: []dest{{to: at("172.16.0.1", 80), weight: 1}}}},
		dials: everyone("tcp", at(vip+"9", 80), 2)})
	add(setup{name: "by mark", conntrack: 1, vips: []string{vip + "10"}, rules: map[string][]string{
		"mangle PREROUTING": {"-d " + vip + "10 -p tcp --dport 7000:7009 -j MARK --set-xmark 0x9/0xffffffff"}, "mangle OUTPUT": {"-d " + vip + "10 -p tcp --dport 7000:7009 -j MARK --set-xmark 0x9/0xffffffff"}},
		servers: []server{{mark: 9, sched: "rr", dests: pods(1, 1)}, {mark: 9, six: true, sched: "rr"}},
		dials:   append(everyone("tcp", at(vip+"10", 7005), 2), everyone("tcp", at(vip+"10", 7010), 2)...)})
	// The real server answers with the virtual server's address itself: past this node, which would take it for its own.
	add(setup{name: "direct routing", conntrack: 1, vips: []string{directAddr}, servers: []server{
		{proto: unix.IPPROTO_UDP, at: at(directAddr, 80), sched: "rr", dests: []dest{{to: at(podServers[2], 80), weight: 1, method: 3}}}},
		dials: []dialling{{from: g.outside(), proto: "udp", to: at(directAddr, 80)}, {from: g.pod(), proto: "udp", to: at(directAddr, 80)}}})
	add(setup{name: "every port", conntrack: 1, vips: []string{vip + "11"}, servers: []server{
		{proto: unix.IPPROTO_TCP, at: at(vip+"11", 0), sched: "rr", flags: persistent, timeout: 60, dests: []dest{{to: netip.AddrPortFrom(netip.MustParseAddr(podServers[1]), 0), weight: 1}}},
		{proto: unix.IPPROTO_TCP, at: at(vip+"11", 80), sched: "rr"}},
		dials: append(everyone("tcp", at(vip+"11", serverPort), 2), everyone("tcp", at(vip+"11", 80), 2)...)})
	add(setup{name: "through OUTPUT", conntrack: 1, vips: []string{vip + "12"}, rules: map[string][]string{
		"filter OUTPUT": {"-d " + podServers[0] + " -p tcp -j DROP", "-d " + podServers[1] + " -p udp -j DROP"}},
		servers: []server{{proto: unix.IPPROTO_TCP, at: at(vip+"12", 80), sched: "rr", dests: pods(1)}, {proto: unix.IPPROTO_UDP, at: at(vip+"12", 80), sched: "rr", dests: pods(1, 1)}},
		dials:   append(everyone("tcp", at(vip+"12", 80), 2), everyone("udp", at(vip+"12", 80), 2)...)})
	add(setup{name: "the state of connection tracking", conntrack: 1, vips: []string{vip + "13"}, rules: map[string][]string{
		"nat POSTROUTING": {"-m conntrack --ctstate DNAT -j SNAT --to-source 192.168.10.11", "-m ipvs --vaddr " + vip + "13 --vport 80 --vmethod MASQ -j MASQUERADE"},
		"filter OUTPUT":   {"-m ipvs --vaddr " + vip + "13 --vport 81 -j DROP"}},
		servers: []server{{proto: unix.IPPROTO_TCP, at: at(vip+"13", 80), sched: "rr", dests: pods(1)}, {proto: unix.IPPROTO_TCP, at: at(vip+"13", 81), sched: "rr", dests: pods(1)}},
		dials:   append(everyone("tcp", at(vip+"13", 80), 3), everyone("tcp", at(vip+"13", 81), 2)...)})
	add(setup{name: "a loopback source", conntrack: 1, servers: []server{{proto: unix.IPPROTO_TCP, at: at("127.0.0.1", 30080), sched: "rr", dests: pods(1)}, {proto: unix.IPPROTO_TCP, at: at(nodeAddr, 30080), sched: "rr", dests: pods(1, 1)}},
		dials: append([]dialling{{entry: netfilter.FromNode, from: client{from: netip.MustParseAddr("127.0.0.1")}, proto: "tcp", to: at("127.0.0.1", 30080), times: 2}}, everyone("tcp", at(nodeAddr, 30080), 4)...)})
	for i, sched := range []string{"sh", "mh", "dh", "fo", "lc", "sed"} {
		ip := fmt.Sprintf("10.96.201.%d", i+1)
		s := setup{name: "scheduler " + sched, conntrack: 1, vips: []string{ip}, servers: []server{{proto: unix.IPPROTO_TCP, at: at(ip, 80), sched: sched, dests: pods(1, 2, 1)}}}
		for c := range 24 {
			s.dials = append(s.dials, dialling{from: client{g.out, netip.MustParseAddr(fmt.Sprintf("192.168.10.%d", clientsFrom+c))}, proto: "tcp", to: at(ip, 80), times: 1})
		}
		add(s)
	}
	quiet := setup{name: "a place in the table of sh", conntrack: 1, vips: []string{"10.96.202.1"}, servers: []server{{proto: unix.IPPROTO_TCP, at: at("10.96.202.1", 80), sched: "sh", dests: pods(1, 0)}, {proto: unix.IPPROTO_TCP, at: at("10.96.202.1", 81), sched: "sh", flags: fallback, dests: pods(1, 0)}}}
	for c := range 24 {
		from := client{g.out, netip.MustParseAddr(fmt.Sprintf("192.168.10.%d", clientsFrom+c))}
		quiet.dials = append(quiet.dials, dialling{from: from, proto: "tcp", to: at("10.96.202.1", 80), times: 1}, dialling{from: from, proto: "tcp", to: at("10.96.202.1", 81), times: 1})
	}
	add(quiet)
	add(setup{name: "IPv6", conntrack: 1, vips: []string{"fd00:96::1"}, rules6: masquerade("fd00:96::1"), servers: []server{
		{proto: unix.IPPROTO_TCP, at: at("fd00:96::1", 80), sched: "rr", dests: []dest{{to: at(podServers6[0], serverPort), weight: 1}, {to: at(podServers6[1], serverPort), weight: 1}, {to: at(nodeAddr6, serverPort), weight: 1}}},
		{proto: unix.IPPROTO_UDP, at: at("fd00:96::1", 80), sched: "rr", dests: []dest{{to: at(podServers6[0], serverPort), weight: 1}}},
		{proto: unix.IPPROTO_TCP, at: at("fd00:96::1", 81), sched: "rr"}},
		dials: func() []dialling {
			var d []dialling
			for _, to := range []struct {
				proto string
				port  uint16
			}{{"tcp", 80}, {"udp", 80}, {"tcp", 81}} {
				d = append(d,
					dialling{from: client{g.out, netip.MustParseAddr(outClient6)}, proto: to.proto, to: at("fd00:96::1", to.port), times: 6},
					dialling{from: client{g.podc, netip.MustParseAddr(podClient6)}, proto: to.proto, to: at("fd00:96::1", to.port), times: 6},
					dialling{entry: netfilter.FromNode, proto: to.proto, to: at("fd00:96::1", to.port), times: 6})
			}
			return d
		}()})
	add(g.kubeProxy())
	return out
}

// kubeProxy are the rules and sets of kube-proxy 1.26 in ipvs mode.
func (g *guest) kubeProxy() setup {
	const vip, lb = "10.96.210.1", "203.0.113.30"
	s := setup{
		name: "kube-proxy", conntrack: 1, vips: []string{vip, lb},
		sets: fmt.Sprintf(`create KUBE-CLUSTER-IP hash:ip,port
add KUBE-CLUSTER-IP %[1]s,tcp:80
add KUBE-CLUSTER-IP %[1]s,udp:80
create KUBE-LOAD-BALANCER hash:ip,port
add KUBE-LOAD-BALANCER %[2]s,tcp:80
create KUBE-LOOP-BACK hash:ip,port,ip
add KUBE-LOOP-BACK %[3]s,tcp:8080,%[3]s
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-NODE-PORT-TCP 30443
create KUBE-IPVS-IPS hash:ip
add KUBE-IPVS-IPS %[1]s
add KUBE-IPVS-IPS %[2]s
create KUBE-HEALTH-CHECK-NODE-PORT bitmap:port range 0-65535
`, vip, lb, podServers[0]),
		rules: map[string][]string{
			"filter :KUBE-IPVS-FILTER": {
				"-m set --match-set KUBE-LOAD-BALANCER dst,dst -j RETURN", "-m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN",
				"-m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j RETURN",
				"-m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-IPS dst -j REJECT --reject-with icmp-port-unreachable"},
			"filter :KUBE-FORWARD":    {"-m mark --mark 0x4000/0x4000 -j ACCEPT", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"},
			"filter INPUT":            {"-j KUBE-IPVS-FILTER"},
			"filter FORWARD":          {"-j KUBE-FORWARD"},
			"nat :KUBE-MARK-MASQ":     {"-j MARK --set-xmark 0x4000/0x4000"},
			"nat :KUBE-LOAD-BALANCER": {"-j KUBE-MARK-MASQ"},
			"nat :KUBE-NODE-PORT":     {"-p tcp -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ"},
			"nat :KUBE-POSTROUTING": {
				"-m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE", "-m mark ! --mark 0x4000/0x4000 -j RETURN",
				"-j MARK --set-xmark 0x4000/0x0", "-j MASQUERADE --random-fully"},
			"nat :KUBE-SERVICES": {
				"-s 127.0.0.0/8 -j RETURN", "-m set --match-set KUBE-LOAD-BALANCER dst,dst -j KUBE-LOAD-BALANCER",
				"! -s 10.244.0.0/16 -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ", "-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT",
				"-m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT", "-m set --match-set KUBE-LOAD-BALANCER dst,dst -j ACCEPT"},
			"nat PREROUTING": {"-j KUBE-SERVICES"}, "nat OUTPUT": {"-j KUBE-SERVICES"}, "nat POSTROUTING": {"-j KUBE-POSTROUTING"},
		},
	}
	backends := []dest{{to: at(podServers[0], serverPort), weight: 1}, {to: at(podServers[1], serverPort), weight: 1}}
	for _, a := range []netip.AddrPort{at(vip, 80), at(lb, 80), at(nodeAddr, 30443)} {
		s.servers = append(s.servers, server{proto: unix.IPPROTO_TCP, at: a, sched: "rr", dests: backends})
		for _, from := range []client{g.outside(), g.pod(), {}} {
			entry := netfilter.FromInterface
			if from.in == nil {
				entry = netfilter.FromNode
			}
			s.dials = append(s.dials, dialling{from: from, entry: entry, proto: "tcp", to: a, times: 6, evenly: true})
		}
	}
	s.servers = append(s.servers, server{proto: unix.IPPROTO_UDP, at: at(vip, 80), sched: "rr", dests: backends})
	for _, from := range []client{g.outside(), g.pod(), {}} {
		entry := netfilter.FromInterface
		if from.in == nil {
			entry = netfilter.FromNode
		}
		s.dials = append(s.dials,
			dialling{from: from, entry: entry, proto: "udp", to: at(vip, 80), times: 2},
			dialling{from: from, entry: entry, proto: "tcp", to: at(vip, 81), times: 2}) // a port of nobody
	}
	// A pod that is sent to itself.
	s.servers = append(s.servers, server{proto: unix.IPPROTO_TCP, at: at(vip, 8000), sched: "rr", dests: backends[:1]})
	s.sets += fmt.Sprintf("add KUBE-CLUSTER-IP %s,tcp:8000\n", vip)
	s.dials = append(s.dials, dialling{from: client{g.pods, netip.MustParseAddr(podServers[0])}, proto: "tcp", to: at(vip, 8000), times: 3})
	return s
}

// random is a setup by chance, the same for the same number.
func (g *guest) random(n int) setup {
	r := rand.New(rand.NewPCG(uint64(n), 7))
	chance := func(p float64) bool { return r.Float64() < p }
	vip := fmt.Sprintf("10.96.%d.1", n)
	s := setup{name: fmt.Sprintf("random %d", n), conntrack: 1, vips: []string{vip}, rules: map[string][]string{}}
	if chance(0.2) {
		s.conntrack = 0
	}
	masq := chance(0.5)
	if masq {
		s.rules = masquerade(vip)
		if chance(0.5) {
			s.sets = fmt.Sprintf("create s hash:ip,port\nadd s %s,tcp:80\nadd s %s,udp:81\n", vip, vip)
			for _, c := range []string{"nat PREROUTING", "nat OUTPUT"} {
				s.rules[c] = []string{"-m set --match-set s dst,dst -j MARK --set-xmark 0x4000/0x4000"}
			}
		}
	}
	if chance(0.3) {
		s.forward = "DROP"
		s.rules["filter FORWARD"] = append(s.rules["filter FORWARD"], "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	}
	if chance(0.25) {
		s.rules["filter OUTPUT"] = append(s.rules["filter OUTPUT"], "-d "+podServers[r.IntN(3)]+" -j DROP")
	}
	if chance(0.15) {
		s.rules["filter INPUT"] = append(s.rules["filter INPUT"], "-d "+vip+" -p udp -j DROP")
	}
	if chance(0.2) {
		s.rules["mangle OUTPUT"] = append(s.rules["mangle OUTPUT"], "-d 10.244.0.0/16 -j MARK --set-xmark 0x1/0x1")
	}
	for i, proto := range []uint16{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		v := server{proto: proto, at: at(vip, uint16(80+i)), sched: []string{"rr", "wrr", "wlc", "lc", "rr"}[r.IntN(5)]}
		remote := false
		for range r.IntN(5) {
			d := dest{weight: r.IntN(4)}
			switch {
			case chance(0.7):
				d.to = at(podServers[r.IntN(len(podServers))], serverPort)
			case chance(0.5):
				d.to = at(nodeAddr, serverPort)
			case chance(0.7):
				d.to, remote = at(outServer, serverPort), true
			default:
				d.to = at("127.0.0.1", serverPort)
			}
			if !slices.ContainsFunc(v.dests, func(other dest) bool { return other.to == d.to }) {
				v.dests = append(v.dests, d)
			}
		}
		s.servers = append(s.servers, v)
		name := map[uint16]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp"}[proto]
		even := v.sched == "rr" || v.sched == "wrr"
		// The remote server and the client outside are neighbours: without masquerading its answers do not come by here.
		if !remote {
			s.dials = append(s.dials, dialling{from: g.outside(), proto: name, to: v.at, times: 8, evenly: even})
		}
		s.dials = append(s.dials,
			dialling{from: g.pod(), proto: name, to: v.at, times: 8, evenly: even},
			dialling{entry: netfilter.FromNode, proto: name, to: v.at, times: 8, evenly: even})
	}
	return s
}
