package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// observedPort is what is kept of the cells of a service port.
type observedPort struct {
	*intent.ServicePort
	// programmed is the number of distinct backends that get connections in them, -1 where nobody looked.
	programmed int32
	// unasked are those of them that the objects ask for in no cell.
	unasked int32
	// unobserved tells that nothing can be said of the port.
	unobserved bool
	// counted are the rules or virtual servers that count its connections.
	counted []report.Lines
}

// backendCounts counts the backends of the service ports of a node, in the order of the audit.
//
// A port that is like another one has no cells. The other one's are with the obstacles, where there are any. Where there
// are none the port does what the objects ask for, as do all that have none: one that was walked, and of which the
// objects ask as much, tells how many backends that are.
type backendCounts struct {
	model    *model
	asked    map[asked]int32
	refusals refusals
}

// of counts those of one port. asAsked tells that the audit has nothing to say of it, and that it meets no obstacle.
func (c *backendCounts) of(p *check.Port, asAsked bool) observedPort {
	out := observedPort{ServicePort: p.ServicePort, programmed: -1, unobserved: c.model.unobserved(p.ServicePort), counted: c.model.countedRules(p.ServicePort, c.refusals)}
	switch {
	case !c.model.looksAt(p.ServicePort):
	case p.Cells != nil:
		out.programmed, out.unasked = distinctBackends(p.Cells)
		if asAsked {
			c.asked[askedBackends(p.ServicePort)] = out.programmed
		}
	case len(p.Alike) > 0:
		out.programmed, out.unasked = distinctBackends(p.Alike[0].Hits[0].Port.Cells)
	default:
		out.programmed = c.asked[askedBackends(p.ServicePort)]
	}
	return out
}

// distinctBackends counts those that get connections in any cell, and of these the ones that ought to in none.
func distinctBackends(cells [][]report.Path) (all, unasked int32) {
	type backend struct {
		address string
		port    int
	}
	seen := make(map[backend]bool)
	for _, paths := range cells {
		for i := range paths {
			for j := range paths[i].Backends {
				if b := &paths[i].Backends[j]; b.Probability > 0 {
					k := backend{b.Address, b.Port}
					seen[k] = seen[k] || b.State == "ok" || b.State == "unknown"
				}
			}
		}
	}
	for _, asked := range seen {
		if !asked {
			unasked++
		}
	}
	return int32(len(seen)), unasked
}

// asked is what decides how many backends the objects ask for. Ports that are alike agree in it.
type asked struct {
	family                                int
	internalLocal, externalLocal, narrows bool
	// in counts endpoints by the lists of the port that they are in, as bits; local are those on this node.
	in    [8]int32
	local int32
	// frontends are their kinds, and which of them are the node's.
	frontends string
}

func askedBackends(sp *intent.ServicePort) asked {
	a := asked{family: sp.Family, internalLocal: sp.InternalLocal, externalLocal: sp.ExternalLocal, narrows: sp.TopologyNote != ""}
	serves := make([]byte, len(sp.Endpoints))
	for bit, list := range [][]int{sp.Cluster, sp.Local, sp.Usable} {
		for _, i := range list {
			serves[i] |= 1 << bit
		}
	}
	for i, in := range serves {
		a.in[in]++
		if sp.Endpoints[i].Local {
			a.local++
		}
	}
	var b strings.Builder
	for _, f := range sp.Frontends {
		b.WriteString(string(f.Kind))
		b.WriteByte(' ' + flag(f.OnNode))
	}
	a.frontends = b.String()
	return a
}

// maxNamedWalked bounds the service ports that are walked though only rules name them. They have no objects by which one
// would be known to be like another.
const maxNamedWalked = 500

