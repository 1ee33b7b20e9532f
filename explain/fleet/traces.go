package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain/report"
)

// Traces gathers the paths of packets to one Service through many nodes. The zero value is ready.
type Traces struct {
	kinds
	items map[string]*report.Trace
}

// Add takes in the trace of one node. Nodes have different names.
func (l *Traces) Add(t *report.Trace) {
	if l.items == nil {
		l.items = make(map[string]*report.Trace)
	}
	of, first, replaced := l.add(t.Node, t.Summary.Text, traceRank(t), traceParts(t))
	kept := *t
	l.items[t.Node] = &kept
	if !first {
		foldTrace(&kept, of.item)
		return
	}
	if replaced != "" {
		foldTrace(l.items[replaced], t.Node)
	}
}

func foldTrace(t *report.Trace, like string) {
	t.Like = like
	t.Paths, t.Findings, t.Sources = []report.Path{}, []report.Finding{}, []report.Source{}
	t.Proxy.Evidence, t.Own = []report.Evidence{}, report.Own{}
}

// List is the document of all nodes so far.
func (l *Traces) List() *report.TraceList {
	out := &report.TraceList{
		TypeMeta: metav1.TypeMeta{APIVersion: report.APIVersion, Kind: "TraceList"},
		Items:    []report.Trace{}, Kinds: l.kindred(), Unread: l.unreadNodes(),
	}
	like := make(map[string]string)
	for _, k := range l.byPrint {
		for _, n := range k.nodes {
			like[n] = k.item
		}
	}
	for _, t := range l.items {
		item := *t
		if item.Like != "" {
			item.Like = like[item.Node]
		}
		out.Items = append(out.Items, item)
	}
	slices.SortFunc(out.Items, func(a, b report.Trace) int { return cmp.Compare(a.Node, b.Node) })
	out.Summary.Text = l.text() + "."
	return out
}

// traceRank is how bad a trace is: by its findings.
func traceRank(t *report.Trace) int { return worstOf(t.Findings) }

// traceParts is what a trace says.
func traceParts(t *report.Trace) []part {
	o := ownOf(t.Node, t.Own)
	parts := []part{proxyPart(t.Proxy)}
	parts = append(parts, findingParts(t.Findings, &o)...)
	parts = append(parts, sourceParts(t.Sources)...)
	if len(t.Paths) == 0 {
		parts = append(parts, part{key: "no paths\n" + o.in(t.Summary.Text), words: t.Summary.Text})
	}
	for _, p := range cellParts(t.Paths, &o) {
		if !p.optional {
			parts = append(parts, p)
		}
	}
	return parts
}

// cellParts is what becomes of each class of clients at each frontend.
func cellParts(paths []report.Path, o *own) []part {
	var out []part
	for from := 0; from < len(paths); {
		to := from + 1
		for to < len(paths) && sameCell(&paths[from], &paths[to]) {
			to++
		}
		out = append(out, cellPart(paths[from:to], o))
		from = to
	}
	return out
}

func sameCell(a, b *report.Path) bool {
	return a.Frontend == b.Frontend && a.SourceClass == b.SourceClass && a.Source == b.Source
}

// cellPart is one cell without what is the node's own.
func cellPart(cell []report.Path, o *own) part {
	p := &cell[0]
	f := p.Frontend
	who := cmp.Or(p.SourceClass, o.in(p.Source))
	to := fmt.Sprintf("%s %s/%s", f.Kind, hostPort(o.in(f.Address), f.Port), f.Protocol)
	c := part{key: to + " from " + who, who: who, to: to, outcome: cellWords(cell, o), backends: reached(cell, o), asked: asAsked(cell)}
	c.words = to + ": " + c.outcome
	switch {
	case c.asked && !o.literal && p.SourceClass == "hairpin":
		c.optional, c.key = true, c.key+ofTheNode
	case c.asked && !o.literal && p.Intended.Local:
		c.key, c.outcome, c.backends = c.key+ofTheNode, "as asked of the node", nil
		c.words = to + ": " + c.outcome
	case c.asked:
		c.key += "\nas asked\n" + asked(cell, o)
	default:
		outcomes := make([]string, 0, len(cell))
		for i := range cell {
			outcomes = append(outcomes, outcome(&cell[i], o))
		}
		slices.Sort(outcomes)
		c.key += "\n" + strings.Join(outcomes, "\n")
	}
	return c
}

// asAsked tells whether a cell does what the objects ask for, in every respect that a trace compares.
func asAsked(cell []report.Path) bool {
	for i := range cell {
		p := &cell[i]
		if p.Intended == nil || p.Result != p.Intended.Result || len(p.Uncertain) > 0 || !answered(p.Reply) {
			return false
		}
		for j := range p.Backends {
			b := &p.Backends[j]
			if b.State != "ok" || b.Result != p.Result || b.Intended == nil || share(*b.Intended) != share(b.Probability) || !answered(b.Reply) {
				return false
			}
			if b.MasqueradeIntended != nil && (b.Masquerade == nil || *b.Masquerade != *b.MasqueradeIntended) {
				return false
			}
		}
	}
	return true
}

