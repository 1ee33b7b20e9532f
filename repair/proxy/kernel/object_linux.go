package kernel

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/nft"
)

// AddTable adds a table, or does nothing where it is there. With Owner it is kept for the connection that adds it, and
// ends with it.
func (b *Batch) AddTable(t *nft.Table) {
	b.begin(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, t, "")
	b.string(unix.NFTA_TABLE_NAME, t.Name)
	flags := uint32(0)
	if t.Owner {
		flags |= nftTableOwner
	}
	b.u32(unix.NFTA_TABLE_FLAGS, flags)
	b.comment(nftaTableUserdata, userdataComment, t.Comment)
	b.end()
}

// DeleteTable deletes a table with all that is in it.
func (b *Batch) DeleteTable(t *nft.Table) {
	b.begin(unix.NFT_MSG_DELTABLE, 0, t, "")
	b.string(unix.NFTA_TABLE_NAME, t.Name)
	b.end()
}

// hookNumbers are NF_INET_*.
var hookNumbers = map[string]uint32{"prerouting": 0, "input": 1, "forward": 2, "output": 3, "postrouting": 4}

// AddChain adds a chain without its rules.
func (b *Batch) AddChain(t *nft.Table, c *nft.Chain) {
	b.begin(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, t, c.Name)
	b.string(unix.NFTA_CHAIN_TABLE, t.Name)
	b.string(unix.NFTA_CHAIN_NAME, c.Name)
	if h := c.Base; h != nil {
		at := b.nest(unix.NFTA_CHAIN_HOOK)
		b.u32(unix.NFTA_HOOK_HOOKNUM, hookNumbers[h.Hook])
		b.u32(unix.NFTA_HOOK_PRIORITY, uint32(int32(h.Priority)))
		b.close(at)
		b.string(unix.NFTA_CHAIN_TYPE, h.Type)
	}
	b.comment(nftaChainUserdata, userdataComment, c.Comment)
	b.end()
}

// FlushChain deletes the rules of a chain.
func (b *Batch) FlushChain(t *nft.Table, name string) {
	b.begin(unix.NFT_MSG_DELRULE, 0, t, name)
	b.string(nftaRuleTable, t.Name)
	b.string(nftaRuleChain, name)
	b.end()
}

// DeleteChain deletes a chain that nothing leads to any more.
func (b *Batch) DeleteChain(t *nft.Table, name string) {
	b.begin(unix.NFT_MSG_DELCHAIN, 0, t, name)
	b.string(unix.NFTA_CHAIN_TABLE, t.Name)
	b.string(unix.NFTA_CHAIN_NAME, name)
	b.end()
}

// AddRules appends the rules of a chain to what it has. An error says which rule has no form in netlink.
func (b *Batch) AddRules(t *nft.Table, c *nft.Chain) error {
	for _, r := range c.Rules {
		if err := b.addRule(t, c.Name, r); err != nil {
			return fmt.Errorf("rule %q of chain %s: %w", t.RuleText(r), c.Name, err)
		}
	}
	return nil
}

// typeNumber is nft's number for a type (TYPE_*, include/datatype.h).
func typeNumber(t nft.Type) uint32 {
	switch t {
	case nft.TypeIPv4:
		return 7
	case nft.TypeIPv6:
		return 8
	case nft.TypeProto:
		return 12
	case nft.TypeService:
		return 13
	case nft.TypeInteger:
		return 4
	case nft.TypeMark:
		return 19
	case nft.TypeIfname:
		return 41
	}
	return 0
}

// hostOrder tells types whose values stand in registers in the order of the machine: of integers those that numgen makes,
// the only ones here.
func hostOrder(t nft.Type) bool { return t == nft.TypeMark || t == nft.TypeInteger }

func typesNumber(fields []nft.Field) uint32 {
	n := uint32(0)
	for _, f := range fields {
		n = n<<6 | typeNumber(f.Type)
	}
	return n
}

// room is how many bytes of registers a key or data takes.
func room(fields []nft.Field) uint32 {
	if len(fields) == 1 {
		return uint32(fields[0].Size)
	}
	n := 0
	for _, f := range fields {
		n += f.Width()
	}
	return uint32(n)
}

// AddSet adds a set or map without its elements.
func (b *Batch) AddSet(t *nft.Table, s *nft.Set) { b.addSet(t, s, s.Name, 0, 0) }

