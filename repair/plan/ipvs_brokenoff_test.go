package plan

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/ipset"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// bare is as much of a node as the objects of edits need, which takes no audit to read.
func (k *kernelText) bare(t *testing.T) *check.Node {
	t.Helper()
	n := &check.Node{IPVS: &ipvs.Table{HasServices: true}, Host: &host.Host{}}
	if text := k.files[recordedServers]; text != "" {
		if _, err := ipvs.Parse(n.IPVS, text, "save"); err != nil {
			t.Fatal(err)
		}
	}
	sets, _, err := ipset.Parse(k.files[recordedSets], "sets")
	if err != nil {
		t.Fatal(err)
	}
	n.Sets = netfilter.SetsOf(sets)
	if _, err := host.ParseAddrs(n.Host, k.files[recordedAddrs], "addr"); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBrokenOff does the steps about virtual servers, sets and addresses of some plans line by line and stops behind each
// line, as a svcnet that is killed does: every object is then as it was before or as the step leaves it, so that a roll
// back knows what it sees, and what takes the whole step back brings the node to where it was.
func TestBrokenOff(t *testing.T) {
	kinds := []string{"virtual servers cleared", "real server added", "method changed", "persistence changed", "virtual server for kube-proxy's mark added", "device removed", "set emptied", "sets destroyed", "address added"}
	lines := 0
	try := func(name string, k *kernelText) {
		r := k.read(t)
		p := Make(r, Options{})
		k.lenient = true // as repair/apply does it
		for _, s := range p.Steps {
			if s.Kind == kindIPVS || s.Kind == kindAddress || s.Kind == kindIPSet {
				lines += brokenOff(t, name, k, &s)
			}
			if s.Kind != KindAdvice {
				if err := k.do(s.Do); err != nil {
					t.Fatalf("%s: %s: %v", name, s.Title, err)
				}
			}
		}
	}
	for _, kind := range kinds {
		i := slices.IndexFunc(recordedMutants, func(m recordedMutant) bool { return m.kind == kind })
		if i < 0 {
			t.Fatalf("no kind %q", kind)
		}
		k := recordedNode(t, "kube-proxy-1.36-ipvs")
		what, err := recordedMutants[i].do(k, rand.New(rand.NewPCG(3, uint64(i))))
		if err != nil {
			t.Fatal(err)
		}
		try(kind+" "+what, k)
	}
	try("what is left", leftAfterIPVS(t))
	t.Logf("%d lines", lines)
	if lines < 1000 {
		t.Errorf("only %d lines", lines)
	}
}

// brokenOff does a step up to each of its lines.
func brokenOff(t *testing.T, name string, k *kernelText, s *report.RepairStep) int {
	t.Helper()
	before := k.state()
	all := slices.Collect(strings.Lines(s.Do.Input))
	// Of many lines, some.
	every := max(1, len(all)/40)
	done := k.clone()
	for i, line := range all {
		one := report.RepairCommand{Command: s.Do.Command, Input: line}
		if err := done.do(one); err != nil {
			t.Fatalf("%s: %s: line %d: %v", name, s.Title, i+1, err)
		}
		if i%every != 0 && i != len(all)-1 {
			continue
		}
		// A set that is made anew is not there for a moment: ipset does its lines to the end, whoever is killed.
		if s.Kind != kindIPSet {
			n := done.bare(t)
			for _, e := range s.Edits {
				if e.Table == deviceTable {
					continue // of which a capture of addresses does not say whether it is all there
				}
				if got, err := StandingOf(n, s.Kind, e); err != nil || got == Otherwise {
					t.Fatalf("%s: %s: behind line %d (%s): %s of %s is %s (%v)", name, s.Title, i+1, strings.TrimSpace(line), e.Object, e.Table, got, err)
				}
			}
		}
		back := done.clone()
		if err := back.do(s.Undo); err != nil {
			t.Fatalf("%s: %s: taken back behind line %d: %v", name, s.Title, i+1, err)
		}
		if diff := gocmp.Diff(before, back.state()); diff != "" {
			t.Fatalf("%s: %s: behind line %d, before (-) and taken back (+):\n%s", name, s.Title, i+1, diff)
		}
	}
	return len(all)
}
