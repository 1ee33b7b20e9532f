//go:build linux

package oracle

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/test/shares"
)

// TestShares sends many connections through ladders of statistic rules and compares where they went with the shares
// of the walk.
func TestShares(t *testing.T) {
	l := requireLab(t)
	if err := l.use(0); err != nil {
		t.Fatal(err)
	}
	type ladder struct {
		name string
		rule func(n, i int) string // the statistic match of backend i of n
	}
	ladders := []ladder{
		{"random", func(n, i int) string {
			return fmt.Sprintf("-m statistic --mode random --probability %.11f", 1/float64(n-i))
		}},
		{"nth", func(n, i int) string { return fmt.Sprintf("-m statistic --mode nth --every %d --packet 0", n-i) }},
		{"uneven", func(n, i int) string {
			return fmt.Sprintf("-m statistic --mode random ! --probability %.11f", 0.5+float64(i)/40)
		}},
	}
	run := 0
	for _, ld := range ladders {
		for n := 2; n <= 8; n++ {
			fam := []netfilter.Family{netfilter.IPv4, netfilter.IPv6}[run%2]
			backend := []netfilter.Backend{netfilter.Legacy, netfilter.NFT}[run/2%2]
			run++
			t.Run(fmt.Sprintf("%s/%d/IPv%d/%s", ld.name, n, fam, backend), func(t *testing.T) {
				rs := empty(fam, backend)
				nat := rs.table("nat")
				backends := make([]netip.Addr, n)
				svc := nat.chain("SVC")
				for i := range n {
					backends[i] = pools[fam].pod[0]
					for range i {
						backends[i] = backends[i].Next()
					}
					rule := fmt.Sprintf("-p udp -j DNAT --to-destination %s", netip.AddrPortFrom(backends[i], 8080))
					if i < n-1 {
						rule = fmt.Sprintf("-p udp %s -j DNAT --to-destination %s", ld.rule(n, i), netip.AddrPortFrom(backends[i], 8080))
					}
					svc.rules = append(svc.rules, rule)
				}
				vip := pools[fam].service[0]
				pre := nat.chain("PREROUTING")
				pre.rules = append(pre.rules, fmt.Sprintf("-d %s -p udp --dport 80 -j SVC", vip))
				saved, err := l.load(fam, false, rs)
				if err != nil {
					t.Fatal(err)
				}
				w, err := l.walker(fam, saved)
				if err != nil {
					t.Fatal(err)
				}
				s := shot{datagram: datagram{src: pools[fam].external[0], dst: vip, proto: netfilter.ProtoUDP, dport: 80, ttl: 64}, srcMAC: [6]byte{2, 0, 0, 0, 9, 0}}
				l.compareShares(t, w, s)
			})
		}
	}
}

// compareShares sends many connections that are alike but for the client's port, and compares where they went with the
// shares of the walk.
func (l *lab) compareShares(t *testing.T, w *netfilter.Walker, s shot) {
	t.Helper()
	want := make(map[string]float64)
	for _, e := range w.Walk(s.packet()) {
		if e.Verdict != netfilter.Forwarded || len(e.Assumed) > 0 {
			t.Errorf("the walk ends otherwise: %s", describe(e))
		}
		want[e.Packet.Dst.String()] += e.P
	}
	counts := make(map[string]int)
	for first := 0; first < shares.Connections; first += 250 {
		var shots []shot
		for i := range 250 {
			s.id, s.sport = l.id(), uint16(10000+first+i)
			shots = append(shots, s)
		}
		obs, err := l.fire(shots)
		if err == nil {
			err = l.await(shots, obs)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range obs {
			if len(o.left) != 1 {
				t.Fatalf("a connection was lost: %v", o)
			}
			counts[o.left[0].dst.String()]++
		}
	}
	if why := shares.Improbable(counts, want); why != "" {
		t.Error(why)
	}
}
