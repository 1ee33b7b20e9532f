package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/kubeproxy"
)

// ownedModes are those of kube-proxy in which it is known what it keeps in iptables, and so what is left of others.
var ownedModes = []string{"iptables", "ipvs", "nftables"}

// leftoverSteps remove what kube-proxy left in the backend of iptables that it does not use any more, or in chains of
// another mode. What kubelet may keep stays.
func (p *xtPlanner) leftoverSteps() []report.RepairStep {
	mode := p.node.Proxy.Mode
	if !slices.Contains(ownedModes, mode) {
		return nil
	}
	asking := p.which(func(f *report.Finding) bool {
		return f.ID == "leftover-proxy-mode-rules" || f.ID == "iptables-legacy-and-nft-both-have-kube-rules"
	})
	if len(asking) == 0 {
		return nil
	}
	live, why := netfilter.UnknownBackend, ""
	if mode != "nftables" {
		if live, why = p.backend(); why != "" {
			for _, i := range asking {
				p.leave([]int{i}, why)
			}
			return nil
		}
	}
	var out []report.RepairStep
	for _, rs := range p.node.Rulesets {
		other := mode != "nftables" && live != netfilter.UnknownBackend && rs.Backend != netfilter.UnknownBackend && rs.Backend != live
		for _, t := range rs.Tables {
			l := leftover{planner: p, table: p.table(rs, t.Name), all: other || mode == "nftables"}
			if step, ok := l.step(asking); ok {
				out = append(out, step)
			}
		}
	}
	return out
}

// leftover is what is to go of one table.
type leftover struct {
	planner *xtPlanner
	table   *xtTable
	// all: kube-proxy keeps nothing there at all. Otherwise what its mode has stays.
	all bool
}

// goes tells whether a chain is one that kube-proxy left.
func (l *leftover) goes(name string) bool {
	if !l.all {
		return dataplane.OtherMode(l.table.name, name, l.planner.node.Proxy.Mode) != ""
	}
	if dataplane.WrittenBy(l.table.name, name) == dataplane.KubeProxy {
		return true
	}
	switch name {
	case "KUBE-POSTROUTING", "KUBE-MARK-MASQ":
		return l.table.name == "nat" && !l.kubelets()
	}
	return false
}

// kubelets tells whether a kubelet that makes chains for masquerading (up to 1.27) may be at work in these rules.
func (l *leftover) kubelets() bool {
	if !l.planner.node.Proxy.Within(0, 27) {
		return false
	}
	return slices.ContainsFunc(l.table.rules.Tables, func(t *netfilter.Table) bool {
		return slices.ContainsFunc(t.Chains, func(c *netfilter.Chain) bool { return dataplane.WrittenBy(t.Name, c.Name) == dataplane.Kubelet })
	})
}

// step removes the chains, and the rules that lead to them.
func (l *leftover) step(asking []int) (report.RepairStep, bool) {
	t := l.table
	if !t.read.Complete {
		return report.RepairStep{}, false
	}
	gone := make(map[string]bool)
	for _, c := range t.read.Chains {
		if l.goes(c.Name) {
			gone[c.Name] = true
		}
	}
	l.keepWhatOthersNeed(gone)
	if len(gone) == 0 {
		return report.RepairStep{}, false
	}
	mended := l.planner.mends(l.about(asking, gone)...)
	s := t.begin()
	for _, c := range t.read.Chains {
		reason := "kube-proxy does not use this chain any more"
		switch {
		case gone[c.Name]:
			s.change(c.Name, func(*xtChain) *xtChain { return &xtChain{} })
		case leads(c, gone):
			reason = "the rules lead to chains that kube-proxy does not use any more"
			s.change(c.Name, func(c *xtChain) *xtChain {
				out := &xtChain{there: true, policy: c.policy}
				for _, r := range c.rules {
					if !gone[jumpOf(r.text)] && !gone[gotoOf(r.text)] {
						out.rules = append(out.rules, r)
					}
				}
				return out
			})
		default:
			continue
		}
		s.edit(c.Name, object{}, report.RepairEdit{Reason: reason, Findings: mended})
	}
	what := fmt.Sprintf("of another mode than %s", l.planner.node.Proxy.Mode)
	if l.all && l.planner.node.Proxy.Mode != "nftables" {
		what = "in the backend of iptables that it does not use"
	}
	return s.done(report.RepairStep{
		Owner:   ownerProxy,
		Title:   fmt.Sprintf("remove %s that kube-proxy left in table %s", plural(len(gone), "chain"), t.title()),
		Reason:  fmt.Sprintf("kube-proxy left rules %s, and packets still meet them", what),
		Affects: fmt.Sprintf("IPv%d packets that these rules still translate, refuse or accept", t.rules.Family),
		Risk:    "what was served by the old rules alone is served no more: established connections that they translated go on",
		Lasts:   "",
	}), true
}

