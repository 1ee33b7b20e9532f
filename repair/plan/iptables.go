package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/kubeproxy"
)

// xtPlanner plans what is to be done to tables of iptables.
type xtPlanner struct {
	*site
	index  xtIndex
	tables map[xtKey]*xtTable
	// differences are those of the tables that kube-proxy writes in iptables mode, or in IPVS mode.
	differences []*xtDifference
	// obstacles are the rules and policies of others that findings name, by finding.
	obstacles map[int][]xtPlace
	// named are the chains that a finding names, families those of the rules that it shows, by finding.
	named    map[int]map[string]bool
	families map[int]map[netfilter.Family]bool
	// passed are rules of others before which kube-proxy's jumps are put.
	passed map[*netfilter.Rule]bool
}

type xtKey struct {
	rules *netfilter.Ruleset
	table string
}

// mendIPTables plans rules of iptables: what kube-proxy writes and is not there, what stands in its way, what is left of
// another mode or backend.
func mendIPTables(s *site) []report.RepairStep {
	if len(s.node.Rulesets) == 0 {
		return nil
	}
	p := &xtPlanner{site: s, tables: map[xtKey]*xtTable{}, obstacles: map[int][]xtPlace{}, named: map[int]map[string]bool{}, passed: map[*netfilter.Rule]bool{}}
	p.findObstacles()
	var out []report.RepairStep
	if s.node.Proxy.Mode == "iptables" || s.node.Proxy.Mode == ipvsMode {
		out = p.proxySteps()
	}
	out = append(out, p.leftoverSteps()...)
	// What needs consent comes last: what is done without it must not rest on it.
	return append(out, p.foreignSteps()...)
}

// table is a table with what steps so far made of it.
func (p *xtPlanner) table(rs *netfilter.Ruleset, name string) *xtTable {
	k := xtKey{rs, name}
	if p.tables[k] == nil {
		p.tables[k] = &xtTable{rules: rs, name: name, read: rs.Table(name), now: map[string]*xtChain{}}
	}
	return p.tables[k]
}

// proxySteps are the steps that make kube-proxy's own rules what they should be, one for each table of a family.
func (p *xtPlanner) proxySteps() []report.RepairStep {
	asking := p.which(aboutRules)
	if len(asking) == 0 {
		return nil
	}
	backend, why := p.backend()
	for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		rs := p.rulesetOf(family, backend)
		if rs == nil || !p.keeps(rs) {
			continue
		}
		want, err := p.want(family, backend)
		if err != nil {
			why = err.Error()
			break
		}
		p.compare(rs, want)
	}
	if why != "" {
		for _, i := range asking {
			p.leave([]int{i}, why)
		}
	}
	chosen := p.choose(asking)
	return p.steps(chosen)
}

// keeps tells whether kube-proxy has rules of a family: there are Services in it, or chains of its own.
func (p *xtPlanner) keeps(rs *netfilter.Ruleset) bool {
	if slices.ContainsFunc(p.node.Plan.Ports, func(sp *intent.ServicePort) bool { return sp.Family == int(rs.Family) }) {
		return true
	}
	return slices.ContainsFunc(rs.Tables, func(t *netfilter.Table) bool {
		return slices.ContainsFunc(t.Chains, func(c *netfilter.Chain) bool { return dataplane.WrittenBy(t.Name, c.Name) == dataplane.KubeProxy })
	})
}

// want is what kube-proxy writes for a family.
func (p *xtPlanner) want(family netfilter.Family, backend netfilter.Backend) (*kubeproxy.IPTables, error) {
	n := p.node
	on := &kubeproxy.IPTablesNode{Host: n.Host}
	for _, rs := range n.Rulesets {
		if rs.Backend == backend || rs.Backend == netfilter.UnknownBackend {
			on.Rulesets = append(on.Rulesets, rs)
		}
	}
	if n.Proxy.Mode == ipvsMode {
		return kubeproxy.IPVSRulesFor(family, n.Plan, &n.Proxy, on, n.Name)
	}
	return kubeproxy.IPTablesFor(family, n.Plan, &n.Proxy, on)
}

