// Package hns is what Windows' Host Network Service (HNS) holds for Services as data: the load balancers that
// kube-proxy makes in kernelspace mode and the endpoints that they lead to, with the parsers for every form in which
// people capture them. It knows nothing of Services.
//
// HNS shows the same objects in two schemas. In that of version 1 (Get-HnsPolicyList) a load balancer is a policy list
// with policies of type ELB; in that of version 2 (hnsdiag -d, HCN) it is a load balancer with port mappings. The
// identifier is the same in both, in upper case in the first. Field names are those of hcsshim's types (internal/hns,
// hcn) and of the HCN schema that Microsoft publishes.
//
// The package is pure.
package hns

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// State is what was read of one node.
type State struct {
	// Balancers in the order in which they were read, each identifier and port mapping once.
	Balancers []LoadBalancer
	// Endpoints in the order in which they were read, each identifier once.
	Endpoints []Endpoint
	// HasBalancers and HasEndpoints tell that a capture of them was read, be there any or not.
	HasBalancers, HasEndpoints bool

	// balancersOf and endpointOf are places by identifier; serving and having are those by what is asked for, made by
	// Settle. A node port is under an address that is none.
	balancersOf map[string][]int
	endpointOf  map[string]int
	serving     map[netip.AddrPort][]int
	having      map[netip.Addr]int
}

// What one object holds at most: HNS has room for no more, and kube-proxy makes one mapping with one address.
const (
	maxMappings  = 256
	maxAddresses = 64
)

// LoadBalancer is one port mapping of a load balancer: a virtual address and port with its endpoints. HNS knows one
// port of the endpoints for each mapping.
type LoadBalancer struct {
	// ID is in lower case, without braces.
	ID string
	// VIPs are the virtual addresses; none for a node port, which takes any address of the node.
	VIPs []netip.Addr
	// Protocol is 6, 17 or 132, 0 when it is not known; ExternalPort is the port that clients dial, InternalPort that of
	// the endpoints.
	Protocol                   uint8
	ExternalPort, InternalPort uint16
	// Endpoints are identifiers in lower case.
	Endpoints []string
	// SourceVIP is the address that HNS uses as source towards endpoints; not valid where the capture shows none.
	SourceVIP netip.Addr
	// DSR is direct server return: packets keep the client's address. The other flags are as in Flags of the mapping.
	DSR, IPv6, ILB, LocalRoutedVIP, UseMux, PreserveDIP, ExternalVIP bool
	// Distribution is 0 for each connection by itself, 1 and 2 for all of a client to one endpoint. HasDistribution is
	// false in captures of version 1, which may lack it.
	Distribution    int
	HasDistribution bool
	// State is 2 once HNS has applied the policy; HasState is false in captures of version 2, which lack it.
	State    int
	HasState bool

	// hasVIPs and hasPort tell what the form shows: the list form of PowerShell hides the addresses, hnsdiag's table the
	// ports.
	hasVIPs, hasPort bool
	Evidence
}

// Applied is the State of a policy in force.
const Applied = 2

// Complete tells whether address and port of the load balancer are known.
func (b *LoadBalancer) Complete() bool { return b.hasVIPs && b.hasPort }

// Serves tells whether the load balancer takes packets to an address and port. ofNode tells that the address is one of
// the node's own: a load balancer without an address takes those of its family. It is told by the flag of IPv6, which
// kube-proxy sets since it knows that family.
func (b *LoadBalancer) Serves(dst netip.AddrPort, proto uint8, ofNode bool) bool {
	if !b.Complete() || b.Protocol != proto || b.ExternalPort != dst.Port() {
		return false
	}
	if len(b.VIPs) == 0 {
		return ofNode && b.IPv6 == dst.Addr().Is6()
	}
	return slices.Contains(b.VIPs, dst.Addr())
}

// family tells whether the load balancer is one of IPv6.
func (b *LoadBalancer) family() (is6 bool) {
	if len(b.VIPs) > 0 {
		return b.VIPs[0].Is6()
	}
	return b.IPv6
}

// Backend is where an endpoint of the load balancer is: not valid where its address is not known.
func (b *LoadBalancer) Backend(e *Endpoint) netip.AddrPort {
	if a := e.Addr(b.family()); a.IsValid() {
		return netip.AddrPortFrom(a, b.InternalPort)
	}
	return netip.AddrPort{}
}

// At names what the load balancer takes: "10.96.0.10:53/UDP", or ":30080/TCP" for a node port.
func (b *LoadBalancer) At() string {
	at := fmt.Sprintf(":%d", b.ExternalPort)
	if len(b.VIPs) > 0 {
		at = netip.AddrPortFrom(b.VIPs[0], b.ExternalPort).String()
	}
	return at + "/" + protocolName(b.Protocol)
}

