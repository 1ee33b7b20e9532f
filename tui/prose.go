package tui

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
)

// prose is text that is broken at its spaces into lines of a width.
type prose struct {
	theme *theme
	width int
	rows  []row
}

func newProse(t *theme, width int) *prose { return &prose{theme: t, width: max(width, 10)} }

// wrap breaks text at its spaces into rows of a width.
func (t *theme) wrap(of tone, text string, width int) []row {
	p := newProse(t, width)
	p.flow(row{}, 0, p.words(of, text))
	return p.rows
}

// words are the words of a text. They are spelled as the terminal shows them before they are counted: ASCII may be longer.
func (p *prose) words(t tone, text string) row {
	var out row
	for _, w := range strings.Fields(render.Clean(text)) {
		out = append(out, span{p.theme.show(w), t})
	}
	return out
}

// flow writes words behind first, and continues them below at hang columns. A word that is longer than a line is broken.
func (p *prose) flow(first row, hang int, words row) {
	hang = min(hang, p.width/2)
	line := first
	at, fresh := line.width(), true
	for _, w := range words {
		n := ansi.StringWidth(w.text)
		switch {
		case fresh:
		case at+1+n <= p.width:
			line, at = append(line, span{" ", w.tone}), at+1
		default:
			p.rows = append(p.rows, line)
			line, at = row{}.gap(hang), hang
		}
		fresh = false
		for at+n > p.width {
			piece := ansi.Truncate(w.text, max(p.width-at, 1), "")
			if piece == "" { // a sign that is wider than what is left
				break
			}
			p.rows = append(p.rows, append(line, span{piece, w.tone}))
			w.text = w.text[len(piece):]
			n = ansi.StringWidth(w.text)
			line, at = row{}.gap(hang), hang
		}
		line, at = append(line, w), at+n
	}
	p.rows = append(p.rows, line)
}

func (p *prose) blank() { p.rows = append(p.rows, nil) }

// heading begins a part.
func (p *prose) heading(text string) {
	if len(p.rows) > 0 {
		p.blank()
	}
	p.text(strong, text)
}

// text writes a paragraph.
func (p *prose) text(t tone, text string) { p.flow(row{}, 0, p.words(t, text)) }

// label is how wide what stands before a paragraph is.
const label = 10

// named writes a paragraph behind what it is; nothing where there is no text.
func (p *prose) named(name string, t tone, text string) {
	if text != "" {
		p.flow(row{}.cell(faint, name, label), label, p.words(t, text))
	}
}

// evidence writes what a claim rests on: the place, and the text as the native tool prints it.
func (p *prose) evidence(name string, e report.Evidence) {
	p.flow(row{}.cell(faint, name, label), label, append(p.words(strong, render.Place(e)), p.words(faint, e.Text)...))
}

// besideFrom is the width from which on the details of a row stand to the right of its list.
const besideFrom = 110

// beside draws a list with the details of the row under its cursor: to the right of it where the terminal is wide, else
// below it. What does not fit is counted, and shown by the key for more.
func (m *Model) beside(width, height int, list func(width, height int) []string, details func(width int) []row) []string {
	if width >= besideFrom {
		left := (width - 3) / 2
		one, other := list(left, height), m.fitting(details(width-left-3), width-left-3, height)
		out := make([]string, 0, height)
		bar := m.theme.line(row{}.add(faint, "│"), 1, false)
		for i := range height {
			line := ""
			if i < len(one) {
				line = one[i]
			}
			line += strings.Repeat(" ", max(left-ansi.StringWidth(line), 0)) + " " + bar
			if i < len(other) && other[i] != "" {
				line += " " + other[i]
			}
			out = append(out, line)
		}
		return out
	}
	below := max(height*2/5, 4)
	out := list(width, height-below)
	for len(out) < height-below {
		out = append(out, "")
	}
	out = append(out[:height-below], m.theme.line(row{}.add(faint, strings.Repeat("─", width)), width, false))
	return append(out, m.fitting(details(width), width, below-1)...)
}

// fitting are the rows that fit.
func (m *Model) fitting(rows []row, width, height int) []string {
	hidden := 0
	if len(rows) > height {
		hidden = len(rows) - height + 1
		rows = rows[:height-1]
	}
	out := make([]string, 0, height)
	for _, r := range rows {
		out = append(out, m.theme.line(r, width, false))
	}
	if hidden > 0 {
		out = append(out, m.theme.line(row{}.add(faint, "… "+plural(hidden, "more line")+" (").add(accent, m.keys.wide.shown()).add(faint, " shows them)"), width, false))
	}
	return out
}
