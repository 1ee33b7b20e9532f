package check

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// staleServiceRule: a frontend is programmed that no Service of the API has: the Service is gone, or its addresses and
// ports are others now.
var staleServiceRule = Check{
	ID: "stale-service-rule", Rests: onRules, Severity: Warning,
	Title: "programmed frontends that no Service has",
	Node: func(n *Node) []report.Finding {
		if n.Proxy.Mode == kernelspace {
			return n.staleBalancers()
		}
		if n.Proxy.Mode != "iptables" && n.Proxy.Mode != "userspace" {
			return nil
		}
		stale := n.staleFrontends()
		if len(stale) == 0 || !n.Needs(Services) {
			return nil
		}
		// Every cluster has this Service: without it the others that are given are not all there are.
		if _, whole := n.Objects.Service("default", "kubernetes"); !whole {
			n.lacks(Services)
			return nil
		}
		var out []report.Finding
		for _, s := range stale {
			out = append(out, s.finding(n))
		}
		return out
	},
}

// staleFrontends are the programmed frontends that the objects do not ask for, by service port and rule set.
func (n *Node) staleFrontends() []*staleFrontends {
	type place struct {
		servicePort string
		protocol    uint8
		rules       *netfilter.Ruleset
	}
	var out []*staleFrontends
	at := make(map[place]*staleFrontends)
	known := n.frontends()
	dataplane.EachProgrammed(n.served(), n.chainIDs(), func(p dataplane.Programmed) {
		if known.has(p.Portal) {
			return
		}
		where := place{p.ServicePort, p.Protocol, p.Ruleset}
		if at[where] == nil {
			at[where] = &staleFrontends{servicePort: p.ServicePort, protocol: p.Protocol, rules: p.Ruleset}
			out = append(out, at[where])
		}
		at[where].add(p)
	})
	return out
}

// chainIDs are the service ports by the part of chain names that is a hash of them, in both spellings.
func (n *Node) chainIDs() map[string]string {
	ids := make(map[string]string, len(n.Plan.Ports))
	for _, sp := range n.Plan.Ports {
		ids[dataplane.ChainID(sp.Key(), sp.Protocol)] = sp.Key()
		if sp.PortName == "" {
			ids[dataplane.ChainID(sp.Key()+":", sp.Protocol)] = sp.Key()
		}
	}
	return ids
}

// frontendID is a frontend as rules name it. The kind is left out but for node ports, which have no address: rules that
// refuse do not tell a load balancer's address from an external one.
type frontendID struct {
	servicePort string
	protocol    uint8
	family      netfilter.Family
	addr        netip.Addr
	port        uint16
}

// frontendSet are the frontends that the objects ask for.
type frontendSet map[frontendID]bool

// frontends gathers what may be programmed. Addresses that kube-proxy leaves out in some versions only (ipMode Proxy)
// are in it; so are Services that only some versions see.
func (n *Node) frontends() frontendSet {
	set := make(frontendSet)
	for _, sp := range n.Plan.Ports {
		id := frontendID{servicePort: sp.Key(), protocol: dataplane.ProtocolNumber(sp.Protocol), family: netfilter.Family(sp.Family)}
		for _, f := range sp.Frontends {
			if f.Kind != intent.NodePort && f.Kind != intent.HealthCheck {
				id.addr, id.port = f.Addr, uint16(f.Port)
				set[id] = true
			}
		}
		for _, ip := range n.ingressOf(sp) {
			id.addr, id.port = ip, uint16(sp.Port)
			set[id] = true
		}
		id.addr = netip.Addr{}
		if sp.NodePort != 0 {
			id.port = uint16(sp.NodePort)
			set[id] = true
		}
		if sp.HealthCheckNodePort != 0 {
			id.port, id.protocol = uint16(sp.HealthCheckNodePort), netfilter.ProtoTCP
			set[id] = true
		}
	}
	return set
}

func (n *Node) ingressOf(sp *intent.ServicePort) []netip.Addr {
	svc, ok := n.Objects.Service(sp.Namespace, sp.Name)
	if !ok {
		return nil
	}
	var out []netip.Addr
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

func (s frontendSet) has(p dataplane.Portal) bool {
	return s[frontendID{p.ServicePort, p.Protocol, p.Family, p.Addr, p.Port}]
}

// staleFrontends are those of one service port in one rule set.
type staleFrontends struct {
	servicePort string
	protocol    uint8
	rules       *netfilter.Ruleset
	at          []string
	evidence    []report.Evidence
}

func (s *staleFrontends) add(p dataplane.Programmed) {
	text := fmt.Sprintf("%s :%d", p.Kind, p.Port)
	if p.Addr.IsValid() {
		text = fmt.Sprintf("%s %s", p.Kind, netip.AddrPortFrom(p.Addr, p.Port))
	}
	if s.at = once(s.at, text); len(s.evidence) < 3 {
		s.evidence = append(s.evidence, RuleEvidence(p.Ruleset, p.Rule))
	}
}

func (s *staleFrontends) finding(n *Node) report.Finding {
	o := servicePortNamed(s.servicePort)
	o.Protocol = nameOfProtocol(s.protocol)
	f := report.Finding{
		Object: o, Subject: s.servicePort,
		Want: "no rule", Got: "rules for " + list(s.at, 4),
		Evidence: s.evidence,
		Causes:   []string{proxyStopped, syncFailed},
		Remedy:   restartProxy,
	}
	where := fmt.Sprintf("%s still serves %s", tool(s.rules), list(s.at, 4))
	skipped := slices.IndexFunc(n.Plan.Skipped, func(k intent.Skipped) bool { return k.Namespace == o.Namespace && k.Name == o.Name })
	svc, exists := n.Objects.Service(o.Namespace, o.Name)
	switch {
	case !exists:
		f.Message = fmt.Sprintf("%s for %s, and there is no such Service any more", where, s.servicePort)
		return f
	case skipped >= 0:
		f.Message = fmt.Sprintf("%s for %s, which kube-proxy has to leave alone: %s", where, s.servicePort, n.Plan.Skipped[skipped].Text)
	default:
		f.Message = fmt.Sprintf("%s for %s, which the Service does not have any more", where, s.servicePort)
	}
	f.Evidence = append(f.Evidence, ObjectEvidence(svc.Evidence, "Service "+svc.Namespace+"/"+svc.Name))
	return f
}
