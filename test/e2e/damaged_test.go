package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/report"
)

// damage is a file that somebody might give to the program, with what the program must make of it.
type damage struct {
	name string
	// file is the name to give it; empty: iptables-save.txt.
	file string
	data []byte
	// codes are the exit codes that are right.
	codes []int
	// status is that of the file's source in the document; empty: not asked.
	status snapshot.Status
	// says stands in the one line on standard error, or in what the document leaves open.
	says string
}

// withObjects tells the program what store/web is, whatever the rules look like.
var withObjects = []string{"-f", filepath.Join(nodeDir, "objects.yaml"), "-f", filepath.Join(nodeDir, "ip-addr.txt")}

func TestDamagedRules(t *testing.T) {
	for _, d := range damagedRules(t) {
		t.Run(d.name, func(t *testing.T) {
			file := d.file
			if file == "" {
				file = "iptables-save.txt"
			}
			path := filepath.Join(t.TempDir(), file)
			if err := os.WriteFile(path, d.data, 0o644); err != nil {
				t.Fatal(err)
			}
			for _, with := range [][]string{nil, withObjects} {
				args := append([]string{"trace", "svc/web", "-n", "store", "-o", "json", "-f", path}, with...)
				d.check(t, run(t, args...), with != nil)
			}
		})
	}
}

func (d *damage) check(t *testing.T, r ran, objects bool) {
	t.Helper()
	if r.code == 1 && !objects {
		// Without objects there may be nothing left that knows the Service.
		r.oneLine(t)
		return
	}
	if !slices.Contains(d.codes, r.code) {
		t.Errorf("exit %d, want one of %v (with objects: %v)\n%s", r.code, d.codes, objects, r.stderr)
	}
	if r.code == 1 {
		if line := r.oneLine(t); !strings.Contains(line, d.says) {
			t.Errorf("the line does not say %q: %s", d.says, line)
		}
		return
	}
	if r.stderr != "" {
		t.Errorf("a document, and also standard error: %s", r.stderr)
	}
	tr := valid(t, r.stdout)
	i := slices.IndexFunc(tr.Sources, func(s report.Source) bool { return strings.HasSuffix(s.File, d.fileName()) })
	switch {
	case i < 0:
		t.Errorf("%s is not among the sources", d.fileName())
	case d.status != "" && tr.Sources[i].Status != string(d.status):
		t.Errorf("status %s (%s), want %s", tr.Sources[i].Status, tr.Sources[i].Error, d.status)
	case d.status != "" && !d.status.Answers() && (tr.Sources[i].Error == "" || strings.Contains(tr.Sources[i].Error, "\n")):
		t.Errorf("the source says %q, want one line", tr.Sources[i].Error)
	}
	nothingInvented(t, tr)
	if d.says != "" && !strings.Contains(openWords(tr, tr.Paths), d.says) {
		t.Errorf("nothing that is left open says %q:\n%s", d.says, openWords(tr, tr.Paths))
	}
}

// nothingInvented: rules that were not read, or not to the end, are not rules that are not there.
func nothingInvented(t *testing.T, tr *report.Trace) {
	t.Helper()
	read := slices.ContainsFunc(tr.Sources, func(s report.Source) bool {
		return strings.HasPrefix(s.Name, "iptables") && snapshot.Status(s.Status).Answers()
	})
	if read {
		return
	}
	for _, p := range tr.Paths {
		if p.Result == report.ResultNoMatch && len(p.Uncertain) == 0 {
			t.Errorf("rules that were not read are said not to match:\n%s", brief([]report.Path{p}))
			return
		}
		if missing := withState(p, "missing"); p.Result == report.ResultUnknown && len(missing) > 0 {
			t.Errorf("backends are said to be missing from rules that were not read:\n%s", brief([]report.Path{p}))
			return
		}
	}
	// What was read before the cut may show by itself that an endpoint gets nothing.
	cut := slices.ContainsFunc(tr.Sources, func(s report.Source) bool {
		return strings.HasPrefix(s.Name, "iptables") && s.Status == string(snapshot.Truncated)
	})
	for _, f := range tr.Findings {
		if strings.HasPrefix(f.ID, "missing-") && !cut {
			t.Errorf("finding %s rests on rules that were not read", f.ID)
		}
	}
}

func (d *damage) fileName() string {
	if d.file == "" {
		return "iptables-save.txt"
	}
	return d.file
}

