package collectors

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// The files of all rules, in both places and families.
const (
	nft4, nft6       = "iptables-nft-save.txt", "ip6tables-nft-save.txt"
	legacy4, legacy6 = "iptables-legacy-save.txt", "ip6tables-legacy-save.txt"
)

// TestNothingThere: in an untouched namespace every source says that nothing is there, and nothing is there
// afterwards.
func TestNothingThere(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		before := state(t)
		got := readRulesAll(p)
		if after := state(t); after != before {
			t.Errorf("reading changed the namespace: before\n%s\nafter\n%s", before, after)
		}
		for _, file := range []string{nft4, nft6, legacy4, legacy6, nftFile, ipsetFile} {
			if e := got[file]; e.Status != snapshot.Absent || e.Note == "" || len(e.Data) > 0 {
				t.Errorf("%s: %q, note %q, error %q", file, e.Status, e.Note, e.Error)
			}
		}
	})
}

// somewhere are rules in one place, and the native command that prints them.
var somewhere = map[string]struct{ write, print string }{
	nft4: {`iptables-nft -A INPUT -p tcp --dport 80 -m comment --comment "a b" -j ACCEPT
iptables-nft -t nat -A PREROUTING -d 10.0.0.1/32 -j DNAT --to-destination 10.0.0.2`, "iptables-nft-save -c"},
	nft6: {`ip6tables-nft -t mangle -A OUTPUT -p udp -j MARK --set-mark 1`, "ip6tables-nft-save -c"},
	legacy4: {`iptables-legacy -t raw -A PREROUTING -p tcp --dport 80 -j ACCEPT
iptables-legacy -t nat -A POSTROUTING -j MASQUERADE`, "iptables-legacy-save -c"},
	legacy6: {`ip6tables-legacy -A FORWARD -j DROP -m mark --mark 0x4000/0x4000`, "ip6tables-legacy-save -c"},
	nftFile: {`nft add table inet web
nft 'add chain inet web in { type filter hook input priority 0; }'
nft add rule inet web in tcp dport 81 counter accept
nft add table netdev other`, "nft -j list ruleset"},
	ipsetFile: {`ipset create a hash:ip,port
ipset add a 10.0.0.1,tcp:80
ipset create b hash:net family inet6 counters timeout 3000
ipset add b fd00::/64`, "ipset save"},
}

// TestRules: rules in each place by itself and in all at once are what the native command prints; the rest is
// absent. Reading once more reads the same, counters too, and changes nothing.
func TestRules(t *testing.T) {
	needs(t, "iptables-nft-save", "iptables-legacy-save", "nft", "ipset")
	var all []string
	for file := range somewhere {
		all = append(all, file)
	}
	sets := [][]string{all}
	for _, file := range all {
		sets = append(sets, []string{file})
	}
	for _, files := range sets {
		t.Run(strings.Join(files, "+"), func(t *testing.T) {
			inNamespace(t, func(t *testing.T, p *place) { rulesOnlyIn(t, p, files) })
		})
	}
}

func rulesOnlyIn(t *testing.T, p *place, files []string) {
	there := map[string]bool{}
	for _, file := range files {
		there[file] = true
		shell(t, somewhere[file].write)
	}
	// Counters that are not zero would show if they were zeroed.
	if there[nft4] {
		shell(t, "iptables-nft -A INPUT -i lo -c 7 420 -j ACCEPT")
	}
	if there[legacy4] {
		shell(t, "iptables-legacy -t raw -A PREROUTING -i lo -c 7 420 -j ACCEPT")
	}
	before := state(t)
	first := readRulesAll(p)
	second := readRulesAll(p)
	if after := state(t); after != before {
		t.Errorf("reading changed the namespace: before\n%s\nafter\n%s", before, after)
	}
	for file := range somewhere {
		e := first[file]
		if !there[file] {
			if e.Status != snapshot.Absent || len(e.Data) > 0 {
				t.Errorf("%s: %q (%s), want absent", file, e.Status, e.Error)
			}
			continue
		}
		want := snapshot.OK
		if snapshot.NotEvaluated(e.Format) != "" {
			want = snapshot.Unsupported
		}
		if e.Status != want {
			t.Errorf("%s: %q: %s", file, e.Status, e.Error)
		}
		sameAsNative(t, e, shell(t, somewhere[file].print))
		if a, b := unmarked(string(e.Data)), unmarked(string(second[file].Data)); a != b {
			t.Errorf("%s: read again:\n%s\nfirst:\n%s", file, b, a)
		}
		format, family, backend, note := snapshot.Recognise(file, e.Data)
		if format != e.Format || family != e.Family || backend != e.Backend {
			t.Errorf("%s is recognised as %q %d %q (%s), want %q %d %q", file, format, family, backend, note, e.Format, e.Family, e.Backend)
		}
	}
}

