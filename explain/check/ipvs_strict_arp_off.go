package check

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/report"
)

// ipvsStrictARPOff: a service address on kube-ipvs0 lies in the network of an interface, and the node answers ARP for it,
// as every other node does (arp_ignore 0): who announces the address by ARP, as MetalLB does in layer 2 mode, is not
// alone any more.
var ipvsStrictARPOff = Check{
	ID: "ipvs-strict-arp-off", Rests: onObjects, Severity: Warning,
	Title: "service addresses for which every node answers ARP",
	Node: func(n *Node) []report.Finding {
		if n.Proxy.Mode != ipvsMode || !n.Needs(Addrs) {
			return nil
		}
		vip, link := n.vipInNetwork()
		if vip == nil {
			return nil
		}
		const ignore, announce = "net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce"
		got, at, ok := n.Sysctl(ignore)
		if !ok || got != "0" {
			return nil
		}
		own, ownAt, ok := n.Sysctl("net.ipv4.conf." + link.Link + ".arp_ignore")
		if ok && own != "0" {
			return nil // the larger of the two counts
		}
		f := report.Finding{
			Subject:  ignore,
			Message:  fmt.Sprintf("service address %s lies in the network %s of %s and on %s, and %s is 0: every node answers ARP for it", vip.Prefix.Addr(), link.Prefix.Masked(), link.Link, vip.Link, ignore),
			Want:     ignore + " = 1 and " + announce + " = 2 (strictARP: true)",
			Got:      ignore + " = " + got,
			Evidence: []report.Evidence{at, HostEvidence("ip addr", vip.Evidence)},
			Causes:   []string{"strictARP of kube-proxy's IPVS settings is off, which is the default"},
			Remedy:   "set ipvs.strictARP: true in kube-proxy's configuration and restart it",
		}
		if ok {
			f.Evidence = append(f.Evidence, ownAt)
		}
		return []report.Finding{f}
	},
}

// vipInNetwork is an IPv4 address of kube-ipvs0 that lies in the network of an interface to the outside, with that.
func (n *Node) vipInNetwork() (vip, link *host.Addr) {
	var networks []*host.Addr
	for i := range n.Host.Addrs {
		l := &n.Host.Addrs[i]
		if !carriesServices(l.Link) && !l.Prefix.Addr().IsLoopback() && l.Prefix.Bits() < 32 && !n.isPodRange(l.Prefix) {
			networks = append(networks, l)
		}
	}
	for i := range n.Host.Addrs {
		v := &n.Host.Addrs[i]
		if v.Link != KubeIPVS0 || !v.Prefix.Addr().Is4() {
			continue
		}
		for _, l := range networks {
			if l.Prefix.Contains(v.Prefix.Addr()) {
				return v, l
			}
		}
	}
	return nil, nil
}

// isPodRange tells whether a network is one of pods.
func (n *Node) isPodRange(p netip.Prefix) bool {
	for _, r := range append(append([]netip.Prefix{}, n.Host.PodCIDRs...), n.Proxy.ClusterCIDRs...) {
		if r.Contains(p.Addr()) {
			return true
		}
	}
	return false
}
