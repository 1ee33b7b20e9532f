package tui

import (
	"io"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"
	"github.com/muesli/termenv"

	"github.com/svcnet/svcnet/explain/render"
)

// Colors is how many colours the terminal has.
type Colors uint8

// The colours: none at all (NO_COLOR: bold, faint and reversed text stay), the 16 of every colour terminal, or 256.
const (
	NoColors Colors = iota
	Colors16
	Colors256
)

// Look is what the terminal can show. Nothing is said by colour alone: each has its sign and word beside it.
type Look struct {
	Colors Colors
	// ASCII keeps everything within ASCII, for terminals and locales that show nothing else.
	ASCII bool
}

// tone is what a piece of text is, from which its colour follows.
type tone uint8

const (
	plain tone = iota
	faint
	strong
	good
	note
	warn
	bad
	// accent is for what keys and tabs are called, bar for the filled part of a bar.
	accent
	bar
	tones
)

// toneOf is the tone of a mark.
func toneOf(l render.Level) tone {
	return [...]tone{render.Fine: good, render.Remark: note, render.Warning: warn, render.Error: bad}[l]
}

// theme draws pieces of text. Colours are told apart by people who see red and green alike: blue, orange and vermilion of
// the palette of Okabe and Ito where there are 256, and where there are 16, blue, yellow and a bold red.
type theme struct {
	look   Look
	styles [tones]lipgloss.Style
	// cursor is the row that keys act on.
	cursor lipgloss.Style
}

func newTheme(l Look) *theme {
	// The renderer never asks the terminal: what it can do comes in as Look.
	r := lipgloss.NewRenderer(io.Discard)
	r.SetHasDarkBackground(true)
	color := func(sixteen, many string) lipgloss.Style {
		switch l.Colors {
		case Colors16:
			return r.NewStyle().Foreground(lipgloss.Color(sixteen))
		case Colors256:
			return r.NewStyle().Foreground(lipgloss.Color(many))
		}
		return r.NewStyle()
	}
	switch l.Colors {
	case NoColors:
		// Bold and reversed text are no colours; a profile of none would take them away too.
		r.SetColorProfile(termenv.ANSI)
	case Colors16:
		r.SetColorProfile(termenv.ANSI)
	case Colors256:
		r.SetColorProfile(termenv.ANSI256)
	}
	t := &theme{look: l}
	t.styles = [tones]lipgloss.Style{
		plain: r.NewStyle(), faint: r.NewStyle().Faint(true), strong: r.NewStyle().Bold(true),
		good: color("4", "36"), note: color("6", "74"), warn: color("3", "214"), bad: color("1", "203").Bold(true),
		accent: color("6", "75").Bold(true), bar: color("4", "32"),
	}
	for i := range t.styles {
		t.styles[i] = t.styles[i].Inline(true)
	}
	t.cursor = r.NewStyle().Reverse(true).Inline(true)
	return t
}

// span is a piece of text of one tone, row a line of them. Text of strangers is escaped where it comes in: see row.add.
type span struct {
	text string
	tone tone
}

type row []span

// add adds text, escaped.
func (r row) add(t tone, text string) row {
	if text == "" {
		return r
	}
	return append(r, span{render.Clean(text), t})
}

// cell adds text cut or filled to a width.
func (r row) cell(t tone, text string, width int) row {
	return append(r, span{fit(render.Clean(text), width), t})
}

// right adds text at the right end of a width.
func (r row) right(t tone, text string, width int) row {
	text = render.Clean(text)
	if n := width - ansi.StringWidth(text); n > 0 {
		text = strings.Repeat(" ", n) + text
	}
	return append(r, span{fit(text, width), t})
}

// gap adds spaces.
func (r row) gap(n int) row {
	if n <= 0 {
		return r
	}
	return append(r, span{strings.Repeat(" ", n), plain})
}

// append adds another row.
func (r row) append(more row) row { return append(r, more...) }

func (r row) width() int {
	n := 0
	for _, s := range r {
		n += ansi.StringWidth(s.text)
	}
	return n
}

// more ends what was cut.
const more = "…"

// fit cuts or fills text to a width.
func fit(text string, width int) string {
	n := ansi.StringWidth(text)
	switch {
	case width <= 0:
		return ""
	case n > width:
		text = ansi.Truncate(text, width, more)
		n = ansi.StringWidth(text)
	}
	return text + strings.Repeat(" ", width-n)
}

// line draws a row that is exactly width wide. The row under the cursor is reversed.
func (t *theme) line(r row, width int, cursor bool) string {
	var b strings.Builder
	left := width
	for _, s := range r {
		text := t.show(s.text)
		if n := ansi.StringWidth(text); n > left {
			text = ansi.Truncate(text, left, t.show(more))
		}
		left -= ansi.StringWidth(text)
		if cursor {
			b.WriteString(text)
		} else {
			b.WriteString(t.draw(text, s.tone))
		}
		if left <= 0 {
			break
		}
	}
	b.WriteString(strings.Repeat(" ", max(left, 0)))
	if cursor {
		return t.cursor.Render(b.String())
	}
	return strings.TrimRight(b.String(), " ")
}

// oneForOne spells the signs of this program in ASCII without changing how wide they are: columns stay where they are.
var oneForOne = strings.NewReplacer("→", ">", "←", "<", "↑", "^", "↓", "v", "›", ">", "…", "~", "✗", "x", "✓", "+", "·", ".", "×", "x",
	"├", "|", "└", "`", "│", "|", "─", "-", "▸", ">", "▾", "v", "▴", "^", "–", "-")

// arrows are keys that have a sign and no letter.
var arrows = strings.NewReplacer("↑", "up", "↓", "down", "←", "left", "→", "right")

// keyName is what a key is called.
func (t *theme) keyName(b *binding) string {
	if t.look.ASCII {
		return arrows.Replace(b.shown())
	}
	return b.shown()
}

// show is text as the terminal can show it.
func (t *theme) show(text string) string {
	if !t.look.ASCII {
		return text
	}
	return render.ASCII(oneForOne.Replace(text))
}

func (t *theme) draw(text string, of tone) string {
	if of == plain || strings.TrimLeft(text, " ") == "" {
		return text
	}
	return t.styles[of].Render(text)
}

// eighths are the ends of bars.
var eighths = []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// bar is a share of 0 to 1 as a bar of a width. A share that is not nothing shows.
func (t *theme) bar(share float64, width int) string {
	share = min(max(share, 0), 1)
	if t.look.ASCII {
		n := int(share*float64(width) + 0.5)
		if share > 0 {
			n = max(n, 1)
		}
		return fit(strings.Repeat("#", n), width)
	}
	n := int(share*float64(width*8) + 0.5)
	if share > 0 {
		n = max(n, 1)
	}
	return fit(strings.Repeat("█", n/8)+eighths[n%8], width)
}
