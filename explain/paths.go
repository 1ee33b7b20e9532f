package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/hns"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// cell is one cell of the grid: a client and the frontend that it dials.
type cell struct {
	client
	frontend report.Frontend
	dst      netip.AddrPort
	proto    uint8
	// srcPort is the client's port, 0 when not known.
	srcPort uint16
	mark    uint32
	// port is the service port behind the frontend, nil when no object knows it; at is the frontend in it.
	port *intent.ServicePort
	at   intent.Frontend
}

// fate is an ending, read as an outcome of the contract.
type fate struct {
	netfilter.Ending
	result report.Result
	// backend is where translation led; not valid when there was none.
	backend netip.AddrPort
	// by is the chain or entry that chose it.
	by string
	// notes are what this outcome takes for granted beyond the ending's own.
	notes []string
	// within is true when the packet never left the client's pod; inside is then who took it there. own is true
	// when the pod's own rules sent it somewhere else than where it was dialled.
	within, own bool
	inside      *report.Inside
	// held is true when kube-proxy's own process took the connection: backends see the node as their client.
	held bool
	// balancer is the load balancer of HNS that took the packet, nil elsewhere than on Windows.
	balancer *hns.LoadBalancer
}

// walk follows the cell's packet to all its fates.
func (m *model) walk(c *cell, tested func(netip.Prefix)) []fate {
	p := netfilter.Packet{
		Family: netfilter.FamilyOf(c.dst.Addr()), Src: c.Addr, Dst: c.dst.Addr(), Proto: c.proto, DstPort: c.dst.Port(),
		SrcPort: c.srcPort, HasSrcPort: c.srcPort != 0, In: c.in, InAssumed: c.inAssumed, Mark: c.mark,
	}
	if m.onWindows() {
		return m.balance(c, p)
	}
	if why := m.unread(p.Family); why != "" {
		e := netfilter.Ending{Verdict: netfilter.UnknownVerdict, P: 1, Packet: p, DstBy: -1, SrcBy: -1, Why: why}
		return []fate{m.fate(c, e)}
	}
	w := m.walker
	w.OnSource = tested
	in := m.insideAt(c.Addr)
	if in == nil || !c.exact || c.entry != netfilter.FromInterface {
		endings := w.Walk(c.entry, p)
		out := make([]fate, len(endings))
		for i, e := range endings {
			out[i] = m.fate(c, e)
		}
		return out
	}
	var out []fate
	left, ended := m.leave(in, p)
	for _, l := range left {
		q := p
		q.Dst, q.DstPort = l.Packet.Dst, l.Packet.DstPort
		if l.Packet.Src.IsValid() {
			q.Src = l.Packet.Src
		}
		for _, e := range w.Walk(c.entry, q) {
			f := m.fate(c, after(l, e))
			f.own = changesDst(&l)
			out = append(out, f)
		}
	}
	for _, e := range ended {
		out = append(out, m.within(c, in, e))
	}
	return out
}

// fate reads an ending.
func (m *model) fate(c *cell, e netfilter.Ending) fate {
	if stays(&e) {
		e.DstBy = -1
	}
	f := fate{Ending: e}
	translated := e.DstBy >= 0
	if translated {
		f.backend = netip.AddrPortFrom(e.Packet.Dst, e.Packet.DstPort)
		f.by = e.Hops[e.DstBy].Chain
		if e.Hops[e.DstBy].Kind == netfilter.HopIPVS {
			f.by = virtualServer
		}
		if e.Tracked != nil {
			f.by = "conntrack"
		}
	}
	switch e.Verdict {
	case netfilter.Dropped:
		f.result = report.ResultDrop
	case netfilter.Rejected:
		f.result = report.ResultReject
	case netfilter.NoRoute:
		f.result = report.ResultNoRoute
	case netfilter.Martian:
		f.result = report.ResultMartian
	case netfilter.Stolen:
		f.result = report.ResultUnknown
		if strings.Contains(e.Why, "transparent proxy") {
			f.result = report.ResultTProxy
		}
		f.notes = append(f.notes, e.Why)
	case netfilter.UnknownVerdict:
		m.unreadable(c, &f)
	default:
		f.result = m.arrived(c, &f)
	}
	if e.Tracked != nil && !e.Packet.DNATed {
		f.backend = netip.AddrPort{}
	}
	return f
}

