package kubeproxy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/nft"
)

// The chains that all Services share, beside base chains.
const (
	nftServicesChain     = "services"
	nftMasqueradingChain = "masquerading"
	nftMarkChain         = "mark-for-masquerade" // up to 1.35
	nftRejectChain       = "reject-chain"
	nftFirewallCheck     = "firewall-check"
	nftServiceCheck      = "service-endpoints-check"
	nftNodePortCheck     = "nodeport-endpoints-check"
	nftClusterIPsCheck   = "cluster-ips-check"
	nftOldCheck          = "endpoints-check"      // 1.29
	nftOldForward        = "forward"              // 1.29
	nftOldFirewallAllow  = "firewall-allow-check" // 1.29
)

// The sets of 1.29 that hold source ranges.
const (
	nftOldFirewallSet = "firewall"
	nftOldAllowSet    = "firewall-allow"
)

// nftBase is a base chain, with the chains that it jumps to for the first packet of each connection (new) or for every
// packet.
type nftBase struct {
	name, kind, hook string
	priority         int
	new              bool
	jumps            []string
}

// baseChains are those of a release in the order in which they are registered (nftablesBaseChains and nftablesJumpChains).
func (r NFTRelease) baseChains() []nftBase {
	nat := []nftBase{
		{"nat-prerouting", "nat", "prerouting", -100, false, []string{nftServicesChain}},
		{"nat-output", "nat", "output", -100, false, []string{nftServicesChain}},
		{"nat-postrouting", "nat", "postrouting", 100, false, []string{nftMasqueradingChain}},
	}
	switch {
	case r.Minor == 29:
		return append([]nftBase{
			{"filter-input", "filter", "input", -101, true, []string{nftOldCheck, nftFirewallCheck}},
			{"filter-forward", "filter", "forward", -101, true, []string{nftOldCheck, nftOldForward, nftFirewallCheck}},
			{"filter-output", "filter", "output", -101, true, []string{nftOldCheck, nftFirewallCheck}},
		}, nat...)
	case r.beforeDNAT():
		return append([]nftBase{
			{"filter-prerouting", "filter", "prerouting", -110, true, []string{nftFirewallCheck}},
			{"filter-input", "filter", "input", -110, true, []string{nftNodePortCheck, nftServiceCheck}},
			{"filter-forward", "filter", "forward", -110, true, []string{nftServiceCheck, nftClusterIPsCheck}},
			{"filter-output", "filter", "output", -110, true, []string{nftServiceCheck, nftFirewallCheck}},
			{"filter-output-post-dnat", "filter", "output", -90, true, []string{nftClusterIPsCheck}},
		}, nat...)
	}
	return append([]nftBase{
		{"filter-prerouting-pre-dnat", "filter", "prerouting", -110, true, []string{nftFirewallCheck}},
		{"filter-output-pre-dnat", "filter", "output", -110, true, []string{nftFirewallCheck}},
		{"filter-input", "filter", "input", 0, true, []string{nftNodePortCheck, nftServiceCheck}},
		{"filter-forward", "filter", "forward", 0, true, []string{nftServiceCheck, nftClusterIPsCheck}},
		{"filter-output", "filter", "output", 0, true, []string{nftServiceCheck, nftClusterIPsCheck}},
	}, nat...)
}

// stockChains are those that kube-proxy keeps whatever Services there are.
func (s *nftSettings) stockChains(t *NFTable) {
	for _, b := range s.baseChains() {
		c := t.add(&NFTChain{Name: b.name, Base: &nft.Base{Type: b.kind, Hook: b.hook, Priority: b.priority, Policy: "accept"}})
		for _, to := range b.jumps {
			rule := "jump " + to
			if b.new && to != nftOldForward {
				rule = "ct state new " + rule
			}
			c.Rules = append(c.Rules, rule)
		}
	}
	chain := func(name string, rules ...string) *NFTChain {
		return t.add(&NFTChain{Name: name, Rules: slices.DeleteFunc(rules, func(r string) bool { return r == "" })})
	}
	frontend := s.ip + " daddr . meta l4proto . th dport"
	if s.Minor == 29 {
		chain(nftOldCheck, frontend+" vmap @"+dataplane.NFTNoEndpointServices, s.toNodePort(true)+"vmap @"+dataplane.NFTNoEndpointNodePorts)
		invalid := ""
		if s.dropInvalid {
			invalid = "ct state invalid drop"
		}
		chain(nftOldForward, invalid)
		chain(nftFirewallCheck, frontend+" @"+nftOldFirewallSet+" jump "+nftOldFirewallAllow)
		chain(nftOldFirewallAllow, frontend+" . "+s.ip+" saddr @"+nftOldAllowSet+" return", "drop")
	} else {
		chain(nftNodePortCheck, s.toNodePort(false)+"vmap @"+dataplane.NFTNoEndpointNodePorts)
		chain(nftServiceCheck, frontend+" vmap @"+dataplane.NFTNoEndpointServices)
		chain(nftFirewallCheck, frontend+" vmap @"+dataplane.NFTFirewallIPs)
		drop := ""
		if len(s.serviceRanges) > 0 {
			drop = fmt.Sprintf("%s daddr %s drop comment %q", s.ip, s.rangesText(s.serviceRanges), unallocated)
		}
		chain(nftClusterIPsCheck, s.ip+" daddr @"+dataplane.NFTClusterIPs+` reject comment "Reject traffic to invalid ports of ClusterIPs"`, drop)
	}
	chain(nftServicesChain, s.masqueradeClusterIPs(), frontend+" vmap @"+dataplane.NFTServiceIPs, s.toNodePort(true)+"vmap @"+dataplane.NFTServiceNodePorts)
	if s.Minor >= 36 {
		chain(nftMasqueradingChain,
			fmt.Sprintf("meta mark & %s != 0x00000000 meta mark set meta mark ^ %[1]s masquerade fully-random", s.mark),
			fmt.Sprintf("ct status dnat %s saddr . %[1]s daddr . meta l4proto . th dport @%s masquerade fully-random", s.ip, dataplane.NFTHairpin))
	} else {
		chain(nftMasqueradingChain, "meta mark & "+s.mark+" == 0x00000000 return", "meta mark set meta mark ^ "+s.mark, "masquerade fully-random")
		chain(nftMarkChain, "meta mark set meta mark | "+s.mark)
	}
	reject := chain(nftRejectChain, "reject")
	if s.Minor >= 30 {
		reject.Comment = "helper for @no-endpoint-services / @no-endpoint-nodeports"
	}
}

