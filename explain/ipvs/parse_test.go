package ipvs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/svcnet/svcnet/explain/host"
)

func read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// table parses texts that hold no line which cannot be used.
func table(t testing.TB, names ...string) *Table {
	t.Helper()
	out := new(Table)
	for _, name := range names {
		problems, err := Parse(out, read(t, name), name)
		if err != nil || len(problems) > 0 {
			t.Fatalf("%s: %v, %v", name, problems, err)
		}
	}
	return out
}

var compareTables = cmp.Options{
	cmpopts.IgnoreTypes(host.Evidence{}),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

func byName(a, b Service) bool { return a.String() < b.String() }
func byAddr(a, b Dest) bool    { return a.AddrPort().Compare(b.AddrPort()) < 0 }

var anyOrder = cmp.Options{cmpopts.SortSlices(byName), cmpopts.SortSlices(byAddr)}

// TestSaved: the save form read and printed is the text again, line by line, and each line is the evidence.
func TestSaved(t *testing.T) {
	text := read(t, "tool-Sn.txt")
	tab := table(t, "tool-Sn.txt")
	var b strings.Builder
	for i := range tab.Services {
		s := &tab.Services[i]
		fmt.Fprintln(&b, s)
		lines := strings.Split(text, "\n")
		if lines[s.Line-1] != s.Text || s.Text != s.String() {
			t.Errorf("evidence of %s: %+v", s, s.Evidence)
		}
		for j := range s.Dests {
			d := &s.Dests[j]
			fmt.Fprintln(&b, s.DestString(d))
			if lines[d.Line-1] != d.Text {
				t.Errorf("evidence of %s: %+v", s.DestString(d), d.Evidence)
			}
		}
	}
	if diff := cmp.Diff(text, b.String()); diff != "" {
		t.Error(diff)
	}
	if !tab.HasServices || tab.HasConns || tab.Missing != "" {
		t.Errorf("%+v", tab)
	}
}

// TestForms: every form says the same of the same kernel, as far as it says anything.
func TestForms(t *testing.T) {
	saved := table(t, "tool-Sn.txt").Services
	without := func(change func(s *Service, d *Dest)) []Service {
		out := slices.Clone(saved)
		for i := range out {
			out[i].Dests = slices.Clone(out[i].Dests)
			change(&out[i], nil)
			for j := range out[i].Dests {
				change(&out[i], &out[i].Dests[j])
			}
		}
		return out
	}
	idle := func(d *Dest) { d.HasConns = true } // nothing was connected
	listed := without(func(_ *Service, d *Dest) {
		if d != nil {
			d.Upper, d.Lower, d.Tunnel = 0, 0, ""
			idle(d)
		}
	})
	for name, want := range map[string][]Service{
		"tool-S.txt":          saved,
		"tool-Ln.txt":         listed,
		"tool-L.txt":          listed,
		"tool-ln.txt":         listed,
		"tool-Ln--nosort.txt": listed,
		"tool-Ln--tun-info.txt": without(func(_ *Service, d *Dest) {
			if d != nil {
				d.Upper, d.Lower = 0, 0
				idle(d)
			}
		}),
		"tool-Ln--thresholds.txt": without(func(_ *Service, d *Dest) {
			if d != nil {
				d.Method, d.Weight, d.HasWeight, d.Tunnel = UnknownMethod, 0, false, ""
				if d.Addr == netip.MustParseAddr("192.168.10.9") {
					d.Upper, d.Lower = 100, 50
				}
				idle(d)
			}
		}),
		"tool-Ln--persistent-conn.txt": without(func(_ *Service, d *Dest) {
			if d != nil {
				d.Method, d.Upper, d.Lower, d.Tunnel, d.HasPersist = UnknownMethod, 0, 0, "", true
				idle(d)
			}
		}),
		"tool-Ln--stats.txt": without(func(s *Service, d *Dest) {
			s.Scheduler, s.SchedFlags, s.Persistent, s.Timeout, s.PE, s.OnePacket = "", nil, false, 0, "", false
			s.Stats.Known = true
			if s.Mask = 32; s.Family == 6 {
				s.Mask = 128
			}
			if d != nil {
				*d = Dest{Addr: d.Addr, Port: d.Port, Stats: Stats{Known: true}}
			}
		}),
		"tool-Ln--rate.txt": without(func(s *Service, d *Dest) {
			s.Scheduler, s.SchedFlags, s.Persistent, s.Timeout, s.PE, s.OnePacket = "", nil, false, 0, "", false
			if s.Mask = 32; s.Family == 6 {
				s.Mask = 128
			}
			if d != nil {
				*d = Dest{Addr: d.Addr, Port: d.Port}
			}
		}),
		"tool-proc.txt": without(func(s *Service, d *Dest) {
			s.SchedFlags, s.PE, s.Timeout = nil, "", 0
			if d != nil {
				d.Upper, d.Lower, d.Tunnel = 0, 0, ""
				idle(d)
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(want, table(t, name).Services, compareTables, anyOrder); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestJoin: the fullest form says what there is, whichever comes first, and the others add to it.
func TestJoin(t *testing.T) {
	want := table(t, "tool-Sn.txt").Services
	for i := range want {
		want[i].Stats.Known = true
		for j := range want[i].Dests {
			d := &want[i].Dests[j]
			d.HasConns, d.HasPersist, d.Stats.Known = true, true, true
			if d.Addr == netip.MustParseAddr("192.168.10.9") {
				d.Upper, d.Lower = 100, 50
			}
		}
	}
	names := []string{"tool-Sn.txt", "tool-Ln.txt", "tool-Ln--stats.txt", "tool-Ln--thresholds.txt", "tool-Ln--persistent-conn.txt", "tool-proc.txt"}
	for range names {
		names = append(names[1:], names[0])
		if diff := cmp.Diff(want, table(t, names...).Services, compareTables, anyOrder); diff != "" {
			t.Errorf("%v: %s", names, diff)
		}
	}
	// What only the lesser form has is of another moment.
	var tab Table
	for _, text := range []string{"TCP  10.96.0.1:443 rr\n  -> 10.0.0.1:6443 Masq 1 5 7\n  -> 10.0.0.2:6443 Masq 1 0 0\nTCP  10.96.0.2:80 rr\n", "-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 0\n"} {
		if _, err := Parse(&tab, text, "f"); err != nil {
			t.Fatal(err)
		}
	}
	if len(tab.Services) != 1 || len(tab.Services[0].Dests) != 1 {
		t.Fatalf("%+v", tab.Services)
	}
	if d := tab.Services[0].Dests[0]; d.Weight != 0 || !d.HasWeight || d.ActiveConns != 5 || d.InactConns != 7 {
		t.Errorf("%+v", d)
	}
}

// TestCountersCut: counters that were cut off are no virtual servers that were, unless nothing else lists these.
func TestCountersCut(t *testing.T) {
	const (
		stats = "Prot LocalAddress:Port  Conns InPkts OutPkts InBytes OutBytes\n  -> RemoteAddress:Port\nTCP  10.96.0.1:443 1 2 3 4 5\n  -> 10.0.0.1:6443 1 2 3 4 5\nTCP  nowhere:443 0 0 0 0 0\n"
		saved = "-A -t 10.96.0.1:443 -s sh -p 10800 -b sh-port\n-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 0\n"
	)
	for _, tt := range []struct {
		texts   []string
		missing bool
	}{{[]string{stats}, true}, {[]string{stats, saved}, false}, {[]string{saved, stats}, false}, {[]string{saved + "-a -t nowhere:443 -r 10.0.0.1:6443 -m -w 0\n", stats}, true}, {[]string{saved, stats + "TCP  10.96.0.2:443 rr\n...\n"}, true}} {
		var tab Table
		for _, text := range tt.texts {
			if _, err := Parse(&tab, text, "f"); err != nil {
				t.Fatal(err)
			}
		}
		if (tab.Missing != "") != tt.missing || len(tab.Services) != 1 || len(tab.Services[0].Dests) != 1 {
			t.Errorf("%q: %+v", tt.texts, tab.Services)
		}
		v := &tab.Services[0]
		if want := (Stats{1, 2, 3, 4, 5, true}); v.Stats != want || v.Dests[0].Stats != want {
			t.Errorf("%q: counters %+v", tt.texts, v)
		}
		if len(tt.texts) > 1 && (v.Scheduler != "sh" || !v.Persistent || len(v.SchedFlags) != 1 || v.Dests[0].Weight != 0 || !v.Dests[0].HasWeight) {
			t.Errorf("%q: %+v", tt.texts, v)
		}
	}
}

func TestConns(t *testing.T) {
	tool, kernel := table(t, "conns-Lnc.txt"), table(t, "conns-proc.txt")
	if len(tool.Conns) != 12 || !tool.HasConns || tool.HasServices {
		t.Fatalf("%+v", tool)
	}
	ignoreTime := cmpopts.IgnoreFields(Conn{}, "Expires")
	if diff := cmp.Diff(tool.Conns, kernel.Conns, compareTables, ignoreTime); diff != "" {
		t.Error(diff)
	}
	if c := kernel.Conns[10]; c.Expires != 10799 || !c.Template() || c.State != "ASSURED" {
		t.Errorf("%+v", c)
	}
	if c := tool.Conns[10]; c.Expires != 179*60+59 {
		t.Errorf("%+v", c)
	}
	at := netip.MustParseAddrPort
	if c := tool.Conn(tcp, at("10.96.10.20:51228"), at("10.96.10.20:80")); c == nil || c.Server != at("10.244.1.5:8080") || c.State != "TIME_WAIT" {
		t.Errorf("%+v", c)
	}
	if c := tool.Conn(udp, at("10.96.10.20:51228"), at("10.96.10.20:80")); c != nil {
		t.Errorf("of another protocol: %+v", c)
	}
	if c := tool.Conn(tcp, at("[fd00:96::1]:51622"), at("[fd00:96::1]:80")); c == nil || c.Server != at("[fd00:244::5]:8080") {
		t.Errorf("%+v", c)
	}
	if tab := table(t, "conns-Ln.txt", "conns-Ln--persistent-conn.txt"); tab.Services[1].Dests[0].PersistConns != 1 || tab.Services[0].Dests[1].InactConns != 3 {
		t.Errorf("%+v", tab.Services)
	}
}

func TestCases(t *testing.T) {
	tab := table(t, "case-52-ipvsadm-Sn.txt", "case-52-ipvsadm-Ln.txt", "case-52-ipvsadm-Lnc.txt")
	s := tab.Find(4, 0, tcp, netip.MustParseAddr("10.96.10.20"), 80, 1024)
	if s == nil || len(s.Dests) != 2 || len(tab.Services) != 2 || len(tab.Conns) != 5 {
		t.Fatalf("%+v", tab)
	}
	if d := s.Dest(netip.MustParseAddrPort("10.244.1.106:8080")); d == nil || d.Weight != 0 || d.ActiveConns != 10 || d.InactConns != 14048 || d.File != "case-52-ipvsadm-Sn.txt" {
		t.Errorf("%+v", d)
	}
	seed := table(t, "seed-ipvsadm-Ln.txt")
	if len(seed.Services) != 6 || len(seed.Services[4].Dests) != 3 || seed.Services[0].Scheduler != "rr" {
		t.Errorf("%+v", seed.Services)
	}
	for _, name := range []string{"11", "48"} {
		a, b := table(t, "case-"+name+"-ipvsadm-Sn.txt"), table(t, "case-"+name+"-ipvsadm-Ln.txt")
		ignore := cmpopts.IgnoreFields(Dest{}, "ActiveConns", "InactConns", "HasConns")
		if diff := cmp.Diff(a.Services, b.Services, compareTables, ignore); diff != "" {
			t.Errorf("case %s: %s", name, diff)
		}
	}
}

// TestFind: the kernel's order (ip_vs_service_find).
func TestFind(t *testing.T) {
	var tab Table
	if _, err := Parse(&tab, `-A -t 10.96.0.1:443 -s rr
-A -t 10.96.0.1:21 -s rr
-A -t 10.96.0.2:0 -s rr -p 50
-A -t 10.96.0.2:80 -s rr
-A -u 10.96.0.1:443 -s rr
-A -f 7 -s rr
-A -f 8 -6 -s rr
-A -t [fd00::1]:80 -s rr
`, "f"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		family int
		mark   uint32
		proto  uint8
		dst    string
		port   uint16
		want   string
	}{
		{4, 0, tcp, "10.96.0.1", 443, "-A -t 10.96.0.1:443 -s rr"},
		{4, 0, udp, "10.96.0.1", 443, "-A -u 10.96.0.1:443 -s rr"},
		{4, 0, sctp, "10.96.0.1", 443, ""},
		{4, 7, tcp, "10.96.0.1", 443, "-A -f 7 -s rr"},
		{4, 8, tcp, "10.96.0.1", 443, "-A -t 10.96.0.1:443 -s rr"},
		{6, 8, tcp, "fd00::9", 1, "-A -f 8 -6 -s rr"},
		{6, 0, tcp, "fd00::1", 80, "-A -t [fd00::1]:80 -s rr"},
		{4, 0, tcp, "10.96.0.1", 20, "-A -t 10.96.0.1:21 -s rr"},
		{4, 0, tcp, "10.96.0.1", 40000, "-A -t 10.96.0.1:21 -s rr"},
		{4, 0, tcp, "10.96.0.1", 80, ""},
		{4, 0, udp, "10.96.0.1", 40000, ""},
		{4, 0, tcp, "10.96.0.2", 80, "-A -t 10.96.0.2:80 -s rr"},
		{4, 0, tcp, "10.96.0.2", 81, "-A -t 10.96.0.2:0 -s rr -p 50"},
		{4, 0, udp, "10.96.0.2", 81, ""},
	} {
		got := ""
		if s := tab.Find(c.family, c.mark, c.proto, netip.MustParseAddr(c.dst), c.port, 1024); s != nil {
			got = s.String()
		}
		if got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestPastes: what people hand in.
func TestPastes(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       string // -A and -a lines
		problems   int
		missing    bool
	}{
		{"prompt", "[root@node ~]# ipvsadm -Ln\nIP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\nTCP  10.96.0.1:443 rr\n  -> 10.0.0.1:6443                Masq    1      0          0         \n[root@node ~]#",
			"-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1", 0, false},
		{"grep", "  -> 10.0.0.9:6443 Masq 1 0 0\nTCP  10.96.0.1:443 rr persistent 10800\n  -> 10.0.0.1:6443 Masq 1 0 0", "-A -t 10.96.0.1:443 -s rr -p 10800\n-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1", 1, false},
		{"cut in a line", "TCP  10.96.0.1:443 rr\n  -> 10.0.0.1:6443 Masq 1 0 0\n  -> 10.0.0.2:6443 Ma", "-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1", 1, true},
		{"left out", "TCP  10.96.0.1:443 rr\n...\nTCP  10.96.0.9:80 rr", "-A -t 10.96.0.1:443 -s rr\n-A -t 10.96.0.9:80 -s rr", 0, true},
		{"names of hosts", "-A -t kubernetes.default:https -s rr\n-a -t kubernetes.default:https -r node-a:6443 -m -w 1\n-A -t 10.96.0.9:http -s rr", "-A -t 10.96.0.9:80 -s rr", 2, true},
		{"another order", "-A -t 10.96.0.1:443 -s rr\n-A -t 10.96.0.2:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1", "-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1\n-A -t 10.96.0.2:443 -s rr", 0, false},
		{"long options", "-A --tcp-service 10.96.0.1:443 --scheduler rr --persistent 60\n-a --tcp-service 10.96.0.1:443 --real-server 10.0.0.1:6443 --masquerading --weight 2", "-A -t 10.96.0.1:443 -s rr -p 60\n-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 2", 0, false},
		{"unknown option", "-A -t 10.96.0.1:443 -s rr --frobnicate\n-A -t 10.96.0.2:443 -s rr", "-A -t 10.96.0.2:443 -s rr", 1, true},
		{"twice", "TCP  10.96.0.1:443 rr\n  -> 10.0.0.1:6443 Masq 1 0 0\nTCP  10.96.0.1:443 rr\n  -> 10.0.0.2:6443 Masq 1 0 0", "-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1", 2, false},
		{"large counters", "Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes\nTCP  10.96.0.1:443                 123456      12K       3M       5G       7T", "-A -t 10.96.0.1:443", 0, false},
		{"old kernel", "TCP  10.96.0.1:443 rr\n  -> 10.0.0.1:443 Local 1 0 0", "-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.0.1:443 -w 1", 0, false},
		{"nothing there", "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n", "", 0, false},
		{"hexadecimal", "TCP  0A600001:01BB rr\n  -> C0A80A0A:192B Masq 1 0 0", "-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 192.168.10.10:6443 -m -w 1", 0, false},
		{"an address that looks hexadecimal", "TCP  [fd00:1111:2222:3333:4444:5555:6666:7777]:8080 rr", "-A -t [fd00:1111:2222:3333:4444:5555:6666:7777]:8080 -s rr", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tab Table
			problems, err := Parse(&tab, c.text, "f")
			if err != nil || len(problems) != c.problems || (tab.Missing != "") != c.missing || !tab.HasServices {
				t.Errorf("%v, %v, missing %q, has %v", err, problems, tab.Missing, tab.HasServices)
			}
			var lines []string
			for i := range tab.Services {
				s := &tab.Services[i]
				lines = append(lines, s.String())
				for j := range s.Dests {
					lines = append(lines, s.DestString(&s.Dests[j]))
				}
			}
			if got := strings.Join(lines, "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
	var tab Table
	if _, err := Parse(&tab, "\n", "f"); !errors.Is(err, host.ErrEmpty) || tab.HasServices {
		t.Errorf("empty: %v", err)
	}
	if _, err := Parse(&tab, "hello\n", "f"); err == nil || errors.Is(err, host.ErrEmpty) || tab.HasServices {
		t.Errorf("nothing of use: %v", err)
	}
	if _, err := Parse(&tab, "Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes\nTCP  10.96.0.1:443                 123456      12K       3M       5G       7T", "f"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Stats{123456, 12e3, 3e6, 5e9, 7e12, true}, tab.Services[0].Stats); diff != "" {
		t.Error(diff)
	}
}

// TestCommand: what ipvsadm takes on a line is read; what a step of a plan never has is said to be wrong.
func TestCommand(t *testing.T) {
	for text, want := range map[string]string{
		"-A -t 10.96.0.1:443 -s rr -p 10800":                     "-A -A -t 10.96.0.1:443 -s rr -p 10800",
		"-E -u [fd00::1]:53 -s sh -b sh-port -o":                 "-E -A -u [fd00::1]:53 -s sh -o -b sh-port",
		"-D --sctp-service 10.96.0.1:3868":                       "-D -A --sctp-service 10.96.0.1:3868",
		"-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1 -x 9 -y 5": "-a -a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1",
		"-e -f 7 -6 -r [fd00::2]:80 -i -w 0 --tun-type gue":      "-e -a -f 7 -6 -r [fd00::2]:80 -i -w 0 --tun-type gue",
		"-d -t 10.96.0.1:443 -r 10.0.0.1:6443":                   "-d -a -t 10.96.0.1:443 -r 10.0.0.1:6443",
		"--delete-server -t 10.96.0.1:443 -r 10.0.0.1:6443":      "-d -a -t 10.96.0.1:443 -r 10.0.0.1:6443",
		"":                                     "error: the line is empty",
		"-C":                                   "error: -C is no command for a virtual server or a real server",
		"-A -t 10.96.0.1:443":                  "error: no scheduler is named (-s)",
		"-D -t 10.96.0.1:443 -r 10.0.0.1:6443": "error: -D and -r do not go together, or -r is missing",
		"-a -t 10.96.0.1:443":                  "error: -a and -r do not go together, or -r is missing",
		"-A -s rr":                             "error: no virtual server is named (-t, -u, --sctp-service or -f)",
		"-A -t 10.96.0.1:443 -s rr --and-something": "error: the option --and-something is not known",
	} {
		verb, s, d, err := Command(text)
		got := verb + " " + s.String()
		switch {
		case err != nil:
			got = "error: " + err.Error()
		case d.Addr.IsValid():
			got = verb + " " + s.DestString(&d)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
