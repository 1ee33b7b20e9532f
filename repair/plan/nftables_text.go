package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// Objects of nftables are named in edits as "table", "chain NAME", "set NAME", "map NAME", "element KEY of set NAME",
// "element KEY of map NAME" and "rule TEXT of chain NAME"; their table is said beside: "ip kube-proxy". What follows prints each as `nft list` does, a
// line for each of its lines, without handles, counters' values and indentation. A set or map is its declaration: its
// elements are objects of their own.

// nftChainLines are a chain: its comment, where it hooks in, and its rules.
func nftChainLines(family nft.Family, comment string, base *nft.Base, rules []string) []string {
	out := []string{}
	if comment != "" {
		out = append(out, fmt.Sprintf("comment \"%s\"", comment))
	}
	if base != nil {
		out = append(out, nftBaseLine(family, base))
	}
	return append(out, rules...)
}

// nftBaseLine says where a chain hooks in: "type nat hook prerouting priority dstnat; policy accept;".
func nftBaseLine(family nft.Family, base *nft.Base) string {
	one := nft.Table{Family: family}
	one.AddChain("c").Base = base
	for line := range strings.Lines(one.Print()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "type ") {
			return line
		}
	}
	return ""
}

// nftRules are the rules of a chain as they are printed.
func nftRules(t *nft.Table, c *nft.Chain) []string {
	out := make([]string, 0, len(c.Rules))
	for _, r := range c.Rules {
		out = append(out, t.RuleText(r))
	}
	return out
}

// nftDeclaration is a set or map without its entries.
func nftDeclaration(s *nft.Set) *nft.Set {
	return &nft.Set{
		Name: s.Name, Comment: s.Comment, Key: s.Key, IsMap: s.IsMap, Data: s.Data, ObjectType: s.ObjectType, TypeofKey: s.TypeofKey,
		TypeofData: s.TypeofData, DataInterval: s.DataInterval, Meter: s.Meter, Constant: s.Constant, Interval: s.Interval,
		Dynamic: s.Dynamic, HasTimeout: s.HasTimeout, AutoMerge: s.AutoMerge, Timeout: s.Timeout, GCInterval: s.GCInterval,
		Size: s.Size, Policy: s.Policy, Statements: s.Statements,
	}
}

// nftSetLines are the declaration of a set or map.
func nftSetLines(s *nft.Set) []string {
	one := nft.Table{Family: nft.IP}
	one.Sets = []*nft.Set{nftDeclaration(s)}
	out := []string{}
	for line := range strings.Lines(one.Print()) {
		// Within the braces of the set.
		if text, ok := strings.CutPrefix(line, "\t\t"); ok {
			out = append(out, strings.TrimRight(text, "\n"))
		}
	}
	return out
}

// nftKind is the word for a set in front of its name.
func nftKind(s *nft.Set) string {
	if s.IsMap {
		return "map"
	}
	return "set"
}

// nftKeyText is the key of an entry as nft prints it: "10.96.0.1 . tcp . 443".
func nftKeyText(s *nft.Set, e *nft.Entry) string {
	keys := nft.Set{Key: s.Key}
	return keys.EntryText(&nft.Entry{CatchAll: e.CatchAll, Start: e.Start, End: e.End})
}

