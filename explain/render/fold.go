package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// block is everything about one frontend, or about several of a kind that are served alike: the addresses
// of a node port.
type block struct {
	frontends []report.Frontend
	branches  []branch
}

// branch is one outcome with all clients that meet it.
type branch struct {
	key     string
	clients []client
	// paths are those of the first client; the other clients' differ in their source and entry only.
	paths []report.Path
}

// client is one representative of a source class.
type client struct {
	class, source, origin string
	// entry is the built-in chain that it comes in by, empty when not known.
	entry string
	// several is true when the frontend has more than one representative of the class, so that the
	// class alone does not say who is meant.
	several bool
	// exact is true when the question was about this client and no class.
	exact bool
}

// fold groups the paths of a trace by frontend and, within, by outcome. The order of the trace is kept.
func fold(paths []report.Path) []block {
	var blocks []block
	for start := 0; start < len(paths); {
		end := start + 1
		for end < len(paths) && paths[end].Frontend == paths[start].Frontend {
			end++
		}
		b := block{[]report.Frontend{paths[start].Frontend}, foldClients(paths[start:end])}
		if last := len(blocks) - 1; last >= 0 && alike(&blocks[last], &b) {
			blocks[last].frontends = append(blocks[last].frontends, b.frontends...)
		} else {
			blocks = append(blocks, b)
		}
		start = end
	}
	return blocks
}

// alike tells whether two frontends differ by nothing but their address.
func alike(a, b *block) bool {
	f := b.frontends[0]
	f.Address = a.frontends[0].Address
	return a.frontends[0] == f && slices.EqualFunc(a.branches, b.branches, func(x, y branch) bool {
		return x.key == y.key && clientsOf(&x) == clientsOf(&y)
	})
}

func foldClients(paths []report.Path) []branch {
	var branches []branch
	byOutcome := map[string]int{}
	reps := map[string]int{}
	for start := 0; start < len(paths); {
		end := start + 1
		for end < len(paths) && sameCell(&paths[start], &paths[end]) {
			end++
		}
		cell := anonymous(paths[start:end])
		c := client{
			class: cell[0].SourceClass, source: cell[0].Source, origin: cell[0].Origin, entry: entry(&cell[0]),
			exact: cell[0].Frontend.Kind == addressOnly,
		}
		reps[c.class]++
		key := outcome(cell)
		i, ok := byOutcome[key]
		if !ok {
			i = len(branches)
			byOutcome[key] = i
			branches = append(branches, branch{key: key, paths: cell})
		}
		branches[i].clients = append(branches[i].clients, c)
		start = end
	}
	for i := range branches {
		for k := range branches[i].clients {
			c := &branches[i].clients[k]
			c.several = reps[c.class] > 1 || len(reps) == 1
		}
	}
	return branches
}

// anonymous is a cell whose reasons speak of "the client" where they named its address, so that clients with
// the same fate are one branch.
func anonymous(cell []report.Path) []report.Path {
	out := slices.Clone(cell)
	for i := range out {
		if in := out[i].Intended; in != nil {
			copied := *in
			copied.Because = replaceAddress(in.Because, cell[0].Source, "the client")
			out[i].Intended = &copied
		}
	}
	return out
}

// replaceAddress replaces an address where it stands alone, not as part of a longer one.
func replaceAddress(text, address, by string) string {
	if address == "" {
		return text
	}
	var b strings.Builder
	for rest := text; ; {
		before, after, found := strings.Cut(rest, address)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		if endsInAddress(before) || beginsInAddress(after) {
			b.WriteString(address)
		} else {
			b.WriteString(by)
		}
		rest = after
	}
}

func endsInAddress(s string) bool { return s != "" && addressByte(s[len(s)-1]) }

// beginsInAddress tells whether s goes on with an address; a full stop or colon of prose does not.
func beginsInAddress(s string) bool {
	if s != "" && (s[0] == '.' || s[0] == ':') {
		s = s[1:]
	}
	return s != "" && (addressByte(s[0]) || s[0] == '/')
}

func addressByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || c == '.' || c == ':'
}

func sameCell(a, b *report.Path) bool {
	return a.SourceClass == b.SourceClass && a.Source == b.Source && a.Origin == b.Origin
}

// entry is the first built-in chain that a packet of p comes by and that the tree shows.
func entry(p *report.Path) string {
	if j := follow(p, firstBackend(p)); len(j.legs) > 0 {
		return j.legs[0].chains[0]
	}
	return ""
}

// outcome is what a reader would have to see to tell two cells apart: all but the source and the
// built-in chain of entry.
func outcome(cell []report.Path) string {
	var b strings.Builder
	for i := range cell {
		p := &cell[i]
		fmt.Fprintf(&b, "%s|%.6f|%s|", p.Result, p.Probability, truth(p.Masquerade))
		if len(p.Backends) == 0 || !delivers(p.Result) {
			fmt.Fprintf(&b, "%s|%s|", p.Table, p.Chain)
		}
		if len(p.Backends) == 0 {
			writeJourney(&b, follow(p, nil))
		}
		for _, u := range p.Uncertain {
			fmt.Fprintf(&b, "if %q %q|", u.Condition, u.Because)
		}
		if p.Intended != nil && !(delivers(p.Result) && delivers(p.Intended.Result)) {
			fmt.Fprintf(&b, "want %s %q %q|", p.Intended.Result, p.Intended.Backends, p.Intended.Because)
		}
		writeReply(&b, p.Reply)
		for k := range p.Backends {
			e := &p.Backends[k]
			fmt.Fprintf(&b, "\n%s %d %.6f %s %s %s %s %s|", e.Address, e.Port, e.Probability, share(e.Intended), e.State, e.Result,
				truth(e.Masquerade), e.SnatTo)
			writeReply(&b, e.Reply)
			if e.Inside != nil {
				fmt.Fprintf(&b, "inside %s %q|", e.Inside.Result, e.Inside.Text)
			}
			if e.State != "missing" {
				writeJourney(&b, follow(p, e))
			}
		}
		b.WriteString("\n\n")
	}
	return b.String()
}

func writeJourney(b *strings.Builder, j journey) {
	for i, l := range j.legs {
		chains := l.chains
		if i == 0 && builtIn(chains[0]) {
			chains = chains[1:]
		}
		fmt.Fprintf(b, "%s:%q|", l.table, chains)
	}
	if j.masquerades != nil {
		fmt.Fprintf(b, "masq %q %q|", j.masquerades.Chain, j.masquerades.Text)
	}
}

// writeReply leaves out answers that arrive: the tree does not speak of them.
func writeReply(b *strings.Builder, r *report.Reply) {
	if m, _ := judgeReply(r); m != markOK {
		fmt.Fprintf(b, "reply %s %s %s %q|", r.Result, r.Table, r.Chain, r.Text)
	}
}

func truth(b *bool) string {
	switch {
	case b == nil:
		return "?"
	case *b:
		return "yes"
	}
	return "no"
}

func share(f *float64) string {
	if f == nil {
		return "?"
	}
	return fmt.Sprintf("%.6f", *f)
}
