//go:build linux

package oracle

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
)

// An nftTrial is a trial with an nftables ruleset, alone or beside rules of iptables.
type nftTrial struct {
	trial
	rules *nftRules
	// form is how the ruleset is captured for the walk.
	form string
	// branched says that the order of base chains is not known.
	branched bool
	// parsed is the ruleset as the walk was given it.
	parsed *nft.Ruleset
	// last says that iptables' rules are loaded before those of nft.
	last bool
}

// nftForms are the forms in which a ruleset is captured, by turns.
var nftForms = []string{"text", "json", "netlink", "text -a", "text -n"}

// nftTrial draws trial number n.
func (l *lab) nftTrial(g nftGenerator, ipt generator, seed, n int) *nftTrial {
	r := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
	t := &nftTrial{form: cmp.Or(os.Getenv("SVCNET_ORACLE_FORM"), nftForms[n%len(nftForms)]), last: chance(r, 0.5)}
	t.variant, t.traced = r.IntN(len(variants)), chance(r, 0.8)
	t.family = netfilter.IPv4
	if n/2%2 == 1 {
		t.family = netfilter.IPv6
	}
	packets := []netfilter.Family{netfilter.IPv4, netfilter.IPv6}
	families := []nft.Family{nft.IP, nft.IP6, nft.Inet, nft.Inet}
	if chance(r, 0.7) { // one family, so that most rules are of use
		packets = []netfilter.Family{t.family}
		families = []nft.Family{map[netfilter.Family]nft.Family{netfilter.IPv4: nft.IP, netfilter.IPv6: nft.IP6}[t.family], nft.Inet}
	}
	ports := false
	switch kind := r.IntN(100); {
	case kind < 15:
		affinity := chance(r, 0.3)
		minor := pick(r, proxyMinors)
		t.name, t.single = fmt.Sprintf("services 1.%d", minor), affinity
		t.rules = nftServiceRules(r, packets, minor, affinity)
	case kind < 42:
		t.name, t.survey, t.traced = "survey", true, true
		ports = chance(r, 0.5)
		t.rules = g.survey(r, families, ports)
	case kind < 50:
		t.name, t.single = "dynamic", true
		g.sparing = true
		t.rules = g.dynamic(r, families)
	case kind < 60:
		t.name, g.even, g.open = "all effects", true, chance(r, 0.5)
		t.rules = g.all(r, families)
	case kind < 66:
		t.name, g.open, g.even = "open", true, true
		t.rules = g.ruleset(r, families)
	case kind < 70:
		t.name, g.equal, t.branched = "equal priorities", true, true
		t.rules = g.ruleset(r, families)
	case kind < 83:
		t.name = "beside iptables"
		packets = []netfilter.Family{t.family}
		families = []nft.Family{map[netfilter.Family]nft.Family{netfilter.IPv4: nft.IP, netfilter.IPv6: nft.IP6}[t.family], nft.Inet}
		g.beside, g.sparing, g.equal = true, true, chance(r, 0.2)
		t.branched = g.equal
		backend := pick(r, []netfilter.Backend{netfilter.Legacy, netfilter.NFT})
		if chance(r, 0.4) {
			t.rulesets = []*ruleset{serviceRules(r, t.family, backend)}
			t.rules = g.ruleset(r, families)
		} else {
			t.rulesets = []*ruleset{ipt.ruleset(r, t.family, backend)}
			if t.rules = g.ruleset(r, families); chance(r, 0.5) {
				// These are at the priorities of iptables' tables.
				t.rules, t.branched = nftServiceRules(r, packets, pick(r, proxyMinors), false), true
			}
		}
	default:
		t.name, g.even = "random", chance(r, 0.4)
		t.rules = g.ruleset(r, families)
	}
	if text := t.rules.text(false); t.form == "json" && (strings.Contains(text, "@marks {") || strings.Contains(text, "flags dormant")) {
		t.form = "text" // nft 1.0.6 prints changes to maps as text inside of its JSON, and not the flags of a table
	}
	t.name = fmt.Sprintf("%d/%s/%s/%s", n, t.name, t.form, variants[t.variant].name)
	taken := make(map[uint16]bool)
	portless := make(map[[2]netip.Addr]bool)
	n = packetsPerRules
	if t.single {
		n /= 3 // they take their time
	}
	for range n {
		s := l.shot(r, pick(r, packets), taken)
		if t.survey {
			protos := protocolsOf(s.family())
			if protos = append(protos, protos[0], protos[0]); ports {
				protos = portProtos
			}
			s = s.of(pick(r, protos))
			if s.proto == netfilter.ProtoUDP && s.entry >= 0 && chance(r, 0.5) {
				s.dst, s.dport = pools[s.family()].node[0], 53 // a socket listens there
			}
		}
		t.shots = append(t.shots, s.apart(portless, t.survey && !strings.Contains(t.rules.text(false), "dnat")))
	}
	return t
}