func (b *Batch) addSet(t *nft.Table, s *nft.Set, name string, flags, id uint32) {
	b.begin(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, t, name)
	b.string(unix.NFTA_SET_TABLE, t.Name)
	b.string(unix.NFTA_SET_NAME, name)
	if s.Interval {
		flags |= unix.NFT_SET_INTERVAL
	}
	if s.IsMap {
		flags |= unix.NFT_SET_MAP
	}
	if s.Dynamic {
		flags |= unix.NFT_SET_EVAL
	}
	if s.HasTimeout {
		flags |= unix.NFT_SET_TIMEOUT
	}
	b.u32(unix.NFTA_SET_FLAGS, flags)
	b.u32(unix.NFTA_SET_KEY_TYPE, typesNumber(s.Key))
	b.u32(unix.NFTA_SET_KEY_LEN, room(s.Key))
	if s.IsMap {
		if s.Data == nil {
			b.u32(unix.NFTA_SET_DATA_TYPE, nftDataVerdict)
		} else {
			b.u32(unix.NFTA_SET_DATA_TYPE, typesNumber(s.Data))
			b.u32(unix.NFTA_SET_DATA_LEN, room(s.Data))
		}
	}
	b.u32(unix.NFTA_SET_ID, id)
	if s.Size > 0 || flags&unix.NFT_SET_CONSTANT != 0 {
		at := b.nest(unix.NFTA_SET_DESC)
		b.u32(unix.NFTA_SET_DESC_SIZE, uint32(max(s.Size, len(s.Entries))))
		b.close(at)
	}
	if s.Timeout > 0 {
		b.u64(unix.NFTA_SET_TIMEOUT, uint64(s.Timeout.Milliseconds()))
	}
	switch {
	case s.TypeofKey != nil:
		b.bytes(unix.NFTA_SET_USERDATA, typeofNotes(t.Family, s))
	case len(s.Key) == 1 && s.Key[0].Type == nft.TypeInteger:
		b.bytes(unix.NFTA_SET_USERDATA, noteNumber(nil, noteKeyOrder, orderHost))
	}
	b.end()
}

// DeleteSet deletes a set or map that no rule uses any more.
func (b *Batch) DeleteSet(t *nft.Table, name string) {
	b.begin(unix.NFT_MSG_DELSET, 0, t, name)
	b.string(unix.NFTA_SET_TABLE, t.Name)
	b.string(unix.NFTA_SET_NAME, name)
	b.end()
}

// Element is one element of a set or map. Key and Data are laid out as those of nft.Entry: in network order, the parts of
// several padded to four bytes. Chain is where an element of a verdict map goes to, empty for others; Drop is set for one
// that drops.
type Element struct {
	Key, Data string
	Chain     string
	Drop      bool
}

// AddElements adds elements that are not there.
func (b *Batch) AddElements(t *nft.Table, s *nft.Set, elements iter.Seq[Element]) {
	b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE|unix.NLM_F_EXCL, t, s, s.Name, 0, elements)
}

// DeleteElements deletes elements that are there.
func (b *Batch) DeleteElements(t *nft.Table, s *nft.Set, elements iter.Seq[Element]) {
	b.elements(unix.NFT_MSG_DELSETELEM, 0, t, s, s.Name, 0, elements)
}

func (b *Batch) elements(kind, flags uint16, t *nft.Table, s *nft.Set, name string, id uint32, elements iter.Seq[Element]) {
	list := -1
	finish := func() {
		if list >= 0 {
			b.close(list)
			b.end()
			list = -1
		}
	}
	for e := range elements {
		if list >= 0 && len(b.buf)-list > maxElements {
			finish()
		}
		if list < 0 {
			b.begin(kind, flags, t, name)
			b.string(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
			b.string(unix.NFTA_SET_ELEM_LIST_SET, name)
			if id != 0 {
				b.u32(unix.NFTA_SET_ELEM_LIST_SET_ID, id)
			}
			list = b.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		}
		b.element(s, &e, 0, kind == unix.NFT_MSG_NEWSETELEM)
	}
	finish()
}

func (b *Batch) element(s *nft.Set, e *Element, flags uint32, whole bool) {
	at := b.nest(nftaListElem)
	if flags != 0 {
		b.u32(unix.NFTA_SET_ELEM_FLAGS, flags)
	}
	b.value(unix.NFTA_SET_ELEM_KEY, s.Key, e.Key, !s.Interval)
	switch {
	case !whole || !s.IsMap || flags != 0:
	case s.Data != nil:
		b.value(unix.NFTA_SET_ELEM_DATA, s.Data, e.Data, true)
	default:
		data := b.nest(unix.NFTA_SET_ELEM_DATA)
		if e.Drop {
			b.verdict(nfDrop, "")
		} else {
			b.verdict(nftGoto, e.Chain)
		}
		b.close(data)
	}
	b.close(at)
}

// value writes a key or data as it stands in registers.
func (b *Batch) value(kind uint16, fields []nft.Field, data string, registers bool) {
	at := b.nest(kind)
	from := len(b.buf) + unix.SizeofNlAttr
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(unix.SizeofNlAttr+len(data)))
	b.buf = binary.NativeEndian.AppendUint16(b.buf, nftaDataValue)
	b.buf = append(b.buf, data...)
	if registers && littleEndian {
		for _, f := range fields {
			if hostOrder(f.Type) {
				slices.Reverse(b.buf[from : from+f.Size])
			}
			from += f.Width()
		}
	}
	b.pad()
	b.close(at)
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// verdict writes NFTA_DATA_VERDICT.
func (b *Batch) verdict(code int32, chain string) {
	at := b.nest(nftaDataVerdict)
	b.u32(nftaVerdictCode, uint32(code))
	if chain != "" {
		b.string(nftaVerdictChain, chain)
	}
	b.close(at)
}
