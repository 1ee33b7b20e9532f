package nft

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

func (r *textReader) readSet(t *Table, kind, name string, at token) {
	var before []Entry
	if s := t.Set(name); s != nil {
		// Listed again, the later stands; `nft list sets` prints sets without their elements.
		before = s.Entries
		s.Entries, s.Statements, s.Incomplete = nil, nil, false
	}
	s := t.AddSet(name)
	s.Line = at.line
	s.Handle = r.handle(s.Handle)
	s.IsMap, s.Meter = kind == "map", kind == "meter"
	defer func() {
		switch {
		case len(before) == 0:
		case len(s.Entries) == 0:
			s.Entries = before
		default:
			r.problem(at.line, r.lineText(at), "the set is listed again")
		}
	}()
	for {
		r.skipLines()
		if r.cutOff(at, "the set") {
			s.Incomplete = true
			return
		}
		if r.accept("}") {
			return
		}
		from := r.tok
		if err := r.setItem(s); err != nil {
			r.problem(from.line, r.lineText(from), "%s", err)
			s.Incomplete = true
			r.tokens.text, r.tokens.at, r.tokens.line, r.tok = r.text, from.to, from.line, from
			r.skipBlock()
		}
	}
}

// setItem reads a line of a set.
func (r *textReader) setItem(s *Set) (err error) {
	switch {
	case r.accept(";"):
	case r.accept("type"):
		return r.setTypes(s)
	case r.accept("typeof"):
		return r.setTypeof(s)
	case r.accept("policy"):
		s.Policy = r.wordName()
	case r.accept("size"):
		n, err := r.number(31)
		s.Size = int(n)
		return err
	case r.accept("flags"):
		for {
			if !s.setFlag(r.tok.text) {
				return r.unknown("a flag of a set")
			}
			r.advance()
			if !r.accept(",") {
				return nil
			}
		}
	case r.accept("auto-merge"):
		s.AutoMerge = true
	case r.accept("timeout"):
		if s.Timeout, err = parseDuration(r.tok.text); err == nil {
			s.HasTimeout = true
			r.advance()
		}
		return err
	case r.accept("gc-interval"):
		if s.GCInterval, err = parseDuration(r.tok.text); err == nil {
			r.advance()
		}
		return err
	case r.is("comment") && r.peek().kind == tokenString:
		r.advance()
		s.Comment = strings.Clone(r.tok.text)
		r.advance()
	case r.accept("elements"):
		return r.elements(s)
	case r.is("counter"), r.is("limit"), r.is("quota"), r.is("ct"), r.is("last"):
		for !r.atEnd() {
			st, err := r.elementStatement()
			if err != nil {
				return err
			}
			s.Statements = append(s.Statements, st)
		}
	default:
		return r.unknown("a property of a set")
	}
	return nil
}

// setTypes reads "ipv4_addr . inet_service : interval ipv4_addr".
func (r *textReader) setTypes(s *Set) (err error) {
	if s.Key, err = r.types(); err != nil {
		return err
	}
	if !r.accept(":") {
		return nil
	}
	return r.setData(s, func() error {
		s.Data, err = r.types()
		return err
	})
}

func (r *textReader) types() ([]Field, error) {
	var fields []Field
	for {
		t := Type(r.tok.text)
		if r.tok.kind != tokenWord || !t.known() {
			return nil, fmt.Errorf("the type %q is not known", r.tok.text)
		}
		f := fieldOf(Type(r.name(r.tok.text)))
		if f.Size == 0 {
			return nil, fmt.Errorf("nothing says how wide a value of %s is here", t)
		}
		fields = append(fields, f)
		r.advance()
		if !r.accept(".") {
			return listedFields(fields), nil
		}
	}
}

// setData reads what a map maps to: verdicts, objects, or data that a function reads.
func (r *textReader) setData(s *Set, read func() error) error {
	s.IsMap = true
	switch {
	case r.accept("verdict"):
		return nil
	case r.is("ct"):
		kind := "ct " + r.peek().text
		if isObjectKind(kind) {
			s.ObjectType = r.name(kind)
			r.advance()
			r.advance()
			return nil
		}
	case isObjectKind(r.tok.text) && r.tok.kind == tokenWord:
		s.ObjectType = r.wordName()
		return nil
	}
	if r.accept("queue") {
		// Numbers of queues, nft 1.1.
		s.Data = []Field{{Type: TypeInteger, Size: 2}}
		s.TypeofData = &Other{Text: "queue", Field: s.Data[0]}
		return nil
	}
	s.DataInterval = r.accept("interval")
	return read()
}

// setTypeof reads "ip saddr . tcp dport : meta mark".
func (r *textReader) setTypeof(s *Set) (err error) {
	if s.TypeofKey, err = r.concat(nil); err != nil {
		return err
	}
	if s.Key, err = r.typeofFields(s.TypeofKey); err != nil {
		return err
	}
	if !r.accept(":") {
		return nil
	}
	return r.setData(s, func() error {
		if s.TypeofData, err = r.concat(nil); err != nil {
			return err
		}
		s.Data, err = r.typeofFields(s.TypeofData)
		return err
	})
}

func (r *textReader) typeofFields(e Expr) ([]Field, error) {
	fields := r.table.ExpressionFields(e)
	if len(fields) == 0 || unknownWidth(fields) {
		return nil, fmt.Errorf("nothing says how wide %s is", ExpressionText(e))
	}
	return listedFields(fields), nil
}

