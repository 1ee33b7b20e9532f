package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcnet/svcnet/test/lab"
)

// namespace of everything that the tests make.
const namespace = "store"

// A world is what a cluster's API holds, and changes at random. Half of its Services select pods, and their slices
// follow the pods as the EndpointSlice controller would have them; the slices of the others are written by hand, with
// everything that may stand in one.
type world struct {
	lab      *lab.Lab
	dice     *rand.Rand
	pods     []*worldPod
	services map[string]*worldService
	// made counts Services and pods, for names that are never used again.
	made    int
	refused int
	// ipvs is the mode of all kube-proxies.
	ipvs bool
}

// a worldPod is an object without a process: nothing is dialled here.
type worldPod struct {
	name, app, node string
	ipv4, ipv6      string
	ready, leaving  bool
}

type worldService struct {
	corev1.Service
	number int
	// app is what it selects; empty: its slices are written by hand.
	app    string
	slices map[string]discoveryv1.EndpointSlice
	// pending is a load balancer that never gets an address.
	pending bool
}

var apps = []string{"a", "b", "c", "d", "nobody"}

// zoneOf says where nodes are.
var zoneOf = map[string]string{"n1": "west", "n2": "east", "n3": "west"}

func (w *world) chance(percent int) bool { return w.dice.IntN(100) < percent }

func pick[T any](w *world, of []T) T { return of[w.dice.IntN(len(of))] }

// some are at random those of a list.
func some[T any](w *world, of []T, percent int) []T {
	var out []T
	for _, v := range of {
		if w.chance(percent) {
			out = append(out, v)
		}
	}
	return out
}

// begin makes the first objects.
func (w *world) begin(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.lab.Apply(ctx, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	for _, node := range slices.Sorted(maps.Keys(zoneOf)) {
		must(w.lab.Patch(ctx, "Node", "", node, "", fmt.Sprintf(`{"metadata":{"labels":{"topology.kubernetes.io/zone":%q}}}`, zoneOf[node])))
		// Its veth has cni0 up.
		_, err := w.lab.AddPod(ctx, lab.PodSpec{Name: "idle-" + node, Namespace: namespace, Node: node})
		must(err)
		for _, app := range apps[:len(apps)-1] {
			if app == "d" && node == "n1" {
				continue // so that a Local policy has no endpoint somewhere
			}
			must(w.addPod(ctx, app, node))
		}
	}
	for range here(14, 7) {
		must(w.addService(ctx))
	}
}

// step changes a few things.
func (w *world) step(ctx context.Context) error {
	for range 1 + w.dice.IntN(5) {
		if err := w.change(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) change(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(w.services))
	switch n := w.dice.IntN(100); {
	case n < 14 && len(names) < 30:
		return w.addService(ctx)
	case n < 24 && len(names) > 8:
		s := w.services[pick(w, names)]
		delete(w.services, s.Name)
		for _, name := range slices.Sorted(maps.Keys(s.slices)) {
			if err := w.lab.Delete(ctx, "EndpointSlice", namespace, name); err != nil {
				return err
			}
		}
		return w.lab.Delete(ctx, "Service", namespace, s.Name)
	case n < 44:
		return w.alter(ctx, w.services[pick(w, names)])
	case n < 70:
		s := w.services[pick(w, names)]
		if s.app != "" {
			return w.turnPod(ctx, w.ofApp(s.app))
		}
		return w.writeSlices(ctx, s, w.handMade(s))
	case n < 90:
		return w.turnPod(ctx, w.pods)
	default:
		return w.replacePod(ctx)
	}
}

// ofApp are the pods of one app.
func (w *world) ofApp(app string) []*worldPod {
	return slices.DeleteFunc(slices.Clone(w.pods), func(p *worldPod) bool { return p.app != app })
}

func (w *world) addPod(ctx context.Context, app, node string) error {
	w.made++
	p := &worldPod{name: fmt.Sprintf("%s-%d", app, w.made), app: app, node: node, ready: w.chance(85)}
	used := func(i int) bool {
		return slices.ContainsFunc(w.pods, func(o *worldPod) bool { return o.ipv4 == podAddr(node, i, false) })
	}
	i := 20 + w.made%200
	for used(i) {
		i = 20 + (i-19)%200
	}
	p.ipv4, p.ipv6 = podAddr(node, i, false), podAddr(node, i, true)
	if err := w.lab.Apply(ctx, p.object()); err != nil {
		return err
	}
	w.pods = append(w.pods, p)
	return w.follow(ctx, app)
}

func podAddr(node string, i int, ipv6 bool) string {
	if ipv6 {
		return fmt.Sprintf("fd00:244:%s::%x", node[1:], i)
	}
	return fmt.Sprintf("10.244.%s.%d", node[1:], i)
}

// containerPorts are those of every pod.
var containerPorts = []struct {
	name   string
	proto  corev1.Protocol
	number int32
}{{"web", corev1.ProtocolTCP, 8080}, {"alt", corev1.ProtocolTCP, 9090}, {"dns", corev1.ProtocolUDP, 5353}, {"dns-tcp", corev1.ProtocolTCP, 5354}, {"sip", corev1.ProtocolSCTP, 9999}}

func (p *worldPod) object() corev1.Pod {
	ready := corev1.ConditionFalse
	if p.ready {
		ready = corev1.ConditionTrue
	}
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: namespace, Labels: map[string]string{"app": p.app}},
		Spec:       corev1.PodSpec{NodeName: p.node, Containers: []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: p.ipv4, PodIPs: []corev1.PodIP{{IP: p.ipv4}, {IP: p.ipv6}},
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
				{Type: corev1.ContainersReady, Status: ready}, {Type: corev1.PodReady, Status: ready},
			},
		},
	}
	for _, c := range containerPorts {
		pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{Name: c.name, Protocol: c.proto, ContainerPort: c.number})
	}
	return pod
}

