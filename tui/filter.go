package tui

import (
	"strings"

	"github.com/charmbracelet/bubbles/cursor"
	"github.com/charmbracelet/bubbles/textinput"
	tea "github.com/charmbracelet/bubbletea"
)

// filter narrows a list: words that have to be there, words behind ! that must not, and words with a name for one column.
type filter struct {
	input textinput.Model
	// on is true while somebody types.
	on    bool
	terms []term
}

// term is one word. Column is "", or what stands before its colon.
type term struct {
	not          bool
	column, word string
}

func newFilter() filter {
	f := filter{input: newInput("/")}
	return f
}

// newInput is a line to type into. What it shows before the text is its prompt.
func newInput(prompt string) textinput.Model {
	in := textinput.New()
	in.Prompt = prompt
	in.CharLimit = 400
	// typed draws the cursor; one that blinks would have the terminal drawn again and again.
	in.Cursor.SetMode(cursor.CursorStatic)
	return in
}

// columns that a filter knows by name.
var filterColumns = map[string]bool{"sev": true, "ns": true, "node": true, "type": true, "id": true}

// parseFilter splits what was typed into its terms, all of which have to hold.
func parseFilter(text string) []term {
	var out []term
	for _, w := range strings.Fields(strings.ToLower(text)) {
		var t term
		if w, t.not = strings.CutPrefix(w, "!"); w == "" {
			continue
		}
		t.word = w
		if name, rest, ok := strings.Cut(w, ":"); ok && filterColumns[name] {
			t.column, t.word = name, rest
		}
		out = append(out, t)
	}
	return out
}

// passes tells whether all terms hold. has says whether a row has a word in a column; the column "" is all of its text.
func passes(terms []term, has func(column, word string) bool) bool {
	for _, t := range terms {
		if t.word != "" && has(t.column, t.word) == t.not {
			return false
		}
	}
	return true
}

// open begins to type.
func (f *filter) open() tea.Cmd {
	f.on = true
	f.input.CursorEnd()
	return f.input.Focus()
}

// set puts a text in as if it had been typed.
func (f *filter) set(text string) {
	f.input.SetValue(text)
	f.terms = parseFilter(text)
}

// text is what was typed.
func (f *filter) text() string { return f.input.Value() }

// key is typed into the filter: enter keeps it, esc drops it.
func (f *filter) key(k *keyMap, msg tea.KeyMsg) tea.Cmd {
	switch {
	case k.open.matches(msg):
		f.on = false
		f.input.Blur()
		return nil
	case k.back.matches(msg):
		f.on = false
		f.input.Blur()
		f.set("")
		return nil
	}
	var cmd tea.Cmd
	f.input, cmd = f.input.Update(msg)
	f.terms = parseFilter(f.input.Value())
	return cmd
}

// prompt shows what is typed, or that a filter is on; nil where there is none.
func (f *filter) prompt() row {
	switch {
	case f.on:
		return typed(&f.input).gap(2).add(faint, "enter keeps, esc drops; !word, sev:error, ns:shop")
	case f.text() != "":
		return row{}.add(warn, "filter "+f.text()).gap(2).add(accent, "esc").gap(1).add(faint, "drops it").gap(2).add(accent, "/").gap(1).add(faint, "changes it")
	}
	return nil
}

// typed shows an input line with its cursor.
func typed(in *textinput.Model) row {
	text := []rune(in.Value())
	at := min(in.Position(), len(text))
	r := row{}.add(accent, in.Prompt).add(strong, string(text[:at]))
	r = append(r, span{"_", accent})
	return r.add(strong, string(text[at:]))
}
