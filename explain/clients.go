package explain

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
)

// client is one representative of a source class.
type client struct {
	intent.Client
	entry netfilter.Entry
	in    netfilter.Iface
	// inAssumed is true when in is the likely interface, not a known one.
	inAssumed bool
	// exact is true for a client that was named, not one that stands for others.
	exact bool
	// room is the range that the client stands for; not valid when it stands for itself alone.
	room netip.Prefix
}

func (c client) origin() string {
	switch {
	case c.entry == netfilter.FromNode:
		return "node"
	case c.Class == intent.LocalPod || c.Class == intent.Hairpin:
		return "pod"
	}
	return "external"
}

// classOrder is the order of source classes in documents.
var classOrder = []intent.Class{
	intent.LocalPod, intent.Hairpin, intent.RemotePod, intent.Node, intent.Localhost, intent.RemoteNode, intent.External,
}

// clients are the first representatives of the source classes for one frontend of a service port. A class
// for which the evidence has no member (no pod range, no second node) has none.
func (m *model) clients(sp *intent.ServicePort, f intent.Frontend) []client {
	family := netfilter.Family(sp.Family)
	if f.Addr.IsLoopback() {
		return []client{m.client(intent.Localhost, f.Addr, netip.Prefix{})}
	}
	var out []client
	add := func(class intent.Class, a netip.Addr, room netip.Prefix) {
		if a.IsValid() {
			out = append(out, m.client(class, a, room))
		}
	}
	backends := make(map[netip.Addr]bool, len(sp.Endpoints))
	for _, e := range sp.Endpoints {
		backends[e.Addr] = true
	}
	selected := m.selector(sp)
	local, localRoom := m.podClient(family, true, backends, selected)
	add(intent.LocalPod, local, localRoom)
	for _, e := range sp.Endpoints {
		if m.isLocalPod(e.Addr) {
			add(intent.Hairpin, e.Addr, netip.Prefix{})
			break
		}
	}
	remote, remoteRoom := m.podClient(family, false, backends, selected)
	add(intent.RemotePod, remote, remoteRoom)
	if a := m.nodeSource(f.Addr); a.IsValid() {
		add(intent.Node, a, netip.Prefix{})
	}
	for _, n := range m.objects.Nodes {
		if n.Name == m.node {
			continue
		}
		if a := internalIP(n.Node, family); a.IsValid() {
			add(intent.RemoteNode, a, netip.Prefix{})
			break
		}
	}
	add(intent.External, m.outside(family), netip.PrefixFrom(unspecified(family), 0))
	return out
}

// client fills in what follows from class and address.
func (m *model) client(class intent.Class, a netip.Addr, room netip.Prefix) client {
	c := client{Client: intent.Client{Class: class, Addr: a}, room: room}
	switch class {
	case intent.Node, intent.Localhost:
		c.entry, c.in, c.OnNode = netfilter.FromNode, netfilter.NoIface, true
	case intent.LocalPod, intent.Hairpin:
		c.in = m.interfaceTowards(a)
		if d := m.kernel.Host.Route(host.Query{Dst: a, Local: true, InKnown: true}); d.Via.IsValid() {
			// An address behind a gateway stands for pods of this node, and is none: theirs have devices of their own.
			c.in = netfilter.Iface{Cluster: true}
		}
		if !c.in.Known && m.proxy.LocalMode == "BridgeInterface" && m.proxy.LocalInterface != "" {
			c.in, c.inAssumed = netfilter.Iface{Name: m.proxy.LocalInterface, Known: true}, true
		}
	default:
		c.in, c.inAssumed = m.interfaceTowards(a), true
	}
	c.DetectedLocal = m.detectsLocal(c)
	return c
}

// detectsLocal is what the proxy's local detector says of a client.
func (m *model) detectsLocal(c client) bool {
	switch m.proxy.LocalMode {
	case "ClusterCIDR", "NodeCIDR":
		return slices.ContainsFunc(m.proxy.ClusterCIDRs, func(p netip.Prefix) bool { return p.Contains(c.Addr) })
	case "BridgeInterface", "InterfaceNamePrefix":
		return c.Class == intent.LocalPod || c.Class == intent.Hairpin
	}
	return false
}

