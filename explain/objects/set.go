// Package objects decodes Kubernetes objects as kubectl prints them (YAML or JSON, single objects, lists,
// streams of documents) and keeps with each where it was read. It decodes what the explanation of a node
// needs and counts the rest.
//
// The package is pure. It converts old API versions to the one type that the rest works with and does not
// judge: what the objects ask for is package intent's business.
package objects

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Evidence is where an object was read: the file and the line, from 1, on which the object begins.
type Evidence struct {
	File string
	Line int
}

// The decoded kinds, each with its evidence.
type (
	// Service is a Service of v1.
	Service struct {
		*corev1.Service
		Evidence
	}
	// EndpointSlice is of discovery.k8s.io/v1, or converted from v1beta1.
	EndpointSlice struct {
		*discoveryv1.EndpointSlice
		Evidence
	}
	// Endpoints is an Endpoints object of v1.
	Endpoints struct {
		*corev1.Endpoints
		Evidence
	}
	// Node is a Node of v1.
	Node struct {
		*corev1.Node
		Evidence
	}
	// Pod is a Pod of v1.
	Pod struct {
		*corev1.Pod
		Evidence
	}
	// Namespace is a Namespace of v1.
	Namespace struct {
		*corev1.Namespace
		Evidence
	}
	// ConfigMap is a ConfigMap of v1.
	ConfigMap struct {
		*corev1.ConfigMap
		Evidence
	}
	// ClusterRole is a ClusterRole of rbac.authorization.k8s.io/v1.
	ClusterRole struct {
		*rbacv1.ClusterRole
		Evidence
	}
	// ClusterRoleBinding is a ClusterRoleBinding of rbac.authorization.k8s.io/v1.
	ClusterRoleBinding struct {
		*rbacv1.ClusterRoleBinding
		Evidence
	}
)

// Ignored counts objects of a kind that is passed over.
type Ignored struct {
	APIVersion, Kind string
	Count            int
}

// Set is all objects of one snapshot. Fill it with Decode, once per file, then call Sort. After that the
// lookups may be used from several goroutines.
type Set struct {
	Services       []Service
	EndpointSlices []EndpointSlice
	Endpoints      []Endpoints
	Nodes          []Node
	Pods           []Pod
	Namespaces     []Namespace
	ConfigMaps     []ConfigMap
	ClusterRoles   []ClusterRole
	RoleBindings   []ClusterRoleBinding
	Ignored        []Ignored

	places  map[objectKey]int // where an object stands in the slice of its kind
	ignored map[metav1.TypeMeta]int
	slices  map[nameKey][]int
	podIPs  map[netip.Addr]int
}

// objectKey is an object's identity in the API; nameKey is that within one kind.
type objectKey struct{ kind, namespace, name string }

type nameKey struct{ namespace, name string }

// Sort puts every kind in the order of namespace and name, and prepares the lookups.
func (s *Set) Sort() {
	sortByName(s.Services, func(o Service) nameKey { return nameKey{o.Namespace, o.Name} })
	sortByName(s.EndpointSlices, func(o EndpointSlice) nameKey { return nameKey{o.Namespace, o.Name} })
	sortByName(s.Endpoints, func(o Endpoints) nameKey { return nameKey{o.Namespace, o.Name} })
	sortByName(s.Nodes, func(o Node) nameKey { return nameKey{"", o.Name} })
	sortByName(s.Pods, func(o Pod) nameKey { return nameKey{o.Namespace, o.Name} })
	sortByName(s.Namespaces, func(o Namespace) nameKey { return nameKey{"", o.Name} })
	sortByName(s.ConfigMaps, func(o ConfigMap) nameKey { return nameKey{o.Namespace, o.Name} })
	sortByName(s.ClusterRoles, func(o ClusterRole) nameKey { return nameKey{"", o.Name} })
	sortByName(s.RoleBindings, func(o ClusterRoleBinding) nameKey { return nameKey{"", o.Name} })
	slices.SortFunc(s.Ignored, func(a, b Ignored) int {
		return cmp.Or(cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Kind, b.Kind))
	})
	s.index()
}

func sortByName[T any](list []T, key func(T) nameKey) {
	slices.SortFunc(list, func(a, b T) int {
		ka, kb := key(a), key(b)
		return cmp.Or(cmp.Compare(ka.namespace, kb.namespace), cmp.Compare(ka.name, kb.name))
	})
}

