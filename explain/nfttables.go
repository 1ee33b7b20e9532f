package explain

import (
	"slices"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// nftParsers are the captures of nftables rules, by format; the first says most: of a table that several captures of
// one node hold, the one of the first format is taken.
var nftParsers = []struct {
	format snapshot.Format
	parse  func(data []byte, file string) (*nft.Ruleset, error)
}{
	{snapshot.NFTNetlink, nft.ParseNetlink},
	{snapshot.NFTText, func(data []byte, file string) (*nft.Ruleset, error) { return nft.ParseText(string(data), file) }},
	{snapshot.NFTJSON, nft.ParseJSON},
}

// nftRank is the place of a format among nftParsers, -1 for others.
func nftRank(f snapshot.Format) int {
	for i := range nftParsers {
		if nftParsers[i].format == f {
			return i
		}
	}
	return -1
}

// readNFT reads a capture of nftables rules.
func (r *reader) readNFT(e *snapshot.Evidence, src *report.Source, fail func(snapshot.Status, string, ...any)) *nft.Ruleset {
	rs, err := nftParsers[nftRank(e.Format)].parse(e.Data, e.File)
	if err != nil {
		fail(snapshot.Failed, "%v", err)
		return nil
	}
	if n := len(rs.Problems); n > 0 {
		p := rs.Problems[0]
		what := p.Why
		if p.Line > 0 {
			fail(snapshot.Status(src.Status), "line %d: %s (%d in all)", p.Line, what, n)
		} else {
			fail(snapshot.Status(src.Status), "%s (%d in all)", what, n)
		}
	}
	return rs
}

// nftCapture is one capture with the rank of its format.
type nftCapture struct {
	rank int
	*nft.Ruleset
}

// withoutRepeats leaves each table in the capture that says most of it.
func withoutRepeats(captures []nftCapture) []*nft.Ruleset {
	slices.SortStableFunc(captures, func(a, b nftCapture) int {
		worse := func(c nftCapture) int {
			if len(c.Problems) > 0 {
				return 1
			}
			return 0
		}
		if d := worse(a) - worse(b); d != 0 {
			return d
		}
		return a.rank - b.rank
	})
	type id struct {
		family nft.Family
		name   string
	}
	seen := make(map[id]bool)
	var out []*nft.Ruleset
	for _, c := range captures {
		c.Tables = slices.DeleteFunc(slices.Clone(c.Tables), func(t *nft.Table) bool { return seen[id{t.Family, t.Name}] })
		for _, t := range c.Tables {
			seen[id{t.Family, t.Name}] = true
		}
		out = append(out, c.Ruleset)
	}
	return out
}

// nftTables calls f for each table of a family of packets.
func (m *model) nftTables(family netfilter.Family, f func(*nft.Ruleset, *nft.Table)) {
	for _, rs := range m.nft {
		for _, t := range rs.Tables {
			if t.Family == nft.Inet || t.Family == nft.IP && family == netfilter.IPv4 || t.Family == nft.IP6 && family == netfilter.IPv6 {
				f(rs, t)
			}
		}
	}
}

// knowNFT says which tables are not evaluated: packets meet those of bridges and of devices outside of the IP layer.
func (m *model) knowNFT() {
	for _, rs := range m.nft {
		for _, t := range rs.Tables {
			if len(t.BaseChains()) > 0 && t.Family != nft.IP && t.Family != nft.IP6 && t.Family != nft.Inet {
				m.foreignTables = append(m.foreignTables, t.String())
			}
		}
	}
}
