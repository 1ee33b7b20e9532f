package dataplane

import (
	"net/netip"
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

// Portals finds the frontends of service ports in kube-proxy's chains of iptables and userspace mode, in a stable order.
// wanted selects by the service port that a rule's comment names. chains maps the 16 characters of a chain
// name to a service port: kube-proxy leaves comments out of some rules in clusters with more than 1000
// endpoints, and pasted rules may have lost them.
func Portals(rulesets []*netfilter.Ruleset, wanted func(servicePort string) bool, chains map[string]string) []Portal {
	found := make(map[Portal]bool)
	var kinds portalKinds
	for _, rs := range rulesets {
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				if !portalChains[c.Name] && perServiceID(c.Name) == "" {
					continue
				}
				for i := range c.Rules {
					if p, ok := portal(c.Name, &c.Rules[i], chains); ok && wanted(p.ServicePort) {
						p.Family = rs.Family
						if c.Name == PortalsContainer || c.Name == PortalsHost {
							kinds.see(&p, &c.Rules[i])
						}
						found[p] = true
					}
				}
			}
		}
	}
	told := make(map[Portal]bool, len(found))
	for p := range found {
		p.Kind = kinds.of(&p)
		told[p] = true
	}
	return sortedPortals(told)
}

// portalChains are the chains whose rules name frontends: where traffic is translated, and in filter where
// frontends without usable endpoints are refused.
var portalChains = map[string]bool{
	"KUBE-SERVICES": true, "KUBE-NODEPORTS": true, "KUBE-EXTERNAL-SERVICES": true,
	PortalsContainer: true, PortalsHost: true, NodePortContainer: true, NodePortHost: true,
}

func portal(chain string, r *netfilter.Rule, chains map[string]string) (Portal, bool) {
	key, _, ok := ServicePortOf(r.Comment)
	if jump, isJump := r.Target.(netfilter.Jump); isJump {
		if perServiceID(chain) != "" && !strings.HasSuffix(r.Comment, " cluster IP") {
			return Portal{}, false // only the masquerade rule of the cluster IP names a frontend there (1.22+)
		}
		if k, known := chains[perServiceID(jump.Chain)]; known {
			key, ok = k, true
		} else if perServiceID(chain) == "" && (jump.Chain == "KUBE-MARK-MASQ" || jump.Chain == "KUBE-NODEPORTS") {
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
