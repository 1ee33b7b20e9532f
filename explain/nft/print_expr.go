package nft

import "strings"

func (p *printer) expr(e Expr) {
	switch e := e.(type) {
	case *Payload:
		if strings.HasPrefix(e.Protocol, "@") {
			p.str(e.Protocol, ",")
			p.int(e.Offset)
			p.str(",")
			p.int(e.Bits)
			return
		}
		p.str(e.Protocol, " ", e.Field)
	case *Meta:
		switch e.Key {
		case "iif", "oif", "iifname", "oifname", "iifgroup", "oifgroup":
		default:
			p.str("meta ")
		}
		p.str(e.Key)
	case *CT:
		p.str("ct ")
		if e.Dir != "" {
			p.str(e.Dir, " ")
		}
		if e.Family != "" {
			p.str(string(e.Family), " ")
		}
		p.str(e.Key)
	case *Fib:
		p.str("fib ", strings.Join(e.Flags, " . "), " ", e.Result)
	case *Numgen:
		p.str("numgen ", e.Mode, " mod ")
		p.uint(uint64(e.Mod))
		p.offset(e.Offset)
	case *Hash:
		if e.Of == nil {
			p.str("symhash mod ")
		} else {
			p.str("jhash ")
			p.expr(e.Of)
			p.str(" mod ")
		}
		p.uint(uint64(e.Mod))
		if e.HasSeed {
			p.str(" seed ")
			p.b = appendHex(p.b, uint64(e.Seed), 0)
		}
		p.offset(e.Offset)
	case *Socket:
		p.str("socket ", e.Key)
		if e.Key == "cgroupv2" {
			p.str(" level ")
			p.int(e.Level)
		}
	case *RT:
		p.str("rt ", e.Key)
	case *ExtHdr:
		switch {
		case e.Kind != "exthdr":
			p.str(e.Kind, " ", e.Name)
		case e.Exists:
			p.str("exthdr ", e.Name)
		default:
			p.str(e.Name)
		}
		if !e.Exists && e.Field != "" {
			p.str(" ", e.Field)
		}
	case *Other:
		p.str(e.Text)
	case *Const:
		p.value(typeOf(e.Type), e.Data, " | ")
	case *Range:
		was := p.numeric
		p.numeric = true
		p.expr(e.Lo)
		p.str("-")
		p.expr(e.Hi)
		p.numeric = was
	case *Prefix:
		p.prefix(e)
	case *Concat:
		for i, part := range e.Parts {
			if i > 0 {
				p.str(" . ")
			}
			p.expr(part)
		}
	case *Binary:
		p.operand(e.Op, e.Left)
		p.str(" ", e.Op, " ")
		p.operand(e.Op, e.Right)
	case *MapExpr:
		p.expr(e.Key)
		p.str(" map ")
		p.expr(e.Map)
	case SetRef:
		p.str("@", e.Name)
	case SetLit:
		p.elements(e.Set)
	}
}

func (p *printer) offset(n uint32) {
	if n != 0 {
		p.str(" offset ")
		p.uint(uint64(n))
	}
}

// prefix writes a prefix of an address or a number, or the beginning of a name with a star.
func (p *printer) prefix(e *Prefix) {
	if typeOf(e.Value.Type).print == text {
		n := min(e.Bits/8, len(e.Value.Data))
		p.str(`"`, strings.TrimRight(string(e.Value.Data[:n]), "\x00"), `*"`)
		return
	}
	p.expr(e.Value)
	p.str("/")
	p.int(e.Bits)
}

// precedence of operators, the tightest first (expr_binop_precedence).
func precedence(op string) int {
	switch op {
	case "<<", ">>":
		return 1
	case "&":
		return 2
	case "^":
		return 3
	case "|":
		return 4
	}
	return 0
}

// operand writes one side of a calculation, in parentheses where it would bind less than the operator. Several flags
// are themselves a calculation with "|".
func (p *printer) operand(op string, e Expr) {
	inner := ""
	switch e := e.(type) {
	case *Binary:
		inner = e.Op
	case *Const:
		if typeOf(e.Type).flags && !popcountAtMostOne(e.Data) {
			inner = "|"
		}
	}
	if inner != "" && precedence(op) < precedence(inner) {
		p.str("(")
		p.expr(e)
		p.str(")")
		return
	}
	p.expr(e)
}
