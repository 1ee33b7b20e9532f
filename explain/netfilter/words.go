package netfilter

import "strings"

// words takes a rule of the save form apart as iptables-restore does: words are separated by blanks;
// double quotes keep blanks together, and inside them a backslash takes the next character as it is.
type words struct {
	s string
	i int
	// open is set when a quote is not closed on the line.
	open bool
}

// next returns the next word. ok is false at the end of the line.
func (w *words) next() (word string, ok bool) {
	s, i := w.s, w.i
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	if i >= len(s) {
		w.i = i
		return "", false
	}
	if s[i] == '"' {
		return w.quoted(i + 1), true
	}
	start := i
	for i < len(s) && s[i] != ' ' && s[i] != '\t' {
		i++
	}
	w.i = i
	return s[start:i], true
}

// quoted returns the word whose opening quote stands before start.
func (w *words) quoted(start int) string {
	s := w.s
	n := strings.IndexByte(s[start:], '"')
	if n < 0 {
		w.i, w.open = len(s), true
		return s[start:]
	}
	if strings.IndexByte(s[start:start+n], '\\') < 0 {
		w.i = start + n + 1
		return s[start : start+n]
	}
	var b strings.Builder
	for i := start; i < len(s); i++ {
		switch s[i] {
		case '"':
			w.i = i + 1
			return b.String()
		case '\\':
			if i+1 < len(s) {
				i++
			}
		}
		b.WriteByte(s[i])
	}
	w.i, w.open = len(s), true
	return b.String()
}
