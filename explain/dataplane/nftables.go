package dataplane

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
)

// The sets and maps of nftables mode that all Services share.
const (
	NFTServiceIPs          = "service-ips"
	NFTServiceNodePorts    = "service-nodeports"
	NFTNoEndpointServices  = "no-endpoint-services"
	NFTNoEndpointNodePorts = "no-endpoint-nodeports"
	NFTFirewallIPs         = "firewall-ips" // a map since 1.30
	NFTClusterIPs          = "cluster-ips"
	NFTNodePortIPs         = "nodeport-ips"        // absent where all local addresses take node ports
	NFTHairpin             = "hairpin-connections" // since 1.36
)

// OfKubeProxy tells whether a table of nftables is kube-proxy's own.
func OfKubeProxy(t *nft.Table) bool {
	return t.Name == "kube-proxy" && (t.Family == nft.IP || t.Family == nft.IP6)
}

// OfFallback tells whether a table of nftables is that of svcnet's own fallback proxy.
func OfFallback(t *nft.Table) bool {
	return t.Name == "svcnet" && (t.Family == nft.IP || t.Family == nft.IP6)
}

// EachNFTTable calls f for kube-proxy's own tables, with the family of packets that meet them.
func EachNFTTable(rulesets []*nft.Ruleset, f func(rs *nft.Ruleset, t *nft.Table, family netfilter.Family)) {
	for _, rs := range rulesets {
		for _, t := range rs.Tables {
			if !OfKubeProxy(t) {
				continue
			}
			family := netfilter.IPv4
			if t.Family == nft.IP6 {
				family = netfilter.IPv6
			}
			f(rs, t, family)
		}
	}
}

// Entrance is an entry of one of kube-proxy's maps, by which it serves or refuses a frontend.
type Entrance struct {
	Portal
	Ruleset *nft.Ruleset
	Table   *nft.Table
	Map     *nft.Set
	Entry   *nft.Entry
}

// EachEntrance calls f for every entry by which kube-proxy serves or refuses a frontend in nftables mode, in the order
// of the captures.
func EachEntrance(rulesets []*nft.Ruleset, f func(Entrance)) {
	EachNFTTable(rulesets, func(rs *nft.Ruleset, t *nft.Table, family netfilter.Family) {
		for _, name := range []string{NFTServiceIPs, NFTServiceNodePorts, NFTNoEndpointServices, NFTNoEndpointNodePorts} {
			set := t.Set(name)
			if set == nil {
				continue
			}
			for i := range set.Entries {
				e := &set.Entries[i]
				p, ok := entryPortal(set, e)
				if !ok {
					continue
				}
				p.Family = family
				f(Entrance{p, rs, t, set, e})
			}
		}
	})
}

// entryPortal reads the frontend of an entry. Which service port it is says the name of the chain that it leads to, or
// the comment of an entry that refuses (since 1.31; before that nothing does).
func entryPortal(set *nft.Set, e *nft.Entry) (Portal, bool) {
	addr, proto, port, ok := EntryKey(set, e)
	if !ok || e.Verdict == nil {
		return Portal{}, false
	}
	p := Portal{ServicePort: e.Comment, Protocol: proto, Addr: addr, Port: port, Kind: intent.NodePort}
	if key, _, _, named := ServicePortOfNFT(e.Verdict.Chain); named {
		p.ServicePort = key
	}
	if addr.IsValid() {
		p.Kind = intent.ClusterIP
		if strings.HasPrefix(e.Verdict.Chain, nftExternal) || strings.HasPrefix(e.Verdict.Chain, nftFirewall) {
			// The entry does not tell an external IP from a load balancer's, and both fare alike.
			p.Kind = intent.LoadBalancer
		}
	}
	return p, p.ServicePort != ""
}

// EntryKey is the key of an entry of kube-proxy's maps: address, protocol and port, or without an address for those of
// node ports.
func EntryKey(set *nft.Set, e *nft.Entry) (addr netip.Addr, proto uint8, port uint16, ok bool) {
	rest := e.Start
	for i, f := range set.Key {
		if len(rest) < f.Size || len(rest) < f.Width() && len(set.Key) > 1 {
			return netip.Addr{}, 0, 0, false
		}
		switch v := rest[:f.Size]; {
		case i == 0 && (f.Size == 4 || f.Size == 16):
			addr, _ = netip.AddrFromSlice(v)
		case f.Size == 1:
			proto = v[0]
		case f.Size == 2:
			port = uint16(v[0])<<8 | uint16(v[1])
		default:
			return netip.Addr{}, 0, 0, false
		}
		rest = rest[min(f.Width(), len(rest)):]
	}
	return addr, proto, port, !e.CatchAll && e.End == nil && port != 0
}

// NFTPortals finds the frontends of service ports in kube-proxy's maps of nftables mode, in a stable order.
func NFTPortals(rulesets []*nft.Ruleset, wanted func(servicePort string) bool) []Portal {
	found := make(map[Portal]bool)
	EachEntrance(rulesets, func(e Entrance) {
		if wanted(e.ServicePort) {
			found[e.Portal] = true
		}
	})
	return sortedPortals(found)
}

func sortedPortals(found map[Portal]bool) []Portal {
	out := make([]Portal, 0, len(found))
	for p := range found {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Portal) int {
		return cmp.Or(cmp.Compare(a.ServicePort, b.ServicePort), cmp.Compare(a.Family, b.Family), cmp.Compare(a.Kind, b.Kind),
			a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	return out
}
