package explain

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
)

// likeness finds service ports that fare alike, so that of ten thousand of one kind one is walked and the others are
// known. Two ports are alike when
//
//   - the objects ask the same of them, endpoint by endpoint,
//   - their virtual servers are the same but for addresses, and so is what kube-proxy's sets hold of them (IPVS mode),
//   - their own rules are the same but for names and addresses (dataplane.Shapes), and
//   - no other rule, route or address of the node tells their frontends or endpoints apart (netfilter.Division).
//
// In which order the node keeps the endpoints of a port makes no difference (dataplane.Numbering).
//
// Whatever cannot be put so makes a port like no other, and it is walked.
type likeness struct {
	model    *model
	shapes   *dataplane.Shapes
	division netfilter.Division
	servers  *serverLikeness // nil where there is no IPVS
	// never is true where some rule looks at addresses in a way that cuts cannot express.
	never bool
	key   []byte
	// serves has, for each endpoint, in which of the lists of a service port it is, as bits.
	serves []byte
	// known is what the walk of one port says of all of its kind.
	known map[string]kind
}

// kind is what is known of service ports that are alike: no check of service ports finds anything, and these are the
// obstacles that they meet.
type kind struct{ obstacles []*check.Obstacle }

// observe is a service port with its cells; one that is like an earlier one, of which nothing is to be said, has none.
func (l *likeness) observe(n *check.Node, sp *intent.ServicePort) check.Port {
	p := check.Port{ServicePort: sp, On: n}
	key, alike := l.of(sp)
	if alike {
		if k, ok := l.known[string(key)]; ok {
			p.Alike = k.obstacles
			return p
		}
	}
	name := string(key)
	p.Cells = l.model.observed(sp)
	if !alike {
		return p
	}
	if obstacles, clean := check.Clean(&p); clean {
		l.known[name] = kind{obstacles}
	}
	return p
}

func (m *model) likeness() *likeness {
	l := &likeness{model: m, division: netfilter.Division{Sets: m.kernel.Sets}, known: make(map[string]kind), never: m.onWindows()}
	var byAddress bool
	if l.servers, byAddress = newServerLikeness(m.kernel.IPVS, m.kernel.Sets); !byAddress {
		l.never = true
	}
	if l.servers != nil {
		l.division.Apart = l.servers.inSets
	}
	l.shapes = dataplane.NewShapes(m.rulesets, m.nft, func(r *netfilter.Rule) {
		l.never = l.never || !l.division.Rule(r)
	}, func(t *nft.Table, r *nft.Rule) {
		shared := func(set string) bool {
			return dataplane.OfKubeProxy(t) && slices.Contains(dataplane.NFTSharedSets, set) || dataplane.OfFallback(t) && dataplane.FallbackSet(set)
		}
		l.never = l.never || !l.division.NFTRule(t, r, shared)
	})
	l.host(m.kernel.Host)
	for _, p := range append(slices.Clone(m.proxy.ClusterCIDRs), m.proxy.PodCIDRs...) {
		l.division.Addresses(p, "cluster "+p.String())
	}
	for _, n := range m.objects.Nodes {
		which := "another node"
		if n.Name == m.node {
			which = "this node"
		}
		for _, p := range append(podCIDRs(n.Node, netfilter.IPv4), podCIDRs(n.Node, netfilter.IPv6)...) {
			l.division.Addresses(p, "pods of "+which)
		}
		for _, a := range nodeAddrs(n.Node) {
			l.division.Addresses(netip.PrefixFrom(a, a.BitLen()), which)
		}
	}
	return l
}

