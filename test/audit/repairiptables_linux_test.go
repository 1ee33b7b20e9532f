package audit

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/apply"
	"github.com/svcnet/svcnet/repair/plan"
	"github.com/svcnet/svcnet/test/lab"
)

// sampleRestored is how many changes of kube-proxy's own rules CI has mended in each backend.
const sampleRestored = 18

// own are the kinds of changes that only spoil what kube-proxy wrote.
var own = []string{
	"rule deleted", "rule duplicated", "rule moved", "DNAT target changed", "mark changed", "probability changed", "address changed",
	"chain flushed", "jump removed",
}

// TestRepairRestores changes one of kube-proxy's own rules at a time and looks at what a plan makes of it: the very rules
// that kube-proxy had written, by edits of chains that were changed, and of no others. SVCNET_REPAIR_MUTANTS and
// SVCNET_REPAIR_SEED are as for TestRepair.
func TestRepairRestores(t *testing.T) {
	for i, backend := range []lab.Backend{lab.NFT, lab.Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			q := quarry{name: string(backend), mode: "iptables", backend: backend, plane: newXTables}
			c := newClinic(t, q.bring(t, fmt.Sprintf("o%c%d", 'a'+i, os.Getpid())), newXTables)
			seed := setting(t, "SVCNET_REPAIR_SEED", repairSeed)
			kinds := slices.DeleteFunc(c.kinds(), func(k kind) bool { return !slices.Contains(own, k.name) })
			for n := range setting(t, "SVCNET_REPAIR_MUTANTS", sampleRestored) {
				u := c.draw(kinds[n%len(kinds)], uint64(seed)+1, n)
				if u == nil {
					continue
				}
				if err := c.restores(t, n, u); err != nil {
					t.Fatalf("mutant %d of seed %d, %s: %s: %v", n, seed, u.kind, u.what, err)
				}
			}
			t.Log(c.table(kinds))
		})
	}
}

// restores makes a change, mends it, compares and takes it back.
func (c *clinic) restores(t *testing.T, n int, u *mutant) error {
	ctx := t.Context()
	clean := c.chains(t)
	if err := u.do(ctx); err != nil {
		return err
	}
	s := c.of(u.kind)
	s.made++
	spoilt := c.chains(t)
	r, snap, err := c.look(ctx)
	if err != nil {
		return err
	}
	shown := c.fresh(r.Report)
	p := plan.Make(r, plan.Options{})
	steps, _ := apply.Todo(p, consents)
	wrong := ""
	switch {
	case len(shown) == 0 && len(steps) == 0:
		return c.discharge(ctx, u, false)
	case len(shown) == 0:
		wrong = "steps for what no finding tells:\n" + describe(p)
	}
	s.shown++
	for _, step := range steps {
		for _, e := range step.Edits {
			// "rules of store/port in chain KUBE-SERVICES" of "nat (IPv4, nft)"
			chain := e.Table + " " + e.Object[strings.LastIndexByte(e.Object, ' ')+1:]
			if slices.Equal(clean[chain], spoilt[chain]) {
				wrong += fmt.Sprintf("an edit of %s: %s, which is as it was\n", e.Table, e.Object)
			}
			if step.Owner != "kube-proxy" {
				wrong += fmt.Sprintf("a step of %s: %s\n", step.Owner, step.Title)
			}
		}
	}
	run, done, err := c.apply(ctx, p)
	if err != nil || run.State != report.RepairApplied {
		wrong += fmt.Sprintf("not applied: %v: %s\n", err, run.Summary.Text)
	}
	if done != nil {
		wrong += standing(done, steps, plan.Done)
	}
	after := c.chains(t)
	if d := cmp.Diff(unordered(clean), unordered(after)); d != "" {
		wrong += fmt.Sprintf("not as kube-proxy wrote it (-kube-proxy +repaired):\n%s\nof:\n%s", d, describe(p))
	} else {
		s.mended++
	}
	if run, err := c.rollBack(ctx, run.ID); err != nil || run.State != report.RepairRolledBack {
		wrong += fmt.Sprintf("not taken back: %v", err)
	}
	if done, _, err = c.look(ctx); err != nil {
		return err
	}
	wrong += standing(done, steps, plan.Before)
	now := c.chains(t)
	if d := cmp.Diff(spoilt, now); d != "" {
		wrong += fmt.Sprintf("rolled back, not as before (-before +now):\n%s\nof:\n%s", d, describe(p))
	} else {
		s.rolledBack++
	}
	if wrong != "" {
		s.wrong++
		t.Errorf("mutant %d, %s: %s\n%s\nfound:\n%s", n, u.kind, u.what, wrong, strings.Join(shown, "\n"))
		keep(t, fmt.Sprintf("restored-%d", n), snap)
	}
	return c.discharge(ctx, u, wrong != "")
}

// standing looks where the objects of all edits stand.
func standing(r *explain.Reading, steps []report.RepairStep, want plan.Standing) string {
	var out strings.Builder
	for _, s := range steps {
		for _, e := range s.Edits {
			if at, err := plan.StandingOf(r.Node(), s.Kind, e); err != nil || at != want {
				fmt.Fprintf(&out, "%s: %s is %s %v, not %s\n", e.Table, e.Object, at, err, want)
			}
		}
	}
	return out.String()
}

// chains are the rules of each chain of the node, by its table as edits name it.
func (c *clinic) chains(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for family, r := range c.save(t, c.n1) {
		for _, table := range r.tables {
			for _, l := range table.chains {
				name := strings.Fields(strings.TrimPrefix(l, ":"))[0]
				lines := []string{strings.TrimSuffix(l, " [0:0]")}
				for _, i := range table.of(name) {
					lines = append(lines, table.rules[i])
				}
				out[fmt.Sprintf("%s (IPv%d, %s) %s", table.name, family, c.n1.Backend(), name)] = lines
			}
		}
	}
	return out
}

// unordered sorts the rules of chains in which kube-proxy's stand in no order.
func unordered(chains map[string][]string) map[string][]string {
	out := map[string][]string{}
	for name, rules := range chains {
		rules = slices.Clone(rules)
		switch chain := name[strings.LastIndexByte(name, ' ')+1:]; {
		case chain == "KUBE-SERVICES" && strings.HasPrefix(name, "nat "):
			slices.Sort(rules[:len(rules)-1]) // node ports come last
		case slices.Contains([]string{"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL"}, chain), !strings.HasPrefix(chain, "KUBE-"):
			slices.Sort(rules)
		}
		out[name] = rules
	}
	return out
}
