package netfilter

import (
	"slices"
	"strings"
)

// DCCP is -m dccp: ports, packet types, options.
type DCCP struct {
	Sport, Dport PortRange
	// Types is --dccp-types, by name.
	Types    string
	TypesNot bool
	// Option is --dccp-option.
	Option    string
	OptionNot bool
}

var dccpMatch = extension{
	name: "dccp",
	save: func(*arena) saved { return new(DCCP) },
	list: listDCCP,
}

// Test reads the ports and the type of the packet that opens a connection (REQUEST) or answers (RESPONSE).
func (m *DCCP) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	if p.Proto != ProtoDCCP {
		return No
	}
	a := bothPorts(m.Sport, m.Dport, p)
	if a.Truth == False {
		return No
	}
	if m.Types != "" {
		opens := "REQUEST"
		if p.Answer {
			opens = "RESPONSE"
		}
		is := false
		for t := range strings.SplitSeq(m.Types, ",") {
			is = is || t == opens
		}
		if is == m.TypesNot {
			return No
		}
	}
	if m.Option != "" && a.Truth == True {
		return Maybe(Fact{
			Key: "dccp option " + m.Option, Yes: "the packet has DCCP option " + m.Option, No: "the packet does not have DCCP option " + m.Option,
			Because: "which DCCP options the client sends is not in any capture",
		}).Negate(m.OptionNot)
	}
	return a
}

func (m *DCCP) idle() bool { return *m == DCCP{} }

func (m *DCCP) option(o *option) bool {
	switch o.name {
	case "--sport", "--source-port":
		m.Sport = o.portRange()
	case "--dport", "--destination-port":
		m.Dport = o.portRange()
	case "--dccp-types":
		m.Types = o.value()
		m.TypesNot = o.not
	case "--dccp-option":
		m.Option = o.value()
		m.OptionNot = o.not
	default:
		return false
	}
	return true
}

// listDCCP reads "dccp spt:1 dpt:2 [!]REQUEST,RESPONSE option=[!]12".
func listDCCP(l *listing) Match {
	if !l.word("dccp") {
		return nil
	}
	m := new(DCCP)
	for l.ports(&m.Sport, &m.Dport) {
		continue
	}
	v, not := negated(l.peek())
	if types, ok := dccpNames(v); ok {
		l.next()
		m.Types, m.TypesNot = types, not
	}
	if v, ok := l.value("option="); ok {
		m.Option, m.OptionNot = negated(v)
	}
	return m
}

// dccpTypes are the packet types by number (RFC 4340).
var dccpTypes = [...]string{"REQUEST", "RESPONSE", "DATA", "ACK", "DATAACK", "CLOSEREQ", "CLOSE", "RESET", "SYNC", "SYNCACK", "INVALID"}

// dccpNames reads a list of types by name or, from a numeric listing, by number.
func dccpNames(list string) (string, bool) {
	var names []string
	for t := range strings.SplitSeq(list, ",") {
		if n, ok := smallNumber(t); ok && n < len(dccpTypes) {
			t = dccpTypes[n]
		}
		if !slices.Contains(dccpTypes[:], t) {
			return "", false
		}
		names = append(names, t)
	}
	return strings.Join(names, ","), true
}
