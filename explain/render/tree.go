package render

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// Tree writes a trace as a tree: what is traced, one sentence, then for every frontend the clients by what
// happens to them, the chains, the backends with their shares, and at the end findings and what could not
// be looked at. It is what people read, and promises no format.
func Tree(w io.Writer, t *report.Trace, o Options) error {
	p := newPage(w, o)
	p.write("", "", 2, title(t))
	p.write("", "", 2, sentence(t))
	var shown gallery
	for _, b := range fold(t.Paths) {
		p.blank()
		p.write("", "", 4, frontendLine(b))
		var roots []*twig
		for i := range b.branches {
			roots = append(roots, branchTwig(&b, &b.branches[i], &shown))
		}
		p.twigs("", roots)
	}
	p.findings(t.Findings)
	p.notEvaluated(t.Paths)
	p.sources(t.Sources)
	return p.flush()
}

// twig is a node of the printed tree: a line, lines that belong to it, and branches below it.
type twig struct {
	head  line
	hang  int
	notes []line
	kids  []*twig
}

func (p *page) twigs(prefix string, all []*twig) {
	for i, t := range all {
		first, rest := prefix+"├─ ", prefix+"│  "
		if i == len(all)-1 {
			first, rest = prefix+"└─ ", prefix+"   "
		}
		below := rest
		if len(t.kids) > 0 {
			below = rest + "│  "
		}
		wrapped := rest
		if len(t.notes) == 0 {
			wrapped = below
		}
		p.write(first, wrapped, t.hang, t.head)
		for _, n := range t.notes {
			p.write(rest, rest, 2, n)
		}
		p.twigs(rest, t.kids)
	}
}

// title is the first line: the Service or packet, the node, the proxy.
func title(t *report.Trace) line {
	var l line
	switch {
	case t.Metadata.Namespace != "":
		l = l.cell(strong, "Service "+t.Metadata.Namespace+"/"+t.Metadata.Name)
		if t.Type != "" {
			l = l.cell(noTone, t.Type)
		}
	case len(t.Paths) > 0:
		l = l.cell(strong, "Packet to "+dialed(t.Paths[0].Frontend))
	default:
		l = l.cell(strong, strings.TrimSpace("Trace "+t.Metadata.Name))
	}
	if t.Node != "" {
		l = l.cell(noTone, "on node "+t.Node)
	} else {
		l = l.cell(noTone, "on a node that the evidence does not name")
	}
	return l.cell(noTone, "("+proxyName(t.Proxy)+")")
}

func proxyName(p report.Proxy) string {
	if p.Mode == "" && p.Version == "" && p.Backend == "" {
		return "proxy not known"
	}
	words := []string{}
	if p.Version != "" {
		words = append(words, "kube-proxy "+p.Version)
	}
	if p.Mode != "" {
		words = append(words, p.Mode+" mode")
	}
	if p.Backend != "" {
		words = append(words, p.Backend+" backend")
	}
	return strings.Join(words, ", ")
}

// sentence is the summary behind the mark of the worst thing in the document.
func sentence(t *report.Trace) line {
	var l line
	if len(t.Paths) > 0 {
		m := worst(t)
		l = l.cell(m.tone, m.sign+" "+m.word+":")
	}
	return l.prose(noTone, t.Summary.Text)
}

func worst(t *report.Trace) mark {
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
		p := &t.Paths[i]
		m = m.worse(judge(p))
		if len(p.Uncertain) > 0 {
			m = m.worse(markWarn)
		}
		for k := range p.Backends {
			b, _ := judgeBackend(p, &p.Backends[k])
			m = m.worse(b)
			i, _ := judgeInside(p.Backends[k].Inside)
			m = m.worse(i)
		}
		if r, _ := judgeReply(p.Reply); r == markError {
			m = markError
		}
	}
	return m
}

func frontendLine(b block) line {
	l := line{}.cell(strong, b.frontends[0].Kind)
	for i, f := range b.frontends {
		if i > 0 {
			l = l.join(",")
		}
		l = l.cell(strong, dialed(f))
	}
	return l
}

