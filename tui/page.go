package tui

import (
	"strings"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/svcnet/svcnet/explain/render"
)

// page is text that is broken to the width of the screen: the page of a finding, or the details of a row in full.
type page struct {
	text
	// make makes the text for a width; width is the one that it was made for.
	make  func(m *Model, width int) []row
	width int
}

// newPage shows the page of a finding, which is Markdown.
func newPage(id, markdown string) *page {
	return newWhole(id, func(m *Model, width int) []row { return markdownRows(m.theme, markdown, width) })
}

// newWhole shows text that does not fit elsewhere.
func newWhole(name string, made func(m *Model, width int) []row) *page {
	return &page{text: text{name: name}, make: made}
}

// showPage shows the page of a finding over what is seen.
func (m *Model) showPage(id string) tea.Cmd {
	if m.feed.Page != nil {
		if text, ok := m.feed.Page(id); ok {
			return m.push(newPage(id, text))
		}
	}
	m.say(note, "there is no page about "+id)
	return nil
}

// readable is the width beyond which lines are hard to read.
const readable = 100

func (p *page) draw(m *Model, width, height int) []string {
	if p.width != width {
		rows := p.make(m, min(width, readable))
		p.n, p.line, p.width = len(rows), func(i int) row { return rows[i] }, width
	}
	return p.text.draw(m, width, height)
}

// markdownRows shows as much of Markdown as the pages of findings use: headings, code, lists, tables, and in the text
// strong words, code and links.
func markdownRows(t *theme, text string, width int) []row {
	p := newProse(t, width)
	code := false
	var head []string // of the table that is being read
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \r\n")
		fence := strings.HasPrefix(line, "```")
		item, isItem := strings.CutPrefix(strings.TrimLeft(line, " "), "- ")
		title := strings.TrimLeft(line, "#")
		isCell := strings.HasPrefix(line, "|")
		if !isCell {
			head = nil
		}
		switch {
		case fence:
			code = !code
		case code:
			p.code(line)
		case line == "":
			p.blank()
		case isCell:
			head = p.table(head, line)
		case title != line && strings.HasPrefix(title, " "):
			p.text(strong, title)
		case isItem:
			indent := 2 * (1 + (len(line)-len(strings.TrimLeft(line, " ")))/2)
			p.flow(row{}.gap(indent-2).add(plain, "-").gap(1), indent, p.inline(item))
		default:
			p.flow(nil, 0, p.inline(line))
		}
	}
	return p.rows
}

// code writes a line that is typed or printed: its spaces stay, and it is broken only where it must be.
func (p *prose) code(line string) {
	const indent = 4
	text := ansi.Hardwrap(p.theme.show(render.Clean(line)), p.width-indent-2, true)
	for i, piece := range strings.Split(text, "\n") {
		r := row{}.gap(indent)
		if i > 0 {
			r = r.gap(2)
		}
		p.rows = append(p.rows, append(r, span{piece, faint}))
	}
}

// table writes a line of a table as an item: the first cell, then the others behind what their column is called. It
// returns what the columns are called.
func (p *prose) table(head []string, line string) []string {
	var cells []string
	for _, c := range strings.Split(strings.Trim(line, "|"), "|") {
		cells = append(cells, strings.TrimSpace(c))
	}
	switch {
	case head == nil:
		return cells
	case strings.Trim(line, "|-: ") == "":
		return head
	}
	words := p.words(strong, cells[0])
	for i, c := range cells[1:] {
		if i+1 < len(head) {
			words = append(words, p.words(faint, "· "+head[i+1]+":")...)
		}
		words = append(words, p.inline(c)...)
	}
	p.flow(row{}.add(plain, "-").gap(1), 2, words)
	return head
}

// inline are the words of a line of Markdown. The marks of code stay: without colours nothing else tells it.
func (p *prose) inline(line string) row {
	var out row
	inside := false
	for _, w := range strings.Fields(links(line)) {
		t := plain
		marks := strings.Count(w, "**")
		if inside || marks > 0 {
			t = strong
		}
		inside = inside != (marks%2 == 1)
		out = append(out, p.words(t, strings.ReplaceAll(w, "**", ""))...)
	}
	return out
}

// links replaces links by their text.
func links(line string) string {
	for {
		open := strings.Index(line, "](")
		if open < 0 {
			return line
		}
		begin, end := strings.LastIndex(line[:open], "["), strings.Index(line[open:], ")")
		if begin < 0 || end < 0 {
			return line
		}
		line = line[:begin] + line[begin+1:open] + line[open+end+1:]
	}
}
