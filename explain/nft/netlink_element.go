package nft

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// rawEntry is an element while the entries of a set are put together.
type rawEntry struct {
	Entry
	end bool // it ends the interval before it
}

// fill makes the entries of a set out of its elements.
func (d *netlinkDecoder) fill(t *netlinkTable, s *netlinkSet) {
	elements := s.elements
	s.elements = nil
	if s.broken != "" {
		d.problem(fmt.Sprintf("set %s of table %s", s.name, t), s.broken)
		s.Incomplete = true
		return
	}
	raw := make([]rawEntry, 0, len(elements))
	for _, element := range elements {
		a := parseAttributes(d.order, element)
		e, why := d.entry(t, s, &a)
		if why != "" {
			d.problem(fmt.Sprintf("an element of set %s of table %s", s.name, t), why)
			s.Incomplete = true
			continue
		}
		raw = append(raw, e)
	}
	if s.Interval && len(s.key) == 1 {
		s.Entries = intervals(raw, s.key[0])
	} else {
		s.Entries = make([]Entry, 0, len(raw))
		for i := range raw {
			s.Entries = append(s.Entries, raw[i].Entry)
		}
		if !s.Interval {
			d.sort(s)
		}
	}
	d.nameInterfaces(s)
}

// nameInterfaces puts names in place of indexes of interfaces, where keys or data have some.
func (d *netlinkDecoder) nameInterfaces(s *netlinkSet) {
	rename := func(types []valueType, values ...*[]byte) {
		for _, v := range values {
			if *v == nil {
				continue
			}
			var out []byte
			at := 0
			for _, t := range types {
				width := (t.size() + 3) &^ 3
				part := (*v)[min(at, len(*v)):min(at+width, len(*v))]
				if at += width; t.Type == TypeIfindex {
					part = d.interfaceName(part)
				}
				out = append(out, part...)
			}
			*v = out
		}
	}
	has := func(types []valueType) bool {
		return slices.ContainsFunc(types, func(t valueType) bool { return t.Type == TypeIfindex })
	}
	widen := func(fields []Field) {
		for i := range fields {
			if fields[i].Type == TypeIfindex {
				fields[i].Size = ifNameSize
			}
		}
	}
	if has(s.key) {
		for i := range s.Entries {
			rename(s.key, &s.Entries[i].Start, &s.Entries[i].End)
		}
		widen(s.Key)
	}
	if has(s.data) {
		for i := range s.Entries {
			rename(s.data, &s.Entries[i].Data, &s.Entries[i].DataEnd)
		}
		widen(s.Data)
	}
}

// sort puts entries in the order in which nft prints them: by value, and for several parts by all their bytes as one
// number, as they stand in memory (src/mergesort.c). The kernel hands them out in the order of a hash.
func (d *netlinkDecoder) sort(s *netlinkSet) {
	list := make([]sortedEntry, len(s.Entries))
	for i := range s.Entries {
		list[i] = sortedEntry{d.sortKey(s, s.Entries[i].Start), s.Entries[i].CatchAll, i}
	}
	out := make([]Entry, 0, len(list))
	for _, e := range mergeSorted(list) {
		out = append(out, s.Entries[e.at])
	}
	s.Entries = out
}

type sortedEntry struct {
	by       []byte
	catchAll bool
	at       int
}

func (a sortedEntry) before(b sortedEntry) bool {
	if a.catchAll || b.catchAll {
		return !a.catchAll
	}
	return cmp.Or(cmp.Compare(len(a.by), len(b.by)), bytes.Compare(a.by, b.by)) < 0
}

// mergeSorted sorts as nft does. Entries that are equal to it, as combinations of flags with the same lowest one, come
// out in an order that follows from how it merges.
func mergeSorted(list []sortedEntry) []sortedEntry {
	if len(list) < 2 {
		return list
	}
	half := (len(list) + 1) / 2
	head, tail := mergeSorted(list[:half]), mergeSorted(list[half:])
	out := make([]sortedEntry, 0, len(list))
	for len(head) > 0 {
		if len(tail) == 0 || head[0].before(tail[0]) {
			out, head = append(out, head[0]), head[1:]
		} else {
			out, tail = append(out, tail[0]), tail[1:]
		}
	}
	return append(out, tail...)
}

// sortKey is what a key is sorted by, the highest byte first.
func (d *netlinkDecoder) sortKey(s *netlinkSet, key []byte) []byte {
	if len(s.key) == 1 {
		if s.key[0].isString() && d.order == binary.LittleEndian {
			by := slices.Clone(key)
			slices.Reverse(by)
			return by
		}
		if s.key[0].singleBits() {
			return lowestBit(key)
		}
		return key
	}
	var by []byte
	at := 0
	for _, t := range s.key {
		size := t.size()
		if at+size > len(key) {
			break
		}
		part := slices.Clone(key[at : at+size])
		if t.host && !t.isString() && d.order == binary.LittleEndian {
			slices.Reverse(part)
		}
		by = append(by, part...)
		at += (size + 3) &^ 3
	}
	if d.order == binary.LittleEndian {
		slices.Reverse(by)
	}
	return by
}

// lowestBit is a number with only the lowest of its bits.
func lowestBit(data []byte) []byte {
	out := make([]byte, len(data))
	for i := len(data) - 1; i >= 0; i-- {
		if data[i] != 0 {
			out[i] = data[i] & -data[i]
			break
		}
	}
	return out
}

