package intent

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/traits"
)

// TestNFTables has what nftables mode does unlike iptables mode.
func TestNFTables(t *testing.T) {
	local := []func(*corev1.Service){loadBalancer, etpLocal}
	tests := []struct {
		name     string
		versions []string
		edits    []func(*corev1.Service)
		eps      []string
		cells    []cell
	}{
		{"cluster IP", []string{"1.29", "1.36"}, nil, bothSides, []cell{{localPod, ClusterIP, all}, {theNode, ClusterIP, allMasq}, {hairpin, ClusterIP, theHairpin}}},
		{"ETP Cluster", []string{"1.29", "1.36"}, []func(*corev1.Service){loadBalancer}, bothSides, []cell{
			{localPod, LoadBalancer, allMasq}, {outsider, NodePort, allMasq}, {outsider, ExternalIP, allMasq}}},
		{"ETP Local", []string{"1.29", "1.31", "1.36"}, local, bothSides, []cell{
			{outsider, NodePort, here}, {localPod, LoadBalancer, all}, {theNode, LoadBalancer, allMasq}}},
		{"no endpoints: rejected in every hook", []string{"1.29", "1.36"}, []func(*corev1.Service){loadBalancer}, nowhere, []cell{
			{theNode, LoadBalancer, "reject"}, {outsider, ExternalIP, "reject"}, {localPod, ClusterIP, "reject"}, {outsider, NodePort, "reject"}}},
		{"ITP Local, none here", []string{"1.29", "1.36"}, []func(*corev1.Service){itpLocal}, elsewhere, []cell{{localPod, ClusterIP, "drop"}, {theNode, ClusterIP, "drop"}}},
		{"ETP Local, none here", []string{"1.33.6", "1.34", "1.36", ""}, local, elsewhere, []cell{
			{outsider, NodePort, "drop"}, {outsider, LoadBalancer, "drop"}, {localPod, LoadBalancer, there}, {theNode, NodePort, thereMasq}}},
		{"ETP Local, none here: dropped before translation", []string{"1.30", "1.32", "1.33.0", "1.33.5"}, local, elsewhere, []cell{
			{outsider, NodePort, "drop"}, {localPod, LoadBalancer, there}, {theNode, LoadBalancer, "drop"}, {theNode, NodePort, thereMasq}}},
		{"ETP Local, none here: the node's own dropped", []string{"1.29"}, local, elsewhere, []cell{
			{outsider, NodePort, "drop"}, {localPod, LoadBalancer, there}, {theNode, NodePort, "drop"}}},
		{"source ranges, for the node's own connections only", []string{"1.29"}, []func(*corev1.Service){loadBalancer, ranges("203.0.113.0/24")}, bothSides, []cell{
			{localPod, LoadBalancer, allMasq}, {theNode, LoadBalancer, "drop"}, {localPod, NodePort, allMasq}}},
		{"source ranges", []string{"1.30", "1.36"}, []func(*corev1.Service){loadBalancer, ranges("203.0.113.0/24")}, bothSides, []cell{
			{outsider, LoadBalancer, allMasq}, {localPod, LoadBalancer, "drop"}, {theNode, LoadBalancer, "drop"}, {localPod, NodePort, allMasq}}},
	}
	for _, tt := range tests {
		for _, v := range tt.versions {
			p := proxy(v)
			p.Mode = "nftables"
			ask(t, tt.name, p, tt.edits, tt.eps, tt.cells)
		}
	}
	p := proxy("1.33")
	p.Mode = "nftables"
	sp := plan(t, p, service(local...), elsewhere...)
	out := sp.Intend(at(t, sp, LoadBalancer), theNode, p)
	if got := show(sp, out); got != thereMasq || out.Alternative == nil || out.Alternative.Result != "drop" {
		t.Errorf("1.33 of unknown patch level: got %s, alternative %+v", got, out.Alternative)
	}
}

