package plan

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/kubeproxy"
)

// kindNFTables is the kind of steps that change tables of nftables.
const kindNFTables = "nftables"

// nftMode is kube-proxy's name of the mode.
const nftMode = "nftables"

// byRules are the findings that rules may be behind: those that are not about objects, the proxy or the machine.
var byRules = map[string]bool{
	"affinity-mismatch":                 true,
	"affinity-to-unready-endpoint":      true,
	"duplicate-rules":                   true,
	"early-accept-hides-reject":         true,
	"excluded-endpoint-used":            true,
	"foreign-dnat-before-kube-services": true,
	"frontend-unreachable":              true,
	"fwmark-set-before-service-dnat":    true,
	"invalid-drop-hits-traffic":         true,
	"invalid-drop-missing":              true,
	"kube-jump-missing":                 true,
	"local-endpoint-not-used":           true,
	"local-policy-masquerade-order":     true,
	"masquerade-missing":                true,
	"masquerade-unexpected":             true,
	"missing-endpoint-rule":             true,
	"missing-service-rule":              true,
	"neighbour-discovery-dropped":       true,
	"nft-map-entry-missing":             true,
	"nft-map-entry-stale":               true,
	"not-ready-endpoint-used":           true,
	"policy-drop":                       true,
	"probability-skewed":                true,
	"refusal-missing":                   true,
	"reject-rule-with-ready-endpoints":  true,
	"reply-blocked":                     true,
	"selection-incomplete":              true,
	"stale-endpoint-rule":               true,
	"stale-service-rule":                true,
	"wrong-translation":                 true,
}

// mendNFTables puts kube-proxy's tables of nftables mode as it keeps them, as far as findings ask for it: one transaction
// for each family.
func mendNFTables(s *site) []report.RepairStep {
	if s.node.Proxy.Mode != nftMode || nftUnread(s.node) != "" {
		return nil
	}
	relevant := s.which(func(f *report.Finding) bool { return byRules[f.ID] })
	if len(relevant) == 0 {
		return nil
	}
	var all []*nftDifference
	for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		d, err := s.nftDifference(family)
		if err != nil {
			s.leave(relevant, err.Error())
			continue
		}
		if d != nil {
			all = append(all, d)
		}
	}
	s.ask(all, relevant)
	var out []report.RepairStep
	for _, d := range all {
		out = append(out, s.mendNFTable(d, relevant)...)
	}
	return out
}

// nftDifference is what tells a table of kube-proxy's from what it keeps; nil where no Service asks for one and there is
// none. Where the release is not known it is the one to which the table comes nearest.
func (s *site) nftDifference(family netfilter.Family) (*nftDifference, error) {
	releases, err := kubeproxy.NFTReleases(&s.node.Proxy)
	if err != nil {
		return nil, err
	}
	ip := map[netfilter.Family]nft.Family{netfilter.IPv4: nft.IP, netfilter.IPv6: nft.IP6}[family]
	table := nftOf(s.node, string(ip)+" "+kubeproxy.NFTName)
	if table == nil && len(releases) > 1 {
		return nil, fmt.Errorf("table %s %s is gone, and which release of kube-proxy made it is not known", ip, kubeproxy.NFTName)
	}
	if table != nil && table.Owner {
		return nil, fmt.Errorf("table %s is owned by a program, and the kernel lets nobody else change it", table)
	}
	whole, proxy := nftWhole(s.node), kubeproxy.NFTProxy(&s.node.Proxy, s.node.NFT)
	var best *nftDifference
	for _, r := range releases {
		want, err := kubeproxy.NFTables(family, r, s.node.Plan, proxy, kubeproxy.NFTNode{Table: table, Host: s.node.Host})
		if err != nil {
			return nil, err
		}
		if d := nftCompare(ip, table, want, whole); best == nil || len(d.changes) < len(best.changes) {
			best = d
		}
	}
	if table == nil && !slices.ContainsFunc(best.want.Chains, func(c *kubeproxy.NFTChain) bool { return c.Service != "" }) {
		return nil, nil // nobody misses it
	}
	if table == nil && (!whole || best.want.AnyUnknown()) {
		return nil, fmt.Errorf("table %s is gone, and not all Services and EndpointSlices are known that it would have to serve", best.name)
	}
	return best, nil
}

// mendNFTable plans the steps of one table.
func (s *site) mendNFTable(d *nftDifference, relevant []int) []report.RepairStep {
	if d.table == nil {
		return []report.RepairStep{s.makeNFTable(d, relevant)}
	}
	var out []report.RepairStep
	if chosen := d.chosen(); len(chosen) > 0 {
		out = append(out, s.nftStep(d, chosen))
	}
	if d.table.Dormant {
		// Behind the others, so that the table wakes with rules that are right; and by itself, because the kernel takes no
		// base chain in the transaction that wakes its table.
		out = append(out, s.wakeNFTable(d, relevant))
	}
	return out
}

