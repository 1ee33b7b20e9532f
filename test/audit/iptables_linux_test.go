package audit

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/test/lab"
)

// xtables changes the rules of a kube-proxy in iptables mode, as iptables-save prints them.
type xtables struct {
	*maker
	// clean are the rules of the node as it should be, by family.
	clean map[int]*ruleText
	owner map[int]map[string]string
}

func newXTables(t *testing.T, m *maker) plane {
	t.Helper()
	x := &xtables{maker: m, clean: map[int]*ruleText{}, owner: map[int]map[string]string{}}
	m.stop(t)
	for family, r := range m.save(t, m.n1) {
		r.table("raw") // so that restoring empties it
		x.clean[family], x.owner[family] = r, r.owners()
		if err := x.load(family, r)(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// save is what iptables-save and ip6tables-save print on a node.
func (m *maker) save(t *testing.T, on *lab.Node) map[int]*ruleText {
	t.Helper()
	out := map[int]*ruleText{}
	for family, program := range map[int]string{4: "iptables-save", 6: "ip6tables-save"} {
		text, err := on.Run(t.Context(), "", program)
		if err != nil {
			t.Fatal(err)
		}
		out[family] = parseRules(text)
	}
	return out
}

func (x *xtables) kinds() []kind {
	return append([]kind{
		{"rule deleted", x.deleted},
		{"rule duplicated", x.duplicated},
		{"rule moved", x.movedRule},
		{"DNAT target changed", x.target},
		{"mark changed", x.mark},
		{"probability changed", x.probability},
		{"address changed", x.address},
		{"chain flushed", x.flushed},
		{"jump removed", x.jumpRemoved},
		{"ACCEPT before jump", x.accepted},
		{"policy DROP", x.policy},
		{"DROP for half a range", x.half},
		{"foreign DNAT", x.foreign},
		{"NOTRACK", x.notrack},
		{"second backend", x.second},
	}, x.common()...)
}

func (x *xtables) rules(ctx context.Context) (string, error) {
	var out string
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		text, err := x.n1.Run(ctx, "", program)
		if err != nil {
			return "", err
		}
		r := parseRules(text)
		r.table("raw")
		out += r.canonical()
	}
	return out, nil
}

// load puts rules in place of those of one family.
func (x *xtables) load(family int, r *ruleText) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		program := map[int]string{4: "iptables-restore", 6: "ip6tables-restore"}[family]
		_, err := x.n1.Run(ctx, r.String(), program, "-w")
		return err
	}
}

// mutant is one with other rules of a family.
func (x *xtables) mutant(family int, r *ruleText, what string, places ...string) *mutant {
	return &mutant{family: family, what: what, do: x.load(family, r), undo: x.load(family, x.clean[family]), places: places}
}

// either is IPv4 or IPv6, with a copy of the rules to change.
func (x *xtables) either() (int, *ruleText) {
	family := choose(x.dice, []int{4, 6})
	return family, x.clean[family].clone()
}

// notOurs leaves out rules that nobody dials: of the lab's own Services, and canaries.
var notOurs = regexp.MustCompile(`default/kubernetes|svcnet-lab/sentinel|CANARY`)

// eligible are the indexes of rules that fit and are of Services of the stage, or of all.
func (x *xtables) eligible(family int, t *tableText, fits func(rule string) bool) []int {
	var out []int
	for i, rule := range t.rules {
		chain := chainOf(rule)
		if notOurs.MatchString(rule) || serviceChain.MatchString(chain) && x.owner[family][chain] == "" {
			continue
		}
		if fits == nil || fits(rule) {
			out = append(out, i)
		}
	}
	return out
}

// some chooses a rule.
func (x *xtables) some(fits func(rule string) bool) (int, *ruleText, *tableText, int) {
	family, r := x.either()
	t := r.table("nat")
	if x.dice.IntN(4) == 0 {
		t = r.table("filter")
	}
	in := x.eligible(family, t, fits)
	if len(in) == 0 {
		return family, r, nil, 0
	}
	return family, r, t, choose(x.dice, in)
}

// asksSet is the set that a rule asks.
var asksSet = regexp.MustCompile(`(! )?--match-set (\S+) (\S+)`)

