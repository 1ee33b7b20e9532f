package dataplane

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
)

// Portal is a frontend of a service port as the rules show it by themselves, without any object.
type Portal struct {
	ServicePort string // "namespace/name:port"
	Protocol    uint8
	Kind        intent.FrontendKind
	// Addr is not valid for node ports, which take any address of the node.
	Addr   netip.Addr
	Port   uint16
	Family netfilter.Family
}

// Portals finds the frontends of service ports in kube-proxy's chains of iptables mode, in a stable order.
// wanted selects by the service port that a rule's comment names. chains maps the 16 characters of a chain
// name to a service port: kube-proxy leaves comments out of some rules in clusters with more than 1000
// endpoints, and pasted rules may have lost them.
func Portals(rulesets []*netfilter.Ruleset, wanted func(servicePort string) bool, chains map[string]string) []Portal {
	found := make(map[Portal]bool)
	for _, rs := range rulesets {
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				if !portalChains[c.Name] {
					continue
				}
				for i := range c.Rules {
					if p, ok := portal(t.Name, c.Name, &c.Rules[i], chains); ok && wanted(p.ServicePort) {
						p.Family = rs.Family
						found[p] = true
					}
				}
			}
		}
	}
	out := make([]Portal, 0, len(found))
	for p := range found {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Portal) int {
		return cmp.Or(cmp.Compare(a.ServicePort, b.ServicePort), cmp.Compare(a.Family, b.Family), cmp.Compare(a.Kind, b.Kind),
			a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	return out
}

// portalChains are the chains whose rules name frontends: where traffic is translated, and in filter where
// frontends without usable endpoints are refused.
var portalChains = map[string]bool{
	"KUBE-SERVICES": true, "KUBE-NODEPORTS": true, "KUBE-EXTERNAL-SERVICES": true,
	"KUBE-PORTALS-CONTAINER": true, "KUBE-NODEPORT-CONTAINER": true,
}

func portal(table, chain string, r *netfilter.Rule, chains map[string]string) (Portal, bool) {
	key, _, ok := ServicePortOf(r.Comment)
	if jump, isJump := r.Target.(netfilter.Jump); isJump {
		if k, known := chains[perServiceID(jump.Chain)]; known {
			key, ok = k, true
		} else if jump.Chain == "KUBE-MARK-MASQ" || jump.Chain == "KUBE-NODEPORTS" {
			return Portal{}, false
		}
	}
	addr, proto, port, hasAddr, hasProto, hasPort := r.ExactDst()
	if !ok || !hasProto || !hasPort {
		return Portal{}, false
	}
	p := Portal{ServicePort: key, Protocol: proto, Port: port}
	if hasAddr && !addr.IsLoopback() {
		p.Addr = addr
	}
	switch {
	case strings.HasSuffix(r.Comment, " health check node port"):
		p.Kind = intent.HealthCheck
	case !p.Addr.IsValid():
		p.Kind = intent.NodePort
	case strings.HasSuffix(r.Comment, " external IP"):
		p.Kind = intent.ExternalIP
	case strings.HasSuffix(r.Comment, " loadbalancer IP"):
		p.Kind = intent.LoadBalancer
	case chain == "KUBE-EXTERNAL-SERVICES":
		// The comment does not tell an external IP from a load balancer's, and both fare alike.
		p.Kind = intent.LoadBalancer
	default:
		p.Kind = intent.ClusterIP
	}
	return p, true
}

// perServiceID is the part of a per-service chain's name that all chains of a service port share.
func perServiceID(chain string) string {
	for _, prefix := range []string{SVCPrefix, SVLPrefix, EXTPrefix, FWPrefix, XLBPrefix} {
		if id, ok := strings.CutPrefix(chain, prefix); ok {
			return id
		}
	}
	return ""
}

// EndpointByName finds the endpoint that a KUBE-SEP chain stands for by its name alone, among candidates:
// for chains that a capture lacks or whose DNAT the printing tool could not decode.
func EndpointByName(chain, servicePort, protocol string, candidates []netip.AddrPort) (netip.AddrPort, bool) {
	if !strings.HasPrefix(chain, SEPPrefix) {
		return netip.AddrPort{}, false
	}
	for _, ap := range candidates {
		for _, spelling := range []string{servicePort, servicePort + ":"} {
			if SEPName(spelling, protocol, ap.String()) == chain {
				return ap, true
			}
		}
	}
	return netip.AddrPort{}, false
}

// entries are the jumps by which packets get from the built-in chains to kube-proxy's, in the nat table.
// Only the first one whose chain is there counts for a hook: in iptables mode NODEPORTS is reached from SERVICES.
var entries = []struct {
	hooks []netfilter.Hook
	chain string
	// local: reached for addresses of the node only.
	local bool
}{
	{[]netfilter.Hook{netfilter.Prerouting, netfilter.Output}, "KUBE-SERVICES", false},
	{[]netfilter.Hook{netfilter.Prerouting, netfilter.Output}, "KUBE-NODEPORTS", true},
	{[]netfilter.Hook{netfilter.Postrouting}, "KUBE-POSTROUTING", false},
}

// TakeForGranted completes the nat table of a partial capture (a pasted part of a listing) with the jumps into
// kube-proxy's chains that any node has and the capture lacks. It says in words what it added, so that an
// answer resting on it can say so; a complete capture is never touched.
func TakeForGranted(rs *netfilter.Ruleset) []string {
	t := rs.Table("nat")
	if t == nil || t.Complete {
		return nil
	}
	var said []string
	done := make(map[netfilter.Hook]bool)
	for _, e := range entries {
		if c := t.Chain(e.chain); c == nil || len(c.Rules) == 0 {
			continue
		}
		for _, h := range e.hooks {
			if c := t.Chain(h.String()); done[h] || c != nil && (c.Declared || len(c.Rules) > 0) {
				continue
			}
			done[h] = true
			c := t.AddChain(h.String())
			c.Policy = "ACCEPT"
			rule := netfilter.Rule{Target: netfilter.Jump{Chain: e.chain}, Text: fmt.Sprintf("-A %s -j %s", h, e.chain)}
			if e.local {
				rule.Matches = []netfilter.Match{&netfilter.AddrType{Dst: netfilter.TypeLocal}}
				rule.Text = fmt.Sprintf("-A %s -m addrtype --dst-type LOCAL -j %s", h, e.chain)
			}
			c.Rules = append(c.Rules, rule)
			said = append(said, fmt.Sprintf("%q is not in %s and is taken for granted", rule.Text, rs.File))
		}
	}
	return said
}
