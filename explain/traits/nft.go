package traits

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/nft"
)

// kubeProxyTables are the tables of nftables mode, with the number of their family.
func kubeProxyTables(rulesets []*nft.Ruleset, f func(rs *nft.Ruleset, t *nft.Table, family int)) {
	for _, rs := range rulesets {
		for _, t := range rs.Tables {
			switch {
			case t.Name != "kube-proxy":
			case t.Family == nft.IP:
				f(rs, t, 4)
			case t.Family == nft.IP6:
				f(rs, t, 6)
			}
		}
	}
}

// nftSigns says that the rules are of nftables mode. The tables are a strong sign: kube-proxy deletes them when it
// starts in another mode (1.30+).
func nftSigns(rulesets []*nft.Ruleset) []modeSign {
	var out []modeSign
	kubeProxyTables(rulesets, func(rs *nft.Ruleset, t *nft.Table, family int) {
		at := 0 // of signs of one rank the last one counts: that of IPv4
		if family == 4 {
			at = len(out)
		}
		out = slices.Insert(out, at, modeSign{mode: modeNFTables, strong: true, Fact: Fact{
			Name: "mode", Value: modeNFTables, File: rs.File, Line: max(t.Line, 1), Text: "table " + t.String(),
		}})
	})
	return out
}

// readNFT claims the settings that the tables of nftables mode show.
func (l *ledger) readNFT(rulesets []*nft.Ruleset, nodes []Node) {
	kubeProxyTables(rulesets, func(rs *nft.Ruleset, t *nft.Table, family int) {
		at := func(r *nft.Rule, name, value string) Fact {
			return Fact{Name: name, Value: value, File: rs.File, Line: r.Line, Text: r.Text}
		}
		l.readNFTNodePorts(rs, t, family, ruled)
		l.readNFTServiceRange(rs, t)
		detected := false
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				if mark, ok := nftMark(r); ok {
					l.add("masqueradeMark/nftables", ruled, at(r, "masqueradeMark", markText(mark)))
				}
				if detected || !masqueradesServices(c.Name, r) {
					continue
				}
				detected = true
				if !l.readNFTDetector(rs, r, family, nodes, ruled, "!=") {
					l.add("masqueradeAll/nftables", ruled, at(r, "masqueradeAll", "true"))
				}
			}
		}
	})
}

// nftMark is the bit that a rule sets in the mark: masquerading.
func nftMark(r *nft.Rule) (uint32, bool) {
	for _, s := range r.Statements {
		a, ok := s.(*nft.Assign)
		if !ok {
			continue
		}
		to, isMeta := a.To.(*nft.Meta)
		b, isBinary := a.Value.(*nft.Binary)
		if !isMeta || !isBinary || to.Key != "mark" || b.Op != "|" {
			continue
		}
		if c, ok := b.Right.(*nft.Const); ok && len(c.Data) == 4 {
			return uint32(c.Data[0])<<24 | uint32(c.Data[1])<<16 | uint32(c.Data[2])<<8 | uint32(c.Data[3]), true
		}
	}
	return 0, false
}

// masqueradesServices tells the rule by which traffic to a cluster IP is masqueraded: one for all in chain services
// since 1.36, one in each service chain before.
func masqueradesServices(chain string, r *nft.Rule) bool {
	if chain != "services" && !strings.HasPrefix(chain, "service-") && !strings.HasPrefix(chain, "local-") {
		return false
	}
	first, ok := matchOf(r, 0)
	if !ok || !isAddr(first.Left, "daddr") {
		return false
	}
	if _, marks := nftMark(r); marks {
		return true
	}
	for _, s := range r.Statements {
		if v, ok := s.(*nft.Verdict); ok && v.Chain == "mark-for-masquerade" {
			return true
		}
	}
	return false
}

func matchOf(r *nft.Rule, i int) (*nft.Match, bool) {
	if i >= len(r.Statements) {
		return nil, false
	}
	m, ok := r.Statements[i].(*nft.Match)
	return m, ok
}

func isAddr(e nft.Expr, field string) bool {
	p, ok := e.(*nft.Payload)
	return ok && (p.Protocol == "ip" || p.Protocol == "ip6") && p.Field == field
}

// readNFTDetector reads how the proxy tells pods of this node from other clients, where a rule tests for one or the other:
// op is == or !=.
func (l *ledger) readNFTDetector(rs *nft.Ruleset, r *nft.Rule, family int, nodes []Node, as rank, op string) (found bool) {
	fact := func(name, value string) Fact {
		return Fact{Name: name, Value: value, File: rs.File, Line: r.Line, Text: r.Text}
	}
	for i := range r.Statements {
		m, ok := matchOf(r, i)
		if !ok || m.Op != op {
			continue
		}
		if isAddr(m.Left, "saddr") {
			cidr, ok := prefixOf(m.Right)
			if !ok {
				return true
			}
			local, note := "ClusterCIDR", ""
			for _, n := range nodes {
				if len(nodes) > 1 && slices.Contains(n.PodCIDRs, cidr) {
					local, note = "NodeCIDR", "the range is the podCIDR of Node "+n.Name
				}
			}
			l.add(fmt.Sprintf("clusterCIDR/%d", family), as, fact("clusterCIDR", cidr.String()))
			f := fact("localMode", local)
			f.Note = note
			l.add("localMode", as, f)
			return true
		}
		if meta, ok := m.Left.(*nft.Meta); ok && (meta.Key == "iifname" || meta.Key == "iif") {
			name, prefix, ok := interfaceOf(m.Right)
			if !ok {
				return true
			}
			local := "BridgeInterface"
			if prefix {
				local = "InterfaceNamePrefix"
			}
			l.add("localMode", as, fact("localMode", local))
			l.add("localInterface", as, fact("localInterface", name))
			return true
		}
	}
	return false
}

