package netfilter

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Recent is -m recent: lists of addresses with the times at which they were seen. kube-proxy keeps ClientIP
// affinity in one list for each endpoint.
type Recent struct {
	Op   RecentOp
	Name string
	// Seconds is how long ago a stamp may be, 0 for no limit; Hits how many stamps it takes, 0 for one.
	Seconds, Hits uint32
	// Reap forgets stamps that are too old; TTL asks for the same TTL.
	Reap, TTL bool
	// Dest looks at the destination instead of the source.
	Dest bool
	// Mask is laid over the address, invalid for all ones.
	Mask netip.Addr
	Not  bool
}

// RecentOp is what -m recent does.
type RecentOp uint8

// The operations: --set adds the address, --rcheck looks for it, --update looks and refreshes, --remove looks and
// deletes.
const (
	RecentSet RecentOp = iota
	RecentCheck
	RecentRefresh
	RecentRemove
)

var recentMatch = extension{
	name: "recent",
	save: func(a *arena) saved { return newRecent(a) },
	list: listRecent,
}

// newRecent has the default name.
func newRecent(a *arena) *Recent {
	m := a.recent.new()
	m.Name = "DEFAULT"
	return m
}

// Test follows recent_mt of xt_recent.c. What the walk itself has added to a list counts before what was
// captured.
func (m *Recent) Test(k *Kernel, _ Hook, p *Packet) Answer {
	if m.Op == RecentSet {
		return Yes.Negate(m.Not)
	}
	addr := m.address(p)
	hits, removed := 0, false
	for _, u := range p.Recent {
		switch {
		case u.List != m.Name || u.Addr != addr:
		case u.Removed:
			hits, removed = 0, true
		default:
			hits++
		}
	}
	need := max(int(m.Hits), 1)
	if m.Op == RecentRemove {
		need = 1
	}
	if hits >= need {
		return Yes.Negate(m.Not)
	}
	if removed || k.NewClient && !m.Dest {
		return No.Negate(m.Not)
	}
	ask := func(because string) Answer {
		return Maybe(Fact{
			Key:     "recent " + m.Name + " " + addr.String() + m.limits(),
			Yes:     addr.String() + " is in the recent list " + m.Name + m.limits(),
			No:      addr.String() + " is not in the recent list " + m.Name + m.limits(),
			Because: because,
		}).Negate(m.Not)
	}
	if k.Recent == nil {
		return ask("no recent list was captured (/proc/net/xt_recent)")
	}
	list := k.Recent[m.Name]
	if list == nil || list.Ages == nil {
		return ask("the recent list " + m.Name + " is not in the capture (/proc/net/xt_recent)")
	}
	ages, ok := list.Ages[addr.String()]
	if !ok {
		return No.Negate(m.Not)
	}
	if m.TTL {
		return ask("the TTL of the packet is not known")
	}
	if m.Op == RecentRemove {
		return Yes.Negate(m.Not)
	}
	for _, age := range ages {
		switch {
		case m.Seconds == 0 || age >= 0 && age <= float64(m.Seconds):
			hits++
		case age < 0:
			return ask("the list holds stamps in jiffies, and the capture does not say what time it was")
		}
	}
	return Is(hits >= need).Negate(m.Not)
}

// limits is what a stamp has to fulfil, for a question about it.
func (m *Recent) limits() string {
	s := ""
	if m.Seconds > 0 {
		s += " within " + strconv.Itoa(int(m.Seconds)) + " s"
	}
	if m.Hits > 1 {
		s += " at least " + strconv.Itoa(int(m.Hits)) + " times"
	}
	return s
}

// address is the address under which the packet is listed.
func (m *Recent) address(p *Packet) netip.Addr {
	a := p.Src
	if m.Dest {
		a = p.Dst
	}
	if m.Mask.IsValid() && a.IsValid() {
		return masked(a, m.Mask)
	}
	return a
}

// Records is what the match does to its list once it holds: --set adds a stamp and --remove forgets the address.
// --update adds one too where it found enough stamps, and its negation where it found some but not enough.
func (m *Recent) Records(k *Kernel, p *Packet) (RecentUpdate, bool) {
	u := RecentUpdate{List: m.Name, Addr: m.address(p)}
	switch {
	case m.Op == RecentRemove && !m.Not:
		u.Removed = true
		return u, true
	case m.Op == RecentSet, m.Op == RecentRefresh && !m.Not, m.Op == RecentRefresh && m.holds(k, p):
		return u, true
	}
	return RecentUpdate{}, false
}

// holds tells whether the list is known to hold the packet's address.
func (m *Recent) holds(k *Kernel, p *Packet) bool {
	addr := m.address(p)
	for _, u := range slices.Backward(p.Recent) {
		if u.List == m.Name && u.Addr == addr {
			return !u.Removed
		}
	}
	if list := k.Recent[m.Name]; list != nil && !(k.NewClient && !m.Dest) {
		_, ok := list.Ages[addr.String()]
		return ok
	}
	return false
}

func (m *Recent) option(o *option) bool {
	switch o.name {
	case "--set":
		m.Op, m.Not = RecentSet, o.not
	case "--rcheck":
		m.Op, m.Not = RecentCheck, o.not
	case "--update":
		m.Op, m.Not = RecentRefresh, o.not
	case "--remove":
		m.Op, m.Not = RecentRemove, o.not
	case "--seconds":
		m.Seconds = uint32(o.number(32))
	case "--hitcount":
		m.Hits = uint32(o.number(32))
	case "--reap":
		m.Reap = true
	case "--rttl":
		m.TTL = true
	case "--name":
		m.Name = o.value()
	case "--mask":
		m.mask(o.addr())
	case "--rsource":
		m.Dest = false
	case "--rdest":
		m.Dest = true
	default:
		return false
	}
	return true
}

// mask keeps a mask that is not all ones.
func (m *Recent) mask(a netip.Addr) {
	if bits, ok := prefixLength(a); !ok || bits != a.BitLen() {
		m.Mask = a
	}
}

// listRecent reads "[!] recent: CHECK [seconds: N] [hit_count: N] [TTL-Match] [reap] name: X side: source [mask: M]".
func listRecent(l *listing) Match {
	not := l.not()
	if !l.word("recent:") {
		return nil
	}
	m := newRecent(l.arena)
	m.Not = not
	switch l.next() {
	case "SET":
		m.Op = RecentSet
	case "CHECK":
		m.Op = RecentCheck
	case "UPDATE":
		m.Op = RecentRefresh
	case "REMOVE":
		m.Op = RecentRemove
	default:
		return nil
	}
	for {
		switch w := l.peek(); w {
		case "seconds:", "hit_count:":
			v, _ := l.after(w)
			n, err := strconv.ParseUint(v, 10, 32)
			if err != nil {
				return nil
			}
			if w == "seconds:" {
				m.Seconds = uint32(n)
			} else {
				m.Hits = uint32(n)
			}
		case "TTL-Match":
			l.next()
			m.TTL = true
		case "reap":
			l.next()
			m.Reap = true
		case "name:", "side:", "mask:":
			v, ok := l.after(w)
			if !ok || !m.listed(w, v) {
				return nil
			}
		default:
			return m
		}
	}
}

// listed reads a keyword of a listing with its value.
func (m *Recent) listed(keyword, v string) bool {
	switch keyword {
	case "name:":
		m.Name = v
	case "side:":
		m.Dest = strings.HasPrefix(v, "dest")
	case "mask:":
		a, err := netip.ParseAddr(v)
		if err != nil {
			return false
		}
		m.mask(a)
	}
	return true
}
