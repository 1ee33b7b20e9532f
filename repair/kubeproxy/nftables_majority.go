package kubeproxy

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/traits"
)

var (
	nftMarkText   = regexp.MustCompile(`\bmark (?:[&|^]) (0x[0-9a-f]{8})\b`)
	nftSourceText = regexp.MustCompile(`\bip6? saddr (?:!= )?([0-9a-f.:]+/[0-9]+) `)
)

// NFTProxy is a proxy as most of its rules have it. What nothing but rules tells of its settings, one rule that somebody
// changed may tell wrong; the others outvote it.
func NFTProxy(p *traits.Proxy, rulesets []*nft.Ruleset) *traits.Proxy {
	byRules := func(name string) bool {
		i := slices.IndexFunc(p.Facts, func(f traits.Fact) bool { return f.Name == name })
		return i >= 0 && slices.ContainsFunc(rulesets, func(rs *nft.Ruleset) bool { return rs.File == p.Facts[i].File })
	}
	markByRules, rangeByRules := byRules("masqueradeMark"), byRules("clusterCIDR")
	if !markByRules && !rangeByRules {
		return p
	}
	marks := make(map[string]int)
	ranges := map[netfilter.Family]map[string]int{netfilter.IPv4: {}, netfilter.IPv6: {}}
	dataplane.EachNFTTable(rulesets, func(_ *nft.Ruleset, t *nft.Table, family netfilter.Family) {
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				for _, m := range nftMarkText.FindAllStringSubmatch(r.Text, -1) {
					marks[m[1]]++
				}
				if !tellsPods(r) {
					continue
				}
				if m := nftSourceText.FindStringSubmatch(r.Text); m != nil {
					ranges[family][m[1]]++
				}
			}
		}
	})
	out := *p
	if mark, err := strconv.ParseUint(most(marks), 0, 32); err == nil && markByRules {
		out.MasqueradeMark = uint32(mark)
	}
	if rangeByRules {
		out.ClusterCIDRs = slices.Clone(p.ClusterCIDRs)
		for i, c := range out.ClusterCIDRs {
			if r, err := netip.ParsePrefix(most(ranges[netfilter.FamilyOf(c.Addr())])); err == nil {
				out.ClusterCIDRs[i] = r
			}
		}
	}
	return &out
}

// tellsPods tells whether a rule of kube-proxy's tells pods of the node from others.
func tellsPods(r *nft.Rule) bool {
	switch r.Comment {
	case "short-circuit pod traffic", "masquerade clusterIP traffic from outside cluster":
		return true
	}
	return strings.HasSuffix(r.Text, " jump "+nftMarkChain) && strings.Contains(r.Text, " daddr ")
}

// most is what was counted most often; of those that were counted equally often the first by name. Empty: nothing.
func most(counts map[string]int) string {
	best := ""
	for what, n := range counts {
		if best == "" || n > counts[best] || n == counts[best] && what < best {
			best = what
		}
	}
	return best
}
