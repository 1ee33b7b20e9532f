package plan

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/repair/kubeproxy"
)

// nftDifference is what tells a table of kube-proxy's from what kube-proxy keeps there.
type nftDifference struct {
	// name is the table as nft names it, "ip kube-proxy".
	name   string
	family nft.Family
	// table is the table as it is, nil where it is gone.
	table *nft.Table
	want  *kubeproxy.NFTable
	// changes in the order of what is wanted, then what is there and nobody wants.
	changes []*nftChange
	byName  map[string]*nftChange
}

// nftWhat is a kind of objects.
type nftWhat int

const (
	nftChainObject nftWhat = iota
	nftSetObject
	nftEntryObject
)

// nftChange is one object that is not as kube-proxy keeps it.
type nftChange struct {
	what nftWhat
	// name is that of the chain, or of the set.
	name string
	// key of an entry, as nft prints it.
	key string
	// was and will are the object before and after; nil where it is not there.
	was, will *nftState
	// service is "namespace/name" of the Service that it belongs to; empty for what serves all.
	service string
	reason  string
	// findings are the indexes of those that ask for it.
	findings []int
}

// nftState is an object at one moment.
type nftState struct {
	lines []string
	// comment, base and rules are those of a chain.
	comment string
	base    *nft.Base
	rules   []string
	// set is the declaration of a set, and of an entry the set that it is in.
	set *nft.Set
	// entry is that of an element, as nft prints it.
	entry string
}

// object names what a change is about.
func (c *nftChange) object() string {
	s := cmp.Or(c.will, c.was)
	switch c.what {
	case nftChainObject:
		return "chain " + c.name
	case nftSetObject:
		return nftKind(s.set) + " " + c.name
	}
	return fmt.Sprintf("element %s of %s %s", c.key, nftKind(s.set), c.name)
}

// nftCompare sets a table beside what kube-proxy keeps there. whole is true where all Services are known, so that what
// nobody wants is nobody's.
func nftCompare(family nft.Family, table *nft.Table, want *kubeproxy.NFTable, whole bool) *nftDifference {
	d := &nftDifference{name: want.String(), family: family, table: table, want: want, byName: make(map[string]*nftChange)}
	if table == nil {
		return d
	}
	for _, s := range want.Sets {
		d.compareSet(s, whole)
	}
	for _, c := range want.Chains {
		d.compareChain(c)
	}
	for _, c := range table.Chains {
		// Others that nobody wants do nothing: no packet comes to them, and kube-proxy removes those of Services.
		if c.Base != nil && want.Chain(c.Name) == nil && nftWritable(c) {
			d.add(&nftChange{
				what: nftChainObject, name: c.Name, was: d.chainState(c),
				reason: "kube-proxy has no such base chain, and packets come to it",
			})
		}
	}
	return d
}

func (d *nftDifference) add(c *nftChange) {
	d.changes = append(d.changes, c)
	if c.what != nftEntryObject {
		d.byName[c.object()] = c
	}
}

func (d *nftDifference) chainState(c *nft.Chain) *nftState {
	rules := nftRules(d.table, c)
	return &nftState{lines: nftChainLines(d.family, c.Comment, c.Base, rules), comment: c.Comment, base: c.Base, rules: rules}
}

// compareChain compares one chain.
func (d *nftDifference) compareChain(want *kubeproxy.NFTChain) {
	if d.want.Unknown(want.Service) {
		return
	}
	c := d.table.Chain(want.Name)
	will := &nftState{comment: want.Comment, base: want.Base, rules: want.Rules}
	change := &nftChange{what: nftChainObject, name: want.Name, will: will, service: want.Service}
	if c == nil {
		will.lines = nftChainLines(d.family, will.comment, will.base, will.rules)
		change.reason = "kube-proxy keeps this chain, and it is not there"
		d.add(change)
		return
	}
	why := d.differs(c, want)
	if why == "" || !nftWritable(c) {
		return
	}
	will.comment = c.Comment // which is not the chain's to change, and decides nothing
	if nftHooked(c.Base, want.Base) && c.Base != nil {
		base := *c.Base
		base.Policy = cmp.Or(want.Base.Policy, "accept")
		will.base = &base
	}
	will.lines = nftChainLines(d.family, will.comment, will.base, will.rules)
	change.was, change.reason = d.chainState(c), why
	d.add(change)
}