// elements reads "= { … }" over as many lines as it takes. An element that cannot be read is a problem, and the set is
// incomplete.
func (r *textReader) elements(s *Set) error {
	r.accept("=")
	if !r.is("{") {
		return r.unknown(`"{"`)
	}
	if len(s.Key) == 0 {
		return fmt.Errorf("what the elements are is not known")
	}
	opened := r.tok
	r.advance()
	r.lines = true
	defer func() { r.lines = false }()
	for {
		r.skipLines()
		switch {
		case r.accept("}"):
			return nil
		case r.tok.kind == tokenEnd || r.is("table") && r.headsTable():
			s.Incomplete = true
			r.problem(opened.line, r.lineText(opened), "the listing ends among the elements of %s", s.Name)
			return nil
		}
		from := r.tok
		depth := r.depth
		e, err := r.entry(s)
		if err == nil {
			r.skipLines()
			if !r.is("}") && !r.accept(",") && r.tok.kind != tokenEnd {
				err = r.unknown(`"," or "}"`)
			}
		}
		if err == nil {
			s.Entries = append(s.Entries, e)
			continue
		}
		r.depth = depth
		s.Incomplete = true
		r.problem(from.line, r.text[from.from:min(len(r.text), from.from+paste.Longest)], "element of %s: %s", s.Name, err)
		r.nextElement()
	}
}

// nextElement goes behind the next comma, or to where the set ends without one: that is told by who reads on.
func (r *textReader) nextElement() {
	for {
		switch {
		case r.accept(","), r.is("}"), r.tok.kind == tokenEnd, r.is("table") && r.headsTable():
			return
		case r.tok.kind == tokenHash:
			r.remark()
		default:
			r.advance()
		}
	}
}

// skipElementLines goes over ends of lines where elements may have them.
func (r *textReader) skipElementLines() {
	if r.lines {
		r.skipLines()
	}
}

// entry reads one element: a key, what it has and, in a map, what it maps to.
func (r *textReader) entry(s *Set) (Entry, error) {
	var e Entry
	var err error
	if r.is("*") {
		e.CatchAll = true
		r.advance()
	} else if e.Start, e.End, err = r.key(s.Key); err != nil {
		return e, err
	}
	for {
		r.skipElementLines()
		switch {
		case r.accept("timeout"):
			if e.Timeout, err = parseDuration(r.tok.text); err != nil {
				return e, err
			}
			r.advance()
		case r.accept("expires"):
			if e.Expires, err = parseDuration(r.tok.text); err != nil {
				return e, err
			}
			r.advance()
		case r.is("comment") && r.peek().kind == tokenString:
			r.advance()
			e.Comment = strings.Clone(r.tok.text)
			r.advance()
		case r.accept(":"):
			if !s.IsMap {
				return e, fmt.Errorf("an element of a set maps to nothing")
			}
			r.skipElementLines()
			return e, r.data(s, &e)
		case r.is("counter"), r.is("limit"), r.is("quota"), r.is("ct"), r.is("last"):
			st, err := r.elementStatement()
			if err != nil {
				return e, err
			}
			e.Statements = append(e.Statements, st)
		default:
			if s.IsMap {
				return e, r.unknown(`":"`)
			}
			return e, nil
		}
	}
}

// data reads what a map has for a key.
func (r *textReader) data(s *Set, e *Entry) (err error) {
	switch {
	case s.ObjectType != "":
		if r.tok.kind != tokenString && r.tok.kind != tokenWord {
			return r.unknown("an object")
		}
		e.Object = r.name(r.tok.text)
		r.advance()
	case s.Data == nil:
		e.Verdict, err = r.verdict()
	default:
		e.Data, e.DataEnd, err = r.key(s.Data)
		s.DataInterval = s.DataInterval || e.DataEnd != nil
	}
	return err
}

// key reads a value of one or several fields, as Entry.Start and End have it.
func (r *textReader) key(fields []Field) (start, end []byte, err error) {
	var room [4]span
	spans := room[:0]
	for i, f := range fields {
		if i > 0 {
			if !r.accept(".") {
				return nil, nil, r.unknown(`"."`)
			}
			r.skipElementLines()
		}
		s, err := r.span(f)
		if err != nil {
			return nil, nil, err
		}
		if r.untyped() {
			fields[i].Type = TypeInvalid
		}
		spans = append(spans, s)
	}
	start, end = joinSpans(fields, spans)
	return start, end, nil
}

// span reads one part of a key.
func (r *textReader) span(f Field) (span, error) {
	switch r.tok.kind {
	case tokenString:
		return r.stringSpan(f)
	case tokenWord:
	default:
		return span{}, r.unknown("a value")
	}
	s, err := wordSpan(f, r.tok.text)
	if err != nil {
		return span{}, err
	}
	r.advance()
	for typeOf(f.Type).flags && r.accept("|") {
		more, err := wordSpan(f, r.tok.text)
		if err != nil {
			return span{}, err
		}
		s.lo = orValue(s.lo, more.lo)
		r.advance()
	}
	return s, nil
}

// wordSpan reads a word as a part of a key: a value, a range or a prefix.
func wordSpan(f Field, word string) (span, error) {
	value, err := parseValue(f, word)
	if err == nil {
		return span{lo: value}, nil
	}
	if addr, length, ok := strings.Cut(word, "/"); ok {
		bits, err := strconv.ParseUint(length, 10, 16)
		if err != nil {
			return span{}, fmt.Errorf("%q is no prefix", word)
		}
		if value, err = parseValue(f, addr); err != nil {
			return span{}, err
		}
		lo, hi, ok := prefixEnd(f, value, int(bits))
		if !ok {
			return span{}, fmt.Errorf("a prefix of %d bits is too long", bits)
		}
		return span{lo, hi}, nil
	}
	e, err := wordConstant(f, word)
	if err != nil {
		return span{}, err
	}
	g, ok := e.(*Range)
	if !ok {
		return span{}, fmt.Errorf("%q is no %s", word, f.Type)
	}
	return span{g.Lo.Data, g.Hi.Data}, nil
}
