package plan

import (
	"slices"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// aboutRules tells whether a finding may be about rules that kube-proxy writes. What is for information alone asks for
// nothing but what it is about.
func aboutRules(f *report.Finding) bool {
	c := check.Lookup(f.ID)
	if c == nil || reasons[f.ID] != "" {
		return false
	}
	switch f.ID {
	case "kube-jump-missing", "duplicate-rules", "dangling-or-orphan-chain", "stale-service-rule", "unconditional-drop-in-kube-firewall", "local-policy-masquerade-order", "unreadable-target":
		return true
	}
	return c.MaySettle() && f.Severity != check.Info
}

// choose are the differences that findings ask for, with the findings.
func (p *xtPlanner) choose(asking []int) map[*xtDifference][]int {
	// Most differences are of one Service each, and most findings too.
	general := make([]int, 0, len(asking))
	byService := make(map[string][]int)
	byChain := make(map[string][]int)
	for _, i := range asking {
		if s := serviceIn(&p.findings[i]); s != "" {
			byService[s] = append(byService[s], i)
		} else {
			general = append(general, i)
		}
		for chain := range p.namedBy(i) {
			if dataplane.PerService(chain) {
				byChain[chain] = append(byChain[chain], i)
			}
		}
	}
	chosen := make(map[*xtDifference][]int)
	for _, x := range p.differences {
		of := asking
		if x.service != "" {
			of = slices.Concat(general, byService[x.service], byChain[x.chain])
			slices.Sort(of)
			of = slices.Compact(of)
		}
		for _, i := range of {
			if p.asks(i, x) {
				chosen[x] = append(chosen[x], i)
			}
		}
	}
	p.complete(chosen)
	p.keepReferenced(chosen)
	return chosen
}

// serviceIn is the Service that a finding is about, as "namespace/name"; empty for one of the node.
func serviceIn(f *report.Finding) string {
	if f.Object.Kind != "Service" {
		return ""
	}
	return f.Object.Namespace + "/" + f.Object.Name
}

// complete adds what chosen changes rest on: chains that are not there and to which their rules lead, and what leads to
// the chains that they change.
func (p *xtPlanner) complete(chosen map[*xtDifference][]int) {
	made := make(map[xtKey]map[string][]int)
	wanted := make(map[xtKey]map[string][]int)
	note := func(of map[xtKey]map[string][]int, x *xtDifference, chain string) {
		k := xtKey{x.table.rules, x.table.name}
		if of[k] == nil {
			of[k] = make(map[string][]int)
		}
		of[k][chain] = chosen[x]
	}
	for again := true; again; {
		again = false
		for _, x := range p.differences {
			if chosen[x] == nil || x.removes || x.harmless {
				continue
			}
			note(made, x, x.chain)
			for _, to := range x.needs {
				note(wanted, x, to)
			}
		}
		for _, y := range p.differences {
			if chosen[y] != nil || y.removes || y.harmless {
				continue
			}
			k := xtKey{y.table.rules, y.table.name}
			if because := wanted[k][y.chain]; because != nil && !p.exists(y) {
				chosen[y], again = because, true
				continue
			}
			for _, to := range y.needs {
				if because := made[k][to]; y.service == "" && because != nil {
					chosen[y], again = because, true
					break
				}
			}
		}
	}
}

// exists tells whether the chain of a difference is there already.
func (p *xtPlanner) exists(x *xtDifference) bool {
	return x.table.read != nil && x.table.read.Chain(x.chain) != nil || builtIn(x.table.name, x.chain)
}

// asks tells whether a finding asks for a change.
func (p *xtPlanner) asks(i int, x *xtDifference) bool {
	f := &p.findings[i]
	service := serviceIn(f)
	if !p.inFamily(i, x.table.rules.Family) {
		return false
	}
	switch {
	case x.move != nil || len(x.behind) > 0:
		return len(p.namedBehind(i, x)) > 0
	case p.mended[i] && p.node.Proxy.Mode == ipvsMode && !p.names(i, x.chain):
		return false // sets, virtual servers and addresses do it
	case x.repeated, f.ID == "duplicate-rules":
		return f.ID == "duplicate-rules" && p.names(i, x.chain) && p.inRuleset(f, x)
	case x.removes && f.ID == "dangling-or-orphan-chain":
		return p.inRuleset(f, x)
	case f.ID == "dangling-or-orphan-chain":
		// Chains that are as they should be lack what leads to them.
		return p.inRuleset(f, x) && slices.ContainsFunc(x.needs, func(to string) bool { return dataplane.PerService(to) && p.names(i, to) })
	case x.service != "":
		return service == x.service || service == "" && p.asksAll(i) || dataplane.PerService(x.chain) && p.names(i, x.chain)
	case p.names(i, x.chain):
		return true
	case service != "":
		// What serves all serves this one too.
		return len(p.obstacles[i]) == 0
	}
	return len(p.obstacles[i]) == 0 && f.ID != "kube-jump-missing" && f.ID != "invalid-drop-missing"
}

// asksAll tells whether a finding of the node stands for one of each Service.
func (p *xtPlanner) asksAll(i int) bool {
	switch p.findings[i].ID {
	case "missing-service-rule", "frontend-unreachable", "reply-blocked":
		return len(p.obstacles[i]) == 0
	}
	return false
}

// names tells whether a finding names a chain.
func (p *xtPlanner) names(i int, chain string) bool { return p.namedBy(i)[chain] }

func (p *xtPlanner) namedBy(i int) map[string]bool {
	if p.named[i] == nil {
		p.named[i] = p.index.namedChains(p.node.Rulesets, &p.findings[i])
	}
	return p.named[i]
}

// inFamily tells whether a finding may be about rules of a family: the one of the rules that it shows, or where it shows
// none those of its Service.
func (p *xtPlanner) inFamily(i int, family netfilter.Family) bool {
	f := &p.findings[i]
	shown := p.families[i]
	if shown == nil {
		shown = make(map[netfilter.Family]bool)
		for j := range f.Evidence {
			if at, ok := p.index.place(p.node.Rulesets, &f.Evidence[j]); ok {
				shown[at.rules.Family] = true
			}
		}
		if p.families == nil {
			p.families = make(map[int]map[netfilter.Family]bool)
		}
		p.families[i] = shown
	}
	if len(shown) > 0 || f.Object.Kind != "Service" {
		return len(shown) == 0 || shown[family]
	}
	ports := p.node.Plan.Of(f.Object.Namespace, f.Object.Name)
	return len(ports) == 0 || slices.ContainsFunc(ports, func(sp *intent.ServicePort) bool { return sp.Family == int(family) })
}

// inRuleset tells whether a finding is about the rules in which a difference is, as far as it says.
func (p *xtPlanner) inRuleset(f *report.Finding, x *xtDifference) bool {
	for i := range f.Evidence {
		if at, ok := p.index.place(p.node.Rulesets, &f.Evidence[i]); ok {
			return at.rules == x.table.rules && at.table == x.table.read
		}
	}
	return true
}

// namedBehind are the rules of others that a finding names, of those that come before kube-proxy's.
func (p *xtPlanner) namedBehind(i int, x *xtDifference) []*netfilter.Rule {
	var out []*netfilter.Rule
	f := &p.findings[i]
	for j := range f.Evidence {
		at, ok := p.index.place(p.node.Rulesets, &f.Evidence[j])
		if !ok || at.rule == nil || !slices.Contains(x.behind, at.rule) {
			continue
		}
		if _, translates := at.rule.Target.(*netfilter.Translate); translates && !p.binds(f) {
			continue
		}
		out = append(out, at.rule)
	}
	return out
}

// binds tells whether kube-proxy translates every connection to the Service that a finding is about, whoever makes it.
// What it leaves alone, because there is no endpoint for it or its source is not let in, the other's rule would still take.
func (p *xtPlanner) binds(f *report.Finding) bool {
	if p.node.Proxy.Mode == ipvsMode {
		return false // its chains translate nothing, and do not keep another's translation from packets
	}
	ports := p.node.Plan.Of(f.Object.Namespace, f.Object.Name)
	return f.Object.Kind == "Service" && len(ports) > 0 && !slices.ContainsFunc(ports, func(sp *intent.ServicePort) bool {
		local := (sp.InternalLocal || sp.ExternalLocal) && len(sp.Local) == 0
		return len(sp.Usable) == 0 || len(sp.SourceRanges) > 0 || local
	})
}

// keepReferenced drops the removal of chains to which rules that stay lead: the kernel would refuse the transaction.
func (p *xtPlanner) keepReferenced(chosen map[*xtDifference][]int) {
	for again := true; again; {
		again = false
		gone := make(map[*xtTable]map[string]*xtDifference)
		rewritten := make(map[*xtTable]map[string][]*xtDifference)
		for _, x := range p.differences {
			switch {
			case chosen[x] == nil:
			case x.removes:
				if gone[x.table] == nil {
					gone[x.table] = make(map[string]*xtDifference)
				}
				gone[x.table][x.chain] = x
			default:
				if rewritten[x.table] == nil {
					rewritten[x.table] = make(map[string][]*xtDifference)
				}
				rewritten[x.table][x.chain] = append(rewritten[x.table][x.chain], x)
			}
		}
		for t, chains := range gone {
			for _, c := range t.read.Chains {
				if chains[c.Name] != nil {
					continue
				}
				targets := p.targets(t, c, rewritten[t][c.Name])
				for _, to := range targets {
					if x := chains[to]; x != nil && chosen[x] != nil {
						delete(chosen, x)
						again = true
					}
				}
			}
		}
	}
}

// targets are the chains that a chain leads to once it is changed.
func (p *xtPlanner) targets(t *xtTable, c *netfilter.Chain, changes []*xtDifference) []string {
	var out []string
	if len(changes) == 0 {
		for i := range c.Rules {
			if j, ok := c.Rules[i].Target.(netfilter.Jump); ok && dataplane.Stock(t.name, j.Chain) {
				out = append(out, j.Chain)
			}
		}
		return out
	}
	now := t.chain(c.Name)
	for _, x := range changes {
		if x.change != nil {
			now = x.change(now)
		}
	}
	for _, r := range now.rules {
		if to := jumpOf(r.text); to != "" {
			out = append(out, to)
		}
	}
	return out
}
