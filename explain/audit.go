package explain

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// AuditOptions select what an audit looks at.
type AuditOptions struct {
	// Namespace limits to the Services of one namespace; empty: all. Services limits to these names in Namespace.
	Namespace string
	Services  []string
	// Selector limits to Services with these labels; nil: all.
	Selector labels.Selector
	// Ignore leaves out findings and checks.
	Ignore []Ignored
	// EachByItself walks every Service, also those that are like others. It changes nothing but the time that it
	// takes; tests hold the two against each other.
	EachByItself bool
	// Memory has the objects that were decoded for other nodes, and keeps those of this one; nil: none.
	Memory *objects.Memory
	// Planned, where it is not nil, is given the service ports by Read as soon as objects and rules are read, for who wants
	// to show them while they are checked: they have no findings yet, and their state is unknown.
	Planned func(*report.NodeServices)
}

// Ignored is a finding that nobody wants to hear of: everywhere, or for one object.
type Ignored struct {
	// ID is that of the finding.
	ID string
	// Namespace and Name limit to one Service; both empty: all objects.
	Namespace, Name string
}

// Audit checks every Service on the node that the snapshot is of: what is observed against what objects ask for, and
// the mechanisms and surroundings that decide about it.
//
// Errors: a *UsageError for an Ignore that names no finding, a *NotFoundError for a Service that the evidence does not
// have. Evidence that is missing is no error: checks that need it are in the document's Unknown.
func Audit(s *snapshot.Snapshot, o AuditOptions) (*report.Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return newModelOf(s, o.Memory).audit(o)
}

func (o *AuditOptions) check() error {
	for _, i := range o.Ignore {
		if check.Lookup(i.ID) == nil {
			return usage("--ignore %s is no finding (`svcnet explain` lists them)", i.ID)
		}
	}
	return nil
}

func (m *model) audit(o AuditOptions) (*report.Report, error) {
	if err := m.lacks(o); err != nil {
		return nil, err
	}
	_, found := m.audited(o)
	return m.report(o, found), nil
}

// lacks is the error of a Service that was asked for and is not there.
func (m *model) lacks(o AuditOptions) error {
	for _, name := range o.Services {
		if _, ok := m.objects.Service(o.Namespace, name); !ok && len(m.plan.Of(o.Namespace, name)) == 0 {
			return &NotFoundError{m.notFound(TraceOptions{Namespace: o.Namespace, Service: name})}
		}
	}
	return nil
}

// audited is the node with its service ports, and what the checks find.
func (m *model) audited(o AuditOptions) (*check.Node, check.Result) {
	n := m.checked()
	m.observeAll(n, o)
	return n, check.Run(n)
}

// report is the document of what was found.
func (m *model) report(o AuditOptions, found check.Result) *report.Report {
	r := &report.Report{
		TypeMeta: metav1.TypeMeta{APIVersion: report.APIVersion, Kind: "Report"},
		Node:     m.node, Proxy: m.proxyReport(), Sources: m.sources,
		Findings: []report.Finding{}, Unknown: []report.Unknown{}, Own: m.own(),
	}
	for _, f := range found.Findings {
		if o.wants(m, &f) {
			r.Findings = append(r.Findings, f)
		}
	}
	for _, u := range found.Unknown {
		if !slices.ContainsFunc(o.Ignore, func(i Ignored) bool { return i.ID == u.ID && i.Name == "" }) {
			r.Unknown = append(r.Unknown, u)
		}
	}
	r.Services = o.count(m, r)
	conclude(r)
	return r
}

// observeAll looks at every service port that was asked for.
func (m *model) observeAll(n *check.Node, o AuditOptions) {
	l := m.likeness()
	l.never = l.never || o.EachByItself
	for _, sp := range m.plan.Ports {
		if o.selects(m, sp.Namespace, sp.Name) {
			n.Ports = append(n.Ports, l.observe(n, sp))
		}
	}
}

// modeFallback is the mode of a node that svcnet's own proxy serves.
const modeFallback = "svcnet"

// looksAt tells whether what decides about packets to a service port was read, and is evaluated. In nftables mode the
// proxy's own tables decide; where nobody captured rules of iptables beside them, checks that rest on those say so.
func (m *model) looksAt(sp *intent.ServicePort) bool {
	family := netfilter.Family(sp.Family)
	if m.answers[check.ServiceTables] != "" || m.proxy.Mode == "ipvs" && (m.answers[check.Addrs] != "" || m.answers[check.IPSets] != "") {
		return false
	}
	r := m.rules[familyIndex(family)]
	native := (m.proxy.Mode == "nftables" || m.proxy.Mode == modeFallback) && m.servedBy(family) && len(r.missed)+len(r.part) == 0
	return native || m.answers[check.RulesOf(family)] == ""
}

// unobserved tells whether nothing can be said of a service port: nobody looked, or nothing says what it ought to have.
func (m *model) unobserved(sp *intent.ServicePort) bool { return sp.EndpointsUnknown || !m.looksAt(sp) }