// portsOnlyRulesName are service ports that rules serve or refuse and that no object asks for.
func (m *model) portsOnlyRulesName(o AuditOptions, refusals refusals) []observedPort {
	type id struct {
		key, protocol string
		family        int
	}
	known := make(map[id]bool, len(m.plan.Ports))
	chains := make(map[string]string, len(m.plan.Ports))
	for _, sp := range m.plan.Ports {
		known[id{sp.Key(), sp.Protocol, sp.Family}] = true
		for _, key := range spellings(sp) {
			chains[dataplane.ChainID(key, sp.Protocol)] = sp.Key()
		}
	}
	var found []dataplane.Portal
	wanted := func(p *dataplane.Portal) bool {
		namespace, name, _ := splitKey(p.ServicePort)
		// A health check port is none of its own.
		return p.Kind != intent.HealthCheck && o.selects(m, namespace, name) &&
			!known[id{p.ServicePort, dataplane.ProtocolName(p.Protocol), int(p.Family)}]
	}
	dataplane.EachProgrammed(m.rulesets, chains, func(p dataplane.Programmed) {
		if wanted(&p.Portal) {
			found = append(found, p.Portal)
		}
	})
	dataplane.EachEntrance(m.nft, func(e dataplane.Entrance) {
		if wanted(&e.Portal) {
			found = append(found, e.Portal)
		}
	})
	if len(found) == 0 {
		return nil
	}
	services := make(map[serviceKey]bool)
	for i := range found {
		namespace, name, _ := splitKey(found[i].ServicePort)
		services[serviceKey{namespace, name}] = true
	}
	var out []observedPort
	m.unchanged(func() {
		for _, sp := range m.portsNamed(services) {
			if known[id{sp.Key(), sp.Protocol, sp.Family}] || !slices.ContainsFunc(sp.Frontends, func(f intent.Frontend) bool { return f.Kind != intent.HealthCheck }) {
				continue
			}
			p := observedPort{ServicePort: sp, programmed: -1, unobserved: true, counted: m.countedRules(sp, refusals)}
			if len(services) <= maxNamedWalked && m.looksAt(sp) {
				p.programmed, p.unasked = distinctBackends(cellsOf(sp, m.grid([]*intent.ServicePort{sp}, TraceOptions{})))
			}
			out = append(out, p)
		}
	})
	return out
}

// portsNamed are the service ports of some Services as rules name them, with the frontends that a trace of each has.
func (m *model) portsNamed(services map[serviceKey]bool) []*intent.ServicePort {
	chains := make(map[string]string)
	for k := range services {
		unnamed := &intent.ServicePort{Namespace: k.namespace, Name: k.name}
		for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
			for _, key := range spellings(unnamed) {
				chains[dataplane.ChainID(key, protocol)] = unnamed.Key()
			}
		}
	}
	wanted := func(key string) bool {
		namespace, name, _ := splitKey(key)
		return services[serviceKey{namespace, name}]
	}
	return m.portals(append(dataplane.Portals(m.rulesets, wanted, chains), dataplane.NFTPortals(m.nft, wanted)...))
}

// spellings are the names of a service port that kube-proxy hashes into names of chains: up to 1.18 that of a port
// without a name ends in a colon.
func spellings(sp *intent.ServicePort) []string {
	if sp.PortName == "" {
		return []string{sp.Key(), sp.Key() + ":"}
	}
	return []string{sp.Key()}
}

// unchanged asks the model something and leaves it as it was: a question may take its own word for whose evidence this
// is, for an address of the node, or for what its client did before.
func (m *model) unchanged(ask func()) {
	node, plan, claims, granted, newClient := m.node, m.plan, m.claims, m.granted, m.kernel.NewClient
	h := m.kernel.Host
	addrs, anyAddrs, cidrs := h.NodeAddrs, h.AnyNodeAddrs, h.PodCIDRs
	ask()
	m.kernel.NewClient = newClient
	if m.node != node {
		m.node, m.plan, m.claims, m.granted = node, plan, claims, granted
		h.AnyNodeAddrs, h.PodCIDRs = anyAddrs, cidrs
	}
	if len(h.NodeAddrs) != len(addrs) {
		h.NodeAddrs = addrs
		// The host notices by their number that its addresses are others, when it is asked the next time. It has to be
		// asked before they are as many again.
		h.OwnAddrs(4)
	}
}

// Trace answers a question about the evidence of the reading, as the function Trace does, without reading it again; Memory
// of the options is not used. The model of the reading is used by one goroutine at a time. Errors are those of the function.
func (r *Reading) Trace(o TraceOptions) (*report.Trace, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	var (
		t   *report.Trace
		err error
	)
	r.model.unchanged(func() { t, err = r.model.traced(o) })
	return t, err
}

