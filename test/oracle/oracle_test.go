//go:build linux

package oracle

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// The sample that runs by default. Each ruleset has a random source of its own, drawn from the seed and its number,
// so that a single one can be run again by SVCNET_ORACLE_ONLY.
const (
	defaultSeed     = 20240229
	defaultRulesets = 320
	packetsPerRules = 18
	maxUndecided    = 0.15
	minMet          = 20
	maxFailed       = 5
)

func setting(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// A trial is one ruleset with its packets.
type trial struct {
	name     string
	family   netfilter.Family
	rulesets []*ruleset
	variant  int
	traced   bool
	single   bool // packets go one at a time
	survey   bool // the rules test and do nothing; packets are of all protocols alike
	// reread, when not nil, gives the walk what packets have changed, where they go one at a time.
	reread func(w *netfilter.Walker) error
	shots  []shot
}

// trial draws trial number n.
func (l *lab) trial(g generator, seed, n int) *trial {
	r := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
	t := &trial{family: netfilter.IPv4, variant: r.IntN(len(variants)), traced: chance(r, 0.8)}
	if n%2 == 1 {
		t.family = netfilter.IPv6
	}
	backends := [][]netfilter.Backend{{netfilter.Legacy}, {netfilter.NFT}, {netfilter.Legacy}, {netfilter.NFT}, {netfilter.NFT, netfilter.Legacy}}[n/2%5]
	kind := r.IntN(20)
	for _, backend := range backends {
		rs := (*ruleset)(nil)
		switch {
		case kind < 3:
			t.name, rs = "services", serviceRules(r, t.family, backend)
		case kind < 4:
			t.name, g.open = "open", true
			rs = g.ruleset(r, t.family, backend)
			g.addOpen(r, rs)
		case kind < 6:
			t.name, g.recent, t.single = "recent", true, true
			rs = g.ruleset(r, t.family, backend)
			g.survey(r, rs, "recent")
		case kind < 9:
			t.name, t.survey, t.traced = "survey", true, true
			rs = empty(t.family, backend)
			g.survey(r, rs, "")
		default:
			t.name, rs = "random", g.ruleset(r, t.family, backend)
		}
		t.rulesets = append(t.rulesets, rs)
	}
	t.name = fmt.Sprintf("%d/%s/IPv%d/%v/%s", n, t.name, t.family, backends, variants[t.variant].name)
	taken := make(map[uint16]bool)
	portless := make(map[[2]netip.Addr]bool)
	for range packetsPerRules {
		s := l.shot(r, t.family, taken)
		if t.survey {
			s = s.of(pick(r, protocolsOf(t.family)))
			if s.proto == netfilter.ProtoUDP && s.entry >= 0 && chance(r, 0.5) {
				s.dst, s.dport = pools[t.family].node[0], 53 // a socket listens there
			}
		}
		t.shots = append(t.shots, s.apart(portless, t.survey))
	}
	return t
}

// apart is the shot, with another protocol where it could not be told from one before. Connection tracking sees no ports
// in DCCP and in protocols that it does not know: a second packet between the same addresses is of the same connection,
// and so may be one that is translated to them. often lets in more than one of these.
func (s shot) apart(portless map[[2]netip.Addr]bool, often bool) shot {
	if s.proto != netfilter.ProtoDCCP && s.proto != protoOther {
		return s
	}
	pair := [2]netip.Addr{s.src, s.dst}
	if s.dst.Less(s.src) {
		pair = [2]netip.Addr{s.dst, s.src}
	}
	if portless[pair] || !often && len(portless) > 0 {
		return s.of(netfilter.ProtoTCP)
	}
	portless[pair] = true
	return s
}

// A result is what a trial came to.
type result struct {
	verdicts []verdict
	obs      []*observation
	counted  []*netfilter.Ruleset // the rules with their counters after the packets
	answers  []map[string]*[4]int
	replies  []replied
}

// refresh gives the walk what the packets so far have changed.
func (l *lab) refresh(w *netfilter.Walker, t *trial) (err error) {
	if t.reread != nil {
		return t.reread(w)
	}
	w.Kernel.Recent, err = l.recentLists()
	return err
}

// run loads the rules of a trial, sends its packets and compares.
func (l *lab) run(t *trial) (*result, error) {
	if err := l.use(t.variant); err != nil {
		return nil, err
	}
	saved, err := l.load(t.family, t.traced, t.rulesets...)
	if err != nil {
		return nil, err
	}
	w, err := l.walker(t.family, saved)
	if err != nil {
		return nil, err
	}
	answers := watch(w.Rulesets)
	res := &result{}
	walk := func(s shot, o *observation) {
		clear(answers)
		entry, p := s.packet()
		endings := w.Walk(entry, p)
		branched := len(t.rulesets) > 1 // the order of the two backends is not known
		mine := make(map[string]*[4]int)
		for name, n := range answers {
			copied := *n
			mine[name] = &copied
			branched = branched || n[netfilter.Random]+n[netfilter.Undecided] > 0
		}
		res.answers = append(res.answers, mine)
		res.verdicts = append(res.verdicts, compare(endings, o, t.traced, branched || t.single))
		res.obs = append(res.obs, o)
	}
	if t.single {
		for _, s := range t.shots {
			if err := l.refresh(w, t); err != nil {
				return nil, err
			}
			obs, err := l.fire([]shot{s})
			if err != nil {
				return nil, err
			}
			walk(s, obs[0])
		}
	} else {
		obs, err := l.fire(t.shots)
		if err != nil {
			return nil, err
		}
		for i, s := range t.shots {
			walk(s, obs[i])
		}
	}
	if err := l.reply(w, t, res); err != nil {
		return nil, err
	}
	for _, rs := range t.rulesets {
		text, err := l.node.run("", program(rs.family, rs.backend, "save"), "-c")
		if err != nil {
			return nil, err
		}
		counted, err := netfilter.ParseSave(text, "", netfilter.Hint{Family: rs.family, Backend: rs.backend})
		if err != nil {
			return nil, fmt.Errorf("parse counters: %w", err)
		}
		res.counted = append(res.counted, counted...)
	}
	return res, nil
}

// TestKernel sends random packets through random rules and compares the kernel with the walk.
func TestKernel(t *testing.T) {
	l := requireLab(t)
	g, lacking := l.probe(t)
	for _, s := range lacking {
		t.Log("this kernel or iptables lacks ", s)
	}
	seed, n, from := setting("SVCNET_ORACLE_SEED", defaultSeed), setting("SVCNET_ORACLE_RULESETS", defaultRulesets), 0
	only := setting("SVCNET_ORACLE_ONLY", -1)
	if only >= 0 {
		from, n = only, only+1
	}
	var until time.Time
	if d, err := time.ParseDuration(os.Getenv("SVCNET_ORACLE_FOR")); err == nil {
		until = time.Now().Add(d)
	}
	met := newCoverage()
	count := make(map[string]int)
	packets, replies, undecided, wrong, failed := 0, 0, 0, 0, 0
	i := from
	for ; i < n || time.Now().Before(until); i++ {
		tr := l.trial(*g, seed, i)
		res, err := l.run(tr)
		if err != nil {
			t.Fatalf("seed %d ruleset %s: %v", seed, tr.name, err)
		}
		told := 0
		tell := func(what string, j int, v verdict, o *observation) {
			if wrong++; told < 2 {
				told++
				t.Errorf("seed %d ruleset %s %s %d:\n%s", seed, tr.name, what, j, l.report(tr, j, v, o))
			}
		}
		for j, v := range res.verdicts {
			packets++
			switch {
			case v.wrong != "":
				tell("packet", j, v, res.obs[j])
				continue
			case !v.decided:
				undecided++
				for question := range v.questions() {
					count["undecided "+question]++
				}
			case v.random:
				count["random"]++
			default:
				count[verdictWords[v.endings[0].Verdict]]++
			}
			met.walked(res.answers[j])
		}
		for _, re := range res.replies {
			if replies++; re.wrong != "" {
				tell("reply to packet", re.to, re.verdict, re.seen)
			}
		}
		for _, rs := range res.counted {
			met.seen(rs, tr.shots, res.obs, tr.traced)
		}
		if told > 0 {
			if failed++; failed == maxFailed {
				t.Fatalf("giving up after %d rulesets with %d disagreements", failed, wrong)
			}
		}
	}
	t.Logf("seed %d: %d rulesets, %d packets, %d undecided, %d replies, by outcome %v\n%s", seed, i-from, packets, undecided, replies, count, met.table())
	if only < 0 {
		met.require(t, g)
		if share := float64(undecided) / float64(packets); share > maxUndecided {
			t.Errorf("%.1f%% of the packets are undecided, more than %.0f%%", 100*share, 100*maxUndecided)
		}
	}
}

// report is the smallest form of a disagreement that shrinking finds.
func (l *lab) report(t *trial, j int, v verdict, o *observation) string {
	small := *t
	s := t.shots[j]
	again := func(rulesets []*ruleset) bool {
		s.id = l.id()
		small.rulesets, small.shots = rulesets, []shot{s}
		res, err := l.run(&small)
		switch {
		case err != nil:
			return false
		case res.verdicts[0].wrong != "":
			v, o = res.verdicts[0], res.obs[0]
			return true
		case len(res.replies) > 0 && res.replies[0].wrong != "":
			v, o = res.replies[0].verdict, res.replies[0].seen
			return true
		}
		return false
	}
	var b strings.Builder
	left := t.rulesets
	if again(left) {
		left = shrink(left, again)
		again(left)
	} else {
		fmt.Fprintln(&b, "(alone, the packet agrees)")
	}
	for _, rs := range left {
		fmt.Fprintf(&b, "%s:\n%s", program(rs.family, rs.backend, "restore"), rs.terse())
	}
	fmt.Fprintf(&b, "packet %v\nkernel: %v\n", s, o)
	for _, p := range o.path {
		fmt.Fprintf(&b, "      %v\n", p)
	}
	for _, e := range v.endings {
		fmt.Fprintf(&b, "walk:   %s", describe(e))
	}
	fmt.Fprintf(&b, "but: %s", v.wrong)
	return b.String()
}

// terse is the ruleset without the chains that are empty.
func (rs *ruleset) terse() string {
	var b strings.Builder
	for _, t := range rs.tables {
		for _, c := range t.chains {
			if c.policy == "DROP" {
				fmt.Fprintf(&b, "  -t %s -P %s DROP\n", t.name, c.name)
			}
			for _, r := range c.rules {
				fmt.Fprintf(&b, "  -t %s -A %s %s\n", t.name, c.name, r)
			}
		}
	}
	return b.String()
}

// require fails the test for every kind that was not met often enough each way.
func (c *coverage) require(t *testing.T, g *generator) {
	t.Helper()
	for _, m := range g.matches {
		n := at(c.matches, m.name)
		if n.kernelYes < minMet {
			t.Errorf("match %s held for the kernel only %d times", m.name, n.kernelYes)
		}
		if m.oneSided == "" && n.kernelNo < minMet {
			t.Errorf("match %s failed for the kernel only %d times", m.name, n.kernelNo)
		}
		if m.open || m.oneSided != "" || m.name == "statistic" || m.name == "recent" {
			continue
		}
		// Decided by the walk; of -m recent the walk needs the type, so its answers are not counted.
		decided := at(c.matches, cmp.Or(m.decidedAs, m.name))
		if decided.walkYes < minMet || decided.walkNo < minMet {
			t.Errorf("match %s was decided by the walk only %d times as true and %d times as false", m.name, decided.walkYes, decided.walkNo)
		}
	}
	for _, k := range g.targets {
		if n := at(c.targets, k.name).kernelYes; n < minMet {
			t.Errorf("target %s was taken only %d times", k.name, n)
		}
	}
}
