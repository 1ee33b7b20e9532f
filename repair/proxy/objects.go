package proxy

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/repair/proxy/table"
)

// Objects are the Services that are to be served, their slices and the node, as far as they are known. Its methods may be
// called from several goroutines.
type Objects struct {
	// only are the Services that are to be served; nil: all.
	only map[table.Service]bool
	node string

	mu       sync.Mutex
	services map[table.Service]*corev1.Service
	slices   map[table.Service]map[string]*discoveryv1.EndpointSlice
	nodes    map[string]*corev1.Node
	// owner is the Service that a slice was of, by namespace and name.
	owner map[[2]string]table.Service
	// dirty are the Services of which something changed since Take; nodeChanged says the same of the node.
	dirty       map[table.Service]bool
	nodeChanged bool
	changed     chan struct{}
	// words are strings that many objects have in common.
	words map[string]string
}

// NewObjects has no objects. only are the Services that are to be served, nil for all; node is the name of the node.
func NewObjects(only []table.Service, node string) *Objects {
	o := &Objects{
		node: node, services: map[table.Service]*corev1.Service{}, slices: map[table.Service]map[string]*discoveryv1.EndpointSlice{},
		nodes: map[string]*corev1.Node{}, owner: map[[2]string]table.Service{}, dirty: map[table.Service]bool{}, changed: make(chan struct{}, 1), words: map[string]string{},
	}
	if only != nil {
		o.only = map[table.Service]bool{}
		for _, s := range only {
			o.only[s] = true
		}
	}
	return o
}

func (o *Objects) wanted(s table.Service) bool { return o.only == nil || o.only[s] }

// Changed is told when there is something to Take.
func (o *Objects) Changed() <-chan struct{} { return o.changed }

func (o *Objects) touch(s table.Service) {
	if !o.wanted(s) {
		return
	}
	o.dirty[s] = true
	o.tell()
}

func (o *Objects) tell() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// Take are the Services of which something changed since the last call, sorted, and whether the node did.
func (o *Objects) Take() (services []table.Service, node bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	services, node = slices.Collect(maps.Keys(o.dirty)), o.nodeChanged
	clear(o.dirty)
	o.nodeChanged = false
	slices.SortFunc(services, compareServices)
	return services, node
}

func compareServices(a, b table.Service) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// All are the Services that are known and wanted.
func (o *Objects) All() []table.Service {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := slices.Collect(maps.Keys(o.services))
	slices.SortFunc(out, compareServices)
	return out
}

// Of are a Service and its slices; nil where there is no such Service. They are not changed any more.
func (o *Objects) Of(s table.Service) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	svc := o.services[s]
	if svc == nil {
		return nil, nil
	}
	of := o.slices[s]
	out := make([]*discoveryv1.EndpointSlice, 0, len(of))
	for _, sl := range of {
		out = append(out, sl)
	}
	slices.SortFunc(out, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return svc, out
}

// Node is the object of the node, nil where it is not known.
func (o *Objects) Node() *corev1.Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.nodes[o.node]
}

// Missing are the Services that are to be served by name and that are not there.
func (o *Objects) Missing() []table.Service {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []table.Service
	for s := range o.only {
		if o.services[s] == nil {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, compareServices)
	return out
}

// Add takes in an object that is new or changed.
func (o *Objects) Add(obj any) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(obj)
	return nil
}

func (o *Objects) add(obj any) {
	switch x := obj.(type) {
	case *corev1.Service:
		at := table.Service{Namespace: x.Namespace, Name: x.Name}
		if !o.wanted(at) {
			return
		}
		o.services[at] = o.leanService(x)
		o.touch(at)
	case *discoveryv1.EndpointSlice:
		at := table.Service{Namespace: x.Namespace, Name: x.Labels[discoveryv1.LabelServiceName]}
		id := [2]string{x.Namespace, x.Name}
		if was, there := o.owner[id]; there && was != at {
			o.dropSlice(was, x.Name)
		}
		if !o.wanted(at) {
			delete(o.owner, id)
			return
		}
		if o.slices[at] == nil {
			o.slices[at] = make(map[string]*discoveryv1.EndpointSlice, 1)
		}
		o.owner[id] = at
		o.slices[at][x.Name] = o.leanSlice(x)
		o.touch(at)
	case *corev1.Node:
		if x.Name != o.node {
			return
		}
		o.nodes[x.Name] = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: x.Name, Labels: x.Labels, Annotations: x.Annotations},
			Spec:       corev1.NodeSpec{PodCIDR: x.Spec.PodCIDR, PodCIDRs: x.Spec.PodCIDRs},
			Status:     corev1.NodeStatus{Addresses: x.Status.Addresses},
		}
		o.nodeChanged = true
		o.tell()
	}
}

