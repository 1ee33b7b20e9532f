package plan

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// inNamespace runs something on a thread in a network namespace of its own, which ends with the thread.
func inNamespace(t *testing.T, run func() error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making a network namespace needs root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed")
	}
	skip, done := make(chan string, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			skip <- "no network namespace can be made: " + err.Error()
			return
		}
		done <- run()
	}()
	select {
	case why := <-skip:
		t.Skip(why)
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	}
}

// runNFT runs a transaction.
func runNFT(c report.RepairCommand) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Command[0], c.Command[1:]...)
	cmd.Stdin = strings.NewReader(c.Input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.600s", strings.Join(c.Command, " "), err, out)
	}
	return nil
}

// A bench is a recorded node whose tables of nftables are in the kernel.
type bench struct {
	node  *snapshot.Snapshot
	dice  *rand.Rand
	clean string
}

// read reads the tables anew and audits the node that they are of.
func (b *bench) read() (*explain.Reading, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := collectors.Collect(ctx, collectors.Options{Node: "n1", Silent: true})
	if err != nil {
		return nil, err
	}
	live := s.Of(snapshot.NFTNetlink)
	if len(live) != 1 || live[0].Status != snapshot.OK {
		return nil, fmt.Errorf("the tables were not read: %+v", live)
	}
	of := *b.node
	of.Evidence = slices.Clone(of.Evidence)
	for i := range of.Evidence {
		if of.Evidence[i].Format == snapshot.NFTNetlink {
			of.Evidence[i].Data = live[0].Data
		}
	}
	return explain.Read(&of, explain.AuditOptions{})
}

// listed is the ruleset as nft lists it, in a form to compare: what has no order is sorted but base chains, which the
// kernel runs as they come, and what rules put into sets is left out.
func listed() (string, error) {
	out, err := exec.Command("nft", "list", "ruleset").Output()
	if err != nil {
		return "", err
	}
	rs, err := nft.ParseText(string(out), "")
	if err != nil {
		return "", err
	}
	slices.SortFunc(rs.Tables, func(a, b *nft.Table) int { return cmp.Compare(a.String(), b.String()) })
	var lines []string
	for _, t := range rs.Tables {
		lines = append(lines, "table "+t.String())
		lines = append(lines, nftTableLines(t)...)
		for _, c := range t.BaseChains() {
			lines = append(lines, "then base chain "+c.Name)
		}
	}
	return strings.Join(lines, "\n"), nil
}

// load puts a ruleset in place of what is there.
func load(rs *nft.Ruleset) error {
	text := "flush ruleset\n"
	for _, t := range rs.Tables {
		for line := range strings.Lines(t.Print()) {
			text += nftReadable(line)
		}
	}
	return runNFT(nftCommand(text))
}

// TestNFTablesMended damages the tables that each recorded kube-proxy left, in the kernel: all that is not as kube-proxy
// keeps it is put right, and the way back leads to the damage, object by object.
func TestNFTablesMended(t *testing.T) {
	folders, err := filepath.Glob("../../test/recorded/testdata/kube-proxy-1.*-nftables")
	if err != nil || len(folders) < 5 {
		t.Fatalf("%d recordings of nftables mode, error %v", len(folders), err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			node, err := snapshot.Load([]string{folder}, nil)
			if err != nil {
				t.Fatal(err)
			}
			b := &bench{node: node, dice: rand.New(rand.NewPCG(damageSeed, uint64(len(folder))))}
			inNamespace(t, func() error { return b.damageAndMend(t, 3) })
		})
	}
}

// damageSeed begins the dice.
const damageSeed = 20270117

func (b *bench) damageAndMend(t *testing.T, times int) error {
	recorded, err := nft.ParseNetlink(b.node.Of(snapshot.NFTNetlink)[0].Data, "")
	if err != nil {
		return err
	}
	if err := load(recorded); err != nil {
		return err
	}
	if b.clean, err = listed(); err != nil {
		return err
	}
	changes := 0
	for n := range times {
		rs, err := nft.ParseNetlink(b.node.Of(snapshot.NFTNetlink)[0].Data, "")
		if err != nil {
			return err
		}
		var did []string
		for range 4 + b.dice.IntN(6) {
			if what := b.damage(choose(b.dice, rs.Tables)); what != "" {
				did = append(did, what)
			}
		}
		if err := load(rs); err != nil {
			return fmt.Errorf("damage %d (%s): %w", n, strings.Join(did, "; "), err)
		}
		broken, err := listed()
		if err != nil {
			return err
		}
		if broken == b.clean {
			continue // a rule that was moved to where it was
		}
		wrong, made, err := b.mend(broken)
		if err != nil {
			return fmt.Errorf("damage %d (%s): %w", n, strings.Join(did, "; "), err)
		}
		changes += made
		if wrong != "" {
			t.Errorf("damage %d: %s\n%s", n, strings.Join(did, "\n"), wrong)
		}
	}
	t.Logf("%d objects mended", changes)
	if changes < times {
		t.Errorf("%d objects were mended in %d rounds: too few to tell", changes, times)
	}
	return nil
}

