//go:build linux

package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// A tally counts how often something was met each way.
type tally struct {
	// kernelYes and kernelNo are what the kernel's counters and trace say: packets that a rule with the match
	// counted, and packets that came to a rule with no other test and were not counted.
	kernelYes, kernelNo int
	// walkYes and walkNo are decided answers of the walk for packets whose outcome agreed; walkRandom and walkOpen
	// are the others.
	walkYes, walkNo, walkRandom, walkOpen int
}

// coverage is what a run has met.
type coverage struct {
	matches, targets map[string]*tally
}

func newCoverage() *coverage {
	return &coverage{matches: make(map[string]*tally), targets: make(map[string]*tally)}
}

func at(m map[string]*tally, name string) *tally {
	t := m[name]
	if t == nil {
		t = &tally{}
		m[name] = t
	}
	return t
}

// A watched match counts the answers of the match inside it.
type watched struct {
	netfilter.Match
	name    string
	answers map[string]*[4]int
}

func (w watched) Test(k *netfilter.Kernel, h netfilter.Hook, p *netfilter.Packet) netfilter.Answer {
	a := w.Match.Test(k, h, p)
	c := w.answers[w.name]
	if c == nil {
		c = &[4]int{}
		w.answers[w.name] = c
	}
	c[a.Truth]++
	return a
}

// watch puts a counter around each match of the rules. Matches that remember packets stay as they are: the walk
// knows them by their type.
func watch(rulesets []*netfilter.Ruleset) map[string]*[4]int {
	answers := make(map[string]*[4]int)
	for _, rs := range rulesets {
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				for i := range c.Rules {
					r := &c.Rules[i]
					for j, m := range r.Matches {
						if _, records := m.(netfilter.Recorder); !records {
							r.Matches[j] = watched{m, typeName(m), answers}
						}
					}
				}
			}
		}
	}
	return answers
}

// typeName is the name of a match's type, which stands for the match: "netfilter.Multiport" is "multiport".
func typeName(m netfilter.Match) string {
	if o, is := m.(*netfilter.Other); is {
		return o.Name
	}
	s := fmt.Sprintf("%T", m)
	return strings.ToLower(s[strings.LastIndexByte(s, '.')+1:])
}

// walked adds the answers of a walk, of which the outcome agreed with the kernel.
func (c *coverage) walked(answers map[string]*[4]int) {
	for name, n := range answers {
		t := at(c.matches, name)
		t.walkNo += n[netfilter.False]
		t.walkYes += n[netfilter.True]
		t.walkRandom += n[netfilter.Random]
		t.walkOpen += n[netfilter.Undecided]
	}
}

// seen adds what the kernel says of a ruleset after the packets: the counters of the rules, and from the trace the
// packets that came to each.
func (c *coverage) seen(rs *netfilter.Ruleset, shots []shot, obs []*observation, traced bool) {
	reached := make(map[string][]shot)
	if traced {
		for i, o := range obs {
			for _, p := range o.path {
				key := fmt.Sprintf("%s/%s/%d", p.table, p.chain, p.index)
				if p.backend == rs.Backend {
					reached[key] = append(reached[key], shots[i])
				}
			}
		}
	}
	for _, t := range rs.Tables {
		for _, ch := range t.Chains {
			for i := range ch.Rules {
				r := &ch.Rules[i]
				matches, target := words(r.Text)
				if target != "" && r.Packets > 0 {
					at(c.targets, target).kernelYes += int(r.Packets)
				}
				for _, m := range matches {
					at(c.matches, m).kernelYes += int(r.Packets)
				}
				if len(matches) == 1 && alone(r) {
					n := -int(r.Packets)
					for _, s := range reached[fmt.Sprintf("%s/%s/%d", t.Name, ch.Name, i)] {
						if !r.Proto.Set || r.Proto.Number == s.proto {
							n++
						}
					}
					if n > 0 { // answers of other packets are counted too, but not traced
						at(c.matches, matches[0]).kernelNo += n
					}
				}
			}
		}
	}
}

// alone tells whether a rule tests nothing but its match and the protocol that goes with it.
func alone(r *netfilter.Rule) bool {
	return !r.Src.Prefix.IsValid() && !r.Dst.Prefix.IsValid() && r.In().Name == "" && r.Out().Name == "" && !r.Proto.Not && r.Fragment == netfilter.AnyFragment
}

// words are the names of a rule's matches and of its target; the target of a jump is "jump" or "goto".
func words(text string) (matches []string, target string) {
	f := strings.Fields(text)
	quoted := false
	for i, w := range f {
		if !quoted && i+1 < len(f) {
			switch w {
			case "-m":
				matches = append(matches, f[i+1])
			case "-j":
				target = f[i+1]
			case "-g":
				target = "goto"
			}
		}
		if strings.Count(strings.ReplaceAll(w, `\"`, ""), `"`)%2 == 1 {
			quoted = !quoted
		}
	}
	if target != "" && target != "goto" && !slices.ContainsFunc(targetKinds, func(k targetKind) bool { return k.name == target }) {
		target = "jump"
	}
	return matches, target
}

// table prints what was met.
func (c *coverage) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s %10s %10s %10s %10s %10s %10s\n", "match", "kernel yes", "kernel no", "walk yes", "walk no", "random", "open")
	for _, name := range slices.Sorted(maps.Keys(c.matches)) {
		t := c.matches[name]
		fmt.Fprintf(&b, "%-14s %10d %10d %10d %10d %10d %10d\n", name, t.kernelYes, t.kernelNo, t.walkYes, t.walkNo, t.walkRandom, t.walkOpen)
	}
	fmt.Fprintf(&b, "%-14s %10s\n", "target", "taken")
	for _, name := range slices.Sorted(maps.Keys(c.targets)) {
		fmt.Fprintf(&b, "%-14s %10d\n", name, c.targets[name].kernelYes)
	}
	return b.String()
}
