package nft

import (
	"fmt"
	"strconv"
	"strings"
)

func (j *jsonReader) readSet(v jsonValue, kind string) {
	t := j.within(v, "table")
	name := v.text("name")
	if t == nil {
		return
	}
	if name == "" {
		j.problem(v.raw(), "the set has no name")
		return
	}
	s := t.AddSet(j.name(name))
	s.Line = j.line
	s.Statements = nil
	s.Handle = uintMember(v, "handle")
	s.Comment = strings.Clone(v.text("comment"))
	s.IsMap, s.Meter = kind == "map", kind == "meter"
	s.Size = int(min(uintMember(v, "size"), 1<<31-1))
	s.Policy = j.name(v.text("policy"))
	s.Timeout, s.GCInterval = seconds(v, "timeout"), seconds(v, "gc-interval")
	s.HasTimeout = s.Timeout > 0
	s.AutoMerge = boolMember(v, "auto-merge")
	for _, f := range v.texts("flags") {
		s.setFlag(f)
	}
	var err error
	if s.Key, s.TypeofKey, err = j.types(v, "type"); err != nil {
		j.problem(v.raw(), "the set's type: %s", err)
		s.Incomplete = true
		return
	}
	if m := v.text("map"); isObjectKind(m) {
		s.ObjectType = j.name(m)
	} else if s.IsMap && m != string(TypeVerdict) {
		if s.Data, s.TypeofData, err = j.types(v, "map"); err != nil {
			j.problem(v.raw(), "the map's type: %s", err)
			s.Incomplete = true
			return
		}
	}
	if list, ok := v.member("stmt"); ok && list.kind() == jsonArray {
		for st := range list.children {
			s.Statements = append(s.Statements, j.statement(st)...)
		}
	}
	elems, ok := v.member("elem")
	if !ok || elems.kind() != jsonArray {
		return
	}
	if !s.IsMap {
		retype(s.Key, elems)
	}
	if unknownWidth(s.Key) || unknownWidth(s.Data) {
		s.Incomplete = true
		j.pending = append(j.pending, pendingSet{t, s, strings.Clone(elems.raw()), j.line})
		return
	}
	j.elements(s, elems)
}

// setFlag sets a flag of a declaration; ok is false for one that is not known.
func (s *Set) setFlag(name string) (ok bool) {
	switch name {
	case "constant":
		s.Constant = true
	case "interval":
		s.Interval = true
	case "timeout":
		s.HasTimeout = true
	case "dynamic":
		s.Dynamic = true
	default:
		return false
	}
	return true
}

func isObjectKind(s string) bool {
	switch s {
	case "counter", "quota", "limit", "ct helper", "ct timeout", "ct expectation", "secmark", "synproxy":
		return true
	}
	return false
}

func unknownWidth(fields []Field) bool {
	for _, f := range fields {
		if f.Size == 0 {
			return true
		}
	}
	return false
}

// types reads a member that names types: one, a list, "ipv4_addr . inet_service", or {"typeof": EXPRESSION}.
func (j *jsonReader) types(v jsonValue, member string) (fields []Field, typeof Expr, err error) {
	m, ok := v.member(member)
	if !ok {
		return nil, nil, fmt.Errorf("there is no %q", member)
	}
	var names []string
	switch m.kind() {
	case jsonString:
		names = strings.Split(m.str(), " . ")
	case jsonArray:
		names = v.texts(member)
	case jsonObject:
		of, ok := m.member("typeof")
		if !ok {
			break
		}
		e, err := j.expr(of, nil)
		if err != nil {
			return nil, nil, err
		}
		return listedFields(j.table.ExpressionFields(e)), e, nil
	}
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("%s names no type", shorten(m.raw()))
	}
	for _, n := range names {
		t := Type(n)
		if !t.known() {
			return nil, nil, fmt.Errorf("the type %q is not known", n)
		}
		fields = append(fields, fieldOf(Type(j.name(n))))
	}
	return listedFields(fields), nil, nil
}

