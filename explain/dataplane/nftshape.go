package dataplane

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
)

// nftShapes writes down what the tables of nftables mode hold of a service port, as Shapes does for chains of iptables.
type nftShapes struct {
	tables    []familyTable
	fallbacks []fallbackTable
	addrs     map[netip.Addr]bool
	ports     map[protoPort]bool
}

type familyTable struct {
	family netfilter.Family
	table  *nft.Table
}

// newNFTShapes looks through rulesets once. general is told each rule that is none of a single Service's.
func newNFTShapes(rulesets []*nft.Ruleset, general func(*nft.Table, *nft.Rule)) nftShapes {
	s := nftShapes{addrs: make(map[netip.Addr]bool), ports: make(map[protoPort]bool)}
	for _, rs := range rulesets {
		for _, t := range rs.Tables {
			ours := OfKubeProxy(t) || OfFallback(t)
			for _, c := range t.Chains {
				if _, _, _, ok := ServicePortOfNFT(c.Name); ours && ok {
					continue
				}
				for _, r := range c.Rules {
					general(t, r)
				}
			}
		}
	}
	for _, rs := range rulesets {
		for _, t := range rs.Tables {
			if OfFallback(t) {
				s.fallbacks = append(s.fallbacks, s.newFallbackTable(t))
			}
		}
	}
	EachNFTTable(rulesets, func(_ *nft.Ruleset, t *nft.Table, family netfilter.Family) {
		s.tables = append(s.tables, familyTable{family, t})
		// Packets meet these after their translation too: a backend that is one of them is like no other.
		for _, name := range []string{NFTClusterIPs, NFTNoEndpointServices, NFTNoEndpointNodePorts} {
			set := t.Set(name)
			if set == nil {
				continue
			}
			for i := range set.Entries {
				e := &set.Entries[i]
				if name == NFTClusterIPs {
					if a, ok := netip.AddrFromSlice(e.Start); ok {
						s.addrs[a] = true
					}
				} else if addr, proto, port, ok := EntryKey(set, e); ok && addr.IsValid() {
					s.addrs[addr] = true
				} else if ok {
					s.ports[protoPort{proto, port}] = true
				}
			}
		}
	})
	return s
}

// nftWriter writes the shape of one service port.
type nftWriter struct {
	table  *nft.Table
	port   *intent.ServicePort
	out    []byte
	chains []string
	// backend is the endpoint that was named last, whose port may follow.
	backend int
	strange bool
	numbers *Numbering
}

// of appends the shape of a service port. ok is false for a port that is like no other.
func (s *nftShapes) of(out []byte, sp *intent.ServicePort, numbers *Numbering) (shape []byte, ok bool) {
	if len(s.tables)+len(s.fallbacks) == 0 {
		return out, true
	}
	proto := ProtocolNumber(sp.Protocol)
	for i := range sp.Endpoints {
		if e := &sp.Endpoints[i]; s.addrs[e.Addr] || s.ports[protoPort{proto, uint16(e.Port)}] {
			return out, false
		}
	}
	for _, ft := range s.tables {
		if int(ft.family) != sp.Family {
			continue
		}
		w := nftWriter{table: ft.table, port: sp, out: append(out, '\n', 'N'), numbers: numbers}
		nodePort := false
		for _, f := range sp.Frontends {
			if f.Kind == intent.NodePort && nodePort {
				continue
			}
			nodePort = nodePort || f.Kind == intent.NodePort
			w.frontend(f, proto)
		}
		for _, i := range numbers.All() {
			w.hairpin(i, proto)
		}
		if w.strange {
			return w.out, false
		}
		out = w.out
	}
	for i := range s.fallbacks {
		f := &s.fallbacks[i]
		if int(f.family) != sp.Family {
			continue
		}
		w := nftWriter{table: f.table, port: sp, out: append(out, '\n', 'S'), numbers: numbers}
		w.fallback(f, sp, proto)
		if w.strange {
			return w.out, false
		}
		out = w.out
	}
	return out, true
}

