package netfilter

import (
	"strconv"
	"strings"
)

var connmarkTarget = action{
	name: "CONNMARK",
	save: func(*arena) targetReader {
		return &connmarkOptions{ConnMark: ConnMark{NFMask: 0xffffffff, CTMask: 0xffffffff}}
	},
	list: listConnmarkTarget,
}

// connmarkOptions reads CONNMARK.
type connmarkOptions struct {
	ConnMark
	set bool
}

func (t *connmarkOptions) option(o *option) bool {
	if m, ok := o.xmark(); ok {
		t.Op, t.Value, t.Mask, t.set = ConnMarkSet, m.Value, m.Mask, true
		return true
	}
	switch o.name {
	case "--save-mark":
		t.Op, t.set = ConnMarkSave, true
	case "--restore-mark":
		t.Op, t.set = ConnMarkRestore, true
	case "--nfmask":
		t.NFMask = uint32(o.number(32))
	case "--ctmask":
		t.CTMask = uint32(o.number(32))
	case "--mask":
		t.NFMask = uint32(o.number(32))
		t.CTMask = t.NFMask
	default:
		return false
	}
	return true
}

func (t *connmarkOptions) done(p *ruleReader) Target {
	if !t.set {
		const why = "what is done with the mark is not shown"
		p.fail("-j CONNMARK", why)
		return Unreadable{Name: "CONNMARK", Why: why}
	}
	return t.ConnMark
}

// listConnmarkTarget reads "CONNMARK save|restore [mask M|nfmask N ctmask C]" and the spellings of MARK. iptables
// prints a "~" before one of two masks that differ; the number is the mask all the same.
func listConnmarkTarget(l *listing) Target {
	if !l.word("CONNMARK") {
		return nil
	}
	t := ConnMark{NFMask: 0xffffffff, CTMask: 0xffffffff}
	switch op := l.next(); op {
	case "save":
		t.Op = ConnMarkSave
	case "restore":
		t.Op = ConnMarkRestore
	default:
		m, ok := l.xmark(op)
		if !ok {
			return nil
		}
		t.Op, t.Value, t.Mask = ConnMarkSet, m.Value, m.Mask
		return t
	}
	for {
		which := l.peek()
		if which != "mask" && which != "nfmask" && which != "ctmask" {
			return t
		}
		l.next()
		n, err := strconv.ParseUint(strings.TrimPrefix(l.next(), "~"), 0, 32)
		if err != nil {
			return nil
		}
		if which != "ctmask" {
			t.NFMask = uint32(n)
		}
		if which != "nfmask" {
			t.CTMask = uint32(n)
		}
	}
}
