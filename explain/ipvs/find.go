package ipvs

import "net/netip"

// lookup finds virtual servers and connections.
type lookup struct {
	services, conns int
	byAddr          map[serviceKey]*Service
	byMark          map[markKey]*Service
	byTuple         map[tuple]*Conn
	ftp, anyPort    bool
}

type serviceKey struct {
	proto uint8
	addr  netip.Addr
	port  uint16
}

type markKey struct {
	family int
	mark   uint32
}

// tuple is a connection as a client's packet names it.
type tuple struct {
	proto           uint8
	client, virtual netip.AddrPort
}

func (t *Table) index() *lookup {
	if l := t.lookup.Load(); l != nil && l.services == len(t.Services) && l.conns == len(t.Conns) {
		return l
	}
	l := &lookup{
		services: len(t.Services), conns: len(t.Conns),
		byAddr: make(map[serviceKey]*Service, len(t.Services)), byMark: make(map[markKey]*Service), byTuple: make(map[tuple]*Conn),
	}
	for i := range t.Services {
		s := &t.Services[i]
		if s.FWMark != 0 {
			if k := (markKey{s.Family, s.FWMark}); l.byMark[k] == nil {
				l.byMark[k] = s
			}
			continue
		}
		if k := (serviceKey{s.Proto, s.Addr, s.Port}); l.byAddr[k] == nil {
			l.byAddr[k] = s
		}
		l.ftp = l.ftp || s.Port == ftpPort
		l.anyPort = l.anyPort || s.Port == 0
	}
	for i := range t.Conns {
		c := &t.Conns[i]
		if k := (tuple{c.Proto, c.Client, c.Virtual}); l.byTuple[k] == nil {
			l.byTuple[k] = c
		}
	}
	t.lookup.Store(l)
	return l
}

const (
	ftpPort     = 21
	ftpDataPort = 20
)

// Find is the virtual server of a packet (ip_vs_service_find): one with its mark, then one with its address and port,
// then the FTP server that the packet may be a data connection of, then one that takes every port. Nil for none.
// unprivileged is the first port that is open to everyone (net.ipv4.ip_unprivileged_port_start).
func (t *Table) Find(family int, mark uint32, proto uint8, dst netip.Addr, port uint16, unprivileged int) *Service {
	l := t.index()
	if mark != 0 {
		if s := l.byMark[markKey{family, mark}]; s != nil {
			return s
		}
	}
	dst = dst.Unmap().WithZone("")
	s := l.byAddr[serviceKey{proto, dst, port}]
	if s == nil && l.ftp && proto == tcp && (port == ftpDataPort || int(port) >= unprivileged) {
		s = l.byAddr[serviceKey{proto, dst, ftpPort}]
	}
	if s == nil && l.anyPort {
		s = l.byAddr[serviceKey{proto, dst, 0}]
	}
	return s
}

// Conn is the connection that a client's packet belongs to, nil for none.
func (t *Table) Conn(proto uint8, client, virtual netip.AddrPort) *Conn {
	return t.index().byTuple[tuple{proto, client, virtual}]
}

// Dest is the real server of that address and port, nil for none.
func (s *Service) Dest(a netip.AddrPort) *Dest {
	for i := range s.Dests {
		if d := &s.Dests[i]; d.Addr == a.Addr() && d.Port == a.Port() {
			return d
		}
	}
	return nil
}
