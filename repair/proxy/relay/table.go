package relay

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/svcnet/svcnet/explain/intent"
)

// frontKey is what a client dials.
type frontKey struct {
	udp  bool
	addr netip.AddrPort
}

func (k frontKey) protocol() string {
	if k.udp {
		return "UDP"
	}
	return "TCP"
}

// table is what is known from one update to the next.
type table struct {
	services map[serviceKey]*service
	backends map[backendKey]*backend
}

type backendKey struct {
	udp  bool
	addr netip.AddrPort
}

// routes says what becomes of the clients of each frontend. taken are addresses that the relay put, or will put, on the
// node. What cannot be served is said too, sorted as the ports are.
func (t *table) routes(w Want, o Options, taken []netip.Addr) (map[frontKey]*route, []Unserved) {
	services := make(map[serviceKey]*service, len(w.Ports))
	backends := make(map[backendKey]*backend)
	routes := make(map[frontKey]*route)
	var unserved []Unserved
	who := clientsOf(w.Around, taken)

	serve := func(sp *intent.ServicePort, f intent.Frontend) {
		k := frontKey{udp: sp.Protocol == "UDP", addr: netip.AddrPortFrom(f.Addr, uint16(f.Port))}
		refuse := func(reason string) {
			unserved = append(unserved, Unserved{ServicePort: sp.Key(), Protocol: sp.FrontendProtocol(f), Kind: f.Kind, Listen: k.addr, Reason: reason})
		}
		switch {
		case f.Kind == intent.HealthCheck:
			refuse("the userspace proxy does not answer on health check ports")
			return
		case sp.Protocol != "TCP" && sp.Protocol != "UDP":
			refuse("the userspace proxy does not know " + sp.Protocol + ": it relays TCP and UDP")
			return
		case f.Port < 1 || f.Port > 65535 || !f.Addr.IsValid():
			refuse("this is no address to listen on")
			return
		}
		if other := routes[k]; other != nil {
			if other.service.key != keyOf(sp) {
				refuse(fmt.Sprintf("%s has this address already", other.port.Key()))
			}
			return
		}
		r := &route{port: sp, front: f, clients: who, remembers: time.Duration(sp.AffinitySeconds) * time.Second}
		key := keyOf(sp)
		if r.service = services[key]; r.service == nil {
			if r.service = t.services[key]; r.service == nil {
				r.service = &service{key: key}
			}
			services[key] = r.service
		}
		r.backends = make([]*backend, len(sp.Endpoints))
		for i := range sp.Endpoints {
			e := &sp.Endpoints[i]
			bk := backendKey{k.udp, netip.AddrPortFrom(e.Addr.Unmap(), uint16(e.Port))}
			if backends[bk] == nil {
				b := t.backends[bk]
				if b == nil {
					b = &backend{addr: bk.addr, udp: k.udp, sock: sockaddrOf(bk.addr)}
				}
				backends[bk] = b
			}
			r.backends[i] = backends[bk]
		}
		if o.Header != nil && !k.udp {
			r.header = o.Header(sp)
		}
		routes[k] = r
	}
	for _, sp := range w.Ports {
		for _, f := range sp.Frontends {
			serve(sp, f)
		}
	}
	for _, x := range w.Extra {
		serve(x.Port, intent.Frontend{Kind: intent.ClusterIP, Addr: x.Listen.Addr(), Port: int(x.Listen.Port()), OnNode: true})
	}
	for k, b := range backends {
		b.own.Store(routes[frontKey(k)] != nil)
	}
	t.services, t.backends = services, backends
	return routes, unserved
}

// Taken are the addresses of frontends that are not the node's own: to be reached, they have to be routed to the node.
// They are sorted.
func Taken(ports []*intent.ServicePort) []netip.Addr {
	var out []netip.Addr
	for _, sp := range ports {
		if sp.Protocol != "TCP" && sp.Protocol != "UDP" {
			continue
		}
		for _, f := range sp.Frontends {
			if !f.OnNode && f.Addr.IsValid() && !f.Addr.IsLoopback() {
				out = append(out, f.Addr)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// String is the frontend as people write it.
func (u Unserved) String() string {
	return fmt.Sprintf("%s %s (%s of %s): %s", u.Protocol, u.Listen, strings.ToLower(string(u.Kind)), u.ServicePort, u.Reason)
}

func compareUnserved(x, y Unserved) int {
	return cmp.Or(cmp.Compare(x.ServicePort, y.ServicePort), cmp.Compare(x.Protocol, y.Protocol), x.Listen.Compare(y.Listen))
}
