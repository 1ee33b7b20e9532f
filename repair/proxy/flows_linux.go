package proxy

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/nft"
)

// Connection tracking keeps the backend of a connection as long as packets come, and a client of UDP that asks again and
// again from one port never stops: what goes on to a backend that is gone, or was never translated because nobody served
// the Service then, has to be forgotten. kube-proxy does the same since 1.32 (pkg/proxy/conntrack/cleanup.go): it looks at
// flows of UDP to its service addresses and node ports, and deletes those whose answers come from none of the backends;
// Services without any backend are left alone.

// flowsOf deletes connections of UDP to the service ports of some Services that go to none of their backends. It
// looks at the connections of the thread's network namespace.
func (s *Server) flowsOf(services []UDPService) (forgotten int, err error) {
	byFamily := map[nft.Family]*staleUDP{}
	nodePorts := map[netip.Addr]bool{}
	for _, a := range s.NodePortIPs() {
		nodePorts[a] = true
	}
	for _, u := range services {
		f := byFamily[u.Family]
		if f == nil {
			f = &staleUDP{serves: map[netip.AddrPort]map[netip.AddrPort]bool{}, nodePort: map[uint16]map[netip.AddrPort]bool{}, node: nodePorts}
			byFamily[u.Family] = f
		}
		for _, p := range s.Ports(u) {
			if p.Protocol != "UDP" || !p.Usable {
				continue
			}
			backends := map[netip.AddrPort]bool{}
			for _, b := range p.Any {
				backends[b] = true
			}
			for _, b := range p.Here {
				backends[b] = true
			}
			for _, at := range p.Frontends() {
				if at.Addr.IsValid() {
					f.serves[netip.AddrPortFrom(at.Addr, at.Port)] = backends
				} else {
					f.nodePort[at.Port] = backends
				}
			}
		}
	}
	for _, family := range families {
		f := byFamily[family]
		if f == nil || len(f.serves)+len(f.nodePort) == 0 {
			continue
		}
		number := netlink.InetFamily(unix.AF_INET)
		if family == nft.IP6 {
			number = unix.AF_INET6
		}
		n, failed := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, number, f)
		forgotten += int(n)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("look through the connections (%s): %w", family, failed))
		}
	}
	return forgotten, err
}

// staleUDP picks connections.
type staleUDP struct {
	serves   map[netip.AddrPort]map[netip.AddrPort]bool
	nodePort map[uint16]map[netip.AddrPort]bool
	node     map[netip.Addr]bool
}

// MatchConntrackFlow tells whether a connection is to be forgotten.
func (f *staleUDP) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to, ok := addrPort(flow.Forward.DstIP, flow.Forward.DstPort)
	if !ok {
		return false
	}
	backends := f.serves[to]
	if backends == nil && f.node[to.Addr()] {
		backends = f.nodePort[to.Port()]
	}
	if backends == nil {
		return false
	}
	from, ok := addrPort(flow.Reverse.SrcIP, flow.Reverse.SrcPort)
	return ok && !backends[from]
}

func addrPort(ip []byte, port uint16) (netip.AddrPort, bool) {
	a, ok := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port), ok
}
