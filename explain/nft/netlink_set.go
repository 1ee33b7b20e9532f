package nft

import (
	"fmt"
	"slices"
	"time"
)

// netlinkSet is a set while the capture is read.
type netlinkSet struct {
	*Set
	// name is the kernel's, also of an anonymous one ("__set3").
	name      string
	anonymous bool
	flags     uint32
	key, data []valueType
	// keyBytes is how much of the registers a key takes.
	keyBytes int
	// verdicts is set for verdict maps, objects for maps to objects.
	verdicts, objects bool
	elements          [][]byte
	// broken is why keys or data cannot be read, empty where they can.
	broken string
}

// What nft notes on a set (NFTNL_UDATA_SET_*, libnftnl), and on each expression of "typeof" (NFTNL_UDATA_SET_TYPEOF_*).
const (
	noteKeyOrder     = 0
	noteDataOrder    = 1
	noteAutoMerge    = 2
	noteKeyTypeof    = 3
	noteDataTypeof   = 4
	noteDataInterval = 6
	noteSetComment   = 7

	noteTypeofExpr = 0
	noteTypeofData = 1
)

// reference is the set where a rule uses it. An anonymous one belongs to one rule alone, but a capture can say otherwise.
func (d *netlinkDecoder) reference(s *netlinkSet) Expr {
	if s.anonymous && d.spendSet(s) {
		return SetLit{s.Set}
	}
	return SetRef{s.name}
}

func (d *netlinkDecoder) spendSet(s *netlinkSet) bool {
	return s == nil || !s.anonymous || d.spend(len(s.Entries))
}

// shiftedBy is an anonymous set whose keys are those of a field within bytes.
func (s *netlinkSet) shiftedBy(one func([]byte) ([]byte, bool)) (*netlinkSet, bool) {
	if len(s.key) != 1 {
		return nil, false
	}
	c := *s
	set := Set{
		Key: slices.Clone(s.Key), Data: s.Data, IsMap: s.IsMap, ObjectType: s.ObjectType, DataInterval: s.DataInterval,
		Interval: s.Interval,
	}
	for _, e := range s.Entries {
		var ok, ok2 bool
		if e.Start, ok = one(e.Start); !ok {
			return nil, false
		}
		if e.End, ok2 = one(e.End); !ok2 {
			return nil, false
		}
		set.Entries = append(set.Entries, e)
	}
	c.Set = &set
	if len(set.Entries) > 0 && set.Entries[0].Start != nil {
		set.Key[0].Size = len(set.Entries[0].Start)
	}
	return &c, true
}

