package nft

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// testdata/listing holds what nft 1.0.6 printed of one ruleset in both forms, NAME.txt and NAME.json, and where the
// ruleset was loaded from a file of ours that file, NAME.nft: listing_linux_test.go loads it again.

// recordings are the names of the files of testdata/listing without their ends.
func recordings(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/listing/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for i := range files {
		files[i] = strings.TrimSuffix(filepath.Base(files[i]), ".txt")
	}
	return files
}

func recording(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/listing", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func parseText(t testing.TB, text, file string) *Ruleset {
	t.Helper()
	r, err := ParseText(text, file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func parseJSON(t testing.TB, text, file string) *Ruleset {
	t.Helper()
	r, err := ParseJSON([]byte(text), file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sameRulesets compares rulesets but for what only one of two captures of them can hold.
func sameRulesets(a, b *Ruleset) string {
	return cmp.Diff(a, b, cmpopts.IgnoreUnexported(Table{}, Set{}), cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(Ruleset{}, "File", "Version", "Problems"),
		cmpopts.IgnoreFields(Table{}, "Handle", "Line"), cmpopts.IgnoreFields(Chain{}, "Handle", "Line"),
		cmpopts.IgnoreFields(Rule{}, "Handle", "Line"), cmpopts.IgnoreFields(Set{}, "Handle", "Line"),
		cmpopts.IgnoreFields(Object{}, "Handle", "Line"), cmpopts.IgnoreFields(Flowtable{}, "Handle", "Line"))
}

func noProblems(t testing.TB, r *Ruleset) {
	t.Helper()
	for _, p := range r.Problems {
		t.Errorf("line %d: %s: %s", p.Line, p.Why, p.Text)
	}
	for _, table := range r.Tables {
		for _, c := range table.Chains {
			for _, rule := range c.Rules {
				for _, s := range rule.Statements {
					if u, ok := s.(*Unreadable); ok {
						t.Errorf("%s %s: unreadable: %s: %s", table.Name, c.Name, u.Text, u.Why)
					}
				}
			}
		}
	}
}

func TestTextIsPrintedAsItWas(t *testing.T) {
	for _, name := range recordings(t) {
		t.Run(name, func(t *testing.T) { textIsPrintedAsItWas(t, recording(t, name+".txt"), name) })
	}
}

func textIsPrintedAsItWas(t *testing.T, text, name string) {
	r := parseText(t, text, name)
	noProblems(t, r)
	if diff := cmp.Diff(nativeWords(text), r.String()); diff != "" {
		t.Errorf("printed otherwise than it was (-nft +ours):\n%s", diff)
	}
}

// nativeWords are the words that nft has for what its translation of iptables' extensions writes otherwise.
func nativeWords(text string) string {
	return strings.NewReplacer(
		"set mark or 0x4000\n", "set meta mark | 0x00004000\n", "set mark xor 0x4000\n", "set meta mark ^ 0x00004000\n",
		"ct state related,established", "ct state established,related",
	).Replace(text)
}

// asJSONSays takes out of a ruleset what JSON of nft 1.0.6 does not have: see ParseJSON.
func asJSONSays(r *Ruleset) *Ruleset {
	for _, t := range r.Tables {
		t.Comment = ""
		for _, s := range t.Sets {
			s.Dynamic, s.AutoMerge, s.TypeofKey, s.TypeofData = false, false, nil, nil
			// A map's data are ranges where one of the elements has one; the declaration is not there.
			s.DataInterval = false
			for i := range s.Entries {
				e := &s.Entries[i]
				e.Timeout = e.Timeout.Truncate(time.Second)
				s.DataInterval = s.DataInterval || e.DataEnd != nil
			}
		}
		for _, c := range t.Chains {
			c.Comment = ""
			if c.Base != nil {
				c.Base.Devices, c.Base.Offload = nil, false
			}
		}
	}
	return r
}

// roundLives leaves of what entries have yet to live that they do: it goes on between two listings.
func roundLives(r *Ruleset) {
	for _, t := range r.Tables {
		for _, s := range t.Sets {
			for i := range s.Entries {
				e := &s.Entries[i]
				e.Expires = min(e.Expires, time.Second)
			}
		}
	}
}

// widthsUnknown are sets whose elements JSON does not say the width of, and no rule does either.
var widthsUnknown = []string{"s13", "s40"}

func forgetWidths(r *Ruleset) {
	for _, t := range r.Tables {
		for _, name := range widthsUnknown {
			if s := t.Set(name); s != nil && s.Key[0].Type == TypeInteger {
				s.Key[0].Size, s.Entries, s.Incomplete = 0, nil, true
			}
		}
	}
}

func TestJSONIsTheSameAsText(t *testing.T) {
	for _, name := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			jsonIsTheSameAsText(t, recording(t, name+".json"), recording(t, name+".txt"), name)
		})
	}
}

func jsonIsTheSameAsText(t *testing.T, json, text, name string) {
	fromJSON, fromText := parseJSON(t, json, name), parseText(t, text, name)
	if fromJSON.Version != "1.0.6" {
		t.Errorf("version %q", fromJSON.Version)
	}
	for _, p := range fromJSON.Problems {
		if !strings.Contains(p.Why, "nothing says how wide a value of integer is here") {
			t.Errorf("%s: %s", p.Why, p.Text)
		}
	}
	asJSONSays(fromText)
	roundLives(fromText)
	roundLives(fromJSON)
	forgetWidths(fromText)
	if strings.HasPrefix(name, "iptables") || strings.Contains(text, "KUBE-FIREWALL") {
		// What nft knows of iptables' extensions it translates in one form and names in the other.
		forgetExtensions(fromText)
		forgetExtensions(fromJSON)
	}
	if diff := sameRulesets(fromText, fromJSON); diff != "" {
		t.Errorf("JSON is read otherwise than text (-text +json):\n%s", diff)
	}
	if diff := cmp.Diff(fromText.String(), fromJSON.String()); diff != "" {
		t.Errorf("printed otherwise (-text +json):\n%s", diff)
	}
}

// forgetExtensions leaves of rules of iptables their verdicts and counters.
func forgetExtensions(r *Ruleset) {
	for _, t := range r.Tables {
		for _, c := range t.Chains {
			for _, rule := range c.Rules {
				var kept []Statement
				for _, s := range rule.Statements {
					switch s.(type) {
					case *Verdict, *Counter:
						kept = append(kept, s)
					}
				}
				rule.Statements, rule.Text = kept, ""
			}
		}
	}
}

// TestPrintedTextIsReadAgain holds the printer and the reader against each other where nft has no say: what is printed
// of JSON is read as what was printed.
func TestPrintedTextIsReadAgain(t *testing.T) {
	for _, name := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			fromJSON := parseJSON(t, recording(t, name+".json"), name)
			if again := parseText(t, fromJSON.String(), name).String(); again != fromJSON.String() && name != "sets" {
				t.Error(cmp.Diff(fromJSON.String(), again))
			}
		})
	}
}