// of begins a mutant of a rule: about whom it is, and which chains a finding may name.
func (x *xtables) of(family int, r *ruleText, rule, what string) *mutant {
	u := x.mutant(family, r, what, chainOf(rule))
	if j := jumpOf(rule); strings.HasPrefix(j, "KUBE-") {
		u.places = append(u.places, j)
	}
	if asks := asksSet.FindStringSubmatch(rule); asks != nil {
		u.places = append(u.places, asks[2])
	}
	if s := x.serviceOf(family, rule); s != "" {
		u.about = []string{s}
	}
	return u
}

func (x *xtables) serviceOf(family int, rule string) string {
	if c := serviceComment.FindStringSubmatch(rule); c != nil {
		return c[1]
	}
	return x.owner[family][chainOf(rule)]
}

func (x *xtables) deleted() *mutant {
	family, r, t, i := x.some(nil)
	if t == nil {
		return nil
	}
	rule := t.rules[i]
	t.rules = slices.Delete(t.rules, i, i+1)
	u := x.of(family, r, rule, fmt.Sprintf("IPv%d -t %s -D: %s", family, t.name, rule))
	if isJump(rule) {
		u.hazards = []string{"kube-jump-missing"}
	}
	return u
}

// isJump tells the jumps into kube-proxy's chains from the kernel's own.
func isJump(rule string) bool {
	return strings.HasPrefix(jumpOf(rule), "KUBE-") && !strings.HasPrefix(chainOf(rule), "KUBE-")
}

func (x *xtables) duplicated() *mutant {
	family, r, t, i := x.some(nil)
	if t == nil {
		return nil
	}
	rule := t.rules[i]
	at := x.dice.IntN(len(t.of(chainOf(rule))) + 1)
	t.insert(at, rule)
	u := x.of(family, r, rule, fmt.Sprintf("IPv%d -t %s again at %d: %s", family, t.name, at+1, rule))
	u.byWalk = true
	return u
}

func (x *xtables) movedRule() *mutant {
	family, r, t, i := x.some(nil)
	if t == nil {
		return nil
	}
	rule := t.rules[i]
	n := len(t.of(chainOf(rule)))
	if n < 2 {
		return nil
	}
	t.rules = slices.Delete(t.rules, i, i+1)
	at := x.dice.IntN(n)
	t.insert(at, rule)
	u := x.of(family, r, rule, fmt.Sprintf("IPv%d -t %s moved to %d: %s", family, t.name, at+1, rule))
	u.byWalk = true
	if serviceChain.MatchString(chainOf(rule)) {
		return u
	}
	u.about = nil // what stood behind it may be met no more
	if isJump(rule) {
		u.hazards = []string{"kube-jump-missing"}
	}
	return u
}

// replaced is a mutant with one rule in place of another.
func (x *xtables) replaced(family int, r *ruleText, t *tableText, i int, rule string) *mutant {
	old := t.rules[i]
	if rule == old {
		return nil
	}
	t.rules[i] = rule
	return x.of(family, r, old, fmt.Sprintf("IPv%d -t %s: %s\n  now: %s", family, t.name, old, rule))
}

var destination = regexp.MustCompile(`--to-destination (\S+)`)

func (x *xtables) target() *mutant {
	family, r := x.either()
	t := r.table("nat")
	in := x.eligible(family, t, destination.MatchString)
	i := choose(x.dice, in)
	old := netip.MustParseAddrPort(destination.FindStringSubmatch(t.rules[i])[1])
	var to netip.AddrPort
	switch x.dice.IntN(3) {
	case 0: // another pod
		to = netip.AddrPortFrom(x.pods[choose(x.dice, []string{"a1", "a2", "c1", "c2", "client-1b"})].Addr(family == 6), old.Port())
	case 1: // nobody
		to = netip.AddrPortFrom(netip.MustParseAddr(map[int]string{4: "10.244.1.77", 6: "fd00:244:1::77"}[family]), old.Port())
	case 2:
		to = netip.AddrPortFrom(old.Addr(), old.Port()+1)
	}
	return x.replaced(family, r, t, i, destination.ReplaceAllString(t.rules[i], "--to-destination "+to.String()))
}