// keepWhatOthersNeed keeps chains to which rules of other programs lead.
func (l *leftover) keepWhatOthersNeed(gone map[string]bool) {
	for again := true; again; {
		again = false
		for _, c := range l.table.read.Chains {
			if gone[c.Name] || builtIn(l.table.name, c.Name) || dataplane.Stock(l.table.name, c.Name) {
				continue
			}
			for i := range c.Rules {
				if j, ok := c.Rules[i].Target.(netfilter.Jump); ok && gone[j.Chain] {
					delete(gone, j.Chain)
					again = true
				}
			}
		}
		for _, c := range l.table.read.Chains {
			// A chain that stays keeps those that it leads to.
			if gone[c.Name] || !l.goes(c.Name) {
				continue
			}
			for i := range c.Rules {
				if j, ok := c.Rules[i].Target.(netfilter.Jump); ok && gone[j.Chain] {
					delete(gone, j.Chain)
					again = true
				}
			}
		}
	}
}

// about are the findings that the step mends: those that ask for it, and those that come of rules which go.
func (l *leftover) about(asking []int, gone map[string]bool) []int {
	p := l.planner
	here := func(f *report.Finding, fits func(at xtPlace) bool) bool {
		return slices.ContainsFunc(f.Evidence, func(e report.Evidence) bool {
			at, ok := p.index.place(p.node.Rulesets, &e)
			return ok && fits(at)
		})
	}
	var out []int
	for _, i := range p.which(func(f *report.Finding) bool { return reasons[f.ID] == "" }) {
		f := &p.findings[i]
		switch {
		case f.ID == "iptables-legacy-and-nft-both-have-kube-rules":
			if here(f, func(at xtPlace) bool { return at.rules.Family == l.table.rules.Family }) {
				out = append(out, i)
			}
		case here(f, func(at xtPlace) bool { return at.table == l.table.read && gone[at.chain.Name] }):
			out = append(out, i)
		}
	}
	if len(out) == 0 {
		return asking
	}
	return out
}

// leads tells whether a chain leads to one of some others.
func leads(c *netfilter.Chain, to map[string]bool) bool {
	for i := range c.Rules {
		if j, ok := c.Rules[i].Target.(netfilter.Jump); ok && to[j.Chain] {
			return true
		}
	}
	return false
}

// gotoOf is the chain that a rule goes on in for good.
func gotoOf(rule string) string {
	i := strings.LastIndex(rule, " -g ")
	if i < 0 {
		return ""
	}
	to, _, _ := strings.Cut(rule[i+len(" -g "):], " ")
	return to
}