// branchTwig shows one outcome. Where it has several paths (a share of the connections each, or conditions
// that evidence does not decide) these hang below it.
func branchTwig(f *block, b *branch, shown *gallery) *twig {
	t := &twig{hang: 4}
	t.head = t.head.prose(strong, "from "+clientsOf(b)+":")
	if pod, source := clientPod(b); pod != "" {
		t.head = line{}.prose(strong, "from pod "+pod+" ("+source+"):")
	}
	if len(b.paths) == 1 && len(b.paths[0].Uncertain) == 0 {
		t.head = append(t.head, spaced(pathHead(&b.paths[0]))...)
		pathBody(t, f, b, &b.paths[0], shown)
		return t
	}
	conditions := 0
	common := sameReasons(b.paths)
	for i := range b.paths {
		p := &b.paths[i]
		kid := &twig{hang: 4}
		if len(p.Uncertain) > 0 {
			conditions++
		}
		kid.head = condition(p)
		kid.head = append(kid.head, spaced(pathHead(p))...)
		pathBody(kid, f, b, p, shown)
		if why := reasons(p); common {
			t.notes = why
		} else {
			kid.notes = append(why, kid.notes...)
		}
		t.kids = append(t.kids, kid)
	}
	switch {
	case conditions > 0:
		t.head = t.head.prose(warn, "! depends on what the evidence does not say")
	default:
		t.head = t.head.prose(noTone, fmt.Sprintf("%d ways, at random", len(b.paths)))
	}
	return t
}

// reasons say why the conditions of a path cannot be decided, each reason once.
func reasons(p *report.Path) []line {
	var out []line
	seen := map[string]bool{"": true}
	for _, u := range p.Uncertain {
		if !seen[u.Because] {
			seen[u.Because] = true
			out = append(out, line{}.prose(faint, "not decided: "+u.Because))
		}
	}
	return out
}

// sameReasons tells whether all paths are uncertain for the same reasons, which then are said once.
func sameReasons(paths []report.Path) bool {
	for i := range paths {
		if !slices.EqualFunc(paths[0].Uncertain, paths[i].Uncertain, func(a, b report.Uncertain) bool { return a.Because == b.Because }) {
			return false
		}
	}
	return true
}

// spaced sets the first word of l off from what stands before it.
func spaced(l line) line {
	if len(l) > 0 {
		l[0].gap = 1
	}
	return l
}

func condition(p *report.Path) line {
	var l line
	if len(p.Uncertain) == 0 || p.Probability < 1 {
		l = l.cell(strong, percent(p.Probability))
	}
	for i, u := range p.Uncertain {
		word := "if "
		if i > 0 {
			word = "and if "
		}
		l = l.prose(strong, word+u.Condition)
	}
	return l.join(":")
}

// podHops are the hops of a path inside the client's own pod: they come first.
func podHops(p *report.Path) []report.Hop {
	hops := p.Hops
	if b := firstBackend(p); b != nil {
		hops = slices.Concat(p.Hops, b.Hops)
	}
	for i := range hops {
		if hops[i].Pod == "" {
			return hops[:i]
		}
	}
	return hops
}

// clientPod is the pod whose own rules the client of a branch went through, and its address; empty when there are
// none.
func clientPod(b *branch) (pod, source string) {
	for i := range b.paths {
		if hops := podHops(&b.paths[i]); len(hops) > 0 && len(b.clients) == 1 {
			return hops[0].Pod, b.clients[0].source
		}
	}
	return "", ""
}

// neverLeaves tells whether a path ends in the client's own pod: the node's rules never see it.
func neverLeaves(p *report.Path) bool {
	if strings.HasPrefix(p.Because, "inside pod ") {
		return true
	}
	switch p.Result {
	case report.ResultRedirect, report.ResultDrop, report.ResultReject, report.ResultNoRoute, report.ResultMartian:
		last := follow(p, firstBackend(p)).last
		return last != nil && last.Pod != ""
	}
	return false
}

// pathHead says in a few words what happens: the rest of the line after the clients.
func pathHead(p *report.Path) line {
	var l line
	if neverLeaves(p) {
		return withinHead(p)
	}
	if len(p.Backends) > 0 && delivers(p.Result) {
		switch {
		case p.Masquerade == nil && mixed(p):
			l = l.prose(noTone, "masqueraded to some backends")
		case p.Masquerade == nil:
			l = l.prose(warn, "! masquerade not decided")
		case *p.Masquerade:
			l = l.prose(noTone, "masqueraded"+snatTo(p))
		default:
			l = l.prose(noTone, "source address kept")
		}
		if p.Intended != nil && !delivers(p.Intended.Result) {
			l = l.prose(bad, fmt.Sprintf("✗ error: should be %s (%s)", p.Intended.Result, p.Intended.Because))
		}
		return l
	}
	m := judge(p)
	j := follow(p, firstBackend(p))
	if m != markOK {
		l = l.prose(m.tone, m.sign+" "+m.word+":")
	}
	return l.prose(noTone, means(p, j.last))
}

