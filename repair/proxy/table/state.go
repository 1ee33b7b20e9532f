package table

import (
	"cmp"
	"maps"
	"slices"

	"github.com/svcnet/svcnet/explain/nft"
)

// Service names a Service.
type Service struct{ Namespace, Name string }

func (s Service) compare(o Service) int {
	return cmp.Or(cmp.Compare(s.Namespace, o.Namespace), cmp.Compare(s.Name, o.Name))
}

// State is one family's table as far as it was put into transactions, and what is wanted of it by now. It is used by one
// goroutine at a time.
type State struct {
	facts Facts
	// layout is the table without Services.
	layout *nft.Table

	services map[Service][]*entry
	// claims are the ports that want a frontend, the one that holds it first; nearly always there is one.
	claims map[Frontend][]*entry
	dirty  map[*entry]bool
	// gone are entries that nothing wants any more and that the table still has: one that comes back is the same.
	gone map[entryID]*entry

	// programmed, by set, counts the elements of sized sets, those included that nothing wants any more.
	sizes map[Set]int
	// order is that of the rules of a sized kind.
	order map[SetKind][]int
	// shared counts who wants an element of a shared set.
	shared map[element]int
	// retiring are elements that nothing wants any more and that are deleted when their time has come.
	retiring map[element]retired
	age      int
	// nodePortIPs are those of the table.
	nodePortIPs map[string]bool
	begun       bool
	// contested counts the claims that came second; reclaimed is set when some were made or given up since Contested.
	contested int
	reclaimed bool
	// ports counts the service ports of all Services.
	ports int
}

// entry is a service port.
type entry struct {
	service Service
	id      string
	// port is what is wanted, nil once nothing is.
	port *Port
	// programmed is what the table has, nil for nothing.
	programmed *Rendered
}

type entryID struct {
	service Service
	id      string
}

type element struct {
	set Set
	key string
}

type retired struct {
	value string
	due   int
}

// NewState begins with no table.
func NewState(family nft.Family, f Facts) *State {
	s := &State{
		facts: f, layout: Layout(family, &f), services: map[Service][]*entry{}, claims: map[Frontend][]*entry{}, dirty: map[*entry]bool{},
		gone: map[entryID]*entry{},
	}
	s.forget()
	return s
}

// Family is that of the table.
func (s *State) Family() nft.Family { return s.layout.Family }

// forget takes it that nothing is in the table.
func (s *State) forget() {
	s.sizes, s.order, s.shared, s.retiring = map[Set]int{}, map[SetKind][]int{}, map[element]int{}, map[element]retired{}
	s.age, s.begun, s.nodePortIPs = 0, false, map[string]bool{}
}

// Update says what a Service asks for by now; no ports: nothing any more.
func (s *State) Update(service Service, ports []*Port) {
	before := s.services[service]
	byID := make(map[string]*entry, len(before))
	for _, e := range before {
		byID[e.id] = e
	}
	var next []*entry
	for _, p := range ports {
		id := p.Protocol + " " + p.Key
		e := byID[id]
		if e == nil {
			e = s.gone[entryID{service, id}]
			delete(s.gone, entryID{service, id})
		}
		if e == nil {
			e = &entry{service: service, id: id}
		}
		delete(byID, id)
		s.claim(e, p)
		next = append(next, e)
	}
	for _, e := range before {
		if byID[e.id] == e {
			s.claim(e, nil)
			if e.programmed == nil {
				delete(s.dirty, e)
			} else {
				s.gone[entryID{service, e.id}] = e
			}
		}
	}
	s.ports += len(next) - len(before)
	if len(next) == 0 {
		delete(s.services, service)
	} else {
		s.services[service] = next
	}
}