// Update takes in an object that changed.
func (o *Objects) Update(obj any) error { return o.Add(obj) }

// Delete forgets an object.
func (o *Objects) Delete(obj any) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch x := obj.(type) {
	case *corev1.Service:
		at := table.Service{Namespace: x.Namespace, Name: x.Name}
		delete(o.services, at)
		o.touch(at)
	case *discoveryv1.EndpointSlice:
		id := [2]string{x.Namespace, x.Name}
		if at, there := o.owner[id]; there {
			delete(o.owner, id)
			o.dropSlice(at, x.Name)
		}
	}
	// A node that is gone from the API is still here.
	return nil
}

func (o *Objects) dropSlice(of table.Service, name string) {
	delete(o.slices[of], name)
	if len(o.slices[of]) == 0 {
		delete(o.slices, of)
	}
	o.touch(of)
}

// replaceServices takes in all Services there are.
func (o *Objects) replaceServices(list []*corev1.Service) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.services
	o.services = make(map[table.Service]*corev1.Service, len(list))
	for _, x := range list {
		at := table.Service{Namespace: x.Namespace, Name: x.Name}
		if old := was[at]; old != nil && old.ResourceVersion == x.ResourceVersion && x.ResourceVersion != "" {
			o.services[at] = old
		} else {
			o.add(x)
		}
		delete(was, at)
	}
	for at := range was {
		o.touch(at)
	}
}

// replaceSlices takes in all slices there are.
func (o *Objects) replaceSlices(list []*discoveryv1.EndpointSlice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	gone := o.owner
	o.owner = make(map[[2]string]table.Service, len(list))
	for _, x := range list {
		id := [2]string{x.Namespace, x.Name}
		at, there := gone[id]
		delete(gone, id)
		if there {
			o.owner[id] = at
			if old := o.slices[at][x.Name]; old.ResourceVersion == x.ResourceVersion && x.ResourceVersion != "" {
				continue
			}
		}
		o.add(x)
	}
	for id, at := range gone {
		o.dropSlice(at, id[1])
	}
}

// word keeps one copy of a string that many objects have.
func (o *Objects) word(s *string) *string {
	if s == nil {
		return nil
	}
	w, ok := o.words[*s]
	if !ok {
		if len(o.words) > 1<<16 {
			clear(o.words) // names of nodes and zones that are long gone
		}
		w = *s
		o.words[w] = w
	}
	return &w
}

// leanService is what is needed of a Service.
func (o *Objects) leanService(x *corev1.Service) *corev1.Service {
	out := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: x.Name, Namespace: x.Namespace, ResourceVersion: x.ResourceVersion, CreationTimestamp: x.CreationTimestamp,
			Labels: only(x.Labels, "service.kubernetes.io/service-proxy-name", corev1.IsHeadlessService),
		},
		Spec: x.Spec, Status: x.Status,
	}
	out.Spec.Selector, out.Status.Conditions = nil, nil
	return out
}

// leanSlice is what is needed of a slice.
func (o *Objects) leanSlice(x *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: x.Name, Namespace: x.Namespace, ResourceVersion: x.ResourceVersion,
			Labels: only(x.Labels, discoveryv1.LabelServiceName, "service.kubernetes.io/service-proxy-name", corev1.IsHeadlessService),
		},
		AddressType: x.AddressType, Ports: x.Ports, Endpoints: make([]discoveryv1.Endpoint, len(x.Endpoints)),
	}
	for i := range x.Endpoints {
		e := &x.Endpoints[i]
		out.Endpoints[i] = discoveryv1.Endpoint{
			Addresses: e.Addresses, Conditions: leanConditions(e.Conditions), NodeName: o.word(e.NodeName), Zone: o.word(e.Zone), Hints: e.Hints,
		}
	}
	return out
}

// leanConditions have no memory of their own.
func leanConditions(c discoveryv1.EndpointConditions) discoveryv1.EndpointConditions {
	lean := func(b *bool) *bool {
		switch {
		case b == nil:
			return nil
		case *b:
			return &yes
		}
		return &no
	}
	return discoveryv1.EndpointConditions{Ready: lean(c.Ready), Serving: lean(c.Serving), Terminating: lean(c.Terminating)}
}

// yes and no are pointed to by every condition that is known, and never changed.
var yes, no = true, false

func only(labels map[string]string, names ...string) map[string]string {
	var out map[string]string
	for _, n := range names {
		if v, ok := labels[n]; ok {
			if out == nil {
				out = make(map[string]string, 1)
			}
			out[n] = v
		}
	}
	return out
}