// planned are the service ports that were asked for, before anything is known of them but what the objects say.
func (m *model) planned(o AuditOptions) *report.NodeServices {
	r := Reading{Report: &report.Report{Node: m.node, Proxy: m.proxyReport()}, model: m, options: o}
	for _, sp := range m.plan.Ports {
		if o.selects(m, sp.Namespace, sp.Name) {
			r.ports = append(r.ports, observedPort{ServicePort: sp, programmed: -1, unobserved: true})
		}
	}
	out := r.Services()
	for i := range out.Services {
		if p := &out.Services[i]; p.State == report.ServicePortUnknown {
			p.Note = "not checked yet"
		}
	}
	return out
}

// Services are the service ports of the node, with the findings of r.Report and what its audit observed. The model of the
// reading is used by one goroutine at a time.
func (r *Reading) Services() *report.NodeServices {
	m := r.model
	out := &report.NodeServices{
		TypeMeta: metav1.TypeMeta{APIVersion: report.APIVersion, Kind: "NodeServices"},
		Node:     r.Report.Node, Proxy: r.Report.Proxy, Sources: r.Report.Sources,
		Services: make([]report.ServicePort, 0, len(r.ports)+len(r.named)+len(m.plan.Skipped)),
	}
	for i := range r.ports {
		out.Services = append(out.Services, m.row(&r.ports[i]))
	}
	for i := range r.named {
		out.Services = append(out.Services, m.row(&r.named[i]))
	}
	out.Services = append(out.Services, r.skipped()...)
	slices.SortStableFunc(out.Services, func(a, b report.ServicePort) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port),
			strings.Compare(a.Protocol, b.Protocol), strings.Compare(a.Family, b.Family), strings.Compare(a.PortName, b.PortName))
	})
	judge(out.Services, r.Report.Findings)
	out.Summary.Text = rowsText(out)
	return out
}

// row is a service port that a proxy forwards, without what was found.
func (m *model) row(p *observedPort) report.ServicePort {
	sp := p.ServicePort
	row := report.ServicePort{
		Namespace: sp.Namespace, Name: sp.Name, PortName: sp.PortName, Port: sp.Port, Protocol: sp.Protocol, Family: familyName(sp.Family),
		Frontends: make([]report.Frontend, 0, len(sp.Frontends)), State: report.ServicePortOK, Findings: []string{}, Note: sp.TopologyNote,
		Counted: p.counted,
	}
	if svc, ok := m.objects.Service(sp.Namespace, sp.Name); ok {
		row.Type = serviceType(svc.Service)
	}
	for _, f := range sp.Frontends {
		row.Frontends = append(row.Frontends, report.Frontend{
			Kind: string(f.Kind), Address: f.Addr.String(), Port: f.Port, Protocol: sp.FrontendProtocol(f), PortName: sp.PortName,
		})
		if row.Port == 0 && f.Kind != intent.NodePort && f.Kind != intent.HealthCheck {
			row.Port = f.Port // what only rules name has no other number
		}
	}
	if p.programmed >= 0 {
		row.Programmed = ref(int(p.programmed))
		row.Unasked = int(p.unasked)
	}
	if !sp.EndpointsUnknown {
		row.Ready, row.Endpoints = ref(m.readyHere(sp)), ref(len(sp.Endpoints))
	}
	if p.unobserved {
		row.State, row.Note = report.ServicePortUnknown, m.whyUnobserved(sp)
	}
	return row
}

// readyHere counts the ready endpoints that the traffic policies use on this node.
func (m *model) readyHere(sp *intent.ServicePort) int {
	used := make([]bool, len(sp.Endpoints))
	use := func(list []int) {
		for _, i := range list {
			used[i] = true
		}
	}
	if m.proxy.Mode == "ipvs" && (sp.InternalLocal || sp.ExternalLocal) {
		// A virtual server has one list for all clients: where all policies are Local, nobody gets to the other endpoints.
		open := *sp
		open.SourceRanges = nil
		for _, f := range sp.Frontends {
			use(open.Intend(f, intent.Client{Class: intent.External}, m.proxy).Backends)
		}
	} else {
		use(sp.Cluster)
		use(sp.Local)
	}
	n := 0
	for i := range sp.Endpoints {
		if used[i] && sp.Endpoints[i].Ready {
			n++
		}
	}
	return n
}

