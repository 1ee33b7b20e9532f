package netfilter

import (
	"net/netip"

	"github.com/svcnet/svcnet/explain/nft"
)

// maxCut bounds the entries of one set that are told apart.
const maxCut = 4096

// NFTRule cuts where a rule of nftables tells addresses and ports apart, as Rule does for iptables. What the sets of a
// table that leaveOut names tell apart is left to whoever knows their entries.
func (d *Division) NFTRule(t *nft.Table, r *nft.Rule, leaveOut func(set string) bool) bool {
	c := nftCuts{division: d, table: t, leaveOut: leaveOut}
	for _, s := range r.Statements {
		switch s := s.(type) {
		case *nft.Match:
			c.compare(s.Left, s.Right)
		case *nft.VerdictMap:
			c.compare(s.Key, s.Map)
		case *nft.NAT:
			c.inside(s.Addr)
			c.inside(s.Port)
		case *nft.Assign:
			c.inside(s.Value)
		case *nft.XT:
			if s.Name != "comment" {
				return false // what it tests is not decoded
			}
		case *nft.Unreadable:
			return false
		}
		if c.failed {
			return false
		}
	}
	return true
}

// nftCuts is one rule under way.
type nftCuts struct {
	division *Division
	table    *nft.Table
	leaveOut func(set string) bool
	failed   bool
}

// inside looks for maps in what is translated to or set.
func (c *nftCuts) inside(e nft.Expr) {
	switch e := e.(type) {
	case *nft.MapExpr:
		c.compare(e.Key, e.Map)
	case *nft.Binary:
		c.inside(e.Left)
		c.inside(e.Right)
	}
}

// compare cuts where a value is compared with constants.
func (c *nftCuts) compare(left, right nft.Expr) {
	parts := []nft.Expr{left}
	if concat, ok := left.(*nft.Concat); ok {
		parts = concat.Parts
	}
	tells := false
	for _, p := range parts {
		tells = tells || c.tells(p)
	}
	if !tells {
		return
	}
	switch right := right.(type) {
	case *nft.Const:
		c.cut(right.Data, right.Data)
	case *nft.Range:
		c.cut(right.Lo.Data, right.Hi.Data)
	case *nft.Prefix:
		lo, hi := prefixEnds(right)
		c.cut(lo, hi)
	case *nft.Concat:
		for i, p := range right.Parts {
			if k, ok := p.(*nft.Const); ok && i < len(parts) {
				c.cut(k.Data, k.Data)
			} else {
				c.failed = true
			}
		}
	case nft.SetRef:
		if c.leaveOut(right.Name) || c.table.Updates(right.Name) {
			return
		}
		c.set(parts, c.table.Set(right.Name))
	case nft.SetLit:
		c.set(parts, right.Set)
	default:
		c.failed = true
	}
}

// tells tells whether an expression has a value that an address or port decides.
func (c *nftCuts) tells(e nft.Expr) bool {
	switch e := e.(type) {
	case *nft.Payload:
		switch e.Field {
		case "saddr", "daddr", "sport", "dport":
			return e.Protocol != "ether"
		}
		return e.Protocol == "@nh" || e.Protocol == "@th"
	case *nft.CT:
		switch e.Key {
		case "saddr", "daddr", "proto-src", "proto-dst":
			return true
		}
	case *nft.Binary:
		if c.tells(e.Left) || c.tells(e.Right) {
			c.failed = true // a mask that is no prefix
		}
	case *nft.MapExpr:
		c.compare(e.Key, e.Map)
	case *nft.Hash:
		// Which client gets where differs by client and not by Service.
	}
	return false
}

func (c *nftCuts) set(parts []nft.Expr, s *nft.Set) {
	if s == nil || len(s.Entries) > maxCut || len(s.Key) != len(parts) {
		c.failed = true
		return
	}
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.CatchAll {
			continue
		}
		end := e.End
		if end == nil {
			end = e.Start
		}
		at := 0
		for j, f := range s.Key {
			if at+f.Size > len(e.Start) || at+f.Size > len(end) {
				c.failed = true
				return
			}
			if c.tells(parts[j]) {
				c.cut(e.Start[at:at+f.Size], end[at:at+f.Size])
			}
			at += f.Width()
		}
	}
}

func (c *nftCuts) cut(lo, hi []byte) {
	switch len(lo) {
	case 2:
		c.division.Ports(uint16(number(lo)), uint16(number(hi)))
	case 4, 16:
		first, last := addrOf(lo), addrOf(hi)
		if p := netip.PrefixFrom(first, first.BitLen()); first == last {
			c.division.tested(p)
		} else {
			c.division.testedRange(first, last)
		}
	default:
		c.failed = true
	}
}