// observed are the cells of a service port. Rules that were read in part say nothing: what is not in them may be in
// the rest.
func (m *model) observed(sp *intent.ServicePort) [][]report.Path {
	if !m.looksAt(sp) {
		return nil
	}
	return cellsOf(sp, m.grid([]*intent.ServicePort{sp}, TraceOptions{}))
}

// checked is the node as the checks see it, without its service ports.
func (m *model) checked() *check.Node {
	return &check.Node{
		Name: m.node, Rulesets: m.rulesets, NFT: m.nft, IPVS: m.kernel.IPVS, Sets: m.kernel.Sets, Host: m.kernel.Host, Objects: m.objects, Plan: m.plan, Proxy: m.proxy,
		HNS: &m.windows.State, Answers: m.answers, PodScope: m.podScope, ForeignTables: m.foreignTables, Captured: m.captured, Taken: m.taken,
		Discoveries: m.discoveries(),
	}
}

// selects tells whether a Service is one of those that were asked for.
func (o *AuditOptions) selects(m *model, namespace, name string) bool {
	if o.Namespace != "" && namespace != o.Namespace || len(o.Services) > 0 && !slices.Contains(o.Services, name) {
		return false
	}
	if o.Selector == nil || o.Selector.Empty() {
		return true
	}
	svc, ok := m.objects.Service(namespace, name)
	return ok && o.Selector.Matches(labels.Set(svc.Labels))
}

// wants tells whether a finding is shown: it is not ignored, and it is about the node or a Service that was asked for.
func (o *AuditOptions) wants(m *model, f *report.Finding) bool {
	for _, i := range o.Ignore {
		if i.ID == f.ID && (i.Name == "" || i.Name == f.Object.Name && i.Namespace == f.Object.Namespace) {
			return false
		}
	}
	return f.Object.Kind != "Service" || o.selects(m, f.Object.Namespace, f.Object.Name)
}

// count counts Services by what was found.
func (o *AuditOptions) count(m *model, r *report.Report) report.ServiceCount {
	type key struct{ namespace, name string }
	var c report.ServiceCount
	differ := make(map[key]bool)
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Object.Kind == "Service" && check.Rank(f.Severity) <= check.Rank(check.Warning) {
			differ[key{f.Object.Namespace, f.Object.Name}] = true
		}
	}
	unread := make(map[key]bool)
	ports := make(map[key]bool)
	for _, sp := range m.plan.Ports {
		k := key{sp.Namespace, sp.Name}
		ports[k] = true
		if m.unobserved(sp) {
			unread[k] = true
		}
	}
	seen := make(map[key]bool)
	for _, s := range m.objects.Services {
		k := key{s.Namespace, s.Name}
		if seen[k] || !o.selects(m, s.Namespace, s.Name) {
			continue
		}
		seen[k] = true
		c.Total++
		switch {
		case differ[k]:
			c.Differ++
		case !ports[k]:
			c.Skipped++
		case unread[k]:
			c.Unknown++
		default:
			c.OK++
		}
	}
	return c
}

// conclude counts findings and says the verdict.
func conclude(r *report.Report) {
	s := report.AuditSummary{Unknown: len(r.Unknown)}
	for i := range r.Findings {
		switch r.Findings[i].Severity {
		case check.Critical:
			s.Critical++
		case check.Error:
			s.Error++
		case check.Warning:
			s.Warning++
		default:
			s.Info++
		}
	}
	switch {
	case s.Critical+s.Error > 0:
		r.Verdict = report.VerdictFail
	case s.Unknown > 0:
		r.Verdict = report.VerdictUnknown
	default:
		r.Verdict = report.VerdictPass
	}
	s.Text = auditText(r, s)
	r.Summary = s
}

// auditText is the summary line.
func auditText(r *report.Report, s report.AuditSummary) string {
	where := "on a node that the evidence does not name"
	if r.Node != "" {
		where = "on " + r.Node
	}
	c := r.Services
	text := fmt.Sprintf("%s %s: ", plural(c.Total, "Service"), where)
	var parts []string
	add := func(n int, word string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	if c.OK == 1 {
		add(1, "as it should be")
	} else {
		add(c.OK, "as they should be")
	}
	add(c.Differ, "with findings")
	add(c.Unknown, "not known")
	add(c.Skipped, "not forwarded by a proxy")
	if len(parts) == 0 {
		parts = []string{"nothing to check"}
	}
	text += strings.Join(parts, ", ")
	var kinds []string
	for _, k := range []struct {
		n    int
		word string
	}{{s.Critical, "critical finding"}, {s.Error, "error"}, {s.Warning, "warning"}, {s.Info, "remark"}} {
		if k.n > 0 {
			kinds = append(kinds, plural(k.n, k.word))
		}
	}
	if len(kinds) > 0 {
		text += "; " + strings.Join(kinds, ", ")
	} else {
		text += "; no findings"
	}
	if s.Unknown > 0 {
		text += fmt.Sprintf("; %s could not be answered", plural(s.Unknown, "check"))
	}
	return text + "."
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
