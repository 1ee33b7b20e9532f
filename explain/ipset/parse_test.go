package ipset

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
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

func parse(t testing.TB, text string) map[string]*Set {
	t.Helper()
	sets, _, err := Parse(text, "f")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]*Set)
	for _, s := range sets {
		out[s.Name] = s
	}
	return out
}

var ignorePlace = cmp.Options{
	cmpopts.IgnoreUnexported(Set{}),
	cmpopts.IgnoreFields(Set{}, "Evidence", "Revision", "References"),
	cmpopts.IgnoreFields(Entry{}, "Line"),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// sameSets: two forms of the same sets say the same.
func sameSets(t *testing.T, want, got []*Set) {
	t.Helper()
	if diff := cmp.Diff(want, got, ignorePlace, cmpopts.SortSlices(func(a, b *Set) bool { return a.Name < b.Name })); diff != "" {
		t.Error(diff)
	}
}

// TestForms: what ipset saves and what it lists of the same sets is the same.
func TestForms(t *testing.T) {
	save, problems, err := Parse(read(t, "save.txt"), "save.txt")
	if err != nil || len(problems) > 0 || len(save) != 24 {
		t.Fatalf("%d sets, %v, %v", len(save), problems, err)
	}
	list, problems, err := Parse(read(t, "list.txt"), "list.txt")
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", problems, err)
	}
	sameSets(t, save, list)
	heads, problems, err := Parse(read(t, "list-t.txt"), "list-t.txt")
	if err != nil || len(problems) > 0 || len(heads) != len(list) {
		t.Fatalf("%d sets, %v, %v", len(heads), problems, err)
	}
	for i, s := range heads {
		if len(s.Entries) > 0 || (s.Missing == "") != (s.Name == "empty") || s.Type != list[i].Type || s.Revision != list[i].Revision || s.References != list[i].References || s.Revision < 0 {
			t.Errorf("headings alone: %+v", s)
		}
	}
	if s := save[0]; s.Revision != -1 || s.References != -1 {
		t.Errorf("the save form shows no revision: %+v", s)
	}
}

func TestEntries(t *testing.T) {
	sets := parse(t, read(t, "save.txt"))
	for _, c := range []struct {
		set, text string
		want      Entry
	}{
		{"ip24", "10.1.2.0", Entry{Text: `10.1.2.0 timeout 99 packets 5 bytes 500 comment "hello world"`, Nets: [2]Range{{Net: netip.MustParsePrefix("10.1.2.0/32")}},
			Timeout: 99, HasTimeout: true, Packets: 5, Bytes: 500, HasCounters: true, Comment: "hello world"}},
		{"net", "10.1.0.0/16", Entry{Text: "10.1.0.0/16 nomatch", Nets: [2]Range{{Net: netip.MustParsePrefix("10.1.0.0/16")}}, NoMatch: true}},
		{"ipport", "10.0.0.1,tcp:443", Entry{Text: "10.0.0.1,tcp:443", Nets: [2]Range{{Net: netip.MustParsePrefix("10.0.0.1/32")}}, Proto: protoTCP, Port: 443, LastPort: 443}},
		{"ipport", "10.0.0.1,icmp:port-unreachable", Entry{Text: "10.0.0.1,icmp:port-unreachable", Nets: [2]Range{{Net: netip.MustParsePrefix("10.0.0.1/32")}}, Proto: protoICMP, Port: 0x303, LastPort: 0x303}},
		{"ipport6", "fd00::1,ipv6-icmp:echo-request", Entry{Text: "fd00::1,ipv6-icmp:echo-request", Nets: [2]Range{{Net: netip.MustParsePrefix("fd00::1/128")}}, Proto: protoICMPv6, Port: 0x8000, LastPort: 0x8000}},
		{"ipportnet", "10.0.0.1,tcp:80,10.1.0.0/16", Entry{Text: "10.0.0.1,tcp:80,10.1.0.0/16 nomatch", Nets: [2]Range{{Net: netip.MustParsePrefix("10.0.0.1/32")}, {Net: netip.MustParsePrefix("10.1.0.0/16")}},
			Proto: protoTCP, Port: 80, LastPort: 80, NoMatch: true}},
		{"netiface", "10.1.0.0/16,physdev:eth1", Entry{Text: "10.1.0.0/16,physdev:eth1", Nets: [2]Range{{Net: netip.MustParsePrefix("10.1.0.0/16")}}, Iface: "eth1", Physdev: true}},
		{"ipmark", "10.0.0.1,0x63", Entry{Text: "10.0.0.1,0x00000063", Nets: [2]Range{{Net: netip.MustParsePrefix("10.0.0.1/32")}}, Mark: 0x63}},
		{"bport", "81", Entry{Text: "81", Port: 81, LastPort: 81}},
		{"bipmac", "10.0.0.2", Entry{Text: "10.0.0.2", Nets: [2]Range{{Net: netip.MustParsePrefix("10.0.0.2/32")}}}},
		{"mac", "01:02:03:04:05:06", Entry{Text: "01:02:03:04:05:06", MAC: "01:02:03:04:05:06"}},
		{"lset", "ipport", Entry{Text: "ipport", Member: "ipport"}},
		{"skb", "10.0.0.1", Entry{Text: "10.0.0.1 skbmark 0x10/0xff skbprio 1:10 skbqueue 5", Nets: [2]Range{{Net: netip.MustParsePrefix("10.0.0.1/32")}}}},
	} {
		got := sets[c.set].Find(c.text)
		if got == nil {
			t.Errorf("set %s has no entry %s", c.set, c.text)
			continue
		}
		if diff := cmp.Diff(&c.want, got, ignorePlace); diff != "" {
			t.Errorf("%s %s:\n%s", c.set, c.text, diff)
		}
		at := sets[c.set].At(got)
		lines := strings.Split(read(t, "save.txt"), "\n")
		if at.File != "f" || lines[at.Line-1] != at.Text {
			t.Errorf("evidence %+v, the line is %q", at, lines[at.Line-1])
		}
	}
	if sets["ipport"].Find("10.0.0.1,tcp:444") != nil || sets["empty"].Find("10.0.0.1") != nil || sets["netiface"].Find("10.0.0.0/8,eth1") != nil {
		t.Error("an entry that is not there")
	}
}