// stays tells whether svcnet's own proxy has bound a translation of a packet to where it goes anyhow: it is meant to be
// refused there, and nothing behind is to translate it.
func stays(e *netfilter.Ending) bool {
	if e.DstBy < 0 || e.Packet.Dst != e.Packet.OrigDst || e.Packet.DstPort != e.Packet.OrigDstPort {
		return false
	}
	return strings.HasSuffix(e.Hops[e.DstBy].Table, " svcnet")
}

// arrived reads the ending of a packet that was delivered or sent on.
func (m *model) arrived(c *cell, f *fate) report.Result {
	e := &f.Ending
	switch {
	case e.Tracked != nil && e.Packet.DNATed:
		return report.ResultDNATByConntrack
	case e.Tracked != nil:
		return report.ResultUntranslatedByConntrk
	case m.portal(e):
		f.held = true
		f.notes = append(f.notes, held)
		return report.ResultRedirect
	case e.DstBy >= 0 && e.Hops[e.DstBy].Kind == netfilter.HopIPVS:
		return report.ResultIPVS
	case e.DstBy >= 0:
		if t, ok := e.Hops[e.DstBy].Target.(*netfilter.Translate); ok && t.Kind == netfilter.Redirect {
			return report.ResultRedirect
		}
		return report.ResultDNAT
	case e.Packet.State == netfilter.StateUntracked && e.Verdict == netfilter.Delivered:
		return report.ResultUntrackedLocal
	}
	// Virtual servers translate whatever the nat table has said: where none did, no ACCEPT kept it from that.
	if m.proxy.Mode != "ipvs" {
		for _, h := range e.Hops {
			if _, accept := h.Target.(netfilter.Accept); accept && h.NAT && (h.Hook == netfilter.Prerouting || h.Hook == netfilter.Output) {
				f.by = h.Chain
				return report.ResultAcceptedUndelivered
			}
		}
	}
	if e.Verdict == netfilter.Delivered {
		if s := m.kernel.Host.Listener(c.proto, e.Packet.Dst, e.Packet.DstPort); s != nil && !keepsPort(c, s) {
			return report.ResultLocalProcess
		}
		if c.at.Kind == intent.HealthCheck && !m.kernel.Host.HasSockets {
			f.notes = append(f.notes, "listening sockets were not collected: kube-proxy is taken to listen on the health check port")
			return report.ResultLocalProcess
		}
	}
	return report.ResultNoMatch
}

// unreadable reads an ending whose last rule could not be followed. Where that rule stands for one endpoint
// of a Service, the endpoint is still known: by the rule's comment, or because the name of a KUBE-SEP chain
// is the hash of service port, protocol and endpoint.
func (m *model) unreadable(c *cell, f *fate) {
	f.result = report.ResultUnknown
	f.notes = append(f.notes, f.Why)
	if len(f.Hops) == 0 {
		return
	}
	last := f.Hops[len(f.Hops)-1]
	if last.Rule == nil || last.Table != "nat" {
		return
	}
	chain := last.Chain
	switch t := last.Rule.Target.(type) {
	case netfilter.Jump:
		chain = t.Chain
	case netfilter.Unreadable:
		if t.Name != "DNAT" {
			return
		}
	default:
		return
	}
	if !strings.HasPrefix(chain, dataplane.SEPPrefix) {
		return
	}
	known := "the name of the chain"
	ap, ok := netip.AddrPort{}, false
	if c.port != nil {
		var candidates []netip.AddrPort
		for _, e := range c.port.Endpoints {
			candidates = append(candidates, netip.AddrPortFrom(e.Addr, uint16(e.Port)))
		}
		ap, ok = dataplane.EndpointByName(chain, c.port.Key(), c.port.Protocol, candidates)
	}
	if !ok {
		for _, h := range f.Hops {
			if h.Rule == nil {
				continue
			}
			if _, e, has := dataplane.ServicePortOf(h.Rule.Comment); has && e.IsValid() {
				ap, ok, known = e, true, "a rule's comment"
			}
		}
	}
	if !ok {
		return
	}
	f.result, f.backend, f.by = report.ResultDNAT, ap, chain
	f.notes = append(f.notes, fmt.Sprintf("%s stands for %s by %s; what happens to the packet after that translation is not evaluated", chain, ap, known))
}

// paths folds the fates of a cell into one path per distinct outcome.
func (m *model) paths(c *cell, fates []fate) []report.Path {
	type group struct {
		fates []fate
		p     float64
	}
	var (
		order  []string
		groups = make(map[string]*group)
	)
	for _, f := range fates {
		k := f.outcome()
		g := groups[k]
		if g == nil {
			g = &group{}
			groups[k] = g
			order = append(order, k)
		}
		g.fates = append(g.fates, f)
		g.p += f.P
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(groups[b].p, groups[a].p) })
	out := make([]report.Path, 0, len(order))
	for _, k := range order {
		out = append(out, m.path(c, groups[k].fates, groups[k].p))
	}
	// What a pod's own rules take over or send elsewhere, nobody asked the node for.
	if !slices.ContainsFunc(fates, func(f fate) bool { return f.within || f.own }) {
		m.compare(c, out)
	}
	return out
}