func prefixOf(e nft.Expr) (netip.Prefix, bool) {
	switch e := e.(type) {
	case *nft.Prefix:
		if a, ok := netip.AddrFromSlice(e.Value.Data); ok && e.Bits <= a.BitLen() {
			return netip.PrefixFrom(a, e.Bits), true
		}
	case *nft.Const:
		if a, ok := netip.AddrFromSlice(e.Data); ok {
			return netip.PrefixFrom(a, a.BitLen()), true
		}
	}
	return netip.Prefix{}, false
}

// interfaceOf is the name that a test of an interface is for, or its beginning.
func interfaceOf(e nft.Expr) (name string, prefix, ok bool) {
	switch e := e.(type) {
	case *nft.Const:
		if e.Type == nft.TypeIfname {
			return strings.TrimRight(string(e.Data), "\x00"), false, true
		}
	case *nft.Prefix:
		return string(e.Value.Data[:min(e.Bits/8, len(e.Value.Data))]), true, true
	}
	return "", false, false
}

// readNFTNodePorts reads the addresses that take node ports: those of a set, or all of the node.
func (l *ledger) readNFTNodePorts(rs *nft.Ruleset, t *nft.Table, family int, as rank) {
	key := fmt.Sprintf("nodePortAddresses/%d", family)
	if set := t.Set("nodeport-ips"); set != nil {
		var addrs []string
		for i := range set.Entries {
			if a, ok := netip.AddrFromSlice(set.Entries[i].Start); ok && set.Entries[i].End == nil {
				addrs = append(addrs, netip.PrefixFrom(a, a.BitLen()).String())
			}
		}
		if len(addrs) == 0 {
			return
		}
		slices.Sort(addrs)
		l.add(key, as, Fact{
			Name: "nodePortAddresses", Value: strings.Join(addrs, ","), File: rs.File, Line: max(set.Line, 1), Text: "set nodeport-ips",
			Note: "the addresses that the configured ranges selected",
		})
		return
	}
	// Without the set every address of the node takes node ports.
	c := t.Chain("services")
	if c == nil {
		return
	}
	every := map[int]string{4: "0.0.0.0/0", 6: "::/0"}[family]
	for _, r := range c.Rules {
		if m, ok := matchOf(r, 0); ok && m.Op == "==" {
			if _, fib := m.Left.(*nft.Fib); fib {
				l.add(key, as, Fact{Name: "nodePortAddresses", Value: every, File: rs.File, Line: max(r.Line, 1), Text: r.Text})
			}
		}
	}
}

// nftFeatures are what tells the versions of the tables apart.
func nftFeatures(rulesets []*nft.Ruleset) map[string]seen {
	out := make(map[string]seen)
	kubeProxyTables(rulesets, func(rs *nft.Ruleset, t *nft.Table, _ int) {
		add := func(sign string, line int, text string) {
			if _, ok := out[sign]; !ok {
				out[sign] = seen{file: rs.File, line: max(line, 1), text: text}
			}
		}
		if s := t.Set("hairpin-connections"); s != nil {
			add("set hairpin-connections", s.Line, "set hairpin-connections")
		}
		if c := t.Chain("filter-prerouting-pre-dnat"); c != nil {
			add("chain filter-prerouting-pre-dnat", c.Line, "chain filter-prerouting-pre-dnat")
		}
		if c := t.Chain("filter-input"); c != nil && c.Base != nil {
			add(fmt.Sprintf("filter-input at priority %d", c.Base.Priority), c.Line, "chain filter-input")
		}
		for _, c := range t.Chains {
			if c.Name == "mark-for-masquerade" {
				add("chain mark-for-masquerade", c.Line, "chain mark-for-masquerade")
			}
		}
	})
	return out
}

// readNFTServiceRange reads the ranges of cluster IPs: packets to addresses in them that no Service has are dropped
// (since 1.31, where ServiceCIDR objects are in use).
func (l *ledger) readNFTServiceRange(rs *nft.Ruleset, t *nft.Table) {
	c := t.Chain("cluster-ips-check")
	if c == nil {
		return
	}
	for _, r := range c.Rules {
		m, ok := matchOf(r, 0)
		if !ok || !isAddr(m.Left, "daddr") || m.Op != "==" {
			continue
		}
		var ranges []string
		if set, ok := m.Right.(nft.SetLit); ok {
			for i := range set.Entries {
				if p, ok := nft.PrefixOf(set.Entries[i].Start, set.Entries[i].End); ok {
					ranges = append(ranges, p.String())
				}
			}
		} else if p, ok := prefixOf(m.Right); ok {
			ranges = append(ranges, p.String())
		}
		if len(ranges) > 0 {
			l.claimRanges("serviceCIDR", strings.Join(ranges, ","), ruled, Fact{File: rs.File, Line: max(r.Line, 1), Text: r.Text})
		}
	}
}
