package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// model is a snapshot as data: rules, host, objects, the proxy's traits, and what the objects intend.
type model struct {
	// ownAddrs are the addresses that isNodeAddr knows, heldAddrs those on any device, whoever put them there.
	ownAddrs, heldAddrs map[netip.Addr]bool
	node                string
	rulesets            []*netfilter.Ruleset
	nft                 []*nft.Ruleset
	kernel              *netfilter.Kernel
	walker              netfilter.Walker
	objects             *objects.Set
	proxy               traits.Proxy
	// captured is when the evidence was taken; zero when nothing in it has a time. taken is the same as a collector says
	// it, zero for loose files.
	taken, captured time.Time
	plan            *intent.Plan
	sources         []report.Source
	// answers says of each source of checks that was not answered why.
	answers map[check.Source]string
	// podScope says which pods the evidence holds.
	podScope check.PodScope
	// clusterOf is where pods and nodes are, seen from node clusterFor.
	clusterOf  *cluster
	clusterFor string
	// claims counts who has an address and port; built at the first question.
	claims map[claim]int
	// rules is what became of the captures of IPv4 and IPv6 rules.
	rules [2]rulesRead
	// windows is what was read of a Windows node.
	windows windows
	// insides are the pods' own network namespaces that were read, by namespace/name.
	insides map[string]*inside
	// foreignTables are nftables tables that nobody evaluates here.
	foreignTables []string
	// granted is what was taken for granted for every path: jumps that a partial capture lacks, that clients
	// are not behind other programs' bridges.
	granted []string
}

// newModel reads a snapshot. Evidence that cannot be read shows in sources, never as an error.
func newModel(s *snapshot.Snapshot) *model { return newModelOf(s, nil) }

// newModelOf is newModel with objects that were decoded for other nodes; memory may be nil.
func newModelOf(s *snapshot.Snapshot, memory *objects.Memory) *model {
	memory.Turn()
	m := &model{
		kernel:  &netfilter.Kernel{Host: &host.Host{}},
		objects: &objects.Set{},
		plan:    &intent.Plan{},
	}
	r := reader{model: m, memory: memory}
	r.begin(s)
	for i := range s.Evidence {
		r.read(&s.Evidence[i])
	}
	m.objects.Sort()
	m.windows.Settle()
	m.kernel.Sets = setsOf(r.sets)
	m.nft = withoutRepeats(r.nft)
	m.knowNFT()
	r.traits.NodeName = s.Node
	r.traits.Rulesets, r.traits.NFT, r.traits.HNS = m.rulesets, m.nft, m.ofWindows()
	r.traits.VirtualServer = m.virtualServer()
	for _, n := range m.objects.Nodes {
		r.traits.Nodes = append(r.traits.Nodes, traits.Node{
			Name: n.Name, File: n.File, Line: n.Line,
			PodCIDRs: append(podCIDRs(n.Node, netfilter.IPv4), podCIDRs(n.Node, netfilter.IPv6)...),
		})
	}
	for _, c := range m.objects.ConfigMaps {
		r.configMap(c)
	}
	m.proxy = traits.Derive(r.traits)
	m.captured = r.capturedAt(s)
	if t, err := time.Parse(time.RFC3339, s.Captured); err == nil {
		m.taken = t.UTC()
	}
	m.node = cmp.Or(m.whichNode(s.Node), m.nodeOfHNS())
	m.knowNode()
	m.gatherOwnAddrs()
	for _, rs := range m.rulesets {
		m.granted = append(m.granted, dataplane.TakeForGranted(rs)...)
	}
	if b := m.privateBridges(); len(b) > 0 && !m.kernel.Host.HasRoutes[4] && !m.kernel.Host.HasRoutes[6] {
		m.granted = append(m.granted, fmt.Sprintf("routes were not captured: clients and backends are taken not to be behind %s, other programs' bridges", list(b)))
	}
	m.granted = append(m.granted, m.beside()...)
	m.intend()
	m.answers = m.readAnswers(s)
	m.podScope = m.readPodScope(s)
	m.kernel.ClusterRanges = m.clusterRanges()
	m.kernel.Recent = recentLists(m.kernel.Host)
	m.kernel.NewClient = true
	m.walker = netfilter.Walker{Rulesets: m.rulesets, NFT: m.nft, Kernel: m.kernel}
	return m
}

