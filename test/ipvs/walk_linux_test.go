package ipvs

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/ipset"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/netfilter"
)

// look reads the guest as svcnet reads a node. What is not evaluated yet counts as read.
func (w *world) look() *netfilter.Walker {
	w.t.Helper()
	s, err := collectors.Collect(w.t.Context(), collectors.Options{Silent: true, Node: "n"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.seen = s
	return w.walker(s)
}

// glance is look where little has changed since, and faster, for commands take long in a guest: rules and sets as the
// tools print them, virtual servers and settings as the kernel does, and all else as it was seen last.
func (w *world) glance(withSets bool) *netfilter.Walker {
	w.t.Helper()
	file := func(name string) []byte {
		b, err := os.ReadFile(name)
		if err != nil {
			w.t.Fatal(err)
		}
		return b
	}
	var s snapshot.Snapshot
	for _, e := range w.seen.Evidence {
		switch e.Format {
		case snapshot.IPLink, snapshot.IPRule, snapshot.Uname:
			s.Evidence = append(s.Evidence, e)
		case snapshot.Sysctl:
			e.Data = fmt.Appendf(e.Data[:len(e.Data):len(e.Data)], "net.ipv4.vs.conntrack = %s", file("/proc/sys/net/ipv4/vs/conntrack"))
			s.Evidence = append(s.Evidence, e)
		}
	}
	add := func(f snapshot.Format, family int, name string, data []byte) {
		s.Evidence = append(s.Evidence, snapshot.Evidence{Format: f, Family: family, File: name, Data: data, Status: snapshot.OK})
	}
	add(snapshot.IPTablesSave, 4, "iptables-save", []byte(w.sh("iptables-legacy-save")))
	add(snapshot.IPTablesSave, 6, "ip6tables-save", []byte(w.rules6))
	add(snapshot.IPRoute, 4, "ip-route", []byte(w.sh("ip -4 route show table all")))
	add(snapshot.IPRoute, 6, "ip-6-route", []byte(w.sh("ip -6 route show table all")))
	add(snapshot.IPAddr, 0, "ip-addr", []byte(w.sh("ip addr")))
	add(snapshot.IPVSList, 0, "ip_vs", file("/proc/thread-self/net/ip_vs"))
	if withSets {
		add(snapshot.IPSetSave, 0, "ipset-save", []byte(w.sh("ipset save")))
	}
	return w.walker(&s)
}

// walker makes a walker of what was read.
func (w *world) walker(s *snapshot.Snapshot) *netfilter.Walker {
	w.t.Helper()
	out := &netfilter.Walker{Kernel: &netfilter.Kernel{Host: &host.Host{}, IPVS: new(ipvs.Table)}}
	h := out.Kernel.Host
	var sets []*ipset.Set
	for _, e := range s.Evidence {
		if len(e.Data) == 0 {
			continue
		}
		text := string(e.Data)
		var problems []host.Problem
		var err error
		switch e.Format {
		case snapshot.IPTablesSave:
			var rs []*netfilter.Ruleset
			rs, err = netfilter.ParseSave(text, e.File, netfilter.Hint{Family: netfilter.Family(e.Family)})
			out.Rulesets = append(out.Rulesets, rs...)
		case snapshot.IPSetSave:
			var more []*ipset.Set
			more, problems, err = ipset.Parse(text, e.File)
			sets = append(sets, more...)
		case snapshot.IPVSSave, snapshot.IPVSList:
			problems, err = ipvs.Parse(out.Kernel.IPVS, text, e.File)
		case snapshot.IPAddr:
			problems, err = host.ParseAddrs(h, text, e.File)
		case snapshot.IPLink:
			problems, err = host.ParseLinks(h, text, e.File)
		case snapshot.IPRoute:
			problems, err = host.ParseRoutes(h, e.Family, text, e.File)
		case snapshot.IPRule:
			problems, err = host.ParseRules(h, e.Family, text, e.File)
		case snapshot.Sysctl:
			problems, err = host.ParseSysctls(h, text, e.File)
		case snapshot.Uname:
			problems, err = host.ParseUname(h, text, e.File)
		}
		if err != nil || len(problems) > 0 {
			w.t.Fatalf("%s: %v, %v\n%s", e.File, err, problems, text)
		}
	}
	out.Kernel.Sets = netfilter.SetsOf(sets)
	return out
}

// outcome is what a client sees: where its packet arrived and from where it seemed to come, or how it failed.
type outcome struct {
	failed string // refused, dropped, unreachable
	server netip.AddrPort
	source netip.Addr
}

func (o outcome) String() string {
	if o.failed != "" {
		return o.failed
	}
	return fmt.Sprintf("%s from %s", o.server, o.source)
}

// foretell says what a client will see, with shares; several assumptions add up to more than 1. Endings tells which
// endings are behind an outcome. With asks the answer has to come back.
func foretell(w *netfilter.Walker, listening map[netip.AddrPort]bool, entry netfilter.Entry, p netfilter.Packet, asks bool) (shares map[outcome]float64, behind map[outcome][]netfilter.Ending, all []netfilter.Ending) {
	shares, behind = make(map[outcome]float64), make(map[outcome][]netfilter.Ending)
	all = w.Walk(entry, p)
	for _, e := range all {
		var o outcome
		switch e.Verdict {
		case netfilter.Delivered, netfilter.Forwarded:
			o = outcome{server: netip.AddrPortFrom(e.Packet.Dst, e.Packet.DstPort), source: e.Packet.Src}
			switch {
			case !listening[o.server]:
				o = outcome{failed: "refused"}
			case asks && !answers(w, e):
				o = outcome{failed: "dropped"}
			}
		case netfilter.Rejected:
			o.failed = "refused"
		case netfilter.NoRoute:
			o.failed = "unreachable"
		default:
			o.failed = "dropped"
		}
		shares[o] += e.P
		behind[o] = append(behind[o], e)
	}
	return shares, behind, all
}

// answers tells whether the client hears an answer that it takes for one.
func answers(w *netfilter.Walker, e netfilter.Ending) bool {
	for _, r := range w.Reply(e) {
		if (r.Verdict == netfilter.Delivered || r.Verdict == netfilter.Forwarded) &&
			r.Packet.Src == e.Packet.OrigDst && r.Packet.SrcPort == e.Packet.OrigDstPort && r.Packet.Dst == e.Packet.OrigSrc {
			return true
		}
	}
	return false
}

// marker is a rule that changes nothing, first in every base chain: its counter tells how often a packet came by, and a
// walk remembers it.
const marker = "-p udp -j MARK --set-xmark 0x0/0x0"

var markerLine = regexp.MustCompile(`^\[(\d+):\d+\] -A (\S+) ` + regexp.QuoteMeta(marker) + `$`)

// passed are the counters of the markers, by table and chain.
func (w *world) passed(family int) map[string]int {
	out := make(map[string]int)
	program := "iptables-legacy-save -c"
	if family == 6 {
		program = "ip6tables-legacy-save -c"
	}
	table := ""
	for line := range strings.Lines(w.sh(program)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "*"); ok {
			table = name
		}
		if m := markerLine.FindStringSubmatch(line); m != nil {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				w.t.Fatal(err)
			}
			out[table+" "+m[2]] = n
		}
	}
	if len(out) != 16 {
		w.t.Fatalf("%d markers: %v", len(out), out)
	}
	return out
}

