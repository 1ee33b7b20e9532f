package kernel

import (
	"slices"

	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/repair/proxy/table"
)

// Add puts a transaction into the batch: what others lead to before those, and what nothing leads to any more last. there
// says whether a table that is to be made anew is there.
func (b *Batch) Add(tx *table.Transaction, there bool) error {
	t := tx.Table
	if tx.Whole {
		if there {
			b.DeleteTable(t)
		}
		b.AddTable(t)
		for _, s := range t.Sets {
			b.AddSet(t, s)
		}
		for _, c := range t.Chains {
			b.AddChain(t, c)
		}
	}
	for _, s := range tx.NewSizes {
		b.AddSet(t, s.Declare(t))
		b.AddChain(t, tx.SizeChain(s))
	}
	for _, c := range tx.ChangedChains {
		b.FlushChain(t, c.Name)
	}
	for _, name := range tx.OldChains {
		b.FlushChain(t, name)
	}
	for i := range tx.Dispatch {
		if tx.Dispatch[i].Flush {
			b.FlushChain(t, tx.Dispatch[i].Chain(t).Name)
		}
	}
	// Rules that use a set of clients are gone by now.
	for _, name := range tx.ChangedSets {
		b.DeleteSet(t, name)
	}
	for _, s := range tx.NewSets {
		b.AddSet(t, s)
	}
	for _, c := range tx.NewChains {
		b.AddChain(t, c)
	}
	b.setElements(tx, tx.Delete, false)
	var rules []*nft.Chain
	if tx.Whole {
		rules = append(rules, t.Chains...)
	}
	for _, s := range tx.NewSizes {
		rules = append(rules, tx.SizeChain(s))
	}
	for i := range tx.Dispatch {
		rules = append(rules, tx.Dispatch[i].Chain(t))
	}
	for _, c := range slices.Concat(rules, tx.NewChains, tx.ChangedChains) {
		if err := b.AddRules(t, c); err != nil {
			return err
		}
	}
	b.setElements(tx, tx.Add, true)
	for _, s := range tx.OldSizes {
		b.DeleteChain(t, s.Name())
		b.DeleteSet(t, s.Name())
	}
	for _, name := range tx.OldChains {
		b.DeleteChain(t, name)
	}
	for _, name := range tx.OldSets {
		b.DeleteSet(t, name)
	}
	return nil
}

// setElements adds or deletes elements, set by set.
func (b *Batch) setElements(tx *table.Transaction, elements []table.Element, add bool) {
	for len(elements) > 0 {
		n := 1
		for n < len(elements) && elements[n].Set == elements[0].Set {
			n++
		}
		of := elements[:n]
		elements = elements[n:]
		each := func(yield func(Element) bool) {
			for i := range of {
				e := Element{Key: of[i].Key, Data: of[i].Value}
				if of[i].Set.IsVerdict() {
					e.Data, e.Chain = "", of[i].Value
				}
				if !yield(e) {
					return
				}
			}
		}
		if s := of[0].Set.Declare(tx.Table); add {
			b.AddElements(tx.Table, s, each)
		} else {
			b.DeleteElements(tx.Table, s, each)
		}
	}
}
