//go:build linux

package oracle

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
)

// An nftGenerator draws nftables rulesets. Kinds that this kernel or this nft lacks have been taken out.
type nftGenerator struct {
	tests   []nftTest
	effects []nftEffect
	// open lets in the tests and effects that a walk cannot decide.
	open bool
	// equal lets base chains have the same priority at a hook, so that their order is not known.
	equal bool
	// beside says that iptables has tables too: then nft's have other names, and other priorities unless equal is set.
	beside bool
	// sparing keeps the rules few, where others go with them.
	sparing bool
	// even draws all kinds of effects alike, whatever their weights.
	even bool
}

// nftHooks are the hooks by nft's names.
var nftHooks = [...]string{"prerouting", "input", "forward", "output", "postrouting"}

// Priorities that base chains are drawn at: the customary ones, those next to them, and those of connection tracking
// and of the nat hook.
var (
	filterPriorities = []int{-400, -310, -300, -225, -200, -190, -175, -150, -125, -110, -100, -99, -50, -10, 0, 0, 5, 10, 50, 99, 100, 110, 225, 300}
	natPriorities    = []int{-190, -150, -110, -100, -100, -90, 0, 50, 90, 100, 100, 110, 300}
)

// The priorities at which the kernel's own hooks are: connection tracking, and the nat hook in which all nat chains run
// (include/uapi/linux/netfilter_ipv4.h).
func kernelPriority(h netfilter.Hook) []int {
	switch h {
	case netfilter.Prerouting, netfilter.Output:
		return []int{-400, -200, -100}
	case netfilter.Input, netfilter.Postrouting:
		return []int{100, 300}
	}
	return nil
}

// A baseAt is a base chain as far as the order of base chains goes.
type baseAt struct {
	family   nft.Family
	nat      bool
	hook     netfilter.Hook
	priority int
}

// clashes tells whether the order of two base chains is not known.
func (a baseAt) clashes(b baseAt) bool {
	return a.hook == b.hook && a.priority == b.priority && a.nat == b.nat && (a.family == b.family || a.family == nft.Inet || b.family == nft.Inet)
}

// ruleset draws tables, of the families of the packets that will come.
func (g *nftGenerator) ruleset(r *rand.Rand, families []nft.Family) *nftRules {
	n := &nftRules{}
	var bases []baseAt
	if g.beside {
		for _, h := range []netfilter.Hook{netfilter.Prerouting, netfilter.Input, netfilter.Forward, netfilter.Output, netfilter.Postrouting} {
			for _, p := range []int{-300, -150, 0, 50} {
				bases = append(bases, baseAt{nft.Inet, false, h, p})
			}
			for _, p := range []int{-100, 100} {
				bases = append(bases, baseAt{nft.Inet, true, h, p})
			}
		}
	}
	names := []string{"t0", "t1", "firewall", "filter", "nat", "kube-proxy", "mangle", "raw"}
	if g.beside {
		names = names[:3]
	}
	for i := range 1 + r.IntN(3) {
		t := &nftTable{family: pick(r, families), name: names[i%2]}
		if chance(r, 0.4) {
			t.name = pick(r, names)
		}
		if slices.ContainsFunc(n.tables, func(o *nftTable) bool { return o.title() == t.title() }) {
			continue
		}
		if chance(r, 0.02) {
			t.head = append(t.head, "flags dormant;")
		}
		if chance(r, 0.2) {
			t.head = append(t.head, `comment "drawn by the oracle";`)
		}
		n.tables = append(n.tables, t)
		bases = g.chains(r, t, bases)
	}
	for _, t := range n.tables {
		for _, c := range t.chains {
			most := 4
			if g.sparing {
				most = 3
			}
			for range 1 + r.IntN(most) {
				c.rules = append(c.rules, g.rule(r, t, c))
			}
		}
	}
	return n.withObjects()
}

// withObjects adds the named objects that rules refer to.
func (n *nftRules) withObjects() *nftRules {
	for _, t := range n.tables {
		if slices.ContainsFunc(t.chains, func(c *nftChain) bool {
			return slices.ContainsFunc(c.rules, func(r nftRule) bool { return needsObjects(r.String()) })
		}) && !slices.Contains(t.head, nftObjects[0]) {
			t.head = append(t.head, nftObjects...)
		}
	}
	return n
}

