package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

const forwardPolicyDropID = "forward-policy-drop"

// forwardPolicyDrop: packets to Services, or their answers, fall through all of FORWARD to a policy of DROP. A policy
// of DROP is no finding by itself: kube-proxy's and the network plugin's rules may accept everything that matters.
var forwardPolicyDrop = Check{
	ID: forwardPolicyDropID, Severity: Error, Rests: onGrid,
	Title: "Service traffic that reaches the DROP policy of FORWARD",
	Rest: func(n *Node, found Findings) []report.Finding {
		var hits []*Obstacle
		for _, o := range n.Obstacles() {
			if o.namedBy() == forwardPolicyDropID && !found.names(o) {
				hits = append(hits, o)
			}
		}
		if len(hits) == 0 {
			return nil
		}
		o := &Obstacle{}
		*o = *hits[0]
		for _, more := range hits[1:] {
			o.Hits = append(o.Hits[:len(o.Hits):len(o.Hits)], more.Hits...)
		}
		f := o.finding()
		f.Object = report.Object{}
		f.Subject = "filter/FORWARD"
		what := "connections"
		if o.Reply {
			what = "answers"
		}
		f.Message = fmt.Sprintf("FORWARD has the policy DROP and no rule accepts %s of %s to %s", what, list(o.clients(), 4), named(o.services()))
		if dropped := n.forwardCounter(); dropped != "" {
			f.Message += " (" + dropped + ")"
		}
		f.Want, f.Got = "a rule that accepts traffic of pods, or policy ACCEPT", "policy DROP"
		f.Causes = []string{"Docker 1.13 and newer sets the policy to DROP when it starts", "kube-proxy does not know the pod range (clusterCIDR) and so accepts only what it masquerades (before 1.20)"}
		f.Remedy = "iptables -P FORWARD ACCEPT, or accept the pod range: iptables -A FORWARD -s POD-CIDR -j ACCEPT and -d POD-CIDR -j ACCEPT (the network plugin should do it)"
		return []report.Finding{f}
	},
}

// forwardCounter is how many packets the policy has dropped, as far as a capture counts.
func (n *Node) forwardCounter() string {
	for _, rs := range n.Rulesets {
		t := rs.Table("filter")
		if t == nil {
			continue
		}
		if c := t.Chain("FORWARD"); c != nil && strings.EqualFold(c.Policy, "DROP") && c.PolicyPackets > 0 {
			return fmt.Sprintf("%d packets so far", c.PolicyPackets)
		}
	}
	return ""
}
