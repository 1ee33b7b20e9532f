package nft

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// concat reads expressions with "." between them. Want are the fields of constants, nil where there can be none.
func (r *textReader) concat(want []Field) (Expr, error) {
	first, err := r.calculation(part(want, 0), 4)
	if err != nil || !r.is(".") {
		return first, err
	}
	c := &Concat{Parts: []Expr{first}}
	for r.accept(".") {
		e, err := r.calculation(part(want, len(c.Parts)), 4)
		if err != nil {
			return nil, err
		}
		c.Parts = append(c.Parts, e)
	}
	return c, nil
}

// part is one of several fields; nil where there is no such.
func part(fields []Field, i int) []Field {
	if i < len(fields) {
		return fields[i : i+1]
	}
	return nil
}

// operators by how tight they bind, with the names that older listings and translations of iptables have.
func (r *textReader) operator(level int) (string, bool) {
	if r.tok.kind != tokenWord {
		return "", false
	}
	op := r.tok.text
	switch op {
	case "and":
		op = "&"
	case "or":
		op = "|"
	case "xor":
		op = "^"
	case "lshift":
		op = "<<"
	case "rshift":
		op = ">>"
	}
	return op, precedence(op) == level
}

// calculation reads an expression with operators that bind at least as tight as a level (see precedence).
func (r *textReader) calculation(want []Field, level int) (Expr, error) {
	if level == 0 {
		return r.operand(want)
	}
	left, err := r.calculation(want, level-1)
	if err != nil {
		return nil, err
	}
	for {
		op, ok := r.operator(level)
		if !ok {
			return left, nil
		}
		if level == precedence("|") && len(want) == 0 {
			// Behind "syn" of a comparison "|" belongs to the flags, which are read elsewhere.
			if _, ok := left.(*Const); ok {
				return left, nil
			}
		}
		r.advance()
		fields := operandFields(r.table, r.name(op), left, want)
		right, err := r.calculation(fields, level-1)
		if err != nil {
			return nil, err
		}
		left = combine(r.name(op), left, right)
	}
}

// operandFields are the fields of what stands on the right of an operator: a number of bits to shift by, else as much as
// what the whole is for, because the kernel calculates as wide as that, else as what stands on the left.
func operandFields(t *Table, op string, left Expr, want []Field) []Field {
	switch {
	case op == "<<" || op == ">>":
		return []Field{{Type: TypeInteger, Size: 4}}
	case len(want) == 1:
		return want
	}
	return t.ExpressionFields(left)
}

// combine is a calculation; flags with "|" between them are one value.
func combine(op string, left, right Expr) Expr {
	a, ok := left.(*Const)
	b, ok2 := right.(*Const)
	if op == "|" && ok && ok2 && typeOf(a.Type).flags && len(a.Data) == len(b.Data) {
		return &Const{Type: a.Type, Data: orValue(append([]byte(nil), a.Data...), b.Data)}
	}
	return &Binary{Op: op, Left: left, Right: right}
}

// operand reads what stands in parentheses, a constant where one can be, or an expression.
func (r *textReader) operand(want []Field) (Expr, error) {
	if r.is("(") {
		if r.depth >= maxDepth {
			return nil, fmt.Errorf("parentheses are nested too deep")
		}
		r.depth++
		r.advance()
		e, err := r.calculation(want, 4)
		r.depth--
		if err != nil {
			return nil, err
		}
		if !r.accept(")") {
			return nil, r.unknown(`")"`)
		}
		return e, nil
	}
	if len(want) == 1 {
		if r.tok.kind == tokenString || !r.beginsExpression() {
			return r.constant(want[0])
		}
		// "tcp" may be the protocol, or begin "tcp dport".
		if typeOf(want[0].Type).hasWord(r.tok.text) {
			before := r.tokens
			if headerOf(headers, r.tok.text) != nil {
				if e, err := r.primary(); err == nil {
					return e, nil
				}
				r.tokens = before
			}
			return r.constant(want[0])
		}
	}
	return r.primary()
}

