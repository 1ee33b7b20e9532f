package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// inTheWay are the findings whose cause may be a rule of another program's table of nftables, which the evidence names.
var inTheWay = map[string]bool{
	"early-accept-hides-reject":         true,
	"excluded-endpoint-used":            true,
	"foreign-dnat-before-kube-services": true,
	"frontend-unreachable":              true,
	"fwmark-set-before-service-dnat":    true,
	"invalid-drop-hits-traffic":         true,
	"masquerade-missing":                true,
	"masquerade-unexpected":             true,
	"missing-service-rule":              true,
	"neighbour-discovery-dropped":       true,
	"notrack-breaks-reply-translation":  true,
	"refusal-missing":                   true,
	"reply-blocked":                     true,
	"selection-incomplete":              true,
	"stale-endpoint-rule":               true,
	"wrong-translation":                 true,
}

// An obstacle is a rule of another program that is in the way of Services.
type obstacle struct {
	table *nft.Table
	chain *nft.Chain
	text  string
	// rules are the indexes of the chain's rules that say so.
	rules    []int
	findings []int
}

// mendForeignNFT takes rules of other programs away that findings name as what is in the way, one transaction for each
// table. Whoever made them wanted something by them, and has to be asked: the steps need consent.
func mendForeignNFT(s *site) []report.RepairStep {
	if nftUnread(s.node) != "" {
		return nil
	}
	var all []*obstacle
	for _, i := range s.which(func(f *report.Finding) bool { return inTheWay[f.ID] }) {
		for _, e := range s.findings[i].Evidence {
			o := s.obstacleNamed(e.Text)
			if o == nil {
				continue
			}
			if o.table.Owner {
				s.leave([]int{i}, fmt.Sprintf("table %s is owned by a program, and the kernel lets nobody else change it", o.table))
				continue
			}
			at := slices.IndexFunc(all, func(x *obstacle) bool { return x.chain == o.chain && x.text == o.text })
			if at < 0 {
				at = len(all)
				all = append(all, o)
			}
			if !slices.Contains(all[at].findings, i) {
				all[at].findings = append(all[at].findings, i)
			}
		}
	}
	var out []report.RepairStep
	for len(all) > 0 {
		table := all[0].table
		of := func(o *obstacle) bool { return o.table == table }
		mine := slices.DeleteFunc(slices.Clone(all), func(o *obstacle) bool { return !of(o) })
		all = slices.DeleteFunc(all, of)
		out = append(out, s.removeObstacles(table, mine))
	}
	return out
}

// nftRuleNamed is how findings name a rule of nftables.
var nftRuleNamed = regexp.MustCompile(`^table (\S+ \S+) chain (\S+) \{ (.*) \}$`)

// obstacleNamed is the rule of another program that an evidence names, nil for none.
func (s *site) obstacleNamed(evidence string) *obstacle {
	m := nftRuleNamed.FindStringSubmatch(evidence)
	if m == nil {
		return nil
	}
	t := nftOf(s.node, m[1])
	if t == nil || dataplane.OfKubeProxy(t) || ofIPTables(t) {
		return nil
	}
	c := t.Chain(m[2])
	if c == nil || c.Inline {
		return nil
	}
	if !nftWritable(c) || !nftName(t.Name) {
		return nil // it could not be put back
	}
	o := &obstacle{table: t, chain: c}
	for i, r := range c.Rules {
		// Of a set that is looked up the evidence may show the entry.
		if !decides(r) || r.Text != m[3] && !strings.HasPrefix(m[3], r.Text+" {") {
			continue
		}
		o.text = t.RuleText(r)
		o.rules = append(o.rules, i)
	}
	if len(o.rules) == 0 {
		return nil
	}
	return o
}

// ofIPTables tells tables that iptables-nft keeps.
func ofIPTables(t *nft.Table) bool {
	switch t.Name {
	case "raw", "mangle", "nat", "filter", "security":
	default:
		return false
	}
	return (t.Family == nft.IP || t.Family == nft.IP6) && slices.ContainsFunc(t.BaseChains(), func(c *nft.Chain) bool {
		return c.Name == strings.ToUpper(c.Base.Hook)
	})
}

