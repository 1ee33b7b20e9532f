package nft

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// statementOf reads the statements of a rule as JSON and gives the rule's text, and why it could not be read.
func statementOf(t *testing.T, family Family, expr string) (text string, problems []string) {
	t.Helper()
	r := parseJSON(t, fmt.Sprintf(`{"nftables": [{"table": {"family": %q, "name": "t"}}, {"chain": {"family": %[1]q, "table": "t", `+
		`"name": "c"}}, {"rule": {"family": %[1]q, "table": "t", "chain": "c", "handle": 5, "expr": [%s]}}]}`, family, expr), "x")
	for _, p := range r.Problems {
		problems = append(problems, p.Why)
	}
	return r.Tables[0].Chain("c").Rules[0].Text, problems
}

// TestJSONOfOtherVersions reads forms that nft 1.0.6 does not write, or of what our kernel refuses.
func TestJSONOfOtherVersions(t *testing.T) {
	for _, c := range []struct {
		family     Family
		expr, want string
	}{
		{Inet, `{"match": {"op": "==", "left": {"fib": {"result": "check", "flags": ["saddr", "iif"]}}, "right": false}}`,
			`fib saddr . iif oif missing`},
		{Inet, `{"match": {"op": "==", "left": {"fib": {"result": "type", "flags": "daddr"}}, "right": "local"}}`,
			`fib daddr type local`},
		{Inet, `{"last": null}, {"last": {"used": 5000}}`, `last last`},
		{Inet, `{"match": {"op": "==", "left": {"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, ` +
			`{"|": ["fin", "syn", "rst", "ack"]}]}, "right": "syn"}}`, `tcp flags syn / fin,syn,rst,ack`},
		{Inet, `{"match": {"op": "==", "left": {"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, ` +
			`{"|": [{"|": [{"|": ["fin", "syn"]}, "rst"]}, "ack"]}]}, "right": "syn"}}`, `tcp flags syn / fin,syn,rst,ack`},
		{Inet, `{"map": {"op": "update", "elem": {"payload": {"protocol": "ip", "field": "saddr"}}, "data": ` +
			`{"meta": {"key": "mark"}}, "map": "@m"}}`, `update @m { ip saddr : meta mark }`},
		{Inet, `{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"|": [{"meta": {"key": "mark"}}, 1, 2]}}}`,
			`meta mark set meta mark | 0x00000001 | 0x00000002`},
		{Inet, `{"xt": {"type": "match", "name": "comment"}}, {"counter": null}, {"xt": {"type": "target", "name": "DNAT"}}`,
			`xt match "comment" counter xt target "DNAT"`},
		{Inet, `{"flow": {"op": "add", "flowtable": "@ft"}}`, `flow add @ft`},
		{Inet, `{"queue": null}`, `queue to 0`},
		{Inet, `{"queue": {"num": {"range": [0, 3]}, "flags": ["bypass", "fanout"]}}`, `queue flags bypass,fanout to 0-3`},
		{Inet, `{"queue": {"num": {"numgen": {"mode": "inc", "mod": 8, "offset": 1}}}}`, `queue to numgen inc mod 8 offset 1`},
		{Inet, `{"secmark": "s"}`, `meta secmark set "s"`},
		{Inet, `{"ct count": {"val": 5, "inv": true}}`, `ct count over 5`},
		{Inet, `{"match": {"op": "==", "left": {"ct": {"key": "saddr", "family": "ip6", "dir": "reply"}}, "right": "::1"}}`,
			`ct reply ip6 saddr ::1`},
		{IP6, `{"match": {"op": "==", "left": {"ct": {"key": "saddr", "dir": "reply"}}, "right": "::1"}}`, `ct reply ip6 saddr ::1`},
		{Netdev, `{"fwd": {"dev": "eth0", "family": "ip", "addr": "10.0.0.1"}}`, `fwd ip to 10.0.0.1 device "eth0"`},
		{Netdev, `{"dup": {"addr": "eth0"}}`, `dup to "eth0"`},
		{Inet, `{"match": {"op": "==", "left": {"payload": {"tunnel": "vxlan", "protocol": "ip", "field": "saddr"}}, ` +
			`"right": "10.0.0.1"}}`, `vxlan ip saddr 10.0.0.1`},
		{IP, `{"reject": null}, {"reject": {"type": "icmp", "expr": "port-unreachable"}}`, `reject reject`},
		{Inet, `{"reject": {"type": "icmp", "expr": "port-unreachable"}}`, `reject with icmp port-unreachable`},
		{IP, `{"log": {"prefix": "x ", "flags": ["tcp sequence", "tcp options", "ip options", "skuid"], "level": "warn"}}`,
			`log prefix "x " flags tcp sequence,options flags ip options flags skuid`},
		{Inet, `{"jump": {"target": "a/b-c"}}`, `jump a/b-c`},
		{Inet, `"jump {\n\t\t\taccept\n\t\t}"`, `jump { accept }`},
	} {
		text, problems := statementOf(t, c.family, c.expr)
		if len(problems) > 0 || text != c.want {
			t.Errorf("%s:\n got %s\nwant %s\nproblems %q", c.expr, text, c.want, problems)
		}
	}
}