// usual is a generator of rules of iptables of the usual kinds. TestKernel knows more of them; here they stand beside
// those of nftables. (Of two -m udp in a rule iptables-nft-save prints the second only.)
func usual() *generator {
	g := &generator{}
	for _, m := range matchKinds {
		if !m.open && inTable("addrtype comment connmark conntrack icmp icmp6 iprange mark multiport set", m.name) {
			g.matches = append(g.matches, m)
		}
	}
	for _, k := range targetKinds {
		if inTable("ACCEPT CONNMARK DNAT DROP MARK MASQUERADE NOTRACK REDIRECT REJECT RETURN SNAT", k.name) {
			g.targets = append(g.targets, k)
		}
	}
	return g
}

// oracleTable is the table of the harness itself: it keeps connection tracking on, and tells the mark of every packet
// that leaves or is delivered.
const oracleTable = "inet oracle"

func harness() *nftRules {
	t := &nftTable{family: nft.Inet, name: "oracle"}
	t.chains = []*nftChain{
		{name: "on", rules: []nftRule{{tests: []string{"ct state new"}}}},
		{name: "end-input", base: "type filter hook input priority 2000; policy accept;"},
		{name: "end-postrouting", base: "type filter hook postrouting priority 2000; policy accept;"},
	}
	return &nftRules{tables: []*nftTable{t}}
}

// loadNFT loads a trial's rules. Whatever was there before is gone.
func (l *lab) loadNFT(t *nftTrial) error {
	if _, err := l.node.run("flush ruleset\n"+harness().text(true), "nft", "-f", "-"); err != nil {
		return fmt.Errorf("clear rules: %w", err)
	}
	iptables := func() error {
		for _, backend := range []netfilter.Backend{netfilter.Legacy, netfilter.NFT} {
			for _, fam := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
				rs, mine := empty(fam, backend), false
				for _, given := range t.rulesets {
					if given.backend == backend && given.family == fam {
						rs, mine = given, true
					}
				}
				dirty := l.legacyDirty&(1<<fam) != 0
				if !mine && (backend == netfilter.NFT || !dirty) {
					continue
				}
				if backend == netfilter.Legacy {
					l.legacyDirty &^= 1 << fam
					if mine {
						l.legacyDirty |= 1 << fam
					}
				}
				text := rs.text(mine && t.traced)
				if _, err := l.node.run(text, program(fam, backend, "restore")); err != nil {
					return fmt.Errorf("load rules: %w\n%s", err, numbered(text))
				}
			}
		}
		return nil
	}
	if t.last {
		if err := iptables(); err != nil {
			return err
		}
	}
	text := t.rules.text(t.traced)
	if _, err := l.node.run(text, "nft", "-f", "-"); err != nil {
		return refusedRules{fmt.Errorf("%w\n%s", err, numbered(text))}
	}
	if !t.last {
		if err := iptables(); err != nil {
			return err
		}
	}
	return l.forget()
}

// refusedRules is the error of nft that does not take a ruleset.
type refusedRules struct{ error }