// nftHooked tells whether two chains hook in at the same place, or both not at all.
func nftHooked(a, b *nft.Base) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Type == b.Type && a.Hook == b.Hook && a.Priority == b.Priority && len(a.Devices) == 0 && !a.Offload
}

// differs says in words how a chain differs from what kube-proxy keeps; empty where it does not.
func (d *nftDifference) differs(c *nft.Chain, want *kubeproxy.NFTChain) string {
	switch {
	case c.Base == nil && want.Base != nil:
		return "no packet comes to it: it is no base chain, and kube-proxy hooks it in (" + nftBaseLine(d.family, want.Base) + ")"
	case !nftHooked(c.Base, want.Base):
		if want.Base == nil {
			return "it is a base chain, and kube-proxy's is none"
		}
		// The kernel takes no other hook or priority for a chain that is there (nf_tables_updchain), and with it not the rest.
		return "it is hooked in at another place than kube-proxy's, whose full syncs fail as long as it is: " + nftBaseLine(d.family, c.Base)
	case c.Base != nil && cmp.Or(c.Base.Policy, "accept") != cmp.Or(want.Base.Policy, "accept"):
		return "its policy is " + c.Base.Policy + ", and that of kube-proxy's is accept"
	}
	same := len(c.Rules) == len(want.Rules)
	for i := 0; same && i < len(c.Rules); i++ {
		same = d.sameRule(c.Rules[i], want.Rules[i])
	}
	if same {
		return ""
	}
	return d.rulesDiffer(c, want.Rules)
}

// rulesDiffer says how rules differ.
func (d *nftDifference) rulesDiffer(c *nft.Chain, want []string) string {
	if len(c.Rules) == 0 {
		return "it has no rules"
	}
	left := slices.Clone(c.Rules)
	var lacks []string
	for _, w := range want {
		if i := slices.IndexFunc(left, func(r *nft.Rule) bool { return d.sameRule(r, w) }); i >= 0 {
			left = slices.Delete(left, i, i+1)
		} else {
			lacks = append(lacks, w)
		}
	}
	switch {
	case len(lacks) > 0 && len(left) > 0:
		return fmt.Sprintf("it has %q where kube-proxy keeps %q", d.table.RuleText(left[0]), lacks[0])
	case len(lacks) > 0:
		return fmt.Sprintf("it lacks %q", lacks[0])
	case len(left) > 0:
		return fmt.Sprintf("it has %q, which kube-proxy does not make there", d.table.RuleText(left[0]))
	}
	return "its rules stand in another order than kube-proxy's"
}

// sameRule tells whether a rule is the one that kube-proxy makes, whichever nft gave it to the kernel or printed it.
func (d *nftDifference) sameRule(r *nft.Rule, want string) bool {
	if r.Text == want {
		return true
	}
	text := d.table.RuleText(r)
	return text == want || nftPlain(text) == nftPlain(want)
}

var (
	nftSingle  = regexp.MustCompile(`\{ ([^ ,{}]+) \}`)
	nftByIndex = regexp.MustCompile(`\biif (!= )?`)
)

// nftPlain is a rule without what does not matter: a set of one is the one, and an interface is by name or by index
// (which releases up to 1.34.1 write).
func nftPlain(rule string) string {
	return nftByIndex.ReplaceAllString(nftSingle.ReplaceAllString(rule, "$1"), "iifname $1")
}

// nftWritable tells whether a chain can be written again as it is: not so where a rule holds what nft does not print so that
// it reads it, or a name or comment what would be read as something else.
func nftWritable(c *nft.Chain) bool {
	if !nftName(c.Name) || !nftSafe(c.Comment) || strings.Contains(c.Comment, `"`) {
		return false
	}
	for _, r := range c.Rules {
		if !nftSafe(r.Text) {
			return false
		}
		for _, s := range r.Statements {
			switch s.(type) {
			case *nft.XT, *nft.Unreadable:
				return false
			}
		}
	}
	return true
}