func protocolName(p uint8) string {
	for name, number := range protocols {
		if number == p {
			return strings.ToUpper(name)
		}
	}
	return strconv.Itoa(int(p))
}

// String is the load balancer in one line.
func (b *LoadBalancer) String() string {
	out := fmt.Sprintf("load balancer %s: %s to port %d of ", b.ID, b.At(), b.InternalPort)
	switch n := len(b.Endpoints); n {
	case 1:
		out += "1 endpoint"
	default:
		out += fmt.Sprintf("%d endpoints", n)
	}
	if b.SourceVIP.IsValid() {
		out += fmt.Sprintf(", source %s", b.SourceVIP)
	}
	for _, f := range []struct {
		on   bool
		name string
	}{
		{b.DSR, "DSR"}, {b.ILB, "ILB"}, {b.LocalRoutedVIP, "LocalRoutedVIP"}, {b.UseMux, "UseMux"},
		{b.PreserveDIP, "PreserveDIP"}, {b.ExternalVIP, "VipExternalIP"}, {b.Sticky(), "one endpoint for each client"},
	} {
		if f.on {
			out += ", " + f.name
		}
	}
	if b.HasState && b.State != Applied {
		out += fmt.Sprintf(", state %d (not applied)", b.State)
	}
	return out
}

// LeadsAs tells whether two load balancers lead to the same endpoints and port.
func (b *LoadBalancer) LeadsAs(x *LoadBalancer) bool {
	if b.InternalPort != x.InternalPort || len(b.Endpoints) != len(x.Endpoints) {
		return false
	}
	of := make(map[string]bool, len(x.Endpoints))
	for _, id := range x.Endpoints {
		of[id] = true
	}
	return !slices.ContainsFunc(b.Endpoints, func(id string) bool { return !of[id] })
}

// Sticky tells whether a client keeps its endpoint.
func (b *LoadBalancer) Sticky() bool { return b.Distribution != 0 }

// Endpoint is an address that a load balancer may lead to: a pod of this node, or a stand-in for one elsewhere.
type Endpoint struct {
	// ID is in lower case, without braces.
	ID, Name, Network string
	Addrs             []netip.Addr
	// Remote tells that the endpoint is on another node.
	Remote bool
	// Overlay tells that its network is one of type overlay.
	Overlay bool
	Evidence
}

// Addr is the endpoint's address of a family, not valid where it has none.
func (e *Endpoint) Addr(is6 bool) netip.Addr {
	for _, a := range e.Addrs {
		if a.Is6() == is6 {
			return a
		}
	}
	return netip.Addr{}
}

// Evidence is where a datum was read.
type Evidence struct {
	File string
	Line int
}

// Problem is a part of a capture that could not be used.
type Problem struct {
	Line int
	Why  string
}

// Endpoint is the endpoint of an identifier, nil when none was read.
func (s *State) Endpoint(id string) *Endpoint {
	if i, ok := s.endpointOf[id]; ok {
		return &s.Endpoints[i]
	}
	return nil
}

// EndpointAt is the endpoint with an address, nil when none was read.
func (s *State) EndpointAt(a netip.Addr) *Endpoint {
	if i, ok := s.having[a]; ok {
		return &s.Endpoints[i]
	}
	return nil
}

// Overlay tells whether endpoints are in an overlay network, which has IPv4 or IPv6 but not both.
func (s *State) Overlay() bool {
	return slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.Overlay })
}

// Serving are the load balancers that take packets to an address and port, in the order in which they were read.
func (s *State) Serving(dst netip.AddrPort, proto uint8, ofNode bool) []*LoadBalancer {
	places := s.serving[dst]
	if ofNode {
		places = slices.Concat(places, s.serving[netip.AddrPortFrom(netip.Addr{}, dst.Port())])
		slices.Sort(places)
	}
	var out []*LoadBalancer
	for _, i := range places {
		if b := &s.Balancers[i]; b.Serves(dst, proto, ofNode) {
			out = append(out, b)
		}
	}
	return out
}

// add takes in a load balancer: what another capture of the same one shows besides completes it. It returns false for
// one port mapping too many.
func (s *State) add(b LoadBalancer) bool {
	s.HasBalancers = true
	known := false
	for _, i := range s.balancersOf[b.ID] {
		old := &s.Balancers[i]
		switch {
		case !b.hasPort: // a row of the table, which says the same of all port mappings
			old.complete(&b)
			known = true
		case !old.hasPort || old.samePort(&b):
			old.complete(&b)
			return true
		case !b.hasVIPs && old.hasVIPs:
			b.VIPs, b.hasVIPs = old.VIPs, true
		}
	}
	switch {
	case known:
		return true
	case len(s.balancersOf[b.ID]) >= maxMappings:
		return false
	case s.balancersOf == nil:
		s.balancersOf = make(map[string][]int)
	}
	s.balancersOf[b.ID] = append(s.balancersOf[b.ID], len(s.Balancers))
	s.Balancers = append(s.Balancers, b)
	return true
}

