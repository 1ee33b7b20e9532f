package relay

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/svcnet/svcnet/explain/intent"
)

// BenchmarkUpdate is what one change costs with 10,000 service ports that have five endpoints each, without the sockets.
func BenchmarkUpdate(b *testing.B) {
	var w Want
	for i := range 10000 {
		sp := &intent.ServicePort{Namespace: "n", Name: fmt.Sprint("s", i), Family: 4, Protocol: "TCP", Port: 80}
		sp.Frontends = []intent.Frontend{{Kind: intent.ClusterIP, Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80}}
		for e := range 5 {
			sp.Endpoints = append(sp.Endpoints, intent.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(e), byte(i >> 8), byte(i)}), Port: 8080, Ready: true})
			sp.Cluster, sp.Usable = append(sp.Cluster, e), append(sp.Usable, e)
		}
		w.Ports = append(w.Ports, sp)
	}
	var known table
	for b.Loop() {
		known.routes(w, Options{}, Taken(w.Ports))
	}
}
