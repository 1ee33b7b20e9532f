package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// unreadableTarget: the tool that printed the rules could not decode the target of some of kube-proxy's. The kernel has
// no such trouble.
var unreadableTarget = Check{
	ID: "unreadable-target", Rests: onRules, Severity: Info,
	Title: "rules whose target the tool that printed them could not decode",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, rs := range n.Rulesets {
			if f, ok := unreadable(rs); ok {
				out = append(out, f)
			}
		}
		return out
	},
}

func unreadable(rs *netfilter.Ruleset) (report.Finding, bool) {
	var (
		count int
		first netfilter.Unreadable
		f     report.Finding
	)
	for _, t := range rs.Tables {
		for _, c := range t.Chains {
			if !dataplane.Stock(t.Name, c.Name) {
				continue
			}
			for i := range c.Rules {
				u, ok := c.Rules[i].Target.(netfilter.Unreadable)
				if !ok {
					continue
				}
				if count++; count == 1 {
					first = u
				}
				if len(f.Evidence) < 3 {
					f.Evidence = append(f.Evidence, RuleEvidence(rs, &c.Rules[i]))
				}
			}
		}
	}
	if count == 0 {
		return f, false
	}
	printer := tool(rs)
	if rs.Version != "" {
		printer += " " + rs.Version
	}
	f.Subject = rs.File
	f.Message = fmt.Sprintf("%s could not print the target %s of %s of kube-proxy: destinations are taken from the names of chains and from comments. This is a matter of display; the kernel knows the targets", printer, first.Name, plural(count, "rule"))
	f.Want = "targets that can be read"
	f.Got = first.Why
	f.Causes = []string{"the rules were written by a newer iptables (kube-proxy's image) than the one that printed them (the host)"}
	f.Remedy = "capture with an iptables as new as kube-proxy's, such as that of its image. Never restore such a capture: that would break the rules for real"
	return f, true
}
