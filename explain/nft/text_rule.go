package nft

import (
	"fmt"
	"strconv"
	"strings"
)

// readRule reads a rule, which ends with its line; done is false where the chain cannot go on.
func (r *textReader) readRule(t *Table, c *Chain) (goOn bool) {
	rule := &Rule{Line: r.lineOf(r.tok.line)}
	r.blankStatements(rule, true)
	goOn = r.statements(rule)
	finishRule(t, rule)
	c.Rules = append(c.Rules, rule)
	return goOn
}

// statements reads the statements of a rule with its comment and handle.
func (r *textReader) statements(rule *Rule) (goOn bool) {
	for first := true; !r.atEnd(); first = false {
		if !first {
			r.blankStatements(rule, false)
		}
		if r.tok.kind == tokenHash {
			if x, ok := r.oldExtension(); ok {
				rule.Statements = append(rule.Statements, x)
				r.advance()
				r.advance()
				continue
			}
			rule.Handle = r.handle(rule.Handle)
			break
		}
		if r.is("comment") && r.peek().kind == tokenString {
			r.advance()
			rule.Comment = strings.Clone(r.tok.text)
			r.advance()
			continue
		}
		from := r.tok
		before := r.depth
		s, err := r.statement()
		if err != nil {
			r.depth = before
			r.unreadable(rule, from, err)
			break
		}
		rule.Statements = append(rule.Statements, s)
	}
	return true
}

// blankStatements finds statements of which nft prints nothing, by the blanks around them: -m comment of iptables in
// versions that translate what they know of iptables.
func (r *textReader) blankStatements(rule *Rule, first bool) {
	if r.tok.kind == tokenHash {
		return
	}
	n := 0
	for i := r.tok.from; i > 0 && r.text[i-1] == ' '; i-- {
		n++
	}
	if first {
		// The indentation of a listing is tabs: a blank behind them stands after a statement that is not shown.
		if before := r.tok.from - n; before <= 0 || r.text[before-1] != '\t' {
			return
		}
		n++
	}
	for range min(n-1, maxBlank) {
		rule.Statements = append(rule.Statements, &XT{})
	}
}

// maxBlank bounds the statements that blanks stand for.
const maxBlank = 8

// oldExtension reads "# xt_comment", how nft before 1.0.3 prints an extension of iptables.
func (r *textReader) oldExtension() (*XT, bool) {
	name, ok := strings.CutPrefix(r.peek().text, "xt_")
	if !ok || r.peek().kind != tokenWord {
		return nil, false
	}
	return &XT{Name: r.name(name)}, true
}

// unreadable makes one statement of what remains of a rule from a place on, with a chain in braces that begins in it. A
// comment and handle at the end of the line are still read.
func (r *textReader) unreadable(rule *Rule, from token, err error) {
	line := r.tok.line
	look := r.tokens
	look.at, look.line, look.tok = from.to, from.line, from
	end, depth := from.from, 0
rest:
	for look.tok.kind != tokenEnd {
		switch {
		case depth == 0 && (look.tok.kind == tokenLine || look.is(";")):
			break rest
		case look.is("}"):
			if depth--; depth < 0 {
				break rest
			}
		case look.is("{"):
			// The brace of a chain is the last of its line; a set ends on its line.
			if look.peek().kind != tokenLine {
				end = look.skipSet()
				continue
			}
			depth++
		case depth > 0 && look.is("table"):
			r.tokens = look
			if r.headsTable() {
				break rest
			}
		case look.tok.kind == tokenHash && !strings.HasPrefix(look.peek().text, "xt_"):
			r.tokens = look
			if depth == 0 {
				rule.Handle = r.handle(rule.Handle)
			} else {
				r.remark()
			}
			look = r.tokens
			continue
		case depth == 0 && look.is("comment") && look.peek().kind == tokenString:
			last := look
			last.advance()
			text := last.tok.text
			last.advance()
			if last.atEnd() || last.tok.kind == tokenHash {
				rule.Comment = strings.Clone(text)
				look = last
				continue
			}
		}
		end = look.tok.to
		look.advance()
	}
	r.tokens = look
	text := strings.TrimSpace(r.text[from.from:max(end, from.from)])
	rule.Statements = append(rule.Statements, &Unreadable{Text: shorten(text), Why: err.Error()})
	r.problem(line, r.lineText(from), "%s", err)
}

