package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
)

// rulesRead is what became of the captures of iptables rules of one family.
type rulesRead struct {
	// answered tells that some capture says what there is, be it nothing.
	answered bool
	// missed are those that say nothing: file and why.
	missed []string
	// part are those of which something is missing.
	part []string
}

// noteRules records a capture of rules. A capture of family 0 speaks for both.
func (m *model) noteRules(e *snapshot.Evidence) {
	for _, f := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if e.Family != 0 && netfilter.Family(e.Family) != f {
			continue
		}
		r := &m.rules[familyIndex(f)]
		switch {
		case e.Status.Answers():
			// Rules that were read show in the rulesets: a capture without a family may hold only one.
			r.answered = r.answered || e.Status != snapshot.OK
		case e.Status != snapshot.Truncated || len(e.Data) == 0:
			why := e.Error
			if why == "" {
				why = string(e.Status)
			}
			r.missed = append(r.missed, e.File+": "+why)
		default:
			r.part = append(r.part, e.File+": "+e.Error)
		}
	}
}

func familyIndex(f netfilter.Family) int {
	if f == netfilter.IPv6 {
		return 1
	}
	return 0
}

// unread says why no answer about the rules of a family is possible: none of them were read, or some could not be
// and those that were are not the service proxy's. It is empty where what was read, or that there is none, is an
// answer.
func (m *model) unread(family netfilter.Family) string {
	if m.onWindows() {
		return m.unreadHNS()
	}
	r := m.rules[familyIndex(family)]
	read := slices.ContainsFunc(m.rulesets, func(rs *netfilter.Ruleset) bool { return rs.Family == family })
	m.nftTables(family, func(*nft.Ruleset, *nft.Table) { read = true })
	switch {
	case len(r.missed) > 0 && !(read && m.servedBy(family)):
		return r.missed[0]
	case read || r.answered:
		return ""
	case m.windows.seen():
		return m.windows.undecided()
	}
	program := "iptables"
	if family == netfilter.IPv6 {
		program = "ip6tables"
	}
	return fmt.Sprintf("no %s rules were read: nothing says what the node does (give `%s-save` output with -f)", program, program)
}

// iptablesRead tells whether rules of iptables were read, or it is known that there are none.
func (m *model) iptablesRead(family netfilter.Family) bool {
	return m.rules[familyIndex(family)].answered || slices.ContainsFunc(m.rulesets, func(rs *netfilter.Ruleset) bool { return rs.Family == family })
}

// servedBy tells whether the rules that were read hold the service proxy's.
func (m *model) servedBy(family netfilter.Family) bool {
	native := false
	m.nftTables(family, func(_ *nft.Ruleset, t *nft.Table) {
		native = native || dataplane.OfKubeProxy(t) || dataplane.OfFallback(t)
	})
	return native || slices.ContainsFunc(m.rulesets, func(rs *netfilter.Ruleset) bool {
		t := rs.Table("nat")
		return rs.Family == family && t != nil && t.Chain("KUBE-SERVICES") != nil
	})
}

// beside says what else decides about packets of a family and was not read, where the service rules were.
func (m *model) beside() []string {
	var out []string
	add := func(text string) {
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		native := false
		m.nftTables(family, func(*nft.Ruleset, *nft.Table) { native = true })
		if native && !m.iptablesRead(family) && len(m.rules[familyIndex(family)].missed) == 0 {
			add("rules of iptables, which were not read (give `iptables-save` and `ip6tables-save`)")
		}
	}
	for i := range m.rules {
		for _, missed := range m.rules[i].missed {
			add("rules that were not read: " + missed)
		}
		for _, part := range m.rules[i].part {
			add("rules that were read in part: " + part)
		}
	}
	if len(m.foreignTables) > 0 {
		out = append(out, fmt.Sprintf("nftables rules of %s: packets meet them outside of the IP layer, and this version does not evaluate them", strings.Join(m.foreignTables, ", ")))
	}
	return out
}
