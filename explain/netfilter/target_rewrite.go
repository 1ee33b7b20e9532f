package netfilter

import (
	"strconv"
	"strings"
)

// The targets that rewrite what a chain of type route compares (see rewritten).
var (
	dscpTarget = rewriting(Rewrite{Name: "DSCP", Mask: 0xfc})
	ecnTarget  = rewriting(Rewrite{Name: "ECN"})
	hlTarget   = rewriting(Rewrite{Name: "HL", Hops: true, Mask: 0xff})
	tosTarget  = rewriting(Rewrite{Name: "TOS", Mask: 0xff})
)

func rewriting(t Rewrite) action {
	return action{
		name: t.Name,
		save: func(*arena) targetReader {
			unread := t
			unread.Open = t.Mask != 0
			return &rewriteOptions{unread}
		},
		list: t.listed,
	}
}

// rewriteOptions reads DSCP, TOS, ECN and HL. What is not read leaves open what is written.
type rewriteOptions struct{ Rewrite }

func (t *rewriteOptions) option(o *option) bool {
	switch o.name {
	case "--set-dscp":
		t.Value, t.Open = uint8(o.number(6))<<2, false
	case "--hl-set":
		t.Value, t.Open = uint8(o.number(8)), false
	case "--set-tos":
		if value, mask, ok := parseMasked(o.value()); ok {
			t.set(value, mask)
		}
	case "--ecn-ip-ect":
		t.Value, t.Mask = uint8(o.number(2)), 0x03
	default:
		skipValues(o.words)
	}
	return true
}

func (t *rewriteOptions) done(*ruleReader) Target { return t.Rewrite }

// set takes VALUE or VALUE/MASK.
func (t *Rewrite) set(value, mask uint32) { t.Value, t.Mask, t.Open = uint8(value), uint8(mask), false }

// listed reads "DSCP set 0x0a", "HL set to 33" and "TOS set|and|or|xor 0x10/0x3f"; other words leave open what is
// written.
func (t Rewrite) listed(l *listing) Target {
	t.Open = t.Mask != 0
	switch {
	case !l.word(t.Name):
	case t.Name == "TOS":
		op := l.next()
		if m, ok := l.xmark(op); ok {
			t.set(m.Value, m.Mask)
		} else if v, ok := tosNames[strings.TrimPrefix(op, "set")]; ok {
			t.set(v, 0x3f)
		}
	case t.Name == "DSCP" && l.word("set"):
		if n, err := strconv.ParseUint(l.next(), 0, 6); err == nil {
			t.Value, t.Open = uint8(n)<<2, false
		}
	case t.Name == "HL" && l.word("set", "to"):
		if n, err := strconv.ParseUint(l.next(), 0, 8); err == nil {
			t.Value, t.Open = uint8(n), false
		}
	}
	l.i = len(l.s)
	return t
}

// tosNames are what iptables prints behind "TOS set", with no blank between, where the mask is 0x3f.
var tosNames = map[string]uint32{
	"Normal-Service": 0x00, "Minimize-Cost": 0x02, "Maximize-Reliability": 0x04, "Maximize-Throughput": 0x08, "Minimize-Delay": 0x10,
}
