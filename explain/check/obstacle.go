package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// Obstacle is one place where packets end that ought to reach a backend, or their answers: a rule, a policy, a route
// that is not there, a source check. It is found by the walk, whatever put it there.
type Obstacle struct {
	// Reply is true where the answer ends there and not the request.
	Reply bool
	// Result is how packets end: drop, reject, no-route, martian, accepted-undelivered, untranslated…
	Result string
	// Table and Chain are where; empty for what is no rule. Text is the rule or policy as printed, or the reason in words.
	Table, Chain, Text string
	// Rule is the rule as evidence; nil for what is no rule.
	Rule *report.Evidence
	Hits []Hit
}

// Hit is a cell that meets an obstacle. Backend is nil where the obstacle stands before the choice of a backend.
type Hit struct {
	Port    *Port
	Path    *report.Path
	Backend *report.Backend
}

// kubeRefusals are the chains in which kube-proxy itself refuses frontends; what they say is of the Service and no
// obstacle to it.
var kubeRefusals = map[string]bool{
	"KUBE-SERVICES": true, "KUBE-EXTERNAL-SERVICES": true, "KUBE-NODEPORTS": true, "KUBE-PROXY-FIREWALL": true,
}

// refusesByService tells whether a path ends in a rule that kube-proxy has for this Service.
func refusesByService(p *report.Path) bool {
	return refusedByServer(p) || tableOfProxy(p.Table) && !strings.HasSuffix(p.Chain, "(policy)") || kubeRefusals[p.Chain] || strings.HasPrefix(p.Chain, "KUBE-FW-") || strings.HasPrefix(p.Chain, "KUBE-XLB-")
}

// Obstacles are all places where packets of the grid end that ought to reach a backend, in the order in which the
// grid meets them. Where evidence leaves open which way a packet takes, only what stops it on every way counts.
func (n *Node) Obstacles() []*Obstacle {
	if n.gathered {
		return n.obstacles
	}
	n.gathered = true
	at := make(map[string]*Obstacle)
	for i := range n.Ports {
		for _, o := range n.Ports[i].obstacles() {
			key := o.key()
			known := at[key]
			if known == nil {
				at[key] = o
				n.obstacles = append(n.obstacles, o)
				continue
			}
			known.Hits = append(known.Hits, o.Hits...)
		}
	}
	return n.obstacles
}

// obstacles are those of one port, each with the cells that meet it.
func (p *Port) obstacles() []*Obstacle {
	var out []*Obstacle
	if p.Cells == nil {
		for _, like := range p.Alike {
			o := *like
			o.Hits = make([]Hit, len(like.Hits))
			for i, h := range like.Hits {
				o.Hits[i] = Hit{p, h.Path, h.Backend}
			}
			out = append(out, &o)
		}
		return out
	}
	for _, paths := range p.Cells {
		for _, o := range obstaclesOf(p, paths) {
			at := slices.IndexFunc(out, func(x *Obstacle) bool { return x.key() == o.key() })
			if at < 0 {
				out = append(out, o)
				continue
			}
			out[at].Hits = append(out[at].Hits, o.Hits...)
		}
	}
	return out
}

// Clean tells whether no check of service ports has anything to say of a port, and which obstacles its packets meet:
// what is true of every port that is like it. An obstacle that is told by an address of one backend, such as a missing
// route, is nothing to say of others.
func Clean(p *Port) (obstacles []*Obstacle, clean bool) {
	for i := range Catalogue {
		if c := &Catalogue[i]; c.Port != nil && len(c.Port(p)) > 0 {
			return nil, false
		}
	}
	obstacles = p.obstacles()
	for _, o := range obstacles {
		if o.Rule == nil && !o.toService() && o.Chain == "" {
			return nil, false
		}
	}
	return obstacles, true
}

func (o *Obstacle) key() string {
	place := o.Text
	if o.toService() {
		place = "service addresses" // the text names each
	}
	if o.Rule != nil {
		place = fmt.Sprintf("%s:%d", o.Rule.File, o.Rule.Line)
	}
	return fmt.Sprint(o.Reply, "|", o.Result, "|", o.Table, "|", o.Chain, "|", place)
}

// obstaclesOf are the obstacles of one cell.
func obstaclesOf(p *Port, paths []report.Path) []*Obstacle {
	if w := paths[0].Intended; w == nil || !serves(w.Result) || translatedAtHome(&paths[0]) {
		return nil
	}
	var out []*Obstacle
	for i := range paths {
		for _, o := range obstaclesOn(p, &paths[i]) {
			if onEveryWay(p, paths, o) && !slices.ContainsFunc(out, func(x *Obstacle) bool { return x.key() == o.key() }) {
				out = append(out, o)
			}
		}
	}
	return out
}

