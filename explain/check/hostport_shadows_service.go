package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// hostPortShadowsService: the rules of a host port stand before kube-proxy's and take connections to a service address
// that the kernel holds for the node's own.
var hostPortShadowsService = Check{
	ID: "hostport-shadows-service", Rests: onGrid, Severity: Critical,
	Title: "service ports whose connections a host port takes",
	Port: func(p *Port) []report.Finding {
		var seen []string
		var first *report.Backend
		var evidence []report.Evidence
		for _, paths := range p.Cells {
			for i := range paths {
				path := &paths[i]
				if path.Intended == nil || !translates(path.Intended.Result) {
					continue
				}
				for j := range path.Backends {
					b := &path.Backends[j]
					if b.State == "ok" || b.Probability == 0 || p.balances(b) {
						continue
					}
					jump, ahead := p.On.aheadOfServices(path, b)
					if !ahead {
						continue
					}
					seen = once(seen, frontend(path))
					if first == nil {
						first, evidence = b, append([]report.Evidence{jump}, rules(b)...)
					}
				}
			}
		}
		if first == nil {
			return nil
		}
		to := joinAddr(first)
		if first.Pod != "" {
			to += " (pod " + first.Pod + ")"
		}
		return []report.Finding{{
			Subject:  strings.Join(seen, ", "),
			Message:  fmt.Sprintf("connections to %s (%s) go to %s: the jump to the host ports stands before the one to KUBE-SERVICES, and the address is local to this node", several(seen), p.Key(), to),
			Want:     "the Service's endpoints",
			Got:      "the host port of " + to,
			Evidence: append(evidence, p.objectEvidence()),
			Causes: []string{
				"a portmap plugin before 0.7.5, which puts its jump at the top",
				"KUBE-SERVICES was flushed and its jump appended again by something other than kube-proxy",
			},
			Remedy: "upgrade the portmap plugin (0.7.5 and newer append their jump); move its jump in nat PREROUTING and OUTPUT behind the one to KUBE-SERVICES",
		}}
	},
}

// aheadOfServices tells whether a host port's chain took a packet, by a jump that stands before the one to KUBE-SERVICES,
// and gives the jump.
func (n *Node) aheadOfServices(path *report.Path, b *report.Backend) (report.Evidence, bool) {
	for _, h := range slices.Concat(path.Hops, b.Hops) {
		if h.Table != "nat" || h.Chain != "PREROUTING" && h.Chain != "OUTPUT" {
			continue
		}
		for _, rs := range n.Rulesets {
			t := rs.Table("nat")
			if rs.File != h.Evidence.File || t == nil || t.Chain(h.Chain) == nil {
				continue
			}
			at := h.Rule - 1
			c := t.Chain(h.Chain)
			if at < 0 || at >= len(c.Rules) {
				continue
			}
			jump, ok := c.Rules[at].Target.(netfilter.Jump)
			if ok && isHostPort(jump.Chain) && slices.ContainsFunc(c.Rules[at:], toServices) {
				return RuleEvidence(rs, &c.Rules[at]), true
			}
		}
	}
	return report.Evidence{}, false
}

func toServices(r netfilter.Rule) bool {
	jump, ok := r.Target.(netfilter.Jump)
	return ok && jump.Chain == "KUBE-SERVICES"
}

// balances tells whether the backend is a pod of k3s's load balancer for this very Service, which works by a host port
// and sends what it gets on to the cluster IP.
func (p *Port) balances(b *report.Backend) bool {
	namespace, name, ok := strings.Cut(b.Pod, "/")
	if !ok {
		return false
	}
	pod, ok := p.On.Objects.Pod(namespace, name)
	return ok && pod.Labels["svccontroller.k3s.cattle.io/svcname"] == p.Name
}
