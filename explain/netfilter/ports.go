package netfilter

import (
	"fmt"
	"strconv"
	"strings"
)

// PortRange is a range of ports, both ends included. It tests nothing while Set is false.
type PortRange struct {
	Min, Max uint16
	Not, Set bool
}

// String is the range as a rule writes it.
func (r PortRange) String() string {
	not := ""
	if r.Not {
		not = "! "
	}
	if r.Min == r.Max {
		return fmt.Sprintf("%s%d", not, r.Min)
	}
	return fmt.Sprintf("%s%d:%d", not, r.Min, r.Max)
}

func (r PortRange) holds(port uint16) bool { return (r.Min <= port && port <= r.Max) != r.Not }

// sourcePort and destinationPort are the packet's ports as far as known. The client's port is often not: it is
// the source of a request and the destination of a reply.
func (p *Packet) sourcePort() (port uint16, known bool) {
	return p.SrcPort, p.HasSrcPort || p.Answer && p.SrcPort != 0
}

func (p *Packet) destinationPort() (port uint16, known bool) {
	return p.DstPort, !p.Answer || p.DstPort != 0
}

// bothPorts tests a source and a destination range.
func bothPorts(src, dst PortRange, p *Packet) Answer {
	a := Yes
	if dst.Set {
		port, known := p.destinationPort()
		if a = portAnswer(dst, "destination", port, known); a.Truth == False {
			return a
		}
	}
	if src.Set {
		port, known := p.sourcePort()
		if b := portAnswer(src, "source", port, known); b.Truth != True {
			return b
		}
	}
	return a
}

func portAnswer(r PortRange, side string, port uint16, known bool) Answer {
	if known {
		return Is(r.holds(port))
	}
	if r.Min <= 1 && r.Max == 65535 {
		return Is(!r.Not)
	}
	return unknownPort(side, strconv.Itoa(int(r.Min))+":"+strconv.Itoa(int(r.Max)), r.Min, r.Max).Negate(r.Not)
}

// unknownPort asks whether a port that is not known lies in a range.
func unknownPort(side, ports string, lo, hi uint16) Answer {
	f := Fact{
		Key:     side + " port " + ports,
		Yes:     "the packet's " + side + " port is in " + ports,
		No:      "the packet's " + side + " port is not in " + ports,
		Because: "the client's port is not part of the question",
	}
	if lo == hi {
		f.Assume = func(p *Packet) {
			if side == "source" {
				p.SrcPort, p.HasSrcPort = lo, true
			} else {
				p.DstPort = lo
			}
		}
	}
	return Maybe(f)
}

// portRange takes PORT, MIN:MAX, :MAX or MIN: by number or name.
func (o *option) portRange() PortRange {
	v := o.value()
	r, ok := parsePortRange(v)
	if !ok {
		o.fail("%q is not a port", v)
	}
	r.Not = o.not
	return r
}

func parsePortRange(s string) (r PortRange, ok bool) {
	lo, hi, isRange := strings.Cut(s, ":")
	r.Set = true
	if !isRange {
		r.Min, ok = parsePort(lo)
		r.Max = r.Min
		return r, ok
	}
	r.Max = 65535
	ok = true
	if lo != "" {
		r.Min, ok = parsePort(lo)
	}
	if hi != "" && ok {
		r.Max, ok = parsePort(hi)
	}
	return r, ok
}

// ports reads one of "spt:", "spts:", "dpt:", "dpts:".
func (l *listing) ports(src, dst *PortRange) bool {
	start := l.i
	for _, part := range [...]struct {
		prefix string
		into   *PortRange
	}{{"spt:", src}, {"spts:", src}, {"dpt:", dst}, {"dpts:", dst}} {
		v, ok := l.value(part.prefix)
		if !ok {
			continue
		}
		v, not := negated(v)
		r, ok := parsePortRange(v)
		if !ok {
			l.i = start
			return false
		}
		r.Not = not
		*part.into = r
		return true
	}
	return false
}
