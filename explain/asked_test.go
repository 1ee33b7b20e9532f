package explain

import (
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/report"
)

const askedObjects = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: store, labels: {a: b}}
spec: {type: NodePort, clusterIP: 10.96.0.20, clusterIPs: [10.96.0.20], ipFamilies: [IPv4], ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30080, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: store, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints:
- {addresses: [10.244.1.2], conditions: {ready: true}, nodeName: n1}
- {addresses: [10.244.2.2], conditions: {ready: true}, nodeName: n2}
- {addresses: [10.244.2.3], conditions: {ready: false}, nodeName: n2}
`

// askedFor audits a node with these objects and a rule that says that kube-proxy is there.
func askedFor(t *testing.T, objects string, o AuditOptions) (digest string, a Asked) {
	t.Helper()
	s := &snapshot.Snapshot{Node: "n1", Evidence: []snapshot.Evidence{
		{File: "objects.yaml", Format: snapshot.Objects, Status: snapshot.OK, Data: []byte(objects)},
		{File: "v4", Format: snapshot.IPTablesSave, Family: 4, Backend: "nft", Status: snapshot.OK, Data: []byte(
			"*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n" +
				"-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n")},
	}}
	_, a, err := AuditAsked(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return a.Digests["store/web"], a
}

// TestAsked holds which changes of objects ask for other rules.
func TestAsked(t *testing.T) {
	was, a := askedFor(t, askedObjects, AuditOptions{})
	if was == "" || len(a.Digests) != 1 {
		t.Fatalf("digests %q", a.Digests)
	}
	if len(a.Differ) == 0 {
		t.Error("the rules lack the Service, and nothing differs")
	}
	tests := []struct {
		name, old, new string
		same           bool
	}{
		{"a label", "labels: {a: b}", "labels: {a: c}", true},
		{"an annotation of the slice", "labels: {kubernetes.io/service-name: web}", "labels: {kubernetes.io/service-name: web}, annotations: {x: z}", true},
		{"an endpoint that is not ready goes", "- {addresses: [10.244.2.3], conditions: {ready: false}, nodeName: n2}\n", "", true},
		{"the other node of an endpoint", "10.244.2.2], conditions: {ready: true}, nodeName: n2", "10.244.2.2], conditions: {ready: true}, nodeName: n3", true},
		{"an endpoint becomes ready", "ready: false", "ready: true", false},
		{"an endpoint goes", "- {addresses: [10.244.2.2], conditions: {ready: true}, nodeName: n2}\n", "", false},
		{"another address", "10.244.1.2", "10.244.1.9", false},
		{"another target port", "ports: [{name: http, port: 8080", "ports: [{name: http, port: 8081", false},
		{"another node port", "30080", "30081", false},
		{"affinity", "type: NodePort", "type: NodePort, sessionAffinity: ClientIP", false},
		{"a policy", "type: NodePort", "type: NodePort, externalTrafficPolicy: Local", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			is, _ := askedFor(t, replaceOnce(t, askedObjects, tt.old, tt.new), AuditOptions{})
			if (is == was) != tt.same {
				t.Errorf("the same: %v, want %v", is == was, tt.same)
			}
		})
	}
	// Headless Services are nobody's.
	if is, _ := askedFor(t, replaceOnce(t, askedObjects, "type: NodePort, clusterIP: 10.96.0.20, clusterIPs: [10.96.0.20]", "clusterIP: None"), AuditOptions{}); is != "" {
		t.Error("a headless Service asks for rules")
	}
	// One that was not asked for has no digest; what is ignored differs all the same.
	if is, _ := askedFor(t, askedObjects, AuditOptions{Namespace: "other"}); is != "" {
		t.Error("a Service that nobody asked for has a digest")
	}
	var ignore []Ignored
	for _, f := range a.Differ {
		ignore = append(ignore, Ignored{ID: f.ID})
	}
	if is, b := askedFor(t, askedObjects, AuditOptions{Ignore: ignore}); is != was || len(b.Differ) != len(a.Differ) {
		t.Errorf("what is ignored: %d differences, want %d", len(b.Differ), len(a.Differ))
	}
}

func replaceOnce(t *testing.T, s, from, to string) string {
	t.Helper()
	if !strings.Contains(s, from) {
		t.Fatalf("no %q", from)
	}
	return strings.Replace(s, from, to, 1)
}

// TestJudged: a proxy that says nothing does not keep anybody from seeing that its rules are behind.
func TestJudged(t *testing.T) {
	for _, tt := range []struct {
		unknown []string
		want    bool
	}{
		{nil, true},
		{[]string{"proxy-watch-stalled"}, true},
		{[]string{"proxy-watch-stalled", "missing-endpoint-rule"}, false},
		{[]string{"missing-endpoint-rule"}, false},
		{[]string{"proxy-not-running"}, true},
	} {
		r := &report.Report{}
		for _, id := range tt.unknown {
			r.Unknown = append(r.Unknown, report.Unknown{ID: id})
		}
		if got := AskedOf(nil, r).Judged; got != tt.want {
			t.Errorf("%q: %v", tt.unknown, got)
		}
	}
}