// host tells addresses apart by the routes to them and by what the node itself has.
func (l *likeness) host(h *host.Host) {
	for i := range h.Routes {
		r := &h.Routes[i]
		src := r.Src.String()
		if r.Dst.IsSingleIP() && r.Src == r.Dst.Addr() {
			src = "itself" // as every address of the node has it in table local
		}
		l.division.Addresses(r.Dst, fmt.Sprint("route ", r.Table, r.Type, r.Dev, r.Via.IsValid(), src, r.Metric, len(r.NextHops), r.Dead, r.From, r.Scope, r.TOS))
		l.division.Addresses(r.From, "from "+r.From.String())
	}
	for i := range h.Rules {
		l.division.Addresses(h.Rules[i].From, "rule "+h.Rules[i].From.String())
		l.division.Addresses(h.Rules[i].To, "rule "+h.Rules[i].To.String())
	}
	for i := range h.Addrs {
		a := h.Addrs[i].Prefix
		l.division.Addresses(a, "network of "+h.Addrs[i].Link)
		l.division.Addresses(netip.PrefixFrom(a.Addr(), a.Addr().BitLen()), "address of "+h.Addrs[i].Link)
	}
	for _, a := range slices.Concat(h.NodeAddrs, h.AnyNodeAddrs) {
		l.division.Addresses(netip.PrefixFrom(a, a.BitLen()), "node")
	}
	for _, p := range h.PodCIDRs {
		l.division.Addresses(p, "pods")
	}
}

// of is the kind of a service port: ports of one kind fare alike. ok is false for a port that is like no other. The
// bytes hold until the next call.
func (l *likeness) of(sp *intent.ServicePort) (kind []byte, ok bool) {
	if l.never || sp.EndpointsUnknown || sp.ByChance || len(sp.SourceRanges) > 0 || len(sp.Usable) == 0 {
		return nil, false
	}
	b := l.key[:0]
	b = append(b, byte(sp.Family), flag(sp.InternalLocal), flag(sp.ExternalLocal), flag(sp.NodePort != 0), flag(sp.TopologyNote != ""))
	b = append(b, sp.Protocol...)
	b = binary.AppendVarint(b, int64(sp.AffinitySeconds))
	for _, f := range sp.Frontends {
		if l.model.contested(f, dataplane.ProtocolNumber(sp.FrontendProtocol(f))) {
			return nil, false
		}
		b = append(b, f.Kind...)
		b = append(b, flag(f.OnNode))
		b = l.place(b, f.Addr, f.Port)
	}
	if b, ok = l.shapes.Of(b, sp); !ok {
		return nil, false
	}
	if l.servers != nil {
		if b, ok = l.servers.of(b, sp, &l.shapes.Endpoints); !ok {
			return nil, false
		}
	}
	l.key = l.endpoints(b, sp)
	return l.key, true
}

// endpoints says of each what the objects and the node say of it, in the order of their numbers.
func (l *likeness) endpoints(b []byte, sp *intent.ServicePort) []byte {
	if cap(l.serves) < len(sp.Endpoints) {
		l.serves = make([]byte, len(sp.Endpoints))
	}
	serves := l.serves[:len(sp.Endpoints)]
	clear(serves)
	for bit, list := range [][]int{sp.Cluster, sp.Local, sp.Usable} {
		for _, i := range list {
			serves[i] |= 1 << bit
		}
	}
	numbers := &l.shapes.Endpoints
	b = binary.AppendVarint(b, int64(len(sp.Endpoints)))
	for _, i := range numbers.All() {
		e := &sp.Endpoints[i]
		b = append(b, serves[i], flag(e.Ready), flag(e.Serving), flag(e.Terminating), flag(e.Local), flag(l.model.isLocalPod(e.Addr)), flag(l.model.pod(e.Addr) != nil))
		b = l.place(b, e.Addr, e.Port)
		// Endpoints of one address stand in a row: rules that name only the address mean all of them.
		same := -1
		if i > 0 && sp.Endpoints[i-1].Addr == e.Addr {
			same = numbers.Number(i - 1)
		}
		b = binary.AppendVarint(b, int64(same))
	}
	return b
}

// place is where an address and port lie in the division.
func (l *likeness) place(b []byte, a netip.Addr, port int) []byte {
	b = binary.AppendVarint(b, int64(l.division.OfAddress(a)))
	return binary.AppendVarint(b, int64(l.division.OfPort(uint16(port))))
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
