package e2e

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// expected is a case's expected.json, as far as a trace answers it.
type expected struct {
	Node          string
	Traces        []expectedTrace
	Probabilities map[string]map[string]float64
	// Expect and Forbid are what an audit finds: see audit_test.go.
	Expect []expectedFinding
	Forbid []string
}

// expectedTrace is one packet with what becomes of it.
type expectedTrace struct {
	Src, Origin, IIF, Dst string
	Result                report.Result
	Backends              map[string]float64
	// Either holds the outcomes between which the files do not decide: both must be shown.
	Either       []map[string]float64
	Masquerade   *bool
	Table, Chain string
	// Note says for people what else holds; the tests of it are in casenotes_test.go.
	Note string
}

// options is the packet as a question.
func (e *expectedTrace) options() explain.TraceOptions {
	return explain.TraceOptions{To: e.Dst, FromAddr: e.Src, Origin: e.origin(), IncomingInterface: e.IIF}
}

func (e *expectedTrace) origin() string {
	if e.Origin == "host" {
		return "node"
	}
	return e.Origin
}

// arguments is the packet on the command line.
func (e *expectedTrace) arguments(dir, node string) []string {
	args := []string{"trace", "--to", e.Dst, "--from", e.Src, "--origin", e.Origin, "-o", "json", "-f", dir}
	if node != "" {
		args = append(args, "--node", node)
	}
	if e.IIF != "" {
		args = append(args, "--iif", e.IIF)
	}
	return args
}

const casesDir = "testdata/cases"

