package nft

// Translations and what is like them: NFTA_NAT_*, NFTA_MASQ_*, NFTA_REDIR_*, NFTA_TPROXY_*.
const (
	nftaNATType       = 1
	nftaNATFamily     = 2
	nftaNATAddrMin    = 3
	nftaNATAddrMax    = 4
	nftaNATProtoMin   = 5
	nftaNATProtoMax   = 6
	nftaNATFlags      = 7
	nftNATDest        = 1 // NFT_NAT_DNAT
	nftaMasqFlags     = 1
	nftaMasqProtoMin  = 2
	nftaMasqProtoMax  = 3
	nftaRedirProtoMin = 1
	nftaRedirProtoMax = 2
	nftaRedirFlags    = 3
	// NF_NAT_RANGE_*, include/uapi/linux/netfilter/nf_nat.h
	natRandom        = 1 << 2
	natPersistent    = 1 << 3
	natFullyRandom   = 1 << 4
	natNetmap        = 1 << 6
	nftaTProxyFamily = 1
	nftaTProxyAddr   = 2
	nftaTProxyPort   = 3
)

func natFlags(n *NAT, flags uint32) {
	n.Random, n.FullyRandom, n.Persistent = flags&natRandom != 0, flags&natFullyRandom != 0, flags&natPersistent != 0
	n.NetMap = flags&natNetmap != 0
}

func (d *ruleDecoder) nat(a *attributes) {
	n := &NAT{Kind: SNAT}
	if a.u32(nftaNATType) == nftNATDest {
		n.Kind = DNAT
	}
	natFlags(n, a.u32(nftaNATFlags))
	family, typ := IP, typed(TypeIPv4)
	switch a.u32(nftaNATFamily) {
	case nfprotoIPv4:
	case nfprotoIPv6:
		family, typ = IP6, typed(TypeIPv6)
	default:
		family = "" // of both, where only a port is given
	}
	if d.family == Inet {
		n.Family = family
	}
	if lo := a.u32(nftaNATAddrMin); lo != 0 {
		first := d.regs.get(lo, 0)
		if first != nil && first.kind == opMap && (len(first.set.data) > 1 || first.set.DataInterval) {
			d.natMap(n, family, first, a)
			return
		}
		var ok bool
		if n.Addr, ok = d.ends(lo, a.u32(nftaNATAddrMax), typ); !ok {
			d.unreadable("nothing is in its registers")
			return
		}
	}
	if !d.natPorts(n, a.u32(nftaNATProtoMin), a.u32(nftaNATProtoMax)) {
		return
	}
	d.add(n)
}

// natMap reads a translation to what a map has for the packet: an address with a port, or a range.
func (d *ruleDecoder) natMap(n *NAT, family Family, m *operand, a *attributes) {
	n.Family = family
	lo, _ := slot(a.u32(nftaNATAddrMin))
	room := m.slots()
	within := func(kind int) bool {
		if !a.has(kind) || a.u32(kind) == 0 {
			return true
		}
		at, ok := slot(a.u32(kind))
		return ok && at >= lo && at < lo+room
	}
	if !within(nftaNATAddrMax) || !within(nftaNATProtoMin) || !within(nftaNATProtoMax) {
		d.unreadable("its address and port are not both of one map")
		return
	}
	e, _, ok := d.resolve(m)
	if !ok {
		d.unreadable("its map is not known")
		return
	}
	n.Addr = e
	d.add(n)
}

// natPorts reads the ports of a translation.
func (d *ruleDecoder) natPorts(n *NAT, lo, hi uint32) bool {
	if lo == 0 {
		return true
	}
	// nft leaves what was compared before where it is (rule_parse_postprocess).
	d.dependencies = [layers + 1]*step{}
	var ok bool
	if n.Port, ok = d.ends(lo, hi, typed(TypeService)); !ok {
		d.unreadable("nothing is in its registers")
	}
	return ok
}

// ends is what one or two registers hold: a value, or a range. A range of addresses that is a prefix is one.
func (d *ruleDecoder) ends(lo, hi uint32, typ valueType) (Expr, bool) {
	first, ok := d.valueIn(lo, typ)
	if !ok || hi == 0 || hi == lo {
		return first, ok
	}
	last, ok := d.valueIn(hi, typ)
	if !ok {
		return nil, false
	}
	a, isConst := first.(*Const)
	b, isConst2 := last.(*Const)
	if !isConst || !isConst2 {
		return nil, false
	}
	if bits := prefixBits(a.Data, b.Data); bits >= 0 && typeOf(typ.Type).prefixes && bits < 8*len(a.Data) {
		return &Prefix{a, bits}, true
	}
	return &Range{a, b}, true
}

// translateOwn reads masquerade and redirect, which take the address from the interface.
func (d *ruleDecoder) translateOwn(kind NATKind, flags, lo, hi uint32) {
	n := &NAT{Kind: kind}
	natFlags(n, flags)
	if d.natPorts(n, lo, hi) {
		d.add(n)
	}
}

func (d *ruleDecoder) tproxy(a *attributes) {
	x := &TProxy{}
	typ := typed(TypeIPv4)
	switch a.u32(nftaTProxyFamily) {
	case nfprotoIPv4:
		x.Family = IP
	case nfprotoIPv6:
		x.Family, typ = IP6, typed(TypeIPv6)
	}
	if d.family != Inet {
		x.Family = ""
	}
	var ok bool
	if r := a.u32(nftaTProxyAddr); r != 0 {
		if x.Addr, ok = d.valueIn(r, typ); !ok {
			d.unreadable("nothing is in its registers")
			return
		}
	}
	if r := a.u32(nftaTProxyPort); r != 0 {
		d.dependencies = [layers + 1]*step{}
		if x.Port, ok = d.valueIn(r, typed(TypeService)); !ok {
			d.unreadable("nothing is in its registers")
			return
		}
	}
	d.add(x)
}
