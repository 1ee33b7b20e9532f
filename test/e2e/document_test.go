package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// tolerance for shares: iptables keeps probabilities as multiples of 2^-31, and cases state six digits.
const tolerance = 1e-6

// schemas are the published ones, by kind.
var schemas = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	out := make(map[string]*jsonschema.Schema)
	for _, kind := range []string{"Trace", "Report", "NodeStatus", "TraceList", "ReportList", "NodeStatusList", "Diff"} {
		name := strings.ToLower(kind) + ".schema.json"
		text, err := os.ReadFile("../../docs/schema/" + name)
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(name, doc); err != nil {
			return nil, err
		}
		if out[kind], err = c.Compile(name); err != nil {
			return nil, err
		}
	}
	return out, nil
})

// ofKind holds a document against the schema of a kind.
func ofKind(t *testing.T, kind, text string) {
	t.Helper()
	all, err := schemas()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("not one JSON document: %v\n%s", err, text)
	}
	if err := all[kind].Validate(doc); err != nil {
		t.Errorf("the document breaks its schema: %v", err)
	}
	noMachinePath(t, text)
}

// valid holds a trace against the schema and against what no schema can say.
func valid(t *testing.T, text string) *report.Trace {
	t.Helper()
	ofKind(t, "Trace", text)
	var tr report.Trace
	if err := json.Unmarshal([]byte(text), &tr); err != nil {
		t.Fatal(err)
	}
	sums(t, &tr)
	return &tr
}

// noMachinePath: the same evidence prints the same bytes wherever it lies.
func noMachinePath(t *testing.T, text string) {
	t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{wd, os.TempDir() + "/"} {
		if strings.Contains(text, p) {
			t.Errorf("the document holds a path of this machine: %s", p)
		}
	}
}

// sums checks the arithmetic of a trace: the shares of a cell without open conditions sum to 1, those of the
// backends of a path to the share of the path.
func sums(t *testing.T, tr *report.Trace) {
	t.Helper()
	for _, c := range cellsOf(tr) {
		if !c.uncertain() {
			sum := 0.0
			for _, p := range c.paths {
				sum += p.Probability
			}
			if math.Abs(sum-1) > tolerance {
				t.Errorf("%s: the paths sum to %v, want 1", c.name, sum)
			}
		}
		for _, p := range c.paths {
			if p.Probability < 0 || p.Probability > 1+tolerance {
				t.Errorf("%s: a path has the share %v", c.name, p.Probability)
			}
			sum, some := 0.0, false
			for _, b := range p.Backends {
				sum += b.Probability
				some = some || b.Probability > 0
			}
			if some && math.Abs(sum-p.Probability) > tolerance {
				t.Errorf("%s: the backends of a path sum to %v, and the path has %v", c.name, sum, p.Probability)
			}
		}
	}
}

// cell is one frontend asked by one client: its paths are the outcomes between which chance, or what nobody
// knows, decides.
type cell struct {
	name  string
	paths []report.Path
}

func (c cell) uncertain() bool {
	return slices.ContainsFunc(c.paths, func(p report.Path) bool { return len(p.Uncertain) > 0 })
}

// cellsOf groups the paths of a trace, in its order.
func cellsOf(tr *report.Trace) []cell {
	var out []cell
	for _, p := range tr.Paths {
		name := fmt.Sprintf("%s %s/%s from %s %s (%s)", p.Frontend.Kind,
			net.JoinHostPort(p.Frontend.Address, strconv.Itoa(p.Frontend.Port)), p.Frontend.Protocol, p.SourceClass, p.Source, p.Origin)
		i := slices.IndexFunc(out, func(c cell) bool { return c.name == name })
		if i < 0 {
			out = append(out, cell{name: name})
			i = len(out) - 1
		}
		out[i].paths = append(out[i].paths, p)
	}
	return out
}

// worlds splits paths by the conditions that they hold under. Without conditions there is one world.
func worlds(paths []report.Path) [][]report.Path {
	var names []string
	by := map[string][]report.Path{}
	for _, p := range paths {
		name := fmt.Sprint(p.Uncertain)
		if _, ok := by[name]; !ok {
			names = append(names, name)
		}
		by[name] = append(by[name], p)
	}
	var out [][]report.Path
	for _, name := range names {
		out = append(out, by[name])
	}
	return out
}

// shares adds up what each backend gets of the connections of the paths.
func shares(paths []report.Path) map[string]float64 {
	out := map[string]float64{}
	for _, p := range paths {
		for _, b := range p.Backends {
			if b.Probability > 0 {
				out[net.JoinHostPort(b.Address, strconv.Itoa(b.Port))] += b.Probability
			}
		}
	}
	return out
}

// sameShares tells whether two distributions agree.
func sameShares(got, want map[string]float64) bool {
	for k, w := range want {
		// A real server of weight 0 gets nothing, and is no backend of a path.
		if g, ok := got[k]; w > 0 && !ok || math.Abs(g-w) > tolerance {
			return false
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			return false
		}
	}
	return true
}

// load reads evidence as -f does.
func load(t *testing.T, node string, paths ...string) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.Load(paths, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	s.Node = node
	return s
}

// trace asks the library and checks the document that comes of it.
func trace(t *testing.T, s *snapshot.Snapshot, o explain.TraceOptions) *report.Trace {
	t.Helper()
	tr, err := explain.Trace(s, o)
	if err != nil {
		t.Fatal(err)
	}
	valid(t, compact(t, tr))
	return tr
}

// compact is a document as one line of JSON.
func compact(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// brief shows the paths of a trace in a few lines, for failures.
func brief(paths []report.Path) string {
	var b strings.Builder
	for _, p := range paths {
		fmt.Fprintf(&b, "  %s %s from %s %s %s: %s by %q at %s/%s share %.6f masquerade %s",
			p.Frontend.Kind, p.Frontend.Address, p.Origin, p.SourceClass, p.Source, p.Result, p.TranslatedBy, p.Table, p.Chain, p.Probability, word(p.Masquerade))
		for _, u := range p.Uncertain {
			fmt.Fprintf(&b, "\n    if %s (%s)", u.Condition, u.Because)
		}
		for _, n := range p.NotEvaluated {
			fmt.Fprintf(&b, "\n    not evaluated: %s", n)
		}
		for _, k := range p.Backends {
			fmt.Fprintf(&b, "\n    %s:%d %.6f %s %s masquerade %s", k.Address, k.Port, k.Probability, k.State, k.Result, word(k.Masquerade))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func word(b *bool) string {
	if b == nil {
		return "undecided"
	}
	return strconv.FormatBool(*b)
}