// claim changes what an entry wants. Others that gain or lose a frontend by that are rendered again too.
func (s *State) claim(e *entry, p *Port) {
	was := e.port
	e.port = p
	s.dirty[e] = true
	var gone, come []Frontend
	if was != nil {
		gone = was.Frontends()
	}
	if p != nil {
		come = p.Frontends()
	}
	if was != nil && p != nil && slices.Equal(gone, come) && !was.before(p) && !p.before(was) {
		return
	}
	for _, f := range gone {
		claimants := s.claims[f]
		at := slices.Index(claimants, e)
		if at < 0 {
			continue
		}
		if at == 0 && len(claimants) > 1 {
			s.dirty[claimants[1]] = true
		}
		if claimants = slices.Delete(claimants, at, at+1); len(claimants) == 0 {
			delete(s.claims, f)
		} else {
			s.claims[f] = claimants
			s.contested--
			s.reclaimed = true
		}
	}
	for _, f := range come {
		claimants := s.claims[f]
		at := 0
		for at < len(claimants) && claimants[at].port.before(p) {
			at++
		}
		if at == 0 && len(claimants) > 0 {
			s.dirty[claimants[0]] = true
		}
		if len(claimants) > 0 {
			s.contested++
			s.reclaimed = true
		}
		s.claims[f] = slices.Insert(claimants, at, e)
	}
}

// Lost are the frontends that ports want and others hold, sorted by Service: who wants, what, and who holds it.
func (s *State) Lost() []Lost {
	var out []Lost
	for f, claimants := range s.claims {
		for _, e := range claimants[1:] {
			out = append(out, Lost{Frontend: f, Port: e.port, To: claimants[0].port})
		}
	}
	slices.SortFunc(out, func(a, b Lost) int {
		return cmp.Or(cmp.Compare(a.Port.Key, b.Port.Key), cmp.Compare(a.Port.Protocol, b.Port.Protocol), a.Frontend.Addr.Compare(b.Frontend.Addr),
			cmp.Compare(a.Frontend.Port, b.Frontend.Port))
	})
	return out
}

// Lost is a frontend that a port wants and another holds.
type Lost struct {
	Frontend Frontend
	Port, To *Port
}

// SetNodePortIPs changes the addresses of the node that take node ports.
func (s *State) SetNodePortIPs(f Facts) {
	s.facts.NodePortIPs = slices.Clone(f.NodePortIPs)
	for _, entries := range s.services {
		for _, e := range entries {
			// What is refused on every address has an element for each.
			if e.port != nil && e.port.NodePort != 0 && (!e.port.Usable || e.port.ExternalLocal && len(e.port.Here) == 0) {
				s.dirty[e] = true
			}
		}
	}
}

// Pending tells whether Plan would have anything to do.
func (s *State) Pending() bool {
	return !s.begun || len(s.dirty) > 0 || s.nodePortsDiffer()
}

// Begun tells whether the table was put into a transaction.
func (s *State) Begun() bool { return s.begun }

// Unneeded tells whether there is no table, and nothing to put into one: a node without IPv6 gets no table of IPv6.
func (s *State) Unneeded() bool { return !s.begun && len(s.services) == 0 }

// Services counts the Services that have ports here.
func (s *State) Services() int { return len(s.services) }

// Contested tells whether there are frontends that several ports want, and whether others are so than when it was asked
// last.
func (s *State) Contested() (some, changed bool) {
	changed, s.reclaimed = s.reclaimed, false
	return s.contested > 0, changed
}

// Retiring counts the elements that nothing wants any more and that are still there.
func (s *State) Retiring() int { return len(s.retiring) }

// Ports counts the service ports that are served or refused.
func (s *State) Ports() int { return s.ports }

// PortsOf are those of one Service, in its order.
func (s *State) PortsOf(service Service) []*Port {
	var out []*Port
	for _, e := range s.services[service] {
		out = append(out, e.port)
	}
	return out
}

// Restart has the next transaction make the table anew with all that is wanted: the kernel refused one, or somebody
// deleted the table.
func (s *State) Restart() {
	s.forget()
	clear(s.dirty)
	clear(s.gone)
	for _, entries := range s.services {
		for _, e := range entries {
			e.programmed = nil
			s.dirty[e] = true
		}
	}
}

// Plan is the transaction that makes the table what is wanted. age is set when packets that met the table before the last
// transaction are long gone, so that what they may have been led to can go. The state takes it that the transaction
// happens: where it does not, Restart.
func (s *State) Plan(age bool) *Transaction {
	tx := &Transaction{Table: s.layout}
	if !s.begun {
		tx.Whole, s.begun = true, true
	}
	if age {
		s.age++
	}
	p := plan{State: s, tx: tx, removed: map[element]string{}, counts: map[element]int{}}
	entries := slices.SortedFunc(maps.Keys(s.dirty), func(a, b *entry) int {
		return cmp.Or(a.service.compare(b.service), cmp.Compare(a.id, b.id))
	})
	clear(s.dirty)
	clear(s.gone)
	for _, e := range entries {
		p.entry(e)
	}
	p.nodePorts()
	p.settle()
	p.retire()
	p.sized()
	return tx
}

