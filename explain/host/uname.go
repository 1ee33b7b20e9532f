package host

import (
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// Uname is what `uname -a` says.
type Uname struct {
	System  string // Linux
	Node    string // host name
	Release string // 4.18.0-80.el8.x86_64
	Evidence
}

// ParseUname reads `uname -a`, `uname -sr` or `uname -r` into Uname. The error is for a text that holds no
// kernel release.
func ParseUname(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "the kernel release (uname)", file: file}
	for n, line := range lines(text) {
		r.seen++
		words := strings.Fields(line)
		if r.used > 0 {
			continue
		}
		u := Uname{Evidence: r.at(n, line)}
		switch {
		case len(words) >= 3 && isRelease(words[2]):
			u.System, u.Node, u.Release = words[0], words[1], words[2]
		case len(words) == 2 && isRelease(words[1]):
			u.System, u.Release = words[0], words[1]
		case len(words) == 1 && isRelease(words[0]):
			u.Release = words[0]
		case paste.Prompt(line):
			continue
		default:
			r.skip(n, line, "not the output of uname")
			continue
		}
		h.Uname = u
		r.used++
	}
	return r.result()
}

func isRelease(s string) bool {
	_, _, ok := releaseOf(s)
	return ok
}

// releaseOf takes the first two numbers of a kernel release: 4 and 18 of "4.18.0-80.el8.x86_64".
func releaseOf(s string) (major, minor int, ok bool) {
	first, rest, dot := strings.Cut(s, ".")
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	major, err1 := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(rest[:end])
	return major, minor, dot && err1 == nil && err2 == nil && major >= 0
}

// KernelAtLeast tells whether the kernel is of this version or newer, going by its release. Unknown when
// the release was not captured. Distributions carry fixes back into older releases: a bug that a version
// mended may be mended before it.
func (h *Host) KernelAtLeast(major, minor int) Known {
	x, y, ok := releaseOf(h.Uname.Release)
	if !ok {
		return Unknown
	}
	return is(x > major || x == major && y >= minor)
}
