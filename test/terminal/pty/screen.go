package pty

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Screen is what a terminal shows of what is written to it. It knows as much as the interactive view writes: places,
// erasing, and another screen for the time that it runs. What is too wide for a line is cut off.
type Screen struct {
	width, height int
	// lines are those that are seen, below those that were before another screen was there.
	lines, below [][]rune
	x, y         int
	// rest is the beginning of something that is not complete.
	rest string
}

// NewScreen is a screen with nothing on it.
func NewScreen(width, height int) *Screen {
	s := &Screen{width: width, height: height}
	s.lines = s.blank()
	return s
}

func (s *Screen) blank() [][]rune {
	lines := make([][]rune, s.height)
	for i := range lines {
		lines[i] = s.blankLine()
	}
	return lines
}

func (s *Screen) blankLine() []rune { return []rune(strings.Repeat(" ", s.width)) }

// sequence is one that is complete: it begins with ESC [, or is another one.
var sequence = regexp.MustCompile(`^\x1b(?:\[([?0-9;]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()].|[^\[\]()])`)

// Lines are the lines that are seen, without blanks at their ends.
func (s *Screen) Lines() []string {
	lines := make([]string, s.height)
	for i := range s.lines {
		lines[i] = strings.TrimRight(string(s.lines[i]), " ")
	}
	return lines
}

// Write shows text.
func (s *Screen) Write(b []byte) (int, error) {
	text := s.rest + string(b)
	for text != "" {
		if text[0] == '\x1b' {
			m := sequence.FindStringSubmatch(text)
			if m == nil {
				break // the end is on its way
			}
			text = text[len(m[0]):]
			s.control(m[1], m[2])
			continue
		}
		end := strings.IndexByte(text, '\x1b')
		if end < 0 {
			end = len(text) - cutOff(text)
		}
		if end == 0 {
			break
		}
		for _, r := range text[:end] {
			s.put(r)
		}
		text = text[end:]
	}
	s.rest = text
	return len(b), nil
}

// cutOff is how many bytes at the end of a text are the beginning of a character.
func cutOff(text string) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if end := text[len(text)-n:]; utf8.RuneStart(end[0]) {
			if utf8.FullRuneInString(end) {
				return 0
			}
			return n
		}
	}
	return 0
}

// put shows a character.
func (s *Screen) put(r rune) {
	switch {
	case r == '\r':
		s.x = 0
	case r == '\n' && s.y == s.height-1:
		s.lines = append(s.lines[1:], s.blankLine())
	case r == '\n':
		s.y++
	case r == '\b':
		s.x = max(s.x-1, 0)
	case r >= ' ' && s.x < s.width:
		s.lines[s.y][s.x] = r
		s.x++
	}
}

// control does what a sequence of ESC [ says, that ends with a letter.
func (s *Screen) control(text, letter string) {
	var args [2]int
	for i, a := range strings.Split(strings.TrimPrefix(text, "?"), ";") {
		if i < len(args) {
			args[i], _ = strconv.Atoi(a) // nothing is 0
		}
	}
	n := max(args[0], 1)
	switch letter {
	case "A":
		s.y = max(s.y-n, 0)
	case "B":
		s.y = min(s.y+n, s.height-1)
	case "C":
		s.x = min(s.x+n, s.width-1)
	case "D":
		s.x = max(s.x-n, 0)
	case "G":
		s.x = min(n, s.width) - 1
	case "H":
		s.y, s.x = min(n, s.height)-1, min(max(args[1], 1), s.width)-1
	case "K":
		from, to := 0, s.width
		switch args[0] {
		case 0:
			from = s.x
		case 1:
			to = min(s.x+1, s.width)
		}
		copy(s.lines[s.y][from:to], s.blankLine())
	case "J":
		if args[0] != 0 {
			s.lines = s.blank()
			return
		}
		copy(s.lines[s.y][s.x:], s.blankLine())
		for i := s.y + 1; i < s.height; i++ {
			s.lines[i] = s.blankLine()
		}
	case "h":
		if text == "?1049" && s.below == nil {
			s.below, s.lines = s.lines, s.blank()
		}
	case "l":
		if text == "?1049" && s.below != nil {
			s.lines, s.below = s.below, nil
		}
	}
}
