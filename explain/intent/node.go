package intent

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// node is what the plan needs of the node.
type node struct {
	name string
	// zone is the label topology.kubernetes.io/zone; known is false without a Node object.
	zone      string
	zoneKnown bool
	// addrs are the node's addresses, sorted; primary by family is the address that the proxy takes for
	// the node's own (kube-proxy: the first InternalIP, then the first ExternalIP of the family).
	addrs   []netip.Addr
	primary map[int]netip.Addr
	// serves are the addresses on which NodePort and HealthCheck frontends are served.
	serves map[FrontendKind][]netip.Addr
	// dsr says whether a Windows node supports direct server return.
	dsr presence
}

// readNode gathers what is known of the node and notes what is not.
func (b *planner) readNode() node {
	n := node{name: b.in.Proxy.NodeName, primary: map[int]netip.Addr{}}
	n.dsr = returnsDirectly(b.in.Node)
	var fromObject []netip.Addr
	if obj := b.in.Node; obj != nil {
		if n.name == "" {
			n.name = obj.Name
		}
		n.zone, n.zoneKnown = obj.Labels[corev1.LabelTopologyZone], true
		for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
			for _, a := range obj.Status.Addresses {
				addr, ok := parseAddr(a.Address)
				if a.Type != kind || !ok {
					continue
				}
				fromObject = append(fromObject, addr)
				if _, have := n.primary[family(addr)]; !have {
					n.primary[family(addr)] = addr
				}
			}
		}
	}
	if n.name == "" {
		b.note(Note{Kind: NoteNodeNameUnknown, Text: "the proxy's node name is not known: no endpoint counts as local"})
	}
	for _, a := range b.in.NodeAddrs {
		if a.IsValid() {
			n.addrs = append(n.addrs, a.Unmap().WithZone(""))
		}
	}
	switch {
	case len(n.addrs) > 0:
		n.guessPrimary(4)
		n.guessPrimary(6)
	case len(fromObject) > 0:
		n.addrs = fromObject
		b.note(Note{Kind: NoteNodeAddrsFromObject, Evidence: b.evidence(b.in.Node),
			Text: "the node's addresses are taken from its Node object; addresses of other interfaces serve NodePorts too but are not known"})
	default:
		b.note(Note{Kind: NoteNodeAddrsUnknown, Text: "the node's addresses are not known: NodePorts are left out"})
	}
	slices.SortFunc(n.addrs, netip.Addr.Compare)
	n.addrs = slices.Compact(n.addrs)
	return n
}

// guessPrimary takes the only address of a family for the primary one where no Node object names it.
func (n *node) guessPrimary(fam int) {
	if _, have := n.primary[fam]; have {
		return
	}
	var only netip.Addr
	for _, a := range n.addrs {
		if family(a) != fam || a.IsLoopback() || a.IsLinkLocalUnicast() {
			continue
		}
		if only.IsValid() && only != a {
			return
		}
		only = a
	}
	if only.IsValid() {
		n.primary[fam] = only
	}
}

// has says whether an address is one of the node's. Addresses that are not known are not.
func (n *node) has(a netip.Addr) bool {
	_, ok := slices.BinarySearchFunc(n.addrs, a, netip.Addr.Compare)
	return ok
}

// family is 4 or 6.
func family(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}
