package ipset

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// options reads what a set was made with: "family inet hashsize 1024 maxelem 65536 …".
func (r *reader) options(s *Set, n int, line, header string) {
	words := strings.Fields(header)
	for i, w := range words {
		// The family counts wherever it stands; a netmask is one of that family.
		if w == "family" && i+1 < len(words) && (words[i+1] == "inet6" || words[i+1] == "ipv6") || w == "-6" {
			s.Family = 6
		}
	}
	for i := 0; i < len(words); i++ {
		value := func() string {
			if i++; i < len(words) {
				return words[i]
			}
			return ""
		}
		ok := true
		switch words[i] {
		case "family":
			switch value() {
			case "inet", "inet6", "ipv4", "ipv6":
			default:
				ok = false
			}
		case "-4", "-6":
		case "netmask":
			var bits int
			v := value()
			if bits, ok = number(v, 128); ok {
				s.Netmask, ok = maskOf(s.Family, bits)
			}
		case "bitmask":
			var err error
			s.Netmask, err = netip.ParseAddr(value())
			ok = err == nil
		case "markmask":
			m, err := strconv.ParseUint(value(), 0, 32)
			s.MarkMask, ok = uint32(m), err == nil
		case "range", "hashsize", "maxelem", "timeout", "bucketsize", "initval", "size", "probes", "resize", "from", "to":
			value()
		case "counters", "comment", "skbinfo", "forceadd":
		default:
			// What is not known may change what the set holds.
			s.unsure = "the option " + words[i] + " of set " + s.Name + " is not known"
			r.skip(n, line, "the option %s is not known", paste.Quote(words[i]))
			return
		}
		if !ok {
			s.unsure = "an option of set " + s.Name + " cannot be read"
			r.skip(n, line, "the value of an option cannot be read")
			return
		}
	}
}

// maskOf is a netmask as an address.
func maskOf(family, bits int) (netip.Addr, bool) {
	all := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if family == 6 {
		var b [16]byte
		for i := range b {
			b[i] = 255
		}
		all = netip.AddrFrom16(b)
	}
	p, err := all.Prefix(bits)
	return p.Masked().Addr(), err == nil
}

// under is an address with a mask applied.
func under(a, mask netip.Addr) netip.Addr {
	if !mask.IsValid() || a.Is4() != mask.Is4() {
		return a
	}
	b, m := a.AsSlice(), mask.AsSlice()
	for i := range b {
		b[i] &= m[i]
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}

func number(s string, most uint64) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return int(n), err == nil && n <= most
}

// element reads an entry: its parts, separated by commas, and its options.
func (s *Set) element(text string) (Entry, error) {
	e := Entry{Text: text}
	head, rest, _ := strings.Cut(text, " ")
	if err := s.extras(&e, rest); err != nil {
		return e, err
	}
	nets := 0
	left, more := head, true
	for i, p := range s.parts {
		if !more {
			if p == partMAC && i > 0 {
				break // bitmap:ip,mac: the address of the machine is not known yet
			}
			return e, fmt.Errorf("an entry of %s has %d parts", s.Type, len(s.parts))
		}
		var v string
		v, left, more = strings.Cut(left, ",")
		ok := true
		switch p {
		case partIP, partNet:
			e.Nets[nets], ok = s.network(v)
			nets++
		case partPort:
			ok = e.ports(v, s.Type == "bitmap:port", s.Family)
		case partIface:
			e.Iface, e.Physdev = strings.CutPrefix(v, "physdev:")
			ok = e.Iface != ""
		case partMAC:
			e.MAC = strings.ToLower(v)
			ok = strings.Count(v, ":") == 5
		case partMark:
			m, err := strconv.ParseUint(v, 0, 32)
			e.Mark, ok = uint32(m)&s.MarkMask, err == nil
		case partSet:
			e.Member = v
			ok = v != ""
		}
		if !ok {
			return e, fmt.Errorf("%s cannot be read as a part of an entry of %s", paste.Quote(v), s.Type)
		}
	}
	if more {
		return e, fmt.Errorf("an entry of %s has %d parts", s.Type, len(s.parts))
	}
	return e, nil
}