// translatedAtHome tells whether a client has a proxy of its own, on its own node, which translates what it sends to a
// cluster IP: such packets come to this node translated, if at all.
func translatedAtHome(p *report.Path) bool {
	c := intent.Class(p.SourceClass)
	return p.Frontend.Kind == string(intent.ClusterIP) && (c == intent.RemotePod || c == intent.RemoteNode)
}

// onEveryWay tells whether each way that the evidence leaves open for the cell meets the obstacle.
func onEveryWay(p *Port, paths []report.Path, o *Obstacle) bool {
	if certain(paths) {
		return true
	}
	met := make(map[string]bool)
	for i := range paths {
		way := fmt.Sprint(paths[i].Uncertain)
		met[way] = met[way] || slices.ContainsFunc(obstaclesOn(p, &paths[i]), func(x *Obstacle) bool { return x.key() == o.key() })
	}
	for _, m := range met {
		if !m {
			return false
		}
	}
	return true
}

func translates(r report.Result) bool {
	return r == report.ResultDNAT || r == report.ResultIPVS || r == report.ResultBPF
}

// serves tells whether an intended result is that connections get to a backend, be it by way of kube-proxy's own
// process (userspace mode).
func serves(r report.Result) bool { return translates(r) || r == report.ResultRedirect }

// obstaclesOn are those on one path.
func obstaclesOn(p *Port, path *report.Path) []*Obstacle {
	switch path.Result {
	case report.ResultDrop, report.ResultReject:
		if refusesByService(path) {
			return nil
		}
		return []*Obstacle{onRequest(p, path)}
	case report.ResultNoRoute, report.ResultMartian, report.ResultAcceptedUndelivered:
		return []*Obstacle{onRequest(p, path)}
	}
	if path.Result == report.ResultNoMatch && untracked(path) && p.On.Has(Addrs) || path.Result == report.ResultUntrackedLocal && p.nobodyListens(path) {
		return []*Obstacle{byNotrack(p, path)}
	}
	if !translates(path.Result) && path.Result != path.Intended.Result {
		return nil
	}
	var out []*Obstacle
	if o := onReply(p, path, nil, path.Reply); o != nil {
		out = append(out, o)
	}
	for i := range path.Backends {
		b := &path.Backends[i]
		if b.Reply == nil || b.State != "ok" {
			continue
		}
		if o := onReply(p, path, b, b.Reply); o != nil {
			out = append(out, o)
		}
	}
	return out
}

func onRequest(p *Port, path *report.Path) *Obstacle {
	o := &Obstacle{Result: string(path.Result), Table: path.Table, Chain: path.Chain, Text: path.Because}
	hops := path.Hops
	hit := Hit{Port: p, Path: path}
	if len(path.Backends) > 0 && path.Backends[0].Probability > 0 {
		hit.Backend = &path.Backends[0]
		if h := path.Backends[0].Hops; len(h) > 0 {
			hops = h
		}
	}
	o.Hits = []Hit{hit}
	if len(hops) == 0 || o.Chain == "" {
		return o
	}
	if last := hops[len(hops)-1]; last.Kind == "rule" || last.Kind == "policy" {
		o.Text = last.Text
		e := hopEvidence(&last)
		o.Rule = &e
	}
	return o
}

// nobodyListens tells whether packets to a frontend that are delivered on this node meet no process there. A cache that
// listens on a service address, such as NodeLocal DNS, takes such packets out of connection tracking on purpose.
func (p *Port) nobodyListens(path *report.Path) bool {
	a, err := netip.ParseAddr(path.Frontend.Address)
	return err == nil && p.On.Has(Sockets) && p.On.Host.Listener(dataplane.ProtocolNumber(path.Frontend.Protocol), a, uint16(path.Frontend.Port)) == nil
}

// byNotrack is the obstacle that a rule in the raw table makes: what is not tracked is not translated.
func byNotrack(p *Port, path *report.Path) *Obstacle {
	o := onRequest(p, path)
	for i := range path.Hops {
		if h := &path.Hops[i]; h.Table == "raw" || takesOut(h) {
			e := hopEvidence(h)
			o.Table, o.Chain, o.Text, o.Rule = h.Table, h.Chain, h.Text, &e
		}
	}
	return o
}

