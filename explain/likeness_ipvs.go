package explain

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/ipset"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/netfilter"
)

// serverLikeness is what virtual servers and kube-proxy's own sets add to the likeness of service ports in IPVS mode.
// Cut into a Division, sets with an entry for each Service would make every Service one of its kind.
type serverLikeness struct {
	table *ipvs.Table
	// connected are the virtual servers that are known to have connections, which decide before anything else.
	connected map[netip.AddrPort]bool
	// in says in which of the sets, as bits, an entry is; addresses says it of an entry's address, whatever its port.
	in, addresses map[element]uint64
	// inSets are the names of these sets.
	inSets map[string]bool
}

// element is an entry of a set: address and port, only an address, or only a port.
type element struct {
	addr  netip.Addr
	proto uint8
	port  uint16
}

// newServerLikeness is nil where no virtual servers were captured. ok is false where virtual servers take packets by
// something else than an address and port.
func newServerLikeness(table *ipvs.Table, sets map[string]*netfilter.Set) (l *serverLikeness, ok bool) {
	if table == nil {
		return nil, true
	}
	l = &serverLikeness{
		table: table, connected: make(map[netip.AddrPort]bool), in: make(map[element]uint64), addresses: make(map[element]uint64),
		inSets: make(map[string]bool),
	}
	for i := range table.Services {
		if s := &table.Services[i]; s.FWMark != 0 || s.Port == 0 {
			return nil, false
		}
	}
	for i := range table.Conns {
		l.connected[table.Conns[i].Virtual] = true
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		if s := sets[name].Captured; s != nil && dataplane.IsIPVSSet(name) && len(l.inSets) < 64 && plain(s) {
			l.add(s, 1<<len(l.inSets))
			l.inSets[name] = true
		}
	}
	return l, true
}

// plain tells whether every entry of a set is one address, one port, or one of each.
func plain(s *ipset.Set) bool {
	if s.Missing != "" || s.Dimensions() == 0 {
		return false
	}
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.NoMatch || e.Member != "" || e.Iface != "" || e.MAC != "" || e.LastPort != e.Port || e.HasTimeout {
			return false
		}
		if n := e.Nets[0]; n.Net.IsValid() && (!n.Net.IsSingleIP() || n.Last.IsValid()) {
			return false
		}
		if n := e.Nets[1]; n.Net.IsValid() && n != e.Nets[0] {
			return false // a source range, or a pair
		}
	}
	return true
}

func (l *serverLikeness) add(s *ipset.Set, bit uint64) {
	for i := range s.Entries {
		e := &s.Entries[i]
		k := element{e.Nets[0].Net.Addr(), e.Proto, e.Port}
		l.in[k] |= bit
		if k.addr.IsValid() && k.port != 0 {
			l.addresses[element{addr: k.addr}] |= bit
		}
	}
}

// of appends what tells a service port from others. ok is false for one that is like no other.
func (l *serverLikeness) of(b []byte, sp *intent.ServicePort, numbers *dataplane.Numbering) (out []byte, ok bool) {
	for _, f := range sp.Frontends {
		at := netip.AddrPortFrom(f.Addr, uint16(f.Port))
		if l.connected[at] {
			return b, false
		}
		proto := dataplane.ProtocolNumber(sp.FrontendProtocol(f))
		b = l.sets(b, at, proto)
		if b, ok = l.server(b, sp, at, proto, numbers); !ok {
			return b, false
		}
	}
	for _, i := range numbers.All() {
		e := &sp.Endpoints[i]
		b = l.sets(b, netip.AddrPortFrom(e.Addr, uint16(e.Port)), dataplane.ProtocolNumber(sp.Protocol))
	}
	return b, true
}

// sets says in which sets an address and port are: as a pair, the address with other ports, and each alone.
func (l *serverLikeness) sets(b []byte, at netip.AddrPort, proto uint8) []byte {
	pair := element{at.Addr(), proto, at.Port()}
	b = binary.LittleEndian.AppendUint64(b, l.in[pair])
	b = binary.LittleEndian.AppendUint64(b, l.addresses[element{addr: at.Addr()}])
	b = binary.LittleEndian.AppendUint64(b, l.in[element{addr: at.Addr()}])
	return binary.LittleEndian.AppendUint64(b, l.in[element{port: at.Port()}])
}

// unprivileged is where ports of FTP data begin; a virtual server for them makes a port like no other anyway.
const unprivileged = 1024

// server is the virtual server of a frontend, with its real servers by the numbers of their endpoints.
func (l *serverLikeness) server(b []byte, sp *intent.ServicePort, at netip.AddrPort, proto uint8, numbers *dataplane.Numbering) ([]byte, bool) {
	s := l.table.Find(sp.Family, 0, proto, at.Addr(), at.Port(), unprivileged)
	if s == nil {
		return append(b, 0), true
	}
	if s.Port != at.Port() || s.PE != "" || s.OnePacket {
		return b, false
	}
	b = append(b, 1, flag(s.Persistent))
	b = fmt.Appendf(b, "%s %v %d %d %d", s.Scheduler, s.SchedFlags, s.Timeout, s.Mask, len(s.Dests))
	for i := range s.Dests {
		d := &s.Dests[i]
		which := slices.IndexFunc(sp.Endpoints, func(e intent.Endpoint) bool {
			return e.Addr == d.Addr && e.Port == int(d.Port)
		})
		if which < 0 || d.Method != ipvs.Masq || d.Tunnel != "" || d.Upper != 0 || d.HasWeight && d.Weight == 0 {
			return b, false // none that kube-proxy keeps in use
		}
		b = fmt.Appendf(b, " %d %d %t", numbers.Number(which), d.Weight, d.HasWeight)
		if s.Scheduler != "rr" && s.Scheduler != "wrr" {
			b = fmt.Appendf(b, " %d %d", d.ActiveConns, d.InactConns) // others look at connections
		}
	}
	return b, true
}