// visited are the base chains that a walk came by.
func visited(e netfilter.Ending) map[string]int {
	out := make(map[string]int)
	for _, h := range e.Hops {
		if h.Kind == netfilter.HopRule && strings.HasSuffix(h.Text, marker) {
			out[h.Table+" "+h.Hook.String()]++
		}
	}
	return out
}

// withMarkers writes rules for iptables-restore: markers first, then the rules by "TABLE CHAIN".
func withMarkers(rules map[string][]string, forwardPolicy string) string {
	var b strings.Builder
	for _, t := range []struct {
		name   string
		chains []string
	}{
		{"raw", []string{"PREROUTING", "OUTPUT"}}, {"mangle", []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}},
		{"nat", []string{"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"}}, {"filter", []string{"INPUT", "FORWARD", "OUTPUT"}},
		{"security", []string{"INPUT", "OUTPUT"}},
	} {
		fmt.Fprintf(&b, "*%s\n", t.name)
		for _, c := range t.chains {
			policy := "ACCEPT"
			if t.name == "filter" && c == "FORWARD" {
				policy = forwardPolicy
			}
			fmt.Fprintf(&b, ":%s %s [0:0]\n", c, policy)
		}
		for key := range rules {
			if name, ok := strings.CutPrefix(key, t.name+" :"); ok {
				fmt.Fprintf(&b, ":%s - [0:0]\n", name)
			}
		}
		for _, c := range t.chains {
			fmt.Fprintf(&b, "-A %s %s\n", c, marker)
		}
		if t.name == "mangle" {
			// Connection tracking, and with it the nat table, works as long as some rule needs it.
			b.WriteString("-A PREROUTING -m conntrack --ctstate INVALID\n")
		}
		for key, list := range rules {
			if name, ok := strings.CutPrefix(key, t.name+" "); ok {
				for _, r := range list {
					fmt.Fprintf(&b, "-A %s %s\n", strings.TrimPrefix(name, ":"), r)
				}
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}