// frontend writes the entries of a frontend and the chains that they lead to.
func (w *nftWriter) frontend(f intent.Frontend, proto uint8) {
	port := []byte{byte(f.Port >> 8), byte(f.Port)}
	address := f.Addr.AsSlice()
	for _, l := range []struct {
		set   string
		parts [][]byte
	}{
		{NFTClusterIPs, [][]byte{address}},
		{NFTFirewallIPs, [][]byte{address, {proto}, port}},
		{NFTServiceIPs, [][]byte{address, {proto}, port}},
		{NFTServiceNodePorts, [][]byte{{proto}, port}},
		{NFTNoEndpointServices, [][]byte{address, {proto}, port}},
		{NFTNoEndpointNodePorts, [][]byte{{proto}, port}},
	} {
		w.out = append(w.out, '|')
		set := w.table.Set(l.set)
		if set == nil {
			w.out = append(w.out, '-')
			continue
		}
		e := set.Find(join(l.parts))
		switch {
		case e == nil:
		case e.Verdict == nil:
			w.out = append(w.out, '+')
		default:
			w.out = append(append(w.out, e.Verdict.Kind...), ' ')
			w.word(e.Verdict.Chain, f)
		}
	}
}

// hairpin writes whether connections of an endpoint to itself are masqueraded by the set of them.
func (w *nftWriter) hairpin(i int, proto uint8) {
	set := w.table.Set(NFTHairpin)
	if set == nil {
		return
	}
	e := &w.port.Endpoints[i]
	a := e.Addr.AsSlice()
	w.out = append(w.out, 'h', '-')
	if set.Find(join([][]byte{a, a, {proto}, {byte(e.Port >> 8), byte(e.Port)}})) != nil {
		w.out[len(w.out)-1] = '+'
	}
}

// chain writes a chain of the port, once.
func (w *nftWriter) chain(name string, f intent.Frontend) {
	c := w.table.Chain(name)
	if c == nil {
		w.out = append(w.out, " missing"...)
		return
	}
	w.out = append(w.out, '{')
	for _, r := range c.Rules {
		w.out = append(w.out, '\n')
		for word := range strings.SplitSeq(r.Text, " ") {
			w.word(word, f)
		}
	}
	w.out = append(w.out, '}')
}

// word writes one word of a rule: a name or address as what it is to the port, others as they are.
func (w *nftWriter) word(word string, f intent.Frontend) {
	w.out = append(w.out, ' ')
	bare := strings.TrimSuffix(word, ",")
	if key, _, _, ok := ServicePortOfNFT(strings.TrimPrefix(bare, "@")); ok {
		if key != w.port.Key() {
			w.strange = true
			return
		}
		n, seen := w.number(bare)
		w.out = append(append(w.out, '@'), strconv.Itoa(n)...)
		switch {
		case seen:
		case strings.HasPrefix(bare, "@"):
			if set := w.table.Set(bare[1:]); set != nil {
				w.out = append(w.out, set.Timeout.String()...)
			}
		default:
			w.chain(bare, f)
		}
		return
	}
	switch {
	case bare == f.Addr.String():
		w.out = append(w.out, 'F')
		return
	case w.backend > 0 && bare == strconv.Itoa(w.port.Endpoints[w.backend-1].Port):
		w.out = append(w.out, 'p')
		return
	case bare == ".":
		w.out = append(w.out, '.')
		return
	}
	w.backend = 0
	for i := range w.port.Endpoints {
		e := &w.port.Endpoints[i]
		switch bare {
		case e.String():
			w.out = append(append(w.out, 'E'), strconv.Itoa(w.numbers.Number(i))...)
			return
		case e.Addr.String():
			w.backend = i + 1
			w.out = append(append(w.out, 'E'), strconv.Itoa(w.numbers.Number(i))...)
			return
		}
	}
	w.out = append(w.out, word...)
}

// number numbers names in the order in which they are met.
func (w *nftWriter) number(name string) (n int, seen bool) {
	for i, c := range w.chains {
		if c == name {
			return i, true
		}
	}
	w.chains = append(w.chains, name)
	return len(w.chains) - 1, false
}