// damagedRules spoils the rules of the recorded node in all the ways in which captures get spoiled.
func damagedRules(t *testing.T) []damage {
	t.Helper()
	whole, err := os.ReadFile(filepath.Join(nodeDir, "iptables-save.txt"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(whole)
	nat := strings.Index(text, "*nat")
	without := func(part string) []byte {
		out := slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(l string) bool { return strings.Contains(l, part) })
		if joined := strings.Join(out, ""); joined != text {
			return []byte(joined)
		}
		t.Fatalf("no line holds %q", part)
		return nil
	}
	replaced := func(from, to string) []byte {
		if !strings.Contains(text, from) {
			t.Fatalf("the rules do not hold %q", from)
		}
		return []byte(strings.ReplaceAll(text, from, to))
	}
	inNat := func(lines string) []byte {
		return []byte(text[:nat] + strings.Replace(text[nat:], "COMMIT", lines+"COMMIT", 1))
	}
	const toWeb = "-A KUBE-SVC-VHDYTXVFNNUWGBPK -m comment --comment \"store/web:http -> 10.244.1.11:8080\""
	long := strings.Repeat("x", 1<<20)

	return []damage{
		{name: "cut in the middle of a line of nat", data: whole[:nat+3000], codes: []int{4}, status: snapshot.Truncated},
		{name: "cut before the chain of the Service", data: whole[:strings.Index(text, toWeb)], codes: []int{4}, status: snapshot.Truncated},
		{name: "cut after one rule of the Service", data: whole[:strings.Index(text, toWeb)+len(toWeb)+100], codes: []int{4}, status: snapshot.Truncated},
		{name: "no COMMIT at the end", data: []byte(text[:nat] + strings.Replace(text[nat:], "COMMIT\n", "", 1)), codes: []int{4}, status: snapshot.Truncated},
		{name: "no COMMIT anywhere", data: without("COMMIT"), codes: []int{0, 4}},
		{name: "only the filter table", data: whole[:nat], codes: []int{0, 4}},
		{name: "empty", data: nil, codes: []int{0, 1, 4}, status: snapshot.Empty},
		{name: "blank lines", data: []byte("\n\n \n"), codes: []int{0, 1, 4}},
		{name: "the chain of the Service is not there", data: without("KUBE-SVC-VHDYTXVFNNUWGBPK -"), codes: []int{0, 4}},
		{name: "a jump to a chain that is not there", data: without(":KUBE-SVC-VHDYTXVFNNUWGBPK"), codes: []int{0, 4}},
		{name: "a chain of an endpoint is not there", data: without("KUBE-SEP-NVL624Z7SN2ZY5QK -"), codes: []int{0, 4}},
		{name: "a chain that jumps to itself", data: inNat("-A KUBE-SVC-VHDYTXVFNNUWGBPK -j KUBE-SVC-VHDYTXVFNNUWGBPK\n"), codes: []int{0, 4}},
		{name: "two chains that jump to each other", data: replaced(":KUBE-MARK-MASQ - [0:0]", ":KUBE-MARK-MASQ - [0:0]\n:A - [0:0]\n:B - [0:0]\n-A KUBE-MARK-MASQ -j A\n-A A -j B\n-A B -j A"), codes: []int{0, 4}},
		{name: "PREROUTING that goes to itself", data: inNat("-A PREROUTING -g PREROUTING\n"), codes: []int{0, 4}},
		{name: "a rule that is cut off", data: inNat("-A KUBE-SERVICES -d 10.96.20.10/32 -p\n"), codes: []int{0, 4}},
		{name: "a target without a name", data: inNat("-A KUBE-SERVICES -j\n"), codes: []int{0, 4}},
		{name: "an unknown match", data: replaced("-m statistic --mode random", "-m frobnicate --mode random"), codes: []int{0, 4}, says: "frobnicate"},
		{name: "an unknown target", data: replaced("-j KUBE-SEP-NVL624Z7SN2ZY5QK", "-j FROBNICATE --much"), codes: []int{0, 4}, says: "FROBNICATE"},
		{name: "an impossible probability", data: replaced("--probability 0.33333333349", "--probability 7.5"), codes: []int{0, 4}},
		{name: "a probability that is no number", data: replaced("--probability 0.33333333349", "--probability NaN"), codes: []int{0, 4}},
		{name: "an impossible address", data: replaced("-d 10.96.20.10/32", "-d 10.96.20.999/32"), codes: []int{0, 4}},
		{name: "an impossible prefix", data: replaced("-d 10.96.20.10/32", "-d 10.96.20.10/64"), codes: []int{0, 4}},
		{name: "an impossible port", data: replaced("--dport 80 ", "--dport 99999999999999999999 "), codes: []int{0, 4}},
		{name: "a quote that never ends", data: replaced(`"store/web:http cluster IP"`, `"store/web:http cluster IP`), codes: []int{0, 4}},
		{name: "a comment of 1 MB", data: replaced("store/web:http cluster IP", long), codes: []int{0, 4}},
		{name: "a line of 1 MB that is no rule", data: inNat(long + "\n"), codes: []int{0, 4}},
		{name: "a line of 1 MB of quotes", data: inNat("-A KUBE-SERVICES " + strings.Repeat(`"`, 1<<20) + "\n"), codes: []int{0, 4}},
		{name: "a line of 1 MB of backslashes", data: inNat("-A KUBE-SERVICES " + strings.Repeat(`\`, 1<<20) + "\n"), codes: []int{0, 4}},
		{name: "a line of 1 MB of options", data: inNat("-A KUBE-SERVICES" + strings.Repeat(" -m tcp", 150_000) + "\n"), codes: []int{0, 4}},
		{name: "a line of 1 MB of negations", data: inNat("-A KUBE-SERVICES" + strings.Repeat(" !", 1<<19) + "\n"), codes: []int{0, 4}},
		{name: "100,000 chains deep", data: inNat(ladderOfChains(100_000)), codes: []int{0, 4}},
		{name: "every chain calls the next twice", data: inNat(doublingChains(60)), codes: []int{0, 4}},
		{name: "2^60 branches", data: inNat(branchingRules(60)), codes: []int{0, 4}},
		{name: "2^32 marks", data: inNat(markingRules(32)), codes: []int{0, 4}},
		{name: "20,000 rules that may match", data: inNat(strings.Repeat("-A KUBE-SERVICES -m string --string x --algo bm --to 65535 -j LOG\n", 20_000)), codes: []int{0, 4}},
		{name: "CRLF", data: bytes.ReplaceAll(whole, []byte("\n"), []byte("\r\n")), codes: []int{0}, status: snapshot.OK},
		{name: "byte order mark", data: append([]byte("\xef\xbb\xbf"), whole...), codes: []int{0}, status: snapshot.OK},
		{name: "UTF-16, little endian", data: inUTF16(text, binary.LittleEndian), codes: []int{0}, status: snapshot.OK},
		{name: "UTF-16, big endian", data: inUTF16(text, binary.BigEndian), codes: []int{0}, status: snapshot.OK},
		{name: "UTF-16 cut in the middle of a character", data: inUTF16(text, binary.LittleEndian)[:9999], codes: []int{4}, status: snapshot.Truncated},
		{name: "Latin-1 in a comment", data: replaced("store/web:http cluster IP", "caf\xe9"), codes: []int{0, 4}},
		{name: "terminal escapes in a comment", data: replaced("store/web:http cluster IP", "\x1b]0;owned\x07\x1b[2J"), codes: []int{0, 4}},
		{name: "NUL bytes in a comment", data: replaced("store/web:http cluster IP", "a\x00b"), codes: []int{0, 4}},
		{name: "prefixed by a log", data: []byte("+ iptables-save\n# Warning: iptables-legacy tables present, use iptables-legacy-save to see them\n" + text), codes: []int{0, 4}},
		{name: "an error in place of the rules", data: []byte("iptables-save v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)\n"), codes: []int{1, 4}, says: "Could not fetch"},
		{name: "random bytes", data: noise(1 << 20), codes: []int{1, 4}},
		{name: "random bytes after the first table", data: append(slices.Clone(whole[:nat]), noise(1<<16)...), codes: []int{0, 4}},
		{name: "the program itself", file: "core", data: append([]byte("\x7fELF\x02\x01\x01\x00"), noise(1<<16)...), codes: []int{1, 4}},
		{name: "gzip that is cut", file: "rules.gz", data: zipped(t, whole)[:500], codes: []int{1, 4}},
		{name: "gzip of noise", file: "rules.gz", data: zipped(t, noise(1<<16)), codes: []int{1, 4}},
		{name: "tar that is cut", file: "rules.tar", data: append([]byte("rules/iptables-save.txt"), make([]byte, 700)...), codes: []int{1, 4}},
		{name: "nested JSON", file: "odd.json", data: bytes.Repeat([]byte("["), 1<<20), codes: []int{1, 4}},
		{name: "JSON that ends early", file: "odd.json", data: []byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"store"`), codes: []int{1, 4}},
		{name: "YAML that breeds", file: "odd.yaml", data: []byte(breedingYAML), codes: []int{1, 4}},
		{name: "objects with the wrong types", file: "odd.yaml", data: []byte("apiVersion: v1\nkind: Service\nmetadata:\n  name: [web]\n  namespace: 7\nspec: none\n"), codes: []int{1, 4}},
		{name: "a Service full of nonsense", file: "odd.yaml", data: []byte("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: store}\nspec:\n  clusterIP: 999.1.1.1\n  clusterIPs: [x, \"\"]\n  externalIPs: [\"::g\"]\n  ports: [{port: -1, nodePort: 99999999, protocol: FTP}]\n"), codes: []int{0, 1, 4}},
	}
}

// ladderOfChains makes n chains that call one another in a row.
func ladderOfChains(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ":L%d - [0:0]\n", i)
	}
	b.WriteString("-I PREROUTING -j L0\n-A PREROUTING -j L0\n")
	for i := range n - 1 {
		fmt.Fprintf(&b, "-A L%d -j L%d\n", i, i+1)
	}
	return b.String()
}

