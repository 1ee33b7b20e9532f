package main

import (
	"fmt"
	"net/netip"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/svcnet/svcnet/test/lab"
)

// namespace is where all objects lie.
const namespace = "store"

// recordedNode is the node that is recorded; the others have backends, and no kube-proxy.
const recordedNode = "n1"

// zones of the nodes, in order.
var zones = []string{"west", "east", "west"}

// A place is a pod of the objects. All of them serve TCP 8080 and 9090 and UDP 5353, and are labelled app=web.
type place struct {
	name, node string
	// number is the last part of its addresses.
	number byte
	host   bool // uses its node's network
}

var places = []place{
	{name: "client-1", node: "n1", number: 10},
	{name: "a1", node: "n1", number: 20},
	{name: "a2", node: "n1", number: 21},
	{name: "b1", node: "n2", number: 20},
	{name: "c1", node: "n3", number: 20},
	{name: "c2", node: "n3", number: 21},
	{name: "host-1", node: "n1", host: true},
}

// spec is the pod that the lab shall make.
func (p place) spec() lab.PodSpec {
	s := lab.PodSpec{Name: p.name, Namespace: namespace, Node: p.node, HostNetwork: p.host}
	if !p.host {
		n := strings.TrimPrefix(p.node, "n")
		s.IPv4 = netip.MustParseAddr(fmt.Sprintf("10.244.%s.%d", n, p.number))
		s.IPv6 = netip.MustParseAddr(fmt.Sprintf("fd00:244:%s::%d", n, p.number))
	}
	if p.name != "client-1" {
		s.Labels = map[string]string{"app": "web"}
	}
	return s
}

// A backend is a pod in the state that the slices show.
type backend struct {
	pod   string
	state lab.Endpoint
}

// The states that most backends are in.
var (
	isReady    = lab.Endpoint{Ready: true, Serving: true}
	isUnready  = lab.Endpoint{}
	isLeaving  = lab.Endpoint{Serving: true, Terminating: true}
	isFinished = lab.Endpoint{Terminating: true}
)

// forZones and forNodes are ready backends with hints.
func forZones(z ...string) lab.Endpoint { e := isReady; e.ForZones = z; return e }
func forNodes(n ...string) lab.Endpoint { e := isReady; e.ForNodes = n; return e }

func ready(pods ...string) []backend {
	var out []backend
	for _, p := range pods {
		out = append(out, backend{p, isReady})
	}
	return out
}

// A group is the endpoints of one EndpointSlice, or of a pair of them, one a family.
type group struct {
	backends []backend
	// ports where the Service's first port is not served at TCP 8080, in the notation of lab.Ports.
	ports  []string
	labels map[string]string
}

// together puts all backends into one group.
func together(backends ...backend) []group { return []group{{backends: backends}} }

// A scene is one Service and what its slices hold. Its place in the list gives it its addresses and ports: they are
// the same in every recording.
type scene struct {
	name string
	// spec are the fields of its spec that are not as usual, metadata those of its metadata, in YAML. Usual is a
	// dual-stack Service of type ClusterIP with port 80/TCP, named http.
	spec, metadata string
	// balancer is the ipMode of its load balancer's addresses; empty: it has none.
	balancer string
	groups   []group
}

const (
	vip     = "VIP"
	proxied = "Proxy"
)

