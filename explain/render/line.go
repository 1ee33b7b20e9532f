package render

import (
	"bufio"
	"io"
	"strings"
)

// tone is the colour of a word. It repeats what a sign and a word say already.
type tone uint8

const (
	noTone tone = iota
	faint
	strong
	good
	warn
	bad
)

// sgr returns the terminal's code for the tone.
func (t tone) sgr() string {
	switch t {
	case faint:
		return "\x1b[2m"
	case strong:
		return "\x1b[1m"
	case good:
		return "\x1b[32m"
	case warn:
		return "\x1b[33m"
	case bad:
		return "\x1b[31m"
	}
	return ""
}

// word is a piece of a line that is never broken; cut words may be truncated where they do not fit.
type word struct {
	text string
	tone tone
	gap  int // spaces before it
	cut  bool
}

// line is what stands on one line where the width allows, and on several else.
type line []word

// prose adds text that may be broken at its spaces.
func (l line) prose(t tone, text string) line {
	gap := 1
	if len(l) == 0 {
		gap = 0
	}
	for _, w := range strings.Fields(Clean(text)) {
		l = append(l, word{text: w, tone: t, gap: gap})
		gap = 1
	}
	return l
}

// token adds one unbreakable piece of running text, faint: it names, and is not what is said.
func (l line) token(text string) line { return l.add(word{text: text, tone: faint, gap: 1}) }

// cell adds one unbreakable piece, set off by two spaces.
func (l line) cell(t tone, text string) line { return l.add(word{text: text, tone: t, gap: 2}) }

// rule adds the text of a rule, which is truncated where it does not fit.
func (l line) rule(text string) line { return l.add(word{text: text, tone: faint, gap: 2, cut: true}) }

func (l line) add(w word) line {
	if w.text == "" {
		return l
	}
	if len(l) == 0 {
		w.gap = 0
	}
	w.text = Clean(w.text)
	return append(l, w)
}

// join appends text to the last word.
func (l line) join(text string) line {
	if len(l) > 0 {
		l[len(l)-1].text += Clean(text)
	}
	return l
}

// minCut is the least room in which a truncated rule still tells something.
const minCut = 24

// page writes lines with their prefix, wrapped to the width.
type page struct {
	w *bufio.Writer
	o Options
}

func newPage(w io.Writer, o Options) *page { return &page{w: bufio.NewWriter(w), o: o} }

func (p *page) flush() error { return p.w.Flush() }

func (p *page) blank() { p.w.WriteByte('\n') }

// show returns text as it is written: within ASCII if so asked.
func (p *page) show(s string) string {
	if p.o.ASCII {
		return toASCII(s)
	}
	return s
}

// write puts l after first, its continuations after rest and hang more columns.
func (p *page) write(first, rest string, hang int, l line) {
	rest = p.show(rest) + strings.Repeat(" ", hang)
	row := p.show(first)
	var words line
	col := columns(row)
	for _, w := range l {
		w.text = p.show(w.text)
		n := columns(w.text)
		if len(words) == 0 {
			w.gap = 0
		}
		if room := p.o.Width - col - w.gap; p.o.Width > 0 && n > room {
			if len(words) > 0 && (!w.cut || room < minCut) {
				p.row(row, words)
				row, words, w.gap = rest, nil, 0
				col = columns(row)
				room = p.o.Width - col
			}
			if w.cut && n > room {
				w.text = p.truncate(w.text, max(room, minCut))
				n = columns(w.text)
			}
		}
		words = append(words, w)
		col += w.gap + n
	}
	p.row(row, words)
}

// row writes one line of the page; words of one tone share the terminal's codes.
func (p *page) row(prefix string, words line) {
	var b strings.Builder
	b.WriteString(prefix)
	lit := noTone
	for i, w := range words {
		if strings.TrimSpace(w.text) == "" {
			w.tone = noTone
		}
		if i == len(words)-1 {
			w.text = strings.TrimRight(w.text, " ")
		}
		if p.o.Color && w.tone != lit && lit != noTone {
			b.WriteString("\x1b[0m")
			lit = noTone
		}
		b.WriteString(strings.Repeat(" ", w.gap))
		if p.o.Color && w.tone != lit && w.text != "" {
			b.WriteString(w.tone.sgr())
			lit = w.tone
		}
		b.WriteString(w.text)
	}
	if lit != noTone {
		b.WriteString("\x1b[0m")
	}
	p.w.WriteString(strings.TrimRight(b.String(), " "))
	p.w.WriteByte('\n')
}

// truncate shortens text to n columns, the last of which say that there is more.
func (p *page) truncate(text string, n int) string {
	more := p.show("…")
	n -= columns(more)
	for i, r := range text {
		if n -= columns(string(r)); n < 0 {
			return text[:i] + more
		}
	}
	return text
}

// padLeft and padRight fill up to n columns.
func padLeft(s string, n int) string {
	return strings.Repeat(" ", max(0, n-columns(s))) + s
}

func padRight(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-columns(s)))
}
