package traits

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/nft"
)

// modeFallback is svcnet's own fallback proxy. Its tables come before those of kube-proxy, so that where they are they
// decide, whatever kube-proxy is configured for.
const modeFallback = "svcnet"

// fallbackChain is the one by which packets to a frontend pass; svcnet keeps it whatever Services there are.
const fallbackChain = "service"

// fallbackLocal is the one for policy Local, which spares pods.
const fallbackLocal = "external-local"

// fallbackTables are the tables of svcnet's fallback proxy, with the number of their family.
func fallbackTables(rulesets []*nft.Ruleset, f func(rs *nft.Ruleset, t *nft.Table, family int)) {
	for _, rs := range rulesets {
		for _, t := range rs.Tables {
			if t.Name != "svcnet" || t.Dormant || t.Chain(fallbackChain) == nil {
				continue
			}
			switch t.Family {
			case nft.IP:
				f(rs, t, 4)
			case nft.IP6:
				f(rs, t, 6)
			}
		}
	}
}

// readFallback claims what the tables of svcnet's fallback proxy say: that it serves Services on the node, and how.
func (l *ledger) readFallback(rulesets []*nft.Ruleset, nodes []Node) {
	var table Fact
	detects := false
	fallbackTables(rulesets, func(rs *nft.Ruleset, t *nft.Table, family int) {
		at := Fact{File: rs.File, Line: max(t.Line, 1), Text: "table " + t.String()}
		claim := func(key, name, value string) {
			f := at
			f.Name, f.Value = name, value
			l.add(key, ahead, f)
		}
		claim("mode", "mode", modeFallback)
		table = at
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				mark, marks := nftMark(r)
				f := at
				f.Line, f.Text = max(r.Line, 1), r.Text
				switch {
				case marks && c.Name == fallbackChain && len(r.Statements) == 2 && isClusterIP(r):
					f.Name, f.Value = "masqueradeAll", "true"
					l.add("masqueradeAll/"+modeFallback, ahead, f)
					fallthrough
				case marks:
					f.Name, f.Value = "masqueradeMark", markText(mark)
					l.add("masqueradeMark/"+modeFallback, ahead, f)
				case c.Name == fallbackLocal && l.readNFTDetector(rs, r, family, nodes, ahead, "=="):
					detects = true
				}
			}
		}
		if set := t.Set("nodeport-ips"); set != nil && len(set.Entries) == 0 {
			// No address takes node ports: that is not the same as nothing being said.
			claim(fmt.Sprintf("nodePortAddresses/%d", family), "nodePortAddresses", map[int]string{4: "0.0.0.0/32", 6: "::/128"}[family])
		} else {
			l.readNFTNodePorts(rs, t, family, ahead)
		}
	})
	if table.File != "" && !detects {
		table.Name, table.Value = "localMode", "-"
		l.add("localMode", ahead, table)
	}
}

// isClusterIP tells rules for packets to an address within the cluster.
func isClusterIP(r *nft.Rule) bool {
	m, ok := matchOf(r, 0)
	if !ok {
		return false
	}
	set, ok := m.Right.(nft.SetRef)
	return ok && set.Name == "cluster-ips"
}