// chains gives a table its base chains, at priorities that go with those of the others, and regular chains.
func (g *nftGenerator) chains(r *rand.Rand, t *nftTable, bases []baseAt) []baseAt {
	for i := range 2 + r.IntN(5) {
		c := &nftChain{kind: pick(r, []string{"filter", "filter", "filter", "nat", "nat", "route"})}
		h := netfilter.Hook(r.IntN(5))
		if chance(r, 0.3) {
			h = netfilter.Prerouting // which every packet from outside meets
		}
		switch {
		case c.kind == "route":
			h = netfilter.Output
		case c.kind == "nat" && h == netfilter.Forward:
			c.kind = "filter"
		}
		at := baseAt{family: t.family, nat: c.kind == "nat", hook: h}
		for try := 0; ; try++ {
			if at.priority = pick(r, filterPriorities); at.nat {
				at.priority = pick(r, natPriorities)
			}
			clash := slices.ContainsFunc(bases, at.clashes) || !at.nat && slices.Contains(kernelPriority(h), at.priority)
			if !clash || g.equal && try == 0 {
				break
			}
		}
		bases = append(bases, at)
		c.name, c.hooks = fmt.Sprintf("%s-%s-%d", c.kind, nftHooks[h], i), 1<<h
		policy := "accept"
		if !at.nat && chance(r, 0.04) {
			policy = "drop"
		}
		c.base = fmt.Sprintf("type %s hook %s priority %s; policy %s;", c.kind, nftHooks[h], priorityText(r, h, at.priority), policy)
		t.chains = append(t.chains, c)
	}
	base := len(t.chains)
	for i := range 2 + r.IntN(4) {
		above := pick(r, t.chains[:base])
		c := &nftChain{name: fmt.Sprintf("%c%d", 'A'+i, i), kind: above.kind, hooks: above.hooks, depth: i + 1}
		if chance(r, 0.4) {
			for _, o := range t.chains[:base] {
				if o.kind == c.kind {
					c.hooks |= o.hooks
				}
			}
		}
		t.chains = append(t.chains, c)
	}
	return bases
}

// priorityText writes a priority as a number or by one of its names.
func priorityText(r *rand.Rand, h netfilter.Hook, p int) string {
	names := map[string]int{"raw": -300, "mangle": -150, "filter": 0, "security": 50}
	switch h {
	case netfilter.Prerouting:
		names["dstnat"] = -100
	case netfilter.Postrouting:
		names["srcnat"] = 100
	}
	if chance(r, 0.5) {
		for _, name := range []string{"raw", "mangle", "filter", "security", "dstnat", "srcnat"} {
			at, ok := names[name]
			switch {
			case !ok:
			case at == p:
				return name
			case p-at > 0 && p-at <= 10:
				return fmt.Sprintf("%s + %d", name, p-at)
			case at-p > 0 && at-p <= 10:
				return fmt.Sprintf("%s - %d", name, at-p)
			}
		}
	}
	return fmt.Sprint(p)
}

// slot is the place of a new rule of a chain.
func (t *nftTable) slot(r *rand.Rand, c *nftChain) *nftSlot {
	s := &nftSlot{r: r, table: t, kind: c.kind, hooks: c.hooks, ip: netfilter.IPv4}
	if t.family == nft.IP6 || t.family == nft.Inet && chance(r, 0.5) {
		s.ip = netfilter.IPv6
	}
	s.pool = pools[s.ip]
	for _, o := range t.chains {
		if o.depth > c.depth && o.kind == c.kind && c.hooks.within(o.hooks) {
			s.callable = append(s.callable, o.name)
		}
	}
	return s
}

