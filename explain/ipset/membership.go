package ipset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/host"
)

// Dir is the side of a packet that a part of an entry is compared with.
type Dir uint8

// The two sides.
const (
	Src Dir = iota
	Dst
)

// Packet is a packet as far as sets look at it.
type Packet struct {
	// Family is 4 or 6.
	Family int
	Proto  uint8
	// Addrs are the source and the destination; an address that is not known is not valid.
	Addrs [2]netip.Addr
	// Ports are those of either side, for ICMP the type, shifted by 8 bits, and the code on both. KnowsPorts tells
	// whether they are known.
	Ports      [2]uint16
	KnowsPorts [2]bool
	// Ifaces are the incoming and the outgoing interface, empty where there is none; KnowsIfaces tells whether they are
	// known.
	Ifaces      [2]string
	KnowsIfaces [2]bool
	Mark        uint32
}

// Answer says whether a packet is in a set.
type Answer struct {
	Is host.Known
	// Entry is the entry that decided, in set Set; nil where none did. With NoMatch it is an exception, and the packet
	// is not in the set for its sake.
	Entry   *Entry
	Set     *Set
	NoMatch bool
	// Because says for Unknown what is missing.
	Because string
}

// Test asks whether what the directions select from a packet is in the set (ip_set_test). member gives the sets that a
// list:set names, nil for one that is not known.
func (s *Set) Test(member func(name string) *Set, dirs []Dir, p *Packet) Answer {
	if s.unsure != "" {
		return Answer{Because: s.unsure}
	}
	no := Answer{Is: host.No}
	if len(dirs) < len(s.parts) || s.Family != 0 && s.Family != p.Family {
		return no
	}
	if s.parts[0] == partSet {
		return s.testMembers(member, dirs, p)
	}
	q, a := s.question(dirs, p)
	switch {
	case a.Is == host.No:
		return a
	case a.Because != "":
		a = s.scan(q, a)
	default:
		a = s.find(q)
	}
	if a.Is == host.No && a.Entry == nil && s.Missing != "" {
		return Answer{Because: s.Missing}
	}
	return a
}

// testMembers goes through the sets of a list (list_set_ktest).
func (s *Set) testMembers(member func(name string) *Set, dirs []Dir, p *Packet) Answer {
	open := Answer{Is: host.No}
	for i := range s.Entries {
		name := s.Entries[i].Member
		m := member(name)
		var a Answer
		switch {
		case m == nil:
			a = Answer{Because: fmt.Sprintf("set %s, which is in %s, is not in the capture", name, s.Name)}
		case m.Type == "list:set":
			a = Answer{Because: fmt.Sprintf("set %s in %s is a list itself, which the kernel does not take", name, s.Name)}
		default:
			a = m.Test(member, dirs, p)
		}
		if a.Is == host.Yes {
			return a
		}
		if a.Is == host.Unknown && open.Is == host.No {
			open = a
		}
	}
	if open.Is == host.No && s.Missing != "" {
		open = Answer{Because: s.Missing}
	}
	return open
}

// question is what a packet is looked up as: one value for each part. lost are those that are not known.
type question struct {
	addrs [2]netip.Addr
	proto uint8
	port  uint16
	iface string
	mark  uint32
	lost  map[int]bool // by the index of the part
}

// question selects the parts from a packet (the kadt functions). The answer is No for a packet that has no such part,
// and has a reason where a part is not known.
func (s *Set) question(dirs []Dir, p *Packet) (q question, a Answer) {
	nets := 0
	lose := func(i int, why string) {
		if q.lost == nil {
			q.lost = make(map[int]bool)
		}
		q.lost[i] = true
		a.Because = why
	}
	for i, part := range s.parts {
		d := dirs[i]
		switch part {
		case partIP, partNet:
			addr := p.Addrs[d].Unmap().WithZone("")
			if addr.IsValid() {
				addr = under(addr, s.Netmask)
			} else {
				lose(i, "an address of the packet is not known")
			}
			if s.Type == "hash:ip" && addr.IsValid() && addr.IsUnspecified() {
				return q, Answer{Is: host.No} // hash_ip4_kadt refuses it
			}
			q.addrs[nets] = addr
			nets++
		case partPort:
			q.proto = p.Proto
			switch p.Proto {
			case protoTCP, protoUDP, protoUDPLite, protoSCTP, protoICMP, protoICMPv6:
				q.port = p.Ports[d]
				if !p.KnowsPorts[d] {
					lose(i, "the client's port is not part of the question")
				}
			}
			if s.Type == "bitmap:port" {
				if p.Proto != protoTCP && p.Proto != protoUDP {
					return q, Answer{Is: host.No} // ip_set_get_ip_port takes no other
				}
				q.proto = 0
			}
		case partIface:
			q.iface = p.Ifaces[d]
			switch {
			case !p.KnowsIfaces[d]:
				lose(i, "an interface of the packet is not known")
			case q.iface == "":
				return q, Answer{Is: host.No}
			}
		case partMAC:
			if p.KnowsIfaces[Src] && p.Ifaces[Src] == "" {
				return q, Answer{Is: host.No} // a packet of the node itself has no hardware address yet
			}
			lose(i, "hardware addresses of packets are not known")
		case partMark:
			q.mark = p.Mark & s.MarkMask
		}
	}
	return q, a
}

