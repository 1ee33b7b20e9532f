package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain/report"
)

// Reports gathers the audits of many nodes. The zero value is ready.
type Reports struct {
	kinds
	// items are the reports by node: in full for one node of each kind, without findings for all others.
	items map[string]*report.Report
	// names are the nodes in the order in which they came; remarks are findings that make no node odd, with the nodes
	// that have them as indexes into names.
	names   []string
	remarks map[string]*remark
}

// remark is a finding that says nothing against a node: where endpoints of a Local policy are, that kube-proxy is at
// work on a change. Nodes that differ in remarks alone are alike.
type remark struct {
	// first is that of the first of its nodes by name.
	first report.Finding
	node  string
	nodes []uint32
}

const info = "info"

// Add takes in the audit of one node. Nodes have different names.
func (l *Reports) Add(r *report.Report) {
	if l.items == nil {
		l.items = make(map[string]*report.Report)
	}
	of, first, replaced := l.add(r.Node, withoutNode(r.Summary.Text, r.Node), reportRank(r), reportParts(r))
	kept := *r
	l.items[r.Node] = &kept
	l.remark(r)
	if !first {
		fold(&kept, of.item)
		return
	}
	if replaced != "" {
		fold(l.items[replaced], r.Node)
	}
}

// remark takes over the remarks of a report.
func (l *Reports) remark(r *report.Report) {
	if l.remarks == nil {
		l.remarks = make(map[string]*remark)
	}
	at := uint32(len(l.names))
	l.names = append(l.names, r.Node)
	o := ownOf(r.Node, r.Own)
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Severity != info {
			continue
		}
		key := findingKey(f, &o)
		m := l.remarks[key]
		if m == nil {
			m = &remark{first: *f, node: r.Node}
			l.remarks[key] = m
		}
		if r.Node < m.node {
			m.first, m.node = *f, r.Node
		}
		if n := len(m.nodes); n == 0 || m.nodes[n-1] != at {
			m.nodes = append(m.nodes, at)
		}
	}
}

// withoutNode is a summary without the name of the node, which stands beside it.
func withoutNode(text, node string) string { return strings.Replace(text, " on "+node+":", ":", 1) }

// fold leaves out of a report what that of another node says too.
func fold(r *report.Report, like string) {
	r.Like = like
	r.Findings, r.Unknown, r.Sources = []report.Finding{}, []report.Unknown{}, []report.Source{}
	r.Proxy.Evidence, r.Own = []report.Evidence{}, report.Own{}
}

// List is the document of all nodes so far.
func (l *Reports) List() *report.Reports {
	out := &report.Reports{
		TypeMeta: metav1.TypeMeta{APIVersion: report.APIVersion, Kind: "ReportList"},
		Items:    []report.Report{}, Kinds: l.kindred(), Findings: []report.NodesFinding{}, Unread: l.unreadNodes(),
		Verdict: report.VerdictPass,
	}
	like := make(map[string]string)
	for _, k := range l.byPrint {
		for _, n := range k.nodes {
			like[n] = k.item
		}
	}
	for _, r := range l.items {
		item := *r
		if item.Like != "" {
			item.Like = like[item.Node] // the first by name may have come later
		}
		out.Items = append(out.Items, item)
	}
	slices.SortFunc(out.Items, func(a, b report.Report) int { return cmp.Compare(a.Node, b.Node) })
	l.findings(out)
	l.conclude(out)
	return out
}

