package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// Mermaid writes the graph of a trace as a Mermaid flowchart.
func Mermaid(w io.Writer, t *report.Trace, o Options) error {
	p := newPage(w, o)
	q := func(lines ...string) string { return mermaidQuote(p, lines) }
	g := newGraph(t)
	fmt.Fprintf(p.w, "---\ntitle: %s\n---\nflowchart LR\n", q(g.title))
	var red, orange []string
	for i := range g.clusters {
		c := &g.clusters[i]
		fmt.Fprintf(p.w, "  subgraph f%d[%s]\n", i+1, q(c.label))
		for _, n := range c.nodes {
			fmt.Fprintf(p.w, "    %s%s\n", n.id, mermaidShape(n.kind, q(n.lines...)))
			switch n.tone {
			case bad:
				red = append(red, n.id)
			case warn:
				orange = append(orange, n.id)
			}
		}
		for _, e := range c.edges {
			arrow := "-->"
			if e.missing {
				arrow = "-.->"
			}
			if len(e.labels) > 0 {
				arrow += "|" + q(strings.Join(e.labels, " / ")) + "|"
			}
			fmt.Fprintf(p.w, "    %s %s %s\n", c.nodes[e.from].id, arrow, c.nodes[e.to].id)
		}
		fmt.Fprint(p.w, "  end\n")
	}
	if len(red) > 0 {
		fmt.Fprintf(p.w, "  classDef error stroke:red\n  class %s error\n", strings.Join(red, ","))
	}
	if len(orange) > 0 {
		fmt.Fprintf(p.w, "  classDef warn stroke:orange\n  class %s warn\n", strings.Join(orange, ","))
	}
	return p.flush()
}

// mermaidQuote is a quoted label with one line for each element. Mermaid has no backslash escapes but
// entities of its own (#quot;), and reads HTML tags and Markdown in labels.
func mermaidQuote(p *page, lines []string) string {
	out := make([]string, len(lines))
	for i, l := range lines {
		var b strings.Builder
		for _, r := range p.show(l) {
			switch r {
			case '"', '#', '<', '>', '&', '`', '\\', '*', '_', ';', '{', '}', '|', '[', ']':
				fmt.Fprintf(&b, "#%d;", r)
			default:
				b.WriteRune(r)
			}
		}
		out[i] = b.String()
	}
	return `"` + strings.Join(out, "<br/>") + `"`
}

func mermaidShape(k nodeKind, label string) string {
	switch k {
	case clientNode:
		return "([" + label + "])"
	case backendNode:
		return "(" + label + ")"
	case verdictNode:
		return "{{" + label + "}}"
	}
	return "[" + label + "]"
}
