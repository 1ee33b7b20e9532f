package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// nftRecording is the recorded node of kube-proxy 1.36 in nftables mode, with its tables as nft lists them.
func nftRecording(t *testing.T) (*snapshot.Snapshot, string) {
	t.Helper()
	s, err := snapshot.Load([]string{"../../test/recorded/testdata/kube-proxy-1.36-nftables"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := nft.ParseNetlink(s.Of(snapshot.NFTNetlink)[0].Data, "")
	if err != nil {
		t.Fatal(err)
	}
	return s, rs.String()
}

// nftPlan is a plan for a recorded node with other tables.
func nftPlan(t *testing.T, s *snapshot.Snapshot, tables string, o explain.AuditOptions, p Options) *report.RepairPlan {
	t.Helper()
	of := *s
	of.Evidence = slices.DeleteFunc(slices.Clone(s.Evidence), func(e snapshot.Evidence) bool { return e.Format == snapshot.NFTNetlink })
	of.Evidence = append(of.Evidence, snapshot.Evidence{Format: snapshot.NFTText, File: "nft.txt", Status: snapshot.OK, Data: []byte(tables)})
	r, err := explain.Read(&of, o)
	if err != nil {
		t.Fatal(err)
	}
	return Make(r, p)
}

// edits are what the steps of nftables change, as "TABLE OBJECT".
func nftEdits(p *report.RepairPlan) []string {
	var out []string
	for _, s := range p.Steps {
		for _, e := range s.Edits {
			if s.Kind == kindNFTables {
				out = append(out, e.Table+" "+e.Object)
			}
		}
	}
	return out
}

// without removes the lines of a listing that hold a text; it must be there.
func withoutLines(t *testing.T, listing, text string) string {
	t.Helper()
	if !strings.Contains(listing, text) {
		t.Fatalf("the listing has no %q", text)
	}
	var out strings.Builder
	for line := range strings.Lines(listing) {
		if !strings.Contains(line, text) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// TestNFTMinimal: a plan holds what findings ask for, and nothing else.
func TestNFTMinimal(t *testing.T) {
	s, tables := nftRecording(t)
	const (
		web = "service-SUISEG5X-store/web/tcp/http"
		two = "service-XDF6N3TE-store/two-ports/tcp/admin"
	)
	webChain := func(tables string) string { return nftWithoutRules(t, tables, "ip", web) }
	both := nftWithoutRules(t, webChain(tables), "ip6", two)
	for _, tt := range []struct {
		name   string
		tables string
		audit  explain.AuditOptions
		plan   Options
		want   []string
	}{
		{"as it should be", tables, explain.AuditOptions{}, Options{}, nil},
		{"one chain", webChain(tables), explain.AuditOptions{}, Options{}, []string{"ip kube-proxy chain " + web}},
		{"two Services", both, explain.AuditOptions{}, Options{}, []string{"ip kube-proxy chain " + web, "ip6 kube-proxy chain " + two}},
		{"one of two Services", both, explain.AuditOptions{Namespace: "store", Services: []string{"two-ports"}}, Options{}, []string{"ip6 kube-proxy chain " + two}},
		{"neither of two Services", both, explain.AuditOptions{Namespace: "store", Services: []string{"one"}}, Options{}, nil},
		{"another finding", both, explain.AuditOptions{}, Options{Finding: "nft-map-entry-missing"}, nil},
		{
			"a rule of all", withoutLines(t, tables, "vmap @no-endpoint-nodeports"), explain.AuditOptions{}, Options{},
			[]string{"ip kube-proxy chain nodeport-endpoints-check", "ip6 kube-proxy chain nodeport-endpoints-check"},
		},
		{
			"a rule of all, for one that does not need it", withoutLines(t, webChain(tables), "ct state new jump firewall-check"),
			explain.AuditOptions{Namespace: "store", Services: []string{"web"}}, Options{Finding: "missing-service-rule"},
			[]string{"ip kube-proxy chain " + web},
		},
		{
			"an entry", regexp.MustCompile(`10\.96\.1\.1 \. tcp \. 80 : goto `+web+`,\s+`).ReplaceAllString(tables, ""), explain.AuditOptions{}, Options{},
			[]string{"ip kube-proxy element 10.96.1.1 . tcp . 80 of map service-ips"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := nftPlan(t, s, tt.tables, tt.audit, tt.plan)
			if got := nftEdits(p); !slices.Equal(got, tt.want) {
				t.Errorf("edits %q, want %q", got, tt.want)
			}
			for _, step := range p.Steps {
				for _, e := range step.Edits {
					if step.Kind == kindNFTables && (len(e.Findings) == 0 || e.Reason == "") {
						t.Errorf("%s says neither why nor for which finding", e.Object)
					}
				}
			}
		})
	}
}

// nftWithoutRules empties a chain of one family in a listing.
func nftWithoutRules(t *testing.T, listing, family, chain string) string {
	t.Helper()
	table := strings.Index(listing, "table "+family+" kube-proxy {")
	at := strings.Index(listing[max(0, table):], "\tchain "+chain+" {\n")
	if table < 0 || at < 0 {
		t.Fatalf("no chain %s", chain)
	}
	from := table + at + len("\tchain "+chain+" {\n")
	end := strings.Index(listing[from:], "\t}\n")
	return listing[:from] + listing[from+end:]
}

// TestNFTUnsure: what is not known is not written, and the findings say why they are left.
func TestNFTUnsure(t *testing.T) {
	s, tables := nftRecording(t)
	broken := nftWithoutRules(t, tables, "ip", "service-SUISEG5X-store/web/tcp/http")
	lacks := func(s *snapshot.Snapshot, files ...string) *snapshot.Snapshot {
		out := *s
		out.Evidence = slices.DeleteFunc(slices.Clone(s.Evidence), func(e snapshot.Evidence) bool {
			return slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(e.File, f) })
		})
		return &out
	}
	told := func(s *snapshot.Snapshot, old, now string) *snapshot.Snapshot {
		out := *s
		out.Evidence = slices.Clone(s.Evidence)
		for i := range out.Evidence {
			if out.Evidence[i].Status == snapshot.OK && strings.Contains(string(out.Evidence[i].Data), old) {
				out.Evidence[i].Data = []byte(strings.ReplaceAll(string(out.Evidence[i].Data), old, now))
			}
		}
		return &out
	}
	for _, tt := range []struct {
		name, tables string
		node         *snapshot.Snapshot
		edits        int
		left         string
	}{
		{"all is known", broken, s, 1, ""},
		{"a release that is not known", broken, told(s, "1.36.3", "1.39.0"), 0, "kube-proxy 1.39"},
		{"an older release", broken, told(s, "1.36.3", "1.28.3"), 0, "kube-proxy 1.28"},
		{"a program's own table", strings.Replace(broken, "table ip kube-proxy {\n", "table ip kube-proxy {\n\tflags owner\n", 1), s, 0, "owned by a program"},
		{"no endpoints were read", broken, lacks(s, "endpointslices.json"), 0, ""},
		{"the table is gone, and not all Services are known", tables[strings.Index(tables, "table ip6 "):], told(s, `"name":"kubernetes"`, `"name":"kubernetes2"`), 0, "not all Services"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := nftPlan(t, tt.node, tt.tables, explain.AuditOptions{}, Options{})
			if got := nftEdits(p); len(got) != tt.edits {
				t.Errorf("edits %q, want %d", got, tt.edits)
			}
			var because []string
			for _, l := range p.Left {
				because = append(because, fmt.Sprintf("%s: %s", l.ID, l.Because))
			}
			if tt.left != "" && !slices.ContainsFunc(because, func(b string) bool { return strings.Contains(b, tt.left) }) {
				t.Errorf("nothing is left because of %q, but %s", tt.left, strings.Join(because, "\n"))
			}
		})
	}
}

// TestNFTSafe: names and comments that netlink takes and nft does not are never written.
func TestNFTSafe(t *testing.T) {
	for text, want := range map[string]bool{
		`ip saddr 10.0.0.0/8 drop comment "a; b # c"`: true,
		`log prefix "it's: $1" accept`:                true,
		`accept comment "x"; delete table ip nat`:     false,
		`accept comment "x`:                           false,
		"accept\nflush ruleset":                       false,
		`accept # "`:                                  false,
	} {
		if got := nftSafe(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
	for name, want := range map[string]bool{
		"service-ULMVA6XW-ns1/svc1/tcp/p80": true, "endpoint-X-a/b/tcp/__fd00.1..2/80": true, "": false, "a b": false, "a;b": false, "a\nb": false, `a"`: false,
	} {
		if got := nftName(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
	for _, c := range []*nft.Chain{
		{Name: "a", Comment: `x"; }; flush ruleset; #`},
		{Name: "a {}; flush ruleset; add chain ip x b"},
		{Name: "a", Rules: []*nft.Rule{{Text: `accept comment "x"; flush ruleset"`}}},
		{Name: "a", Rules: []*nft.Rule{{Text: "accept", Statements: []nft.Statement{&nft.XT{Kind: "match"}}}}},
	} {
		if nftWritable(c) {
			t.Errorf("%+v would be written", c)
		}
	}
}

// TestNFTReadable: nft makes of what it is given what it printed.
func TestNFTReadable(t *testing.T) {
	for rule, want := range map[string]string{
		"ip saddr != { 0.0.0.0/0 } drop":        "ip saddr != { 0.0.0.0/0, 0.0.0.0/0 } drop",
		"ip saddr != { 1.2.3.4, 5.6.7.8 }":      "ip saddr != { 1.2.3.4, 5.6.7.8 }",
		"numgen random mod 1 vmap { 0 : drop }": "numgen random mod 1 vmap { 0 : drop }",
		"jump services":                         "jump services",
	} {
		if got := nftReadable(rule); got != want {
			t.Errorf("%s becomes %s, want %s", rule, got, want)
		}
	}
}
