//go:build linux

package oracle

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
)

// A proxyRules builds a table of the shape that kube-proxy writes in nftables mode.
type proxyRules struct {
	*nftTable
	r     *rand.Rand
	pool  pool
	word  string // ip or ip6
	addr  string // ipv4_addr or ipv6_addr
	minor int
	// loopback are the addresses that take no node ports.
	loopback string
}

// proxyMinors are the minor versions of kube-proxy whose tables differ.
var proxyMinors = []int{29, 30, 32, 33, 35, 36}

// nftServiceRules draws the tables of kube-proxy of one minor version. affinity lets in Services with session affinity,
// for which packets must come one at a time.
func nftServiceRules(r *rand.Rand, families []netfilter.Family, minor int, affinity bool) *nftRules {
	n := &nftRules{}
	for _, f := range families {
		b := &proxyRules{nftTable: &nftTable{family: nft.IP, name: "kube-proxy"}, r: r, pool: pools[f], word: "ip", addr: "ipv4_addr", minor: minor, loopback: "127.0.0.0/8"}
		if f == netfilter.IPv6 {
			b.family, b.word, b.addr, b.loopback = nft.IP6, "ip6", "ipv6_addr", "::1"
		}
		b.head = []string{`comment "rules for kube-proxy";`}
		b.frame()
		for i := range b.pool.service {
			b.service(i, affinity)
		}
		b.finish()
		n.tables = append(n.tables, b.nftTable)
	}
	return n
}

// set returns the set or map of that name, made on first use.
func (b *proxyRules) set(name, typ string, spec ...string) *nftSet {
	for _, s := range b.sets {
		if s.name == name {
			return s
		}
	}
	s := &nftSet{name: name, keyword: "set", spec: append([]string{"type " + typ}, spec...)}
	if strings.Contains(typ, ":") {
		s.keyword = "map"
	}
	b.sets = append(b.sets, s)
	return s
}

func (b *proxyRules) put(set, format string, args ...any) {
	s := b.set(set, "")
	s.elements = append(s.elements, fmt.Sprintf(format, args...))
}

func (b *proxyRules) rule(chain, tests, effect, comment string) {
	c := b.chain(chain)
	c.add(tests, effect)
	r := &c.rules[len(c.rules)-1]
	r.comment = comment
	r.tells = strings.HasPrefix(effect, "meta mark set") || effect == "drop" || effect == "reject"
}

func (b *proxyRules) base(name, kind string, hook netfilter.Hook, priority string) {
	c := b.chain(name)
	c.kind, c.hooks = kind, 1<<hook
	c.base = fmt.Sprintf("type %s hook %s priority %s; policy accept;", kind, nftHooks[hook], priority)
}