// answered tells whether an answer fares as it ought to. Whether it comes back past the node depends on where the
// backend is; that it may, on the masquerading, which is compared.
func answered(r *report.Reply) bool {
	return r == nil || r.Result == report.ReplyDelivered || r.Result == report.ReplyBypasses
}

// asked is a cell that does what the objects ask for: what that is, and by which chains.
func asked(cell []report.Path, o *own) string {
	var lines []string
	for i := range cell {
		p := &cell[i]
		lines = append(lines, string(p.Result))
		for j := range p.Backends {
			b := &p.Backends[j]
			lines = append(lines, fmt.Sprintf("%s %s by %s", hostPort(o.in(b.Address), b.Port), share(b.Probability), o.in(b.TranslatedBy)))
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

// outcome is a path as text: result, shares and translations, in an order that does not depend on that of rules.
func outcome(p *report.Path, o *own) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s reply %s", p.Result, share(p.Probability), replyOf(p.Reply))
	if len(p.Backends) == 0 {
		fmt.Fprintf(&b, " in %s %s", p.Table, p.Chain)
	}
	for _, u := range p.Uncertain {
		fmt.Fprintf(&b, " if %q", o.in(u.Condition))
	}
	backends := make([]string, 0, len(p.Backends))
	for i := range p.Backends {
		be := &p.Backends[i]
		intended := "?"
		if be.Intended != nil {
			intended = share(*be.Intended)
		}
		backends = append(backends, fmt.Sprintf("%s %s/%s %s %s by %s masquerade %s reply %s", hostPort(o.in(be.Address), be.Port),
			share(be.Probability), intended, be.State, be.Result, o.in(be.TranslatedBy), maybe(be.Masquerade), replyOf(be.Reply)))
	}
	slices.Sort(backends)
	for _, be := range backends {
		b.WriteString("\n  " + be)
	}
	return b.String()
}

// namedBackends is how many backends stand in words by their addresses.
const namedBackends = 4

// cellWords is a cell in words: where its connections end up, and what is unlike what they ought to.
func cellWords(cell []report.Path, o *own) string {
	var words []string
	for i := range cell {
		p := &cell[i]
		text := string(p.Result)
		if p.Probability < 1 {
			text = percent(p.Probability) + " " + text
		}
		text += backendWords(p, o)
		if p.Masquerade != nil && *p.Masquerade {
			text += ", masqueraded"
		}
		for _, u := range p.Uncertain {
			text += ", if " + u.Condition
		}
		if r := badReply(p); r != "" {
			text += ", answers " + r
		}
		if !slices.Contains(words, text) {
			words = append(words, text)
		}
	}
	return strings.Join(words, "; ")
}

func backendWords(p *report.Path, o *own) string {
	var got []string
	states := make(map[string]int)
	for i := range p.Backends {
		b := &p.Backends[i]
		if b.State != "ok" && b.State != "unknown" && b.State != "" {
			states[b.State]++
		}
		if b.Probability > 0 {
			got = append(got, hostPort(o.in(b.Address), b.Port)+" "+percent(b.Probability))
		}
	}
	var text string
	switch n := len(got); {
	case n > namedBackends:
		text = fmt.Sprintf(" to %d backends", n)
	case n > 0:
		text = " to " + strings.Join(got, ", ")
	}
	for _, state := range slices.Sorted(maps.Keys(states)) {
		text += fmt.Sprintf(", %d %s", states[state], state)
	}
	return text
}

// badReply is what becomes of answers that do not come back, "" where all do.
func badReply(p *report.Path) string {
	if !answered(p.Reply) {
		return string(p.Reply.Result)
	}
	for i := range p.Backends {
		if r := p.Backends[i].Reply; !answered(r) {
			return string(r.Result)
		}
	}
	return ""
}

// reached are the backends of a cell that get connections.
func reached(cell []report.Path, o *own) []string {
	var out []string
	for i := range cell {
		for j := range cell[i].Backends {
			if b := &cell[i].Backends[j]; b.Probability > 0 {
				out = append(out, hostPort(o.in(b.Address), b.Port))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func replyOf(r *report.Reply) report.ReplyResult {
	if r == nil {
		return ""
	}
	return r.Result
}

func maybe(b *bool) string {
	if b == nil {
		return "?"
	}
	return strconv.FormatBool(*b)
}

// share is a probability without what rounding in the kernel makes of it.
func share(p float64) string { return strconv.FormatFloat(math.Round(p*1e4)/1e4, 'f', -1, 64) }

func percent(p float64) string { return strconv.FormatFloat(math.Round(p*1000)/10, 'f', 1, 64) + "%" }

func hostPort(address string, port int) string {
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	return address + ":" + strconv.Itoa(port)
}