// turnPod makes a pod ready or not, or has it leave.
func (w *world) turnPod(ctx context.Context, among []*worldPod) error {
	if len(among) == 0 {
		return nil
	}
	p := pick(w, among)
	if !p.leaving && w.chance(25) {
		p.leaving = true
		_, err := w.lab.Request(ctx, http.MethodDelete, "/api/v1/namespaces/"+namespace+"/pods/"+p.name+"?gracePeriodSeconds=3600", "", nil)
		if err != nil {
			return err
		}
	} else {
		p.ready = !p.ready
		if err := w.lab.Apply(ctx, p.object()); err != nil {
			return err
		}
	}
	return w.follow(ctx, p.app)
}

// fewestPods is how many pods a world keeps, however the dice fall.
const fewestPods = 8

func (w *world) replacePod(ctx context.Context) error {
	if len(w.pods) == 0 {
		return w.addPod(ctx, pick(w, apps[:len(apps)-1]), pick(w, []string{"n1", "n2", "n3"}))
	}
	p := pick(w, w.pods)
	if leaving := slices.DeleteFunc(slices.Clone(w.pods), func(p *worldPod) bool { return !p.leaving }); len(leaving) > 0 {
		p = pick(w, leaving)
	}
	w.pods = slices.DeleteFunc(w.pods, func(o *worldPod) bool { return o == p })
	if err := w.lab.Delete(ctx, "Pod", namespace, p.name); err != nil {
		return err
	}
	// Its slices by hand go with it: an endpoint without a pod is another matter.
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		s := w.services[name]
		if s.app != "" || !s.lists(p.name) {
			continue
		}
		if err := w.writeSlices(ctx, s, w.handMade(s)); err != nil {
			return err
		}
	}
	if len(w.pods) >= fewestPods && w.chance(15) {
		return w.follow(ctx, p.app)
	}
	return w.addPod(ctx, p.app, pick(w, []string{"n1", "n2", "n3"}))
}

func (s *worldService) lists(pod string) bool {
	for _, sl := range s.slices {
		for _, e := range sl.Endpoints {
			if e.TargetRef != nil && e.TargetRef.Name == pod {
				return true
			}
		}
	}
	return false
}