// rule draws a rule for a chain.
func (g *nftGenerator) rule(r *rand.Rand, t *nftTable, c *nftChain) nftRule {
	s := t.slot(r, c)
	out := nftRule{}
	for range pick(r, []int{0, 1, 1, 1, 1, 2, 2, 3}) {
		if text := g.test(s); text != "" {
			out.tests = append(out.tests, text)
		}
	}
	for range pick(r, []int{1, 1, 1, 1, 1, 2, 3}) {
		e := g.effect(s)
		if e == nil {
			break
		}
		test, text := e.draw(s)
		switch {
		case test == "":
		case len(out.effects) == 0:
			out.tests = append(out.tests, test)
		default:
			out.effects = append(out.effects, test)
		}
		if len(out.effects) == 0 {
			out.tells = s.tells(e, text)
		}
		out.effects = append(out.effects, text)
		if e.ends {
			break
		}
		if chance(r, 0.15) { // a test behind an effect: what stands before it has happened all the same
			if text := g.test(s); text != "" {
				out.effects = append(out.effects, text)
			}
		}
	}
	if len(out.tests)+len(out.effects) == 0 {
		out.effects = append(out.effects, "counter")
	}
	if chance(r, 0.1) {
		out.comment = "comment of a rule"
	}
	out.kinds, out.open = s.kinds, s.open
	if misprinted.MatchString(out.String()) {
		return nftRule{effects: []string{"counter"}}
	}
	return out
}

// misprinted are rules that nft 1.0.6 prints otherwise than it has loaded them, so that no walk can know: of two
// comparisons side by side it makes one range, whatever they compare, and it leaves out the family before "ct protocol".
var misprinted = regexp.MustCompile(`< \S+ (\S+ ){1,3}> |>= \S+ (\S+ ){1,3}<= |meta nfproto .*ct (original|reply) protocol`)

// tells tells whether a walk must name a rule with this effect whenever its tests hold: what looks something up may find
// nothing, and in tables of both families an effect may be one for packets of the other.
func (s *nftSlot) tells(e *nftEffect, text string) bool {
	family := strings.HasPrefix(text, "dnat") || strings.HasPrefix(text, "snat") || strings.HasPrefix(text, "reject with icmp")
	return e.tells && !strings.Contains(text, "map") && !strings.Contains(text, "ct mark") && !(family && s.table.family == nft.Inet)
}

// test draws a test, empty where none was found.
func (g *nftGenerator) test(s *nftSlot) string {
	for range 20 {
		if m := &g.tests[s.r.IntN(len(g.tests))]; m.allowed(s) && (g.open || !m.open) {
			return m.draw(s)
		}
	}
	return ""
}

func (g *nftGenerator) effect(s *nftSlot) *nftEffect {
	share := func(e *nftEffect) int {
		if !e.allowed(s) || e.open && !g.open {
			return 0
		}
		switch {
		case g.even && e.open: // they are let in half the time
			return 6
		case g.even && e.protos != nil: // few packets are of these protocols
			return 2
		case g.even:
			return 1
		}
		return e.weight
	}
	total := 0
	for i := range g.effects {
		total += share(&g.effects[i])
	}
	n := s.r.IntN(total)
	for i := range g.effects {
		if n -= share(&g.effects[i]); n < 0 {
			return &g.effects[i]
		}
	}
	return nil
}