// nftNamed finds what texts of findings name in a table: "table ip kube-proxy chain services { … }", subjects as
// "ip kube-proxy services" and "ip kube-proxy/filter-forward(policy)".
var (
	nftNamedChain = regexp.MustCompile(`\btable (ip6? kube-proxy) chain ([^ {}]+)`)
	nftNamedPlace = regexp.MustCompile(`^(ip6? kube-proxy)[ /]([^ ()]+)`)
	nftForeign    = regexp.MustCompile(`\btable (\S+ \S+) chain `)
)

// nftNamedBy are the chains, and the entries, of a table that a finding names.
func nftNamedBy(table string, f *report.Finding) map[string]bool {
	out := make(map[string]bool)
	texts := []string{f.Subject}
	for _, e := range f.Evidence {
		texts = append(texts, e.Text)
	}
	for _, text := range texts {
		for _, m := range nftNamedChain.FindAllStringSubmatch(text, -1) {
			if m[1] == table {
				out["chain "+m[2]] = true
			}
		}
		if m := nftNamedPlace.FindStringSubmatch(text); m != nil && m[1] == table {
			out["chain "+m[2]] = true
		}
	}
	// "service-ips: 10.96.0.1 . tcp . 443 : goto X" of a finding about "map service-ips of table ip kube-proxy".
	if strings.HasPrefix(f.ID, "nft-map-entry-") && strings.Contains(f.Message, " of table "+table+" ") {
		out["entry "+f.Subject] = true
	}
	return out
}

// elsewhere tells whether a finding names rules that are not kube-proxy's: what it found is not of its tables.
func elsewhere(f *report.Finding) bool {
	for _, e := range f.Evidence {
		for _, m := range nftForeign.FindAllStringSubmatch(e.Text, -1) {
			if m[1] != "ip kube-proxy" && m[1] != "ip6 kube-proxy" {
				return true
			}
		}
		if strings.HasPrefix(e.Source, "iptables") {
			return true
		}
	}
	return false
}

// ask notes which findings ask for which changes: of a Service those that are about it or name one of its objects, of what
// serves all those that name it. What serves all and nobody names is asked for by findings that nothing else explains.
func (s *site) ask(all []*nftDifference, relevant []int) {
	covered := make(map[int]bool)
	for _, d := range all {
		for _, i := range relevant {
			if d.asked(i, &s.findings[i]) {
				covered[i] = true
			}
		}
	}
	for _, d := range all {
		for _, c := range d.changes {
			if len(c.findings) > 0 || c.service != "" || c.what == nftEntryObject && c.will == nil {
				continue
			}
			for _, i := range relevant {
				if f := &s.findings[i]; !covered[i] && !elsewhere(f) && check.Rank(f.Severity) <= check.Rank(check.Warning) {
					c.findings = append(c.findings, i)
				}
			}
		}
	}
}

// asked notes the changes that one finding asks for, and tells whether there are any.
func (d *nftDifference) asked(i int, f *report.Finding) bool {
	names := nftNamedBy(d.name, f)
	service := ""
	if f.Object.Kind == "Service" {
		service = f.Object.Namespace + "/" + f.Object.Name
	}
	found := false
	for _, c := range d.changes {
		asks := c.service != "" && c.service == service
		switch c.what {
		case nftChainObject:
			asks = asks || names["chain "+c.name]
		case nftEntryObject:
			asks = asks || names["entry "+c.name+": "+cmp.Or(c.will, c.was).entry]
		}
		if asks {
			c.findings = append(c.findings, i)
			found = true
		}
	}
	return found
}

// chosen are the changes that findings ask for, and what they lead to.
func (d *nftDifference) chosen() []*nftChange {
	return d.withNeeds(slices.DeleteFunc(slices.Clone(d.changes), func(c *nftChange) bool { return len(c.findings) == 0 }))
}

var nftLeadsTo = regexp.MustCompile(`\b(?:goto|jump) ([^ ,;{}]+)`)

// withNeeds adds the chains and sets that changes lead to and that are not there.
func (d *nftDifference) withNeeds(chosen []*nftChange) []*nftChange {
	in := make(map[*nftChange]bool, len(chosen))
	for _, c := range chosen {
		in[c] = true
	}
	for i := 0; i < len(chosen); i++ {
		c := chosen[i]
		if c.will == nil {
			continue
		}
		need := func(object string) {
			x := d.byName[object]
			if x == nil || in[x] || x.was != nil && x.what == nftChainObject {
				return
			}
			in[x] = true
			if len(x.findings) == 0 {
				x.findings = c.findings
			}
			chosen = append(chosen, x)
		}
		texts := append([]string{c.will.entry}, c.will.rules...)
		if c.what == nftEntryObject {
			need("set " + c.name)
			need("map " + c.name)
		}
		for _, text := range texts {
			for _, m := range nftLeadsTo.FindAllStringSubmatch(text, -1) {
				need("chain " + m[1])
			}
			for _, m := range nftNamedSet.FindAllStringSubmatch(text, -1) {
				need("set " + m[1])
				need("map " + m[1])
			}
		}
	}
	// In the order in which the table has them.
	at := make(map[*nftChange]int, len(d.changes))
	for i, c := range d.changes {
		at[c] = i
	}
	slices.SortFunc(chosen, func(a, b *nftChange) int { return cmp.Compare(at[a], at[b]) })
	return chosen
}

