package explain

import (
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// cluster is what Node objects say of where pods and nodes are. A cluster may have thousands of them, and nearly every
// question about an address asks for it.
type cluster struct {
	// local and remote are the pod ranges of this node and of all others, by family.
	local, remote [2][]netip.Prefix
	// inRemote finds a remote range by itself; lengths are the lengths that such ranges have.
	inRemote map[netip.Prefix]bool
	lengths  [2][]int
	// nodes are the InternalIPs of other nodes.
	nodes map[netip.Addr]bool
}

// cluster is built at the first question, and again when it turns out whose evidence this is.
func (m *model) cluster() *cluster {
	if m.clusterOf != nil && m.clusterFor == m.node {
		return m.clusterOf
	}
	c := &cluster{inRemote: make(map[netip.Prefix]bool), nodes: make(map[netip.Addr]bool)}
	for _, n := range m.objects.Nodes {
		own := n.Name == m.node
		for i, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
			for _, p := range podCIDRs(n.Node, family) {
				// Without a node's name every range may be this node's, and another's.
				if own || m.node == "" {
					c.local[i] = append(c.local[i], p)
				}
				if !own || m.node == "" {
					c.remote[i] = append(c.remote[i], p)
					c.inRemote[p.Masked()] = true
					if !slices.Contains(c.lengths[i], p.Bits()) {
						c.lengths[i] = append(c.lengths[i], p.Bits())
					}
				}
			}
			if a := internalIP(n.Node, family); a.IsValid() && !own {
				c.nodes[a] = true
			}
		}
	}
	m.clusterOf, m.clusterFor = c, m.node
	return c
}

// remoteHas tells whether an address lies in the pod range of another node.
func (c *cluster) remoteHas(a netip.Addr) bool {
	for _, bits := range c.lengths[familyIndex(netfilter.FamilyOf(a))] {
		if p, err := a.Prefix(bits); err == nil && c.inRemote[p] {
			return true
		}
	}
	return false
}
