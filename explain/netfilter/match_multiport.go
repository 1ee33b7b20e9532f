package netfilter

import (
	"strings"
)

// Multiport is -m multiport: up to fifteen ports and ranges.
type Multiport struct {
	Ports []PortRange
	Side  PortSide
	Not   bool
}

// PortSide says which of a packet's ports a multiport match looks at.
type PortSide uint8

// The sides: --sports, --dports, and --ports, which is either of them.
const (
	EitherPort PortSide = iota
	SourcePort
	DestinationPort
)

// maxMultiport bounds the list; the kernel holds fifteen (XT_MULTI_PORTS).
const maxMultiport = 64

var multiportMatch = extension{
	name: "multiport",
	save: func(*arena) saved { return new(Multiport) },
	list: listMultiport,
}

// Test looks for the packet's ports in the list.
func (m *Multiport) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	switch p.Proto {
	case ProtoTCP, ProtoUDP, ProtoUDPLite, ProtoSCTP, ProtoDCCP:
	default:
		return No
	}
	src, srcKnown := p.sourcePort()
	dst, dstKnown := p.destinationPort()
	var a Answer
	switch m.Side {
	case SourcePort:
		a = m.has(src, srcKnown, "source")
	case DestinationPort:
		a = m.has(dst, dstKnown, "destination")
	default:
		a = m.has(dst, dstKnown, "destination")
		if b := m.has(src, srcKnown, "source"); a.Truth != True && b.Truth != False {
			a = b
		}
	}
	return a.Negate(m.Not)
}

func (m *Multiport) has(port uint16, known bool, side string) Answer {
	if !known {
		return unknownPort(side, m.list(), 0, 1)
	}
	for _, r := range m.Ports {
		if r.holds(port) {
			return Yes
		}
	}
	return No
}

func (m *Multiport) list() string {
	var b strings.Builder
	for i, r := range m.Ports {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(r.String())
	}
	return b.String()
}

func (m *Multiport) option(o *option) bool {
	switch o.name {
	case "--sports", "--source-ports":
		m.Side = SourcePort
	case "--dports", "--destination-ports":
		m.Side = DestinationPort
	case "--ports":
		m.Side = EitherPort
	default:
		return false
	}
	v := o.value()
	m.Not = o.not
	if !m.parse(v) {
		o.fail("%q is not a list of ports", v)
	}
	return true
}

func (m *Multiport) parse(s string) bool {
	n := strings.Count(s, ",") + 1
	if n > maxMultiport {
		return false
	}
	m.Ports = make([]PortRange, 0, n)
	for part := range strings.SplitSeq(s, ",") {
		r, ok := parsePortRange(part)
		if !ok {
			return false
		}
		m.Ports = append(m.Ports, r)
	}
	return true
}

// listMultiport reads "multiport dports [!]80,443,8000:8080".
func listMultiport(l *listing) Match {
	if !l.word("multiport") {
		return nil
	}
	m := new(Multiport)
	switch l.next() {
	case "sports":
		m.Side = SourcePort
	case "dports":
		m.Side = DestinationPort
	case "ports":
	default:
		return nil
	}
	v, not := negated(l.next())
	if v == "" && not {
		v = l.next()
	}
	if m.Not = not; !m.parse(v) {
		return nil
	}
	return m
}
