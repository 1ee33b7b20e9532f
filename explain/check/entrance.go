package check

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// entrance is a rule by which packets for a frontend leave the shared chains for the Service's own.
type entrance struct {
	rules *netfilter.Ruleset
	rule  *netfilter.Rule
	// chain is the Service's own.
	chain *netfilter.Chain
}

type dialled struct {
	family netfilter.Family
	addr   netip.Addr // not valid for a node port
	proto  uint8
	port   uint16
}

// entrances finds the rules of KUBE-SERVICES and KUBE-NODEPORTS by what they are for. It is built at the first question.
func (n *Node) entrances() map[dialled]entrance {
	if n.entranceOf != nil {
		return n.entranceOf
	}
	n.entranceOf = make(map[dialled]entrance)
	for _, rs := range n.Rulesets {
		t := rs.Table("nat")
		if t == nil {
			continue
		}
		for _, name := range []string{"KUBE-SERVICES", "KUBE-NODEPORTS"} {
			c := t.Chain(name)
			if c == nil {
				continue
			}
			for i := range c.Rules {
				r := &c.Rules[i]
				jump, ok := r.Target.(netfilter.Jump)
				addr, proto, port, _, hasProto, hasPort := r.ExactDst()
				if !ok || !hasProto || !hasPort || !strings.HasPrefix(jump.Chain, "KUBE-") || jump.Chain == "KUBE-MARK-MASQ" {
					continue
				}
				key := dialled{rs.Family, addr, proto, port}
				if _, known := n.entranceOf[key]; !known {
					n.entranceOf[key] = entrance{rs, r, t.Chain(jump.Chain)}
				}
			}
		}
	}
	return n.entranceOf
}

// entrance is the rule for a path's frontend, if the shared chains have one.
func (p *Port) entrance(path *report.Path) (entrance, bool) {
	a, err := netip.ParseAddr(path.Frontend.Address)
	if err != nil {
		return entrance{}, false
	}
	key := dialled{netfilter.Family(p.Family), a, dataplane.ProtocolNumber(path.Frontend.Protocol), uint16(path.Frontend.Port)}
	if e, ok := p.On.entrances()[key]; ok {
		return e, true
	}
	key.addr = netip.Addr{}
	e, ok := p.On.entrances()[key]
	return e, ok
}

// leadsTo says in words what the rule leads to, for packets that come out untranslated all the same, and shows the chain
// that they fall out of.
func (e entrance) leadsTo() (text string, evidence []report.Evidence) {
	evidence = []report.Evidence{RuleEvidence(e.rules, e.rule)}
	switch {
	case e.chain == nil:
		return "its rule leads to a chain that is not there", evidence
	case len(e.chain.Rules) == 0:
		return fmt.Sprintf("its chain %s is empty", e.chain.Name), append(evidence, ChainEvidence(e.rules, e.chain))
	}
	text = fmt.Sprintf("its chain %s translates nothing", e.chain.Name)
	evidence = append(evidence, ChainEvidence(e.rules, e.chain))
	if c := e.vacant(); c != nil {
		text = fmt.Sprintf("its chain %s leads to %s, which is empty", e.chain.Name, c.Name)
		evidence = append(evidence, ChainEvidence(e.rules, c))
	}
	return text, evidence
}

// vacant is the last chain without rules that the Service's own chain leads to, nil where there is none: the one for
// clients from outside comes behind those for clients of the cluster.
func (e entrance) vacant() *netfilter.Chain {
	t := e.rules.Table("nat")
	var last *netfilter.Chain
	seen := map[*netfilter.Chain]bool{e.chain: true}
	for queue := []*netfilter.Chain{e.chain}; len(queue) > 0; queue = queue[1:] {
		for i := range queue[0].Rules {
			jump, ok := queue[0].Rules[i].Target.(netfilter.Jump)
			if !ok {
				continue
			}
			c := t.Chain(jump.Chain)
			if c == nil || seen[c] {
				continue
			}
			seen[c] = true
			if len(c.Rules) == 0 {
				last = c
			}
			queue = append(queue, c)
		}
	}
	return last
}

// gate is a chain that kube-proxy keeps for all Services, with what there is of it.
type gate struct {
	rules *netfilter.Ruleset
	chain *netfilter.Chain
}

// gates are the shared chains of a table in the port's family, in the rulesets that have any.
func (p *Port) gates(table string, names ...string) []gate {
	var out []gate
	for _, rs := range p.On.Rulesets {
		t := rs.Table(table)
		if t == nil || int(rs.Family) != p.Family {
			continue
		}
		for _, name := range names {
			if c := t.Chain(name); c != nil {
				out = append(out, gate{rs, c})
			}
		}
	}
	return out
}

// vacant says where a rule would have to stand, as evidence, and names a chain there that is empty.
func vacant(gates []gate) (evidence []report.Evidence, empty string) {
	for _, g := range gates {
		e := ChainEvidence(g.rules, g.chain)
		switch n := len(g.chain.Rules); n {
		case 0:
			e.Text += " (no rules)"
			empty = g.chain.Name
		case 1:
			e.Text += " (1 rule, none for it)"
		default:
			e.Text += fmt.Sprintf(" (%d rules, none for it)", n)
		}
		evidence = append(evidence, e)
	}
	return evidence, empty
}
