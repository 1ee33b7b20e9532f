package host

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// Problem is a line that a parser could not use. The rest of the capture was read.
type Problem struct {
	Line int    // from 1
	Text string // the line, shortened when it is long
	Why  string
}

// ErrEmpty is the error of a parser for a text without any content. Only the one who ran the command knows
// whether that means that there is nothing or that nothing was captured.
var ErrEmpty = errors.New("nothing was captured: the text is empty")

// lines yields the lines of a text with their numbers from 1, without line ends, a byte order mark and
// blank lines.
func lines(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		text := strings.TrimPrefix(text, "\ufeff")
		for n := 1; text != ""; n++ {
			line := text
			if i := strings.IndexByte(text, '\n'); i >= 0 {
				line, text = text[:i], text[i+1:]
			} else {
				text = ""
			}
			line = strings.TrimRight(line, "\r")
			if strings.TrimSpace(line) == "" {
				continue
			}
			if !yield(n, line) {
				return
			}
		}
	}
}

// reading is the state that all parsers share: where they are and what they could not use.
type reading struct {
	what     string // what the parser looks for, for its error: "addresses (ip addr)"
	file     string
	used     int // lines or objects that gave something
	seen     int
	problems []Problem
}

func (r *reading) at(line int, text string) Evidence {
	return Evidence{File: r.file, Line: line, Text: strings.TrimSpace(text)}
}

func (r *reading) skip(line int, text, format string, args ...any) {
	r.problems = append(r.problems, Problem{Line: line, Text: paste.Quote(text), Why: fmt.Sprintf(format, args...)})
}

// result is what a parser returns: an error when not one line was of use.
func (r *reading) result() ([]Problem, error) {
	if r.used > 0 {
		return r.problems, nil
	}
	if r.seen == 0 {
		return nil, fmt.Errorf("read %s from %s: %w", r.what, r.file, ErrEmpty)
	}
	why := ""
	if len(r.problems) > 0 {
		p := r.problems[0]
		why = fmt.Sprintf(": line %d: %s", p.Line, p.Why)
	}
	return r.problems, fmt.Errorf("read %s from %s: none of its %d lines can be used%s", r.what, r.file, r.seen, why)
}
