package pty

import (
	"slices"
	"strings"
	"testing"
)

// TestScreen holds that the lines are those that a terminal shows.
func TestScreen(t *testing.T) {
	for _, c := range []struct{ name, written, want string }{
		{"text", "one\r\ntwo", "one|two||"},
		{"colours", "\x1b[1;31mred\x1b[0m\x1b[m ✓", "red ✓|||"},
		{"a line that is drawn anew", "long line\r\nb\x1b[H\x1b[2Knew\x1b[K\r\n\x1b[K", "new|||"},
		{"lines that stay", "a\r\nb\r\nc\x1b[H\n\nC\x1b[0K", "a|b|C|"},
		{"up and down", "a\r\nb\x1b[1A\rA\x1b[2B\rc", "A|b|c|"},
		{"a place", "\x1b[3;4Hx\x1b[1;1Hy", "y||   x|"},
		{"the rest is erased", "a\r\nb\r\nc\x1b[2;1H\x1b[J", "a|||"},
		{"all is erased", "a\r\nb\x1b[2J\x1b[Hx", "x|||"},
		{"too wide", "0123456789ABCDEF\r\nx", "0123456789|x||"},
		{"too long", "a\r\nb\r\nc\r\nd\r\ne", "b|c|d|e"},
		{"another screen", "shell\r\n\x1b[?1049h\x1b[H\x1b[Jx", "x|||"},
		{"and back", "shell\r\n\x1b[?1049h\x1b[H\x1b[Jx\x1b[?1049l", "shell|||"},
		{"other sequences", "\x1b]52;c;aGk=\x07\x1b[?25l\x1b[?2004h\x1b(Bx\x1b]0;title\x1b\\y\x1b7", "xy|||"},
		{"not complete", "x\x1b[1;3", "x|||"},
	} {
		whole, bytes := NewScreen(10, 4), NewScreen(10, 4)
		_, _ = whole.Write([]byte(c.written))
		for i := range len(c.written) {
			_, _ = bytes.Write([]byte{c.written[i]})
		}
		for how, s := range map[string]*Screen{"at once": whole, "byte by byte": bytes} {
			if got := s.Lines(); !slices.Equal(got, strings.Split(c.want, "|")) {
				t.Errorf("%s, %s: %q, want %q", c.name, how, got, c.want)
			}
		}
	}
}
