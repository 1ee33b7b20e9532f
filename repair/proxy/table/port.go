package table

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
)

// Port is what a service port of one family asks of the tables: little of what intent.ServicePort says, because it is kept
// as long as the port is served.
type Port struct {
	// Key is "namespace/name:port", as intent.ServicePort has it; Protocol TCP, UDP or SCTP.
	Key      string
	Protocol string
	// Namespace and Name are those of the Service, Created when it was made; Index is the port's place in it. Of two that
	// claim one frontend the older counts, and of those made in one second the one that is named first.
	Namespace, Name string
	Created         time.Time
	Index           int

	// ClusterIP is the address within the cluster, Port the port on all addresses but those of the node.
	ClusterIP netip.Addr
	Port      uint16
	// External are the external and load balancer addresses, sorted, each once.
	External []External
	NodePort uint16
	// Any and Here are the backends that policy Cluster and policy Local use; Usable is set where there is one anywhere.
	Any, Here []netip.AddrPort
	Usable    bool
	// InternalLocal and ExternalLocal are the traffic policies.
	InternalLocal, ExternalLocal bool
	// Affinity is for how long clients keep their backend; 0: they do not.
	Affinity time.Duration
	// Sources are those that may use load balancer addresses; nil: all.
	Sources []netip.Prefix
	// Hairpins are the backends of this node that may be reached by themselves.
	Hairpins []netip.AddrPort
	// HealthCheck is the port on which load balancers ask whether this node has backends, 0 for none; Ready how many it has.
	HealthCheck uint16
	Ready       int
}

// External is an address of a Service outside of the cluster.
type External struct {
	Addr netip.Addr
	// LoadBalancer is set where source ranges hold for the address.
	LoadBalancer bool
}

// PortOf is what a service port asks of the tables. index is its place among those of the Service.
func PortOf(sp *intent.ServicePort, created time.Time, index int) *Port {
	p := &Port{
		Key: sp.Key(), Protocol: sp.Protocol, Namespace: sp.Namespace, Name: sp.Name, Created: created, Index: index,
		Port: uint16(sp.Port), NodePort: uint16(sp.NodePort), Usable: len(sp.Usable) > 0,
		InternalLocal: sp.InternalLocal, ExternalLocal: sp.ExternalLocal, Affinity: time.Duration(sp.AffinitySeconds) * time.Second,
		HealthCheck: uint16(sp.HealthCheckNodePort),
	}
	inRange := false
	for _, r := range sp.SourceRanges {
		inRange = inRange || sp.NodeIP.IsValid() && r.Contains(sp.NodeIP)
	}
	p.Sources = slices.Clone(sp.SourceRanges)
	for _, f := range sp.Frontends {
		switch f.Kind {
		case intent.ClusterIP:
			p.ClusterIP = f.Addr
		case intent.ExternalIP, intent.LoadBalancer:
			p.addExternal(External{f.Addr, f.Kind == intent.LoadBalancer})
			if f.Kind == intent.LoadBalancer && inRange {
				// A node that has the address on an interface takes it for the source of its own connections.
				p.Sources = append(p.Sources, netip.PrefixFrom(f.Addr, f.Addr.BitLen()))
			}
		}
	}
	at := func(i int) netip.AddrPort {
		e := &sp.Endpoints[i]
		return netip.AddrPortFrom(e.Addr, uint16(e.Port))
	}
	for _, i := range sp.Cluster {
		p.Any = append(p.Any, at(i))
	}
	for _, i := range sp.Local {
		p.Here = append(p.Here, at(i))
	}
	reached := slices.Concat(sp.Cluster, sp.Local)
	slices.Sort(reached)
	for _, i := range slices.Compact(reached) {
		if sp.Endpoints[i].Local {
			p.Hairpins = append(p.Hairpins, at(i))
		}
	}
	if p.HealthCheck != 0 {
		p.Ready = localReady(sp)
	}
	return p
}

// localReady counts the addresses of this node's backends that are ready.
func localReady(sp *intent.ServicePort) int {
	addrs := map[netip.Addr]bool{}
	for i := range sp.Endpoints {
		if e := &sp.Endpoints[i]; e.Local && e.Ready {
			addrs[e.Addr] = true
		}
	}
	return len(addrs)
}

func (p *Port) addExternal(x External) {
	if x.Addr == p.ClusterIP {
		return
	}
	for i := range p.External {
		if p.External[i].Addr == x.Addr {
			p.External[i].LoadBalancer = p.External[i].LoadBalancer || x.LoadBalancer
			return
		}
	}
	p.External = append(p.External, x)
	slices.SortFunc(p.External, func(a, b External) int { return a.Addr.Compare(b.Addr) })
}

// before tells which of two ports keeps a frontend that both claim.
func (p *Port) before(q *Port) bool {
	return cmp.Or(p.Created.Compare(q.Created), strings.Compare(p.Namespace, q.Namespace), strings.Compare(p.Name, q.Name),
		cmp.Compare(p.Index, q.Index)) < 0
}

func (p *Port) protocol() uint8 { return dataplane.ProtocolNumber(p.Protocol) }

// Frontend is what a service port claims for itself: an address with a protocol and port, or a node port, which has no
// address.
type Frontend struct {
	Addr     netip.Addr
	Protocol uint8
	Port     uint16
}

// Frontends are what the port claims.
func (p *Port) Frontends() []Frontend {
	out := make([]Frontend, 0, 2+len(p.External))
	proto := p.protocol()
	if p.ClusterIP.IsValid() {
		out = append(out, Frontend{p.ClusterIP, proto, p.Port})
	}
	for _, x := range p.External {
		out = append(out, Frontend{x.Addr, proto, p.Port})
	}
	if p.NodePort != 0 {
		out = append(out, Frontend{Protocol: proto, Port: p.NodePort})
	}
	return out
}

// key is the frontend as sets have it.
func (f Frontend) key() []byte {
	var b []byte
	if f.Addr.IsValid() {
		b = append(b, f.Addr.AsSlice()...)
	}
	return append(b, f.Protocol, 0, 0, 0, byte(f.Port>>8), byte(f.Port), 0, 0)
}

// data is a backend as maps have it.
func data(a netip.AddrPort) string {
	b := make([]byte, 0, 20)
	b = append(b, a.Addr().AsSlice()...)
	return string(append(b, byte(a.Port()>>8), byte(a.Port()), 0, 0))
}

// SameBackends tells whether two states of a port have the same frontends and backends.
func (p *Port) SameBackends(q *Port) bool {
	return q != nil && p.Key == q.Key && p.Protocol == q.Protocol && slices.Equal(p.Any, q.Any) && slices.Equal(p.Here, q.Here) &&
		slices.Equal(p.Frontends(), q.Frontends())
}

// String is "10.96.0.1:443/TCP", or "node port 30080/TCP".
func (f Frontend) String() string {
	protocol := map[uint8]string{6: "TCP", 17: "UDP", 132: "SCTP"}[f.Protocol]
	if !f.Addr.IsValid() {
		return fmt.Sprintf("node port %d/%s", f.Port, protocol)
	}
	return netip.AddrPortFrom(f.Addr, f.Port).String() + "/" + protocol
}