// interfaceTowards is the interface through which the node would reach an address, and so the likely one
// for packets that come from there.
func (m *model) interfaceTowards(a netip.Addr) netfilter.Iface {
	if out := m.kernel.Host.Towards(a); out != "" {
		return netfilter.Iface{Name: out, Known: true}
	}
	return netfilter.Iface{Cluster: true}
}

// podClient picks a pod address of this node, or of another, that is no backend: a pod that exists where
// objects name one, else an address of the range. room is the range it stands for.
func (m *model) podClient(family netfilter.Family, local bool, backends map[netip.Addr]bool, selected func(*corev1.Pod) bool) (netip.Addr, netip.Prefix) {
	var room netip.Prefix
	for _, p := range m.podRanges(family, local) {
		room = p
		break
	}
	for _, p := range m.objects.Pods {
		if selected(p.Pod) || p.Spec.HostNetwork || (p.Spec.NodeName == m.node) != local || p.Spec.NodeName == "" || m.node == "" {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			a, err := netip.ParseAddr(ip.IP)
			if err == nil && family == netfilter.FamilyOf(a) && !backends[a] && (!room.IsValid() || room.Contains(a)) {
				return a, room
			}
		}
	}
	if !room.IsValid() {
		return netip.Addr{}, room
	}
	return addressIn(room, func(a netip.Addr) bool { return !backends[a] && !m.isNodeAddr(a) && m.pod(a) == nil }), room
}

// selector tells whether a pod is one of the Service's own. Rules may still lead to a pod that the slices do not
// list any more, and such a pod is no ordinary client.
func (m *model) selector(sp *intent.ServicePort) func(*corev1.Pod) bool {
	svc, ok := m.objects.Service(sp.Namespace, sp.Name)
	if !ok || len(svc.Spec.Selector) == 0 {
		return func(*corev1.Pod) bool { return false }
	}
	want := labels.SelectorFromSet(svc.Spec.Selector)
	return func(p *corev1.Pod) bool { return p.Namespace == sp.Namespace && want.Matches(labels.Set(p.Labels)) }
}

// podRanges are the pod ranges of this node, or of others, as far as any evidence gives them.
func (m *model) podRanges(family netfilter.Family, local bool) []netip.Prefix {
	c := m.cluster()
	out := c.remote[familyIndex(family)]
	if local {
		out = c.local[familyIndex(family)]
	}
	if len(out) > 0 {
		return out
	}
	// One cluster range, undivided: its addresses stand for either, and only the class tells them apart.
	out = nil
	for _, p := range m.proxy.ClusterCIDRs {
		if netfilter.FamilyOf(p.Addr()) == family {
			out = append(out, p)
		}
	}
	return out
}

func (m *model) isLocalPod(a netip.Addr) bool {
	if p := m.pod(a); p != nil {
		return p.Spec.NodeName == m.node && m.node != "" && !p.Spec.HostNetwork
	}
	if m.node == "" {
		return false
	}
	n := m.nodeObject()
	return n != nil && slices.ContainsFunc(podCIDRs(n, netfilter.FamilyOf(a)), func(p netip.Prefix) bool { return p.Contains(a) })
}

// outside is an address that belongs to nothing known of the cluster: one of the documentation ranges
// (RFC 5737, RFC 3849), which no real network has.
func (m *model) outside(family netfilter.Family) netip.Addr {
	for _, p := range documentationRanges[family] {
		a := addressIn(p, func(a netip.Addr) bool { return !m.isNodeAddr(a) && !m.isFrontendAddr(a) })
		if a.IsValid() {
			return a
		}
	}
	return netip.Addr{}
}

