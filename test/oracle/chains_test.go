//go:build linux

package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// A ruleset is the rules of one backend and family as text that can be cut down rule by rule.
type ruleset struct {
	family  netfilter.Family
	backend netfilter.Backend
	tables  []*tableText
}

type tableText struct {
	name   string
	chains []*chainText
}

type chainText struct {
	name   string
	policy string // "-" for a user-defined chain
	hooks  hookSet
	depth  int // 0 for a built-in chain; a chain calls only deeper ones
	rules  []string
}

// builtin are the tables with their chains.
var builtin = []struct {
	table string
	hooks []netfilter.Hook
}{
	{"raw", []netfilter.Hook{netfilter.Prerouting, netfilter.Output}},
	{"mangle", []netfilter.Hook{netfilter.Prerouting, netfilter.Input, netfilter.Forward, netfilter.Output, netfilter.Postrouting}},
	{"nat", []netfilter.Hook{netfilter.Prerouting, netfilter.Input, netfilter.Output, netfilter.Postrouting}},
	{"filter", []netfilter.Hook{netfilter.Input, netfilter.Forward, netfilter.Output}},
}

// empty is a ruleset of empty chains: loading it clears whatever was there.
func empty(fam netfilter.Family, backend netfilter.Backend) *ruleset {
	rs := &ruleset{family: fam, backend: backend}
	for _, b := range builtin {
		t := &tableText{name: b.table}
		for _, h := range b.hooks {
			t.chains = append(t.chains, &chainText{name: h.String(), policy: "ACCEPT", hooks: 1 << h})
		}
		rs.tables = append(rs.tables, t)
	}
	return rs
}

func (rs *ruleset) table(name string) *tableText {
	i := slices.IndexFunc(rs.tables, func(t *tableText) bool { return t.name == name })
	return rs.tables[i]
}

func (t *tableText) chain(name string) *chainText {
	for _, c := range t.chains {
		if c.name == name {
			return c
		}
	}
	c := &chainText{name: name, policy: "-"}
	t.chains = append(t.chains, c)
	return c
}

