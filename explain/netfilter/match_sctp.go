package netfilter

import (
	"strconv"
	"strings"
)

// SCTP is -m sctp: ports and the chunks of a packet.
type SCTP struct {
	Sport, Dport PortRange
	// Scope is any, all or only; empty without --chunk-types. Chunks is the list as the rule writes it.
	Scope, Chunks string
	ChunksNot     bool
}

var sctpMatch = extension{
	name: "sctp",
	save: func(*arena) saved { return new(SCTP) },
	list: listSCTP,
}

// Test reads the ports and the one chunk of a packet that opens an association (INIT) or answers (INIT_ACK).
func (m *SCTP) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	if p.Proto != ProtoSCTP {
		return No
	}
	a := bothPorts(m.Sport, m.Dport, p)
	if a.Truth == False || m.Scope == "" {
		return a
	}
	chunk, number := "INIT", uint64(1)
	if p.Reply {
		chunk, number = "INIT_ACK", 2
	}
	has, others := false, 0
	for part := range strings.SplitSeq(m.Chunks, ",") {
		name, _, _ := strings.Cut(part, ":")
		n, err := strconv.ParseUint(name, 0, 8)
		switch {
		case name == "NONE":
		case name == "ALL":
			has = true
			others++
		case name == chunk, err == nil && n == number:
			has = true
		default:
			others++
		}
	}
	is := has
	if m.Scope == "all" {
		// Every chunk of the list has to be there, and there is one.
		is = others == 0
	}
	if is == m.ChunksNot {
		return No
	}
	return a
}

func (m *SCTP) idle() bool { return *m == SCTP{} }

func (m *SCTP) option(o *option) bool {
	switch o.name {
	case "--sport", "--source-port":
		m.Sport = o.portRange()
	case "--dport", "--destination-port":
		m.Dport = o.portRange()
	case "--chunk-types":
		m.Scope, m.Chunks = o.value(), o.value()
		m.ChunksNot = o.not
		if !m.scoped() {
			o.fail("%q is none of any, all, only", m.Scope)
		}
	default:
		return false
	}
	return true
}

func (m *SCTP) scoped() bool { return m.Scope == "any" || m.Scope == "all" || m.Scope == "only" }

// listSCTP reads "sctp spt:1 dpts:2:3 [!] any|all|only CHUNKS".
func listSCTP(l *listing) Match {
	if !l.word("sctp") {
		return nil
	}
	m := new(SCTP)
	for l.ports(&m.Sport, &m.Dport) {
		continue
	}
	start := l.i
	m.ChunksNot = l.not()
	m.Scope = l.next()
	if !m.scoped() {
		m.Scope, m.ChunksNot = "", false
		l.i = start
		return m
	}
	m.Chunks = l.next()
	return m
}