// doublingChains makes n chains each of which calls the next twice: 2^n rules for one packet.
func doublingChains(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ":D%d - [0:0]\n", i)
	}
	b.WriteString("-A PREROUTING -j D0\n-A OUTPUT -j D0\n")
	for i := range n - 1 {
		fmt.Fprintf(&b, "-A D%d -j D%d\n-A D%d -j D%d\n", i, i+1, i, i+1)
	}
	return b.String()
}

// branchingRules makes n rules each of which halves the connections without ending their way.
func branchingRules(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ":H%d - [0:0]\n-A POSTROUTING -m statistic --mode random --probability 0.50000000000 -j H%d\n", i, i)
	}
	return b.String()
}

// markingRules makes n rules each of which sets one bit of the mark for half of the connections: nothing can be
// folded.
func markingRules(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "-A POSTROUTING -m statistic --mode random --probability 0.50000000000 -j MARK --set-xmark %#x/%#x\n", 1<<i, 1<<i)
	}
	return b.String()
}

// breedingYAML is a document whose aliases stand for 9^9 strings.
const breedingYAML = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: store}
a: &a [x, x, x, x, x, x, x, x, x]
b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]
c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]
d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c]
e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d]
f: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e]
g: &g [*f, *f, *f, *f, *f, *f, *f, *f, *f]
h: &h [*g, *g, *g, *g, *g, *g, *g, *g, *g]
i: &i [*h, *h, *h, *h, *h, *h, *h, *h, *h]
`

func inUTF16(text string, order binary.AppendByteOrder) []byte {
	out := order.AppendUint16(nil, 0xfeff)
	for _, u := range utf16.Encode([]rune(text)) {
		out = order.AppendUint16(out, u)
	}
	return out
}

// noise gives the same random bytes every time.
func noise(n int) []byte {
	r := rand.NewChaCha8([32]byte{1})
	out := make([]byte, n)
	_, _ = r.Read(out)
	return out
}

func zipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestMissingPath: a path that is not there is one line, exit 1.
func TestMissingPath(t *testing.T) {
	r := run(t, "trace", "svc/web", "-f", filepath.Join(t.TempDir(), "nothing-here"))
	if r.code != 1 || r.stdout != "" {
		t.Errorf("exit %d, output %q", r.code, r.stdout)
	}
	if line := r.oneLine(t); !strings.Contains(line, "nothing-here") {
		t.Errorf("the line does not name the file: %s", line)
	}
}

// TestEmptyFolder: a folder without evidence is one line, exit 1.
func TestEmptyFolder(t *testing.T) {
	r := run(t, "trace", "svc/web", "-f", t.TempDir())
	if r.code != 1 {
		t.Errorf("exit %d", r.code)
	}
	r.oneLine(t)
}

// TestUnknownFiles: files that are none of ours are named and passed over.
func TestUnknownFiles(t *testing.T) {
	odd := filepath.Join(t.TempDir(), "holiday.jpg")
	if err := os.WriteFile(odd, append([]byte("\xff\xd8\xff\xe0"), noise(5000)...), 0o644); err != nil {
		t.Fatal(err)
	}
	r := run(t, "trace", "svc/web", "-n", "store", "-o", "json", "-f", nodeDir, "-f", odd)
	if r.code != 0 {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	tr := valid(t, r.stdout)
	i := slices.IndexFunc(tr.Sources, func(s report.Source) bool { return strings.HasSuffix(s.File, "holiday.jpg") })
	if i < 0 || tr.Sources[i].Status != string(snapshot.Unsupported) || tr.Sources[i].Error == "" {
		t.Errorf("holiday.jpg is not named as unsupported: %+v", tr.Sources)
	}
}
