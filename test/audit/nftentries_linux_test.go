package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// nftMaps are kube-proxy's maps, nftSets its sets that all Services share.
var (
	nftMaps = []string{"service-ips", "service-nodeports", "no-endpoint-services", "no-endpoint-nodeports", "firewall-ips"}
	nftSets = []string{"cluster-ips", "nodeport-ips", "hairpin-connections"}
)

// entry chooses an entry of one of the sets or maps.
func (x *nftables) entry(of []string) (int, *nftText, *spot) {
	family, t := x.either()
	name := choose(x.dice, of)
	in := x.spots(t, false, func(s spot) bool { return s.name == name })
	if len(in) == 0 {
		return family, t, nil
	}
	return family, t, new(choose(x.dice, in))
}

// ofEntry begins a mutant of an entry.
func (x *nftables) ofEntry(family int, t *nftText, b *nftBlock, entry, what string) *mutant {
	key, _ := entryKey(entry)
	u := x.mutant(family, t, fmt.Sprintf("%s %s: %s", b.kind, b.name, what), key)
	u.about = x.servicesOf(b, entry)
	return u
}

func (x *nftables) entryDeleted() *mutant    { return x.withoutEntry(nftMaps) }
func (x *nftables) setEntryDeleted() *mutant { return x.withoutEntry(nftSets) }

func (x *nftables) withoutEntry(of []string) *mutant {
	family, t, s := x.entry(of)
	if s == nil {
		return nil
	}
	entry := s.text()
	s.lines = slices.Delete(s.lines, s.at, s.at+1)
	u := x.ofEntry(family, t, s.nftBlock, entry, "without "+entry)
	u.hazards = []string{"nft-map-entry-missing"}
	return u
}

func (x *nftables) entryChanged() *mutant {
	family, t, s := x.entry(nftMaps)
	if s == nil {
		return nil
	}
	was := s.text()
	_, to := entryKey(was)
	now := choose(x.dice, []string{"drop", "accept", "goto reject-chain", "return"})
	if strings.HasPrefix(s.name, "service-") { // the chains of others translate, which only nat chains may lead to
		now = choose(x.dice, []string{"drop", "accept", "return", "goto " + x.chainOfAnother(t, to), "goto " + x.chainOfAnother(t, to)})
	}
	if now == to {
		return nil
	}
	s.lines[s.at] = strings.TrimSuffix(was, to) + now
	u := x.ofEntry(family, t, s.nftBlock, was, was+"\n  now: "+s.text())
	u.hazards = []string{"nft-map-entry-missing"}
	return u
}

// chainOfAnother is a chain like the one that an entry leads to, of another Service.
func (x *nftables) chainOfAnother(t *nftText, verdict string) string {
	kind := "service-"
	for _, k := range []string{"external-", "local-", "firewall-"} {
		if strings.HasPrefix(verdict, "goto "+k) && x.dice.IntN(2) == 0 {
			kind = k
		}
	}
	var out []string
	for _, b := range t.blocks {
		of := nftServiceOf(b.name)
		if b.kind == "chain" && strings.HasPrefix(b.name, kind) && of != nftServiceOf(verdict) && strings.HasPrefix(of, namespace+"/") {
			out = append(out, b.name)
		}
	}
	if len(out) == 0 {
		return "reject-chain"
	}
	return choose(x.dice, out)
}

