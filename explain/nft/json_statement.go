package nft

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// statement reads a statement of a rule. One that cannot be read is an Unreadable and a problem.
func (j *jsonReader) statement(v jsonValue) []Statement {
	switch v.kind() {
	case jsonString:
		// nft writes what it has no form for as text ("jump { … }", "update @map { … }").
		return j.textStatements(v)
	case jsonObject:
		if v.size() >= 1 {
			return j.member(v.first())
		}
	}
	return []Statement{j.unreadable(v, fmt.Errorf("not a statement"))}
}

// member reads a statement from the member of an object that it is.
func (j *jsonReader) member(v jsonValue) []Statement {
	s, err := j.readStatement(v)
	if err != nil {
		return []Statement{j.unreadable(v, err)}
	}
	return []Statement{s}
}

func (j *jsonReader) unreadable(v jsonValue, err error) Statement {
	text := v.raw()
	if k := v.key(); k != "" {
		text = strconv.Quote(k) + ": " + text
	}
	j.problem(text, "%s", err)
	return &Unreadable{Text: shorten(text), Why: err.Error()}
}

// object says that a statement has members, and fails where it has none.
func needObject(v jsonValue) error {
	if v.kind() != jsonObject {
		return fmt.Errorf("%s: %s says nothing", v.key(), shorten(v.raw()))
	}
	return nil
}

func (j *jsonReader) readStatement(v jsonValue) (Statement, error) {
	switch kind := v.key(); kind {
	case "match":
		return j.match(v)
	case "accept", "drop", "continue", "return", "break":
		return &Verdict{Kind: VerdictKind(kind)}, nil
	case "jump", "goto":
		target := v.text("target")
		if target == "" {
			return nil, fmt.Errorf("%s leads nowhere", kind)
		}
		return &Verdict{Kind: VerdictKind(kind), Chain: j.name(target)}, nil
	case "vmap":
		return j.verdictMap(v)
	case "counter":
		switch {
		case v.isString():
			return &Counter{Name: j.name(v.str())}, nil
		case v.kind() == jsonNull:
			return &Counter{}, nil
		}
		if _, ok := v.member("map"); ok {
			return j.objectRef(v)
		}
		return &Counter{Packets: uintMember(v, "packets"), Bytes: uintMember(v, "bytes")}, nil
	case "mangle":
		return j.mangle(v)
	case "snat", "dnat", "masquerade", "redirect":
		return j.nat(v)
	case "reject":
		return j.reject(v)
	case "notrack":
		return NoTrack{}, nil
	case "limit":
		switch {
		case v.isString():
			return &Limit{Name: j.name(v.str())}, nil
		case has(v, "map"):
			return j.objectRef(v)
		}
		return readLimit(v)
	case "quota":
		switch {
		case v.isString():
			return &Quota{Name: j.name(v.str())}, nil
		case has(v, "map"):
			return j.objectRef(v)
		}
		return readQuota(v)
	case "ct count":
		return &ConnLimit{Over: boolMember(v, "inv"), Count: uint32(uintMember(v, "val"))}, needObject(v)
	case "set", "map":
		return j.setUpdate(v)
	case "meter":
		return j.meter(v)
	case "queue":
		return j.queue(v)
	case "tproxy":
		return j.tproxy(v)
	case "flow":
		name, ok := strings.CutPrefix(v.text("flowtable"), "@")
		if !ok {
			return nil, fmt.Errorf("flow: no flowtable is named")
		}
		return &FlowOffload{Table: j.name(name)}, nil
	case "ct helper", "ct timeout", "ct expectation", "secmark":
		return j.objectRef(v)
	case "synproxy":
		if v.isString() || has(v, "map") {
			return j.objectRef(v)
		}
		return &Passing{Name: "synproxy", Text: synproxyText(v, " ")}, nil
	case "log":
		return &Passing{Name: "log", Text: logText(v)}, nil
	case "last":
		return &Passing{Name: "last", Text: lastText(v)}, nil
	case "dup", "fwd":
		return j.copyTo(v)
	case "reset":
		e, err := j.expr(v, nil)
		if err != nil {
			return nil, err
		}
		return &Passing{Name: "reset", Text: "reset " + ExpressionText(e)}, nil
	case "xt":
		if v.kind() == jsonNull {
			// nft before 1.0.3 says no more.
			return nil, fmt.Errorf("an extension of iptables of which the capture says nothing")
		}
		return &XT{Kind: j.name(v.text("type")), Name: j.name(v.text("name"))}, nil
	default:
		return nil, fmt.Errorf("the statement %q is not known", kind)
	}
}