// survey draws rules that test one thing each. Each rule turns a bit of the mark of its own, so that the walk must name
// it whenever it applies; those that a walk cannot decide do nothing. ports lets in tests of what stands in the place of
// ports, for packets that have them.
func (g *nftGenerator) survey(r *rand.Rand, families []nft.Family, ports bool) *nftRules {
	n := &nftRules{}
	family := pick(r, families)
	t := &nftTable{family: family, name: "survey"}
	chances := 0
	if chance(r, 0.7) {
		chances = 2
	}
	n.tables = append(n.tables, t)
	for h := netfilter.Prerouting; h <= netfilter.Postrouting; h++ {
		kind := "filter"
		if h == netfilter.Output && chance(r, 0.3) {
			kind = "route"
		}
		prio := pick(r, []int{-310, -150, -10, 0, 10, 150})
		c := &nftChain{name: "survey-" + nftHooks[h], kind: kind, hooks: 1 << h, base: fmt.Sprintf("type %s hook %s priority %d; policy accept;", kind, nftHooks[h], prio)}
		t.chains = append(t.chains, c)
		for i := range 15 {
			s := t.slot(r, c)
			s.plain = chance(r, 0.5)
			var kinds []*nftTest
			for i := range g.tests {
				m := &g.tests[i]
				if !m.allowed(s) {
					continue
				}
				kinds = append(kinds, m)
				if len(m.protos) == 1 { // few packets are of this protocol
					kinds = append(kinds, m, m)
				}
				if strings.HasSuffix(m.name, "port") { // few packets have the one that is asked for
					kinds = append(kinds, m)
				}
				if m.hooks == out|post || m.hooks == pre|in || m.hooks == in|fwd || m.name == "ip length" { // few packets pass
					kinds = append(kinds, m, m)
				}
			}
			m := pick(r, kinds)
			rule := nftRule{only: m.name}
			rule.tests = []string{m.draw(s)}
			if !ports && ofPorts(rule.tests[0]) && !strings.HasPrefix(rule.tests[0], "meta l4proto") {
				continue
			}
			// A few matters of chance are enough: each doubles the ways that a walk can end.
			by := strings.Contains(rule.tests[0], "numgen")
			if by {
				chances++
			}
			if !m.open && (!by || chances <= 2) {
				rule.effects, rule.tells = []string{fmt.Sprintf("meta mark set meta mark ^ %#x", uint32(1)<<(17+i))}, true
			}
			rule.kinds, rule.open = s.kinds, m.open
			c.rules = append(c.rules, rule)
		}
	}
	// Something to be found in the state of connections.
	if chance(r, 0.6) {
		c := &nftChain{name: "nat", kind: "nat", hooks: pre, base: "type nat hook prerouting priority dstnat; policy accept;"}
		t.chains = append(t.chains, c)
		for range 2 {
			s := t.slot(r, c)
			rule := nftRule{tests: []string{s.word() + " daddr " + s.manyAddrs().text}}
			rule.effects, rule.tells = []string{s.nat("dnat") + s.pool.pod[r.IntN(5)].String()}, true
			c.rules = append(c.rules, rule)
		}
		early := &nftChain{name: "early", kind: "filter", hooks: pre, base: "type filter hook prerouting priority raw; policy accept;"}
		s := t.slot(r, early)
		early.rules = append(early.rules, nftRule{tests: []string{s.word() + " saddr " + s.oneAddr().text}, effects: []string{"notrack"}})
		late := &nftChain{name: "late", kind: "filter", hooks: pre, base: "type filter hook prerouting priority -180; policy accept;"}
		late.rules = append(late.rules, nftRule{tests: []string{s.word() + " daddr " + s.manyAddrs().text}, effects: []string{fmt.Sprintf("ct mark set %#x", pick(r, markPool))}})
		t.chains = append(t.chains, early, late)
	}
	return n
}

// ofPorts tells whether a rule looks at what stands in the place of ports, whatever the protocol.
func ofPorts(text string) bool {
	return strings.Contains(text, "th dport") || strings.Contains(text, "th sport") || strings.Contains(text, "@th")
}

// all draws rules that do each thing alike, for packets of a few addresses each.
func (g *nftGenerator) all(r *rand.Rand, families []nft.Family) *nftRules {
	n := &nftRules{}
	t := &nftTable{family: pick(r, families), name: "effects"}
	n.tables = append(n.tables, t)
	for _, kind := range []string{"filter", "nat"} {
		for h := netfilter.Prerouting; h <= netfilter.Postrouting; h++ {
			if kind == "nat" && h == netfilter.Forward {
				continue
			}
			prio := 10
			if h == netfilter.Prerouting && kind == "filter" && chance(r, 0.3) {
				prio = -310
			}
			c := &nftChain{name: kind + "-" + nftHooks[h], kind: kind, hooks: 1 << h, base: fmt.Sprintf("type %s hook %s priority %d; policy accept;", kind, nftHooks[h], prio)}
			d := &nftChain{name: "below-" + c.name, kind: kind, hooks: c.hooks, depth: 1}
			d.rules = append(d.rules, nftRule{effects: []string{fmt.Sprintf("meta mark set meta mark ^ %#x", pick(r, markPool))}, tells: true})
			t.chains = append(t.chains, c, d)
		}
	}
	for _, c := range t.chains {
		var going, ending []nftRule
		for i := 0; c.depth == 0 && i < 8; i++ {
			s := t.slot(r, c)
			e := g.effect(s)
			for try := 0; c.kind == "nat" && e.chains != "nat" && try < 5; try++ {
				e = g.effect(s)
			}
			rule := nftRule{}
			// What ends the way of a packet is for few of them, and stands behind what does not.
			switch {
			case e.ends && (c.kind == "filter" || chance(r, 0.2)) && chance(r, 0.5):
				rule.tests = append(rule.tests, s.word()+pick(r, []string{" saddr ", " daddr "})+s.oneAddr().text)
			case e.ends || chance(r, 0.3):
				rule.tests = append(rule.tests, s.word()+pick(r, []string{" saddr ", " daddr "})+pick(r, s.pool.nets[:6]))
			}
			test, text := e.draw(s)
			if test != "" {
				rule.tests = append(rule.tests, test)
			}
			rule.effects, rule.tells, rule.kinds, rule.open = []string{text}, s.tells(e, text), s.kinds, s.open
			if e.ends {
				ending = append(ending, rule)
			} else {
				going = append(going, rule)
			}
		}
		c.rules = append(append(c.rules, going...), ending...)
	}
	return n.withObjects()
}