// nftCommand runs a transaction.
func nftCommand(script string) report.RepairCommand {
	return report.RepairCommand{Command: []string{"nft", "-f", "-"}, Input: script}
}

// nftStep is the transaction of some changes.
func (s *site) nftStep(d *nftDifference, chosen []*nftChange) report.RepairStep {
	step := report.RepairStep{
		Kind: kindNFTables, Owner: ownerProxy,
		Do: nftCommand(d.script(chosen, false)), Undo: nftCommand(d.script(chosen, true)),
		Risk: "none that is known: packets meet the table as it was or as it will be, and connections that are translated stay so", Lasts: s.nftLasts(),
	}
	var chains, sets, entries int
	var services []string
	all := false
	asked := make(map[int]bool)
	for _, c := range chosen {
		switch c.what {
		case nftChainObject:
			chains++
		case nftSetObject:
			sets++
		default:
			entries++
		}
		if c.service == "" {
			all = true
		} else if !slices.Contains(services, c.service) {
			services = append(services, c.service)
		}
		for _, i := range c.findings {
			asked[i] = true
		}
		step.Edits = append(step.Edits, s.nftEdit(d, c))
	}
	step.Title = fmt.Sprintf("put %s of table %s as kube-proxy keeps %s", nftCounted(chains, sets, entries), d.name, agree(chains+sets+entries, "it", "them"))
	step.Reason = s.firstOf(asked)
	step.Affects = nftAffects(all, services)
	if again := (&nftScript{nftDifference: d, changes: chosen}).basesAnew(); len(again) > 0 {
		step.Risk = "base chains are taken away and made anew: at the same hook and priority they then run before those of other programs, as after a restart of kube-proxy"
	}
	return step
}

// nftCounted counts objects in words.
func nftCounted(chains, sets, entries int) string {
	var out []string
	for _, n := range []struct {
		n         int
		one, many string
	}{{chains, "chain", "chains"}, {sets, "set or map", "sets and maps"}, {entries, "element", "elements"}} {
		if n.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n.n, agree(n.n, n.one, n.many)))
		}
	}
	if len(out) == 3 {
		return out[0] + ", " + out[1] + " and " + out[2]
	}
	return strings.Join(out, " and ")
}

// nftAffects says whose connections change.
func nftAffects(all bool, services []string) string {
	slices.Sort(services)
	switch {
	case all:
		return "new connections to all Services of the node"
	case len(services) == 1:
		return "new connections to Service " + services[0]
	case len(services) <= 3:
		return "new connections to Services " + strings.Join(services, ", ")
	}
	return fmt.Sprintf("new connections to %d Services (%s and others)", len(services), strings.Join(services[:3], ", "))
}

// firstOf is what the worst of some findings says.
func (s *site) firstOf(findings map[int]bool) string {
	for i := range s.findings {
		if findings[i] {
			return s.findings[i].Message
		}
	}
	return ""
}

// nftEdit is one change as the plan says it.
func (s *site) nftEdit(d *nftDifference, c *nftChange) report.RepairEdit {
	e := report.RepairEdit{
		Table: d.name, Object: c.object(), Reason: c.reason, Service: c.service, Findings: s.mends(c.findings...),
		Was: []string{}, Will: []string{}, Absent: c.was == nil, Remove: c.will == nil,
	}
	if c.was != nil {
		e.Was = c.was.lines
	}
	if c.will != nil {
		e.Will = c.will.lines
	}
	return e
}

// nftLasts says what kube-proxy does with what was written by hand.
func (s *site) nftLasts() string {
	p := &s.node.Proxy
	switch {
	case p.Within(0, 30):
		return "until kube-proxy's next sync, at most " + cmp.Or(p.SyncPeriod, 30*time.Second).String() + " later, which writes all of the table anew, and the same"
	case p.Within(31, 32):
		return "until kube-proxy starts again or a label of its Node changes, when it writes all of the table anew, and the same; until then it writes what changes of a Service alone, and does not notice what others do to the rest. Where it finds an entry gone that it remembers, that sync fails, and the next one writes everything"
	}
	return "until kube-proxy's next full sync (once an hour, and when it starts), which writes all of the table anew, and the same; until then it writes what changes of a Service alone, and does not notice what others do to the rest. Where it finds an entry gone that it remembers, that sync fails, and the next one is a full one"
}