func (s *State) nodePortsDiffer() bool {
	n := 0
	for _, a := range s.facts.NodePortIPs {
		if familyOf(a) != s.layout.Family {
			continue
		}
		if n++; !s.nodePortIPs[string(a.AsSlice())] {
			return true
		}
	}
	return n != len(s.nodePortIPs)
}

// plan is a transaction while it is put together.
type plan struct {
	*State
	tx *Transaction
	// added and removed are elements that service ports want by now, and do not want any more.
	added   []Element
	removed map[element]string
	// counts are how many wanted a shared element before.
	counts map[element]int
}

// entry takes in the difference between what a service port has and what it ought to have.
func (p *plan) entry(e *entry) {
	var next *Rendered
	if e.port != nil {
		next = render(p.layout, &p.facts, e.port, func(f Frontend) bool { return p.claims[f][0] == e }, e.programmed)
	}
	before := e.programmed
	e.programmed = next
	var was, will []Element
	if before != nil {
		was = before.Elements
	}
	if next != nil {
		will = next.Elements
	}
	for len(was) > 0 || len(will) > 0 {
		c := 0
		switch {
		case len(was) == 0:
			c = 1
		case len(will) == 0:
			c = -1
		default:
			c = compareElements(was[0], will[0])
		}
		switch {
		case c < 0:
			p.remove(&was[0])
			was = was[1:]
		case c > 0:
			p.add(&will[0])
			will = will[1:]
		default:
			if was[0].Value != will[0].Value {
				p.remove(&was[0])
				p.add(&will[0])
			}
			was, will = was[1:], will[1:]
		}
	}
	p.chains(before, next)
}

func (p *plan) add(e *Element) {
	if !forms[e.Set.Kind].shared {
		p.added = append(p.added, *e)
		return
	}
	p.count(element{e.Set, e.Key}, 1)
}

func (p *plan) remove(e *Element) {
	if !forms[e.Set.Kind].shared {
		p.removed[element{e.Set, e.Key}] = e.Value
		return
	}
	p.count(element{e.Set, e.Key}, -1)
}

func (p *plan) count(e element, by int) {
	if _, ok := p.counts[e]; !ok {
		p.counts[e] = p.shared[e]
	}
	if p.shared[e] += by; p.shared[e] == 0 {
		delete(p.shared, e)
	}
}

// nodePorts brings the addresses that take node ports up to date.
func (p *plan) nodePorts() {
	set := Set{Kind: nodePortIPs}
	want := map[string]bool{}
	for _, a := range p.facts.NodePortIPs {
		if familyOf(a) == p.layout.Family {
			want[string(a.AsSlice())] = true
		}
	}
	for a := range want {
		if !p.nodePortIPs[a] {
			p.added = append(p.added, Element{Set: set, Key: a})
		}
	}
	for a := range p.nodePortIPs {
		if !want[a] {
			p.removed[element{set, a}] = ""
		}
	}
	p.nodePortIPs = want
}

// settle sets what is added against what is removed: a frontend that goes from one service port to another stays, an
// element that was about to go comes back.
func (p *plan) settle() {
	for e, was := range p.counts {
		now := p.shared[e]
		switch {
		case was == 0 && now > 0:
			p.added = append(p.added, Element{Set: e.set, Key: e.key})
		case was > 0 && now == 0:
			p.removed[e] = ""
		}
	}
	slices.SortFunc(p.added, compareElements)
	for i := range p.added {
		a := &p.added[i]
		at := element{a.Set, a.Key}
		value, there := p.removed[at]
		if there {
			delete(p.removed, at)
		} else if r, ok := p.retiring[at]; ok {
			value, there = r.value, true
			delete(p.retiring, at)
		}
		switch {
		case !there:
			p.insert(*a)
		case value != a.Value:
			p.tx.Delete = append(p.tx.Delete, Element{a.Set, a.Key, value})
			p.tx.Add = append(p.tx.Add, *a)
		}
	}
	for at, value := range p.removed {
		if level := forms[at.set.Kind].level; level > 0 {
			p.retiring[at] = retired{value, p.age + level}
			continue
		}
		p.drop(Element{at.set, at.key, value})
	}
}

