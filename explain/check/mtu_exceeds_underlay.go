package check

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/report"
)

// overheads are the bytes that a tunnel puts before a packet, by kind of interface, over an IPv4 underlay; over IPv6 it
// is more.
var overheads = map[string]int{"vxlan": 50, "geneve": 50, "ipip": 20, "gre": 24, "sit": 20, "wireguard": 60}

// unlimited is an MTU that no network has: a device with a larger one leaves the limit to others, as those of Open
// vSwitch do, or to routes.
const unlimited = 16384

// mtuExceedsUnderlay: a full packet of a pod does not fit into the packets of the network below once the tunnel's header
// is before it. Small packets get through, large answers do not.
var mtuExceedsUnderlay = Check{
	ID: "mtu-exceeds-underlay", Rests: onObjects, Severity: Warning,
	Title: "tunnels whose packets do not fit into those of the network below",
	Node: func(n *Node) []report.Finding {
		if len(n.Plan.Ports) == 0 || !n.Needs(Links) {
			return nil
		}
		var out []report.Finding
		for i := range n.Host.Links {
			t := &n.Host.Links[i]
			if !limitsPods(t) {
				continue
			}
			if below := n.underlay(t); below != nil && t.MTU+overheads[t.Kind] > below.MTU {
				out = append(out, n.tooLarge(t, below))
			}
		}
		return out
	},
}

// limitsPods tells whether an interface is a tunnel whose MTU is that of packets of pods. Cilium's devices have that of
// the network below, and the routes of pods have the smaller one.
func limitsPods(l *host.Link) bool {
	return l.Up && overheads[l.Kind] > 0 && l.MTU > 0 && l.MTU < unlimited && !strings.HasPrefix(l.Name, "cilium_")
}

// underlay is the interface that carries a tunnel's packets: the one that the tunnel is bound to, the one that leads to
// another node, or the only one towards the network. Where it is not known the running check is unknown, if the tunnel
// would be too large for one of those that there are.
func (n *Node) underlay(t *host.Link) *host.Link {
	if l := n.Host.Link(t.Carrier); l != nil {
		return l
	}
	if l := n.towardsNodes(); l != nil && l != t {
		return l
	}
	var ups []*host.Link
	tooLarge := false
	for i := range n.Host.Links {
		if l := &n.Host.Links[i]; uplink(l) {
			ups = append(ups, l)
			tooLarge = tooLarge || t.MTU+overheads[t.Kind] > l.MTU
		}
	}
	switch {
	case len(ups) == 1:
		return ups[0]
	case tooLarge || len(ups) == 0:
		n.Needs(Routes4, Nodes)
	}
	return nil
}

// towardsNodes is the interface that leads to another node of the cluster.
func (n *Node) towardsNodes() *host.Link {
	for _, node := range n.Objects.Nodes {
		for _, has := range node.Status.Addresses {
			a, err := netip.ParseAddr(has.Address)
			if _, own := n.onInterface(a); err != nil || own || node.Name == n.Name {
				continue
			}
			if l := n.Host.Link(n.Host.Towards(a)); l != nil {
				return l
			}
		}
	}
	return nil
}

// uplink tells whether an interface looks like one towards the network: a network card, a bond of several or a VLAN on
// one of them, that is up and none of a bridge's ports.
func uplink(l *host.Link) bool {
	switch l.Kind {
	case "", "bond", "team", "vlan":
		return l.Up && l.MTU > 0 && l.Name != "lo" && l.Master == "" && !towardsPod(l)
	}
	return false
}

func (n *Node) tooLarge(t, below *host.Link) report.Finding {
	most := below.MTU - overheads[t.Kind]
	f := report.Finding{
		Subject: t.Name,
		Message: fmt.Sprintf("%s (%s, %d bytes of overhead) has MTU %d and %s below it %d: at most %d fits, and larger packets between nodes are lost or cut up", t.Name, t.Kind, overheads[t.Kind], t.MTU, below.Name, below.MTU, most),
		Want:    fmt.Sprintf("MTU %d or less on %s and on the interfaces of pods", most, t.Name), Got: fmt.Sprintf("MTU %d", t.MTU),
		Evidence: []report.Evidence{HostEvidence("ip link", t.Evidence), HostEvidence("ip link", below.Evidence)},
		Causes: []string{
			"the network plugin's MTU was set for a network with larger packets",
			"the network below is a tunnel itself (a cloud's tenant network) or was moved",
		},
		Remedy: fmt.Sprintf("set the network plugin's MTU to %d (or let it find out by itself) and restart the pods; ip link set %s mtu %d helps new connections of the node", most, t.Name, most),
	}
	if pods := n.podsAbove(most); pods > 0 {
		f.Message += fmt.Sprintf(" (%s of pods %s larger)", plural(pods, "interface"), be(pods))
	}
	return f
}

// podsAbove counts the interfaces of pods with a larger MTU.
func (n *Node) podsAbove(mtu int) int {
	count := 0
	for i := range n.Host.Links {
		if l := &n.Host.Links[i]; towardsPod(l) && l.MTU > mtu {
			count++
		}
	}
	return count
}