// rulesetOf are the rules of a family that kube-proxy writes; nil where they were not read.
func (p *xtPlanner) rulesetOf(family netfilter.Family, backend netfilter.Backend) *netfilter.Ruleset {
	var found *netfilter.Ruleset
	for _, rs := range p.node.Rulesets {
		if rs.Family != family || rs.Backend != backend && rs.Backend != netfilter.UnknownBackend {
			continue
		}
		if found != nil {
			return nil // two captures of the same
		}
		found = rs
	}
	return found
}

// compare finds the differences of one family.
func (p *xtPlanner) compare(rs *netfilter.Ruleset, want *kubeproxy.IPTables) {
	services := make(map[string]string)
	for _, sp := range p.node.Plan.Ports {
		services[dataplane.ChainID(sp.Key(), sp.Protocol)] = sp.Namespace + "/" + sp.Name
	}
	left := len(p.which(func(f *report.Finding) bool { return f.ID == "leftover-proxy-mode-rules" })) > 0
	for _, w := range want.Tables {
		t := p.table(rs, w.Name)
		if t.read != nil && !t.read.Complete {
			continue
		}
		d := differ{table: t, want: w, services: services}
		if left {
			d.mode = p.node.Proxy.Mode
		}
		p.differences = append(p.differences, d.differences()...)
	}
}

// aboutRules tells whether a finding may be about rules that kube-proxy writes. What is for information alone asks for
// nothing but what it is about.
func aboutRules(f *report.Finding) bool {
	c := check.Lookup(f.ID)
	if c == nil || reasons[f.ID] != "" {
		return false
	}
	switch f.ID {
	case "kube-jump-missing", "duplicate-rules", "dangling-or-orphan-chain", "stale-service-rule", "unconditional-drop-in-kube-firewall", "local-policy-masquerade-order", "unreadable-target":
		return true
	}
	return c.MaySettle() && f.Severity != check.Info
}

// choose are the differences that findings ask for, with the findings.
func (p *xtPlanner) choose(asking []int) map[*xtDifference][]int {
	// Most differences are of one Service each, and most findings too.
	general := make([]int, 0, len(asking))
	byService := make(map[string][]int)
	byChain := make(map[string][]int)
	for _, i := range asking {
		if s := serviceIn(&p.findings[i]); s != "" {
			byService[s] = append(byService[s], i)
		} else {
			general = append(general, i)
		}
		for chain := range p.namedBy(i) {
			if dataplane.PerService(chain) {
				byChain[chain] = append(byChain[chain], i)
			}
		}
	}
	chosen := make(map[*xtDifference][]int)
	for _, x := range p.differences {
		of := asking
		if x.service != "" {
			of = slices.Concat(general, byService[x.service], byChain[x.chain])
			slices.Sort(of)
			of = slices.Compact(of)
		}
		for _, i := range of {
			if p.asks(i, x) {
				chosen[x] = append(chosen[x], i)
			}
		}
	}
	p.complete(chosen)
	p.keepReferenced(chosen)
	return chosen
}

// serviceIn is the Service that a finding is about, as "namespace/name"; empty for one of the node.
func serviceIn(f *report.Finding) string {
	if f.Object.Kind != "Service" {
		return ""
	}
	return f.Object.Namespace + "/" + f.Object.Name
}

// complete adds what chosen changes rest on: chains that are not there and to which their rules lead, and what leads to
// the chains that they change.
func (p *xtPlanner) complete(chosen map[*xtDifference][]int) {
	made := make(map[xtKey]map[string][]int)
	wanted := make(map[xtKey]map[string][]int)
	note := func(of map[xtKey]map[string][]int, x *xtDifference, chain string) {
		k := xtKey{x.table.rules, x.table.name}
		if of[k] == nil {
			of[k] = make(map[string][]int)
		}
		of[k][chain] = chosen[x]
	}
	for again := true; again; {
		again = false
		for _, x := range p.differences {
			if chosen[x] == nil || x.removes || x.harmless {
				continue
			}
			note(made, x, x.chain)
			for _, to := range x.needs {
				note(wanted, x, to)
			}
		}
		for _, y := range p.differences {
			if chosen[y] != nil || y.removes || y.harmless {
				continue
			}
			k := xtKey{y.table.rules, y.table.name}
			if because := wanted[k][y.chain]; because != nil && !p.exists(y) {
				chosen[y], again = because, true
				continue
			}
			for _, to := range y.needs {
				if because := made[k][to]; y.service == "" && because != nil {
					chosen[y], again = because, true
					break
				}
			}
		}
	}
}