// TestIPVS has what IPVS mode does unlike iptables mode.
func TestIPVS(t *testing.T) {
	const (
		all     = "ipvs 10.244.1.5 10.244.2.6"
		allMasq = "ipvs 10.244.1.5* 10.244.2.6*"
		here    = "ipvs 10.244.1.5"
		there   = "ipvs 10.244.2.6 10.244.3.7"
	)
	local := []func(*corev1.Service){loadBalancer, etpLocal}
	tests := []struct {
		name     string
		versions []string
		edits    []func(*corev1.Service)
		proxy    func(*traits.Proxy)
		eps      []string
		cells    []cell
	}{
		{"cluster IP", []string{"1.14", "1.36"}, nil, nil, bothSides, []cell{{localPod, ClusterIP, all}, {outsider, ClusterIP, allMasq}, {theNode, ClusterIP, allMasq}}},
		{"cluster IP, no detector: the node's own source is a service address", []string{"1.14", "1.36"}, nil, func(p *traits.Proxy) { p.LocalMode, p.ClusterCIDRs = "-", nil }, bothSides, []cell{
			{unseen(localPod), ClusterIP, all}, {outsider, ClusterIP, all}, {theNode, ClusterIP, allMasq}}},
		{"ETP Cluster", []string{"1.14", "1.36"}, []func(*corev1.Service){loadBalancer}, nil, bothSides, []cell{
			{localPod, LoadBalancer, allMasq}, {outsider, NodePort, allMasq}, {outsider, ExternalIP, allMasq}}},
		{"ETP Local is the same for everybody", []string{"1.19", "1.36"}, local, nil, bothSides, []cell{
			{outsider, NodePort, here}, {localPod, LoadBalancer, here}, {theNode, LoadBalancer, here}, {outsider, ExternalIP, here}}},
		{"ETP Local, none here", []string{"1.24", "1.36"}, local, nil, elsewhere, []cell{{outsider, NodePort, there}, {localPod, LoadBalancer, there}}},
		{"ETP Local, none here", []string{"1.18", "1.23"}, local, nil, elsewhere, []cell{
			{outsider, NodePort, "reject"}, {localPod, LoadBalancer, "reject"}, {localPod, ClusterIP, there}}},
		{"ITP Local, none here", []string{"1.23", "1.24", "1.36"}, []func(*corev1.Service){itpLocal}, nil, elsewhere, []cell{{localPod, ClusterIP, "reject"}}},
		{"ITP Local with an external address, none here", []string{"1.24", "1.36"}, []func(*corev1.Service){loadBalancer, itpLocal}, nil, elsewhere, []cell{{localPod, ClusterIP, there}}},
		{"no endpoints", []string{"1.14", "1.36"}, []func(*corev1.Service){loadBalancer}, nil, nowhere, []cell{
			{localPod, ClusterIP, "reject"}, {theNode, LoadBalancer, "reject"}, {outsider, NodePort, "reject"}}},
		{"source ranges", []string{"1.18", "1.24", "1.29", "1.36"}, []func(*corev1.Service){loadBalancer, ranges("203.0.113.0/24")}, nil, bothSides, []cell{
			{outsider, LoadBalancer, allMasq}, {localPod, LoadBalancer, "drop"}, {theNode, LoadBalancer, "drop"}, {localPod, NodePort, allMasq}}},
		{"source ranges, no endpoints: the empty virtual server comes first for the node", []string{"1.18", "1.28", "1.29", "1.36"},
			[]func(*corev1.Service){loadBalancer, ranges("203.0.113.0/24")}, nil, nowhere, []cell{{localPod, LoadBalancer, "drop"}, {theNode, LoadBalancer, "reject"}}},
		{"source ranges do not hold for the node", []string{"1.25", "1.28"}, []func(*corev1.Service){loadBalancer, ranges("203.0.113.0/24")}, nil, bothSides, []cell{
			{localPod, LoadBalancer, "drop"}, {theNode, LoadBalancer, allMasq}}},
	}
	for _, tt := range tests {
		for _, v := range tt.versions {
			p := proxy(v)
			p.Mode = "ipvs"
			if tt.proxy != nil {
				tt.proxy(&p)
			}
			ask(t, tt.name, p, tt.edits, tt.eps, tt.cells)
		}
	}
}

func ask(t *testing.T, name string, p traits.Proxy, edits []func(*corev1.Service), eps []string, cells []cell) {
	t.Helper()
	sp := plan(t, p, service(edits...), eps...)
	for _, c := range cells {
		out := sp.Intend(at(t, sp, c.kind), c.client, p)
		if got := show(sp, out); got != c.want {
			t.Errorf("%s, kube-proxy %v: %s → %s: got %s, want %s (%s)", name, p.Version, c.client.Class, c.kind, got, c.want, out.Because)
		}
	}
}
