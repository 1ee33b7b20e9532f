package netfilter

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/ipset"
	"github.com/svcnet/svcnet/explain/ipvs"
)

// node is a node in IPVS mode from captured files, by their names as the tools are called.
func node(t *testing.T, files map[string]string) *Walker {
	t.Helper()
	w := &Walker{Kernel: &Kernel{Host: &host.Host{}}}
	var sets []*ipset.Set
	for name, text := range files {
		var problems []host.Problem
		var err error
		switch {
		case strings.Contains(name, "iptables-save"), strings.Contains(name, "ip6tables-save"):
			var rs []*Ruleset
			hint := Hint{Family: IPv4}
			if strings.HasPrefix(name, "ip6") {
				hint.Family = IPv6
			}
			rs, err = ParseSave(text, name, hint)
			w.Rulesets = append(w.Rulesets, rs...)
		case strings.HasPrefix(name, "ipset"):
			var s []*ipset.Set
			s, problems, err = ipset.Parse(text, name)
			sets = append(sets, s...)
			w.Kernel.Sets = SetsOf(sets)
		case strings.HasPrefix(name, "ipvsadm"):
			if w.Kernel.IPVS == nil {
				w.Kernel.IPVS = new(ipvs.Table)
			}
			problems, err = ipvs.Parse(w.Kernel.IPVS, text, name)
		case strings.HasPrefix(name, "ip-addr"):
			problems, err = host.ParseAddrs(w.Kernel.Host, text, name)
		case strings.HasPrefix(name, "ip-route"):
			problems, err = host.ParseRoutes(w.Kernel.Host, 0, text, name)
		case strings.HasPrefix(name, "sysctl"):
			problems, err = host.ParseSysctls(w.Kernel.Host, text, name)
		case strings.HasPrefix(name, "uname"):
			problems, err = host.ParseUname(w.Kernel.Host, text, name)
		}
		if err != nil || len(problems) > 0 {
			t.Fatalf("%s: %v, %v", name, err, problems)
		}
	}
	return w
}

// outcome is an ending in words: where the packet went, by what, and how the source was changed.
func outcome(e Ending) string {
	text := map[Verdict]string{Delivered: "delivered", Forwarded: "sent", Dropped: "dropped", Rejected: "rejected", NoRoute: "no route", Martian: "martian", UnknownVerdict: "unknown"}[e.Verdict]
	if e.Verdict == Delivered || e.Verdict == Forwarded {
		text += " to " + netip.AddrPortFrom(e.Packet.Dst, e.Packet.DstPort).String()
	}
	if e.DstBy >= 0 {
		text += " by " + string(e.Hops[e.DstBy].Kind)
	}
	if e.Packet.SNATed {
		text += " masqueraded"
	}
	if e.Verdict == Rejected {
		text += " " + e.RejectWith + " " + e.Chain
	}
	return strings.TrimSpace(text)
}

func outcomes(endings []Ending) map[string]float64 {
	out := make(map[string]float64)
	for _, e := range endings {
		text := outcome(e)
		if len(e.Assumed) > 0 {
			var assumed []string
			for _, a := range e.Assumed {
				assumed = append(assumed, fmt.Sprintf("%s=%v", a.Fact.Key, a.Answer))
			}
			text += " if " + strings.Join(assumed, ", ")
		}
		out[text] += e.P
	}
	return out
}

var nearly = cmpopts.EquateApprox(0, 1e-9)

// walkTo walks the first packet of a client.
func walkTo(t *testing.T, w *Walker, entry Entry, src, dst string, proto uint8) []Ending {
	t.Helper()
	to := netip.MustParseAddrPort(dst)
	p := Packet{Family: IPv4, Dst: to.Addr(), DstPort: to.Port(), Proto: proto}
	if from, err := netip.ParseAddrPort(src); err == nil {
		p.Src, p.SrcPort, p.HasSrcPort = from.Addr(), from.Port(), true
	} else if src != "" {
		p.Src = netip.MustParseAddr(src)
	}
	if to.Addr().Is6() {
		p.Family = IPv6
	}
	return w.Walk(entry, p)
}