// parseSet reads the declaration of a set of a table.
func (d *netlinkDecoder) parseSet(t *netlinkTable, a *attributes) *netlinkSet {
	s := &netlinkSet{name: a.text(nftaSetName), flags: a.u32(nftaSetFlags), keyBytes: int(a.u32(nftaSetKeyLen))}
	// That of a meter stands in no listing, as those without a name.
	meter := s.flags&nftSetAnonymous != 0 && s.flags&nftSetEval != 0
	s.anonymous = s.flags&nftSetAnonymous != 0 && !meter
	switch {
	case meter:
		s.Set = &Set{Name: s.name}
	case s.anonymous:
		s.Set = &Set{}
	default:
		s.Set = t.AddSet(s.name)
	}
	note := parseNotes(a[nftaSetUserdata])
	s.Handle, s.Comment = a.u64(nftaSetHandle), note.comment(noteSetComment)
	s.Constant, s.Interval = s.flags&nftSetConstant != 0, s.flags&nftSetInterval != 0
	s.Dynamic, s.HasTimeout = s.flags&nftSetEval != 0, s.flags&nftSetTimeout != 0
	s.IsMap = s.flags&(nftSetMap|nftSetObject) != 0
	s.Meter = meter
	s.Timeout, s.GCInterval = milliseconds(a.u64(nftaSetTimeout)), milliseconds(uint64(a.u32(nftaSetGCInterval)))
	if a.u32(nftaSetPolicy) == nftSetPolicyMemory {
		s.Policy = "memory"
	}
	desc := parseAttributes(d.order, a[nftaSetDesc])
	if !s.Constant { // else how many there are, and no limit
		s.Size = int(desc.u32(nftaSetDescSize))
	}
	if n, ok := note.number(d.order, noteAutoMerge); ok {
		s.AutoMerge = n != 0
	}

	keyTypeof, keyExpr := d.parseTypeof(note[noteKeyTypeof])
	dataTypeof, dataExpr := d.parseTypeof(note[noteDataTypeof])
	dataBytes := int(a.u32(nftaSetDataLen))
	if n, ok := note.number(d.order, noteDataInterval); ok && n != 0 {
		s.DataInterval = true
		dataBytes /= 2 // both ends
		dataTypeof = nil
	}
	s.verdicts = s.flags&nftSetMap != 0 && a.u32(nftaSetDataType) == nftDataVerdict
	switch {
	case s.flags&nftSetObject != 0:
		s.objects = true
		s.ObjectType = objectKind(a.u32(nftaSetObjType))
	case s.flags&nftSetMap != 0 && !s.verdicts:
		order, ok := note.number(d.order, noteDataOrder)
		if dataTypeof != nil && keyBytes(dataTypeof) == dataBytes {
			s.data, s.TypeofData = dataTypeof, dataExpr
		} else {
			s.data = d.declared(a.u32(nftaSetDataType), dataBytes, order, ok)
			keyExpr = nil // nft prints types where it does not have both expressions
		}
		if s.data == nil {
			s.broken = fmt.Sprintf("its data is of type %d, whose width or order of bytes is not known", a.u32(nftaSetDataType))
		}
	}
	if keyTypeof != nil && keyBytes(keyTypeof) == s.keyBytes {
		s.key, s.TypeofKey = keyTypeof, keyExpr
	} else {
		order, ok := note.number(d.order, noteKeyOrder)
		s.key = d.declared(a.u32(nftaSetKeyType), s.keyBytes, order, ok)
	}
	if s.keyBytes > maxValue || dataBytes > maxValue {
		s.key, s.data = nil, nil
	}
	if s.key == nil {
		s.broken = fmt.Sprintf("its key is of type %d, whose width or order of bytes is not known", a.u32(nftaSetKeyType))
	}
	for _, t := range s.key {
		s.Key = append(s.Key, t.field())
	}
	for _, t := range s.data {
		s.Data = append(s.Data, t.field())
	}
	if s.TypeofKey == nil {
		s.TypeofData = nil
	}
	if s.anonymous {
		// What every one of them is, and what no listing shows.
		s.Constant, s.AutoMerge, s.Size, s.Policy, s.TypeofKey, s.TypeofData = false, false, 0, "", nil, nil
	}
	return s
}

// maxValue is the longest key or data in bytes (NFT_DATA_VALUE_MAXLEN).
const maxValue = 64

// nft's words for the order of a value in its notes (enum byteorder).
const (
	orderHost    = 1
	orderNetwork = 2
)

// declared are the types of a key or of data that a number and a width name, nil where they are not known.
func (d *netlinkDecoder) declared(number uint32, size int, order uint32, hasOrder bool) []valueType {
	types, ok := TypesOf(number)
	if !ok {
		// A program that is not nft, and says no type.
		if number != 0 || size == 0 {
			return nil
		}
		types = []Type{TypeInteger}
	}
	out := make([]valueType, len(types))
	for i, t := range types {
		out[i] = typed(t)
	}
	if len(out) == 1 {
		// Integers and text are as wide as what they are for, and so are fields that are compared with the bytes around
		// them; in which order integers stand nft notes.
		if out[0].size() != size {
			out[0].bits = 8 * size
		}
		hasOrder = hasOrder && (order == orderHost || order == orderNetwork)
		if hasOrder && !out[0].isString() {
			out[0].host = order == orderHost
		}
		if !hasOrder && size > 1 && out[0].Type == TypeInteger {
			return nil
		}
	}
	if keyBytes(out) != size {
		return stretched(out, size)
	}
	return out
}

// stretched gives the room that is left to the one part whose type does not say how wide it is; nil where there is
// none, or several, or where its order matters.
func stretched(types []valueType, size int) []valueType {
	open := -1
	for i, t := range types {
		if t.bits == 0 {
			if open >= 0 {
				return nil
			}
			open = i
		}
	}
	if open < 0 {
		return nil
	}
	types[open].bits = 8 * (size - keyBytes(types))
	if types[open].bits <= 0 || keyBytes(types) != size || types[open].Type == TypeInteger && types[open].bits > 8 {
		return nil
	}
	return types
}

// keyBytes is how much of the registers values take: of several, each as much as whole registers.
func keyBytes(types []valueType) int {
	if len(types) == 1 {
		return types[0].size()
	}
	n := 0
	for _, t := range types {
		n += (t.size() + 3) &^ 3
	}
	return n
}

func milliseconds(n uint64) time.Duration {
	return time.Duration(min(n, uint64(longestDuration))) * time.Millisecond
}
