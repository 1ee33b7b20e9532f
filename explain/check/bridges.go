package check

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/netfilter"
)

// podBridge is a Linux bridge that pods of the node hang on.
type podBridge struct {
	name string
	// link is the bridge itself; nil where only its ports were seen.
	link *host.Link
	// ports are those towards pods.
	ports []*host.Link
}

// podBridges finds them: bridges with ports of pods whose address is in a pod range. Where addresses or ranges are not
// known, any bridge will do that is not by its name that of another program. Where there are none and nothing says which
// bridges there are, the running check is unknown.
func (n *Node) podBridges() []*podBridge {
	var out []*podBridge
	for i := range n.Host.Links {
		port := &n.Host.Links[i]
		if port.Master == "" || !towardsPod(port) {
			continue
		}
		at := slices.IndexFunc(out, func(b *podBridge) bool { return b.name == port.Master })
		if at < 0 {
			b := &podBridge{name: port.Master, link: n.Host.Link(port.Master)}
			if b.link != nil && b.link.Kind != "" && b.link.Kind != "bridge" || !n.servesPods(b.name) {
				continue
			}
			out = append(out, b)
			at = len(out) - 1
		}
		out[at].ports = append(out[at].ports, port)
	}
	if len(out) == 0 {
		n.NeedsAny(Links, Bridges)
	}
	return out
}

// towardsPod tells whether a port leads to another network namespace: one end of a veth.
func towardsPod(l *host.Link) bool {
	return l.Kind == "veth" || l.Kind == "" && (strings.HasPrefix(l.Name, "veth") || strings.HasPrefix(l.Peer, "if"))
}

// servesPods tells whether a bridge is the gateway of pods.
func (n *Node) servesPods(bridge string) bool {
	ranges := slices.Concat(n.Host.PodCIDRs, n.Proxy.ClusterCIDRs, n.Proxy.PodCIDRs)
	if !n.Host.HasAddrs || len(ranges) == 0 {
		return !netfilter.PrivateBridge(bridge)
	}
	return slices.ContainsFunc(n.Host.Addrs, func(a host.Addr) bool {
		return a.Link == bridge && slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a.Prefix.Addr()) })
	})
}

// names are the interfaces' names.
func names(links []*host.Link) []string {
	out := make([]string, len(links))
	for i, l := range links {
		out[i] = l.Name
	}
	return out
}

// bridgeEvidence is where a port was seen to hang on its bridge.
func bridgeEvidence(l *host.Link) host.Evidence {
	if l.BridgeEvidence != (host.Evidence{}) {
		return l.BridgeEvidence
	}
	return l.Evidence
}

// translatesByRules tells whether Services are served by netfilter or IPVS here, as far as it is known.
func (n *Node) translatesByRules() bool {
	switch n.Proxy.Mode {
	case "", "iptables", "ipvs", "nftables":
		return len(n.Plan.Ports) > 0
	}
	return false
}
