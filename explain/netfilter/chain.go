package netfilter

import (
	"fmt"
	"slices"
)

// how a packet leaves a chain.
type how uint8

const (
	// behind: goes on behind the rule.
	behind how = iota
	// fell: off the end of the chain, or RETURN, or back from a goto; goes on in the caller.
	fell
	// accepted: done with the base chain, or with the nat hook once a translation is bound.
	accepted
	dropped
	rejected
	stolen
	// lost: what happens is not in the evidence.
	lost
)

// maxLive bounds the states that one chain is followed with at a time.
const maxLive = 1024

// leaving is a state that leaves a chain, and where.
type leaving struct {
	state
	how          how
	table, chain string
	with         string // the REJECT answer, or the reason of stolen and lost
}

func (l leaving) place(e *Ending) { e.Table, e.Chain = l.table, l.chain }

// base names the base chain that is being run: one of iptables, or one of nftables.
type base struct {
	hook     Hook
	priority int // of a chain of nftables, or of one in the nat hook

	rules *Ruleset
	table *Table

	nft *nftChain
}

// name is the chain in words, as a packet's way is told. The tables of one backend of iptables come together.
func (b base) name() string {
	switch {
	case b.nft != nil:
		return fmt.Sprintf("the rules of table %s", b.nft.table.String())
	case b.rules.Backend == UnknownBackend:
		return fmt.Sprintf("the %s rules of %s", b.table.Name, b.rules.File)
	}
	return fmt.Sprintf("the %s rules of iptables-%s", b.table.Name, b.rules.Backend)
}

// routes tells whether packets of the node are routed again behind the chain.
func (b base) routes() bool {
	if b.nft != nil {
		return b.nft.chain.Base.Type == "route"
	}
	return b.table.Name == "mangle"
}

// baseChain runs one built-in chain for all states and applies its policy to those that reach its end.
func (r *run) baseChain(b base, in []state) []leaving {
	if b.nft != nil {
		return r.nftBaseChain(b, in)
	}
	c := b.table.Chain(b.hook.String())
	left := r.chain(b, c, in, nil)
	for i := range left {
		if left[i].how != fell {
			continue
		}
		switch c.Policy {
		case "DROP":
			left[i].state = left[i].hop(Hop{
				Kind: HopPolicy, Hook: b.hook, Backend: b.rules.Backend, Table: b.table.Name, Chain: c.Name, Index: -1,
				File: b.rules.File, Line: c.Line, Text: "policy DROP", P: 1,
			})
			left[i].how, left[i].table, left[i].chain = dropped, b.table.Name, c.Name+"(policy)"
		case "ACCEPT":
			left[i].how = accepted
		default:
			left[i].how = accepted
			left[i].state = left[i].note("the policy of %s %s is not in the capture: taken as ACCEPT", b.table.Name, c.Name)
		}
	}
	return left
}

// chain runs the states through one chain. stack holds the chains that called it.
func (r *run) chain(b base, c *Chain, live []state, stack []*Chain) []leaving {
	var left []leaving
	// A packet's addresses and ports do not change inside a chain (translations leave it), and all states
	// that enter a chain together come from one packet, so one look into the index serves all that agree.
	for len(live) > 1 {
		group, rest := sameDestination(live)
		left = append(left, r.rules(b, c, group, stack)...)
		live = rest
	}
	switch {
	case len(live) == 0:
		return left
	case len(left) == 0:
		return r.rules(b, c, live, stack)
	}
	return append(left, r.rules(b, c, live, stack)...)
}

