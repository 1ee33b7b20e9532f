package kernel

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/nft"
)

// Keys of meta (NFT_META_*) and numbers of expressions that golang.org/x/sys/unix does not have.
const (
	metaMark       = 3
	metaIifname    = 6
	metaL4Proto    = 16
	fibAddrtype    = 3 // NFT_FIB_RESULT_ADDRTYPE
	numgenRandom   = 1
	natDest        = 1
	rejectICMP     = 0 // NFT_REJECT_ICMP_UNREACH
	dynsetUpdate   = 1
	randomFully    = 1 << 4 // NF_NAT_RANGE_PROTO_RANDOM_FULLY
	cmpEqual       = 0
	cmpNotEqual    = 1
	networkHeader  = 1
	transportPorts = 2
	regVerdict     = 0
	regFirst       = 1 // NFT_REG_1, which nft takes for what stands first
	reg32          = 8 // NFT_REG32_00
	lookupInvert   = 1
)

// A rule of a table is translated into expressions as nft would: each loads registers, compares them or acts.

// ruleWriter writes the expressions of one rule.
type ruleWriter struct {
	*Batch
	t *nft.Table
}

// errNoForm is of statements that svcnet has no use for, and no translation.
var errNoForm = errors.New("has no form in netlink here")

func (b *Batch) addRule(t *nft.Table, chain string, r *nft.Rule) error {
	w := ruleWriter{b, t}
	// Sets without names come first: the rule refers to them.
	literal := map[*nft.Set]set{}
	for _, s := range r.Statements {
		if l := literalOf(s); l != nil {
			literal[l] = w.anonymousSet(l)
		}
	}
	b.begin(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, t, chain)
	b.string(nftaRuleTable, t.Name)
	b.string(nftaRuleChain, chain)
	list := b.nest(nftaRuleExprs)
	for _, s := range r.Statements {
		if err := w.statement(s, literal); err != nil {
			return err
		}
	}
	b.close(list)
	b.comment(nftaRuleUserdata, userdataComment, r.Comment)
	b.end()
	return nil
}

// set is how a lookup names a set.
type set struct {
	name string
	id   uint32
}

// literalOf is the set without a name that a statement uses.
func literalOf(s nft.Statement) *nft.Set {
	var e nft.Expr
	switch s := s.(type) {
	case *nft.Match:
		e = s.Right
	case *nft.VerdictMap:
		e = s.Map
	case *nft.NAT:
		if m, ok := s.Addr.(*nft.MapExpr); ok {
			e = m.Map
		}
	}
	if l, ok := e.(nft.SetLit); ok {
		return l.Set
	}
	return nil
}

