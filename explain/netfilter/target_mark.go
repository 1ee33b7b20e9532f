package netfilter

var markTarget = action{
	name: "MARK",
	save: func(*arena) targetReader { return new(markOptions) },
	list: listMarkTarget,
}

// markOptions reads the five spellings of MARK into the one that the kernel keeps.
type markOptions struct {
	SetMark
	set bool
}

func (t *markOptions) option(o *option) bool {
	m, ok := o.xmark()
	if ok {
		t.SetMark, t.set = m, true
	}
	return ok
}

func (t *markOptions) done(p *ruleReader) Target {
	if !t.set {
		const why = "no mark is shown"
		p.fail("-j MARK", why)
		return Unreadable{Name: "MARK", Why: why}
	}
	return t.SetMark
}

// xmark reads --set-xmark V/M, --set-mark V/M (which also clears the bits of V), --and-mark, --or-mark and
// --xor-mark.
func (o *option) xmark() (SetMark, bool) {
	switch o.name {
	case "--set-xmark":
		v, m := o.masked()
		return SetMark{Value: v, Mask: m}, true
	case "--set-mark":
		v, m := o.masked()
		return SetMark{Value: v, Mask: m | v}, true
	case "--and-mark":
		return andMark(uint32(o.number(32))), true
	case "--or-mark":
		return orMark(uint32(o.number(32))), true
	case "--xor-mark":
		return xorMark(uint32(o.number(32))), true
	}
	return SetMark{}, false
}

func andMark(v uint32) SetMark { return SetMark{Mask: ^v} }
func orMark(v uint32) SetMark  { return SetMark{Value: v, Mask: v} }
func xorMark(v uint32) SetMark { return SetMark{Value: v} }

// listMarkTarget reads "MARK set 0x5", "MARK xset 0x5/0xff", "MARK and|or|xor 0x4000".
func listMarkTarget(l *listing) Target {
	if !l.word("MARK") {
		return nil
	}
	m, ok := l.xmark(l.next())
	if !ok {
		return nil
	}
	return m
}

// xmark reads the value of one of the listed spellings.
func (l *listing) xmark(op string) (SetMark, bool) {
	v, m, ok := parseMasked(l.peek())
	if !ok {
		return SetMark{}, false
	}
	switch op {
	case "set", "xset":
		l.next()
		return SetMark{Value: v, Mask: m}, true
	case "and":
		l.next()
		return andMark(v), true
	case "or":
		l.next()
		return orMark(v), true
	case "xor":
		l.next()
		return xorMark(v), true
	}
	return SetMark{}, false
}
