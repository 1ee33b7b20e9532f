package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// nftUnreached are the stock rules that kube-proxy's tables of nftables lack, those of one chain in one finding.
func (n *Node) nftUnreached() []report.Finding {
	if n.Proxy.Mode != "nftables" {
		return nil
	}
	var out []report.Finding
	dataplane.EachNFTTable(n.NFT, func(rs *nft.Ruleset, t *nft.Table, _ netfilter.Family) {
		lacks := make(map[string][]string)
		var order []string
		for _, s := range dataplane.NFTStock(n.Proxy.Within) {
			if nftHas(t, s) {
				continue
			}
			if lacks[s.Chain] == nil {
				order = append(order, s.Chain)
			}
			lacks[s.Chain] = append(lacks[s.Chain], s.Does)
		}
		for _, chain := range order {
			out = append(out, nftLack(rs, t, chain, lacks[chain]))
		}
	})
	return out
}

// nftHas tells whether a chain does what a stock rule does.
func nftHas(t *nft.Table, s dataplane.NFTStockRule) bool {
	c := t.Chain(s.Chain)
	return c != nil && slices.ContainsFunc(c.Rules, func(r *nft.Rule) bool { return dataplane.NFTDoes(r) == s.Does })
}

func nftLack(rs *nft.Ruleset, t *nft.Table, chain string, lacks []string) report.Finding {
	c := t.Chain(chain)
	e := report.Evidence{Source: "nftables", File: rs.File, Line: t.Line, Text: "table " + t.String()}
	got := "no such chain"
	if c != nil {
		e.Line, e.Text = c.Line, fmt.Sprintf("table %s chain %s", t, chain)
		got = plural(len(c.Rules), "rule") + " without " + map[bool]string{true: "it", false: "them"}[len(lacks) == 1]
	}
	what := strings.Join(lacks, ", ")
	return report.Finding{
		Subject:  fmt.Sprintf("%s %s", t, chain),
		Message:  fmt.Sprintf("chain %s of table %s lacks the rule that kube-proxy keeps there (%s): packets do not get to what it leads to", chain, t, what),
		Want:     what,
		Got:      got,
		Evidence: []report.Evidence{e},
		Causes:   []string{"something other than kube-proxy changed its table: in nftables mode kube-proxy does not notice, and rewrites these chains in a full sync only"},
		Remedy:   restartProxy,
	}
}