// outcome is what makes fates one path: the result, where a refusal fell, and what is assumed.
func (f *fate) outcome() string {
	var b strings.Builder
	fmt.Fprint(&b, f.result, "|", f.within)
	fmt.Fprint(&b, "|", f.Table, "|", f.Chain)
	switch {
	case f.result == report.ResultDNAT, f.result == report.ResultIPVS, f.result == report.ResultDNATByConntrack:
	case f.backend.IsValid():
		// Whatever stops packets behind the translation stops those to all backends alike.
		fmt.Fprint(&b, "|", f.Why)
	default:
		fmt.Fprint(&b, "|", f.Why, "|", f.by)
	}
	for _, a := range f.Assumed {
		fmt.Fprint(&b, "|", a.Fact.Key, "=", a.Answer)
	}
	return b.String()
}

func (m *model) path(c *cell, fates []fate, p float64) report.Path {
	first := &fates[0]
	out := report.Path{
		Frontend: c.frontend, SourceClass: string(c.Class), Source: c.source(first), Origin: c.origin(),
		Result: first.result, Probability: round(p), Uncertain: []report.Uncertain{}, Backends: []report.Backend{},
		Hops: []report.Hop{}, NotEvaluated: []string{},
	}
	for _, a := range first.Assumed {
		text := a.Fact.Yes
		if !a.Answer {
			text = a.Fact.No
		}
		out.Uncertain = append(out.Uncertain, report.Uncertain{Condition: text, Because: a.Fact.Because})
	}
	common := len(first.Hops)
	for _, f := range fates[1:] {
		common = min(common, sharedHops(first.Hops, f.Hops))
	}
	if len(fates) == 1 {
		common = m.splitAt(first)
	}
	for _, h := range first.Hops[:common] {
		out.Hops = append(out.Hops, m.hop(h))
	}
	for i := range fates {
		f := &fates[i]
		for _, n := range append(slices.Clone(f.Notes), f.notes...) {
			if !slices.Contains(out.NotEvaluated, n) {
				out.NotEvaluated = append(out.NotEvaluated, n)
			}
		}
		if f.backend.IsValid() {
			m.addBackend(&out, c, f, common)
		}
	}
	slices.SortStableFunc(out.Backends, func(a, b report.Backend) int {
		return cmp.Or(cmp.Compare(b.Probability, a.Probability), compareAddress(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	out.TranslatedBy = translatedBy(fates, common)
	out.Table, out.Chain = first.Table, first.Chain
	switch {
	case first.Tracked != nil && out.Table == "":
	case first.result == report.ResultDNAT, first.result == report.ResultIPVS, first.result == report.ResultRedirect:
		out.Table, out.Chain = first.translatedIn(), out.TranslatedBy
	default:
		out.Because = first.because()
	}
	out.Masquerade = masquerade(fates)
	if !first.within && first.balancer == nil {
		out.Reply = m.reply(&out, fates)
	}
	m.noteInside(&out, c, fates)
	return out
}

// What a virtual server of IPVS is called where others have a chain and a table.
const (
	virtualServer = "virtual server"
	tableIPVS     = "ipvs"
)

// translatedIn is the table of the rule that chose the destination.
func (f *fate) translatedIn() string {
	switch {
	case f.by == virtualServer:
		return tableIPVS
	case f.DstBy >= 0:
		return f.Hops[f.DstBy].Table
	case len(f.Hops) > 0:
		return f.Hops[len(f.Hops)-1].Table // known by the name of a chain
	}
	return ""
}

// because says what ends a packet: the rule or policy, or in words what is no rule.
func (f *fate) because() string {
	if f.Why != "" {
		return f.Why
	}
	if len(f.Hops) > 0 && f.Table != "" {
		return f.Hops[len(f.Hops)-1].Text
	}
	return ""
}

// addBackend adds a fate's destination, or its share to a backend that is already there.
func (m *model) addBackend(out *report.Path, c *cell, f *fate, common int) {
	addr, port := f.backend.Addr().String(), int(f.backend.Port())
	for i := range out.Backends {
		b := &out.Backends[i]
		if b.Address == addr && b.Port == port && b.Result == f.result {
			b.Probability = round(b.Probability + f.P)
			if m := masquerade([]fate{*f}); b.Masquerade != nil && m != nil && *m != *b.Masquerade {
				b.Masquerade = nil
			}
			return
		}
	}
	b := report.Backend{
		Address: addr, Port: port, Probability: round(f.P), State: "unknown", Result: f.result,
		Masquerade: masquerade([]fate{*f}), TranslatedBy: f.by, Hops: []report.Hop{},
	}
	if (f.Packet.SNATed || f.SrcBy >= 0) && f.Packet.Src.IsValid() {
		b.SnatTo = f.Packet.Src.String()
	}
	for _, h := range f.Hops[common:] {
		b.Hops = append(b.Hops, m.hop(h))
	}
	sp := c.port
	if f.own {
		// The node was asked for another Service than the pod.
		sp, _ = m.portAt(netip.AddrPortFrom(f.Packet.OrigDst, f.Packet.OrigDstPort), c.proto)
	}
	m.describe(&b, f.backend, sp)
	out.Backends = append(out.Backends, b)
}

// splitAt is the number of hops of a lone fate that belong to the path and not to its backend: up to the
// last jump before the endpoint's own chain.
func (m *model) splitAt(f *fate) int {
	if f.DstBy < 0 || !f.backend.IsValid() {
		return len(f.Hops)
	}
	for i := f.DstBy; i >= 0; i-- {
		if f.Hops[i].Chain != f.by {
			return i
		}
	}
	return 0
}

func sharedHops(a, b []netfilter.Hop) int {
	n := 0
	for n < len(a) && n < len(b) && a[n].Rule == b[n].Rule && a[n].Native == b[n].Native && a[n].Kind == b[n].Kind && a[n].Text == b[n].Text && a[n].Hook == b[n].Hook {
		n++
	}
	return n
}

// translatedBy names the chain that chose the backends: the one with the translation, or with several of
// them the chain in which their ways part.
func translatedBy(fates []fate, common int) string {
	by := fates[0].by
	for _, f := range fates[1:] {
		if f.by != by {
			if common < len(fates[0].Hops) {
				return fates[0].Hops[common].Chain
			}
			return ""
		}
	}
	return by
}

// masquerade is whether backends see another source than the client's; nil when fates differ or nothing arrives.
// The node's own packets masqueraded to the address that they have count: that they keep it is luck of the route.
func masquerade(fates []fate) *bool {
	var out *bool
	for _, f := range fates {
		switch f.Verdict {
		case netfilter.Delivered, netfilter.Forwarded:
		default:
			return nil
		}
		if !f.hidesClient() {
			return nil
		}
		v := f.Packet.SNATed || f.SrcBy >= 0 || f.held
		if out != nil && *out != v {
			return nil
		}
		out = &v
	}
	return out
}

func (m *model) hop(h netfilter.Hop) report.Hop {
	return report.Hop{
		Kind: string(h.Kind), Table: h.Table, Chain: h.Chain, Rule: h.Index + 1, Text: h.Text,
		Probability: round(h.P), Cumulative: round(h.Cumulative),
		Evidence: report.Evidence{Source: sourceOf(h), File: h.File, Line: h.Line},
		Pod:      snapshot.PodOf(h.File),
	}
}

func sourceOf(h netfilter.Hop) string {
	switch h.Kind {
	case netfilter.HopCT:
		return "conntrack"
	case netfilter.HopRoute:
		return "route"
	case netfilter.HopIPVS:
		return "ipvs"
	case hopHNS:
		return hnsTable
	}
	if h.NFT {
		return "nftables"
	}
	if h.Backend != netfilter.UnknownBackend {
		return "iptables-" + string(h.Backend)
	}
	return "iptables"
}

func (c *cell) source(f *fate) string {
	a := c.Addr
	if !a.IsValid() {
		a = f.Packet.OrigSrc
	}
	if !a.IsValid() {
		return ""
	}
	if c.srcPort != 0 {
		return netip.AddrPortFrom(a, c.srcPort).String()
	}
	return a.String()
}

func compareAddress(a, b string) int {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX != nil || errY != nil {
		return cmp.Compare(a, b)
	}
	return x.Compare(y)
}

// round keeps nine decimals: probabilities come as multiples of 2^-31, and sums of products of them would
// otherwise print their last bits.
func round(p float64) float64 {
	const scale = 1e9
	return float64(int64(p*scale+0.5)) / scale
}

func ref[T any](v T) *T { return &v }
