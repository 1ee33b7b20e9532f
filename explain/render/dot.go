package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// DOT writes the graph of a trace in the language of Graphviz.
func DOT(w io.Writer, t *report.Trace, o Options) error {
	p := newPage(w, o)
	q := func(lines ...string) string { return p.show(dotQuote(lines...)) }
	g := newGraph(t)
	fmt.Fprintf(p.w, "digraph svcnet {\n  rankdir=LR;\n  label=%s;\n  labelloc=t;\n", q(g.title))
	fmt.Fprint(p.w, "  node [fontname=\"sans-serif\", shape=box];\n  edge [fontname=\"sans-serif\"];\n")
	for i := range g.clusters {
		c := &g.clusters[i]
		fmt.Fprintf(p.w, "  subgraph cluster_%d {\n    label=%s;\n", i+1, q(c.label))
		for _, n := range c.nodes {
			fmt.Fprintf(p.w, "    %s [label=%s%s];\n", n.id, q(n.lines...), dotStyle(n))
		}
		for _, e := range c.edges {
			fmt.Fprintf(p.w, "    %s -> %s", c.nodes[e.from].id, c.nodes[e.to].id)
			var attrs []string
			if len(e.labels) > 0 {
				attrs = append(attrs, "label="+q(strings.Join(e.labels, " / ")))
			}
			if e.missing {
				attrs = append(attrs, "style=dashed", "color=red")
			}
			if len(attrs) > 0 {
				fmt.Fprintf(p.w, " [%s]", strings.Join(attrs, ", "))
			}
			fmt.Fprint(p.w, ";\n")
		}
		fmt.Fprint(p.w, "  }\n")
	}
	fmt.Fprint(p.w, "}\n")
	return p.flush()
}

// dotQuote is a quoted string of DOT with one line of the label for each element. The backslash must be
// doubled: Graphviz gives \N, \G, \l and others a meaning of their own.
func dotQuote(lines ...string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	for i, l := range lines {
		lines[i] = escape.Replace(l)
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}

func dotStyle(n graphNode) string {
	s := ""
	switch n.kind {
	case clientNode:
		s = ", shape=plaintext"
	case backendNode:
		s = ", shape=oval"
	case verdictNode:
		s = ", shape=octagon"
	}
	switch n.tone {
	case bad:
		s += ", color=red"
	case warn:
		s += ", color=orange"
	}
	return s
}