// TestRuleText compares Rule.Text with what `nft -s` prints: rules without counters' values.
func TestRuleText(t *testing.T) {
	r := parseText(t, `table ip t {
	set s {
		type ipv4_addr
		elements = { 1.2.3.4 counter packets 5 bytes 50 comment "x", 5.6.7.8 timeout 1m expires 30s }
	}
	map m {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.1 . tcp . 443 comment "x" : goto y }
	}
	chain c {
		counter packets 5 bytes 50 ip saddr 1.2.3.4 accept comment "why" # handle 7
		quota 10 mbytes used 5 bytes drop
		ip saddr 1.1.1.1 jump {
			counter packets 1 bytes 2
			accept comment "inner"
		}
	}
}
`, "x")
	noProblems(t, r)
	table := r.Table(IP, "t")
	var got []string
	for _, rule := range table.Chain("c").Rules {
		got = append(got, rule.Text)
	}
	for _, s := range table.Sets {
		for i := range s.Entries {
			got = append(got, s.EntryText(&s.Entries[i]))
		}
	}
	want := []string{
		`counter ip saddr 1.2.3.4 accept comment "why"`,
		`quota 10 mbytes drop`,
		`ip saddr 1.1.1.1 jump { counter; accept comment "inner" }`,
		`1.2.3.4 counter comment "x"`,
		`5.6.7.8 timeout 1m`,
		`10.96.0.1 . tcp . 443 comment "x" : goto y`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	first := table.Chain("c").Rules[0]
	if !first.HasCounter || first.Packets != 5 || first.Bytes != 50 || first.Handle != 7 || first.Line != 11 {
		t.Errorf("%+v", first)
	}
}
