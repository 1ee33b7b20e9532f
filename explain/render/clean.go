package render

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes text of a stranger safe to show: what could move the cursor, change the order of letters or
// hide itself is written out as an escape, and so is whatever is not valid UTF-8. Printable text of any
// language stays as it is.
func Clean(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n <= 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case shows(r):
			b.WriteRune(r)
		default:
			writeEscape(&b, r)
		}
		i += n
	}
	return b.String()
}

func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// shows tells whether a terminal shows r as one sign in its place. Format characters (category Cf: bidi
// overrides and isolates, zero-width joiners, tags), line and paragraph separators, private and unassigned
// code points do not.
func shows(r rune) bool {
	return r == ' ' || unicode.IsGraphic(r) &&
		!unicode.In(r, unicode.Zs, unicode.Me, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

func writeEscape(b *strings.Builder, r rune) {
	switch {
	case r < 0x80:
		fmt.Fprintf(b, `\x%02x`, r)
	case r < 0x10000:
		fmt.Fprintf(b, `\u%04x`, r)
	default:
		fmt.Fprintf(b, `\U%08x`, r)
	}
}

// toASCII replaces the signs that this program writes by their usual ASCII spelling and escapes the rest.
func toASCII(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case asciiFor(r) != "":
			b.WriteString(asciiFor(r))
		default:
			writeEscape(&b, r)
		}
	}
	return b.String()
}

func asciiFor(r rune) string {
	switch r {
	case '→':
		return "->"
	case '…':
		return "..."
	case '✗':
		return "x"
	case '✓':
		return "+"
	case '–', '—', '‑':
		return "-"
	case '×':
		return "x"
	case '≥':
		return ">="
	case '≤':
		return "<="
	case '≠':
		return "!="
	case '“', '”':
		return `"`
	case '‘', '’':
		return "'"
	case '·':
		return "-"
	case '├':
		return "|"
	case '└':
		return "`"
	case '│':
		return "|"
	case '─':
		return "-"
	}
	return ""
}

// columns is the number of terminal columns that cleaned text takes.
func columns(s string) int {
	if plain(s) {
		return len(s)
	}
	n := 0
	for _, r := range s {
		switch {
		case unicode.Is(unicode.Mn, r):
		case wide(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

// wide covers the blocks that terminals show in two columns (East Asian wide and emoji).
func wide(r rune) bool {
	return r >= 0x1100 && (r <= 0x115f ||
		r >= 0x2e80 && r <= 0xa4cf ||
		r >= 0xac00 && r <= 0xd7a3 ||
		r >= 0xf900 && r <= 0xfaff ||
		r >= 0xfe30 && r <= 0xfe6f ||
		r >= 0xff00 && r <= 0xff60 ||
		r >= 0xffe0 && r <= 0xffe6 ||
		r >= 0x1f300 && r <= 0x1faff ||
		r >= 0x20000 && r <= 0x3fffd)
}
