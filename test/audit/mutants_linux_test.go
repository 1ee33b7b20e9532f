package audit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// sampleMutants is how many changes CI makes to the nodes of one table: all hunts together take less than four minutes.
const sampleMutants = 36

// mutantSeed begins the dice of every mutant, with its number. SVCNET_MUTANT_SEED replaces it.
const mutantSeed = 20261129

// A quarry is a node on which changes are made. Each has numbers of its own, so that a change of one hunt leaves the
// mutants of the others as they are.
type quarry struct {
	name          string
	mode          string
	backend       lab.Backend
	plane         func(t *testing.T, m *maker) plane
	first, stride int
	// table is where its mutants are counted.
	table string
}

var quarries = []quarry{
	{"nft", "iptables", lab.NFT, newXTables, 0, 2, "iptables mode"},
	{"legacy", "iptables", lab.Legacy, newXTables, 1, 2, "iptables mode"},
	{"nftables", "nftables", lab.NFT, newNFTables, 1_000_000, 1, "nftables mode"},
}

// TestMutants makes one change at a time to a node whose kube-proxy is stopped, sees by packets whether it matters,
// and audits: every change that matters is found where it is, and none that does not matter is an error.
//
// SVCNET_MUTANTS says how many changes are made: half of it in each hunt, so that it is the number for the two of
// iptables mode together. SVCNET_MUTANT=N,N makes those alone, as they are printed.
func TestMutants(t *testing.T) {
	var tables []*table
	for i, q := range quarries {
		numbers := q.numbers(t, sampleMutants)
		if len(numbers) == 0 {
			continue
		}
		t.Run(q.name, func(t *testing.T) {
			at := slices.IndexFunc(tables, func(b *table) bool { return b.name == q.table })
			if at < 0 {
				at = len(tables)
				tables = append(tables, &table{name: q.table, scores: map[string]*score{}})
			}
			q.hunt(t, q.bring(t, fmt.Sprintf("m%c%d", 'a'+i, os.Getpid())), numbers, tables[at])
		})
	}
	for _, b := range tables {
		t.Log(b)
	}
}

// numbers are those of the mutants to make.
func (q *quarry) numbers(t *testing.T, sample int) []int {
	t.Helper()
	only := strings.FieldsFunc(os.Getenv("SVCNET_MUTANT"), func(r rune) bool { return r == ',' || r == ' ' })
	var out []int
	for i := range (setting(t, "SVCNET_MUTANTS", sample) + 1) / 2 {
		if n := q.first + i*q.stride; len(only) == 0 || slices.Contains(only, strconv.Itoa(n)) {
			out = append(out, n)
		}
	}
	return out
}

// bring brings the lab up.
func (q *quarry) bring(t *testing.T, name string) *lab.Lab {
	t.Helper()
	return labtest.Bring(t, lab.Options{
		Name: name, Mode: q.mode, Backend: q.backend, NoProxy: true,
		// kubeadm writes it too, and so that nobody set it is known.
		ProxyConfig: func(_ string, config map[string]any) {
			config["nodePortAddresses"] = nil
			if q.mode == "ipvs" {
				// In a guest a sync may take longer than the half minute that is between two.
				lab.Section(config, "ipvs")["syncPeriod"] = "10m"
			}
		},
	})
}

// hunt makes the mutants on a lab and counts them in the table.
func (q *quarry) hunt(t *testing.T, l *lab.Lab, numbers []int, in *table) *hunt {
	t.Helper()
	seed := setting(t, "SVCNET_MUTANT_SEED", mutantSeed)
	h := newHunt(t, l, q.plane)
	in.kinds = h.kinds()
	begun := time.Now()
	made := 0
	for _, n := range numbers {
		u := h.mutant(uint64(seed), n, (n-q.first)/q.stride)
		if u == nil {
			continue
		}
		made++
		if err := h.try(t, n, u, in.of(u.kind)); err != nil {
			t.Fatalf("mutant %d of seed %d, %s: %s: %v", n, seed, u.kind, u.what, err)
		}
	}
	took := time.Since(begun)
	each := func(d time.Duration) time.Duration {
		return (d / time.Duration(max(1, made))).Round(time.Millisecond)
	}
	t.Logf("%d mutants in %v, %v each: %v auditing, %v connecting", made, took.Round(time.Second), each(took), each(h.audited), each(h.looked-h.audited))
	return h
}

// a score counts the mutants of one kind.
type score struct{ moved, caught, unnamed, missed, still, false int }

// a table holds the scores of the hunts in which the same kinds of changes are made.
type table struct {
	name   string
	kinds  []kind
	scores map[string]*score
}

func (b *table) of(kind string) *score {
	if b.scores[kind] == nil {
		b.scores[kind] = &score{}
	}
	return b.scores[kind]
}