// beginsExpression tells whether the word that stands here is one that an expression begins with.
func (r *textReader) beginsExpression() bool {
	if r.tok.kind != tokenWord {
		return false
	}
	switch word := r.tok.text; word {
	case "meta", "ct", "fib", "numgen", "jhash", "symhash", "socket", "rt", "exthdr", "osf", "ipsec":
		return true
	default:
		if strings.HasPrefix(word, "@") {
			switch word[1:] {
			case "ll", "nh", "th", "ih":
				return true
			}
			return false
		}
		return headerOf(headers, word) != nil || headerOf(extensionHeaders, word) != nil ||
			headerOf(tunnels, word) != nil || unqualifiedMeta(word) != ""
	}
}

// unqualifiedMeta is the key of meta that a word stands for by itself. nft prints six of them so, older versions more.
func unqualifiedMeta(word string) string {
	switch word {
	case "iif", "oif", "iifname", "oifname", "iifgroup", "oifgroup", "mark", "skuid", "skgid", "iiftype", "oiftype",
		"nftrace", "rtclassid", "pkttype", "cpu", "cgroup":
		return word
	case "ibriport":
		return "ibrname"
	case "obriport":
		return "obrname"
	}
	return ""
}

// primary reads an expression without operators.
func (r *textReader) primary() (Expr, error) {
	if !r.beginsExpression() {
		return nil, r.unknown("an expression or statement that is known")
	}
	word := r.tok.text
	r.advance()
	switch word {
	case "meta":
		return r.meta()
	case "ct":
		return r.ctExpression()
	case "fib":
		return r.fib()
	case "numgen":
		n := &Numgen{Mode: r.wordName()}
		if n.Mode != "inc" && n.Mode != "random" {
			return nil, fmt.Errorf("numgen %q is not known", n.Mode)
		}
		var err error
		n.Mod, n.Offset, _, _, err = r.modulus()
		return n, err
	case "symhash":
		h := &Hash{}
		var err error
		h.Mod, h.Offset, _, _, err = r.modulus()
		return h, err
	case "jhash":
		of, err := r.concat(nil)
		if err != nil {
			return nil, err
		}
		h := &Hash{Of: of}
		h.Mod, h.Offset, h.Seed, h.HasSeed, err = r.modulus()
		return h, err
	case "socket":
		return r.socket()
	case "rt":
		if _, ok := fieldNamed(rtFields, r.tok.text); ok {
			return &RT{Key: r.wordName()}, nil
		}
		if r.is("ip") || r.is("ip6") {
			family := r.wordName()
			return r.routeKey(family + " " + r.tok.text)
		}
	case "exthdr":
		name := r.wordName()
		if headerOf(extensionHeaders, name) == nil {
			return nil, fmt.Errorf("exthdr %q is not known", name)
		}
		return &ExtHdr{Kind: "exthdr", Name: name, Exists: true}, nil
	case "osf":
		ttl := ""
		if r.accept("ttl") {
			ttl = r.wordName()
		}
		return osfExpr(ttl, r.wordName())
	case "ipsec":
		return r.ipsec()
	}
	if headerOf(tunnels, word) != nil && (word != "gre" || headerOf(headers, r.tok.text) != nil) {
		return r.tunnelField(word)
	}
	if strings.HasPrefix(word, "@") {
		return r.rawPayload(word)
	}
	if key := unqualifiedMeta(word); key != "" {
		return &Meta{Key: r.name(key)}, nil
	}
	if h := headerOf(extensionHeaders, word); h != nil {
		return r.extensionField("exthdr", word)
	}
	return r.headerField(word)
}

func (r *textReader) meta() (Expr, error) {
	if r.tok.kind != tokenWord || fieldIn(metaFields, r.tok.text) == nil {
		return nil, r.unknown("a key of meta that is known")
	}
	return &Meta{Key: r.wordName()}, nil
}

func (r *textReader) ctExpression() (Expr, error) {
	dir, family := "", ""
	if (r.is("original") || r.is("reply")) && r.tok.kind == tokenWord {
		dir = r.wordName()
	}
	if r.is("ip") || r.is("ip6") {
		family = r.wordName()
	}
	key := r.wordName()
	e, err := ctExpr(dir, family, key, r.table.Family)
	if err != nil || dir != "" {
		return e, err
	}
	return e, nil
}

// fib reads "saddr . iif oif": the last word behind the flags is what is asked.
func (r *textReader) fib() (Expr, error) {
	var flags []string
	for {
		flags = append(flags, r.wordName())
		if !r.accept(".") {
			break
		}
	}
	return fibExpr(flags, r.wordName())
}

