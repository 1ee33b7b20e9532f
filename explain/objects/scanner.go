package objects

import "bytes"

// scanner steps through JSON without decoding it, to find where values begin and end. It checks no more
// than it needs for that: what it passes over may still be broken, which decoding finds out. It never
// leaves data, whatever that holds, and looks at each byte once.
type scanner struct {
	data []byte
	pos  int
}

// span is a part of the scanner's data.
type span struct{ start, end int }

// next returns the next byte that is no white space, without taking it; 0 at the end.
func (s *scanner) next() byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// take passes over c if it comes next.
func (s *scanner) take(c byte) bool {
	if s.next() != c {
		return false
	}
	s.pos++
	return true
}

// text passes over a string and returns it with its quotes.
func (s *scanner) text() (quoted []byte, ok bool) {
	if s.next() != '"' {
		return nil, false
	}
	start := s.pos
	// Byte by byte: strings of objects are too short for anything cleverer.
	for i := start + 1; i < len(s.data); i++ {
		switch s.data[i] {
		case '"':
			s.pos = i + 1
			return s.data[start:s.pos], true
		case '\\':
			i++ // what it escapes
		}
	}
	s.pos = len(s.data)
	return nil, false
}

// value passes over one value of any kind. It is false when the data ends within it or none begins here.
func (s *scanner) value() (span, bool) {
	c := s.next()
	v := span{start: s.pos}
	switch c {
	case 0, ',', ':', '}', ']':
		return v, false
	case '"':
		_, ok := s.text()
		v.end = s.pos
		return v, ok
	case '{', '[':
		ok := s.nest()
		v.end = s.pos
		return v, ok
	}
	if i := bytes.IndexAny(s.data[s.pos:], ",:]}{[\" \t\r\n"); i > 0 {
		s.pos += i
	} else {
		s.pos = len(s.data)
	}
	v.end = s.pos
	return v, true
}

// nest passes over an object or array by counting brackets of both kinds together.
func (s *scanner) nest() bool {
	depth := 0
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.pos++
				return true
			}
		case '"':
			if _, ok := s.text(); !ok {
				return false
			}
			continue
		}
		s.pos++
	}
	return false
}

// lines turns offsets into line numbers, counting each byte once: offsets must not decrease.
type lines struct {
	data []byte
	line int // of the offset seen
	seen int
}

func (l *lines) at(offset int) int {
	if offset = min(offset, len(l.data)); offset > l.seen {
		l.line += bytes.Count(l.data[l.seen:offset], []byte{'\n'})
		l.seen = offset
	}
	return l.line
}
