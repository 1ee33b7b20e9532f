// Package explain turns a snapshot into documents: it parses the evidence, walks packets, derives what
// the objects intend, and compares. It is the one entrance to its subpackages.
package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// TraceOptions select what a trace shows.
type TraceOptions struct {
	// Namespace and Service name the Service to trace; both empty with To.
	Namespace, Service string
	// Ports limits to these ports, by name or number; Via to these frontend kinds (lower case: clusterip,
	// nodeport, loadbalancer, externalip, healthcheck); From to these source classes. Nil: all.
	Ports, Via, From []string
	// FromPod is "namespace/name": the one client to trace from.
	FromPod string
	// To is "address:port/protocol" for one packet; FromAddr "address" or "address:port" is its source.
	To, FromAddr string
	// Origin is pod, node or external; empty: derived from the source address.
	Origin string
	// IncomingInterface and Mark describe the packet further; HasMark tells mark 0 from no mark.
	IncomingInterface string
	Mark              uint32
	HasMark           bool
	// Memory has the objects that were decoded for other nodes, and keeps those of this one; nil: none.
	Memory *objects.Memory
}

// UsageError is a question that makes no sense, or names something that the evidence does not have.
type UsageError struct{ Text string }

func (e *UsageError) Error() string { return e.Text }

func usage(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

// NotFoundError is a Service or pod that neither objects nor rules know.
type NotFoundError struct{ Text string }

func (e *NotFoundError) Error() string { return e.Text }

// Trace answers one question about a Service or a packet.
//
// Errors: a *UsageError for options that make no sense, a *NotFoundError for a Service or pod that the
// evidence does not have. Evidence that is missing is no error: the document's Sources say so, and
// MissingSources tells whether the question needed it.
func Trace(s *snapshot.Snapshot, o TraceOptions) (*report.Trace, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return newModelOf(s, o.Memory).traced(o)
}

// traced is the answer to a question that check has let pass.
func (m *model) traced(o TraceOptions) (*report.Trace, error) {
	t := &report.Trace{
		TypeMeta: metav1.TypeMeta{APIVersion: report.APIVersion, Kind: "Trace"},
		Node:     m.node, Proxy: m.proxyReport(),
		Paths: []report.Path{}, Findings: []report.Finding{}, Sources: m.sources, Own: m.own(),
	}
	var err error
	if o.To != "" {
		err = m.tracePacket(t, o)
	} else {
		err = m.traceService(t, o)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// MissingSources are those of a snapshot's sources without which a trace cannot be right: rules that could not be
// read to the end, or that nobody collected, and Services or endpoint slices that were asked for in vain. Empty
// means that what is shown rests on complete evidence.
func MissingSources(sources []report.Source) []report.Source {
	var out []report.Source
	rules := false
	for _, s := range sources {
		if s.Name == string(snapshot.Objects) && !snapshot.Status(s.Status).Answers() && !besideTheQuestion[s.File] {
			out = append(out, s)
			continue
		}
		if snapshot.PodOf(s.File) != "" {
			continue
		}
		if (strings.HasPrefix(s.Name, "nft") || s.Name == string(snapshot.WindowsHNS)) && snapshot.Status(s.Status).Answers() {
			rules = true
		}
		if !strings.HasPrefix(s.Name, "iptables") {
			continue
		}
		if snapshot.Status(s.Status).Answers() {
			rules = true
		} else {
			out = append(out, s)
		}
	}
	if !rules && !slices.ContainsFunc(out, func(s report.Source) bool { return strings.HasPrefix(s.Name, "iptables") }) {
		out = append(out, report.Source{
			Name: "iptables", Status: string(snapshot.NotCollected),
			Error: "no iptables rules among the files: nothing says what the node does (give `iptables-save` output with -f)",
		})
	}
	return out
}

// besideTheQuestion are objects that collectors read beside Services and endpoint slices: they tell clients apart and
// name pods, and kube-proxy's credentials do not get all of them.
var besideTheQuestion = map[string]bool{"nodes.json": true, "pods.json": true, "service-pods": true}

func (o *TraceOptions) check() error {
	if o.To == "" && o.Service == "" {
		return usage("name a Service (svc/NAME) or a packet (--to ADDRESS:PORT/PROTOCOL)")
	}
	if o.To != "" && o.Service != "" {
		return usage("a Service and --to exclude each other: trace one or the other")
	}
	for _, v := range o.Via {
		if !slices.ContainsFunc(frontendOrder, func(k intent.FrontendKind) bool { return equalFold(v, string(k)) }) {
			return usage("--via %s is no kind of frontend (clusterip, externalip, loadbalancer, nodeport, healthcheck)", v)
		}
	}
	for _, c := range o.From {
		if !slices.Contains(classOrder, intent.Class(c)) {
			return usage("--from %s is no source class (local-pod, hairpin, remote-pod, node, localhost, remote-node, external), pod/NAME or address", c)
		}
	}
	switch o.Origin {
	case "", "pod", "node", "external":
	default:
		return usage("--origin %s is not pod, node or external", o.Origin)
	}
	if o.To == "" && (o.FromAddr != "" || o.Origin != "" || o.IncomingInterface != "" || o.HasMark) {
		return usage("an address for --from, and --origin, --iif and --mark, describe one packet and go with --to")
	}
	return nil
}

// traceService fills in the paths to a Service.
func (m *model) traceService(t *report.Trace, o TraceOptions) error {
	t.Metadata = report.Metadata{Name: o.Service, Namespace: o.Namespace}
	ports := m.plan.Of(o.Namespace, o.Service)
	svc, known := m.objects.Service(o.Namespace, o.Service)
	if known {
		t.Type = string(svc.Spec.Type)
	}
	if len(ports) > 0 {
		t.AffinitySeconds = ports[0].AffinitySeconds
	}
	for _, s := range m.plan.Skipped {
		if s.Namespace == o.Namespace && s.Name == o.Service && s.Reason != intent.SkipNoClusterIP {
			t.Summary.Text = s.Text
			return nil
		}
	}
	// A Service without an address is a manifest that was never applied: the rules know its addresses.
	if len(ports) == 0 {
		ports = m.portsFromRules(o.Namespace, o.Service)
	}
	if len(ports) == 0 {
		if known {
			t.Summary.Text = fmt.Sprintf("Service %s/%s has no address in these objects, and no rule names it: nothing to trace.", o.Namespace, o.Service)
			return nil
		}
		return &NotFoundError{m.notFound(o)}
	}
	if len(o.Ports) > 0 {
		all := ports
		ports = slices.DeleteFunc(slices.Clone(ports), func(sp *intent.ServicePort) bool { return !o.hasPort(sp) })
		if len(ports) == 0 {
			return usage("Service %s/%s has no port %s (it has %s)", o.Namespace, o.Service, strings.Join(o.Ports, ", "), portNames(all))
		}
	}
	if o.FromPod != "" {
		a, err := m.podAddrs(o.FromPod)
		if err != nil {
			return err
		}
		t.Paths = m.gridFrom(ports, o, a)
	} else {
		t.Paths = m.grid(ports, o)
	}
	m.noteGranted(t.Paths)
	t.Findings = m.findings(ports, t.Paths)
	t.Summary.Text = m.summary(t)
	return nil
}

func (o *TraceOptions) hasPort(sp *intent.ServicePort) bool {
	return slices.ContainsFunc(o.Ports, func(p string) bool { return p == sp.PortName || p == fmt.Sprint(sp.Port) })
}

func portNames(ports []*intent.ServicePort) string {
	var out []string
	for _, sp := range ports {
		text := fmt.Sprintf("%d/%s", sp.Port, sp.Protocol)
		if sp.PortName != "" {
			text = sp.PortName + " " + text
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, ", ")
}

// notFound says where a Service was looked for, and names those of the same name elsewhere.
func (m *model) notFound(o TraceOptions) string {
	var elsewhere []string
	for _, s := range m.objects.Services {
		if s.Name == o.Service {
			elsewhere = append(elsewhere, s.Namespace)
		}
	}
	text := fmt.Sprintf("Service %s/%s is neither among the objects nor named by any rule", o.Namespace, o.Service)
	if len(elsewhere) > 0 {
		return text + fmt.Sprintf(" (there is one in namespace %s: add -n %s)", strings.Join(elsewhere, ", "), elsewhere[0])
	}
	// What was cut off or could not be read is no proof that there is no such Service.
	for _, s := range m.sources {
		if (strings.HasPrefix(s.Name, "iptables") || s.Name == string(snapshot.Objects)) && !snapshot.Status(s.Status).Answers() {
			return text + fmt.Sprintf(", as far as they could be read: %s is %s (%s)", s.File, s.Status, s.Error)
		}
	}
	return text
}

// podAddrs are the addresses of a pod, one for each family.
func (m *model) podAddrs(pod string) ([]netip.Addr, error) {
	for _, p := range m.objects.Pods {
		if p.Namespace+"/"+p.Name != pod {
			continue
		}
		var out []netip.Addr
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				out = append(out, a)
			}
		}
		if len(out) == 0 {
			if a, err := netip.ParseAddr(p.Status.PodIP); err == nil {
				out = append(out, a)
			}
		}
		if len(out) == 0 {
			return nil, &NotFoundError{fmt.Sprintf("pod %s has no address yet", pod)}
		}
		return out, nil
	}
	for _, s := range m.sources {
		if snapshot.PodOf(s.File) == pod && s.Error != "" {
			return nil, &NotFoundError{fmt.Sprintf("pod %s is not among the objects: %s", pod, s.Error)}
		}
	}
	return nil, &NotFoundError{fmt.Sprintf("pod %s is not among the objects (add `kubectl get pods -o yaml` output with -f)", pod)}
}

// tracePacket fills in the paths of one packet.
func (m *model) tracePacket(t *report.Trace, o TraceOptions) error {
	dst, proto, err := parseTarget(o.To)
	if err != nil {
		return usage("--to: %v", err)
	}
	family := netfilter.FamilyOf(dst.Addr())
	var src netip.Addr
	var srcPort uint16
	switch {
	case o.FromPod != "":
		addrs, err := m.podAddrs(o.FromPod)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if netfilter.FamilyOf(a) == family {
				src = a
			}
		}
		if !src.IsValid() {
			return usage("pod %s has no address of the family of %s", o.FromPod, dst.Addr())
		}
	case o.FromAddr != "":
		if src, srcPort, err = parseClient(o.FromAddr); err != nil {
			return usage("--from: %v", err)
		}
	default:
		return usage("--to needs --from: an address, ADDRESS:PORT or pod/NAME that sends the packet")
	}
	if netfilter.FamilyOf(src) != family {
		return usage("--from %s and --to %s are of different address families", src, dst.Addr())
	}
	m.adoptNode(src, dst.Addr(), o.Origin)
	t.Node = m.node
	c := cell{client: m.client(m.packetClass(src, o.Origin), src, netip.Prefix{}), dst: dst, proto: proto, srcPort: srcPort, mark: o.Mark}
	c.exact = o.FromPod != ""
	switch o.Origin {
	case "node":
		c.entry, c.in, c.inAssumed = netfilter.FromNode, netfilter.NoIface, false
	case "pod", "external":
		c.entry = netfilter.FromInterface
	}
	if o.IncomingInterface != "" {
		c.in, c.inAssumed = netfilter.Iface{Name: o.IncomingInterface, Known: true}, false
	}
	c.port, c.at = m.portAt(dst, proto)
	c.frontend = report.Frontend{Kind: "Address", Address: dst.Addr().String(), Port: int(dst.Port()), Protocol: dataplane.ProtocolName(proto)}
	if c.port != nil {
		c.frontend.Kind, c.frontend.PortName = string(c.at.Kind), c.port.PortName
		t.Metadata = report.Metadata{Name: c.port.Name, Namespace: c.port.Namespace}
		for i := range c.port.Endpoints {
			if c.port.Endpoints[i].Addr == src && c.Class == intent.LocalPod {
				c.Class = intent.Hairpin
			}
		}
	} else {
		t.Metadata = report.Metadata{Name: c.frontend.Address}
	}
	// A question about one client is about that client: what its recent lists say counts.
	m.kernel.NewClient = m.kernel.Recent == nil
	t.Paths = m.paths(&c, m.walk(&c, nil))
	m.noteGranted(t.Paths)
	if c.port != nil {
		t.Findings = m.findings([]*intent.ServicePort{c.port}, t.Paths)
	}
	t.Summary.Text = m.packetSummary(&c, t.Paths)
	return nil
}

// packetClass is the source class of one packet: what the origin says and the address allows.
func (m *model) packetClass(src netip.Addr, origin string) intent.Class {
	class := m.classOf(src)
	switch {
	case origin == "node" && src.IsLoopback():
		return intent.Localhost
	case origin == "node":
		return intent.Node
	case origin == "pod" && class != intent.RemotePod:
		return intent.LocalPod
	case origin == "external" && (class == intent.LocalPod || class == intent.Node || class == intent.Localhost):
		return intent.External
	}
	return class
}

// portAt is the service port that a destination belongs to, nil when no object has it. A node port is one at
// any address of the node.
func (m *model) portAt(dst netip.AddrPort, proto uint8) (*intent.ServicePort, intent.Frontend) {
	for _, sp := range m.plan.Ports {
		if dataplane.ProtocolNumber(sp.Protocol) != proto {
			continue
		}
		for _, f := range sp.Frontends {
			if f.Addr == dst.Addr() && f.Port == int(dst.Port()) {
				return sp, f
			}
		}
	}
	return nil, intent.Frontend{}
}

// gridFrom walks every frontend from one client's addresses.
func (m *model) gridFrom(ports []*intent.ServicePort, o TraceOptions, addrs []netip.Addr) []report.Path {
	out := []report.Path{}
	for _, sp := range ports {
		for _, f := range sp.Frontends {
			if !o.via(f.Kind) || f.Addr.IsLoopback() {
				continue
			}
			for _, a := range addrs {
				if netfilter.FamilyOf(a) != netfilter.Family(sp.Family) {
					continue
				}
				class := m.classOf(a)
				if class == intent.LocalPod && slices.ContainsFunc(sp.Endpoints, func(e intent.Endpoint) bool { return e.Addr == a }) {
					class = intent.Hairpin
				}
				c := m.cell(m.client(class, a, netip.Prefix{}), sp, f)
				c.exact = true
				out = append(out, m.paths(&c, m.walk(&c, nil))...)
			}
		}
	}
	return out
}

// noteGranted says on every path what a partial capture made us take for granted.
func (m *model) noteGranted(paths []report.Path) {
	for i := range paths {
		paths[i].NotEvaluated = append(paths[i].NotEvaluated, m.granted...)
	}
}

func (m *model) proxyReport() report.Proxy {
	out := report.Proxy{Mode: m.proxy.Mode, Backend: m.proxy.Backend, Version: m.proxy.VersionText(), Evidence: []report.Evidence{}}
	for _, f := range m.proxy.Facts {
		out.Evidence = append(out.Evidence, report.Evidence{Source: f.Name + "=" + f.Value, File: f.File, Line: f.Line, Text: f.Text})
	}
	return out
}

func equalFold(a, b string) bool { return strings.EqualFold(a, b) }
