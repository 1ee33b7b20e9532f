package dataplane

import (
	"net/netip"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
)

// The chains of userspace mode, by what they hold and whose packets pass them. Each rule leads to the one socket that
// kube-proxy keeps for its service port.
const (
	PortalsContainer  = "KUBE-PORTALS-CONTAINER"
	PortalsHost       = "KUBE-PORTALS-HOST"
	NodePortContainer = "KUBE-NODEPORT-CONTAINER"
	NodePortHost      = "KUBE-NODEPORT-HOST"
)

// IsPortal tells whether a chain of nat leads to sockets of kube-proxy's own (userspace mode, up to 1.25).
func IsPortal(chain string) bool {
	switch chain {
	case PortalsContainer, PortalsHost, NodePortContainer, NodePortHost:
		return true
	}
	return false
}

// PortalChain is the chain of userspace mode that holds the rule for a frontend, for packets of the node itself or of
// anybody else.
func PortalChain(kind intent.FrontendKind, ofNode bool) string {
	switch {
	case kind == intent.NodePort && ofNode:
		return NodePortHost
	case kind == intent.NodePort:
		return NodePortContainer
	case ofNode:
		return PortalsHost
	}
	return PortalsContainer
}

// portalKinds tells the frontends of userspace mode apart, whose comments do not: kube-proxy opens the cluster IP of a
// service port first, then external IPs, which have a second rule for the addresses of the node, and then those of load
// balancers (openPortal).
type portalKinds struct {
	first map[portalOwner]netip.Addr
	local map[portalAddr]bool
}

type portalOwner struct {
	servicePort string
	protocol    uint8
	family      netfilter.Family
}

type portalAddr struct {
	portalOwner
	addr netip.Addr
}

// see takes in a rule of a portal chain.
func (k *portalKinds) see(p *Portal, r *netfilter.Rule) {
	if k.first == nil {
		k.first, k.local = make(map[portalOwner]netip.Addr), make(map[portalAddr]bool)
	}
	owner := portalOwner{p.ServicePort, p.Protocol, p.Family}
	if _, seen := k.first[owner]; !seen {
		k.first[owner] = p.Addr
	}
	for _, m := range r.Matches {
		if t, ok := m.(*netfilter.AddrType); ok && t.Dst&netfilter.TypeLocal != 0 {
			k.local[portalAddr{owner, p.Addr}] = true
		}
	}
}

// of is the kind of a frontend that was seen.
func (k *portalKinds) of(p *Portal) intent.FrontendKind {
	owner := portalOwner{p.ServicePort, p.Protocol, p.Family}
	switch first, seen := k.first[owner]; {
	case p.Kind != intent.ClusterIP || !seen:
		return p.Kind
	case k.local[portalAddr{owner, p.Addr}]:
		return intent.ExternalIP
	case first != p.Addr:
		return intent.LoadBalancer
	}
	return intent.ClusterIP
}
