// Package fleet makes one document of those of many nodes: it tells which nodes are alike, keeps one document of each
// kind in full, and says what tells the odd ones from the rest.
//
// Documents are added one after the other, in any order, and give the same list. What is kept grows with what differs
// and not with the number of nodes: of a node that is like another one, its name and counts.
package fleet

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// part is one thing that a document says, without what belongs to its node by intent.
type part struct {
	// key tells it from others.
	key string
	// words say it to people; who, where there is one, is whom it is said of, and parts that differ in that alone are
	// told in one.
	words, who string
	// Of a cell: to is the frontend, outcome what becomes of its clients, in words, and backends those that get
	// connections; asked is true when all of it is as the objects ask.
	to, outcome string
	backends    []string
	asked       bool
	// optional is true for a cell that is as asked and that not every node has: that of a pod which dials itself.
	optional bool
}

// ofTheNode ends the key of a part that says no more than that a node does what is asked of it, and not of others.
const ofTheNode = "\nas asked of the node"

// kind are nodes whose documents say the same.
type kind struct {
	nodes []string
	// item is the node whose document is kept in full: the first by name.
	item  string
	parts []part
	text  string
	// local is true where some of what they do depends on their own endpoints.
	local bool
	// rank is how bad it is: the smaller the worse.
	rank int
}

// kinds sorts nodes by what their documents say.
type kinds struct {
	all     map[[sha256.Size]byte]*kind
	unread  []report.Unread
	byPrint []*kind
}

// add puts a node to its kind. first is true when the node's document is the one of its kind to keep in full; replaced
// is then the node whose document was, "" for none.
func (k *kinds) add(node, text string, rank int, parts []part) (of *kind, first bool, replaced string) {
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.key, b.key) })
	parts = slices.CompactFunc(parts, func(a, b part) bool { return a.key == b.key })
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s\n", len(p.key), p.key)
	}
	sum := [sha256.Size]byte(h.Sum(nil))
	of = k.all[sum]
	if of == nil {
		of = &kind{nodes: []string{node}, item: node, parts: parts, text: text, rank: rank}
		of.local = slices.ContainsFunc(parts, func(p part) bool { return strings.HasSuffix(p.key, ofTheNode) && !p.optional })
		if k.all == nil {
			k.all = make(map[[sha256.Size]byte]*kind)
		}
		k.all[sum] = of
		k.byPrint = append(k.byPrint, of)
		return of, true, ""
	}
	of.nodes = append(of.nodes, node)
	if node >= of.item {
		return of, false, ""
	}
	replaced = of.item
	of.item, of.text, of.parts = node, text, parts
	return of, true, replaced
}

// Unread notes a node of which there is no document, and why.
func (k *kinds) Unread(node string, err error) {
	k.unread = append(k.unread, report.Unread{Node: node, Error: err.Error()})
}

// nodes is how many were added.
func (k *kinds) nodes() int {
	n := 0
	for _, of := range k.byPrint {
		n += len(of.nodes)
	}
	return n
}

// usual is the most common kind; of equally common ones that which is least bad, then the one with the first name. Nil
// where there is none.
func (k *kinds) usual() *kind {
	if len(k.byPrint) == 0 {
		return nil
	}
	return slices.MinFunc(k.byPrint, func(a, b *kind) int {
		return cmp.Or(cmp.Compare(len(b.nodes), len(a.nodes)), cmp.Compare(b.rank, a.rank), cmp.Compare(a.item, b.item))
	})
}

// shownDifferences is how many differences of an odd kind are told.
const shownDifferences = 12

// kindred are the kinds as the document has them: the rarest first, the usual one last.
func (k *kinds) kindred() []report.Kindred {
	out := []report.Kindred{}
	usual := k.usual()
	odd := slices.Clone(k.byPrint)
	slices.SortFunc(odd, func(a, b *kind) int {
		return cmp.Or(cmp.Compare(flag(a == usual), flag(b == usual)), cmp.Compare(len(a.nodes), len(b.nodes)), cmp.Compare(a.rank, b.rank), cmp.Compare(a.item, b.item))
	})
	for _, of := range odd {
		of.nodes = sorted(of.nodes)
		g := report.Kindred{Nodes: of.nodes, Item: of.item, Odd: of != usual, Differs: []string{}, Text: of.text}
		if len(of.nodes) > 1 && of.local {
			g.Text += " Of the other nodes the same holds but for their own endpoints."
		}
		if g.Odd {
			g.Differs = limited(differences(of.parts, usual.parts))
		}
		out = append(out, g)
	}
	return out
}

