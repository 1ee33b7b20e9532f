package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// leftNFT are the tables of nftables mode beside a kube-proxy that runs in another one. kube-proxy removes them when it
// starts since 1.30; where that failed, or an older one was told another mode, they go on deciding.
func (n *Node) leftNFT() []report.Finding {
	if n.Proxy.Mode == "nftables" {
		return nil
	}
	var out []report.Finding
	dataplane.EachNFTTable(n.NFT, func(rs *nft.Ruleset, t *nft.Table, _ netfilter.Family) {
		rules := 0
		for _, c := range t.Chains {
			rules += len(c.Rules)
		}
		if rules == 0 {
			return
		}
		f := report.Finding{
			Subject:  t.String(),
			Message:  fmt.Sprintf("kube-proxy runs in %s mode, and table %s of nftables mode is there and still decides about packets", n.Proxy.Mode, t),
			Want:     fmt.Sprintf("rules of %s mode only", n.Proxy.Mode),
			Got:      fmt.Sprintf("table %s with %s", t, plural(rules, "rule")),
			Evidence: []report.Evidence{{Source: "nftables", File: rs.File, Line: t.Line, Text: "table " + t.String()}},
			Causes:   []string{"the proxy mode was changed, and kube-proxy could not remove the tables when it started, or is older than 1.30 and did not try"},
			Remedy:   "remove it: nft delete table " + t.String(),
		}
		if t.Dormant || len(t.BaseChains()) == 0 {
			f.Severity = Warning
			f.Message = fmt.Sprintf("kube-proxy runs in %s mode, and table %s of nftables mode is there; it does nothing", n.Proxy.Mode, t)
		}
		out = append(out, f)
	})
	return out
}
