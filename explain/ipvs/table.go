// Package ipvs holds the virtual servers of the kernel (IP Virtual Server) as data: the parser of every text that
// ipvsadm and /proc/net print of them, and the kernel's way of finding the virtual server of a packet. What happens to
// a packet that has one is the business of explain/netfilter.
package ipvs

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/svcnet/svcnet/explain/host"
)

// Table is what is known of the virtual servers and connections of one network namespace.
type Table struct {
	Services []Service
	Conns    []Conn
	// HasServices and HasConns tell "there are none" from "not captured".
	HasServices, HasConns bool
	// Missing says why there may be virtual servers that the capture does not show; empty where it shows all.
	Missing string

	captures []*capture
	lost     []lost
	lookup   atomic.Pointer[lookup]
}

// Service is a virtual server.
type Service struct {
	// Family is 4 or 6.
	Family int
	// Proto, Addr and Port are what clients dial; Port 0 takes every port. A virtual server with a FWMark takes packets
	// with that mark instead, whatever their address.
	Proto  uint8
	Addr   netip.Addr
	Port   uint16
	FWMark uint32
	// Scheduler is the name of the scheduler: "rr". Empty where the capture does not show it.
	Scheduler string
	// SchedFlags are its options, as printed: "sh-port", "flag-1".
	SchedFlags []string
	// Persistent keeps a client with its real server, for Timeout seconds after its last connection (0 where the capture
	// does not say in seconds). Mask is the length of the client network that counts as one client.
	Persistent bool
	Timeout    int
	Mask       int
	// OnePacket schedules every packet by itself (UDP only).
	OnePacket bool
	// PE is the persistence engine, empty for none.
	PE    string
	Dests []Dest
	Stats Stats
	host.Evidence
}

// Method is how packets reach a real server.
type Method uint8

// The methods.
const (
	UnknownMethod Method = iota
	// Masq changes the destination address (NAT).
	Masq
	// Route sends the packet as it is to the machine of the real server.
	Route
	// Tunnel sends the packet inside of another.
	Tunnel
	// Local hands the packet to this machine, as very old kernels list it.
	Local
)

// String is the method as ipvsadm lists it.
func (m Method) String() string {
	return [...]string{"unknown", "Masq", "Route", "Tunnel", "Local"}[m]
}

// Dest is a real server of a virtual server.
type Dest struct {
	Addr   netip.Addr
	Port   uint16
	Method Method
	// Tunnel are the tunnel's options as `ipvsadm -S` prints them.
	Tunnel string
	// Weight is 0 for a server that gets no new connections; HasWeight is false where the capture does not show it.
	Weight    int
	HasWeight bool
	// Upper and Lower bound the server's connections: at Upper it gets no more, until there are fewer than Lower. 0 for
	// no bound.
	Upper, Lower int
	// ActiveConns, InactConns and PersistConns are the connections that the server has; HasConns and HasPersist tell
	// whether they were captured.
	ActiveConns, InactConns, PersistConns int
	HasConns, HasPersist                  bool
	Stats                                 Stats
	host.Evidence
}

// AddrPort is the server's address and port.
func (d *Dest) AddrPort() netip.AddrPort { return netip.AddrPortFrom(d.Addr, d.Port) }

// Stats are counters since the virtual server was made or its counters were zeroed. Large numbers are as rounded as
// ipvsadm prints them.
type Stats struct {
	Conns, InPkts, OutPkts, InBytes, OutBytes uint64
	// Known is false where they were not captured.
	Known bool
}

// Conn is a connection, or with a client port of 0 the memory of which real server a persistent client has.
type Conn struct {
	Proto                   uint8
	State                   string
	Expires                 int // seconds left
	Client, Virtual, Server netip.AddrPort
	host.Evidence
}

// Template tells a persistent client's memory from a connection.
func (c *Conn) Template() bool { return c.Client.Port() == 0 }

// The protocols that IPVS balances (ah and esp only by mark).
const (
	tcp  = 6
	udp  = 17
	sctp = 132
)

// serverID tells virtual servers apart.
type serverID struct {
	proto uint8
	at    netip.AddrPort
	mark  uint32
	six   bool
}

func (s *Service) id() serverID {
	if s.FWMark != 0 {
		return serverID{mark: s.FWMark, six: s.Family == 6}
	}
	return serverID{proto: s.Proto, at: netip.AddrPortFrom(s.Addr, s.Port)}
}

// flag is how the save form names a virtual server.
func (s *Service) flag() string {
	if s.FWMark != 0 {
		six := ""
		if s.Family == 6 {
			six = " -6"
		}
		return fmt.Sprintf("-f %d%s", s.FWMark, six)
	}
	proto := map[uint8]string{tcp: "-t", udp: "-u", sctp: "--sctp-service"}[s.Proto]
	return proto + " " + netip.AddrPortFrom(s.Addr, s.Port).String()
}

// String is the virtual server as `ipvsadm -Sn` prints it.
func (s *Service) String() string {
	b := "-A " + s.flag()
	if s.Scheduler != "" {
		b += " -s " + s.Scheduler
	}
	if s.Persistent {
		if b += " -p"; s.Timeout > 0 {
			b += " " + strconv.Itoa(s.Timeout)
		}
		switch {
		case s.Family == 4 && s.Mask != 32:
			b += " -M " + netmask(s.Mask)
		case s.Family == 6 && s.Mask != 128:
			b += " -M " + strconv.Itoa(s.Mask)
		}
	}
	if s.PE != "" {
		b += " --pe " + s.PE
	}
	if s.OnePacket {
		b += " -o"
	}
	if len(s.SchedFlags) > 0 {
		b += " -b " + strings.Join(s.SchedFlags, ",")
	}
	return b
}

// DestString is a real server of the virtual server as `ipvsadm -Sn` prints it, which leaves out its bounds.
func (s *Service) DestString(d *Dest) string {
	b := "-a " + s.flag() + " -r " + netip.AddrPortFrom(d.Addr, d.Port).String()
	if m := map[Method]string{Masq: " -m", Route: " -g", Tunnel: " -i"}[d.Method]; m != "" {
		b += m
	}
	if d.HasWeight {
		b += " -w " + strconv.Itoa(d.Weight)
	}
	if d.Tunnel != "" {
		b += " " + d.Tunnel
	}
	return b
}

func netmask(bits int) string {
	p, err := netip.AddrFrom4([4]byte{255, 255, 255, 255}).Prefix(bits)
	if err != nil {
		return strconv.Itoa(bits)
	}
	return p.Addr().String()
}