// scenes are a Service for every feature that decides what kube-proxy programs. New ones go to the end, or all those
// behind them get other addresses.
var scenes = []scene{
	{name: "web", spec: `selector: {app: web}`, groups: together(ready("a1", "a2", "b1", "c1", "c2", "host-1")...)},
	{name: "one", spec: `ports: [{port: 443, targetPort: 8080}]`, groups: []group{{ready("c1"), []string{"TCP:8080"}, nil}}},
	{name: "two-ports", spec: `ports: [{name: http, port: 80}, {name: admin, port: 81}]`,
		groups: []group{{ready("a1", "c1"), []string{"http=TCP:8080", "admin=TCP:9090"}, nil}}},
	{name: "dns", spec: `ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]`,
		groups: []group{{ready("a1", "c1", "c2"), []string{"dns=UDP:5353", "dns-tcp=TCP:8080"}, nil}}},
	{name: "sctp", spec: `ports: [{name: diameter, port: 3868, protocol: SCTP}]`,
		groups: []group{{ready("a1", "c1"), []string{"diameter=SCTP:3868"}, nil}}},
	{name: "named-target-ports", groups: []group{{backends: ready("a1")}, {ready("c1", "c2"), []string{"http=TCP:9090"}, nil}}},
	{name: "sticky", spec: `{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 120}}}`, groups: together(ready("a1", "a2", "c1")...)},
	{name: "four-only", spec: `{type: NodePort, ipFamilies: [IPv4], ipFamilyPolicy: SingleStack}`, groups: together(ready("a1", "c1")...)},
	{name: "six-only", spec: `{type: NodePort, ipFamilies: [IPv6], ipFamilyPolicy: SingleStack}`, groups: together(ready("a1", "c1")...)},
	{name: "host-network", groups: together(ready("host-1")...)},

	{name: "no-endpoints", groups: together()},
	{name: "none-ready", groups: together(backend{"a1", isUnready}, backend{"c1", isUnready})},
	{name: "all-leaving", groups: together(backend{"a1", isLeaving}, backend{"c1", isLeaving}, backend{"c2", isFinished})},
	{name: "some-ready", groups: together(backend{"a1", isReady}, backend{"a2", isUnready}, backend{"c1", isReady}, backend{"c2", isLeaving})},
	{name: "publish-unready", spec: `publishNotReadyAddresses: true`, groups: together(ready("a1", "c1")...)},
	{name: "overlapping-slices", groups: []group{{backends: ready("a1", "c1")}, {backends: ready("c1", "c2")}}},
	{name: "leaving-and-back", groups: []group{{backends: []backend{{"a1", isLeaving}, {"c1", isReady}}}, {backends: ready("a1")}}},
	{name: "hidden-slice", groups: []group{{backends: ready("a1")}, {backends: ready("c1"), labels: map[string]string{"service.kubernetes.io/service-proxy-name": "other"}}}},

	{name: "internal-local", spec: `internalTrafficPolicy: Local`, groups: together(ready("a1", "a2", "c1")...)},
	{name: "internal-local-none", spec: `internalTrafficPolicy: Local`, groups: together(ready("c1", "c2")...)},
	{name: "zone-hints", groups: together(backend{"a1", forZones("west")}, backend{"a2", forZones("east")}, backend{"c1", forZones("west")})},
	{name: "zone-hints-asked", metadata: `annotations: {service.kubernetes.io/topology-mode: Auto}`,
		groups: together(backend{"a1", forZones("west")}, backend{"a2", forZones("east")}, backend{"c1", forZones("west")})},
	{name: "zone-hints-incomplete", groups: together(backend{"a1", forZones("west")}, backend{"a2", forZones("east")}, backend{"c1", isReady})},
	{name: "node-hints", spec: `trafficDistribution: PreferSameNode`, groups: together(backend{"a1", forNodes("n1")}, backend{"c1", forNodes("n3")})},

	{name: "node-port", spec: `type: NodePort`, groups: together(ready("a1", "a2", "c1", "c2")...)},
	{name: "node-port-udp", spec: `{type: NodePort, ports: [{name: dns, port: 53, protocol: UDP}]}`, groups: []group{{ready("a1", "c1"), []string{"dns=UDP:5353"}, nil}}},
	{name: "node-port-none", spec: `type: NodePort`, groups: together()},
	{name: "node-port-local", spec: `{type: NodePort, externalTrafficPolicy: Local}`, groups: together(ready("a1", "a2", "c1")...)},
	{name: "node-port-local-none", spec: `{type: NodePort, externalTrafficPolicy: Local}`, groups: together(ready("c1", "c2")...)},
	{name: "node-port-local-leaving", spec: `{type: NodePort, externalTrafficPolicy: Local}`, groups: together(backend{"a1", isLeaving}, backend{"c1", isReady})},
	{name: "node-port-all-local", spec: `{type: NodePort, externalTrafficPolicy: Local, internalTrafficPolicy: Local}`, groups: together(ready("a1", "c1")...)},
	{name: "external-ip", spec: `externalIPs: ["198.51.100.200", "fd00:1b::200"]`, groups: together(ready("a1", "c1")...)},
	{name: "external-ip-local", spec: `{type: NodePort, externalTrafficPolicy: Local, externalIPs: ["198.51.100.201", "fd00:1b::201"]}`, groups: together(ready("a2", "c2")...)},

	{name: "balancer", spec: `type: LoadBalancer`, balancer: vip, groups: together(ready("a1", "a2", "c1", "c2")...)},
	{name: "balancer-pending", spec: `type: LoadBalancer`, groups: together(ready("a1", "c1")...)},
	{name: "balancer-none", spec: `type: LoadBalancer`, balancer: vip, groups: together()},
	{name: "balancer-local", spec: `{type: LoadBalancer, externalTrafficPolicy: Local}`, balancer: vip, groups: together(ready("a1", "c1")...)},
	{name: "balancer-local-none", spec: `{type: LoadBalancer, externalTrafficPolicy: Local}`, balancer: vip, groups: together(ready("c1", "c2")...)},
	{name: "balancer-local-sticky", spec: `{type: LoadBalancer, externalTrafficPolicy: Local, sessionAffinity: ClientIP}`, balancer: vip, groups: together(ready("a1", "a2", "c1")...)},
	{name: "balancer-ranges", spec: `{type: LoadBalancer, loadBalancerSourceRanges: [192.0.2.0/24, 10.244.1.0/25, "2001:db8::/32", "fd00:244:1::/64"]}`, balancer: vip, groups: together(ready("a1", "c1")...)},
	{name: "balancer-ranges-node", spec: `{type: LoadBalancer, loadBalancerSourceRanges: [172.30.0.0/24, "fd00:30::/64"]}`, balancer: vip, groups: together(ready("a1", "c1")...)},
	{name: "balancer-ranges-all", spec: `{type: LoadBalancer, loadBalancerSourceRanges: [0.0.0.0/0, "::/0"]}`, balancer: vip, groups: together(ready("a1", "c1")...)},
	{name: "balancer-ranges-local", spec: `{type: LoadBalancer, externalTrafficPolicy: Local, loadBalancerSourceRanges: [192.0.2.0/24, "2001:db8::/32"]}`, balancer: vip, groups: together(ready("a1", "c1")...)},
	{name: "balancer-proxied", spec: `type: LoadBalancer`, balancer: proxied, groups: together(ready("a1", "c1")...)},
	{name: "balancer-no-node-port", spec: `{type: LoadBalancer, allocateLoadBalancerNodePorts: false}`, balancer: vip, groups: together(ready("a1", "c1")...)},

	{name: "headless", spec: `{clusterIP: None, clusterIPs: [None]}`, groups: []group{{backends: ready("a1", "a2"), labels: map[string]string{"service.kubernetes.io/headless": ""}}}},
	{name: "external-name", spec: `{type: ExternalName, externalName: db.example.com}`},
	{name: "other-proxy", metadata: `labels: {service.kubernetes.io/service-proxy-name: other}`,
		groups: []group{{backends: ready("a1"), labels: map[string]string{"service.kubernetes.io/service-proxy-name": "other"}}}},
}

