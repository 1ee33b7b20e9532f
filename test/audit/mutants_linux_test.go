package audit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// sampleMutants is how many changes CI makes, on both backends together: less than four minutes.
const sampleMutants = 40

// mutantSeed begins the dice of every mutant, with its number. SVCNET_MUTANT_SEED replaces it.
const mutantSeed = 20261129

// TestMutants makes one change at a time to a node whose kube-proxy is stopped, sees by packets whether it matters,
// and audits: every change that matters is found where it is, and none that does not matter is an error.
//
// SVCNET_MUTANTS says how many changes are made; SVCNET_MUTANT=N makes that one alone, as it is printed.
func TestMutants(t *testing.T) {
	count, seed, only := setting(t, "SVCNET_MUTANTS", sampleMutants), setting(t, "SVCNET_MUTANT_SEED", mutantSeed), setting(t, "SVCNET_MUTANT", -1)
	scores := map[string]*score{}
	for i, backend := range []lab.Backend{lab.NFT, lab.Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			h := newHunt(t, labtest.Bring(t, lab.Options{Name: fmt.Sprintf("m%s%d", backend[:1], os.Getpid()), Backend: backend, NoProxy: true}))
			begun := time.Now()
			made := 0
			for n := i; n < count; n += 2 {
				if only >= 0 && n != only {
					continue
				}
				u := h.mutant(uint64(seed), n)
				if u == nil {
					continue
				}
				made++
				if scores[u.kind] == nil {
					scores[u.kind] = &score{}
				}
				if err := h.try(t, n, u, scores[u.kind]); err != nil {
					t.Fatalf("mutant %d of seed %d, %s: %s: %v", n, seed, u.kind, u.what, err)
				}
			}
			took := time.Since(begun)
			each := func(d time.Duration) time.Duration {
				return (d / time.Duration(max(1, made))).Round(time.Millisecond)
			}
			t.Logf("%d mutants in %v, %v each: %v auditing, %v connecting", made, took.Round(time.Second), each(took), each(h.audited), each(h.looked-h.audited))
		})
	}
	table(t, scores)
}

// a score counts the mutants of one kind.
type score struct{ moved, caught, unnamed, missed, still, false int }

func table(t *testing.T, scores map[string]*score) {
	t.Helper()
	var b strings.Builder
	line := func(name string, s score) {
		fmt.Fprintf(&b, "%-22s %7d %7d %8d %7d %7d %7d\n", name, s.moved, s.caught, s.unnamed, s.missed, s.still, s.false)
	}
	fmt.Fprintf(&b, "\n%-22s %7s %7s %8s %7s %7s %7s\n", "kind", "matters", "caught", "unnamed", "missed", "none", "false")
	var all score
	for _, k := range kinds {
		s := scores[k.name]
		if s == nil {
			continue
		}
		line(k.name, *s)
		all.moved, all.caught, all.unnamed, all.missed = all.moved+s.moved, all.caught+s.caught, all.unnamed+s.unnamed, all.missed+s.missed
		all.still, all.false = all.still+s.still, all.false+s.false
	}
	line("all", all)
	t.Log(b.String())
}

// a hunt is the test under way on one node.
type hunt struct {
	*maker
	reader *reader
	cells  []*cell
	// base are findings on the node as it should be, shares what the walk says there.
	base map[string]bool
	// unknown are checks that are not answered there, because kube-proxy is not asked.
	unknown map[string]bool
	shares  map[string]map[string]float64
	state   string
	// looked and audited are how long all looking took, and what of that the audits.
	looked, audited time.Duration
}

