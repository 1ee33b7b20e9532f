package dataplane

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
)

// Portals of a node that kube-proxy 1.25 in userspace mode programmed (test/e2e/testdata/oldmodes): the rules do not say
// of which kind an address is, their order does.
func TestPortalsOfUserspace(t *testing.T) {
	text, err := os.ReadFile("testdata/userspace/iptables-save.txt")
	if err != nil {
		t.Fatal(err)
	}
	rulesets, err := netfilter.ParseSave(string(text), "iptables-save.txt", netfilter.Hint{})
	if err != nil {
		t.Fatal(err)
	}
	shown := func(wanted func(string) bool) []string {
		var out []string
		for _, p := range Portals(rulesets, wanted, nil) {
			out = append(out, fmt.Sprintf("%s %s %s:%d/%d", p.ServicePort, p.Kind, p.Addr, p.Port, p.Protocol))
		}
		return out
	}
	want := []string{
		"store/checkout:https ClusterIP 10.96.20.11:443/6", "store/checkout:https LoadBalancer 198.51.100.43:443/6", "store/checkout:https NodePort invalid IP:30443/6",
	}
	if d := cmp.Diff(want, shown(func(key string) bool { return key == "store/checkout:https" })); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	want = []string{"store/legacy ClusterIP 10.96.20.14:8000/6", "store/legacy ExternalIP 203.0.113.7:8000/6"}
	if d := cmp.Diff(want, shown(func(key string) bool { return strings.HasPrefix(key, "store/legacy") })); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if got := shown(func(string) bool { return true }); len(got) != 11 {
		t.Errorf("%d portals: %v", len(got), got)
	}
	// Every rule of the four chains is a frontend, and the one that follows another for the same is no other frontend.
	n := 0
	EachProgrammed(rulesets, nil, func(p Programmed) {
		if !IsPortal(p.Chain.Name) {
			t.Errorf("%s is no portal", p.Chain.Name)
		}
		n++
	})
	if n != 23 {
		t.Errorf("%d rules", n)
	}
}

func TestPortalChain(t *testing.T) {
	for _, tt := range []struct {
		kind   intent.FrontendKind
		ofNode bool
		want   string
	}{
		{intent.ClusterIP, false, "KUBE-PORTALS-CONTAINER"}, {intent.LoadBalancer, true, "KUBE-PORTALS-HOST"},
		{intent.NodePort, false, "KUBE-NODEPORT-CONTAINER"}, {intent.NodePort, true, "KUBE-NODEPORT-HOST"},
	} {
		got := PortalChain(tt.kind, tt.ofNode)
		if got != tt.want || !IsPortal(got) || !portalChains[got] {
			t.Errorf("%s, of the node %t: %s", tt.kind, tt.ofNode, got)
		}
		if !Stock("nat", got) || OtherMode("nat", got, "iptables") != "userspace" || OtherMode("nat", got, "userspace") != "" {
			t.Errorf("%s: stock %t, left in iptables mode %q", got, Stock("nat", got), OtherMode("nat", got, "iptables"))
		}
	}
	if IsPortal("KUBE-SERVICES") {
		t.Error("KUBE-SERVICES is a portal")
	}
}

// Userspace mode has jumps of its own.
func TestJumpsOfUserspace(t *testing.T) {
	got := map[string]bool{}
	for _, j := range Jumps("userspace", func(int, int) bool { return true }) {
		if j.Table == "nat" {
			got[j.From.String()+" "+j.To] = true
		}
	}
	want := map[string]bool{
		"PREROUTING KUBE-PORTALS-CONTAINER": true, "PREROUTING KUBE-NODEPORT-CONTAINER": true,
		"OUTPUT KUBE-PORTALS-HOST": true, "OUTPUT KUBE-NODEPORT-HOST": true,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}
