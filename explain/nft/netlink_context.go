package nft

// A rule that reads a port first makes sure that the packet has one: "tcp dport 80" becomes "meta l4proto tcp" and then
// two bytes of the transport header. So what a rule has compared says how the bytes after it are called, and a
// comparison that only says which header follows is not printed where the header's own field says it too. This file
// follows a rule through its layers (nft 1.0.6: src/proto.c, src/payload.c, src/netlink_delinearize.c).

// context is what a rule has found out about a packet so far.
type context struct {
	family Family
	// found are the protocols by layer, nil where nothing is known.
	found [layers]*protocol
	// stacked are headers below the link layer's last one, as Ethernet below VLAN.
	stacked []*protocol
	// icmpMessage is the type of ICMP message, 0 while it is not known. A reply stands for a request.
	icmpMessage byte
	// dependencies are comparisons that may turn out to be said twice, by the layer that could say them again.
	dependencies [layers + 1]*step
	// depends is the type of ICMP message that the dependency of its layer compares.
	depends byte
	// previous is the step before, if it is a comparison.
	previous *step
}

// newContext is what the family of a table says.
func newContext(p *protocols, f Family) context {
	c := context{family: f}
	switch f {
	case IP:
		c.found[atNetwork] = p.ip
	case IP6:
		c.found[atNetwork] = p.ip6
	case ARP:
		c.found[atNetwork] = p.arp
	case Inet:
		c.found[atLink] = p.inet
	case Bridge:
		c.found[atLink] = p.ether
	case Netdev:
		c.found[atLink] = p.netdev
	}
	return c
}

// severalNetworks tells families whose tables see packets of more than one network protocol.
func (f Family) severalNetworks() bool { return f == Inet || f == Bridge || f == Netdev }

// stackedAt is the header of the link layer that an offset lies in, and how many bits of headers stand before it.
func (c *context) stackedAt(x *protocol, l protocolLayer, offset int) (in *protocol, before int) {
	if l != atLink || offset < x.bits {
		return x, 0
	}
	for _, s := range c.stacked {
		if offset < s.bits {
			return s, before
		}
		offset -= s.bits
		before += s.bits
	}
	return x, before
}

// ofMessage tells whether the message that the rule is about has a field of ICMP.
func (c *context) ofMessage(f *protocolField) bool {
	return f.message == 0 || c.icmpMessage == 0 || f.message == c.icmpMessage
}

// named is bytes of a packet with the name that they have by now: a field of protocol x, or x is nil.
type named struct {
	expr  *Payload
	typ   valueType
	x     *protocol
	field int
}

// name finds the field that bytes of a packet are.
func (d *ruleDecoder) name(o *operand) named {
	x := d.found[o.layer]
	if x != nil && x != d.protocols.inet {
		x, before := d.stackedAt(x, o.layer, o.offset)
		for i := 1; i < len(x.fields); i++ {
			if f := &x.fields[i]; f.offset == o.offset-before && f.bits == o.typ.bits && d.ofMessage(f) {
				return d.fieldOf(x, i)
			}
		}
	}
	return d.unnamed(o.layer, o.offset, o.typ.bits)
}

func (d *ruleDecoder) fieldOf(x *protocol, i int) named {
	f := &x.fields[i]
	return named{x.payload(i), valueType{f.typ, f.bits, f.typ.hostOrder()}, x, i}
}

// unnamed is bytes of a packet without a name, but for ports: those stand at the same place whatever the transport.
func (d *ruleDecoder) unnamed(l protocolLayer, offset, bits int) named {
	if l == atTransport && bits == 16 && (offset == 0 || offset == 16) {
		return d.fieldOf(d.protocols.th, 1+offset/16)
	}
	return named{expr: &Payload{Protocol: l.word(), Offset: offset, Bits: bits}, typ: valueType{TypeHex, bits, false}}
}

// dependency is the comparison that says what stands at a layer, nil for none. What a field of a header itself says of
// the header, as the type of an ICMP message, is kept one further up.
func (c *context) dependency(l protocolLayer) (s *step, at protocolLayer) {
	if s := c.dependencies[l]; s != nil {
		return s, l
	}
	if l == atTransport {
		return c.dependencies[atInner], atInner
	}
	return nil, l
}

