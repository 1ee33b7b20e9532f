// Package paste knows what stands in captures beside the output of a program: the command that was typed, and what people
// put where they left something out. Parsers of every text form ask it.
package paste

import (
	"strings"
	"unicode/utf8"
)

// Longest bounds what Quote returns, in bytes of the text.
const Longest = 160

// Quote makes a line of a capture fit to be shown: valid UTF-8, bounded.
func Quote(s string) string {
	s = strings.TrimSpace(s)
	cut := len(s) > Longest
	if cut {
		s = s[:Longest]
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	if cut {
		s += "…"
	}
	return s
}

// Prompt tells whether a line is the command that was typed, pasted along with its output: "# ip rule",
// "root@node-a:~# ip -6 route show table 2", "$ ss -lnt", or one that begins with one of the commands.
func Prompt(line string, commands ...string) bool {
	line = strings.TrimSpace(line)
	if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "$") {
		return true
	}
	for _, c := range commands {
		if strings.HasPrefix(line, c) {
			return true
		}
	}
	end := strings.IndexAny(line, "#$")
	return end > 0 && (end+1 == len(line) || line[end+1] == ' ') && strings.ContainsAny(line[:end], "@:]~")
}

// Filler tells what people put where they left something out.
func Filler(line string) bool {
	line = strings.TrimSpace(line)
	return line == "..." || line == "…" || line == "```" || line == "[...]"
}