// whyUnobserved says what is missing where nothing can be said of a service port.
func (m *model) whyUnobserved(sp *intent.ServicePort) string {
	if !m.looksAt(sp) {
		sources := []check.Source{check.ServiceTables, check.RulesOf(netfilter.Family(sp.Family))}
		if m.proxy.Mode == "ipvs" {
			sources = []check.Source{check.ServiceTables, check.Addrs, check.IPSets, sources[1]}
		}
		for _, s := range sources {
			if why := m.answers[s]; why != "" {
				return fmt.Sprintf("%s: %s", s, why)
			}
		}
		return "its rules were not read"
	}
	if _, known := m.objects.Service(sp.Namespace, sp.Name); !known {
		return "only rules name it: there is no such Service among the objects"
	}
	if sp.Evidence.File == "" {
		return "only rules name it: the Service has no such port among the objects"
	}
	return "neither its EndpointSlices nor its Endpoints were read"
}

func familyName(family int) string { return fmt.Sprintf("IPv%d", family) }

// serviceType is the type of a Service, with the default of the API.
func serviceType(svc *corev1.Service) string {
	return cmp.Or(string(svc.Spec.Type), string(corev1.ServiceTypeClusterIP))
}

// skipped are the rows of Services that no proxy forwards.
func (r *Reading) skipped() []report.ServicePort {
	m := r.model
	why := make(map[serviceKey]string, len(m.plan.Skipped))
	for _, s := range m.plan.Skipped {
		why[serviceKey{s.Namespace, s.Name}] = s.Text
	}
	forwarded := make(map[serviceKey]bool, len(r.ports))
	for _, sp := range m.plan.Ports {
		forwarded[serviceKey{sp.Namespace, sp.Name}] = true
	}
	// A Service without an address is a manifest that was never applied: where rules name it, they know its ports.
	for _, s := range m.plan.Skipped {
		if s.Reason == intent.SkipNoClusterIP && slices.ContainsFunc(r.named, func(p observedPort) bool { return p.Namespace == s.Namespace && p.Name == s.Name }) {
			forwarded[serviceKey{s.Namespace, s.Name}] = true
		}
	}
	var out []report.ServicePort
	seen := make(map[serviceKey]bool)
	for _, svc := range m.objects.Services {
		k := serviceKey{svc.Namespace, svc.Name}
		if forwarded[k] || seen[k] || !r.options.selects(m, k.namespace, k.name) {
			continue
		}
		seen[k] = true
		row := report.ServicePort{
			Namespace: k.namespace, Name: k.name, Type: serviceType(svc.Service),
			Frontends: []report.Frontend{}, State: report.ServicePortSkipped, Findings: []string{},
			Note: cmp.Or(why[k], notServed(svc.Service)),
		}
		for _, p := range svc.Spec.Ports {
			row.PortName, row.Port, row.Protocol = p.Name, int(p.Port), cmp.Or(string(p.Protocol), string(corev1.ProtocolTCP))
			out = append(out, row)
		}
		if len(svc.Spec.Ports) == 0 {
			out = append(out, row)
		}
	}
	return out
}

// notServed says why a Service that no rule of its type leaves out has nothing to forward.
func notServed(svc *corev1.Service) string {
	if len(svc.Spec.Ports) == 0 {
		return fmt.Sprintf("%s/%s has no ports: there is nothing to forward", svc.Namespace, svc.Name)
	}
	return fmt.Sprintf("%s/%s has no cluster IP of a family that the proxy of this node serves", svc.Namespace, svc.Name)
}

