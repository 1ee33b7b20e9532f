package lab

import (
	"context"
	"fmt"
	"net/netip"
)

// A Place is where a connection can start: a Pod, a Node, the Client, the ControlPlane, or any Namespace.
type Place interface {
	Netns() *Namespace
	String() string
}

// The ranges of the lab; doc.go has the picture.
const (
	controlPlaneIPv4 = "172.30.0.10"
	controlPlaneIPv6 = "fd00:30::10"
	clientIPv4       = "172.30.0.200"
	clientIPv6       = "fd00:30::200"
	// ServiceCIDRs are the ranges of ClusterIPs as kube-apiserver takes them, ClusterCIDRs those of all pods as
	// kube-proxy takes them.
	ServiceCIDRs = "10.96.0.0/16,fd00:96::/112"
	ClusterCIDRs = "10.244.0.0/16,fd00:244::/32"
)

// ServiceRanges and ExternalRanges are what the client reaches through a node: ClusterIPs, and the addresses for
// externalIPs and load balancers.
func ServiceRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
}

// ExternalRanges are the addresses for externalIPs and load balancers.
func ExternalRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("fd00:1b::/64")}
}

// The addresses of node i, from 1.
func nodeIPv4(i int) netip.Addr { return netip.AddrFrom4([4]byte{172, 30, 0, byte(10 + i)}) }
func nodeIPv6(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00:30::%d", 10+i)) }
func podCIDRIPv4(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24)
}
func podCIDRIPv6(i int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("fd00:244:%d::/64", i))
}

// A ControlPlane is the place of etcd and kube-apiserver, and the router of all others.
type ControlPlane struct {
	IPv4, IPv6 netip.Addr
	ns         *Namespace
}

// Netns makes the control plane a Place.
func (c *ControlPlane) Netns() *Namespace { return c.ns }

func (c *ControlPlane) String() string { return "control-plane" }

// A Client stands outside of the cluster, on the network of the nodes.
type Client struct {
	IPv4, IPv6 netip.Addr
	ns         *Namespace
}

// Netns makes the client a Place.
func (c *Client) Netns() *Namespace { return c.ns }

func (c *Client) String() string { return "client" }

// RouteVia sends what the client has for these prefixes through a node. After Up these are ServiceRanges and
// ExternalRanges, through n1.
func (c *Client) RouteVia(ctx context.Context, n *Node, prefixes ...netip.Prefix) error {
	return c.ns.IP(ctx, routes(n, prefixes)...)
}

func routes(via *Node, prefixes []netip.Prefix) []string {
	var lines []string
	for _, p := range prefixes {
		hop := via.IPv4
		if p.Addr().Is6() {
			hop = via.IPv6
		}
		lines = append(lines, fmt.Sprintf("route replace %s via %s", p, hop))
	}
	return lines
}

// addControlPlane makes the namespace with the bridge that all are on.
func (l *Lab) addControlPlane(ctx context.Context) error {
	ns, err := l.addNamespace(ctx, "cp")
	if err != nil {
		return err
	}
	l.ControlPlane = &ControlPlane{netip.MustParseAddr(controlPlaneIPv4), netip.MustParseAddr(controlPlaneIPv6), ns}
	// The bridge is a wire: what crosses it is not to meet this namespace's netfilter. Where there is no
	// br_netfilter there is nothing to turn off.
	_ = ns.Sysctl("net.bridge.bridge-nf-call-iptables=0", "net.bridge.bridge-nf-call-ip6tables=0")
	if err := ns.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"); err != nil {
		return err
	}
	return ns.IP(ctx,
		"link add br0 type bridge mcast_snooping 0",
		"link set br0 up",
		"addr add "+controlPlaneIPv4+"/24 dev br0",
		"addr add "+controlPlaneIPv6+"/64 dev br0 nodad")
}

// plug joins a namespace to the bridge with an eth0 of these addresses and a default route.
func (l *Lab) plug(ctx context.Context, ns *Namespace, port string, v4, v6 netip.Addr) error {
	err := l.ControlPlane.ns.IP(ctx,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", port, ns.Name),
		fmt.Sprintf("link set %s master br0 up", port))
	if err != nil {
		return err
	}
	return ns.IP(ctx,
		fmt.Sprintf("addr add %s/24 dev eth0", v4),
		fmt.Sprintf("addr add %s/64 dev eth0 nodad", v6),
		"link set eth0 up",
		"route add default via "+controlPlaneIPv4,
		"route add default via "+controlPlaneIPv6)
}

func (l *Lab) addClient(ctx context.Context) error {
	ns, err := l.addNamespace(ctx, "client")
	if err != nil {
		return err
	}
	l.Client = &Client{netip.MustParseAddr(clientIPv4), netip.MustParseAddr(clientIPv6), ns}
	return l.plug(ctx, ns, "client", l.Client.IPv4, l.Client.IPv6)
}

// addNode makes the network of node i: eth0 to the others, cni0 for its pods.
func (l *Lab) addNode(ctx context.Context, i int) error {
	name := fmt.Sprintf("n%d", i)
	ns, err := l.addNamespace(ctx, name)
	if err != nil {
		return err
	}
	n := &Node{
		Name: name, IPv4: nodeIPv4(i), IPv6: nodeIPv6(i), PodCIDRIPv4: podCIDRIPv4(i), PodCIDRIPv6: podCIDRIPv6(i),
		lab: l, ns: ns, taken: map[netip.Addr]bool{},
	}
	l.Nodes = append(l.Nodes, n)
	if err := n.writeFolder(); err != nil {
		return err
	}
	if err := ns.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"); err != nil {
		return err
	}
	// As every installation of Kubernetes with a bridge has it: what goes from pod to pod of one node over cni0
	// meets the node's rules too, or answers of a Service would take a way around them. It is also the default.
	err = ns.Sysctl("net.bridge.bridge-nf-call-iptables=1", "net.bridge.bridge-nf-call-ip6tables=1")
	if err != nil {
		return fmt.Errorf("%w; the kernel has no br_netfilter: modprobe br_netfilter", err)
	}
	if err := l.plug(ctx, ns, name, n.IPv4, n.IPv6); err != nil {
		return err
	}
	gateway4, gateway6 := n.gateways()
	return ns.IP(ctx,
		"link add cni0 type bridge mcast_snooping 0",
		"link set cni0 up",
		fmt.Sprintf("addr add %s/24 dev cni0", gateway4),
		fmt.Sprintf("addr add %s/64 dev cni0 nodad", gateway6))
}

// joinNodes gives everybody routes to the pods of every node, and the client those to the Services.
func (l *Lab) joinNodes(ctx context.Context) error {
	var all []string
	for _, n := range l.Nodes {
		all = append(all, routes(n, []netip.Prefix{n.PodCIDRIPv4, n.PodCIDRIPv6})...)
	}
	for _, ns := range []*Namespace{l.ControlPlane.ns, l.Client.ns} {
		if err := ns.IP(ctx, all...); err != nil {
			return err
		}
	}
	for _, n := range l.Nodes {
		var others []string
		for _, o := range l.Nodes {
			if o != n {
				others = append(others, routes(o, []netip.Prefix{o.PodCIDRIPv4, o.PodCIDRIPv6})...)
			}
		}
		if err := n.ns.IP(ctx, others...); err != nil {
			return err
		}
	}
	return l.Client.RouteVia(ctx, l.Nodes[0], append(ServiceRanges(), ExternalRanges()...)...)
}
