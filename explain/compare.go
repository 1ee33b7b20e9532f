package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// Backend states. Excluded is an endpoint that is ready but that this client should not get on this node:
// another node's under a Local policy, another zone's under topology hints.
const (
	stateOK       = "ok"
	stateMissing  = "missing"
	stateStale    = "stale"
	stateNotReady = "not-ready"
	stateExcluded = "excluded"
)

// compare sets the paths of a cell beside what the objects ask for: every backend gets its intended share and
// its state, and those that should get traffic and do not are added to the first path.
func (m *model) compare(c *cell, paths []report.Path) {
	if c.port == nil || c.port.EndpointsUnknown || c.port.ByChance || len(paths) == 0 || m.unread(netfilter.FamilyOf(c.dst.Addr())) != "" || m.contested(c.at, c.proto) {
		return
	}
	want := m.asked(c, paths)
	intended := &report.Intended{Result: report.Result(want.Result), Backends: []string{}, Because: want.Because, Local: m.localByIntent(c, want)}
	wanted := make(map[netip.AddrPort]bool, len(want.Backends))
	hidden := make(map[netip.AddrPort]bool, len(want.Backends))
	for i, at := range want.Backends {
		ap := endpointAddr(&c.port.Endpoints[at])
		wanted[ap], hidden[ap] = true, want.Masquerade[i]
		intended.Backends = append(intended.Backends, ap.String())
	}
	share := 0.0
	if len(want.Backends) > 0 {
		share = round(1 / float64(len(want.Backends)))
	}
	known := make(map[netip.AddrPort]*intent.Endpoint, len(c.port.Endpoints))
	for i := range c.port.Endpoints {
		known[endpointAddr(&c.port.Endpoints[i])] = &c.port.Endpoints[i]
	}
	got := make(map[netip.AddrPort]bool)
	followed := true
	for i := range paths {
		followed = followed && paths[i].Result != report.ResultUnknown
		paths[i].Intended = intended
		for j := range paths[i].Backends {
			b := &paths[i].Backends[j]
			ap := backendAddr(b)
			got[ap] = true
			switch e := known[ap]; {
			case proxied(intended.Result, b):
				b.State, b.Intended = stateOK, ref(1.0)
			case intended.Result == report.ResultDrop && b.Result == report.ResultDrop && known[ap] != nil:
				// Translated first and dropped behind it, as the objects ask: in IPVS mode source ranges hold for the node so.
				b.State, b.Intended = stateOK, ref(b.Probability)
			case wanted[ap]:
				b.State, b.Intended = stateOK, ref(share)
				// What is delivered on this node never passes POSTROUTING, and its answers come back anyway.
				if want.MasqueradeUnknown == "" && want.Alternative == nil && !m.isNodeAddr(ap.Addr()) {
					b.MasqueradeIntended = ref(hidden[ap])
				}
			case e == nil:
				b.State, b.Intended = stateStale, ref(0.0)
			case !e.Ready:
				b.State, b.Intended = stateNotReady, ref(0.0)
			default:
				b.State, b.Intended = stateExcluded, ref(0.0)
			}
		}
	}
	if !followed || intended.Result == report.ResultRedirect {
		return // what cannot be followed may lead there, and what kube-proxy holds leads anywhere
	}
	for _, i := range want.Backends {
		e := &c.port.Endpoints[i]
		if ap := endpointAddr(e); !got[ap] {
			b := report.Backend{
				Address: ap.Addr().String(), Port: int(ap.Port()), Intended: ref(share), State: stateMissing,
				Result: report.ResultUnknown, Hops: []report.Hop{},
			}
			m.describe(&b, ap, c.port)
			paths[0].Backends = append(paths[0].Backends, b)
		}
	}
}

// localByIntent tells whether what the objects ask for depends on which endpoints are on this node, or near it.
func (m *model) localByIntent(c *cell, want intent.Outcome) bool {
	if c.port.TopologyNote != "" {
		return true
	}
	if !c.port.InternalLocal && !c.port.ExternalLocal {
		return false
	}
	elsewhere := *c.port
	if elsewhere.Local = nil; len(c.port.Local) == 0 {
		elsewhere.Local = c.port.Usable
	}
	other := elsewhere.Intend(c.at, c.Client, m.proxy)
	return other.Result != want.Result || !slices.Equal(other.Backends, want.Backends)
}

