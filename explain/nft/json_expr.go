package nft

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// expr reads an expression. Want are the fields of what it is compared with or assigned to: without them a constant has
// no type, and there is none.
func (j *jsonReader) expr(v jsonValue, want []Field) (Expr, error) {
	switch v.kind() {
	case jsonString:
		if name, ok := strings.CutPrefix(v.str(), "@"); ok && name != "" {
			return SetRef{Name: j.name(name)}, nil
		}
		return j.constant(v, want)
	case jsonNumber, jsonTrue, jsonFalse, jsonArray:
		return j.constant(v, want)
	case jsonObject:
		if v.size() == 1 {
			return j.operation(v.first(), want)
		}
	}
	return nil, fmt.Errorf("%s is no expression", shorten(v.raw()))
}

// constant reads a value of one field.
func (j *jsonReader) constant(v jsonValue, want []Field) (Expr, error) {
	if len(want) != 1 {
		return nil, fmt.Errorf("nothing says what %s means", shorten(v.raw()))
	}
	f := want[0]
	if v.isString() {
		if s, ok := spanOfName(f, v.str()); ok {
			return &Prefix{Value: &Const{Type: f.Type, Data: s.lo}, Bits: 8 * (len(v.str()) - 1)}, nil
		}
	}
	data, err := jsonConstant(f, v)
	if err != nil {
		return nil, err
	}
	if v.isString() && strings.HasSuffix(v.str(), untypedMark) {
		f.Type = TypeInvalid
	}
	return &Const{Type: f.Type, Data: data}, nil
}

// operation reads an expression from the member of an object that it is.
func (j *jsonReader) operation(v jsonValue, want []Field) (Expr, error) {
	switch kind := v.key(); kind {
	case "payload":
		return j.payload(v)
	case "meta":
		key := v.text("key")
		if fieldIn(metaFields, key) == nil {
			return nil, fmt.Errorf("meta %q is not known", key)
		}
		return &Meta{Key: j.name(key)}, nil
	case "ct":
		return j.ct(v)
	case "fib":
		return j.fib(v)
	case "numgen":
		return &Numgen{
			Mode: j.name(v.text("mode")), Mod: uint32(uintMember(v, "mod")), Offset: uint32(uintMember(v, "offset")),
		}, nil
	case "jhash", "symhash":
		return j.hash(v)
	case "socket":
		key := v.text("key")
		if fieldIn(socketFields, key) == nil {
			return nil, fmt.Errorf("socket %q is not known", key)
		}
		return &Socket{Key: j.name(key), Level: int(uintMember(v, "level") & 0xff)}, nil
	case "rt":
		key := v.text("key")
		if f := v.text("family"); f != "" {
			key = f + " " + key
		}
		if fieldIn(rtFields, key) == nil {
			return nil, fmt.Errorf("rt %q is not known", key)
		}
		return &RT{Key: j.name(key)}, nil
	case "exthdr", "tcp option", "ip option", "sctp chunk":
		return j.extension(v)
	case "dccp option":
		text := "dccp option " + numberText(v, "type")
		return &Other{Text: text, Field: fieldOf(TypeBoolean)}, nil
	case "osf":
		return osfExpr(v.text("ttl"), v.text("key"))
	case "ipsec":
		return ipsecExpr(v.text("dir"), uintMember(v, "spnum"), v.text("family"), v.text("key"))
	case "prefix":
		return j.prefix(v, want)
	case "range":
		return j.rangeOf(v, want)
	case "concat":
		return j.concat(v, want)
	case "set":
		return j.anonymousSet(v, want)
	case "map", "vmap":
		key, data, err := j.mapParts(v)
		if err != nil {
			return nil, err
		}
		k, err := j.expr(key, nil)
		if err != nil {
			return nil, err
		}
		m, err := j.mapping(k, data, anonymousMap{data: want})
		if err != nil {
			return nil, err
		}
		return &MapExpr{Key: k, Map: m}, nil
	case "|", "&", "^", "<<", ">>":
		return j.binary(v, want)
	default:
		return nil, fmt.Errorf("the expression %q is not known", kind)
	}
}