// findings gathers those of all kinds, each once.
func (l *Reports) findings(out *report.Reports) {
	at := make(map[string]int)
	for i := range out.Items {
		item := &out.Items[i]
		if item.Like != "" {
			continue
		}
		nodes := l.nodesOf(item.Node)
		o := ownOf(item.Node, item.Own)
		seen := make(map[string]bool)
		for _, f := range item.Findings {
			key := findingKey(&f, &o)
			if f.Severity == info || seen[key] {
				continue
			}
			seen[key] = true
			n, ok := at[key]
			if !ok {
				n = len(out.Findings)
				at[key] = n
				out.Findings = append(out.Findings, report.NodesFinding{Finding: f})
			}
			out.Findings[n].Nodes = append(out.Findings[n].Nodes, nodes...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(l.remarks)) {
		m := l.remarks[key]
		f := report.NodesFinding{Finding: m.first}
		for _, at := range m.nodes {
			f.Nodes = append(f.Nodes, l.names[at])
		}
		out.Findings = append(out.Findings, f)
	}
	for i := range out.Findings {
		f := &out.Findings[i]
		slices.Sort(f.Nodes)
		f.Everywhere = len(f.Nodes) == len(out.Items)
	}
	slices.SortStableFunc(out.Findings, func(a, b report.NodesFinding) int {
		return cmp.Or(cmp.Compare(rank(a.Finding.Severity), rank(b.Finding.Severity)), cmp.Compare(len(a.Nodes), len(b.Nodes)))
	})
}

// nodesOf are all nodes of the kind that a node stands for.
func (l *Reports) nodesOf(item string) []string {
	for _, k := range l.byPrint {
		if k.item == item {
			return k.nodes
		}
	}
	return nil
}

// conclude counts findings and says the verdict.
func (l *Reports) conclude(out *report.Reports) {
	s := &out.Summary
	for i := range out.Findings {
		switch out.Findings[i].Finding.Severity {
		case "critical":
			s.Critical++
		case "error":
			s.Error++
		case "warning":
			s.Warning++
		default:
			s.Info++
		}
	}
	unknown := make(map[string]bool)
	for i := range out.Items {
		for _, u := range out.Items[i].Unknown {
			unknown[u.ID] = true
		}
	}
	s.Unknown = len(unknown)
	worst := func(v report.Verdict) int {
		return slices.Index([]report.Verdict{report.VerdictFail, report.VerdictUnknown, report.VerdictPass}, v)
	}
	if len(out.Unread) > 0 {
		out.Verdict = report.VerdictUnknown
	}
	for i := range out.Items {
		if worst(out.Items[i].Verdict) < worst(out.Verdict) {
			out.Verdict = out.Items[i].Verdict
		}
	}
	s.Text = l.text() + "; " + counted(s) + "."
}

func counted(s *report.AuditSummary) string {
	var words []string
	add := func(n int, one, many string) {
		switch {
		case n == 1:
			words = append(words, "1 "+one)
		case n > 1:
			words = append(words, fmt.Sprintf("%d %s", n, many))
		}
	}
	add(s.Critical, "critical finding", "critical findings")
	add(s.Error, "error", "errors")
	add(s.Warning, "warning", "warnings")
	add(s.Info, "remark", "remarks")
	if len(words) == 0 {
		words = []string{"no findings"}
	}
	add(s.Unknown, "check could not be answered", "checks could not be answered")
	return strings.Join(words, ", ")
}

// rank orders severities, worst first.
func rank(severity string) int {
	if i := slices.Index([]string{"critical", "error", "warning"}, severity); i >= 0 {
		return i
	}
	return 3
}

func reportRank(r *report.Report) int { return worstOf(r.Findings) }

func worstOf(all []report.Finding) int {
	worst := 4
	for i := range all {
		worst = min(worst, rank(all[i].Severity))
	}
	return worst
}

// reportParts is what an audit says.
func reportParts(r *report.Report) []part {
	o := ownOf(r.Node, r.Own)
	c := r.Services
	parts := []part{
		proxyPart(r.Proxy),
		{key: fmt.Sprintf("Services\n%d %d %d %d %d", c.Total, c.OK, c.Differ, c.Unknown, c.Skipped), words: servicesWords(c)},
	}
	parts = append(parts, findingParts(r.Findings, &o)...)
	for _, u := range r.Unknown {
		parts = append(parts, part{key: "unknown " + u.ID + "\n" + strings.Join(u.Sources, ","), words: "not known: " + u.ID})
	}
	return append(parts, sourceParts(r.Sources)...)
}

func servicesWords(c report.ServiceCount) string {
	return fmt.Sprintf("%d of %d Services with findings", c.Differ, c.Total)
}

func proxyPart(p report.Proxy) part {
	words := strings.Join(slices.DeleteFunc([]string{p.Version, p.Mode, p.Backend}, func(s string) bool { return s == "" }), " ")
	return part{key: fmt.Sprintf("proxy\n%q %q %q", p.Mode, p.Backend, p.Version), words: "proxy " + cmp.Or(words, "not known")}
}

// sourceParts are the sources that gave no answer. The others are the same by the paths and findings that rest on them.
func sourceParts(all []report.Source) []part {
	var out []part
	for _, s := range all {
		switch s.Status {
		case "ok", "empty", "absent":
		default:
			out = append(out, part{key: "source " + s.Name + "\n" + s.Status, words: s.Name + " " + s.Status})
		}
	}
	return out
}

func findingParts(all []report.Finding, o *own) []part {
	var out []part
	for i := range all {
		f := &all[i]
		if f.Severity == info {
			continue
		}
		words := f.Severity + " " + f.ID
		if name := objectName(f.Object); name != "" {
			words += " of " + name
		}
		out = append(out, part{key: findingKey(f, o), words: words})
	}
	return out
}

func objectName(o report.Object) string {
	if o.Name == "" {
		return ""
	}
	return strings.TrimSpace(o.Kind + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
}

// findingKey tells findings apart, wherever they were found. What is found of a node itself has counters and amounts
// in its words; of a Service, every number is one of a port or an address.
func findingKey(f *report.Finding, o *own) string {
	text := func(s string) string {
		if s = o.in(s); f.Object.Kind != "Service" {
			s = numberless(s)
		}
		return s
	}
	about := f.Object
	if about.Kind == "Node" {
		about.Name = o.in(about.Name)
	}
	about.Endpoint = o.in(about.Endpoint)
	return fmt.Sprintf("finding %s %q %q\n%s %q %q %q %q %t", f.ID, about, o.in(f.Subject),
		f.Severity, text(f.Message), text(f.Want), text(f.Got), f.CausedBy, f.Pending != "")
}