// exists tells whether the chain of a difference is there already.
func (p *xtPlanner) exists(x *xtDifference) bool {
	return x.table.read != nil && x.table.read.Chain(x.chain) != nil || builtIn(x.table.name, x.chain)
}

// asks tells whether a finding asks for a change.
func (p *xtPlanner) asks(i int, x *xtDifference) bool {
	f := &p.findings[i]
	service := serviceIn(f)
	if !p.inFamily(i, x.table.rules.Family) {
		return false
	}
	switch {
	case x.move != nil || len(x.behind) > 0:
		return len(p.namedBehind(i, x)) > 0
	case p.mended[i] && p.node.Proxy.Mode == ipvsMode && !p.names(i, x.chain):
		return false // sets, virtual servers and addresses do it
	case x.repeated, f.ID == "duplicate-rules":
		return f.ID == "duplicate-rules" && p.names(i, x.chain) && p.inRuleset(f, x)
	case x.removes && f.ID == "dangling-or-orphan-chain":
		return p.inRuleset(f, x)
	case f.ID == "dangling-or-orphan-chain":
		// Chains that are as they should be lack what leads to them.
		return p.inRuleset(f, x) && slices.ContainsFunc(x.needs, func(to string) bool { return dataplane.PerService(to) && p.names(i, to) })
	case x.service != "":
		return service == x.service || service == "" && p.asksAll(i) || dataplane.PerService(x.chain) && p.names(i, x.chain)
	case p.names(i, x.chain):
		return true
	case service != "":
		// What serves all serves this one too.
		return len(p.obstacles[i]) == 0
	}
	return len(p.obstacles[i]) == 0 && f.ID != "kube-jump-missing" && f.ID != "invalid-drop-missing"
}

// asksAll tells whether a finding of the node stands for one of each Service.
func (p *xtPlanner) asksAll(i int) bool {
	switch p.findings[i].ID {
	case "missing-service-rule", "frontend-unreachable", "reply-blocked":
		return len(p.obstacles[i]) == 0
	}
	return false
}

// names tells whether a finding names a chain.
func (p *xtPlanner) names(i int, chain string) bool { return p.namedBy(i)[chain] }

func (p *xtPlanner) namedBy(i int) map[string]bool {
	if p.named[i] == nil {
		p.named[i] = p.index.namedChains(p.node.Rulesets, &p.findings[i])
	}
	return p.named[i]
}

// inFamily tells whether a finding may be about rules of a family: the one of the rules that it shows, or where it shows
// none those of its Service.
func (p *xtPlanner) inFamily(i int, family netfilter.Family) bool {
	f := &p.findings[i]
	shown := p.families[i]
	if shown == nil {
		shown = make(map[netfilter.Family]bool)
		for j := range f.Evidence {
			if at, ok := p.index.place(p.node.Rulesets, &f.Evidence[j]); ok {
				shown[at.rules.Family] = true
			}
		}
		if p.families == nil {
			p.families = make(map[int]map[netfilter.Family]bool)
		}
		p.families[i] = shown
	}
	if len(shown) > 0 || f.Object.Kind != "Service" {
		return len(shown) == 0 || shown[family]
	}
	ports := p.node.Plan.Of(f.Object.Namespace, f.Object.Name)
	return len(ports) == 0 || slices.ContainsFunc(ports, func(sp *intent.ServicePort) bool { return sp.Family == int(family) })
}

// inRuleset tells whether a finding is about the rules in which a difference is, as far as it says.
func (p *xtPlanner) inRuleset(f *report.Finding, x *xtDifference) bool {
	for i := range f.Evidence {
		if at, ok := p.index.place(p.node.Rulesets, &f.Evidence[i]); ok {
			return at.rules == x.table.rules && at.table == x.table.read
		}
	}
	return true
}

