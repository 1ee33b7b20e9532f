package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
	"github.com/svcnet/svcnet/repair/kubeproxy"
)

const (
	// kindIPVS is the kind of the step that changes virtual servers; its input is what `ipvsadm -R` reads.
	kindIPVS = "ipvs"
	// serversTable is the Table of its edits.
	serversTable = "IPVS"
	ipvsMode     = "ipvs"
	protoTCP     = 6
)

// mendServers brings the virtual servers that findings speak of to what kube-proxy keeps, in one step. Each is brought
// there whole: what one Service finds wrong at its virtual server and what it does not go together.
func mendServers(s *site) []report.RepairStep {
	if s.node.Proxy.Mode != ipvsMode || !readsServers(s.node) {
		return nil
	}
	var changes []serverChange
	present := make(map[string]*ipvs.Service, len(s.node.IPVS.Services))
	for i := range s.node.IPVS.Services {
		v := &s.node.IPVS.Services[i]
		present[serverName(v)] = v
	}
	known, about := make(map[string]bool, len(present)), s.indexed()
	for _, want := range kubeproxy.Servers(s.node.Plan, &s.node.Proxy, s.node.Host, s.node.IPVS) {
		name := serverName(&want.Service)
		have := present[name]
		known[name] = true
		c, ok := serverToward(have, &want)
		if !ok {
			continue
		}
		c.findings = about.server(have, &want, c.stops)
		if len(c.findings) > 0 {
			changes = append(changes, c)
		}
	}
	for i := range s.node.IPVS.Services {
		have := &s.node.IPVS.Services[i]
		if known[serverName(have)] || s.excluded(have.Addr) {
			continue
		}
		if found := about.server(have, nil, true); len(found) > 0 {
			changes = append(changes, serverChange{have: have, findings: found, whole: "no Service asks for it, and it takes packets of Services", foreign: true})
		}
	}
	var out []report.RepairStep
	own := slices.DeleteFunc(slices.Clone(changes), func(c serverChange) bool { return c.foreign })
	if len(own) > 0 {
		out = append(out, s.serverStep(own, ownerProxy))
	}
	if others := slices.DeleteFunc(changes, func(c serverChange) bool { return !c.foreign }); len(others) > 0 {
		out = append(out, s.serverStep(others, ownerForeign))
	}
	return out
}

// readsServers tells whether the virtual servers of a node were read, all of them and with everything that a command
// needs to make them.
func readsServers(n *check.Node) bool {
	return listsServers(n) && !slices.ContainsFunc(n.IPVS.Services, func(s ipvs.Service) bool { return !tellsAll(&s) })
}

// listsServers tells whether all virtual servers of a node were read.
func listsServers(n *check.Node) bool {
	return n.IPVS != nil && n.IPVS.HasServices && n.IPVS.Missing == ""
}

// tellsAll tells whether everything of a virtual server was read that a command needs to make it.
func tellsAll(s *ipvs.Service) bool {
	return s.Scheduler != "" && (!s.Persistent || s.Timeout != 0) &&
		!slices.ContainsFunc(s.Dests, func(d ipvs.Dest) bool { return d.Method == ipvs.UnknownMethod || !d.HasWeight })
}

// serverName names a virtual server in an edit: "virtual server TCP 10.96.0.1:443".
func serverName(s *ipvs.Service) string {
	if s.FWMark != 0 {
		return fmt.Sprintf("virtual server of mark %d (IPv%d)", s.FWMark, s.Family)
	}
	return fmt.Sprintf("virtual server %s %s", dataplane.ProtocolName(s.Proto), netip.AddrPortFrom(s.Addr, s.Port))
}

// serverNamed is the virtual server of that name, nil where it is not there.
func serverNamed(t *ipvs.Table, name string) *ipvs.Service {
	var family int
	var mark uint32
	if n, _ := fmt.Sscanf(name, "virtual server of mark %d (IPv%d)", &mark, &family); n == 2 {
		if s := t.Find(family, mark, 0, netip.Addr{}, 0, 0); s != nil && s.FWMark == mark {
			return s
		}
		return nil
	}
	proto, dialled, _ := strings.Cut(strings.TrimPrefix(name, "virtual server "), " ")
	at, err := netip.ParseAddrPort(dialled)
	if err != nil {
		return nil
	}
	family = 4
	if at.Addr().Is6() {
		family = 6
	}
	// It finds one for another port too, where the kernel would.
	if s := t.Find(family, 0, dataplane.ProtocolNumber(proto), at.Addr(), at.Port(), 0); s != nil && serverName(s) == name {
		return s
	}
	return nil
}

