package table

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/nft"
)

// Element is one element of a set or map, as nft.Entry lays out keys and data. Value is the data of a map, or of one of
// verdicts the chain that it goes to.
type Element struct {
	Set        Set
	Key, Value string
}

func compareElements(a, b Element) int {
	switch {
	case a.Set != b.Set:
		if a.Set.Kind != b.Set.Kind {
			return int(a.Set.Kind) - int(b.Set.Kind)
		}
		return a.Set.Size - b.Set.Size
	default:
		return strings.Compare(a.Key, b.Key)
	}
}

// Rendered is what the tables hold for one service port.
type Rendered struct {
	// Elements are sorted by set and key.
	Elements []Element
	// Chains and Sets are those of a port with affinity or source ranges, those first that others lead to.
	Chains []*nft.Chain
	Sets   []*nft.Set
	// any and here are the backends in the order of their numbers.
	any, here []netip.AddrPort
}

// renderer makes what one family's table holds for one service port.
type renderer struct {
	t *nft.Table
	f *Facts
	p *Port
	Rendered
}

// render is what a port asks for. Of its frontends only those that it holds count; before is what the table has for it,
// so that backends keep their numbers, or nil.
func render(t *nft.Table, f *Facts, p *Port, holds func(Frontend) bool, before *Rendered) *Rendered {
	r := &renderer{t: t, f: f, p: p}
	var wasAny, wasHere []netip.AddrPort
	if before != nil {
		wasAny, wasHere = before.any, before.here
	}
	r.any, r.here = arrange(wasAny, p.Any), arrange(wasHere, p.Here)
	n := len(p.Hairpins) + len(p.Any) + len(p.Here) + 4
	r.Elements = make([]Element, 0, n)
	proto := p.protocol()
	if c := (Frontend{p.ClusterIP, proto, p.Port}); p.ClusterIP.IsValid() && holds(c) {
		r.clusterIP(c)
	}
	for _, x := range p.External {
		if c := (Frontend{x.Addr, proto, p.Port}); holds(c) {
			r.external(c, x.LoadBalancer)
		}
	}
	if c := (Frontend{Protocol: proto, Port: p.NodePort}); p.NodePort != 0 && holds(c) {
		r.nodePort(c)
	}
	if len(r.Elements) > 0 {
		for _, h := range p.Hairpins {
			a := h.Addr().AsSlice()
			key := append(slices.Concat(a, a), proto, 0, 0, 0, byte(h.Port()>>8), byte(h.Port()), 0, 0)
			r.add(Set{Kind: hairpins}, key, "")
		}
	}
	r.chains()
	slices.SortFunc(r.Elements, compareElements)
	return &r.Rendered
}

func (r *renderer) add(s Set, key []byte, value string) {
	r.Elements = append(r.Elements, Element{s, string(key), value})
}

// clusterIP is the address within the cluster.
func (r *renderer) clusterIP(c Frontend) {
	key := c.key()
	r.add(Set{Kind: clusterIPs}, c.Addr.AsSlice(), "")
	r.add(Set{Kind: serviceIPs}, key, "")
	kind, backends, chain := anySize, r.any, dataplane.NFTServiceName
	if r.p.InternalLocal {
		kind, backends, chain = hereSize, r.here, dataplane.NFTLocalName
	}
	switch {
	case len(backends) == 0:
		r.refuse(c, !r.p.Usable)
	case r.p.Affinity > 0:
		r.add(Set{Kind: affinityIPs}, key, chain(r.p.Key, r.p.Protocol))
	default:
		r.choose(kind, key, backends)
	}
}

// external is an external address or that of a load balancer.
func (r *renderer) external(c Frontend, loadBalancer bool) {
	key := c.key()
	r.add(Set{Kind: serviceIPs}, key, "")
	if loadBalancer && len(r.p.Sources) > 0 {
		r.add(Set{Kind: firewallIPs}, key, dataplane.NFTFirewallName(r.p.Key, r.p.Protocol))
	}
	if !r.p.Usable {
		r.refuse(c, true)
		return
	}
	if r.p.ExternalLocal && len(r.here) == 0 {
		r.refuse(c, false)
	}
	if r.p.Affinity > 0 {
		r.add(Set{Kind: affinityIPs}, key, dataplane.NFTExternalName(r.p.Key, r.p.Protocol))
		return
	}
	r.choose(anySize, key, r.any)
	if !r.p.ExternalLocal {
		r.add(Set{Kind: externalIPs}, key, "")
		return
	}
	r.add(Set{Kind: externalLocalIPs}, key, "")
	r.choose(hereSize, key, r.here)
}