// sameAsNative compares evidence with what the native command prints.
func sameAsNative(t *testing.T, e snapshot.Evidence, native string) {
	t.Helper()
	if e.Format == snapshot.NFTNetlink {
		sameAsListed(t, e.Data, native)
		return
	}
	got, want := unmarked(string(e.Data)), unmarked(native)
	if e.Format == snapshot.IPSetSave {
		got, want = lasting([]byte(got)), lasting([]byte(want))
	}
	if got != want {
		t.Errorf("%s:\n%s\nwant\n%s", e.File, got, want)
	}
}

// TestMixedTable: a table into which nft wrote rules that iptables-nft-save refuses, cannot parse or prints as
// something else is named, the others are kept, and nft's own view of it is there too.
func TestMixedTable(t *testing.T) {
	needs(t, "iptables-nft-save", "nft")
	for rule, says := range map[string]string{
		"ct state new accept":                                            "`nat' is incompatible",
		"meta skuid 5 accept":                                            "table nat is left out, because iptables-nft-save",
		"ip daddr { 10.0.0.1, 10.0.0.2 } drop":                           "table nat has 1 of them",
		"ip saddr 10.0.0.1-10.0.0.9 accept":                              "table nat has 1 of them",
		"udp length 5 accept":                                            "table nat has 1 of them",
		"ip daddr 1.2.3.4 ip daddr set 1.2.3.5":                          "table nat has 1 of them",
		"tcp dport 80 ip saddr 10.0.0.0/8 iifname \"a*\" counter accept": "",
	} {
		t.Run(rule, func(t *testing.T) {
			inNamespace(t, func(t *testing.T, p *place) {
				shell(t, `iptables-nft -A INPUT -j ACCEPT
iptables-nft -t nat -A POSTROUTING -f ! -o b -j ACCEPT
iptables-nft -t nat -A PREROUTING -p tcp --dport 80:90 -i eth+ ! -s 10.0.0.0/9 -m limit --limit 5/s -m mark --mark 3 -j RETURN
nft 'add rule ip nat PREROUTING `+rule+`'`)
				got := readRulesAll(p)
				e, nft := got[nft4], got[nftFile]
				if !strings.Contains(string(e.Data), "-A INPUT -j ACCEPT") {
					t.Errorf("the other table is not there: %q: %s\n%s", e.Status, e.Error, e.Data)
				}
				if says == "" {
					if e.Status != snapshot.OK || nft.Status != snapshot.Absent {
						t.Errorf("%q: %s\nnft: %q: %s", e.Status, e.Error, nft.Status, nft.Error)
					}
					return
				}
				if e.Status != snapshot.Truncated || !strings.Contains(e.Error, says) || strings.Contains(e.Error, "\n") {
					t.Errorf("%q: %s\n%s", e.Status, e.Error, e.Data)
				}
				if n := messagesOf(t, nft.Data).rules["ip nat PREROUTING"]; nft.Status != snapshot.OK || n != 2 {
					t.Errorf("nft's view has %d rules of the chain: %q: %s", n, nft.Status, nft.Error)
				}
			})
		})
	}
}

// TestHostileNames: names of tables are no commands.
func TestHostileNames(t *testing.T) {
	needs(t, "nft")
	inNamespace(t, func(t *testing.T, p *place) {
		shell(t, `nft -j '{"nftables":[{"add":{"table":{"family":"ip","name":"x; flush ruleset"}}},{"add":{"table":{"family":"inet","name":"\"counter"}}}]}'`)
		before := state(t)
		e := readRulesAll(p)[nftFile]
		if after := state(t); after != before {
			t.Errorf("reading changed the namespace: before\n%s\nafter\n%s", before, after)
		}
		got := messagesOf(t, e.Data)
		for _, name := range []string{`ip x; flush ruleset`, `inet "counter`} {
			if !slices.Contains(got.tables, name) {
				t.Errorf("no table %s: %q: %s: %q", name, e.Status, e.Error, got.tables)
			}
		}
	})
}