// namedBehind are the rules of others that a finding names, of those that come before kube-proxy's.
func (p *xtPlanner) namedBehind(i int, x *xtDifference) []*netfilter.Rule {
	var out []*netfilter.Rule
	f := &p.findings[i]
	for j := range f.Evidence {
		at, ok := p.index.place(p.node.Rulesets, &f.Evidence[j])
		if !ok || at.rule == nil || !slices.Contains(x.behind, at.rule) {
			continue
		}
		if _, translates := at.rule.Target.(*netfilter.Translate); translates && !p.binds(f) {
			continue
		}
		out = append(out, at.rule)
	}
	return out
}

// binds tells whether kube-proxy translates every connection to the Service that a finding is about, whoever makes it.
// What it leaves alone, because there is no endpoint for it or its source is not let in, the other's rule would still take.
func (p *xtPlanner) binds(f *report.Finding) bool {
	if p.node.Proxy.Mode == ipvsMode {
		return false // its chains translate nothing, and do not keep another's translation from packets
	}
	ports := p.node.Plan.Of(f.Object.Namespace, f.Object.Name)
	return f.Object.Kind == "Service" && len(ports) > 0 && !slices.ContainsFunc(ports, func(sp *intent.ServicePort) bool {
		local := (sp.InternalLocal || sp.ExternalLocal) && len(sp.Local) == 0
		return len(sp.Usable) == 0 || len(sp.SourceRanges) > 0 || local
	})
}

// keepReferenced drops the removal of chains to which rules that stay lead: the kernel would refuse the transaction.
func (p *xtPlanner) keepReferenced(chosen map[*xtDifference][]int) {
	for again := true; again; {
		again = false
		gone := make(map[*xtTable]map[string]*xtDifference)
		rewritten := make(map[*xtTable]map[string][]*xtDifference)
		for _, x := range p.differences {
			switch {
			case chosen[x] == nil:
			case x.removes:
				if gone[x.table] == nil {
					gone[x.table] = make(map[string]*xtDifference)
				}
				gone[x.table][x.chain] = x
			default:
				if rewritten[x.table] == nil {
					rewritten[x.table] = make(map[string][]*xtDifference)
				}
				rewritten[x.table][x.chain] = append(rewritten[x.table][x.chain], x)
			}
		}
		for t, chains := range gone {
			for _, c := range t.read.Chains {
				if chains[c.Name] != nil {
					continue
				}
				targets := p.targets(t, c, rewritten[t][c.Name])
				for _, to := range targets {
					if x := chains[to]; x != nil && chosen[x] != nil {
						delete(chosen, x)
						again = true
					}
				}
			}
		}
	}
}

// targets are the chains that a chain leads to once it is changed.
func (p *xtPlanner) targets(t *xtTable, c *netfilter.Chain, changes []*xtDifference) []string {
	var out []string
	if len(changes) == 0 {
		for i := range c.Rules {
			if j, ok := c.Rules[i].Target.(netfilter.Jump); ok && dataplane.Stock(t.name, j.Chain) {
				out = append(out, j.Chain)
			}
		}
		return out
	}
	now := t.chain(c.Name)
	for _, x := range changes {
		if x.change != nil {
			now = x.change(now)
		}
	}
	for _, r := range now.rules {
		if to := jumpOf(r.text); to != "" {
			out = append(out, to)
		}
	}
	return out
}

// steps puts the chosen changes together, one transaction for each table.
func (p *xtPlanner) steps(chosen map[*xtDifference][]int) []report.RepairStep {
	var out []report.RepairStep
	for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		for _, name := range []string{"filter", "mangle", "nat"} {
			var of []*xtDifference
			for _, x := range p.differences {
				if _, ok := chosen[x]; ok && x.table.rules.Family == family && x.table.name == name {
					of = append(of, x)
				}
			}
			if len(of) > 0 {
				out = append(out, p.step(of, chosen))
			}
		}
	}
	return out
}