// statement reads one statement.
func (r *textReader) statement() (Statement, error) {
	if r.tok.kind != tokenWord {
		return r.expressionStatement()
	}
	switch word := r.tok.text; word {
	case "accept", "drop", "continue", "return", "break", "jump", "goto":
		v, err := r.verdict()
		return v, err
	case "counter":
		return r.counter()
	case "limit":
		return r.limitStatement()
	case "quota":
		return r.quotaStatement()
	case "ct":
		if s, ok, err := r.ctStatement(); ok || err != nil {
			return s, err
		}
	case "meta":
		if s, ok := r.secmark(); ok {
			return s, nil
		}
	case "log":
		return r.log()
	case "reject":
		return r.reject()
	case "notrack":
		r.advance()
		return NoTrack{}, nil
	case "snat", "dnat", "masquerade", "redirect":
		return r.nat()
	case "tproxy":
		return r.tproxy()
	case "synproxy":
		return r.synproxy()
	case "dup", "fwd":
		return r.copyTo()
	case "queue":
		return r.queue()
	case "flow":
		return r.flow()
	case "add", "update", "delete":
		return r.setUpdate()
	case "meter":
		return r.meter()
	case "reset":
		r.advance()
		e, err := r.primary()
		if err != nil {
			return nil, err
		}
		return &Passing{Name: "reset", Text: "reset " + ExpressionText(e)}, nil
	case "last":
		return r.last()
	case "xt":
		return r.extension()
	}
	return r.expressionStatement()
}

func (r *textReader) verdict() (*Verdict, error) {
	kind, ok := verdictKind(r.tok.text)
	if !ok || r.tok.kind != tokenWord {
		return nil, r.unknown("a verdict")
	}
	r.advance()
	v := &Verdict{Kind: kind}
	if kind != Jump && kind != Goto {
		return v, nil
	}
	if r.is("{") {
		return r.inlineChain(v)
	}
	if r.tok.kind != tokenWord && r.tok.kind != tokenString {
		return nil, r.unknown("the name of a chain")
	}
	v.Chain = r.name(r.tok.text)
	r.advance()
	return v, nil
}

// inlineChain reads the rules of "jump { … }" into a chain. The kernel calls it __chainN; a listing does not.
func (r *textReader) inlineChain(v *Verdict) (*Verdict, error) {
	if r.depth >= maxDepth {
		return nil, fmt.Errorf("chains in braces are nested too deep")
	}
	at := r.tok
	name := ""
	for {
		name = "__chain" + strconv.Itoa(r.inline)
		r.inline++
		if r.table.Chain(name) == nil {
			break
		}
	}
	c := r.table.AddChain(name)
	c.Inline, c.Line = true, r.lineOf(at.line)
	r.advance()
	r.depth++
	r.rules(r.table, c, at)
	r.depth--
	v.Chain = name
	return v, nil
}

// expressionStatement reads what begins with an expression: a match, an assignment, a verdict map.
func (r *textReader) expressionStatement() (Statement, error) {
	before := r.tokens
	left, err := r.concat(nil)
	if err != nil {
		// A constant among what is looked up is of the type that the set has there.
		key := r.keyLookedUp()
		if key == nil {
			return nil, err
		}
		r.tokens = before
		if left, err = r.concat(key); err != nil {
			return nil, err
		}
	}
	switch {
	case r.accept("set"):
		fields := r.table.ExpressionFields(left)
		value, err := r.value(fields)
		if err != nil {
			return nil, err
		}
		return assignment(left, value), nil
	case r.accept("vmap"):
		m, err := r.mapping(left, anonymousMap{verdicts: true})
		if err != nil {
			return nil, err
		}
		return &VerdictMap{Key: left, Map: m}, nil
	}
	return r.match(left)
}

// keyLookedUp are the fields of the key of the next set that the line names.
func (r *textReader) keyLookedUp() []Field {
	for look := r.tokens; !look.atEnd(); look.advance() {
		if name, ok := strings.CutPrefix(look.tok.text, "@"); ok && look.tok.kind == tokenWord {
			if s := r.table.Set(name); s != nil {
				return s.Key
			}
		}
	}
	return nil
}

