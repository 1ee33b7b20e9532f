//go:build linux

package oracle

import (
	"fmt"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
)

// TestSharesNFT sends many connections through the generators of nftables and compares where they went with the shares
// of the walk. With TestShares these are fewer than 50 tests, as package shares asks for.
func TestSharesNFT(t *testing.T) {
	l := requireLab(t)
	if err := l.use(0); err != nil {
		t.Fatal(err)
	}
	// A choice is the rules behind the dispatch to a Service, given its backends as verdicts of a map and as addresses.
	type choice struct {
		name  string
		sizes []int
		rules func(word string, verdicts, addrs []string) []string
	}
	list := func(items []string) string {
		var b []string
		for i, s := range items {
			b = append(b, fmt.Sprintf("%d : %s", i, s))
		}
		return strings.Join(b, ", ")
	}
	choices := []choice{
		{"random verdict", []int{2, 3, 8}, func(_ string, v, _ []string) []string {
			return []string{fmt.Sprintf("numgen random mod %d vmap { %s }", len(v), list(v))}
		}},
		{"random address", []int{2, 5, 7}, func(word string, _, a []string) []string {
			return []string{fmt.Sprintf("meta l4proto udp dnat %s to numgen random mod %d map { %s }", word, len(a), list(a))}
		}},
		{"incremental", []int{2, 4}, func(_ string, v, _ []string) []string {
			return []string{fmt.Sprintf("numgen inc mod %d vmap { %s }", len(v), list(v))}
		}},
		{"uneven", []int{3}, func(_ string, v, _ []string) []string {
			return []string{fmt.Sprintf("numgen random mod 10 vmap { 0-5 : %s, 6-8 : %s, 9 : %s }", v[0], v[1], v[2])}
		}},
		{"offset", []int{3}, func(_ string, v, _ []string) []string {
			return []string{fmt.Sprintf("numgen random mod 3 offset 10 vmap { 10 : %s, 11 : %s, 12 : %s }", v[0], v[1], v[2])}
		}},
		{"ladder", []int{3}, func(_ string, v, _ []string) []string {
			return []string{"numgen random mod 3 0 " + v[0], "numgen random mod 4 < 2 " + v[1], v[2]}
		}},
		{"hash of the client", []int{2, 3, 5}, func(word string, v, _ []string) []string {
			return []string{fmt.Sprintf("jhash %s saddr . udp sport mod %d seed 0x5ca1ab1e vmap { %s }", word, len(v), list(v))}
		}},
		{"symmetric hash", []int{2, 4}, func(_ string, v, _ []string) []string {
			return []string{fmt.Sprintf("symhash mod %d vmap { %s }", len(v), list(v))}
		}},
	}
	run := 0
	for _, c := range choices {
		for _, n := range c.sizes {
			fam := []netfilter.Family{netfilter.IPv4, netfilter.IPv6}[run%2]
			form := nftForms[run%len(nftForms)]
			run++
			t.Run(fmt.Sprintf("%s/%d/IPv%d/%s", c.name, n, fam, form), func(t *testing.T) {
				tab := &nftTable{family: nft.IP, name: "t"}
				s := &nftSlot{table: tab, ip: fam}
				if fam == netfilter.IPv6 {
					tab.family = nft.IP6
				}
				pre := tab.chain("pre")
				pre.base = "type nat hook prerouting priority dstnat; policy accept;"
				pre.add(fmt.Sprintf("%s daddr %s udp dport 80", s.word(), pools[fam].service[0]), "goto svc")
				svc := tab.chain("svc")
				var verdicts, addrs []string
				backend := pools[fam].pod[0]
				for i := range n {
					name := fmt.Sprintf("endpoint-%d", i)
					tab.chain(name).add("meta l4proto udp", "dnat to "+s.withPort(backend, "8080"))
					verdicts, addrs = append(verdicts, "goto "+name), append(addrs, fmt.Sprintf("%s . 8080", backend))
					backend = backend.Next()
				}
				for _, r := range c.rules(s.word(), verdicts, addrs) {
					svc.add("", r)
				}
				tr := &nftTrial{rules: &nftRules{tables: []*nftTable{tab}}, form: form}
				if err := l.loadNFT(tr); err != nil {
					t.Fatal(err)
				}
				w, err := l.nftWalker(tr)
				if err != nil {
					t.Fatal(err)
				}
				l.compareShares(t, w, shot{
					datagram: datagram{src: pools[fam].external[0], dst: pools[fam].service[0], proto: netfilter.ProtoUDP, dport: 80, ttl: 64},
					srcMAC:   [6]byte{2, 0, 0, 0, 9, 0},
				})
			})
		}
	}
}