func (b *LoadBalancer) samePort(x *LoadBalancer) bool {
	return b.Protocol == x.Protocol && b.ExternalPort == x.ExternalPort && b.InternalPort == x.InternalPort
}

// complete fills in what b lacks and x has.
func (b *LoadBalancer) complete(x *LoadBalancer) {
	if !b.hasVIPs && x.hasVIPs {
		b.VIPs, b.hasVIPs = x.VIPs, true
	}
	if !b.hasPort && x.hasPort {
		b.Protocol, b.ExternalPort, b.InternalPort, b.hasPort = x.Protocol, x.ExternalPort, x.InternalPort, true
		b.Evidence = x.Evidence // it says more
	}
	if len(b.Endpoints) == 0 {
		b.Endpoints = x.Endpoints
	}
	if !b.SourceVIP.IsValid() {
		b.SourceVIP = x.SourceVIP
	}
	if !b.HasState && x.HasState {
		b.State, b.HasState = x.State, true
	}
	if !b.HasDistribution && x.HasDistribution {
		b.Distribution, b.HasDistribution = x.Distribution, true
	}
	b.DSR, b.IPv6, b.ILB = b.DSR || x.DSR, b.IPv6 || x.IPv6, b.ILB || x.ILB
	b.LocalRoutedVIP, b.UseMux = b.LocalRoutedVIP || x.LocalRoutedVIP, b.UseMux || x.UseMux
	b.PreserveDIP, b.ExternalVIP = b.PreserveDIP || x.PreserveDIP, b.ExternalVIP || x.ExternalVIP
}

// addEndpoint takes in an endpoint, each once.
func (s *State) addEndpoint(e Endpoint) {
	s.HasEndpoints = true
	old := s.Endpoint(e.ID)
	if old == nil {
		if s.endpointOf == nil {
			s.endpointOf = make(map[string]int)
		}
		s.endpointOf[e.ID] = len(s.Endpoints)
		s.Endpoints = append(s.Endpoints, e)
		return
	}
	old.Name, old.Network = cmp.Or(old.Name, e.Name), cmp.Or(old.Network, e.Network)
	old.Remote, old.Overlay = old.Remote || e.Remote, old.Overlay || e.Overlay
	for _, a := range e.Addrs {
		if len(old.Addrs) < maxAddresses && !slices.Contains(old.Addrs, a) {
			old.Addrs = append(old.Addrs, a)
		}
	}
}

// Settle finds out what only all captures together show. It comes after the last of them, and before the first question.
func (s *State) Settle() {
	s.serving = make(map[netip.AddrPort][]int)
	for i := range s.Balancers {
		b := &s.Balancers[i]
		if len(b.VIPs) == 0 {
			b.IPv6 = b.IPv6 || s.onlyIPv6(b)
			s.serve(netip.Addr{}, i)
		}
		for _, a := range b.VIPs {
			s.serve(a, i)
		}
	}
	s.having = make(map[netip.Addr]int)
	for i := range s.Endpoints {
		for _, a := range s.Endpoints[i].Addrs {
			if _, first := s.having[a]; !first {
				s.having[a] = i
			}
		}
	}
}

func (s *State) serve(a netip.Addr, i int) {
	at := netip.AddrPortFrom(a, s.Balancers[i].ExternalPort)
	if have := s.serving[at]; len(have) == 0 || have[len(have)-1] != i {
		s.serving[at] = append(have, i)
	}
}

// onlyIPv6 tells whether a load balancer has endpoints and all of them IPv6 addresses alone: captures of version 1 lack
// the flag of a node port's family.
func (s *State) onlyIPv6(b *LoadBalancer) bool {
	six, four := false, false
	for _, id := range b.Endpoints {
		if e := s.Endpoint(id); e != nil {
			six, four = six || e.Addr(true).IsValid(), four || e.Addr(false).IsValid()
		}
	}
	return six && !four
}

// identifier is a GUID as both schemas write it, in one form.
func identifier(s string) (string, bool) {
	s = strings.ToLower(strings.Trim(strings.TrimSpace(s), "{}"))
	s = strings.TrimPrefix(s, "/endpoints/")
	if len(s) == 0 || len(s) > 64 || strings.ContainsAny(s, " \t\r\n/\\\"|") {
		return "", false
	}
	return s, true
}
