package nft

// resolve is what an operand is called by now, with the type of its value. Comparisons that its fields make
// superfluous are hidden.
func (d *ruleDecoder) resolve(o *operand) (Expr, valueType, bool) {
	if !d.spend(1) {
		return nil, valueType{}, false
	}
	switch o.kind {
	case opPayload:
		n := d.name(o)
		d.implies(n, o.layer)
		return n.expr, n.typ, true
	case opCT:
		return d.resolveCT(o)
	case opOption:
		d.impliesOption(o.option)
		return o.expr, o.typ, o.expr != nil
	case opConst:
		return d.constant(o.typ, o.data), o.typ, true
	case opSwapped:
		e, typ, ok := d.resolve(o.left)
		typ.host = !typ.host
		return e, typ, ok
	case opConcat:
		c := &Concat{}
		for _, part := range o.parts {
			e, _, ok := d.resolveWithin(part)
			if !ok {
				return nil, valueType{}, false
			}
			c.Parts = append(c.Parts, e)
		}
		return c, o.typ, true
	case opBinary:
		return d.resolveBinary(o)
	case opMap:
		return d.resolveMap(o)
	case opHash:
		h := *o.expr.(*Hash)
		if o.left != nil {
			of, _, ok := d.resolve(o.left)
			if !ok {
				return nil, valueType{}, false
			}
			h.Of = of
		}
		return &h, o.typ, true
	}
	return o.expr, o.typ, o.expr != nil
}

// resolveWithin resolves a part of a concatenation or a key, where a mask that takes out a field is gone too.
func (d *ruleDecoder) resolveWithin(o *operand) (Expr, valueType, bool) {
	if o.kind == opBinary && o.right == nil {
		if field, shift, ok := d.trimmed(o); ok && (shift == 0 || o.op == "&") {
			return d.resolve(field)
		}
	}
	return d.resolve(o)
}

// resolveCT says of addresses of connections of which family they are, as far as the rule has found out
// (ct_expr_update_type).
func (d *ruleDecoder) resolveCT(o *operand) (Expr, valueType, bool) {
	if o.key != nftCTSrc && o.key != nftCTDst {
		return o.expr, o.typ, true
	}
	ct := *o.expr.(*CT)
	switch d.found[atNetwork] {
	case d.protocols.ip:
		ct.Family = IP
		return &ct, typed(TypeIPv4), true
	case d.protocols.ip6:
		ct.Family = IP6
		return &ct, typed(TypeIPv6), true
	}
	return &ct, o.typ, true
}

// impliesOption: options are of their protocol by themselves (exthdr_dependency_kill).
func (d *ruleDecoder) impliesOption(o option) {
	l := atNetwork
	switch o.op {
	case nftExthdrTCPOpt:
		l = atTransport
	case nftExthdrIPv4, nftExthdrIPv6:
	default:
		return
	}
	dep, at := d.dependency(l)
	if dep == nil || dep.compares.left.kind == opCT {
		return
	}
	if by := dep.compares; by.left.kind == opPayload && by.x == d.protocols.ip6 && l == atTransport {
		return
	}
	d.hide(at)
}

func (d *ruleDecoder) resolveBinary(o *operand) (Expr, valueType, bool) {
	left, typ, ok := d.resolve(o.left)
	if !ok {
		return nil, valueType{}, false
	}
	b := &Binary{Op: o.op, Left: left}
	switch {
	case o.right != nil:
		if b.Right, _, ok = d.resolve(o.right); !ok {
			return nil, valueType{}, false
		}
	case o.op == "<<" || o.op == ">>":
		b.Right = &Const{TypeInteger, wide(inNetworkOrder(d.order, valueType{host: true}, o.data), 4)}
	default:
		if len(o.data) < typ.size() {
			return nil, valueType{}, false
		}
		b.Right = &Const{typ.Type, wide(inNetworkOrder(d.order, typ, o.data), typ.size())}
	}
	return b, typ, true
}

func (d *ruleDecoder) resolveMap(o *operand) (Expr, valueType, bool) {
	key, set := o.left, o.set
	if key.kind == opBinary && key.right == nil {
		if field, shift, ok := d.trimmed(key); ok && d.spendSet(set) {
			if r, ok := (compared{set: set}).shifted(shift, field.typ); ok {
				key, set = field, r.set
			}
		}
	}
	if key.kind == opPayload && set.anonymous {
		d.foundMessages(key, set)
	}
	e, _, ok := d.resolve(key)
	if !ok {
		return nil, valueType{}, false
	}
	return &MapExpr{Key: e, Map: d.reference(set)}, o.typ, true
}
