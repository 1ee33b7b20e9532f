package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// answer is what one run of svcnet gave.
type answer struct {
	out  string
	code int
}

// TestSame asks one question live, of a bundle, of the bundle unpacked, of its files named one by one, and of the
// plain files without their manifest.
func TestSame(t *testing.T) {
	s := set(t, labtest.Bring(t, lab.Options{Name: fmt.Sprintf("s%d", os.Getpid()), NoProxy: true}))
	dir := t.TempDir()
	bundle := filepath.Join(dir, "n1.tar.gz")
	ask := func(args ...string) answer {
		t.Helper()
		out, said, code := s.run(t, s.n1, args...)
		if code == 1 || code == 2 {
			t.Fatalf("svcnet %s: exit %d: %s", strings.Join(args, " "), code, said)
		}
		if args[0] == "status" {
			out = moment.ReplaceAllString(out, "WHEN") // it says when the evidence was taken, to the second
		}
		return answer{out, code}
	}
	questions := [][]string{
		{"trace", "svc/many", "-n", "store"},
		{"trace", "svc/node-port-local", "-n", "store"},
		{"trace", "svc/balancer-ranges", "-n", "store"},
		{"trace", "svc/headless", "-n", "store"},
		{"trace", "svc/many", "-n", "store", "--from", "pod/client-1"},
		{"trace", "--to", "10.244.1.20:8080/TCP", "--from", "10.244.3.20"},
		{"audit"},
		{"audit", "svc/many", "-n", "store"},
		{"status"},
	}
	// One question live, before and after the bundle was taken: where both agree, the bundle is of that moment.
	for _, q := range questions {
		for _, format := range []string{"json", "tree"} {
			q := append(slices.Clone(q), "-o", format)
			t.Run(strings.Join(q, " "), func(t *testing.T) {
				pods := []string{"--pod", "store/client-1"}
				if q[0] == "status" {
					pods = nil // it is about the node alone
				}
				live, collect := append(slices.Clone(q), pods...), append([]string{"collect", "-o", bundle}, pods...)
				var before answer
				for try := 0; ; try++ {
					before = ask(live...)
					ask(collect...)
					if ask(live...) == before {
						break
					}
					if try == 5 {
						t.Fatal("the node does not keep still")
					}
				}
				unpacked := filepath.Join(t.TempDir(), "n1")
				if err := os.MkdirAll(unpacked, 0o755); err != nil {
					t.Fatal(err)
				}
				if out, err := exec.Command("tar", "xzf", bundle, "-C", unpacked).CombinedOutput(); err != nil {
					t.Fatalf("tar: %v: %s", err, out)
				}
				var byName, evidence []string
				for _, f := range glob(t, filepath.Join(unpacked, "*")) {
					byName = append(byName, "-f", f)
				}
				for _, c := range []struct {
					name string
					args []string
				}{
					{"bundle", []string{"-f", bundle}},
					{"unpacked bundle", []string{"-f", unpacked}},
					{"its files by name", byName},
				} {
					if diff := cmp.Diff(before, ask(append(slices.Clone(q), c.args...)...), cmp.AllowUnexported(answer{})); diff != "" {
						t.Errorf("live and %s differ:\n%s", c.name, diff)
					}
				}
				evidence = []string{"-f", filepath.Join(unpacked, "evidence"), "--node", "n1"}
				loose := ask(append(slices.Clone(q), evidence...)...)
				if q[0] != "trace" {
					// Without the manifest nothing says when it was taken, nor that an empty connection table is empty and
					// not unread: what was found must be the same.
					if format == "json" {
						if diff := cmp.Diff(claims(t, before.out), claims(t, loose.out)); diff != "" {
							t.Errorf("live and loose files differ:\n%s", diff)
						}
					}
					return
				}
				if format == "tree" {
					if diff := cmp.Diff(before, loose, cmp.AllowUnexported(answer{})); diff != "" {
						t.Errorf("live and loose files differ:\n%s", diff)
					}
					return
				}
				// A file cannot say that something is absent: apart from those sources all is the same.
				if diff := cmp.Diff(withoutNothing(t, before.out), withoutNothing(t, loose.out)); diff != "" {
					t.Errorf("live and loose files differ:\n%s", diff)
				}
			})
		}
	}
	// What the bundle holds is what its files are recognised as.
	snap, err := snapshot.Load([]string{bundle}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range snap.Evidence {
		if len(e.Data) == 0 {
			continue
		}
		format, family, backend, _ := snapshot.Recognise(e.File, e.Data)
		if format != e.Format || family != e.Family || backend != e.Backend {
			t.Errorf("%s is recognised as %q, IPv%d, backend %q; collected as %q, IPv%d, backend %q", e.File, format, family, backend, e.Format, e.Family, e.Backend)
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %d files", pattern, err, len(files))
	}
	return files
}

// moment is a time as documents print it.
var moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// claims are what a document says of the node, without what it says of its evidence.
func claims(t *testing.T, text string) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	out := make(map[string]any)
	for _, field := range []string{"kind", "node", "proxy", "services", "findings", "traits"} {
		if v, ok := doc[field]; ok {
			out[field] = v
		}
	}
	return out
}

// withoutNothing is a document without the sources that hold nothing.
func withoutNothing(t *testing.T, doc string) string {
	t.Helper()
	var d report.Trace
	if err := json.Unmarshal([]byte(doc), &d); err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
	d.Sources = slices.DeleteFunc(d.Sources, func(s report.Source) bool { return s.Status == "absent" || s.Status == "empty" })
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", " ")
	if err := e.Encode(d); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
