package audit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/apply"
	"github.com/svcnet/svcnet/repair/plan"
	"github.com/svcnet/svcnet/test/lab"
)

// repairSeed begins the dice of every mutant that is mended, with its number. SVCNET_REPAIR_SEED replaces it.
const repairSeed = 20270117

// A ward is a node whose mutants are mended.
type ward struct {
	name, mode string
	backend    lab.Backend
	plane      func(t *testing.T, m *maker) plane
}

var wards = []ward{
	{"iptables nft", "iptables", lab.NFT, newXTables},
	{"iptables legacy", "iptables", lab.Legacy, newXTables},
	{"nftables", "nftables", lab.NFT, newNFTables},
}

// TestRepair makes one change at a time to a node whose kube-proxy is stopped, plans what mends it, does that, audits,
// takes it back, and takes the change back. What it asks:
//
//   - mended: nothing is found any more that was not there before the change;
//   - foreign rules are what they were, but for what a step that was consented to says it removes;
//   - rolled back: the node is as the change left it, rule for rule;
//   - at the end kube-proxy starts again, on a node that is mended and not as kube-proxy left it, and nothing is found.
//
// SVCNET_REPAIR_MUTANTS says how many changes are made on each node, one of each kind by default; SVCNET_REPAIR_MUTANT=N,N
// makes those alone.
// SVCNET_REPAIR_KIND=TEXT,TEXT makes changes of the kinds alone whose name has one of the texts.
func TestRepair(t *testing.T) {
	for i, w := range wards {
		t.Run(w.name, func(t *testing.T) {
			q := quarry{name: w.name, mode: w.mode, backend: w.backend, plane: w.plane}
			w.treat(t, q.bring(t, fmt.Sprintf("r%c%d", 'a'+i, os.Getpid())), setting(t, "SVCNET_REPAIR_MUTANTS", oneEach))
		})
	}
}

// oneEach is a count of as many mutants as there are kinds.
const oneEach = 0

// treat makes mutants on a lab and mends them.
func (w *ward) treat(t *testing.T, l *lab.Lab, count int) {
	t.Helper()
	c := newClinic(t, l, w.plane)
	seed := setting(t, "SVCNET_REPAIR_SEED", repairSeed)
	kinds := c.kinds()
	if only := os.Getenv("SVCNET_REPAIR_KIND"); only != "" {
		kinds = slices.DeleteFunc(kinds, func(k kind) bool {
			return !slices.ContainsFunc(strings.Split(only, ","), func(part string) bool { return strings.Contains(k.name, part) })
		})
	}
	if count == oneEach {
		count = len(kinds)
	}
	only := strings.FieldsFunc(os.Getenv("SVCNET_REPAIR_MUTANT"), func(r rune) bool { return r == ',' || r == ' ' })
	begun := time.Now()
	for n := range count {
		if len(only) > 0 && !slices.Contains(only, strconv.Itoa(n)) {
			continue
		}
		k := kinds[n%len(kinds)]
		u := c.draw(k, uint64(seed), n)
		if u == nil {
			continue
		}
		if err := c.treat(t, n, u); err != nil {
			t.Fatalf("mutant %d of seed %d, %s: %s: %v", n, seed, u.kind, u.what, err)
		}
	}
	t.Logf("%v\n%s", time.Since(begun).Round(time.Second), c.table(kinds))
	c.restart(t, kinds, uint64(seed))
}

// A clinic is the test under way on one node.
type clinic struct {
	*hunt
	scores map[string]*outcome
	// journals is the folder of the runs.
	journals string
}

// outcome counts the mutants of one kind: how many showed in the audit, and what became of those.
type outcome struct{ made, shown, mended, left, rolledBack, wrong int }