// entryAdded is a mutant with an entry for a frontend that another map has, or for one of nobody.
func (x *nftables) entryAdded() *mutant {
	family, t := x.either()
	name := choose(x.dice, nftMaps)
	b := t.block(name)
	service, addr, port, protocol := x.frontend(family)
	for addr.IsValid() == strings.HasSuffix(name, "-nodeports") {
		service, addr, port, protocol = x.frontend(family)
	}
	a := x.actOf(service)
	switch x.dice.IntN(3) {
	case 0:
		port++
		service = ""
	case 1:
		if addr.IsValid() {
			addr, service = x.pods[choose(x.dice, []string{"a1", "c1"})].Addr(family == 6), ""
			port = map[string]int32{"tcp": 8080, "udp": 5353}[protocol]
		}
	}
	key := fmt.Sprintf("%s . %d", protocol, port)
	if addr.IsValid() {
		key = addr.String() + " . " + key
	}
	if slices.ContainsFunc(b.lines, func(e string) bool { k, _ := entryKey(e); return k == key }) {
		return nil
	}
	var to string
	switch name {
	case "firewall-ips":
		to = "goto " + x.chainNamed(t, "firewall-")
	case "no-endpoint-services", "no-endpoint-nodeports":
		to = choose(x.dice, []string{"drop", "goto reject-chain"})
	default:
		to = "goto " + x.chainOfAnother(t, "")
	}
	entry := key + " : " + to
	if strings.HasPrefix(name, "no-endpoint") {
		entry = fmt.Sprintf("%s comment \"%s/%s:%s\" : %s", key, namespace, a.svc.Name, a.svc.Spec.Ports[0].Name, to)
	}
	b.lines = append(b.lines, entry)
	u := x.ofEntry(family, t, b, entry, "more: "+entry)
	u.about = nil
	if service != "" {
		u.about = []string{service}
	}
	return u
}

func (x *nftables) chainNamed(t *nftText, prefix string) string {
	for _, b := range t.blocks {
		if b.kind == "chain" && strings.HasPrefix(b.name, prefix) && nftServiceOf(b.name) != "" {
			return b.name
		}
	}
	return "reject-chain"
}

func (x *nftables) setEntryAdded() *mutant {
	family, t := x.either()
	b := t.block(choose(x.dice, nftSets))
	pod := func(names ...string) netip.Addr { return x.pods[choose(x.dice, names)].Addr(family == 6) }
	gateway, external := x.n1.PodCIDRIPv4.Addr().Next(), netip.MustParseAddr("198.51.100.10")
	if family == 6 {
		gateway, external = x.n1.PodCIDRIPv6.Addr().Next(), netip.MustParseAddr("fd00:1b::a")
	}
	var entry string
	switch b.name {
	case "cluster-ips":
		entry = choose(x.dice, []netip.Addr{pod("a1", "c1"), pod("client-1", "client-2"), gateway, external}).String()
	case "nodeport-ips":
		entry = choose(x.dice, []netip.Addr{gateway, external, pod("a1")}).String()
	default:
		from, to := pod("c1", "client-1", "a2"), pod("a1", "c1")
		entry = fmt.Sprintf("%s . %s . tcp . 8080", from, to)
	}
	if slices.Contains(b.lines, entry) {
		return nil
	}
	b.lines = append(b.lines, entry)
	u := x.ofEntry(family, t, b, entry, "more: "+entry)
	u.about = nil
	return u
}

func (x *nftables) emptied() *mutant {
	family, t := x.either()
	b := t.block(choose(x.dice, append(slices.Clone(nftMaps), nftSets...)))
	b.lines = nil
	u := x.mutant(family, t, fmt.Sprintf("%s %s: emptied", b.kind, b.name), b.name)
	u.hazards = []string{"nft-map-entry-missing"}
	return u
}

// affinityTimeout changes how long clients are remembered, which no connection of the grid shows.
func (x *nftables) affinityTimeout() *mutant {
	family, t := x.either()
	b := choose(x.dice, slices.DeleteFunc(slices.Clone(t.blocks), func(b *nftBlock) bool { return !b.dynamic() }))
	now := choose(x.dice, []string{"30s", "1h", "3h", "9m59s", ""})
	for i, l := range b.head {
		if strings.HasPrefix(l, "timeout ") {
			b.head[i] = "timeout " + now
			if now == "" {
				b.head = slices.Delete(b.head, i, i+1)
			}
			break
		}
	}
	u := x.mutant(family, t, fmt.Sprintf("set %s: timeout %s", b.name, now), b.name, strings.Replace(b.name, "affinity-", "endpoint-", 1))
	u.about, u.certain = []string{strings.TrimPrefix(nftServiceOf(b.name), namespace+"/")}, true
	return u
}