// decides tells rules that do something to packets from those that only look, or lead to others.
func decides(r *nft.Rule) bool {
	return slices.ContainsFunc(r.Statements, func(s nft.Statement) bool {
		switch s := s.(type) {
		case *nft.Verdict:
			return s.Kind == nft.Drop || s.Kind == nft.Accept || s.Kind == nft.Return
		case *nft.VerdictMap, *nft.NAT, *nft.Reject, nft.NoTrack, *nft.Assign, *nft.Queue, *nft.TProxy:
			return true
		}
		return false
	})
}

// nftRuleObject names a rule in an edit.
func nftRuleObject(rule, chain string) string { return fmt.Sprintf("rule %q of chain %s", rule, chain) }

// removeObstacles is the transaction that takes rules out of a table.
func (s *site) removeObstacles(t *nft.Table, all []*obstacle) report.RepairStep {
	step := report.RepairStep{
		Kind: kindNFTables, Owner: ownerForeign, Consent: AllowForeign,
		Risk:  "whoever made it wanted something by it, which is then not done; it may be made again at any time",
		Lasts: "until the program that keeps the table makes it again",
	}
	rules := 0
	var text string
	asked := make(map[int]bool)
	byChain := make(map[*nft.Chain][]int)
	var chains []*nft.Chain
	for _, o := range all {
		rules += len(o.rules)
		text = o.text
		if byChain[o.chain] == nil {
			chains = append(chains, o.chain)
		}
		byChain[o.chain] = append(byChain[o.chain], o.rules...)
		for _, i := range o.findings {
			asked[i] = true
		}
		lines := make([]string, len(o.rules))
		for i := range lines {
			lines[i] = o.text
		}
		step.Edits = append(step.Edits, report.RepairEdit{
			Table: t.String(), Object: nftRuleObject(o.text, o.chain.Name), Reason: s.findings[o.findings[0]].Message,
			Was: lines, Will: []string{}, Remove: true, Findings: s.mends(o.findings...),
		})
	}
	var do, undo strings.Builder
	for _, c := range chains {
		slices.Sort(byChain[c])
		takeRules(t, c, byChain[c], &do, &undo)
	}
	step.Do, step.Undo = nftCommand(do.String()), nftCommand(undo.String())
	step.Title = fmt.Sprintf("remove %s from table %s", plural(rules, "rule"), t)
	if rules == 1 {
		step.Title = fmt.Sprintf("remove %q from chain %s of table %s", text, all[0].chain.Name, t)
	}
	step.Reason = s.firstOf(asked)
	step.Affects = "all packets that the rule meets, those of Services among them"
	return step
}

// takeRules writes what takes some rules out of a chain, and what puts them back in their places. Rules whose handle is not
// known are taken out by writing the others anew.
func takeRules(t *nft.Table, c *nft.Chain, at []int, do, undo *strings.Builder) {
	line := func(b *strings.Builder, format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
	taken := func(i int) bool { return slices.Contains(at, i) }
	if slices.ContainsFunc(c.Rules, func(r *nft.Rule) bool { return r.Handle == 0 }) {
		line(do, "flush chain %s %s", t, c.Name)
		line(undo, "flush chain %s %s", t, c.Name)
		for i, r := range c.Rules {
			text := nftReadable(t.RuleText(r))
			if !taken(i) {
				line(do, "add rule %s %s %s", t, c.Name, text)
			}
			line(undo, "add rule %s %s %s", t, c.Name, text)
		}
		return
	}
	for _, i := range at {
		line(do, "delete rule %s %s handle %d", t, c.Name, c.Rules[i].Handle)
	}
	// From the last to the first, each behind the nearest rule that stayed.
	for _, i := range slices.Backward(at) {
		before := i - 1
		for before >= 0 && taken(before) {
			before--
		}
		text := nftReadable(t.RuleText(c.Rules[i]))
		if before < 0 {
			line(undo, "insert rule %s %s %s", t, c.Name, text)
		} else {
			line(undo, "add rule %s %s handle %d %s", t, c.Name, c.Rules[before].Handle, text)
		}
	}
}