// elements reads the elements of a set or map into it.
func (j *jsonReader) elements(s *Set, list jsonValue) {
	s.Incomplete = false
	s.Entries = make([]Entry, 0, list.size())
	for e := range list.children {
		entry, err := j.entry(s, e)
		if err != nil {
			s.Incomplete = true
			j.problem(e.raw(), "element of %s: %s", s.Name, err)
			continue
		}
		s.Entries = append(s.Entries, entry)
	}
}

// entry reads one element: KEY, or [KEY, DATA] of a map, where the key may be {"elem": {"val": KEY, …}}.
func (j *jsonReader) entry(s *Set, v jsonValue) (Entry, error) {
	var e Entry
	key := v
	var data jsonValue
	if s.IsMap {
		if v.kind() != jsonArray || v.size() != 2 {
			return e, fmt.Errorf("a map's element is a pair")
		}
		key = v.first()
		data = jsonValue{v.s, key.node().next}
	}
	if el, ok := key.member("elem"); ok {
		val, ok := el.member("val")
		if !ok {
			return e, fmt.Errorf("the element has no value")
		}
		e.Comment = strings.Clone(el.text("comment"))
		e.Timeout, e.Expires = seconds(el, "timeout"), seconds(el, "expires")
		for m := range el.children {
			switch m.key() {
			case "val", "comment", "timeout", "expires":
			default:
				e.Statements = append(e.Statements, j.member(m)...)
			}
		}
		key = val
	}
	if key.isString() && key.str() == "*" {
		e.CatchAll = true
	} else {
		start, end, err := j.key(s.Key, key)
		if err != nil {
			return e, err
		}
		e.Start, e.End = start, end
	}
	if !s.IsMap {
		return e, nil
	}
	return e, j.data(s, &e, data)
}

// data reads what a map has for a key.
func (j *jsonReader) data(s *Set, e *Entry, v jsonValue) error {
	switch {
	case s.ObjectType != "":
		if !v.isString() {
			return fmt.Errorf("%s names no object", shorten(v.raw()))
		}
		e.Object = j.name(v.str())
	case s.Data == nil:
		verdict, err := j.verdict(v)
		if err != nil {
			return err
		}
		e.Verdict = verdict
	default:
		data, end, err := j.key(s.Data, v)
		if err != nil {
			return err
		}
		e.Data, e.DataEnd = data, end
		s.DataInterval = s.DataInterval || end != nil
	}
	return nil
}

// verdict reads {"goto": {"target": NAME}} and {"accept": null}.
func (j *jsonReader) verdict(v jsonValue) (*Verdict, error) {
	if v.kind() != jsonObject || v.size() != 1 {
		return nil, fmt.Errorf("%s is no verdict", shorten(v.raw()))
	}
	m := v.first()
	kind, ok := verdictKind(m.key())
	if !ok {
		return nil, fmt.Errorf("the verdict %q is not known", m.key())
	}
	verdict := &Verdict{Kind: kind}
	if kind == Jump || kind == Goto {
		target := m.text("target")
		if target == "" {
			return nil, fmt.Errorf("%s leads nowhere", kind)
		}
		verdict.Chain = j.name(target)
	}
	return verdict, nil
}

// verdictKind is a verdict by its word.
func verdictKind(s string) (VerdictKind, bool) {
	switch k := VerdictKind(s); k {
	case Accept, Drop, Continue, Return, Jump, Goto, Break:
		return k, true
	}
	return "", false
}

// key reads a value of one or several fields, as Entry.Start and End have it.
func (j *jsonReader) key(fields []Field, v jsonValue) (start, end []byte, err error) {
	if len(fields) == 1 {
		s, err := jsonSpan(fields[0], v)
		return s.lo, s.hi, err
	}
	list, ok := v.member("concat")
	if !ok || list.size() != len(fields) {
		return nil, nil, fmt.Errorf("%s has not the %d parts of a key", shorten(v.raw()), len(fields))
	}
	var room [4]span
	spans := room[:0]
	for part := range list.children {
		s, err := jsonSpan(fields[len(spans)], part)
		if err != nil {
			return nil, nil, err
		}
		spans = append(spans, s)
	}
	start, end = joinSpans(fields, spans)
	return start, end, nil
}