// TestIPVSCases walks the packets of real reports.
func TestIPVSCases(t *testing.T) {
	dirs, err := filepath.Glob("testdata/ipvs/*")
	if err != nil || len(dirs) < 10 {
		t.Fatalf("%v, %v", dirs, err)
	}
	traces := 0
	for _, dir := range dirs {
		files := make(map[string]string)
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var expected struct {
			Traces []struct {
				Src, Origin, Dst, Result, Chain, By string
				Backends                            map[string]float64
				Masquerade                          *bool
			}
		}
		for _, f := range all {
			b, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if f.Name() == "expected.json" {
				if err := json.Unmarshal(b, &expected); err != nil {
					t.Fatal(err)
				}
				continue
			}
			files[f.Name()] = string(b)
		}
		w := node(t, files)
		for _, tr := range expected.Traces {
			traces++
			dst, protoName, _ := strings.Cut(tr.Dst, "/")
			proto := map[string]uint8{"tcp": ProtoTCP, "udp": ProtoUDP}[protoName]
			entry := FromInterface
			if tr.Origin == "host" {
				entry = FromNode
			}
			var got []Ending
			for _, e := range walkTo(t, w, entry, tr.Src, dst, proto) {
				if len(e.Assumed) > 0 && strings.HasPrefix(e.Assumed[0].Fact.Key, "iface") {
					continue
				}
				got = append(got, e)
			}
			backends, total := make(map[string]float64), 0.0
			for _, e := range got {
				total += e.P
				where := fmt.Sprintf("case %s %s -> %s: %s", filepath.Base(dir), tr.Src, tr.Dst, outcome(e))
				switch tr.Result {
				case "ipvs":
					if e.DstBy < 0 || e.Hops[e.DstBy].Kind != HopIPVS || !strings.Contains(e.Hops[e.DstBy].Text, "-r ") {
						t.Errorf("%s: not by IPVS: %+v", where, e.Hops)
						continue
					}
					if h := e.Hops[e.DstBy]; h.File != "ipvsadm-Sn.txt" || !strings.Contains(strings.Split(files[h.File], "\n")[h.Line-1], h.Text) {
						t.Errorf("%s: evidence %s:%d %q", where, h.File, h.Line, h.Text)
					}
					if tr.Origin == "host" { // a loopback source does not leave the node: IPVS drops it
						if e.Verdict != Martian || !strings.Contains(e.Why, "loopback source") {
							t.Errorf("%s: %s", where, e.Why)
						}
						_, server, _ := strings.Cut(e.Hops[e.DstBy].Text, "-r ")
						server, _, _ = strings.Cut(server, " ")
						backends[server] += e.P
						continue
					}
					if e.Verdict != Forwarded || e.Packet.DNATed {
						t.Errorf("%s: %+v", where, e.Packet)
					}
					backends[netip.AddrPortFrom(e.Packet.Dst, e.Packet.DstPort).String()] += e.P
					if tr.Masquerade != nil && e.Packet.SNATed != *tr.Masquerade {
						t.Errorf("%s: masquerade %v", where, e.Packet.SNATed)
					}
				case "dnat":
					if e.DstBy < 0 || e.Hops[e.DstBy].Chain != tr.By && !strings.HasPrefix(e.Hops[e.DstBy].Chain, "CNI-") {
						t.Errorf("%s: %+v", where, e.Hops)
					}
					backends[netip.AddrPortFrom(e.Packet.Dst, e.Packet.DstPort).String()] += e.P
				case "reject":
					if e.Verdict != Rejected || e.Chain != tr.Chain || e.RejectWith != "icmp-port-unreachable" {
						t.Errorf("%s, want %s", where, tr.Chain)
					}
				}
				if len(e.Assumed) > 0 {
					t.Errorf("%s: %+v", where, e.Assumed)
				}
			}
			if tr.Result != "reject" {
				if diff := cmp.Diff(tr.Backends, backends, nearly); diff != "" {
					t.Errorf("case %s %s -> %s: %s", filepath.Base(dir), tr.Src, tr.Dst, diff)
				}
			}
			if total < 1-1e-9 || total > 1+1e-9 {
				t.Errorf("case %s %s -> %s: shares add up to %v", filepath.Base(dir), tr.Src, tr.Dst, total)
			}
		}
	}
	if traces < 13 {
		t.Errorf("only %d traces", traces)
	}
}

