//go:build linux

package oracle

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain/nft"
)

// nftCoverage is what a run of TestKernelNFT has met.
type nftCoverage struct {
	// tests are the tests that stood alone in a rule, by kind: how often they held and how often not. The walk's answers
	// are those of packets whose way through the rules agreed, both ways, with the kernel's.
	tests map[string]*tally
	// parts are all kinds of tests, comparisons and effects: how often a rule with one applied.
	parts map[string]*tally
	// types are the statements and expressions of what was parsed, by their types.
	types map[string]int
}

func newNFTCoverage() *nftCoverage {
	return &nftCoverage{tests: make(map[string]*tally), parts: make(map[string]*tally), types: make(map[string]int)}
}

// seen adds what the kernel told of one packet. certain is set where the walk's way was compared with it and agreed.
func (c *nftCoverage) seen(t *nftTrial, o *observation, certain bool) {
	for i, p := range o.path {
		r := t.at(p)
		if r == nil || p.hit {
			continue
		}
		hit := false
		if i+1 < len(o.path) {
			next := o.path[i+1]
			hit = next.hit && next.backend == p.backend && next.table == p.table && next.chain == p.chain && next.index == p.index
		}
		if r.only != "" {
			n := at(c.tests, r.only)
			switch {
			case hit:
				n.kernelYes++
			default:
				n.kernelNo++
			}
			if certain && r.tells {
				if hit {
					n.walkYes++
				} else {
					n.walkNo++
				}
			}
		}
		if hit {
			for _, k := range r.kinds {
				at(c.parts, k).kernelYes++
			}
		}
	}
}

// parsed adds what a ruleset is made of.
func (c *nftCoverage) parsed(rs *nft.Ruleset) {
	for _, t := range rs.Tables {
		for _, ch := range t.Chains {
			for _, r := range ch.Rules {
				for _, s := range r.Statements {
					c.made(reflect.ValueOf(s))
				}
			}
		}
	}
}

// made counts the types of a statement and of all that it holds.
func (c *nftCoverage) made(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			c.made(v.Elem())
		}
	case reflect.Struct:
		name := v.Type().Name()
		c.types[name]++
		switch x := v.Interface().(type) {
		case nft.Meta:
			c.types["Meta "+x.Key]++
		case nft.CT:
			c.types["CT "+x.Key]++
		case nft.Fib:
			c.types["Fib "+x.Result]++
		case nft.Verdict:
			c.types["Verdict "+string(x.Kind)]++
		case nft.NAT:
			c.types["NAT "+string(x.Kind)]++
		case nft.Match:
			c.types["Match "+x.Op]++
		}
		if name == "Set" { // of an anonymous set the entries are many, and hold verdicts at most
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				c.made(v.Field(i))
			}
		}
	case reflect.Slice:
		if k := v.Type().Elem().Kind(); k == reflect.Interface || k == reflect.Pointer {
			for i := range v.Len() {
				c.made(v.Index(i))
			}
		}
	}
}

// nftAside are the types of statements and expressions that the oracle leaves out, with the reason.
var nftAside = map[string]string{
	"FlowOffload": "this kernel has no flowtables; its parser is tested",
	"Other":       "stands for what no parser knows",
	"Queue":       "this kernel has no nfnetlink_queue; its parser is tested",
	"Unreadable":  "stands for what no parser can read",
	"XT":          "stands in tables of iptables, which the walk has from iptables-save",
}

// How often each kind of test must be met each way, and each effect be taken, in the sample that runs by default.
const (
	minMetNFT   = 8
	minTakenNFT = 1
)

// require fails the test for every kind that was not met often enough each way.
func (c *nftCoverage) require(t *testing.T, g *nftGenerator) {
	t.Helper()
	told := make(map[string]bool)
	for _, m := range g.tests {
		if told[m.name] {
			continue
		}
		told[m.name] = true
		n := at(c.tests, m.name)
		if n.kernelYes < minMetNFT && m.oneSided != neverHolds {
			t.Errorf("test %s held for the kernel only %d times", m.name, n.kernelYes)
		}
		if n.kernelNo < minMetNFT {
			t.Errorf("test %s failed for the kernel only %d times", m.name, n.kernelNo)
		}
		if m.open || m.oneSided != "" || strings.HasPrefix(m.name, "numgen") {
			continue
		}
		if n.walkYes < minMetNFT || n.walkNo < minMetNFT {
			t.Errorf("test %s was decided by the walk only %d times as true and %d times as false", m.name, n.walkYes, n.walkNo)
		}
	}
	for _, e := range g.effects {
		if n := at(c.parts, e.name).kernelYes; !told[e.name] && n < minTakenNFT {
			t.Errorf("effect %s was taken only %d times", e.name, n)
		}
		told[e.name] = true
	}
	for _, part := range []string{"==", "!=", "<", ">", "<=", ">=", "range or prefix", "!= range or prefix", "anonymous set", "named set", "!= set", "flags", "map", "interval set", "catch-all", "set update"} {
		if n := at(c.parts, part).kernelYes; n < minMet {
			t.Errorf("%s was met only %d times", part, n)
		}
	}
	for _, name := range nftTypes(t) {
		if nftAside[name] == "" && c.types[name] == 0 {
			t.Errorf("no ruleset held a %s", name)
		}
	}
}

// nftTypes are the types of statements and expressions that package nft has.
func nftTypes(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../explain/nft/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		file, err := parser.ParseFile(token.NewFileSet(), f, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is || fn.Recv == nil || fn.Name.Name != "expr" && fn.Name.Name != "statement" || fn.Body == nil || len(fn.Body.List) > 0 {
				continue
			}
			typ := fn.Recv.List[0].Type
			if star, is := typ.(*ast.StarExpr); is {
				typ = star.X
			}
			if id, is := typ.(*ast.Ident); is {
				out = append(out, id.Name)
			}
		}
	}
	if len(out) == 0 {
		t.Fatal("package nft has no statements and expressions")
	}
	return out
}

// table prints what was met.
func (c *nftCoverage) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-26s %10s %10s %10s %10s\n", "test alone", "kernel yes", "kernel no", "walk yes", "walk no")
	for _, name := range slices.Sorted(maps.Keys(c.tests)) {
		n := c.tests[name]
		fmt.Fprintf(&b, "%-26s %10d %10d %10d %10d\n", name, n.kernelYes, n.kernelNo, n.walkYes, n.walkNo)
	}
	fmt.Fprintf(&b, "%-36s %10s\n", "part of a rule that applied", "packets")
	for _, name := range slices.Sorted(maps.Keys(c.parts)) {
		fmt.Fprintf(&b, "%-36s %10d\n", name, c.parts[name].kernelYes)
	}
	fmt.Fprintf(&b, "parsed: %v\n", c.types)
	return b.String()
}
