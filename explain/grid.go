package explain

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// frontendOrder is the order of frontend kinds in documents.
var frontendOrder = []intent.FrontendKind{
	intent.ClusterIP, intent.ExternalIP, intent.LoadBalancer, intent.NodePort, intent.HealthCheck,
}

// grid walks every frontend of the service ports from every source class.
func (m *model) grid(ports []*intent.ServicePort, o TraceOptions) []report.Path {
	type row struct {
		port *intent.ServicePort
		at   intent.Frontend
	}
	var rows []row
	for _, sp := range ports {
		for _, f := range sp.Frontends {
			if o.via(f.Kind) {
				rows = append(rows, row{sp, f})
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(
			cmp.Compare(slices.Index(frontendOrder, a.at.Kind), slices.Index(frontendOrder, b.at.Kind)),
			loopbackLast(a.at.Addr, b.at.Addr), a.at.Addr.Compare(b.at.Addr),
			cmp.Compare(a.at.Port, b.at.Port), cmp.Compare(a.port.Protocol, b.port.Protocol))
	})
	out := []report.Path{}
	for _, r := range rows {
		for _, c := range m.clients(r.port, r.at) {
			if o.from(c.Class) {
				out = append(out, m.class(c, r.port, r.at)...)
				if c.Class == intent.Hairpin {
					out = append(out, m.otherHairpins(c, r.port, r.at)...)
				}
			}
		}
	}
	return out
}

// otherHairpins are the backends on this node, beside the first, that do not fare as they ought when they reach themselves:
// each has a rule of its own for that. Those that do fare well are as the first one, and not shown again.
func (m *model) otherHairpins(first client, sp *intent.ServicePort, at intent.Frontend) []report.Path {
	var out []report.Path
	seen := map[netip.Addr]bool{first.Addr: true}
	for i := range sp.Endpoints {
		a := sp.Endpoints[i].Addr
		if seen[a] || len(seen) > maxRepresentatives || !m.isLocalPod(a) {
			continue
		}
		seen[a] = true
		c := m.cell(m.client(intent.Hairpin, a, netip.Prefix{}), sp, at)
		if paths := m.paths(&c, m.walk(&c, nil)); slices.ContainsFunc(paths, check.Differs) {
			out = append(out, paths...)
		}
	}
	return out
}

func loopbackLast(a, b netip.Addr) int {
	switch {
	case a.IsLoopback() == b.IsLoopback():
		return 0
	case a.IsLoopback():
		return 1
	}
	return -1
}

// class walks the representatives of one source class: the first, and then one more for every part of the class
// that a rule met on the way tells apart, as long as it fares differently.
func (m *model) class(first client, sp *intent.ServicePort, at intent.Frontend) []report.Path {
	backends := make(map[netip.Addr]bool, len(sp.Endpoints))
	for _, e := range sp.Endpoints {
		backends[e.Addr] = true
	}
	var (
		tested []netip.Prefix
		seen   = make(map[netip.Prefix]bool)
	)
	see := func(p netip.Prefix) {
		if !seen[p] {
			seen[p] = true
			tested = append(tested, p)
		}
	}
	var (
		have     = []client{first}
		outcomes [][]report.Path
	)
	for i := 0; i < len(have); i++ {
		c := m.cell(have[i], sp, at)
		fates := m.walk(&c, see)
		for _, f := range fates {
			// A rule that tests for a backend's own address is the hairpin rule, which has a class of its own; so
			// have stale backends, which are pods that may not be there any more.
			backends[f.backend.Addr()] = true
		}
		paths := m.paths(&c, fates)
		if !slices.ContainsFunc(outcomes, func(o []report.Path) bool { return sameOutcome(o, paths) }) {
			outcomes = append(outcomes, paths)
		}
		if i == len(have)-1 {
			have = append(have, m.divide(first, tested, have, backends)...)
		}
	}
	return slices.Concat(outcomes...)
}

func (m *model) cell(c client, sp *intent.ServicePort, at intent.Frontend) cell {
	return cell{
		client: c, port: sp, at: at, proto: dataplane.ProtocolNumber(sp.Protocol),
		dst: netip.AddrPortFrom(at.Addr, uint16(at.Port)),
		frontend: report.Frontend{
			Kind: string(at.Kind), Address: at.Addr.String(), Port: at.Port, Protocol: sp.Protocol, PortName: sp.PortName,
		},
	}
}

// portsFromRules reads service ports out of the rules themselves, for a Service of which no object is known.
// They have frontends and no endpoints: what the rules translate to cannot be held against anything.
func (m *model) portsFromRules(namespace, name string) []*intent.ServicePort {
	chains := make(map[string]string)
	for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
		for _, key := range []string{namespace + "/" + name, namespace + "/" + name + ":"} {
			chains[dataplane.ChainID(key, protocol)] = namespace + "/" + name
		}
	}
	wanted := func(key string) bool {
		ns, n, _ := splitKey(key)
		return ns == namespace && n == name
	}
	return m.portals(append(dataplane.Portals(m.rulesets, wanted, chains), dataplane.NFTPortals(m.nft, wanted)...))
}

// portals makes service ports of what was found in rules.
func (m *model) portals(found []dataplane.Portal) []*intent.ServicePort {
	type id struct {
		key    string
		proto  uint8
		family netfilter.Family
	}
	byID := make(map[id]*intent.ServicePort)
	var out []*intent.ServicePort
	for _, p := range found {
		k := id{p.ServicePort, p.Protocol, p.Family}
		sp := byID[k]
		if sp == nil {
			ns, name, port := splitKey(p.ServicePort)
			sp = &intent.ServicePort{Namespace: ns, Name: name, PortName: port, Family: int(p.Family), Protocol: dataplane.ProtocolName(p.Protocol), EndpointsUnknown: true}
			byID[k] = sp
			out = append(out, sp)
		}
		if p.Addr.IsValid() {
			sp.Frontends = append(sp.Frontends, intent.Frontend{Kind: p.Kind, Addr: p.Addr, Port: int(p.Port)})
			continue
		}
		for _, a := range m.dialled(p.Family) {
			sp.Frontends = append(sp.Frontends, intent.Frontend{Kind: p.Kind, Addr: a, Port: int(p.Port)})
		}
	}
	return out
}

// dialled are the addresses at which a node port is tried: the node's own first address, or where nothing
// tells it an address that is taken to be the node's.
func (m *model) dialled(family netfilter.Family) []netip.Addr {
	if a := m.nodeAddr(family); a.IsValid() {
		return []netip.Addr{a}
	}
	return []netip.Addr{m.assumedNodeAddr(family)}
}

func (o *TraceOptions) via(k intent.FrontendKind) bool {
	return len(o.Via) == 0 || slices.ContainsFunc(o.Via, func(v string) bool { return equalFold(v, string(k)) })
}

func (o *TraceOptions) from(c intent.Class) bool {
	return len(o.From) == 0 || slices.Contains(o.From, string(c))
}
