package apply

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/plan"
)

func states(r *report.RepairRun) string {
	var out []string
	for _, s := range r.Steps {
		out = append(out, s.Kind+" "+s.State)
	}
	return strings.Join(out, ", ")
}

// TestApply applies the plan of the machine and takes it back.
func TestApply(t *testing.T) {
	m, folder := newMachine(t), t.TempDir()
	before := m.state()
	p := m.plan(t)
	run, err := Apply(t.Context(), p, m.options(t, folder))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := states(run), "advice not-done, sysctl done, iptables done"; got != want || run.State != report.RepairApplied {
		t.Errorf("steps: %s, want %s; %s: %s", got, want, run.State, run.Summary.Text)
	}
	for _, id := range []string{"ip-forward-off", "missing-endpoint-rule", "stale-endpoint-rule"} {
		if !slices.ContainsFunc(run.Mended, func(f report.Finding) bool { return f.ID == id }) {
			t.Errorf("%s is not mended: %s", id, run.Summary.Text)
		}
	}
	// What is seen only now that packets get further is no failure.
	if slices.ContainsFunc(run.New, func(f report.Finding) bool { return f.Severity != "info" }) {
		t.Errorf("new: %v", run.New)
	}
	runs, err := Runs(m.options(t, folder))
	if err != nil || len(runs.Items) != 1 || runs.Items[0].ID != run.ID || runs.Items[0].State != report.RepairApplied {
		t.Fatalf("%v %+v", err, runs.Items)
	}

	back, err := RollBack(t.Context(), "", m.options(t, folder))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := states(back), "sysctl undone, iptables undone"; got != want || back.State != report.RepairRolledBack {
		t.Errorf("steps: %s, want %s; %s: %s", got, want, back.State, back.Summary.Text)
	}
	if d := cmp.Diff(before, m.state()); d != "" {
		t.Errorf("taken back, -before +now:\n%s", d)
	}
	if _, err := RollBack(t.Context(), "", m.options(t, folder)); err == nil {
		t.Error("there is nothing left to take back, and no error")
	}
	if _, err := RollBack(t.Context(), run.ID, m.options(t, folder)); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("taken back twice: %v", err)
	}
}

