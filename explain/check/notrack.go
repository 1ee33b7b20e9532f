package check

import (
	"net/netip"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// exempts tells whether a rule takes packets out of connection tracking.
func exempts(r *netfilter.Rule) bool {
	ct, ok := r.Target.(netfilter.CT)
	return ok && ct.NoTrack
}

// exemption is a rule that takes packets out of connection tracking.
type exemption struct {
	rules *netfilter.Ruleset
	rule  *netfilter.Rule
}

// hooked is a hook of a family.
type hooked struct {
	family netfilter.Family
	hook   netfilter.Hook
}

// exemptions are the rules of a family that take packets out of connection tracking at a hook, in the chain itself or in
// those that it leads to. They are gathered at the first question.
func (n *Node) exemptions(family netfilter.Family, hook netfilter.Hook) []exemption {
	if n.exempting == nil {
		n.exempting = make(map[hooked][]exemption)
		for _, rs := range n.Rulesets {
			for _, h := range []netfilter.Hook{netfilter.Prerouting, netfilter.Output} {
				at := hooked{rs.Family, h}
				n.exempting[at] = append(n.exempting[at], exemptionsOf(rs, h)...)
			}
		}
	}
	return n.exempting[hooked{family, hook}]
}

func exemptionsOf(rs *netfilter.Ruleset, hook netfilter.Hook) []exemption {
	t := rs.Table("raw")
	if t == nil {
		return nil
	}
	start := t.Chain(hook.String())
	if start == nil {
		return nil
	}
	var out []exemption
	reached := t.ReachedFrom(start)
	for _, c := range t.Chains {
		for i := range c.Rules {
			if reached[c.Name] && exempts(&c.Rules[i]) {
				out = append(out, exemption{rs, &c.Rules[i]})
			}
		}
	}
	return out
}

// covers tells whether a rule is for packets to (or, with its source, from) an address: an unset test is for all.
func covers(m netfilter.AddrMatch, a netip.Addr) bool {
	return !m.Prefix.IsValid() || m.Test(a)
}