// follow writes the slices of the Services that select an app.
func (w *world) follow(ctx context.Context, app string) error {
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		if s := w.services[name]; s.app == app {
			if err := w.writeSlices(ctx, s, w.controlled(s)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) addService(ctx context.Context) error {
	w.made++
	s := &worldService{number: w.made, pending: w.chance(10), slices: map[string]discoveryv1.EndpointSlice{}}
	s.Name, s.Namespace = fmt.Sprintf("s-%d", w.made), namespace
	if w.chance(50) {
		s.app = pick(w, apps)
		s.Spec.Selector = map[string]string{"app": s.app}
	}
	w.families(s)
	switch n := w.dice.IntN(100); {
	case n < 5:
		s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeClusterIP, corev1.ClusterIPNone
	case n < 8:
		s.app, s.Spec = "", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"}
	default:
		s.Spec.Type = w.someType()
	}
	w.features(s)
	if refused, err := w.apply(ctx, s); refused || err != nil {
		return err
	}
	w.services[s.Name] = s
	if s.app != "" {
		return w.writeSlices(ctx, s, w.controlled(s))
	}
	return w.writeSlices(ctx, s, w.handMade(s))
}

// apply tells whether the API server takes it; what it does not take is no state of a cluster.
func (w *world) apply(ctx context.Context, s *worldService) (refused bool, err error) {
	err = w.lab.Apply(ctx, s.Service)
	var e *lab.APIError
	if errors.As(err, &e) && e.Code == http.StatusUnprocessableEntity {
		w.refused++
		return true, nil
	}
	return false, err
}

func (w *world) families(s *worldService) {
	single, both := corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyRequireDualStack
	switch n := w.dice.IntN(100); {
	case n < 20:
		s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &single, []corev1.IPFamily{corev1.IPv4Protocol}
	case n < 40:
		s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &single, []corev1.IPFamily{corev1.IPv6Protocol}
	case n < 70:
		s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &both, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	default:
		s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &both, []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	}
}

func (w *world) someType() corev1.ServiceType {
	return pick(w, []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer})
}

// alter gives a Service other features, sometimes another type.
func (w *world) alter(ctx context.Context, s *worldService) error {
	before := *s.DeepCopy()
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if s.Spec.ClusterIP != corev1.ClusterIPNone && w.chance(40) {
		s.Spec.Type = w.someType()
	}
	w.features(s)
	refused, err := w.apply(ctx, s)
	if refused {
		s.Service = before
	}
	if refused || err != nil {
		return err
	}
	if s.app != "" {
		return w.writeSlices(ctx, s, w.controlled(s))
	}
	return w.writeSlices(ctx, s, w.handMade(s)) // its ports may be others
}

// features sets everything of a Service that may change while it is there.
func (w *world) features(s *worldService) {
	sp := &s.Spec
	sp.PublishNotReadyAddresses = w.chance(10)
	sp.SessionAffinity, sp.SessionAffinityConfig = "", nil
	sp.TrafficDistribution, sp.InternalTrafficPolicy, sp.ExternalTrafficPolicy = nil, nil, ""
	sp.ExternalIPs, sp.LoadBalancerSourceRanges, sp.AllocateLoadBalancerNodePorts = nil, nil, nil
	s.Status = corev1.ServiceStatus{}
	s.Labels = nil
	if sp.Type == corev1.ServiceTypeExternalName {
		return
	}
	w.ports(s)
	headless := sp.ClusterIP == corev1.ClusterIPNone
	if w.chance(4) {
		s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
	}
	if w.chance(15) && !headless {
		sp.SessionAffinity = corev1.ServiceAffinityClientIP
		if w.chance(50) {
			sp.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60 + w.dice.IntN(1000)))}}
		}
	}
	if w.chance(20) {
		sp.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if w.chance(15) {
		sp.TrafficDistribution = new(pick(w, []string{"PreferClose", "PreferSameNode"}))
	}
	if headless {
		return
	}
	if w.chance(20) {
		sp.ExternalIPs = s.addresses(121)
		if len(sp.IPFamilies) == 1 && w.chance(15) { // one of a family that the Service does not have
			sp.ExternalIPs = (&worldService{number: s.number, Service: corev1.Service{Spec: corev1.ServiceSpec{IPFamilies: bothFamilies}}}).addresses(121)
		}
	}
	outside := sp.Type != corev1.ServiceTypeClusterIP || len(sp.ExternalIPs) > 0
	if outside && w.chance(45) {
		sp.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if sp.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	if w.chance(25) {
		sp.AllocateLoadBalancerNodePorts = new(false)
	}
	if w.chance(35) {
		sp.LoadBalancerSourceRanges = some(w, s.ofFamilies("192.0.2.0/24", "10.244.1.0/24", "172.30.0.11/32", "2001:db8::/32", "fd00:244:1::/64", "0.0.0.0/0"), 50)
	}
	if s.pending {
		return
	}
	proxied := w.chance(10)
	for _, a := range s.addresses(1) {
		in := corev1.LoadBalancerIngress{IP: a, IPMode: new(corev1.LoadBalancerIPModeVIP)}
		if proxied {
			in.IPMode = new(corev1.LoadBalancerIPModeProxy)
		}
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, in)
	}
}

var bothFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// addresses are external ones of the Service's own, of its families.
func (s *worldService) addresses(from int) []string {
	i := from + s.number%120
	return s.ofFamilies(fmt.Sprintf("198.51.100.%d", i), fmt.Sprintf("fd00:1b::%x", i))
}

// ofFamilies are those addresses or ranges that are of the Service's families.
func (s *worldService) ofFamilies(of ...string) []string {
	var out []string
	for _, a := range of {
		if slices.Contains(s.Spec.IPFamilies, familyOf(a)) {
			out = append(out, a)
		}
	}
	return out
}

// ports are one to three. A single one may go without a name.
func (w *world) ports(s *worldService) {
	offers := []corev1.ServicePort{
		{Name: "web", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "alt", Protocol: corev1.ProtocolTCP, Port: 81},
		{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}, {Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53},
		{Name: "sip", Protocol: corev1.ProtocolSCTP, Port: 5060},
	}
	w.dice.Shuffle(len(offers), func(i, j int) { offers[i], offers[j] = offers[j], offers[i] })
	s.Spec.Ports = slices.Clone(offers[:1+w.dice.IntN(3)])
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		p.TargetPort = intstr.FromString(p.Name)
		if w.chance(50) {
			p.TargetPort = intstr.FromInt32(targetOf(p.Name))
		}
	}
	if len(s.Spec.Ports) == 1 && w.chance(40) {
		s.Spec.Ports[0].Name = ""
	}
}

func targetOf(name string) int32 {
	for _, c := range containerPorts {
		if c.name == name {
			return c.number
		}
	}
	return 0
}

// writeSlices brings a Service's slices to a state.
func (w *world) writeSlices(ctx context.Context, s *worldService, want []discoveryv1.EndpointSlice) error {
	keep := map[string]discoveryv1.EndpointSlice{}
	for _, sl := range want {
		keep[sl.Name] = sl
		if err := w.lab.Apply(ctx, sl); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.slices)) {
		if _, there := keep[name]; !there {
			if err := w.lab.Delete(ctx, "EndpointSlice", namespace, name); err != nil {
				return err
			}
		}
	}
	s.slices = keep
	return nil
}

// slice is an empty one of a family.
func (s *worldService) slice(f corev1.IPFamily, suffix string) discoveryv1.EndpointSlice {
	sl := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%s%s", s.Name, map[corev1.IPFamily]string{corev1.IPv4Protocol: "4", corev1.IPv6Protocol: "6"}[f], suffix), Namespace: namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name},
		},
		AddressType: discoveryv1.AddressType(f), Endpoints: []discoveryv1.Endpoint{},
	}
	for _, p := range s.Spec.Ports {
		target := p.TargetPort.IntVal
		if p.TargetPort.Type == intstr.String {
			target = targetOf(p.TargetPort.StrVal)
		}
		sl.Ports = append(sl.Ports, discoveryv1.EndpointPort{Name: new(p.Name), Protocol: new(p.Protocol), Port: new(target)})
	}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		sl.Labels["service.kubernetes.io/headless"] = ""
	}
	return sl
}