func TestJSONUnreadable(t *testing.T) {
	for expr, why := range map[string]string{
		`{"frobnicate": 5}`: `the statement "frobnicate" is not known`,
		`{"match": {"op": "==", "left": {"meta": {"key": "feeling"}}, "right": 1}}`:                           `meta "feeling" is not known`,
		`{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "x"}}`:    `"x" is no ipv4_addr`,
		`{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 65536}}`: "65536 does not fit into the 2 bytes of inet_service",
		`{"match": {"op": "~", "left": {"meta": {"key": "mark"}}, "right": 1}}`:                               `the operator "~" is not known`,
		`{"match": {"op": "==", "left": {"meta": {"key": "mark"}}}}`:                                          "a match has two sides",
		`{"jump": {}}`: "jump leads nowhere",
		`{"xt": null}`: "an extension of iptables of which the capture says nothing",
		`5`:            "not a statement",
		`{"vmap": {"key": {"meta": {"key": "mark"}}, "data": {"set": [[1, {"fly": null}]]}}}`: `the verdict "fly" is not known`,
		`"teleport"`: `"teleport" stands where an expression or statement that is known is due`,
	} {
		r := parseJSON(t, `{"nftables": [{"rule": {"family": "ip", "table": "t", "chain": "c", "expr": [{"accept": null}, `+expr+`, {"drop": null}]}}]}`, "x")
		statements := r.Tables[0].Chain("c").Rules[0].Statements
		if len(statements) != 3 || len(r.Problems) != 1 || r.Problems[0].Why != why {
			t.Errorf("%s: %d statements, problems %v", expr, len(statements), r.Problems)
			continue
		}
		if u, ok := statements[1].(*Unreadable); !ok || u.Why != why {
			t.Errorf("%s: %#v", expr, statements[1])
		}
	}
}