// hide takes a comparison out of the rule.
func (c *context) hide(at protocolLayer) {
	s := c.dependencies[at]
	s.gone = true
	if c.previous == s {
		c.previous = nil
	}
	c.dependencies[at] = nil
}

// implies hides the comparison that a field of a packet makes superfluous, if there is one (payload_dependency_kill).
func (d *ruleDecoder) implies(n named, l protocolLayer) {
	if n.x == nil {
		return
	}
	dep, at := d.dependency(l)
	if dep == nil || !d.superfluous(dep, n, l) {
		return
	}
	d.hide(at)
}

// superfluous tells whether a field says what a comparison before it said. nft hides some that say more than the
// field: those stay, so that nothing of the rule is lost.
func (d *ruleDecoder) superfluous(dep *step, n named, l protocolLayer) bool {
	p := d.protocols
	by := dep.compares
	if n.x == p.th {
		return false // ports without a protocol: "meta l4proto 250 th dport 22", which nft prints as "th dport 22"
	}
	if by.left.kind == opCT {
		return false // what conntrack says of the connection, not of the packet
	}
	isPayload := by.left.kind == opPayload
	if isPayload && by.x == p.ip6 && l == atTransport {
		return false // "ip6 nexthdr tcp": of the first header behind, where "tcp dport" looks behind all of them
	}
	if d.family.severalNetworks() && isPayload {
		// "ip protocol tcp" says that it is IPv4 too.
		if by.x == p.ip && l == atTransport {
			return false
		}
		if by.left.layer == l {
			if p.namesProtocol(n.x, n.field) {
				return false
			}
			if l == atLink {
				return d.superfluousLink(by)
			}
		}
	}
	if l == atTransport && isPayload && by.left.layer == atTransport && (by.x == p.icmp || by.x == p.icmp6) {
		message := n.x.fields[n.field].message
		return message != 0 && by.x == n.x && d.depends == message
	}
	return true
}

// superfluousLink: "vlan id" says "ether type 8021q" by itself, and nothing else.
func (d *ruleDecoder) superfluousLink(by *relation) bool {
	switch {
	case by.x == d.protocols.vlan:
		return false
	case by.x == d.protocols.ether && len(by.data) == 2:
		v, _ := number(by.data)
		return v == 0x8100
	}
	return true
}

// store keeps a comparison that says what stands at the layer above (payload_dependency_store).
func (d *ruleDecoder) store(s *step, l protocolLayer) {
	if r := s.compares; r.left.kind == opPayload && len(r.data) == 1 {
		switch r.x {
		case d.protocols.icmp:
			if d.depends = r.data[0]; d.depends == 0 { // an echo reply has the fields of a request
				d.depends = 8
			}
			if d.depends == 8 {
				return
			}
		case d.protocols.icmp6:
			d.depends = r.data[0]
			if d.depends == 128 || d.depends == 129 {
				return
			}
		}
	}
	d.dependencies[l+1] = s
}

// foundField takes in what a field that was compared for equality says about the protocol above
// (payload_expr_pctx_update).
func (d *ruleDecoder) foundField(l protocolLayer, value []byte) {
	v, ok := number(value)
	if !ok || v>>32 != 0 {
		return
	}
	base := d.found[l]
	if base == nil {
		return
	}
	x := d.protocols.above(base, uint32(v))
	if x == nil {
		switch {
		case base == d.protocols.icmp:
			if d.icmpMessage = byte(v); v == 0 {
				d.icmpMessage = 8
			}
		case base == d.protocols.icmp6:
			if d.icmpMessage = byte(v); v == 129 {
				d.icmpMessage = 128
			}
		}
		return
	}
	if x.layer == base.layer && l == atLink && len(d.stacked) < 16 {
		d.stacked = append(d.stacked, base)
	}
	d.found[x.layer] = x
}

