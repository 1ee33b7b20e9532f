//go:build linux
package oracle
import ("testing";"github.com/svcnet/svcnet/explain/netfilter")
func TestZZ(t *testing.T) {
	l := requireLab(t)
	l.use(0)
	for _, fam := range []netfilter.Family{4,6} {
		rs := empty(fam, netfilter.NFT)
		rs.table("mangle").chain("PREROUTING").rules = []string{"-m state --state INVALID -j MARK --set-mark 1", "-m state --state NEW -j MARK --set-mark 2", "-m state --state UNTRACKED -j MARK --set-mark 3", "-m conntrack --ctproto 136 -j MARK --or-mark 16", "-p 6"}
		l.load(fam, true, rs)
		var shots []shot
		for i, p := range []uint8{136,136,136} {
			if p == 1 && fam == 6 || p == 58 && fam == 4 { continue }
			s := shot{datagram: datagram{id: l.id(), src: pools[fam].external[0], dst: pools[fam].service[0], proto: p, sport: uint16(3000+i), dport: 80, ttl: 64}}
			if !hasPorts(p) { s.dport = 0 }
			shots = append(shots, s)
		}
		obs, err := l.fire(shots)
		if err != nil { t.Fatal(err) }
		for i, o := range obs { t.Log(shots[i], o); t.Log(o.path) }
	}
	out, _ := l.node.run("", "conntrack", "-L")
	t.Log(out)
	out, _ = l.node.run("", "conntrack", "-L", "-f", "ipv6")
	t.Log(out)
}
