package netfilter

import (
	"fmt"
	"slices"

	"github.com/svcnet/svcnet/explain/nft"
)

// nftChain is a base chain of nftables, with where it stands.
type nftChain struct {
	file  string
	table *nft.Table
	chain *nft.Chain
}

// nftHooks are the hooks by nft's names.
var nftHooks = [...]string{
	Prerouting: "prerouting", Input: "input", Forward: "forward", Output: "output", Postrouting: "postrouting",
}

// nftBases are the base chains of nftables that packets of the run's family meet at a hook: those of type nat, or the
// others.
func (r *run) nftBases(h Hook, nat bool) []base {
	var out []base
	for _, rs := range r.NFT {
		for _, t := range rs.Tables {
			if !r.meets(t) {
				continue
			}
			for _, c := range t.BaseChains() {
				if c.Base.Hook != nftHooks[h] || (c.Base.Type == "nat") != nat || len(c.Rules) == 0 && c.Base.Policy != "drop" {
					continue
				}
				out = append(out, base{hook: h, priority: c.Base.Priority, nft: &nftChain{rs.File, t, c}})
			}
		}
	}
	return out
}

// meets tells whether packets of the run's family meet a table, and it is not one of those that iptables-nft keeps and
// that stands among the rulesets of iptables already.
func (r *run) meets(t *nft.Table) bool {
	if t.Dormant || t.Family != nft.Inet && t.Family != nftFamily(r.family) {
		return false
	}
	return !slices.ContainsFunc(r.rulesets, func(rs *Ruleset) bool { return HeldByIPTables(t, rs) })
}

func nftFamily(f Family) nft.Family {
	if f == IPv6 {
		return nft.IP6
	}
	return nft.IP
}

// HeldByIPTables tells whether a table of nftables is one that iptables-nft keeps there, and a ruleset of iptables has
// it: iptables-nft takes the tables ip and ip6 of five names for its own.
func HeldByIPTables(t *nft.Table, rs *Ruleset) bool {
	return rs.Backend != Legacy && t.Family == nftFamily(rs.Family) && rs.Table(t.Name) != nil && KeptByIPTables(t)
}

// KeptByIPTables tells whether iptables-nft takes a table of nftables for its own, by its name.
func KeptByIPTables(t *nft.Table) bool {
	if t.Family != nft.IP && t.Family != nft.IP6 {
		return false
	}
	switch t.Name {
	case "filter", "mangle", "nat", "raw", "security":
		return true
	}
	return false
}

// nftBaseChain runs one base chain and applies its policy to the states that reach its end.
func (r *run) nftBaseChain(b base, in []state) []leaving {
	c := b.nft.chain
	var left []leaving
	if t := b.nft.table; t.Unclear {
		in = each(in, func(s state) []state {
			dormant, awake := s.fork(Fact{
				Key: "dormant " + t.String(), Yes: "table " + t.String() + " is dormant", No: "table " + t.String() + " is not dormant",
				Because: "the flags of the table could not be read",
			})
			for _, s := range dormant {
				left = append(left, leaving{state: s, how: accepted})
			}
			return awake
		})
	}
	left = append(left, r.nftRules(b, c, in, nil)...)
	for i := range left {
		if left[i].how != fell {
			continue
		}
		if left[i].how = accepted; c.Base.Policy != "drop" {
			continue
		}
		left[i].state = left[i].hop(Hop{
			Kind: HopPolicy, Hook: b.hook, Table: b.nft.table.String(), Chain: c.Name, Index: -1,
			NFT: true, NAT: c.Base.Type == "nat", File: b.nft.file, Line: c.Line, Text: "policy drop", P: 1,
		})
		left[i].how, left[i].table, left[i].chain = dropped, b.nft.table.String(), c.Name+"(policy)"
	}
	return left
}

// nftRules runs states through the rules of a chain. stack holds the chains that called it.
func (r *run) nftRules(b base, c *nft.Chain, live []state, stack []*nft.Chain) []leaving {
	var left []leaving
	for i, rule := range c.Rules {
		at := nftPlace{base: b, chain: c, index: i, rule: rule, stack: stack}
		var next []state
		for _, s := range live {
			for _, l := range r.nftRule(&at, s) {
				if l.how == behind {
					next = append(next, l.state)
				} else {
					left = append(left, l)
				}
			}
		}
		live = mergeStates(next)
		if len(live) == 0 {
			return left
		}
		if len(live) > maxLive {
			all := live[0]
			for _, s := range live[1:] {
				all.prob += s.prob
			}
			return append(left, at.leave(all, lost, fmt.Sprintf("chain %s leaves more than %d ways open", c.Name, maxLive)))
		}
	}
	for _, s := range live {
		left = append(left, leaving{state: s, how: fell})
	}
	return left
}

// nftPlace is the rule that is being run.
type nftPlace struct {
	base
	chain *nft.Chain
	index int
	rule  *nft.Rule
	// statement is the position of the statement of the rule that is being run.
	statement int
	stack     []*nft.Chain
}

func (at *nftPlace) leave(s state, h how, with string) leaving {
	return leaving{state: s, how: h, table: at.nft.table.String(), chain: at.chain.Name, with: with}
}

// step is the rule as a step of the walk: with what it did, and with the entry that a map chose.
func (at *nftPlace) step(x *progress, did Target) Hop {
	return Hop{
		Kind: HopRule, Hook: at.hook, Table: at.nft.table.String(), Chain: at.chain.Name, Index: at.index,
		NFT: true, Native: at.rule, Target: did, NAT: at.nft.chain.Base.Type == "nat",
		File: at.nft.file, Line: at.rule.Line, Text: textWith(at.rule.Text, x.entries), P: x.p,
	}
}

// nftJump runs the called chain. Steps inside it that decided nothing leave no hops.
func (r *run) nftJump(at *nftPlace, x *progress, v *nft.Verdict) []leaving {
	s := x.state
	inside := s.hop(at.step(x, Jump{Chain: v.Chain, Goto: v.Kind == nft.Goto}))
	called := at.nft.table.Chain(v.Chain)
	if called == nil {
		return []leaving{at.leave(inside, lost, fmt.Sprintf("the rule goes on in chain %s, which is not in the capture of table %s", v.Chain, at.nft.table))}
	}
	stack := append(at.stack[:len(at.stack):len(at.stack)], at.chain)
	if slices.Contains(stack, called) {
		return []leaving{at.leave(inside, lost, fmt.Sprintf("the rules loop: chain %s calls itself", v.Chain))}
	}
	left := r.nftRules(at.base, called, []state{inside}, stack)
	for i := range left {
		if left[i].how != fell {
			continue
		}
		if left[i].hops == inside.hops && !x.acted {
			left[i].hops = s.hops
		}
		// What falls off a chain that was entered by goto goes on in the caller of the chain with the goto.
		if v.Kind == nft.Jump {
			left[i].how = behind
		}
	}
	return left
}
