package ipset

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/paste"
)

// Parse reads sets as `ipset save` and `ipset list` print them, with -t and -o save, also pasted among prompts and cut
// off. Sets come in the order of the text.
//
// Lines that cannot be used are Problems. An entry that cannot be read leaves its set with entries missing. The error is
// for a text of which no line is of a set.
func Parse(text, file string) ([]*Set, []host.Problem, error) {
	r := &reader{file: file, byName: make(map[string]*Set)}
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		n++
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) == "" {
			r.endOfList()
			continue
		}
		r.seen++
		r.line(n, line)
	}
	r.endOfList()
	if len(r.sets) > 0 {
		return r.sets, r.problems, nil
	}
	if r.seen == 0 {
		return nil, nil, fmt.Errorf("read IP sets from %s: %w", file, host.ErrEmpty)
	}
	why := ""
	if len(r.problems) > 0 {
		why = fmt.Sprintf(": line %d: %s", r.problems[0].Line, r.problems[0].Why)
	}
	return nil, r.problems, fmt.Errorf("read IP sets (ipset save) from %s: none of its %d lines can be used%s", file, r.seen, why)
}

// reader is where a parser of sets is.
type reader struct {
	file     string
	sets     []*Set
	byName   map[string]*Set
	problems []host.Problem
	seen     int

	// listed is the set of the listing that is being read; members tells that its entries have begun. promised is how
	// many there are to be, -1 where the listing does not say.
	listed   *Set
	members  bool
	promised int
}

func (r *reader) skip(n int, line, format string, args ...any) {
	r.problems = append(r.problems, host.Problem{Line: n, Text: paste.Quote(line), Why: fmt.Sprintf(format, args...)})
}

func (r *reader) line(n int, line string) {
	verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	switch verb {
	case "create", "-N", "--create":
		r.endOfList()
		r.create(n, line, rest)
		return
	case "add", "-A", "--add":
		r.endOfList()
		r.add(n, line, rest)
		return
	case "COMMIT":
		return
	}
	if strings.HasPrefix(line, "ipset v") && strings.Contains(line, "protocol version") {
		return
	}
	if key, value, ok := heading(line); ok {
		r.heading(n, line, key, value)
		return
	}
	switch {
	case paste.Filler(line):
		if r.members {
			r.listed.Missing = "the capture leaves out a part of the set"
		}
	case paste.Prompt(line, "ipset ", "sudo "):
		r.endOfList()
	case r.members:
		r.entry(r.listed, n, line, strings.TrimSpace(line))
	default:
		r.skip(n, line, "not a line of ipset save or ipset list")
	}
}

// create reads "NAME TYPE OPTIONS…".
func (r *reader) create(n int, line, rest string) {
	name, rest, _ := strings.Cut(rest, " ")
	typeName, header, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if name == "" || !strings.Contains(typeName, ":") {
		r.skip(n, line, "a set has a name and a type")
		return
	}
	s := r.open(n, line, name)
	if s == nil {
		return
	}
	r.shape(s, n, line, typeName, strings.TrimSpace(header))
}

// open makes a set, nil where the text has it already.
func (r *reader) open(n int, line, name string) *Set {
	if s := r.byName[name]; s != nil {
		if s.Type != "" || s.Line == n {
			r.skip(n, line, "set %s is there twice: the first one counts", paste.Quote(name))
			return nil
		}
		// Entries came before: they were read without knowing the type.
		*s = Set{Name: name, Missing: s.Missing}
		r.fresh(s, n, line)
		return s
	}
	s := &Set{Name: name}
	r.fresh(s, n, line)
	r.byName[name] = s
	r.sets = append(r.sets, s)
	return s
}

func (r *reader) fresh(s *Set, n int, line string) {
	s.Revision, s.References, s.MarkMask = -1, -1, ^uint32(0)
	s.Evidence = host.Evidence{File: r.file, Line: n, Text: strings.TrimSpace(line)}
	s.unsure = "the capture does not say of which type set " + s.Name + " is"
}