// foundMeta takes in what a key of meta says (meta_expr_pctx_update).
func (d *ruleDecoder) foundMeta(key uint32, value []byte) {
	v, ok := number(value)
	if !ok || v>>32 != 0 {
		return
	}
	p := d.protocols
	lower, l := p.inet, atNetwork
	switch key {
	case nftMetaIifType:
		if d.family == Bridge {
			return
		}
		d.found[atLink] = p.unknown
		if v == 1 { // ARPHRD_ETHER
			d.found[atLink] = p.ether
		}
		return
	case nftMetaNFProto:
		if !d.family.severalNetworks() {
			return // the table's family says it
		}
		if d.family != Inet {
			lower = p.unknown
		}
	case nftMetaL4Proto:
		lower, l = p.service, atTransport
	case nftMetaProtocol:
		if d.family != Netdev && d.family != Bridge {
			return
		}
		lower = p.netdev
	default:
		return
	}
	if d.found[l] = p.above(lower, uint32(v)); d.found[l] == nil {
		d.found[l] = p.unknown
	}
}

// foundCT takes in what conntrack says about the protocols of the connection (ct_expr_pctx_update).
func (d *ruleDecoder) foundCT(key uint32, value []byte) {
	v, ok := number(value)
	if !ok || v>>32 != 0 {
		return
	}
	l := atLink
	if key == nftCTProtocol {
		l = atNetwork
	}
	if lower := d.found[l]; lower != nil {
		if x := d.protocols.above(lower, uint32(v)); x != nil {
			d.found[l+1] = x
		}
	}
}

// keyLayer is the layer at which a key of meta or ct names a protocol, noLayer for keys that name none.
func keyLayer(o *operand) protocolLayer {
	switch {
	case o.kind == opMeta && (o.key == nftMetaNFProto || o.key == nftMetaProtocol), o.kind == opCT && o.key == nftCTL3Protocol:
		return atLink
	case o.kind == opMeta && o.key == nftMetaL4Proto, o.kind == opCT && o.key == nftCTProtocol:
		return atNetwork
	}
	return noLayer
}

// foundKey is called for a key of meta or ct that was compared for equality (ct_meta_common_postprocess).
func (d *ruleDecoder) foundKey(s *step) {
	r := s.compares
	names := keyLayer(r.left)
	switch {
	case r.left.kind == opMeta:
		d.foundMeta(r.left.key, r.data)
	case names != noLayer:
		d.foundCT(r.left.key, r.data)
	}
	if r.left.kind == opCT && (r.left.key == nftCTSrc || r.left.key == nftCTDst) {
		// The address says of which family it is.
		if dep := d.dependencies[atNetwork]; dep != nil && d.saysNetwork(dep.compares, s) {
			d.hide(atNetwork)
		}
		return
	}
	isLink := r.left.kind == opMeta && r.left.key == nftMetaIifType
	if names == noLayer && !isLink {
		return
	}
	if dep := d.dependencies[names]; dep != nil && names != noLayer && d.superfluousKey(dep.compares, r) {
		d.hide(names)
	}
	d.dependencies[names+1] = s
}

// network is the network protocol that a comparison says a packet is of, empty for none.
func (r *relation) network() Family {
	v, ok := number(r.data)
	if !ok {
		return ""
	}
	ip, ip6 := uint64(0x0800), uint64(0x86dd) // ETH_P_*
	if r.left.kind == opMeta && r.left.key == nftMetaNFProto {
		ip, ip6 = nfprotoIPv4, nfprotoIPv6
	}
	switch v {
	case ip:
		return IP
	case ip6:
		return IP6
	}
	return ""
}

// saysNetwork tells whether an address of a connection says what a comparison said of the packet.
func (d *ruleDecoder) saysNetwork(by *relation, s *step) bool {
	m, ok := s.statement.(*Match)
	if !ok || by.left.kind == opCT {
		return false
	}
	ct, ok := m.Left.(*CT)
	return ok && ct.Family != "" && ct.Family == by.network()
}

// superfluousKey tells whether a key of meta says what a comparison before it said (meta_may_dependency_kill): ICMP is
// of one network protocol alone.
func (d *ruleDecoder) superfluousKey(by, r *relation) bool {
	if by.left.kind == opMeta && by.left.key == nftMetaIifType || by.left.kind == opCT || r.left.kind == opCT {
		return false
	}
	network := by.network()
	if network == "" {
		return false
	}
	if !d.family.severalNetworks() {
		return d.family == network
	}
	if r.left.key != nftMetaL4Proto {
		return false
	}
	switch l4, _ := number(r.data); l4 {
	case 1:
		return network == IP
	case 58:
		return network == IP6
	}
	return false
}