// judge says of each row, sorted by Service, what was found.
func judge(rows []report.ServicePort, findings []report.Finding) {
	of := make(map[serviceKey][2]int)
	for i := range rows {
		k := serviceKey{rows[i].Namespace, rows[i].Name}
		span, ok := of[k]
		if !ok {
			span[0] = i
		}
		span[1] = i + 1
		of[k] = span
	}
	// What follows from another finding stands behind the causes.
	for _, follows := range []bool{false, true} {
		for i := range findings {
			f := &findings[i]
			if f.Object.Kind != "Service" || (f.CausedBy != "") != follows {
				continue
			}
			span := of[serviceKey{f.Object.Namespace, f.Object.Name}]
			for _, row := range aboutRows(rows[span[0]:span[1]], &f.Object) {
				if !slices.Contains(row.Findings, f.ID) {
					row.Findings = append(row.Findings, f.ID)
				}
				if row.Severity == "" || check.Rank(f.Severity) < check.Rank(row.Severity) {
					row.Severity = f.Severity
				}
				if check.Rank(f.Severity) <= check.Rank(check.Warning) {
					row.State = report.ServicePortDiffers
				}
			}
		}
	}
}

// aboutRows are the rows of a Service that a finding is about: all of them, unless it names a port, and an endpoint of
// one family, that some have.
func aboutRows(rows []report.ServicePort, o *report.Object) []*report.ServicePort {
	var all []*report.ServicePort
	for i := range rows {
		all = append(all, &rows[i])
	}
	some := func(fits func(*report.ServicePort) bool) {
		var out []*report.ServicePort
		for _, row := range all {
			if fits(row) {
				out = append(out, row)
			}
		}
		if len(out) > 0 {
			all = out
		}
	}
	switch {
	case o.Port != "":
		some(func(row *report.ServicePort) bool {
			return (row.PortName == o.Port || row.PortName == "" && fmt.Sprint(row.Port) == o.Port) && (o.Protocol == "" || row.Protocol == o.Protocol)
		})
	case o.Protocol != "":
		// A port without a name: the only one of its Service with that protocol.
		some(func(row *report.ServicePort) bool { return row.PortName == "" && row.Protocol == o.Protocol })
	}
	if family := endpointFamily(o.Endpoint); family != "" {
		some(func(row *report.ServicePort) bool { return row.Family == family })
	}
	return all
}

// endpointFamily is the address family of "address:port" or an address; empty for anything else.
func endpointFamily(endpoint string) string {
	if endpoint == "" {
		return ""
	}
	a, err := netip.ParseAddr(endpoint)
	if err != nil {
		ap, err := netip.ParseAddrPort(endpoint)
		if err != nil {
			return ""
		}
		a = ap.Addr()
	}
	return familyName(int(netfilter.FamilyOf(a)))
}

// rowsText is the summary line.
func rowsText(s *report.NodeServices) string {
	where := "on a node that the evidence does not name"
	if s.Node != "" {
		where = "on " + s.Node
	}
	count := make(map[report.ServicePortState]int)
	for i := range s.Services {
		count[s.Services[i].State]++
	}
	var parts []string
	for _, c := range []struct {
		state     report.ServicePortState
		one, more string
	}{
		{report.ServicePortOK, "as it should be", "as they should be"},
		{report.ServicePortDiffers, "with findings", "with findings"},
		{report.ServicePortUnknown, "not known", "not known"},
		{report.ServicePortSkipped, "not forwarded by a proxy", "not forwarded by a proxy"},
	} {
		switch n := count[c.state]; n {
		case 0:
		case 1:
			parts = append(parts, "1 "+c.one)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, c.more))
		}
	}
	if len(parts) == 0 {
		parts = []string{"nothing is there"}
	}
	return fmt.Sprintf("%s %s: %s.", plural(len(s.Services), "service port"), where, strings.Join(parts, ", "))
}

// refusals are the rules by which kube-proxy refuses service ports in iptables mode.
type refusals map[refused][]report.Lines

type refused struct {
	servicePort string
	protocol    uint8
	family      netfilter.Family
}