// contested tells whether several Services claim one address and port: which of them it is, nobody asked for.
func (m *model) contested(f intent.Frontend, proto uint8) bool {
	if m.claims == nil {
		m.claims = make(map[claim]int)
		for _, sp := range m.plan.Ports {
			for _, f := range sp.Frontends {
				m.claims[claim{netip.AddrPortFrom(f.Addr, uint16(f.Port)), dataplane.ProtocolNumber(sp.FrontendProtocol(f))}]++
			}
		}
	}
	return m.claims[claim{netip.AddrPortFrom(f.Addr, uint16(f.Port)), proto}] > 1
}

// claim is an address and port that a Service has.
type claim struct {
	at    netip.AddrPort
	proto uint8
}

// asked is what the objects ask for. Where the proxy's version leaves two answers open, it is the one that the node
// gives.
func (m *model) asked(c *cell, paths []report.Path) intent.Outcome {
	want := c.port.Intend(c.at, c.Client, m.proxy)
	if want.Alternative != nil && !fits(c.port, want, paths) && fits(c.port, *want.Alternative, paths) {
		return *want.Alternative
	}
	if want.Alternative != nil && m.onWindows() && distance(c.port, *want.Alternative, paths) < distance(c.port, want, paths) {
		return *want.Alternative
	}
	return want
}

// fits tells whether every path ends as the outcome says, at no other backends.
func fits(sp *intent.ServicePort, want intent.Outcome, paths []report.Path) bool {
	backends := make(map[netip.AddrPort]bool, len(want.Backends))
	for _, at := range want.Backends {
		backends[endpointAddr(&sp.Endpoints[at])] = true
	}
	for i := range paths {
		if string(paths[i].Result) != want.Result || len(paths[i].Backends) != len(backends) {
			return false
		}
		for j := range paths[i].Backends {
			if !backends[backendAddr(&paths[i].Backends[j])] {
				return false
			}
		}
	}
	return true
}

func endpointAddr(e *intent.Endpoint) netip.AddrPort {
	return netip.AddrPortFrom(e.Addr, uint16(e.Port))
}

func backendAddr(b *report.Backend) netip.AddrPort {
	a, _ := netip.ParseAddr(b.Address)
	return netip.AddrPortFrom(a, uint16(b.Port))
}

// describe names the object behind a backend, as far as objects know it.
func (m *model) describe(b *report.Backend, ap netip.AddrPort, sp *intent.ServicePort) {
	if sp != nil {
		for i := range sp.Endpoints {
			if e := &sp.Endpoints[i]; endpointAddr(e) == ap {
				b.Node, b.Pod, b.Ready = e.NodeName, e.Pod, readiness(e)
				return
			}
		}
	}
	if p := m.pod(ap.Addr()); p != nil && !p.Spec.HostNetwork {
		b.Node, b.Pod = p.Spec.NodeName, p.Namespace+"/"+p.Name
		b.Ready = "in no slice of this Service port"
	}
}

func readiness(e *intent.Endpoint) string {
	switch {
	case e.Ready && e.Terminating:
		return "ready, terminating"
	case e.Ready:
		return "ready"
	case e.Serving && e.Terminating:
		return "terminating, still serving"
	case e.Terminating:
		return "terminating"
	}
	return "not ready"
}

// reply walks the first answer of each backend that the request reaches. The path has the common fate; a
// backend whose answer fares differently has its own.
func (m *model) reply(out *report.Path, fates []fate) *report.Reply {
	var common *report.Reply
	for i := range fates {
		f := &fates[i]
		if f.Verdict != netfilter.Delivered && f.Verdict != netfilter.Forwarded || !f.backend.IsValid() && f.result != report.ResultLocalProcess {
			continue
		}
		r := m.replyOf(f)
		if r == nil {
			r = m.bypass(out, f)
		}
		if r == nil {
			return nil
		}
		if common == nil {
			common = r
		} else if *common != *r {
			for j := range out.Backends {
				if b := &out.Backends[j]; backendAddr(b) == f.backend {
					b.Reply = r
				}
			}
		}
	}
	return common
}

