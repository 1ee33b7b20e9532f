package apply

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/report"
)

// A flowFilter finds the connections that a command of conntrack names.
type flowFilter struct {
	family           netlink.InetFamily
	protocol         uint8
	dst, reply       netip.Addr
	dstPort, replies uint16
}

// forgetFlows does as `conntrack -D [-f ipv6] -p PROTOCOL --orig-dst A --orig-port-dst P --reply-src B --reply-port-src Q`.
// That there is no such connection any more is no error: they come and go.
func forgetFlows(c report.RepairCommand) (func() error, error) {
	f := flowFilter{family: unix.AF_INET}
	wrong := func() error {
		return fmt.Errorf("remove tracked connections: %q is not understood", strings.Join(c.Command, " "))
	}
	if len(c.Command) < 2 || c.Command[1] != "-D" || len(c.Command)%2 != 0 {
		return nil, wrong()
	}
	for i := 2; i < len(c.Command); i += 2 {
		var err error
		switch value := c.Command[i+1]; c.Command[i] {
		case "-f":
			if value != "ipv6" {
				return nil, wrong()
			}
			f.family = unix.AF_INET6
		case "-p":
			f.protocol = map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}[value]
		case "--orig-dst":
			f.dst, err = netip.ParseAddr(value)
		case "--reply-src":
			f.reply, err = netip.ParseAddr(value)
		case "--orig-port-dst":
			f.dstPort, err = parsePort(value)
		case "--reply-port-src":
			f.replies, err = parsePort(value)
		default:
			return nil, wrong()
		}
		if err != nil {
			return nil, wrong()
		}
	}
	// Without all of it more would be removed than the plan says.
	if f.protocol == 0 || !f.dst.IsValid() || !f.reply.IsValid() || f.dstPort == 0 || f.replies == 0 {
		return nil, wrong()
	}
	return f.remove, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}

// MatchConntrackFlow tells whether a connection is one of them. Other zones are other networks.
func (f *flowFilter) MatchConntrackFlow(c *netlink.ConntrackFlow) bool {
	dst, ok := netip.AddrFromSlice(c.Forward.DstIP)
	reply, also := netip.AddrFromSlice(c.Reverse.SrcIP)
	return ok && also && c.Zone == 0 && c.Forward.Protocol == f.protocol &&
		dst.Unmap() == f.dst && c.Forward.DstPort == f.dstPort && reply.Unmap() == f.reply && c.Reverse.SrcPort == f.replies
}

func (f *flowFilter) remove() error {
	const tries = 5
	var err error
	for range tries {
		// What is interrupted by a change of the table may have passed over some.
		if _, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, f.family, f); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("remove tracked connections: %w", err)
	}
	return nil
}
