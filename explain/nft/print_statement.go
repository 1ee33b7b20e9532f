package nft

import "time"

func (p *printer) rule(r *Rule) {
	p.statements(r.Statements, p.stateless)
	if r.Comment != "" {
		p.str(" comment ")
		p.quoted(r.Comment)
	}
}

// statements writes statements one behind the other.
func (p *printer) statements(list []Statement, stateless bool) {
	was := p.stateless
	p.stateless = stateless
	for i, s := range list {
		if i > 0 {
			p.str(" ")
		}
		p.statement(s)
	}
	p.stateless = was
}

func (p *printer) statement(s Statement) {
	switch s := s.(type) {
	case *Match:
		p.match(s)
	case *Verdict:
		p.verdict(s)
	case *VerdictMap:
		p.expr(s.Key)
		p.str(" vmap ")
		p.expr(s.Map)
	case *Counter:
		p.str("counter")
		switch {
		case s.Name != "":
			p.str(" name ")
			p.quoted(s.Name)
		case !p.stateless:
			p.str(" packets ")
			p.uint(s.Packets)
			p.str(" bytes ")
			p.uint(s.Bytes)
		}
	case *Assign:
		p.expr(s.To)
		p.str(" set ")
		p.assigned(s)
	case *NAT:
		p.nat(s)
	case *Reject:
		p.str("reject")
		if s.With != "" {
			p.str(" with ", s.With)
		}
	case NoTrack:
		p.str("notrack")
	case *Limit:
		p.limit(s)
	case *Quota:
		p.quota(s)
	case *ConnLimit:
		p.str("ct count ")
		if s.Over {
			p.str("over ")
		}
		p.uint(uint64(s.Count))
	case *SetUpdate:
		p.setUpdate(s)
	case *Queue:
		p.str("queue")
		switch {
		case s.Bypass && s.Fanout:
			p.str(" flags bypass,fanout")
		case s.Bypass:
			p.str(" flags bypass")
		case s.Fanout:
			p.str(" flags fanout")
		}
		num := s.Num
		if num == "" {
			num = "0"
		}
		p.str(" to ", num)
	case *TProxy:
		p.tproxy(s)
	case *Passing:
		if s.Name == "last" && p.stateless {
			p.str("last")
			return
		}
		p.str(s.Text)
	case *FlowOffload:
		p.str("flow add @", s.Table)
	case *ObjectRef:
		switch s.Kind {
		case "ct helper", "ct timeout", "ct expectation":
			p.str(s.Kind, " set ")
		case "secmark":
			p.str("meta secmark set ")
		default:
			p.str(s.Kind, " name ")
		}
		if s.Map != nil {
			p.expr(s.Map)
		} else {
			p.quoted(s.Name)
		}
	case *XT:
		switch {
		case s.Name == "":
			// What nft translates to nothing, such as -m comment.
		case s.Kind == "":
			p.str("# xt_", s.Name)
		default:
			p.str("xt ", s.Kind, " ")
			p.quoted(s.Name)
		}
	case *Unreadable:
		p.str(s.Text)
	}
}

func (p *printer) verdict(v *Verdict) {
	p.str(string(v.Kind))
	if v.Kind != Jump && v.Kind != Goto {
		return
	}
	if p.table != nil {
		if c := p.table.Chain(v.Chain); c != nil && c.Inline && p.depth < maxDepth {
			p.inline(c)
			return
		}
	}
	p.str(" ", v.Chain)
}

// maxDepth bounds rules in braces and expressions in parentheses: the kernel takes 16 jumps (NFT_JUMP_STACK_SIZE).
const maxDepth = 64

// inline writes the rules of a chain that stands in braces.
func (p *printer) inline(c *Chain) {
	p.depth++
	if p.oneLine {
		p.str(" { ")
		for i, r := range c.Rules {
			if i > 0 {
				p.str("; ")
			}
			p.rule(r)
		}
		p.str(" }")
	} else {
		// nft indents the rules by one more than those around whatever the depth (chain_stmt_print).
		p.str(" {\n")
		for _, r := range c.Rules {
			p.str("\t\t\t")
			p.rule(r)
			p.str("\n")
		}
		p.str("\t\t}")
	}
	p.depth--
}