// pair is a node with one interface to the outside and one to pods.
const pairAddrs = `1: lo    inet 127.0.0.1/8 scope host lo
2: eth0    inet 192.168.10.11/24 brd 192.168.10.255 scope global eth0
3: cni0    inet 10.244.1.1/24 scope global cni0
4: kube-ipvs0    inet 10.96.0.9/32 scope global kube-ipvs0
`

const pairRoutes = `default via 192.168.10.1 dev eth0
10.244.1.0/24 dev cni0 proto kernel scope link src 10.244.1.1
192.168.10.0/24 dev eth0 proto kernel scope link src 192.168.10.11
`

// TestIPVSSchedulers: what each scheduler makes of weights.
func TestIPVSSchedulers(t *testing.T) {
	const a, b, c = "sent to 10.244.1.2:8080 by virtual-server", "sent to 10.244.1.3:8080 by virtual-server", "sent to 10.244.1.4:8080 by virtual-server"
	const refused = "rejected icmp-port-unreachable"
	key := "ipvs -A -t 10.96.0.9:80 -s %s 10.244.1.%d:8080"
	for _, tt := range []struct {
		name, service string
		dests         [3]string // weight and options of each; empty for none
		want          map[string]float64
		note          string
	}{
		{"rr", "-s rr", [3]string{"-w 1", "-w 5", ""}, map[string]float64{a: .5, b: .5}, ""},
		{"rr with one on its way out", "-s rr", [3]string{"-w 1", "-w 0", "-w 1"}, map[string]float64{a: .5, c: .5}, ""},
		{"wrr", "-s wrr", [3]string{"-w 1", "-w 2", "-w 5"}, map[string]float64{a: .125, b: .25, c: .625}, ""},
		{"wrr without weights", "-s wrr", [3]string{"-w 0", "-w 0", ""}, map[string]float64{refused: 1}, ""},
		{"lc", "-s lc", [3]string{"-w 1", "-w 3", ""}, map[string]float64{a: .5, b: .5}, "connections under way"},
		{"wlc", "-s wlc", [3]string{"-w 1", "-w 3", ""}, map[string]float64{a: .25, b: .75}, "connections under way"},
		{"sed", "-s sed", [3]string{"-w 1", "-w 3", "-w 0"}, map[string]float64{a: .25, b: .75}, "connections under way"},
		{"nq", "-s nq", [3]string{"-w 1", "-w 3", ""}, map[string]float64{a: .25, b: .75}, "connections under way"},
		{"fo", "-s fo", [3]string{"-w 1", "-w 3", "-w 2"}, map[string]float64{b: 1}, ""},
		{"fo with two alike", "-s fo", [3]string{"-w 3", "-w 3", "-w 2"}, map[string]float64{
			a + " if " + fmt.Sprintf(key, "fo", 2) + "=true": 1, b + " if " + fmt.Sprintf(key, "fo", 2) + "=false": 1}, ""},
		{"ovf", "-s ovf", [3]string{"-w 1", "-w 3", ""}, map[string]float64{b: 1}, "until it has more"},
		{"sh", "-s sh", [3]string{"-w 1", "-w 3", ""}, map[string]float64{a: .25, b: .75}, "client's address"},
		{"sh with one on its way out", "-s sh", [3]string{"-w 1", "-w 0", "-w 2"}, map[string]float64{a: .25, c: .5, refused: .25}, "client's address"},
		{"sh that hands on", "-s sh -b sh-fallback,sh-port", [3]string{"-w 1", "-w 0", "-w 3"}, map[string]float64{a: .25, c: .75}, "address and port"},
		{"mh", "-s mh", [3]string{"-w 1", "-w 3", ""}, map[string]float64{a: .25, b: .75}, "client's address"},
		{"mh with one on its way out", "-s mh", [3]string{"-w 2", "-w 0", "-w 2"}, map[string]float64{
			a + " if ipvs last weight -A -t 10.96.0.9:80 -s mh=true": 1. / 3, c + " if ipvs last weight -A -t 10.96.0.9:80 -s mh=true": 1. / 3,
			refused + " if ipvs last weight -A -t 10.96.0.9:80 -s mh=true": 1. / 3,
			a + " if ipvs last weight -A -t 10.96.0.9:80 -s mh=false":      .5, c + " if ipvs last weight -A -t 10.96.0.9:80 -s mh=false": .5}, "client's address"},
		{"mh that hands on", "-s mh -b mh-fallback", [3]string{"-w 2", "-w 0", "-w 2"}, map[string]float64{a: .5, c: .5}, "client's address"},
		{"dh", "-s dh", [3]string{"-w 2", "-w 0", ""}, map[string]float64{
			a + " if " + fmt.Sprintf(key, "dh", 2) + "=true": 1, refused + " if " + fmt.Sprintf(key, "dh", 2) + "=false": 1}, ""},
		{"lblc", "-s lblc", [3]string{"-w 2", "-w 0", "-w 1"}, map[string]float64{
			a + " if " + fmt.Sprintf(key, "lblc", 2) + "=true": 1, c + " if " + fmt.Sprintf(key, "lblc", 2) + "=false": 1}, ""},
		{"unknown scheduler", "-s new", [3]string{"-w 1", "-w 3", ""}, map[string]float64{a: .25, b: .75}, "not known"},
		{"persistence", "-s rr -p 10800", [3]string{"-w 1", "-w 1", ""}, map[string]float64{a: .5, b: .5}, "10800 s"},
		{"nothing", "-s rr", [3]string{}, map[string]float64{refused: 1}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "-A -t 10.96.0.9:80 " + tt.service + "\n"
			for i, d := range tt.dests {
				if d != "" {
					text += fmt.Sprintf("-a -t 10.96.0.9:80 -r 10.244.1.%d:8080 -m %s\n", i+2, d)
				}
			}
			w := node(t, map[string]string{"ip-addr": pairAddrs, "ip-route": pairRoutes, "ipvsadm": text, "sysctl": "net.ipv4.vs.conntrack = 1\nnet.ipv4.ip_forward = 1\n"})
			for _, from := range []struct {
				entry Entry
				src   string
			}{{FromInterface, "192.168.10.99"}, {FromNode, ""}} {
				got := walkTo(t, w, from.entry, from.src, "10.96.0.9:80", ProtoTCP)
				// The text of a virtual server stands in its questions.
				want := tt.want
				if diff := cmp.Diff(want, outcomes(got), nearly); diff != "" {
					t.Errorf("from %q: %s", from.src, diff)
				}
				for _, e := range got {
					if notes := strings.Join(e.Notes, "; "); tt.note == "" && notes != "" || !strings.Contains(notes, tt.note) {
						t.Errorf("notes %q, want %q", e.Notes, tt.note)
					}
				}
			}
		})
	}
}

