package render

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// ReportList writes the audits of many nodes: the summary, a line for each kind of nodes, the odd ones first, then all
// findings by root cause, each once with the nodes that have it.
func ReportList(w io.Writer, l *report.Reports, o Options) error {
	p := newPage(w, o)
	m := markOK
	switch s := l.Summary; {
	case s.Critical+s.Error > 0:
		m = markError
	case s.Warning+s.Unknown+len(l.Unread) > 0:
		m = markWarn
	}
	p.write("", "", 2, line{}.cell(m.tone, m.sign+" "+string(l.Verdict)+":").prose(noTone, l.Summary.Text))
	marks := make(map[string]mark)
	for i := range l.Items {
		marks[l.Items[i].Node] = verdictMark(&l.Items[i])
	}
	p.kinds(l.Kinds, marks)
	found := make([]located, len(l.Findings))
	for i := range l.Findings {
		f := &l.Findings[i]
		found[i] = located{&f.Finding, places(f.Nodes, f.Everywhere)}
	}
	for _, g := range roots(found) {
		p.blank()
		p.findingGroup(g, 0)
	}
	if len(l.Findings) > 0 {
		p.blank()
		p.write("", "", 2, line{}.prose(faint, "What a finding rests on is shown of the first of its nodes. `svcnet explain ID` says more about it: what it means, how to confirm it by hand, how to fix it."))
	}
	p.notKnown(l)
	sources := make([]nodeSources, 0, len(l.Kinds))
	for i := range l.Items {
		sources = append(sources, nodeSources{l.Items[i].Node, l.Items[i].Sources})
	}
	p.sourcesOf(l.Kinds, sources)
	p.unread(l.Unread)
	return p.flush()
}

// notKnown lists the checks that could not be answered, with the kinds of nodes on which.
func (p *page) notKnown(l *report.Reports) {
	var texts []string
	on := make(map[string][]string)
	for i := range l.Items {
		item := &l.Items[i]
		for _, u := range unknowns(item.Unknown) {
			if on[u] == nil {
				texts = append(texts, u)
			}
			on[u] = append(on[u], nodesOf(l.Kinds, item.Node)...)
		}
	}
	if len(texts) == 0 {
		return
	}
	p.blank()
	p.write("", "", 0, line{}.cell(strong, "Not known"))
	for _, u := range texts {
		nodes := on[u]
		slices.Sort(nodes)
		p.write("  ", "  ", 2, line{}.cell(warn, "?").prose(noTone, places(nodes, len(nodes) == len(l.Items))+": "+u))
	}
}

// nodesOf are the nodes that an item stands for.
func nodesOf(kinds []report.Kindred, item string) []string {
	for i := range kinds {
		if kinds[i].Item == item {
			return kinds[i].Nodes
		}
	}
	return nil
}

// kinds writes a line for each kind of nodes, and below those of an odd one what tells it from the others.
func (p *page) kinds(all []report.Kindred, marks map[string]mark) {
	p.blank()
	p.write("", "", 0, line{}.cell(strong, "Nodes"))
	for i := range all {
		k := &all[i]
		m := marks[k.Item]
		l := line{}.cell(m.tone, m.sign+" "+kindName(k))
		if k.Text != "" {
			l = l.join(":").prose(noTone, k.Text)
		}
		p.write("  ", "  ", 2, l)
		for _, d := range k.Differs {
			p.write("      ", "      ", 2, line{}.prose(faint, "differs:").prose(noTone, d))
		}
	}
}

// kindName names the nodes of a kind.
func kindName(k *report.Kindred) string {
	switch n := len(k.Nodes); {
	case n == 1:
		return k.Item
	case n == 2:
		return nodeNames(k.Nodes) + ", alike"
	default:
		return fmt.Sprintf("%d nodes alike: %s", n, nodeNames(k.Nodes))
	}
}

// shownNodes is how many nodes are named where there are many.
const shownNodes = 5

func nodeNames(nodes []string) string {
	n := len(nodes)
	if n > shownNodes+1 {
		return strings.Join(nodes[:shownNodes], ", ") + fmt.Sprintf(" and %d more", n-shownNodes)
	}
	if n < 2 {
		return strings.Join(nodes, "")
	}
	return strings.Join(nodes[:n-1], ", ") + " and " + nodes[n-1]
}

// places says on which nodes something was found.
func places(nodes []string, everywhere bool) string {
	switch n := len(nodes); {
	case n == 1:
		return "on " + nodes[0]
	case everywhere && n == 2:
		return "on both nodes"
	case everywhere:
		return fmt.Sprintf("on all %d nodes", n)
	case n > shownNodes+1:
		return fmt.Sprintf("on %d nodes (%s)", n, nodeNames(nodes))
	default:
		return "on " + nodeNames(nodes)
	}
}

// nodeSources are the sources of the item of one kind.
type nodeSources struct {
	node    string
	sources []report.Source
}

