package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/apply"
	"github.com/svcnet/svcnet/repair/plan"
)

// sampleKills is how many times CI kills a repair, on all nodes together.
const sampleKills = 20

// TestRepairKilled kills a process that applies a plan of several steps, or takes one back, with SIGKILL at a random moment.
// Whatever the moment, --rollback leaves the node as it was before.
//
// SVCNET_REPAIR_KILLS says how often, SVCNET_REPAIR_SEED replaces the seed of the dice.
func TestRepairKilled(t *testing.T) {
	kills := setting(t, "SVCNET_REPAIR_KILLS", sampleKills)
	for i, w := range wards {
		n := (kills + len(wards) - 1 - i) / len(wards)
		if n == 0 {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			q := quarry{name: w.name, mode: w.mode, backend: w.backend, plane: w.plane}
			k := &killer{clinic: newClinic(t, q.bring(t, fmt.Sprintf("k%c%d", 'a'+i, os.Getpid())), w.plane)}
			k.dice = rand.New(rand.NewPCG(uint64(setting(t, "SVCNET_REPAIR_SEED", repairSeed)), uint64(i)))
			k.killAll(t, n)
		})
	}
}

// A killer is the test under way on one node, which stays broken.
type killer struct {
	*clinic
	broken string
	// whole is how long a run takes that nobody kills, begin when its journal is there, steps when its last step is done.
	whole, begin, steps time.Duration
	// found counts what was found of runs that were killed.
	found map[string]int
}