// TestJSONForms reads documents as they come out of pipes and pastes.
func TestJSONForms(t *testing.T) {
	whole := recording(t, "kube-proxy-1.36.json")
	want := parseJSON(t, whole, "x")
	for _, rule := range want.Table(IP, "kube-proxy").Chain("services").Rules {
		if rule.Line != 0 {
			t.Error("a document on one line has no lines")
		}
	}
	var document struct{ NFTables []json.RawMessage }
	if err := json.Unmarshal([]byte(whole), &document); err != nil {
		t.Fatal(err)
	}
	var objects []string
	for _, o := range document.NFTables {
		objects = append(objects, string(o))
	}
	lines := strings.Join(objects, "\n")
	for name, doc := range map[string]string{
		"one object a line":     lines,
		"with a byte mark":      "\ufeff" + whole,
		"a list":                "[" + strings.Join(objects, ",\n") + "]",
		"indented":              "{\n  \"nftables\": [\n" + strings.Join(objects, ",\n") + "\n  ]\n}\n",
		"with more in it":       `{"nftables": [` + strings.Join(objects, ",") + `], "took": {"ms": 5}}`,
		"a document each":       `{"nftables": [` + strings.Join(objects, "]}\n{\"nftables\": [") + "]}",
		"documents of an empty": `{"nftables": []} {} ` + whole,
	} {
		got, err := ParseJSON([]byte(doc), "x")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := sameRulesets(want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if name != "documents of an empty" && len(got.Problems) > 0 {
			t.Errorf("%s: %v", name, got.Problems)
		}
	}
	for i, o := range objects {
		if !strings.HasPrefix(o, `{"rule"`) {
			continue
		}
		r := parseJSON(t, strings.Join(objects[:i+1], "\n"), "x")
		last := r.Tables[len(r.Tables)-1]
		for _, c := range last.Chains {
			for _, rule := range c.Rules {
				if rule.Line > i+1 || rule.Line == 0 || !strings.Contains(objects[rule.Line-1], fmt.Sprintf(`"handle": %d,`, rule.Handle)) {
					t.Fatalf("rule %q stands on line %d", rule.Text, rule.Line)
				}
			}
		}
	}
}

// TestJSONCutOff cuts a document at every place: what is before the cut is read, and the cut is said.
func TestJSONCutOff(t *testing.T) {
	whole := recording(t, "kube-proxy-1.36.json")
	rules := func(r *Ruleset) (n int) {
		for _, table := range r.Tables {
			n += len(table.Sets)
			for _, c := range table.Chains {
				n += 1 + len(c.Rules)
			}
		}
		return n
	}
	last := 0
	for i := 0; i < len(whole)-3; i += 37 {
		r, err := ParseJSON([]byte(whole[:i]), "x")
		if err != nil {
			if i > 200 {
				t.Fatalf("cut at %d: %v", i, err)
			}
			continue
		}
		n := rules(r)
		if n < last {
			t.Fatalf("cut at %d: %d things are read, before it were %d", i, n, last)
		}
		last = n
		if len(r.Problems) == 0 {
			t.Fatalf("cut at %d: nothing says so", i)
		}
	}
	if all := rules(parseJSON(t, whole, "x")); last < all-1 {
		t.Errorf("%d of %d things", last, all)
	}
}

// TestJSONDamaged holds that a line that is no JSON does not take those behind it with it.
func TestJSONDamaged(t *testing.T) {
	r := parseJSON(t, `{"table": {"family": "ip", "name": "a"}}
{"table": {"family": "ip", "na
{"table": {"family": "ip", "name": "b"}}
garbage
{"table": {"family": "ip", "name": "c"}}
`, "x")
	var got []string
	for _, table := range r.Tables {
		got = append(got, fmt.Sprintf("%s %d", table.Name, table.Line))
	}
	for _, p := range r.Problems {
		got = append(got, fmt.Sprintf("%d: %s", p.Line, p.Why))
	}
	if diff := cmp.Diff([]string{"a 1", "b 3", "c 5", "2: not JSON", "4: not JSON"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestNotJSON(t *testing.T) {
	for _, doc := range []string{"", "[]", "{}", "hello", `{"items": []}`, `{"kind": "List", "items": [{"kind": "Pod"}]}`, `{"a": 1}`, "\x00"} {
		if r, err := ParseJSON([]byte(doc), "x"); err == nil {
			t.Errorf("%q is read as %v", doc, r)
		}
	}
	deep := strings.Repeat("[", 100000)
	if _, err := ParseJSON([]byte(deep), "x"); err == nil {
		t.Error("brackets are read")
	}
	r := parseJSON(t, `{"nftables": [{"rule": {"family": "ip", "table": "t", "chain": "c", "expr": [{"accept": null}]}}, {"rule": `+deep, "x")
	if len(r.Problems) != 1 || r.Tables[0].Chain("c") == nil {
		t.Errorf("%v", r.Problems)
	}
}

// TestJSONWidths reads elements of a set of integers whose width only a rule says.
func TestJSONWidths(t *testing.T) {
	r := parseJSON(t, `{"nftables": [{"set": {"family": "ip", "name": "ids", "table": "t", "type": ["integer", "ipv4_addr"], "elem": [{"concat": [5, "1.2.3.4"]}]}},
{"map": {"family": "ip", "name": "sizes", "table": "t", "type": "ipv4_addr", "map": "integer", "elem": [["1.2.3.4", 1400]]}},
{"rule": {"family": "ip", "table": "t", "chain": "c", "expr": [{"match": {"op": "==", "left": {"concat": [{"payload": {"protocol": "ip", "field": "id"}}, {"payload": {"protocol": "ip", "field": "saddr"}}]}, "right": "@ids"}},
 {"mangle": {"key": {"tcp option": {"name": "maxseg", "field": "size"}}, "value": {"map": {"key": {"payload": {"protocol": "ip", "field": "saddr"}}, "data": "@sizes"}}}}]}}]}`, "x")
	noProblems(t, r)
	ids, sizes := r.Tables[0].Set("ids"), r.Tables[0].Set("sizes")
	if diff := cmp.Diff([]Entry{{Start: []byte{0, 5, 0, 0, 1, 2, 3, 4}}}, ids.Entries); diff != "" || ids.Incomplete {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Entry{{Start: []byte{1, 2, 3, 4}, Data: []byte{5, 120}}}, sizes.Entries); diff != "" || sizes.Incomplete {
		t.Error(diff)
	}
}