// nodePort is a port on the node's own addresses.
func (r *renderer) nodePort(c Frontend) {
	key := c.key()
	r.add(Set{Kind: serviceNodePorts}, key, "")
	if !r.p.Usable {
		r.refuse(c, true)
		return
	}
	if r.p.ExternalLocal && len(r.here) == 0 {
		r.refuse(c, false)
	}
	if r.p.Affinity > 0 {
		r.add(Set{Kind: affinityNodePorts}, key, dataplane.NFTExternalName(r.p.Key, r.p.Protocol))
		return
	}
	r.choose(anyNodePortSize, key, r.any)
	if r.p.ExternalLocal {
		r.add(Set{Kind: localNodePorts}, key, "")
		r.choose(hereNodePortSize, key, r.here)
	}
}

// choose has one of some backends drawn.
func (r *renderer) choose(kind SetKind, key []byte, backends []netip.AddrPort) {
	if len(backends) == 0 {
		return
	}
	r.add(Set{kind, len(backends)}, key, "")
	for i, b := range backends {
		r.add(Set{Kind: kind.backends()}, binary.BigEndian.AppendUint32(key[:len(key):len(key)], uint32(i)), data(b))
	}
}

// refuse keeps connections from being translated by anybody, and has them refused: with an answer where there is no
// backend anywhere, without one where there is none here.
func (r *renderer) refuse(c Frontend, answer bool) {
	atIP, atNodePort := refusedIPs, refusedNodePorts
	if !answer {
		atIP, atNodePort = droppedIPs, droppedNodePorts
	}
	if c.Addr.IsValid() {
		r.add(Set{Kind: atIP}, c.key(), "")
		r.add(Set{Kind: untranslated}, c.key(), data(netip.AddrPortFrom(c.Addr, c.Port)))
		return
	}
	r.add(Set{Kind: atNodePort}, c.key(), "")
	for _, a := range r.f.NodePortIPs {
		if familyOf(a) != r.t.Family {
			continue
		}
		c.Addr = a
		r.add(Set{Kind: untranslated}, c.key(), data(netip.AddrPortFrom(a, c.Port)))
	}
}

// chains are those of affinity and source ranges, as far as elements lead to them.
func (r *renderer) chains() {
	p := r.p
	wanted := make(map[string]bool)
	for i := range r.Elements {
		switch r.Elements[i].Set.Kind {
		case affinityIPs, affinityNodePorts, firewallIPs:
			wanted[r.Elements[i].Value] = true
		}
	}
	if len(wanted) == 0 {
		return
	}
	if name := dataplane.NFTFirewallName(p.Key, p.Protocol); wanted[name] {
		r.firewall(name)
	}
	if p.Affinity == 0 {
		return
	}
	service, local, external := dataplane.NFTServiceName(p.Key, p.Protocol), dataplane.NFTLocalName(p.Key, p.Protocol), dataplane.NFTExternalName(p.Key, p.Protocol)
	all := wanted[service] || wanted[external]
	here := wanted[local] || wanted[external] && p.ExternalLocal
	r.endpointChains(all, here)
	if all && len(p.Any) > 0 {
		r.affinityChain(service, p.Any)
	}
	if here && len(p.Here) > 0 {
		r.affinityChain(local, p.Here)
	}
	if wanted[external] {
		r.externalChain(external, service, local)
	}
}

// firewall drops what comes from nowhere that it may come from.
func (r *renderer) firewall(name string) {
	c := &nft.Chain{Name: name}
	from := &nft.Match{Left: &nft.Payload{Protocol: string(r.t.Family), Field: "saddr"}, Op: "!="}
	ranges := disjoint(r.p.Sources)
	if len(ranges) == 1 {
		if p, ok := nft.PrefixOf(ranges[0].Start, ranges[0].End); ok {
			from.Right = prefix(p)
		}
	}
	if from.Right == nil {
		from.Right = nft.SetLit{Set: &nft.Set{
			Key: []nft.Field{{Type: addressType(r.t.Family), Size: addressType(r.t.Family).Size()}}, Interval: true, Entries: ranges,
		}}
	}
	addRule(r.t, c, from, &nft.Verdict{Kind: nft.Drop})
	r.Chains = append(r.Chains, c)
}

