package relay

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/svcnet/svcnet/explain/intent"
)

// service is one port of one Service in one family, as far as it outlives updates: what counts its connections and
// remembers its clients.
type service struct {
	key      serviceKey
	affinity affinity
	counts   counts
}

type serviceKey struct {
	namespace, name, port string
	family                int
	protocol              string
}

func keyOf(sp *intent.ServicePort) serviceKey {
	return serviceKey{sp.Namespace, sp.Name, sp.PortName, sp.Family, sp.Protocol}
}

// route says what becomes of the clients of one frontend. It does not change: an update makes another one.
type route struct {
	service *service
	port    *intent.ServicePort
	front   intent.Frontend
	clients *clients
	// backends are those of port.Endpoints, by the same index.
	backends []*backend
	// remembers is the time for which a client stays with its backend, 0 for none.
	remembers time.Duration
	header    HeaderVersion
	// verdicts are those that were asked for until now. They are few: one for each kind of client.
	verdicts atomic.Pointer[[]verdictOf]
}

// verdict is what becomes of one kind of client.
type verdict struct {
	// targets are the backends that the client may get; none: it is refused, and silently so where drops is set.
	targets []*backend
	drops   bool
	because string
}

// kind is all of a client that an outcome depends on.
type kind struct {
	class                      intent.Class
	detected, inRange, atFront bool
}

type verdictOf struct {
	kind
	verdict *verdict
}

// verdict says what becomes of a client.
func (r *route) verdict(client netip.Addr) *verdict {
	c := r.clients.client(client)
	k := kind{class: c.Class, detected: c.DetectedLocal, inRange: r.inRange(client), atFront: client == r.front.Addr}
	for {
		known := r.verdicts.Load()
		if known != nil {
			for i := range *known {
				if (*known)[i].kind == k {
					return (*known)[i].verdict
				}
			}
		}
		v := r.ask(c)
		var longer []verdictOf
		if known != nil {
			longer = slices.Clone(*known)
		}
		longer = append(longer, verdictOf{k, v})
		if r.verdicts.CompareAndSwap(known, &longer) {
			return v
		}
	}
}

// inRange says whether the source ranges of the port have the client, where they matter.
func (r *route) inRange(client netip.Addr) bool {
	return r.front.Kind == intent.LoadBalancer &&
		slices.ContainsFunc(r.port.SourceRanges, func(p netip.Prefix) bool { return p.Contains(client) })
}

// ask asks what ought to happen.
func (r *route) ask(c intent.Client) *verdict {
	out := r.port.Intend(r.front, c, r.clients.proxy)
	v := &verdict{drops: out.Result == "drop", because: out.Because}
	for _, i := range out.Backends {
		// kube-proxy translates a packet once: what an endpoint names that is itself the address of a Service, it does not
		// reach.
		if b := r.backends[i]; !b.own.Load() {
			v.targets = append(v.targets, b)
		}
	}
	return v
}

// refusal says why nobody at all gets a backend at this frontend; empty where somebody may.
func (r *route) refusal() string {
	switch {
	case r.port.EndpointsUnknown:
		return "its endpoints are not known"
	case len(r.port.Usable) == 0:
		return "the port has no usable endpoint: connections to it are refused"
	}
	return ""
}

// serving says whether a backend that a session has may go on being used: the slices still list it, and as one that
// serves, be it on its way out. As kube-proxy does, the connections of TCP are left to themselves.
func (r *route) serving(b *backend) bool {
	for i := range r.backends {
		if r.backends[i] == b {
			e := &r.port.Endpoints[i]
			return e.Ready || e.Serving
		}
	}
	return false
}