func newClinic(t *testing.T, l *lab.Lab, of func(t *testing.T, m *maker) plane) *clinic {
	t.Helper()
	c := &clinic{
		hunt:   &hunt{maker: &maker{stage: set(t, l)}, base: map[string]bool{}, unknown: map[string]bool{}},
		scores: map[string]*outcome{}, journals: t.TempDir(),
	}
	c.plane = of(t, c.maker)
	var err error
	if c.reader, err = newReader(l, c.n1); err != nil {
		t.Fatal(err)
	}
	c.reader.silent = true
	r, snap, err := c.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keep(t, "before", snap)
	for i := range r.Report.Findings {
		c.base[idOf(&r.Report.Findings[i])] = true
	}
	for _, u := range r.Report.Unknown {
		c.unknown[u.ID] = true
	}
	if c.state, err = c.everything(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// draw makes number n, with dice of its own.
func (c *clinic) draw(k kind, seed uint64, n int) *mutant {
	c.dice = rand.New(rand.NewPCG(seed, uint64(n)))
	for range 50 {
		if u := k.make(); u != nil {
			u.kind = k.name
			return u
		}
	}
	return nil
}

// look reads the node so that a plan can be made of it.
func (c *clinic) look(ctx context.Context) (*explain.Reading, *snapshot.Snapshot, error) {
	s, err := c.reader.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, err := explain.Read(s, explain.AuditOptions{})
	return r, s, err
}

// fresh are the findings that were not there before any change, and the checks that were answered then.
func (c *clinic) fresh(r *report.Report) []string {
	var out []string
	for i := range r.Findings {
		if f := &r.Findings[i]; !c.base[idOf(f)] {
			out = append(out, line(f))
		}
	}
	for _, u := range r.Unknown {
		if !c.unknown[u.ID] {
			out = append(out, "unknown: "+u.ID+": "+u.Text)
		}
	}
	return out
}

// asked leaves out findings that the objects deserve whatever the node does, for a change of objects.
func asked(u *mutant, found []string) []string {
	if !u.certain {
		return found
	}
	return slices.DeleteFunc(found, func(l string) bool {
		return slices.ContainsFunc(ofObjects, func(id string) bool { return strings.Contains(l, " "+id+", ") })
	})
}

// ofObjects are findings that a Service or slice deserves by itself.
var ofObjects = []string{
	"duplicate-endpoint-address", "duplicate-external-address", "endpoint-without-pod", "local-policy-no-local-endpoints", "service-without-endpoints", "nothing-listens",
}

// everything is the node's state in a form to compare: surroundings, and rules of both backends and of nftables.
func (c *clinic) everything(ctx context.Context) (string, error) {
	around, err := c.surroundings(ctx)
	if err != nil {
		return "", err
	}
	rules, err := c.ruleLines(ctx)
	return around + strings.Join(rules, "\n"), err
}

// ruleLines are the rules of the node, one a line with its place in front, whoever wrote them and with whichever tool.
// Tables of iptables that hold nothing are left out: reading or restoring makes them.
func (c *clinic) ruleLines(ctx context.Context) ([]string, error) {
	var out []string
	for _, backend := range []lab.Backend{lab.NFT, lab.Legacy} {
		if c.ipvs && backend == lab.NFT {
			continue // that kernel has none
		}
		for _, program := range []string{"iptables-save", "ip6tables-save"} {
			text, err := c.n1.Run(ctx, "", "xtables-"+string(backend)+"-multi", program)
			if err != nil {
				return nil, err
			}
			r := parseRules(text)
			slices.SortFunc(r.tables, func(a, b *tableText) int { return strings.Compare(a.name, b.name) })
			for _, t := range r.tables {
				slices.Sort(t.chains)
				slices.SortStableFunc(t.rules, func(a, b string) int { return strings.Compare(chainOf(a), chainOf(b)) })
				stock := !slices.ContainsFunc(t.chains, func(l string) bool { return !strings.HasSuffix(l, " ACCEPT [0:0]") })
				if stock && len(t.rules) == 0 {
					continue
				}
				for _, l := range slices.Concat(t.chains, t.rules) {
					out = append(out, fmt.Sprintf("%s %s %s: %s", backend, program, t.name, strings.TrimSuffix(l, " [0:0]")))
				}
			}
		}
	}
	if c.ipvs {
		return out, nil
	}
	text, err := c.n1.Run(ctx, "", "nft", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	tables := parseNFT(text)
	slices.SortFunc(tables, func(a, b *nftText) int { return strings.Compare(a.name, b.name) })
	for _, t := range tables {
		if family, name, _ := strings.Cut(t.name, " "); family != "inet" && builtin[name] != nil {
			continue // of iptables, said above
		}
		t.sort()
		for _, l := range t.head {
			out = append(out, fmt.Sprintf("table %s: %s", t.name, l))
		}
		for _, b := range t.blocks {
			for _, l := range slices.Concat([]string{"is there"}, b.head, b.lines) {
				out = append(out, fmt.Sprintf("table %s %s %s: %s", t.name, b.kind, b.name, l))
			}
		}
	}
	return out, nil
}

// foreign are the lines that are not kube-proxy's. What kube-proxy has in chains of the kernel leads to its own. That a
// built-in chain has the policy ACCEPT is left out: a table that holds nothing is left out as a whole.
func foreign(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
		return strings.Contains(l, ": :") && strings.HasSuffix(l, " ACCEPT") || strings.Contains(l, "KUBE-") || strings.HasPrefix(l, "table ip kube-proxy") || strings.HasPrefix(l, "table ip6 kube-proxy")
	})
}

// touched says which foreign lines a plan changed without a step that says so, and may.
func touched(before, after []string, p *report.RepairPlan) string {
	was, will := map[string]bool{}, map[string]bool{}
	for _, s := range p.Steps {
		if s.Owner == "kube-proxy" {
			continue
		}
		for _, e := range s.Edits {
			for _, l := range e.Was {
				was[l] = true
			}
			for _, l := range e.Will {
				will[l] = true
			}
		}
	}
	text := func(l string) string {
		_, rule, _ := strings.Cut(l, ": ")
		return rule
	}
	has := func(lines []string) map[string]int {
		out := map[string]int{}
		for _, l := range lines {
			out[l]++
		}
		return out
	}
	b, a := has(before), has(after)
	kept := func(lines []string, other map[string]int, said map[string]bool) []string {
		return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return other[l] == 0 && said[text(l)] })
	}
	return cmp.Diff(kept(before, a, was), kept(after, b, will))
}