// text is the ruleset in iptables-restore form. traced puts an NFLOG rule in front of every rule and at the end of
// every chain, by which the kernel tells where each packet came by.
func (rs *ruleset) text(traced bool) string {
	var b strings.Builder
	for _, t := range rs.tables {
		fmt.Fprintf(&b, "*%s\n", t.name)
		for _, c := range t.chains {
			fmt.Fprintf(&b, ":%s %s\n", c.name, c.policy)
		}
		for _, c := range t.chains {
			for i, r := range c.rules {
				if traced {
					fmt.Fprintf(&b, "-A %s -j NFLOG --nflog-group %d --nflog-prefix %s\n", c.name, traceGroup, tracePrefix(rs.backend, t.name, c.name, 2*i+1, false))
				}
				fmt.Fprintf(&b, "-A %s %s\n", c.name, r)
			}
			if traced {
				fmt.Fprintf(&b, "-A %s -j NFLOG --nflog-group %d --nflog-prefix %s\n", c.name, traceGroup, tracePrefix(rs.backend, t.name, c.name, 2*len(c.rules), true))
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// A generator draws rulesets. Kinds that this kernel or this iptables lacks have been taken out.
type generator struct {
	matches []matchKind
	targets []targetKind
	// open lets in the tests that a walk cannot decide.
	open bool
	// recent lets in -m recent, whose packets must go one at a time.
	recent bool
}

// ruleset draws a ruleset.
func (g *generator) ruleset(r *rand.Rand, fam netfilter.Family, backend netfilter.Backend) *ruleset {
	rs := empty(fam, backend)
	for _, t := range rs.tables {
		g.fill(r, fam, t)
	}
	return rs
}

func (g *generator) fill(r *rand.Rand, fam netfilter.Family, t *tableText) {
	base := len(t.chains)
	var all hookSet
	for _, c := range t.chains {
		all |= c.hooks
		if t.name == "filter" && chance(r, 0.08) || t.name == "mangle" && chance(r, 0.02) {
			c.policy = "DROP"
		}
	}
	for i := range 2 + r.IntN(5) {
		c := &chainText{name: fmt.Sprintf("%s-%c", strings.ToUpper(t.name), 'A'+i), policy: "-", depth: i + 1, hooks: all}
		if chance(r, 0.6) {
			c.hooks = t.chains[r.IntN(base)].hooks
		}
		t.chains = append(t.chains, c)
	}
	for i, c := range t.chains {
		n := 1 + r.IntN(4)
		if i < base && t.name == "raw" {
			n = r.IntN(3)
		}
		for range n {
			c.rules = append(c.rules, g.rule(r, fam, t, c))
		}
	}
}

// survey puts rules that test one thing in front of what a ruleset holds, so that each match meets many packets alone.
// Each rule turns a bit of the mark of its own, by which the end of the chain tells the answer of every rule; those that
// a walk cannot decide do nothing. only, when not empty, is the one match to draw.
func (g *generator) survey(r *rand.Rand, rs *ruleset, only string) {
	for _, name := range []string{"mangle", "filter"} {
		t := rs.table(name)
		for _, c := range t.chains {
			if c.policy == "-" {
				continue
			}
			s := &slot{r: r, fam: rs.family, table: name, hooks: c.hooks, pool: pools[rs.family]}
			var kinds []*matchKind
			for i := range g.matches {
				m := &g.matches[i]
				if !m.allowed(s) || only != "" && m.name != only || only == "" && m.name == "recent" {
					continue
				}
				kinds = append(kinds, m)
				if len(m.protos) == 1 { // few packets are of this protocol
					kinds = append(kinds, m, m)
				}
			}
			var drawn []string
			for i := range 12 {
				m := pick(r, kinds)
				rule := "-m " + m.name + " " + m.args(s)
				if m.protos != nil {
					rule = fmt.Sprintf("-p %d ", pick(r, m.protos)) + rule
				}
				if !m.open {
					rule += fmt.Sprintf(" -j MARK --xor-mark %#x", uint32(1)<<(20+i))
				}
				drawn = append(drawn, strings.TrimSpace(rule))
			}
			c.rules = append(drawn, c.rules...)
		}
	}
}

// addOpen puts targets that a walk cannot follow in front of the built-in chains, for some of the packets.
func (g *generator) addOpen(r *rand.Rand, rs *ruleset) {
	for _, t := range rs.tables {
		for _, c := range t.chains {
			s := &slot{r: r, fam: rs.family, table: t.name, hooks: c.hooks, pool: pools[rs.family]}
			for i := range g.targets {
				k := &g.targets[i]
				if !k.open || c.policy == "-" || !k.allowed(s) {
					continue
				}
				for range 3 {
					rule := s.address("-d") + " "
					if k.protos != nil {
						rule += fmt.Sprintf("-p %d ", pick(r, k.protos))
					}
					c.rules = append([]string{rule + k.tests + "-j " + k.name + " " + k.args(s)}, c.rules...)
				}
			}
		}
	}
}

// rule draws a rule for a chain.
func (g *generator) rule(r *rand.Rand, fam netfilter.Family, t *tableText, c *chainText) string {
	s := &slot{r: r, fam: fam, table: t.name, hooks: c.hooks, pool: pools[fam]}
	var tests []string
	var kinds []*matchKind
	for range pick(r, []int{0, 1, 1, 1, 2}) {
		m := &g.matches[r.IntN(len(g.matches))]
		switch {
		case !m.allowed(s), m.open && !g.open, m.name == "recent" && !g.recent:
			continue
		case inTable("tcp udp", m.name) && slices.ContainsFunc(kinds, func(o *matchKind) bool { return o.name == m.name }):
			continue // iptables-nft-save makes one of two, which is neither
		case m.protos != nil && s.proto == 0:
			s.proto = pick(r, m.protos)
		case m.protos != nil && !slices.Contains(m.protos, s.proto):
			continue
		}
		kinds = append(kinds, m)
	}
	target := g.target(s, t, c)
	if s.proto == 0 && chance(r, 0.25) {
		s.proto = pick(r, []uint8{netfilter.ProtoTCP, netfilter.ProtoTCP, netfilter.ProtoUDP, netfilter.ProtoSCTP, netfilter.ProtoICMP})
		if s.proto == netfilter.ProtoICMP && fam == netfilter.IPv6 {
			s.proto = netfilter.ProtoICMPv6
		}
		if chance(r, 0.2) {
			tests = append(tests, fmt.Sprintf("! -p %d", s.proto))
			s.proto = 0
		}
	}
	if s.proto != 0 {
		tests = append(tests, fmt.Sprintf("-p %d", s.proto))
	}
	if chance(r, 0.25) {
		tests = append(tests, s.address("-d"))
	}
	if chance(r, 0.15) {
		tests = append(tests, s.address("-s"))
	}
	devices := []string{"eth0", "eth1", "cali+", "cali1a2b3c", "cni0", "lo", "eth+", "absent0"}
	if c.hooks.within(pre|in|fwd) && chance(r, 0.15) {
		tests = append(tests, s.not()+"-i "+pick(r, devices))
	}
	if c.hooks.within(fwd|out|post) && chance(r, 0.15) {
		tests = append(tests, s.not()+"-o "+pick(r, devices))
	}
	if fam == netfilter.IPv4 && chance(r, 0.02) {
		tests = append(tests, pick(r, []string{"-f", "! -f"}))
	}
	for _, m := range kinds {
		tests = append(tests, strings.TrimSpace("-m "+m.name+" "+m.args(s)))
	}
	return strings.TrimSpace(strings.Join(append(tests, target), " "))
}

// address draws a test of an address. "! 0.0.0.0/0" never matches, and iptables-nft cannot load it.
func (s *slot) address(option string) string {
	not, p := s.not(), s.pool.prefix(s.r)
	if strings.HasSuffix(p, "/0") {
		not = ""
	}
	return not + option + " " + p
}

// target draws a target for a rule, jumps included. It may settle the rule's protocol.
func (g *generator) target(s *slot, t *tableText, c *chainText) string {
	var callable []*chainText
	for _, o := range t.chains {
		if o.depth > c.depth && c.hooks.within(o.hooks) {
			callable = append(callable, o)
		}
	}
	if len(callable) > 0 && chance(s.r, 0.4) {
		how := "-j "
		if chance(s.r, 0.2) {
			how = "-g "
		}
		return how + pick(s.r, callable).name
	}
	if chance(s.r, 0.03) {
		return ""
	}
	total := 0
	for i := range g.targets {
		total += g.targets[i].share(s, g)
	}
	n := s.r.IntN(total)
	for i := range g.targets {
		k := &g.targets[i]
		if n -= k.share(s, g); n < 0 {
			if k.protos != nil && s.proto == 0 {
				s.proto = pick(s.r, k.protos)
			}
			return strings.TrimSpace(k.tests + "-j " + k.name + " " + k.args(s))
		}
	}
	return "-j RETURN"
}

// share is the weight of a kind in a slot, 0 where it is not allowed.
func (k *targetKind) share(s *slot, g *generator) int {
	if !k.allowed(s) || k.open && !g.open || k.protos != nil && s.proto != 0 && !slices.Contains(k.protos, s.proto) {
		return 0
	}
	return k.weight
}
