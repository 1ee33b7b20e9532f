package render

import (
	"slices"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// graph is a trace as nodes and edges, one cluster for each frontend. DOT and Mermaid write the same graph.
type graph struct {
	title    string
	clusters []cluster
}

type cluster struct {
	label  string
	nodes  []graphNode
	edges  []graphEdge
	byKey  map[string]int
	byEnds map[ends]int
}

// ends identify an edge.
type ends struct {
	from, to int
	missing  bool
}

// graphNode has an id of letters and digits and lines of cleaned text.
type graphNode struct {
	id    string
	kind  nodeKind
	lines []string
	tone  tone
}

type nodeKind uint8

const (
	clientNode nodeKind = iota
	chainNode
	backendNode
	verdictNode
)

// graphEdge joins two nodes of a cluster, by index. A missing edge is one that should be there.
type graphEdge struct {
	from, to int
	labels   []string
	missing  bool
}

func newGraph(t *report.Trace) graph {
	var words []string
	for _, w := range title(t) {
		words = append(words, w.text)
	}
	g := graph{title: strings.Join(words, " ")}
	for _, b := range fold(t.Paths) {
		c := cluster{byKey: map[string]int{}, byEnds: map[ends]int{}}
		var addresses []string
		for _, f := range b.frontends {
			addresses = append(addresses, dialed(f))
		}
		c.label = Clean(b.frontends[0].Kind + " " + strings.Join(addresses, ", "))
		prefix := "f" + strconv.Itoa(len(g.clusters)+1) + "n"
		for i := range b.branches {
			c.branch(prefix, &b.branches[i])
		}
		g.clusters = append(g.clusters, c)
	}
	return g
}

// node returns the index of the node of that key, adding it when there is none.
func (c *cluster) node(prefix, key string, kind nodeKind, tone tone, lines ...string) int {
	if i, ok := c.byKey[key]; ok {
		return i
	}
	i := len(c.nodes)
	c.byKey[key] = i
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" })
	for k := range lines {
		lines[k] = Clean(lines[k])
	}
	c.nodes = append(c.nodes, graphNode{id: prefix + strconv.Itoa(i+1), kind: kind, lines: lines, tone: tone})
	return i
}

func (c *cluster) edge(from, to int, label string, missing bool) {
	label = Clean(label)
	if i, ok := c.byEnds[ends{from, to, missing}]; ok {
		if e := &c.edges[i]; label != "" && !slices.Contains(e.labels, label) {
			e.labels = append(e.labels, label)
		}
		return
	}
	c.byEnds[ends{from, to, missing}] = len(c.edges)
	e := graphEdge{from: from, to: to, missing: missing}
	if label != "" {
		e.labels = []string{label}
	}
	c.edges = append(c.edges, e)
}

func (c *cluster) branch(prefix string, b *branch) {
	from := c.node(prefix, "client "+b.key, clientNode, noTone, clientsOf(b))
	for i := range b.paths {
		p := &b.paths[i]
		if len(p.Backends) == 0 {
			j := follow(p, nil)
			m := judge(p)
			last := c.way(prefix, from, j, pathLabel(p))
			word := ""
			if m != markOK {
				word = m.sign + " " + m.word
			}
			to := c.node(prefix, "verdict "+string(p.Result)+p.Table+" "+p.Chain, verdictNode, m.tone,
				strings.TrimSpace(word+" "+string(p.Result)), strings.TrimSpace(p.Table+" "+p.Chain))
			label := ""
			if last == from {
				label = pathLabel(p)
			}
			c.edge(last, to, label, false)
			continue
		}
		parent := from
		for k := range p.Backends {
			e := &p.Backends[k]
			m, why := judgeBackend(p, e)
			word := ""
			if m != markOK {
				word = m.sign + " " + why
			}
			to := c.node(prefix, "backend "+dial(e.Address, e.Port), backendNode, m.tone, dial(e.Address, e.Port), word, object(e))
			if e.State == "missing" {
				c.edge(parent, to, percent(e.Probability), true)
				continue
			}
			j := follow(p, e)
			last := c.way(prefix, from, j, pathLabel(p))
			c.edge(last, to, percent(e.Probability), false)
			if n := len(j.legs); n > 0 && len(j.legs[n-1].chains) > 1 {
				chains := j.legs[n-1].chains
				parent = c.node(prefix, "chain "+j.legs[n-1].table+" "+chains[len(chains)-2], chainNode, noTone)
			} else {
				parent = last
			}
		}
	}
}

// way adds the chains that j goes through and returns the last of them, or from when there are none.
func (c *cluster) way(prefix string, from int, j journey, label string) int {
	for _, l := range j.legs {
		for _, chain := range l.chains {
			to := c.node(prefix, "chain "+l.table+" "+chain, chainNode, noTone, chain, l.table)
			c.edge(from, to, label, false)
			from, label = to, ""
		}
	}
	return from
}

// pathLabel says under which conditions and how a path is taken.
func pathLabel(p *report.Path) string {
	var out []string
	if p.Probability < 1 && len(p.Uncertain) == 0 {
		out = append(out, percent(p.Probability))
	}
	for _, u := range p.Uncertain {
		out = append(out, "if "+u.Condition)
	}
	if len(p.Backends) > 0 {
		switch {
		case p.Masquerade == nil:
		case *p.Masquerade:
			out = append(out, "masqueraded")
		default:
			out = append(out, "source kept")
		}
	}
	return strings.Join(out, ", ")
}
