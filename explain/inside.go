package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// inside is a pod's own network namespace: the rules of its sidecar or of a CNI plugin, and who listens there.
type inside struct {
	pod      string // namespace/name
	rulesets []*netfilter.Ruleset
	kernel   *netfilter.Kernel
	// answered tells of IPv4 and IPv6 rules that some capture says that there are none; missed is what could not be
	// read, or not to the end.
	answered [2]bool
	missed   [2][]string
	// nft are its captures of nftables rules.
	nft []nftCapture
}

// insideOf is the namespace that a piece of evidence belongs to, made when it is the first; nil for the node's.
func (m *model) insideOf(e *snapshot.Evidence) *inside {
	pod := snapshot.PodOf(e.File)
	if pod == "" {
		return nil
	}
	in := m.insides[pod]
	if in == nil {
		in = &inside{pod: pod, kernel: &netfilter.Kernel{Host: &host.Host{}, NewClient: true}}
		if m.insides == nil {
			m.insides = make(map[string]*inside)
		}
		m.insides[pod] = in
	}
	return in
}

// insideAt is the namespace of the pod with an address, nil when it was not read.
func (m *model) insideAt(a netip.Addr) *inside {
	// Loopback and link-local addresses are in every namespace and tell none.
	if len(m.insides) == 0 || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return nil
	}
	if p := m.pod(a); p != nil {
		if p.Spec.HostNetwork {
			return nil
		}
		if in := m.insides[p.Namespace+"/"+p.Name]; in != nil {
			if h := in.kernel.Host; len(h.NodeAddrs) == 0 {
				h.NodeAddrs = podIPs(p) // where its addresses were not read: it has these, and no Service's
			}
			return in
		}
	}
	// Without objects the pod is known by its addresses.
	for _, pod := range sortedKeys(m.insides) {
		if slices.ContainsFunc(m.insides[pod].kernel.Host.Addrs, func(h host.Addr) bool { return h.Prefix.Addr() == a }) {
			return m.insides[pod]
		}
	}
	return nil
}

func podIPs(p *corev1.Pod) []netip.Addr {
	var out []netip.Addr
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			out = append(out, a)
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (in *inside) walker() netfilter.Walker {
	return netfilter.Walker{Rulesets: in.rulesets, NFT: withoutRepeats(in.nft), Kernel: in.kernel}
}

// noteRules records what became of a capture of rules. One of family 0 speaks for both.
func (in *inside) noteRules(e *snapshot.Evidence, src *report.Source) {
	status := snapshot.Status(src.Status)
	for i, f := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		switch {
		case e.Family != 0 && netfilter.Family(e.Family) != f:
		case !status.Answers():
			why := src.Error
			if why == "" {
				why = e.File + " is " + src.Status
			}
			in.missed[i] = append(in.missed[i], why)
		case status != snapshot.OK:
			in.answered[i] = true // rules that were read show in the rulesets
		}
	}
}

// looked tells whether anything says what rules of a family the pod has, be it that they could not be read. Plain
// files do not: where the pod has none, or they could not be read, there is no file.
func (in *inside) looked(family netfilter.Family) bool {
	i := familyIndex(family)
	return in.answered[i] || len(in.missed[i]) > 0 || len(in.nft) > 0 ||
		slices.ContainsFunc(in.rulesets, func(rs *netfilter.Ruleset) bool { return rs.Family == family })
}

// unread says what of the pod's rules of a family is not known; empty when they were read, or when it is known that
// there are none.
func (in *inside) unread(family netfilter.Family) string {
	i := familyIndex(family)
	switch {
	case !in.looked(family):
		return "no rules of it are among the evidence"
	case len(in.missed[i]) > 0:
		return in.missed[i][0]
	}
	return ""
}

// unreadNote is unread as a line of what was not evaluated. A pod into which nobody looked is like any other: it is
// noted where there is a sign of a mesh.
func (in *inside) unreadNote(family netfilter.Family) string {
	why := in.unread(family)
	if why == "" || !in.looked(family) {
		return ""
	}
	return fmt.Sprintf("the own rules of pod %s, which may take its connections over: %s", in.pod, why)
}

