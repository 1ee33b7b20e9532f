package nft

import (
	"encoding/json"
	"errors"
	"strings"
)

// jsonKind tells the values of JSON apart.
type jsonKind uint8

const (
	jsonNull jsonKind = iota
	jsonFalse
	jsonTrue
	jsonNumber
	jsonString
	jsonArray
	jsonObject
)

// jsonNode is a value. Nodes of a value lie behind each other: its children begin at the next node, and each says where
// the one behind it is. Indexes in place of pointers keep tens of thousands of elements cheap.
type jsonNode struct {
	kind jsonKind
	// key is that of a member of an object, str the text of a string or number.
	key, str string
	// next is the index of the next value of the same object or array, 0 for the last; size the number of children.
	next, size int32
	// from and to is where the value stands in the document.
	from, to int
}

// jsonScanner reads JSON values one after the other. encoding/json would do it too, in three times the time and with a
// map for each object: a table of 10,000 Services has two million of them.
type jsonScanner struct {
	doc   string
	at    int
	nodes []jsonNode
	// line is that of at, counted as far as counted.
	line, counted int
}

// maxJSONDepth bounds nested values: the flags of a mark as a chain of "|" take some 70.
const maxJSONDepth = 200

var (
	errJSONEnd    = errors.New("the document ends in the middle of a value")
	errJSONSyntax = errors.New("not JSON")
	errJSONDeep   = errors.New("values are nested too deep")
)