func (r *textReader) match(left Expr) (Statement, error) {
	m := &Match{Left: left, Op: "=="}
	explicit := true
	switch {
	case r.accept("=="), r.accept("eq"):
	case r.accept("!="), r.accept("ne"):
		m.Op = "!="
	case r.is("<"), r.is(">"), r.is("<="), r.is(">="):
		m.Op = r.wordName()
	case r.accept("!"):
		m.Op, m.AnyBit = "!=", true
	default:
		explicit = false
	}
	if r.is("exists") || r.is("missing") {
		m.Left = askPresence(left)
	}
	fields := r.table.ExpressionFields(m.Left)
	if len(fields) == 1 && typeOf(fields[0].Type).flags && !r.is("{") && !strings.HasPrefix(r.tok.text, "@") {
		return r.flagMatch(m, fields[0], explicit)
	}
	right, err := r.compared(fields)
	if err != nil {
		return nil, err
	}
	m.Right = right
	return m, nil
}

// flagMatch reads the right side of a comparison of flags: "syn", "syn,ack" (any of them), "syn | ack" (these and no
// others), "syn / syn,ack,rst" (of three, this one).
func (r *textReader) flagMatch(m *Match, f Field, explicit bool) (Statement, error) {
	value, listed, ored, err := r.flagValue(f)
	if err != nil {
		return nil, err
	}
	_, calculated := m.Left.(*Binary)
	switch {
	case r.accept("/"):
		mask, _, _, err := r.flagValue(f)
		if err != nil {
			return nil, err
		}
		m.Left = &Binary{Op: "&", Left: m.Left, Right: &Const{Type: f.Type, Data: mask}}
	case calculated:
	case listed || !explicit && !ored:
		m.AnyBit = true
	}
	m.Right = &Const{Type: f.Type, Data: value}
	return normalMatch(m), nil
}

// flagValue reads flags with "," or "|" between them.
func (r *textReader) flagValue(f Field) (value []byte, listed, ored bool, err error) {
	paren := r.accept("(")
	for {
		if r.tok.kind != tokenWord && r.tok.kind != tokenString {
			return nil, false, false, r.unknown("a flag")
		}
		one, err := parseValue(f, r.tok.text)
		if err != nil {
			return nil, false, false, err
		}
		value = orValue(value, one)
		r.advance()
		switch {
		case r.is(",") && !r.tok.spaced:
			listed = true
		case r.is("|"):
			ored = true
		default:
			if paren && !r.accept(")") {
				return nil, false, false, r.unknown(`")"`)
			}
			return value, listed, ored, nil
		}
		r.advance()
	}
}