// rules runs states that have the same destination through the rules of a chain.
func (r *run) rules(b base, c *Chain, live []state, stack []*Chain) []leaving {
	var left []leaving
	for i := range c.candidates(&live[0].p) {
		rule := &c.Rules[i]
		if !rule.matters(b.hook) || !rule.concerns(live) {
			continue
		}
		var next []state
		for _, s := range live {
			matched, unmatched := r.match(b.hook, rule, s)
			next = append(next, unmatched...)
			for _, m := range matched {
				for _, l := range r.apply(b, c, i, m, stack) {
					if l.how == behind {
						next = append(next, l.state)
					} else {
						left = append(left, l)
					}
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
			return append(left, leaving{state: all, how: lost, table: b.table.Name, chain: c.Name,
				with: fmt.Sprintf("chain %s leaves more than %d ways open", c.Name, maxLive)})
		}
	}
	for _, s := range live {
		l := leaving{state: s, how: fell}
		if c.Partial {
			l.how, l.table, l.chain = lost, b.table.Name, c.Name
			l.with = fmt.Sprintf("the capture has only a part of chain %s of table %s, and none of the rules it has applies", c.Name, b.table.Name)
		}
		left = append(left, l)
	}
	return left
}

// apply does what a matching rule says.
func (r *run) apply(b base, c *Chain, i int, m matched, stack []*Chain) []leaving {
	rule := &c.Rules[i]
	s := m.state
	for _, match := range rule.Matches {
		if rec, ok := match.(Recorder); ok {
			if u, ok := rec.Records(r.Kernel, &s.p); ok {
				s.p.Recent = append(s.p.Recent[:len(s.p.Recent):len(s.p.Recent)], u)
			}
		}
	}
	step := Hop{
		Kind: HopRule, Hook: b.hook, Backend: b.rules.Backend, Table: b.table.Name, Chain: c.Name, Index: i,
		Rule: rule, Target: rule.Target, NAT: b.table.Name == "nat", File: b.rules.File, Line: rule.Line, Text: rule.Text, P: m.p,
	}
	leave := func(h how, with string) []leaving {
		return []leaving{{state: s.hop(step), how: h, table: b.table.Name, chain: c.Name, with: with}}
	}
	goOn := func(s state) []leaving { return []leaving{{state: s, how: behind}} }

	switch t := rule.Target.(type) {
	case nil, Continue:
		return goOn(s)
	case Accept:
		return leave(accepted, "")
	case Drop:
		return leave(dropped, "")
	case Reject:
		return leave(rejected, t.With)
	case Return:
		return []leaving{{state: s, how: fell}}
	case Queue:
		return leave(stolen, fmt.Sprintf("handed to the program that reads queue %d, which decides", t.Num))
	case *TProxy:
		s.p.Mark = s.p.Mark&^t.Mask ^ t.Value
		return leave(stolen, fmt.Sprintf("redirected to a local transparent proxy on port %d", t.Port))
	case Unreadable:
		return leave(lost, fmt.Sprintf("the target of this rule cannot be read: %s %s", t.Name, t.Why))
	case SetMark:
		s.p.Mark = s.p.Mark&^t.Mask ^ t.Value
		return goOn(s.hop(step))
	case Rewrite:
		s.header.target(s.p.Family, t)
		return goOn(s)
	case ConnMark:
		if !s.p.tracked() && !s.p.Template {
			return goOn(s) // there is nothing that could have a mark (connmark_tg)
		}
		switch t.Op {
		case ConnMarkSet:
			s.p.CTMark = s.p.CTMark&^t.Mask ^ t.Value
		case ConnMarkSave:
			s.p.CTMark = s.p.CTMark&^t.CTMask ^ s.p.Mark&t.NFMask
		case ConnMarkRestore:
			s.p.Mark = s.p.Mark&^t.NFMask ^ s.p.CTMark&t.CTMask
		}
		return goOn(s.hop(step))
	case CT:
		if s.template || s.begun {
			return goOn(s)
		}
		s.template = true
		if t.NoTrack {
			s.untracked = true
			s.p.State = StateUntracked
			return goOn(s.hop(step))
		}
		s.p.Template, s.p.Zone = true, t.Zone
		return goOn(s)
	case *SetAdd:
		// The packet itself goes on; later packets may meet another set.
		return goOn(s.note("rule %d of %s changes set %s as packets pass", i+1, c.Name, t.Set))
	case *Translate:
		if !r.hasAddr(b.hook, t, &s) {
			return leave(dropped, "")
		}
		var left []leaving
		for _, s := range r.translate(b, t, s.hop(step)) {
			left = append(left, leaving{state: s, how: accepted, table: b.table.Name, chain: c.Name})
		}
		return left
	case Jump:
		return r.jump(b, c, t, step, s, stack)
	default:
		return leave(lost, fmt.Sprintf("target %T is not evaluated", t))
	}
}

// jump runs the called chain. Steps inside it that decided nothing leave no hops.
func (r *run) jump(b base, c *Chain, t Jump, step Hop, s state, stack []*Chain) []leaving {
	called := b.table.Chain(t.Chain)
	lose := func(why string) []leaving {
		return []leaving{{state: s.hop(step), how: lost, table: b.table.Name, chain: c.Name, with: why}}
	}
	if called == nil || (!called.Declared && len(called.Rules) == 0) {
		return lose(fmt.Sprintf("the rule goes on in chain %s, which is not in the capture of table %s", t.Chain, b.table.Name))
	}
	stack = append(stack[:len(stack):len(stack)], c)
	for _, on := range stack {
		if on == called {
			return lose(fmt.Sprintf("the rules loop: chain %s calls itself", t.Chain))
		}
	}
	inside := s.hop(step)
	left := r.chain(b, called, []state{inside}, stack)
	for i := range left {
		if left[i].how != fell {
			continue
		}
		if left[i].hops == inside.hops {
			left[i].hops = s.hops
		}
		// What falls off a chain that was entered by goto goes on in the caller of the chain with the goto.
		if !t.Goto {
			left[i].how = behind
		}
	}
	return left
}

// matters is false for rules that cannot change where a packet goes: counting and logging, and rewriting what only
// chains of OUTPUT compare.
func (r *Rule) matters(h Hook) bool {
	switch r.Target.(type) {
	case Rewrite:
		return h == Output
	case nil, Continue:
		for _, m := range r.Matches {
			if _, ok := m.(Recorder); ok {
				return true
			}
		}
		return false
	}
	return true
}

// concerns is false where the rule's protocol, destination or fragment test leaves all packets out, as most rules do.
func (r *Rule) concerns(live []state) bool {
	for i := range live {
		if r.admits(&live[i].p) {
			return true
		}
	}
	return false
}

// admits makes the rule's protocol, destination and fragment tests, which never split a packet.
func (r *Rule) admits(p *Packet) bool {
	return r.Proto.Test(p.Proto) && r.Dst.Test(p.Dst) && r.Fragment != OnlyFragments
}

// matched is a state for which a rule applies, with the probability of the rule's own random tests.
type matched struct {
	state
	p float64
}

// match tests a rule. A random or undecided test splits the state: the matched states and the unmatched
// ones together have the state's share, within each choice of assumptions.
func (r *run) match(hook Hook, rule *Rule, s state) (yes []matched, no []state) {
	p := &s.p
	if !rule.admits(p) {
		return nil, []state{s}
	}
	if r.OnSource != nil && rule.Src.Prefix.IsValid() && !s.p.SNATed {
		r.OnSource(rule.Src.Prefix)
	}
	if !rule.Src.Test(p.Src) {
		return nil, []state{s}
	}
	var (
		facts []Fact
		share = 1.0
	)
	take := func(a Answer) (goOn bool) {
		switch a.Truth {
		case False:
			return false
		case Random:
			share *= a.P
		case Undecided:
			if answer, ok := s.answered(a.Fact.Key); ok {
				return answer != a.Fact.Not
			}
			facts = append(facts, a.Fact)
		}
		return true
	}
	if i := rule.Ifaces; i != nil && (!take(i.In.Test(p.In, false)) || !take(i.Out.Test(p.Out, true))) {
		return nil, []state{s}
	}
	for _, m := range rule.Matches {
		if set, ok := m.(*SetMatch); ok {
			r.tellSources(set, &s)
		}
		if !take(m.Test(r.Kernel, hook, p)) {
			return nil, []state{s}
		}
	}
	for _, f := range facts {
		holds, fails := s.fork(f)
		if f.Not {
			holds, fails = fails, holds
		}
		no = append(no, fails...)
		if len(holds) == 0 {
			return nil, no
		}
		s = holds[0]
	}
	if share < 1 {
		other := s
		other.prob *= 1 - share
		no = append(no, other)
		s.prob *= share
	}
	return []matched{{s, share}}, no
}

// sameDestination splits off the states that agree with the first in what the index looks at.
func sameDestination(live []state) (group, rest []state) {
	first := &live[0].p
	for _, s := range live {
		if s.p.Dst == first.Dst && s.p.Proto == first.Proto && s.p.DstPort == first.DstPort {
			group = append(group, s)
		} else {
			rest = append(rest, s)
		}
	}
	return group, rest
}

// tellSources tells OnSource by which networks a rule's set knows clients.
func (r *run) tellSources(m *SetMatch, s *state) {
	if r.OnSource == nil || s.p.SNATed || !slices.Contains(m.Dirs, DirSrc) {
		return
	}
	if set := r.Kernel.Sets[m.Set]; set != nil {
		all := set.sources(m.Dirs, &s.p)
		for _, p := range all[:min(len(all), maxTold)] {
			r.OnSource(p)
		}
	}
}
