package netfilter

import (
	"net/netip"
	"slices"
	"strings"
)

// Conntrack is -m conntrack and -m state, which is the same with states alone. Every test that is used has to
// hold.
type Conntrack struct {
	// States is --ctstate: the packet's state is one of these. SNAT and DNAT are states of a connection whose
	// source or destination was translated, beside its ordinary one.
	States    CTStates
	StatesNot bool

	Proto ProtoMatch // --ctproto

	// The tuples of the connection as it was opened and as its answers are expected.
	OrigSrc, OrigDst, ReplSrc, ReplDst                 AddrMatch
	OrigSrcPort, OrigDstPort, ReplSrcPort, ReplDstPort PortRange

	// Status is --ctstatus.
	Status    CTStatus
	StatusNot bool
	HasStatus bool

	// Expire is --ctexpire, kept as text: how long a connection has left is not known.
	Expire    string
	ExpireNot bool

	// Dir is --ctdir.
	Dir CTDir
}

// CTStates is a set of states, one bit each.
type CTStates uint8

// The bits of CTStates.
const (
	CTNew CTStates = 1 << iota
	CTEstablished
	CTRelated
	CTInvalid
	CTUntracked
	CTSNAT
	CTDNAT
)

// CTStatus is a set of status bits of a connection.
type CTStatus uint8

// The bits of CTStatus. NONE is the empty set, which no connection is in.
const (
	CTExpected CTStatus = 1 << iota
	CTSeenReply
	CTAssured
	CTConfirmed
)

// CTDir is a direction of a connection.
type CTDir uint8

// The values of CTDir.
const (
	AnyDir CTDir = iota
	OriginalDir
	ReplyDir
)

var conntrackMatch = extension{
	name: "conntrack",
	save: func(a *arena) saved { return a.conntrack.new() },
	list: listConntrack,
}

// Test follows conntrack_mt of xt_conntrack.c: the states first; a packet without a connection then passes
// exactly if its state was asked for, whatever else the rule says.
func (m *Conntrack) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	if m.States != 0 && (m.States&p.ctStates() != 0) == m.StatesNot {
		return No
	}
	switch {
	case p.Template:
		t := p.template()
		p = &t
	case !p.tracked():
		return Is(m.States != 0)
	}
	if m.Dir != AnyDir && (m.Dir == ReplyDir) != p.Reply {
		return No
	}
	open := Yes
	for _, a := range [...]Answer{
		m.tuple(p), m.status(p), m.expire(),
	} {
		switch a.Truth {
		case False:
			return No
		case Undecided:
			if open.Truth == True {
				open = a
			}
		}
	}
	return open
}

// ctStates is the packet's state with the marks of a translation. A template of a connection counts as new.
func (p *Packet) ctStates() CTStates {
	if p.Template {
		return CTNew
	}
	s := CTNew << p.State
	if p.tracked() {
		if p.SNATed {
			s |= CTSNAT
		}
		if p.DNATed {
			s |= CTDNAT
		}
	}
	return s
}

// template is a packet of what a template of a connection looks like: all zeros, and confirmed (xt_ct_tg_check).
func (p *Packet) template() Packet {
	zero := netip.IPv4Unspecified()
	if p.Family == IPv6 {
		zero = netip.IPv6Unspecified()
	}
	return Packet{Family: p.Family, Src: zero, Dst: zero, OrigSrc: zero, OrigDst: zero, HasSrcPort: true, State: StateNew, Confirmed: true}
}

// tuple tests protocol, addresses and ports. The expected answer goes from where the packet is bound now to
// where it comes from now: what translations already made of the original direction.
func (m *Conntrack) tuple(p *Packet) Answer {
	if !m.Proto.Test(p.Proto) {
		return No
	}
	open := Yes
	addr := func(t AddrMatch, a netip.Addr, known bool, name string) bool {
		switch {
		case !t.Prefix.IsValid():
		case known && a.IsValid():
			return t.Test(a)
		default:
			open = Maybe(Fact{
				Key: name + " " + t.Prefix.String(), Not: t.Not,
				Yes:     "the connection's " + name + " is in " + t.Prefix.String(),
				No:      "the connection's " + name + " is not in " + t.Prefix.String(),
				Because: "the connection's " + name + " is not known here",
			})
		}
		return true
	}
	port := func(r PortRange, n uint16, known bool, name string) bool {
		if !r.Set {
			return true
		}
		a := portAnswer(r, name, n, known)
		if a.Truth == Undecided {
			a.Fact.Assume = nil
			open = a
		}
		return a.Truth != False
	}
	origPort := p.OrigSrcPort != 0 || p.HasSrcPort
	repl := !p.Reply
	src, srcKnown := p.sourcePort()
	ok := addr(m.OrigSrc, p.OrigSrc, true, "original source") &&
		addr(m.OrigDst, p.OrigDst, true, "original destination") &&
		addr(m.ReplSrc, p.Dst, repl, "reply source") &&
		addr(m.ReplDst, p.Src, repl, "reply destination") &&
		port(m.OrigSrcPort, p.OrigSrcPort, origPort, "original source") &&
		port(m.OrigDstPort, p.OrigDstPort, true, "original destination") &&
		port(m.ReplSrcPort, p.DstPort, repl, "reply source") &&
		port(m.ReplDstPort, src, repl && srcKnown, "reply destination")
	if !ok {
		return No
	}
	return open
}

