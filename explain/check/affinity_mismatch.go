package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// affinityMismatch: the rules keep clients at their backend when the Service does not ask for it, do not when it does,
// or for another time. It knows the chains of iptables and nftables mode, and virtual servers.
var affinityMismatch = Check{
	ID: "affinity-mismatch", Rests: onGrid, Severity: Warning,
	Title: "service ports whose session affinity is not the one that the rules implement",
	Port: func(p *Port) []report.Finding {
		if p.On.Proxy.Mode == "nftables" {
			if f, ok := p.nftAffinity(); ok {
				return []report.Finding{f}
			}
			return nil
		}
		if p.On.Proxy.Mode == ipvsMode {
			if f, ok := p.ipvsAffinity(); ok {
				return []report.Finding{f}
			}
			return nil
		}
		if p.On.Proxy.Mode == kernelspace {
			if f, ok := p.hnsAffinity(); ok {
				return []report.Finding{f}
			}
			return nil
		}
		if p.On.Proxy.Mode != "" && p.On.Proxy.Mode != "iptables" || !p.On.Needs(RulesOf(netfilter.Family(p.Family))) {
			return nil
		}
		if len(p.Cells) == 0 {
			return nil // the rules are those of a port that was looked at
		}
		for _, rs := range p.On.Rulesets {
			t := rs.Table("nat")
			if rs.Family != netfilter.Family(p.Family) || t == nil {
				continue
			}
			for _, c := range p.balancing(t) {
				if f, ok := p.affinityOf(rs, t, c); ok {
					return []report.Finding{f}
				}
			}
		}
		return nil
	},
}

// balancing are the chains of a table that choose among the port's endpoints. Up to 1.18 the colon of a port without
// name is part of what the names are made from.
func (p *Port) balancing(t *netfilter.Table) []*netfilter.Chain {
	keys := []string{p.Key()}
	if p.PortName == "" {
		keys = append(keys, p.Key()+":")
	}
	var out []*netfilter.Chain
	for _, key := range keys {
		for _, name := range []string{dataplane.SVCName(key, p.Protocol), dataplane.SVLName(key, p.Protocol), dataplane.XLBName(key, p.Protocol)} {
			if c := t.Chain(name); c != nil && !c.Partial {
				out = append(out, c)
			}
		}
	}
	return out
}

// stickiness is what a chain does for affinity.
type stickiness struct {
	// chosen are the endpoint chains among which new clients are distributed, each with the rule that chooses it.
	chosen map[string]*netfilter.Rule
	order  []string
	// kept are the rules that send a known client back to an endpoint chain.
	kept map[string]*netfilter.Rule
	// seconds is for how long, by endpoint chain.
	seconds map[string]int
}

func stickinessOf(c *netfilter.Chain) stickiness {
	s := stickiness{chosen: map[string]*netfilter.Rule{}, kept: map[string]*netfilter.Rule{}, seconds: map[string]int{}}
	for i := range c.Rules {
		r := &c.Rules[i]
		jump, ok := r.Target.(netfilter.Jump)
		if !ok || !strings.HasPrefix(jump.Chain, dataplane.SEPPrefix) {
			continue
		}
		if m := recent(r, jump.Chain); m != nil && m.Op != netfilter.RecentSet {
			s.kept[jump.Chain], s.seconds[jump.Chain] = r, int(m.Seconds)
			continue
		}
		if s.chosen[jump.Chain] == nil {
			s.order = append(s.order, jump.Chain)
		}
		s.chosen[jump.Chain] = r
	}
	return s
}

// recent is the test of a rule for the list of an endpoint chain.
func recent(r *netfilter.Rule, list string) *netfilter.Recent {
	for _, m := range r.Matches {
		if m, ok := m.(*netfilter.Recent); ok && m.Name == list {
			return m
		}
	}
	return nil
}

// affinityOf compares what one chain does with what the Service asks for, and says the first difference.
func (p *Port) affinityOf(rs *netfilter.Ruleset, t *netfilter.Table, c *netfilter.Chain) (report.Finding, bool) {
	s := stickinessOf(c)
	for _, sep := range s.order {
		kept := s.kept[sep]
		switch {
		case p.AffinitySeconds == 0 && kept != nil:
			return p.affinityFinding(rs, kept, "none", fmt.Sprintf("%d s", s.seconds[sep]),
				fmt.Sprintf("keeps clients at their backend for %d s, and the Service does not ask for session affinity", s.seconds[sep])), true
		case p.AffinitySeconds == 0:
		case kept == nil:
			return p.affinityFinding(rs, s.chosen[sep], fmt.Sprintf("%d s", p.AffinitySeconds), "none",
				fmt.Sprintf("does not send clients back to %s, and the Service asks for session affinity for %d s", p.endpointOf(sep), p.AffinitySeconds)), true
		case s.seconds[sep] != p.AffinitySeconds:
			return p.affinityFinding(rs, kept, fmt.Sprintf("%d s", p.AffinitySeconds), fmt.Sprintf("%d s", s.seconds[sep]),
				fmt.Sprintf("keeps clients at their backend for %d s, and the Service asks for %d s", s.seconds[sep], p.AffinitySeconds)), true
		default:
			if r := forgetful(t.Chain(sep), sep); r != nil {
				return p.affinityFinding(rs, r, fmt.Sprintf("%d s", p.AffinitySeconds), "never remembered",
					fmt.Sprintf("looks for clients of %s in a list into which no rule puts them, and the Service asks for session affinity for %d s", p.endpointOf(sep), p.AffinitySeconds)), true
			}
		}
	}
	return report.Finding{}, false
}

// endpointOf names an endpoint chain by its endpoint where that is one of the Service's.
func (p *Port) endpointOf(sep string) string {
	if ap, ok := p.standsFor(sep); ok {
		return ap.String()
	}
	return sep
}

// forgetful is the translating rule of an endpoint chain in which nothing remembers the client; nil when something does,
// or when that cannot be told.
func forgetful(c *netfilter.Chain, sep string) *netfilter.Rule {
	if c == nil || c.Partial {
		return nil
	}
	var translating *netfilter.Rule
	for i := range c.Rules {
		r := &c.Rules[i]
		if m := recent(r, sep); m != nil && (m.Op == netfilter.RecentSet || m.Op == netfilter.RecentRefresh) {
			return nil
		}
		if t, ok := r.Target.(*netfilter.Translate); ok && t.Kind == netfilter.DNAT {
			translating = r
		}
	}
	return translating
}

func (p *Port) affinityFinding(rs *netfilter.Ruleset, r *netfilter.Rule, want, got, what string) report.Finding {
	return report.Finding{
		Subject:  p.Key(),
		Message:  fmt.Sprintf("the chain of %s %s", p.Key(), what),
		Want:     want,
		Got:      got,
		Evidence: []report.Evidence{RuleEvidence(rs, r), p.objectEvidence()},
		Causes: []string{
			"kube-proxy has not synced since sessionAffinity of the Service was changed",
			"a rule of the Service's chain was changed or removed by something other than kube-proxy",
		},
		Remedy: restartProxy,
	}
}
