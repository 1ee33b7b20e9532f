package render

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain/report"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"":                  "",
		"plain":             "plain",
		"naïve 日本語 …":       "naïve 日本語 …",
		"a\nb\tc\rd":        `a\nb\tc\rd`,
		"\x1b[31mred":       `\x1b[31mred`,
		"\x7f\x9b":          `\x7f\x9b`,
		"\u0085\u009b":      `\u0085\u009b`,
		"user\u202egpj":     `user\u202egpj`,
		"\u2066x\u2069":     `\u2066x\u2069`,
		"a\u200bb\ufeff":    `a\u200bb\ufeff`,
		"\u2028\u2029":      `\u2028\u2029`,
		"\u00a0\u3164":      `\u00a0\u3164`,
		"\U000e0041":        `\U000e0041`,
		"bad \xff\xc0 utf8": `bad \xff\xc0 utf8`,
		"\ufffd":            "\ufffd",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
		if got := Clean(Clean(in)); got != want {
			t.Errorf("Clean is not idempotent for %q: %q", in, got)
		}
	}
}

func TestWithoutComment(t *testing.T) {
	for in, want := range map[string]string{
		`-A X -m comment --comment "a b" -j Y`:          "-A X -j Y",
		`-A X -m comment --comment word -j Y`:           "-A X -j Y",
		`-A X -m comment --comment "say \"hi\"" -j Y`:   "-A X -j Y",
		`-A X -j Y -m comment --comment "the end"`:      "-A X -j Y",
		`-A X -m comment --comment "not closed`:         "-A X",
		`-A X -m comment --comment "\`:                  "-A X",
		`-A X -j Y`:                                     "-A X -j Y",
		`-A X -m comment --comment "-j DNAT" -j RETURN`: "-A X -j RETURN",
	} {
		if got := withoutComment(in); got != want {
			t.Errorf("withoutComment(%q) = %q, want %q", in, got, want)
		}
	}
	if got := target(`-A X -m comment --comment "x -j DNAT" -g Y`); got != "Y" {
		t.Errorf("target = %q, want Y", got)
	}
}

func TestPercent(t *testing.T) {
	for p, want := range map[float64]string{
		0: "0%", 0.0001: "<0.1%", 0.001: "0.1%", 1.0 / 3: "33.3%", 0.5: "50.0%", 0.9999: ">99.9%", 1: "100%",
	} {
		if got := percent(p); got != want {
			t.Errorf("percent(%v) = %q, want %q", p, got, want)
		}
	}
}

func rule(table, chain, text string) report.Hop {
	return report.Hop{Kind: "rule", Table: table, Chain: chain, Text: "-A " + chain + " " + text, Probability: 1, Cumulative: 1}
}

func TestFollow(t *testing.T) {
	p := &report.Path{Result: report.ResultDNAT, Hops: []report.Hop{
		rule("mangle", "PREROUTING", "-j MARK --set-mark 1"),
		rule("nat", "PREROUTING", "-j KUBE-SERVICES"),
		rule("nat", "KUBE-SERVICES", "-j KUBE-SVC-A"),
		rule("nat", "KUBE-SVC-A", "! -s 10.0.0.0/8 -j KUBE-MARK-MASQ"),
		rule("nat", "KUBE-MARK-MASQ", "-j MARK --or-mark 0x4000"),
		rule("nat", "KUBE-SVC-A", "-j KUBE-SEP-B"),
		rule("nat", "KUBE-SEP-B", "-s 10.0.0.1/32 -j KUBE-MARK-MASQ"),
		rule("nat", "KUBE-MARK-MASQ", "-j MARK --or-mark 0x4000"),
		rule("nat", "KUBE-SEP-B", "-p tcp -j DNAT --to-destination 10.0.0.1:80"),
		rule("filter", "FORWARD", "-j KUBE-FORWARD"),
		rule("filter", "KUBE-FORWARD", "-j ACCEPT"),
	}}
	j := follow(p, nil)
	var chains []string
	for _, l := range j.legs {
		chains = append(chains, l.table+":"+strings.Join(l.chains, ">"))
	}
	if diff := cmp.Diff([]string{"nat:PREROUTING>KUBE-SERVICES>KUBE-SVC-A>KUBE-SEP-B"}, chains); diff != "" {
		t.Error(diff)
	}
	if j.picks != nil && j.picks.Text != "-A KUBE-SVC-A -j KUBE-SEP-B" || j.picks == nil {
		t.Errorf("picks = %+v", j.picks)
	}
	p.Result = report.ResultDrop
	chains = nil
	for _, l := range follow(p, nil).legs {
		chains = append(chains, l.table+":"+strings.Join(l.chains, ">"))
	}
	if diff := cmp.Diff([]string{"nat:PREROUTING>KUBE-SERVICES>KUBE-SVC-A>KUBE-SEP-B", "filter:FORWARD>KUBE-FORWARD"}, chains); diff != "" {
		t.Error(diff)
	}
}

func TestManyBackends(t *testing.T) {
	doc := load(t, "web")
	p := doc.Paths[0]
	p.Backends = nil
	share := 0.001
	for i := range 1000 {
		b := report.Backend{Address: fmt.Sprintf("10.1.%d.%d", i/250, i%250), Port: 80, Probability: share, Intended: &share, State: "ok", Result: report.ResultDNAT}
		if i == 500 {
			b.State = "stale"
		}
		p.Backends = append(p.Backends, b)
	}
	doc.Paths = []report.Path{p}
	var out bytes.Buffer
	if err := Tree(&out, doc, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.1.0.9:80", "10.1.2.0:80", "… 989 more at 0.1% each"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "10.1.0.10:80") {
		t.Error("the eleventh backend is shown")
	}
	out.Reset()
	if err := Wide(&out, doc, Options{}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "10.1."); n != 1000 {
		t.Errorf("wide shows %d backends of 1000", n)
	}
}

// checkSafe fails when text holds what could do harm on a terminal, or leaves ASCII where asked not to.
func checkSafe(t *testing.T, text string, o Options) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Fatalf("not valid UTF-8: %q", text)
	}
	for _, r := range text {
		switch {
		case r == '\n':
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp):
			t.Fatalf("%U is shown in %q", r, text)
		case o.ASCII && r > '~':
			t.Fatalf("%U is shown with ASCII in %q", r, text)
		}
	}
}

// fill sets every string in a document to s, nil slices and pointers aside.
func fill(v reflect.Value, s string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem(), s)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), s)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i), s)
		}
	}
}

func FuzzForeignText(f *testing.F) {
	for _, s := range []string{"", "KUBE-SVC-X", "\x1b[2J", "a\nb", "\u202e\u2066", "\xff\xfe", `"];\`, "<b>&#`", "-m comment --comment \"", "-j DNAT", "日本", "\U000e0041", "%s%n"} {
		f.Add(s, 40)
	}
	f.Fuzz(func(t *testing.T, s string, width int) {
		for _, name := range documents() {
			doc := load(t, name)
			fill(reflect.ValueOf(doc).Elem(), s)
			for _, format := range Formats() {
				for _, o := range []Options{{}, {Width: width, ASCII: true}} {
					var out bytes.Buffer
					if err := format.Trace(&out, doc, o); err != nil {
						t.Fatal(err)
					}
					checkSafe(t, out.String(), o)
				}
			}
		}
	})
}