// nftTableLines are a whole table, in an order of their own: chains by name, elements by what they say. What rules put
// into sets is left out.
func nftTableLines(t *nft.Table) []string {
	out := []string{}
	if t.Dormant {
		out = append(out, "flags dormant")
	}
	if t.Comment != "" {
		out = append(out, fmt.Sprintf("comment \"%s\"", t.Comment))
	}
	sets := slices.Clone(t.Sets)
	slices.SortFunc(sets, func(a, b *nft.Set) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range sets {
		out = append(out, nftKind(s)+" "+s.Name)
		for _, l := range nftSetLines(s) {
			out = append(out, "  "+l)
		}
		if s.Dynamic {
			continue
		}
		var entries []string
		for i := range s.Entries {
			entries = append(entries, "  element "+s.EntryText(&s.Entries[i]))
		}
		slices.Sort(entries)
		out = append(out, entries...)
	}
	chains := slices.Clone(t.Chains)
	slices.SortFunc(chains, func(a, b *nft.Chain) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range chains {
		if c.Inline {
			continue
		}
		out = append(out, "chain "+c.Name)
		for _, l := range nftChainLines(t.Family, c.Comment, c.Base, nftRules(t, c)) {
			out = append(out, "  "+l)
		}
	}
	return out
}

// nftOf finds a table by what nft calls it, "ip kube-proxy"; nil for none.
func nftOf(n *check.Node, name string) *nft.Table {
	family, table, _ := strings.Cut(name, " ")
	for _, rs := range n.NFT {
		if t := rs.Table(nft.Family(family), table); t != nil {
			return t
		}
	}
	return nil
}

// nftRuleOf is the object of a rule that is taken away.
var nftRuleOf = regexp.MustCompile(`^rule (".*") of chain (\S+)$`)

var nftElement = regexp.MustCompile(`^element (.*) of (?:set|map) (\S+)$`)

// findNFTables prints the object of an edit of nftables as it is.
func findNFTables(n *check.Node, e report.RepairEdit) (lines []string, there bool, err error) {
	if why := nftUnread(n); why != "" {
		return nil, false, fmt.Errorf("find %s of table %s: %s", e.Object, e.Table, why)
	}
	t := nftOf(n, e.Table)
	if t == nil {
		return nil, false, nil
	}
	if e.Object == nftWholeTable {
		return nftTableLines(t), true, nil
	}
	if e.Object == nftTableFlags {
		return nftFlagLines(t), true, nil
	}
	if m := nftRuleOf.FindStringSubmatch(e.Object); m != nil {
		text, err := strconv.Unquote(m[1])
		c := t.Chain(m[2])
		if err != nil || c == nil {
			return nil, false, nil
		}
		for _, r := range nftRules(t, c) {
			if r == text {
				lines = append(lines, r)
			}
		}
		return lines, len(lines) > 0, nil
	}
	if m := nftElement.FindStringSubmatch(e.Object); m != nil {
		s := t.Set(m[2])
		if s == nil {
			return nil, false, nil
		}
		if x := nftEntryOf(s, m[1]); x != nil {
			return []string{s.EntryText(x)}, true, nil
		}
		return nil, false, nil
	}
	kind, name, _ := strings.Cut(e.Object, " ")
	switch kind {
	case "chain":
		if c := t.Chain(name); c != nil {
			return nftChainLines(t.Family, c.Comment, c.Base, nftRules(t, c)), true, nil
		}
	case "set", "map":
		if s := t.Set(name); s != nil {
			return nftSetLines(s), true, nil
		}
	default:
		return nil, false, fmt.Errorf("find %s of table %s: no object of nftables is called so (is the journal of another release?)", e.Object, e.Table)
	}
	return nil, false, nil
}

// nftEntryOf finds an entry by the text of its key.
func nftEntryOf(s *nft.Set, key string) *nft.Entry {
	if len(s.Entries) > 16 && key != "*" {
		// The text is read once, and not every entry written.
		declared := nftDeclaration(s)
		declared.Name, declared.IsMap, declared.Meter, declared.Data, declared.ObjectType = "s", false, false, nil, ""
		one := nft.Table{Family: nft.IP, Name: "t", Sets: []*nft.Set{declared}}
		text := strings.Replace(one.Print(), "\t}\n", "\t\telements = { "+key+" }\n\t}\n", 1)
		if rs, err := nft.ParseText(text, ""); err == nil && len(rs.Tables) == 1 && len(rs.Tables[0].Sets) == 1 && len(rs.Tables[0].Sets[0].Entries) == 1 {
			if x := &rs.Tables[0].Sets[0].Entries[0]; x.End == nil {
				found := s.Find(x.Start)
				if found != nil && nftKeyText(s, found) == key {
					return found
				}
				return nil
			}
		}
	}
	for i := range s.Entries {
		if nftKeyText(s, &s.Entries[i]) == key {
			return &s.Entries[i]
		}
	}
	return nil
}

// The objects of a table that are the table itself.
const (
	nftWholeTable = "table"
	nftTableFlags = "flags of the table"
)

func nftFlagLines(t *nft.Table) []string {
	if t.Dormant {
		return []string{"flags dormant"}
	}
	return []string{}
}

// nftUnread says why tables of nftables cannot be told from what was read; empty where they can.
func nftUnread(n *check.Node) string {
	if why, unanswered := n.Answers[check.ServiceTables]; unanswered {
		return "the tables of nftables were not read: " + why
	}
	if len(n.NFT) == 0 {
		return "the tables of nftables were not read"
	}
	return ""
}