func (s *Set) index() {
	s.places = map[objectKey]int{}
	place(s, "Service", s.Services, func(o Service) nameKey { return nameKey{o.Namespace, o.Name} })
	place(s, "EndpointSlice", s.EndpointSlices, func(o EndpointSlice) nameKey { return nameKey{o.Namespace, o.Name} })
	place(s, "Endpoints", s.Endpoints, func(o Endpoints) nameKey { return nameKey{o.Namespace, o.Name} })
	place(s, "Node", s.Nodes, func(o Node) nameKey { return nameKey{"", o.Name} })
	place(s, "Pod", s.Pods, func(o Pod) nameKey { return nameKey{o.Namespace, o.Name} })
	place(s, "Namespace", s.Namespaces, func(o Namespace) nameKey { return nameKey{"", o.Name} })
	place(s, "ConfigMap", s.ConfigMaps, func(o ConfigMap) nameKey { return nameKey{o.Namespace, o.Name} })
	place(s, "ClusterRole", s.ClusterRoles, func(o ClusterRole) nameKey { return nameKey{"", o.Name} })
	place(s, "ClusterRoleBinding", s.RoleBindings, func(o ClusterRoleBinding) nameKey { return nameKey{"", o.Name} })

	s.ignored = map[metav1.TypeMeta]int{}
	for i, g := range s.Ignored {
		s.ignored[metav1.TypeMeta{Kind: g.Kind, APIVersion: g.APIVersion}] = i
	}
	s.slices = map[nameKey][]int{}
	for i, o := range s.EndpointSlices {
		if name := o.Labels[discoveryv1.LabelServiceName]; name != "" {
			k := nameKey{o.Namespace, name}
			s.slices[k] = append(s.slices[k], i)
		}
	}
	s.podIPs = map[netip.Addr]int{}
	for i, o := range s.Pods {
		for _, a := range o.addrs() {
			if other, ok := s.podIPs[a]; !ok || s.Pods[other].ended() && !o.ended() {
				s.podIPs[a] = i
			}
		}
	}
}

func place[T any](s *Set, kind string, list []T, key func(T) nameKey) {
	for i, o := range list {
		k := key(o)
		s.places[objectKey{kind, k.namespace, k.name}] = i
	}
}

// Service returns the Service of this name.
func (s *Set) Service(namespace, name string) (Service, bool) {
	i, ok := s.places[objectKey{"Service", namespace, name}]
	if !ok {
		return Service{}, false
	}
	return s.Services[i], true
}

// Node returns the Node of this name.
func (s *Set) Node(name string) (Node, bool) {
	i, ok := s.places[objectKey{"Node", "", name}]
	if !ok {
		return Node{}, false
	}
	return s.Nodes[i], true
}

// Pod returns the Pod of this name.
func (s *Set) Pod(namespace, name string) (Pod, bool) {
	i, ok := s.places[objectKey{"Pod", namespace, name}]
	if !ok {
		return Pod{}, false
	}
	return s.Pods[i], true
}

// ConfigMap returns the ConfigMap of this name.
func (s *Set) ConfigMap(namespace, name string) (ConfigMap, bool) {
	i, ok := s.places[objectKey{"ConfigMap", namespace, name}]
	if !ok {
		return ConfigMap{}, false
	}
	return s.ConfigMaps[i], true
}

// ClusterRole returns the ClusterRole of this name.
func (s *Set) ClusterRole(name string) (ClusterRole, bool) {
	i, ok := s.places[objectKey{"ClusterRole", "", name}]
	if !ok {
		return ClusterRole{}, false
	}
	return s.ClusterRoles[i], true
}

// SlicesOf returns the EndpointSlices that belong to a Service by their label kubernetes.io/service-name,
// in the order of their names.
func (s *Set) SlicesOf(namespace, service string) []EndpointSlice {
	var out []EndpointSlice
	for _, i := range s.slices[nameKey{namespace, service}] {
		out = append(out, s.EndpointSlices[i])
	}
	return out
}

// PodByIP returns the pod that owns an address. Pods in the host's network own none: their address is the
// node's. An address that a finished pod once had is that of the running one.
func (s *Set) PodByIP(addr netip.Addr) (Pod, bool) {
	i, ok := s.podIPs[addr.Unmap()]
	if !ok {
		return Pod{}, false
	}
	return s.Pods[i], true
}

// addrs are the pod's own addresses.
func (p Pod) addrs() []netip.Addr {
	if p.Spec.HostNetwork {
		return nil
	}
	var out []netip.Addr
	add := func(ip string) {
		if a, err := netip.ParseAddr(ip); err == nil && !slices.Contains(out, a.Unmap()) {
			out = append(out, a.Unmap())
		}
	}
	add(p.Status.PodIP)
	for _, ip := range p.Status.PodIPs {
		add(ip.IP)
	}
	return out
}

func (p Pod) ended() bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
