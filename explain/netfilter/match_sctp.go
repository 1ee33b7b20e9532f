package netfilter

import (
	"strconv"
	"strings"
)

// SCTP is -m sctp: ports and the chunks of a packet.
type SCTP struct {
	Sport, Dport PortRange
	// Scope is any, all or only; empty without --chunk-types. Chunks is the list, by name, with the flags of
	// each chunk behind a colon: "DATA:Be,INIT".
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
	chunk := "INIT"
	if p.Answer {
		chunk = "INIT_ACK"
	}
	has, others := false, 0
	for part := range strings.SplitSeq(m.Chunks, ",") {
		switch name, _, _ := strings.Cut(part, ":"); name {
		case chunk:
			has = true
		case "ALL":
			has = true
			others++
		case "NONE":
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
	m.Chunks = chunkNames(l.next())
	return m
}

// chunkNames turns the numbers of a numeric listing, "0x0000:Be,0x0001", into names.
func chunkNames(list string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(list, ",") {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		number, flags, has := strings.Cut(part, ":")
		b.WriteString(chunkName(number))
		if has {
			b.WriteString(":" + flags)
		}
	}
	return b.String()
}

func chunkName(s string) string {
	n, err := strconv.ParseUint(s, 0, 8)
	switch {
	case err != nil:
		return s
	case n < uint64(len(chunks)):
		return chunks[n]
	case n == 0x80:
		return "ASCONF_ACK"
	case n == 0x82:
		return "RE_CONFIG"
	case n == 0x84:
		return "PAD"
	case n == 0xc0:
		return "FORWARD_TSN"
	case n == 0xc1:
		return "ASCONF"
	}
	return s
}

// chunks are the types of chunks by number (RFC 9260).
var chunks = [...]string{
	"DATA", "INIT", "INIT_ACK", "SACK", "HEARTBEAT", "HEARTBEAT_ACK", "ABORT", "SHUTDOWN", "SHUTDOWN_ACK", "ERROR", "COOKIE_ECHO", "COOKIE_ACK",
	"ECN_ECNE", "ECN_CWR", "SHUTDOWN_COMPLETE",
}