// status: a connection's first packet has none of the bits, except EXPECTED when it is a related one; the first
// answer has SEEN_REPLY and CONFIRMED, and a TCP connection is not ASSURED before its handshake is done. NONE
// tests no bit and so never passes.
func (m *Conntrack) status(p *Packet) Answer {
	if !m.HasStatus {
		return Yes
	}
	var bits, unknown CTStatus
	switch {
	case p.Reply:
		bits = CTSeenReply | CTConfirmed
		if p.Proto != ProtoTCP {
			unknown = CTAssured
		}
		unknown |= CTExpected
	case p.State == StateRelated:
		bits = CTExpected
	case p.State == StateNew && p.Confirmed:
		bits = CTConfirmed
	case p.State != StateNew:
		unknown = CTExpected | CTSeenReply | CTAssured | CTConfirmed
	}
	if m.Status&bits == 0 && m.Status&unknown != 0 {
		return Maybe(Fact{
			Key: "ctstatus " + m.Status.String(), Not: m.StatusNot,
			Yes:     "the connection's status is " + m.Status.String(),
			No:      "the connection's status is not " + m.Status.String(),
			Because: "the status of a connection that is under way is not known",
		})
	}
	return Is((m.Status&bits != 0) != m.StatusNot)
}

func (m *Conntrack) expire() Answer {
	if m.Expire == "" {
		return Yes
	}
	return Maybe(Fact{
		Key: "ctexpire " + m.Expire, Not: m.ExpireNot,
		Yes:     "the connection expires in " + m.Expire + " seconds",
		No:      "the connection does not expire in " + m.Expire + " seconds",
		Because: "how long a connection has left is not known",
	})
}

// String lists the bits by name.
func (s CTStatus) String() string {
	var names []string
	for i, name := range [...]string{"EXPECTED", "SEEN_REPLY", "ASSURED", "CONFIRMED"} {
		if s>>i&1 == 1 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "NONE"
	}
	return strings.Join(names, ",")
}

func ctState(name string) (CTStates, bool) {
	switch name {
	case "NEW":
		return CTNew, true
	case "ESTABLISHED":
		return CTEstablished, true
	case "RELATED":
		return CTRelated, true
	case "INVALID":
		return CTInvalid, true
	case "UNTRACKED":
		return CTUntracked, true
	case "SNAT":
		return CTSNAT, true
	case "DNAT":
		return CTDNAT, true
	}
	return 0, false
}

func ctStatus(name string) (CTStatus, bool) {
	switch name {
	case "NONE":
		return 0, true
	case "EXPECTED":
		return CTExpected, true
	case "SEEN_REPLY":
		return CTSeenReply, true
	case "ASSURED":
		return CTAssured, true
	case "CONFIRMED":
		return CTConfirmed, true
	}
	return 0, false
}

func (m *Conntrack) option(o *option) bool {
	name := strings.TrimPrefix(o.name, "--")
	if name == "state" {
		name = "ctstate"
	}
	known, ok := m.set(name, o)
	if known && !ok && o.why == "" {
		o.fail("the value cannot be read")
	}
	return known
}

// set reads one test by its name, which both forms share; known is false for a name that is not of this match.
func (m *Conntrack) set(name string, v ctValue) (known, ok bool) {
	addr := func(into *AddrMatch) bool {
		s := v.value()
		prefix, _, ok := parseAddress(s)
		*into = AddrMatch{Prefix: prefix, Not: v.negated()}
		return ok && prefix.IsValid()
	}
	port := func(into *PortRange) bool {
		r, ok := parsePortRange(v.value())
		r.Not = v.negated()
		*into = r
		return ok
	}
	switch name {
	case "ctstate":
		m.States, ok = parseBits(v.value(), ctState)
		m.StatesNot = v.negated()
		return true, ok && m.States != 0
	case "ctproto":
		m.Proto, ok = parseProto(v.value())
		m.Proto.Not = v.negated()
		return true, ok
	case "ctorigsrc":
		return true, addr(&m.OrigSrc)
	case "ctorigdst":
		return true, addr(&m.OrigDst)
	case "ctreplsrc":
		return true, addr(&m.ReplSrc)
	case "ctrepldst":
		return true, addr(&m.ReplDst)
	case "ctorigsrcport":
		return true, port(&m.OrigSrcPort)
	case "ctorigdstport":
		return true, port(&m.OrigDstPort)
	case "ctreplsrcport":
		return true, port(&m.ReplSrcPort)
	case "ctrepldstport":
		return true, port(&m.ReplDstPort)
	case "ctstatus":
		m.Status, ok = parseBits(v.value(), ctStatus)
		m.StatusNot, m.HasStatus = v.negated(), true
		return true, ok
	case "ctexpire":
		m.Expire = v.value()
		m.ExpireNot = v.negated()
		return true, m.Expire != ""
	case "ctdir":
		switch v.value() {
		case "ORIGINAL":
			m.Dir = OriginalDir
		case "REPLY":
			m.Dir = ReplyDir
		default:
			return true, false
		}
		return true, true
	}
	return false, false
}

// ctValue is where a test's value comes from: an option of the save form, or the words of a listing. negated is
// asked after value.
type ctValue interface {
	value() string
	negated() bool
}

func (o *option) negated() bool { return o.not }

// listedValue is the next word of a listing.
type listedValue struct {
	*listing
	not bool
}

func (v listedValue) value() string { return v.next() }
func (v listedValue) negated() bool { return v.not }

// listConntrack reads "ctstate NEW ! ctorigdst 10.0.0.0/8 …": the options of the save form without their dashes. A
// test that comes a second time belongs to another match.
func listConntrack(l *listing) Match {
	m := l.arena.conntrack.new()
	var seen []string
	for {
		start := l.i
		not := l.not()
		name := l.next()
		known := false
		if strings.HasPrefix(name, "ct") && !slices.Contains(seen, name) {
			var ok bool
			if known, ok = m.set(name, listedValue{l, not}); known && !ok {
				return nil
			}
		}
		if !known {
			l.i = start
			if seen == nil {
				return nil
			}
			return m
		}
		seen = append(seen, name)
	}
}
