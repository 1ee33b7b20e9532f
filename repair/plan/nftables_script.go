package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/nft"
)

// nftScript makes the text of one transaction for `nft -f`: it brings the objects of changes from one state to the other,
// in an order in which the kernel takes it. Chains are there before what leads to them, sets before the rules that ask
// them; entries and rules go before the chains and sets that they name.
type nftScript struct {
	*nftDifference
	changes []*nftChange
	// back is true for the transaction that takes the changes back.
	back bool
	out  strings.Builder
	// final are the rules of chains that are written, by name.
	final map[string][]string
}

// script is the transaction of some changes, or the one that takes them back.
func (d *nftDifference) script(changes []*nftChange, back bool) string {
	s := &nftScript{nftDifference: d, changes: changes, back: back, final: make(map[string][]string)}
	s.write()
	return s.out.String()
}

func (s *nftScript) line(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

// states are a change's states before and after this transaction.
func (s *nftScript) states(c *nftChange) (from, to *nftState) {
	if s.back {
		return c.will, c.was
	}
	return c.was, c.will
}

func (s *nftScript) write() {
	again := s.redeclared()
	bases := s.basesAnew()
	// Chains and sets that are new, and what is taken away from old ones.
	var flush []string
	for _, c := range s.changes {
		from, to := s.states(c)
		switch {
		case c.what == nftChainObject && from == nil:
			s.final[c.name] = to.rules
			if to.base == nil {
				s.addChain(c.name, to)
			}
		case c.what == nftChainObject && to == nil:
			flush = append(flush, c.name)
		case c.what == nftChainObject && (!slices.Equal(from.rules, to.rules) || bases[c.name] != nil):
			flush = append(flush, c.name)
			s.final[c.name] = to.rules
		case c.what == nftSetObject && from == nil:
			s.addSet(to.set)
		}
	}
	// A set is declared anew where no rule holds it.
	for _, name := range s.holding(again) {
		if _, written := s.final[name]; !written && !slices.Contains(flush, name) {
			flush = append(flush, name)
			s.final[name] = s.rulesAfter(name)
		}
	}
	for name, to := range bases {
		if _, written := s.final[name]; !written && to.base != nil {
			s.final[name] = to.rules
		}
	}
	for name := range bases {
		if s.isThere(name) && !slices.Contains(flush, name) {
			flush = append(flush, name)
		}
	}
	slices.Sort(flush)
	for _, name := range flush {
		s.line("flush chain %s %s", s.name, name)
	}
	s.elements(again, false)
	for _, name := range s.baseOrder(bases) {
		if s.isThere(name) {
			s.line("delete chain %s %s", s.name, name)
		}
	}
	for _, c := range again {
		from, to := s.states(c)
		s.line("delete %s %s %s", nftKind(from.set), s.name, c.name)
		s.addSet(to.set)
		s.refill(c, to.set)
	}
	for _, name := range s.baseOrder(bases) {
		if to := bases[name]; to != nil && !to.gone {
			s.addChain(name, &to.nftState)
		}
	}
	for _, c := range s.changes {
		from, to := s.states(c)
		if c.what == nftChainObject && from != nil && to != nil && bases[c.name] == nil && to.base != nil && from.base != nil && from.base.Policy != to.base.Policy {
			s.addChain(c.name, to) // which sets the policy of one that is there
		}
	}
	s.elements(again, true)
	s.rules()
	for _, c := range s.changes {
		from, to := s.states(c)
		switch {
		case to != nil || from == nil:
		case c.what == nftChainObject && bases[c.name] == nil:
			s.line("delete chain %s %s", s.name, c.name)
		case c.what == nftSetObject:
			s.line("delete %s %s %s", nftKind(from.set), s.name, c.name)
		}
	}
}

// addChain declares a chain.
func (s *nftScript) addChain(name string, to *nftState) {
	var inside []string
	if to.base != nil {
		inside = append(inside, nftBaseLine(s.family, to.base))
	}
	if to.comment != "" {
		inside = append(inside, fmt.Sprintf("comment \"%s\";", to.comment))
	}
	if len(inside) == 0 {
		s.line("add chain %s %s", s.name, name)
		return
	}
	s.line("add chain %s %s { %s }", s.name, name, strings.Join(inside, " "))
}

// addSet declares a set or map.
func (s *nftScript) addSet(set *nft.Set) {
	s.line("add %s %s %s { %s; }", nftKind(set), s.name, set.Name, strings.Join(nftSetLines(set), "; "))
}

// rules writes the rules of chains that hold none.
func (s *nftScript) rules() {
	names := make([]string, 0, len(s.final))
	for name := range s.final {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, r := range s.final[name] {
			s.line("add rule %s %s %s", s.name, name, nftReadable(r))
		}
	}
}

// nftReadable is a rule so that nft makes of it what it printed: it takes a set of one for the one, but not where that is
// said twice.
func nftReadable(rule string) string {
	if !strings.Contains(rule, "{") {
		return rule
	}
	return nftSingle.ReplaceAllStringFunc(rule, func(m string) string {
		one := nftSingle.FindStringSubmatch(m)[1]
		return "{ " + one + ", " + one + " }"
	})
}

// perCommand is how many elements one command gives to a set.
const perCommand = 200

// elements takes entries away, or puts them in: those of sets that are not declared anew.
func (s *nftScript) elements(again []*nftChange, in bool) {
	var order []string
	of := make(map[string][]string)
	for _, c := range s.changes {
		from, to := s.states(c)
		if c.what != nftEntryObject || slices.ContainsFunc(again, func(a *nftChange) bool { return a.name == c.name }) {
			continue
		}
		if in && to == nil || !in && from == nil {
			continue
		}
		// A set that goes as a whole takes its entries with it.
		text := c.key
		if in {
			text = to.entry
		}
		if of[c.name] == nil {
			order = append(order, c.name)
		}
		of[c.name] = append(of[c.name], text)
	}
	verb := map[bool]string{false: "delete", true: "add"}[in]
	for _, name := range order {
		for part := range slices.Chunk(of[name], perCommand) {
			s.line("%s element %s %s { %s }", verb, s.name, name, strings.Join(part, ", "))
		}
	}
}

// redeclared are the changes by which sets that are there are declared anew.
func (s *nftScript) redeclared() []*nftChange {
	var out []*nftChange
	for _, c := range s.changes {
		if from, to := s.states(c); c.what == nftSetObject && from != nil && to != nil {
			out = append(out, c)
		}
	}
	return out
}

var nftNamedSet = regexp.MustCompile(`@([^ ,;{}]+)`)

// holding are the chains with rules that name sets which are declared anew.
func (s *nftScript) holding(again []*nftChange) []string {
	if len(again) == 0 || s.table == nil {
		return nil
	}
	var out []string
	for _, a := range again {
		for _, c := range s.table.Chains {
			if nftHolds(c, a.name) && !slices.Contains(out, c.Name) {
				out = append(out, c.Name)
			}
		}
		// And those that have such rules only after the changes.
		for _, c := range s.changes {
			if s.back && c.what == nftChainObject && c.was != nil && c.will != nil && !slices.Contains(out, c.name) &&
				slices.ContainsFunc(c.will.rules, func(r string) bool { return nftNames(r, a.name) }) {
				out = append(out, c.name)
			}
		}
	}
	return out
}

// rulesAfter are the rules of a chain after the transaction.
func (s *nftScript) rulesAfter(name string) []string {
	for _, c := range s.changes {
		if c.what == nftChainObject && c.name == name {
			if _, to := s.states(c); to != nil {
				return to.rules
			}
			return nil
		}
	}
	if c := s.table.Chain(name); c != nil {
		return nftRules(s.table, c)
	}
	return nil
}

// refill puts into a set that is declared anew what it has after the transaction. Clients that rules remember are kept
// without how long they were still to be: they are remembered for the whole time again.
func (s *nftScript) refill(c *nftChange, set *nft.Set) {
	have := s.table.Set(c.name)
	entries := make(map[string]string)
	var order []string
	put := func(key, text string) {
		if _, ok := entries[key]; !ok {
			order = append(order, key)
		}
		entries[key] = text
	}
	if have != nil && sameFields(have.Key, set.Key) {
		for i := range have.Entries {
			e := &have.Entries[i]
			key := nftKeyText(have, e)
			if have.Dynamic || have.HasTimeout || set.Dynamic {
				put(key, key)
			} else {
				put(key, have.EntryText(e))
			}
		}
	}
	for _, x := range s.changes {
		if x.what != nftEntryObject || x.name != c.name {
			continue
		}
		if _, to := s.states(x); to != nil {
			put(x.key, to.entry)
		} else {
			delete(entries, x.key)
		}
	}
	order = slices.DeleteFunc(order, func(key string) bool { return entries[key] == "" })
	for part := range slices.Chunk(order, perCommand) {
		texts := make([]string, 0, len(part))
		for _, key := range part {
			texts = append(texts, entries[key])
		}
		s.line("add element %s %s { %s }", s.name, c.name, strings.Join(texts, ", "))
	}
}

// nftBaseAnew is a base chain that is registered anew, or goes.
type nftBaseAnew struct {
	nftState
	gone bool
	// at is its place among those that are registered anew.
	at int
}

// basesAnew are the base chains that have to be taken away and made: the kernel moves none to another hook or priority.
// Taking changes back makes all of them anew where else they would stand in another order than before, which is the
// order in which the kernel runs those of one priority.
func (s *nftScript) basesAnew() map[string]*nftBaseAnew {
	out := make(map[string]*nftBaseAnew)
	var before, after []string
	if s.table != nil {
		for _, c := range s.table.Chains {
			if c.Base != nil {
				before = append(before, c.Name)
			}
		}
	}
	anew := func(name string, to *nftState) {
		b := &nftBaseAnew{at: len(out), gone: to == nil}
		if to != nil {
			b.nftState = *to
		}
		out[name] = b
	}
	after = slices.Clone(before)
	for _, c := range s.changes {
		if c.what != nftChainObject {
			continue
		}
		was, will := c.was, c.will
		moved := was != nil && will != nil && !nftHooked(was.base, will.base)
		added := was == nil && will.base != nil
		gone := will == nil && was.base != nil
		if !moved && !added && !gone {
			continue
		}
		after = slices.DeleteFunc(after, func(n string) bool { return n == c.name })
		if will != nil && will.base != nil {
			after = append(after, c.name)
		}
		_, to := s.states(c)
		anew(c.name, to)
	}
	if !s.back || len(out) == 0 {
		return out
	}
	// Back: the order would be what stays, and then what is made.
	back := slices.DeleteFunc(slices.Clone(after), func(n string) bool { return out[n] != nil })
	for _, name := range before {
		if out[name] != nil {
			back = append(back, name)
		}
	}
	if slices.Equal(back, before) || slices.ContainsFunc(before, func(name string) bool { return !nftWritable(s.table.Chain(name)) }) {
		return out
	}
	for i, name := range before {
		if out[name] == nil {
			c := s.table.Chain(name)
			out[name] = &nftBaseAnew{nftState: *s.chainState(c)}
		}
		out[name].at = i
	}
	for name, b := range out {
		if !slices.Contains(before, name) {
			b.at += len(before)
		}
	}
	return out
}

func (s *nftScript) baseOrder(bases map[string]*nftBaseAnew) []string {
	names := make([]string, 0, len(bases))
	for name := range bases {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return bases[a].at - bases[b].at })
	return names
}

// isThere tells whether a chain is there before the transaction.
func (s *nftScript) isThere(name string) bool {
	for _, c := range s.changes {
		if c.what == nftChainObject && c.name == name {
			from, _ := s.states(c)
			return from != nil
		}
	}
	return s.table != nil && s.table.Chain(name) != nil
}