// intervals puts ranges together. An interval set holds where ranges begin and where they end, the end being the first
// key that is not in the range any more; a key where one ends and the next begins is there once or twice; the last
// range may have no end (src/segtree.c; net/netfilter/nft_set_rbtree.c).
func intervals(raw []rawEntry, key valueType) []Entry {
	var out []Entry
	var all []Entry // the catch-all
	slices.SortStableFunc(raw, func(a, b rawEntry) int {
		c := bytes.Compare(a.Start, b.Start)
		if c == 0 && a.end != b.end {
			if a.end {
				return -1
			}
			return 1
		}
		return c
	})
	var open *Entry
	closeAt := func(next []byte) {
		last := minusOne(next)
		if !bytes.Equal(last, open.Start) {
			open.End = last
		}
		out = append(out, *open)
		open = nil
	}
	for i := range raw {
		e := raw[i]
		switch {
		case e.CatchAll:
			all = append(all, e.Entry)
		case e.end:
			if open != nil {
				closeAt(e.Start)
			}
		default:
			if open != nil {
				closeAt(e.Start)
			}
			open = &raw[i].Entry
		}
	}
	if open != nil {
		last := ones(key.size())
		if spare := 8*len(last) - key.bits; spare > 0 && len(last) > 0 {
			last[0] >>= spare
		}
		if !bytes.Equal(last, open.Start) {
			open.End = last
		}
		out = append(out, *open)
	}
	return append(out, all...)
}

func minusOne(data []byte) []byte {
	out := slices.Clone(data)
	for i := len(out) - 1; i >= 0; i-- {
		out[i]--
		if out[i] != 0xff {
			break
		}
	}
	return out
}

// What nft notes on an element (NFTNL_UDATA_SET_ELEM_*).
const noteElemComment = 0

// entry reads one element. Why says what of it could not be read.
func (d *netlinkDecoder) entry(t *netlinkTable, s *netlinkSet, a *attributes) (e rawEntry, why string) {
	flags := a.u32(nftaSetElemFlags)
	e.end = flags&nftSetElemIntervalEnd != 0
	e.CatchAll = flags&nftSetElemCatchAll != 0
	if !e.CatchAll {
		value := parseAttributes(d.order, a[nftaSetElemKey])
		raw := value[nftaDataValue]
		if len(raw) != s.keyBytes {
			return e, fmt.Sprintf("its key has %d bytes and not %d", len(raw), s.keyBytes)
		}
		e.Start = d.tuple(s.key, raw, s.Interval)
		if a.has(nftaSetElemKeyEnd) {
			value := parseAttributes(d.order, a[nftaSetElemKeyEnd])
			if raw := value[nftaDataValue]; len(raw) == s.keyBytes {
				if end := d.tuple(s.key, raw, s.Interval); !bytes.Equal(end, e.Start) {
					e.End = end
				}
			} else {
				return e, fmt.Sprintf("the end of its range has %d bytes and not %d", len(raw), s.keyBytes)
			}
		}
	}
	e.Timeout = milliseconds(a.u64(nftaSetElemTimeout))
	e.Expires = milliseconds(a.u64(nftaSetElemExpiration))
	note := parseNotes(a[nftaSetElemUserdata])
	e.Comment = note.comment(noteElemComment)
	e.Statements = d.statements(t, a[nftaSetElemExpr], a[nftaSetElemExpressions])
	if e.end {
		return e, ""
	}
	switch {
	case s.objects:
		if e.Object = a.text(nftaSetElemObjRef); e.Object == "" {
			return e, "it names no object"
		}
	case s.flags&nftSetMap != 0:
		value := parseAttributes(d.order, a[nftaSetElemData])
		if s.verdicts {
			v, ok := d.verdict(value[nftaDataVerdict])
			if !ok {
				return e, "its verdict is not known"
			}
			e.Verdict = v
			break
		}
		if e.Data, e.DataEnd, why = d.mapped(s, value[nftaDataValue]); why != "" {
			return e, why
		}
	}
	return e, ""
}

// mapped is the data of an element: a value, or where the map is to ranges the first and the last.
func (d *netlinkDecoder) mapped(s *netlinkSet, raw []byte) (data, end []byte, why string) {
	size := keyBytes(s.data)
	switch {
	case s.DataInterval && len(raw) == 2*size:
		data, end = d.tuple(s.data, raw[:size], false), d.tuple(s.data, raw[size:], false)
		return data, end, ""
	case len(raw) == size:
		return d.tuple(s.data, raw, false), nil, ""
	}
	return nil, nil, fmt.Sprintf("its data has %d bytes and not %d", len(raw), size)
}

// tuple is a key or data out of the registers, every part in network order. Keys of ranges stand in network order
// already, since the kernel compares them byte by byte.
func (d *netlinkDecoder) tuple(types []valueType, raw []byte, ordered bool) []byte {
	out := slices.Clone(raw)
	if ordered || d.order == binary.BigEndian {
		return out
	}
	at := 0
	for _, t := range types {
		size := t.size()
		if at+size > len(out) {
			break
		}
		if t.host && !t.isString() {
			slices.Reverse(out[at : at+size])
		}
		at += (size + 3) &^ 3
	}
	return out
}

// verdict reads NFTA_DATA_VERDICT.
func (d *netlinkDecoder) verdict(data []byte) (*Verdict, bool) {
	a := parseAttributes(d.order, data)
	if !a.has(nftaVerdictCode) {
		return nil, false
	}
	v := &Verdict{}
	switch code := int32(a.u32(nftaVerdictCode)); code {
	case nfDrop:
		v.Kind = Drop
	case nfAccept:
		v.Kind = Accept
	case nftContinue:
		v.Kind = Continue
	case nftReturn:
		v.Kind = Return
	case nftBreak:
		v.Kind = Break
	case nftJump, nftGoto:
		if v.Kind = Jump; code == nftGoto {
			v.Kind = Goto
		}
		if v.Chain = a.text(nftaVerdictChain); v.Chain == "" {
			return nil, false
		}
	default:
		return nil, false
	}
	return v, true
}