func (j *jsonReader) payload(v jsonValue) (Expr, error) {
	if base := v.text("base"); base != "" {
		p := &Payload{Protocol: "@" + base, Offset: intMember(v, "offset"), Bits: intMember(v, "len")}
		switch base {
		case "ll", "nh", "th", "ih":
		default:
			return nil, fmt.Errorf("the layer %q is not known", base)
		}
		if p.Bits <= 0 || p.Bits > 8*maxValueSize || p.Offset < 0 {
			return nil, fmt.Errorf("%d bits at %d of a header are no value", p.Bits, p.Offset)
		}
		return p, nil
	}
	protocol, field := v.text("protocol"), v.text("field")
	tunnel := v.text("tunnel")
	if tunnel == "" && headerOf(headers, protocol) == nil {
		tunnel, protocol = protocol, ""
	}
	if tunnel != "" {
		if e, ok := tunnelled(tunnel, protocol, field); ok {
			return e, nil
		}
		return nil, fmt.Errorf("the field %q of %q in %q is not known", field, protocol, tunnel)
	}
	p, _, ok := PayloadField(protocol, field)
	if !ok {
		return nil, fmt.Errorf("the field %q of %q is not known", field, protocol)
	}
	p.Protocol, p.Field = j.name(protocol), j.name(field)
	return &p, nil
}

func (j *jsonReader) ct(v jsonValue) (Expr, error) {
	return ctExpr(j.name(v.text("dir")), v.text("family"), j.name(v.text("key")), j.table.Family)
}

// ctExpr is "ct [DIR] [FAMILY] KEY". nft writes the family of an address into its key ("ip saddr"); before 0.8.3 there
// was none, and the table's says which.
func ctExpr(dir, family, key string, table Family) (Expr, error) {
	for _, f := range [...]Family{IP, IP6} {
		if k, ok := strings.CutPrefix(key, string(f)+" "); ok {
			family, key = string(f), k
		}
	}
	c := &CT{Key: key, Dir: dir}
	switch key {
	case "saddr", "daddr", "src", "dst":
		if c.Family = Family(family); c.Family == "" {
			c.Family = table
		}
		if c.Family != IP && c.Family != IP6 {
			return nil, fmt.Errorf("ct %s does not say of which family", key)
		}
	default:
		if fieldIn(ctFields, key) == nil {
			return nil, fmt.Errorf("ct %q is not known", key)
		}
	}
	switch dir {
	case "", "original", "reply":
	default:
		return nil, fmt.Errorf("the direction %q is not known", dir)
	}
	return c, nil
}

func (j *jsonReader) fib(v jsonValue) (Expr, error) {
	var flags []string
	for _, f := range v.texts("flags") {
		flags = append(flags, j.name(f))
	}
	return fibExpr(flags, j.name(v.text("result")))
}

// fibExpr is "fib FLAGS RESULT". nft 1.1.4 and later ask for presence with a result of its own, "check".
func fibExpr(flags []string, result string) (Expr, error) {
	for _, f := range flags {
		switch f {
		case "saddr", "daddr", "mark", "iif", "oif":
		default:
			return nil, fmt.Errorf("fib %q is not known", f)
		}
	}
	switch result {
	case "type", "oif", "oifname":
		return &Fib{Flags: flags, Result: result}, nil
	case "check":
		return &Fib{Flags: flags, Result: "oif", Exists: true}, nil
	}
	return nil, fmt.Errorf("fib: the answer %q is not known", result)
}

func (j *jsonReader) hash(v jsonValue) (Expr, error) {
	h := &Hash{Mod: uint32(uintMember(v, "mod")), Offset: uint32(uintMember(v, "offset"))}
	seed, ok := numberMember(v, "seed")
	h.Seed, h.HasSeed = uint32(seed), ok
	if v.key() == "symhash" {
		return h, nil
	}
	of, ok := v.member("expr")
	if !ok {
		return nil, fmt.Errorf("jhash: nothing is hashed")
	}
	var err error
	h.Of, err = j.expr(of, nil)
	return h, err
}

// extension reads a field of an option or extension header. Without a field its presence is meant.
func (j *jsonReader) extension(v jsonValue) (Expr, error) {
	e := &ExtHdr{Kind: j.name(v.key()), Name: j.name(v.text("name")), Field: j.name(v.text("field"))}
	if e.Kind == "tcp option" && e.Name == "" {
		if offset, bits := intMember(v, "offset"), intMember(v, "len"); offset == 0 && bits == 0 {
			// The option as a whole: "reset tcp option 123".
			e.Name, e.Exists = numberText(v, "base"), true
			return e, nil
		}
		e.Name = fmt.Sprintf("@%d,%d,%d", intMember(v, "base"), intMember(v, "offset"), intMember(v, "len"))
		if _, ok := e.field(); !ok {
			return nil, fmt.Errorf("tcp option %s is not known", e.Name)
		}
		return e, nil
	}
	e.Exists = e.Field == ""
	if headerOf(extensions(e.Kind), e.Name) == nil {
		return nil, fmt.Errorf("%s %q is not known", e.Kind, e.Name)
	}
	if _, ok := e.field(); !ok {
		return nil, fmt.Errorf("%s %s has no field %q that is known", e.Kind, e.Name, e.Field)
	}
	return e, nil
}