func newHunt(t *testing.T, l *lab.Lab) *hunt {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	h := &hunt{maker: &maker{stage: set(t, l), clean: map[int]*ruleText{}, owner: map[int]map[string]string{}}, base: map[string]bool{}, shares: map[string]map[string]float64{}}
	must(h.n1.SignalProxy(syscall.SIGSTOP))
	for family, program := range map[int]string{4: "iptables", 6: "ip6tables"} {
		text, err := h.n1.Run(ctx, "", program+"-save")
		must(err)
		r := parseRules(text)
		r.table("raw") // so that restoring empties it
		h.clean[family], h.owner[family] = r, r.owners()
		must(h.load(ctx, family, r))
	}
	reader, err := newReader(l, h.n1)
	must(err)
	h.reader = reader
	h.reader.silent = true
	h.cells = h.stage.cells()
	unsteady, err := h.learn(ctx, h.cells)
	must(err)
	for _, c := range unsteady {
		t.Logf("left out, because it changes by itself: %s: %s", c, c.unsteady)
	}
	if len(unsteady) > len(h.cells)/20 {
		t.Fatalf("%d of %d cells change by themselves", len(unsteady), len(h.cells))
	}
	h.cells = slices.DeleteFunc(h.cells, func(c *cell) bool { return c.unsteady != "" })
	a, snap, err := h.reader.audit(ctx)
	must(err)
	h.unknown = map[string]bool{}
	for _, x := range a.Unknown {
		h.unknown[x.ID] = true
	}
	for i := range a.Findings {
		f := &a.Findings[i]
		h.base[idOf(f)] = true
		if f.Severity != "info" {
			t.Logf("before any change: %s", line(f))
		}
	}
	for _, a := range h.acts {
		h.shares[a.svc.Name], err = sharesOf(snap, a.svc.Name)
		must(err)
	}
	h.state, err = h.surroundings(ctx)
	must(err)
	fates := 0
	for _, c := range h.cells {
		fates += len(c.fates)
	}
	t.Logf("%d Services, %d cells, %d fates", len(h.acts), len(h.cells), fates)
	return h
}

// mutant makes the n-th. Dice of its own make it the same whichever others are made.
func (h *hunt) mutant(seed uint64, n int) *mutant {
	k := kinds[n/2%len(kinds)]
	h.dice = rand.New(rand.NewPCG(seed, uint64(n)))
	for range 50 {
		if u := k.make(h.maker); u != nil {
			u.kind = k.name
			return u
		}
	}
	return nil
}

func (h *hunt) load(ctx context.Context, family int, r *ruleText) error {
	program := map[int]string{4: "iptables-restore", 6: "ip6tables-restore"}[family]
	_, err := h.n1.Run(ctx, r.String(), program, "-w")
	return err
}

// surroundings are the node's routes and sysctls, to see that they are as before.
func (h *hunt) surroundings(ctx context.Context) (string, error) {
	return h.n1.Netns().Run(ctx, "", "sh", "-c",
		"ip rule; ip -6 rule; ip route show table all; ip -6 route show table all | sed 's/ expires [0-9]*sec//'; sysctl -a 2>/dev/null | grep -E '^net.(ipv4.ip_forward |ipv[46].conf.*(forwarding|rp_filter|route_localnet)|bridge)'")
}

// try makes a change, looks, judges and takes the change back.
func (h *hunt) try(t *testing.T, n int, u *mutant, s *score) error {
	ctx := t.Context()
	do := u.do
	if u.rules != nil {
		do = func(ctx context.Context) error { return h.load(ctx, u.family, u.rules) }
	}
	if err := do(ctx); err != nil {
		return err
	}
	begun := time.Now()
	v, err := h.look(ctx, u)
	h.looked += time.Since(begun)
	if err == nil {
		err = h.restore(ctx, u)
	}
	if err != nil {
		return err
	}
	v.judge(s)
	if took := time.Since(begun); took > 10*time.Second {
		t.Logf("mutant %d, %s, took %v: %s", n, u.kind, took.Round(time.Second), u.what)
	}
	if v.wrong != "" {
		t.Errorf("mutant %d, %s: %s\n%s", n, u.kind, u.what, v)
	}
	return nil
}

