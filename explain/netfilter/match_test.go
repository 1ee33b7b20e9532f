package netfilter

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/svcnet/svcnet/explain/host"
)

var (
	client  = netip.MustParseAddr("10.244.1.5")
	service = netip.MustParseAddr("10.96.0.10")
)

// syn is the first packet of a pod's connection to a service.
func syn(change ...func(*Packet)) *Packet {
	p := &Packet{
		Family: IPv4, Src: client, Dst: service, Proto: ProtoTCP, SrcPort: 40000, HasSrcPort: true, DstPort: 443,
		In: Iface{Name: "cni0", Known: true}, Out: NoIface, State: StateNew,
		OrigSrc: client, OrigDst: service, OrigSrcPort: 40000, OrigDstPort: 443,
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func udp(p *Packet)       { p.Proto = ProtoUDP }
func sctp(p *Packet)      { p.Proto = ProtoSCTP }
func dccp(p *Packet)      { p.Proto = ProtoDCCP }
func anyPort(p *Packet)   { p.SrcPort, p.HasSrcPort, p.OrigSrcPort = 0, false, 0 }
func local(p *Packet)     { p.Local, p.In = true, NoIface }
func marked(p *Packet)    { p.Mark, p.CTMark = 0x4001, 0x80 }
func untracked(p *Packet) { p.State = StateUntracked }
func invalid(p *Packet)   { p.State = StateInvalid }
func ping(p *Packet)      { p.Proto, p.ICMPType = ProtoICMP, 8 }
func related(p *Packet)   { p.State = StateRelated }
func somewhere(p *Packet) { p.In = Iface{} }

// translated is the packet behind DNAT.
func translated(p *Packet) {
	p.Dst, p.DstPort, p.DNATed = netip.MustParseAddr("10.244.2.7"), 8443, true
}

// reply is the answer.
func reply(p *Packet) {
	p.Src, p.Dst, p.SrcPort, p.DstPort, p.State = p.Dst, p.Src, p.DstPort, p.SrcPort, StateEstablished
	p.Answer, p.Reply = true, true
}

func ip6(p *Packet) {
	p.Family, p.Src, p.Dst = IPv6, netip.MustParseAddr("fd00::5"), netip.MustParseAddr("fd00:96::a")
	p.OrigSrc, p.OrigDst = p.Src, p.Dst
}

func to(a string) func(*Packet) { return func(p *Packet) { p.Dst = netip.MustParseAddr(a) } }

func seen(list string) func(*Packet) {
	return func(p *Packet) { p.Recent = append(p.Recent, RecentUpdate{List: list, Addr: client}) }
}

// kernel knows the addresses of a node with a bridge.
func kernel() *Kernel {
	return &Kernel{
		Host: &host.Host{
			HasAddrs: true, HasLinks: true, HasSockets: true,
			Addrs: []host.Addr{
				{Link: "eth0", Prefix: netip.MustParsePrefix("192.168.1.2/24"), Scope: "global"},
				{Link: "lo", Prefix: netip.MustParsePrefix("127.0.0.1/8"), Scope: "host"},
			},
			Links: []host.Link{
				{Name: "lo", Kind: "loopback"}, {Name: "eth0", Kind: "veth"}, {Name: "cni0", Kind: "bridge"},
			},
			Sysctls: map[string]string{"net.bridge.bridge-nf-call-iptables": "1"},
			Sockets: []host.Socket{{Proto: ProtoTCP, Port: 443}},
		},
		Sets: map[string]*Set{
			"HAS":   {Name: "HAS", Contains: func([]Dir, *Packet) Answer { return Yes }},
			"LACKS": {Name: "LACKS", Contains: func([]Dir, *Packet) Answer { return No }},
		},
		Recent: map[string]*RecentList{
			"OLD": {Name: "OLD", Ages: map[string][]float64{client.String(): {5, 100}}},
		},
	}
}

// TestPhysdevCalls: what a bridge switches meets the rules by the sysctl, or by the bridge's own setting, and never
// without the module that has the sysctl.
func TestPhysdevCalls(t *testing.T) {
	const name = "net.bridge.bridge-nf-call-iptables"
	for _, tt := range []struct {
		sysctl string // "-": not captured, "": there is none
		own    host.Known
		want   Truth
	}{
		{"1", host.No, True}, {"0", host.No, False}, {"0", host.Yes, True}, {"0", host.Unknown, False},
		{"", host.No, False}, {"", host.Yes, False}, {"-", host.No, Undecided},
	} {
		k := kernel()
		k.Host.Links[2].CallsIPTables = tt.own
		delete(k.Host.Sysctls, name)
		switch tt.sysctl {
		case "":
			k.Host.SysctlsWithin = []host.SysctlTree{{Name: "net.bridge"}}
		case "-":
		default:
			k.Host.Sysctls[name] = tt.sysctl
		}
		if got := parseMatch(t, "-m physdev --physdev-is-in").Test(k, Prerouting, syn()); got.Truth != tt.want {
			t.Errorf("sysctl %q, bridge %v: %v, want %v", tt.sysctl, tt.own, got.Truth, tt.want)
		}
	}
}

// unaware knows nothing.
func unaware() *Kernel { return &Kernel{Host: &host.Host{}} }

func parseMatch(t *testing.T, save string) Match {
	t.Helper()
	sets, err := ParseRules("-P FORWARD ACCEPT\n-A FORWARD "+save+"\n", "test", Hint{Family: IPv4, Table: "filter"})
	if err != nil || len(sets) != 1 || len(sets[0].Problems) != 0 {
		t.Fatalf("%s: %v %v", save, err, sets)
	}
	m := sets[0].Table("filter").Chain("FORWARD").Rules[0].Matches
	if len(m) != 1 {
		t.Fatalf("%s: %d matches", save, len(m))
	}
	return m[0]
}

func TestMatches(t *testing.T) {
	k := kernel()
	blind := unaware()
	fresh := kernel()
	fresh.NewClient = true
	for _, test := range []struct {
		save   string
		kernel *Kernel
		p      *Packet
		want   Truth
	}{
		// tcp
		{"-p tcp -m tcp --dport 443", k, syn(), True},
		{"-p tcp -m tcp --dport 443", k, syn(udp), False},
		{"-p tcp -m tcp ! --dport 443", k, syn(), False},
		{"-p tcp -m tcp --dport ! 443", k, syn(), False},
		{"-p tcp -m tcp --dport 400:500", k, syn(), True},
		{"-p tcp -m tcp --dport 444:", k, syn(), False},
		{"-p tcp -m tcp --dport :443", k, syn(), True},
		{"-p tcp --destination-port https", k, syn(), True},
		{"-m tcp -p tcp --dport=443", k, syn(), True},
		{"-p tcp -m tcp --sport 40000", k, syn(), True},
		{"-p tcp -m tcp --sport 40000", k, syn(anyPort), Undecided},
		{"-p tcp -m tcp --sport 1:65535", k, syn(anyPort), True},
		{"-p tcp -m tcp ! --sport 0:65535", k, syn(anyPort), False},
		{"-p tcp -m tcp --sport 443", k, syn(reply), True},
		{"-p tcp -m tcp --dport 40000", k, syn(reply), True},
		{"-p tcp -m tcp --dport 40000", k, syn(anyPort, reply), Undecided},
		{"-p tcp --syn", k, syn(), True},
		{"-p tcp ! --syn", k, syn(), False},
		{"-p tcp --syn", k, syn(reply), False},
		{"-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN,ACK", k, syn(reply), True},
		{"-p tcp -m tcp --tcp-flags ALL NONE", k, syn(), False},
		{"-p tcp -m tcp --tcp-flags RST NONE", k, syn(), True},
		{"-p tcp --syn", k, syn(invalid), Undecided},
		{"-p tcp -m tcp --tcp-option 2", k, syn(), Undecided},
		{"-p tcp -m tcp --dport 80 --tcp-option 2", k, syn(), False},

		// udp, udplite
		{"-p udp -m udp --dport 443", k, syn(udp), True},
		{"-p udp -m udp --dport 53", k, syn(udp), False},
		{"-p udp -m udp ! --sport 1:5 --dport 443", k, syn(udp), True},
		{"-p udplite -m udplite --dport 443", k, syn(func(p *Packet) { p.Proto = ProtoUDPLite }), True},

		// sctp
		{"-p sctp -m sctp --dport 443", k, syn(sctp), True},
		{"-p sctp -m sctp --chunk-types any INIT,DATA:Be", k, syn(sctp), True},
		{"-p sctp -m sctp --chunk-types any INIT,DATA:Be", k, syn(sctp, reply), False},
		{"-p sctp -m sctp --chunk-types all INIT,INIT_ACK", k, syn(sctp), False},
		{"-p sctp -m sctp --chunk-types all INIT", k, syn(sctp), True},
		{"-p sctp -m sctp --chunk-types only INIT,DATA", k, syn(sctp), True},
		{"-p sctp -m sctp ! --chunk-types only ALL", k, syn(sctp), False},

		// dccp
		{"-p dccp -m dccp --dport 443 --dccp-types REQUEST,RESPONSE", k, syn(dccp), True},
		{"-p dccp -m dccp ! --dccp-types REQUEST", k, syn(dccp), False},
		{"-p dccp -m dccp --dccp-types RESPONSE", k, syn(dccp, reply), True},
		{"-p dccp -m dccp --dccp-option 12", k, syn(dccp), Undecided},

		// icmp
		{"-p icmp -m icmp --icmp-type 8", k, syn(ping), True},
		{"-p icmp -m icmp --icmp-type echo-request", k, syn(ping), True},
		{"-p icmp -m icmp --icmp-type 8/0", k, syn(ping), True},
		{"-p icmp -m icmp --icmp-type 8/1-3", k, syn(ping), False},
		{"-p icmp -m icmp ! --icmp-type 8", k, syn(ping), False},
		{"-p icmp -m icmp --icmp-type 0", k, syn(ping), False},
		{"-p icmp -m icmp ! --icmp-type any", k, syn(ping), False},
		{"-p icmp -m icmp --icmp-type 8", k, syn(), False},
		{"-p ipv6-icmp -m icmp6 --icmpv6-type 128", k, syn(ip6, func(p *Packet) { p.Proto, p.ICMPType = ProtoICMPv6, 128 }), True},
		{"-p ipv6-icmp -m icmp6 --icmpv6-type neighbor-solicitation", k, syn(ip6, func(p *Packet) { p.Proto, p.ICMPType = ProtoICMPv6, 128 }), False},

		// multiport
		{"-p tcp -m multiport --dports 80,443", k, syn(), True},
		{"-p tcp -m multiport --dports 80,8000:8080", k, syn(), False},
		{"-p tcp -m multiport ! --dports 80,443", k, syn(), False},
		{"-p tcp -m multiport --sports 80,40000", k, syn(), True},
		{"-p tcp -m multiport --sports 80", k, syn(anyPort), Undecided},
		{"-p tcp -m multiport --ports 40000", k, syn(), True},
		{"-p tcp -m multiport --ports 443", k, syn(anyPort), True},
		{"-p tcp -m multiport --ports 444", k, syn(anyPort), Undecided},
		{"-m multiport --dports 443", k, syn(ping), False},

		// mark, connmark
		{"-m mark --mark 0x4000/0x4000", k, syn(marked), True},
		{"-m mark --mark 0x4000", k, syn(marked), False},
		{"-m mark --mark 16385", k, syn(marked), True},
		{"-m mark ! --mark 0x4000/0x4000", k, syn(), True},
		{"-m mark --mark 0x5/0x4", k, syn(func(p *Packet) { p.Mark = 5 }), False}, // a value outside its mask never matches
		{"-m connmark --mark 0x80/0x80", k, syn(marked), True},
		{"-m connmark ! --mark 0x80", k, syn(marked), False},
		{"-m connmark ! --mark 0x80", k, syn(untracked), False},
		{"-m connmark ! --mark 0x80", k, syn(), True},

		// conntrack, state
		{"-m conntrack --ctstate NEW", k, syn(), True},
		{"-m conntrack --ctstate RELATED,ESTABLISHED", k, syn(), False},
		{"-m conntrack --ctstate RELATED,ESTABLISHED", k, syn(reply), True},
		{"-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT", k, syn(), True},
		{"-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT", k, syn(translated), False},
		{"-m conntrack --ctstate DNAT", k, syn(translated, reply), True},
		{"-m conntrack --ctstate SNAT", k, syn(translated), False},
		{"-m conntrack --ctstate INVALID", k, syn(invalid), True},
		{"-m conntrack --ctstate DNAT", k, syn(translated, invalid), False},
		{"-m conntrack --ctstate UNTRACKED", k, syn(untracked), True},
		{"-m conntrack ! --ctstate NEW", k, syn(untracked), True},
		{"-m conntrack --ctstate UNTRACKED --ctproto 17", k, syn(untracked), True}, // without a connection the state alone decides
		{"-m conntrack --ctproto 6", k, syn(untracked), False},
		{"-m conntrack --ctproto 6", k, syn(), True},
		{"-m conntrack ! --ctproto tcp", k, syn(), False},
		{"-m conntrack --ctorigdst 10.96.0.0/12", k, syn(translated), True},
		{"-m conntrack ! --ctorigdst 10.96.0.10", k, syn(translated), False},
		{"-m conntrack --ctorigsrc 10.244.0.0/16 --ctorigdstport 443", k, syn(translated), True},
		{"-m conntrack --ctorigdstport 8443", k, syn(translated), False},
		{"-m conntrack --ctreplsrc 10.244.2.7 --ctreplsrcport 8443", k, syn(translated), True},
		{"-m conntrack --ctrepldst 10.244.1.5 --ctrepldstport 40000", k, syn(), True},
		{"-m conntrack --ctreplsrc 10.244.2.7", k, syn(translated, reply), Undecided},
		{"-m conntrack --ctorigsrcport 1:1000", k, syn(anyPort), Undecided},
		{"-m conntrack --ctdir ORIGINAL", k, syn(), True},
		{"-m conntrack --ctdir REPLY", k, syn(), False},
		{"-m conntrack --ctdir REPLY", k, syn(reply), True},
		{"-m conntrack --ctstatus CONFIRMED", k, syn(), False},
		{"-m conntrack --ctstatus SEEN_REPLY", k, syn(reply), True},
		{"-m conntrack ! --ctstatus ASSURED", k, syn(reply), True},
		{"-m conntrack --ctstatus ASSURED", k, syn(udp, reply), Undecided},
		{"-m conntrack --ctstatus EXPECTED", k, syn(related), True},
		{"-m conntrack --ctstatus NONE", k, syn(), False},
		{"-m conntrack ! --ctstatus NONE", k, syn(), True},
		{"-m conntrack --ctexpire 1:5", k, syn(), Undecided},
		{"-m state --state NEW,ESTABLISHED", k, syn(), True},
		{"-m state ! --state NEW", k, syn(), False},

		// addrtype
		{"-m addrtype --dst-type LOCAL", k, syn(to("192.168.1.2")), True},
		{"-m addrtype --dst-type LOCAL", k, syn(to("127.5.5.5")), True},
		{"-m addrtype ! --dst-type LOCAL", k, syn(to("192.168.1.2")), False},
		{"-m addrtype --dst-type LOCAL", k, syn(), False},
		{"-m addrtype --dst-type LOCAL", blind, syn(), Undecided},
		{"-m addrtype ! --src-type LOCAL", k, syn(), True},
		{"-m addrtype --src-type UNICAST --dst-type LOCAL,BROADCAST", k, syn(to("255.255.255.255")), True},
		{"-m addrtype --dst-type MULTICAST", k, syn(to("224.0.0.1")), True},
		{"-m addrtype --dst-type LOCAL --limit-iface-in", k, syn(to("192.168.1.2")), False},
		{"-m addrtype --dst-type LOCAL --limit-iface-in", k, syn(to("192.168.1.2"), func(p *Packet) { p.In = Iface{Name: "eth0", Known: true} }), True},
		{"-m addrtype --dst-type LOCAL --limit-iface-in", k, syn(to("192.168.1.2"), somewhere), Undecided},
		{"-m addrtype --dst-type UNICAST", k, syn(ip6), True},
		{"-m addrtype --dst-type MULTICAST", k, syn(ip6, to("ff02::1")), True},
		{"-m addrtype --dst-type UNICAST", k, syn(ip6, to("ff02::1")), False},

		{"-m addrtype --dst-type UNREACHABLE --limit-iface-in", k, syn(ip6), Undecided},

		// statistic
		{"-m statistic --mode random --probability 0.5", k, syn(), Random},
		{"-m statistic --mode random --probability 0", k, syn(), False},
		{"-m statistic --mode random --probability 1.00000000000", k, syn(), True},
		{"-m statistic --mode random ! --probability 1.00000000000", k, syn(), False},
		{"-m statistic --mode nth --every 3 --packet 1", k, syn(), Random},
		{"-m statistic --mode nth --every 1 --packet 0", k, syn(), True},

		// recent
		{"-m recent --set --name OLD --mask 255.255.255.255 --rsource", k, syn(), True},
		{"-m recent ! --set --name OLD", k, syn(), False},
		{"-m recent --rcheck --seconds 10 --reap --name OLD", k, syn(), True},
		{"-m recent --rcheck --seconds 4 --name OLD", k, syn(), False},
		{"-m recent ! --rcheck --seconds 4 --name OLD", k, syn(), True},
		{"-m recent --rcheck --hitcount 2 --name OLD", k, syn(), True},
		{"-m recent --rcheck --seconds 10 --hitcount 2 --name OLD", k, syn(), False},
		{"-m recent --rcheck --seconds 10 --hitcount 2 --name OLD", k, syn(seen("OLD")), True},
		{"-m recent --rcheck --name OLD --rdest", k, syn(), False},
		{"-m recent --rcheck --name OLD --rttl", k, syn(), Undecided},
		{"-m recent --rcheck --name OTHER", k, syn(), Undecided},
		{"-m recent --rcheck --name OTHER", blind, syn(), Undecided},
		{"-m recent --rcheck --name OLD", fresh, syn(), False},
		{"-m recent --rcheck --name OLD", fresh, syn(seen("OLD")), True},
		{"-m recent --rcheck --name OLD", fresh, syn(seen("OTHER")), False},
		{"-m recent --update --name OLD --seconds 10", k, syn(), True},
		{"-m recent --remove --name OLD", k, syn(), True},
		{"-m recent --rcheck --name OLD --mask 255.255.0.0", k, syn(), False},

		// set
		{"-m set --match-set HAS src", k, syn(), True},
		{"-m set ! --match-set HAS dst,dst", k, syn(), False},
		{"-m set ! --match-set LACKS dst", k, syn(), True},
		{"-m set --match-set GONE dst", k, syn(), Undecided},
		{"-m set --match-set HAS dst", blind, syn(), Undecided},
		{"-m set --match-set HAS dst --packets-gt 5", k, syn(), Undecided},
		{"-m set --match-set LACKS dst --packets-gt 5", k, syn(), False},

		// physdev: cni0 is a bridge, eth0 is not.
		{"-m physdev ! --physdev-is-in", k, syn(func(p *Packet) { p.In = Iface{Name: "eth0", Known: true} }), True},
		{"-m physdev --physdev-is-in", k, syn(func(p *Packet) { p.In = Iface{Name: "eth0", Known: true} }), False},
		{"-m physdev --physdev-in eth0", k, syn(local), False},
		{"-m physdev ! --physdev-is-in", k, syn(), False},
		{"-m physdev --physdev-is-in", k, syn(), True},
		{"-m physdev --physdev-is-bridged", k, syn(), False},
		{"-m physdev --physdev-in veth1", k, syn(), Undecided},
		{"-m physdev ! --physdev-is-in", k, syn(somewhere), Undecided},
		{"-m physdev ! --physdev-is-in", blind, syn(), Undecided},

		// owner
		{"-m owner --uid-owner 1000", k, syn(), False},
		{"-m owner ! --uid-owner 1000", k, syn(), True},
		{"-m owner --uid-owner 1000", k, syn(local), Undecided},
		{"-m owner --socket-exists", k, syn(local), True},
		{"-m owner ! --socket-exists", k, syn(local), False},
		{"-m owner ! --socket-exists", k, syn(), True},

		// socket
		{"-m socket", k, syn(), Undecided},
		{"-m socket --transparent", k, syn(func(p *Packet) { p.DstPort = 80 }), False},
		{"-m socket", blind, syn(), Undecided},

		// iprange
		{"-m iprange --src-range 10.244.1.1-10.244.1.9", k, syn(), True},
		{"-m iprange ! --src-range 10.244.1.1-10.244.1.9", k, syn(), False},
		{"-m iprange --src-range 10.244.1.1-10.244.1.9 --dst-range 10.96.0.11-10.96.0.12", k, syn(), False},

		// the rest
		{"-m pkttype --pkt-type unicast", k, syn(), True},
		{"-m pkttype ! --pkt-type multicast", k, syn(), True},
		{"-m pkttype --pkt-type multicast", k, syn(to("224.0.0.1")), Undecided},
		{"-m helper --helper ftp", k, syn(), False},
		{"-m helper ! --helper ftp", k, syn(), True},
		{"-m helper --helper ftp", k, syn(related), Undecided},
		{"-m nfacct --nfacct-name  ct_state_invalid_dropped_pkts", k, syn(), True},
		{"-m nfacct --nfacct-name other", k, syn(), Undecided},
		{"-m rpfilter --invert", k, syn(func(p *Packet) { p.In = Iface{Name: "lo", Known: true} }), False},
		{"-m rpfilter", blind, syn(), Undecided},
		{"-m hbh ! --hbh-len 8", k, syn(ip6), False},
		{"-m frag --fragid 5 --fragfirst", k, syn(ip6), False},
		{"-m esp --espspi 5", k, syn(), False},
		{"-s 10.0.0.5/255.0.0.255", k, syn(), True},
		{"! -s 10.0.0.5/255.0.0.255", k, syn(), False},
		{"-d 10.0.0.5/255.0.0.255", k, syn(), False},
		{"-m limit --limit 3/min --limit-burst 7", k, syn(), Undecided},
		{"-m hashlimit --hashlimit-upto 50/sec --hashlimit-name x", k, syn(), Undecided},
		{"-m time --timestart 08:00:00", k, syn(), Undecided},
		{`-m string ! --string "--dport 80 -j DROP" --algo bm`, k, syn(), Undecided},
		{`-m u32 --u32 "0x0=0x1"`, k, syn(), Undecided},
		{"-m geoip --source-country XX", k, syn(), Undecided},
		{"-m invented --with 5 ! --without", k, syn(), Undecided},
	} {
		m := parseMatch(t, test.save)
		before := *test.p
		if got := m.Test(test.kernel, Prerouting, test.p).Truth; got != test.want {
			t.Errorf("%s: %d, want %d (%+v)", test.save, got, test.want, m)
		}
		if diff := cmp.Diff(before, *test.p, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
			t.Errorf("%s changes the packet: %s", test.save, diff)
		}
	}
}

// What is undecided says what is asked, what each answer means and why it is open.
func TestFacts(t *testing.T) {
	for _, save := range []string{
		"-p tcp --sport 5", "-p tcp -m tcp --tcp-option 2", "-m multiport -p tcp --sports 1,2", "-m conntrack --ctexpire 5", "-m conntrack --ctorigsrcport 5",
		"-m addrtype --dst-type LOCAL", "-m addrtype --dst-type BLACKHOLE", "-m recent --rcheck --name X", "-m set --match-set X src,dst", "-m physdev --physdev-is-in",
		"-m socket", "-m limit --limit 3/min", "-m invented --option", "-m nfacct --nfacct-name x", "-m rpfilter",
	} {
		m := parseMatch(t, save)
		a := m.Test(unaware(), Prerouting, syn(anyPort))
		if a.Truth != Undecided {
			t.Errorf("%s: %d", save, a.Truth)
			continue
		}
		if f := a.Fact; f.Key == "" || f.Yes == "" || f.No == "" || f.Because == "" || f.Yes == f.No {
			t.Errorf("%s: incomplete fact %+v", save, f)
		}
		if again := m.Test(unaware(), Forward, syn(anyPort)); again.Fact.Key != a.Fact.Key {
			t.Errorf("%s: the same question has two keys, %q and %q", save, a.Fact.Key, again.Fact.Key)
		}
	}
	local := parseMatch(t, "-m addrtype --dst-type LOCAL").Test(unaware(), Prerouting, syn())
	if want := LocalFact(service, "").Key; local.Fact.Key != want {
		t.Errorf("addrtype asks %q, routing asks %q", local.Fact.Key, want)
	}
	negated := parseMatch(t, "-m addrtype ! --dst-type LOCAL").Test(unaware(), Prerouting, syn())
	if !negated.Fact.Not || negated.Fact.Key != local.Fact.Key {
		t.Errorf("negated: %+v", negated.Fact)
	}
	a := parseMatch(t, "-p tcp --sport 5").Test(unaware(), Prerouting, syn(anyPort))
	p := syn(anyPort)
	if a.Fact.Assume(p); p.SrcPort != 5 || !p.HasSrcPort {
		t.Error("an assumed port does not become the packet's")
	}
}

func TestStatisticShares(t *testing.T) {
	for save, want := range map[string]float64{
		"-m statistic --mode random --probability 0.33333333349":   0.33333333349,
		"-m statistic --mode random ! --probability 0.25000000000": 0.75,
		"-m statistic --mode nth --every 4 --packet 2":             0.25,
	} {
		if a := parseMatch(t, save).Test(nil, Prerouting, syn()); a.Truth != Random || a.P != want {
			t.Errorf("%s: %+v", save, a)
		}
	}
}

func TestRecords(t *testing.T) {
	for save, want := range map[string]string{
		"-m recent --set --name X":                    "X 10.244.1.5",
		"-m recent --set --name X --mask 255.255.0.0": "X 10.244.0.0",
		"-m recent --set --name X --rdest":            "X 10.96.0.10",
		"-m recent --update --name X":                 "X 10.244.1.5",
		"-m recent --rcheck --name X":                 "",
		"-m recent --remove":                          "DEFAULT 10.244.1.5",
		"-m recent ! --update --name X --seconds 5":   "",
		"-m recent --set":                             "DEFAULT 10.244.1.5",
	} {
		u, ok := parseMatch(t, save).(Recorder).Records(&Kernel{}, syn())
		got := ""
		if ok {
			got = u.List + " " + u.Addr.String()
		}
		if got != want {
			t.Errorf("%s records %q, want %q", save, got, want)
		}
	}
}

func TestIfaceMatch(t *testing.T) {
	for _, test := range []struct {
		m    IfaceMatch
		i    Iface
		want Truth
	}{
		{IfaceMatch{}, Iface{}, True},
		{IfaceMatch{Name: "+"}, Iface{}, True},
		{IfaceMatch{Name: "+", Not: true}, Iface{Name: "eth0", Known: true}, False},
		{IfaceMatch{Name: "eth0"}, Iface{Name: "eth0", Known: true}, True},
		{IfaceMatch{Name: "eth0", Not: true}, Iface{Name: "eth0", Known: true}, False},
		{IfaceMatch{Name: "eth"}, Iface{Name: "eth0", Known: true}, False},
		{IfaceMatch{Name: "eth+"}, Iface{Name: "eth0", Known: true}, True},
		{IfaceMatch{Name: "eth0+"}, Iface{Name: "eth0", Known: true}, True},
		{IfaceMatch{Name: "eth0"}, NoIface, False},
		{IfaceMatch{Name: "eth0", Not: true}, NoIface, True},
		{IfaceMatch{Name: "eth0"}, Iface{}, Undecided},
	} {
		if got := test.m.Test(test.i, false).Truth; got != test.want {
			t.Errorf("%+v on %+v: %d, want %d", test.m, test.i, got, test.want)
		}
	}
	p := syn(somewhere)
	a := IfaceMatch{Name: "cni0", Not: true}.Test(p.In, false)
	if !a.Fact.Not || a.Fact.Key != "iface-in=cni0" {
		t.Errorf("%+v", a.Fact)
	}
	if a.Fact.Assume(p); p.In != (Iface{Name: "cni0", Known: true}) {
		t.Errorf("assumed interface: %+v", p.In)
	}
	if a := (IfaceMatch{Name: "cali+"}).Test(Iface{}, true); a.Fact.Assume != nil || !strings.HasPrefix(a.Fact.Key, "iface-out=") {
		t.Errorf("%+v", a.Fact)
	}
}

func TestExactDst(t *testing.T) {
	for save, want := range map[string]string{
		"-d 10.96.0.10/32 -p tcp -m tcp --dport 443": "10.96.0.10 6 443 true true true",
		"-d 10.96.0.0/16 -p tcp -m tcp --dport 443":  "invalid IP 6 443 false true true",
		"! -d 10.96.0.10/32 -p udp":                  "invalid IP 17 0 false true false",
		"! -p tcp -m tcp --dport 1:2":                "invalid IP 0 0 false false false",
		"-p sctp -m sctp ! --dport 5":                "invalid IP 132 0 false true false",
		"-d fd00::1/128 -p udp -m udp --dport 53":    "fd00::1 17 53 true true true",
	} {
		sets, err := ParseRules("-A X "+save, "test", Hint{})
		if err != nil {
			t.Fatal(err)
		}
		r := &sets[0].Tables[0].Chain("X").Rules[0]
		addr, proto, port, a, b, c := r.ExactDst()
		if got := fmtDst(addr, proto, port, a, b, c); got != want {
			t.Errorf("%s: %s, want %s", save, got, want)
		}
	}
}

func fmtDst(v ...any) string { return strings.TrimSuffix(fmt.Sprintln(v...), "\n") }