// differences says what one list of parts has and another has not, and the other way round.
func differences(these, those []part) []string {
	var out []part
	has := func(list []part, key string) bool {
		_, ok := slices.BinarySearchFunc(list, key, func(p part, key string) int { return cmp.Compare(p.key, key) })
		return ok
	}
	for _, p := range these {
		if !has(those, p.key) {
			out = append(out, p)
		}
	}
	for _, p := range those {
		// What both say of one thing is told by what it is here.
		if !has(these, p.key) && !slices.ContainsFunc(these, func(q part) bool { return about(q) == about(p) }) {
			p.words = "without " + p.words
			out = append(out, p)
		}
	}
	return told(out)
}

// told are parts in words, those that differ in whom they are said of in one.
func told(parts []part) []string {
	var out []string
	who := make(map[string][]string)
	for _, p := range parts {
		if !slices.Contains(out, p.words) {
			out = append(out, p.words)
		}
		if p.who != "" && !slices.Contains(who[p.words], p.who) {
			who[p.words] = append(who[p.words], p.who)
		}
	}
	slices.Sort(out)
	for i, words := range out {
		if of := who[words]; len(of) > 0 {
			slices.Sort(of)
			out[i] = words + " (from " + strings.Join(of, ", ") + ")"
		}
	}
	return out
}

// about is what a part says something of: the first line of its key.
func about(p part) string {
	before, _, _ := strings.Cut(p.key, "\n")
	return before
}

func limited(all []string) []string {
	if len(all) <= shownDifferences {
		return slices.Clip(append([]string{}, all...))
	}
	return append(slices.Clone(all[:shownDifferences]), fmt.Sprintf("and %d more", len(all)-shownDifferences))
}

func (k *kinds) unreadNodes() []report.Unread {
	out := append([]report.Unread{}, k.unread...)
	slices.SortStableFunc(out, func(a, b report.Unread) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// text says how many nodes there are and which of them are odd.
func (k *kinds) text() string {
	n := k.nodes()
	usual := k.usual()
	var text string
	switch odd := n - countOf(usual); {
	case n == 0:
		text = "No node was read"
	case n == 1:
		text = "1 node: " + usual.item
	case odd == 0:
		text = fmt.Sprintf("%d nodes, all alike", n)
	case len(usual.nodes) == 1:
		text = fmt.Sprintf("%d nodes, no two alike", n)
	default:
		text = fmt.Sprintf("%d nodes: %d alike, %s", n, len(usual.nodes), k.oddNames(usual))
	}
	if u := len(k.unread); u > 0 {
		text += fmt.Sprintf("; %s could not be read", nodesText(u))
	}
	return text
}

func countOf(k *kind) int {
	if k == nil {
		return 0
	}
	return len(k.nodes)
}

// shownNodes is how many names of nodes stand in prose.
const shownNodes = 5

// oddNames names the nodes that are not of the usual kind.
func (k *kinds) oddNames(usual *kind) string {
	var names []string
	for _, of := range k.byPrint {
		if of != usual {
			names = append(names, of.nodes...)
		}
	}
	names = sorted(names)
	if len(names) == 1 {
		return names[0] + " differs"
	}
	return someOf(names) + " differ"
}

// someOf names the first few of at least two nodes.
func someOf(nodes []string) string {
	if n := len(nodes); n > shownNodes {
		return strings.Join(nodes[:shownNodes], ", ") + fmt.Sprintf(" and %d more", n-shownNodes)
	}
	last := len(nodes) - 1
	return strings.Join(nodes[:last], ", ") + " and " + nodes[last]
}

func nodesText(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return names
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