// key is an entry as it is looked up: addresses with their masks applied. Interfaces are compared.
type key struct {
	addrs [2]netip.Addr
	bits  [2]uint8
	proto uint8
	port  uint16
	mark  uint32
}

// members is the index over the entries of a set.
type members struct {
	entries int
	first   map[key]int // the first entry of a key
	next    []int       // the next one with the same key, -1 for none; by entry
	// loose are entries with a range of ports or addresses, as people write them: the kernel has one entry for each.
	loose []int
	// bits are the lengths of the prefixes that there are in either address, longest first (mtype_add_cidr).
	bits [2][]uint8
}

// Find is the entry that an entry written as ipset prints it stands for, nil where the set has none such.
func (s *Set) Find(text string) *Entry {
	if s.unsure != "" {
		return nil
	}
	e, err := s.element(text)
	if err != nil {
		return nil
	}
	k := key{proto: e.Proto, port: e.Port, mark: e.Mark}
	for j, r := range e.Nets[:s.addresses()] {
		k.addrs[j], k.bits[j] = r.Net.Masked().Addr(), uint8(r.Net.Bits())
	}
	m := s.index()
	i, ok := m.first[k]
	for ; ok && i >= 0; i = m.next[i] {
		has := &s.Entries[i]
		if has.Iface == e.Iface && has.Physdev == e.Physdev && has.Wildcard == e.Wildcard && has.MAC == e.MAC && has.Member == e.Member {
			return has
		}
	}
	return nil
}

func (s *Set) index() *members {
	if m := s.members.Load(); m != nil && m.entries == len(s.Entries) {
		return m
	}
	m := &members{entries: len(s.Entries), first: make(map[key]int, len(s.Entries)), next: make([]int, len(s.Entries))}
	last := make(map[key]int)
	nets := s.addresses()
	for i := range s.Entries {
		e := &s.Entries[i]
		m.next[i] = -1
		k := key{proto: e.Proto, port: e.Port, mark: e.Mark}
		loose := e.LastPort > e.Port
		for j, r := range e.Nets[:nets] {
			loose = loose || r.Last.IsValid()
			for _, p := range r.prefixes() {
				if b := uint8(p.Bits()); !slices.Contains(m.bits[j], b) {
					m.bits[j] = append(m.bits[j], b)
				}
			}
			k.addrs[j], k.bits[j] = r.Net.Masked().Addr(), uint8(r.Net.Bits())
		}
		if loose {
			m.loose = append(m.loose, i)
			continue
		}
		if at, ok := last[k]; ok {
			m.next[at] = i
		} else {
			m.first[k] = i
		}
		last[k] = i
	}
	for j := range m.bits {
		slices.Sort(m.bits[j])
		slices.Reverse(m.bits[j])
		if len(m.bits[j]) == 0 {
			m.bits[j] = []uint8{0}
		}
	}
	s.members.Store(m)
	return m
}

// addresses is how many addresses an entry has.
func (s *Set) addresses() int {
	n := 0
	for _, p := range s.parts {
		if p == partIP || p == partNet {
			n++
		}
	}
	return n
}

// find looks a packet up of which everything is known (mtype_test_cidrs): the longest prefixes come first, and the
// first entry decides.
func (s *Set) find(q question) Answer {
	m := s.index()
	nets := s.addresses()
	loose := s.looseFor(m, q, nets)
	for _, first := range m.bits[0] {
		for _, second := range m.bits[1] {
			k := key{proto: q.proto, port: q.port, mark: q.mark}
			for j, bits := range []uint8{first, second}[:nets] {
				p, err := q.addrs[j].Prefix(int(bits))
				if err != nil {
					return Answer{Is: host.No}
				}
				k.addrs[j], k.bits[j] = p.Addr(), bits
			}
			met := false
			i, ok := m.first[k]
			for ; ok && i >= 0; i = m.next[i] {
				if s.Entries[i].onIface(s, q.iface) {
					return s.decidedBy(i)
				}
				met = met || !s.Entries[i].Physdev
			}
			for _, l := range loose {
				if l.bits != k.bits {
					continue
				}
				if s.Entries[l.entry].onIface(s, q.iface) {
					return s.decidedBy(l.entry)
				}
				met = met || !s.Entries[l.entry].Physdev
			}
			if met {
				// Networks with interfaces: the kernel looks no further than the longest prefix that is there for any
				// interface (IP_SET_HASH_WITH_MULTI).
				return Answer{Is: host.No}
			}
		}
	}
	return Answer{Is: host.No}
}

// looseEntry is an entry with ranges that holds a packet, with the prefixes in which it does.
type looseEntry struct {
	entry int
	bits  [2]uint8
}