// mend plans all that differs, does it and takes it back.
func (b *bench) mend(broken string) (wrong string, changes int, err error) {
	r, err := b.read()
	if err != nil {
		return "", 0, err
	}
	s := &site{node: r.Node(), mended: map[int]bool{}, because: map[int]string{}}
	var steps []report.RepairStep
	for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		d, err := s.nftDifference(family)
		if err != nil {
			return "", 0, err
		}
		if d.table == nil {
			steps = append(steps, s.makeNFTable(d, nil))
			changes++
			continue
		}
		changes += len(d.changes)
		if len(d.changes) > 0 {
			steps = append(steps, s.nftStep(d, d.changes))
		}
		if d.table.Dormant {
			steps = append(steps, s.wakeNFTable(d, nil))
			changes++
		}
	}
	standing := func(want Standing) {
		n := r.Node()
		for _, step := range steps {
			for _, e := range step.Edits {
				if is, findErr := StandingOf(n, step.Kind, e); findErr != nil || is != want {
					wrong += fmt.Sprintf("%s of table %s is %s and should be %s (%v)\n", e.Object, e.Table, is, want, findErr)
				}
			}
		}
	}
	compare := func(what, want string) {
		got, listErr := listed()
		if listErr == nil {
			r, listErr = b.read()
		}
		if listErr != nil {
			err = listErr
			return
		}
		if what == "mended" {
			// Those that were made anew come last, which matters at no hook: no two have one priority there.
			want, got = withoutOrder(want), withoutOrder(got)
		}
		if d := gocmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); d != "" {
			wrong += fmt.Sprintf("%s (-want +got):\n%s\n", what, d)
		}
	}
	standing(Before)
	for _, step := range steps {
		if err := runNFT(step.Do); err != nil {
			return "", 0, fmt.Errorf("%w\nof:\n%s", err, step.Do.Input)
		}
	}
	compare("mended", b.clean)
	standing(Done)
	for _, step := range slices.Backward(steps) {
		if err := runNFT(step.Undo); err != nil {
			return "", 0, fmt.Errorf("back: %w\nof:\n%s", err, step.Undo.Input)
		}
	}
	compare("taken back", broken)
	standing(Before)
	return wrong, changes, err
}

// withoutOrder is a listing that does not say in which order base chains run.
func withoutOrder(listing string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(listing, "\n"), func(l string) bool { return strings.HasPrefix(l, "then base chain ") }), "\n")
}

func choose[T any](dice *rand.Rand, of []T) T { return of[dice.IntN(len(of))] }

// notByChance tells what is of no Service of which chance decides: up to 1.35, which of two copies of an endpoint counts.
func notByChance(text string) bool {
	return !slices.ContainsFunc([]string{"leaving-and-back", "10.96.1.17", "fd00:96::117"}, func(s string) bool { return strings.Contains(text, s) })
}

