package netfilter

import (
	"net/netip"
	"strconv"
	"strings"
)

var tproxyTarget = action{
	name: "TPROXY",
	save: func(*arena) targetReader { return new(TProxy) },
	list: listTProxy,
}

func (t *TProxy) option(o *option) bool {
	switch o.name {
	case "--on-port":
		t.Port = uint16(o.number(16))
	case "--on-ip":
		t.on(o.addr())
	case "--tproxy-mark":
		t.Value, t.Mask = o.masked()
	default:
		return false
	}
	return true
}

// on keeps an address that is one; the unspecified address means the interface's.
func (t *TProxy) on(a netip.Addr) {
	if !a.IsUnspecified() {
		t.Addr = a
	}
}

func (t *TProxy) done(*ruleReader) Target { return t }

// listTProxy reads "TPROXY redirect 127.0.0.1:15001 mark 0x1/0x1".
func listTProxy(l *listing) Target {
	at, ok := l.after("TPROXY", "redirect")
	if !ok {
		return nil
	}
	colon := strings.LastIndexByte(at, ':')
	if colon < 0 {
		return nil
	}
	port, err := strconv.ParseUint(at[colon+1:], 10, 16)
	if err != nil {
		return nil
	}
	a, err := netip.ParseAddr(at[:colon])
	if err != nil {
		return nil
	}
	t := &TProxy{Port: uint16(port)}
	t.on(a)
	if v, ok := l.after("mark"); ok {
		if t.Value, t.Mask, ok = parseMasked(v); !ok {
			return nil
		}
	}
	return t
}
