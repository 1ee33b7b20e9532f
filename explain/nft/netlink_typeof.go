package nft

// A set that was declared by expressions ("typeof ip saddr . tcp dport") keeps them in nft's notes: the kind of the
// expression, and notes of its own (the build_udata functions of nft 1.0.6, src/expression.c and the files of the
// expressions).

// Kinds of expressions in notes (enum expr_types).
const (
	typeofPayload = 7
	typeofOption  = 8
	typeofMeta    = 9
	typeofSocket  = 10
	typeofOSF     = 11
	typeofCT      = 12
	typeofConcat  = 13
	typeofNumgen  = 23
	typeofHash    = 24
	typeofRT      = 25
	typeofFib     = 26
	typeofXfrm    = 27
)

// parseTypeof reads the expression that a set's key or data was declared by, with the types of its parts. Both are nil
// where there is none or where it cannot be read; the expression alone is where the notes do not hold all of it.
func (d *netlinkDecoder) parseTypeof(data []byte) ([]valueType, Expr) {
	n := parseNotes(data)
	kind, ok := n.number(d.order, noteTypeofExpr)
	if !ok || n[noteTypeofData] == nil {
		return nil, nil
	}
	if kind != typeofConcat {
		typ, e := d.typeof(kind, n[noteTypeofData])
		if typ.bits == 0 {
			return nil, nil
		}
		return []valueType{typ}, e
	}
	nested := parseNotes(n[noteTypeofData])
	c := &Concat{}
	var types []valueType
	whole := true
	for _, part := range nested {
		if part == nil {
			break
		}
		sub := parseNotes(part)
		kind, ok := sub.number(d.order, 0)
		typ, e := d.typeof(kind, sub[1])
		if !ok || typ.bits == 0 {
			return nil, nil
		}
		whole = whole && e != nil
		c.Parts = append(c.Parts, e)
		types = append(types, typ)
	}
	if len(c.Parts) == 0 || !whole {
		return types, nil
	}
	return types, c
}

// typeof reads one expression.
func (d *netlinkDecoder) typeof(kind uint32, data []byte) (valueType, Expr) {
	n := parseNotes(data)
	get := func(i int) uint32 {
		v, _ := n.number(d.order, i)
		return v
	}
	var o *operand
	switch kind {
	case typeofPayload:
		return d.typeofPayload(get(0), get(1), get(2), get(3), get(4))
	case typeofOption:
		return typeofExtHdr(get(0), get(1), get(2))
	case typeofMeta:
		o = metaOperand(get(0))
	case typeofSocket:
		o = socketOperand(get(0), 0)
	case typeofOSF:
		o = osfOperand(0, 0)
	case typeofCT:
		dir := ""
		switch get(1) { // the direction, -1 for none
		case 0:
			dir = "original"
		case 1:
			dir = "reply"
		}
		o = ctOperand(get(0), dir)
	case typeofNumgen:
		o = numgenOperand(get(0), get(1), get(2))
	case typeofHash:
		if get(0) != nftHashSym {
			return hostInteger(32), nil // of what it is a hash is not noted
		}
		h := &Hash{Offset: get(1), Mod: get(2), Seed: get(3), HasSeed: get(4) != 0}
		o = &operand{typ: hostInteger(32), expr: h}
	case typeofRT:
		o = rtOperand(get(0))
	case typeofFib:
		o = fibOperand(get(0), get(1))
	case typeofXfrm:
		o = xfrmOperand(get(0), get(1), byte(get(2)))
	}
	if o == nil || o.expr == nil || o.typ.bits == 0 {
		return valueType{}, nil
	}
	return o.typ, o.expr
}

func (d *netlinkDecoder) typeofPayload(id, field, base, offset, bits uint32) (valueType, Expr) {
	x := d.protocols.byID[id]
	if x == nil {
		if id != 0 || base >= uint32(layers) || bits == 0 || bits > 1024 || offset > 1<<20 {
			return valueType{}, nil
		}
		e := &Payload{Protocol: protocolLayer(base).word(), Offset: int(offset), Bits: int(bits)}
		return valueType{TypeHex, e.Bits, false}, e
	}
	if field == 0 || field >= uint32(len(x.fields)) {
		return valueType{}, nil
	}
	f := &x.fields[field]
	typ := valueType{f.typ, f.bits, f.typ.hostOrder()}
	if bits > 0 && bits <= 1024 {
		typ.bits = int(bits)
	}
	return typ, x.payload(int(field))
}

// typeofExtHdr finds an option by its number (that of the header's description for IPv6, enum exthdr_desc_id) and its
// field by its place among those that nft knows.
func typeofExtHdr(id, field, op uint32) (valueType, Expr) {
	if id > 255 {
		return valueType{}, nil
	}
	o := option{op: op, kind: byte(id)}
	var name string
	at := int(field)
	switch op {
	case nftExthdrIPv6:
		names := [...]string{"", "hbh", "rt", "rt0", "rt2", "srh", "frag", "dst", "mh"}
		if int(id) >= len(names) {
			return valueType{}, nil
		}
		name, at = names[id], at-1
	case nftExthdrTCPOpt:
		names := optionNames[op][o.kind]
		if len(names) == 0 {
			return valueType{}, nil
		}
		if name = names[0]; name == "sack" && at >= 4 && at < 10 {
			name, at = names[(at-2)/2], at%2
		}
	case nftExthdrIPv4, nftExthdrSCTP:
		if names := optionNames[op][o.kind]; len(names) > 0 {
			name = names[0]
		}
		if op == nftExthdrIPv4 {
			// type, length, value, ptr, addr
			places := [...]int{-1, 0, 1, 2, 2, 3}
			if at >= len(places) {
				return valueType{}, nil
			}
			at = places[at]
		}
	}
	h := headerOf(extensions(o.word()), name)
	if h == nil || at < 0 || at >= len(h.fields) {
		return valueType{}, nil
	}
	f := &h.fields[at]
	return valueType{f.typ, f.bits, false}, &ExtHdr{Kind: o.word(), Name: name, Field: f.name}
}