// sourcesOf lists those that gave no answer, each once with the nodes on which.
func (p *page) sourcesOf(kinds []report.Kindred, items []nodeSources) {
	type key struct{ name, status, error string }
	var order []key
	on := make(map[key][]string)
	total := 0
	for i := range kinds {
		total += len(kinds[i].Nodes)
	}
	for _, item := range items {
		nodes := nodesOf(kinds, item.node) // none for a node that another one stands for
		for _, s := range item.sources {
			k := key{s.Name, s.Status, s.Error}
			if answers(s.Status) || len(nodes) == 0 || slices.Contains(on[k], item.node) {
				continue
			}
			if on[k] == nil {
				order = append(order, k)
			}
			on[k] = append(on[k], nodes...)
		}
	}
	if len(order) == 0 {
		return
	}
	p.blank()
	p.write("", "", 0, line{}.cell(strong, "Not read"))
	for _, k := range order {
		nodes := on[k]
		slices.Sort(nodes)
		l := line{}.cell(warn, "! "+k.status).cell(noTone, k.name).prose(noTone, places(nodes, len(nodes) == total))
		if k.error != "" {
			l = l.join(":").prose(noTone, k.error)
		}
		p.write("  ", "  ", 2, l)
	}
}

// unread lists the nodes of which there is no document.
func (p *page) unread(all []report.Unread) {
	if len(all) == 0 {
		return
	}
	p.blank()
	p.write("", "", 0, line{}.cell(strong, "Nodes that could not be read"))
	for _, u := range all {
		p.write("  ", "  ", 2, line{}.cell(warn, "! "+u.Node).join(":").prose(noTone, u.Error))
	}
}

// TreeList writes the traces of many nodes: a line for each kind of nodes, then the tree of one node of each odd kind;
// that of the usual kind where there is no other.
func TreeList(w io.Writer, l *report.TraceList, o Options) error {
	return traceList(w, l, o, Tree, func(k *report.Kindred) bool { return k.Odd || len(l.Kinds) == 1 })
}

// WideList writes the traces of many nodes: a line for each kind of nodes, then the tables of one node of each.
func WideList(w io.Writer, l *report.TraceList, o Options) error {
	return traceList(w, l, o, Wide, func(*report.Kindred) bool { return true })
}

func traceList(w io.Writer, l *report.TraceList, o Options, show func(io.Writer, *report.Trace, Options) error, shown func(*report.Kindred) bool) error {
	p := newPage(w, o)
	byNode := make(map[string]*report.Trace)
	marks := make(map[string]mark)
	all := markOK
	for i := range l.Items {
		t := &l.Items[i]
		byNode[t.Node] = t
		if t.Like == "" {
			marks[t.Node] = traceMark(t)
			all = all.worse(marks[t.Node])
		}
	}
	if len(l.Unread) > 0 {
		all = markWarn.worse(all)
	}
	p.write("", "", 2, line{}.cell(all.tone, all.sign).prose(strong, l.Summary.Text))
	brief := slices.Clone(l.Kinds)
	for i := range brief {
		if brief[i].Odd && shown(&brief[i]) {
			brief[i].Text = "" // its own page says it
		}
	}
	p.kinds(brief, marks)
	p.unread(l.Unread)
	if err := p.flush(); err != nil {
		return err
	}
	for i := range l.Kinds {
		k := &l.Kinds[i]
		if !shown(k) {
			continue
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
		if err := show(w, byNode[k.Item], o); err != nil {
			return err
		}
	}
	return nil
}

// traceMark is the mark of a whole trace: by its findings, else by its paths.
func traceMark(t *report.Trace) mark {
	m := markOK
	for i := range t.Findings {
		switch t.Findings[i].Severity {
		case "critical", "error":
			m = m.worse(markError)
		case "warning":
			m = m.worse(markWarn)
		}
	}
	for i := range t.Paths {
		if t.Paths[i].Result == report.ResultUnknown {
			m = m.worse(markWarn)
		}
	}
	return m
}

// StatusList writes what serves Services on many nodes: a line for each kind of nodes, and what tells odd ones apart.
func StatusList(w io.Writer, l *report.NodeStatusList, o Options) error {
	p := newPage(w, o)
	marks := make(map[string]mark)
	all := markOK
	items := make([]nodeSources, 0, len(l.Items))
	for i := range l.Items {
		s := &l.Items[i]
		marks[s.Node] = statusMark(s.Verdict)
		all = all.worse(marks[s.Node])
		items = append(items, nodeSources{s.Node, s.Sources})
	}
	if len(l.Unread) > 0 {
		all = markWarn.worse(all)
	}
	p.write("", "", 2, line{}.cell(all.tone, all.sign).prose(strong, l.Summary.Text))
	p.kinds(l.Kinds, marks)
	p.sourcesOf(l.Kinds, items)
	p.unread(l.Unread)
	return p.flush()
}
