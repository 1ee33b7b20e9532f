package dataplane

import "github.com/svcnet/svcnet/explain/netfilter"

// Programmed is a frontend that the rules serve or refuse, with the rule.
type Programmed struct {
	Portal
	Ruleset *netfilter.Ruleset
	Chain   *netfilter.Chain
	Rule    *netfilter.Rule
}

// EachProgrammed calls f for every rule by which kube-proxy serves or refuses a frontend, in the order of the captures.
// Chains of service ports do not count: kube-proxy keeps some for a while that nothing leads to any more. chains is as
// for Portals.
func EachProgrammed(rulesets []*netfilter.Ruleset, chains map[string]string, f func(Programmed)) {
	for _, rs := range rulesets {
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				if !portalChains[c.Name] {
					continue
				}
				for i := range c.Rules {
					if p, ok := portal(c.Name, &c.Rules[i], chains); ok {
						p.Family = rs.Family
						f(Programmed{p, rs, c, &c.Rules[i]})
					}
				}
			}
		}
	}
}
