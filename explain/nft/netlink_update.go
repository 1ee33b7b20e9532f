package nft

// Statements that change sets or take an object out of a map: NFTA_DYNSET_*, NFTA_OBJREF_*.
const (
	nftaDynsetSet         = 1
	nftaDynsetOp          = 3
	nftaDynsetKey         = 4
	nftaDynsetData        = 5
	nftaDynsetTimeout     = 6
	nftaDynsetExpr        = 7
	nftaDynsetFlags       = 9
	nftaDynsetExpressions = 10
	nftDynsetInverted     = 1
	nftaObjrefType        = 1
	nftaObjrefName        = 2
	nftaObjrefSetSreg     = 3
	nftaObjrefSetName     = 4
)

// dynsetOps are NFT_DYNSET_OP_* in nft's words.
var dynsetOps = [...]string{"add", "update", "delete"}

func (d *ruleDecoder) dynset(a *attributes) {
	name := a.text(nftaDynsetSet)
	set := d.table.sets[name]
	op := a.u32(nftaDynsetOp)
	switch {
	case set == nil:
		d.unreadable("it changes a set that is not in the capture")
		return
	case op >= uint32(len(dynsetOps)):
		d.unreadable("what it does to the set is not known")
		return
	case a.u32(nftaDynsetFlags)&nftDynsetInverted != 0:
		d.unreadable("it goes on where the entry could not be added")
		return
	}
	key := d.regs.get(a.u32(nftaDynsetKey), set.keyBytes)
	if key == nil {
		d.unreadable("nothing is in its register")
		return
	}
	u := &SetUpdate{Op: dynsetOps[op], Set: name, Timeout: milliseconds(a.u64(nftaDynsetTimeout))}
	var ok bool
	if u.Key, ok = d.dynamicKey(key, set.key); !ok {
		d.unreadable("its key is not known")
		return
	}
	if r := a.u32(nftaDynsetData); r != 0 {
		data := d.regs.get(r, keyBytes(set.data))
		if data == nil {
			d.unreadable("nothing is in its register")
			return
		}
		if u.Data, ok = d.dynamicKey(data, set.data); !ok {
			d.unreadable("its data is not known")
			return
		}
	}
	inner := ruleDecoder{netlinkDecoder: d.netlinkDecoder, context: newContext(d.protocols, d.family), table: d.table}
	inner.nesting = d.nesting + 1
	if a.has(nftaDynsetExpr) {
		inner.expression(a[nftaDynsetExpr])
	} else {
		for kind, e := range eachAttribute(d.order, a[nftaDynsetExpressions]) {
			if kind == nftaListElem {
				inner.expression(e)
			}
		}
	}
	for _, s := range inner.steps {
		if !s.gone {
			u.Statements = append(u.Statements, s.statement)
		}
	}
	if set.Meter && len(u.Statements) > 0 {
		u.Op, u.Size = "meter", set.Size
	}
	d.add(u)
}

// dynamicKey is what a rule writes into a set; constants among it are of the set's types.
func (d *ruleDecoder) dynamicKey(o *operand, types []valueType) (Expr, bool) {
	if o.kind != opConcat {
		if o.kind == opConst && len(types) == 1 {
			return d.value(o, types[0])
		}
		e, _, ok := d.resolveWithin(o)
		return e, ok
	}
	c := &Concat{}
	for i, part := range o.parts {
		var e Expr
		ok := false
		if part.kind == opConst && len(types) == len(o.parts) {
			e, ok = d.value(part, types[i])
		} else {
			e, _, ok = d.resolveWithin(part)
		}
		if !ok {
			return nil, false
		}
		c.Parts = append(c.Parts, e)
	}
	return c, true
}

func (d *ruleDecoder) objref(a *attributes) {
	if a.has(nftaObjrefName) {
		name := a.text(nftaObjrefName)
		switch kind := a.u32(nftaObjrefType); kind {
		case nftObjectCounter:
			d.add(&Counter{Name: name})
		case nftObjectQuota:
			d.add(&Quota{Name: name})
		case nftObjectLimit:
			d.add(&Limit{Name: name})
		default:
			word := objectKind(kind)
			if word == "" {
				d.unreadable("it is about an object of a kind that is not known")
				return
			}
			d.add(&ObjectRef{Kind: word, Name: name})
		}
		return
	}
	set := d.table.sets[a.text(nftaObjrefSetName)]
	if set == nil {
		d.unreadable("it looks into a map that is not in the capture")
		return
	}
	key := d.regs.get(a.u32(nftaObjrefSetSreg), set.keyBytes)
	if key == nil {
		d.unreadable("nothing is in its register")
		return
	}
	e, _, ok := d.resolve(&operand{kind: opMap, left: key, set: set, nodes: key.nodes + 1})
	if !ok {
		d.unreadable("its key is not known")
		return
	}
	d.add(&ObjectRef{Kind: set.ObjectType, Map: e})
}