// makeNFTable makes a table that is gone.
func (s *site) makeNFTable(d *nftDifference, relevant []int) report.RepairStep {
	t := &nft.Table{Family: d.family, Name: kubeproxy.NFTName, Comment: d.want.Comment}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	head := ""
	if t.Comment != "" {
		head = fmt.Sprintf(" { comment \"%s\"; }", t.Comment)
	}
	line("add table %s%s", d.name, head)
	script := &nftScript{nftDifference: d, final: make(map[string][]string)}
	services := make(map[string]bool)
	for _, c := range d.want.Chains {
		chain := t.AddChain(c.Name)
		chain.Comment, chain.Base = c.Comment, c.Base
		for _, r := range c.Rules {
			chain.Rules = append(chain.Rules, &nft.Rule{Text: r})
		}
		script.addChain(c.Name, &nftState{comment: c.Comment, base: c.Base})
		script.final[c.Name] = c.Rules
		services[c.Service] = true
	}
	for _, set := range d.want.Sets {
		script.addSet(set.Set)
		made := nftDeclaration(set.Set)
		var texts []string
		for _, e := range set.Entries {
			made.Entries = append(made.Entries, e.Entry)
			texts = append(texts, made.EntryText(&e.Entry))
		}
		t.Sets = append(t.Sets, made)
		for part := range slices.Chunk(texts, perCommand) {
			script.line("add element %s %s { %s }", d.name, set.Name, strings.Join(part, ", "))
		}
	}
	script.rules()
	b.WriteString(script.out.String())
	asked := make(map[int]bool)
	for _, i := range relevant {
		if f := &s.findings[i]; !elsewhere(f) {
			asked[i] = true
		}
	}
	indexes := make([]int, 0, len(asked))
	for i := range asked {
		indexes = append(indexes, i)
	}
	edit := report.RepairEdit{
		Table: d.name, Object: nftWholeTable, Reason: "kube-proxy keeps this table, and it is not there", Was: []string{}, Absent: true,
		Will: nftTableLinesOf(t, d.want), Findings: s.mends(indexes...),
	}
	delete(services, "")
	return report.RepairStep{
		Kind: kindNFTables, Owner: ownerProxy,
		Title:   fmt.Sprintf("make table %s with all that kube-proxy keeps there: %s, for %s", d.name, nftCounted(len(d.want.Chains), len(d.want.Sets), 0), plural(len(services), "Service")),
		Reason:  s.firstOf(asked),
		Affects: "new connections to all Services of the node",
		Risk:    "what made the table go may do it again; rules of other programs are not touched",
		Edits:   []report.RepairEdit{edit},
		Do:      nftCommand(b.String()), Undo: nftCommand("delete table " + d.name + "\n"),
		Lasts: s.nftLasts(),
	}
}

// wakeNFTable switches a table on that is there and switched off.
func (s *site) wakeNFTable(d *nftDifference, relevant []int) report.RepairStep {
	asked := make(map[int]bool)
	var indexes []int
	for _, i := range relevant {
		if !elsewhere(&s.findings[i]) {
			asked[i] = true
			indexes = append(indexes, i)
		}
	}
	return report.RepairStep{
		Kind: kindNFTables, Owner: ownerProxy,
		Title:   fmt.Sprintf("switch table %s on again", d.name),
		Reason:  s.firstOf(asked),
		Affects: "new connections to all Services of the node",
		Risk:    "what switched the table off may do it again",
		Edits: []report.RepairEdit{{
			Table: d.name, Object: nftTableFlags, Reason: "the table is dormant: the kernel runs none of its chains", Findings: s.mends(indexes...),
			Was: []string{"flags dormant"}, Will: []string{},
		}},
		Do: nftCommand("add table " + d.name + "\n"), Undo: nftCommand("add table " + d.name + " { flags dormant; }\n"),
		Lasts: s.nftLasts(),
	}
}

// nftTableLinesOf are the lines of a table that is not there yet: its rules are text.
func nftTableLinesOf(t *nft.Table, want *kubeproxy.NFTable) []string {
	// Printed without rules, which are put back between.
	bare := &nft.Table{Family: t.Family, Name: t.Name, Comment: t.Comment, Sets: t.Sets}
	out := nftTableLines(bare)
	chains := slices.Clone(want.Chains)
	slices.SortFunc(chains, func(a, b *kubeproxy.NFTChain) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range chains {
		out = append(out, "chain "+c.Name)
		for _, l := range nftChainLines(t.Family, c.Comment, c.Base, c.Rules) {
			out = append(out, "  "+l)
		}
	}
	return out
}