// space skips what may stand between values.
func (s *jsonScanner) space() {
	for s.at < len(s.doc) {
		switch s.doc[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// lineHere is the line of the current place, from 1. It must be asked for in order.
func (s *jsonScanner) lineHere() int {
	s.line += strings.Count(s.doc[s.counted:s.at], "\n")
	s.counted = s.at
	return s.line + 1
}

// value reads the value that begins here, which is then node 0; what was read before is gone.
func (s *jsonScanner) value() error {
	s.nodes = s.nodes[:0]
	return s.read("", 0)
}

func (s *jsonScanner) read(key string, depth int) error {
	if depth > maxJSONDepth {
		return errJSONDeep
	}
	s.space()
	if s.at >= len(s.doc) {
		return errJSONEnd
	}
	i := len(s.nodes)
	s.nodes = append(s.nodes, jsonNode{key: key, from: s.at})
	var err error
	switch c := s.doc[s.at]; {
	case c == '{':
		err = s.object(i, depth)
	case c == '[':
		err = s.array(i, depth)
	case c == '"':
		s.nodes[i].kind = jsonString
		s.nodes[i].str, err = s.string()
	case c == '-' || c >= '0' && c <= '9':
		from := s.at
		for s.at < len(s.doc) && strings.IndexByte("+-.eE0123456789", s.doc[s.at]) >= 0 {
			s.at++
		}
		s.nodes[i].kind, s.nodes[i].str = jsonNumber, s.doc[from:s.at]
	default:
		s.nodes[i].kind, err = s.literal()
	}
	s.nodes[i].to = s.at
	return err
}

func (s *jsonScanner) literal() (jsonKind, error) {
	rest := s.doc[s.at:]
	for _, l := range [...]struct {
		text string
		kind jsonKind
	}{{"null", jsonNull}, {"true", jsonTrue}, {"false", jsonFalse}} {
		if strings.HasPrefix(rest, l.text) {
			s.at += len(l.text)
			return l.kind, nil
		}
		if strings.HasPrefix(l.text, rest) {
			s.at = len(s.doc)
			return 0, errJSONEnd
		}
	}
	return 0, errJSONSyntax
}

// comma goes over a comma, or over the end of an object or array, which it tells.
func (s *jsonScanner) comma(end byte) (more bool, err error) {
	s.space()
	if s.at >= len(s.doc) {
		return false, errJSONEnd
	}
	switch s.doc[s.at] {
	case ',':
		s.at++
		return true, nil
	case end:
		s.at++
		return false, nil
	}
	return false, errJSONSyntax
}

// open goes into an object or array, and tells whether there is anything in it.
func (s *jsonScanner) open(end byte) (more bool, err error) {
	s.at++
	s.space()
	if s.at >= len(s.doc) {
		return false, errJSONEnd
	}
	if s.doc[s.at] == end {
		s.at++
		return false, nil
	}
	return true, nil
}

func (s *jsonScanner) array(i, depth int) error {
	s.nodes[i].kind = jsonArray
	more, err := s.open(']')
	last := 0
	for more && err == nil {
		child := len(s.nodes)
		if err = s.read("", depth+1); err != nil {
			return err
		}
		s.link(i, last, child)
		last = child
		more, err = s.comma(']')
	}
	return err
}

func (s *jsonScanner) object(i, depth int) error {
	s.nodes[i].kind = jsonObject
	more, err := s.open('}')
	last := 0
	for more && err == nil {
		var key string
		if key, err = s.key(); err != nil {
			return err
		}
		child := len(s.nodes)
		if err = s.read(key, depth+1); err != nil {
			return err
		}
		s.link(i, last, child)
		last = child
		more, err = s.comma('}')
	}
	return err
}

// key reads the name of a member and the colon behind it.
func (s *jsonScanner) key() (string, error) {
	s.space()
	if s.at >= len(s.doc) {
		return "", errJSONEnd
	}
	if s.doc[s.at] != '"' {
		return "", errJSONSyntax
	}
	key, err := s.string()
	if err != nil {
		return "", err
	}
	s.space()
	if s.at >= len(s.doc) {
		return "", errJSONEnd
	}
	if s.doc[s.at] != ':' {
		return "", errJSONSyntax
	}
	s.at++
	return key, nil
}

// link makes a node the next child of another.
func (s *jsonScanner) link(parent, last, child int) {
	if last != 0 {
		s.nodes[last].next = int32(child)
	}
	s.nodes[parent].size++
}

// string reads a string. Without escapes it is a part of the document.
func (s *jsonScanner) string() (string, error) {
	from := s.at
	escaped := false
	for i := from + 1; i < len(s.doc); i++ {
		switch c := s.doc[i]; {
		case c == '"':
			s.at = i + 1
			if !escaped {
				return s.doc[from+1 : i], nil
			}
			var text string
			if err := json.Unmarshal([]byte(s.doc[from:s.at]), &text); err != nil {
				return "", errJSONSyntax
			}
			return text, nil
		case c == '\\':
			escaped = true
			i++
		}
	}
	s.at = len(s.doc)
	return "", errJSONEnd
}

// jsonValue is a node to read from.
type jsonValue struct {
	s *jsonScanner
	i int32
}

func (v jsonValue) node() *jsonNode  { return &v.s.nodes[v.i] }
func (v jsonValue) kind() jsonKind   { return v.node().kind }
func (v jsonValue) key() string      { return v.node().key }
func (v jsonValue) raw() string      { return v.s.doc[v.node().from:v.node().to] }
func (v jsonValue) size() int        { return int(v.node().size) }
func (v jsonValue) isString() bool   { return v.kind() == jsonString }
func (v jsonValue) str() string      { return v.node().str }
func (v jsonValue) first() jsonValue { return jsonValue{v.s, v.i + 1} }

// children yields the values of an object or array in order.
func (v jsonValue) children(yield func(jsonValue) bool) {
	if v.size() == 0 {
		return
	}
	for i := v.i + 1; ; {
		if !yield(jsonValue{v.s, i}) {
			return
		}
		if i = v.s.nodes[i].next; i == 0 {
			return
		}
	}
}

// member is the value of a name of an object.
func (v jsonValue) member(name string) (jsonValue, bool) {
	if v.kind() != jsonObject {
		return jsonValue{}, false
	}
	for c := range v.children {
		if c.key() == name {
			return c, true
		}
	}
	return jsonValue{}, false
}

// text is a member that is a string, empty when there is none.
func (v jsonValue) text(name string) string {
	if m, ok := v.member(name); ok && m.isString() {
		return m.str()
	}
	return ""
}

// texts is a member that is a string or an array of strings: jansson's writers in nft write a single one without the
// brackets.
func (v jsonValue) texts(name string) []string {
	m, ok := v.member(name)
	if !ok {
		return nil
	}
	if m.isString() {
		return []string{m.str()}
	}
	var out []string
	if m.kind() == jsonArray {
		for c := range m.children {
			if c.isString() {
				out = append(out, c.str())
			}
		}
	}
	return out
}
