package netfilter

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The iptables of this machine prints the rules of testdata/tool/rules4.txt and rules6.txt back in all its forms, from a
// network namespace of their own, and all forms read as the same rules. A rule that the kernel here does not take is
// left out, and named.
func TestToolForms(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make a network namespace")
	}
	for _, family := range []struct{ program, rules, ipset string }{
		{"iptables", "rules4.txt", "inet"}, {"ip6tables", "rules6.txt", "inet6"},
	} {
		for _, backend := range []string{"nft", "legacy"} {
			program := family.program + "-" + backend
			t.Run(program, func(t *testing.T) {
				for _, tool := range []string{program, "unshare", "ipset"} {
					if _, err := exec.LookPath(tool); err != nil {
						t.Skipf("%s is not installed", tool)
					}
				}
				if out, err := exec.Command("unshare", "-n", program, "-t", "nat", "-S").CombinedOutput(); err != nil {
					t.Skipf("%s does not work in a network namespace here: %v: %s", program, err, out)
				}
				rules, err := os.ReadFile(filepath.Join("testdata", "tool", family.rules))
				if err != nil {
					t.Fatal(err)
				}
				dir := t.TempDir()
				cmd := exec.Command("unshare", "-n", "sh", "-c", script(program, string(rules), family.ipset))
				cmd.Dir = dir
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				} else if len(out) > 0 {
					t.Logf("not taken by this kernel:\n%s", out)
				}
				read := func(name string, parse func(string, string, Hint) ([]*Ruleset, error)) *Ruleset {
					text, err := os.ReadFile(filepath.Join(dir, name))
					if err != nil {
						t.Fatal(err)
					}
					sets, err := parse(string(text), name, Hint{})
					rs := one(t, sets, err)
					for _, p := range rs.Problems {
						t.Errorf("%s:%d: %s: %s", name, p.Line, p.Why, p.Text)
					}
					return rs
				}
				want := read("save", ParseSave)
				if n := len(want.Table("filter").Chain("T").Rules); n < 20 {
					t.Fatalf("only %d rules were taken", n)
				}
				for name, parse := range map[string]func(string, string, Hint) ([]*Ruleset, error){"S": ParseRules, "Lvn": ParseList, "L": ParseList} {
					got := read(name, parse)
					for _, tab := range got.Tables {
						for _, c := range tab.Chains {
							if len(c.Rules) == 0 {
								continue
							}
							rules := slices.Clone(want.Table(tab.Name).Chain(c.Name).Rules)
							if name == "L" {
								withoutIfaces(t, rules)
								withoutIfaces(t, c.Rules)
							}
							compareRules(t, rules, c.Rules, name != "S")
						}
					}
				}
			})
		}
	}
}

// script loads the rules one by one, says which are refused, and prints all tables in all forms.
func script(program, rules, family string) string {
	var b strings.Builder
	b.WriteString("P=" + program + "\n")
	b.WriteString("ipset create S1 hash:ip family " + family + " 2>/dev/null; ipset create S2 hash:ip,port,ip family " + family + " 2>/dev/null\n")
	b.WriteString("$P -N USER; $P -N T; add() { $P -t \"$@\" 2>/dev/null || echo \"$@\"; }\n")
	for line := range strings.Lines(rules) {
		table, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		b.WriteString("add " + table + " -A " + rest + "\n")
	}
	b.WriteString("$P-save -c >save 2>/dev/null; for t in raw mangle nat filter; do $P -t $t -S; done >S 2>/dev/null\n")
	b.WriteString("for t in raw mangle nat filter; do $P -t $t -L -v -n; done >Lvn 2>/dev/null\n")
	// Names of hosts are looked up, in vain, for as long as the resolver waits.
	b.WriteString("for t in raw mangle nat filter; do $P -t $t -L --line-numbers; done >L 2>/dev/null\n")
	return b.String()
}
