package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// kubeJumpMissing: kube-proxy's chain is there with its rules, but packets do not get to it: the jump of a built-in
// chain is gone, or stands behind a rule that no packet gets past. That there is no chain at all is a matter of
// missing-service-rule; that an ACCEPT stands before a chain that only refuses one of early-accept-hides-reject.
var kubeJumpMissing = Check{
	ID: "kube-jump-missing", Rests: onRules, Severity: Error,
	Title: "chains of kube-proxy that packets do not get to",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, rs := range n.served() {
			var at []dataplane.Jump
			for _, j := range dataplane.Jumps(n.Proxy.Mode, n.Proxy.Within) {
				if j.To == "KUBE-FIREWALL" && n.Proxy.Mode == "nftables" && n.Host.Sysctls["net.ipv4.conf.all.route_localnet"] != "1" {
					continue // kube-proxy does not open loopback addresses in this mode: there is nothing to protect
				}
				// The jumps of one built-in chain make one finding.
				if len(at) > 0 && (at[0].Table != j.Table || at[0].From != j.From) {
					out = append(out, n.jumpsFrom(rs, at)...)
					at = at[:0]
				}
				at = append(at, j)
			}
			out = append(out, n.jumpsFrom(rs, at)...)
		}
		return append(out, n.nftUnreached()...)
	},
	Explains: []string{"masquerade-missing", "missing-service-rule", "refusal-missing"},
}

// served are the rule sets that the running proxy writes. A copy in the other backend that packets never get to is
// somebody's leftover.
func (n *Node) served() []*netfilter.Ruleset {
	var out []*netfilter.Ruleset
	for _, rs := range n.Rulesets {
		if n.Proxy.Backend != "" && rs.Backend != "" && string(rs.Backend) != n.Proxy.Backend {
			continue
		}
		if n.servedElsewhere(rs) {
			if first, active := dataplane.Serving(rs); first != nil && !active {
				continue
			}
		}
		out = append(out, rs)
	}
	return out
}

// servedElsewhere tells whether packets get to service rules in another rule set of the family.
func (n *Node) servedElsewhere(than *netfilter.Ruleset) bool {
	for _, rs := range n.Rulesets {
		if rs == than || rs.Family != than.Family {
			continue
		}
		if _, active := dataplane.Serving(rs); active {
			return true
		}
	}
	return false
}

// jumpsFrom looks for the jumps of one built-in chain.
func (n *Node) jumpsFrom(rs *netfilter.Ruleset, jumps []dataplane.Jump) []report.Finding {
	if len(jumps) == 0 {
		return nil
	}
	t := rs.Table(jumps[0].Table)
	if t == nil {
		return nil
	}
	from := t.Chain(jumps[0].From.String())
	var gone []dataplane.Jump
	var out []report.Finding
	filled := false
	for _, j := range jumps {
		to := t.Chain(j.To)
		if to == nil {
			continue
		}
		at := jumpAt(from, j.To)
		if at < 0 {
			gone = append(gone, j)
			filled = filled || len(to.Rules) > 0
			continue
		}
		if before := endedBefore(t, from, at); before != nil && len(to.Rules) > 0 && (t.Name == "nat" || !accepts(before)) {
			out = append(out, jumpTooLate(rs, t, j, &from.Rules[at], before))
		}
	}
	if filled && n.whole(rs, t) {
		out = append(out, jumpsGone(rs, t, from, gone))
	}
	return out
}

// jumpAt is where a chain jumps to another one, -1 for nowhere.
func jumpAt(from *netfilter.Chain, to string) int {
	if from == nil {
		return -1
	}
	for i := range from.Rules {
		if j, ok := from.Rules[i].Target.(netfilter.Jump); ok && j.Chain == to {
			return i
		}
	}
	return -1
}

// endedBefore is the first rule before the one at an index that no new connection gets past; nil for none.
func endedBefore(t *netfilter.Table, c *netfilter.Chain, at int) *netfilter.Rule {
	for i := range c.Rules[:at] {
		if r := &c.Rules[i]; r.AlwaysNew() && t.Ends(r) {
			return r
		}
	}
	return nil
}

func accepts(r *netfilter.Rule) bool {
	_, ok := r.Target.(netfilter.Accept)
	return ok
}

func jumpsGone(rs *netfilter.Ruleset, t *netfilter.Table, from *netfilter.Chain, gone []dataplane.Jump) report.Finding {
	hook := gone[0].From.String()
	place := fmt.Sprintf("%s/%s", t.Name, hook)
	var names, chains, loses []string
	f := report.Finding{Subject: fmt.Sprintf("%s (%s)", place, tool(rs))}
	if from != nil {
		f.Evidence = append(f.Evidence, ChainEvidence(rs, from))
	}
	for _, j := range gone {
		to := t.Chain(j.To)
		what := j.To
		if len(to.Rules) == 0 {
			what += " (empty now)"
		} else {
			loses = once(loses, j.Loses)
		}
		names, chains = append(names, j.To), append(chains, what)
		f.Evidence = append(f.Evidence, ChainEvidence(rs, to))
	}
	f.Message = fmt.Sprintf("%s of %s does not jump to %s: %s", place, tool(rs), strings.Join(chains, ", "), strings.Join(loses, ", "))
	f.Want = fmt.Sprintf("jumps from %s to %s", hook, strings.Join(names, ", "))
	f.Got = "the chains exist, no rule of " + hook + " leads to them"
	f.Causes = []string{
		"another program rewrote " + hook + " (a firewall's reload, a network plugin that saves and restores rules)",
		"several programs wrote the chain at the same moment when the node started",
	}
	f.Remedy = "restart kube-proxy on this node (with k3s or RKE2 the agent): kube-proxy 1.27 and newer makes its jumps in a full sync only, and the first one after a start is full"
	return f
}

func jumpTooLate(rs *netfilter.Ruleset, t *netfilter.Table, j dataplane.Jump, jump, before *netfilter.Rule) report.Finding {
	hook := j.From.String()
	return report.Finding{
		Subject:  fmt.Sprintf("%s/%s (%s)", t.Name, hook, tool(rs)),
		Message:  fmt.Sprintf("no new connection gets to %s in %s/%s of %s, because an earlier rule takes all of them: %s", j.To, t.Name, hook, tool(rs), j.Loses),
		Want:     fmt.Sprintf("the jump to %s before any rule that ends %s", j.To, hook),
		Got:      before.Text,
		Evidence: []report.Evidence{RuleEvidence(rs, before), RuleEvidence(rs, jump)},
		Causes:   []string{"a rule was inserted at the top of " + hook + " after kube-proxy had made its jumps"},
		Remedy:   fmt.Sprintf("remove the rule or put it behind kube-proxy's: %s -t %s -D %s", tool(rs), t.Name, strings.TrimPrefix(before.Text, "-A ")),
	}
}