// restore takes a change back and checks that the node is as before.
func (h *hunt) restore(ctx context.Context, u *mutant) error {
	if u.rules == nil {
		if err := u.undo(ctx); err != nil {
			return fmt.Errorf("undo: %w", err)
		}
		now, err := h.surroundings(ctx)
		if err != nil || now != h.state {
			return fmt.Errorf("undo: the node is not as before: %w\n%s\n--- was\n%s", err, now, h.state)
		}
		return h.forgetFlows(ctx)
	}
	if err := h.load(ctx, u.family, h.clean[u.family]); err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	text, err := h.n1.Run(ctx, "", map[int]string{4: "iptables-save", 6: "ip6tables-save"}[u.family])
	if err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	now := parseRules(text)
	now.table("raw")
	if now.canonical() != h.clean[u.family].canonical() {
		return fmt.Errorf("undo: the rules are not as before:\n%s", text)
	}
	return h.forgetFlows(ctx)
}

// a view is what was seen of a mutant.
type view struct {
	*mutant
	moves    []move
	shares   []string // that differ by the walk
	services map[string]bool
	fresh    []report.Finding
	unknown  []string // checks that were answered on the node as it should be
	wrong    string
}

// look audits and connects.
func (h *hunt) look(ctx context.Context, u *mutant) (*view, error) {
	v := &view{mutant: u, services: map[string]bool{}}
	begun := time.Now()
	a, snap, err := h.reader.audit(ctx)
	if err != nil {
		return nil, err
	}
	h.audited += time.Since(begun)
	for i := range a.Findings {
		if f := &a.Findings[i]; !h.base[idOf(f)] && f.Severity != "info" {
			v.fresh = append(v.fresh, *f)
		}
	}
	for _, x := range a.Unknown {
		if !h.unknown[x.ID] {
			v.unknown = append(v.unknown, x.ID+": "+x.Text)
		}
	}
	if u.byObjects {
		for _, name := range u.about {
			v.services[name] = true
		}
		return v, nil
	}
	if u.flow != nil {
		a, err := h.Dial(ctx, u.flow.from, corev1.ProtocolUDP, u.flow.to, lab.DialOptions{SourceIP: u.flow.source.Addr(), SourcePort: int(u.flow.source.Port()), Timeout: quick})
		if err != nil {
			return nil, err
		}
		if a.Outcome != lab.Answered {
			v.moves = append(v.moves, move{&cell{service: u.flow.service, class: "one flow", to: u.flow.to, from: u.flow.from}, a.String()})
		}
	}
	near := func(c *cell) bool {
		return (u.family == 0 || c.to.Addr().Is6() == (u.family == 6)) && (len(u.about) == 0 || slices.Contains(u.about, c.service))
	}
	if err := h.connect(ctx, v, near); err != nil {
		return nil, err
	}
	if u.byWalk {
		for _, name := range u.about {
			if err := h.weigh(v, snap, name); err != nil {
				return nil, err
			}
		}
	}
	// Errors about Services that were not seen to move: these are looked at closely before they count as false.
	suspects := map[string]bool{}
	for i := range v.fresh {
		if f := &v.fresh[i]; grave(f) && f.Object.Kind == "Service" && !v.services[f.Object.Name] && !slices.Contains(u.hazards, f.ID) {
			suspects[f.Object.Name] = true
		}
	}
	if len(suspects) == 0 {
		return v, nil
	}
	if err := h.connect(ctx, v, func(c *cell) bool { return suspects[c.service] }); err != nil {
		return nil, err
	}
	v.moves = slices.CompactFunc(v.moves, func(a, b move) bool { return a.cell == b.cell })
	return v, nil
}

func (h *hunt) connect(ctx context.Context, v *view, near func(c *cell) bool) error {
	moves, err := h.moved(ctx, h.cells, near, h.dice)
	v.moves = append(v.moves, moves...)
	for _, m := range v.moves {
		v.services[m.cell.service] = true
	}
	return err
}