func (r *textReader) counter() (Statement, error) {
	r.advance()
	if r.accept("name") {
		return r.named("counter", func(name string) Statement { return &Counter{Name: name} })
	}
	c := &Counter{}
	if r.is("packets") {
		r.advance()
		var err error
		if c.Packets, err = r.number(64); err != nil {
			return nil, err
		}
		if !r.accept("bytes") {
			return nil, r.unknown(`"bytes"`)
		}
		if c.Bytes, err = r.number(64); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// named reads the name of an object, or a map that chooses one.
func (r *textReader) named(kind string, of func(name string) Statement) (Statement, error) {
	if r.tok.kind == tokenString {
		name := r.name(r.tok.text)
		r.advance()
		return of(name), nil
	}
	if r.tok.kind == tokenWord && !r.beginsExpression() {
		return of(r.wordName()), nil
	}
	key, err := r.concat(nil)
	if err != nil {
		return nil, err
	}
	if !r.accept("map") {
		return nil, r.unknown(`"map"`)
	}
	m, err := r.mapping(key, anonymousMap{objects: kind})
	if err != nil {
		return nil, err
	}
	return &ObjectRef{Kind: kind, Map: &MapExpr{Key: key, Map: m}}, nil
}

func (r *textReader) number(bits int) (uint64, error) {
	n, err := strconv.ParseUint(r.tok.text, 0, bits)
	if err != nil || r.tok.kind != tokenWord {
		return 0, r.unknown("a number")
	}
	r.advance()
	return n, nil
}

func (r *textReader) limitStatement() (Statement, error) {
	r.advance()
	if r.accept("name") {
		return r.named("limit", func(name string) Statement { return &Limit{Name: name} })
	}
	return r.rate()
}

// rate reads "rate over 10/second burst 5 packets", "rate 10 kbytes/second burst 2 mbytes".
func (r *textReader) rate() (*Limit, error) {
	if !r.accept("rate") {
		return nil, r.unknown(`"rate"`)
	}
	l := &Limit{}
	if r.accept("over") {
		l.Over = true
	} else {
		r.accept("until")
	}
	if r.tok.kind != tokenWord {
		return nil, r.unknown("a rate")
	}
	number, unit, ok := strings.Cut(r.tok.text, "/")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return nil, r.unknown("a rate")
	}
	r.advance()
	l.Rate, l.Burst = n, defaultBurst
	if !ok {
		var of string
		of, unit, ok = strings.Cut(r.tok.text, "/")
		scale, known := unitBytes(of)
		if !ok || !known || n > 1<<63/scale || r.tok.kind != tokenWord {
			return nil, r.unknown("a rate")
		}
		l.Bytes, l.Rate, l.Burst = true, n*scale, 0
		r.advance()
	}
	if l.Per, ok = periodNamed(unit); !ok {
		return nil, fmt.Errorf("a rate for each %q is not known", unit)
	}
	if !r.accept("burst") {
		return l, nil
	}
	if l.Burst, err = r.number(64); err != nil {
		return nil, err
	}
	if r.accept("packets") {
		return l, nil
	}
	l.Burst, err = r.scaled(l.Burst)
	return l, err
}

// scaled reads the unit behind a number.
func (r *textReader) scaled(n uint64) (uint64, error) {
	scale, ok := unitBytes(r.tok.text)
	if !ok || r.tok.kind != tokenWord || n > 1<<63/scale {
		return 0, r.unknown("a unit")
	}
	r.advance()
	return n * scale, nil
}

func (r *textReader) quotaStatement() (Statement, error) {
	r.advance()
	if r.accept("name") {
		return r.named("quota", func(name string) Statement { return &Quota{Name: name} })
	}
	q := &Quota{}
	if r.accept("over") {
		q.Over = true
	} else {
		r.accept("until")
	}
	n, err := r.number(64)
	if err != nil {
		return nil, err
	}
	if q.Bytes, err = r.scaled(n); err != nil {
		return nil, err
	}
	if r.accept("used") {
		if n, err = r.number(64); err != nil {
			return nil, err
		}
		q.Used, err = r.scaled(n)
	}
	return q, err
}

// ctStatement reads what begins with ct and is no expression; ok is false for others.
func (r *textReader) ctStatement() (s Statement, ok bool, err error) {
	look := r.tokens
	look.advance()
	what := look.tok.text
	look.advance()
	switch what {
	case "count":
		r.tokens = look
		c := &ConnLimit{Over: r.accept("over")}
		n, err := r.number(32)
		c.Count = uint32(n)
		return c, true, err
	case "helper", "timeout", "expectation":
		if !look.accept("set") {
			return nil, false, nil
		}
		r.tokens = look
		kind := r.name("ct " + what)
		s, err := r.named(kind, func(name string) Statement { return &ObjectRef{Kind: kind, Name: name} })
		return s, true, err
	}
	return nil, false, nil
}

// secmark reads `meta secmark set "name"`.
func (r *textReader) secmark() (Statement, bool) {
	look := r.tokens
	look.advance()
	if !look.accept("secmark") || !look.accept("set") || look.tok.kind != tokenString {
		return nil, false
	}
	s := &ObjectRef{Kind: "secmark", Name: r.name(look.tok.text)}
	look.advance()
	r.tokens = look
	return s, true
}

// logOptions is a log statement.
type logOptions struct {
	prefix      string
	hasPrefix   bool
	numbers     [3]string // group, snaplen, queue-threshold
	level       string
	tcp, others []string
	allFlags    bool
}

var logNumbers = [3]string{"group", "snaplen", "queue-threshold"}

func (r *textReader) log() (Statement, error) {
	r.advance()
	var o logOptions
	for {
		switch {
		case r.accept("prefix"):
			if r.tok.kind != tokenString && r.tok.kind != tokenWord {
				return nil, r.unknown("a prefix")
			}
			o.prefix, o.hasPrefix = r.tok.text, true
			r.advance()
		case r.accept("level"):
			o.level = r.wordName()
		case r.accept("flags"):
			if err := r.logFlag(&o); err != nil {
				return nil, err
			}
		case r.is(logNumbers[0]), r.is(logNumbers[1]), r.is(logNumbers[2]):
			which := r.tok.text
			r.advance()
			n, err := r.number(32)
			if err != nil {
				return nil, err
			}
			for i, name := range logNumbers {
				if name == which {
					o.numbers[i] = strconv.FormatUint(n, 10)
				}
			}
		default:
			return &Passing{Name: "log", Text: o.text()}, nil
		}
	}
}

func (r *textReader) logFlag(o *logOptions) error {
	switch {
	case r.accept("all"):
		o.allFlags = true
	case r.accept("skuid"):
		o.others = append(o.others, "skuid")
	case r.accept("ether"):
		o.others = append(o.others, "ether")
	case r.accept("ip"):
		if !r.accept("options") {
			return r.unknown(`"options"`)
		}
		o.others = append(o.others, "ip options")
	case r.accept("tcp"):
		for {
			switch {
			case r.accept("sequence"):
				o.tcp = append(o.tcp, "sequence")
			case r.accept("options"):
				o.tcp = append(o.tcp, "options")
			default:
				return r.unknown("a flag of log")
			}
			if !r.accept(",") {
				return nil
			}
		}
	default:
		return r.unknown("a flag of log")
	}
	return nil
}

// text is a log statement as printed (log_stmt_print).
func (o *logOptions) text() string {
	text := "log"
	if o.hasPrefix {
		text += ` prefix "` + o.prefix + `"`
	}
	for i, n := range o.numbers {
		if n != "" {
			text += " " + logNumbers[i] + " " + n
		}
	}
	if o.level != "" && o.level != "warn" {
		text += " level " + o.level
	}
	if o.allFlags {
		return text + " flags all"
	}
	if len(o.tcp) > 0 {
		text += " flags tcp " + strings.Join(o.tcp, ",")
	}
	for _, f := range o.others {
		text += " flags " + f
	}
	return text
}

func (r *textReader) reject() (Statement, error) {
	r.advance()
	if !r.accept("with") {
		return &Reject{}, nil
	}
	if r.accept("tcp") {
		if !r.accept("reset") {
			return nil, r.unknown(`"reset"`)
		}
		return &Reject{With: "tcp reset"}, nil
	}
	kind := r.wordName()
	switch kind {
	case "icmp", "icmpv6", "icmpx":
	default:
		return nil, fmt.Errorf("reject with %q is not known", kind)
	}
	r.accept("type") // as nft before 1.0.3 prints it
	if r.tok.kind != tokenWord {
		return nil, r.unknown("a code")
	}
	code := r.tok.text
	r.advance()
	return rejectWith(kind, codeName(kind, code), r.table.Family), nil
}

// rejectWith is a reject with a code of ICMP. Port unreachable is the default: of ICMP only where the table is of one
// family, because nft names it elsewhere (stmt_reject_postprocess).
func rejectWith(kind, code string, f Family) *Reject {
	if code == "port-unreachable" && (kind == "icmpx" || f == IP || f == IP6) {
		return &Reject{}
	}
	return &Reject{With: kind + " " + code}
}

func (r *textReader) nat() (Statement, error) {
	n := &NAT{Kind: NATKind(r.wordName())}
	if r.is("ip") || r.is("ip6") {
		n.Family = Family(r.wordName())
	}
	for {
		switch {
		case r.accept("prefix"):
			n.NetMap = true
			continue
		case r.accept("interval"): // as nft 0.9 prints it, as the next
			continue
		case r.is("addr"):
			for r.accept("addr") || r.accept(".") || r.accept("port") {
			}
			continue
		}
		break
	}
	if r.accept("to") {
		var err error
		if n.Addr, n.Port, err = r.endpoint(n.Family); err != nil {
			return nil, err
		}
	}
	for {
		switch {
		case r.accept("random"):
			n.Random = true
		case r.accept("fully-random"):
			n.FullyRandom = true
		case r.accept("persistent"):
			n.Persistent = true
		default:
			return n, nil
		}
		if !r.accept(",") {
			return n, nil
		}
	}
}

// endpoint reads an address, a port or both: "10.0.0.1", "10.0.0.1-10.0.0.9:80-90", "[fe80::1]:80", ":80", or maps that
// give them.
func (r *textReader) endpoint(f Family) (addr, port Expr, err error) {
	fields := addressFields(f, r.table.Family)
	service := []Field{fieldOf(TypeService)}
	if r.tok.kind != tokenWord {
		return nil, nil, r.unknown("an address")
	}
	if !strings.HasPrefix(r.tok.text, ":") {
		if r.beginsExpression() {
			if addr, err = r.mapped(fields); err != nil {
				return nil, nil, err
			}
		} else {
			if fields == nil {
				fields = addressFieldsOf(addressPart(r.tok.text))
			}
			if addr, err = r.addressWord(fields[0]); err != nil {
				return nil, nil, err
			}
		}
	}
	if r.tok.kind == tokenWord && strings.HasPrefix(r.tok.text, ":") && (addr == nil || !r.tok.spaced) {
		r.cut(1)
		if port, err = r.value(service); err != nil {
			return nil, nil, err
		}
	}
	return addr, port, nil
}

// addressPart is an address without what stands behind it, enough to tell its family.
func addressPart(word string) string {
	if strings.HasPrefix(word, "[") {
		return "::"
	}
	if strings.Count(word, ":") == 1 {
		word, _, _ = strings.Cut(word, ":")
	}
	return word
}

// addressWord reads an address, range or prefix from the beginning of a word, up to the colon before a port.
func (r *textReader) addressWord(f Field) (Expr, error) {
	word := r.tok.text
	end := len(word)
	text := word
	switch {
	case strings.HasPrefix(word, "["):
		i := strings.LastIndexByte(word, ']')
		if i < 0 {
			return nil, fmt.Errorf("%q is no address", word)
		}
		end = i + 1
		text = strings.NewReplacer("[", "", "]", "").Replace(word[:end])
	case f.Type == TypeIPv4:
		if i := strings.IndexByte(word, ':'); i >= 0 {
			end, text = i, word[:i]
		}
	}
	e, err := wordConstant(f, text)
	if err != nil {
		return nil, err
	}
	if end == len(word) {
		r.advance()
	} else {
		r.cut(end)
	}
	return e, nil
}

// mapped reads an expression that gives an address, or an address and a port.
func (r *textReader) mapped(fields []Field) (Expr, error) {
	key, err := r.concat(nil)
	if err != nil {
		return nil, err
	}
	if !r.accept("map") {
		return key, nil
	}
	if r.is("{") && r.mapsToPair() {
		fields = append(append([]Field(nil), fields...), fieldOf(TypeService))
	}
	m, err := r.mapping(key, anonymousMap{data: fields})
	if err != nil {
		return nil, err
	}
	return &MapExpr{Key: key, Map: m}, nil
}

// mapsToPair tells whether the first element of a map has data of two parts.
func (r *textReader) mapsToPair() bool {
	look := r.tokens
	colon := false
	for range 64 { // an element has a handful of words
		look.advance()
		switch {
		case look.is(":"):
			colon = true
		case look.is(","), look.is("}"), look.tok.kind == tokenLine, look.tok.kind == tokenEnd:
			return false
		case look.is(".") && colon:
			return true
		}
	}
	return false
}

func (r *textReader) tproxy() (Statement, error) {
	r.advance()
	t := &TProxy{}
	if r.is("ip") || r.is("ip6") {
		t.Family = Family(r.wordName())
	}
	if !r.accept("to") {
		return nil, r.unknown(`"to"`)
	}
	var err error
	t.Addr, t.Port, err = r.endpoint(t.Family)
	return t, err
}

func (r *textReader) synproxy() (Statement, error) {
	r.advance()
	if r.accept("name") {
		return r.named("synproxy", func(name string) Statement { return &ObjectRef{Kind: "synproxy", Name: name} })
	}
	text := "synproxy"
	for r.is("mss") || r.is("wscale") || r.is("timestamp") || r.is("sack-perm") {
		word := r.wordName()
		text += " " + word
		if word == "mss" || word == "wscale" {
			n, err := r.number(32)
			if err != nil {
				return nil, err
			}
			text += " " + strconv.FormatUint(n, 10)
		}
	}
	return &Passing{Name: "synproxy", Text: text}, nil
}

func (r *textReader) copyTo() (Statement, error) {
	kind := r.wordName()
	device := []Field{{Type: TypeIfindex, Size: ifNameSize}}
	var family Family
	if r.is("ip") || r.is("ip6") {
		family = Family(r.wordName())
	}
	if !r.accept("to") {
		if kind == "dup" {
			return &Passing{Name: kind, Text: kind}, nil
		}
		return nil, r.unknown(`"to"`)
	}
	var addr, dev Expr
	want := addressFields(family, r.table.Family)
	if want == nil && r.tok.kind == tokenWord && !r.beginsExpression() {
		want = addressFieldsOf(r.tok.text)
	}
	if r.tok.kind == tokenString || want == nil {
		want = device
	}
	to, err := r.value(want)
	if err != nil {
		return nil, err
	}
	if want[0].Type == TypeIfindex && kind == "fwd" && family == "" {
		dev = to
	} else {
		addr = to
	}
	if r.accept("device") {
		if dev, err = r.value(device); err != nil {
			return nil, err
		}
	}
	return &Passing{Name: kind, Text: copyText(kind, family, addr, dev)}, nil
}

func (r *textReader) queue() (Statement, error) {
	r.advance()
	q := &Queue{Num: "0"}
	for {
		switch {
		case r.accept("flags"):
		case r.accept("num"), r.accept("to"):
			e, err := r.value([]Field{{Type: TypeInteger, Size: 2}})
			if err != nil {
				return nil, err
			}
			q.Num = ExpressionText(e)
		case r.accept("bypass"):
			q.Bypass = true
			r.accept(",")
		case r.accept("fanout"):
			q.Fanout = true
			r.accept(",")
		default:
			return q, nil
		}
	}
}

func (r *textReader) flow() (Statement, error) {
	r.advance()
	if !r.accept("add") && !r.accept("offload") {
		return nil, r.unknown(`"add"`)
	}
	name, ok := strings.CutPrefix(r.tok.text, "@")
	if !ok || r.tok.kind != tokenWord {
		return nil, r.unknown("a flowtable")
	}
	r.advance()
	return &FlowOffload{Table: r.name(name)}, nil
}

// setUpdate reads "add @set { ip saddr timeout 1m limit rate 1/second : 80 }".
func (r *textReader) setUpdate() (Statement, error) {
	u := &SetUpdate{Op: r.wordName()}
	name, ok := strings.CutPrefix(r.tok.text, "@")
	if !ok || name == "" || r.tok.kind != tokenWord {
		return nil, r.unknown("a set")
	}
	u.Set = r.name(name)
	r.advance()
	return u, r.updated(u)
}

func (r *textReader) meter() (Statement, error) {
	r.advance()
	u := &SetUpdate{Op: "meter"}
	if !r.is("{") && !r.is("size") {
		u.Set = r.wordName()
	}
	if r.accept("size") {
		n, err := r.number(31)
		if err != nil {
			return nil, err
		}
		u.Size = int(n)
	}
	return u, r.updated(u)
}

// updated reads the braces of a change of a set.
func (r *textReader) updated(u *SetUpdate) error {
	if !r.accept("{") {
		return r.unknown(`"{"`)
	}
	var key, data []Field
	if s := r.table.Set(u.Set); s != nil {
		key, data = s.Key, s.Data
	}
	var err error
	if u.Key, err = r.concat(key); err != nil {
		return err
	}
	for !r.accept("}") {
		switch {
		case r.accept("timeout"):
			if u.Timeout, err = parseDuration(r.tok.text); err != nil {
				return err
			}
			r.advance()
		case r.accept(":"):
			if u.Data, err = r.value(data); err != nil {
				return err
			}
		default:
			s, err := r.elementStatement()
			if err != nil {
				return err
			}
			u.Statements = append(u.Statements, s)
		}
	}
	return nil
}

// elementStatement reads a statement that an element of a set can have.
func (r *textReader) elementStatement() (Statement, error) {
	switch {
	case r.is("counter"), r.is("limit"), r.is("quota"), r.is("last"), r.is("ct"):
		return r.statement()
	}
	return nil, r.unknown("a statement of an element")
}

func (r *textReader) last() (Statement, error) {
	r.advance()
	text := "last used never"
	if r.accept("used") && !r.accept("never") {
		d, err := parseDuration(r.tok.text)
		if err != nil {
			return nil, err
		}
		r.advance()
		text = "last used " + string(appendDuration(nil, d))
	}
	return &Passing{Name: "last", Text: text}, nil
}

// extension reads `xt match "comment"`.
func (r *textReader) extension() (Statement, error) {
	r.advance()
	x := &XT{Kind: r.wordName()}
	switch x.Kind {
	case "match", "target", "watcher":
	default:
		return nil, fmt.Errorf("the kind %q of an extension is not known", x.Kind)
	}
	if r.tok.kind != tokenString && r.tok.kind != tokenWord {
		return nil, r.unknown("an extension")
	}
	x.Name = r.name(r.tok.text)
	r.advance()
	return x, nil
}