func (x *xtables) mark() *mutant {
	family, r, t, i := x.some(func(rule string) bool { return strings.Contains(rule, "0x4000") })
	if t == nil {
		return nil
	}
	return x.replaced(family, r, t, i, strings.ReplaceAll(t.rules[i], "0x4000", choose(x.dice, []string{"0x8000", "0x2000", "0x1"})))
}

var probability = regexp.MustCompile(`--probability (\S+)`)

func (x *xtables) probability() *mutant {
	family, r := x.either()
	t := r.table("nat")
	i := choose(x.dice, x.eligible(family, t, probability.MatchString))
	old, err := strconv.ParseFloat(probability.FindStringSubmatch(t.rules[i])[1], 64)
	if err != nil {
		return nil
	}
	now := choose(x.dice, []float64{0.05, 0.2, 0.7, 0.9, 0, old + 0.001, old - 0.0005})
	u := x.replaced(family, r, t, i, probability.ReplaceAllString(t.rules[i], fmt.Sprintf("--probability %.11f", now)))
	if u != nil {
		u.byWalk = true
	}
	return u
}

var dport = regexp.MustCompile(`--dport (\d+)`)

func (x *xtables) address() *mutant {
	matches := []*regexp.Regexp{regexp.MustCompile(` -d \S+`), dport, regexp.MustCompile(` -s \S+`)}
	re := choose(x.dice, matches)
	family, r, t, i := x.some(func(rule string) bool {
		return re.MatchString(withoutComment(rule)) && strings.Contains(rule, "store/")
	})
	if t == nil {
		return nil
	}
	rule := t.rules[i]
	switch re {
	case dport:
		rule = dport.ReplaceAllString(rule, fmt.Sprintf("--dport %d", 1000+x.dice.IntN(1000)))
	default:
		flag := re.FindString(withoutComment(rule))[:4]
		rule = strings.Replace(rule, re.FindString(withoutComment(rule)), flag+map[int]string{4: "10.96.99.99/32", 6: "fd00:96::9999/128"}[family], 1)
	}
	return x.replaced(family, r, t, i, rule)
}

func (x *xtables) flushed() *mutant {
	family, r, t, i := x.some(func(rule string) bool { return strings.HasPrefix(chainOf(rule), "KUBE-") })
	if t == nil {
		return nil
	}
	chain := chainOf(t.rules[i])
	u := x.mutant(family, r, fmt.Sprintf("IPv%d -t %s -F %s", family, t.name, chain), chain)
	if s := x.owner[family][chain]; s != "" {
		u.about = []string{s}
	}
	t.rules = slices.DeleteFunc(t.rules, func(rule string) bool { return chainOf(rule) == chain })
	return u
}

func (x *xtables) jumpRemoved() *mutant {
	family, r, t, i := x.some(isJump)
	if t == nil {
		return nil
	}
	rule := t.rules[i]
	t.rules = slices.Delete(t.rules, i, i+1)
	u := x.of(family, r, rule, fmt.Sprintf("IPv%d -t %s -D: %s", family, t.name, rule))
	u.hazards = []string{"kube-jump-missing"}
	return u
}

// added is a mutant with one more rule at a place of its chain.
func (x *xtables) added(family int, table, rule string, at int) *mutant {
	r := x.clean[family].clone()
	r.table(table).insert(at, rule)
	return x.mutant(family, r, fmt.Sprintf("IPv%d -t %s at %d: %s", family, table, at+1, rule), withoutComment(rule))
}

func (x *xtables) accepted() *mutant {
	family := choose(x.dice, []int{4, 6})
	where := choose(x.dice, []struct{ table, chain string }{
		{"nat", "PREROUTING"}, {"nat", "OUTPUT"}, {"nat", "POSTROUTING"}, {"filter", "INPUT"}, {"filter", "FORWARD"}, {"filter", "OUTPUT"},
	})
	match := choose(x.dice, []string{"", "", " -p tcp", " -s " + x.halves(family)[0]})
	u := x.added(family, where.table, "-A "+where.chain+match+" -j ACCEPT", 0)
	u.hazards = []string{"kube-jump-missing"}
	return u
}