var documentationRanges = map[netfilter.Family][]netip.Prefix{
	netfilter.IPv4: {netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24")},
	netfilter.IPv6: {netip.MustParsePrefix("2001:db8:ffff::/64")},
}

// divide finds further representatives of the client's class: for each prefix that rules test and that cuts
// the class's room in two, an address on its side of the cut.
func (m *model) divide(c client, tested []netip.Prefix, have []client, backends map[netip.Addr]bool) []client {
	if !c.room.IsValid() {
		return nil
	}
	sort := func(a, b netip.Prefix) int {
		if a.Bits() != b.Bits() {
			return b.Bits() - a.Bits() // narrow ones first: their members are members of the wider ones too
		}
		return a.Addr().Compare(b.Addr())
	}
	cuts := slices.Clone(tested)
	slices.SortFunc(cuts, sort)
	cuts = slices.Compact(cuts)
	inCuts := func(a netip.Addr) (n uint64) {
		for i, p := range cuts {
			if p.Contains(a) {
				n |= 1 << (i % 64)
			}
		}
		return n
	}
	seen := map[uint64]bool{}
	for _, h := range have {
		seen[inCuts(h.Addr)] = true
	}
	var out []client
	for i, p := range cuts {
		if len(have)+len(out) >= maxRepresentatives {
			break
		}
		if p.Addr().BitLen() != c.room.Addr().BitLen() || !c.room.Overlaps(p) || p.Bits() <= c.room.Bits() {
			continue
		}
		a := addressIn(p, func(a netip.Addr) bool {
			// Nobody else sends from an address of the node: the kernel takes such packets for martians.
			if backends[a] || m.heldAddrs[a] || m.isNodeAddr(a) || m.classOf(a) != c.Class {
				return false
			}
			return !slices.ContainsFunc(cuts[:i], func(q netip.Prefix) bool { return q != p && q.Contains(a) })
		})
		if !a.IsValid() || seen[inCuts(a)] {
			continue
		}
		seen[inCuts(a)] = true
		out = append(out, m.client(c.Class, a, c.room))
	}
	return out
}

// maxRepresentatives bounds the members walked for one source class of one frontend.
const maxRepresentatives = 16

// classOf is the source class of an address on its way to this node.
func (m *model) classOf(a netip.Addr) intent.Class {
	switch {
	case a.IsLoopback():
		return intent.Localhost
	case m.isNodeAddr(a):
		return intent.Node
	}
	if p := m.pod(a); p != nil && !p.Spec.HostNetwork && m.node != "" {
		if p.Spec.NodeName == m.node {
			return intent.LocalPod
		}
		return intent.RemotePod
	}
	c, i := m.cluster(), familyIndex(netfilter.FamilyOf(a))
	within := func(ps []netip.Prefix) bool {
		return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	switch {
	case c.nodes[a]:
		return intent.RemoteNode
	case within(c.local[i]), len(c.local[i]) == 0 && within(m.proxy.ClusterCIDRs):
		return intent.LocalPod
	case c.remoteHas(a), within(m.proxy.ClusterCIDRs):
		return intent.RemotePod
	}
	return intent.External
}

// addressIn finds an address of a range that fits, preferring one in the middle of what people see: the
// tenth host from the start, then the others in order. It looks at a bounded number.
func addressIn(p netip.Prefix, fits func(netip.Addr) bool) netip.Addr {
	p = p.Masked()
	if p.IsSingleIP() {
		if fits(p.Addr()) {
			return p.Addr()
		}
		return netip.Addr{}
	}
	start := p.Addr()
	for range 9 {
		if next := start.Next(); p.Contains(next) {
			start = next
		}
	}
	a := start
	for range 512 {
		if !p.Contains(a) {
			break
		}
		if fits(a) {
			return a
		}
		a = a.Next()
	}
	for a = p.Addr().Next(); a.IsValid() && a.Less(start); a = a.Next() {
		if fits(a) {
			return a
		}
	}
	return netip.Addr{}
}

func unspecified(f netfilter.Family) netip.Addr {
	if f == netfilter.IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