// masqueradeClusterIPs is the rule by which packets to cluster IPs are masqueraded that do not come from pods, since 1.36
// one for all Services; empty for none.
func (s *nftSettings) masqueradeClusterIPs() string {
	rule := s.ip + " daddr @" + dataplane.NFTClusterIPs
	switch {
	case s.Minor < 36:
		return ""
	case s.masqueradeAll:
		return rule + " " + s.masquerade() + ` comment "masquerade all clusterIP traffic"`
	case s.notLocal != "":
		return rule + " " + s.notLocal + " " + s.masquerade() + ` comment "masquerade clusterIP traffic from outside cluster"`
	}
	return ""
}

// masquerade is the end of a rule that has packets masqueraded.
func (s *nftSettings) masquerade() string {
	if s.Minor >= 36 {
		return "meta mark set meta mark | " + s.mark
	}
	return "jump " + nftMarkChain
}

// toNodePort is the beginning of a rule that looks node ports up. local: the rule stands where packets to others come by,
// too.
func (s *nftSettings) toNodePort(local bool) string {
	const lookup = "meta l4proto . th dport "
	if !s.nodePortAll {
		return s.ip + " daddr @" + dataplane.NFTNodePortIPs + " " + lookup
	}
	notLoopback := "ip daddr != 127.0.0.0/8 "
	if s.ip == "ip6" {
		notLoopback = "ip6 daddr != ::1 "
	}
	if local {
		notLoopback = "fib daddr type local " + notLoopback
	}
	return notLoopback + lookup
}

// rangesText are ranges as nft prints a set of them in a rule: those that touch are one, and a set that was given one
// alone is none.
func (s *nftSettings) rangesText(ranges []netip.Prefix) string {
	if len(ranges) == 1 {
		return prefixText(ranges[0])
	}
	set := &nft.Set{Key: []nft.Field{{Type: s.addr, Size: s.bits / 8}}, Interval: true}
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int { return a.Masked().Addr().Compare(b.Masked().Addr()) })
	for _, p := range sorted {
		first, last := p.Masked().Addr(), lastOf(p)
		if n := len(set.Entries); n > 0 {
			before, _ := netip.AddrFromSlice(set.Entries[n-1].End)
			if next := before.Next(); !next.IsValid() || first.Compare(next) <= 0 {
				if last.Compare(before) > 0 {
					set.Entries[n-1].End = last.AsSlice()
				}
				continue
			}
		}
		set.Entries = append(set.Entries, nft.Entry{Start: first.AsSlice(), End: last.AsSlice()})
	}
	return nft.ExpressionText(nft.SetLit{Set: set})
}

// lastOf is the last address of a range.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// stockSets are the sets and maps that all Services share.
func (s *nftSettings) stockSets(t *NFTable) {
	addr := nft.Field{Type: s.addr, Size: s.bits / 8}
	proto := nft.Field{Type: nft.TypeProto, Size: 1}
	port := nft.Field{Type: nft.TypeService, Size: 2}
	set := func(name, comment string, key ...nft.Field) *NFTSet {
		if s.Minor == 29 {
			comment = ""
		}
		return t.addSet(&NFTSet{Set: &nft.Set{Name: name, Comment: comment, Key: key}})
	}
	verdicts := func(name, comment string, key ...nft.Field) {
		set(name, comment, key...).IsMap = true
	}
	if s.Minor >= 36 {
		set(dataplane.NFTHairpin, "service hairpin connections", addr, addr, proto, port)
	}
	if s.Minor >= 30 {
		set(dataplane.NFTClusterIPs, "Active ClusterIPs", addr)
	}
	if !s.nodePortAll {
		ips := set(dataplane.NFTNodePortIPs, "IPs that accept NodePort traffic", addr)
		ips.Open = s.nodePortOpen
		for _, a := range s.nodePortAddrs {
			ips.put(nft.Entry{Start: a.AsSlice()}, "")
		}
	}
	verdicts(dataplane.NFTNoEndpointServices, "vmap to drop or reject packets to services with no endpoints", addr, proto, port)
	verdicts(dataplane.NFTNoEndpointNodePorts, "vmap to drop or reject packets to service nodeports with no endpoints", proto, port)
	if s.Minor == 29 {
		set(nftOldFirewallSet, "", addr, proto, port)
		set(nftOldAllowSet, "", addr, proto, port, addr).Interval = true
	} else {
		verdicts(dataplane.NFTFirewallIPs, "destinations that are subject to LoadBalancerSourceRanges", addr, proto, port)
	}
	verdicts(dataplane.NFTServiceIPs, "ClusterIP, ExternalIP and LoadBalancer IP traffic", addr, proto, port)
	verdicts(dataplane.NFTServiceNodePorts, "NodePort traffic", proto, port)
}