func (p *worldPod) endpoint(f corev1.IPFamily) discoveryv1.Endpoint {
	addr := p.ipv4
	if f == corev1.IPv6Protocol {
		addr = p.ipv6
	}
	return discoveryv1.Endpoint{
		Addresses: []string{addr}, NodeName: new(p.node), Zone: new(zoneOf[p.node]),
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: p.name},
	}
}

// controlled are the slices that the EndpointSlice controller would write.
func (w *world) controlled(s *worldService) []discoveryv1.EndpointSlice {
	var out []discoveryv1.EndpointSlice
	for _, f := range s.Spec.IPFamilies {
		sl := s.slice(f, "")
		sl.Labels["endpointslice.kubernetes.io/managed-by"] = "endpointslice-controller.k8s.io"
		for _, p := range w.ofApp(s.app) {
			e := p.endpoint(f)
			ready := s.Spec.PublishNotReadyAddresses || p.ready && !p.leaving
			e.Conditions = discoveryv1.EndpointConditions{Ready: &ready, Serving: new(p.ready), Terminating: new(p.leaving)}
			if d := s.Spec.TrafficDistribution; d != nil && ready {
				e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zoneOf[p.node]}}}
				if *d == "PreferSameNode" {
					e.Hints.ForNodes = []discoveryv1.ForNode{{Name: p.node}}
				}
			}
			sl.Endpoints = append(sl.Endpoints, e)
		}
		out = append(out, sl)
	}
	return out
}

// handMade are slices as somebody might write them.
func (w *world) handMade(s *worldService) []discoveryv1.EndpointSlice {
	var out []discoveryv1.EndpointSlice
	for _, f := range s.Spec.IPFamilies {
		free := slices.Clone(w.pods)
		w.dice.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		var listed []discoveryv1.Endpoint // in the slices before
		for i := range w.dice.IntN(3) {
			sl := s.slice(f, fmt.Sprintf("-%d", i))
			if w.chance(8) && len(sl.Ports) > 1 {
				sl.Ports = sl.Ports[1:] // a port that this slice does not serve
			}
			hints := w.chance(30)
			for range w.dice.IntN(4) {
				if len(listed) > 0 && w.chance(8) {
					// As controllers do when they move an endpoint: it stands in two slices for a while.
					sl.Endpoints = append(sl.Endpoints, pick(w, listed))
					continue
				}
				var e discoveryv1.Endpoint
				if len(free) > 0 && w.chance(80) {
					e = free[0].endpoint(f)
					free = free[1:]
				} else {
					e.Addresses = []string{w.elsewhere(f)}
				}
				if w.chance(5) {
					e.Addresses = append(e.Addresses, w.elsewhere(f))
				}
				w.conditions(&e)
				if hints || w.chance(5) {
					e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: pick(w, []string{"west", "east"})}}}
				}
				sl.Endpoints = append(sl.Endpoints, e)
			}
			listed = append(listed, sl.Endpoints...)
			out = append(out, sl)
		}
	}
	return out
}

// elsewhere is an address outside of the cluster.
func (w *world) elsewhere(f corev1.IPFamily) string {
	w.made++
	if f == corev1.IPv6Protocol {
		return fmt.Sprintf("2001:db8:1::%x", w.made)
	}
	return fmt.Sprintf("192.0.2.%d", 10+w.made%200)
}

func (w *world) conditions(e *discoveryv1.Endpoint) {
	switch n := w.dice.IntN(100); {
	case n < 10: // all left out, which means ready
	case n < 60:
		e.Conditions = discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}
	case n < 75:
		e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(false)}
	case n < 90:
		e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	case n < 95:
		e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(true)}
	default:
		e.Conditions = discoveryv1.EndpointConditions{Ready: new(false)}
	}
}