// withinHead is pathHead of a path that ends in the client's own pod.
func withinHead(p *report.Path) line {
	m, text := judge(p), ""
	switch b := firstBackend(p); {
	case b != nil && b.Inside != nil:
		i, _ := judgeInside(b.Inside)
		m, text = m.worse(i), b.Inside.Text
	case strings.HasPrefix(p.Because, "inside pod "):
		_, text, _ = strings.Cut(strings.TrimPrefix(p.Because, "inside pod "), ": ")
	default:
		text = means(p, follow(p, nil).last)
	}
	var l line
	if m != markOK {
		l = l.prose(m.tone, m.sign+" "+m.word+":")
	}
	return l.prose(strong, "never leaves the pod:").prose(noTone, text)
}

// mixed tells whether some backends are masqueraded and others are not.
func mixed(p *report.Path) bool {
	yes, no := false, false
	for i := range p.Backends {
		if m := p.Backends[i].Masquerade; m != nil {
			yes, no = yes || *m, no || !*m
		}
	}
	return yes && no
}

// snatTo names the source that all backends see, if it is known and one.
func snatTo(p *report.Path) string {
	to := ""
	for i := range p.Backends {
		switch b := &p.Backends[i]; {
		case b.SnatTo == "" || b.State == "missing":
		case to == "":
			to = b.SnatTo
		case to != b.SnatTo:
			return ""
		}
	}
	if to == "" {
		return ""
	}
	return ", backends see " + to
}

// firstBackend is the backend whose hops stand for those of all, nil when there is none.
func firstBackend(p *report.Path) *report.Backend {
	if len(p.Backends) == 0 || p.Backends[0].State == "missing" {
		return nil
	}
	return &p.Backends[0]
}

// pathBody adds the chains, the reasons and the backends of a path.
func pathBody(t *twig, f *block, b *branch, p *report.Path, shown *gallery) {
	if neverLeaves(p) {
		withinBody(t, b, p)
		return
	}
	if own := podHops(p); len(own) > 0 {
		// The node's own way begins behind the pod's.
		t.notes = append(t.notes, insideLine(own))
		p = without(p, len(own))
	}
	j := follow(p, firstBackend(p))
	if l := wayLine(j, b, len(p.Backends) > 0); len(l) > 0 {
		t.notes = append(t.notes, l)
	}
	if by := j.translates; by != nil && by.Kind == "rule" && j.picks == nil && len(p.Backends) > 0 {
		// No chain of its own stands for the backend: a rule of somebody else's, or of the userspace proxy.
		t.notes = append(t.notes, line{}.prose(faint, "translated by:").token(by.Chain).rule(brief(by)).cell(faint, bracketed(place(by.Evidence))))
	}
	if j.masquerades != nil && p.Masquerade != nil && *p.Masquerade {
		t.notes = append(t.notes, line{}.prose(faint, "masquerade:").token(j.masquerades.Chain).rule(brief(j.masquerades)))
	}
	if !delivers(p.Result) {
		if l := verdictLine(p, j); len(l) > 0 {
			t.notes = append(t.notes, l)
		}
	}
	if p.Intended != nil && !delivers(p.Result) {
		t.notes = append(t.notes, intendedLine(p))
	}
	if m, text := judgeReply(p.Reply); m != markOK {
		t.notes = append(t.notes, replyLine(p.Reply, m, text))
	}
	if l := shown.same(f, b, p); len(l) > 0 {
		t.notes = append(t.notes, l)
		return
	}
	t.kids = append(t.kids, backendTwigs(p)...)
}

// withinBody is pathBody of a path that ends in the client's own pod: the way there, and the rule.
func withinBody(t *twig, b *branch, p *report.Path) {
	j := follow(p, firstBackend(p))
	if l := wayLine(j, b, false); len(l) > 0 {
		t.notes = append(t.notes, l)
	}
	by := j.last
	if j.translates != nil && p.Result == report.ResultRedirect {
		by = j.translates
	}
	if by == nil || by.Text == "" {
		return
	}
	l := line{}.prose(noTone, "by the pod's own:").prose(noTone, strings.TrimSpace(by.Table+" "+by.Chain))
	if by.Kind == "rule" {
		l = l.rule(brief(by))
	} else {
		l = l.prose(noTone, by.Text)
	}
	t.notes = append(t.notes, l.cell(faint, bracketed(place(by.Evidence))))
}

// insideLine says that a connection passed the client's own pod first, and by which rule there, if one sent it
// elsewhere.
func insideLine(own []report.Hop) line {
	last := &own[len(own)-1]
	l := line{}.prose(faint, "leaves pod "+last.Pod)
	if i := translation(own, ""); i >= 0 {
		by := &own[i]
		return l.prose(noTone, "for another destination, by the pod's own:").token(by.Chain).rule(brief(by)).cell(faint, bracketed(place(by.Evidence)))
	}
	return l.prose(faint, "by its own rules:").token(last.Chain).rule(brief(last))
}

