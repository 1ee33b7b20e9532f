package netfilter

import (
	"net/netip"
	"strconv"
	"strings"
)

var (
	dnatTarget       = translation("DNAT", DNAT)
	snatTarget       = translation("SNAT", SNAT)
	redirectTarget   = translation("REDIRECT", Redirect)
	masqueradeTarget = translation("MASQUERADE", Masquerade)
	netmapTarget     = translation("NETMAP", NetMap)
)

func translation(name string, kind TranslateKind) action {
	return action{
		name: name,
		save: func(a *arena) targetReader {
			t := a.translate.new()
			t.Kind = kind
			return t
		},
		list: func(l *listing) Target { return listTranslate(l, kind) },
	}
}

func (t *Translate) option(o *option) bool {
	switch o.name {
	case "--to-destination", "--to-source", "--to-ports", "--to":
		v := o.value()
		if !t.to(v) {
			o.fail("%q is not an address or port to translate to", v)
		}
	default:
		return t.flag(strings.TrimPrefix(o.name, "--"))
	}
	return true
}

func (t *Translate) flag(name string) bool {
	switch name {
	case "random":
		t.Random = true
	case "random-fully":
		t.RandomFully = true
	case "persistent":
		t.Persistent = true
	default:
		return false
	}
	return true
}

// done notes the family, and refuses DNAT and SNAT without a destination or source: an iptables that is older
// than the kernel's rule prints nothing, or zeros, in its place.
func (t *Translate) done(p *ruleReader) Target {
	if t.Min.IsValid() {
		p.count(t.Min.Is4())
	}
	if why := t.missing(); why != "" {
		p.fail("-j "+p.named, why)
		return Unreadable{Name: p.named, Why: why}
	}
	return t
}

func (t *Translate) missing() string {
	switch t.Kind {
	case DNAT, SNAT:
		if !t.Min.IsValid() && t.MaxPort == 0 || t.Min.IsValid() && t.Min.IsUnspecified() {
			return "no address or port to translate to is shown"
		}
	case NetMap:
		if !t.Prefix.IsValid() {
			return "no prefix to translate to is shown"
		}
	}
	return ""
}

// to reads what a packet is translated to.
func (t *Translate) to(s string) bool {
	switch t.Kind {
	case NetMap:
		prefix, _, ok := parseAddress(s)
		t.Prefix = prefix
		return ok && prefix.IsValid()
	case Redirect, Masquerade:
		return t.ports(s)
	}
	return t.endpoint(s)
}

// endpoint reads A, A-B, A:PORTS, :PORTS and, for IPv6, [A]:PORTS and [A-B]:PORTS.
func (t *Translate) endpoint(s string) bool {
	addrs, ports := s, ""
	switch {
	case strings.HasPrefix(s, "["):
		var ok bool
		if addrs, ports, ok = strings.Cut(s[1:], "]"); !ok || ports != "" && ports[0] != ':' {
			return false
		}
		ports = strings.TrimPrefix(ports, ":")
	case strings.HasPrefix(s, ":") && !strings.HasPrefix(s, "::"):
		addrs, ports = "", s[1:]
	case strings.Count(s, ":") == 1:
		addrs, ports, _ = strings.Cut(s, ":")
	}
	if addrs != "" {
		lo, hi, isRange := strings.Cut(addrs, "-")
		a, err := netip.ParseAddr(lo)
		if err != nil {
			return false
		}
		t.Min, t.Max = a, a
		if isRange {
			if t.Max, err = netip.ParseAddr(hi); err != nil {
				return false
			}
		}
	}
	return ports == "" && addrs != "" || t.ports(ports)
}

// ports reads PORT, MIN-MAX and MIN-MAX/BASE.
func (t *Translate) ports(s string) bool {
	s, base, shifted := strings.Cut(s, "/")
	lo, hi, isRange := strings.Cut(s, "-")
	if !isRange {
		hi = lo
	}
	var ok bool
	if t.MinPort, ok = parsePort(lo); !ok {
		return false
	}
	if t.MaxPort, ok = parsePort(hi); !ok {
		return false
	}
	if shifted {
		t.BasePort, ok = parsePort(base)
	}
	return ok
}

// listTranslate reads "to:10.0.0.1:80 random persistent", "redir ports 8080", "masq ports: 1024-2048 random-fully".
func listTranslate(l *listing, kind TranslateKind) Target {
	t := l.arena.translate.new()
	t.Kind = kind
	var (
		v  string
		ok bool
	)
	switch kind {
	case Redirect:
		v, ok = l.after("redir", "ports")
	case Masquerade:
		v, ok = l.after("masq", "ports:")
	default:
		v, ok = l.value("to:")
	}
	if ok && !t.to(v) {
		return nil
	}
	for t.flag(l.peek()) {
		l.next()
	}
	if t.missing() != "" {
		return nil
	}
	return t
}

// String is what a packet is translated to, as --to-destination takes it.
func (t *Translate) String() string {
	if t.Kind == NetMap {
		return t.Prefix.String()
	}
	var b strings.Builder
	ports := t.MaxPort != 0
	if t.Min.IsValid() {
		addrs := t.Min.String()
		if t.Max != t.Min {
			addrs += "-" + t.Max.String()
		}
		if ports && t.Min.Is6() {
			addrs = "[" + addrs + "]"
		}
		b.WriteString(addrs)
	}
	if ports {
		if t.Kind == DNAT || t.Kind == SNAT {
			b.WriteByte(':')
		}
		b.WriteString(strconv.Itoa(int(t.MinPort)))
		if t.MaxPort != t.MinPort {
			b.WriteString("-" + strconv.Itoa(int(t.MaxPort)))
		}
		if t.BasePort != 0 {
			b.WriteString("/" + strconv.Itoa(int(t.BasePort)))
		}
	}
	return b.String()
}
