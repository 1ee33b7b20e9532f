package lab

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestDecode(t *testing.T) {
	var empty, balanced corev1.Service
	empty.Name, balanced.Name = "a", "b"
	balanced.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
	pod := &Pod{Name: "web-1", Namespace: "default", Node: &Node{Name: "n1"}, IPv4: podCIDRIPv4(1).Addr(), IPv6: podCIDRIPv6(1).Addr()}
	tests := []struct {
		name string
		in   []any
		want []string // kind, path, whether there is a status
	}{
		{"yaml", []any{"kind: Service\nmetadata: {name: a}\n---\n# nothing\n---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {}\n"},
			[]string{"Service /api/v1/namespaces/default/services/a false", "Node /api/v1/nodes/n1 true"}},
		{"bytes", []any{[]byte("---\nkind: Pod\nmetadata: {name: a, namespace: x}\n")},
			[]string{"Pod /api/v1/namespaces/x/pods/a false"}},
		{"types", []any{empty, &balanced},
			[]string{"Service /api/v1/namespaces/default/services/a false", "Service /api/v1/namespaces/default/services/b true"}},
		{"slices", []any{EndpointSlices("x", "web", Ports("TCP:8080"), Ready(pod)...)},
			[]string{"EndpointSlice /apis/discovery.k8s.io/v1/namespaces/x/endpointslices/web-ipv4 false",
				"EndpointSlice /apis/discovery.k8s.io/v1/namespaces/x/endpointslices/web-ipv6 false"}},
		{"map", []any{map[string]any{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": map[string]any{"name": "a"}}},
			[]string{"EndpointSlice /apis/discovery.k8s.io/v1/namespaces/default/endpointslices/a false"}},
	}
	for _, tt := range tests {
		objs, err := decode(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got []string
		for _, o := range objs {
			_, status := o.fields["status"]
			got = append(got, fmt.Sprintf("%s %s %v", o.kind, o.path(o.namespace, o.name), status))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	for _, bad := range []any{"kind: Lease\nmetadata: {name: a}", "kind: Service", "{", 7} {
		if objs, err := decode([]any{bad}); err == nil {
			t.Errorf("%v is taken as %+v", bad, objs)
		}
	}
}

func TestPorts(t *testing.T) {
	got := Ports("TCP:8080", "dns=UDP:53")
	if len(got) != 2 || *got[0].Name != "" || *got[0].Protocol != corev1.ProtocolTCP || *got[0].Port != 8080 ||
		*got[1].Name != "dns" || *got[1].Protocol != corev1.ProtocolUDP || *got[1].Port != 53 {
		t.Errorf("%+v", got)
	}
	s := EndpointSlices("default", "web", got)[1]
	if s.AddressType != discoveryv1.AddressTypeIPv6 || s.Endpoints == nil {
		t.Errorf("a slice without endpoints: %+v", s)
	}
}