// TestKernelNFT sends random packets through random rules of nftables and compares the kernel with the walk.
func TestKernelNFT(t *testing.T) {
	l := requireLab(t)
	g, lacking := l.probeNFT(t)
	ipt := usual()
	for _, s := range lacking {
		t.Log("this kernel or nft lacks ", s)
	}
	seed, n, from := setting("SVCNET_ORACLE_SEED", defaultSeed), setting("SVCNET_ORACLE_RULESETS", nftRulesets), 0
	only := setting("SVCNET_ORACLE_ONLY", -1)
	if only >= 0 {
		from, n = only, only+1
	}
	var until time.Time
	if d, err := time.ParseDuration(os.Getenv("SVCNET_ORACLE_FOR")); err == nil {
		until = time.Now().Add(d)
	}
	met := newNFTCoverage()
	count := make(map[string]int)
	packets, replies, undecided, wrong, failed, refused := 0, 0, 0, 0, 0, 0
	i := from
	for ; i < n || time.Now().Before(until); i++ {
		tr := l.nftTrial(*g, *ipt, seed, i)
		res, err := l.runNFT(tr)
		if errors.As(err, &refusedRules{}) {
			refused++
			t.Logf("seed %d ruleset %s: nft: %s", seed, tr.name, strings.Join(strings.SplitN(err.Error(), "\n", 4)[:3], "\n"))
			continue
		}
		if errors.As(err, &unprintedRules{}) {
			refused++
			t.Logf("seed %d ruleset %s: nft: %v", seed, tr.name, err)
			continue
		}
		told := 0
		tell := func(what string, j int, v verdict, o *observation) {
			if wrong++; told < 2 {
				told++
				t.Errorf("seed %d ruleset %s %s %d:\n%s", seed, tr.name, what, j, l.reportNFT(tr, j, v, o))
			}
		}
		if errors.As(err, &unreadRules{}) {
			t.Errorf("seed %d ruleset %s: %v", seed, tr.name, err)
			told++
			res = &result{}
		} else if err != nil {
			t.Fatalf("seed %d ruleset %s: %v", seed, tr.name, err)
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
			met.seen(tr, res.obs[j], len(v.endings) == 1 && v.decided && !v.random && tr.certain(tr.shots[j], res.obs[j]))
		}
		if tr.parsed != nil {
			met.parsed(tr.parsed)
		}
		for _, re := range res.replies {
			if replies++; re.wrong != "" {
				tell("reply to packet", re.to, re.verdict, re.seen)
			}
		}
		if told > 0 {
			if failed++; failed == setting("SVCNET_ORACLE_FAILURES", maxFailed) {
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
	if float64(refused) > maxRefused*float64(i-from) {
		t.Errorf("nft took and printed %d of %d rulesets only", i-from-refused, i-from)
	}
}

// The sample that runs by default.
const (
	nftRulesets = 320
	maxRefused  = 0.02
)

// reportNFT is the smallest form of a disagreement that shrinking finds.
func (l *lab) reportNFT(t *nftTrial, j int, v verdict, o *observation) string {
	small := *t
	s := t.shots[j]
	tries := 1
	once := func() bool {
		s.id = l.id()
		small.shots = []shot{s}
		res, err := l.runNFT(&small)
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
	again := func() bool {
		for range tries {
			if once() {
				return true
			}
		}
		return false
	}
	var b strings.Builder
	if !again() {
		tries = 8 // what is a matter of chance takes some
	}
	if tries == 1 || again() {
		small.rules = shrinkNFT(small.rules, func(n *nftRules) bool {
			before := small.rules
			if small.rules = n; again() {
				return true
			}
			small.rules = before
			return false
		})
		if len(small.rulesets) > 0 {
			small.rulesets = shrink(small.rulesets, func(rulesets []*ruleset) bool {
				before := small.rulesets
				if small.rulesets = rulesets; again() {
					return true
				}
				small.rulesets = before
				return false
			})
		}
		again()
	} else {
		fmt.Fprintln(&b, "(alone, the packet agrees)")
	}
	for _, rs := range small.rulesets {
		fmt.Fprintf(&b, "%s:\n%s", program(rs.family, rs.backend, "restore"), rs.terse())
	}
	fmt.Fprintf(&b, "nft -f (loaded last: %v):\n%s", small.last, small.rules.text(false))
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

// probeNFT returns a generator with the kinds that nft and the kernel of this machine can load, and the names of those
// that they cannot, with the reason. Each kind is tried on its own.
func (l *lab) probeNFT(t *testing.T) (*nftGenerator, []string) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	g := &nftGenerator{}
	var lacking []string
	try := func(name string, family netfilter.Family, inet bool, kinds string, hooks hookSet, rule func(s *nftSlot) string) bool {
		n := &nftRules{}
		for _, f := range []nft.Family{nft.IP, nft.IP6, nft.Inet} {
			if inet && f != nft.Inet {
				continue
			}
			tab := &nftTable{family: f, name: "probe", head: nftObjects}
			n.tables = append(n.tables, tab)
			tab.chains = []*nftChain{{name: "called"}}
			for _, kind := range []string{"filter", "nat", "route"} {
				for h := netfilter.Prerouting; h <= netfilter.Postrouting; h++ {
					if !inTable(kinds, kind) || hooks != 0 && hooks&(1<<h) == 0 || kind == "nat" && h == netfilter.Forward || kind == "route" && h != netfilter.Output {
						continue
					}
					c := &nftChain{name: kind + nftHooks[h], kind: kind, hooks: 1 << h, base: fmt.Sprintf("type %s hook %s priority 10; policy accept;", kind, nftHooks[h])}
					for range 4 {
						s := tab.slot(r, c)
						s.callable = []string{"called"}
						if family == 0 || family == s.ip {
							c.rules = append(c.rules, nftRule{effects: []string{rule(s)}})
						}
					}
					tab.chains = append(tab.chains, c)
				}
			}
		}
		text := "flush ruleset\n" + n.text(false)
		if _, err := l.node.run(text, "nft", "-f", "-"); err != nil {
			lacking = append(lacking, name+": "+strings.Join(strings.Split(err.Error(), "\n")[:min(4, len(strings.Split(err.Error(), "\n")))], "\n"))
			return false
		}
		return true
	}
	for _, m := range allNFTTests() {
		if try("test "+m.name, m.family, m.inet, "", m.hooks, m.draw) {
			g.tests = append(g.tests, m)
		}
	}
	for _, e := range nftEffects {
		if try("effect "+e.name, e.family, false, e.chains, e.hooks, func(s *nftSlot) string {
			test, text := e.draw(s)
			return test + " " + text
		}) {
			g.effects = append(g.effects, e)
		}
	}
	return g, lacking
}
