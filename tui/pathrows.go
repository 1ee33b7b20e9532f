package tui

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
)

// pathRow is a line of the tree of one cell: a path where there are several, a hop, a backend, the answer, or a finding.
type pathRow struct {
	// indent and last place it in the tree.
	indent int
	kind   rowKind
	path   *report.Path
	// hop is that of the row; for a backend the one that translates. backend is there for backends and their hops.
	hop     *report.Hop
	backend *report.Backend
	finding *report.Finding
	// share of the cell's connections; negative: none is shown.
	share float64
	// id tells it from the other rows when the tree is made again.
	id string
}

type rowKind uint8

const (
	pathLine rowKind = iota
	hopLine
	// chainLine is a chain that the backends of a path are chosen in, each by a rule of its own.
	chainLine
	backendLine
	ownHopLine
	replyLine
	findingLine
	// elsewhereLine stands above findings that rest on nothing of the cell.
	elsewhereLine
)

// treeOf is the tree of a cell: the hops that all connections share, then every backend with its share, and each finding
// below what it rests on. Backends in open have their own hops below them.
func treeOf(cell []report.Path, found []report.Finding, open map[string]bool, everything bool) []pathRow {
	t := tree{found: found, told: make([]bool, len(found)), open: open, everything: everything}
	for i := range cell {
		p := &cell[i]
		indent := 0
		if len(cell) > 1 || len(p.Uncertain) > 0 {
			t.add(pathRow{kind: pathLine, path: p, share: p.Probability, id: fmt.Sprint("path ", i)})
			indent = 1
		}
		t.path(p, indent, i)
	}
	if slices.Contains(t.told, false) {
		t.add(pathRow{kind: elsewhereLine, path: &cell[0], share: -1, id: "elsewhere"})
	}
	for i := range found {
		if !t.told[i] {
			t.finding(i, &cell[0], 1)
		}
	}
	return t.rows
}

// tree is one in the making.
type tree struct {
	rows       []pathRow
	found      []report.Finding
	told       []bool
	open       map[string]bool
	everything bool
}

func (t *tree) add(r pathRow) { t.rows = append(t.rows, r) }

func (t *tree) path(p *report.Path, indent, number int) {
	var way []chainAt
	depth := indent
	for i := range p.Hops {
		h := &p.Hops[i]
		depth = indent + enter(&way, h)
		t.add(pathRow{indent: depth, kind: hopLine, path: p, hop: h, share: h.Cumulative, id: fmt.Sprintf("hop %d %d %s", number, i, h.Chain)})
		t.resting(p, nil, h, depth+1)
	}
	at := depth + 1
	if len(p.Hops) == 0 {
		at = indent
	}
	if h := choosing(p); h != nil {
		at = indent + enter(&way, h)
		t.add(pathRow{indent: at, kind: chainLine, path: p, hop: h, share: p.Probability, id: fmt.Sprintf("chain %d %s", number, h.Chain)})
		at++
	}
	for i := range p.Backends {
		b := &p.Backends[i]
		id := fmt.Sprintf("backend %d %s", number, render.Dial(b.Address, b.Port))
		t.add(pathRow{indent: at, kind: backendLine, path: p, backend: b, hop: translating(b), share: b.Probability, id: id})
		if t.everything != t.open[id] {
			own := slices.Clone(way)
			for k := range b.Hops {
				h := &b.Hops[k]
				t.add(pathRow{indent: max(indent+enter(&own, h), at) + 1, kind: ownHopLine, path: p, backend: b, hop: h, share: h.Cumulative, id: fmt.Sprintf("%s hop %d", id, k)})
			}
		}
		t.resting(p, b, nil, at+1)
	}
	if p.Reply != nil || slices.ContainsFunc(p.Backends, func(b report.Backend) bool { return b.Probability > 0 && b.Reply == nil }) {
		t.add(pathRow{indent: indent, kind: replyLine, path: p, share: -1, id: fmt.Sprint("reply ", number)})
	}
}

// choosing is the first of the rules that choose among the backends of a path, where they are of one chain; nil where a
// single rule chooses, or none.
func choosing(p *report.Path) *report.Hop {
	var first *report.Hop
	for i := range p.Backends {
		b := &p.Backends[i]
		switch {
		case len(b.Hops) == 0:
		case len(b.Hops) == 1 || b.Hops[0].Kind != "rule" || first != nil && b.Hops[0].Chain != first.Chain:
			return nil
		case first == nil:
			first = &b.Hops[0]
		}
	}
	return first
}

// translating is the hop by which a backend is chosen for good: the rule of its own chain, or its real server.
func translating(b *report.Backend) *report.Hop {
	for i := range b.Hops {
		if h := &b.Hops[i]; h.Kind == "virtual-server" || h.Chain == b.TranslatedBy {
			return h
		}
	}
	if n := len(b.Hops); n > 0 {
		return &b.Hops[n-1]
	}
	return nil
}

// resting adds the findings that rest on a hop or a backend, each at the first place that it rests on.
func (t *tree) resting(p *report.Path, b *report.Backend, h *report.Hop, indent int) {
	for i := range t.found {
		if !t.told[i] && restsOn(&t.found[i], b, h) {
			t.finding(i, p, indent)
		}
	}
}