func (b *table) String() string {
	var out strings.Builder
	line := func(name string, s score) {
		fmt.Fprintf(&out, "%-26s %7d %7d %8d %7d %7d %7d\n", name, s.moved, s.caught, s.unnamed, s.missed, s.still, s.false)
	}
	fmt.Fprintf(&out, "\n%-26s %7s %7s %8s %7s %7s %7s\n", b.name, "matters", "caught", "unnamed", "missed", "none", "false")
	var all score
	for _, k := range b.kinds {
		s := b.scores[k.name]
		if s == nil {
			continue
		}
		line(k.name, *s)
		all.moved, all.caught, all.unnamed, all.missed = all.moved+s.moved, all.caught+s.caught, all.unnamed+s.unnamed, all.missed+s.missed
		all.still, all.false = all.still+s.still, all.false+s.false
	}
	line("all", all)
	return out.String()
}

// a hunt is the test under way on one node.
type hunt struct {
	*maker
	plane
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

func newHunt(t *testing.T, l *lab.Lab, of func(t *testing.T, m *maker) plane) *hunt {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	h := &hunt{maker: &maker{stage: set(t, l)}, base: map[string]bool{}, shares: map[string]map[string]float64{}}
	h.plane = of(t, h.maker)
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
	keep(t, "before", snap)
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

// mutant makes number n, which is the i-th of the hunt. Dice of its own make it the same whichever others are made.
func (h *hunt) mutant(seed uint64, n, i int) *mutant {
	of := h.kinds()
	k := of[i%len(of)]
	h.dice = rand.New(rand.NewPCG(seed, uint64(n)))
	for range 50 {
		if u := k.make(); u != nil {
			u.kind = k.name
			return u
		}
	}
	return nil
}

// surroundings are the node's rules, routes and sysctls, to see that they are as before.
func (h *hunt) surroundings(ctx context.Context) (string, error) {
	rules, err := h.rules(ctx)
	if err != nil {
		return "", err
	}
	// sysctl would read all there are, which takes its time in a guest.
	rest, err := h.n1.Netns().Run(ctx, "", "sh", "-c",
		"ip rule; ip -6 rule; { ip route show table all; ip -6 route show table all; } | sed 's/ expires [0-9]*sec//' | sort; cd /proc/sys/net; "+
			"grep -sH . ipv4/ip_forward ipv4/vs/* ipv[46]/conf/*/forwarding ipv[46]/conf/*/rp_filter ipv[46]/conf/*/route_localnet bridge/*; :")
	return rules + rest, err
}

// try makes a change, looks, judges and takes the change back.
func (h *hunt) try(t *testing.T, n int, u *mutant, s *score) error {
	ctx := t.Context()
	if err := u.do(ctx); err != nil {
		return err
	}
	begun := time.Now()
	v, err := h.look(ctx, u)
	h.looked += time.Since(begun)
	if err == nil {
		err = h.takeBack(ctx, u)
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
		keep(t, fmt.Sprintf("mutant-%d", n), v.snap)
	}
	return nil
}

// takeBack undoes a change and checks that the node is as before.
func (h *hunt) takeBack(ctx context.Context, u *mutant) error {
	if err := u.undo(ctx); err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	now, err := h.surroundings(ctx)
	if err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	if d := cmp.Diff(h.state, now); d != "" {
		return fmt.Errorf("undo: the node is not as before (-before +now):\n%s", d)
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
	snap     *snapshot.Snapshot
}

// look audits and connects.
func (h *hunt) look(ctx context.Context, u *mutant) (*view, error) {
	v := &view{mutant: u, services: map[string]bool{}}
	begun := time.Now()
	a, snap, err := h.reader.audit(ctx)
	if err != nil {
		return nil, err
	}
	v.snap = snap
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
	if u.certain {
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
		if f.Object.Kind == "Service" && f.Object.Namespace != namespace {
			continue // nobody dials it
		}
		if !grave(f) || slices.Contains(v.hazards, f.ID) || strings.Contains(f.Message, ", provided that ") {
			continue // what rests on a condition is not said of this moment
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
		right := f.Object.Kind == "Service" && v.services[f.Object.Name] || f.Object.Kind != "Service" && (len(v.about) == 0 || v.nameless)
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
		return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, p) || shortened(t, p) })
	})
}

// shortened tells whether a text is a rule of which only the chosen entries of a map are shown: "… map { 1 : X, … }".
func shortened(text, rule string) bool {
	head, shown, ok := strings.Cut(strings.TrimSuffix(text, ", … }"), "map { ")
	return ok && strings.HasSuffix(text, ", … }") && strings.HasPrefix(rule, head+"map { ") && strings.Contains(rule, shown)
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
		if i < 5 {
			text += fmt.Sprintf("\n           %s:%d %.200s", e.File, e.Line, e.Text)
		}
	}
	return text
}
