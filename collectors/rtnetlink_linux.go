package collectors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// Interfaces, addresses, routes and rules come from rtnetlink, which every kernel with networking has: asking
// loads nothing. Messages are decoded here and not by the netlink package, which leaves out what decides where a
// packet goes: the action of a rule, the source and the preference of an IPv6 route.

// dumpTries is how often a list is asked for that changes while the kernel tells it.
const dumpTries = 5

// rtnlDump asks for all objects of a kind, with as few tries as it takes to hear them at one moment. With
// nl.ErrDumpInterrupted the messages are those of the last try.
func rtnlDump(ctx context.Context, get, answer uint16, request ...nl.NetlinkRequestData) (messages [][]byte, err error) {
	for range dumpTries {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		req := nl.NewNetlinkRequest(int(get), unix.NLM_F_DUMP)
		for _, d := range request {
			req.AddData(d)
		}
		// The socket is made on this thread: it is of its network namespace.
		messages, err = req.Execute(unix.NETLINK_ROUTE, answer)
		if !errors.Is(err, nl.ErrDumpInterrupted) {
			return messages, err
		}
	}
	return messages, err
}

// dumped is the evidence of a text that was made from a dump; err is that of the dump.
func dumped(file string, f snapshot.Format, family int, what string, data []byte, err error) snapshot.Evidence {
	var e snapshot.Evidence
	switch {
	case err == nil:
		e = evidence(file, f, data)
	case errors.Is(err, nl.ErrDumpInterrupted):
		e = evidence(file, f, data)
		e.Status = snapshot.Truncated
		e.Error = fmt.Sprintf("read %s: they changed each of the %d times that they were read, so some may be missing (collect again when the node is quieter)", what, dumpTries)
	default:
		e = couldNot(file, f, what, err)
	}
	e.Family = family
	return e
}

// hasIPv6 tells whether this kernel runs IPv6. Without it rtnetlink answers questions for IPv6 with IPv4.
func hasIPv6() bool {
	_, err := os.Stat("/proc/thread-self/net/if_inet6")
	return err == nil
}

// noIPv6 is the answer of a kernel that runs without IPv6.
func noIPv6(file string, f snapshot.Format) snapshot.Evidence {
	e := absent(file, f, "the kernel runs without IPv6")
	e.Family = 6
	return e
}

// rtAttributes yields the attributes of a message by type, without the flags that types carry. What does not
// hold together ends them.
func rtAttributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.SizeofRtAttr || size > len(b) {
				return
			}
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(kind, b[unix.SizeofRtAttr:size]) {
				return
			}
			b = b[min(len(b), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
		}
	}
}

// The values of attributes; an attribute that is too short is 0.

func rtU8(b []byte) uint8 {
	if len(b) < 1 {
		return 0
	}
	return b[0]
}

func rtU16(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.NativeEndian.Uint16(b)
}

func rtU32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

func rtText(b []byte) string { return unix.ByteSliceToString(b) }

func rtAddr(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// rtPrefix writes an address with its length as ip does: without it where it is the whole address.
func rtPrefix(a netip.Addr, length uint8) string {
	if int(length) == a.BitLen() {
		return a.String()
	}
	return fmt.Sprintf("%s/%d", a, length)
}

// rtScope names the scopes that every iproute2 knows.
func rtScope(s uint8) string {
	switch s {
	case unix.RT_SCOPE_UNIVERSE:
		return "global"
	case unix.RT_SCOPE_SITE:
		return "site"
	case unix.RT_SCOPE_LINK:
		return "link"
	case unix.RT_SCOPE_HOST:
		return "host"
	case unix.RT_SCOPE_NOWHERE:
		return "nowhere"
	}
	return fmt.Sprint(s)
}

// rtTable names the tables that every kernel has; others are numbers, whatever names the node gives them.
func rtTable(n uint32) string {
	switch n {
	case unix.RT_TABLE_LOCAL:
		return "local"
	case unix.RT_TABLE_MAIN:
		return "main"
	case unix.RT_TABLE_DEFAULT:
		return "default"
	}
	return fmt.Sprint(n)
}

// rtProto names those who make routes and rules as every iproute2 does.
func rtProto(p uint8) string {
	if name, ok := map[uint8]string{
		0: "unspec", 1: "redirect", 2: "kernel", 3: "boot", 4: "static", 8: "gated", 9: "ra", 10: "mrt", 11: "zebra", 12: "bird",
		13: "dnrouted", 14: "xorp", 15: "ntk", 16: "dhcp", 18: "keepalived", 42: "babel", 99: "openr", 186: "bgp", 187: "isis",
		188: "ospf", 189: "rip", 192: "eigrp",
	}[p]; ok {
		return name
	}
	return fmt.Sprint(p)
}

// rtType names the types of routes and the actions of rules.
func rtType(t uint8) string {
	if name, ok := map[uint8]string{
		unix.RTN_UNSPEC: "none", unix.RTN_UNICAST: "unicast", unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast",
		unix.RTN_ANYCAST: "anycast", unix.RTN_MULTICAST: "multicast", unix.RTN_BLACKHOLE: "blackhole",
		unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw", unix.RTN_NAT: "nat",
		unix.RTN_XRESOLVE: "xresolve",
	}[t]; ok {
		return name
	}
	return fmt.Sprint(t)
}
