package nft

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"sync"
)

// lookup finds entries by key: single keys by a map, ranges of one part by order, others one after the other.
type lookup struct {
	once   sync.Once
	exact  map[string]int
	ranges []int // by Start, for keys of one part
	// areas are entries whose parts have ranges each for itself.
	areas    []int
	catchAll int // -1 for none
}

// Find is the entry that a key belongs to, nil for none: the set's own entry for it, or the catch-all. The key is laid
// out as Entry.Start.
func (s *Set) Find(key []byte) *Entry {
	s.index.once.Do(s.buildIndex)
	if i, ok := s.index.exact[string(key)]; ok {
		return &s.Entries[i]
	}
	at, found := slices.BinarySearchFunc(s.index.ranges, key, func(i int, key []byte) int {
		return bytes.Compare(s.Entries[i].Start, key)
	})
	if !found {
		at--
	}
	if at >= 0 && at < len(s.index.ranges) {
		if e := &s.Entries[s.index.ranges[at]]; bytes.Compare(key, e.End) <= 0 && bytes.Compare(e.Start, key) <= 0 {
			return e
		}
	}
	for _, i := range s.index.areas {
		if s.holds(&s.Entries[i], key) {
			return &s.Entries[i]
		}
	}
	if s.index.catchAll >= 0 {
		return &s.Entries[s.index.catchAll]
	}
	return nil
}

// holds tells whether every part of a key lies between those of an entry.
func (s *Set) holds(e *Entry, key []byte) bool {
	at := 0
	for _, f := range s.Key {
		to := at + f.Width()
		if to > len(key) || to > len(e.Start) || to > len(e.End) {
			return false
		}
		if bytes.Compare(key[at:to], e.Start[at:to]) < 0 || bytes.Compare(key[at:to], e.End[at:to]) > 0 {
			return false
		}
		at = to
	}
	return true
}

func (s *Set) buildIndex() {
	x := &s.index
	x.exact, x.catchAll = make(map[string]int, len(s.Entries)), -1
	for i := range s.Entries {
		switch e := &s.Entries[i]; {
		case e.CatchAll:
			x.catchAll = i
		case e.End == nil || bytes.Equal(e.Start, e.End):
			x.exact[string(e.Start)] = i
		case len(s.Key) > 1:
			x.areas = append(x.areas, i)
		default:
			x.ranges = append(x.ranges, i)
		}
	}
	slices.SortStableFunc(x.ranges, func(a, b int) int {
		return cmp.Or(bytes.Compare(s.Entries[a].Start, s.Entries[b].Start), cmp.Compare(a, b))
	})
}

// PrefixOf is the prefix that consists of the addresses from start to end; a nil end is the single address. ok is false
// for what is no prefix.
func PrefixOf(start, end []byte) (p netip.Prefix, ok bool) {
	first, ok := netip.AddrFromSlice(start)
	if !ok {
		return netip.Prefix{}, false
	}
	if end == nil {
		return netip.PrefixFrom(first, first.BitLen()), true
	}
	if len(end) != len(start) {
		return netip.Prefix{}, false
	}
	bits := 0
	for bits < first.BitLen() && start[bits/8]>>(7-bits%8)&1 == end[bits/8]>>(7-bits%8)&1 {
		bits++
	}
	for i := bits; i < first.BitLen(); i++ {
		if start[i/8]>>(7-i%8)&1 != 0 || end[i/8]>>(7-i%8)&1 != 1 {
			return netip.Prefix{}, false
		}
	}
	return netip.PrefixFrom(first, bits), true
}