// jsonSpan reads one part of a key: a value, {"prefix": …} or {"range": …}.
func jsonSpan(f Field, v jsonValue) (span, error) {
	if v.kind() == jsonObject && v.size() == 1 {
		switch m := v.first(); m.key() {
		case "prefix":
			addr, ok := m.member("addr")
			bits, ok2 := numberMember(m, "len")
			if !ok || !ok2 {
				return span{}, fmt.Errorf("%s is no prefix", shorten(v.raw()))
			}
			value, err := jsonConstant(f, addr)
			if err != nil {
				return span{}, err
			}
			lo, hi, ok := prefixEnd(f, value, int(min(bits, 4096)))
			if !ok {
				return span{}, fmt.Errorf("a prefix of %d bits is too long", bits)
			}
			return span{lo, hi}, nil
		case "range":
			if m.kind() != jsonArray || m.size() != 2 {
				return span{}, fmt.Errorf("%s is no range", shorten(v.raw()))
			}
			lo, err := jsonConstant(f, m.first())
			if err != nil {
				return span{}, err
			}
			hi, err := jsonConstant(f, jsonValue{v.s, m.first().node().next})
			return span{lo, hi}, err
		}
	}
	if v.isString() {
		if s, ok := spanOfName(f, v.str()); ok {
			return s, nil
		}
	}
	value, err := jsonConstant(f, v)
	return span{lo: value}, err
}

// retype gives fields the types that only the elements show: an untyped value, and a date, which nft calls "time" as it
// does a duration.
func retype(fields []Field, list jsonValue) {
	if list.kind() != jsonArray || list.size() == 0 {
		return
	}
	v := list.first()
	if el, ok := v.member("elem"); ok {
		if val, ok := el.member("val"); ok {
			v = val
		}
	}
	i := 0
	look := func(v jsonValue) {
		if i < len(fields) && v.isString() {
			switch f := &fields[i]; {
			case strings.HasSuffix(v.str(), untypedMark):
				f.Type = TypeInvalid
			case f.Type == TypeTime:
				*f = fieldOf(TypeDate)
			}
		}
		i++
	}
	if parts, ok := v.member("concat"); ok {
		for c := range parts.children {
			look(c)
		}
		return
	}
	look(v)
}

// jsonConstant reads one value of a field: a number, a word, a truth value, or flags of which several are set.
func jsonConstant(f Field, v jsonValue) ([]byte, error) {
	switch v.kind() {
	case jsonString:
		return parseValue(f, strings.TrimSuffix(v.str(), untypedMark))
	case jsonTrue, jsonFalse:
		if f.Size == 0 {
			f.Size = 1
		}
		return fitted(uint64(v.kind()-jsonFalse), f)
	case jsonNumber:
		return jsonNumberValue(f, v)
	case jsonArray:
		return jsonFlags(f, v)
	case jsonObject:
		if v.size() == 1 && v.first().key() == "|" && typeOf(f.Type).flags {
			return jsonFlags(f, v.first())
		}
	}
	return nil, fmt.Errorf("%s is no %s", shorten(v.raw()), f.Type)
}

func jsonNumberValue(f Field, v jsonValue) ([]byte, error) {
	switch typeOf(f.Type).print {
	case text, labelBit, date, hourOfDay:
		return parseValue(f, v.str())
	case interfaceName:
		return parseValue(f, v.str())
	}
	n, err := strconv.ParseUint(v.str(), 10, 64)
	if err != nil {
		// Numbers above 2^63 come with a sign: jansson's integers have one.
		signed, err := strconv.ParseInt(v.str(), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is no number", shorten(v.str()))
		}
		n = uint64(signed)
		if f.Size < 8 {
			n &= 1<<(8*f.Size) - 1
		}
	}
	if typeOf(f.Type).print == relativeTime {
		n *= 1000 // seconds in this form, milliseconds in the kernel
	}
	return fitted(n, f)
}

// jsonFlags reads several values as one with the bits of all.
func jsonFlags(f Field, list jsonValue) ([]byte, error) {
	if !typeOf(f.Type).flags || list.size() == 0 {
		return nil, fmt.Errorf("%s is no %s", shorten(list.raw()), f.Type)
	}
	var all []byte
	for c := range list.children {
		one, err := jsonConstant(f, c)
		if err != nil {
			return nil, err
		}
		all = orValue(all, one)
	}
	return all, nil
}