func TestWidthKept(t *testing.T) {
	for _, name := range documents() {
		for _, width := range []int{60, 80, 132} {
			var out bytes.Buffer
			if err := Tree(&out, load(t, name), Options{Width: width}); err != nil {
				t.Fatal(err)
			}
			for l := range strings.Lines(out.String()) {
				l = strings.TrimSuffix(l, "\n")
				words := strings.Fields(strings.Trim(l, "│├└─ "))
				if columns(l) > width && len(words) > 1 && name != "hostile" && columns(words[len(words)-1]) < width/2 {
					t.Errorf("%s at %d: %d columns: %s", name, width, columns(l), l)
				}
			}
		}
	}
}

// TestEveryHopShown holds wide to its promise that nothing is left out.
func TestEveryHopShown(t *testing.T) {
	doc := load(t, "web")
	var out bytes.Buffer
	if err := Wide(&out, doc, Options{}); err != nil {
		t.Fatal(err)
	}
	check := func(hops []report.Hop) {
		for _, h := range hops {
			if !strings.Contains(out.String(), h.Text) {
				t.Errorf("hop not shown: %s", h.Text)
			}
		}
	}
	for _, p := range doc.Paths {
		check(p.Hops)
		for _, b := range p.Backends {
			check(b.Hops)
		}
	}
}

