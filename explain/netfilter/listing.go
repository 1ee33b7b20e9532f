package netfilter

import "strings"

// listing is what stands behind the destination column of a line of `iptables -L`: the matches and then the
// target's own words, with nothing to mark where one ends and the next begins. Readers take what they know
// and leave i where it was when something else stands there.
type listing struct {
	s string
	i int
	// rule is the rule as far as the columns tell.
	rule *Rule
	// arena holds the matches.
	arena *arena
	// uncommented is set once no end of a comment was found: there is none further on either.
	uncommented bool
}

// skip takes blanks.
func (l *listing) skip() {
	for l.i < len(l.s) && (l.s[l.i] == ' ' || l.s[l.i] == '\t') {
		l.i++
	}
}

// peek returns the next word, empty at the end.
func (l *listing) peek() string {
	l.skip()
	rest := l.s[l.i:]
	if n := strings.IndexAny(rest, " \t"); n >= 0 {
		return rest[:n]
	}
	return rest
}

// next takes the next word, empty at the end.
func (l *listing) next() string {
	w := l.peek()
	l.i += len(w)
	return w
}

// word takes the next words when they are these.
func (l *listing) word(ws ...string) bool {
	start := l.i
	for _, w := range ws {
		if l.next() != w {
			l.i = start
			return false
		}
	}
	return true
}

// value takes a word that begins with prefix and returns the rest of it.
func (l *listing) value(prefix string) (string, bool) {
	w := l.peek()
	if !strings.HasPrefix(w, prefix) {
		return "", false
	}
	l.i += len(w)
	return w[len(prefix):], true
}

// after takes a keyword and returns the word behind it.
func (l *listing) after(keyword ...string) (string, bool) {
	start := l.i
	if l.word(keyword...) {
		if w := l.next(); w != "" {
			return w, true
		}
	}
	l.i = start
	return "", false
}

// not takes a lone "!".
func (l *listing) not() bool { return l.word("!") }

// negated splits a "!" off the front of a word.
func negated(w string) (rest string, not bool) { return strings.CutPrefix(w, "!") }

// quoted takes a string in double quotes, in which a backslash protects the next character.
func (l *listing) quoted() bool {
	l.skip()
	if l.i >= len(l.s) || l.s[l.i] != '"' {
		return false
	}
	w := words{s: l.s, i: l.i}
	w.next()
	if w.open {
		return false
	}
	l.i = w.i
	return true
}

// any takes the next word when it is one of these.
func (l *listing) any(ws ...string) bool {
	next := l.peek()
	for _, w := range ws {
		if w == next && w != "" {
			l.i += len(next)
			return true
		}
	}
	return false
}

// try lets a reader read and puts the place back when it cannot.
func (l *listing) try(read func(*listing) Match) Match {
	start := l.i
	m := read(l)
	if m == nil {
		l.i = start
	}
	return m
}
