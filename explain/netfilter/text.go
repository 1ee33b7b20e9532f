package netfilter

import (
	"strings"
	"unicode/utf16"
)

// maxLine is the longest line that can be a rule. The kernel keeps a rule's matches within 64 KiB
// (ipt_entry.target_offset has 16 bits), and no extension prints more than about twice what it stores.
const maxLine = 128 << 10

// plain takes off a byte order mark and turns UTF-16, which a redirect in PowerShell writes, into UTF-8.
func plain(text string) string {
	switch {
	case strings.HasPrefix(text, "\xef\xbb\xbf"):
		return text[3:]
	case strings.HasPrefix(text, "\xff\xfe"):
		return fromUTF16(text[2:], 0, 1)
	case strings.HasPrefix(text, "\xfe\xff"):
		return fromUTF16(text[2:], 1, 0)
	}
	return text
}

// fromUTF16 decodes pairs of bytes; low and high are the places of the two halves in a pair.
func fromUTF16(text string, low, high int) string {
	units := make([]uint16, len(text)/2)
	for i := range units {
		units[i] = uint16(text[2*i+low]) | uint16(text[2*i+high])<<8
	}
	return string(utf16.Decode(units))
}

// lines walks through a text line by line, without the line ends (LF or CRLF).
type lines struct {
	text string
	pos  int
	n    int // number of the line that next returned last, from 1
}

func (l *lines) next() (line string, ok bool) {
	if l.pos >= len(l.text) {
		return "", false
	}
	l.n++
	rest := l.text[l.pos:]
	if i := strings.IndexByte(rest, '\n'); i >= 0 {
		line = rest[:i]
		l.pos += i + 1
	} else {
		line = rest
		l.pos = len(l.text)
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, true
}

// shown shortens a line that goes into a Problem.
func shown(line string) string {
	const most = 300
	line = strings.ToValidUTF8(line, "\uFFFD")
	if len(line) <= most {
		return line
	}
	return strings.ToValidUTF8(line[:most], "") + "…"
}