// modulus reads "mod 4 seed 0x1 offset 3".
func (r *textReader) modulus() (mod, offset, seed uint32, hasSeed bool, err error) {
	if !r.accept("mod") {
		return 0, 0, 0, false, r.unknown(`"mod"`)
	}
	n, err := r.number(32)
	mod = uint32(n)
	if err == nil && r.accept("seed") {
		n, err = r.number(32)
		seed, hasSeed = uint32(n), true
	}
	if err == nil && r.accept("offset") {
		n, err = r.number(32)
		offset = uint32(n)
	}
	return mod, offset, seed, hasSeed, err
}

func (r *textReader) socket() (Expr, error) {
	s := &Socket{Key: r.wordName()}
	if fieldIn(socketFields, s.Key) == nil {
		return nil, fmt.Errorf("socket %q is not known", s.Key)
	}
	if s.Key == "cgroupv2" && r.accept("level") {
		n, err := r.number(8)
		if err != nil {
			return nil, err
		}
		s.Level = int(n)
	}
	return s, nil
}

func (r *textReader) routeKey(key string) (Expr, error) {
	if fieldIn(rtFields, key) == nil {
		return nil, fmt.Errorf("rt %q is not known", key)
	}
	r.advance()
	return &RT{Key: r.name(key)}, nil
}

func (r *textReader) ipsec() (Expr, error) {
	dir := r.wordName()
	var spnum uint64
	if r.accept("spnum") {
		var err error
		if spnum, err = r.number(32); err != nil {
			return nil, err
		}
	}
	family := ""
	if r.is("ip") || r.is("ip6") {
		family = r.wordName()
	}
	return ipsecExpr(dir, spnum, family, r.wordName())
}

// rawPayload reads "@th,16,16".
func (r *textReader) rawPayload(word string) (Expr, error) {
	var n [2]uint64
	for i := range n {
		if !r.accept(",") {
			return nil, r.unknown(`","`)
		}
		var err error
		if n[i], err = r.number(16); err != nil {
			return nil, err
		}
	}
	p := &Payload{Protocol: r.name(word), Offset: int(n[0]), Bits: int(n[1])}
	if p.Bits == 0 || p.Bits > 8*maxValueSize {
		return nil, fmt.Errorf("%d bits are no value", p.Bits)
	}
	return p, nil
}

// headerField reads a field of a protocol, or an option of it.
func (r *textReader) headerField(protocol string) (Expr, error) {
	switch {
	case protocol == "tcp" && r.is("option"), protocol == "ip" && r.is("option"), protocol == "sctp" && r.is("chunk"):
		kind := r.name(protocol + " " + r.tok.text)
		r.advance()
		return r.option(kind)
	case protocol == "dccp" && r.accept("option"):
		n, err := r.number(8)
		return &Other{Text: "dccp option " + strconv.FormatUint(n, 10), Field: fieldOf(TypeBoolean)}, err
	}
	if r.tok.kind != tokenWord {
		return nil, r.unknown("a field of " + protocol)
	}
	field := r.tok.text
	if protocol == "arp" && (field == "saddr" || field == "daddr") {
		field += " " + r.peek().text
		r.advance()
	}
	p, _, ok := PayloadField(protocol, field)
	if !ok {
		return nil, r.unknown("a field of " + protocol + " that is known")
	}
	p.Protocol, p.Field = r.name(protocol), r.name(field)
	r.advance()
	return &p, nil
}

// tunnelField reads a field of a tunnel, or of a header in it.
func (r *textReader) tunnelField(tunnel string) (Expr, error) {
	protocol := ""
	if headerOf(headers, r.tok.text) != nil && r.tok.kind == tokenWord {
		protocol = r.wordName()
	}
	e, ok := tunnelled(tunnel, protocol, r.tok.text)
	if !ok {
		return nil, r.unknown("a field of " + tunnel + " that is known")
	}
	r.advance()
	return e, nil
}