// leave walks a packet that a process of the pod sends, up to the pod's interface. What gets there is continued by
// the node's rules; what does not has met its fate inside.
func (m *model) leave(in *inside, p netfilter.Packet) (out, ended []netfilter.Ending) {
	unread := in.unreadNote(p.Family)
	if len(in.rulesets) == 0 && len(in.nft) == 0 && in.unread(p.Family) != "" {
		// Nothing to walk by: the packet is taken to get to the node as it is.
		e := netfilter.Ending{Verdict: netfilter.Forwarded, P: 1, Packet: p, DstBy: -1, SrcBy: -1}
		if unread != "" {
			e.Notes = []string{unread}
		}
		return []netfilter.Ending{e}, nil
	}
	w := in.walker()
	p.In, p.InAssumed = netfilter.NoIface, false
	for _, e := range m.bySender(in, w.Walk(netfilter.FromNode, p)) {
		e = in.signed(e)
		if unread != "" {
			e.Notes = append(e.Notes, unread)
		}
		if e.Verdict == netfilter.Forwarded {
			out = append(out, e)
		} else {
			ended = append(ended, e)
		}
	}
	return out, ended
}

// signed says of what was assumed and taken for granted inside the pod that it is the pod's and not the node's.
func (in *inside) signed(e netfilter.Ending) netfilter.Ending {
	where := "inside pod " + in.pod
	e.Assumed = slices.Clone(e.Assumed)
	for i := range e.Assumed {
		f := &e.Assumed[i].Fact
		f.Key = where + " " + f.Key
		f.Yes, f.No = where+" "+f.Yes, where+" "+f.No
	}
	e.Notes = slices.Clone(e.Notes)
	for i := range e.Notes {
		e.Notes[i] = where + ": " + e.Notes[i]
	}
	if e.Why != "" {
		e.Why = where + ": " + e.Why
	}
	return e
}

// The keys of the facts that -m owner asks for.
const (
	ownerUser  = "owner user "
	ownerGroup = "owner group "
)

// bySender leaves out the endings of what the pod's own sidecar sends. A sidecar's rules tell its own connections from
// the others, or they would go round for ever, and a question about a pod is one about its application.
func (m *model) bySender(in *inside, endings []netfilter.Ending) []netfilter.Ending {
	ids := m.sidecarIDs(in.pod)
	var out []netfilter.Ending
	var left []string
	for _, e := range endings {
		var kept []netfilter.Assumption
		own := false
		for _, a := range e.Assumed {
			what, id := "user ", strings.TrimPrefix(a.Fact.Key, ownerUser)
			if strings.HasPrefix(a.Fact.Key, ownerGroup) {
				what, id = "group ", strings.TrimPrefix(a.Fact.Key, ownerGroup)
			}
			if id == a.Fact.Key || !slices.Contains(ids, id) {
				kept = append(kept, a)
				continue
			}
			own = own || a.Answer
			if !slices.Contains(left, what+id) {
				left = append(left, what+id)
			}
		}
		if !own {
			e.Assumed = kept
			out = append(out, e)
		}
	}
	if len(left) == 0 {
		return out
	}
	note := fmt.Sprintf("what its sidecar itself sends, as %s: shown is what any other process sends", strings.Join(left, " or "))
	for i := range out {
		out[i].Notes = append(slices.Clone(out[i].Notes), note)
	}
	return out
}

// sidecarIDs are the users and groups of sidecars: those that meshes use unless told otherwise, and the one that the
// pod's object names.
func (m *model) sidecarIDs(pod string) []string {
	var out []string
	for _, mesh := range meshes {
		if mesh.id != "" {
			out = append(out, mesh.id)
		}
	}
	for _, p := range m.objects.Pods {
		if p.Namespace+"/"+p.Name != pod {
			continue
		}
		for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
			named := slices.ContainsFunc(meshes, func(m mesh) bool { return m.container == c.Name && c.Name != "" })
			if !named || c.SecurityContext == nil {
				continue
			}
			for _, id := range []*int64{c.SecurityContext.RunAsUser, c.SecurityContext.RunAsGroup} {
				if id != nil && *id != 0 {
					out = append(out, fmt.Sprint(*id))
				}
			}
		}
	}
	return out
}

