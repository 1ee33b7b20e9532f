package nft

import "strconv"

// NFTA_INNER_*.
const (
	nftaInnerType = 2
	nftaInnerExpr = 5
)

// inner reads what stands in a packet within a tunnel (nft 1.0.8 and later).
func (d *ruleDecoder) inner(a *attributes) {
	tunnels := map[uint32]string{1: "vxlan", 2: "geneve"} // NFT_INNER_VXLAN, NFT_INNER_GENEVE; 0 for those of IP
	e := parseAttributes(d.order, a[nftaInnerExpr])
	b := parseAttributes(d.order, e[nftaExprData])
	name := tunnels[a.u32(nftaInnerType)]
	if name == "" {
		name = "inner"
	}
	var o *operand
	var dreg uint32
	switch e.text(nftaExprName) {
	case "payload":
		l, size := protocolLayer(b.u32(nftaPayloadBase))+atLink, int(b.u32(nftaPayloadLen))
		dreg = b.u32(nftaPayloadDreg)
		if l >= atLink && l < layers && size > 0 && size <= 64 && b.u32(nftaPayloadOffset) < 1<<16 {
			o = &operand{typ: valueType{TypeHex, 8 * size, false}}
			place := l.word() + "," + decimalText(8*b.u32(nftaPayloadOffset)) + "," + strconv.Itoa(8*size)
			o.expr = &Other{name + " " + place, o.typ.field()}
		}
	case "meta":
		dreg = b.u32(nftaMetaDreg)
		if m := metaOperand(b.u32(nftaMetaKey)); m != nil {
			o = &operand{typ: m.typ, expr: &Other{name + " meta " + m.expr.(*Meta).Key, m.typ.field()}}
		}
	}
	d.load(dreg, o)
}