func onReply(p *Port, path *report.Path, b *report.Backend, r *report.Reply) *Obstacle {
	if r == nil || r.Result == report.ReplyDelivered || r.Result == report.ReplyUnknown {
		return nil
	}
	o := &Obstacle{
		Reply: true, Result: string(r.Result), Table: r.Table, Chain: r.Chain, Text: r.Text,
		Hits: []Hit{{Port: p, Path: path, Backend: b}},
	}
	if r.Evidence.File != "" {
		e := r.Evidence
		if e.Text = r.Text; nativeTable(r.Table) {
			e.Text = nativeRule(r.Table, r.Chain, r.Text)
		}
		o.Rule = &e
	}
	return o
}

// Place names where packets end: "filter FORWARD (policy)", "raw PREROUTING", or the reason where it is no rule.
func (o *Obstacle) Place() string {
	if o.Chain == "" {
		return o.Text
	}
	chain, policy := strings.CutSuffix(o.Chain, "(policy)")
	if policy {
		return fmt.Sprintf("the policy of chain %s of table %s", chain, o.Table)
	}
	return fmt.Sprintf("a rule of chain %s of table %s", o.Chain, o.Table)
}

// Verb says what happens there.
func (o *Obstacle) Verb() string {
	switch o.Result {
	case string(report.ResultReject):
		return "refused"
	case string(report.ResultNoRoute):
		return "given up for want of a route"
	case string(report.ResultMartian):
		return "discarded by the kernel's address checks"
	case string(report.ResultAcceptedUndelivered):
		return "let through untranslated"
	case string(report.ResultNoMatch), string(report.ResultUntrackedLocal):
		return "taken out of connection tracking, and so never translated"
	case string(report.ReplyUntranslated), string(report.ReplyBypasses):
		return "not translated back"
	}
	return "dropped"
}

// services names the Services that meet the obstacle, as namespace/name, sorted.
func (o *Obstacle) services() []string {
	var out []string
	for _, h := range o.Hits {
		out = append(out, h.Port.Namespace+"/"+h.Port.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// clients names the source classes that meet it, in the order of the grid.
func (o *Obstacle) clients() []string {
	var out []string
	for _, h := range o.Hits {
		out = once(out, clientWords(h.Path))
	}
	return out
}

// finding describes the obstacle: of the Service where it is in the way of one alone, of the node where there are
// more.
func (o *Obstacle) finding() report.Finding {
	services := o.services()
	what := "connections"
	if o.Reply {
		what = "answers"
	}
	f := report.Finding{
		Subject: o.subject(),
		Message: fmt.Sprintf("%s of %s to %s are %s: %s", what, list(o.clients(), 4), named(services), o.Verb(), o.Place()),
		Want:    "they pass",
		Got:     cmp.Or(o.Text, o.Result),
	}
	if o.Text == o.Place() {
		f.Message = fmt.Sprintf("%s of %s to %s are %s", what, list(o.clients(), 4), named(services), o.Verb())
	}
	if o.Rule != nil {
		f.Evidence = append(f.Evidence, *o.Rule)
	}
	first := o.Hits[0]
	if len(services) == 1 {
		p := first.Port
		f.Object = report.Object{Kind: "Service", Namespace: p.Namespace, Name: p.Name, Port: p.PortName, Protocol: p.Protocol}
		if first.Backend != nil {
			f.Object.Endpoint = joinAddr(first.Backend)
		}
	}
	if len(f.Evidence) == 0 {
		f.Evidence = append(f.Evidence, verdict(first.Path)...)
	}
	if text, at := o.Hits[0].Port.offDevice(o.Hits[0].Path); text != "" && !o.Reply {
		f.Message += "; " + text
		f.Subject = cmp.Or(f.Subject, first.Path.Frontend.Address)
		f.Evidence = append(f.Evidence, at)
		f.Causes = []string{"something other than kube-proxy took the address away", proxyStopped}
		f.Remedy = fmt.Sprintf("%s; by hand: ip addr add %s dev %s", restartProxy, first.Path.Frontend.Address, KubeIPVS0)
	}
	f.Evidence = append(f.Evidence, first.Port.objectEvidence())
	return f
}

func (o *Obstacle) subject() string {
	if o.Chain != "" {
		return o.Table + "/" + o.Chain
	}
	return o.Text
}

// named is one Service by name, or how many with the first names.
func named(services []string) string {
	if len(services) == 1 {
		return services[0]
	}
	return fmt.Sprintf("%d Services (%s)", len(services), list(services, 3))
}