// after continues the walk of a packet that left a pod with what the node does to it: as one ending. What the node
// translated counts as the translation; where it did none, it is the pod's own.
func after(left, e netfilter.Ending) netfilter.Ending {
	n := len(left.Hops)
	e.P *= left.P
	hops := slices.Clone(left.Hops)
	for _, h := range e.Hops {
		h.Cumulative *= left.P
		hops = append(hops, h)
	}
	e.Hops = hops
	switch {
	case e.DstBy >= 0:
		e.DstBy += n
	case e.Tracked == nil && changesDst(&left):
		e.DstBy = left.DstBy
	}
	switch {
	case e.SrcBy >= 0:
		e.SrcBy += n
	case e.Tracked == nil && left.SrcBy >= 0 && left.Packet.Src != left.Packet.OrigSrc:
		e.SrcBy = left.SrcBy
	}
	e.Assumed = append(slices.Clone(left.Assumed), e.Assumed...)
	e.Notes = append(slices.Clone(left.Notes), e.Notes...)
	return e
}

// changesDst tells whether a walk led somewhere else than where the packet was sent.
func changesDst(e *netfilter.Ending) bool {
	p := &e.Packet
	return e.DstBy >= 0 && (p.Dst != p.OrigDst || p.DstPort != p.OrigDstPort)
}

// within reads the ending of a packet that never left its pod.
func (m *model) within(c *cell, in *inside, e netfilter.Ending) fate {
	f := m.fate(c, e)
	f.within = true
	if e.Verdict != netfilter.Delivered {
		f.backend = netip.AddrPort{}
		return f
	}
	at := m.delivered(in, &e)
	if e.DstBy < 0 {
		// The pod's sockets decide, not the node's.
		f.result, f.backend, f.Why = at.Result, netip.AddrPort{}, at.Text
		return f
	}
	f.result, f.inside = report.ResultRedirect, at
	return f
}

// enter says what becomes of a packet that reaches a pod whose namespace was read.
func (m *model) enter(in *inside, p netfilter.Packet) *report.Inside {
	w := in.walker()
	p = netfilter.Packet{
		Family: p.Family, Src: p.Src, Dst: p.Dst, Proto: p.Proto, SrcPort: p.SrcPort, HasSrcPort: p.HasSrcPort, DstPort: p.DstPort,
		In: netfilter.Iface{Cluster: true}, InAssumed: true,
	}
	if out := in.kernel.Host.Towards(p.Src); out != "" {
		p.In = netfilter.Iface{Name: out, Known: true}
	}
	var out *report.Inside
	var ways []string
	for _, e := range w.Walk(netfilter.FromInterface, p) {
		one := m.entered(in, &e)
		if out == nil {
			out = one
		} else if one.Result != out.Result || one.Text != out.Text {
			out.Result = report.ResultUnknown
		}
		way := one.Text
		for i, a := range e.Assumed {
			text := a.Fact.No
			if a.Answer {
				text = a.Fact.Yes
			}
			way += []string{" if ", " and "}[min(i, 1)] + text
		}
		if !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
	}
	switch {
	case out == nil:
		return nil
	case out.Result == report.ResultUnknown && len(ways) > 1:
		out.Text = "not decided: " + strings.Join(ways, "; ")
	}
	if in.unread(p.Family) != "" {
		// Rules that are not known may hand it to somebody else, or stop it.
		out.Result, out.Text = report.ResultUnknown, "not decided, because its own rules are not known; without any, "+out.Text
	}
	return out
}

