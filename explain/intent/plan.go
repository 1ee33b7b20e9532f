package intent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/explain/traits"
)

// Input is what the API and the node say. Nothing in it is changed.
type Input struct {
	Services  []*corev1.Service
	Slices    []*discoveryv1.EndpointSlice
	Endpoints []*corev1.Endpoints
	// SlicesRead is true when slices were asked for: no slices then means that there are none. Without it,
	// an input that holds neither slices nor Endpoints leaves every endpoint unknown.
	SlicesRead bool
	// Node is the Node object of the proxy's node; nil when not known.
	Node  *corev1.Node
	Proxy traits.Proxy
	// OnlyFamily is 4 or 6 where the node's network has but one family and its proxy serves no other (overlay networks
	// of Windows); 0 where it may have both.
	OnlyFamily int
	// NodeAddrs are the addresses of the node's interfaces; empty when not known, Node.status.addresses
	// then stand in for them.
	NodeAddrs []netip.Addr
	// Evidence says where an object was read: a *Service, *EndpointSlice, *Endpoints or *Node of this
	// input. It may be nil.
	Evidence func(obj any) Evidence
}

// Plan is what the proxy of one node ought to program.
type Plan struct {
	// Ports by namespace, Service, family, then in the order of the Service's spec.
	Ports []*ServicePort
	// Skipped are the Services that the proxy leaves out, by namespace and name.
	Skipped []Skipped
	// Notes are what is odd about the objects, by kind, namespace, Service and text.
	Notes []Note
}

// Skipped is a Service that the proxy does not program at all.
type Skipped struct {
	Namespace, Name string
	Reason          SkipReason
	// Text is one sentence for people.
	Text string
	Evidence
}

// SkipReason says why a Service is left out.
type SkipReason string

// The reasons.
const (
	SkipHeadless      SkipReason = "headless"
	SkipExternalName  SkipReason = "external-name"
	SkipNoClusterIP   SkipReason = "no-cluster-ip"
	SkipOtherProxy    SkipReason = "service-proxy-name"
	SkipHeadlessLabel SkipReason = "headless-label"
)

// Of returns the ports of one Service.
func (p *Plan) Of(namespace, name string) []*ServicePort {
	at, _ := slices.BinarySearchFunc(p.Ports, [2]string{namespace, name}, func(sp *ServicePort, key [2]string) int {
		return cmp.Or(cmp.Compare(sp.Namespace, key[0]), cmp.Compare(sp.Name, key[1]))
	})
	end := at
	for end < len(p.Ports) && p.Ports[end].Namespace == namespace && p.Ports[end].Name == name {
		end++
	}
	return p.Ports[at:end:end]
}

// planner holds what is the same for all Services while a plan is made.
type planner struct {
	in Input
	// release is the version that the plan is for, other the one that it is compared with.
	release, other release
	// depends is set when something is asked in which the two differ.
	depends bool
	node    node
	// slices and legacy by Service; only the one that the proxy reads is filled.
	slices map[serviceKey][]*discoveryv1.EndpointSlice
	legacy map[serviceKey][]*corev1.Endpoints
	plan   *Plan
}

type serviceKey struct{ namespace, name string }

// Compute says what the proxy at hand ought to program for the objects at hand. Where the proxy's version
// is a range, the newest member counts and NoteVersionMatters names the Services for which the oldest
// would choose other endpoints.
func Compute(in Input) *Plan {
	low, high := releases(in.Proxy)
	plan, open := compute(in, high, low)
	if len(open) > 0 {
		in.Services = open
		older, _ := compute(in, low, high)
		plan.compare(older, open, low, high)
	}
	plan.sortNotes()
	return plan
}

// does says whether the version has a behaviour, and notes that something rests on that.
func (b *planner) does(x behaviour) bool {
	yes := b.release.does(x)
	b.depends = b.depends || yes != b.other.does(x)
	return yes
}

// compute makes the plan for one version. open are the Services for which the other one may choose other endpoints.
func compute(in Input, r, other release) (plan *Plan, open []*corev1.Service) {
	b := &planner{in: in, release: r, other: other, plan: &Plan{}}
	b.node = b.readNode()
	b.readServed()
	unknown := b.indexEndpoints()
	allDepend := b.depends
	seen := make(map[serviceKey]bool, len(in.Services))
	for _, svc := range in.Services {
		if svc == nil {
			continue
		}
		key := serviceKey{svc.Namespace, svc.Name}
		if seen[key] {
			b.note(Note{Kind: NoteServiceTwice, Namespace: key.namespace, Service: key.name, Evidence: b.evidence(svc),
				Text: fmt.Sprintf("Service %s/%s is given twice; the first one counts", key.namespace, key.name)})
			continue
		}
		seen[key] = true
		b.depends = allDepend
		if skip, ok := b.skip(svc); ok {
			b.plan.Skipped = append(b.plan.Skipped, skip)
			continue
		}
		b.plan.Ports = append(b.plan.Ports, b.servicePorts(svc, unknown)...)
		if b.depends {
			open = append(open, svc)
		}
	}
	b.noteOrphans(seen)
	slices.SortStableFunc(b.plan.Ports, func(x, y *ServicePort) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Family, y.Family))
	})
	slices.SortStableFunc(b.plan.Skipped, func(x, y Skipped) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	b.noteClaims()
	return b.plan, open
}

// compare notes of Services where another version of the proxy would choose other endpoints.
func (p *Plan) compare(other *Plan, services []*corev1.Service, low, high release) {
	among := make(map[serviceKey]bool, len(services))
	for _, svc := range services {
		among[serviceKey{svc.Namespace, svc.Name}] = true
	}
	older := make(map[string]*ServicePort, len(other.Ports))
	id := func(sp *ServicePort) string { return fmt.Sprintf("%d %s %s", sp.Family, sp.Protocol, sp.Key()) }
	for _, sp := range other.Ports {
		older[id(sp)] = sp
	}
	for _, sp := range p.Ports {
		if !among[serviceKey{sp.Namespace, sp.Name}] {
			continue
		}
		old, ok := older[id(sp)]
		if ok && slices.Equal(old.Cluster, sp.Cluster) && slices.Equal(old.Local, sp.Local) && slices.Equal(old.Usable, sp.Usable) {
			continue
		}
		p.Notes = append(p.Notes, Note{Kind: NoteVersionMatters, Namespace: sp.Namespace, Service: sp.Name,
			Port: sp.PortName, Protocol: sp.Protocol, Family: sp.Family, Evidence: sp.Evidence,
			Text: fmt.Sprintf("kube-proxy %s would choose other endpoints for %s than kube-proxy %s, and the evidence does not say which of them runs", low, sp.Key(), high)})
	}
}

// evidence says where an object of the input was read.
func (b *planner) evidence(obj any) Evidence {
	if b.in.Evidence == nil {
		return Evidence{}
	}
	return b.in.Evidence(obj)
}
