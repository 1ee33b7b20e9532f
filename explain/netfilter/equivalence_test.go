package netfilter

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The same rules, printed by iptables 1.8.9 in every form that it has, read as the same rules.
func TestFormsAgree(t *testing.T) {
	for _, test := range []struct {
		save, other string
		// noIfaces is a form that does not show interfaces.
		noIfaces bool
	}{
		{"nft-save.txt", "nft-S.txt", false},
		{"nft-save.txt", "legacy-save.txt", false},
		{"nft-save.txt", "nft-L-v-n.txt", false},
		{"nft-save.txt", "legacy-L-v-n.txt", false},
		{"nft-save.txt", "nft-L.txt", true},
		{"nft6-save.txt", "nft6-L-v-n.txt", false},
		{"nft6-save.txt", "nft6-L-v.txt", false},
	} {
		t.Run(test.other, func(t *testing.T) {
			want := readTool(t, test.save)
			got := readTool(t, test.other)
			for _, tab := range got.Tables {
				for _, c := range tab.Chains {
					if len(c.Rules) == 0 {
						continue
					}
					w := want.Table(tab.Name)
					if w == nil || w.Chain(c.Name) == nil {
						t.Errorf("chain %s %s does not exist", tab.Name, c.Name)
						continue
					}
					if test.noIfaces {
						withoutIfaces(t, w.Chain(c.Name).Rules)
						withoutIfaces(t, c.Rules)
					}
					compareRules(t, w.Chain(c.Name).Rules, c.Rules, strings.Contains(test.other, "-L"))
				}
			}
		})
	}
}

func readTool(t *testing.T, name string) *Ruleset {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "tool", name))
	if err != nil {
		t.Fatal(err)
	}
	parse := ParseSave
	if strings.Contains(name, "-L") {
		parse = ParseList
	} else if strings.Contains(name, "-S") {
		parse = ParseRules
	}
	rs, err := parse(string(text), name, Hint{})
	if err != nil || len(rs) != 1 {
		t.Fatalf("%s: %d rulesets, %v", name, len(rs), err)
	}
	for _, p := range rs[0].Problems {
		t.Errorf("%s:%d: %s: %s", name, p.Line, p.Why, p.Text)
	}
	return rs[0]
}

// withoutIfaces takes out what a listing without -v does not show, and the match that stands for it.
func withoutIfaces(t *testing.T, rules []Rule) {
	t.Helper()
	for i := range rules {
		r := &rules[i]
		r.Ifaces = nil
		r.Matches = slices.DeleteFunc(slices.Clone(r.Matches), func(m Match) bool {
			_, hidden := m.(*HiddenIfaces)
			return hidden
		})
	}
}

func compareRules(t *testing.T, want, got []Rule, listed bool) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%d rules, want %d", len(got), len(want))
		return
	}
	for i := range want {
		diff := cmp.Diff(want[i], got[i], ruleOptions(listed)...)
		if diff != "" {
			t.Errorf("%s\n%s\n%s", want[i].Text, got[i].Text, diff)
		}
	}
}

func ruleOptions(listed bool) []cmp.Option {
	opts := []cmp.Option{
		cmpopts.EquateComparable(AddrMatch{}, AddrRange{}, MaskedAddr{}),
		cmpopts.IgnoreFields(Rule{}, "Line", "Packets", "Bytes", "HasCounters", "Text"),
		cmpopts.IgnoreFields(UnreadableMatch{}, "Rule"),
		cmpopts.EquateEmpty(),
		cmp.Comparer(func(a, b Translate) bool { return a == b }),
		cmp.Comparer(func(a, b TProxy) bool { return a == b }),
		cmp.Comparer(func(a, b Recent) bool { return a == b }),
	}
	if listed {
		// Listings word these differently, and users by name.
		opts = append(opts, cmpopts.IgnoreFields(Other{}, "Args"), cmpopts.IgnoreFields(ExtensionHeader{}, "Args"), cmpopts.IgnoreFields(Owner{}, "UID", "GID"))
	}
	return opts
}