// shape gives a set its type and options.
func (r *reader) shape(s *Set, n int, line, typeName, header string) {
	s.Type, s.Header = typeName, header
	t := typeOf(typeName)
	if t == nil {
		s.unsure = "sets of type " + typeName + " are not evaluated"
		r.skip(n, line, "sets of type %s are not known", paste.Quote(typeName))
		return
	}
	s.parts, s.unsure = t.parts, ""
	if t.family >= 0 {
		s.Family = t.family
	} else {
		s.Family = 4
	}
	r.options(s, n, line, header)
}

// add reads "NAME ENTRY OPTIONS…".
func (r *reader) add(n int, line, rest string) {
	name, entry, _ := strings.Cut(rest, " ")
	if name == "" || strings.TrimSpace(entry) == "" {
		r.skip(n, line, "an entry names its set and what is in it")
		return
	}
	s := r.byName[name]
	if s == nil {
		s = r.open(n, line, name)
		s.Missing = "the capture begins in the middle of the set"
	}
	r.entry(s, n, line, strings.TrimSpace(entry))
}

// entry adds an entry.
func (r *reader) entry(s *Set, n int, line, text string) {
	if s.unsure != "" {
		// Kept as text: of what type the set is may be said later, or not be known.
		s.Entries = append(s.Entries, Entry{Text: text, Line: n})
		return
	}
	e, err := s.element(text)
	if err != nil {
		r.skip(n, line, "%v", err)
		if s.Missing == "" {
			s.Missing = fmt.Sprintf("line %d of %s cannot be read", n, r.file)
		}
		return
	}
	e.Line = n
	s.Entries = append(s.Entries, e)
}

var headings = regexp.MustCompile(`^\s*(Name|Type|Revision|Header|Size in memory|References|Number of entries|Members):\s*(.*?)\s*$`)

func heading(line string) (key, value string, ok bool) {
	if first := strings.TrimSpace(line)[0]; first < 'A' || first > 'Z' {
		return "", "", false // an entry, as nearly all lines are
	}
	m := headings.FindStringSubmatch(line)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// heading reads one of the lines above the members in `ipset list`.
func (r *reader) heading(n int, line, key, value string) {
	if key == "Name" {
		r.endOfList()
		if value == "" {
			r.skip(n, line, "a set has a name")
			return
		}
		if s := r.open(n, line, value); s != nil {
			r.listed, r.promised = s, -1
			s.Missing = "the listing shows no entries of the set (ipset list -t)"
		} else {
			// What follows is that of a set which is there already.
			r.listed, r.promised = &Set{Name: value}, -1
			r.fresh(r.listed, n, line)
		}
		return
	}
	s := r.listed
	if s == nil {
		r.skip(n, line, "what set this belongs to is not in the capture")
		return
	}
	number := func() int {
		v, err := strconv.Atoi(value)
		if err != nil || v < 0 {
			r.skip(n, line, "%s is not a number", paste.Quote(value))
			return -1
		}
		return v
	}
	switch key {
	case "Type":
		r.shape(s, n, line, value, "")
	case "Revision":
		s.Revision = number()
	case "References":
		s.References = number()
	case "Header":
		s.Header = value
		r.options(s, n, line, value)
	case "Number of entries":
		r.promised = number()
		if r.promised == 0 {
			s.Missing = ""
		}
	case "Members":
		r.members = true
		s.Missing = ""
		if value != "" {
			r.skip(n, line, "entries stand on lines of their own")
		}
	}
}

// endOfList is a blank line, or whatever else ends the members of a listing.
func (r *reader) endOfList() {
	if s := r.listed; s != nil && r.members && s.Missing == "" && len(s.Entries) < r.promised {
		s.Missing = fmt.Sprintf("the listing shows %d of %d entries", len(s.Entries), r.promised)
		r.skip(s.Line, s.Text, "%s", s.Missing)
	}
	if r.members {
		r.listed = nil
	}
	r.members = false
}
