package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
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
	switch s.node.Proxy.Mode {
	case "iptables", ipvsMode:
		out = p.proxySteps()
	case "":
		s.leave(s.which(aboutRules), "in which mode kube-proxy runs is not known: neither it nor its configuration, its log or its rules tell")
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
	const same = ": the same, if it sees the objects as they are now"
	switch {
	case pr.Presence == traits.Gone:
		return "until kube-proxy runs again, which then writes all of its rules" + same
	case pr.Mode == ipvsMode || pr.Within(0, 26): // each sync writes everything
		return "until kube-proxy writes these rules at its next sync" + same
	}
	out := "until kube-proxy writes these rules at its next full sync" + same
	if jumps {
		out += "; jumps in built-in chains it leaves alone in other syncs"
	}
	if chains {
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