// service is the Service of the scene with this number, from 1.
func (s *scene) service(number int) (map[string]any, error) {
	spec, err := fields(s.spec)
	if err != nil {
		return nil, fmt.Errorf("spec of Service %s: %w", s.name, err)
	}
	metadata, err := fields(s.metadata)
	if err != nil {
		return nil, fmt.Errorf("metadata of Service %s: %w", s.name, err)
	}
	metadata["name"], metadata["namespace"] = s.name, namespace
	object := map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
	if spec["type"] != "ExternalName" {
		addresses(spec, number)
	}
	if s.balancer != "" {
		var ingress []any
		for _, ip := range []string{fmt.Sprintf("198.51.100.%d", number), fmt.Sprintf("fd00:1b::%d", number)} {
			ingress = append(ingress, map[string]any{"ip": ip, "ipMode": s.balancer})
		}
		object["status"] = map[string]any{"loadBalancer": map[string]any{"ingress": ingress}}
	}
	return object, nil
}

func fields(text string) (map[string]any, error) {
	out := map[string]any{}
	return out, yaml.Unmarshal([]byte(text), &out)
}

// addresses fills in what the API server would choose, and what a Service usually has.
func addresses(spec map[string]any, number int) {
	usual := func(field string, value any) {
		if spec[field] == nil {
			spec[field] = value
		}
	}
	usual("type", "ClusterIP")
	usual("ipFamilyPolicy", "RequireDualStack")
	usual("ipFamilies", []any{"IPv4", "IPv6"})
	usual("ports", []any{map[string]any{"name": "http", "port": 80, "targetPort": 8080}})
	var clusterIPs []any
	for _, family := range spec["ipFamilies"].([]any) {
		ip := fmt.Sprintf("10.96.1.%d", number)
		if family == "IPv6" {
			ip = fmt.Sprintf("fd00:96::%d", 100+number)
		}
		clusterIPs = append(clusterIPs, ip)
	}
	usual("clusterIPs", clusterIPs)
	usual("clusterIP", clusterIPs[0])
	external := spec["type"] == "NodePort" || spec["type"] == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false
	for i, p := range spec["ports"].([]any) {
		port := p.(map[string]any)
		if port["protocol"] == nil {
			port["protocol"] = "TCP"
		}
		if external {
			port["nodePort"] = 31000 + 10*number + i
		}
	}
	if spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local" {
		spec["healthCheckNodePort"] = 30000 + number
	}
}

// slices are the EndpointSlices of the scene, among the pods that were made.
func (s *scene) slices(pods map[string]*lab.Pod) ([]*discoveryv1.EndpointSlice, error) {
	var out []*discoveryv1.EndpointSlice
	for i, g := range s.groups {
		ports := g.ports
		if ports == nil {
			ports = []string{"http=TCP:8080"}
		}
		var endpoints []lab.Endpoint
		for _, b := range g.backends {
			e := b.state
			if e.Pod = pods[b.pod]; e.Pod == nil {
				return nil, fmt.Errorf("slices of Service %s: there is no pod %s", s.name, b.pod)
			}
			e.Zone = zones[e.Pod.Node.Name[1]-'1']
			endpoints = append(endpoints, e)
		}
		for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			name := fmt.Sprintf("%s-%s-%d", s.name, strings.ToLower(string(family)), i+1)
			slice := lab.EndpointSlice(namespace, s.name, name, family, lab.Ports(ports...), endpoints...)
			for k, v := range g.labels {
				slice.Labels[k] = v
			}
			out = append(out, slice)
		}
	}
	return out, nil
}