// treat makes a change, mends it, takes that back and takes the change back.
func (c *clinic) treat(t *testing.T, n int, u *mutant) error {
	ctx := t.Context()
	if err := u.do(ctx); err != nil {
		return err
	}
	s := c.of(u.kind)
	s.made++
	wrong, snap, err := c.mend(ctx, u, s)
	if err != nil {
		return err
	}
	if wrong != "" {
		s.wrong++
		t.Errorf("mutant %d, %s: %s\n%s", n, u.kind, u.what, wrong)
		keep(t, fmt.Sprintf("mutant-%d", n), snap)
	}
	return c.discharge(ctx, u, wrong != "")
}

func (c *clinic) of(kind string) *outcome {
	if c.scores[kind] == nil {
		c.scores[kind] = &outcome{}
	}
	return c.scores[kind]
}

// mend plans, applies, looks and rolls back. What is wrong is said in words.
func (c *clinic) mend(ctx context.Context, u *mutant, s *outcome) (wrong string, snap *snapshot.Snapshot, err error) {
	broken, err := c.everything(ctx)
	if err != nil {
		return "", nil, err
	}
	before, err := c.ruleLines(ctx)
	if err != nil {
		return "", nil, err
	}
	r, snap, err := c.look(ctx)
	if err != nil {
		return "", nil, err
	}
	shown := c.fresh(r.Report)
	if len(shown) > 0 {
		s.shown++
	}
	p := plan.Make(r, plan.Options{})
	if todo, _ := apply.Todo(p, consents); len(shown) == 0 && len(todo) == 0 {
		return "", snap, nil
	}
	found := "\nfound:\n" + strings.Join(shown, "\n") + "\nplanned:\n" + describe(p)
	run, after, err := c.apply(ctx, p)
	if err != nil || run.State != report.RepairApplied {
		s.left++
		return fmt.Sprintf("NOT APPLIED: %v: %s%s", err, run.Summary.Text, found), snap, nil
	}
	if left := asked(u, c.fresh(after.Report)); len(left) > 0 {
		s.left++
		wrong += fmt.Sprintf("STILL FOUND:\n%s%s", strings.Join(left, "\n"), found)
	} else {
		s.mended++
	}
	now, err := c.ruleLines(ctx)
	if err != nil {
		return "", snap, err
	}
	if d := touched(foreign(before), foreign(now), p); d != "" {
		wrong += fmt.Sprintf("FOREIGN RULES CHANGED (-before +after):\n%s%s", d, found)
	}
	if run, err := c.rollBack(ctx, run.ID); err != nil || run.State != report.RepairRolledBack {
		return wrong + fmt.Sprintf("NOT TAKEN BACK: %v%s", err, found), snap, nil
	}
	then, err := c.everything(ctx)
	if err != nil {
		return "", snap, err
	}
	if d := cmp.Diff(broken, then); d != "" {
		wrong += fmt.Sprintf("TAKEN BACK, the node is not as before (-before +now):\n%s%s", d, found)
	} else {
		s.rolledBack++
	}
	return wrong, snap, nil
}

// consents are all that there are.
var consents = []string{plan.AllowForeign}

// options are those of a run on the node. The reading that is kept is the last one that the run made.
func (c *clinic) options(kept **explain.Reading) apply.Options {
	return apply.Options{
		Folder: c.journals, Consents: consents,
		Read: func(ctx context.Context) (*explain.Reading, error) {
			r, _, err := c.look(ctx)
			*kept = r
			return r, err
		},
	}
}