// damage breaks several things at once, so that a plan has a step of each kind.
func (k *killer) damage(ctx context.Context) error {
	for family := range map[int]bool{4: true, 6: true} {
		var err error
		switch p := k.plane.(type) {
		case *xtables:
			r := p.clean[family].clone()
			nat, filter := r.table("nat"), r.table("filter")
			nat.rules = slices.DeleteFunc(nat.rules, func(rule string) bool { return isJump(rule) || chainOf(rule) == "KUBE-NODEPORTS" })
			filter.rules = slices.DeleteFunc(filter.rules, func(rule string) bool { return chainOf(rule) == "KUBE-FORWARD" })
			filter.insert(0, "-A FORWARD -s "+k.halves(family)[0]+" -j DROP")
			err = p.load(family, r)(ctx)
		case *ipvsNode:
			err = p.damage(ctx, family, k.halves(family)[0])
		case *nftables:
			r := p.clean[family].clone()
			for _, name := range []string{"service-ips", "no-endpoint-services"} {
				r.block(name).lines = nil
			}
			err = errors.Join(p.load(family, r)(ctx), p.nft(fmt.Sprintf("table %s hostfw { chain guard { type filter hook forward priority 0; policy accept; %[1]s saddr %s drop; }; }", ipWord(family), k.halves(family)[0]))(ctx))
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(
		k.n1.Netns().Sysctl("net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0"),
		k.n1.Netns().IP(ctx, "route add blackhole 10.244.3.0/25", "route add unreachable fd00:244:3::/65"),
		k.run("", "ip", "-6", "rule", "add", "pref", "100", "to", "fd00:244:2::/65", "prohibit")(ctx),
	)
}

func (k *killer) killAll(t *testing.T, kills int) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(k.damage(ctx))
	var err error
	k.broken, err = k.everything(ctx)
	must(err)
	k.found = map[string]int{}

	// One that nobody kills, for how long it takes.
	begun := time.Now()
	child, err := k.child(ctx, "apply")
	must(err)
	k.begin = k.waitFor(t, begun, func() bool { return len(k.journal()) > 0 })
	done := 0
	k.waitFor(t, begun, func() bool {
		text := k.journal()
		if n := bytes.Count(text, []byte(`"event":"done"`)); n > done {
			done, k.steps = n, time.Since(begun)
		}
		return bytes.Contains(text, []byte(`"verified"`))
	})
	if err := child.Wait(); err != nil {
		t.Fatalf("%v: %s", err, child.Stderr)
	}
	k.whole = time.Since(begun)
	if done < 5 {
		t.Fatalf("a plan of %d steps", done)
	}
	k.restore(t)
	t.Logf("%d steps: begins after %v, done after %v, over after %v", done, k.begin, k.steps, k.whole)
	for i := range kills {
		k.kill(t, i)
		if t.Failed() {
			return
		}
		if i%10 == 9 {
			t.Logf("killed %d times", i+1)
		}
	}
	t.Logf("killed %d times: %v", kills, k.found)
}

// waitFor waits until something is so, and says how long that took since the beginning.
func (k *killer) waitFor(t *testing.T, begun time.Time, so func() bool) time.Duration {
	t.Helper()
	for !so() {
		if time.Since(begun) > 3*time.Minute {
			t.Fatal("the run does not come to an end")
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(begun)
}

// journal is the newest journal that was not taken back, empty where there is none.
func (k *killer) journal() []byte {
	all, _ := filepath.Glob(filepath.Join(k.journals, "*.journal"))
	if len(all) == 0 {
		return nil
	}
	text, _ := os.ReadFile(all[len(all)-1])
	if bytes.Contains(text, []byte(`"rolled"`)) {
		return nil
	}
	return text
}

// kill kills one run, or one that takes a run back, and puts the node back.
func (k *killer) kill(t *testing.T, i int) {
	t.Helper()
	ctx := t.Context()
	what := "apply"
	if i%4 == 3 {
		what = "rollback"
		r, _, err := k.look(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if run, _, err := k.apply(ctx, plan.Make(r, plan.Options{})); err != nil || run.State != report.RepairApplied {
			t.Fatalf("%v: %+v", err, run)
		}
	}
	begun := time.Now()
	child, err := k.child(ctx, what)
	if err != nil {
		t.Fatal(err)
	}
	var after time.Duration
	switch {
	case k.dice.IntN(4) > 0:
		// While steps are done or taken back, which does not take long.
		first := map[string]string{"apply": `"begin"`, "rollback": `"undo"`}[what]
		k.waitFor(t, begun, func() bool {
			text := k.journal()
			return bytes.Contains(text, []byte(first)) || what == "rollback" && text == nil
		})
		after = time.Duration(k.dice.Int64N(int64(k.steps - k.begin + 10*time.Millisecond)))
		if what == "rollback" {
			after *= 10 // the node is read between two steps
		}
	default:
		after = time.Duration(k.dice.Int64N(int64(k.whole)))
	}
	time.Sleep(after)
	if err := child.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	ended := child.Wait()
	left := k.journal()
	how := what + " " + killedAt(left)
	if ended == nil {
		how = what + " had ended"
	}
	k.found[how]++
	k.restore(t)
	if t.Failed() {
		t.Logf("kill %d, of %s, %v after the beginning; its journal:\n%s", i, how, after, events(left))
	}
}

// killedAt is the last event of a journal, in a word.
func killedAt(journal []byte) string {
	lines := bytes.Split(bytes.TrimSpace(journal), []byte("\n"))
	if len(journal) == 0 {
		return "before any step"
	}
	_, event, ok := bytes.Cut(lines[len(lines)-1], []byte(`{"event":"`))
	if !ok || len(lines) == 1 {
		return "before any step"
	}
	name, _, _ := bytes.Cut(event, []byte(`"`))
	return "at " + string(name)
}

// events are the lines of a journal but the first, which is long.
func events(journal []byte) string {
	_, rest, _ := bytes.Cut(journal, []byte("\n"))
	return string(rest)
}

// restore takes back what there is to take back, and sees that the node is as it was.
func (k *killer) restore(t *testing.T) {
	t.Helper()
	run, err := k.rollBack(t.Context(), "")
	var refused *apply.Refusal
	switch {
	case errors.As(err, &refused) && strings.Contains(err.Error(), "there is no run"):
	case err != nil:
		t.Errorf("take back: %v: %+v", err, run)
	case run.State != report.RepairRolledBack || slices.ContainsFunc(run.Steps, func(s report.RepairRunStep) bool { return s.State == "kept" }):
		t.Errorf("take back: %s: %s: %+v", run.State, run.Summary.Text, run.Steps)
	}
	now, err := k.everything(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(k.broken, now); d != "" {
		t.Errorf("the node is not as before (-before +now):\n%s", d)
	}
	if all, err := filepath.Glob(filepath.Join(k.journals, "*.journal")); err == nil {
		for _, f := range all {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// childFlag tells the test binary what to do as a process of its own: WHAT NODE FOLDER.
const childFlag = "SVCNET_REPAIR_CHILD"

// child starts a process in the node's network namespace.
func (k *killer) child(ctx context.Context, what string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestRepairChild$", "-test.timeout=5m")
	cmd.Env = append(k.n1.Env(), childFlag+"="+strings.Join([]string{what, k.n1.Name, k.journals}, " "))
	cmd.Stderr, cmd.Stdout = &bytes.Buffer{}, nil
	return cmd, k.n1.Netns().Do(cmd.Start)
}

// TestRepairChild is the process that TestRepairKilled kills.
func TestRepairChild(t *testing.T) {
	words := strings.Fields(os.Getenv(childFlag))
	if len(words) != 3 {
		return
	}
	what, node, folder := words[0], words[1], words[2]
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(ctx context.Context) (*explain.Reading, error) {
		s, err := collectors.Collect(ctx, collectors.Options{Node: node, API: &collectors.API{Config: config, From: "the lab's kubeconfig"}, Silent: true})
		if err != nil {
			return nil, err
		}
		return explain.Read(s, explain.AuditOptions{})
	}
	o := apply.Options{Folder: folder, Consents: consents, Read: read}
	var run *report.RepairRun
	if what == "apply" {
		r, failed := read(t.Context())
		if failed != nil {
			t.Fatal(failed)
		}
		run, err = apply.Apply(t.Context(), plan.Make(r, plan.Options{}), o)
	} else {
		run, err = apply.RollBack(t.Context(), "", o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v: %+v\n", err, run)
		t.Fatal(err)
	}
	if run.State != report.RepairApplied && run.State != report.RepairRolledBack {
		fmt.Fprintf(os.Stderr, "%+v\n", run)
		t.Fatal(run.State)
	}
}