// refusals gathers them; nil in other modes.
func (m *model) refusals() refusals {
	if m.proxy.Mode != "iptables" {
		return nil
	}
	out := make(refusals)
	for _, rs := range m.rulesets {
		for _, rule := range dataplane.Refusing(rs) {
			switch rule.Target.(type) {
			case netfilter.Reject, netfilter.Drop:
			default:
				continue
			}
			// Other rules refuse clients that are in no source range. Those are none for the want of endpoints.
			key, _, ok := dataplane.ServicePortOf(rule.Comment)
			ok = ok && strings.HasSuffix(rule.Comment, " endpoints")
			if _, proto, _, _, hasProto, _ := rule.ExactDst(); ok && hasProto {
				k := refused{key, proto, rs.Family}
				out[k] = addLines(out[k], rs.File, rule.Line)
			}
		}
	}
	return out
}

// countedServers are the virtual servers of a service port, where their counters were read. A virtual server counts the
// connections of all its real servers, also of those that are gone, whose own counters went with them.
func (m *model) countedServers(sp *intent.ServicePort) (out []report.Lines) {
	for _, f := range sp.Frontends {
		if f.Kind == intent.HealthCheck {
			continue
		}
		s := m.kernel.IPVS.Find(sp.Family, 0, dataplane.ProtocolNumber(sp.Protocol), f.Addr, uint16(f.Port), unprivileged)
		if s != nil && s.Port == uint16(f.Port) && s.Stats.Known {
			out = addLines(out, s.File, s.Line)
		}
	}
	return out
}

// countedRules are what counts connections to a service port. In iptables mode these are the rules that translate to an
// endpoint, of the chains that its own lead to, and those that refuse it; in IPVS mode virtual servers. kube-proxy has no
// counters in nftables mode.
func (m *model) countedRules(sp *intent.ServicePort, refusals refusals) []report.Lines {
	if m.proxy.Mode == "ipvs" && m.kernel.IPVS != nil {
		return sorted(m.countedServers(sp))
	}
	if refusals == nil {
		return nil
	}
	out := slices.Clone(refusals[refused{sp.Key(), dataplane.ProtocolNumber(sp.Protocol), netfilter.Family(sp.Family)}])
	for i := range out {
		out[i].Numbers = slices.Clone(out[i].Numbers)
	}
	for _, rs := range m.rulesets {
		if int(rs.Family) != sp.Family {
			continue
		}
		nat := rs.Table("nat")
		if nat == nil {
			continue
		}
		for _, key := range spellings(sp) {
			id := dataplane.ChainID(key, sp.Protocol)
			for _, prefix := range []string{dataplane.SVCPrefix, dataplane.SVLPrefix, dataplane.XLBPrefix} {
				if c := nat.Chain(prefix + id); c != nil {
					out = countedIn(out, rs, nat, c)
				}
			}
		}
	}
	return sorted(out)
}

// sorted puts lines in order, each once.
func sorted(out []report.Lines) []report.Lines {
	for i := range out {
		slices.Sort(out[i].Numbers)
		out[i].Numbers = slices.Compact(out[i].Numbers)
	}
	slices.SortFunc(out, func(a, b report.Lines) int { return strings.Compare(a.File, b.File) })
	return out
}

// countedIn adds the translations to the endpoints among which a chain chooses.
func countedIn(out []report.Lines, rs *netfilter.Ruleset, nat *netfilter.Table, c *netfilter.Chain) []report.Lines {
	for i := range c.Rules {
		j, ok := c.Rules[i].Target.(netfilter.Jump)
		if !ok || !strings.HasPrefix(j.Chain, dataplane.SEPPrefix) {
			continue
		}
		endpoint := nat.Chain(j.Chain)
		if endpoint == nil {
			continue
		}
		for k := range endpoint.Rules {
			switch t := endpoint.Rules[k].Target.(type) {
			case *netfilter.Translate:
				if t.Kind == netfilter.DNAT {
					out = addLines(out, rs.File, endpoint.Rules[k].Line)
				}
			case netfilter.Unreadable:
				if t.Name == "DNAT" {
					out = addLines(out, rs.File, endpoint.Rules[k].Line)
				}
			}
		}
	}
	return out
}

func addLines(to []report.Lines, file string, line int) []report.Lines {
	for i := range to {
		if to[i].File == file {
			to[i].Numbers = append(to[i].Numbers, int32(line))
			return to
		}
	}
	return append(to, report.Lines{File: file, Numbers: []int32{int32(line)}})
}
