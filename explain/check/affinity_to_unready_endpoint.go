package check

import (
	"fmt"
	"slices"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// affinityToUnreadyEndpoint: a rule keeps clients at an endpoint that is not ready. A walk of a new client does not
// meet it: the rule is for those who came before.
var affinityToUnreadyEndpoint = Check{
	ID: "affinity-to-unready-endpoint", Rests: onObjects, Severity: Error,
	Title: "session affinity to endpoints that are not ready",
	Port: func(p *Port) []report.Finding {
		if p.AffinitySeconds == 0 || p.EndpointsUnknown || !p.On.Needs(RulesOf(netfilter.Family(p.Family))) {
			return nil
		}
		var out []report.Finding
		for _, rs := range p.On.Rulesets {
			if rs.Family != netfilter.Family(p.Family) {
				continue
			}
			for _, a := range p.affinityRules(rs) {
				if !a.endpoint.Ready && !p.uses(a.endpoint) && !a.idle && !slices.ContainsFunc(out, func(f report.Finding) bool { return f.Subject == a.endpoint.String() }) {
					out = append(out, p.pinned(rs, a))
				}
			}
		}
		return out
	},
}

// affinityRule is a rule that sends clients back to the endpoint that they had.
type affinityRule struct {
	rule     *netfilter.Rule
	endpoint *intent.Endpoint
	seconds  uint32
	// clients are those that the captured list has; known is false where lists were not captured, idle is true for one
	// that is empty.
	clients     []string
	known, idle bool
}

// affinityRules are those of a port that lead to one of its endpoints.
func (p *Port) affinityRules(rs *netfilter.Ruleset) []affinityRule {
	nat := rs.Table("nat")
	if nat == nil {
		return nil
	}
	var out []affinityRule
	for _, key := range []string{p.Key(), p.Namespace + "/" + p.Name + ":" + p.PortName} {
		for _, name := range []string{dataplane.SVCName(key, p.Protocol), dataplane.SVLName(key, p.Protocol), dataplane.XLBName(key, p.Protocol)} {
			c := nat.Chain(name)
			if c == nil {
				continue
			}
			for i := range c.Rules {
				if a, ok := p.affinityRule(nat, &c.Rules[i]); ok {
					out = append(out, a)
				}
			}
		}
	}
	return out
}

func (p *Port) affinityRule(nat *netfilter.Table, r *netfilter.Rule) (affinityRule, bool) {
	jump, ok := r.Target.(netfilter.Jump)
	if !ok {
		return affinityRule{}, false
	}
	for _, m := range r.Matches {
		recent, ok := m.(*netfilter.Recent)
		if !ok || recent.Not || recent.Op != netfilter.RecentCheck && recent.Op != netfilter.RecentRefresh {
			continue
		}
		e := p.translatedBy(nat.Chain(jump.Chain))
		if e == nil {
			return affinityRule{}, false
		}
		a := affinityRule{rule: r, endpoint: e, seconds: recent.Seconds}
		a.clients, a.known = p.On.pinnedTo(recent.Name)
		a.idle = a.known && len(a.clients) == 0
		return a, true
	}
	return affinityRule{}, false
}

// translatedBy is the endpoint that a chain translates to, nil for none of this port.
func (p *Port) translatedBy(c *netfilter.Chain) *intent.Endpoint {
	if c == nil {
		return nil
	}
	for i := range c.Rules {
		t, ok := c.Rules[i].Target.(*netfilter.Translate)
		if !ok || t.Kind != netfilter.DNAT {
			continue
		}
		for j := range p.Endpoints {
			if e := &p.Endpoints[j]; e.Addr == t.Min && e.Port == int(t.MinPort) {
				return e
			}
		}
	}
	return nil
}

// uses tells whether an endpoint is among those that the policies use, ready or not.
func (p *Port) uses(e *intent.Endpoint) bool {
	for _, i := range slices.Concat(p.Cluster, p.Local) {
		if &p.Endpoints[i] == e {
			return true
		}
	}
	return false
}

// pinnedTo are the clients in a list of -m recent; known is false where the lists were not captured.
func (n *Node) pinnedTo(name string) (clients []string, known bool) {
	if !n.Host.HasRecent {
		return nil, false
	}
	for i := range n.Host.Recent {
		if n.Host.Recent[i].Name == name {
			for _, e := range n.Host.Recent[i].Entries {
				clients = append(clients, e.Addr.String())
			}
		}
	}
	return clients, true
}

func (p *Port) pinned(rs *netfilter.Ruleset, a affinityRule) report.Finding {
	who := "clients that had it before"
	if a.known {
		who = fmt.Sprintf("%s (%s)", plural(len(a.clients), "client"), list(a.clients, 3))
	}
	return report.Finding{
		Object: report.Object{Endpoint: a.endpoint.String()}, Subject: a.endpoint.String(),
		Message: fmt.Sprintf("session affinity of %s still sends %s to %s, which is not ready, each for up to %d s after its last connection", p.Key(), who, a.endpoint, a.seconds),
		Want:    "no affinity to an endpoint that is not ready", Got: "a rule for it",
		Evidence: []report.Evidence{RuleEvidence(rs, a.rule), p.objectEvidence()},
		Causes: []string{
			"kube-proxy 1.22 writes affinity rules for endpoints in any state",
			"the endpoint turned unready after kube-proxy's last successful sync on this node",
		},
		Remedy: restartProxy + "; with kube-proxy 1.22 upgrade",
	}
}