// frame are the sets, base chains and common chains.
func (b *proxyRules) frame() {
	b.set("cluster-ips", b.addr, `comment "Active ClusterIPs"`)
	nodePorts := b.word + " daddr @nodeport-ips"
	if chance(b.r, 0.5) {
		b.set("nodeport-ips", b.addr, `comment "IPs that accept NodePort traffic"`)
		b.put("nodeport-ips", "%s", b.pool.node[0])
		b.put("nodeport-ips", "%s", b.pool.node[3])
	} else {
		nodePorts = fmt.Sprintf("fib daddr type local %s daddr != %s", b.word, b.loopback)
	}
	b.set("no-endpoint-services", b.addr+" . inet_proto . inet_service : verdict", `comment "vmap to drop or reject packets to services with no endpoints"`)
	b.set("no-endpoint-nodeports", "inet_proto . inet_service : verdict")
	b.set("firewall-ips", b.addr+" . inet_proto . inet_service : verdict")
	b.set("service-ips", b.addr+" . inet_proto . inet_service : verdict", `comment "ClusterIP, ExternalIP and LoadBalancer IP traffic"`)
	b.set("service-nodeports", "inet_proto . inet_service : verdict")
	key := b.word + " daddr . meta l4proto . th dport"

	jump := func(chain, to string) { b.rule(chain, "ct state new", "jump "+to, "") }
	switch {
	case b.minor == 29:
		b.base("filter-input", "filter", netfilter.Input, "-101")
		b.base("filter-forward", "filter", netfilter.Forward, "-101")
		b.base("filter-output", "filter", netfilter.Output, "-101")
		b.rule("filter-forward", "ct state invalid", "drop", "")
	case b.minor < 33:
		b.base("filter-prerouting", "filter", netfilter.Prerouting, "dstnat - 10")
		b.base("filter-input", "filter", netfilter.Input, "-110")
		b.base("filter-forward", "filter", netfilter.Forward, "-110")
		b.base("filter-output", "filter", netfilter.Output, "-110")
		b.base("filter-output-post-dnat", "filter", netfilter.Output, "-90")
		jump("filter-prerouting", "firewall-check")
		jump("filter-output", "firewall-check")
	default:
		b.base("filter-prerouting-pre-dnat", "filter", netfilter.Prerouting, "dstnat - 10")
		b.base("filter-output-pre-dnat", "filter", netfilter.Output, "-110")
		b.base("filter-input", "filter", netfilter.Input, "0")
		b.base("filter-forward", "filter", netfilter.Forward, "0")
		b.base("filter-output", "filter", netfilter.Output, "0")
		jump("filter-prerouting-pre-dnat", "firewall-check")
		jump("filter-output-pre-dnat", "firewall-check")
	}
	jump("filter-input", "nodeport-endpoints-check")
	jump("filter-input", "service-endpoints-check")
	jump("filter-forward", "service-endpoints-check")
	jump("filter-output", "service-endpoints-check")
	after := "filter-output"
	if b.minor >= 30 && b.minor < 33 {
		after = "filter-output-post-dnat"
	}
	jump("filter-forward", "cluster-ips-check")
	jump(after, "cluster-ips-check")
	b.base("nat-prerouting", "nat", netfilter.Prerouting, "dstnat")
	b.base("nat-output", "nat", netfilter.Output, "-100")
	b.base("nat-postrouting", "nat", netfilter.Postrouting, "srcnat")
	b.rule("nat-prerouting", "", "jump services", "")
	b.rule("nat-output", "", "jump services", "")
	b.rule("nat-postrouting", "", "jump masquerading", "")

	b.rule("nodeport-endpoints-check", nodePorts, "meta l4proto . th dport vmap @no-endpoint-nodeports", "")
	b.rule("service-endpoints-check", "", key+" vmap @no-endpoint-services", "")
	b.rule("firewall-check", "", key+" vmap @firewall-ips", "")
	if b.minor >= 36 {
		b.set("hairpin-connections", fmt.Sprintf("%s . %s . inet_proto . inet_service", b.addr, b.addr), `comment "service hairpin connections"`)
		b.rule("services", fmt.Sprintf("%s daddr @cluster-ips %s saddr != %s", b.word, b.word, b.pool.nets[1]), "meta mark set meta mark or 0x4000", "masquerade clusterIP traffic from outside cluster")
	}
	b.rule("services", "", key+" vmap @service-ips", "")
	b.rule("services", nodePorts, "meta l4proto . th dport vmap @service-nodeports", "")
	if b.minor >= 36 {
		b.rule("masquerading", "meta mark & 0x4000 != 0", "meta mark set meta mark xor 0x4000 masquerade fully-random", "")
		b.rule("masquerading", fmt.Sprintf("ct status dnat %s saddr . %s daddr . meta l4proto . th dport @hairpin-connections", b.word, b.word), "masquerade fully-random", "")
	} else {
		b.rule("mark-for-masquerade", "", "meta mark set meta mark or 0x4000", "")
		b.rule("masquerading", "meta mark & 0x4000 == 0", "return", "")
		b.rule("masquerading", "", "meta mark set meta mark xor 0x4000", "")
		b.rule("masquerading", "", "masquerade fully-random", "")
	}
	b.rule("cluster-ips-check", b.word+" daddr @cluster-ips", "reject", "Reject traffic to invalid ports of ClusterIPs")
	if b.minor >= 33 {
		b.rule("cluster-ips-check", b.word+" daddr { "+b.pool.nets[0]+" }", "drop", "Drop traffic to unallocated ClusterIPs")
	}
	b.rule("reject-chain", "", "reject", "")
}

// name is the name of an object of a service port.
func proxyName(prefix, base string) string {
	sum := sha256.Sum256([]byte(base))
	return prefix + "-" + base32.StdEncoding.EncodeToString(sum[:])[:8] + "-" + base
}