// TestIPVSWays: who meets which chains, and who does not.
func TestIPVSWays(t *testing.T) {
	const rules = `*mangle
:PREROUTING ACCEPT
:INPUT ACCEPT
:FORWARD ACCEPT
:OUTPUT ACCEPT
:POSTROUTING ACCEPT
-A OUTPUT -d 10.244.1.2/32 -p tcp -j MARK --set-xmark 0x1/0x1
COMMIT
*filter
:INPUT ACCEPT
:FORWARD DROP
:OUTPUT ACCEPT
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -s 10.244.1.0/24 -j ACCEPT
-A OUTPUT -d 10.244.1.3/32 -j REJECT --reject-with icmp-host-prohibited
COMMIT
*nat
:PREROUTING ACCEPT
:INPUT ACCEPT
:OUTPUT ACCEPT
:POSTROUTING ACCEPT
-A PREROUTING -d 10.96.0.9/32 -p tcp -m tcp --dport 80 -j MARK --set-xmark 0x4000/0x4000
-A OUTPUT -d 10.96.0.9/32 -p tcp -m tcp --dport 80 -j MARK --set-xmark 0x4000/0x4000
-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE
-A POSTROUTING -m conntrack --ctstate DNAT -j SNAT --to-source 1.1.1.1
COMMIT
`
	const services = `-A -t 10.96.0.9:80 -s rr
-a -t 10.96.0.9:80 -r 10.244.1.2:8080 -m -w 1
-A -t 10.96.0.9:81 -s rr
-a -t 10.96.0.9:81 -r 10.244.1.3:8080 -m -w 1
-A -t 10.96.0.9:82 -s rr
-a -t 10.96.0.9:82 -r 192.168.10.11:6443 -m -w 1
-A -t 10.96.0.9:83 -s rr
-a -t 10.96.0.9:83 -r 10.244.1.4:83 -g -w 1
-A -t 10.96.0.9:84 -s rr
-a -t 10.96.0.9:84 -r 10.244.1.4:84 -i -w 1
-A -t 10.96.0.9:85 -s rr
-a -t 10.96.0.9:85 -r 127.0.0.1:85 -m -w 1
-A -t 10.96.0.9:86 -s rr
-a -t 10.96.0.9:86 -r 172.16.0.1:86 -m -w 1
-A -f 9 -s rr
-a -f 9 -r 10.244.1.5:0 -m -w 1
-A -t 192.168.10.11:30080 -s rr
-a -t 192.168.10.11:30080 -r 10.244.1.5:8080 -m -w 1
`
	files := map[string]string{
		"iptables-save": rules, "ipvsadm": services, "ip-addr": pairAddrs, "ip-route": pairRoutes + "unreachable 172.16.0.0/16\n",
		"sysctl": "net.ipv4.vs.conntrack = 1\nnet.ipv4.ip_forward = 1\nnet.ipv4.conf.all.rp_filter = 0\n",
	}
	w := node(t, files)
	files["sysctl"] = strings.Replace(files["sysctl"], "conntrack = 1", "conntrack = 0", 1)
	untracked := node(t, files)
	for _, c := range []struct {
		w     *Walker
		entry Entry
		src   string
		dst   string
		want  string
		reply string
	}{
		{w, FromInterface, "192.168.10.99", "10.96.0.9:80", "sent to 10.244.1.2:8080 by virtual-server masqueraded", "sent 10.96.0.9:80 -> 192.168.10.99:50007"},
		{w, FromNode, "", "10.96.0.9:80", "sent to 10.244.1.2:8080 by virtual-server masqueraded", "delivered 10.96.0.9:80 -> 10.96.0.9:50007"},
		{untracked, FromInterface, "192.168.10.99", "10.96.0.9:80", "sent to 10.244.1.2:8080 by virtual-server", "sent 10.96.0.9:80 -> 192.168.10.99:50007"},
		{w, FromInterface, "192.168.10.99", "10.96.0.9:81", "rejected by virtual-server icmp-host-prohibited OUTPUT", ""},
		{w, FromNode, "", "10.96.0.9:81", "rejected by virtual-server icmp-host-prohibited OUTPUT", ""},
		{w, FromInterface, "192.168.10.99", "10.96.0.9:82", "delivered to 192.168.10.11:6443 by virtual-server", "sent 10.96.0.9:82 -> 192.168.10.99:50007"},
		{w, FromNode, "", "10.96.0.9:82", "delivered to 192.168.10.11:6443 by virtual-server", "delivered 10.96.0.9:82 -> 10.96.0.9:50007"},
		{w, FromInterface, "192.168.10.99", "10.96.0.9:83", "sent to 10.96.0.9:83 by virtual-server", ""},
		{w, FromInterface, "192.168.10.99", "10.96.0.9:84", "unknown by virtual-server", ""},
		{w, FromInterface, "192.168.10.99", "10.96.0.9:85", "martian by virtual-server", ""},
		{w, FromNode, "", "10.96.0.9:85", "delivered to 127.0.0.1:85 by virtual-server", "delivered 10.96.0.9:85 -> 10.96.0.9:50007"},
		{w, FromInterface, "192.168.10.99", "10.96.0.9:86", "no route by virtual-server", ""},
		{w, FromInterface, "192.168.10.99", "10.96.0.9:99", "delivered to 10.96.0.9:99", "sent 10.96.0.9:99 -> 192.168.10.99:50007"},
		{w, FromInterface, "192.168.10.99", "192.168.10.11:30080", "sent to 10.244.1.5:8080 by virtual-server", "sent 192.168.10.11:30080 -> 192.168.10.99:50007"},
		{w, FromNode, "127.0.0.1", "192.168.10.11:30080", "martian by virtual-server", ""},
	} {
		got := walkTo(t, c.w, c.entry, c.src, c.dst, ProtoTCP)
		if len(got) != 1 || outcome(got[0]) != c.want {
			t.Errorf("%s -> %s: %v, want %s", c.src, c.dst, outcomes(got), c.want)
			continue
		}
		if c.reply == "" {
			continue
		}
		back := c.w.Reply(got[0])
		text := ""
		for _, e := range back {
			text += fmt.Sprintf("%s %s -> %s", map[Verdict]string{Delivered: "delivered", Forwarded: "sent", Dropped: "dropped"}[e.Verdict],
				netip.AddrPortFrom(e.Packet.Src, e.Packet.SrcPort), netip.AddrPortFrom(e.Packet.Dst, e.Packet.DstPort))
		}
		if text != c.reply {
			t.Errorf("answer to %s -> %s: %s, want %s", c.src, c.dst, text, c.reply)
		}
	}
	// A virtual server with a mark takes any destination that comes by here.
	p := Packet{Family: IPv4, Src: netip.MustParseAddr("192.168.10.99"), Dst: netip.MustParseAddr("192.168.10.11"), DstPort: 7, Proto: ProtoUDP, Mark: 9}
	if got := outcomes(w.Walk(FromInterface, p)); got["sent to 10.244.1.5:7 by virtual-server"] != 1 {
		t.Errorf("by mark: %v", got)
	}
	// Other protocols pass IPVS by.
	p.Proto, p.Dst, p.Mark, p.ICMPType = ProtoICMP, netip.MustParseAddr("10.96.0.9"), 0, 8
	if got := outcomes(w.Walk(FromInterface, p)); got["delivered to 10.96.0.9:7"] != 1 {
		t.Errorf("an echo request: %v", got)
	}
}

