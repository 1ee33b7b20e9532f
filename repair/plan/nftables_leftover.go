package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// mendNFTLeftovers removes kube-proxy's tables of nftables mode where it runs in another one.
func mendNFTLeftovers(s *site) []report.RepairStep {
	switch s.node.Proxy.Mode {
	case "iptables", "ipvs", "userspace":
	default:
		return nil
	}
	var out []report.RepairStep
	dataplane.EachNFTTable(s.node.NFT, func(_ *nft.Ruleset, t *nft.Table, _ netfilter.Family) {
		found := s.which(func(f *report.Finding) bool {
			return f.ID == "leftover-proxy-mode-rules" && f.Subject == t.String() || byRules[f.ID] && namesTable(f, t)
		})
		if len(found) == 0 {
			return
		}
		switch {
		case t.Owner:
			s.leave(found, fmt.Sprintf("table %s is owned by a program, and the kernel lets nobody else change it", t))
			return
		case !nftWhollyWritable(t):
			s.leave(found, fmt.Sprintf("table %s holds what nft does not write so that it could read it again: nothing could put it back", t))
			return
		}
		first := &s.findings[found[0]]
		out = append(out, report.RepairStep{
			Kind: kindNFTables, Owner: ownerProxy,
			Title:   fmt.Sprintf("remove table %s of nftables mode", t),
			Reason:  first.Message,
			Affects: "new connections to all Services of the node, which then meet the rules of " + s.node.Proxy.Mode + " mode alone",
			Risk:    "connections that the table translated stay translated, but answers that it masqueraded are not masqueraded any more for new ones",
			Lasts:   "until kube-proxy is started in nftables mode",
			Edits: []report.RepairEdit{{
				Table: t.String(), Object: nftWholeTable, Reason: "kube-proxy runs in " + s.node.Proxy.Mode + " mode and keeps no such table",
				Was: nftTableLines(t), Will: []string{}, Remove: true, Findings: s.mends(found...),
			}},
			Do:   nftCommand("delete table " + t.String() + "\n"),
			Undo: nftCommand(nftTableScript(t)),
		})
	})
	return out
}

// namesTable tells whether the evidence of a finding names a table of nftables.
func namesTable(f *report.Finding, t *nft.Table) bool {
	return slices.ContainsFunc(f.Evidence, func(e report.Evidence) bool {
		return strings.HasPrefix(e.Text, "table "+t.String()+" ")
	})
}

// nftWhollyWritable tells whether a whole table can be made again from its text.
func nftWhollyWritable(t *nft.Table) bool {
	return !t.Unclear && nftSafe(t.Comment) && !strings.Contains(t.Comment, `"`) && len(t.Objects) == 0 && len(t.Flowtables) == 0 &&
		!slices.ContainsFunc(t.Chains, func(c *nft.Chain) bool { return c.Inline || !nftWritable(c) }) &&
		!slices.ContainsFunc(t.Sets, func(s *nft.Set) bool { return s.Incomplete || !nftWritableSet(s) })
}

// nftTableScript makes a table as it is.
func nftTableScript(t *nft.Table) string {
	s := &nftScript{nftDifference: &nftDifference{name: t.String(), family: t.Family, table: t}, final: make(map[string][]string)}
	var inside []string
	if t.Dormant {
		inside = append(inside, "flags dormant;")
	}
	if t.Comment != "" {
		inside = append(inside, fmt.Sprintf("comment \"%s\";", t.Comment))
	}
	if len(inside) > 0 {
		s.line("add table %s { %s }", t, strings.Join(inside, " "))
	} else {
		s.line("add table %s", t)
	}
	for _, c := range t.Chains {
		s.addChain(c.Name, &nftState{comment: c.Comment, base: c.Base})
		s.final[c.Name] = nftRules(t, c)
	}
	for _, set := range t.Sets {
		s.addSet(nftDeclaration(set))
		var texts []string
		for i := range set.Entries {
			e := &set.Entries[i]
			if set.Dynamic || set.HasTimeout {
				texts = append(texts, nftKeyText(set, e)) // remembered for the whole time again
			} else {
				texts = append(texts, set.EntryText(e))
			}
		}
		for part := range slices.Chunk(texts, perCommand) {
			s.line("add element %s %s { %s }", t, set.Name, strings.Join(part, ", "))
		}
	}
	s.rules()
	return s.out.String()
}