// damage changes one object of a table, and says how; empty where the dice chose something that is not there.
func (b *bench) damage(t *nft.Table) string {
	chains := slices.DeleteFunc(slices.Clone(t.Chains), func(c *nft.Chain) bool { return !notByChance(c.Name) || len(c.Rules) == 0 })
	c := choose(b.dice, chains)
	sets := slices.DeleteFunc(slices.Clone(t.Sets), func(s *nft.Set) bool { return s.Dynamic || len(s.Entries) == 0 })
	s := choose(b.dice, sets)
	at := b.dice.IntN(len(c.Rules))
	entry := b.dice.IntN(len(s.Entries))
	if !notByChance(s.EntryText(&s.Entries[entry])) {
		return ""
	}
	switch b.dice.IntN(13) {
	case 0:
		what := fmt.Sprintf("%s chain %s: without %s", t, c.Name, c.Rules[at].Text)
		c.Rules = slices.Delete(c.Rules, at, at+1)
		return what
	case 1:
		c.Rules = nil
		return fmt.Sprintf("%s chain %s: flushed", t, c.Name)
	case 2:
		r := *c.Rules[at]
		c.Rules = slices.Insert(c.Rules, b.dice.IntN(len(c.Rules)+1), &r)
		return fmt.Sprintf("%s chain %s: twice %s", t, c.Name, r.Text)
	case 3:
		to := b.dice.IntN(len(c.Rules))
		c.Rules[at], c.Rules[to] = c.Rules[to], c.Rules[at]
		return fmt.Sprintf("%s chain %s: rules %d and %d change places", t, c.Name, at, to)
	case 4:
		// A rule of somebody's own, with what nft takes apart when it is read.
		texts := []nft.Statement{
			&nft.Match{Left: &nft.Payload{Protocol: "tcp", Field: "dport", Bits: 16}, Op: "==", Right: nft.SetLit{Set: &nft.Set{Key: []nft.Field{{Type: nft.TypeService, Size: 2}}, Entries: []nft.Entry{{Start: []byte{0, 80}}}}}},
			&nft.Counter{},
			&nft.Verdict{Kind: nft.Accept},
		}
		r := &nft.Rule{Statements: texts, Comment: "mine"}
		r.Text = t.RuleText(r)
		c.Rules = slices.Insert(c.Rules, at, r)
		return fmt.Sprintf("%s chain %s: more: %s", t, c.Name, r.Text)
	case 5:
		what := fmt.Sprintf("%s set %s: without %s", t, s.Name, s.EntryText(&s.Entries[entry]))
		s.Entries = slices.Delete(s.Entries, entry, entry+1)
		return what
	case 6:
		if s.Entries[entry].Verdict == nil {
			return ""
		}
		s.Entries[entry].Verdict = &nft.Verdict{Kind: nft.Drop}
		return fmt.Sprintf("%s set %s: now %s", t, s.Name, s.EntryText(&s.Entries[entry]))
	case 7:
		more := s.Entries[entry]
		more.Start = slices.Clone(more.Start)
		if more.End != nil {
			return ""
		}
		more.Start[len(more.Start)-1] ^= 0x40
		if len(s.Key) > 1 { // a port, with what fills it up behind
			more.Start[len(more.Start)-1] ^= 0x40
			more.Start[len(more.Start)-3] ^= 0x40
		}
		s.Entries = append(s.Entries, more)
		return fmt.Sprintf("%s set %s: more: %s", t, s.Name, s.EntryText(&more))
	case 8:
		s.Entries = slices.DeleteFunc(s.Entries, func(e nft.Entry) bool { return notByChance(s.EntryText(&e)) })
		return fmt.Sprintf("%s set %s: emptied", t, s.Name)
	case 9, 10:
		bases := slices.DeleteFunc(slices.Clone(t.Chains), func(c *nft.Chain) bool { return c.Base == nil })
		c := choose(b.dice, bases)
		base := *c.Base
		c.Base = &base
		if b.dice.IntN(2) == 0 {
			base.Policy = "drop"
			return fmt.Sprintf("%s chain %s: policy drop", t, c.Name)
		}
		base.Priority += choose(b.dice, []int{-7, -1, 3, 40})
		return fmt.Sprintf("%s chain %s: priority %d", t, c.Name, base.Priority)
	case 11:
		affinities := slices.DeleteFunc(slices.Clone(t.Sets), func(s *nft.Set) bool { return !s.Dynamic })
		s := choose(b.dice, affinities)
		s.Entries = nil // they have times of the old one
		s.Timeout = choose(b.dice, []time.Duration{0, time.Second, 90 * time.Minute})
		return fmt.Sprintf("%s set %s: timeout %s", t, s.Name, s.Timeout)
	}
	extra := t.AddChain("mine-" + fmt.Sprint(b.dice.IntN(100)))
	extra.Base = &nft.Base{Type: "filter", Hook: "forward", Priority: -5, Policy: "accept"}
	extra.Rules = []*nft.Rule{{Statements: []nft.Statement{&nft.Verdict{Kind: nft.Drop}}, Text: "drop"}}
	if b.dice.IntN(3) == 0 {
		t.Dormant = true
		return fmt.Sprintf("%s: dormant, chain %s more", t, extra.Name)
	}
	return fmt.Sprintf("%s chain %s: more", t, extra.Name)
}

