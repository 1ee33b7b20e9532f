package collectors

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// link is an interface as RTM_NEWLINK tells it, as far as somebody asks for it.
type link struct {
	index, master int
	name          string
	hardware      uint16
	flags         uint32
	mtu           uint32
	queue         uint32
	group         uint32
	operState     uint8
	qdisc         string
	addr, brd     []byte
	kind          string
	data          []byte // attributes of the kind
	masterKind    string
	port          []byte // attributes as a port of its master
	// lower is what stands after the "@": hasLower tells that there is such a thing, away that it is in another
	// namespace.
	lower          int
	hasLower, away bool
	awayID         uint32
}

// rtextFilterSkipStats leaves out counters: they are most of a message, and nobody asks for them.
const rtextFilterSkipStats = 1 << 3

// linkList reads all interfaces, in the order of their indexes. With nl.ErrDumpInterrupted some may be missing.
func linkList(ctx context.Context) ([]link, error) {
	messages, err := rtnlDump(ctx, unix.RTM_GETLINK, unix.RTM_NEWLINK, nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(rtextFilterSkipStats)))
	var out []link
	for _, m := range messages {
		if l, ok := linkOf(m); ok {
			out = append(out, l)
		}
	}
	slices.SortStableFunc(out, func(a, b link) int { return cmp.Compare(a.index, b.index) })
	return out, err
}

func linkOf(m []byte) (link, bool) {
	if len(m) < unix.SizeofIfInfomsg {
		return link{}, false
	}
	msg := nl.DeserializeIfInfomsg(m)
	l := link{index: int(msg.Index), hardware: msg.Type, flags: msg.Flags}
	for kind, v := range rtAttributes(m[unix.SizeofIfInfomsg:]) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.name = rtText(v)
		case unix.IFLA_MTU:
			l.mtu = rtU32(v)
		case unix.IFLA_TXQLEN:
			l.queue = rtU32(v)
		case unix.IFLA_GROUP:
			l.group = rtU32(v)
		case unix.IFLA_OPERSTATE:
			l.operState = rtU8(v)
		case unix.IFLA_QDISC:
			l.qdisc = rtText(v)
		case unix.IFLA_ADDRESS:
			l.addr = v
		case unix.IFLA_BROADCAST:
			l.brd = v
		case unix.IFLA_MASTER:
			l.master = int(rtU32(v))
		case unix.IFLA_LINK:
			l.hasLower, l.lower = true, int(rtU32(v))
		case unix.IFLA_LINK_NETNSID:
			l.away, l.awayID = true, rtU32(v)
		case unix.IFLA_LINKINFO:
			for kind, v := range rtAttributes(v) {
				switch kind {
				case unix.IFLA_INFO_KIND:
					l.kind = rtText(v)
				case unix.IFLA_INFO_DATA:
					l.data = v
				case unix.IFLA_INFO_SLAVE_KIND:
					l.masterKind = rtText(v)
				case unix.IFLA_INFO_SLAVE_DATA:
					l.port = v
				}
			}
		}
	}
	return l, l.name != ""
}

// links are the interfaces of a namespace by index.
type links map[int]*link

func indexLinks(list []link) links {
	out := make(links, len(list))
	for i := range list {
		out[list[i].index] = &list[i]
	}
	return out
}

// readLinks are the interfaces, for the names of those that routes and ports speak of. The error is never
// nl.ErrDumpInterrupted: an interface that is missing has no name, and that is all.
func readLinks(ctx context.Context) (links, error) {
	list, err := linkList(ctx)
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return nil, err
	}
	return indexLinks(list), nil
}

// name is what ip calls an interface: "if7" where it is gone or was never there.
func (ls links) name(index int) string {
	if l := ls[index]; l != nil {
		return l.name
	}
	return fmt.Sprintf("if%d", index)
}

