package kubeproxy

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/traits"
)

// VirtualServer is a virtual server that kube-proxy keeps in IPVS mode (syncService, syncEndpoint of
// pkg/proxy/ipvs/proxier.go, 1.25 to 1.36).
type VirtualServer struct {
	// Service is the virtual server, with the real servers that get new connections sorted by address and port: each is
	// reached by masquerading and has weight 1. Real servers with weight 0 beside them are kube-proxy's too: they are on
	// their way out.
	ipvs.Service
	// Port is the service port that it is for, Kind the kind of its frontend.
	Port *intent.ServicePort
	Kind intent.FrontendKind
	// May is true where it is right both ways: with it and without.
	May bool
	// Open says why it is not known which real servers it ought to have, empty where it is.
	Open string
}

// serverKey tells virtual servers apart.
type serverKey struct {
	proto uint8
	addr  netip.Addr
	port  uint16
}

// Servers are the virtual servers that kube-proxy keeps for a plan, in the order in which ipvsadm prints them. present
// are those of the node, nil where they were not read: most of them tell the scheduler where no setting does.
func Servers(plan *intent.Plan, p *traits.Proxy, h *host.Host, present *ipvs.Table) []VirtualServer {
	var out []VirtualServer
	at := make(map[serverKey]int)
	scheduler := schedulerOf(p, present)
	for _, sp := range plan.Ports {
		frontends := sp.Frontends
		if sp.NodePort != 0 {
			frontends = append(slices.Clone(frontends), otherNodePorts(sp, p, h)...)
		}
		for i, f := range frontends {
			if f.Kind == intent.HealthCheck {
				continue
			}
			v := server(sp, f, p, scheduler)
			v.May = i >= len(sp.Frontends)
			key := serverKey{v.Proto, v.Addr, v.Service.Port}
			j, taken := at[key]
			switch {
			case !taken:
				at[key] = len(out)
				out = append(out, v)
			case out[j].May && !v.May:
				out[j] = v
			case !v.May:
				// Each sync gives it to one after the other, in no order.
				out[j].Open = "two Services have this address and port: " + out[j].Port.Key() + " and " + sp.Key()
			}
		}
	}
	slices.SortFunc(out, func(a, b VirtualServer) int { return CompareServers(&a.Service, &b.Service) })
	return out
}

// CompareServers is the order in which ipvsadm prints virtual servers.
func CompareServers(a, b *ipvs.Service) int {
	return cmp.Or(cmp.Compare(a.FWMark, b.FWMark), cmp.Compare(a.Family, b.Family), cmp.Compare(a.Proto, b.Proto), a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
}

// server is the virtual server of one frontend.
func server(sp *intent.ServicePort, f intent.Frontend, p *traits.Proxy, scheduler string) VirtualServer {
	v := VirtualServer{Port: sp, Kind: f.Kind}
	v.Family, v.Proto, v.Addr, v.Service.Port = sp.Family, dataplane.ProtocolNumber(sp.Protocol), f.Addr, uint16(f.Port)
	v.Scheduler = scheduler
	if scheduler == "mh" && !p.Within(0, 26) {
		v.SchedFlags = []string{"mh-port"}
	}
	v.Mask = f.Addr.BitLen()
	if sp.AffinitySeconds > 0 {
		v.Persistent, v.Timeout = true, sp.AffinitySeconds
	}
	switch {
	case sp.EndpointsUnknown:
		v.Open = "the endpoints of " + sp.Key() + " were not read"
	case sp.ByChance:
		v.Open = "chance decides which of two copies of an endpoint counts"
	}
	for _, i := range intent.RealServers(sp, f.Kind, p) {
		e := &sp.Endpoints[i]
		v.Dests = append(v.Dests, ipvs.Dest{Addr: e.Addr, Port: uint16(e.Port), Method: ipvs.Masq, Weight: 1, HasWeight: true})
	}
	slices.SortFunc(v.Dests, CompareDests)
	return v
}

// CompareDests is the order of real servers here: by address and port. The kernel has them in the order of their making,
// the newest first, which decides nothing but whose turn it is next.
func CompareDests(a, b ipvs.Dest) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
}