// dynamic draws rules that fill sets as packets pass and others that look into them, in the manner of session affinity.
// Packets must come one at a time.
func (g *nftGenerator) dynamic(r *rand.Rand, families []nft.Family) *nftRules {
	n := g.ruleset(r, families)
	for _, t := range n.tables {
		bases := slices.Clone(t.chains)
		ip := netfilter.IPv4
		if t.family == nft.IP6 || t.family == nft.Inet && chance(r, 0.5) {
			ip = netfilter.IPv6
		}
		word := map[netfilter.Family]string{netfilter.IPv4: "ip", netfilter.IPv6: "ip6"}[ip]
		typ := addrType(&nftSlot{ip: ip})
		t.sets = append(t.sets,
			&nftSet{name: "clients", keyword: "set", spec: []string{"type " + typ, "size 65535", "flags dynamic,timeout", "timeout 3h"}},
			&nftSet{name: "pairs", keyword: "set", spec: []string{"type " + typ + " . " + typ, "size 65535", "flags dynamic"}},
			&nftSet{name: "ports", keyword: "set", spec: []string{"type " + typ + " . inet_service", "size 65535", "flags dynamic,timeout"}},
			&nftSet{name: "marks", keyword: "map", spec: []string{"type " + typ + " : mark", "size 65535", "flags dynamic"}},
			&nftSet{name: "kept", keyword: "set", spec: []string{"type " + typ, "size 65535", "flags timeout"}, elements: []string{pools[ip].external[0].String() + " timeout 1h", pools[ip].pod[0].String()}})
		for _, c := range bases {
			for range 1 + r.IntN(3) {
				rule := nftRule{}
				s := t.slot(r, c)
				s.ip, s.pool = ip, pools[ip]
				if chance(r, 0.4) {
					rule.tests = append(rule.tests, word+" daddr "+s.manyAddrs().text)
				}
				fill := pick(r, []string{
					"update @clients { " + word + " saddr }", "add @clients { " + word + " saddr }", "update @clients { " + word + " saddr timeout 10m }",
					"delete @clients { " + word + " saddr }", "add @pairs { " + word + " saddr . " + word + " daddr }", "update @pairs { " + word + " saddr . " + word + " daddr }",
					"update @ports { " + word + " daddr . th dport timeout 1h }", "add @marks { " + word + " saddr : 0x100 }", "update @marks { " + word + " saddr : meta mark }",
					"update @kept { " + word + " saddr timeout 30m }", "delete @kept { " + word + " saddr }", "update @clients { " + word + " saddr counter }",
				})
				look := pick(r, []string{
					word + " saddr @clients", word + " saddr != @clients", word + " saddr . " + word + " daddr @pairs", word + " daddr . th dport @ports", word + " saddr @kept", word + " daddr @clients",
				})
				s.note("set update", "named set")
				switch r.IntN(4) {
				case 0:
					rule.effects = []string{fill}
				case 1:
					rule.tests = append(rule.tests, look)
					rule.effects = []string{fmt.Sprintf("meta mark set meta mark ^ %#x", pick(r, markPool))}
					rule.tells = true
				case 2:
					rule.effects = []string{"meta mark set " + word + " saddr map @marks"}
				default:
					rule.tests = append(rule.tests, look)
					if e := g.effect(s); e != nil {
						test, text := e.draw(s)
						if test != "" {
							rule.tests = append(rule.tests, test)
						}
						rule.effects = []string{text}
						rule.tells = s.tells(e, text)
					}
				}
				rule.kinds, rule.open = s.kinds, s.open
				c.rules = slices.Insert(c.rules, r.IntN(len(c.rules)+1), rule)
			}
		}
	}
	return n.withObjects()
}
