package intent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/traits"
)

// kindOrder is the order of frontends in every list.
var kindOrder = [...]FrontendKind{ClusterIP, ExternalIP, LoadBalancer, NodePort, HealthCheck}

func compareFrontends(x, y Frontend) int {
	return cmp.Or(
		cmp.Compare(slices.Index(kindOrder[:], x.Kind), slices.Index(kindOrder[:], y.Kind)),
		x.Addr.Compare(y.Addr),
		cmp.Compare(x.Port, y.Port))
}

func hasKind(fs []Frontend, k FrontendKind) bool {
	return slices.ContainsFunc(fs, func(f Frontend) bool { return f.Kind == k })
}

// nodeFrontends are the addresses of the node on which a node port or health check port is served in one
// family.
func (b *planner) nodeFrontends(kind FrontendKind, port, fam int) []Frontend {
	var out []Frontend
	for _, a := range b.node.serves[kind] {
		if family(a) == fam {
			out = append(out, Frontend{Kind: kind, Addr: a, Port: port, OnNode: true})
		}
	}
	return out
}

// readServed finds the addresses of the node on which node ports and health check ports are served: the
// same for all Services. Loopback is among them where it is served, known from the node or not.
//
// Left out although rules may hold for them are link-local addresses, which nobody dials, and service
// addresses: IPVS mode puts them all on a device of the node, and they may stay there after it.
func (b *planner) readServed() {
	virtual := b.virtualAddrs()
	candidates := append(slices.Clone(b.node.addrs), netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	slices.SortFunc(candidates, netip.Addr.Compare)
	b.node.serves = map[FrontendKind][]netip.Addr{}
	for _, a := range slices.Compact(candidates) {
		if virtual[a] || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
			continue
		}
		for _, kind := range []FrontendKind{NodePort, HealthCheck} {
			if served, _ := nodePortServed(kind, a, b.node.primary[family(a)], b.in.Proxy, b.release); served {
				b.node.serves[kind] = append(b.node.serves[kind], a)
			}
		}
	}
	if primaryOnly(b.in.Proxy) && len(b.node.primary) == 0 {
		b.note(Note{Kind: NoteNodeIPUnknown, Text: "NodePorts are served on the node's primary address, which is not known: they are left out"})
	}
}

// virtualAddrs are the addresses of Services that may be found on a device of the node without being the
// node's: cluster IPs, and in IPVS mode external and load balancer addresses too. Those that the Node
// object names are the node's.
func (b *planner) virtualAddrs() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	add := func(text string) {
		if a, ok := parseAddr(text); ok {
			out[a] = true
		}
	}
	for _, svc := range b.in.Services {
		if svc == nil {
			continue
		}
		add(svc.Spec.ClusterIP)
		for _, text := range svc.Spec.ClusterIPs {
			add(text)
		}
		if b.in.Proxy.Mode != modeIPVS {
			continue
		}
		for _, text := range svc.Spec.ExternalIPs {
			add(text)
		}
		for _, in := range svc.Status.LoadBalancer.Ingress {
			add(in.IP)
		}
	}
	if b.in.Node != nil {
		for _, a := range b.in.Node.Status.Addresses {
			if addr, ok := parseAddr(a.Address); ok {
				delete(out, addr)
			}
		}
	}
	return out
}

// nodePortServed says whether a node port (or, for HealthCheck, the health check's listener) is served on
// an address of the node, and if not, why.
func nodePortServed(kind FrontendKind, a, primary netip.Addr, p traits.Proxy, r release) (bool, string) {
	if kind == NodePort {
		if ok, why := loopbackServed(a, p, r); !ok {
			return false, why
		}
	}
	if p.Mode == modeIPVS && kind == NodePort && a.Is6() && a.IsLinkLocalUnicast() {
		return false, "IPVS mode does not serve NodePorts on link-local addresses"
	}
	if kind == HealthCheck && !r.does(healthCheckOnNodePortAddr) || p.Mode == modeUserspace || p.Mode == modeKernelspace {
		return true, "" // these modes do not look at nodePortAddresses
	}
	if primaryOnly(p) {
		if a == primary && primary.IsValid() {
			return true, ""
		}
		return false, "NodePorts are served on the node's primary address only (nftables mode unless nodePortAddresses says otherwise)"
	}
	ranges := nodePortRanges(p, family(a))
	if len(ranges) == 0 {
		return true, ""
	}
	for _, prefix := range ranges {
		if prefix.Contains(a) {
			return true, ""
		}
	}
	return false, fmt.Sprintf("%s is in none of the proxy's nodePortAddresses", a)
}

// primaryOnly says whether NodePorts are for the primary address of each family alone: the keyword
// "primary", which is what nftables mode takes without nodePortAddresses since 1.31.
func primaryOnly(p traits.Proxy) bool {
	return p.NodePortPrimary || p.Mode == modeNFTables && len(p.NodePortAddresses) == 0 && !p.Within(0, 30)
}

// nodePortRanges are the nodePortAddresses of one family; a family for which none is given has no
// restriction.
func nodePortRanges(p traits.Proxy, fam int) []netip.Prefix {
	var out []netip.Prefix
	for _, prefix := range p.NodePortAddresses {
		if prefix.IsValid() && family(prefix.Addr()) == fam {
			out = append(out, prefix)
		}
	}
	return out
}

// loopbackServed says whether node ports are served on this address as far as loopback goes: in iptables
// mode on 127.0.0.1 unless localhostNodePorts (1.26+) is off, on ::1 up to 1.25 (where the kernel does not
// route it anyway); in the other modes never.
func loopbackServed(a netip.Addr, p traits.Proxy, r release) (bool, string) {
	switch {
	case !a.IsLoopback():
		return true, ""
	case p.Mode == modeIPVS || p.Mode == modeNFTables || p.Mode == modeKernelspace || p.Mode == modeFallback:
		return false, p.Mode + " mode does not serve NodePorts on loopback addresses"
	case a.Is6() && r.does(noLoopbackNodePort6):
		return false, "kube-proxy 1.26+ does not serve NodePorts on ::1"
	case a.Is4() && r.does(localhostOption) && !p.LocalhostNodePorts:
		return false, "localhostNodePorts is off: NodePorts are not served on loopback addresses"
	}
	return true, ""
}