// apply does what a plan says, and gives what was read of the node afterwards.
func (c *clinic) apply(ctx context.Context, p *report.RepairPlan) (run *report.RepairRun, after *explain.Reading, err error) {
	failed := c.n1.Netns().Do(func() error {
		run, err = apply.Apply(ctx, p, c.options(&after))
		return nil
	})
	return run, after, errors.Join(failed, err)
}

func (c *clinic) rollBack(ctx context.Context, id string) (run *report.RepairRun, err error) {
	var after *explain.Reading
	failed := c.n1.Netns().Do(func() error {
		run, err = apply.RollBack(ctx, id, c.options(&after))
		return nil
	})
	return run, errors.Join(failed, err)
}

// discharge takes the change back. After something went wrong the node may be anything, and is put right.
func (c *clinic) discharge(ctx context.Context, u *mutant, wrong bool) error {
	err := u.undo(ctx)
	if err == nil {
		err = c.forgetFlows(ctx)
	}
	if err != nil && !wrong {
		return fmt.Errorf("undo: %w", err)
	}
	now, err := c.everything(ctx)
	if err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	if d := cmp.Diff(c.state, now); d != "" {
		return fmt.Errorf("undo: the node is not as before (-before +now):\n%s", d)
	}
	return nil
}

// describe is a plan in a few lines.
func describe(p *report.RepairPlan) string {
	var out strings.Builder
	for _, s := range p.Steps {
		fmt.Fprintf(&out, "  %d. %s, %s: %s: %s\n", s.Step, s.Kind, s.Owner, s.Title, strings.Join(s.Do.Command, " "))
		lines := slices.Collect(strings.Lines(s.Do.Input))
		for i, l := range lines {
			if i == 30 {
				fmt.Fprintf(&out, "       and %d more lines\n", len(lines)-i)
				break
			}
			fmt.Fprintf(&out, "       %s\n", strings.TrimRight(l, "\n"))
		}
	}
	for _, l := range p.Left {
		fmt.Fprintf(&out, "  left: %s %s: %s\n", l.ID, l.Subject, l.Because)
	}
	return out.String()
}

func (c *clinic) table(kinds []kind) string {
	var out strings.Builder
	row := func(name string, o outcome) {
		fmt.Fprintf(&out, "%-26s %6d %6d %6d %6d %11d %6d\n", name, o.made, o.shown, o.mended, o.left, o.rolledBack, o.wrong)
	}
	fmt.Fprintf(&out, "%-26s %6s %6s %6s %6s %11s %6s\n", "", "made", "shown", "mended", "left", "rolled back", "wrong")
	var all outcome
	for _, k := range kinds {
		o := c.scores[k.name]
		if o == nil {
			continue
		}
		row(k.name, *o)
		all.made, all.shown, all.mended, all.left = all.made+o.made, all.shown+o.shown, all.mended+o.mended, all.left+o.left
		all.rolledBack, all.wrong = all.rolledBack+o.rolledBack, all.wrong+o.wrong
	}
	row("all", all)
	return out.String()
}

// restarts is how many mended nodes get a kube-proxy that starts.
const restarts = 2

// restart starts kube-proxy on nodes that are mended, which has it write everything, and looks.
func (c *clinic) restart(t *testing.T, kinds []kind, seed uint64) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range restarts {
		// Numbers below zero are nobody's else.
		u := c.draw(kinds[(i*7)%len(kinds)], seed, -1-i)
		if u == nil {
			continue
		}
		must(u.do(ctx))
		r, _, err := c.look(ctx)
		must(err)
		p := plan.Make(r, plan.Options{})
		todo, _ := apply.Todo(p, consents)
		if run, _, err := c.apply(ctx, p); err != nil || len(todo) > 0 && run.State != report.RepairApplied {
			t.Errorf("%s: %s: %v: %s", u.kind, u.what, err, run.Summary.Text)
		}
		must(c.n1.SignalProxy(syscall.SIGKILL))
		must(c.n1.StopProxy())
		must(c.n1.StartProxy(ctx))
		must(c.WaitSynced(ctx, c.n1))
		r, snap, err := c.look(ctx)
		must(err)
		if left := c.fresh(r.Report); len(left) > 0 {
			t.Errorf("%s: %s\nmended by:\n%s\nand kube-proxy started again; found:\n%s", u.kind, u.what, describe(p), strings.Join(left, "\n"))
			keep(t, fmt.Sprintf("restart-%d", i), snap)
		}
		must(c.n1.SignalProxy(syscall.SIGSTOP))
		// What was repaired is not there any more to be taken back; what is, is.
		if err := u.undo(ctx); err != nil {
			t.Logf("undo %s: %v", u.kind, err)
		}
	}
}