// liveBackend tells which of two backends kube-proxy writes to, where both hold rules. What tells is which has its rules
// at all, which packets get to, which has the chain that kube-proxy watches, which is like what it would write, and which
// kubelet keeps; what contradicts itself tells nothing.
func (p *xtPlanner) liveBackend() (netfilter.Backend, string) {
	const undecided = "which of the backends of iptables kube-proxy writes to cannot be told from their rules: `kubectl logs` of kube-proxy, or its image, may tell; what the other one holds is what is left over"
	tells := []func(b netfilter.Backend) int{p.proxyChains, p.activeRules, p.canaries, p.likeness}
	verdict := netfilter.UnknownBackend
	for n, tell := range tells {
		legacy, nft := tell(netfilter.Legacy), tell(netfilter.NFT)
		if legacy == nft {
			continue
		}
		better := netfilter.Legacy
		if nft > legacy {
			better = netfilter.NFT
		}
		if verdict != netfilter.UnknownBackend && verdict != better {
			return netfilter.UnknownBackend, undecided
		}
		verdict = better
		if n == 0 {
			return verdict, "" // the other one has none
		}
	}
	kubelets := p.kubeletsBackend()
	if verdict == netfilter.UnknownBackend {
		verdict = kubelets
	}
	if verdict == netfilter.UnknownBackend || kubelets != netfilter.UnknownBackend && kubelets != verdict {
		return netfilter.UnknownBackend, undecided
	}
	return verdict, ""
}

// rulesetsOf are those of a backend.
func (p *xtPlanner) rulesetsOf(b netfilter.Backend) []*netfilter.Ruleset {
	var out []*netfilter.Ruleset
	for _, rs := range p.node.Rulesets {
		if rs.Backend == b {
			out = append(out, rs)
		}
	}
	return out
}

// proxyChains is 1 where a backend has any chain that only kube-proxy makes.
func (p *xtPlanner) proxyChains(b netfilter.Backend) int {
	for _, rs := range p.rulesetsOf(b) {
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				if dataplane.WrittenBy(t.Name, c.Name) == dataplane.KubeProxy {
					return 1
				}
			}
		}
	}
	return 0
}

// activeRules counts the families in which packets get to service rules of a backend.
func (p *xtPlanner) activeRules(b netfilter.Backend) int {
	n := 0
	for _, rs := range p.rulesetsOf(b) {
		if _, active := dataplane.Serving(rs); active {
			n = 1
		}
	}
	return n
}

// canaries is 1 where a backend has the chain in mangle by which kube-proxy (1.16 and newer) sees that somebody flushed
// its rules.
func (p *xtPlanner) canaries(b netfilter.Backend) int {
	for _, rs := range p.rulesetsOf(b) {
		if t := rs.Table("mangle"); t != nil && t.Chain(canaryChain) != nil {
			return 1
		}
	}
	return 0
}

// likeness is how little the rules of a backend differ from what kube-proxy would write, below zero; in iptables mode only.
func (p *xtPlanner) likeness(b netfilter.Backend) int {
	if p.node.Proxy.Mode != "iptables" {
		return 0
	}
	n := 0
	for _, rs := range p.rulesetsOf(b) {
		if first, _ := dataplane.Serving(rs); first == nil {
			continue
		}
		want, err := kubeproxy.IPTablesFor(rs.Family, p.node.Plan, &p.node.Proxy, &kubeproxy.IPTablesNode{Host: p.node.Host, Rulesets: p.rulesetsOf(b)})
		if err != nil {
			return 0
		}
		for _, w := range want.Tables {
			if w.Name == "mangle" {
				continue
			}
			d := differ{table: &xtTable{rules: rs, name: w.Name, read: rs.Table(w.Name), now: map[string]*xtChain{}}, want: w}
			for _, x := range d.differences() {
				if !x.harmless {
					n--
				}
			}
		}
	}
	return n
}

// kubeletsBackend is the one in which kubelet (1.24 and newer) leaves a hint for others.
func (p *xtPlanner) kubeletsBackend() netfilter.Backend {
	found := netfilter.UnknownBackend
	for _, rs := range p.node.Rulesets {
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				if dataplane.WrittenBy(t.Name, c.Name) != dataplane.Kubelet || rs.Backend == found {
					continue
				}
				if found != netfilter.UnknownBackend {
					return netfilter.UnknownBackend
				}
				found = rs.Backend
			}
		}
	}
	return found
}
