package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// tool is the program that shows and changes a rule set: "iptables-nft", "ip6tables-legacy", "iptables" where the
// capture does not tell the backend.
func tool(rs *netfilter.Ruleset) string {
	name := "iptables"
	if rs.Family == netfilter.IPv6 {
		name = "ip6tables"
	}
	if rs.Backend != netfilter.UnknownBackend {
		name += "-" + string(rs.Backend)
	}
	return name
}

// whole tells whether a capture vouches for all chains and rules of a table; where it does not, what it lacks may be on
// the node, and the running check is unknown.
func (n *Node) whole(rs *netfilter.Ruleset, t *netfilter.Table) bool {
	if !t.Complete {
		n.lacks(RulesOf(rs.Family))
	}
	return t.Complete
}

// ChainEvidence is the declaration of a chain, for a finding.
func ChainEvidence(rs *netfilter.Ruleset, c *netfilter.Chain) report.Evidence {
	policy := c.Policy
	if policy == "" {
		policy = "-"
	}
	e := RuleEvidence(rs, &netfilter.Rule{Line: c.Line, Text: fmt.Sprintf(":%s %s", c.Name, policy)})
	if c.Line == 0 && len(c.Rules) > 0 {
		e.Line = c.Rules[0].Line
	}
	return e
}

// hopRule finds the rule that a hop stands for; nil where it is no rule of the node's.
func (n *Node) hopRule(h *report.Hop) (*netfilter.Ruleset, *netfilter.Rule) {
	if h.Kind != "rule" || h.Pod != "" {
		return nil, nil
	}
	for _, rs := range n.Rulesets {
		if rs.File != h.Evidence.File {
			continue
		}
		t := rs.Table(h.Table)
		if t == nil {
			continue
		}
		if c := t.Chain(h.Chain); c != nil && h.Rule > 0 && h.Rule <= len(c.Rules) && c.Rules[h.Rule-1].Line == h.Evidence.Line {
			return rs, &c.Rules[h.Rule-1]
		}
	}
	return nil, nil
}

// be is "is" for one and "are" for more.
func be(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// nameOfProtocol is the name of a protocol that Services have.
func nameOfProtocol(number uint8) string {
	switch number {
	case netfilter.ProtoUDP:
		return "UDP"
	case netfilter.ProtoSCTP:
		return "SCTP"
	}
	return "TCP"
}
