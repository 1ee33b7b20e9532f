package host

import "net/netip"

// Listener is the socket that a packet for this node's addr:port reaches: one bound to the address before
// one bound to any (inet_lookup_listener scores them so). A socket on [::] that may be IPv6-only counts for
// IPv4 too, as most such sockets take both. Nil when none is known.
func (h *Host) Listener(proto uint8, addr netip.Addr, port uint16) *Socket {
	var wild *Socket
	for i := range h.Sockets {
		s := &h.Sockets[i]
		if s.Proto != proto || s.Port != port {
			continue
		}
		switch {
		case s.Addr == addr:
			return s
		case wild == nil && (!s.Addr.IsValid() || s.Takes(addr) != No):
			wild = s
		}
	}
	return wild
}