// option reads an option of TCP or IP, or a chunk of SCTP, and a field of it. Without a field its presence is meant.
func (r *textReader) option(kind string) (Expr, error) {
	if r.tok.kind != tokenWord {
		return nil, r.unknown("an option")
	}
	name := r.tok.text
	if kind == "tcp option" {
		switch name {
		case "sack-permitted": // as nft before 1.0.? prints it, as the next
			name = "sack-perm"
		case "noop":
			name = "nop"
		}
		if kindNumber, ok := strings.CutPrefix(name, "@"); ok {
			return r.rawOption(kind, kindNumber)
		}
		if _, err := strconv.ParseUint(name, 10, 8); err == nil {
			r.advance()
			return &ExtHdr{Kind: kind, Name: r.name(name), Exists: true}, nil
		}
	}
	if headerOf(extensions(kind), name) == nil {
		return nil, r.unknown("an option that is known")
	}
	r.advance()
	return r.extensionField(kind, name)
}

// rawOption reads "@255,8,8": bits of an option of TCP without a name.
func (r *textReader) rawOption(kind, number string) (Expr, error) {
	r.advance()
	name := "@" + number
	for range 2 {
		if !r.accept(",") {
			return nil, r.unknown(`","`)
		}
		n, err := r.number(16)
		if err != nil {
			return nil, err
		}
		name += "," + strconv.FormatUint(n, 10)
	}
	e := &ExtHdr{Kind: kind, Name: name}
	if _, ok := e.field(); !ok {
		return nil, fmt.Errorf("tcp option %s is not known", name)
	}
	return e, nil
}

// extensionField reads the field of an option or extension header.
func (r *textReader) extensionField(kind, name string) (Expr, error) {
	e := &ExtHdr{Kind: kind, Name: r.name(name)}
	h := headerOf(extensions(kind), name)
	if r.tok.kind == tokenWord && fieldIn(h.fields, r.tok.text) != nil {
		e.Field = r.wordName()
		return e, nil
	}
	if kind == "exthdr" {
		return nil, r.unknown("a field of " + name)
	}
	e.Exists = true
	return e, nil
}

// value reads what is set or where packets are sent: a constant, an expression, or a map that gives it.
func (r *textReader) value(want []Field) (Expr, error) {
	before := r.tokens
	e, err := r.concat(want)
	if err != nil || r.is("map") {
		// The key of a map is of its own type, not of what the map gives.
		after := r.tokens
		r.tokens = before
		if key, keyErr := r.concat(nil); keyErr == nil && r.is("map") {
			e, err = key, nil
		} else {
			r.tokens = after
		}
	}
	if err != nil {
		return nil, err
	}
	if c, ok := e.(*Const); ok && typeOf(c.Type).flags {
		// Events of connections stand with commas.
		for r.is(",") && !r.tok.spaced {
			r.advance()
			more, err := r.constant(want[0])
			if err != nil {
				return nil, err
			}
			e = combine("|", e, more)
		}
		return e, nil
	}
	if !r.accept("map") {
		return e, nil
	}
	m, err := r.mapping(e, anonymousMap{data: want})
	if err != nil {
		return nil, err
	}
	return &MapExpr{Key: e, Map: m}, nil
}

// compared reads the right side of a comparison.
func (r *textReader) compared(want []Field) (Expr, error) {
	if r.is("{") {
		if len(want) == 0 {
			return nil, fmt.Errorf("nothing says what the elements mean")
		}
		s := &Set{Key: listedFields(want)}
		if err := r.anonymous(s); err != nil {
			return nil, err
		}
		return SetLit{s}, nil
	}
	if name, ok := strings.CutPrefix(r.tok.text, "@"); ok && r.tok.kind == tokenWord {
		r.advance()
		return SetRef{Name: r.name(name)}, nil
	}
	if len(want) == 0 {
		return nil, fmt.Errorf("nothing says what %q means", shorten(r.tok.text))
	}
	if r.tok.kind != tokenWord && r.tok.kind != tokenString {
		return nil, r.unknown("a value")
	}
	first, err := r.constant(want[0])
	if err != nil || len(want) == 1 {
		return first, err
	}
	c := &Concat{Parts: []Expr{first}}
	for len(c.Parts) < len(want) {
		if !r.accept(".") {
			return nil, r.unknown(`"."`)
		}
		e, err := r.constant(want[len(c.Parts)])
		if err != nil {
			return nil, err
		}
		c.Parts = append(c.Parts, e)
	}
	return c, nil
}