// osfExpr is the operating system that the first packet of a connection looks like.
func osfExpr(ttl, key string) (Expr, error) {
	text := "osf"
	switch ttl {
	case "":
	case "loose", "skip":
		text += " ttl " + ttl
	default:
		return nil, fmt.Errorf("osf ttl %q is not known", ttl)
	}
	if key != "name" && key != "version" {
		return nil, fmt.Errorf("osf %q is not known", key)
	}
	return &Other{Text: text + " " + key, Field: Field{Type: TypeString, Size: 16}}, nil
}

// ipsecExpr is a property of the security association that a packet came by or will leave by.
func ipsecExpr(dir string, spnum uint64, family, key string) (Expr, error) {
	if dir != "in" && dir != "out" {
		return nil, fmt.Errorf("ipsec %q is not known", dir)
	}
	text := "ipsec " + dir
	if spnum != 0 {
		text += " spnum " + strconv.FormatUint(spnum, 10)
	}
	f := Field{Type: TypeInteger, Size: 4}
	switch key {
	case "reqid", "spi":
		text += " " + key
	case "saddr", "daddr":
		fields := addressFields(Family(family), "")
		if fields == nil {
			return nil, fmt.Errorf("ipsec %s does not say of which family", key)
		}
		f = fields[0]
		text += " " + family + " " + key
	default:
		return nil, fmt.Errorf("ipsec %q is not known", key)
	}
	return &Other{Text: text, Field: f}, nil
}

// oneField is the field that a value of one part is of.
func oneField(v jsonValue, want []Field) (Field, error) {
	if len(want) != 1 {
		return Field{}, fmt.Errorf("nothing says what %s means", shorten(v.raw()))
	}
	return want[0], nil
}

func (j *jsonReader) prefix(v jsonValue, want []Field) (Expr, error) {
	f, err := oneField(v, want)
	if err != nil {
		return nil, err
	}
	addr, ok := v.member("addr")
	bits, ok2 := numberMember(v, "len")
	if !ok || !ok2 {
		return nil, fmt.Errorf("%s is no prefix", shorten(v.raw()))
	}
	value, err := jsonConstant(f, addr)
	if err != nil {
		return nil, err
	}
	if _, _, ok := prefixEnd(f, value, int(min(bits, 4096))); !ok {
		return nil, fmt.Errorf("a prefix of %d bits is too long", bits)
	}
	return &Prefix{Value: &Const{Type: f.Type, Data: value}, Bits: int(bits)}, nil
}

func (j *jsonReader) rangeOf(v jsonValue, want []Field) (Expr, error) {
	f, err := oneField(v, want)
	if err != nil {
		return nil, err
	}
	if v.kind() != jsonArray || v.size() != 2 {
		return nil, fmt.Errorf("%s is no range", shorten(v.raw()))
	}
	lo, err := jsonConstant(f, v.first())
	if err != nil {
		return nil, err
	}
	hi, err := jsonConstant(f, jsonValue{v.s, v.first().node().next})
	if err != nil {
		return nil, err
	}
	return &Range{Lo: &Const{Type: f.Type, Data: lo}, Hi: &Const{Type: f.Type, Data: hi}}, nil
}

func (j *jsonReader) concat(v jsonValue, want []Field) (Expr, error) {
	if v.kind() != jsonArray || v.size() == 0 {
		return nil, fmt.Errorf("%s is no concatenation", shorten(v.raw()))
	}
	c := &Concat{Parts: make([]Expr, 0, v.size())}
	for part := range v.children {
		var field []Field
		if len(want) == v.size() {
			field = want[len(c.Parts) : len(c.Parts)+1]
		}
		e, err := j.expr(part, field)
		if err != nil {
			return nil, err
		}
		c.Parts = append(c.Parts, e)
	}
	return c, nil
}