// head writes "4: veth1@if2: <BROADCAST,UP> mtu 1500" as ip and bridge begin an interface.
func (ls links) head(b *bytes.Buffer, l *link) {
	fmt.Fprintf(b, "%d: %s", l.index, l.name)
	down := false
	switch {
	case !l.hasLower:
	case l.lower == 0:
		b.WriteString("@NONE")
	case l.away:
		fmt.Fprintf(b, "@if%d", l.lower)
	default:
		b.WriteString("@" + ls.name(l.lower))
		lower := ls[l.lower]
		down = lower != nil && lower.flags&unix.IFF_UP == 0
	}
	fmt.Fprintf(b, ": <%s> mtu %d", linkFlags(l.flags, down), l.mtu)
}

// linkFlags writes flags in the order of ip. RUNNING is shown by its absence: NO-CARRIER. M-DOWN says that the
// interface below is down.
func linkFlags(flags uint32, lowerDown bool) string {
	var words []string
	if flags&unix.IFF_UP != 0 && flags&unix.IFF_RUNNING == 0 {
		words = append(words, "NO-CARRIER")
	}
	flags &^= unix.IFF_RUNNING
	for _, f := range []struct {
		bit  uint32
		name string
	}{
		{unix.IFF_LOOPBACK, "LOOPBACK"}, {unix.IFF_BROADCAST, "BROADCAST"}, {unix.IFF_POINTOPOINT, "POINTOPOINT"},
		{unix.IFF_MULTICAST, "MULTICAST"}, {unix.IFF_NOARP, "NOARP"}, {unix.IFF_ALLMULTI, "ALLMULTI"},
		{unix.IFF_PROMISC, "PROMISC"}, {unix.IFF_MASTER, "MASTER"}, {unix.IFF_SLAVE, "SLAVE"}, {unix.IFF_DEBUG, "DEBUG"},
		{unix.IFF_DYNAMIC, "DYNAMIC"}, {unix.IFF_AUTOMEDIA, "AUTOMEDIA"}, {unix.IFF_PORTSEL, "PORTSEL"},
		{unix.IFF_NOTRAILERS, "NOTRAILERS"}, {unix.IFF_UP, "UP"}, {unix.IFF_LOWER_UP, "LOWER_UP"},
		{unix.IFF_DORMANT, "DORMANT"}, {unix.IFF_ECHO, "ECHO"},
	} {
		if flags&f.bit != 0 {
			words = append(words, f.name)
			flags &^= f.bit
		}
	}
	if flags != 0 {
		words = append(words, fmt.Sprintf("%x", flags))
	}
	if lowerDown {
		words = append(words, "M-DOWN")
	}
	return strings.Join(words, ",")
}

func operState(s uint8) string {
	names := []string{"UNKNOWN", "NOTPRESENT", "DOWN", "LOWERLAYERDOWN", "TESTING", "DORMANT", "UP"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("%#x", s)
}

// hardwareName is the word after "link/".
func hardwareName(t uint16) string {
	switch t {
	case unix.ARPHRD_ETHER:
		return "ether"
	case unix.ARPHRD_INFINIBAND:
		return "infiniband"
	case unix.ARPHRD_PPP:
		return "ppp"
	case unix.ARPHRD_TUNNEL:
		return "ipip"
	case unix.ARPHRD_TUNNEL6:
		return "tunnel6"
	case unix.ARPHRD_LOOPBACK:
		return "loopback"
	case unix.ARPHRD_SIT:
		return "sit"
	case unix.ARPHRD_IPGRE:
		return "gre"
	case unix.ARPHRD_IP6GRE:
		return "gre6"
	case unix.ARPHRD_NETLINK:
		return "netlink"
	case unix.ARPHRD_NONE:
		return "none"
	}
	return fmt.Sprintf("[%d]", t)
}

// hardwareAddr writes a link-layer address: that of a tunnel is an IP address.
func hardwareAddr(t uint16, addr []byte) string {
	switch {
	case len(addr) == 4 && (t == unix.ARPHRD_TUNNEL || t == unix.ARPHRD_SIT || t == unix.ARPHRD_IPGRE),
		len(addr) == 16 && (t == unix.ARPHRD_TUNNEL6 || t == unix.ARPHRD_IP6GRE):
		a, _ := netip.AddrFromSlice(addr)
		return a.String()
	}
	words := make([]string, len(addr))
	for i, c := range addr {
		words[i] = fmt.Sprintf("%02x", c)
	}
	return strings.Join(words, ":")
}