func has(v jsonValue, member string) bool {
	_, ok := v.member(member)
	return ok
}

func (j *jsonReader) match(v jsonValue) (Statement, error) {
	left, ok := v.member("left")
	right, ok2 := v.member("right")
	if !ok || !ok2 {
		return nil, fmt.Errorf("a match has two sides")
	}
	l, err := j.leftSide(left, right)
	if err != nil {
		return nil, err
	}
	if right.kind() == jsonTrue || right.kind() == jsonFalse {
		l = askPresence(l)
	}
	r, err := j.expr(right, j.table.ExpressionFields(l))
	if err != nil {
		return nil, err
	}
	m := &Match{Left: l, Op: "==", Right: r}
	switch op := v.text("op"); op {
	case "==", "!=", "<", ">", "<=", ">=":
		m.Op = j.name(op)
	case "in", "":
		// "in" is written where the text has no operator: for flags, any of which will do.
		m.AnyBit = isFlags(r)
	case "!":
		m.Op, m.AnyBit = "!=", true
	default:
		return nil, fmt.Errorf("the operator %q is not known", op)
	}
	return normalMatch(m), nil
}

// leftSide reads the left side of a comparison. An address of a connection without a family (nft 1.0.6 in tables of inet)
// is of the family of what it is compared with.
func (j *jsonReader) leftSide(left, right jsonValue) (Expr, error) {
	ct, ok := left.member("ct")
	if !ok || has(ct, "family") {
		var key []Field
		if name, ok := strings.CutPrefix(right.node().str, "@"); ok && right.isString() {
			if s := j.table.Set(name); s != nil {
				key = s.Key
			}
		}
		if !has(left, "concat") {
			key = nil
		}
		return j.expr(left, key)
	}
	family := j.table.Family
	if text, ok := firstString(right); ok && family != IP && family != IP6 {
		family = IP
		if strings.Contains(text, ":") {
			family = IP6
		}
	}
	return ctExpr(j.name(ct.text("dir")), "", j.name(ct.text("key")), family)
}

// isFlags tells whether an expression is a constant of bits that have a meaning each.
func isFlags(e Expr) bool {
	c, ok := e.(*Const)
	return ok && typeOf(c.Type).flags
}

// askPresence makes of a field whose presence is asked what it then is: "fib saddr oif missing".
func askPresence(e Expr) Expr {
	switch e := e.(type) {
	case *Fib:
		e.Exists = true
	case *ExtHdr:
		e.Exists = true
		if kind, ok := strings.CutPrefix(e.Name, "@"); ok {
			e.Name, _, _ = strings.Cut(kind, ",")
		}
	}
	return e
}

// normalMatch gives one form to a comparison that can be written in several: "ct state & (new | established) != 0" is
// "ct state new,established" (relational_binop_postprocess).
func normalMatch(m *Match) *Match {
	left, ok := m.Left.(*Binary)
	if !ok || left.Op != "&" || m.AnyBit || m.Op != "==" && m.Op != "!=" {
		return m
	}
	mask, ok := left.Right.(*Const)
	value, ok2 := m.Right.(*Const)
	if !ok || !ok2 || !typeOf(value.Type).flags {
		return m
	}
	for _, b := range value.Data {
		if b != 0 {
			return m
		}
	}
	op := "=="
	if m.Op == "==" {
		op = "!="
	}
	return &Match{Left: left.Left, Op: op, Right: mask, AnyBit: true}
}

func (j *jsonReader) verdictMap(v jsonValue) (Statement, error) {
	key, data, err := j.mapParts(v)
	if err != nil {
		return nil, err
	}
	k, err := j.expr(key, nil)
	if err != nil {
		return nil, err
	}
	m, err := j.mapping(k, data, anonymousMap{verdicts: true})
	if err != nil {
		return nil, err
	}
	return &VerdictMap{Key: k, Map: m}, nil
}

func (j *jsonReader) mapParts(v jsonValue) (key, data jsonValue, err error) {
	key, ok := v.member("key")
	data, ok2 := v.member("data")
	if !ok || !ok2 {
		return key, data, fmt.Errorf("%s has no key or no data", shorten(v.raw()))
	}
	return key, data, nil
}

