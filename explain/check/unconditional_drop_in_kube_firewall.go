package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// unconditionalDropInKubeFirewall: the rule that drops marked packets lost its test of the mark, and drops all.
var unconditionalDropInKubeFirewall = Check{
	ID: "unconditional-drop-in-kube-firewall", Rests: onRules, Severity: Critical,
	Title: "rules of KUBE-FIREWALL that drop every packet",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, rs := range n.Rulesets {
			t := rs.Table("filter")
			if t == nil {
				continue
			}
			c := t.Chain("KUBE-FIREWALL")
			if c == nil {
				continue
			}
			for i := range c.Rules {
				if _, drops := c.Rules[i].Target.(netfilter.Drop); drops && c.Rules[i].Always() {
					out = append(out, dropsAll(rs, t, i))
					break
				}
			}
		}
		return out
	},
	Explains: []string{"reject-rule-with-ready-endpoints"},
}

func dropsAll(rs *netfilter.Ruleset, t *netfilter.Table, i int) report.Finding {
	r := &t.Chain("KUBE-FIREWALL").Rules[i]
	f := report.Finding{
		Subject:  fmt.Sprintf("filter/KUBE-FIREWALL rule %d (%s)", i+1, tool(rs)),
		Want:     "a DROP for packets with kubelet's mark only: -m mark --mark 0x8000/0x8000",
		Got:      r.Text,
		Evidence: []report.Evidence{RuleEvidence(rs, r)},
		Causes:   []string{"iptables 1.8.7 or older in an image saved and restored rules that iptables 1.8.8 or newer on the host had written: it cannot decode their test of the mark and leaves it out"},
		Remedy: fmt.Sprintf("remove the rule: %s -t filter -D KUBE-FIREWALL %d (kubelet makes the right one again); then use iptables of the same side of 1.8.8 on the host and in images",
			tool(rs), i+1),
	}
	var hooks []string
	for _, h := range []netfilter.Hook{netfilter.Input, netfilter.Forward, netfilter.Output} {
		from := t.Chain(h.String())
		if at := jumpAt(from, "KUBE-FIREWALL"); at >= 0 {
			hooks = append(hooks, h.String())
			f.Evidence = append(f.Evidence, RuleEvidence(rs, &from.Rules[at]))
		}
	}
	if len(hooks) == 0 {
		f.Severity = Warning
		f.Message = fmt.Sprintf("rule %d of filter/KUBE-FIREWALL of %s drops every packet; it does nothing yet, because no built-in chain of the capture jumps there", i+1, tool(rs))
		return f
	}
	f.Message = fmt.Sprintf("rule %d of filter/KUBE-FIREWALL of %s drops every packet that passes %s: the node has lost its network, and only forwarded packets get through", i+1, tool(rs), strings.Join(hooks, " and "))
	return f
}