// TestPastes: what people hand in.
func TestPastes(t *testing.T) {
	for _, c := range []struct {
		name, text string
		sets       string // NAME:entries[!] each; ! for a set with entries missing
		problems   int
	}{
		{"prompts", "root@node-a:~# ipset list KUBE-CLUSTER-IP\nName: KUBE-CLUSTER-IP\nType: hash:ip,port\nRevision: 5\nHeader: family inet hashsize 1024 maxelem 65536\nSize in memory: 600\nReferences: 2\nNumber of entries: 1\nMembers:\n10.96.0.1,tcp:443\nroot@node-a:~# ", "KUBE-CLUSTER-IP:1", 0},
		{"cut in the middle", "Name: A\nType: hash:ip\nHeader: family inet\nNumber of entries: 3\nMembers:\n10.0.0.1\n10.0.0.2", "A:2!", 1},
		{"left out", "Name: A\nType: hash:ip\nHeader: family inet\nMembers:\n10.0.0.1\n...\n", "A:1!", 0},
		{"unreadable entry", "create A hash:ip family inet\nadd A 10.0.0.1\nadd A 10.0.0", "A:1!", 1},
		{"entries before the set", "add A 10.0.0.1\nadd A 10.0.0.2\n", "A:2!", 0},
		{"unknown type", "create A hash:colour family inet\nadd A red\n", "A:1", 1},
		{"unknown option", "create A hash:ip family inet frobnicate\nadd A 10.0.0.1\n", "A:1", 1},
		{"twice", "create A hash:ip\nadd A 10.0.0.1\ncreate A hash:ip\n", "A:1", 1},
		{"both forms", "create A hash:ip\nadd A 10.0.0.1\n\nName: B\nType: hash:ip\nHeader: family inet\nNumber of entries: 1\nMembers:\n10.0.0.2\n", "A:1 B:1", 0},
		{"iptables-restore style", "-N A hash:ip\n-A A 10.0.0.1\nCOMMIT\n", "A:1", 0},
		{"carriage returns", "create A hash:ip\r\nadd A 10.0.0.1\r\n", "A:1", 0},
		{"a listing twice", "Name: A\nType: hash:ip\nHeader: family inet\nMembers:\n10.0.0.1\n\nName: A\nType: hash:ip\nHeader: family inet\nMembers:\n10.0.0.2\n", "A:1", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			sets, problems, err := Parse(c.text, "f")
			if err != nil || len(problems) != c.problems {
				t.Errorf("%v, %v", err, problems)
			}
			var got []string
			for _, s := range sets {
				text := s.Name + ":" + string(rune('0'+len(s.Entries)))
				if s.Missing != "" {
					text += "!"
				}
				got = append(got, text)
			}
			if strings.Join(got, " ") != c.sets {
				t.Errorf("got %s, want %s", strings.Join(got, " "), c.sets)
			}
		})
	}
	if _, _, err := Parse("\n \n", "f"); !errors.Is(err, host.ErrEmpty) {
		t.Errorf("empty: %v", err)
	}
	if _, _, err := Parse("hello\n", "f"); err == nil || errors.Is(err, host.ErrEmpty) {
		t.Errorf("nothing of use: %v", err)
	}
}

// TestSeeds: the members of a listing count, whatever number stands above them.
func TestSeeds(t *testing.T) {
	sets, problems, err := Parse(read(t, "seed-ipset-list.txt"), "f")
	if err != nil || len(problems) > 0 || len(sets) != 4 {
		t.Fatalf("%d sets, %v, %v", len(sets), problems, err)
	}
	if s := sets[0]; len(s.Entries) != 3 || s.Missing != "" || s.Find("10.97.229.148,tcp:80") == nil || s.References != 2 {
		t.Errorf("%+v", s)
	}
	for _, name := range []string{"41", "48", "51"} {
		sets, problems, err := Parse(read(t, "case-"+name+"-ipset-save.txt"), "f")
		if err != nil || len(problems) > 0 || len(sets) != 17 {
			t.Errorf("case %s: %d sets, %v, %v", name, len(sets), problems, err)
		}
	}
}
