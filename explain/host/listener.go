package host

import "net/netip"

// Listener is the socket that a packet for this node's addr:port reaches: one bound to the address before
// one bound to any (inet_lookup_listener scores them so). A socket on [::] takes IPv4 too unless it is
// IPv6-only, which captures do not show. Nil when none is known.
func (h *Host) Listener(proto uint8, addr netip.Addr, port uint16) *Socket {
	var any *Socket
	for i := range h.Sockets {
		s := &h.Sockets[i]
		if s.Proto != proto || s.Port != port {
			continue
		}
		switch {
		case s.Addr == addr:
			return s
		case any == nil && (!s.Addr.IsValid() || s.Addr.IsUnspecified() && (s.Addr.Is6() || addr.Is4())):
			any = s
		}
	}
	return any
}
