package netfilter

import (
	"strconv"
	"strings"
)

// TCP is -m tcp: ports, flags and options of a TCP header.
type TCP struct {
	Sport, Dport PortRange
	// Flags holds --tcp-flags MASK COMP and --syn: of the flags in Mask exactly those in Comp are set.
	Flags struct {
		Mask, Comp uint8
		Not, Set   bool
	}
	// Option is --tcp-option KIND.
	Option struct {
		Kind     uint8
		Not, Set bool
	}
}

// TCP header flags.
const (
	flagFIN = 1 << iota
	flagSYN
	flagRST
	flagPSH
	flagACK
	flagURG
)

var tcpMatch = extension{
	name: "tcp",
	save: func(a *arena) saved { return a.tcp.new() },
	list: listTCP,
}

// Test reads the ports, and the flags of the packet that opens a connection (SYN) or answers it (SYN, ACK).
// Options of the header are not known.
func (m *TCP) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	if p.Proto != ProtoTCP {
		return No
	}
	a := bothPorts(m.Sport, m.Dport, p)
	if a.Truth == False {
		return No
	}
	if m.Flags.Set {
		flags, ok := tcpFlags(p)
		if !ok {
			return Maybe(Fact{
				Key: "tcp flags", Yes: "the packet has the TCP flags of the rule", No: "the packet does not have the TCP flags of the rule",
				Because: "only the flags of the first packet and its answer are known",
			})
		}
		if (flags&m.Flags.Mask == m.Flags.Comp) == m.Flags.Not {
			return No
		}
	}
	if m.Option.Set {
		if a.Truth == Undecided {
			return a
		}
		kind := strconv.Itoa(int(m.Option.Kind))
		return Maybe(Fact{
			Key: "tcp option " + kind, Yes: "the packet has TCP option " + kind, No: "the packet does not have TCP option " + kind,
			Because: "which TCP options the client sends is not in any capture",
		}).Negate(m.Option.Not)
	}
	return a
}

func tcpFlags(p *Packet) (flags uint8, ok bool) {
	switch {
	case p.Answer:
		return flagSYN | flagACK, true
	case p.State == StateNew, p.State == StateUntracked:
		return flagSYN, true
	}
	return 0, false
}

func (m *TCP) idle() bool { return *m == TCP{} }

func (m *TCP) option(o *option) bool {
	switch o.name {
	case "--sport", "--source-port":
		m.Sport = o.portRange()
	case "--dport", "--destination-port":
		m.Dport = o.portRange()
	case "--syn":
		m.Flags.Mask, m.Flags.Comp, m.Flags.Set = flagFIN|flagSYN|flagRST|flagACK, flagSYN, true
		m.Flags.Not = o.not
	case "--tcp-flags":
		mask, comp := o.value(), o.value()
		m.Flags.Set, m.Flags.Not = true, o.not
		if !m.flags(mask, comp) {
			o.fail("%q %q are not TCP flags", mask, comp)
		}
	case "--tcp-option":
		m.Option.Kind, m.Option.Set = uint8(o.number(8)), true
		m.Option.Not = o.not
	default:
		return false
	}
	return true
}

func (m *TCP) flags(mask, comp string) bool {
	var ok, also bool
	m.Flags.Mask, ok = parseBits(mask, tcpFlag)
	m.Flags.Comp, also = parseBits(comp, tcpFlag)
	return ok && also
}

// tcpFlag reads a flag by name, or all of them as one number.
func tcpFlag(s string) (uint8, bool) {
	switch s {
	case "FIN":
		return flagFIN, true
	case "SYN":
		return flagSYN, true
	case "RST":
		return flagRST, true
	case "PSH":
		return flagPSH, true
	case "ACK":
		return flagACK, true
	case "URG":
		return flagURG, true
	case "ALL":
		return flagFIN | flagSYN | flagRST | flagPSH | flagACK | flagURG, true
	case "NONE":
		return 0, true
	}
	if !strings.HasPrefix(s, "0x") {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 0, 8)
	return uint8(n), err == nil
}

// listTCP reads "tcp spt:1 dpts:80:90 option=2 flags:SYN,RST/SYN", each part with "!" behind its colon
// when negated. Without -n ports have names.
func listTCP(l *listing) Match {
	if !l.word("tcp") {
		return nil
	}
	m := l.arena.tcp.new()
	for {
		if l.ports(&m.Sport, &m.Dport) {
			continue
		}
		if v, ok := l.value("option="); ok {
			v, m.Option.Not = negated(v)
			n, err := strconv.ParseUint(v, 0, 8)
			if err != nil {
				return nil
			}
			m.Option.Kind, m.Option.Set = uint8(n), true
			continue
		}
		if v, ok := l.value("flags:"); ok {
			v, m.Flags.Not = negated(v)
			mask, comp, _ := strings.Cut(v, "/")
			if m.Flags.Set = true; !m.flags(mask, comp) {
				return nil
			}
			continue
		}
		return m
	}
}