// without is a path that lacks its first n hops, be they its own or its backends'.
func without(p *report.Path, n int) *report.Path {
	out := *p
	if n <= len(p.Hops) {
		out.Hops = p.Hops[n:]
		return &out
	}
	out.Hops = nil
	out.Backends = slices.Clone(p.Backends)
	for i := range out.Backends {
		hops := out.Backends[i].Hops
		out.Backends[i].Hops = hops[min(n-len(p.Hops), len(hops)):]
	}
	return &out
}

// wayLine is the chain path. The translating chain is left to the backend lines where there are any.
func wayLine(j journey, b *branch, backends bool) line {
	if !slices.ContainsFunc(j.legs, func(l leg) bool { return len(l.chains) > 1 }) {
		return nil
	}
	var l line
	for i, leg := range j.legs {
		chains := leg.chains
		if n := len(chains); backends && n > 1 && j.picks != nil && chains[n-1] == j.translates.Chain {
			chains = chains[:len(chains)-1]
		}
		if i > 0 {
			l = l.join(",").prose(faint, "then")
		}
		if leg.table != "" && (leg.table != "nat" || len(j.legs) > 1) {
			l = l.prose(faint, leg.table)
		}
		for k, c := range chains {
			gap := 1
			if len(l) == 0 {
				gap = 0
			}
			first := i == 0 && k == 0
			if usual := usualEntry(b); first && builtIn(c) && usual != "" && len(b.clients) > 1 {
				c = usual
			}
			text := Clean(c)
			if k > 0 {
				text = "→ " + text
			}
			l = append(l, word{text: text, tone: faint, gap: gap})
			if first {
				l = l.prose(faint, otherEntries(b, c))
			}
		}
	}
	if j.translates != nil && j.translates.Kind == "virtual-server" {
		l = l.prose(faint, "→ virtual server")
	}
	return l
}

// usualEntry is the built-in chain by which most clients of a branch come in.
func usualEntry(b *branch) string {
	count := map[string]int{}
	best := ""
	for _, c := range b.clients {
		count[c.entry]++
		if count[c.entry] > count[best] {
			best = c.entry
		}
	}
	return best
}

// otherEntries names the clients that come in by another built-in chain than the one shown.
func otherEntries(b *branch, shown string) string {
	var entries []string
	by := map[string][]client{}
	for _, c := range b.clients {
		if c.entry == "" || c.entry == shown {
			continue
		}
		if by[c.entry] == nil {
			entries = append(entries, c.entry)
		}
		by[c.entry] = append(by[c.entry], c)
	}
	if len(entries) == 0 {
		return ""
	}
	for i, e := range entries {
		entries[i] = namesOf(by[e]) + ": " + e
	}
	return "(" + strings.Join(entries, "; ") + ")"
}

// verdictLine says where a packet ended, with the rule as the evidence has it.
func verdictLine(p *report.Path, j journey) line {
	if p.Chain == "" && j.last == nil {
		return nil
	}
	l := line{}.prose(noTone, "at:")
	where := strings.TrimSpace(p.Table + " " + p.Chain)
	if where != "" {
		l = l.prose(noTone, where)
	}
	if j.last != nil && j.last.Text != "" && (p.Chain == "" || j.last.Chain == p.Chain) {
		if j.last.Kind == "rule" {
			l = l.rule(brief(j.last))
		} else {
			l = l.prose(noTone, j.last.Text)
		}
		l = l.cell(faint, bracketed(place(j.last.Evidence)))
	}
	return l
}

func bracketed(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

func place(e report.Evidence) string {
	if e.File == "" {
		return e.Source
	}
	if e.Line == 0 {
		return e.File
	}
	return fmt.Sprintf("%s:%d", e.File, e.Line)
}

func intendedLine(p *report.Path) line {
	in := p.Intended
	if in.Result == p.Result {
		return line{}.prose(noTone, "as the objects ask: "+orElse(in.Because, string(in.Result)))
	}
	text := "the objects ask for " + string(in.Result)
	if n := len(in.Backends); n > 0 && n <= 3 {
		text += " to " + strings.Join(in.Backends, ", ")
	} else if n > 3 {
		text += fmt.Sprintf(" to %d backends", n)
	}
	if in.Because != "" {
		text += ": " + in.Because
	}
	return line{}.prose(bad, text)
}

func replyLine(r *report.Reply, m mark, text string) line {
	l := line{}.prose(m.tone, m.sign+" "+m.word+": "+text)
	if where := strings.TrimSpace(r.Table + " " + r.Chain); where != "" {
		l = l.prose(noTone, "at "+where)
	}
	if strings.HasPrefix(r.Text, "-A ") {
		return l.rule(withoutComment(r.Text))
	}
	if r.Text != "" {
		l = l.prose(noTone, "("+r.Text+")")
	}
	return l
}