// entered reads one ending of a packet that reached a pod.
func (m *model) entered(in *inside, e *netfilter.Ending) *report.Inside {
	out := &report.Inside{Pod: in.pod, Hops: []report.Hop{}}
	switch e.Verdict {
	case netfilter.Dropped:
		out.Result, out.Text = report.ResultDrop, "its own rules drop it: the client hears nothing and waits for its timeout"
	case netfilter.Rejected:
		out.Result, out.Text = report.ResultReject, "its own rules refuse it"
	case netfilter.NoRoute:
		out.Result, out.Text = report.ResultNoRoute, e.Why
	case netfilter.Martian:
		out.Result, out.Text = report.ResultMartian, e.Why
	case netfilter.Delivered:
		out = m.delivered(in, e)
	case netfilter.Forwarded:
		out.Result = report.ResultUnknown
		out.Text = fmt.Sprintf("the pod sends it on to %s, and what becomes of it there is not evaluated", netip.AddrPortFrom(e.Packet.Dst, e.Packet.DstPort))
	default:
		out.Result, out.Text = report.ResultUnknown, e.Why
		if e.Verdict == netfilter.Stolen && strings.Contains(e.Why, "transparent proxy") {
			out.Result, out.Text = report.ResultRedirect, "its own rules hand it on: "+e.Why
		}
	}
	for _, h := range e.Hops {
		out.Hops = append(out.Hops, m.hop(h))
	}
	return out
}

// delivered says who takes a packet that the pod's own network stack delivers, without the hops.
func (m *model) delivered(in *inside, e *netfilter.Ending) *report.Inside {
	out := &report.Inside{Pod: in.pod, Hops: []report.Hop{}}
	p := &e.Packet
	at := netip.AddrPortFrom(p.Dst, p.DstPort)
	redirected := e.DstBy >= 0
	led := ""
	if redirected {
		led = "its own rules redirect it to " + at.String() + ", where "
	}
	s := in.kernel.Host.Listener(p.Proto, p.Dst, p.DstPort)
	who := "a process"
	if s != nil && s.Process != "" {
		who = s.Process
	}
	switch {
	case !in.kernel.Host.HasSockets && redirected:
		out.Result, out.Text = report.ResultRedirect, led+"it is not known who listens (sockets were not read)"
	case !in.kernel.Host.HasSockets:
		out.Result, out.Text = report.ResultUnknown, "it is not known who listens on "+at.String()+" (sockets were not read)"
	case s == nil && redirected:
		out.Result, out.Text = report.ResultNoMatch, led+"nobody listens"
	case s == nil:
		out.Result, out.Text = report.ResultNoMatch, "nobody listens on "+at.String()+in.onLoopback(p.Proto, p.DstPort)
	case redirected:
		out.Result, out.Text = report.ResultRedirect, led+who+" listens"
	default:
		out.Result, out.Text = report.ResultLocalProcess, who+" listens on "+at.String()
	}
	return out
}

// onLoopback names who listens on a port at a loopback address alone, where nobody from outside of the pod gets. Empty
// for none.
func (in *inside) onLoopback(proto uint8, port uint16) string {
	for i := range in.kernel.Host.Sockets {
		s := &in.kernel.Host.Sockets[i]
		if s.Proto != proto || s.Port != port || !s.Addr.IsLoopback() {
			continue
		}
		who := s.Process
		if who == "" {
			who = "a process"
		}
		return fmt.Sprintf(" (%s listens on %s only)", who, netip.AddrPortFrom(s.Addr, port))
	}
	return ""
}

// A mesh is known by what it writes into the pods that it takes over.
type mesh struct {
	annotation, container, name string
	// id is the user, and group, that its sidecar has unless told otherwise.
	id string
}

