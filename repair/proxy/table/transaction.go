package table

import (
	"cmp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/nft"
)

// Transaction is what has to change in one table, all at once.
type Transaction struct {
	// Table is the table with the chains, rules and sets that it always has.
	Table *nft.Table
	// Whole is set where the table is to be made anew, whatever is there.
	Whole bool
	// NewSizes are sets for a number of backends, each with its chain; Dispatch are the rules that lead to them.
	NewSizes, OldSizes []Set
	Dispatch           []Dispatch
	// NewSets are those of clients with affinity; ChangedSets are deleted before they are made.
	NewSets     []*nft.Set
	ChangedSets []string
	OldSets     []string
	// NewChains, ChangedChains and OldChains are those of service ports with affinity or source ranges.
	NewChains, ChangedChains []*nft.Chain
	OldChains                []string
	// Delete are elements that are there, Add such as are not there once those are gone. Both are sorted.
	Delete, Add []Element
}

// Dispatch are rules that lead to chains by the number of backends.
type Dispatch struct {
	Kind  SetKind
	Sizes []int
	// Flush is set where they take the place of those that are there.
	Flush bool
}

// Chain is the chain of the rules' name.
func (d *Dispatch) Chain(t *nft.Table) *nft.Chain {
	c := &nft.Chain{Name: d.Kind.dispatch()}
	for _, n := range d.Sizes {
		c.Rules = append(c.Rules, Set{d.Kind, n}.sizeRule(t))
	}
	return c
}

// Empty tells whether there is nothing to do.
func (tx *Transaction) Empty() bool {
	return !tx.Whole && len(tx.NewSizes)+len(tx.OldSizes)+len(tx.Dispatch)+len(tx.NewSets)+len(tx.ChangedSets)+len(tx.OldSets)+
		len(tx.NewChains)+len(tx.ChangedChains)+len(tx.OldChains)+len(tx.Delete)+len(tx.Add) == 0
}

// SizeChain is the chain that chooses one of as many backends as the set says.
func (tx *Transaction) SizeChain(s Set) *nft.Chain { return s.sizeChain(tx.Table) }

// Declare is a set of the table, without elements: its name, and what its keys and data are.
func (s Set) Declare(t *nft.Table) *nft.Set {
	return s.declare((&nft.Ruleset{}).AddTable(t.Family, t.Name))
}

// IsVerdict tells whether the set is a map to chains.
func (s Set) IsVerdict() bool { return forms[s.Kind].isVerdict }

// chainText is a chain as it is compared with itself at another time.
func chainText(c *nft.Chain) string {
	var b strings.Builder
	for _, r := range c.Rules {
		b.WriteString(r.Text)
		b.WriteByte('\n')
	}
	return b.String()
}

// Table is the table as the kernel has it once all transactions happened, and elements that are about to go are gone: what
// `nft list table` prints.
func (s *State) Table() *nft.Table {
	t := Layout(s.layout.Family, &s.facts)
	sets := map[Set]*nft.Set{}
	set := func(k Set) *nft.Set {
		if sets[k] == nil {
			sets[k] = t.Set(k.Name())
			if sets[k] == nil {
				sets[k] = k.declare(t)
			}
		}
		return sets[k]
	}
	put := func(e Element) {
		n := nft.Entry{Start: []byte(e.Key)}
		switch f := &forms[e.Set.Kind]; {
		case f.isVerdict:
			n.Verdict = &nft.Verdict{Kind: nft.Goto, Chain: e.Value}
		case f.isMap:
			n.Data = []byte(e.Value)
		}
		into := set(e.Set)
		into.Entries = append(into.Entries, n)
	}
	var own []*entry
	for _, entries := range s.services {
		own = append(own, entries...)
	}
	slices.SortFunc(own, func(a, b *entry) int { return cmp.Or(a.service.compare(b.service), cmp.Compare(a.id, b.id)) })
	var sized []Set
	for _, e := range own {
		r := e.programmed
		if r == nil {
			r = render(s.layout, &s.facts, e.port, func(f Frontend) bool { return s.claims[f][0] == e }, nil)
		}
		for _, x := range r.Elements {
			if !forms[x.Set.Kind].shared {
				put(x)
			} else if in := set(x.Set); !slices.ContainsFunc(in.Entries, func(n nft.Entry) bool { return string(n.Start) == x.Key }) {
				put(x)
			}
			if x.Set.Kind.sized() && !slices.Contains(sized, x.Set) {
				sized = append(sized, x.Set)
			}
		}
		for _, x := range r.Sets {
			copySet(t.AddSet(x.Name), x)
		}
		for _, c := range r.Chains {
			*t.AddChain(c.Name) = *c
		}
	}
	for _, a := range s.facts.NodePortIPs {
		if familyOf(a) == t.Family {
			put(Element{Set: Set{Kind: nodePortIPs}, Key: string(a.AsSlice())})
		}
	}
	slices.SortFunc(sized, func(a, b Set) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Size, b.Size)) })
	for _, k := range sized {
		*t.AddChain(k.Name()) = *k.sizeChain(t)
		d := t.Chain(k.Kind.dispatch())
		d.Rules = append(d.Rules, k.sizeRule(t))
	}
	for _, x := range t.Sets {
		slices.SortFunc(x.Entries, func(a, b nft.Entry) int { return strings.Compare(string(a.Start), string(b.Start)) })
	}
	return t
}

// copySet declares one set as another is.
func copySet(to, from *nft.Set) {
	to.Key, to.Dynamic, to.HasTimeout, to.Timeout, to.Size = from.Key, from.Dynamic, from.HasTimeout, from.Timeout, from.Size
}
