package check

import (
	"bytes"
	"net/netip"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// exemptsAnswersNFT is the rule of nftables that takes the answers of a backend out of connection tracking, as evidence,
// with its text.
func (p *Port) exemptsAnswersNFT(b *report.Backend) (e report.Evidence, rule string, found bool) {
	a, err := netip.ParseAddr(b.Address)
	if err != nil {
		return report.Evidence{}, "", false
	}
	answer := map[string][]byte{
		"saddr":   a.AsSlice(),
		"l4proto": {dataplane.ProtocolNumber(p.Protocol)},
		"sport":   {byte(b.Port >> 8), byte(b.Port)},
	}
	family := nft.IP
	if p.Family == 6 {
		family = nft.IP6
	}
	for _, rs := range p.On.NFT {
		for _, t := range rs.Tables {
			if t.Family != family && t.Family != nft.Inet || t.Dormant {
				continue
			}
			for _, c := range t.Chains {
				for _, r := range c.Rules {
					if exemptsNFT(r, answer) {
						return nftEvidence(rs, t, c, r), r.Text, true
					}
				}
			}
		}
	}
	return report.Evidence{}, "", false
}

// exemptsNFT tells whether a rule takes packets with such fields out of connection tracking. What it tests beside them
// may hold.
func exemptsNFT(r *nft.Rule, fields map[string][]byte) bool {
	for _, s := range r.Statements {
		switch s := s.(type) {
		case nft.NoTrack:
			return true
		case *nft.Match:
			if v := fields[nftField(s.Left)]; v != nil && (s.Op == "==" || s.Op == "!=") {
				if in, known := nftHolds(s.Right, v); known && in != (s.Op == "==") {
					return false
				}
			}
		}
	}
	return false
}

// nftField is the field of an answer that an expression is, as far as exemptsNFT knows them.
func nftField(e nft.Expr) string {
	switch e := e.(type) {
	case *nft.Payload:
		switch {
		case e.Field == "saddr" && (e.Protocol == "ip" || e.Protocol == "ip6"):
			return "saddr"
		case e.Field == "sport":
			return "sport"
		case e.Field == "protocol" && e.Protocol == "ip", e.Field == "nexthdr" && e.Protocol == "ip6":
			return "l4proto"
		}
	case *nft.Meta:
		if e.Key == "l4proto" {
			return "l4proto"
		}
	}
	return ""
}

// nftHolds tells whether constants hold a value. known is false for what is none.
func nftHolds(e nft.Expr, value []byte) (in, known bool) {
	switch e := e.(type) {
	case *nft.Const:
		return bytes.Equal(e.Data, value), len(e.Data) == len(value)
	case *nft.Range:
		return bytes.Compare(e.Lo.Data, value) <= 0 && bytes.Compare(value, e.Hi.Data) <= 0, true
	case *nft.Prefix:
		a, ok := netip.AddrFromSlice(value)
		start, valid := netip.AddrFromSlice(e.Value.Data)
		if !ok || !valid || e.Bits > start.BitLen() {
			return false, false
		}
		return netip.PrefixFrom(start, e.Bits).Contains(a), true
	case nft.SetLit:
		return e.Find(value) != nil, true
	}
	return false, false
}
