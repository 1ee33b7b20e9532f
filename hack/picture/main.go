// Command picture turns what a terminal shows, as `tmux capture-pane -e -p` prints it, into an SVG.
//
//	tmux capture-pane -e -p | go run ./hack/picture > docs/tui.svg
package main

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// A sign is this wide and a line this high, in pixels, in the font size below.
const (
	cell, height, size, margin = 7.83, 17, 13, 12
)

// The colours of the picture, and the 16 that a terminal names by number.
const foreground, background, dim = "#d0d0d0", "#171717", "#8a8a8a"

var named = []string{
	"#171717", "#cc6666", "#8abf6a", "#d7af5f", "#5f87d7", "#af87d7", "#5fafaf", "#d0d0d0",
	"#626262", "#ff5f5f", "#afd787", "#ffd787", "#87afff", "#d7afff", "#87d7d7", "#ffffff",
}

// style is how a piece of text is drawn.
type style struct {
	color                string
	bold, faint, reverse bool
}

func main() {
	if err := draw(os.Stdout, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func draw(out io.Writer, in io.Reader) error {
	var lines []string
	s := bufio.NewScanner(in)
	for s.Scan() {
		lines = append(lines, s.Text())
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("read the screen: %w", err)
	}
	columns := 0
	for _, l := range lines {
		columns = max(columns, ansi.StringWidth(l))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d">`+"\n", float64(columns)*cell+2*margin, len(lines)*height+2*margin)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="6" fill="%s"/>`+"\n", background)
	fmt.Fprintf(&b, `<g font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="%d" fill="%s">`+"\n", size, foreground)
	var now style
	for i, l := range lines {
		line(&b, l, margin+(i+1)*height-4, &now)
	}
	b.WriteString("</g>\n</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// line draws one line of the screen; the style goes on into the next.
func line(b *strings.Builder, text string, y int, now *style) {
	at := 0
	for text != "" {
		i := strings.Index(text, "\x1b[")
		if i < 0 {
			i = len(text)
		}
		if piece := text[:i]; piece != "" {
			at += span(b, piece, at, y, *now)
		}
		if text = text[i:]; text == "" {
			return
		}
		codes, rest, ok := strings.Cut(text[2:], "m")
		if !ok {
			return
		}
		now.set(strings.Split(codes, ";"))
		text = rest
	}
}

// span draws text of one style and returns how many columns it takes.
func span(b *strings.Builder, text string, at, y int, s style) int {
	n := ansi.StringWidth(text)
	x, color := margin+float64(at)*cell, s.color
	switch {
	case color == "" && s.faint:
		color = dim
	case color == "":
		color = foreground
	}
	if s.reverse {
		fmt.Fprintf(b, `<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s"/>`, x, y-height+4, float64(n)*cell, height, color)
		color = background
	}
	if strings.TrimSpace(text) == "" {
		return n
	}
	weight := ""
	if s.bold {
		weight = ` font-weight="bold"`
	}
	fmt.Fprintf(b, `<text x="%.2f" y="%d" fill="%s"%s textLength="%.2f" xml:space="preserve">%s</text>`+"\n", x, y, color, weight, float64(n)*cell, html.EscapeString(text))
	return n
}

// set follows the codes of one sequence (ECMA-48, SGR).
func (s *style) set(codes []string) {
	for i := 0; i < len(codes); i++ {
		switch c, _ := strconv.Atoi(codes[i]); {
		case c == 0:
			*s = style{}
		case c == 1:
			s.bold = true
		case c == 2:
			s.faint = true
		case c == 7:
			s.reverse = true
		case c == 22:
			s.bold, s.faint = false, false
		case c == 27:
			s.reverse = false
		case c == 39:
			s.color = ""
		case c >= 30 && c < 38:
			s.color = named[c-30]
		case c >= 90 && c < 98:
			s.color = named[c-90+8]
		case c == 38 && i+2 < len(codes) && codes[i+1] == "5":
			n, _ := strconv.Atoi(codes[i+2])
			s.color = numbered(n)
			i += 2
		}
	}
}

// numbered is one of 256 colours: 16 by name, a cube of 6×6×6, and greys.
func numbered(n int) string {
	level := func(v int) int {
		if v == 0 {
			return 0
		}
		return 55 + 40*v
	}
	switch {
	case n < 16:
		return named[n]
	case n < 232:
		n -= 16
		return fmt.Sprintf("#%02x%02x%02x", level(n/36), level(n/6%6), level(n%6))
	}
	grey := 8 + 10*(n-232)
	return fmt.Sprintf("#%02x%02x%02x", grey, grey, grey)
}
