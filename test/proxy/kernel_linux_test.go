package proxy

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/repair/proxy/kernel"
	"github.com/svcnet/svcnet/repair/proxy/table"
)

// inNamespace runs a test on a thread of its own in a fresh network namespace, which ends with the thread.
func inNamespace(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making a network namespace needs root")
	}
	t.Run("namespace", func(t *testing.T) {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine of this subtest
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Fatal(err)
		}
		test(t)
	})
}

// run runs a command in the thread's namespace.
func run(t *testing.T, input string, command ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), command[0], command[1:]...)
	c.Stdin = strings.NewReader(input)
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	if err := c.Run(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, said.String())
	}
	return out.String()
}

// normal is a listing without what may differ: nft lists sets in the order in which they were made, and chains so too.
func normal(t *testing.T, text string) string {
	t.Helper()
	rs, err := nft.ParseText(text, "listing")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range rs.Problems {
		t.Errorf("line %d: %s: %s", p.Line, p.Text, p.Why)
	}
	for _, table := range rs.Tables {
		slices.SortFunc(table.Chains, func(a, b *nft.Chain) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(table.Sets, func(a, b *nft.Set) int { return strings.Compare(a.Name, b.Name) })
		for _, c := range table.Chains {
			switch c.Name {
			case "any", "here", "nodeport-any", "nodeport-here": // in the order in which sizes came up
				slices.SortFunc(c.Rules, func(a, b *nft.Rule) int { return strings.Compare(a.Text, b.Text) })
			}
		}
		for _, s := range table.Sets {
			slices.SortFunc(s.Entries, func(a, b nft.Entry) int { return bytes.Compare(a.Start, b.Start) })
		}
	}
	return rs.String()
}

var families = map[int]nft.Family{4: nft.IP, 6: nft.IP6}

// TestTablesAreInTheKernel has Services change at random, puts each transaction into the kernel, and compares what nft
// lists with what is meant: nothing missing, nothing left, whatever came before.
func TestTablesAreInTheKernel(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		const seeds, steps = 3, 60
		for seed := range uint64(seeds) {
			c := newCluster(seed, 14)
			proxy := theProxy()
			facts := table.FactsOf(&proxy, nodePortIPs)
			if seed == 1 {
				facts.LocalMode, facts.LocalInterface = "BridgeInterface", "cni0"
			}
			if seed == 2 {
				facts.LocalMode = "-"
			}
			states := map[int]*table.State{4: table.NewState(nft.IP, facts), 6: table.NewState(nft.IP6, facts)}
			w, err := kernel.Open()
			if err != nil {
				t.Fatal(err)
			}
			update := func(name string) {
				namespace, service, _ := strings.Cut(name, "/")
				ports := c.ports(name)
				for f, s := range states {
					s.Update(table.Service{Namespace: namespace, Name: service}, ports[f])
				}
			}
			send := func(step int, age bool) {
				for f, s := range states {
					var b kernel.Batch
					tx := s.Plan(age)
					there := false
					if tx.Whole {
						if there, err = w.Has(tx.Table); err != nil {
							t.Fatal(err)
						}
					}
					if err := b.Add(tx, there); err != nil {
						t.Fatal(err)
					}
					if err := w.Send(&b); err != nil {
						t.Fatalf("seed %d, step %d, IPv%d: %v", seed, step, f, err)
					}
				}
			}
			for _, name := range c.names() {
				update(name)
			}
			send(0, false)
			for step := range steps {
				for range 1 + c.dice.IntN(4) {
					update(c.change())
				}
				send(step, c.chance(60))
				if step%10 != 9 {
					continue
				}
				for range 2 {
					send(step, true)
				}
				for f, s := range states {
					if n := s.Retiring(); n != 0 {
						t.Errorf("seed %d, step %d: %d elements stay", seed, step, n)
					}
					listed := run(t, "", "nft", "list", "table", string(families[f]), table.Name)
					if diff := cmp.Diff(normal(t, s.Table().Print()), normal(t, listed)); diff != "" {
						t.Fatalf("seed %d, step %d, IPv%d: meant and listed differ:\n%s", seed, step, f, diff)
					}
				}
			}
			if seed == 0 {
				// What nft lists it can load again: an administrator who saves all rules saves these too.
				run(t, "flush ruleset\n"+run(t, "", "nft", "list", "ruleset"), "nft", "-f", "-")
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			tables, err := kernel.OpenTables()
			if err != nil {
				t.Fatal(err)
			}
			before := run(t, "", "nft", "list", "ruleset")
			if err := tables.Try(table.NewState(nft.IP, facts).Plan(false)); err != nil {
				t.Errorf("the kernel would not take a table: %v", err)
			}
			if after := run(t, "", "nft", "list", "ruleset"); after != before {
				t.Error("a trial changes rules")
			}
			if err := tables.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