// disjoint are ranges without what others hold already, sorted.
func disjoint(in []netip.Prefix) []nft.Entry {
	in = slices.Clone(in)
	slices.SortFunc(in, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	var out []nft.Entry
	for _, p := range in {
		first, last := p.Masked().Addr().AsSlice(), lastOf(p)
		if n := len(out); n > 0 {
			end := out[n-1].End
			if end == nil {
				end = out[n-1].Start
			}
			if bytes.Compare(last, end) <= 0 {
				continue
			}
			if after, ok := plusOne(end); !ok || bytes.Equal(after, first) {
				out[n-1].End = last // one behind the other: one range
				continue
			}
		}
		e := nft.Entry{Start: first}
		if !bytes.Equal(first, last) {
			e.End = last
		}
		out = append(out, e)
	}
	return out
}

func lastOf(p netip.Prefix) []byte {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return b
}

// plusOne is the next address; ok is false behind the last one.
func plusOne(a []byte) (next []byte, ok bool) {
	next = slices.Clone(a)
	for i := len(next) - 1; i >= 0; i-- {
		if next[i]++; next[i] != 0 {
			return next, true
		}
	}
	return nil, false
}

// endpointChains remember the client and translate, one for each backend.
func (r *renderer) endpointChains(all, here bool) {
	var backends []netip.AddrPort
	if all {
		backends = append(backends, r.p.Any...)
	}
	if here {
		backends = append(backends, r.p.Here...)
	}
	slices.SortFunc(backends, netip.AddrPort.Compare)
	for _, b := range slices.Compact(backends) {
		set := &nft.Set{
			Name:    dataplane.NFTAffinityName(r.p.Key, r.p.Protocol, b.String()),
			Key:     []nft.Field{{Type: addressType(r.t.Family), Size: addressType(r.t.Family).Size()}},
			Dynamic: true, HasTimeout: true, Timeout: r.p.Affinity, Size: 65535,
		}
		r.Sets = append(r.Sets, set)
		c := &nft.Chain{Name: dataplane.NFTEndpointName(r.p.Key, r.p.Protocol, b.String())}
		addRule(r.t, c, &nft.SetUpdate{Op: "update", Set: set.Name, Key: r.source()})
		addRule(r.t, c, &nft.Match{Left: &nft.Meta{Key: "l4proto"}, Op: "==", Right: &nft.Const{Type: nft.TypeProto, Data: []byte{r.p.protocol()}}},
			&nft.NAT{
				Kind: nft.DNAT,
				Addr: &nft.Const{Type: addressType(r.t.Family), Data: b.Addr().AsSlice()},
				Port: &nft.Const{Type: nft.TypeService, Data: []byte{byte(b.Port() >> 8), byte(b.Port())}},
			})
		r.Chains = append(r.Chains, c)
	}
}

func (r *renderer) source() nft.Expr {
	return &nft.Payload{Protocol: string(r.t.Family), Field: "saddr"}
}

// affinityChain leads clients to the backend that they had, and others to any.
func (r *renderer) affinityChain(name string, backends []netip.AddrPort) {
	c := &nft.Chain{Name: name}
	backends = slices.Clone(backends)
	slices.SortFunc(backends, netip.AddrPort.Compare)
	choice := &nft.Set{Key: []nft.Field{{Type: nft.TypeInteger, Size: 4}}, IsMap: true}
	for i, b := range backends {
		to := &nft.Verdict{Kind: nft.Goto, Chain: dataplane.NFTEndpointName(r.p.Key, r.p.Protocol, b.String())}
		addRule(r.t, c, &nft.Match{Left: r.source(), Op: "==", Right: nft.SetRef{Name: dataplane.NFTAffinityName(r.p.Key, r.p.Protocol, b.String())}}, to)
		choice.Entries = append(choice.Entries, nft.Entry{Start: binary.BigEndian.AppendUint32(nil, uint32(i)), Verdict: to})
	}
	addRule(r.t, c, &nft.VerdictMap{Key: &nft.Numgen{Mode: "random", Mod: uint32(len(backends))}, Map: nft.SetLit{Set: choice}})
	r.Chains = append(r.Chains, c)
}

// externalChain is the policy for clients from outside, of a port with affinity.
func (r *renderer) externalChain(name, service, local string) {
	c := &nft.Chain{Name: name}
	l := layout{r.t, r.f}
	if !r.p.ExternalLocal {
		addRule(r.t, c, l.mark())
		addRule(r.t, c, l.goTo(service))
		r.Chains = append(r.Chains, c)
		return
	}
	if len(r.p.Any) > 0 {
		for _, s := range localPolicy(r.t, r.f, l.goTo(service)) {
			addRule(r.t, c, s...)
		}
	}
	if len(r.p.Here) > 0 {
		addRule(r.t, c, l.goTo(local))
	} else {
		addRule(r.t, c, l.stay())
	}
	r.Chains = append(r.Chains, c)
}

// arrange numbers backends: those that have a number keep it as far as there are so many, others take what is free.
func arrange(before, want []netip.AddrPort) []netip.AddrPort {
	if len(want) == 0 {
		return nil
	}
	out := make([]netip.AddrPort, len(want))
	at := make(map[netip.AddrPort]int, len(before))
	for i, b := range before {
		at[b] = i
	}
	var rest []netip.AddrPort
	for _, b := range want {
		if i, ok := at[b]; ok && i < len(out) {
			out[i] = b
		} else {
			rest = append(rest, b)
		}
	}
	for i := range out {
		if !out[i].IsValid() {
			out[i], rest = rest[0], rest[1:]
		}
	}
	return out
}