// TestDeniedRules: without the right to look, nothing is said to be absent that may be there.
func TestDeniedRules(t *testing.T) {
	needs(t, "iptables-nft-save", "iptables-legacy-save", "nft", "ipset")
	for name, giveUp := range map[string]func() error{
		"root without capabilities": func() error {
			for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
				if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL {
					return err
				}
			}
			none := [2]unix.CapUserData{}
			return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
		},
		"nobody": func() error {
			// Of this thread alone, which the wrapper in package syscall does not do.
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
				return e
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inNamespace(t, func(t *testing.T, p *place) {
				for _, file := range []string{nft4, nft6, legacy4, legacy6, nftFile, ipsetFile} {
					shell(t, somewhere[file].write)
				}
				if err := giveUp(); err != nil {
					t.Errorf("give up rights: %v", err)
					return
				}
				got := readRulesAll(p)
				for _, file := range []string{nft4, nft6, legacy4, legacy6, nftFile, ipsetFile} {
					e := got[file]
					if e.Status != snapshot.Denied || len(e.Data) > 0 || strings.Contains(e.Error, "\n") || !strings.Contains(e.Error, "run as root") {
						t.Errorf("%s: %q: %s", file, e.Status, e.Error)
					}
				}
			})
		})
	}
}

// TestMissingPrograms: rules that no program is there to print are not absent.
func TestMissingPrograms(t *testing.T) {
	needs(t, "iptables-nft-save", "iptables-legacy-save", "nft", "ipset")
	inNamespace(t, func(t *testing.T, p *place) {
		for _, file := range []string{nft4, legacy6, nftFile, ipsetFile} {
			shell(t, somewhere[file].write)
		}
		t.Setenv("PATH", t.TempDir())
		was := sbin
		sbin = nil
		defer func() { sbin = was }()
		got := readRulesAll(p)
		for file, program := range map[string]string{nft4: "iptables-nft-save", legacy6: "ip6tables-legacy-save", ipsetFile: "ipset"} {
			if e := got[file]; e.Status != snapshot.Failed || !strings.Contains(e.Error, program+" is not installed") {
				t.Errorf("%s: %q: %s", file, e.Status, e.Error)
			}
		}
		if e := got[nftFile]; e.Status != snapshot.OK {
			t.Errorf("%s, for which no program is needed: %q: %s", nftFile, e.Status, e.Error)
		}
		for _, file := range []string{nft6, legacy4} {
			if e := got[file]; e.Status != snapshot.Absent {
				t.Errorf("%s: %q: %s", file, e.Status, e.Error)
			}
		}
		if e := got[toolsFile]; e.Status != snapshot.Absent {
			t.Errorf("%s: %q: %s", toolsFile, e.Status, e.Error)
		}
	})
}

// TestOnlyXtables: where only the program with all names is installed, or only the plain one, those are asked.
func TestOnlyXtables(t *testing.T) {
	needs(t, "xtables-nft-multi", "xtables-legacy-multi")
	inNamespace(t, func(t *testing.T, p *place) {
		shell(t, somewhere[nft4].write+"\n"+somewhere[legacy4].write)
		nft, _ := lookCommand("xtables-nft-multi")
		legacy, _ := lookCommand("xtables-legacy-multi")
		was := sbin
		sbin = nil
		defer func() { sbin = was }()
		for names, want := range map[string][2]snapshot.Status{
			"multi":        {snapshot.OK, snapshot.OK},
			"plain nft":    {snapshot.OK, snapshot.Failed},
			"plain legacy": {snapshot.Failed, snapshot.OK},
		} {
			dir := t.TempDir()
			link := func(to, name string) {
				if err := os.Symlink(to, dir+"/"+name); err != nil {
					t.Error(err)
				}
			}
			switch names {
			case "multi":
				link(nft, "xtables-nft-multi")
				link(legacy, "xtables-legacy-multi")
			case "plain nft":
				link(nft, "iptables-save")
			case "plain legacy":
				link(legacy, "iptables-save")
			}
			t.Setenv("PATH", dir)
			got := readRulesAll(p)
			if got[nft4].Status != want[0] || got[legacy4].Status != want[1] {
				t.Errorf("%s: nft %q %s, legacy %q %s", names, got[nft4].Status, got[nft4].Error, got[legacy4].Status, got[legacy4].Error)
			}
		}
	})
}
