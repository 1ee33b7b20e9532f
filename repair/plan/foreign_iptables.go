package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// obstructs tells, for findings that may be about a rule of another program, whether a rule with that target is it.
func obstructs(id string, target netfilter.Target, mark uint32) bool {
	switch id {
	case "masquerade-unexpected":
		switch t := target.(type) {
		case *netfilter.Translate:
			return t.Kind == netfilter.SNAT || t.Kind == netfilter.Masquerade || t.Kind == netfilter.NetMap
		case netfilter.SetMark:
			return t.Value&mark != 0
		}
	case "masquerade-missing":
		switch target.(type) {
		case netfilter.Accept, netfilter.Return, *netfilter.Translate, netfilter.SetMark:
			return true
		}
	case "notrack-breaks-reply-translation":
		ct, ok := target.(netfilter.CT)
		return ok && ct.NoTrack
	case "fwmark-set-before-service-dnat":
		switch target.(type) {
		case netfilter.SetMark, netfilter.ConnMark:
			return true
		}
	case "foreign-dnat-before-kube-services", "excluded-endpoint-used", "not-ready-endpoint-used", "stale-endpoint-rule", "wrong-translation",
		"missing-endpoint-rule", "probability-skewed", "selection-incomplete", "affinity-mismatch":
		switch target.(type) {
		case *netfilter.Translate, *netfilter.TProxy:
			return true
		}
	case "frontend-unreachable", "reply-blocked", "forward-policy-drop", "neighbour-discovery-dropped", "missing-service-rule",
		"reject-rule-with-ready-endpoints", "early-accept-hides-reject", "refusal-missing", "kube-jump-missing":
		switch t := target.(type) {
		case netfilter.Accept, netfilter.Return, netfilter.Drop, netfilter.Reject, *netfilter.Translate, *netfilter.TProxy, netfilter.Queue:
			return true
		case netfilter.CT:
			return t.NoTrack
		}
	}
	return false
}

// findObstacles gathers the rules and policies of others that findings name as what is in the way.
func (p *xtPlanner) findObstacles() {
	for _, i := range p.which(func(f *report.Finding) bool { return reasons[f.ID] == "" }) {
		f := &p.findings[i]
		for j := range f.Evidence {
			at, ok := p.index.place(p.node.Rulesets, &f.Evidence[j])
			// What drops for a NetworkPolicy is meant to.
			if !ok || dataplane.Stock(at.table.Name, at.chain.Name) || check.PolicyOwner(at.chain.Name) != "" {
				continue
			}
			switch {
			case at.rule == nil:
				if f.Evidence[j].Text != "policy DROP" || !strings.EqualFold(at.chain.Policy, "DROP") {
					continue
				}
			case !obstructs(f.ID, at.rule.Target, p.node.Proxy.MasqueradeMark):
				continue
			}
			if !slices.Contains(p.obstacles[i], at) {
				p.obstacles[i] = append(p.obstacles[i], at)
			}
		}
	}
}

// foreignSteps take the rules and policies of others out of the way that kube-proxy's cannot be put before. Each needs
// consent.
func (p *xtPlanner) foreignSteps() []report.RepairStep {
	var places []xtPlace
	by := make(map[xtPlace][]int)
	for _, i := range p.which(func(*report.Finding) bool { return true }) {
		for _, at := range p.obstacles[i] {
			if at.rule != nil && p.passed[at.rule] {
				continue
			}
			if by[at] == nil {
				places = append(places, at)
			}
			by[at] = append(by[at], i)
		}
	}
	var out []report.RepairStep
	for _, at := range places {
		if !at.table.Complete {
			for _, i := range by[at] {
				p.leave([]int{i}, fmt.Sprintf("the %s table of %s was not read whole", at.table.Name, at.rules.File))
			}
			continue
		}
		onlyDiscovery := !slices.ContainsFunc(by[at], func(i int) bool { return p.findings[i].ID != "neighbour-discovery-dropped" })
		switch {
		case onlyDiscovery:
			out = append(out, p.acceptDiscovery(at, by[at]))
		case at.rule == nil:
			out = append(out, p.openPolicy(at, by[at]))
		default:
			out = append(out, p.removeForeign(at, by[at]))
		}
	}
	return out
}

