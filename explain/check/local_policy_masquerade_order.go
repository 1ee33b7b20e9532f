package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// localPolicyMasqueradeOrder: the rule that masquerades external traffic stands before the one that leaves traffic of
// Services with policy Local out of it: their backends do not see the client's address.
var localPolicyMasqueradeOrder = Check{
	ID: "local-policy-masquerade-order", Rests: onRules, Severity: Error,
	Title: "masquerading before the exception for externalTrafficPolicy Local",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, rs := range n.served() {
			t := rs.Table("nat")
			if t == nil {
				continue
			}
			for _, c := range t.Chains {
				if masquerade, exception := misordered(c); exception != nil {
					out = append(out, misorderedFinding(rs, c, masquerade, exception))
				}
			}
		}
		return out
	},
}

// misordered finds a rule for policy Local that stands behind one that masquerades the same packets.
func misordered(c *netfilter.Chain) (masquerade, exception *netfilter.Rule) {
	perService := strings.HasPrefix(c.Name, dataplane.EXTPrefix)
	if !perService && c.Name != "KUBE-NODE-PORT" && c.Name != "KUBE-LOAD-BALANCER" {
		return nil, nil
	}
	var before []*netfilter.Rule
	for i := range c.Rules {
		r := &c.Rules[i]
		switch {
		case jumpsTo(r, "KUBE-MARK-MASQ") && (perService && r.AlwaysNew() || !perService && !r.Src.Prefix.IsValid()):
			before = append(before, r)
		case perService && jumpsTo(r, dataplane.SVLPrefix), !perService && leavesLocalOut(r):
			for _, m := range before {
				if !m.Proto.Set || m.Proto == r.Proto {
					return m, r
				}
			}
		}
	}
	return nil, nil
}

// jumpsTo tells whether a rule leads to a chain whose name begins so.
func jumpsTo(r *netfilter.Rule, chain string) bool {
	j, ok := r.Target.(netfilter.Jump)
	return ok && strings.HasPrefix(j.Chain, chain)
}

// leavesLocalOut tells the rule of IPVS mode that returns for frontends of Services with policy Local.
func leavesLocalOut(r *netfilter.Rule) bool {
	if _, returns := r.Target.(netfilter.Return); !returns {
		return false
	}
	for _, m := range r.Matches {
		if s, ok := m.(*netfilter.SetMatch); ok && !s.Not && strings.Contains(s.Set, "-LOCAL") {
			return true
		}
	}
	return false
}

func misorderedFinding(rs *netfilter.Ruleset, c *netfilter.Chain, masquerade, exception *netfilter.Rule) report.Finding {
	f := report.Finding{
		Subject:  fmt.Sprintf("nat/%s (%s)", c.Name, tool(rs)),
		Message:  fmt.Sprintf("nat/%s of %s masquerades before its rule for externalTrafficPolicy Local: backends of such Services do not see the client's address", c.Name, tool(rs)),
		Want:     "the rule for policy Local first",
		Got:      fmt.Sprintf("%q before %q", masquerade.Text, exception.Text),
		Evidence: []report.Evidence{RuleEvidence(rs, masquerade), RuleEvidence(rs, exception)},
		Causes: []string{
			"kube-proxy up to 1.23 in IPVS mode writes the rules for SCTP node ports in this order",
			"somebody changed the chain by hand",
		},
		Remedy: "update kube-proxy to 1.24 or newer; restarting it puts a chain that was changed by hand in order",
	}
	if key, _, ok := dataplane.ServicePortOf(masquerade.Comment); ok {
		f.Object = servicePortNamed(key)
	}
	return f
}

// servicePortNamed is the object of a service port that only a rule's comment names.
func servicePortNamed(key string) report.Object {
	namespace, rest, _ := strings.Cut(key, "/")
	name, port, _ := strings.Cut(rest, ":")
	return report.Object{Kind: "Service", Namespace: namespace, Name: name, Port: port}
}
