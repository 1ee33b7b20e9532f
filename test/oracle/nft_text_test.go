//go:build linux

package oracle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/nft"
)

// An nftRules is an nftables ruleset as text that can be cut down rule by rule.
type nftRules struct{ tables []*nftTable }

type nftTable struct {
	family nft.Family
	name   string
	// head are lines that stand before anything else: flags, a comment, named objects.
	head   []string
	sets   []*nftSet
	chains []*nftChain
}

// An nftSet is a named set or map.
type nftSet struct {
	name string
	// keyword is set or map.
	keyword string
	// spec are its lines but the elements: type, flags, timeout.
	spec     []string
	elements []string
	// key and data are what it holds, for the rules that look for one to use; data is empty for a set.
	key, data string
}

type nftChain struct {
	name string
	// kind is filter, nat or route, and hooks those of the base chains that may lead here.
	kind  string
	hooks hookSet
	// base is set for a base chain: its "type … hook … priority …; policy …;".
	base  string
	depth int // 0 for a base chain; a chain calls only deeper ones
	rules []nftRule
}

// An nftRule is a rule: tests that decide whether it applies, then what it does, which may hold tests too.
type nftRule struct {
	tests, effects []string
	comment        string
	// kinds are the names of what the tests and effects are made of.
	kinds []string
	// only is set for a rule with one test of this kind and nothing else that decides.
	only string
	// tells is set where a walk must name the rule whenever it applies: it changes a mark or ends the packet's way.
	tells bool
	// open is set where a test or effect is one that a walk cannot decide.
	open bool
}

func (r nftRule) String() string {
	s := strings.Join(append(slices.Clone(r.tests), r.effects...), " ")
	if r.comment != "" {
		s += fmt.Sprintf(" comment %q", r.comment)
	}
	return s
}

// A place in an nftables ruleset is told by an NFLOG prefix of its own form, because the names of kube-proxy's chains
// hold slashes: "nftables|ip kube-proxy|services|3|hit".
const nftBackend = "nftables"

// What the log statements of the harness say of a place.
const (
	placeReached = "at"   // in front of a rule
	placeHit     = "hit"  // behind the tests of a rule
	placeEnd     = "end"  // at the end of a regular chain
	placeBaseEnd = "base" // at the end of a base chain
)

func nftLog(table, chain string, index int, what string) string {
	return fmt.Sprintf(`log prefix "%s|%s|%s|%d|%s" group %d`, nftBackend, table, chain, index, what, traceGroup)
}

// parseNFTPrefix reads what is behind the backend in such a prefix.
func parseNFTPrefix(s string) (point, bool) {
	f := strings.Split(s, "|")
	if len(f) != 4 {
		return point{}, false
	}
	n, err := strconv.Atoi(f[2])
	p := point{backend: nftBackend, table: f[0], chain: f[1], index: n, hit: f[3] == placeHit}
	p.base = f[3] == placeBaseEnd
	p.atEnd = p.base || f[3] == placeEnd
	return p, err == nil
}

// title is the table's family and name, as hops name a table.
func (t *nftTable) title() string { return string(t.family) + " " + t.name }

func (t *nftTable) chain(name string) *nftChain {
	for _, c := range t.chains {
		if c.name == name {
			return c
		}
	}
	c := &nftChain{name: name}
	t.chains = append(t.chains, c)
	return c
}

// add appends a rule that is one string to a chain; the log statement that tells that the rule applies stands before
// the effect.
func (c *nftChain) add(tests, effect string) {
	r := nftRule{}
	if tests != "" {
		r.tests = []string{tests}
	}
	if effect != "" {
		r.effects = []string{effect}
	}
	c.rules = append(c.rules, r)
}

