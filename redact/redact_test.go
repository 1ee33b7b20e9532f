package redact

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/dataplane"
)

// TestDecisions: every format of the snapshot has one decision, with a way to rewrite it or a reason to leave it out.
func TestDecisions(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../collectors/snapshot/snapshot.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var formats []snapshot.Format
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := v.Type.(*ast.Ident); ok && id.Name == "Format" {
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			formats = append(formats, snapshot.Format(text))
		}
		return true
	})
	if len(formats) < 40 {
		t.Fatalf("found %d formats in the source: this test does not look where they are", len(formats))
	}
	for _, f := range formats {
		n := 0
		for _, d := range decisions {
			if d.format == f {
				n++
				if (d.rewrite == nil) == (d.why == "") {
					t.Errorf("%q: a decision is a way to rewrite or a reason, one of the two", f)
				}
			}
		}
		if n != 1 {
			t.Errorf("format %q has %d decisions: say in decisions.go how it is redacted, or why it is left out", f, n)
		}
	}
	if len(decisions) != len(formats) {
		t.Errorf("%d decisions for %d formats", len(decisions), len(formats))
	}
}

// TestNoDecision: what nobody decided about is left out.
func TestNoDecision(t *testing.T) {
	s := &snapshot.Snapshot{Evidence: []snapshot.Evidence{
		{File: "new.txt", Format: "something new", Status: snapshot.OK, Data: []byte("shop/web 10.1.2.3")},
		{File: "secret.bin", Format: snapshot.Unrecognised, Status: snapshot.Unsupported, Error: "not recognised", Data: []byte("shop/web")},
	}}
	out, err := Redact(s, testKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range out.Evidence {
		if len(e.Data) > 0 || e.Status.Answers() || !strings.Contains(e.Error+e.Note, "left out") {
			t.Errorf("%s: %q, status %s, %q: it was not left out", e.File, e.Data, e.Status, e.Error)
		}
	}
}

func TestShortKey(t *testing.T) {
	if _, err := Redact(&snapshot.Snapshot{}, []byte("secret")); err == nil || !strings.Contains(err.Error(), "16") {
		t.Errorf("a key of six bytes: %v", err)
	}
}

// TestKeys: one key gives one result, another another.
func TestKeys(t *testing.T) {
	s := load(t, "../cmd/demo/node-1")
	bundle := func(key string) []byte {
		out, err := Redact(s, []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := out.WriteBundle(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	a, b, c := bundle(string(testKey)), bundle(string(testKey)), bundle(string(testKey)+"!")
	if !bytes.Equal(a, b) {
		t.Error("the same key gives other bytes")
	}
	if bytes.Equal(a, c) {
		t.Error("another key gives the same bytes")
	}
}

// addresses4 and addresses6 are spread over all kinds of ranges.
var someAddresses = []string{
	"8.8.8.8", "1.1.1.1", "10.0.0.1", "10.244.1.7", "10.244.1.8", "10.244.2.8", "10.255.255.255", "100.64.3.4", "172.17.0.2", "172.31.9.9",
	"192.168.1.1", "192.168.0.1", "192.167.0.1", "203.0.113.9", "192.0.2.1", "198.51.100.77", "198.18.4.4", "52.1.2.3", "223.255.255.1",
	"fd00:10:244:1::7", "fd00:10:244:1::8", "fd00:10:244::7", "2a00:1450:4001:81b::200e", "2001:db8::1", "2001:db8:ffff::1",
	"64:ff9b::808:808", "::ffff:10.1.2.3", "fc00::99:1:1", "2002:a00:1:1::5",
}

// TestAddresses: new addresses share as many leading bits as the old ones, none stays, and private ones stay private.
func TestAddresses(t *testing.T) {
	r := newRenaming(testKey)
	moved := func(a netip.Addr) bool { // renamed by other rules
		return slices.ContainsFunc(documentation, func(p netip.Prefix) bool { return p.Contains(a) }) || mapped.Contains(a) || nat64.Contains(a) || sixToFour.Contains(a)
	}
	for _, x := range someAddresses {
		a := netip.MustParseAddr(x)
		na := r.address(a)
		if na == a {
			t.Errorf("%s stays", a)
		}
		if a.IsPrivate() != na.IsPrivate() && !moved(a) {
			t.Errorf("%s becomes %s: private %v, then %v", a, na, a.IsPrivate(), na.IsPrivate())
		}
		for _, p := range documentation {
			if p.Contains(na) {
				t.Errorf("%s becomes %s, which svcnet takes for a client of its own", a, na)
			}
		}
		for _, y := range someAddresses {
			b := netip.MustParseAddr(y)
			if a.BitLen() != b.BitLen() || moved(a) || moved(b) {
				continue
			}
			if was, is := sharedBits(a.AsSlice(), b.AsSlice()), sharedBits(na.AsSlice(), r.address(b).AsSlice()); was != is {
				t.Errorf("%s and %s share %d bits, %s and %s share %d", a, b, was, na, r.address(b), is)
			}
		}
	}
	for _, x := range []string{"0.0.0.0", "127.0.0.1", "127.0.0.53", "169.254.20.10", "224.0.0.1", "255.255.255.0", "255.255.255.255", "::", "::1", "ff02::1", "fe80::1"} {
		if a := netip.MustParseAddr(x); r.address(a) != a {
			t.Errorf("%s becomes %s", a, r.address(a))
		}
	}
}

// TestPrefixes: an address in a range is in the new range, and one outside is not.
func TestPrefixes(t *testing.T) {
	r := newRenaming(testKey)
	for _, x := range someAddresses[:13] {
		a := netip.MustParseAddr(x)
		for _, y := range someAddresses[:13] {
			b := netip.MustParseAddr(y)
			for bits := range 33 {
				p, err := a.Prefix(bits)
				if err != nil {
					t.Fatal(err)
				}
				if p.Contains(b) != r.prefix(p).Contains(r.address(b)) {
					t.Errorf("%s contains %s: %v; %s contains %s: %v", p, b, p.Contains(b), r.prefix(p), r.address(b), !p.Contains(b))
				}
			}
		}
	}
}

// TestText holds what becomes of single lines. N stands for a name, A for an address, in what is expected.
func TestText(t *testing.T) {
	r := newRenaming(testKey)
	web, shop := r.text("web", name), r.text("shop", name)
	if web == "web" || shop == web {
		t.Fatalf("names become %q and %q", shop, web)
	}
	a := r.text("10.1.2.3", name)
	for _, tt := range []struct{ what, in, want string }{
		{"save", "-A KUBE-SERVICES -d 10.1.2.3/32 -p tcp -m comment --comment \"shop/web:http cluster IP\" -m tcp --dport 80 -j " + dataplane.SVCName("shop/web:http", "tcp"),
			"-A KUBE-SERVICES -d " + a + "/32 -p tcp -m comment --comment \"" + shop + "/" + web + ":http cluster IP\" -m tcp --dport 80 -j " + dataplane.SVCName(shop+"/"+web+":http", "tcp")},
		{"list", "KUBE-SEP-AAAAAAAAAAAAAAAA  tcp  --  anywhere  10.1.2.3  /* shop/web:http */ tcp dpt:http", ""},
		{"comment with a quote", `-A X -m comment --comment "say \"web\" to shop" -j ACCEPT`, ""},
	} {
		r.rules(tt.in)
		got := r.rules(tt.in)
		if tt.want != "" && got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.what, got, tt.want)
		}
		for _, n := range []string{"web", "shop", "10.1.2.3"} {
			if strings.Contains(got, n) {
				t.Errorf("%s: %s is left in %s", tt.what, n, got)
			}
		}
	}
	for _, kept := range []string{
		"*nat", "COMMIT", ":KUBE-SERVICES - [0:0]", "# Completed on Mon Jan  5 09:40:12 2026", "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
		"-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN", "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
		"-A KUBE-SVC-X -m statistic --mode random --probability 0.33333333349", "-A FORWARD -s 10.0.0.0/8 -i eth0 -o cni0 -j ACCEPT",
	} {
		if got := r.rules(kept); got != kept && !strings.Contains(kept, "KUBE-SVC-X") {
			t.Errorf("%q becomes %q", kept, got)
		}
	}
}

// TestWordsOfOthers: what no format knows is renamed, whatever it is written in.
func TestWordsOfOthers(t *testing.T) {
	r := newRenaming(testKey)
	for _, w := range []string{"acme-corp", "Zürich", "naïve", "кластер", "x_payroll_y", "ip-10-0-1-2", "10_0_1_2", "010.001.002.003", "web01", "ACME", "a\xffacme"} {
		for _, m := range []mode{grammar, prose, name} {
			got := r.text(w, m)
			for _, part := range []string{"acme", "ACME", "rich", "na", "кла", "payroll", "10-0-1", "10_0", "001.002", "web01"} {
				if strings.Contains(w, part) && strings.Contains(got, part) {
					t.Errorf("%q becomes %q in mode %d: %q is left", w, got, m, part)
				}
			}
		}
	}
}

// FuzzText rewrites text that holds a name and addresses among anything, and looks for them in every mode.
func FuzzText(f *testing.F) {
	f.Add("-A KUBE-SVC-", " --comment \"", "\" -d ")
	f.Add("{\"name\": \"", "\", \"ip\": \"", "\"}")
	f.Add("name: ", "\naddress: '", "'\n")
	f.Add("\\\"", "é", "_")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		const secret, address = "payroll-zzq", "10.93.177.41"
		text := a + " " + secret + " " + b + " " + address + " " + c
		r := newRenaming(testKey)
		r.text(secret, name)
		for what, got := range map[string]string{
			"grammar": r.text(text, grammar), "prose": r.prose(text), "names": r.text(text, name), "rules": r.rules(text), "nft": r.nftText(text),
			"yaml": r.yaml(text), "json": r.json(text, r.objectStrings()), "flags": r.flags(text), "log": r.log(text),
		} {
			// In what is given itself a secret may be cut in two by an escape: it is looked for where it was put whole.
			if strings.Contains(got, " "+secret+" ") || strings.Contains(got, " "+address+" ") {
				t.Errorf("%s: %q becomes %q", what, text, got)
			}
			if n := strings.Count(text, "\n"); what != "json" && strings.Count(got, "\n") != n {
				t.Errorf("%s: %q has %d lines, %q has others", what, text, n, got)
			}
		}
	})
}
