//go:build linux

package oracle

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain/netfilter"
)

func lines(text string) iter.Seq[string] {
	return strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n")
}

// probe returns a generator with the kinds that both backends of this machine can load, and the names of those that
// they cannot, with the reason. Each kind is tried on its own, in each family, backend and place it allows.
func (l *lab) probe(t *testing.T) (*generator, []string) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	g := &generator{}
	var lacking []string
	for _, m := range matchKinds {
		if why := l.tryKind(r, m.family, m.hooks, m.tables, m.protos, func(s *slot) string { return "-m " + m.name + " " + m.args(s) }); why != "" {
			lacking = append(lacking, "match "+m.name+": "+why)
			continue
		}
		g.matches = append(g.matches, m)
	}
	for _, k := range targetKinds {
		if why := l.tryKind(r, k.family, k.hooks, k.tables, k.protos, func(s *slot) string { return k.tests + "-j " + k.name + " " + k.args(s) }); why != "" {
			lacking = append(lacking, "target "+k.name+": "+why)
			continue
		}
		g.targets = append(g.targets, k)
	}
	return g, slices.Compact(lacking)
}

// tryKind loads several draws of a kind and says why that does not work, empty when it does.
func (l *lab) tryKind(r *rand.Rand, fam netfilter.Family, hooks hookSet, tables string, protos []uint8, draw func(*slot) string) string {
	for _, f := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if fam != 0 && fam != f {
			continue
		}
		for _, backend := range []netfilter.Backend{netfilter.Legacy, netfilter.NFT} {
			rs := empty(f, backend)
			tried := false
			for _, t := range rs.tables {
				for _, c := range t.chains {
					if !inTable(tables, t.name) || hooks != 0 && !c.hooks.within(hooks) {
						continue
					}
					for range 4 {
						s := &slot{r: r, fam: f, table: t.name, hooks: c.hooks, pool: pools[f]}
						proto := ""
						if protos != nil {
							s.proto = pick(r, protos)
							proto = fmt.Sprintf("-p %d ", s.proto)
						}
						c.rules = append(c.rules, proto+draw(s))
						tried = true
					}
				}
			}
			if !tried {
				continue
			}
			if _, err := l.node.run(rs.text(false), program(f, backend, "restore")); err != nil {
				return fmt.Sprintf("IPv%d %s: %v", f, backend, err)
			}
		}
	}
	return ""
}