// anonymousSet adds a set that lives as long as its rule. Ranges begin at one element and end before another.
func (b *Batch) anonymousSet(t *nft.Table, s *nft.Set) set {
	b.anonymous++
	name := "__set%d"
	if s.IsMap {
		name = "__map%d"
	}
	id := b.anonymous
	b.addSet(t, s, name, unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT, id)
	b.begin(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, t, name)
	b.string(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
	b.string(unix.NFTA_SET_ELEM_LIST_SET, name)
	b.u32(unix.NFTA_SET_ELEM_LIST_SET_ID, id)
	list := b.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for i := range s.Entries {
		e := &s.Entries[i]
		one := Element{Key: string(e.Start), Data: string(e.Data)}
		if e.Verdict != nil {
			one.Chain, one.Drop = e.Verdict.Chain, e.Verdict.Kind == nft.Drop
		}
		b.element(s, &one, 0, true)
		if !s.Interval {
			continue
		}
		last := e.Start
		if e.End != nil {
			last = e.End
		}
		if after, ok := plusOne(last); ok {
			b.element(s, &Element{Key: string(after)}, unix.NFT_SET_ELEM_INTERVAL_END, true)
		}
	}
	b.close(list)
	b.end()
	return set{name, id}
}

func (w ruleWriter) anonymousSet(s *nft.Set) set { return w.Batch.anonymousSet(w.t, s) }

// plusOne is the next key; ok is false behind the last one.
func plusOne(key []byte) (next []byte, ok bool) {
	next = slices.Clone(key)
	for i := len(next) - 1; i >= 0; i-- {
		if next[i]++; next[i] != 0 {
			return next, true
		}
	}
	return nil, false
}

// expression writes one, with its attributes.
func (w ruleWriter) expression(name string, attributes func()) {
	at := w.nest(nftaListElem)
	w.string(nftaExprName, name)
	data := w.nest(nftaExprData)
	attributes()
	w.close(data)
	w.close(at)
}

func (w ruleWriter) statement(s nft.Statement, literal map[*nft.Set]set) error {
	switch s := s.(type) {
	case *nft.Match:
		return w.match(s, literal)
	case *nft.Verdict:
		w.immediate(s)
		return nil
	case *nft.VerdictMap:
		return w.lookup(s.Key, s.Map, literal, regVerdict, true)
	case *nft.Counter:
		w.expression("counter", func() {})
		return nil
	case *nft.Assign:
		return w.assign(s)
	case *nft.NAT:
		return w.nat(s, literal)
	case *nft.Reject:
		code := byte(3) // ICMP_PORT_UNREACH
		if w.t.Family == nft.IP6 {
			code = 4 // ICMPV6_PORT_UNREACH
		}
		w.expression("reject", func() {
			w.u32(unix.NFTA_REJECT_TYPE, rejectICMP)
			w.u8(unix.NFTA_REJECT_ICMP_CODE, code)
		})
		return nil
	case *nft.SetUpdate:
		if err := w.load(s.Key); err != nil {
			return err
		}
		w.expression("dynset", func() {
			w.string(unix.NFTA_DYNSET_SET_NAME, s.Set)
			w.u32(unix.NFTA_DYNSET_OP, dynsetUpdate)
			w.u32(unix.NFTA_DYNSET_SREG_KEY, regFirst)
		})
		return nil
	}
	return fmt.Errorf("%T %w", s, errNoForm)
}

func (w ruleWriter) immediate(v *nft.Verdict) {
	code := map[nft.VerdictKind]int32{nft.Accept: nfAccept, nft.Drop: nfDrop, nft.Return: nftReturn, nft.Jump: nftJump, nft.Goto: nftGoto}[v.Kind]
	w.expression("immediate", func() {
		w.u32(unix.NFTA_IMMEDIATE_DREG, regVerdict)
		at := w.nest(unix.NFTA_IMMEDIATE_DATA)
		w.verdict(code, v.Chain)
		w.close(at)
	})
}

// register32 is the register of four bytes at a place of a value that begins in the first.
func register32(word int) uint32 {
	if word == 0 {
		return regFirst
	}
	return reg32 + uint32(word)
}

// load puts a value into the registers from the first, the parts of several one behind the other.
func (w ruleWriter) load(e nft.Expr) error {
	c, ok := e.(*nft.Concat)
	if !ok {
		return w.loadOne(e, regFirst)
	}
	word := 0
	for _, part := range c.Parts {
		if err := w.loadOne(part, register32(word)); err != nil {
			return err
		}
		word += (w.size(part) + 3) / 4
	}
	return nil
}

// addressSize is that of the table's family.
func (w ruleWriter) addressSize() int {
	if w.t.Family == nft.IP6 {
		return 16
	}
	return 4
}

// size of a value in bytes.
func (w ruleWriter) size(e nft.Expr) int {
	switch e := e.(type) {
	case *nft.Payload:
		if e.Field == "saddr" || e.Field == "daddr" {
			return w.addressSize()
		}
		return 2
	case *nft.Meta:
		switch e.Key {
		case "l4proto":
			return 1
		case "iifname":
			return 16
		}
	case *nft.CT:
		switch e.Key {
		case "saddr", "daddr":
			return w.addressSize()
		case "proto-src", "proto-dst":
			return 2
		}
	}
	return 4
}

// loadOne puts one value into a register.
func (w ruleWriter) loadOne(e nft.Expr, register uint32) error {
	switch e := e.(type) {
	case *nft.Payload:
		base, offset := uint32(transportPorts), uint32(0)
		switch e.Protocol + " " + e.Field {
		case "ip saddr":
			base, offset = networkHeader, 12
		case "ip daddr":
			base, offset = networkHeader, 16
		case "ip6 saddr":
			base, offset = networkHeader, 8
		case "ip6 daddr":
			base, offset = networkHeader, 24
		case "th sport":
		case "th dport":
			offset = 2
		default:
			return fmt.Errorf("%s %s %w", e.Protocol, e.Field, errNoForm)
		}
		w.expression("payload", func() {
			w.u32(unix.NFTA_PAYLOAD_DREG, register)
			w.u32(unix.NFTA_PAYLOAD_BASE, base)
			w.u32(unix.NFTA_PAYLOAD_OFFSET, offset)
			w.u32(unix.NFTA_PAYLOAD_LEN, uint32(w.size(e)))
		})
		return nil
	case *nft.Meta:
		key, ok := map[string]uint32{"mark": metaMark, "l4proto": metaL4Proto, "iifname": metaIifname}[e.Key]
		if !ok {
			return fmt.Errorf("meta %s %w", e.Key, errNoForm)
		}
		w.expression("meta", func() {
			w.u32(unix.NFTA_META_KEY, key)
			w.u32(unix.NFTA_META_DREG, register)
		})
		return nil
	case *nft.CT:
		keys := map[string]uint32{"state": unix.NFT_CT_STATE, "status": unix.NFT_CT_STATUS, "proto-dst": unix.NFT_CT_PROTO_DST, "daddr": unix.NFT_CT_DST_IP}
		if w.t.Family == nft.IP6 {
			keys["daddr"] = unix.NFT_CT_DST_IP6
		}
		key, ok := keys[e.Key]
		if !ok {
			return fmt.Errorf("ct %s %w", e.Key, errNoForm)
		}
		w.expression("ct", func() {
			w.u32(unix.NFTA_CT_DREG, register)
			w.u32(unix.NFTA_CT_KEY, key)
			switch e.Dir {
			case "original":
				w.u8(unix.NFTA_CT_DIRECTION, 0)
			case "reply":
				w.u8(unix.NFTA_CT_DIRECTION, 1)
			}
		})
		return nil
	case *nft.Fib:
		flags := uint32(0)
		for _, f := range e.Flags {
			flags |= map[string]uint32{"saddr": unix.NFTA_FIB_F_SADDR, "daddr": unix.NFTA_FIB_F_DADDR}[f]
		}
		w.expression("fib", func() {
			w.u32(unix.NFTA_FIB_DREG, register)
			w.u32(unix.NFTA_FIB_RESULT, fibAddrtype)
			w.u32(unix.NFTA_FIB_FLAGS, flags)
		})
		return nil
	case *nft.Numgen:
		w.expression("numgen", func() {
			w.u32(unix.NFTA_NG_DREG, register)
			w.u32(unix.NFTA_NG_MODULUS, e.Mod)
			w.u32(unix.NFTA_NG_TYPE, numgenRandom)
			w.u32(unix.NFTA_NG_OFFSET, e.Offset)
		})
		return nil
	}
	return fmt.Errorf("%T %w", e, errNoForm)
}

// lookup finds a value in a set, or in a map what it has for it.
func (w ruleWriter) lookup(key, in nft.Expr, literal map[*nft.Set]set, to uint32, isMap bool) error {
	return w.lookupIn(key, in, literal, to, isMap, false)
}

func (w ruleWriter) lookupIn(key, in nft.Expr, literal map[*nft.Set]set, to uint32, isMap, invert bool) error {
	if m, ok := key.(*nft.MapExpr); ok {
		if err := w.lookup(m.Key, m.Map, literal, regFirst, true); err != nil {
			return err
		}
	} else if err := w.load(key); err != nil {
		return err
	}
	var s set
	switch in := in.(type) {
	case nft.SetRef:
		s.name = in.Name
	case nft.SetLit:
		s = literal[in.Set]
	}
	w.expression("lookup", func() {
		w.string(unix.NFTA_LOOKUP_SET, s.name)
		w.u32(unix.NFTA_LOOKUP_SREG, regFirst)
		if isMap {
			w.u32(unix.NFTA_LOOKUP_DREG, to)
		}
		if s.id != 0 {
			w.u32(unix.NFTA_LOOKUP_SET_ID, s.id)
		}
		if invert {
			w.u32(unix.NFTA_LOOKUP_FLAGS, lookupInvert)
		}
	})
	return nil
}

func (w ruleWriter) match(m *nft.Match, literal map[*nft.Set]set) error {
	op := uint32(cmpEqual)
	switch m.Op {
	case "==":
	case "!=":
		op = cmpNotEqual
	default:
		return fmt.Errorf("operator %s %w", m.Op, errNoForm)
	}
	switch right := m.Right.(type) {
	case nft.SetRef, nft.SetLit:
		return w.lookupIn(m.Left, right, literal, 0, false, op == cmpNotEqual)
	case *nft.Prefix:
		if err := w.load(m.Left); err != nil {
			return err
		}
		value := slices.Clone(right.Value.Data)
		if meta, ok := m.Left.(*nft.Meta); ok && meta.Key == "iifname" {
			// The beginning of a name is compared as it is, without what follows.
			w.compare(op, value[:min(right.Bits/8, len(value))])
			return nil
		}
		mask := make([]byte, len(value))
		for i := range right.Bits {
			mask[i/8] |= 0x80 >> (i % 8)
		}
		w.bitwise(mask, make([]byte, len(mask)))
		w.compare(op, value)
		return nil
	case *nft.Const:
		left := m.Left
		if b, ok := left.(*nft.Binary); ok {
			mask, ok := b.Right.(*nft.Const)
			if !ok || b.Op != "&" {
				return fmt.Errorf("operator %s %w", b.Op, errNoForm)
			}
			if err := w.load(b.Left); err != nil {
				return err
			}
			data := inRegister(b.Left, mask.Data)
			w.bitwise(data, make([]byte, len(data)))
			w.compare(op, inRegister(b.Left, right.Data))
			return nil
		}
		if err := w.load(left); err != nil {
			return err
		}
		data := inRegister(left, right.Data)
		if m.AnyBit {
			w.bitwise(data, make([]byte, len(data)))
			w.compare(1-op, make([]byte, len(data)))
			return nil
		}
		w.compare(op, data)
		return nil
	}
	return fmt.Errorf("comparison with %T %w", m.Right, errNoForm)
}

// inRegister is a constant as the value that it is compared with stands in its register.
func inRegister(left nft.Expr, data []byte) []byte {
	host := false
	switch l := left.(type) {
	case *nft.Meta:
		host = l.Key == "mark"
	case *nft.CT:
		host = l.Key == "state" || l.Key == "status"
	case *nft.Fib:
		host = true
	}
	data = slices.Clone(data)
	if host && littleEndian {
		slices.Reverse(data)
	}
	return data
}

func (w ruleWriter) compare(op uint32, data []byte) {
	w.expression("cmp", func() {
		w.u32(unix.NFTA_CMP_SREG, regFirst)
		w.u32(unix.NFTA_CMP_OP, op)
		at := w.nest(unix.NFTA_CMP_DATA)
		w.bytes(nftaDataValue, data)
		w.close(at)
	})
}

func (w ruleWriter) bitwise(mask, xor []byte) {
	w.expression("bitwise", func() {
		w.u32(unix.NFTA_BITWISE_SREG, regFirst)
		w.u32(unix.NFTA_BITWISE_DREG, regFirst)
		w.u32(unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		at := w.nest(unix.NFTA_BITWISE_MASK)
		w.bytes(nftaDataValue, mask)
		w.close(at)
		at = w.nest(unix.NFTA_BITWISE_XOR)
		w.bytes(nftaDataValue, xor)
		w.close(at)
	})
}

// assign sets bits of the mark, or turns them around: "meta mark set meta mark | BITS", "meta mark set meta mark ^ BITS".
func (w ruleWriter) assign(s *nft.Assign) error {
	to, isMeta := s.To.(*nft.Meta)
	b, isBinary := s.Value.(*nft.Binary)
	if !isMeta || to.Key != "mark" || !isBinary {
		return fmt.Errorf("assignment %w", errNoForm)
	}
	c, ok := b.Right.(*nft.Const)
	if !ok {
		return fmt.Errorf("assignment %w", errNoForm)
	}
	if err := w.load(b.Left); err != nil {
		return err
	}
	bits := inRegister(to, c.Data)
	mask := make([]byte, len(bits))
	for i := range mask {
		mask[i] = 0xff
		if b.Op == "|" {
			mask[i] = ^bits[i]
		}
	}
	w.bitwise(mask, bits)
	w.expression("meta", func() {
		w.u32(unix.NFTA_META_KEY, metaMark)
		w.u32(unix.NFTA_META_SREG, regFirst)
	})
	return nil
}

func (w ruleWriter) nat(n *nft.NAT, literal map[*nft.Set]set) error {
	if n.Kind == nft.Masquerade {
		flags := uint32(0)
		if n.FullyRandom {
			flags |= randomFully
		}
		w.expression("masq", func() { w.u32(unix.NFTA_MASQ_FLAGS, flags) })
		return nil
	}
	if n.Kind != nft.DNAT {
		return fmt.Errorf("%s %w", n.Kind, errNoForm)
	}
	port := uint32(0)
	switch addr := n.Addr.(type) {
	case *nft.MapExpr:
		if err := w.lookup(addr.Key, addr.Map, literal, regFirst, true); err != nil {
			return err
		}
		port = register32(w.addressSize() / 4)
	case *nft.Const:
		w.constant(regFirst, addr.Data)
		if p, ok := n.Port.(*nft.Const); ok {
			port = reg32 + 4 // NFT_REG_2, as nft takes it
			w.constant(port, p.Data)
		}
	default:
		return fmt.Errorf("translation to %T %w", n.Addr, errNoForm)
	}
	w.expression("nat", func() {
		w.u32(unix.NFTA_NAT_TYPE, natDest)
		w.u32(unix.NFTA_NAT_FAMILY, uint32(familyNumber(w.t.Family)))
		w.u32(unix.NFTA_NAT_REG_ADDR_MIN, regFirst)
		if port != 0 {
			w.u32(unix.NFTA_NAT_REG_PROTO_MIN, port)
		}
	})
	return nil
}

func (w ruleWriter) constant(register uint32, data []byte) {
	w.expression("immediate", func() {
		w.u32(unix.NFTA_IMMEDIATE_DREG, register)
		at := w.nest(unix.NFTA_IMMEDIATE_DATA)
		w.bytes(nftaDataValue, data)
		w.close(at)
	})
}
