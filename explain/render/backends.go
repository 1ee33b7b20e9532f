package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// A list longer than maxBackends is shown by its first shownBackends and whatever is odd in the rest.
const (
	maxBackends   = 12
	shownBackends = 10
)

// row is one backend in columns.
type row struct {
	share, rule, address, chain string
	mark                        mark
	why, object                 string
	masquerade                  string
}

// backendTwigs are the backends of a path, in aligned columns.
func backendTwigs(p *report.Path) []*twig {
	var rows []row
	var inside []*report.Inside // of each row
	var rest []*report.Backend
	mix := p.Masquerade == nil && mixed(p)
	for i := range p.Backends {
		b := &p.Backends[i]
		m, _ := judgeBackend(p, b)
		within, _ := judgeInside(b.Inside)
		m = m.worse(within)
		if len(p.Backends) > maxBackends && i >= shownBackends && m == markOK {
			rest = append(rest, b)
			continue
		}
		rows = append(rows, backendRow(p, b, mix))
		inside = append(inside, b.Inside)
	}
	var size struct{ share, rule, address, chain int }
	for _, r := range rows {
		size.share = max(size.share, columns(r.share))
		size.rule = max(size.rule, columns(r.rule))
		size.address = max(size.address, columns(r.address))
		size.chain = max(size.chain, columns(r.chain))
	}
	var out []*twig
	for i, r := range rows {
		var l line
		l = l.cell(strong, padLeft(r.share, size.share))
		if size.rule > 0 {
			l = l.cell(faint, padRight(r.rule, size.rule))
		}
		l = l.cell(noTone, padRight(r.address, size.address))
		if size.chain > 0 {
			l = l.cell(faint, padRight(r.chain, size.chain))
		}
		if r.why != "" {
			first, rest, _ := strings.Cut(r.why, " ")
			l = l.cell(r.mark.tone, r.mark.sign+" "+first).prose(r.mark.tone, rest)
		}
		l = l.cell(noTone, r.object).cell(noTone, r.masquerade)
		out = append(out, &twig{head: l, hang: size.share + 2, notes: insideNotes(inside[i])})
	}
	if len(rest) > 0 {
		out = append(out, &twig{head: line{}.prose(noTone, remainder(rest)), hang: 2})
	}
	return out
}

func backendRow(p *report.Path, b *report.Backend, mix bool) row {
	m, why := judgeBackend(p, b)
	if i, text := judgeInside(b.Inside); m == markOK && i == markError {
		m, why = i, text
	}
	r := row{share: percent(b.Probability), address: Clean(dial(b.Address, b.Port)), mark: m, why: why, object: object(b)}
	if b.State == "missing" {
		if b.Intended != nil {
			r.why += ", should get " + percent(*b.Intended)
		}
		return r
	}
	j := follow(p, b)
	if len(j.legs) > 0 && j.picks != nil {
		r.chain = Clean(picker(j))
		if j.picks.Kind == "rule" && percent(j.picks.Probability) != r.share {
			r.rule = "(rule " + percent(j.picks.Probability) + ")"
			if j.picks.Probability == 1 {
				r.rule = "(the rest)"
			}
		}
	}
	if mix {
		r.masquerade = "source kept"
		if b.Masquerade != nil && *b.Masquerade {
			r.masquerade = "masqueraded"
		}
	}
	return r
}

// insideNotes say what happens in the backend's own network namespace, where that was read: who takes the packet,
// and the pod's own rule that decided.
func insideNotes(in *report.Inside) []line {
	if in == nil {
		return nil
	}
	l := line{}.prose(faint, "inside pod "+in.Pod+":")
	if m, _ := judgeInside(in); m != markOK {
		l = l.prose(m.tone, m.sign+" "+m.word+":")
	}
	out := []line{l.prose(noTone, in.Text)}
	if n := len(in.Hops); n > 0 {
		by := &in.Hops[n-1]
		if i := translation(in.Hops, ""); i >= 0 && in.Result != report.ResultDrop && in.Result != report.ResultReject {
			by = &in.Hops[i]
		}
		l := line{}.prose(faint, "by the pod's own:").prose(faint, strings.TrimSpace(by.Table+" "+by.Chain))
		if by.Kind == "rule" {
			l = l.rule(brief(by))
		} else {
			l = l.prose(faint, by.Text)
		}
		out = append(out, l.cell(faint, bracketed(place(by.Evidence))))
	}
	return out
}

