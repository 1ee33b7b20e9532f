package explain

import (
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/test/scale"
)

// TestOrderOfEndpoints: a node may keep the endpoints of each Service in an order of its own, and Services are alike by
// what is done with the endpoints in that order.
func TestOrderOfEndpoints(t *testing.T) {
	const services, endpoints = 200, 5
	node, files := scale.NewFleet(services, endpoints).Node(3)
	dir := t.TempDir()
	if err := scale.Write(dir, files); err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.Load([]string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Node = node
	m := newModel(s)
	l := m.likeness()
	kinds := make(map[string]bool)
	for _, sp := range m.plan.Ports {
		key, ok := l.of(sp)
		if !ok {
			t.Fatalf("%s/%s is like no other", sp.Namespace, sp.Name)
		}
		kinds[string(key)] = true
	}
	// None on the node, or one of five: the place of that one in the chain decides about its share.
	if len(m.plan.Ports) != services || len(kinds) > 1+endpoints {
		t.Errorf("%d Services are of %d kinds", len(m.plan.Ports), len(kinds))
	}
}

// TestEndpointsOfOneAddress: rules that name only an address mean all endpoints with it.
func TestEndpointsOfOneAddress(t *testing.T) {
	m := newModel(&snapshot.Snapshot{Node: "n1", Evidence: []snapshot.Evidence{
		{File: "objects.yaml", Format: snapshot.Objects, Status: snapshot.OK, Data: []byte(sharedAddress)},
		{File: "v4", Format: snapshot.IPTablesSave, Family: 4, Backend: "nft", Status: snapshot.OK, Data: []byte(
			"*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n")},
	}})
	l := m.likeness()
	keys := make(map[string]string)
	for _, sp := range m.plan.Ports {
		key, ok := l.of(sp)
		if !ok {
			t.Fatalf("%s is like no other", sp.Name)
		}
		keys[sp.Name] = string(key)
	}
	if keys["twice"] == keys["two"] || keys["two"] == "" || keys["two"] != keys["other-two"] {
		t.Errorf("kinds by Service: %q", keys)
	}
}

const sharedAddress = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: twice, namespace: a}, spec: {clusterIP: 10.96.0.20, clusterIPs: [10.96.0.20], ipFamilies: [IPv4], ports: [{port: 80}]}}
- {apiVersion: v1, kind: Service, metadata: {name: two, namespace: a}, spec: {clusterIP: 10.96.0.21, clusterIPs: [10.96.0.21], ipFamilies: [IPv4], ports: [{port: 80}]}}
- {apiVersion: v1, kind: Service, metadata: {name: other-two, namespace: a}, spec: {clusterIP: 10.96.0.22, clusterIPs: [10.96.0.22], ipFamilies: [IPv4], ports: [{port: 80}]}}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: twice-1, namespace: a, labels: {kubernetes.io/service-name: twice}}, addressType: IPv4, ports: [{name: "", port: 8080}], endpoints: [{addresses: [10.244.2.2], nodeName: n2}]}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: twice-2, namespace: a, labels: {kubernetes.io/service-name: twice}}, addressType: IPv4, ports: [{name: "", port: 8081}], endpoints: [{addresses: [10.244.2.2], nodeName: n2}]}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: two-1, namespace: a, labels: {kubernetes.io/service-name: two}}, addressType: IPv4, ports: [{name: "", port: 8080}], endpoints: [{addresses: [10.244.2.3], nodeName: n2}]}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: two-2, namespace: a, labels: {kubernetes.io/service-name: two}}, addressType: IPv4, ports: [{name: "", port: 8081}], endpoints: [{addresses: [10.244.2.4], nodeName: n2}]}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: other-1, namespace: a, labels: {kubernetes.io/service-name: other-two}}, addressType: IPv4, ports: [{name: "", port: 8080}], endpoints: [{addresses: [10.244.2.5], nodeName: n2}]}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: other-2, namespace: a, labels: {kubernetes.io/service-name: other-two}}, addressType: IPv4, ports: [{name: "", port: 8081}], endpoints: [{addresses: [10.244.2.6], nodeName: n2}]}
`