// service adds a service port.
func (b *proxyRules) service(i int, affinity bool) {
	r, vip := b.r, b.pool.service[i]
	proto := pick(r, []string{"tcp", "tcp", "tcp", "udp", "sctp"})
	port := pick(r, portPool[:4])
	base := fmt.Sprintf("ns/svc%d/%s/p", i, proto)
	svc, ext, local, firewall := proxyName("service", base), proxyName("external", base), proxyName("local", base), proxyName("firewall", base)
	b.put("cluster-ips", "%s", vip)
	frontend := func(a netip.Addr) string { return fmt.Sprintf("%s . %s . %d", a, proto, port) }
	lb, hasLB, nodePort, hasNodePort := b.pool.external[i], chance(r, 0.5), portPool[4+i%2], i < 2 && chance(r, 0.6)
	n := r.IntN(5)
	if n == 0 {
		b.put("no-endpoint-services", "%s comment \"ns/svc%d:p\" : goto reject-chain", frontend(vip), i)
		if hasLB {
			b.put("no-endpoint-services", "%s comment \"ns/svc%d:p\" : %s", frontend(lb), i, pick(r, []string{"goto reject-chain", "drop"}))
		}
		if hasNodePort {
			b.put("no-endpoint-nodeports", "%s . %d : %s", proto, nodePort, pick(r, []string{"goto reject-chain", "drop"}))
		}
		return
	}
	b.put("service-ips", "%s : goto %s", frontend(vip), svc)
	masquerade, mark := "jump mark-for-masquerade", func(chain, tests, comment string) { b.rule(chain, tests, "jump mark-for-masquerade", comment) }
	if b.minor >= 36 {
		masquerade = "meta mark set meta mark or 0x4000"
		mark = func(chain, tests, comment string) { b.rule(chain, tests, masquerade, comment) }
	} else if chance(r, 0.7) {
		tests := fmt.Sprintf("%s daddr %s", b.word, vip)
		if b.minor <= 33 {
			tests += fmt.Sprintf(" %s dport %d", proto, port)
		}
		mark(svc, fmt.Sprintf("%s %s saddr != %s", tests, b.word, b.pool.nets[1]), "masquerade traffic from outside cluster")
	}
	etpLocal, sticky := chance(r, 0.4), affinity && chance(r, 0.7)
	if hasLB || hasNodePort {
		if etpLocal {
			b.rule(ext, fmt.Sprintf("%s saddr %s", b.word, b.pool.nets[1]), "goto "+svc, "short-circuit pod traffic")
			mark(ext, "fib saddr type local", "masquerade local traffic")
			b.rule(ext, "fib saddr type local", "goto "+svc, "short-circuit local traffic")
			if chance(r, 0.6) {
				b.choose(local, i, 1, proto, sticky)
				b.rule(ext, "", "goto "+local, "")
			}
		} else {
			b.rule(ext, "", masquerade, "masquerade")
			b.rule(ext, "", "goto "+svc, "")
		}
	}
	if hasLB {
		b.put("service-ips", "%s : goto %s", frontend(lb), ext)
		if chance(r, 0.4) {
			b.put("firewall-ips", "%s comment \"ns/svc%d:p\" : goto %s", frontend(lb), i, firewall)
			b.rule(firewall, fmt.Sprintf("%s saddr != { %s, %s }", b.word, b.pool.nets[5], b.pool.nets[4]), "drop", "")
		}
	}
	if hasNodePort {
		b.put("service-nodeports", "%s . %d : goto %s", proto, nodePort, ext)
	}
	b.choose(svc, i, n, proto, sticky)
}

// choose fills a chain that chooses among n endpoints.
func (b *proxyRules) choose(chain string, i, n int, proto string, affinity bool) {
	var verdicts, backends []string
	for j := range n {
		pod := b.pool.pod[(i+j)%len(b.pool.pod)]
		at := &nftSlot{table: b.nftTable}
		name := proxyName("endpoint", fmt.Sprintf("ns/svc%d/%s/p__%s/8080", i, proto, strings.ReplaceAll(pod.String(), ":", ".")))
		backends = append(backends, fmt.Sprintf("%d : %s . 8080", j, pod))
		verdicts = append(verdicts, fmt.Sprintf("%d : goto %s", j, name))
		if b.minor >= 36 {
			b.put("hairpin-connections", "%s . %s . %s . 8080", pod, pod, proto)
		}
		if b.minor >= 36 && !affinity {
			continue
		}
		c := b.chain(name)
		if len(c.rules) > 0 {
			continue
		}
		if b.minor < 36 {
			b.rule(name, fmt.Sprintf("%s saddr %s", b.word, pod), "jump mark-for-masquerade", "masquerade hairpin traffic")
		}
		if affinity {
			set := proxyName("affinity", strings.SplitN(name, "-", 3)[2])
			b.set(set, b.addr, "size 65535", "flags dynamic,timeout", "timeout 3h")
			b.rule(name, "", fmt.Sprintf("update @%s { %s saddr }", set, b.word), "")
		}
		b.rule(name, "meta l4proto "+proto, "dnat to "+at.withPort(pod, "8080"), "")
	}
	if affinity {
		for _, v := range verdicts {
			_, to, _ := strings.Cut(v, "goto ")
			set := proxyName("affinity", strings.SplitN(to, "-", 3)[2])
			b.rule(chain, fmt.Sprintf("%s saddr @%s", b.word, set), "goto "+to, "")
		}
	}
	if b.minor >= 36 && !affinity {
		b.rule(chain, "meta l4proto "+proto, fmt.Sprintf("dnat %s addr . port to numgen random mod %d map { %s }", b.word, n, strings.Join(backends, ", ")), "")
		return
	}
	b.rule(chain, "", fmt.Sprintf("numgen random mod %d vmap { %s }", n, strings.Join(verdicts, ", ")), "")
}

// finish removes duplicate elements, which come from pods that several Services have.
func (b *proxyRules) finish() {
	for _, s := range b.sets {
		seen := make(map[string]bool)
		var keep []string
		for _, e := range s.elements {
			key, _, _ := strings.Cut(e, " :")
			if !seen[key] {
				seen[key] = true
				keep = append(keep, e)
			}
		}
		s.elements = keep
	}
}