// judgeInside is the mark of what happens inside a backend's pod, with a few words for what is wrong.
func judgeInside(in *report.Inside) (mark, string) {
	if in == nil {
		return markOK, ""
	}
	switch in.Result {
	case report.ResultLocalProcess, report.ResultRedirect:
		return markOK, ""
	case report.ResultUnknown:
		return markWarn, "not known what happens in the pod"
	case report.ResultNoMatch:
		return markError, "refused: nobody listens in the pod"
	case report.ResultDrop:
		return markError, "dropped inside the pod"
	case report.ResultReject:
		return markError, "refused by the pod's own rules"
	}
	return markError, "lost inside the pod: " + string(in.Result)
}

// object names the pod, the node and the readiness of a backend.
func object(b *report.Backend) string {
	s := b.Pod
	if b.Node != "" {
		if s != "" {
			s += " "
		}
		s += "on " + b.Node
	}
	if b.Ready != "" && b.State != "missing" {
		if s != "" {
			s += ", "
		}
		s += b.Ready
	}
	return s
}

// remainder sums up the backends that are not shown.
func remainder(rest []*report.Backend) string {
	least, most := rest[0].Probability, rest[0].Probability
	for _, b := range rest {
		least, most = min(least, b.Probability), max(most, b.Probability)
	}
	if percent(least) == percent(most) {
		return fmt.Sprintf("… %d more at %s each", len(rest), percent(least))
	}
	return fmt.Sprintf("… %d more at %s to %s each", len(rest), percent(least), percent(most))
}

// gallery remembers the lists of backends that are printed already.
type gallery struct{ lists []shownList }

type shownList struct {
	block  *block
	branch *branch
	path   *report.Path
}

// same is a line that refers to an earlier list with the same backends, shares and states. Where there is
// none it is empty, and p is remembered.
func (g *gallery) same(f *block, b *branch, p *report.Path) line {
	if len(p.Backends) < 2 {
		return nil
	}
	for _, s := range g.lists {
		if !sameBackends(s.path, p) {
			continue
		}
		l := line{}.prose(noTone, fmt.Sprintf("the same %d backends and shares as", len(p.Backends)))
		if s.block.frontends[0] != f.frontends[0] {
			l = l.prose(noTone, s.block.frontends[0].Kind+" "+dialed(s.block.frontends[0]))
		}
		l = l.prose(noTone, "from "+clientsOf(s.branch))
		return append(l, oddStates(p)...)
	}
	g.lists = append(g.lists, shownList{f, b, p})
	return nil
}

// oddStates counts the backends that are not as they should be, by state.
func oddStates(p *report.Path) line {
	var l line
	for _, state := range []string{"stale", "missing", "not-ready"} {
		n := 0
		for i := range p.Backends {
			if p.Backends[i].State == state {
				n++
			}
		}
		if n > 0 {
			l = l.cell(bad, fmt.Sprintf("%s %d %s", markError.sign, n, state))
		}
	}
	if len(l) > 0 {
		l[0].gap = 2
	}
	return l
}

// sameBackends tells whether the two paths show the same list of backends, so that it is printed once.
func sameBackends(a, b *report.Path) bool {
	tellApart := a.Masquerade == nil && mixed(a) || b.Masquerade == nil && mixed(b)
	return len(a.Backends) > 0 && slices.EqualFunc(a.Backends, b.Backends, func(x, y report.Backend) bool {
		if tellApart && truth(x.Masquerade) != truth(y.Masquerade) {
			return false
		}
		return x.Address == y.Address && x.Port == y.Port && x.State == y.State && x.Result == y.Result &&
			fmt.Sprintf("%.6f", x.Probability) == fmt.Sprintf("%.6f", y.Probability) && share(x.Intended) == share(y.Intended) &&
			(x.State == "missing" || picker(follow(a, &x)) == picker(follow(b, &y))) && sameReply(x.Reply, y.Reply) && sameInside(x.Inside, y.Inside)
	})
}

func picker(j journey) string {
	if len(j.legs) == 0 {
		return ""
	}
	chains := j.legs[len(j.legs)-1].chains
	return chains[len(chains)-1]
}

func sameReply(a, b *report.Reply) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func sameInside(a, b *report.Inside) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Result == b.Result && a.Text == b.Text
}
