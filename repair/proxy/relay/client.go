package relay

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/traits"
)

// Around is what is known of the node and the cluster, by which clients are told apart.
type Around struct {
	// NodeAddrs are this node's own addresses; loopback and the addresses that the relay took need not be among them.
	NodeAddrs []netip.Addr
	// LocalPods are the ranges of this node's pods, Pods those of all pods of the cluster, as far as they are known. The
	// smallest range that has an address counts.
	LocalPods, Pods []netip.Prefix
	// OtherNodes are the addresses of the other nodes.
	OtherNodes []netip.Addr
	// Proxy is what the relay stands for: its mode and version say which rules of kube-proxy hold.
	Proxy traits.Proxy
}

// clients tells what a client is by its address.
type clients struct {
	proxy traits.Proxy
	own   map[netip.Addr]bool
	other map[netip.Addr]bool
	// ranges by length, longest first.
	ranges []rangesOfLength
	// detected are the ranges by which the proxy detects local pods.
	detected []netip.Prefix
}

type rangesOfLength struct {
	bits  int
	class map[netip.Prefix]intent.Class
}

// clientsOf prepares the question. taken are the addresses that the relay itself put on the node: nobody but the node
// sends from them.
func clientsOf(a Around, taken []netip.Addr) *clients {
	c := &clients{proxy: a.Proxy, own: make(map[netip.Addr]bool), other: make(map[netip.Addr]bool)}
	for _, addrs := range [][]netip.Addr{a.NodeAddrs, taken} {
		for _, x := range addrs {
			c.own[x.Unmap().WithZone("")] = true
		}
	}
	for _, x := range a.OtherNodes {
		c.other[x.Unmap()] = true
	}
	byLength := make(map[int]map[netip.Prefix]intent.Class)
	add := func(p netip.Prefix, class intent.Class) {
		if !p.IsValid() {
			return
		}
		// Lengths of IPv4 and IPv6 are apart: 32 bits of each are not the same question.
		bits := p.Bits()
		if byLength[bits] == nil {
			byLength[bits] = make(map[netip.Prefix]intent.Class)
		}
		byLength[bits][p.Masked()] = class
	}
	for _, p := range a.Pods {
		add(p, intent.RemotePod)
	}
	for _, p := range a.LocalPods {
		add(p, intent.LocalPod)
	}
	for bits, class := range byLength {
		c.ranges = append(c.ranges, rangesOfLength{bits, class})
	}
	slices.SortFunc(c.ranges, func(x, y rangesOfLength) int { return cmp.Compare(y.bits, x.bits) })
	switch a.Proxy.LocalMode {
	case "", "ClusterCIDR", "NodeCIDR":
		c.detected = a.Proxy.ClusterCIDRs
	}
	return c
}

// client says what a client is. The address is without zone and not an IPv4 one in IPv6 form.
func (c *clients) client(a netip.Addr) intent.Client {
	out := intent.Client{Addr: a, Class: intent.External}
	switch {
	case a.IsLoopback():
		out.Class, out.OnNode = intent.Localhost, true
		return out
	case c.own[a]:
		out.Class, out.OnNode = intent.Node, true
		return out
	case c.other[a]:
		out.Class = intent.RemoteNode
		return out
	}
	for _, r := range c.ranges {
		p, err := a.Prefix(r.bits)
		if err != nil {
			continue // longer than an IPv4 address
		}
		if class, ok := r.class[p]; ok {
			out.Class = class
			break
		}
	}
	if len(c.detected) > 0 {
		out.DetectedLocal = slices.ContainsFunc(c.detected, func(p netip.Prefix) bool { return p.Contains(a) })
	} else {
		// The other ways of detection know the pods of this node by the device that they come through.
		out.DetectedLocal = out.Class == intent.LocalPod
	}
	return out
}