// TestNFTForeign: a rule of another program that is in the way goes, from wherever in its chain it stands, and comes back
// to its place; the rest of the table stays.
func TestNFTForeign(t *testing.T) {
	node, err := snapshot.Load([]string{"../../test/recorded/testdata/kube-proxy-1.36-nftables"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const drop, other, counted = "ip saddr 10.244.1.0/24 drop", "tcp dport 22 accept", "counter"
	for name, rules := range map[string][]string{
		"alone":          {drop},
		"first":          {drop, other},
		"in the middle":  {counted, drop, other},
		"last":           {counted, other, drop},
		"more than once": {drop, drop, counted, drop, other, drop},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{node: node}
			inNamespace(t, func() error {
				recorded, err := nft.ParseNetlink(node.Of(snapshot.NFTNetlink)[0].Data, "")
				if err != nil {
					return err
				}
				if err := load(recorded); err != nil {
					return err
				}
				table := "table ip hostfw { chain guard { type filter hook prerouting priority -310; policy accept; " + strings.Join(rules, "; ") + "; }; }\n"
				if err := runNFT(nftCommand(table)); err != nil {
					return err
				}
				return b.foreign(t)
			})
		})
	}
}

func (b *bench) foreign(t *testing.T) error {
	broken, err := listed()
	if err != nil {
		return err
	}
	r, err := b.read()
	if err != nil {
		return err
	}
	p := Make(r, Options{})
	steps := slices.DeleteFunc(p.Steps, func(s report.RepairStep) bool { return s.Kind != kindNFTables })
	if len(steps) != 1 || steps[0].Owner != ownerForeign || steps[0].Consent != AllowForeign {
		t.Errorf("%d steps: %+v", len(steps), steps)
		return nil
	}
	if err := runNFT(steps[0].Do); err != nil {
		return err
	}
	want := strings.Join(slices.DeleteFunc(strings.Split(broken, "\n"), func(l string) bool { return l == "  ip saddr 10.244.1.0/24 drop" }), "\n")
	if got, err := listed(); err != nil || got != want {
		t.Errorf("error %v; removed (-want +got):\n%s", err, gocmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
	}
	if r, err = b.read(); err != nil {
		return err
	}
	for _, e := range steps[0].Edits {
		if is, err := StandingOf(r.Node(), steps[0].Kind, e); err != nil || is != Done {
			t.Errorf("%s is %s, error %v", e.Object, is, err)
		}
	}
	if again := Make(r, Options{}); slices.ContainsFunc(again.Steps, func(s report.RepairStep) bool { return s.Kind == kindNFTables }) {
		t.Errorf("there is still something to do: %+v", again.Steps)
	}
	if err := runNFT(steps[0].Undo); err != nil {
		return err
	}
	if got, err := listed(); err != nil || got != broken {
		t.Errorf("error %v; put back (-want +got):\n%s", err, gocmp.Diff(strings.Split(broken, "\n"), strings.Split(got, "\n")))
	}
	return nil
}

// TestNFTLeftovers: tables of nftables mode beside a kube-proxy in iptables mode are removed whole, and come back whole.
func TestNFTLeftovers(t *testing.T) {
	tables, err := snapshot.Load([]string{"../../test/recorded/testdata/kube-proxy-1.36-nftables"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	node, err := snapshot.Load([]string{"../../test/recorded/testdata/kube-proxy-1.36-iptables-nft"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	node.Evidence = slices.DeleteFunc(node.Evidence, func(e snapshot.Evidence) bool { return e.Format == snapshot.NFTNetlink })
	node.Evidence = append(node.Evidence, tables.Of(snapshot.NFTNetlink)[0])
	b := &bench{node: node}
	inNamespace(t, func() error {
		recorded, err := nft.ParseNetlink(tables.Of(snapshot.NFTNetlink)[0].Data, "")
		if err != nil {
			return err
		}
		if err := load(recorded); err != nil {
			return err
		}
		before, err := listed()
		if err != nil {
			return err
		}
		r, err := b.read()
		if err != nil {
			return err
		}
		steps := slices.DeleteFunc(Make(r, Options{}).Steps, func(s report.RepairStep) bool { return s.Kind != kindNFTables })
		if len(steps) != 2 {
			t.Errorf("%d steps, want one for each family", len(steps))
		}
		for _, s := range steps {
			if err := runNFT(s.Do); err != nil {
				return err
			}
		}
		if out, err := exec.Command("nft", "list", "tables").Output(); err != nil || len(out) > 0 {
			t.Errorf("left: %s, error %v", out, err)
		}
		for _, s := range slices.Backward(steps) {
			if err := runNFT(s.Undo); err != nil {
				return err
			}
		}
		if after, err := listed(); err != nil || after != before {
			t.Errorf("error %v; put back (-want +got):\n%s", err, gocmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")))
		}
		return nil
	})
}
