package render

import (
	"io"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// Wide writes a trace as tables: every path with every backend, every hop with its evidence, findings and
// sources. Nothing is folded, shortened or left out; the path numbers join the first two tables.
func Wide(w io.Writer, t *report.Trace, o Options) error {
	p := newPage(w, o)
	p.write("", "", 0, title(t))
	if t.Summary.Text != "" {
		p.write("", "", 0, sentence(t))
	}
	paths := table{{"PATH", "FRONTEND", "ADDRESS", "FROM", "SOURCE", "RESULT", "AT", "SHARE", "IF", "MASQUERADE",
		"BACKEND", "BACKEND-SHARE", "INTENDED", "STATE", "POD", "NODE", "READY"}}
	hops := table{{"PATH", "BACKEND", "KIND", "TABLE", "CHAIN", "RULE", "PROBABILITY", "CUMULATIVE", "EVIDENCE", "TEXT"}}
	insides := table{{"PATH", "BACKEND", "INSIDE-POD", "RESULT", "TEXT"}}
	for i := range t.Paths {
		n := strconv.Itoa(i + 1)
		paths = append(paths, pathRows(n, &t.Paths[i])...)
		hops = append(hops, hopRows(n, "", t.Paths[i].Hops)...)
		for k := range t.Paths[i].Backends {
			b := &t.Paths[i].Backends[k]
			hops = append(hops, hopRows(n, dial(b.Address, b.Port), b.Hops)...)
			if in := b.Inside; in != nil {
				m, _ := judgeInside(in)
				insides = append(insides, []string{n, dial(b.Address, b.Port), in.Pod, m.sign + " " + string(in.Result), in.Text})
				hops = append(hops, hopRows(n, dial(b.Address, b.Port)+" inside "+in.Pod, in.Hops)...)
			}
		}
	}
	findings := table{{"SEVERITY", "FINDING", "SUBJECT", "MESSAGE", "WANT", "GOT", "REMEDY"}}
	for i := range t.Findings {
		f := &t.Findings[i]
		m := severity(f.Severity)
		findings = append(findings, []string{m.sign + " " + m.word, f.ID, f.Subject, f.Message, f.Want, f.Got, f.Remedy})
	}
	sources := table{{"SOURCE", "STATUS", "FILE", "ERROR"}}
	for _, s := range t.Sources {
		sources = append(sources, []string{s.Name, s.Status, s.File, s.Error})
	}
	for _, tab := range []table{paths, insides, hops, findings, sources} {
		if len(tab) > 1 {
			p.blank()
			p.table(tab)
		}
	}
	p.notEvaluated(t.Paths)
	return p.flush()
}

func pathRows(n string, p *report.Path) table {
	var conditions []string
	for _, u := range p.Uncertain {
		conditions = append(conditions, u.Condition)
	}
	head := []string{n, p.Frontend.Kind, dialed(p.Frontend), p.SourceClass, p.Source, string(p.Result),
		strings.TrimSpace(p.Table + " " + p.Chain), decimal(p.Probability), strings.Join(conditions, " and ")}
	if len(p.Backends) == 0 {
		return table{append(head, "", "", "", "", "", "", "", "")}
	}
	var out table
	for i := range p.Backends {
		b := &p.Backends[i]
		intended := ""
		if b.Intended != nil {
			intended = decimal(*b.Intended)
		}
		m, _ := judgeBackend(p, b)
		state := m.sign + " " + b.State
		if b.Result != "" && b.Result != p.Result {
			state += ", " + string(b.Result)
		}
		out = append(out, append(append([]string(nil), head...), truth(b.Masquerade), dial(b.Address, b.Port),
			decimal(b.Probability), intended, state, b.Pod, b.Node, b.Ready))
	}
	return out
}

func hopRows(n, backend string, hops []report.Hop) table {
	var out table
	for _, h := range hops {
		rule := ""
		if h.Rule > 0 {
			rule = strconv.Itoa(h.Rule)
		}
		out = append(out, []string{n, backend, h.Kind, h.Table, h.Chain, rule, decimal(h.Probability), decimal(h.Cumulative),
			place(h.Evidence), h.Text})
	}
	return out
}

// decimal shows a probability with five decimals.
func decimal(p float64) string { return strconv.FormatFloat(p, 'f', 5, 64) }

// table is rows of cells, the first of them the heading. Cells without text show a dash.
type table [][]string

func (p *page) table(t table) {
	width := make([]int, len(t[0]))
	for _, r := range t {
		for i, c := range r {
			r[i] = p.show(Clean(orElse(c, "-")))
			width[i] = max(width[i], columns(r[i]))
		}
	}
	for k, r := range t {
		var b strings.Builder
		for i, c := range r {
			if i > 0 {
				b.WriteString("   ")
			}
			b.WriteString(padRight(c, width[i]))
		}
		text := strings.TrimRight(b.String(), " ")
		if k == 0 && p.o.Color {
			text = strong.sgr() + text + "\x1b[0m"
		}
		p.w.WriteString(text + "\n")
	}
}