// foreign begins a step that changes what is not kube-proxy's.
func (p *xtPlanner) foreign(at xtPlace, findings []int, title, risk string, change func(c *xtChain) *xtChain) report.RepairStep {
	t := p.table(at.rules, at.table.Name)
	s := t.begin()
	s.change(at.chain.Name, change)
	reason := p.findings[findings[0]].Message
	s.edit(at.chain.Name, object{}, report.RepairEdit{Reason: reason, Findings: p.mends(findings...), Service: p.serviceOf(findings)})
	return s.done(report.RepairStep{
		Owner: ownerForeign, Consent: AllowForeign, Title: title, Reason: reason, Risk: risk,
		Affects: fmt.Sprintf("all IPv%d packets that pass chain %s of table %s, not only those of Services", at.rules.Family, at.chain.Name, at.table.Name),
		Lasts:   "until the program that made it writes its rules again",
	})
}

// serviceOf is the Service that all of some findings are about; empty where there is none.
func (p *xtPlanner) serviceOf(findings []int) string {
	service := ""
	for n, i := range findings {
		o := p.findings[i].Object
		s := ""
		if o.Kind == "Service" {
			s = o.Namespace + "/" + o.Name
		}
		if n > 0 && s != service {
			return ""
		}
		service = s
	}
	return service
}

// removeForeign removes one rule. Of several that say the same it is the one that was named.
func (p *xtPlanner) removeForeign(at xtPlace, findings []int) report.RepairStep {
	t := p.table(at.rules, at.table.Name)
	nth := 0
	for i := range at.chain.Rules {
		if r := &at.chain.Rules[i]; r == at.rule {
			break
		} else if r.Text == at.rule.Text {
			nth++
		}
	}
	return p.foreign(at, findings,
		fmt.Sprintf("remove a rule from chain %s in table %s: %s", at.chain.Name, t.title(), ruleOnly(at.rule.Text)),
		"whoever made the rule had a reason, and may make it again; what it was for besides does not happen any more",
		func(c *xtChain) *xtChain {
			out := &xtChain{there: true, policy: c.policy, rules: slices.Clone(c.rules)}
			left := nth
			for i, r := range out.rules {
				if r.text != at.rule.Text {
					continue
				}
				if left == 0 {
					out.rules = slices.Delete(out.rules, i, i+1)
					break
				}
				left--
			}
			return out
		})
}

// openPolicy lets packets pass that no rule of a built-in chain decides about.
func (p *xtPlanner) openPolicy(at xtPlace, findings []int) report.RepairStep {
	t := p.table(at.rules, at.table.Name)
	return p.foreign(at, findings,
		fmt.Sprintf("set the policy of chain %s in table %s to ACCEPT", at.chain.Name, t.title()),
		"whatever else the policy kept out passes as well: rather accept what is needed, if somebody set the policy on purpose",
		func(c *xtChain) *xtChain { return &xtChain{there: true, policy: "ACCEPT", rules: c.rules} })
}

// acceptDiscovery lets the messages pass by which IPv6 finds its neighbours.
func (p *xtPlanner) acceptDiscovery(at xtPlace, findings []int) report.RepairStep {
	t := p.table(at.rules, at.table.Name)
	rules := []*xtRule{}
	for _, kind := range []string{"135", "136"} {
		rules = append(rules, &xtRule{fmt.Sprintf("-A %s -p ipv6-icmp -m icmp6 --icmpv6-type %s -j ACCEPT", at.chain.Name, kind)})
	}
	return p.foreign(at, findings,
		fmt.Sprintf("accept neighbour discovery in chain %s in table %s", at.chain.Name, t.title()),
		"whoever made the rule that drops it may write the chain again, without these",
		func(c *xtChain) *xtChain {
			out := &xtChain{there: true, policy: c.policy, rules: slices.Clone(c.rules)}
			before := len(out.rules)
			if at.rule != nil {
				before = slices.IndexFunc(out.rules, func(r *xtRule) bool { return r.text == at.rule.Text })
			}
			out.rules = slices.Insert(out.rules, max(0, before), rules...)
			return out
		})
}