// constant reads a value of a field, a range or a prefix.
func (r *textReader) constant(f Field) (Expr, error) {
	if r.tok.kind != tokenWord && r.tok.kind != tokenString {
		return nil, r.unknown("a value")
	}
	if r.tok.kind == tokenString {
		s, err := r.stringSpan(f)
		if err != nil {
			return nil, err
		}
		return spanExpr(f, s), nil
	}
	e, err := wordConstant(f, r.tok.text)
	if err != nil {
		return nil, err
	}
	r.advance()
	if c, ok := e.(*Const); ok && r.untyped() {
		c.Type = TypeInvalid
	}
	return e, nil
}

// untyped goes over "[invalid type]" behind a value.
func (r *textReader) untyped() bool {
	if !r.is("[invalid") {
		return false
	}
	r.advance()
	return r.accept("type]")
}

// spanExpr is a part of a key as an expression.
func spanExpr(f Field, s span) Expr {
	if s.hi == nil {
		return &Const{Type: f.Type, Data: s.lo}
	}
	if bits := prefixBits(s.lo, s.hi); bits >= 0 && typeOf(f.Type).print == text {
		return &Prefix{Value: &Const{Type: f.Type, Data: s.lo}, Bits: bits}
	}
	return &Range{Lo: &Const{Type: f.Type, Data: s.lo}, Hi: &Const{Type: f.Type, Data: s.hi}}
}

// stringSpan reads what stands in quotes: a name, the beginning of one ("eth*"), or two with "-" between them.
func (r *textReader) stringSpan(f Field) (span, error) {
	if s, ok := spanOfName(f, r.tok.text); ok {
		r.advance()
		return s, nil
	}
	lo, err := parseValue(f, r.tok.text)
	if err != nil {
		return span{}, err
	}
	r.advance()
	if !r.is("-") || r.tok.spaced || r.peek().kind != tokenString {
		return span{lo: lo}, nil
	}
	r.advance()
	hi, err := parseValue(f, r.tok.text)
	if err != nil {
		return span{}, err
	}
	r.advance()
	return span{lo, hi}, nil
}

// wordConstant reads a word: a value, a range, or a prefix.
func wordConstant(f Field, word string) (Expr, error) {
	value, err := parseValue(f, word)
	if err == nil {
		return &Const{Type: f.Type, Data: value}, nil
	}
	if addr, length, ok := strings.Cut(word, "/"); ok {
		bits, err := strconv.ParseUint(length, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is no prefix", word)
		}
		if value, err = parseValue(f, addr); err != nil {
			return nil, err
		}
		if _, _, ok := prefixEnd(f, value, int(bits)); !ok {
			return nil, fmt.Errorf("a prefix of %d bits is too long", bits)
		}
		return &Prefix{Value: &Const{Type: f.Type, Data: value}, Bits: int(bits)}, nil
	}
	// A word may have "-" in it by itself: what parses on both sides is a range.
	for i := 1; i < len(word)-1; i++ {
		if word[i] != '-' {
			continue
		}
		lo, err1 := parseValue(f, word[:i])
		hi, err2 := parseValue(f, word[i+1:])
		if err1 == nil && err2 == nil {
			return &Range{Lo: &Const{Type: f.Type, Data: lo}, Hi: &Const{Type: f.Type, Data: hi}}, nil
		}
		if i > paste.Longest {
			break
		}
	}
	return nil, err
}

// mapping reads the map of an expression: the name of one, or elements in braces.
func (r *textReader) mapping(key Expr, to anonymousMap) (Expr, error) {
	if name, ok := strings.CutPrefix(r.tok.text, "@"); ok && r.tok.kind == tokenWord {
		r.advance()
		return SetRef{Name: r.name(name)}, nil
	}
	if !r.is("{") {
		return nil, r.unknown("a map")
	}
	s, err := r.table.anonymousMapOf(key, to)
	if err != nil {
		return nil, err
	}
	if err := r.anonymous(s); err != nil {
		return nil, err
	}
	return SetLit{s}, nil
}

// anonymous reads the elements of a set or map in a rule. One that cannot be read makes the whole rule unreadable.
func (r *textReader) anonymous(s *Set) error {
	r.advance()
	for {
		if r.accept("}") {
			s.finishAnonymous()
			return nil
		}
		e, err := r.entry(s)
		if err != nil {
			return err
		}
		s.Entries = append(s.Entries, e)
		if !r.is("}") && !r.accept(",") {
			return r.unknown(`"," or "}"`)
		}
	}
}