// nftHolds tells whether a rule of a chain names a set.
func nftHolds(c *nft.Chain, set string) bool {
	return slices.ContainsFunc(c.Rules, func(r *nft.Rule) bool { return nftNames(r.Text, set) })
}

// nftNames tells whether a rule names a set.
func nftNames(rule, set string) bool {
	return slices.ContainsFunc(nftNamedSet.FindAllStringSubmatch(rule, -1), func(m []string) bool { return m[1] == set })
}

// nftWritableSet tells the same of a set.
func nftWritableSet(s *nft.Set) bool {
	return nftName(s.Name) && !s.Meter && nftSafe(s.Comment) && !strings.Contains(s.Comment, `"`) &&
		!slices.ContainsFunc(s.Entries, func(e nft.Entry) bool {
			return !nftSafe(e.Comment) || strings.Contains(e.Comment, `"`) || !nftSafe(e.Object)
		})
}

// nftName tells names that nft reads as one word. Netlink takes any.
func nftName(name string) bool {
	return name != "" && strings.IndexFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_./", c)
	}) < 0
}

// nftSafe tells whether nft reads a text as one rule or entry: no command ends in it, and no string stays open.
func nftSafe(text string) bool {
	quoted := false
	for _, c := range text {
		switch {
		case c == '"':
			quoted = !quoted
		case c < ' ' || c == 0x7f:
			return false
		case !quoted && strings.ContainsRune(";#$\\`'", c):
			return false
		}
	}
	return !quoted
}

// compareSet compares the declaration of a set or map, and its entries.
func (d *nftDifference) compareSet(want *kubeproxy.NFTSet, whole bool) {
	s := d.table.Set(want.Name)
	if d.want.Unknown(want.Service) {
		return
	}
	change := &nftChange{what: nftSetObject, name: want.Name, service: want.Service, will: &nftState{set: want.Set}}
	switch {
	case s == nil:
		change.reason = fmt.Sprintf("kube-proxy keeps this %s, and it is not there", nftKind(want.Set))
	case !nftSameSet(s, want.Set) && nftWritableSet(s) && !slices.ContainsFunc(d.table.Chains, func(c *nft.Chain) bool { return nftHolds(c, want.Name) && !nftWritable(c) }):
		change.was = &nftState{set: nftDeclaration(s)}
		change.was.lines = nftSetLines(s)
		change.reason = fmt.Sprintf("it is declared otherwise (%s) than kube-proxy does it (%s)", strings.Join(nftSetLines(s), "; "), strings.Join(nftSetLines(want.Set), "; "))
	default:
		change = nil // it is the same, or nothing could put it back
	}
	if change != nil {
		change.will.lines = nftSetLines(want.Set)
		d.add(change)
	}
	if want.Dynamic || s != nil && (s.Incomplete || !nftWritableSet(s)) {
		return
	}
	for _, e := range want.Entries {
		d.compareEntry(s, want, e)
	}
	if s == nil || want.Open || !whole || change != nil && !sameFields(s.Key, want.Key) {
		return
	}
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.CatchAll || e.End == nil {
			if want.Entry(e.Start) != nil && !e.CatchAll {
				continue
			}
		} else if slices.ContainsFunc(want.Entries, func(w *kubeproxy.NFTEntry) bool {
			return string(w.Start) == string(e.Start) && string(w.End) == string(e.End)
		}) {
			continue
		}
		service := nftEntryService(e)
		if d.want.Unknown(service) || service == "" && d.want.AnyUnknown() {
			continue
		}
		d.add(&nftChange{
			what: nftEntryObject, name: s.Name, key: nftKeyText(s, e), service: service,
			was:    &nftState{set: nftDeclaration(s), entry: s.EntryText(e), lines: []string{s.EntryText(e)}},
			reason: "no Service asks for it",
		})
	}
}

