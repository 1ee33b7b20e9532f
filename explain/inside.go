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
	// missed says what of its rules could not be read.
	missed []string
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
	if len(m.insides) == 0 {
		return nil
	}
	if p := m.pod(a); p != nil && !p.Spec.HostNetwork {
		if in := m.insides[p.Namespace+"/"+p.Name]; in != nil {
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

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (in *inside) walker() netfilter.Walker {
	return netfilter.Walker{Rulesets: in.rulesets, Kernel: in.kernel}
}

// leave walks a packet that a process of the pod sends, up to the pod's interface. What gets there is continued by
// the node's rules; what does not has met its fate inside.
func (in *inside) leave(p netfilter.Packet) (out, ended []netfilter.Ending) {
	w := in.walker()
	p.In, p.InAssumed = netfilter.NoIface, false
	for _, e := range w.Walk(netfilter.FromNode, p) {
		if len(in.missed) > 0 {
			e.Notes = append(slices.Clone(e.Notes), fmt.Sprintf("the own rules of pod %s, as far as they were not read: %s", in.pod, in.missed[0]))
		}
		if e.Verdict == netfilter.Forwarded {
			out = append(out, e)
		} else {
			ended = append(ended, e)
		}
	}
	return out, ended
}

// after continues the walk of a packet that left a pod with what the node does to it: as one ending.
func after(left, e netfilter.Ending) netfilter.Ending {
	n := len(left.Hops)
	e.P *= left.P
	hops := slices.Clone(left.Hops)
	for _, h := range e.Hops {
		h.Cumulative *= left.P
		hops = append(hops, h)
	}
	e.Hops = hops
	if e.DstBy >= 0 {
		e.DstBy += n
	}
	if e.SrcBy >= 0 {
		e.SrcBy += n
	}
	e.Assumed = append(slices.Clone(left.Assumed), e.Assumed...)
	e.Notes = append(slices.Clone(left.Notes), e.Notes...)
	return e
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
	endings := w.Walk(netfilter.FromInterface, p)
	if len(endings) == 0 {
		return nil
	}
	e := endings[0]
	out := &report.Inside{Pod: in.pod, Hops: []report.Hop{}}
	for _, h := range e.Hops {
		out.Hops = append(out.Hops, m.hop(h))
	}
	if len(endings) > 1 {
		out.Result, out.Text = report.ResultUnknown, "the pod's own rules do not decide it alone: "+endings[0].Why
		return out
	}
	at := netip.AddrPortFrom(e.Packet.Dst, e.Packet.DstPort)
	switch e.Verdict {
	case netfilter.Dropped:
		out.Result, out.Text = report.ResultDrop, "the pod's own rules drop it"
	case netfilter.Rejected:
		out.Result, out.Text = report.ResultReject, "the pod's own rules refuse it"
	case netfilter.NoRoute:
		out.Result, out.Text = report.ResultNoRoute, e.Why
	case netfilter.Martian:
		out.Result, out.Text = report.ResultMartian, e.Why
	case netfilter.Delivered:
		s := in.kernel.Host.Listener(p.Proto, e.Packet.Dst, e.Packet.DstPort)
		who := "a process"
		if s != nil && s.Process != "" {
			who = s.Process
		}
		switch {
		case !in.kernel.Host.HasSockets:
			out.Result, out.Text = report.ResultUnknown, "who listens in the pod was not read"
		case s == nil:
			out.Result, out.Text = report.ResultNoMatch, fmt.Sprintf("nobody listens on %s", at)
		case e.DstBy >= 0:
			out.Result, out.Text = report.ResultRedirect, fmt.Sprintf("the pod's own rules hand it to %s on %s; what that does with it is not evaluated", who, at)
		default:
			out.Result, out.Text = report.ResultLocalProcess, fmt.Sprintf("%s listens on %s", who, at)
		}
	default:
		out.Result, out.Text = report.ResultUnknown, e.Why
	}
	return out
}

// A mesh is known by what it writes into the pods that it takes over.
var meshes = []struct{ annotation, container, name string }{
	{"sidecar.istio.io/status", "istio-proxy", "Istio"},
	{"linkerd.io/proxy-version", "linkerd-proxy", "Linkerd"},
	{"consul.hashicorp.com/connect-inject-status", "consul-dataplane", "Consul"},
	{"kuma.io/sidecar-injected", "kuma-sidecar", "Kuma"},
	{"openservicemesh.io/sidecar-injection", "envoy-osm", "Open Service Mesh"},
}

// meshOf names the mesh whose sidecar a pod has; empty for none.
func meshOf(p *corev1.Pod) string {
	for _, m := range meshes {
		if _, ok := p.Annotations[m.annotation]; ok {
			return m.name
		}
		for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
			if c.Name == m.container {
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
	if p == nil || p.Spec.HostNetwork || m.insideAt(a) != nil {
		return ""
	}
	mesh := meshOf(p)
	if mesh == "" {
		return ""
	}
	return fmt.Sprintf("the own rules of pod %s/%s: it has a sidecar of %s, which may take its connections over (on its node --pod %s/%s reads them)",
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
		note(m.meshNote(ap.Addr()))
		in := m.insideAt(ap.Addr())
		if in == nil {
			continue
		}
		for j := range fates {
			f := &fates[j]
			if f.backend == ap && (f.Verdict == netfilter.Forwarded || f.Verdict == netfilter.Delivered) {
				b.Inside = m.enter(in, f.Packet)
				break
			}
		}
	}
}

// readInside takes in evidence of a pod's namespace.
func (r *reader) readInside(in *inside, e *snapshot.Evidence, src *report.Source, fail func(snapshot.Status, string, ...any)) {
	if parse, ok := rulesetParsers[e.Format]; ok {
		if !e.Status.Answers() {
			in.missed = append(in.missed, strings.TrimPrefix(e.Error, e.File+": "))
		}
		if len(e.Data) > 0 {
			in.rulesets = append(in.rulesets, r.parseRules(e, parse, src, fail)...)
		}
		return
	}
	if parse, ok := hostParsers[e.Format]; ok && len(e.Data) > 0 {
		r.hostState(in.kernel.Host, e, parse, src, fail)
	}
}
