package host

import "net/netip"

// Towards is the interface through which the node itself would reach an address: where packets from there
// are likely to come in. Empty when no route tells, or when the address is the node's own.
func (h *Host) Towards(a netip.Addr) string {
	d := h.Route(Query{Dst: a, Local: true, InKnown: true})
	if d.Type != "unicast" {
		return ""
	}
	return d.Out
}