// match writes a comparison. nft leaves out "==" but for single flags ("tcp flags == syn", which is not "tcp flags
// syn") and behind calculations (must_print_eq_op).
func (p *printer) match(m *Match) {
	if p.flagMatch(m) {
		return
	}
	p.expr(m.Left)
	right, isConst := m.Right.(*Const)
	if m.AnyBit {
		if m.Op == "!=" {
			p.str(" ! ")
		} else {
			p.str(" ")
		}
		p.flags(m.Right)
		return
	}
	_, calculated := m.Left.(*Binary)
	if isConst && typeOf(right.Type).flags {
		if _, field := m.Left.(*Payload); field && !popcountAtMostOne(right.Data) {
			// Of a field of the packet nft does not take the flags apart (payload_match_postprocess).
			v, _ := number(right.Data)
			p.str(" ", m.Op, " ")
			p.b = appendHex(p.b, v, 0)
			return
		}
		calculated = calculated || popcountAtMostOne(right.Data)
	}
	if m.Op == "==" && !calculated {
		p.str(" ")
	} else {
		p.str(" ", m.Op, " ")
	}
	p.expr(m.Right)
}

// flagMatch writes the comparison of some flags of a field, "tcp flags syn / fin,syn,rst,ack"
// (relational_binop_postprocess), and false for any other. One flag by itself is compared as numbers are.
func (p *printer) flagMatch(m *Match) bool {
	left, ok := m.Left.(*Binary)
	if !ok || left.Op != "&" || m.AnyBit || (m.Op != "==" && m.Op != "!=") {
		return false
	}
	mask, ok := left.Right.(*Const)
	value, ok2 := m.Right.(*Const)
	if !ok || !ok2 || !typeOf(value.Type).flags {
		return false
	}
	v, fits := number(value.Data)
	n, fits2 := number(mask.Data)
	if !fits || !fits2 {
		return false
	}
	switch {
	case v == 0:
		p.expr(left.Left)
		if m.Op == "==" {
			p.str(" ! ")
		} else {
			p.str(" ")
		}
		p.flags(mask)
	case v == n && popcountAtMostOne(value.Data):
		return false
	default:
		p.expr(left.Left)
		if m.Op == "!=" {
			p.str(" != ")
		} else {
			p.str(" ")
		}
		p.flags(value)
		p.str(" / ")
		p.flags(mask)
	}
	return true
}

func popcountAtMostOne(data []byte) bool {
	seen := false
	for _, b := range data {
		if b&(b-1) != 0 || b != 0 && seen {
			return false
		}
		seen = seen || b != 0
	}
	return true
}

// flags writes bits with commas between them.
func (p *printer) flags(e Expr) {
	if c, ok := e.(*Const); ok {
		p.value(typeOf(c.Type), c.Data, ",")
		return
	}
	p.expr(e)
}

// assigned writes the value of an assignment: events of connections stand with commas.
func (p *printer) assigned(s *Assign) {
	if _, ok := s.To.(*CT); ok {
		p.flags(s.Value)
		return
	}
	p.expr(s.Value)
}

func (p *printer) nat(s *NAT) {
	p.str(string(s.Kind))
	if s.Addr != nil || s.Port != nil {
		if s.Family != "" {
			p.str(" ", string(s.Family))
		}
		if s.NetMap {
			p.str(" prefix")
		}
		p.str(" to ")
	}
	if s.Addr != nil {
		p.address(s.Addr, s.Port != nil)
	}
	if s.Port != nil {
		p.str(":")
		p.expr(s.Port)
	}
	sep := " "
	for _, f := range [...]struct {
		name string
		set  bool
	}{{"random", s.Random}, {"fully-random", s.FullyRandom}, {"persistent", s.Persistent}} {
		if f.set {
			p.str(sep, f.name)
			sep = ","
		}
	}
}

