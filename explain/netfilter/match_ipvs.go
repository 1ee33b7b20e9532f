package netfilter

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/ipvs"
)

// IPVSMatch is -m ipvs: IPVS has had the packet, and its connection through a virtual server passes every test that is
// used.
type IPVSMatch struct {
	// Plain is --ipvs alone, PlainNot that with "!".
	Plain, PlainNot bool
	Proto           ProtoMatch // --vproto
	Addr            AddrMatch  // --vaddr
	Port            PortRange  // --vport
	// ControlPort is --vportctl: the port of the connection that this one belongs to.
	ControlPort PortRange
	Dir         CTDir // --vdir
	// Method is --vmethod; UnknownMethod for none.
	Method    ipvs.Method
	MethodNot bool
}

var ipvsMatch = extension{
	name: "ipvs",
	save: func(*arena) saved { return new(IPVSMatch) },
	list: listIPVS,
}

// Test follows ipvs_mt of xt_ipvs.c: without other options it is the question whether IPVS has had the packet. With
// them "no" is the answer for packets that it has not had, whatever is negated, and for those of no connection that
// goes the way of the packet: answers, and packets that are scheduled one by one.
func (m *IPVSMatch) Test(k *Kernel, _ Hook, p *Packet) Answer {
	if k.IPVS == nil {
		return Maybe(Fact{
			Key: "ipvs " + m.text(), Yes: "the packet passes ipvs " + m.text(), No: "the packet does not pass ipvs " + m.text(),
			Because: "no virtual servers were captured (ipvsadm -Sn)",
		})
	}
	if m.alone() {
		return Is(p.IPVS.Handled).Negate(m.PlainNot)
	}
	c := &p.IPVS
	if !c.Handled || !m.Proto.Test(p.Proto) || !c.requestedBy(p) {
		return No
	}
	if m.Port.Set && !m.Port.holds(c.Virtual.Port()) || m.Method != ipvs.UnknownMethod && (c.Dest.Method == m.Method) == m.MethodNot || !m.Addr.Test(c.Virtual.Addr()) {
		return No
	}
	if m.ControlPort.Set {
		control, has := c.control()
		if (has && control == m.ControlPort.Min) == m.ControlPort.Not {
			return No
		}
	}
	if m.Dir != AnyDir && (!p.tracked() || p.Reply != (m.Dir == ReplyDir)) {
		return No
	}
	return Yes
}

func (m *IPVSMatch) alone() bool {
	return !m.Proto.Set && !m.Addr.Prefix.IsValid() && !m.Port.Set && !m.ControlPort.Set && m.Dir == AnyDir && m.Method == ipvs.UnknownMethod
}

// requestedBy tells whether p goes from the connection's client to where it was sent (ip_vs_conn_out_get, with the
// packet turned around).
func (c *VirtualConn) requestedBy(p *Packet) bool {
	to := c.Server
	if c.Dest.Method == ipvs.Route || c.Dest.Method == ipvs.Tunnel {
		to = c.Virtual
	}
	return !c.Service.OnePacket && p.Src == c.Client.Addr() && p.SrcPort == c.Client.Port() && p.Dst == to.Addr() && p.DstPort == to.Port()
}

// control is the port in the memory of a persistent client, which controls its connections (ip_vs_sched_persist).
func (c *VirtualConn) control() (port uint16, has bool) {
	if !c.Service.Persistent {
		return 0, false
	}
	if c.Service.Port == c.Virtual.Port() && c.Service.Port != 21 {
		return c.Virtual.Port(), true
	}
	return 0, true
}

// text is the match as a rule writes it.
func (m *IPVSMatch) text() string {
	var b []string
	add := func(not bool, format string, args ...any) {
		if not {
			b = append(b, "!")
		}
		b = append(b, fmt.Sprintf(format, args...))
	}
	if m.alone() {
		add(m.PlainNot, "--ipvs")
	}
	if m.Proto.Set {
		add(m.Proto.Not, "--vproto %d", m.Proto.Number)
	}
	if m.Addr.Prefix.IsValid() {
		addr := m.Addr.Prefix.String()
		if m.Addr.Prefix.IsSingleIP() {
			addr = m.Addr.Prefix.Addr().String()
		}
		add(m.Addr.Not, "--vaddr %s", addr)
	}
	if m.Port.Set {
		add(m.Port.Not, "--vport %d", m.Port.Min)
	}
	switch m.Dir {
	case OriginalDir:
		add(false, "--vdir ORIGINAL")
	case ReplyDir:
		add(false, "--vdir REPLY")
	}
	if m.Method != ipvs.UnknownMethod {
		add(m.MethodNot, "--vmethod %s", map[ipvs.Method]string{ipvs.Route: "GATE", ipvs.Tunnel: "IPIP", ipvs.Masq: "MASQ"}[m.Method])
	}
	if m.ControlPort.Set {
		add(m.ControlPort.Not, "--vportctl %d", m.ControlPort.Min)
	}
	return strings.Join(b, " ")
}

func (m *IPVSMatch) option(o *option) bool {
	known, ok := m.set(strings.TrimPrefix(o.name, "--"), o)
	if known && !ok && o.why == "" {
		o.fail("the value cannot be read")
	}
	return known
}

// set reads one test by its name, which both forms share; known is false for a name that is not of this match.
func (m *IPVSMatch) set(name string, v ctValue) (known, ok bool) {
	port := func(into *PortRange) bool {
		n, ok := parsePort(v.value())
		*into = PortRange{Min: n, Max: n, Not: v.negated(), Set: true}
		return ok
	}
	switch name {
	case "ipvs":
		m.Plain, m.PlainNot = true, v.negated()
		return true, true
	case "vproto":
		m.Proto, ok = parseProto(v.value())
		m.Proto.Not = v.negated()
		return true, ok && m.Proto.Set
	case "vaddr":
		prefix, _, ok := parseAddress(v.value())
		m.Addr = AddrMatch{Prefix: prefix, Not: v.negated()}
		return true, ok && prefix.IsValid()
	case "vport":
		return true, port(&m.Port)
	case "vportctl":
		return true, port(&m.ControlPort)
	case "vdir":
		switch v.value() {
		case "ORIGINAL":
			m.Dir = OriginalDir
		case "REPLY":
			m.Dir = ReplyDir
		default:
			return true, false
		}
		return true, true
	case "vmethod":
		switch v.value() {
		case "GATE":
			m.Method = ipvs.Route
		case "IPIP":
			m.Method = ipvs.Tunnel
		case "MASQ":
			m.Method = ipvs.Masq
		default:
			return true, false
		}
		m.MethodNot = v.negated()
		return true, true
	}
	return false, false
}

// listIPVS reads "[!] ipvs" or "[!] vaddr 10.0.0.1 vport 80 …": the options of the save form without their dashes.
func listIPVS(l *listing) Match {
	m := new(IPVSMatch)
	seen := map[string]bool{}
	for {
		start := l.i
		not := l.not()
		name := l.next()
		known := false
		if (name == "ipvs" || strings.HasPrefix(name, "v")) && !seen[name] && !seen["ipvs"] {
			var ok bool
			if known, ok = m.set(name, listedValue{l, not}); known && !ok {
				return nil
			}
		}
		if !known {
			l.i = start
			if len(seen) == 0 {
				return nil
			}
			return m
		}
		seen[name] = true
	}
}
