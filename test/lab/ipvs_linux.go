package lab

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Commands and attributes of IPVS (linux/ip_vs.h).
const (
	ipvsGetService = 4
	ipvsGetDest    = 8
	ipvsService    = 1
	ipvsDest       = 2
)

// virtualServers lists those of the node, "TCP 10.96.0.1:443" each, and below each its real servers, "-> 10.0.0.1:6443". The
// file /proc/net/ip_vs does not do: with virtual servers in several namespaces what it shows behind the first page is not
// all there is.
func (n *Node) virtualServers() (string, error) {
	var out strings.Builder
	err := n.ns.Do(func() error {
		family, err := netlink.GenlFamilyGet("IPVS")
		if err != nil {
			return err
		}
		services, err := dumpIPVS(family.ID, ipvsGetService, nil)
		if err != nil {
			return err
		}
		for _, m := range services {
			s, err := attributes(m, ipvsService)
			if err != nil {
				return err
			}
			if len(s[1]) < 2 || len(s[2]) < 2 || len(s[4]) < 2 {
				continue // one of a mark
			}
			af := binary.NativeEndian.Uint16(s[1])
			fmt.Fprintf(&out, "%s %s\n", protocolNames[binary.NativeEndian.Uint16(s[2])], addrPortOf(af, s[3], s[4]))
			name := nl.NewRtAttr(ipvsService|unix.NLA_F_NESTED, nil)
			for i := 1; i <= 4; i++ {
				name.AddRtAttr(i, s[uint16(i)])
			}
			dests, err := dumpIPVS(family.ID, ipvsGetDest, name)
			if err != nil {
				return err
			}
			for _, m := range dests {
				d, err := attributes(m, ipvsDest)
				if err != nil {
					return err
				}
				fmt.Fprintf(&out, "-> %s\n", addrPortOf(af, d[1], d[2]))
			}
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("list the virtual servers of node %s: %w", n.Name, err)
	}
	return out.String(), nil
}

var protocolNames = map[uint16]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP", unix.IPPROTO_SCTP: "SCTP"}

func dumpIPVS(family uint16, command uint8, of *nl.RtAttr) ([][]byte, error) {
	req := nl.NewNetlinkRequest(int(family), unix.NLM_F_DUMP)
	req.AddData(&nl.Genlmsg{Command: command, Version: 1})
	if of != nil {
		req.AddData(of)
	}
	return req.Execute(unix.NETLINK_GENERIC, 0)
}

// attributes are those inside of one of a message, by type.
func attributes(message []byte, in uint16) (map[uint16][]byte, error) {
	out := map[uint16][]byte{}
	outer, err := nl.ParseRouteAttr(message[nl.SizeofGenlmsg:])
	if err != nil {
		return nil, err
	}
	for _, o := range outer {
		if o.Attr.Type&^unix.NLA_F_NESTED != in {
			continue
		}
		inner, err := nl.ParseRouteAttr(o.Value)
		if err != nil {
			return nil, err
		}
		for _, a := range inner {
			out[a.Attr.Type&^unix.NLA_F_NESTED] = a.Value
		}
	}
	return out, nil
}

// addrPortOf reads an address, of which IPv4 fills the beginning, and a port.
func addrPortOf(af uint16, addr, port []byte) netip.AddrPort {
	if len(port) < 2 || len(addr) < 16 {
		return netip.AddrPort{}
	}
	if af == unix.AF_INET {
		addr = addr[:4]
	}
	a, _ := netip.AddrFromSlice(addr)
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port))
}