// defaultScheduler is what kube-proxy takes without a setting: round robin.
const defaultScheduler = "rr"

// schedulerOf is the scheduler that kube-proxy gives its virtual servers: that of most of them where no setting says.
func schedulerOf(p *traits.Proxy, present *ipvs.Table) string {
	if p.Scheduler != "" || present == nil {
		return cmp.Or(p.Scheduler, defaultScheduler)
	}
	count := make(map[string]int)
	most := defaultScheduler
	for i := range present.Services {
		s := &present.Services[i]
		if s.FWMark != 0 || s.Scheduler == "" {
			continue
		}
		if count[s.Scheduler]++; count[s.Scheduler] > count[most] || count[s.Scheduler] == count[most] && s.Scheduler == defaultScheduler {
			most = s.Scheduler
		}
	}
	return most
}

// otherNodePorts are addresses at which kube-proxy serves a node port without anybody dialling it there, which the plan
// leaves out: link-local ones of IPv4, those of Services on a device other than its own, and with nodePortAddresses
// those of its own device too.
func otherNodePorts(sp *intent.ServicePort, p *traits.Proxy, h *host.Host) []intent.Frontend {
	var out []intent.Frontend
	for i := range h.Addrs {
		a, link := h.Addrs[i].Prefix.Addr(), h.Addrs[i].Link
		restricted, inside := false, false
		for _, r := range p.NodePortAddresses {
			if r.Addr().Is4() == a.Is4() {
				restricted = true
				inside = inside || r.Contains(a)
			}
		}
		switch {
		case a.Is4() != (sp.Family == 4), a.IsLoopback():
			continue
		case restricted && !inside, !restricted && link == check.KubeIPVS0, !restricted && a.Is6() && a.IsLinkLocalUnicast():
			continue
		}
		f := intent.Frontend{Kind: intent.NodePort, Addr: a, Port: sp.NodePort, OnNode: true}
		if !slices.Contains(sp.Frontends, f) && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// Address is an address that kube-proxy keeps on its device kube-ipvs0 in IPVS mode.
type Address struct {
	Addr netip.Addr
	// Ports are the service ports that have it, in the order of the plan.
	Ports []*intent.ServicePort
	// May is true where it is right both ways: with it and without.
	May bool
}

// Prefix is the address as the device has it: alone in its network.
func (a *Address) Prefix() netip.Prefix { return netip.PrefixFrom(a.Addr, a.Addr.BitLen()) }

// Addresses are those of kube-ipvs0, sorted: each cluster IP, and external and load balancer addresses that no other
// interface has. Where the addresses of the node were not read, these may be there.
func Addresses(plan *intent.Plan, h *host.Host) []Address {
	others := make(map[netip.Addr]bool)
	for i := range h.Addrs {
		if h.Addrs[i].Link != check.KubeIPVS0 {
			others[h.Addrs[i].Prefix.Addr()] = true
		}
	}
	at := make(map[netip.Addr]*Address)
	for _, sp := range plan.Ports {
		for _, f := range sp.Frontends {
			may := false
			switch f.Kind {
			case intent.ClusterIP:
			case intent.ExternalIP, intent.LoadBalancer:
				if others[f.Addr] {
					continue
				}
				may = !h.HasAddrs
			default:
				continue
			}
			a := at[f.Addr]
			if a == nil {
				a = &Address{Addr: f.Addr, May: true}
				at[f.Addr] = a
			}
			a.May = a.May && may
			if !slices.Contains(a.Ports, sp) {
				a.Ports = append(a.Ports, sp)
			}
		}
	}
	out := make([]Address, 0, len(at))
	for _, a := range at {
		out = append(out, *a)
	}
	slices.SortFunc(out, func(a, b Address) int { return a.Addr.Compare(b.Addr) })
	return out
}