// weigh compares shares by the walk with those before.
func (h *hunt) weigh(v *view, snap *snapshot.Snapshot, service string) error {
	now, err := sharesOf(snap, service)
	if err != nil {
		return err
	}
	for key, was := range h.shares[service] {
		if d := math.Abs(now[key] - was); d > 0.02 {
			v.shares = append(v.shares, fmt.Sprintf("%s: %.3f was %.3f", key, now[key], was))
			v.services[service] = true
		}
	}
	slices.Sort(v.shares)
	return nil
}

// sharesOf are the shares of backends in the cells of a Service by the program's walk.
func sharesOf(s *snapshot.Snapshot, service string) (map[string]float64, error) {
	trace, err := explain.Trace(s, explain.TraceOptions{Namespace: namespace, Service: service})
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, p := range trace.Paths {
		for _, b := range p.Backends {
			key := fmt.Sprintf("%s %s from %s to %s", p.Frontend.Kind, p.Frontend.Address, p.SourceClass, b.Address)
			out[key] += b.Probability
		}
	}
	return out, nil
}

func idOf(f *report.Finding) string {
	return fmt.Sprint(f.ID, f.Object, f.Subject)
}

func grave(f *report.Finding) bool { return f.Severity == "error" || f.Severity == "critical" }

// judge says what is wrong with what was found.
func (v *view) judge(s *score) {
	var beside []string
	for i := range v.fresh {
		f := &v.fresh[i]
		if !grave(f) || slices.Contains(v.hazards, f.ID) {
			continue
		}
		if len(v.services) == 0 || f.Object.Kind == "Service" && f.Object.Namespace == namespace && !v.services[f.Object.Name] {
			beside = append(beside, f.ID)
		}
	}
	if len(v.services) == 0 {
		s.still++
		if len(beside) > 0 {
			s.false++
			v.wrong = "FALSE: nothing moves"
		}
		return
	}
	s.moved++
	found, named := false, false
	for i := range v.fresh {
		f := &v.fresh[i]
		right := f.Object.Kind == "Service" && v.services[f.Object.Name] || f.Object.Kind != "Service" && len(v.about) == 0
		if right {
			found = true
			named = named || v.names(f)
		}
	}
	switch {
	case !found:
		s.missed++
		v.wrong = "MISSED"
	case !named:
		s.unnamed++
		v.wrong = "UNNAMED: no finding names the place"
	default:
		s.caught++
	}
	if len(beside) > 0 {
		s.false++
		v.wrong += " FALSE BESIDE: " + strings.Join(beside, ", ")
	}
}

// names tells whether a finding names the place of the change.
func (v *view) names(f *report.Finding) bool {
	if len(v.places) == 0 {
		return true
	}
	texts := []string{f.Subject}
	for _, e := range f.Evidence {
		texts = append(texts, withoutComment(e.Text))
	}
	return slices.ContainsFunc(v.places, func(p string) bool {
		return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, p) })
	})
}

func (v *view) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", v.wrong)
	few := func(what string, lines []string) {
		if n := len(lines); n > 6 {
			lines = append(slices.Clone(lines[:6]), fmt.Sprintf("and %d more", n-6))
		}
		for _, l := range lines {
			fmt.Fprintf(&b, "  %s %s\n", what, l)
		}
	}
	var moves, found []string
	for _, m := range v.moves {
		moves = append(moves, m.String())
	}
	for i := range v.fresh {
		found = append(found, line(&v.fresh[i]))
	}
	few("unknown:", v.unknown)
	few("moved:", moves)
	few("share:", v.shares)
	few("found:", found)
	if len(v.places) > 0 {
		fmt.Fprintf(&b, "  place: %s\n", strings.Join(v.places, " or "))
	}
	return b.String()
}

// line is a finding in one line, and its evidence.
func line(f *report.Finding) string {
	text := fmt.Sprintf("%s %s, %s %s/%s, subject %q: %s", f.Severity, f.ID, f.Object.Kind, f.Object.Namespace, f.Object.Name, f.Subject, f.Message)
	for i, e := range f.Evidence {
		if i < 3 {
			text += fmt.Sprintf("\n           %s:%d %.200s", e.File, e.Line, e.Text)
		}
	}
	return text
}