var meshes = []mesh{
	{"sidecar.istio.io/status", "istio-proxy", "Istio", "1337"},
	{"ambient.istio.io/redirection", "", "Istio (ambient mode)", ""},
	{"linkerd.io/proxy-version", "linkerd-proxy", "Linkerd", "2102"},
	{"consul.hashicorp.com/connect-inject-status", "consul-dataplane", "Consul", "5995"},
	{"kuma.io/sidecar-injected", "kuma-sidecar", "Kuma", "5678"},
	{"openservicemesh.io/sidecar-injection", "envoy-osm", "Open Service Mesh", "1500"},
}

// meshOf names the mesh that takes a pod's connections over; empty for none.
func meshOf(p *corev1.Pod) string {
	for _, m := range meshes {
		switch strings.ToLower(p.Annotations[m.annotation]) {
		case "", "false", "disabled", "no":
		default:
			return m.name
		}
		for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
			if c.Name == m.container && c.Name != "" {
				return m.name
			}
		}
	}
	return ""
}

// meshNote says that a pod's own rules are not known where they matter: a sidecar redirects what the node only
// carries. Empty when they were read or when there is no sign of a sidecar.
func (m *model) meshNote(a netip.Addr) string {
	p := m.pod(a)
	if p == nil || p.Spec.HostNetwork {
		return ""
	}
	if in := m.insideAt(a); in != nil && in.looked(netfilter.FamilyOf(a)) {
		return ""
	}
	mesh := meshOf(p)
	if mesh == "" {
		return ""
	}
	return fmt.Sprintf("the own rules of pod %s/%s: it is in the mesh of %s, which may take its connections over (run svcnet on its node with --pod %s/%s)",
		p.Namespace, p.Name, mesh, p.Namespace, p.Name)
}

// noteInside adds to a path what is known of the pods at its two ends.
func (m *model) noteInside(out *report.Path, c *cell, fates []fate) {
	note := func(text string) {
		if text != "" && !slices.Contains(out.NotEvaluated, text) {
			out.NotEvaluated = append(out.NotEvaluated, text)
		}
	}
	if c.exact {
		note(m.meshNote(c.Addr))
	}
	for i := range out.Backends {
		b := &out.Backends[i]
		if b.State == stateMissing {
			continue
		}
		ap := backendAddr(b)
		for j := range fates {
			f := &fates[j]
			if f.backend != ap || f.result != b.Result {
				continue
			}
			if f.within {
				b.Inside, b.Pod = f.inside, f.inside.Pod
			} else {
				note(m.meshNote(ap.Addr()))
				if in := m.insideAt(ap.Addr()); in != nil && f.Verdict == netfilter.Forwarded {
					note(in.unreadNote(f.Packet.Family))
					b.Inside = m.enter(in, f.Packet)
				}
			}
			if in := b.Inside; in != nil {
				if in.Result == report.ResultRedirect {
					note(fmt.Sprintf("what the proxy in pod %s does with the connection that the pod's own rules hand to it", in.Pod))
				}
				break
			}
		}
	}
	for i := range fates {
		// A pod that is dialled by its own address is no backend of the path.
		if f := &fates[i]; !f.within && !f.backend.IsValid() && f.Verdict == netfilter.Forwarded {
			note(m.meshNote(f.Packet.Dst))
		}
	}
}

// readInside takes in evidence of a pod's namespace.
func (r *reader) readInside(in *inside, e *snapshot.Evidence, src *report.Source, fail func(snapshot.Status, string, ...any)) {
	if rank := nftRank(e.Format); rank >= 0 {
		if len(e.Data) > 0 {
			if rs := r.readNFT(e, src, fail); rs != nil {
				in.nft = append(in.nft, nftCapture{rank, rs})
			}
		}
		if !e.Status.Answers() {
			in.noteRules(e, src)
		}
		return
	}
	if parse, ok := rulesetParsers[e.Format]; ok {
		if len(e.Data) > 0 {
			in.rulesets = append(in.rulesets, r.parseRules(e, parse, src, fail)...)
		}
		in.noteRules(e, src)
		return
	}
	if parse, ok := hostParsers[e.Format]; ok && len(e.Data) > 0 {
		r.hostState(in.kernel.Host, e, parse, src, fail)
	}
}