// knowNode gives the host what only the Node object says of it.
func (m *model) knowNode() {
	n := m.nodeObject()
	if n == nil {
		for _, n := range m.objects.Nodes {
			m.kernel.Host.AnyNodeAddrs = append(m.kernel.Host.AnyNodeAddrs, nodeAddrs(n.Node)...)
		}
		return
	}
	m.kernel.Host.NodeAddrs = nodeAddrs(n)
	m.kernel.Host.PodCIDRs = append(podCIDRs(n, netfilter.IPv4), podCIDRs(n, netfilter.IPv6)...)
}

// privateBridges are the bridges of other programs that filter rules name.
func (m *model) privateBridges() []string {
	var out []string
	for _, rs := range m.rulesets {
		t := rs.Table("filter")
		if t == nil {
			continue
		}
		c := t.Chain(netfilter.Forward.String())
		if c == nil {
			continue
		}
		for i := range c.Rules {
			for _, name := range []string{c.Rules[i].In().Name, c.Rules[i].Out().Name} {
				if netfilter.PrivateBridge(name) && !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
		}
	}
	return out
}

// recentLists are the captured lists of -m recent; nil when none were. Their stamps have no age that a file tells.
func recentLists(h *host.Host) map[string]*netfilter.RecentList {
	if !h.HasRecent {
		return nil
	}
	out := make(map[string]*netfilter.RecentList, len(h.Recent))
	for _, l := range h.Recent {
		ages := make(map[string][]float64, len(l.Entries))
		for _, e := range l.Entries {
			unknown := make([]float64, max(len(e.Stamps), 1))
			for i := range unknown {
				unknown[i] = -1
			}
			ages[e.Addr.String()] = unknown
		}
		out[l.Name] = &netfilter.RecentList{Name: l.Name, Ages: ages}
	}
	return out
}

// clusterRanges are where pods and nodes are.
func (m *model) clusterRanges() []netip.Prefix {
	out := slices.Clone(m.proxy.ClusterCIDRs)
	for _, n := range m.objects.Nodes {
		out = append(append(out, podCIDRs(n.Node, netfilter.IPv4)...), podCIDRs(n.Node, netfilter.IPv6)...)
		for _, a := range nodeAddrs(n.Node) {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// intend derives what the objects ask for.
func (m *model) intend() {
	in := intent.Input{Proxy: m.proxy, NodeAddrs: append(m.kernel.Host.OwnAddrs(4), m.kernel.Host.OwnAddrs(6)...)}
	if m.proxy.Mode == "ipvs" {
		// Whatever stands on its device, nobody serves node ports there.
		in.NodeAddrs = slices.DeleteFunc(in.NodeAddrs, m.onlyOnKubeIPVS0)
	}
	where := make(map[any]intent.Evidence, len(m.objects.Services)+len(m.objects.EndpointSlices)+len(m.objects.Endpoints))
	for _, o := range m.objects.Services {
		in.Services = append(in.Services, o.Service)
		where[o.Service] = read(o.Evidence)
	}
	for _, o := range m.objects.EndpointSlices {
		in.Slices = append(in.Slices, o.EndpointSlice)
		where[o.EndpointSlice] = read(o.Evidence)
	}
	for _, o := range m.objects.Endpoints {
		in.Endpoints = append(in.Endpoints, o.Endpoints)
		where[o.Endpoints] = read(o.Evidence)
	}
	if n, ok := m.objects.Node(m.node); ok {
		in.Node = n.Node
		where[n.Node] = read(n.Evidence)
	}
	if in.Proxy.NodeName == "" {
		in.Proxy.NodeName = m.node
	}
	in.SlicesRead = len(in.Slices) > 0
	in.OnlyFamily = m.onlyFamily()
	in.Evidence = func(obj any) intent.Evidence { return where[obj] }
	m.plan, m.claims = intent.Compute(in), nil
}

// onlyOnKubeIPVS0 tells whether an address is on that device and on no other.
func (m *model) onlyOnKubeIPVS0(a netip.Addr) bool {
	found := false
	for _, h := range m.kernel.Host.Addrs {
		if h.Prefix.Addr() == a {
			if h.Link != check.KubeIPVS0 {
				return false
			}
			found = true
		}
	}
	return found
}

func read(e objects.Evidence) intent.Evidence {
	return intent.Evidence{File: e.File, Line: e.Line}
}