// cases reads every case, by name.
func cases(t *testing.T) ([]string, map[string]*expected) {
	t.Helper()
	dirs, err := os.ReadDir(casesDir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	out := map[string]*expected{}
	for _, d := range dirs {
		text, err := os.ReadFile(filepath.Join(casesDir, d.Name(), "expected.json"))
		if err != nil {
			t.Fatal(err)
		}
		e := new(expected)
		if err := json.Unmarshal(text, e); err != nil {
			t.Fatalf("%s: %v", d.Name(), err)
		}
		names = append(names, d.Name())
		out[d.Name()] = e
	}
	if len(names) < 30 {
		t.Fatalf("found %d cases: copies are missing", len(names))
	}
	return names, out
}

// further are the traces whose case stops at what the dataplane decides and says what follows in a note: the result that
// the packet meets.
var further = map[string]report.Result{
	// "the source stays 127.0.0.1, so the packet is a martian and never arrives"
	"50-ipvs-localhost-nodeport 127.0.0.1:30080/tcp": report.ResultMartian,
}

// TestCaseTraces asks for every packet that a case tells the fate of.
func TestCaseTraces(t *testing.T) {
	names, all := cases(t)
	for _, name := range names {
		e := all[name]
		for _, want := range e.Traces {
			t.Run(name+"/"+want.Origin+" "+strings.ReplaceAll(want.Dst, "/", " "), func(t *testing.T) {
				dir := filepath.Join(casesDir, name)
				tr := trace(t, load(t, e.Node, dir), want.options())
				if len(tr.Paths) == 0 {
					t.Fatal("no paths")
				}
				if other := further[name+" "+want.Dst]; other != "" {
					// The masquerading of a packet that does not leave is nobody's question.
					want.Result, want.Masquerade = other, nil
				}
				want.check(t, tr.Paths)
				if t.Failed() {
					t.Logf("paths:\n%s", brief(tr.Paths))
				}
			})
		}
	}
}

// check holds the paths of the one cell against the expectation.
func (e *expectedTrace) check(t *testing.T, paths []report.Path) {
	t.Helper()
	for _, p := range paths {
		if p.Result != e.Result {
			t.Errorf("result %s, want %s", p.Result, e.Result)
		}
		if e.Table != "" && p.Table != e.Table {
			t.Errorf("table %s, want %s", p.Table, e.Table)
		}
		if e.Chain != "" && p.Chain != e.Chain {
			t.Errorf("chain %s, want %s", p.Chain, e.Chain)
		}
		if e.Masquerade != nil {
			e.checkMasquerade(t, p)
		}
	}
	if e.Either != nil {
		e.checkEither(t, paths)
		return
	}
	if e.Backends == nil {
		return
	}
	// Whatever is open must not be open about this.
	for _, w := range worlds(paths) {
		if got := shares(w); !sameShares(got, e.Backends) {
			t.Errorf("backends %v, want %v (under %v)", got, e.Backends, w[0].Uncertain)
		}
	}
}

func (e *expectedTrace) checkMasquerade(t *testing.T, p report.Path) {
	t.Helper()
	if p.Masquerade == nil || *p.Masquerade != *e.Masquerade {
		t.Errorf("masquerade %s, want %v", word(p.Masquerade), *e.Masquerade)
	}
	for _, b := range p.Backends {
		if b.Probability > 0 && (b.Masquerade == nil || *b.Masquerade != *e.Masquerade) {
			t.Errorf("masquerade for %s is %s, want %v", b.Address, word(b.Masquerade), *e.Masquerade)
		}
	}
}

// checkEither: the files cannot decide, so each outcome is there, and each says that it holds only if.
func (e *expectedTrace) checkEither(t *testing.T, paths []report.Path) {
	t.Helper()
	seen := make([]bool, len(e.Either))
	for _, w := range worlds(paths) {
		got := shares(w)
		i := slices.IndexFunc(e.Either, func(alternative map[string]float64) bool { return sameShares(got, alternative) })
		if i < 0 {
			t.Errorf("backends %v, want one of %v", got, e.Either)
			continue
		}
		seen[i] = true
		for _, p := range w {
			if len(p.Uncertain) == 0 {
				t.Errorf("the outcome %v is shown as certain", got)
			}
			for _, u := range p.Uncertain {
				if u.Condition == "" || u.Because == "" {
					t.Errorf("the outcome %v does not say what it assumes, or why that is open: %+v", got, u)
				}
			}
		}
	}
	if slices.Contains(seen, false) {
		t.Errorf("not all of %v are shown", e.Either)
	}
}

// TestCaseProbabilities compares effective shares as a new flow from a pod on the node sees them.
func TestCaseProbabilities(t *testing.T) {
	names, all := cases(t)
	for _, name := range names {
		for key, want := range all[name].Probabilities {
			t.Run(name+"/"+strings.ReplaceAll(key, "/", " "), func(t *testing.T) {
				namespace, rest, _ := strings.Cut(key, "/")
				service, port, _ := strings.Cut(rest, ":")
				o := explain.TraceOptions{Namespace: namespace, Service: service, Via: []string{"clusterip"}, From: []string{"local-pod"}}
				if port != "" {
					o.Ports = []string{port}
				}
				tr := trace(t, load(t, all[name].Node, filepath.Join(casesDir, name)), o)
				if len(tr.Paths) == 0 {
					t.Fatal("no paths")
				}
				for _, c := range cellsOf(tr) {
					for _, w := range worlds(c.paths) {
						if got := shares(w); !sameShares(got, want) {
							t.Errorf("%s: shares %v, want %v (under %v)", c.name, got, want, w[0].Uncertain)
						}
					}
				}
				if t.Failed() {
					t.Logf("paths:\n%s", brief(tr.Paths))
				}
			})
		}
	}
}

// TestCaseProgram asks the program the same, and it gives the same document.
func TestCaseProgram(t *testing.T) {
	names, all := cases(t)
	for _, name := range names {
		dir := filepath.Join(casesDir, name)
		e := all[name]
		t.Run(name, func(t *testing.T) {
			for _, want := range e.Traces {
				r := run(t, want.arguments(dir, e.Node)...)
				if r.code != 0 || r.stderr != "" {
					t.Errorf("exit %d, standard error %q", r.code, r.stderr)
				}
				valid(t, r.stdout)
				library := compact(t, trace(t, load(t, e.Node, dir), want.options()))
				if diff := cmp.Diff(library, strings.TrimSpace(r.stdout)); diff != "" {
					t.Errorf("the program says something else than the library\n%s", diff)
				}
			}
			for key := range e.Probabilities {
				namespace, rest, _ := strings.Cut(key, "/")
				service, _, _ := strings.Cut(rest, ":")
				r := run(t, "trace", "svc/"+service, "-n", namespace, "-f", dir, "--node", e.Node, "-o", "json")
				if r.code != 0 || r.stderr != "" {
					t.Errorf("exit %d, standard error %q", r.code, r.stderr)
				}
				valid(t, r.stdout)
			}
		})
	}
}

// TestCaseServices traces every Service of every case, whole: nothing crashes, every document is valid, and
// what is asked twice is answered twice the same.
func TestCaseServices(t *testing.T) {
	names, all := cases(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			s := load(t, all[name].Node, filepath.Join(casesDir, name))
			services := servicesIn(t, s)
			if len(services) == 0 {
				t.Fatal("no Services in the objects")
			}
			for _, sv := range services {
				o := explain.TraceOptions{Namespace: sv.namespace, Service: sv.name}
				first := trace(t, s, o)
				if first.Summary.Text == "" {
					t.Errorf("%s/%s: no summary", sv.namespace, sv.name)
				}
				again := trace(t, load(t, all[name].Node, filepath.Join(casesDir, name)), o)
				if diff := cmp.Diff(compact(t, first), compact(t, again)); diff != "" {
					t.Errorf("%s/%s: a second look gives another document\n%s", sv.namespace, sv.name, diff)
				}
			}
		})
	}
}

// TestCaseWithoutNode asks without --node. Where the evidence says itself whose it is, or the answer does not
// depend on it, it is the same; where it is not, the document must not claim it for sure.
func TestCaseWithoutNode(t *testing.T) {
	names, all := cases(t)
	for _, name := range names {
		for _, want := range all[name].Traces {
			dir := filepath.Join(casesDir, name)
			with := trace(t, load(t, all[name].Node, dir), want.options())
			without := trace(t, load(t, "", dir), want.options())
			if cmp.Equal(with.Paths, without.Paths) {
				continue
			}
			t.Logf("%s: %s to %s differs without a node's name\nwith:\n%swithout:\n%s", name, want.Src, want.Dst, brief(with.Paths), brief(without.Paths))
			for _, p := range without.Paths {
				if p.Result != want.Result && len(p.Uncertain) == 0 {
					t.Errorf("%s: %s to %s is said to be %s for sure, and is %s", name, want.Src, want.Dst, p.Result, want.Result)
				}
			}
		}
	}
}

// service names one Service.
type service struct{ namespace, name string }

// host is the address part of "address:port".
func host(backend string) string {
	h, _, err := net.SplitHostPort(backend)
	if err != nil {
		return backend
	}
	return h
}