// step is the transaction of one table.
func (p *xtPlanner) step(of []*xtDifference, chosen map[*xtDifference][]int) report.RepairStep {
	t := of[0].table
	s := t.begin()
	var services, reasons []string
	known := make(map[string]bool)
	shared, jumps := false, false
	for _, x := range of {
		change := x.change
		if x.move != nil {
			var named []*netfilter.Rule
			for _, i := range chosen[x] {
				named = append(named, p.namedBehind(i, x)...)
			}
			for _, r := range named {
				p.passed[r] = true
			}
			change = x.move(named)
		}
		before := t.chain(x.chain)
		s.change(x.chain, change)
		if after := t.chain(x.chain); before.there == after.there && before.policy == after.policy && slices.Equal(before.rules, after.rules) {
			continue
		}
		s.edit(x.chain, x.object, x.editOf(p.mends(chosen[x]...)))
		if x.service == "" {
			shared = true
		} else if !known[x.service] {
			known[x.service] = true
			services = append(services, x.service)
		}
		jumps = jumps || builtIn(t.name, x.chain)
		if len(reasons) < 3 {
			reasons = append(reasons, x.chain+": "+x.reason)
		}
	}
	if n := len(of) - len(reasons); n > 0 {
		reasons = append(reasons, fmt.Sprintf("and %d more", n))
	}
	step := report.RepairStep{
		Owner:   ownerProxy,
		Title:   p.title(t, s),
		Reason:  fmt.Sprintf("table %s is not as kube-proxy%s writes it: %s", t.title(), p.version(), strings.Join(reasons, "; ")),
		Affects: affects(services, shared, t.rules.Family),
		Risk:    "connections that are established keep their backend; new ones meet the new rules at once",
		Lasts:   p.lasts(jumps, shared || len(services) > 0),
	}
	return s.done(step)
}

func (p *xtPlanner) version() string {
	if v := p.node.Proxy.VersionText(); v != "" {
		return " " + v
	}
	return ""
}

// title says in a few words what a step does.
func (p *xtPlanner) title(t *xtTable, s *xtStep) string {
	var made, removed int
	chains := make(map[string]bool)
	for _, e := range s.edits {
		if chains[e.chain] {
			continue
		}
		chains[e.chain] = true
		if s.after[e.chain].there {
			made++
		} else {
			removed++
		}
	}
	var what []string
	if made > 0 {
		what = append(what, "restore "+plural(made, "chain"))
	}
	if removed > 0 {
		what = append(what, "remove "+plural(removed, "chain"))
	}
	if made+removed == 1 {
		for c := range chains {
			what[0] = map[bool]string{true: "restore chain ", false: "remove chain "}[made == 1] + c
		}
	}
	return fmt.Sprintf("%s in table %s", strings.Join(what, " and "), t.title())
}

// affects says whose connections change.
func affects(services []string, shared bool, family netfilter.Family) string {
	switch {
	case shared:
		return fmt.Sprintf("new connections to all Services (IPv%d)", family)
	case len(services) <= 3:
		return fmt.Sprintf("new connections to %s (IPv%d)", strings.Join(services, ", "), family)
	}
	return fmt.Sprintf("new connections to %d Services (%s, …) (IPv%d)", len(services), strings.Join(services[:3], ", "), family)
}

// lasts says until when rules hold that are written in kube-proxy's place.
func (p *xtPlanner) lasts(jumps, chains bool) string {
	pr := &p.node.Proxy
	sync := "its next full sync"
	if pr.Within(0, 26) {
		sync = "its next sync" // writes everything
	}
	out := "until kube-proxy writes these rules at " + sync + ": the same, if it sees the objects as they are now"
	if jumps && !pr.Within(0, 26) {
		out += "; jumps in built-in chains it leaves alone in other syncs"
	}
	if chains && !pr.Within(0, 26) {
		out += "; chains of one Service it writes when that Service changes, chains of all in every sync"
	}
	return out
}

// backend is the one that kube-proxy writes to. The second answer says why it cannot be told.
func (p *xtPlanner) backend() (netfilter.Backend, string) {
	if b := p.node.Proxy.Backend; b != "" {
		return netfilter.Backend(b), ""
	}
	var backends []netfilter.Backend
	for _, rs := range p.node.Rulesets {
		if rs.Backend != netfilter.UnknownBackend && !slices.Contains(backends, rs.Backend) {
			backends = append(backends, rs.Backend)
		}
	}
	switch len(backends) {
	case 0:
		return netfilter.UnknownBackend, ""
	case 1:
		return backends[0], ""
	}
	return p.liveBackend()
}