// serverChange is a virtual server before and after: have is nil for one that is made, will for one that is deleted.
type serverChange struct {
	have, will *ipvs.Service
	port       *intent.ServicePort
	// whole is why it is made or deleted, header why it is changed itself, and reals why its real servers are.
	whole, header string
	reals         map[netip.AddrPort]string
	// stops is true where packets do not get to the backends that they ought to reach.
	stops bool
	// foreign is true for one that is not of kube-proxy's making.
	foreign  bool
	findings []int
}

// serverToward is what brings a virtual server to what kube-proxy keeps; ok is false where it is so, and where that is not
// known.
func serverToward(have *ipvs.Service, want *kubeproxy.VirtualServer) (c serverChange, ok bool) {
	c = serverChange{have: have, port: want.Port}
	switch {
	case want.May, have == nil && want.Open != "" && !want.Port.ByChance:
		return c, false
	case have == nil:
		will := want.Service
		c.will, c.stops, c.whole = &will, true, "kube-proxy keeps it, and it is not there"
		return c, true
	}
	will := want.Service
	will.Dests = slices.Clone(want.Dests)
	if was, is := have.String(), will.String(); was != is {
		c.header = fmt.Sprintf("it is made with %q, and kube-proxy makes it with %q", options(was), options(is))
	}
	if want.Open != "" {
		will.Dests = have.Dests
	} else {
		c.compareReals(have, &will)
	}
	c.will = &will
	return c, c.header != "" || len(c.reals) > 0
}

// options are those of a virtual server in the save form, behind its name: "-s rr -p 300".
func options(line string) string {
	_, rest, _ := strings.Cut(line, " -s ")
	return "-s " + rest
}

// compareReals compares real servers, and keeps for a while those of will that kube-proxy would keep: one that ought not
// to be there and may have connections gets weight 0, as kube-proxy's graceful termination gives it, and goes when they
// are gone. UDP and SCTP have none of that (IsRsGracefulTerminationNeeded of pkg/proxy/ipvs/util/ipvs.go).
func (c *serverChange) compareReals(have, will *ipvs.Service) {
	c.reals = make(map[netip.AddrPort]string)
	wanted := make(map[netip.AddrPort]*ipvs.Dest, len(will.Dests))
	for i := range will.Dests {
		wanted[will.Dests[i].AddrPort()] = &will.Dests[i]
	}
	var leaving []ipvs.Dest
	for i := range have.Dests {
		d := have.Dests[i]
		at := d.AddrPort()
		w := wanted[at]
		delete(wanted, at)
		switch {
		case w != nil && destLine(have, &d) == destLine(will, w):
		case w != nil:
			c.reals[at] = fmt.Sprintf("it has weight %d and method %s, and kube-proxy gives it weight 1 and Masq", d.Weight, d.Method)
			if d.Upper+d.Lower > 0 {
				c.reals[at] += fmt.Sprintf("; its connections are bounded (%d, %d), and kube-proxy sets no bounds", d.Upper, d.Lower)
			}
			c.stops = c.stops || d.Weight == 0 || d.Method != ipvs.Masq
		case d.Weight == 0:
			leaving = append(leaving, d)
		case have.Proto != protoTCP || d.HasConns && d.ActiveConns+d.InactConns == 0:
			c.reals[at], c.stops = "it is none of the endpoints that the virtual server ought to have", true
		default:
			conns := "may have connections"
			if d.HasConns {
				conns = fmt.Sprintf("has %d connections", d.ActiveConns+d.InactConns)
			}
			c.reals[at] = fmt.Sprintf("it is none of the endpoints that the virtual server ought to have; it %s, and gets weight 0 for that: no new ones come, and kube-proxy deletes it when they are gone", conns)
			c.stops = true
			d.Weight = 0
			leaving = append(leaving, d)
		}
	}
	for i := range will.Dests {
		if at := will.Dests[i].AddrPort(); wanted[at] != nil {
			c.reals[at], c.stops = "it is an endpoint that the virtual server ought to have", true
		}
	}
	will.Dests = append(will.Dests, leaving...)
}