// text is the ruleset for `nft -f`. traced puts log statements around the rules, by which the kernel tells where each
// packet came by: one in front of each rule, one in each rule behind its tests, and one at the end of each chain.
func (n *nftRules) text(traced bool) string {
	var b strings.Builder
	for _, t := range n.tables {
		fmt.Fprintf(&b, "table %s {\n", t.title())
		for _, s := range t.head {
			fmt.Fprintf(&b, "\t%s\n", s)
		}
		for _, s := range t.sets {
			fmt.Fprintf(&b, "\t%s %s {\n", s.keyword, s.name)
			for _, line := range s.spec {
				fmt.Fprintf(&b, "\t\t%s\n", line)
			}
			if len(s.elements) > 0 {
				fmt.Fprintf(&b, "\t\telements = { %s }\n", strings.Join(s.elements, ", "))
			}
			b.WriteString("\t}\n")
		}
		for _, c := range t.chains {
			fmt.Fprintf(&b, "\tchain %s {\n", c.name)
			if c.base != "" {
				fmt.Fprintf(&b, "\t\t%s\n", c.base)
			}
			for i, r := range c.rules {
				if traced {
					index := 2*i + 1
					fmt.Fprintf(&b, "\t\t%s\n", nftLog(t.title(), c.name, index, placeReached))
					tests := append(slices.Clone(r.tests), nftLog(t.title(), c.name, index, placeHit))
					r.tests = tests
				}
				fmt.Fprintf(&b, "\t\t%s\n", r)
			}
			if traced {
				end := placeEnd
				if c.base != "" {
					end = placeBaseEnd
				}
				fmt.Fprintf(&b, "\t\t%s\n", nftLog(t.title(), c.name, 2*len(c.rules), end))
			}
			b.WriteString("\t}\n")
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// clone copies a ruleset down to its rules.
func (n *nftRules) clone() *nftRules {
	out := &nftRules{}
	for _, t := range n.tables {
		u := *t
		u.sets, u.chains = nil, nil
		for _, s := range t.sets {
			v := *s
			v.elements = slices.Clone(s.elements)
			u.sets = append(u.sets, &v)
		}
		for _, c := range t.chains {
			d := *c
			d.rules = slices.Clone(c.rules)
			u.chains = append(u.chains, &d)
		}
		out.tables = append(out.tables, &u)
	}
	return out
}

// count is the number of rules.
func (n *nftRules) count() (total int) {
	for _, t := range n.tables {
		for _, c := range t.chains {
			total += len(c.rules)
		}
	}
	return total
}

// without is the ruleset without k rules from the i-th on, counted over all chains.
func (n *nftRules) without(i, k int) *nftRules {
	out := n.clone()
	at := 0
	for _, t := range out.tables {
		for _, c := range t.chains {
			var keep []nftRule
			for _, r := range c.rules {
				if at < i || at >= i+k {
					keep = append(keep, r)
				}
				at++
			}
			c.rules = keep
		}
	}
	return out
}

// prune drops what no rule names any more: chains, sets, base chains without rules that accept, and empty tables.
func (n *nftRules) prune() *nftRules {
	out := n.clone()
	for _, t := range out.tables {
		for again := true; again; {
			keep := slices.DeleteFunc(slices.Clone(t.chains), func(c *nftChain) bool {
				if c.base != "" {
					return len(c.rules) == 0 && strings.HasSuffix(c.base, "accept;")
				}
				return !t.names(c.name)
			})
			sets := slices.DeleteFunc(slices.Clone(t.sets), func(s *nftSet) bool { return !t.names("@" + s.name) })
			again = len(keep) < len(t.chains) || len(sets) < len(t.sets)
			t.chains, t.sets = keep, sets
		}
	}
	out.tables = slices.DeleteFunc(out.tables, func(t *nftTable) bool { return len(t.chains) == 0 })
	for _, t := range out.tables {
		t.head = slices.DeleteFunc(slices.Clone(t.head), func(s string) bool { return slices.Contains(nftObjects, s) })
	}
	out.withObjects()
	return out
}

// names tells whether a rule or an element holds a word, as the name of a chain or set.
func (t *nftTable) names(word string) bool {
	holds := func(s string) bool {
		for _, f := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" ,{}", r) }) {
			if f == word {
				return true
			}
		}
		return false
	}
	for _, c := range t.chains {
		for _, r := range c.rules {
			if holds(r.String()) {
				return true
			}
		}
	}
	for _, s := range t.sets {
		if slices.ContainsFunc(s.elements, holds) {
			return true
		}
	}
	return false
}

// simplify are the rulesets in which one rule has lost one of its statements.
func (n *nftRules) simplify(yield func(*nftRules) bool) {
	for i, t := range n.tables {
		for j, c := range t.chains {
			for k, r := range c.rules {
				for x := range len(r.tests) + len(r.effects) {
					out := n.clone()
					if s := &out.tables[i].chains[j].rules[k]; x < len(r.tests) {
						s.tests = slices.Delete(slices.Clone(r.tests), x, x+1)
					} else {
						s.effects = slices.Delete(slices.Clone(r.effects), x-len(r.tests), x-len(r.tests)+1)
						s.tells = s.tells && x > len(r.tests)
					}
					if len(r.tests)+len(r.effects) > 1 && !yield(out) {
						return
					}
				}
			}
		}
	}
}

// shrinkNFT removes rules and parts of rules as long as again still sees the disagreement, and returns what is left.
func shrinkNFT(n *nftRules, again func(*nftRules) bool) *nftRules {
	for step := max(n.count()/2, 1); ; step /= 2 {
		for i := 0; i < n.count(); {
			if try := n.without(i, step); again(try) {
				n = try
			} else {
				i += step
			}
		}
		if step == 1 {
			break
		}
	}
	if try := n.prune(); again(try) {
		n = try
	}
	for range 40 {
		smaller := (*nftRules)(nil)
		for try := range n.simplify {
			if again(try) {
				smaller = try
				break
			}
		}
		if smaller == nil {
			break
		}
		n = smaller
	}
	if try := n.prune(); again(try) {
		n = try
	}
	return n
}