// TestIPVSKnown: connections that IPVS remembers, by its own table and by that of connection tracking.
func TestIPVSKnown(t *testing.T) {
	const services = `-A -t 10.96.0.9:80 -s rr
-a -t 10.96.0.9:80 -r 10.244.1.2:8080 -m -w 0
-a -t 10.96.0.9:80 -r 10.244.1.3:8080 -m -w 1
-A -t 10.96.0.9:81 -s rr -p 600
-a -t 10.96.0.9:81 -r 10.244.1.2:8080 -m -w 1
-a -t 10.96.0.9:81 -r 10.244.1.3:8080 -m -w 1
`
	const conns = `IPVS connection entries
pro expire state       source             virtual            destination
TCP 01:54 TIME_WAIT   192.168.10.99:1001   10.96.0.9:80     10.244.1.2:8080
TCP 14:54 ESTABLISHED 192.168.10.99:1002   10.96.0.9:80     10.244.1.2:8080
TCP 14:54 ESTABLISHED 192.168.10.99:1003   10.96.0.9:80     10.244.1.9:8080
TCP 09:59 ASSURED     192.168.10.99:0      10.96.0.9:81     10.244.1.3:8080
`
	const old, other = "sent to 10.244.1.2:8080 by virtual-server", "sent to 10.244.1.3:8080 by virtual-server"
	for _, c := range []struct {
		name, sysctl, uname string
		port                uint16
		want                string
	}{
		{"left alone", "net.ipv4.vs.conn_reuse_mode = 0\nnet.ipv4.vs.expire_nodest_conn = 1\n", "Linux n 4.19.0 #1 SMP x86_64", 1001, old},
		{"left alone until 5.16", "net.ipv4.vs.conn_reuse_mode = 0\nnet.ipv4.vs.expire_nodest_conn = 1\n", "Linux n 5.16.0 #1 SMP x86_64", 1001, other},
		{"time wait", "net.ipv4.vs.conn_reuse_mode = 1\nnet.ipv4.vs.expire_nodest_conn = 0\n", "Linux n 4.19.0 #1 SMP x86_64", 1001, other},
		{"under way", "net.ipv4.vs.conn_reuse_mode = 1\nnet.ipv4.vs.expire_nodest_conn = 0\n", "Linux n 4.19.0 #1 SMP x86_64", 1002, old},
		{"under way, on its way out", "net.ipv4.vs.conn_reuse_mode = 1\nnet.ipv4.vs.expire_nodest_conn = 1\n", "Linux n 6.1.0 #1 SMP x86_64", 1002, other},
		{"gone", "net.ipv4.vs.conn_reuse_mode = 1\nnet.ipv4.vs.expire_nodest_conn = 1\n", "Linux n 6.1.0 #1 SMP x86_64", 1003, other},
		{"another port", "net.ipv4.vs.conn_reuse_mode = 0\nnet.ipv4.vs.expire_nodest_conn = 1\n", "Linux n 6.1.0 #1 SMP x86_64", 1004, other},
	} {
		w := node(t, map[string]string{"ipvsadm-Sn": services, "ipvsadm-Lnc": conns, "ip-addr": pairAddrs, "ip-route": pairRoutes, "uname": c.uname, "sysctl": c.sysctl + "net.ipv4.vs.conntrack = 1\n"})
		got := outcomes(walkTo(t, w, FromInterface, fmt.Sprintf("192.168.10.99:%d", c.port), "10.96.0.9:80", ProtoTCP))
		if diff := cmp.Diff(map[string]float64{c.want: 1}, got, nearly); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
	files := map[string]string{"ipvsadm-Sn": services, "ipvsadm-Lnc": conns, "ip-addr": pairAddrs, "ip-route": pairRoutes, "sysctl": "net.ipv4.vs.conntrack = 1\n"}
	w := node(t, files)
	if got := outcomes(walkTo(t, w, FromInterface, "192.168.10.99", "10.96.0.9:81", ProtoTCP)); got[other] != 1 {
		t.Errorf("a client that is remembered: %v", got)
	}
	if got := outcomes(walkTo(t, w, FromInterface, "192.168.10.98", "10.96.0.9:81", ProtoTCP)); got[other] != .5 {
		t.Errorf("a client that is not: %v", got)
	}
	w.Kernel.NewClient = true
	if got := outcomes(walkTo(t, w, FromInterface, "192.168.10.99", "10.96.0.9:81", ProtoTCP)); got[other] != .5 {
		t.Errorf("the question is about a new client: %v", got)
	}
	// What connection tracking says of a connection through IPVS is no translation of a rule.
	delete(files, "ipvsadm-Lnc")
	w = node(t, files)
	if _, err := host.ParseConntrack(w.Kernel.Host, "tcp      6 86393 ESTABLISHED src=192.168.10.99 dst=10.96.0.9 sport=1002 dport=80 src=10.244.1.2 dst=192.168.10.11 sport=8080 dport=4321 [ASSURED] mark=0 use=1", "conntrack"); err != nil {
		t.Fatal(err)
	}
	got := walkTo(t, w, FromInterface, "192.168.10.99:1002", "10.96.0.9:80", ProtoTCP)
	if diff := cmp.Diff(map[string]float64{old + " masqueraded": 1}, outcomes(got), nearly); diff != "" {
		t.Error(diff)
	}
}

// TestIPVSNotCaptured: without a capture nothing is known of virtual servers, and nothing is said of them; a table that
// is not whole says so.
func TestIPVSNotCaptured(t *testing.T) {
	files := map[string]string{"ip-addr": pairAddrs, "ip-route": pairRoutes}
	w := node(t, files)
	if got := outcomes(walkTo(t, w, FromInterface, "192.168.10.99", "10.96.0.9:80", ProtoTCP)); got["delivered to 10.96.0.9:80"] != 1 {
		t.Errorf("%v", got)
	}
	files["ipvsadm"] = "-A -t 10.96.0.8:80 -s rr\n...\n"
	w = node(t, files)
	got := walkTo(t, w, FromInterface, "192.168.10.99", "10.96.0.9:80", ProtoTCP)
	if len(got) != 1 || !strings.Contains(strings.Join(got[0].Notes, " "), "leaves out a part") {
		t.Errorf("%+v", got)
	}
}
