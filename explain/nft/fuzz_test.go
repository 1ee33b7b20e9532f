package nft

import (
	"strings"
	"testing"
)

// checkRead holds what every reading keeps: the printer writes whatever was read, what is printed is read again as the
// same, and whatever could not be read is said.
func checkRead(t *testing.T, r *Ruleset) {
	t.Helper()
	unread := 0
	for _, table := range r.Tables {
		if r.Table(table.Family, table.Name) != table {
			t.Fatalf("table %s is there twice", table)
		}
		for _, s := range table.Sets {
			if table.Set(s.Name) != s {
				t.Fatalf("set %q is there twice", s.Name)
			}
			for i := range s.Entries {
				e := &s.Entries[i]
				if !e.CatchAll && len(s.Key) == 1 && len(e.Start) == 0 || e.End != nil && len(e.End) != len(e.Start) {
					t.Fatalf("set %s: entry %d: %x to %x", s.Name, i, e.Start, e.End)
				}
				_ = s.EntryText(e)
			}
		}
		for _, c := range table.Chains {
			for _, rule := range c.Rules {
				if rule.Text != table.RuleText(rule) {
					t.Fatalf("rule %q prints as %q", rule.Text, table.RuleText(rule))
				}
				if strings.Contains(rule.Text, "\n") && !strings.Contains(rule.Comment, "\n") {
					t.Fatalf("rule %q has several lines", rule.Text)
				}
				for _, s := range rule.Statements {
					if _, ok := s.(*Unreadable); ok {
						unread++
					}
				}
			}
		}
	}
	if unread > 0 && len(r.Problems) == 0 {
		t.Fatal("a statement is unreadable and there is no problem")
	}
	_ = r.String()
}

func FuzzParseJSON(f *testing.F) {
	for _, name := range recordings(f) {
		doc := recording(f, name+".json")
		f.Add(doc[:min(len(doc), 4000)])
		f.Add(doc[max(0, len(doc)-4000):])
	}
	for _, seed := range []string{
		`{"nftables": [{"metainfo": {"json_schema_version": 1}}, {"table": {"family": "ip", "name": "t", "flags": ["dormant"]}}]}`,
		`{"set": {"family": "ip", "name": "s", "table": "t", "type": ["ipv4_addr", "ifname"], "elem": [{"concat": [{"prefix": {"addr": "10.0.0.0", "len": 8}}, "eth*"]}]}}`,
		`{"map": {"family": "ip", "name": "s", "table": "t", "type": {"typeof": {"payload": {"protocol": "ip", "field": "id"}}}, "map": "verdict", "elem": [["*", {"drop": null}]]}}`,
		`{"rule": {"family": "inet", "table": "t", "chain": "c", "expr": ["jump {\n accept\n}", {"vmap": {"key": {"meta": {"key": "iif"}}, "data": {"set": [["lo", {"accept": null}]]}}}]}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		if r, err := ParseJSON([]byte(doc), "x"); err == nil {
			checkRead(t, r)
		}
	})
}

func FuzzParseText(f *testing.F) {
	for _, name := range recordings(f) {
		text := recording(f, name+".txt")
		f.Add(text[:min(len(text), 4000)])
		f.Add("table inet t {\n\tchain c {\n" + text[max(0, len(text)-3000):])
	}
	for _, seed := range []string{
		"table ip t { # handle 5 progname x\n\tflags dormant,owner\n\tset s {\n\t\ttypeof ip saddr . meta mark\n\t\telements = { 1.2.3.4 . 0x5 timeout 1m }\n\t}\n}\n",
		"table inet t {\n chain c {\n jump {\n  goto {\n   accept\n  }\n }\n }\n}\n",
		"table ip t {\n chain c {\n # xt_comment counter # xt_DNAT\n  iifname \"eth*\"  accept\n }\n}\n",
		"table ip t {\n chain c {\n meta mark set (meta mark & 0xff) << 8 | 0x10\n tcp flags syn / syn,ack\n }\n}\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseText(text, "x")
		if err != nil {
			return
		}
		checkRead(t, r)
		if len(r.Problems) > 0 {
			return
		}
		// Names that hold what the grammar is made of cannot be told from it.
		printed := r.String()
		again, err := ParseText(printed, "x")
		if err != nil || len(again.Problems) > 0 {
			return
		}
		if second := again.String(); second != printed {
			t.Fatalf("printed first:\n%s\nand then:\n%s", printed, second)
		}
	})
}