// excluded tells whether kube-proxy leaves virtual servers of an address to others.
func (s *site) excluded(a netip.Addr) bool {
	return slices.ContainsFunc(s.node.Proxy.ExcludeCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// ofServers are the findings about service ports that a virtual server is behind; true for those that it is behind only
// where it keeps packets from the backends that they ought to reach.
var ofServers = map[string]bool{
	"affinity-mismatch":                false,
	"affinity-to-unready-endpoint":     false,
	"excluded-endpoint-used":           false,
	"frontend-unreachable":             true,
	"ipvs-ready-endpoint-weight-zero":  false,
	"local-endpoint-not-used":          true,
	"masquerade-missing":               true,
	"masquerade-unexpected":            true,
	"missing-endpoint-rule":            false,
	"missing-service-rule":             true,
	"not-ready-endpoint-used":          false,
	"probability-skewed":               false,
	"refusal-missing":                  false,
	"reject-rule-with-ready-endpoints": true,
	"reply-blocked":                    true,
	"stale-endpoint-rule":              false,
	"wrong-translation":                false,
}

// findingIndex finds findings that may be mended.
type findingIndex struct {
	site *site
	// bySubject are they by id and subject, byCause by the id that causes them and "namespace/name", byService by that
	// alone, byPlace by the file and line of evidence.
	bySubject map[[2]string][]int
	byCause   map[[2]string][]int
	byService map[string][]int
	byPlace   map[evidencePlace][]int
}

type evidencePlace struct {
	file string
	line int
}

func (s *site) indexed() *findingIndex {
	x := &findingIndex{site: s, bySubject: make(map[[2]string][]int), byCause: make(map[[2]string][]int), byService: make(map[string][]int), byPlace: make(map[evidencePlace][]int)}
	for _, i := range s.which(func(f *report.Finding) bool { return reasons[f.ID] == "" }) {
		f := &s.findings[i]
		x.bySubject[[2]string{f.ID, f.Subject}] = append(x.bySubject[[2]string{f.ID, f.Subject}], i)
		of := service(&f.Object)
		if f.CausedBy != "" {
			x.byCause[[2]string{f.CausedBy, of}] = append(x.byCause[[2]string{f.CausedBy, of}], i)
		}
		if of != "" {
			x.byService[of] = append(x.byService[of], i)
		}
		for _, e := range f.Evidence {
			if e.File != "" && e.Line != 0 {
				x.byPlace[evidencePlace{e.File, e.Line}] = append(x.byPlace[evidencePlace{e.File, e.Line}], i)
			}
		}
	}
	return x
}

// about are the findings of an id and a subject.
func (x *findingIndex) about(id, subject string) []int { return x.bySubject[[2]string{id, subject}] }

// follow are the findings of the same Services that some findings cause.
func (x *findingIndex) follow(found []int) []int {
	var out []int
	for _, i := range found {
		f := &x.site.findings[i]
		out = append(out, x.byCause[[2]string{f.ID, service(&f.Object)}]...)
	}
	return out
}

// port are the findings about a service port of which fits holds.
func (x *findingIndex) port(sp *intent.ServicePort, fits func(f *report.Finding) bool) []int {
	var out []int
	for _, i := range x.byService[sp.Namespace+"/"+sp.Name] {
		if f := &x.site.findings[i]; fits(f) && aboutPort(f, sp) {
			out = append(out, i)
		}
	}
	return out
}

// server are the findings that speak of a virtual server: those about the service port that it is for, and those that show
// it, or one of its real servers, as their evidence.
func (x *findingIndex) server(have *ipvs.Service, want *kubeproxy.VirtualServer, stops bool) []int {
	var out []int
	if have != nil {
		out = append(out, x.byPlace[evidencePlace{have.File, have.Line}]...)
		for i := range have.Dests {
			out = append(out, x.byPlace[evidencePlace{have.Dests[i].File, have.Dests[i].Line}]...)
		}
	}
	if want != nil {
		out = append(out, x.port(want.Port, func(f *report.Finding) bool {
			blocking, ok := ofServers[f.ID]
			return ok && (stops || !blocking)
		})...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// aboutPort tells whether a finding is about a service port.
func aboutPort(f *report.Finding, sp *intent.ServicePort) bool {
	o := &f.Object
	if o.Kind != "Service" || o.Namespace != sp.Namespace || o.Name != sp.Name ||
		o.Port != "" && o.Port != sp.PortName || o.Protocol != "" && o.Protocol != sp.Protocol {
		return false
	}
	// The two families of a port have findings of their own, where an endpoint tells them apart.
	at, err := netip.ParseAddrPort(o.Endpoint)
	return err != nil || at.Addr().Is4() == (sp.Family == 4)
}

// serverStep is the step that makes changes.
func (s *site) serverStep(changes []serverChange, owner string) report.RepairStep {
	slices.SortStableFunc(changes, func(a, b serverChange) int { return kubeproxy.CompareServers(a.any(), b.any()) })
	step := report.RepairStep{
		Kind: kindIPVS, Owner: owner,
		Do:   report.RepairCommand{Command: []string{"ipvsadm", "-R"}},
		Undo: report.RepairCommand{Command: []string{"ipvsadm", "-R"}},
	}
	var did, services []string
	counts := make(map[string]int)
	for i := range changes {
		c := &changes[i]
		verb := "change"
		switch {
		case c.have == nil:
			verb = "make"
		case c.will == nil:
			verb = "delete"
		}
		counts[verb]++
		if c.port != nil {
			services = once(services, c.port.Namespace+"/"+c.port.Name)
		}
		step.Edits = append(step.Edits, c.edits(s.mends(c.findings...))...)
		step.Do.Input += lines(serverCommands(c.have, c.will))
		step.Undo.Input = lines(serverCommands(c.will, c.have)) + step.Undo.Input
	}
	for _, verb := range []string{"make", "change", "delete"} {
		if n := counts[verb]; n > 0 {
			did = append(did, fmt.Sprintf("%s %s", verb, plural(n, "virtual server")))
		}
	}
	step.Title = strings.Join(did, ", ")
	step.Reason = s.findings[changes[0].findings[0]].Message
	step.Affects = "new connections to " + names(services, 3) + "; those under way stay with their real server"
	step.Risk = "real servers that were put there by hand for a purpose lose it"
	step.Lasts = s.serversLast()
	if owner == ownerForeign {
		step.Consent = AllowForeign
		step.Affects = "every packet that it takes now, of Services and of others; connections through it end with their next packet"
		step.Risk = "who made it, and what for, is not known here; it may be made again"
		step.Lasts = ""
	}
	return step
}

// edits are the objects that a change changes: the virtual server itself, and each of its real servers. The kernel changes
// them one by one, so that a change that was broken off has left some as they were.
func (c *serverChange) edits(findings []string) []report.RepairEdit {
	service, of := "", serverName(c.any())
	if c.port != nil {
		service = c.port.Namespace + "/" + c.port.Name
	}
	var out []report.RepairEdit
	add := func(object, reason string, was, will []string) {
		if !slices.Equal(was, will) {
			out = append(out, report.RepairEdit{
				Table: serversTable, Object: object, Service: service, Reason: cmp.Or(reason, c.whole), Findings: findings,
				Was: was, Will: will, Absent: len(was) == 0, Remove: len(will) == 0,
			})
		}
	}
	header := func(s *ipvs.Service) []string {
		if s == nil {
			return []string{}
		}
		return []string{s.String()}
	}
	add(of, c.header, header(c.have), header(c.will))
	was, will := realLines(c.have), realLines(c.will)
	all := slices.Concat(slices.Collect(maps.Keys(was)), slices.Collect(maps.Keys(will)))
	slices.SortFunc(all, netip.AddrPort.Compare)
	for _, at := range slices.Compact(all) {
		add(realName(at, of), c.reals[at], line(was, at), line(will, at))
	}
	return out
}

// realName names a real server in an edit: "real server 10.0.0.1:6443 of virtual server TCP 10.96.0.1:443".
func realName(at netip.AddrPort, server string) string {
	return fmt.Sprintf("real server %s of %s", at, server)
}

// realLines are the real servers of a virtual server, as destLine prints them.
func realLines(s *ipvs.Service) map[netip.AddrPort]string {
	out := make(map[netip.AddrPort]string)
	if s != nil {
		for i := range s.Dests {
			out[s.Dests[i].AddrPort()] = destLine(s, &s.Dests[i])
		}
	}
	return out
}

func line(of map[netip.AddrPort]string, at netip.AddrPort) []string {
	if l, ok := of[at]; ok {
		return []string{l}
	}
	return []string{}
}

func (c *serverChange) any() *ipvs.Service {
	if c.have != nil {
		return c.have
	}
	return c.will
}

// serversLast says how long what was written stays.
func (s *site) serversLast() string {
	if s.node.Proxy.Presence == traits.Gone {
		return "until kube-proxy runs again: its first sync writes the same"
	}
	return "kube-proxy's next sync of its virtual servers keeps what is as it writes it itself; weights and methods of real servers that it finds there it looks at only when it starts"
}

// serverLines are a virtual server and its real servers, sorted by address and port, as `ipvsadm -Sn` prints them, with
// the bounds of real servers, which that leaves out.
func serverLines(s *ipvs.Service) []string {
	out := []string{s.String()}
	for _, d := range sortedDests(s) {
		out = append(out, destLine(s, &d))
	}
	return out
}

func sortedDests(s *ipvs.Service) []ipvs.Dest {
	dests := slices.Clone(s.Dests)
	slices.SortFunc(dests, kubeproxy.CompareDests)
	return dests
}

func destLine(s *ipvs.Service, d *ipvs.Dest) string {
	line := s.DestString(d)
	if d.Upper != 0 {
		line += fmt.Sprintf(" -x %d", d.Upper)
	}
	if d.Lower != 0 {
		line += fmt.Sprintf(" -y %d", d.Lower)
	}
	return line
}

// serverCommands are the commands of ipvsadm, without its name, that make the virtual server to out of from; nil is none.
// What is new comes before what goes, so that a virtual server is never without real servers on the way.
func serverCommands(from, to *ipvs.Service) []string {
	switch {
	case to == nil:
		return []string{"-D " + nameFlag(from)}
	case from == nil:
		return serverLines(to)
	}
	var out []string
	if from.String() != to.String() {
		out = append(out, "-E"+strings.TrimPrefix(to.String(), "-A"))
	}
	was := realLines(from)
	for _, d := range sortedDests(to) {
		line := destLine(to, &d)
		if old, there := was[d.AddrPort()]; !there {
			out = append(out, line)
		} else if old != line {
			out = append(out, "-e"+strings.TrimPrefix(line, "-a"))
		}
		delete(was, d.AddrPort())
	}
	for _, d := range sortedDests(from) {
		if _, gone := was[d.AddrPort()]; gone {
			out = append(out, fmt.Sprintf("-d %s -r %s", nameFlag(from), d.AddrPort()))
		}
	}
	return out
}

// nameFlag is how commands of ipvsadm name a virtual server: "-t 10.96.0.1:443".
func nameFlag(s *ipvs.Service) string {
	line, _, _ := strings.Cut(strings.TrimPrefix(s.String(), "-A "), " -s ")
	return line
}

// findServer is the virtual server of an edit.
func findServer(n *check.Node, e report.RepairEdit) (lines []string, there bool, err error) {
	if !listsServers(n) {
		return nil, false, fmt.Errorf("find %s: the virtual servers of the node were not read, or not whole", e.Object)
	}
	backend, of, ok := strings.Cut(strings.TrimPrefix(e.Object, "real server "), " of ")
	if !strings.HasPrefix(e.Object, "real server ") {
		backend, of, ok = "", e.Object, true
	}
	s := serverNamed(n.IPVS, of)
	switch {
	case s == nil || !ok:
		return nil, false, nil
	case !tellsAll(s):
		return nil, false, fmt.Errorf("find %s: not all of it was read", e.Object)
	case backend == "":
		return []string{s.String()}, true, nil
	}
	at, err := netip.ParseAddrPort(backend)
	if err != nil {
		return nil, false, fmt.Errorf("find %s: %q is no address with a port", e.Object, backend)
	}
	lines = line(realLines(s), at)
	return lines, len(lines) > 0, nil
}

// lines puts commands on lines of their own.
func lines(commands []string) string {
	var b strings.Builder
	for _, c := range commands {
		b.WriteString(c + "\n")
	}
	return b.String()
}

// names lists some of many: "store/web, store/dns and 3 more".
func names(all []string, most int) string {
	if len(all) == 0 {
		return "Services"
	}
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

func once(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}
