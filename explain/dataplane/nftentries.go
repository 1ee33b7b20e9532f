package dataplane

import (
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/traits"
)

// WantedEntry is an entry that kube-proxy keeps in one of its shared sets and maps.
type WantedEntry struct {
	Set   string
	Entry nft.Entry // Start, Verdict and Comment
	// Port is the service port that it is for.
	Port *intent.ServicePort
}

// NFTEntries are the entries of the shared sets and maps that a service port asks for (syncProxyRules of
// pkg/proxy/nftables/proxier.go, 1.29 to 1.36). Those of nodeport-ips are the node's, and asked for by every port that
// has a node port; those of firewall-ips are from 1.30 on, those of cluster-ips from 1.31, those of hairpin-connections from 1.36.
func NFTEntries(sp *intent.ServicePort, p *traits.Proxy) []WantedEntry {
	var out []WantedEntry
	proto := ProtocolNumber(sp.Protocol)
	key := sp.Key()
	add := func(set string, v *nft.Verdict, comment string, parts ...[]byte) {
		e := nft.Entry{Start: join(parts), Verdict: v}
		e.Comment = comment
		out = append(out, WantedEntry{set, e, sp})
	}
	serves := len(sp.Usable) > 0
	to := func(chain string) *nft.Verdict { return &nft.Verdict{Kind: nft.Goto, Chain: chain} }
	refusal := &nft.Verdict{Kind: nft.Drop}
	if !serves {
		refusal = to("reject-chain")
	}
	internal, external := NFTServiceName(key, sp.Protocol), NFTExternalName(key, sp.Protocol)
	if sp.InternalLocal {
		internal = NFTLocalName(key, sp.Protocol)
	}
	inside := serves && (!sp.InternalLocal || len(sp.Local) > 0)
	outside := serves && (!sp.ExternalLocal || len(sp.Local) > 0)
	if sp.NodePort != 0 {
		port := []byte{byte(sp.NodePort >> 8), byte(sp.NodePort)}
		if serves {
			add(NFTServiceNodePorts, to(external), "", []byte{proto}, port)
		}
		if !outside {
			add(NFTNoEndpointNodePorts, refusal, key, []byte{proto}, port)
		}
	}
	for _, f := range sp.Frontends {
		addr, port := f.Addr.AsSlice(), []byte{byte(f.Port >> 8), byte(f.Port)}
		switch f.Kind {
		case intent.ClusterIP:
			if p.Within(31, 0) {
				add(NFTClusterIPs, nil, "", addr)
			}
			if inside {
				add(NFTServiceIPs, to(internal), "", addr, []byte{proto}, port)
			} else {
				add(NFTNoEndpointServices, refusal, key, addr, []byte{proto}, port)
			}
		case intent.ExternalIP, intent.LoadBalancer:
			if serves {
				add(NFTServiceIPs, to(external), "", addr, []byte{proto}, port)
			}
			if !outside {
				add(NFTNoEndpointServices, refusal, key, addr, []byte{proto}, port)
			}
			if f.Kind == intent.LoadBalancer && len(sp.SourceRanges) > 0 && !p.Within(0, 29) {
				add(NFTFirewallIPs, to(NFTFirewallName(key, sp.Protocol)), "", addr, []byte{proto}, port)
			}
		case intent.NodePort:
			if !f.Addr.IsLoopback() {
				add(NFTNodePortIPs, nil, "", addr)
			}
		}
	}
	if p.Within(36, 0) {
		for _, i := range reachedHere(sp) {
			if e := &sp.Endpoints[i]; e.Local {
				a := e.Addr.AsSlice()
				add(NFTHairpin, nil, "", a, a, []byte{proto}, []byte{byte(e.Port >> 8), byte(e.Port)})
			}
		}
	}
	return out
}

// reachedHere are the endpoints that the node's clients may get: those of each policy that the service port goes by here
// (allLocallyReachableEndpoints of pkg/proxy/topology.go); the list of a policy that it does not go by is empty. Under policy
// Cluster hints may leave some of the node's own out; under policy Local one on its way out may serve where others are ready
// elsewhere.
func reachedHere(sp *intent.ServicePort) []int {
	out := slices.Concat(sp.Cluster, sp.Local)
	slices.Sort(out)
	return slices.Compact(out)
}

// join lays the parts of a key out as sets hold them.
func join(parts [][]byte) []byte {
	if len(parts) == 1 {
		return parts[0]
	}
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
		for len(out)%4 != 0 {
			out = append(out, 0)
		}
	}
	return out
}

// NFTSharedSets are the sets and maps in which NFTEntries stand.
var NFTSharedSets = []string{
	NFTClusterIPs, NFTServiceIPs, NFTServiceNodePorts, NFTNoEndpointServices, NFTNoEndpointNodePorts, NFTFirewallIPs, NFTHairpin,
}

// NodePortAddrs are the entries of a table's nodeport-ips; ok is false where it has no such set, and all addresses of
// the node take node ports.
func NodePortAddrs(t *nft.Table) (addrs []netip.Addr, ok bool) {
	set := t.Set(NFTNodePortIPs)
	if set == nil {
		return nil, false
	}
	for i := range set.Entries {
		if a, ok := netip.AddrFromSlice(set.Entries[i].Start); ok {
			addrs = append(addrs, a)
		}
	}
	return addrs, true
}