// nftEntryService is the Service that an entry names: by the chain that it leads to, or in its comment.
func nftEntryService(e *nft.Entry) string {
	key := e.Comment
	if e.Verdict != nil {
		if k, _, _, ok := dataplane.ServicePortOfNFT(e.Verdict.Chain); ok {
			key = k
		}
	}
	service, _, _ := strings.Cut(key, ":")
	if strings.Count(service, "/") != 1 {
		return ""
	}
	return service
}

// compareEntry compares the entry for a key.
func (d *nftDifference) compareEntry(s *nft.Set, want *kubeproxy.NFTSet, e *kubeproxy.NFTEntry) {
	if d.want.Unknown(e.Service) {
		return
	}
	change := &nftChange{what: nftEntryObject, name: want.Name, service: e.Service}
	set := want.Set
	var have *nft.Entry
	if s != nil && sameFields(s.Key, want.Key) {
		set = s
		have = nftOwnEntry(s, &e.Entry)
	}
	if have != nil {
		if nftSameVerdict(have, &e.Entry) || slices.ContainsFunc(e.Others, func(o nft.Entry) bool { return nftSameVerdict(have, &o) }) {
			return
		}
		change.was = &nftState{set: nftDeclaration(s), entry: s.EntryText(have)}
		change.was.lines = []string{change.was.entry}
		change.reason = fmt.Sprintf("it says %s, and kube-proxy keeps %s", nftVerdictText(have), nftVerdictText(&e.Entry))
	} else {
		change.reason = "kube-proxy keeps this entry, and it is not there"
	}
	if e.Service != "" {
		change.reason += " (for Service " + e.Service + ")"
	}
	change.key = nftKeyText(set, &e.Entry)
	change.will = &nftState{set: want.Set, entry: set.EntryText(&e.Entry)}
	change.will.lines = []string{change.will.entry}
	d.add(change)
}

// nftOwnEntry is the entry of a set with exactly that key.
func nftOwnEntry(s *nft.Set, want *nft.Entry) *nft.Entry {
	if want.End == nil {
		if e := s.Find(want.Start); e != nil && !e.CatchAll && (e.End == nil || string(e.Start) == string(e.End)) {
			return e
		}
		return nil
	}
	for i := range s.Entries {
		if e := &s.Entries[i]; string(e.Start) == string(want.Start) && (string(e.End) == string(want.End) || e.End == nil && string(want.End) == string(want.Start)) {
			return e
		}
	}
	return nil
}

func nftVerdictText(e *nft.Entry) string {
	switch {
	case e.Verdict == nil:
		return "nothing"
	case e.Verdict.Chain != "":
		return string(e.Verdict.Kind) + " " + e.Verdict.Chain
	}
	return string(e.Verdict.Kind)
}

func nftSameVerdict(a, b *nft.Entry) bool {
	if a.Verdict == nil || b.Verdict == nil {
		return a.Verdict == b.Verdict
	}
	return *a.Verdict == *b.Verdict
}

func sameFields(a, b []nft.Field) bool {
	return slices.EqualFunc(a, b, func(x, y nft.Field) bool { return x.Type == y.Type && x.Size == y.Size })
}

// nftSameSet tells whether a set is declared as kube-proxy does it, as far as packets are concerned. How much room a set
// has that rules fill is nft's own choice, where nobody says it.
func nftSameSet(s, want *nft.Set) bool {
	return sameFields(s.Key, want.Key) && s.IsMap == want.IsMap && len(s.Data) == len(want.Data) && s.ObjectType == want.ObjectType &&
		s.Interval == want.Interval && s.Dynamic == want.Dynamic && s.HasTimeout == want.HasTimeout && s.Timeout == want.Timeout &&
		!s.Constant && (s.Size == want.Size || s.Size == 0) && len(s.Statements) == 0
}

// nftWhole tells whether all Services are known: every cluster has this one.
func nftWhole(n *check.Node) bool {
	_, ok := n.Objects.Service("default", "kubernetes")
	return ok && n.Has(check.Services) && (n.Has(check.Slices) || n.Has(check.LegacyEPs))
}