func restsOn(f *report.Finding, b *report.Backend, h *report.Hop) bool {
	if b != nil && f.Object.Endpoint != "" {
		return f.Object.Endpoint == render.Dial(b.Address, b.Port) || f.Object.Endpoint == b.Address
	}
	if f.Object.Endpoint != "" {
		return false
	}
	hops := []report.Hop{}
	if h != nil {
		hops = append(hops, *h)
	} else if b != nil {
		hops = b.Hops
	}
	for i := range hops {
		e := hops[i].Evidence
		if e.Line > 0 && slices.ContainsFunc(f.Evidence, func(g report.Evidence) bool { return g.File == e.File && g.Line == e.Line }) {
			return true
		}
	}
	return false
}

func (t *tree) finding(i int, p *report.Path, indent int) {
	t.told[i] = true
	f := &t.found[i]
	t.add(pathRow{indent: indent, kind: findingLine, path: p, finding: f, share: -1, id: "finding " + f.ID + f.Subject + f.Object.Endpoint})
}

// chainAt is a chain that a packet is in.
type chainAt struct{ table, chain, file string }

// enter follows a hop into its chain and returns how deep that is: a built-in chain, or that of another table, begins anew.
func enter(way *[]chainAt, h *report.Hop) int {
	at := chainAt{h.Table, strings.TrimSuffix(h.Chain, "(policy)"), h.Evidence.File}
	if h.Kind != "rule" && h.Kind != "policy" {
		return len(*way)
	}
	if i := slices.Index(*way, at); i >= 0 {
		*way = (*way)[:i+1]
		return i
	}
	if n := len(*way); n > 0 && ((*way)[n-1].table != at.table || (*way)[n-1].file != at.file || render.BuiltIn(at.chain)) {
		*way = (*way)[:0]
	}
	*way = append(*way, at)
	return len(*way) - 1
}

// text is the row without its share, bar and rate.
func (r *pathRow) text() row {
	out := row{}.gap(2 * r.indent)
	switch r.kind {
	case pathLine:
		j := render.JudgePath(r.path)
		words := []string{}
		for _, u := range r.path.Uncertain {
			words = append(words, "if "+u.Condition)
		}
		if len(words) > 0 {
			return out.add(warn, "? ").add(strong, strings.Join(words, " and ")+": ").add(plain, j.Text)
		}
		return out.add(toneOf(j.Level), j.Sign+" ").add(plain, j.Text)
	case hopLine, ownHopLine:
		return r.hopText(out)
	case chainLine:
		n := 0
		for i := range r.path.Backends {
			if len(r.path.Backends[i].Hops) > 0 {
				n++
			}
		}
		if n == 1 {
			return r.hopText(out)
		}
		return out.add(faint, r.tree()).add(strong, r.hop.Chain).gap(1).add(plain, fmt.Sprintf("chooses one of %d", n))
	case backendLine:
		j := render.JudgeBackend(r.path, r.backend)
		out = out.add(faint, "→ ").add(toneOf(j.Level), j.Sign+" ").add(strong, render.Dial(r.backend.Address, r.backend.Port))
		if j.Text != "" && j.Text != "ok" {
			out = out.gap(1).add(toneOf(j.Level), j.Text)
		}
		if r.backend.Pod != "" {
			out = out.gap(1).add(plain, r.backend.Pod)
		}
		if r.backend.Node != "" {
			out = out.gap(1).add(faint, "on "+r.backend.Node)
		}
		// What nobody reads is the first to be cut.
		if c := r.backend.TranslatedBy; c != "" && len(r.backend.Hops) > 1 {
			out = out.gap(1).add(faint, c)
		}
		return out
	case elsewhereLine:
		return out.add(faint, "of this Service, elsewhere:")
	case replyLine:
		if r.path.Reply == nil {
			return out.add(note, "? ").add(plain, "where the answer goes was not walked")
		}
		j := render.JudgeReply(r.path.Reply)
		text := j.Text
		if j.Level == render.Fine {
			text = "the answer reaches the client"
		}
		return out.add(toneOf(j.Level), j.Sign+" ").add(plain, strings.TrimPrefix(text, "answer "))
	case findingLine:
		j := render.JudgeSeverity(r.finding.Severity)
		word := j.Word
		if r.finding.Pending != "" {
			word = "pending"
		}
		return out.add(toneOf(j.Level), j.Sign+" "+word+" "+r.finding.ID+": ").add(plain, r.finding.Message)
	}
	return out
}

func (r *pathRow) hopText(out row) row {
	h := r.hop
	switch h.Kind {
	case "rule":
		if h.Pod != "" {
			out = out.add(note, "pod "+h.Pod+" ")
		}
		return out.add(faint, r.tree()).add(strong, h.Chain).gap(1).add(plain, render.Brief(h))
	case "policy":
		return out.add(faint, r.tree()).add(strong, strings.TrimSuffix(h.Chain, "(policy)")).gap(1).add(plain, "policy "+h.Text)
	}
	return out.add(faint, r.tree()).add(strong, h.Kind).gap(1).add(plain, h.Text)
}

func (r *pathRow) tree() string {
	if r.indent == 0 {
		return ""
	}
	return "└ "
}