// TestRefuses: what is not right before the first write leaves everything as it was.
func TestRefuses(t *testing.T) {
	tests := []struct {
		name string
		set  func(t *testing.T, m *machine, o *Options)
		want string
	}{
		{"the node changed", func(_ *testing.T, m *machine, _ *Options) { m.sysctls["net.ipv4.ip_forward"] = "1" }, "the node changed since the plan was made, and so would the plan: not needed any more: set net.ipv4.ip_forward to 1"},
		{"no program", func(_ *testing.T, m *machine, _ *Options) { m.lacks = "iptables-nft-restore" }, "no such program"},
		{"cannot look", func(_ *testing.T, _ *machine, o *Options) {
			o.Read = func(context.Context) (*explain.Reading, error) { return nil, errors.New("no answer") }
		}, "read the node again before writing: no answer"},
		{"a folder that is a file", func(t *testing.T, _ *machine, o *Options) {
			o.Folder = filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(o.Folder, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "make the folder of journals"},
		{"a journal of another format", func(t *testing.T, _ *machine, o *Options) {
			if err := os.WriteFile(filepath.Join(o.Folder, "20270101T000000Z-aaaaaaaaaaaa"+journalEnd), []byte("{\"format\":\"v9\"}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, `it is of format "v9"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			o := m.options(t, t.TempDir())
			p := m.plan(t)
			tt.set(t, m, &o)
			before := m.state()
			run, err := Apply(t.Context(), p, o)
			var refused *Refusal
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if run.State != report.RepairNotApplied || run.ID != "" || len(m.ran) > 0 || m.state() != before {
				t.Errorf("%s, ran %v", run.State, m.ran)
			}
		})
	}
}

// TestConsent: a step that needs one is not done without it, and the others are.
func TestConsent(t *testing.T) {
	m := newMachine(t)
	p := m.plan(t)
	p.Steps[2].Consent = plan.AllowForeign
	todo, refused := Todo(p, nil)
	if len(todo) != 1 || len(refused) != 1 {
		t.Fatalf("%d to do, %d refused", len(todo), len(refused))
	}
	if todo, refused = Todo(p, []string{plan.AllowForeign}); len(todo) != 2 || len(refused) != 0 {
		t.Fatalf("with consent: %d to do, %d refused", len(todo), len(refused))
	}
	p.Steps = p.Steps[2:]
	run, err := Apply(t.Context(), p, m.options(t, t.TempDir()))
	if err != nil || run.State != report.RepairNotApplied || !strings.Contains(run.Summary.Text, plan.AllowForeign) || len(m.ran) > 0 {
		t.Errorf("%v %s: %s", err, run.State, run.Summary.Text)
	}
}

// TestTakesBack: what goes wrong, or makes things worse, is taken back by the run itself.
func TestTakesBack(t *testing.T) {
	flush := func(m *machine) {
		// What somebody else does at the same moment: the jump to kube-proxy's chains is gone.
		f := m.files["iptables-save.txt"]
		f.Data = []byte(strings.ReplaceAll(string(f.Data), `-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`, "# gone"))
	}
	tests := []struct {
		name string
		set  func(m *machine, cancel func())
		want string
		fail bool
	}{
		{"a command fails", func(m *machine, _ func()) {
			m.before = func(n int) error {
				if n == 2 {
					return errors.New("line 4 failed")
				}
				return nil
			}
		}, "line 4 failed", true},
		{"a command fails, and did it all the same", func(m *machine, _ func()) {
			m.meddle = func(n int) error {
				if n == 2 {
					return errors.New("it said so")
				}
				return nil
			}
		}, "it said so", true},
		{"worse", func(m *machine, _ func()) {
			m.meddle = func(n int) error {
				if n == 2 {
					flush(m)
				}
				return nil
			}
		}, "the node is worse than before", false},
		{"no effect", func(m *machine, _ func()) { m.lies = true }, "nothing of what it was for is mended", false},
		{"interrupted", func(m *machine, cancel func()) { m.meddle = func(int) error { cancel(); return nil } }, "interrupted", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, folder := newMachine(t), t.TempDir()
			p := m.plan(t)
			before := m.state()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tt.set(m, cancel)
			run, err := Apply(ctx, p, m.options(t, folder))
			if (err != nil) != tt.fail || !strings.Contains(run.Summary.Text, tt.want) {
				t.Errorf("error %v; %s", err, run.Summary.Text)
			}
			if run.State != report.RepairRolledBack && run.State != report.RepairNotApplied {
				t.Errorf("%s", run.State)
			}
			if tt.name == "worse" {
				before = strings.Replace(before, `OUTPUT:[ -A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES]`, "OUTPUT:[]", 1)
			}
			if d := cmp.Diff(before, m.state()); d != "" {
				t.Errorf("-before +now:\n%s", d)
			}
			if _, err := RollBack(t.Context(), "", m.options(t, folder)); err == nil || !strings.Contains(err.Error(), "no run") {
				t.Errorf("something is left to take back: %v", err)
			}
		})
	}
}

// TestLeavesAlone: what somebody wrote since a run is not taken back, unless it is forced.
func TestLeavesAlone(t *testing.T) {
	m, folder := newMachine(t), t.TempDir()
	before := m.state()
	run, err := Apply(t.Context(), m.plan(t), m.options(t, folder))
	if err != nil {
		t.Fatal(err)
	}
	f := m.files["iptables-save.txt"]
	f.Data = []byte(strings.Replace(string(f.Data), "--probability 0.33333333349", "--probability 0.20000000019", 1))
	back, err := RollBack(t.Context(), run.ID, m.options(t, folder))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := states(back), "sysctl undone, iptables kept"; got != want || !strings.Contains(back.Steps[1].Text, "changed since") {
		t.Errorf("%s, want %s: %s", got, want, back.Summary.Text)
	}
	o := m.options(t, folder)
	o.Force = true
	if back, err = RollBack(t.Context(), run.ID, o); err != nil || states(back) != "sysctl undone, iptables undone" {
		t.Errorf("forced: %v, %s", err, states(back))
	}
	if d := cmp.Diff(before, m.state()); d != "" {
		t.Errorf("-before +now:\n%s", d)
	}
}

// TestElsewhere: a run is taken back where it wrote, and not after a restart of the machine.
func TestElsewhere(t *testing.T) {
	m, folder := newMachine(t), t.TempDir()
	if _, err := Apply(t.Context(), m.plan(t), m.options(t, folder)); err != nil {
		t.Fatal(err)
	}
	m.boot = "second"
	if _, err := RollBack(t.Context(), "", m.options(t, folder)); err == nil || !strings.Contains(err.Error(), "before the machine started") {
		t.Errorf("after a restart: %v", err)
	}
}

// errKilled is what a machine panics with that is switched off.
var errKilled = errors.New("killed")

// TestKilled ends a run at every point where it does something, and takes it back.
func TestKilled(t *testing.T) {
	for _, after := range []bool{false, true} {
		for at := 1; at <= 2; at++ {
			m, folder := newMachine(t), t.TempDir()
			before := m.state()
			p := m.plan(t)
			die := func(n int) error {
				if n == at {
					panic(errKilled)
				}
				return nil
			}
			if m.before = die; after {
				m.before, m.meddle = nil, die
			}
			killed(t, func() { _, _ = Apply(t.Context(), p, m.options(t, folder)) })
			m.before, m.meddle = nil, nil

			// Nothing else is done before it is taken back.
			_, err := Apply(t.Context(), m.plan(t), m.options(t, folder))
			if all := after && at == 2; !all && (err == nil || !strings.Contains(err.Error(), "was interrupted")) {
				t.Errorf("killed at %d: another run: %v", at, err)
			}
			// The first attempt to take it back is killed too.
			n := len(m.ran)
			m.meddle = func(int) error { panic(errKilled) }
			killed(t, func() { _, _ = RollBack(t.Context(), "", m.options(t, folder)) })
			m.meddle = nil
			if len(m.ran) == n && (after || at > 1) {
				t.Errorf("killed at %d: nothing was taken back", at)
			}
			run, err := RollBack(t.Context(), "", m.options(t, folder))
			if err != nil && !strings.Contains(err.Error(), "no run") || err == nil && run.State != report.RepairRolledBack {
				t.Fatalf("killed at %d: %v", at, err)
			}
			if d := cmp.Diff(before, m.state()); d != "" {
				t.Errorf("killed at %d, after: %v: -before +now:\n%s", at, after, d)
			}
		}
	}
}

// killed runs f, which may end with errKilled at any time. Files that it has open are closed, as a kernel would.
func killed(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		r := recover()
		if err, ok := r.(error); r != nil && (!ok || !errors.Is(err, errKilled)) {
			panic(r)
		}
	}()
	f()
}

// TestJournalCutOff reads a journal of which any number of bytes is there.
func TestJournalCutOff(t *testing.T) {
	m, folder := newMachine(t), t.TempDir()
	run, err := Apply(t.Context(), m.plan(t), m.options(t, folder))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, run.ID+journalEnd)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head := bytes.IndexByte(whole, '\n') + 1
	events := 0
	for n := head; n <= len(whole); n++ {
		for _, tail := range []string{"", "\x00\x00\x00"} {
			if err := os.WriteFile(path, append(slices.Clone(whole[:n]), tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			j, err := open(path, true, m.options(t, folder).Now)
			if err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
			if got := bytes.Count(whole[:n], []byte{'\n'}) - 1; len(j.events) != got {
				t.Fatalf("%d bytes: %d events, want %d", n, len(j.events), got)
			}
			if err := j.add(eventKept, 1, "a test"); err != nil {
				t.Fatal(err)
			}
			j.close()
			if j, err = open(path, false, nil); err != nil || j.events[len(j.events)-1].Text != "a test" {
				t.Fatalf("%d bytes, and one event more: %v", n, err)
			}
			events = max(events, len(j.events))
		}
	}
	if events < 6 {
		t.Errorf("%d events", events)
	}
	// Of a header that is cut off nothing was done.
	for _, n := range []int{0, 1, head / 2, head - 1} {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := journals(folder, nil); err != nil || len(all) != 0 {
			t.Errorf("%d bytes of a header: %v, %d journals", n, err, len(all))
		}
	}
	// What is damaged in its middle is said to be.
	if err := os.WriteFile(path, bytes.Replace(whole, []byte(`{"event":"done"`), []byte(`{"event:"done"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := journals(folder, nil); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("damage: %v", err)
	}
}