// address writes an address, one of IPv6 in brackets where a port follows.
func (p *printer) address(e Expr, brackets bool) {
	in := func(c *Const) {
		if brackets && c.Type == TypeIPv6 {
			p.str("[")
			p.expr(c)
			p.str("]")
		} else {
			p.expr(c)
		}
	}
	switch e := e.(type) {
	case *Const:
		in(e)
	case *Range:
		in(e.Lo)
		p.str("-")
		in(e.Hi)
	default:
		p.expr(e)
	}
}

func (p *printer) tproxy(s *TProxy) {
	p.str("tproxy")
	if s.Family != "" {
		p.str(" ", string(s.Family))
	}
	p.str(" to ")
	if s.Addr != nil {
		p.address(s.Addr, true)
	}
	if s.Port != nil {
		p.str(":")
		p.expr(s.Port)
	}
}

// unitOf is the largest unit that a number of bytes is a multiple of (get_rate).
func unitOf(bytes uint64) (n uint64, unit string) {
	switch {
	case bytes != 0 && bytes%(1<<20) == 0:
		return bytes >> 20, "mbytes"
	case bytes != 0 && bytes%(1<<10) == 0:
		return bytes >> 10, "kbytes"
	}
	return bytes, "bytes"
}

func (p *printer) bytes(n uint64) {
	n, unit := unitOf(n)
	p.uint(n)
	p.str(" ", unit)
}

// rateUnits are the periods of a rate by nft's names.
var rateUnits = []struct {
	name string
	per  time.Duration
}{
	{"second", time.Second}, {"minute", time.Minute}, {"hour", time.Hour}, {"day", 24 * time.Hour},
	{"week", 7 * 24 * time.Hour},
}

func rateUnit(d time.Duration) string {
	for _, u := range rateUnits {
		if u.per == d {
			return u.name
		}
	}
	return "error" // what nft prints (get_unit)
}

// defaultBurst is the burst of a limit that names none (nft's src/parser_bison.y); nft 1.0.6 prints any other.
const defaultBurst = 5

func (p *printer) limit(s *Limit) {
	p.str("limit ")
	if s.Name != "" {
		p.str("name ")
		p.quoted(s.Name)
		return
	}
	p.rate(s)
}

// rate is the body of a limit, named or not.
func (p *printer) rate(s *Limit) {
	p.str("rate ")
	if s.Over {
		p.str("over ")
	}
	if s.Bytes {
		p.bytes(s.Rate)
	} else {
		p.uint(s.Rate)
	}
	p.str("/", rateUnit(s.Per))
	switch {
	case s.Bytes && s.Burst != 0:
		p.str(" burst ")
		p.bytes(s.Burst)
	case !s.Bytes && s.Burst != 0 && s.Burst != defaultBurst:
		p.str(" burst ")
		p.uint(s.Burst)
		p.str(" packets")
	}
}

func (p *printer) quota(s *Quota) {
	p.str("quota ")
	if s.Name != "" {
		p.str("name ")
		p.quoted(s.Name)
		return
	}
	if s.Over {
		p.str("over ")
	}
	p.bytes(s.Bytes)
	if s.Used != 0 && !p.stateless {
		p.str(" used ")
		p.bytes(s.Used)
	}
}

func (p *printer) setUpdate(s *SetUpdate) {
	if s.Op == "meter" {
		p.str("meter ", s.Set, " size ")
		p.int(s.Size)
		p.str(" { ")
	} else {
		p.str(s.Op, " @", s.Set, " { ")
	}
	p.expr(s.Key)
	if s.Timeout > 0 {
		p.str(" timeout ")
		p.b = appendDuration(p.b, s.Timeout)
	}
	if len(s.Statements) > 0 {
		p.str(" ")
		p.statements(s.Statements, true)
	}
	if s.Data != nil {
		p.str(" : ")
		p.expr(s.Data)
	}
	p.str(" }")
}