// anonymousSet reads {"set": [ … ]} in a rule.
func (j *jsonReader) anonymousSet(v jsonValue, want []Field) (Expr, error) {
	if len(want) == 0 {
		return nil, fmt.Errorf("nothing says what %s means", shorten(v.raw()))
	}
	s := &Set{Key: listedFields(want)}
	retype(s.Key, v)
	if err := j.anonymous(s, v); err != nil {
		return nil, err
	}
	return SetLit{s}, nil
}

// anonymous reads the elements of a set or map in a rule. One that cannot be read makes the whole rule unreadable.
func (j *jsonReader) anonymous(s *Set, v jsonValue) error {
	if v.isString() {
		// A single element stands without brackets in some versions.
		e, err := j.entry(s, v)
		s.Entries = append(s.Entries, e)
		return err
	}
	if v.kind() != jsonArray {
		return fmt.Errorf("%s is no set", shorten(v.raw()))
	}
	s.Entries = make([]Entry, 0, v.size())
	for el := range v.children {
		e, err := j.entry(s, el)
		if err != nil {
			return err
		}
		s.Entries = append(s.Entries, e)
	}
	s.finishAnonymous()
	return nil
}

// finishAnonymous sets what an anonymous set says about itself by its elements.
func (s *Set) finishAnonymous() {
	s.Interval = slices.ContainsFunc(s.Entries, func(e Entry) bool { return e.End != nil })
	s.DataInterval = slices.ContainsFunc(s.Entries, func(e Entry) bool { return e.DataEnd != nil })
}

// anonymousMap says what the elements of a map in a rule map to.
type anonymousMap struct {
	verdicts bool
	objects  string // their kind
	data     []Field
}

// mapping reads the map of an expression: the name of one, or elements.
func (j *jsonReader) mapping(key Expr, v jsonValue, to anonymousMap) (Expr, error) {
	if v.isString() {
		name, ok := strings.CutPrefix(v.str(), "@")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is no map", v.str())
		}
		return SetRef{Name: j.name(name)}, nil
	}
	set, ok := v.member("set")
	if !ok {
		return nil, fmt.Errorf("%s is no map", shorten(v.raw()))
	}
	s, err := j.table.anonymousMapOf(key, to)
	if err != nil {
		return nil, err
	}
	if err := j.anonymous(s, set); err != nil {
		return nil, err
	}
	return SetLit{s}, nil
}

// anonymousMapOf is an empty map of a rule for a key and what it maps to.
func (t *Table) anonymousMapOf(key Expr, to anonymousMap) (*Set, error) {
	s := &Set{IsMap: true, Key: listedFields(t.ExpressionFields(key)), ObjectType: to.objects, Data: listedFields(to.data)}
	switch {
	case len(s.Key) == 0:
		return nil, fmt.Errorf("nothing says what %s is", ExpressionText(key))
	case !to.verdicts && to.objects == "" && len(s.Data) == 0:
		return nil, fmt.Errorf("nothing says what %s maps to", ExpressionText(key))
	}
	return s, nil
}

// binary reads a calculation. Flags with "|" between them are one value.
func (j *jsonReader) binary(v jsonValue, want []Field) (Expr, error) {
	if v.kind() != jsonArray || v.size() < 2 {
		return nil, fmt.Errorf("%s has not two sides", shorten(v.raw()))
	}
	if v.key() == "|" && len(want) == 1 && typeOf(want[0].Type).flags {
		if data, err := jsonFlags(want[0], v); err == nil {
			return &Const{Type: want[0].Type, Data: data}, nil
		}
	}
	left, err := j.expr(v.first(), want)
	if err != nil {
		return nil, err
	}
	op := j.name(v.key())
	// nft 1.1 writes several of the same operator in one list.
	at := v.first()
	for range v.size() - 1 {
		at = jsonValue{v.s, at.node().next}
		right, err := j.expr(at, operandFields(j.table, op, left, want))
		if err != nil {
			return nil, err
		}
		left = &Binary{Op: op, Left: left, Right: right}
	}
	return left, nil
}

// textStatements reads statements that nft writes as text.
func (j *jsonReader) textStatements(v jsonValue) []Statement {
	r := textReader{rs: j.rs, table: j.table, names: j.names, within: true, fixedLine: j.line, inline: j.inline}
	r.text = v.str()
	r.advance()
	r.skipLines()
	rule := &Rule{}
	r.statements(rule)
	j.inline = r.inline
	if len(rule.Statements) == 0 {
		return []Statement{j.unreadable(v, fmt.Errorf("it is no statement"))}
	}
	return rule.Statements
}
