package netfilter

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain/host"
)

func seeds(f *testing.F, patterns ...string) {
	f.Helper()
	for _, p := range patterns {
		files, err := filepath.Glob(filepath.Join("testdata", p))
		if err != nil || len(files) == 0 {
			f.Fatalf("no seeds %s: %v", p, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(text))
		}
	}
	f.Add("*nat\n-A X \"\\\n-A X -m m --o=\n-A X ! ! -j\nCOMMIT")
	f.Add("Chain X (1 references)\nA all -- ! ! /* a */ */\n0x1\n")
	f.Add("\xff\xfe*\x00n\x00")
}

// check holds for whatever was read: either rulesets or an error; every rule is a line of the text; every match can
// be asked, and nothing that is undecided lacks its question.
func check(t *testing.T, text string, sets []*Ruleset, err error) {
	t.Helper()
	if (err == nil) == (len(sets) == 0) {
		t.Fatalf("%d rulesets and error %v", len(sets), err)
	}
	if err != nil && !errors.Is(err, ErrNoRules) {
		t.Fatal(err)
	}
	k := &Kernel{Host: &host.Host{}}
	p := Packet{Family: IPv4, Src: client, Dst: service, Proto: ProtoTCP, DstPort: 80}
	lines := strings.Count(text, "\n") + 1
	for _, rs := range sets {
		if rs.Family != IPv4 && rs.Family != IPv6 && len(rs.Tables) > 0 {
			t.Fatalf("family %d", rs.Family)
		}
		for _, tab := range rs.Tables {
			for _, c := range tab.Chains {
				if tab.Chain(c.Name) != c {
					t.Fatalf("chain %q of table %q is not found by its name", c.Name, tab.Name)
				}
				for i := range c.Rules {
					r := &c.Rules[i]
					if r.Line < 1 || r.Line > lines {
						t.Fatalf("rule %q at line %d of %d", r.Text, r.Line, lines)
					}
					r.ExactDst()
					for _, m := range r.Matches {
						if a := m.Test(k, Prerouting, &p); a.Truth == Undecided && (a.Fact.Key == "" || a.Fact.Because == "") {
							t.Fatalf("%q: %#v asks nothing: %+v", r.Text, m, a.Fact)
						}
					}
				}
			}
		}
	}
}

func FuzzParseSave(f *testing.F) {
	seeds(f, "cases/01-*", "cases/18-*", "cases/68-*", "nodes/*", "tool/*-save.txt")
	f.Fuzz(func(t *testing.T, text string) {
		sets, err := ParseSave(text, "f", Hint{})
		check(t, text, sets, err)
	})
}

func FuzzParseRules(f *testing.F) {
	seeds(f, "seeds/iptables-S-*", "tool/*-S.txt")
	f.Fuzz(func(t *testing.T, text string) {
		sets, err := ParseRules(text, "f", Hint{Family: IPv4})
		check(t, text, sets, err)
	})
}

func FuzzParseList(f *testing.F) {
	seeds(f, "seeds/*-L-*", "tool/*-L*")
	f.Fuzz(func(t *testing.T, text string) {
		sets, err := ParseList(text, "f", Hint{Family: IPv4})
		check(t, text, sets, err)
	})
}
