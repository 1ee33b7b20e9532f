package nft

import "strings"

// tokenKind tells the pieces of a listing apart.
type tokenKind uint8

const (
	tokenEnd  tokenKind = iota
	tokenLine           // the end of a line
	tokenWord
	tokenString // in quotes, which are left out
	tokenPunct  // one of {},;()
	tokenHash   // "#": what follows is a handle, a remark, or an extension of iptables in listings of old versions
)

// token is a piece of a listing.
type token struct {
	kind tokenKind
	text string
	// from and to is where it stands in the text.
	from, to, line int
	// spaced is set where something blank stands before it.
	spaced bool
}

// tokens reads a listing piece by piece. Words are whatever stands between blanks: names of chains may hold anything
// (knftables writes "service-ULMVA6XW-default/web/tcp/http"), so that numbers, addresses and ranges are words too.
type tokens struct {
	text string
	at   int
	line int
	tok  token
}

// advance goes to the next piece.
func (t *tokens) advance() {
	from := t.at
	for t.at < len(t.text) && isBlank(t.text[t.at]) {
		t.at++
	}
	t.tok = token{from: t.at, line: t.line, spaced: t.at > from || from == 0}
	if t.at >= len(t.text) {
		t.tok.to = t.at
		return
	}
	switch c := t.text[t.at]; c {
	case '\n':
		t.tok.kind, t.tok.text = tokenLine, "\n"
		t.at++
		t.line++
	case '{', '}', ',', ';', '(', ')':
		t.tok.kind, t.tok.text = tokenPunct, t.text[t.at:t.at+1]
		t.at++
	case '#':
		t.tok.kind, t.tok.text = tokenHash, "#"
		t.at++
	case '"':
		t.string()
	default:
		t.word()
	}
	t.tok.to = t.at
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' }

// string reads what stands in quotes; nft knows no escapes. A line that ends before the quote does is cut off.
func (t *tokens) string() {
	rest := t.text[t.at+1:]
	end := strings.IndexAny(rest, "\"\n")
	if end < 0 {
		end = len(rest)
	}
	t.tok.kind, t.tok.text = tokenString, rest[:end]
	t.at += 1 + end
	if t.at < len(t.text) && t.text[t.at] == '"' {
		t.at++
	}
}

func (t *tokens) word() {
	from := t.at
	paren := false
	for t.at < len(t.text) {
		c := t.text[t.at]
		if isBlank(c) || strings.IndexByte("\n{},;\"", c) >= 0 || c == ')' && !paren {
			break
		}
		paren = paren || c == '('
		t.at++
	}
	t.tok.kind, t.tok.text = tokenWord, t.text[from:t.at]
}

// is tells whether a certain word or sign stands here.
func (t *tokens) is(text string) bool {
	return (t.tok.kind == tokenWord || t.tok.kind == tokenPunct) && t.tok.text == text
}

// accept goes over a certain word or sign, and tells whether it was there.
func (t *tokens) accept(text string) bool {
	if !t.is(text) {
		return false
	}
	t.advance()
	return true
}

// peek is the piece behind this one.
func (t *tokens) peek() token {
	next := *t
	next.advance()
	return next.tok
}

// atEnd tells whether a line, a block or the text ends here.
func (t *tokens) atEnd() bool {
	return t.tok.kind == tokenEnd || t.tok.kind == tokenLine || t.is("}") || t.is(";")
}

// skipLines goes over ends of lines and remarks.
func (t *tokens) skipLines() {
	for t.tok.kind == tokenLine || t.tok.kind == tokenHash {
		if t.tok.kind == tokenHash {
			t.remark()
			continue
		}
		t.advance()
	}
}

// remark goes to the end of the line.
func (t *tokens) remark() {
	if i := strings.IndexByte(t.text[t.tok.from:], '\n'); i >= 0 {
		t.at = t.tok.from + i
	} else {
		t.at = len(t.text)
	}
	t.advance()
}

// skipSet goes behind the braces of a set on a line, or to the end of the line, and tells where what it went over ends.
func (t *tokens) skipSet() (end int) {
	depth := 0
	for t.tok.kind != tokenEnd && t.tok.kind != tokenLine {
		switch {
		case t.is("{"):
			depth++
		case t.is("}"):
			depth--
		}
		end = t.tok.to
		t.advance()
		if depth == 0 {
			break
		}
	}
	return end
}

// cut cuts the first bytes off the word that stands here.
func (t *tokens) cut(n int) {
	t.tok.text = t.tok.text[n:]
	t.tok.from += n
	t.tok.spaced = false
	if t.tok.text == "" {
		t.advance()
	}
}