func (s *Set) looseFor(m *members, q question, nets int) []looseEntry {
	var out []looseEntry
	for _, i := range m.loose {
		e := &s.Entries[i]
		if e.Proto != q.proto || q.port < e.Port || q.port > e.LastPort || e.Mark != q.mark {
			continue
		}
		l, holds := looseEntry{entry: i}, true
		for j, r := range e.Nets[:nets] {
			in := slices.IndexFunc(r.prefixes(), func(p netip.Prefix) bool { return p.Contains(q.addrs[j]) })
			if holds = holds && in >= 0; holds {
				l.bits[j] = uint8(r.prefixes()[in].Bits())
			}
		}
		if holds {
			out = append(out, l)
		}
	}
	return out
}

func (s *Set) decidedBy(i int) Answer {
	e := &s.Entries[i]
	if e.NoMatch {
		return Answer{Is: host.No, Entry: e, Set: s, NoMatch: true}
	}
	return Answer{Is: host.Yes, Entry: e, Set: s}
}

// onIface tells whether an entry is of an interface. A rule of iptables never asks for a port of a bridge.
func (e *Entry) onIface(s *Set, iface string) bool {
	if s.parts[len(s.parts)-1] != partIface {
		return true
	}
	return !e.Physdev && (e.Iface == iface || e.Wildcard && strings.HasPrefix(iface, e.Iface))
}

// scan looks for entries that hold a packet of which not all is known: where there are none it is in the set in no case.
func (s *Set) scan(q question, open Answer) Answer {
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.NoMatch || !s.mayHold(e, q) {
			continue
		}
		if s.Type == "bitmap:ip,mac" && e.MAC == "" {
			return s.decidedBy(i) // takes the hardware address of the first packet
		}
		return open
	}
	return Answer{Is: host.No}
}

func (s *Set) mayHold(e *Entry, q question) bool {
	nets := 0
	for i, part := range s.parts {
		holds := true
		switch part {
		case partIP, partNet:
			r := e.Nets[nets]
			if a := q.addrs[nets]; !q.lost[i] {
				holds = r.Net.Masked().Contains(a)
				if r.Last.IsValid() {
					holds = !a.Less(r.Net.Addr()) && !r.Last.Less(a)
				}
			}
			nets++
		case partPort:
			holds = e.Proto == q.proto && (q.lost[i] || e.Port <= q.port && q.port <= e.LastPort)
		case partIface:
			holds = q.lost[i] && !e.Physdev || !q.lost[i] && e.onIface(s, q.iface)
		case partMark:
			holds = e.Mark == q.mark
		}
		if !holds {
			return false
		}
	}
	return true
}

// mostSources bounds how many entries Sources looks at where no address leads to them.
const mostSources = 1024

// Sources are the source networks of entries whose other parts a packet meets: where clients would have to be told apart
// that are alike for everything else. Of a set with very many entries that all could be meant it gives some.
func (s *Set) Sources(member func(name string) *Set, dirs []Dir, p *Packet) []netip.Prefix {
	if s.unsure != "" || len(dirs) < len(s.parts) || len(s.parts) == 0 || s.Family != 0 && s.Family != p.Family {
		return nil
	}
	var out []netip.Prefix
	if s.parts[0] == partSet {
		for i := range s.Entries {
			if m := member(s.Entries[i].Member); m != nil && m.Type != s.Type {
				out = append(out, m.Sources(member, dirs, p)...)
			}
		}
		return out
	}
	if !slices.ContainsFunc(s.parts, func(p part) bool { return p == partIP || p == partNet }) || !slices.Contains(dirs[:len(s.parts)], Src) {
		return nil
	}
	if dirs[0] == Dst && s.parts[0] == partIP {
		for _, i := range s.byFirst()[p.Addrs[Dst].Unmap().WithZone("")] {
			out = s.sourcesOf(&s.Entries[i], dirs, p, out)
		}
		return out
	}
	for i := range s.Entries[:min(len(s.Entries), mostSources)] {
		out = s.sourcesOf(&s.Entries[i], dirs, p, out)
	}
	return out
}

// sourcesOf appends those of one entry.
func (s *Set) sourcesOf(e *Entry, dirs []Dir, p *Packet, out []netip.Prefix) []netip.Prefix {
	nets := 0
	had := len(out)
	for i, part := range s.parts {
		switch part {
		case partIP, partNet:
			of := e.Nets[nets].prefixes()
			nets++
			if dirs[i] == Src {
				out = append(out, of...)
			} else if !slices.ContainsFunc(of, func(r netip.Prefix) bool { return r.Contains(p.Addrs[Dst].Unmap()) }) {
				return out[:had]
			}
		case partPort:
			if d := dirs[i]; e.Proto != 0 && e.Proto != p.Proto || p.KnowsPorts[d] && (p.Ports[d] < e.Port || p.Ports[d] > e.LastPort) {
				return out[:had]
			}
		}
	}
	return out
}

// byFirst are the indexes of the entries by the address that they begin with.
func (s *Set) byFirst() map[netip.Addr][]int {
	if m := s.firsts.Load(); m != nil {
		return *m
	}
	m := make(map[netip.Addr][]int, len(s.Entries))
	for i := range s.Entries {
		for _, r := range s.Entries[i].Nets[0].prefixes() {
			m[r.Addr()] = append(m[r.Addr()], i)
		}
	}
	s.firsts.Store(&m)
	return m
}
