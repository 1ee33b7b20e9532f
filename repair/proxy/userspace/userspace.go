// Package userspace is the fallback proxy in userspace mode: it follows Services and EndpointSlices, and has a relay
// (package relay) serve what they ask for, on nodes whose netfilter cannot be used.
package userspace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/traits"
	"github.com/svcnet/svcnet/repair/proxy"
	"github.com/svcnet/svcnet/repair/proxy/relay"
	"github.com/svcnet/svcnet/repair/proxy/table"
)

// Config is what a run is told.
type Config struct {
	// Config is that of every fallback proxy. Temporary means nothing here.
	proxy.Config
	Relay relay.Options
	// Listen are further addresses on which service ports are served.
	Listen []Listen
	// Drain is how long connections may go on after the end; 0: not at all.
	Drain time.Duration
	// Running is given the relay once it runs, before it serves anything.
	Running func(*relay.Relay)
}

// Listen is an address for a port of a Service: by name or number, or the only one where both are empty.
type Listen struct {
	Addr    netip.AddrPort
	Service table.Service
	Port    string
}

// Behaviour are the settings by which the relay does what kube-proxy would: those of iptables mode of the newest version,
// the only one that serves node ports on loopback addresses, which a process can do as well.
func Behaviour(p traits.Proxy) traits.Proxy {
	p.Mode, p.Version, p.VersionFromRules, p.LocalhostNodePorts = "iptables", traits.Version{}, false, true
	return p
}

// wanted is what the objects ask for by now.
type wanted struct {
	input  intent.Input
	listen []Listen
	// services by name, each with the ports that it asks for.
	services map[table.Service]*asked
	health   *proxy.HealthChecks
}

type asked struct {
	created time.Time
	name    table.Service
	ports   []*intent.ServicePort
}

func newWanted(c *Config, addrs []netip.Addr) *wanted {
	return &wanted{
		input:    intent.Input{SlicesRead: true, Node: c.Objects.Node(), Proxy: Behaviour(c.Proxy), NodeAddrs: addrs},
		listen:   c.Listen,
		services: make(map[table.Service]*asked),
	}
}

// update takes in what a Service asks for by now.
func (w *wanted) update(o *proxy.Objects, s table.Service) {
	svc, of := o.Of(s)
	if svc == nil {
		delete(w.services, s)
		if w.health != nil {
			w.health.Update(s, nil)
		}
		return
	}
	in := w.input
	in.Services, in.Slices = []*corev1.Service{svc}, of
	a := &asked{created: svc.CreationTimestamp.Time, name: s, ports: intent.Compute(in).Ports}
	w.services[s] = a
	if w.health == nil {
		return
	}
	var check *table.Port
	for i, sp := range a.ports {
		if sp.HealthCheckNodePort != 0 && check == nil {
			check = table.PortOf(sp, a.created, i)
		}
	}
	w.health.Update(s, check)
}

// updateAll takes in everything anew.
func (w *wanted) updateAll(o *proxy.Objects) {
	all := o.All()
	for s := range w.services {
		if _, there := slices.BinarySearchFunc(all, s, compareServices); !there {
			w.update(o, s)
		}
	}
	for _, s := range all {
		w.update(o, s)
	}
}

func compareServices(a, b table.Service) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// want is that for the relay. The ports of older Services come first: they keep an address that two Services claim.
func (w *wanted) want() relay.Want {
	all := make([]*asked, 0, len(w.services))
	n := 0
	for _, a := range w.services {
		all = append(all, a)
		n += len(a.ports)
	}
	slices.SortFunc(all, func(a, b *asked) int { return cmp.Or(a.created.Compare(b.created), compareServices(a.name, b.name)) })
	out := relay.Want{Ports: make([]*intent.ServicePort, 0, n), Around: w.around()}
	for _, a := range all {
		out.Ports = append(out.Ports, a.ports...)
	}
	for _, l := range w.listen {
		a := w.services[l.Service]
		if a == nil {
			continue
		}
		for _, sp := range a.ports {
			if l.matches(sp) {
				out.Extra = append(out.Extra, relay.Extra{Listen: l.Addr, Port: sp})
			}
		}
	}
	return out
}

// matches says whether a service port is the one that was named, in the family of the address. An address that is none
// (0.0.0.0) is of the family that it is written in.
func (l *Listen) matches(sp *intent.ServicePort) bool {
	if l.Addr.Addr().Is4() != (sp.Family == 4) {
		return false
	}
	return l.Port == "" || l.Port == sp.PortName || l.Port == fmt.Sprint(sp.Port)
}

// around is what tells clients apart.
func (w *wanted) around() relay.Around {
	out := relay.Around{NodeAddrs: w.input.NodeAddrs, Proxy: w.input.Proxy}
	out.Pods = append(slices.Clone(w.input.Proxy.PodCIDRs), w.input.Proxy.ClusterCIDRs...)
	if n := w.input.Node; n != nil {
		ranges := n.Spec.PodCIDRs
		if len(ranges) == 0 && n.Spec.PodCIDR != "" {
			ranges = []string{n.Spec.PodCIDR}
		}
		for _, text := range ranges {
			if p, err := netip.ParsePrefix(text); err == nil {
				out.LocalPods = append(out.LocalPods, p.Masked())
			}
		}
	}
	return out
}

// Preview is what would be served with the objects that are known: the ports, and where else they would be listened on.
func Preview(c Config, addrs []netip.Addr) relay.Want {
	w := newWanted(&c, addrs)
	w.updateAll(c.Objects)
	return w.want()
}

// Missing are the addresses of Listen for which there is no service port.
func (c *Config) Missing(w relay.Want) []Listen {
	var out []Listen
	for _, l := range c.Listen {
		if !slices.ContainsFunc(w.Ports, func(sp *intent.ServicePort) bool {
			return sp.Namespace == l.Service.Namespace && sp.Name == l.Service.Name && l.matches(sp)
		}) {
			out = append(out, l)
		}
	}
	return out
}