func (x *xtables) policy() *mutant {
	family, r := x.either()
	chain := "FORWARD"
	if family == 4 { // neighbour discovery of IPv6 would meet it too, some time
		chain = choose(x.dice, []string{"INPUT", "FORWARD", "OUTPUT"})
	}
	t := r.table("filter")
	for i, c := range t.chains {
		if strings.HasPrefix(c, ":"+chain+" ") {
			t.chains[i] = ":" + chain + " DROP [0:0]"
		}
	}
	return x.mutant(family, r, fmt.Sprintf("IPv%d -P %s DROP", family, chain), chain)
}

func (x *xtables) half() *mutant {
	family := choose(x.dice, []int{4, 6})
	chain := choose(x.dice, []string{"FORWARD", "FORWARD", "FORWARD", "INPUT", "OUTPUT"})
	rule := fmt.Sprintf("-A %s %s %s%s -j %s", chain, choose(x.dice, []string{"-s", "-d"}), choose(x.dice, x.halves(family)),
		choose(x.dice, []string{"", "", " -p tcp", " -p udp"}), choose(x.dice, []string{"DROP", "DROP", "REJECT"}))
	if family == 6 && chain != "FORWARD" && !strings.Contains(rule, " -p ") {
		return nil // neighbour discovery
	}
	n := len(x.clean[family].table("filter").of(chain))
	return x.added(family, "filter", rule, choose(x.dice, []int{0, n}))
}

// matches are those of a frontend of some Service.
func (x *xtables) matches(family int) (service, matches, protocol string) {
	service, addr, port, protocol := x.frontend(family)
	if !addr.IsValid() {
		return service, fmt.Sprintf("-p %s -m %[1]s --dport %d", protocol, port), protocol
	}
	return service, fmt.Sprintf("-d %s -p %s -m %[2]s --dport %d", prefixed(addr), protocol, port), protocol
}

func prefixed(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

func (x *xtables) foreign() *mutant {
	family := choose(x.dice, []int{4, 6})
	service, matches, _ := x.matches(family)
	to := netip.AddrPortFrom(x.pods[choose(x.dice, []string{"client-1b", "a2", "c2"})].Addr(family == 6), 8080)
	if strings.Contains(matches, "udp") {
		to = netip.AddrPortFrom(to.Addr(), 5353)
	}
	chain := choose(x.dice, []string{"PREROUTING", "PREROUTING", "OUTPUT"})
	how := choose(x.dice, []string{"DNAT --to-destination " + to.String(), "DNAT --to-destination " + to.String(), "REDIRECT --to-ports 9999"})
	n := len(x.clean[family].table("nat").of(chain))
	u := x.added(family, "nat", fmt.Sprintf("-A %s %s -j %s", chain, matches, how), choose(x.dice, []int{0, 0, n}))
	u.about = []string{service}
	if strings.HasPrefix(service, "none") {
		// Where nobody listens either, a client hears the same refusal as before.
		u.hazards = append(u.hazards, "foreign-dnat-before-kube-services")
	}
	return u
}

func (x *xtables) notrack() *mutant {
	family := choose(x.dice, []int{4, 6})
	service, matches, protocol := x.matches(family)
	chain := choose(x.dice, []string{"PREROUTING", "OUTPUT"})
	if x.dice.IntN(2) == 0 {
		u := x.added(family, "raw", fmt.Sprintf("-A %s %s -j CT --notrack", chain, matches), 0)
		u.about = []string{service}
		return u
	}
	// The answers of a backend.
	backend := x.pods[choose(x.dice, []string{"a1", "a2", "c1", "c2"})].Addr(family == 6)
	return x.added(family, "raw", fmt.Sprintf("-A %s -s %s -p %s -j CT --notrack", chain, prefixed(backend), protocol), 0)
}

// second puts rules of kube-proxy's into the other backend.
func (x *xtables) second() *mutant {
	family, r := x.either()
	other := lab.Legacy
	if x.n1.Backend() == lab.Legacy {
		other = lab.NFT
	}
	empty := &ruleText{}
	empty.table("nat")
	empty.table("filter")
	return x.beside(family, r, other, x.restore(other, family, empty.String()))
}