// replyOf is nil where the answer does not come back through this node, or not surely.
func (m *model) replyOf(f *fate) *report.Reply {
	p := &f.Packet
	returns := f.Verdict == netfilter.Delivered || p.SNATed || p.In == netfilter.NoIface ||
		m.isLocalPod(p.OrigSrc) || m.isLocalPod(p.Dst)
	if !returns || !p.Src.IsValid() {
		return nil
	}
	w := m.walker
	var worst *report.Reply
	for _, e := range w.Reply(f.Ending) {
		r := &report.Reply{Table: e.Table, Chain: e.Chain}
		switch e.Verdict {
		case netfilter.Delivered, netfilter.Forwarded:
			r.Result, r.Table, r.Chain = report.ReplyDelivered, "", ""
			if p.DNATed && (e.Packet.Src != p.OrigDst || e.Packet.SrcPort != p.OrigDstPort) {
				r.Result = report.ReplyUntranslated
				r.Text = fmt.Sprintf("the answer keeps the source %s, which the client did not dial", netip.AddrPortFrom(e.Packet.Src, e.Packet.SrcPort))
			}
		case netfilter.Dropped:
			m.stopped(r, report.ReplyDrop, e)
		case netfilter.Rejected:
			m.stopped(r, report.ReplyReject, e)
		case netfilter.NoRoute:
			r.Result, r.Text = report.ReplyNoRoute, e.Why
		case netfilter.Martian:
			r.Result, r.Text = report.ReplyMartian, e.Why
		default:
			r.Result, r.Text = report.ReplyUnknown, e.Why
		}
		if len(e.Assumed) > 0 {
			r.Result, r.Text = report.ReplyUnknown, "depends on what the evidence does not decide: "+e.Assumed[0].Fact.Because
		}
		if worst == nil || worst.Result == report.ReplyDelivered {
			worst = r
		}
	}
	return worst
}

// bypass is the answer to a client elsewhere in the cluster that dialled a node port of this node and was sent on
// to another node under its own address: the backend's node knows the way to the client, and this node is not on it.
// Nil for all others: a client outside of the cluster may be reached through this node, and a cluster IP is
// translated on the client's own node.
func (m *model) bypass(out *report.Path, f *fate) *report.Reply {
	remote := out.SourceClass == string(intent.RemotePod) || out.SourceClass == string(intent.RemoteNode)
	if out.Frontend.Kind != string(intent.NodePort) || !remote || f.Verdict != netfilter.Forwarded || f.Packet.SNATed || !f.Packet.DNATed || m.isLocalPod(f.Packet.Dst) {
		return nil
	}
	return &report.Reply{
		Result: report.ReplyBypasses,
		Text:   "the backend is on another node, which knows its own way to the client: the answer comes from an address that the client did not dial",
	}
}

// stopped says where an answer ends, by the last hop of its way.
func (m *model) stopped(r *report.Reply, result report.ReplyResult, e netfilter.Ending) {
	r.Result, r.Text = result, e.Why
	if len(e.Hops) > 0 {
		last := m.hop(e.Hops[len(e.Hops)-1])
		r.Text, r.Evidence = last.Text, last.Evidence
	}
}

// sameOutcome tells whether two clients fare alike: paths equal in everything but the client itself.
func sameOutcome(a, b []report.Path) bool {
	return slices.EqualFunc(a, b, func(x, y report.Path) bool {
		if x.Result != y.Result || x.Table != y.Table || x.Chain != y.Chain || x.Probability != y.Probability ||
			!equalRef(x.Masquerade, y.Masquerade) || len(x.Uncertain) != len(y.Uncertain) {
			return false
		}
		return slices.EqualFunc(x.Backends, y.Backends, func(p, q report.Backend) bool {
			return p.Address == q.Address && p.Port == q.Port && p.Probability == q.Probability && p.State == q.State &&
				p.Result == q.Result && equalRef(p.Masquerade, q.Masquerade) && sameInside(p.Inside, q.Inside)
		})
	})
}

func sameInside(a, b *report.Inside) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Result == b.Result && a.Text == b.Text
}

func equalRef[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
