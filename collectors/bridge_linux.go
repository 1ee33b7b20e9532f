package collectors

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// readBridge reads the ports of all bridges, in the text of `bridge -d link show`. The kernel tells all of them in
// one answer, however many pods there are.
func readBridge(ctx context.Context, p *place) []snapshot.Evidence {
	data, err := bridgeText(ctx)
	return []snapshot.Evidence{dumped(p.dir+"bridge-link.txt", snapshot.BridgeLink, 0, "bridge ports", data, err)}
}

func bridgeText(ctx context.Context) ([]byte, error) {
	ls, err := readLinks(ctx)
	if err != nil {
		return nil, err
	}
	// Asked of the part of rtnetlink that is always there; it asks the bridges, where there are any.
	messages, err := rtnlDump(ctx, unix.RTM_GETLINK, unix.RTM_NEWLINK, nl.NewIfInfomsg(unix.AF_BRIDGE))
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return nil, err
	}
	var b bytes.Buffer
	for _, m := range messages {
		writePort(&b, ls, m)
	}
	return b.Bytes(), err
}

// writePort writes a port from its message. An interface that is no port of a bridge (a network card that
// switches by itself answers too) gives nothing.
func writePort(b *bytes.Buffer, ls links, m []byte) {
	l, ok := linkOf(m)
	if !ok {
		return
	}
	var port []byte
	for kind, v := range rtAttributes(m[unix.SizeofIfInfomsg:]) {
		if kind == unix.IFLA_PROTINFO {
			port = v
		}
	}
	if port == nil || l.master == 0 {
		return
	}
	if known := ls[l.index]; known != nil && known.name == l.name {
		// This answer does not tell that the other end of a veth is in another namespace.
		l.lower, l.hasLower, l.away = known.lower, known.hasLower, known.away
	}
	ls.head(b, &l)
	fmt.Fprintf(b, " master %s", ls.name(l.master))
	var flags bytes.Buffer
	for kind, v := range rtAttributes(port) {
		switch kind {
		case unix.IFLA_BRPORT_STATE:
			fmt.Fprintf(b, " state %s", portState(rtU8(v)))
		case unix.IFLA_BRPORT_PRIORITY:
			fmt.Fprintf(b, " priority %d", rtU16(v))
		case unix.IFLA_BRPORT_COST:
			fmt.Fprintf(b, " cost %d", rtU32(v))
		default:
			if word := portFlag(kind); word != "" {
				fmt.Fprintf(&flags, " %s %s", word, onOff(v))
			}
		}
	}
	b.WriteString(" \n")
	if flags.Len() > 0 {
		fmt.Fprintf(b, "   %s \n", flags.Bytes())
	}
}

// portFlag is what bridge calls a switch of a port; empty: something else.
func portFlag(kind uint16) string {
	switch kind {
	case unix.IFLA_BRPORT_MODE:
		return "hairpin"
	case unix.IFLA_BRPORT_GUARD:
		return "guard"
	case unix.IFLA_BRPORT_PROTECT:
		return "root_block"
	case unix.IFLA_BRPORT_FAST_LEAVE:
		return "fastleave"
	case unix.IFLA_BRPORT_LEARNING:
		return "learning"
	case unix.IFLA_BRPORT_UNICAST_FLOOD:
		return "flood"
	case unix.IFLA_BRPORT_MCAST_FLOOD:
		return "mcast_flood"
	case unix.IFLA_BRPORT_BCAST_FLOOD:
		return "bcast_flood"
	case unix.IFLA_BRPORT_MCAST_TO_UCAST:
		return "mcast_to_unicast"
	case unix.IFLA_BRPORT_NEIGH_SUPPRESS:
		return "neigh_suppress"
	case unix.IFLA_BRPORT_VLAN_TUNNEL:
		return "vlan_tunnel"
	case unix.IFLA_BRPORT_ISOLATED:
		return "isolated"
	}
	return ""
}
