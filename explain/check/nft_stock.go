package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// nftChanged is why a table of kube-proxy's is not as it left it.
const nftChanged = "something other than kube-proxy changed its table: in nftables mode kube-proxy does not notice, and rewrites these chains in a full sync only"

// nftUnreached are the stock rules that kube-proxy's tables of nftables lack, those of one chain in one finding, and the
// base chains that packets do not come to as they should.
func (n *Node) nftUnreached() []report.Finding {
	if n.Proxy.Mode != "nftables" {
		return nil
	}
	var out []report.Finding
	dataplane.EachNFTTable(n.NFT, func(rs *nft.Ruleset, t *nft.Table, family netfilter.Family) {
		lacks := make(map[string][]string)
		var order []string
		for _, s := range dataplane.NFTStock(n.Proxy.Within) {
			if nftHas(t, s) || s == dataplane.NFTMarkClusterIPs && !n.tellsPods(family) {
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
		out = append(out, n.nftStrange(rs, t)...)
		if t.Dormant {
			out = append(out, nftDormant(rs, t))
		}
		for _, b := range dataplane.NFTStockBases(n.Proxy.Within) {
			if f, ok := nftMisplaced(rs, t, b); ok {
				out = append(out, f)
			}
		}
	})
	return out
}

// tellsPods tells whether kube-proxy surely can tell pods from other clients in a family, or masquerades all.
func (n *Node) tellsPods(family netfilter.Family) bool {
	switch p := &n.Proxy; p.LocalMode {
	case "BridgeInterface", "InterfaceNamePrefix":
		return true
	case "ClusterCIDR", "NodeCIDR":
		return p.MasqueradeAll || slices.ContainsFunc(p.ClusterCIDRs, func(c netip.Prefix) bool { return c.Addr().Is4() == (family == netfilter.IPv4) })
	default:
		return p.MasqueradeAll
	}
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
		Causes:   []string{nftChanged},
		Remedy:   restartProxy,
	}
}

// nftStrange are the rules in the chains that all Services share which no kube-proxy makes there: what stands behind them
// may not be met, or be met by others. The cells tell whether packets fare otherwise for it.
func (n *Node) nftStrange(rs *nft.Ruleset, t *nft.Table) []report.Finding {
	if !n.Proxy.Within(30, 36) || n.Proxy.MasqueradeMark == 0 {
		return nil
	}
	var out []report.Finding
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			if dataplane.NFTSharedRule(c.Name, r, n.Proxy.MasqueradeMark) {
				continue
			}
			e := nftEvidence(rs, t, c, r)
			out = append(out, report.Finding{
				Severity: Warning,
				Subject:  fmt.Sprintf("%s %s", t, c.Name),
				Message:  fmt.Sprintf("chain %s of table %s has a rule that kube-proxy does not make there: %s", c.Name, t, r.Text),
				Want:     "kube-proxy's rules alone",
				Got:      r.Text,
				Evidence: []report.Evidence{e},
				Causes:   []string{nftChanged},
				Remedy:   restartProxy,
			})
			break // one for a chain
		}
	}
	return out
}

// nftDormant is a table that is there and switched off.
func nftDormant(rs *nft.Ruleset, t *nft.Table) report.Finding {
	return report.Finding{
		Subject:  t.String(),
		Message:  fmt.Sprintf("table %s is dormant: the kernel runs none of its chains", t),
		Want:     "a table that is not dormant",
		Got:      "flags dormant",
		Evidence: []report.Evidence{{Source: "nftables", File: rs.File, Line: t.Line, Text: fmt.Sprintf("table %s { flags dormant }", t)}},
		Causes:   []string{nftChanged},
		Remedy:   restartProxy,
	}
}

// nftMisplaced is a base chain that is hooked in otherwise than kube-proxy does it, or that drops what comes to its end.
func nftMisplaced(rs *nft.Ruleset, t *nft.Table, want dataplane.NFTStockBase) (report.Finding, bool) {
	c := t.Chain(want.Chain)
	if c == nil {
		return report.Finding{}, false // nftLack says so
	}
	base := c.Base
	if base == nil {
		base = &nft.Base{}
	}
	policy := cmp.Or(base.Policy, "accept")
	hooked := fmt.Sprintf("type %s hook %s priority %d", base.Type, base.Hook, base.Priority)
	wanted := fmt.Sprintf("type %s hook %s priority %d", want.Type, want.Hook, want.Priority)
	e := report.Evidence{Source: "nftables", File: rs.File, Line: c.Line}
	e.Text = fmt.Sprintf("table %s chain %s { %s; policy %s; }", t, c.Name, hooked, policy)
	f := report.Finding{
		Subject:  fmt.Sprintf("%s %s", t, c.Name),
		Want:     wanted + " policy accept",
		Got:      fmt.Sprintf("%s policy %s", hooked, policy),
		Evidence: []report.Evidence{e},
		Causes:   []string{nftChanged},
		Remedy:   restartProxy,
	}
	switch {
	case c.Base == nil:
		f.Got = "no base chain"
		f.Evidence[0].Text = fmt.Sprintf("table %s chain %s", t, c.Name)
		f.Message = fmt.Sprintf("chain %s of table %s is no base chain, so that no packet comes to it: kube-proxy hooks it in as %s", c.Name, t, wanted)
	case policy == "drop":
		f.Message = fmt.Sprintf("chain %s of table %s has the policy drop: it drops all packets of which kube-proxy knows nothing, and those that it only lets pass", c.Name, t)
	case hooked != wanted:
		// Whether packets fare otherwise for it depends on what else stands at the hook; the cells tell.
		f.Severity = Warning
		f.Message = fmt.Sprintf("chain %s of table %s is hooked in as %s, and kube-proxy hooks it in as %s: packets come to it before or behind others than they should", c.Name, t, hooked, wanted)
	default:
		return report.Finding{}, false
	}
	return f, true
}