func (p *plan) insert(e Element) {
	p.tx.Add = append(p.tx.Add, e)
	if e.Set.Kind.sized() {
		p.sizes[e.Set]++
	}
}

func (p *plan) drop(e Element) {
	p.tx.Delete = append(p.tx.Delete, e)
	if e.Set.Kind.sized() {
		p.sizes[e.Set]--
	}
}

// retire deletes the elements whose time has come.
func (p *plan) retire() {
	for at, r := range p.retiring {
		if r.due <= p.age {
			delete(p.retiring, at)
			p.drop(Element{at.set, at.key, r.value})
		}
	}
	slices.SortFunc(p.tx.Delete, compareElements)
}

// sized makes the sets and chains of sizes that are new, and deletes those that are empty.
func (p *plan) sized() {
	for s, n := range p.sizes {
		if n == 0 {
			delete(p.sizes, s)
			p.tx.OldSizes = append(p.tx.OldSizes, s)
		}
	}
	for _, kind := range []SetKind{anySize, hereSize, anyNodePortSize, hereNodePortSize} {
		had := p.order[kind]
		var keep, fresh []int
		for _, n := range had {
			if _, ok := p.sizes[Set{kind, n}]; ok {
				keep = append(keep, n)
			}
		}
		for s := range p.sizes {
			if s.Kind == kind && !slices.Contains(had, s.Size) {
				fresh = append(fresh, s.Size)
			}
		}
		slices.Sort(fresh)
		for _, n := range fresh {
			p.tx.NewSizes = append(p.tx.NewSizes, Set{kind, n})
		}
		if len(keep) < len(had) {
			p.tx.Dispatch = append(p.tx.Dispatch, Dispatch{kind, slices.Concat(keep, fresh), true})
		} else if len(fresh) > 0 {
			p.tx.Dispatch = append(p.tx.Dispatch, Dispatch{kind, fresh, false})
		}
		p.order[kind] = append(keep, fresh...)
	}
	compare := func(a, b Set) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Size, b.Size)) }
	slices.SortFunc(p.tx.OldSizes, compare)
}

// chains takes in the difference between chains. Where a set of clients has to be made anew, so have the rules that use it.
func (p *plan) chains(before, next *Rendered) {
	var was, will Rendered
	if before != nil {
		was = *before
	}
	if next != nil {
		will = *next
	}
	if len(was.Chains)+len(will.Chains) == 0 {
		return
	}
	oldSets, newSets := make(map[string]*nft.Set), make(map[string]*nft.Set)
	for _, s := range was.Sets {
		oldSets[s.Name] = s
	}
	anew := false
	for _, s := range will.Sets {
		newSets[s.Name] = s
		old := oldSets[s.Name]
		if old != nil && old.Timeout != s.Timeout {
			anew, old = true, nil
		}
		if old == nil {
			p.tx.NewSets = append(p.tx.NewSets, s)
		}
	}
	for _, s := range was.Sets {
		if now := newSets[s.Name]; now == nil {
			p.tx.OldSets = append(p.tx.OldSets, s.Name)
		} else if now.Timeout != s.Timeout {
			p.tx.ChangedSets = append(p.tx.ChangedSets, s.Name)
		}
	}
	old := make(map[string]*nft.Chain)
	for _, c := range was.Chains {
		old[c.Name] = c
	}
	for _, c := range will.Chains {
		o := old[c.Name]
		delete(old, c.Name)
		switch {
		case o == nil:
			p.tx.NewChains = append(p.tx.NewChains, c)
		case anew || chainText(o) != chainText(c):
			p.tx.ChangedChains = append(p.tx.ChangedChains, c)
		}
	}
	for _, c := range was.Chains {
		if old[c.Name] != nil {
			p.tx.OldChains = append(p.tx.OldChains, c.Name)
		}
	}
}
