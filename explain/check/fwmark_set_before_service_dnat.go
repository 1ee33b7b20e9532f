package check

import (
	"fmt"
	"slices"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// fwmarkSetBeforeServiceDNAT: another program marks packets by their destination while that still is a Service's
// address, and a routing rule for the mark then sends the translated packet another way than its destination asks for.
var fwmarkSetBeforeServiceDNAT = Check{
	ID: "fwmark-set-before-service-dnat", Rests: onGrid, Severity: Error,
	Title: "marks on packets to Services that lead to another route",
	Port: func(p *Port) []report.Finding {
		for _, paths := range p.Cells {
			for i := range paths {
				m := p.On.marking(&paths[i])
				if m == nil {
					continue
				}
				if f, ok := p.On.misrouted(p, &paths[i], m); ok {
					return []report.Finding{f}
				}
			}
		}
		return nil
	},
	Fold: oneForEachMark,
	// Ports on which no check finds anything come without cells, so that what was not read is said here.
	Node: func(n *Node) []report.Finding {
		if !n.Has(RouteRules) && n.marksEarly() {
			n.lacks(RouteRules)
		}
		return nil
	},
}

// marksEarly tells whether a rule of another program marks packets before Services are translated.
func (n *Node) marksEarly() bool {
	for _, rs := range n.Rulesets {
		for _, t := range rs.Tables {
			c := t.Chain(netfilter.Prerouting.String())
			if c == nil || t.Name == "nat" && n.Proxy.Mode != "nftables" {
				continue
			}
			reached := t.ReachedFrom(c)
			if slices.ContainsFunc(t.Chains, func(c *netfilter.Chain) bool {
				return reached[c.Name] && !dataplane.Stock(t.Name, c.Name) && slices.ContainsFunc(c.Rules, marks)
			}) {
				return true
			}
		}
	}
	return false
}

// marks tells whether a rule sets a mark, on the packet or on its connection.
func marks(r netfilter.Rule) bool {
	switch t := r.Target.(type) {
	case netfilter.SetMark:
		return t.Value != 0
	case netfilter.ConnMark:
		return t.Op == netfilter.ConnMarkSet && t.Value != 0
	}
	return false
}

// oneForEachMark makes one finding of what one rule marks: of the node, because it hardly ever means one Service.
func oneForEachMark(n *Node, found []portFinding) []report.Finding {
	out := foldByRule(n, found, func(*report.Finding, []string) {})
	for i := range out {
		out[i].Object = report.Object{Kind: "Node", Name: n.Name}
	}
	return out
}

// marking is what is on a packet when it is translated, and the foreign rule that put it there.
type marking struct {
	rules *netfilter.Ruleset
	rule  *netfilter.Rule
	chain string
	mark  uint32
}

// marking follows the marks of a pod's packet to a cluster IP up to its translation; nil where nobody marks it.
func (n *Node) marking(path *report.Path) *marking {
	if path.Frontend.Kind != string(intent.ClusterIP) || path.Origin != "pod" {
		return nil
	}
	var m marking
	var ct uint32
	note := func(rs *netfilter.Ruleset, r *netfilter.Rule, chain string) {
		if m.rule == nil {
			m.rules, m.rule, m.chain = rs, r, chain
		}
	}
	for i := range path.Hops {
		h := &path.Hops[i]
		if behindTranslation(h) {
			break
		}
		rs, r := n.hopRule(h)
		if r == nil {
			continue
		}
		switch t := r.Target.(type) {
		case netfilter.SetMark:
			m.mark = m.mark&^t.Mask ^ t.Value
			note(rs, r, h.Table+"/"+h.Chain)
		case netfilter.ConnMark:
			switch t.Op {
			case netfilter.ConnMarkSet:
				ct = ct&^t.Mask ^ t.Value
				note(rs, r, h.Table+"/"+h.Chain)
			case netfilter.ConnMarkSave:
				ct = ct&^t.CTMask ^ m.mark&t.NFMask
			case netfilter.ConnMarkRestore:
				m.mark = m.mark&^t.NFMask ^ ct&t.CTMask
			}
		}
	}
	if m.rule == nil || m.mark == 0 {
		return nil
	}
	return &m
}

// behindTranslation tells whether a hop comes after the place where Services are translated: in a service chain, or
// behind PREROUTING.
func behindTranslation(h *report.Hop) bool {
	switch h.Chain {
	case netfilter.Input.String(), netfilter.Forward.String(), netfilter.Output.String(), netfilter.Postrouting.String():
		return true
	}
	return h.Kind == "route" || h.Table == "filter" || h.Table == "nat" && dataplane.Stock(h.Table, h.Chain)
}

// misrouted says what a routing rule makes of the mark. ok is false where none is known to make anything of it.
func (n *Node) misrouted(p *Port, path *report.Path, m *marking) (f report.Finding, ok bool) {
	rule := n.routedBy(m.mark, p.Family)
	if rule == nil {
		return report.Finding{}, false
	}
	f = report.Finding{
		Subject: fmt.Sprintf("%s (%s)", m.chain, tool(m.rules)),
		Message: fmt.Sprintf("%s marks packets to cluster IPs%s such as %s with %#x before they are translated, and the routing rule %q then sends the translated packet by table %s",
			m.chain, n.serviceRange(p.Family), address(path), m.mark, rule.String(), rule.Table),
		Want: "no mark on packets to Services: the service range is left out, or the rule stands behind the jump to KUBE-SERVICES",
		Got:  m.rule.Text,
		Evidence: []report.Evidence{
			RuleEvidence(m.rules, m.rule), HostEvidence("ip rule", rule.Evidence), p.objectEvidence(),
		},
		Causes: []string{"a network plugin marks what leaves its range, and takes service addresses for outside ones"},
		Remedy: "add the service range to what the plugin leaves out (AWS VPC CNI: AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS), or update the plugin",
	}
	if n.Proxy.Mode == "nftables" {
		f.Causes = append(f.Causes, "kube-proxy moved to nftables mode: its nat chain has the same priority as that of iptables, and the one that was registered last runs first")
	}
	if len(path.Uncertain) > 0 {
		// Conditions stand in the order in which the packet meets them: the first is the one for the mark.
		f.Message += ", provided that " + path.Uncertain[0].Condition
	}
	return f, true
}

// routedBy is the routing rule that makes a difference for packets with a mark; nil for none. One that sends them to
// the main table does only where a later rule would have sent them elsewhere.
func (n *Node) routedBy(mark uint32, family int) *host.Rule {
	for i := range n.Host.Rules {
		r := &n.Host.Rules[i]
		if r.Family != family || r.Not || r.Mark == 0 || mark&r.Mask != r.Mark || r.Action != "lookup" {
			continue
		}
		if r.Table != "main" || slices.ContainsFunc(n.Host.Rules, func(o host.Rule) bool {
			return o.Family == family && o.Priority > r.Priority && o.Table != "main" && o.Table != "default"
		}) {
			return r
		}
	}
	return nil
}

// serviceRange is the range of cluster IPs of a family in brackets, empty where it is not known.
func (n *Node) serviceRange(family int) string {
	for _, r := range n.Proxy.ServiceCIDRs {
		if r.Addr().Is4() == (family == 4) {
			return fmt.Sprintf(" (%s)", r)
		}
	}
	return ""
}
