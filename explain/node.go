package explain

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// whichNode finds out whose evidence this is: what the snapshot or the user says, the proxy's own node name
// if a Node has it, the one Node whose addresses the captured interfaces carry, or the only Node there is.
func (m *model) whichNode(said string) string {
	if said != "" {
		return said
	}
	if n := m.proxy.NodeName; n != "" {
		if _, ok := m.objects.Node(n); ok {
			return n
		}
	}
	var match []string
	for _, n := range m.objects.Nodes {
		captured := func(a netip.Addr) bool {
			// The source that a route prefers is an address of this node, too.
			return slices.ContainsFunc(m.kernel.Host.Addrs, func(h host.Addr) bool { return h.Prefix.Addr() == a }) ||
				slices.ContainsFunc(m.kernel.Host.Routes, func(r host.Route) bool { return r.Src == a })
		}
		if slices.ContainsFunc(nodeAddrs(n.Node), captured) {
			match = append(match, n.Name)
		}
	}
	if len(match) == 1 {
		return match[0]
	}
	if len(m.objects.Nodes) == 1 {
		return m.objects.Nodes[0].Name
	}
	return ""
}

// adoptNode takes the question's word for whose evidence this is, where nothing else says: who asks what becomes
// of a packet from a pod of this node, from the node itself, or from outside to a node's address, gives the
// rules of that node with it.
func (m *model) adoptNode(src, dst netip.Addr, origin string) {
	if m.node != "" {
		return
	}
	for _, n := range m.objects.Nodes {
		inRange := slices.ContainsFunc(podCIDRs(n.Node, netfilter.FamilyOf(src)), func(p netip.Prefix) bool { return p.Contains(src) })
		var because string
		switch {
		case origin == "pod" && inRange:
			because = fmt.Sprintf("the pod %s is in its range", src)
		case origin == "node" && slices.Contains(nodeAddrs(n.Node), src):
			because = fmt.Sprintf("%s is its address", src)
		case origin == "external" && slices.Contains(nodeAddrs(n.Node), dst):
			because = fmt.Sprintf("the packet is addressed to it (%s)", dst)
		default:
			continue
		}
		m.node = n.Name
		m.granted = append(m.granted, fmt.Sprintf("the rules are taken to be those of node %s: %s (--node NAME says otherwise)", n.Name, because))
		m.kernel.Host.AnyNodeAddrs = nil
		m.knowNode()
		m.intend()
		return
	}
}

// nodeObject is the Node object of the node, nil when there is none.
func (m *model) nodeObject() *corev1.Node {
	if n, ok := m.objects.Node(m.node); ok {
		return n.Node
	}
	return nil
}

// pod is the pod that has an address, nil when no object says.
func (m *model) pod(a netip.Addr) *corev1.Pod {
	if p, ok := m.objects.PodByIP(a); ok {
		return p.Pod
	}
	return nil
}

// nodeAddr is the node's own address of a family: its InternalIP, else the first global one of its interfaces.
func (m *model) nodeAddr(family netfilter.Family) netip.Addr {
	if n := m.nodeObject(); n != nil {
		if a := internalIP(n, family); a.IsValid() {
			return a
		}
	}
	for _, a := range m.kernel.Host.Addrs {
		addr := a.Prefix.Addr()
		if netfilter.FamilyOf(addr) == family && !addr.IsLoopback() && !addr.IsLinkLocalUnicast() && (a.Scope == "global" || a.Scope == "") && !madeForServices(a.Link) {
			return addr
		}
	}
	for _, a := range m.kernel.Host.NodeAddrs {
		if netfilter.FamilyOf(a) == family {
			return a
		}
	}
	return netip.Addr{}
}

// nodeSource is the address from which the node itself dials dst: the one that its routes choose. A node that dials
// an address of its own does so from that address.
func (m *model) nodeSource(dst netip.Addr) netip.Addr {
	family := netfilter.FamilyOf(dst)
	if m.kernel.Host.HasRoutes[int(family)] {
		if d := m.kernel.Host.Route(host.Query{Dst: dst, Local: true}); d.Src.IsValid() {
			return d.Src
		}
	}
	return m.nodeAddr(family)
}

// madeForServices are devices that carry service addresses, which are no addresses of the node to dial from.
func madeForServices(link string) bool {
	return link == "kube-ipvs0" || link == "nodelocaldns" || strings.HasPrefix(link, "cilium_")
}

// isNodeAddr tells whether an address is the node's own, and not one that a service proxy put there.
func (m *model) isNodeAddr(a netip.Addr) bool { return m.ownAddrs[a] }

// gatherOwnAddrs are those for isNodeAddr: a node in IPVS mode has one more for each Service.
func (m *model) gatherOwnAddrs() {
	m.ownAddrs, m.heldAddrs = make(map[netip.Addr]bool), make(map[netip.Addr]bool)
	for _, h := range m.kernel.Host.Addrs {
		m.heldAddrs[h.Prefix.Addr()] = true
		if !madeForServices(h.Link) {
			m.ownAddrs[h.Prefix.Addr()] = true
		}
	}
	for _, a := range m.kernel.Host.NodeAddrs {
		m.ownAddrs[a] = true
	}
}

// own is what belongs to this node alone.
func (m *model) own() report.Own {
	var out report.Own
	for _, a := range slices.SortedFunc(maps.Keys(m.ownAddrs), netip.Addr.Compare) {
		if !a.IsLoopback() {
			out.Addresses = append(out.Addresses, a.String())
		}
	}
	if n := m.nodeObject(); n != nil {
		for _, p := range append(podCIDRs(n, netfilter.IPv4), podCIDRs(n, netfilter.IPv6)...) {
			out.PodCIDRs = append(out.PodCIDRs, p.String())
		}
	}
	return out
}

func (m *model) isFrontendAddr(a netip.Addr) bool {
	for _, sp := range m.plan.Ports {
		for _, f := range sp.Frontends {
			if f.Addr == a {
				return true
			}
		}
	}
	return false
}

// assumedNodeAddr stands for the node's address where nothing tells it: a documentation address (RFC 5737,
// RFC 3849) that is then taken to be local.
func (m *model) assumedNodeAddr(family netfilter.Family) netip.Addr {
	a := netip.AddrFrom4([4]byte{192, 0, 2, 1})
	if family == netfilter.IPv6 {
		a = netip.MustParseAddr("2001:db8::1")
	}
	if !slices.Contains(m.kernel.Host.NodeAddrs, a) {
		m.kernel.Host.NodeAddrs = append(m.kernel.Host.NodeAddrs, a)
	}
	return a
}

func nodeAddrs(n *corev1.Node) []netip.Addr {
	var out []netip.Addr
	for _, a := range n.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			out = append(out, addr)
		}
	}
	return out
}

func internalIP(n *corev1.Node, family netfilter.Family) netip.Addr {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range n.Status.Addresses {
			addr, err := netip.ParseAddr(a.Address)
			if err == nil && a.Type == kind && netfilter.FamilyOf(addr) == family {
				return addr
			}
		}
	}
	return netip.Addr{}
}

func podCIDRs(n *corev1.Node, family netfilter.Family) []netip.Prefix {
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 && n.Spec.PodCIDR != "" {
		texts = []string{n.Spec.PodCIDR}
	}
	var out []netip.Prefix
	for _, t := range texts {
		if p, err := netip.ParsePrefix(t); err == nil && netfilter.FamilyOf(p.Addr()) == family {
			out = append(out, p)
		}
	}
	return out
}
