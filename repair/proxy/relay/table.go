package relay

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
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
	// known are the routes of the last update. One whose port is the same thing still, and not only equal, is used again.
	known map[frontKey]*route
	// who tells clients apart, made of around and taken.
	who    *clients
	around Around
	taken  []netip.Addr
}

// clients is what tells clients apart, the last one where nothing changed.
func (t *table) clients(a Around, taken []netip.Addr) *clients {
	same := t.who != nil && slices.Equal(t.taken, taken) && slices.Equal(t.around.NodeAddrs, a.NodeAddrs) && slices.Equal(t.around.OtherNodes, a.OtherNodes) &&
		slices.Equal(t.around.LocalPods, a.LocalPods) && slices.Equal(t.around.Pods, a.Pods) && reflect.DeepEqual(t.around.Proxy, a.Proxy)
	if !same {
		t.who, t.around, t.taken = clientsOf(a, taken), a, taken
	}
	return t.who
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
	who := t.clients(w.Around, taken)

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
		r := t.known[k]
		if r == nil || r.port != sp || r.front != f || r.clients != who {
			r = &route{port: sp, front: f, clients: who, remembers: time.Duration(sp.AffinitySeconds) * time.Second, backends: make([]*backend, len(sp.Endpoints))}
			if o.Header != nil && !k.udp {
				r.header = o.Header(sp)
			}
		}
		key := keyOf(sp)
		of := services[key]
		if of == nil {
			if of = t.services[key]; of == nil {
				of = &service{key: key}
			}
			services[key] = of
		}
		if r.service == nil {
			r.service = of
		}
		for i := range sp.Endpoints {
			if b := r.backends[i]; b != nil { // of a route that was known
				backends[backendKey{k.udp, b.addr}] = b
				continue
			}
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
	circles := false
	for k, b := range backends {
		own := routes[frontKey(k)] != nil
		circles = b.own.Swap(own) != own || circles
	}
	if circles {
		for _, r := range routes {
			r.verdicts.Store(nil)
		}
	}
	t.services, t.backends, t.known = services, backends, routes
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