// TestPendingShown: who reads a trace learns that kube-proxy may be at work on what differs.
func TestPendingShown(t *testing.T) {
	doc := load(t, "web")
	doc.Findings[0].Pending = "changed 1s before this was read"
	var out bytes.Buffer
	if err := Tree(&out, doc, Options{}); err != nil {
		t.Fatal(err)
	}
	if want := "pending: changed 1s before this was read"; strings.Count(out.String(), want) != 1 {
		t.Errorf("not shown once: %s", want)
	}
}

func TestFormatsSorted(t *testing.T) {
	all := Formats()
	for i := 1; i < len(all); i++ {
		if all[i-1].Name >= all[i].Name {
			t.Errorf("%s stands before %s", all[i-1].Name, all[i].Name)
		}
	}
	if _, ok := Lookup("tree"); !ok {
		t.Error("no tree")
	}
	if _, ok := Lookup("html"); ok {
		t.Error("html is not there yet")
	}
}

func TestReplaceAddress(t *testing.T) {
	for _, c := range [][2]string{
		{"10.0.0.1 is in none of the ranges", "the client is in none of the ranges"},
		{"it is 10.0.0.1.", "it is the client."},
		{"it is 10.0.0.1: refused", "it is the client: refused"},
		{"10.0.0.11 and 110.0.0.1 and 10.0.0.1.2", "10.0.0.11 and 110.0.0.1 and 10.0.0.1.2"},
		{"10.0.0.1/32 is a range", "10.0.0.1/32 is a range"},
		{"10.0.0.1:80 is a port of it", "10.0.0.1:80 is a port of it"},
		{"10.0.0.1, 10.0.0.1", "the client, the client"},
		{"nothing", "nothing"},
	} {
		if got := replaceAddress(c[0], "10.0.0.1", "the client"); got != c[1] {
			t.Errorf("replaceAddress(%q) = %q, want %q", c[0], got, c[1])
		}
	}
	if got := replaceAddress("text", "", "x"); got != "text" {
		t.Errorf("an empty address replaces: %q", got)
	}
}

func TestMeaning(t *testing.T) {
	hop := func(kind, text string) *report.Hop { return &report.Hop{Kind: kind, Text: text} }
	for _, c := range []struct {
		result           report.Result
		origin, protocol string
		by               *report.Hop
		want             string
	}{
		{report.ResultReject, "pod", "TCP", nil, "connection refused” at once"},
		{report.ResultReject, "pod", "UDP", hop("rule", "-j REJECT --reject-with icmp-port-unreachable"), "next read or write"},
		{report.ResultReject, "pod", "TCP", hop("rule", "-j REJECT --reject-with icmp-host-prohibited"), "no route to host"},
		{report.ResultReject, "pod", "TCP", hop("rule", "-j REJECT --reject-with icmp-net-unreachable"), "network is unreachable"},
		{report.ResultReject, "pod", "TCP", hop("rule", "-j REJECT --reject-with tcp-reset"), "connection refused"},
		{report.ResultDrop, "pod", "TCP", nil, "timeout"},
		{report.ResultNoRoute, "node", "TCP", nil, "network is unreachable"},
		{report.ResultNoRoute, "external", "TCP", hop("route", "net.ipv4.ip_forward is 0"), "timeout"},
		{report.ResultNoRoute, "external", "TCP", hop("route", "blackhole 10.0.0.0/8"), "timeout"},
		{report.ResultNoRoute, "external", "TCP", hop("route", "unreachable 10.0.0.0/8"), "no route to host"},
		{report.ResultNoRoute, "node", "TCP", hop("route", "prohibit 10.0.0.0/8"), "permission denied"},
		{report.ResultNoRoute, "node", "TCP", hop("rule", "blackhole"), "network is unreachable"},
		{"new-result", "node", "TCP", nil, "new-result"},
	} {
		p := &report.Path{Result: c.result, Origin: c.origin, Frontend: report.Frontend{Protocol: c.protocol}}
		if got := means(p, c.by); !strings.Contains(got, c.want) {
			t.Errorf("%s %+v: %q, want %q", c.result, c.by, got, c.want)
		}
	}
}