// objectRef reads a statement that uses a named object, or one that a map chooses.
func (j *jsonReader) objectRef(v jsonValue) (Statement, error) {
	kind := j.name(v.key())
	if v.isString() {
		return &ObjectRef{Kind: kind, Name: j.name(v.str())}, nil
	}
	m, ok := v.member("map")
	if !ok {
		return nil, fmt.Errorf("%s: %s names no object", kind, shorten(v.raw()))
	}
	key, data, err := j.mapParts(m)
	if err != nil {
		return nil, err
	}
	k, err := j.expr(key, nil)
	if err != nil {
		return nil, err
	}
	set, err := j.mapping(k, data, anonymousMap{objects: kind})
	if err != nil {
		return nil, err
	}
	return &ObjectRef{Kind: kind, Map: &MapExpr{Key: k, Map: set}}, nil
}

func (j *jsonReader) mangle(v jsonValue) (Statement, error) {
	key, ok := v.member("key")
	value, ok2 := v.member("value")
	if !ok || !ok2 {
		return nil, fmt.Errorf("nothing is set")
	}
	to, err := j.expr(key, nil)
	if err != nil {
		return nil, err
	}
	e, err := j.expr(value, j.table.ExpressionFields(to))
	if err != nil {
		return nil, err
	}
	return assignment(to, e), nil
}

// assignment is a statement that sets a field; "meta nftrace set 1" has no effect on the packet.
func assignment(to, value Expr) Statement {
	a := &Assign{To: to, Value: value}
	if m, ok := to.(*Meta); ok && m.Key == "nftrace" {
		p := printer{}
		p.statement(a)
		return &Passing{Name: "meta nftrace", Text: string(p.b)}
	}
	return a
}

