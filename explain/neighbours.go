package explain

import (
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// IPv6 finds the link address of a neighbour by packets of its own (RFC 4861), which rules see like any other, never
// tracked. A connection's own packets may pass every rule and yet stop, when the link address has been forgotten and
// the question for it is dropped. IPv4 asks by ARP, which iptables does not see.

const (
	neighbourSolicitation  = 135
	neighbourAdvertisement = 136
)

// discoveries are the messages of neighbour discovery that rules of this node end for certain: between the node and the
// pods and nodes on each of its links, and between pods of one bridge.
func (m *model) discoveries() []check.Discovery {
	if m.onWindows() || m.unread(netfilter.IPv6) != "" {
		return nil
	}
	var out []check.Discovery
	for _, own := range m.kernel.Host.Addrs {
		if a := own.Prefix.Addr(); !a.Is6() || own.Scope != "global" || own.Prefix.Bits() == 128 || own.Link == "lo" {
			continue
		}
		at := m.neighboursOn(own.Prefix)
		if len(at) == 0 {
			continue
		}
		link := netfilter.Iface{Name: own.Link, Known: true}
		add := func(kind check.DiscoveryKind, p netfilter.Packet, hooks ...netfilter.Hook) {
			if path, ends := m.ends(p, hooks); ends {
				out = append(out, check.Discovery{Kind: kind, Link: own.Link, Path: path})
			}
		}
		node, one := own.Prefix.Addr(), at[0]
		add(check.NodeAsks, discovery(neighbourSolicitation, node, one, netfilter.NoIface, link), netfilter.Output, netfilter.Postrouting)
		add(check.NodeIsAnswered, discovery(neighbourAdvertisement, one, node, link, netfilter.NoIface), netfilter.Prerouting, netfilter.Input)
		add(check.NodeIsAsked, discovery(neighbourSolicitation, one, node, link, netfilter.NoIface), netfilter.Prerouting, netfilter.Input)
		add(check.NodeAnswers, discovery(neighbourAdvertisement, node, one, netfilter.NoIface, link), netfilter.Output, netfilter.Postrouting)
		if len(at) < 2 || !m.switchesThroughRules(own.Link) {
			continue
		}
		through := []netfilter.Hook{netfilter.Prerouting, netfilter.Forward, netfilter.Postrouting}
		add(check.PodAsks, discovery(neighbourSolicitation, one, at[1], link, link), through...)
		add(check.PodAnswers, discovery(neighbourAdvertisement, at[1], one, link, link), through...)
	}
	return out
}

// discovery is one message. What is asked goes to the group of all that have an address with this end (RFC 4291, 2.7.1).
func discovery(kind uint8, from, to netip.Addr, in, out netfilter.Iface) netfilter.Packet {
	if kind == neighbourSolicitation {
		group := netip.MustParseAddr("ff02::1:ff00:0").As16()
		end := to.As16()
		copy(group[13:], end[13:])
		to = netip.AddrFrom16(group)
	}
	return netfilter.Packet{
		Family: netfilter.IPv6, Proto: netfilter.ProtoICMPv6, ICMPType: kind, Src: from, Dst: to, In: in, Out: out, Local: !in.Known || in.Name == "",
	}
}

// ends tells whether rules end a message whatever the evidence leaves open, and how.
func (m *model) ends(p netfilter.Packet, hooks []netfilter.Hook) (report.Path, bool) {
	w := m.walker
	endings := w.Through(p, hooks...)
	for _, e := range endings {
		if e.Verdict != netfilter.Dropped && e.Verdict != netfilter.Rejected {
			return report.Path{}, false
		}
	}
	if len(endings) == 0 {
		return report.Path{}, false
	}
	e := endings[0]
	path := report.Path{Result: report.ResultDrop, Table: e.Table, Chain: e.Chain}
	if e.Verdict == netfilter.Rejected {
		path.Result = report.ResultReject
	}
	for _, h := range e.Hops {
		path.Hops = append(path.Hops, m.hop(h))
	}
	return path, true
}

// neighboursOn are up to two addresses of a prefix of IPv6 that pods behind Services have, or nodes, in order.
func (m *model) neighboursOn(on netip.Prefix) []netip.Addr {
	var out []netip.Addr
	add := func(a netip.Addr) {
		if len(out) < 2 && a != on.Addr() && on.Contains(a) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, sp := range m.plan.Ports {
		if netfilter.Family(sp.Family) != netfilter.IPv6 {
			continue
		}
		for i := range sp.Endpoints {
			add(sp.Endpoints[i].Addr)
		}
	}
	for _, n := range m.objects.Nodes {
		for _, a := range nodeAddrs(n.Node) {
			add(a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// switchesThroughRules tells whether a link is a bridge that hands what it switches to the rules of IPv6.
func (m *model) switchesThroughRules(link string) bool {
	l := m.kernel.Host.Link(link)
	if l == nil || l.Kind != "bridge" {
		return false
	}
	return m.kernel.Host.CallsRules(l, 6).Is == host.Yes
}
