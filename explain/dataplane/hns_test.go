package dataplane

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain/hns"
)

func TestEachBalanced(t *testing.T) {
	text, err := os.ReadFile("../hns/testdata/loadbalancers.json")
	if err != nil {
		t.Fatal(err)
	}
	const six = `{"ID":"A","PortMappings":[{"Protocol":6,"InternalPort":80,"ExternalPort":30080}],"Flags":2}` +
		"\nID | Virtual IPs | Direct IP IDs\nB | 10.96.0.99 | C"
	var s hns.State
	for _, text := range []string{string(text), six} {
		if _, err := hns.Parse(&s, text, "x"); err != nil {
			t.Fatal(err)
		}
	}
	s.Settle()
	var got []string
	EachBalanced(&s, func(b Balanced) {
		if b.ServicePort != "" || b.Balancer == nil {
			t.Errorf("%+v", b)
		}
		got = append(got, fmt.Sprintf("%s %s:%d/%d IPv%d", b.Kind, b.Addr, b.Port, b.Protocol, b.Family))
	})
	// What shows no port is left out.
	want := []string{
		"ClusterIP 10.96.20.10:80/6 IPv4", "NodePort invalid IP:30080/6 IPv4", "ClusterIP 10.96.20.12:9000/6 IPv4", "ClusterIP 10.96.20.11:443/6 IPv4",
		"NodePort invalid IP:30443/6 IPv4", "LoadBalancer 198.51.100.43:443/6 IPv4", "ClusterIP 10.96.20.14:8000/6 IPv4", "LoadBalancer 203.0.113.7:8000/6 IPv4",
		"ClusterIP 10.96.0.1:443/6 IPv4", "ClusterIP 10.96.0.10:53/17 IPv4", "ClusterIP 10.96.0.10:53/6 IPv4", "NodePort invalid IP:30080/6 IPv6",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}