// network reads an address, a network, or a range of addresses.
func (s *Set) network(v string) (Range, bool) {
	from, to, isRange := strings.Cut(v, "-")
	addr, bits, isNet := strings.Cut(from, "/")
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Zone() != "" || a.Is4() != (s.Family == 4) {
		return Range{}, false
	}
	n := a.BitLen()
	if isNet {
		var ok bool
		if n, ok = number(bits, uint64(a.BitLen())); !ok {
			return Range{}, false
		}
	}
	p, err := a.Prefix(n)
	if err != nil {
		return Range{}, false
	}
	r := Range{Net: p}
	if isRange {
		last, err := netip.ParseAddr(to)
		if err != nil || last.Zone() != "" || last.Is4() != a.Is4() || last.Less(a) || isNet || a.Is6() {
			return Range{}, false
		}
		r.Last = last
	}
	return r, true
}

// ports reads "tcp:80", "udp:53-55", "icmp:echo-request", "gre:0" or "80", which is of TCP. Sets of type bitmap:port
// hold ports without a protocol.
func (e *Entry) ports(v string, plain bool, family int) bool {
	proto, ports, named := strings.Cut(v, ":")
	if !named {
		proto, ports = "tcp", v
	}
	if !plain {
		var ok bool
		if e.Proto, ok = protocolNumber(proto); !ok {
			return false
		}
	}
	if !plain && (e.Proto == protoICMP || e.Proto == protoICMPv6) {
		code, ok := icmpPort(ports, e.Proto == protoICMPv6 || family == 6)
		e.Port, e.LastPort = code, code
		return ok
	}
	first, last, isRange := strings.Cut(ports, "-")
	lo, ok := number(first, math.MaxUint16)
	hi := lo
	if isRange && ok {
		hi, ok = number(last, math.MaxUint16)
	}
	e.Port, e.LastPort = uint16(lo), uint16(hi)
	return ok && lo <= hi
}

// extras reads the options behind an entry.
func (s *Set) extras(e *Entry, text string) error {
	for {
		text = strings.TrimLeft(text, " ")
		if text == "" {
			return nil
		}
		var word string
		word, text, _ = strings.Cut(text, " ")
		value := func() (v string) {
			text = strings.TrimLeft(text, " ")
			v, text, _ = strings.Cut(text, " ")
			return v
		}
		var err error
		switch word {
		case "nomatch":
			e.NoMatch = true
		case "wildcard":
			e.Wildcard = true
		case "timeout":
			var n uint64
			n, err = strconv.ParseUint(value(), 10, 32)
			e.Timeout, e.HasTimeout = uint32(n), n > 0
		case "packets":
			e.Packets, err = strconv.ParseUint(value(), 10, 64)
			e.HasCounters = true
		case "bytes":
			e.Bytes, err = strconv.ParseUint(value(), 10, 64)
			e.HasCounters = true
		case "comment":
			text = strings.TrimLeft(text, " ")
			if rest, quoted := strings.CutPrefix(text, `"`); quoted {
				var closed bool
				if e.Comment, text, closed = strings.Cut(rest, `"`); !closed {
					return fmt.Errorf("a comment is not closed")
				}
			} else {
				e.Comment = value()
			}
		case "skbmark", "skbprio", "skbqueue", "before", "after":
			value()
		default:
			return fmt.Errorf("the option %s of an entry is not known", paste.Quote(word))
		}
		if err != nil {
			return fmt.Errorf("the value of %s cannot be read", word)
		}
	}
}

// prefixes are the networks that a range is made of (ip_set_range_to_cidr).
func (r Range) prefixes() []netip.Prefix {
	if !r.Last.IsValid() {
		return []netip.Prefix{r.Net}
	}
	var out []netip.Prefix
	for a := r.Net.Addr(); a.IsValid() && !r.Last.Less(a); {
		bits := a.BitLen()
		for bits > 0 {
			wider, err := a.Prefix(bits - 1)
			if err != nil || wider.Addr() != a || r.Last.Less(lastOf(wider)) {
				break
			}
			bits--
		}
		p := netip.PrefixFrom(a, bits)
		out = append(out, p)
		a = lastOf(p).Next()
	}
	return out
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