func (j *jsonReader) nat(v jsonValue) (Statement, error) {
	n := &NAT{Kind: NATKind(j.name(v.key()))}
	if v.kind() == jsonNull {
		return n, nil
	}
	if err := needObject(v); err != nil {
		return nil, err
	}
	n.Family = Family(j.name(v.text("family")))
	for _, f := range v.texts("flags") {
		switch f {
		case "random":
			n.Random = true
		case "fully-random":
			n.FullyRandom = true
		case "persistent":
			n.Persistent = true
		case "netmap":
			n.NetMap = true
		default:
			return nil, fmt.Errorf("the flag %q of %s is not known", f, n.Kind)
		}
	}
	for _, f := range v.texts("type_flags") {
		n.NetMap = n.NetMap || f == "prefix"
	}
	var err error
	if addr, ok := v.member("addr"); ok {
		if n.Addr, err = j.natAddress(addr, n.Family); err != nil {
			return nil, err
		}
	}
	if port, ok := v.member("port"); ok {
		if n.Port, err = j.expr(port, []Field{fieldOf(TypeService)}); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// natAddress reads the address of a translation, or a map that gives it, with a port or without.
func (j *jsonReader) natAddress(v jsonValue, f Family) (Expr, error) {
	fields := addressFields(f, j.table.Family)
	if fields == nil {
		if text, ok := firstString(v); ok {
			fields = addressFieldsOf(text)
		}
	}
	if m, ok := v.member("map"); ok {
		if data, ok := m.member("data"); ok && mapsToConcat(data) {
			fields = append(fields, fieldOf(TypeService))
		}
	}
	return j.expr(v, fields)
}

// addressFields is the type of an address that a translation takes: of its own family, or the table's.
func addressFields(f, table Family) []Field {
	for _, family := range [...]Family{f, table} {
		switch family {
		case IP:
			return []Field{fieldOf(TypeIPv4)}
		case IP6:
			return []Field{fieldOf(TypeIPv6)}
		}
	}
	return nil
}

// addressFieldsOf is the type of an address as it is written.
func addressFieldsOf(text string) []Field {
	if strings.Contains(text, ":") {
		return []Field{fieldOf(TypeIPv6)}
	}
	return []Field{fieldOf(TypeIPv4)}
}

// firstString is an address of an expression that holds one: itself, of a prefix or a range.
func firstString(v jsonValue) (string, bool) {
	for range 4 {
		switch {
		case v.isString():
			return v.str(), true
		case v.size() == 0:
			return "", false
		}
		v = v.first()
	}
	return "", false
}

// mapsToConcat tells whether the elements of an anonymous map have data of two parts.
func mapsToConcat(data jsonValue) bool {
	set, ok := data.member("set")
	if !ok || set.kind() != jsonArray || set.size() == 0 {
		return false
	}
	pair := set.first()
	if pair.kind() != jsonArray || pair.size() != 2 {
		return false
	}
	return has(jsonValue{pair.s, pair.first().node().next}, "concat")
}

// reject reads what is answered. Port unreachable is the default: of ICMP only where the table is of one family,
// because nft always names the family elsewhere (stmt_reject_postprocess).
func (j *jsonReader) reject(v jsonValue) (Statement, error) {
	if v.kind() != jsonObject {
		return &Reject{}, nil
	}
	kind := v.text("type")
	code := ""
	if e, ok := v.member("expr"); ok {
		switch e.kind() {
		case jsonString:
			code = e.str()
		case jsonNumber:
			code = codeName(kind, e.str())
		default:
			return nil, fmt.Errorf("reject: %s is no code", shorten(e.raw()))
		}
	}
	switch kind {
	case "tcp reset":
		return &Reject{With: "tcp reset"}, nil
	case "icmpx":
		if code == "port-unreachable" {
			return &Reject{}, nil
		}
	case "icmp", "icmpv6":
		if code == "port-unreachable" && (j.table.Family == IP || j.table.Family == IP6) {
			return &Reject{}, nil
		}
	default:
		return nil, fmt.Errorf("reject with %q is not known", kind)
	}
	return &Reject{With: j.name(kind + " " + code)}, nil
}

// codeName is a code of ICMP by its number.
func codeName(kind, number string) string {
	t := TypeICMPCode
	switch kind {
	case "icmpx":
		t = TypeICMPXCode
	case "icmpv6":
		t = TypeICMPv6Code
	}
	if n, err := strconv.ParseUint(number, 10, 8); err == nil {
		return t.Text([]byte{byte(n)})
	}
	return number
}

// unitBytes is what a unit of an amount stands for.
func unitBytes(unit string) (uint64, bool) {
	switch unit {
	case "", "bytes":
		return 1, true
	case "kbytes":
		return 1 << 10, true
	case "mbytes":
		return 1 << 20, true
	}
	return 0, false
}

// amount is a number of bytes with a unit in a member beside it.
func amount(v jsonValue, name, unit string) (uint64, error) {
	n := uintMember(v, name)
	u, ok := unitBytes(v.text(unit))
	if !ok || n > 1<<63/u {
		return 0, fmt.Errorf("%d %q is no amount", n, v.text(unit))
	}
	return n * u, nil
}

func readLimit(v jsonValue) (*Limit, error) {
	if err := needObject(v); err != nil {
		return nil, err
	}
	l := &Limit{Over: boolMember(v, "inv")}
	ok := false
	if l.Per, ok = periodNamed(v.text("per")); !ok {
		return nil, fmt.Errorf("a rate for each %q is not known", v.text("per"))
	}
	if l.Bytes = v.text("rate_unit") != "" && v.text("rate_unit") != "packets"; !l.Bytes {
		l.Rate = uintMember(v, "rate")
		l.Burst = uintMember(v, "burst")
		if !has(v, "burst") {
			l.Burst = defaultBurst
		}
		return l, nil
	}
	var err error
	if l.Rate, err = amount(v, "rate", "rate_unit"); err != nil {
		return nil, err
	}
	l.Burst, err = amount(v, "burst", "burst_unit")
	return l, err
}

func periodNamed(name string) (time.Duration, bool) {
	for _, u := range rateUnits {
		if u.name == name {
			return u.per, true
		}
	}
	return 0, false
}

func readQuota(v jsonValue) (*Quota, error) {
	if err := needObject(v); err != nil {
		return nil, err
	}
	q := &Quota{Over: boolMember(v, "inv")}
	var err error
	if q.Bytes, err = amount(v, "val", "val_unit"); err != nil {
		return nil, err
	}
	q.Used, err = amount(v, "used", "used_unit")
	return q, err
}

// setUpdate reads {"set": {"op": "add", "elem": …, "set": "@name"}}, and of maps {"map": {…, "data": …, "map": "@name"}}.
func (j *jsonReader) setUpdate(v jsonValue) (Statement, error) {
	name, ok := strings.CutPrefix(v.text(v.key()), "@")
	elem, ok2 := v.member("elem")
	if !ok || !ok2 {
		return nil, fmt.Errorf("%s: no set or no element is named", v.key())
	}
	u := &SetUpdate{Op: j.name(v.text("op")), Set: j.name(name)}
	switch u.Op {
	case "add", "update", "delete":
	default:
		return nil, fmt.Errorf("the change %q of a set is not known", u.Op)
	}
	if err := j.updated(u, elem); err != nil {
		return nil, err
	}
	if data, ok := v.member("data"); ok {
		var want []Field
		if s := j.table.Set(u.Set); s != nil {
			want = s.Data
		}
		var err error
		if u.Data, err = j.expr(data, want); err != nil {
			return nil, err
		}
	}
	if list, ok := v.member("stmt"); ok {
		for s := range list.children {
			u.Statements = append(u.Statements, j.statement(s)...)
		}
	}
	return u, nil
}

// updated reads the key of an element that a rule adds, and how long it lives.
func (j *jsonReader) updated(u *SetUpdate, elem jsonValue) (err error) {
	if e, ok := elem.member("elem"); ok {
		u.Timeout = seconds(e, "timeout")
		if elem, ok = e.member("val"); !ok {
			return fmt.Errorf("the element has no value")
		}
	}
	var want []Field
	if s := j.table.Set(u.Set); s != nil {
		want = s.Key
	}
	u.Key, err = j.expr(elem, want)
	return err
}

func (j *jsonReader) meter(v jsonValue) (Statement, error) {
	key, ok := v.member("key")
	st, ok2 := v.member("stmt")
	if !ok || !ok2 {
		return nil, fmt.Errorf("the meter has no key or no statement")
	}
	u := &SetUpdate{Op: "meter", Set: j.name(v.text("name")), Size: int(min(uintMember(v, "size"), 1<<31-1))}
	if err := j.updated(u, key); err != nil {
		return nil, err
	}
	u.Statements = j.statement(st)
	return u, nil
}

func (j *jsonReader) queue(v jsonValue) (Statement, error) {
	q := &Queue{Num: "0"}
	if v.kind() == jsonNull {
		return q, nil
	}
	if err := needObject(v); err != nil {
		return nil, err
	}
	for _, f := range v.texts("flags") {
		switch f {
		case "bypass":
			q.Bypass = true
		case "fanout":
			q.Fanout = true
		default:
			return nil, fmt.Errorf("the flag %q of queue is not known", f)
		}
	}
	if num, ok := v.member("num"); ok {
		e, err := j.expr(num, []Field{{Type: TypeInteger, Size: 2}})
		if err != nil {
			return nil, err
		}
		q.Num = ExpressionText(e)
	}
	return q, nil
}

func (j *jsonReader) tproxy(v jsonValue) (Statement, error) {
	if err := needObject(v); err != nil {
		return nil, err
	}
	t := &TProxy{Family: Family(j.name(v.text("family")))}
	var err error
	if addr, ok := v.member("addr"); ok {
		if t.Addr, err = j.natAddress(addr, t.Family); err != nil {
			return nil, err
		}
	}
	if port, ok := v.member("port"); ok {
		if t.Port, err = j.expr(port, []Field{fieldOf(TypeService)}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// copyTo reads dup and fwd, which send a packet or a copy of it through another interface.
func (j *jsonReader) copyTo(v jsonValue) (Statement, error) {
	kind := v.key()
	var addr, dev Expr
	var err error
	device := []Field{{Type: TypeIfindex, Size: ifNameSize}}
	if d, ok := v.member("dev"); ok {
		if dev, err = j.expr(d, device); err != nil {
			return nil, err
		}
	}
	family := Family(v.text("family"))
	if a, ok := v.member("addr"); ok {
		want := device
		if j.table.Family != Netdev || family != "" {
			if want = addressFields(family, j.table.Family); want == nil {
				text, _ := firstString(a)
				want = addressFieldsOf(text)
			}
		}
		if addr, err = j.expr(a, want); err != nil {
			return nil, err
		}
	}
	return &Passing{Name: kind, Text: copyText(kind, family, addr, dev)}, nil
}

// copyText is dup or fwd as printed.
func copyText(kind string, family Family, addr, dev Expr) string {
	text := kind
	if kind == "fwd" && addr != nil {
		text += " " + string(family)
	}
	if addr == nil && dev == nil {
		return text
	}
	text += " to "
	if addr == nil {
		return text + ExpressionText(dev)
	}
	text += ExpressionText(addr)
	if dev != nil {
		text += " device " + ExpressionText(dev)
	}
	return text
}
