package collectors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ask reads connections from ctnetlink, which must be loaded. The request is the one that leaves counters alone.
func (t *flowText) ask(ctx context.Context) error {
	c, err := openNFNetlink()
	if err != nil {
		return err
	}
	defer c.close()
	err = c.ask(unix.NFNL_SUBSYS_CTNETLINK, nl.IPCTNL_MSG_CT_GET, unix.AF_UNSPEC, true, nil, func(family byte, attrs []byte) {
		// The rest of the answer is still heard, and dropped.
		if line, ok := flowLine(family, attrs); ok && !t.full && ctx.Err() == nil {
			t.add([]byte(line))
		}
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errInterrupted):
		return nil // connections come and go all the time
	}
	return err
}

// Attributes and status bits of ctnetlink that the netlink package does not know.
const (
	ctaProtoInfoTCP  = 1
	ctaProtoInfoDCCP = 2
	ctaProtoInfoSCTP = 3
	ctaState         = 1 // of each of the three

	ctaTupleIP    = 1
	ctaTupleProto = 2

	statusSeenReply = 1 << 1
	statusAssured   = 1 << 2
	statusOffload   = 1 << 14
	statusHWOffload = 1 << 15
)

// flowLine writes a connection as /proc/net/nf_conntrack does.
func flowLine(family byte, attrs []byte) (string, bool) {
	var (
		orig, reply   tuple
		info          []byte
		status        uint32
		timeout, mark uint32
		zone          uint16
		hasTimeout    bool
	)
	for kind, v := range rtAttributes(attrs) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			orig = tupleOf(v)
		case nl.CTA_TUPLE_REPLY:
			reply = tupleOf(v)
		case nl.CTA_STATUS:
			status = ctU32(v)
		case nl.CTA_PROTOINFO:
			info = v
		case nl.CTA_TIMEOUT:
			timeout, hasTimeout = ctU32(v), true
		case nl.CTA_MARK:
			mark = ctU32(v)
		case nl.CTA_ZONE:
			zone = uint16(ctPort(v))
		}
	}
	if orig.src == "" || reply.src == "" {
		return "", false
	}
	var b strings.Builder
	switch family {
	case unix.AF_INET:
		b.WriteString("ipv4     2 ")
	case unix.AF_INET6:
		b.WriteString("ipv6     10 ")
	default:
		return "", false
	}
	fmt.Fprintf(&b, "%-8s %d ", flowProto(orig.proto), orig.proto)
	offloaded := status&(statusOffload|statusHWOffload) != 0
	if hasTimeout && !offloaded {
		fmt.Fprintf(&b, "%d ", timeout)
	}
	if s := flowState(info); s != "" && !offloaded {
		b.WriteString(s + " ")
	}
	b.WriteString(orig.text())
	if status&statusSeenReply == 0 {
		b.WriteString("[UNREPLIED] ")
	}
	b.WriteString(reply.text())
	switch {
	case status&statusHWOffload != 0:
		b.WriteString("[HW_OFFLOAD] ")
	case status&statusOffload != 0:
		b.WriteString("[OFFLOAD] ")
	case status&statusAssured != 0:
		b.WriteString("[ASSURED] ")
	}
	fmt.Fprintf(&b, "mark=%d zone=%d", mark, zone)
	return b.String(), true
}

// tuple is one direction of a connection.
type tuple struct {
	proto        uint8
	src, dst     string
	sport, dport uint32
	icmp         bool
	kind, code   uint8
	id           uint32
}

func tupleOf(b []byte) tuple {
	var t tuple
	for kind, v := range rtAttributes(b) {
		switch kind {
		case ctaTupleIP:
			for kind, v := range rtAttributes(v) {
				a := rtAddr(v)
				switch {
				case !a.IsValid():
				case kind == nl.CTA_IP_V4_SRC || kind == nl.CTA_IP_V6_SRC:
					t.src = a.StringExpanded()
				case kind == nl.CTA_IP_V4_DST || kind == nl.CTA_IP_V6_DST:
					t.dst = a.StringExpanded()
				}
			}
		case ctaTupleProto:
			for kind, v := range rtAttributes(v) {
				switch kind {
				case nl.CTA_PROTO_NUM:
					t.proto = rtU8(v)
				case nl.CTA_PROTO_SRC_PORT:
					t.sport = ctPort(v)
				case nl.CTA_PROTO_DST_PORT:
					t.dport = ctPort(v)
				case 4, 7: // the identifier of an echo, ICMP and ICMPv6
					t.icmp, t.id = true, ctPort(v)
				case 5, 8:
					t.kind = rtU8(v)
				case 6, 9:
					t.code = rtU8(v)
				}
			}
		}
	}
	return t
}

func (t *tuple) text() string {
	s := "src=" + t.src + " dst=" + t.dst + " "
	if t.icmp {
		return s + fmt.Sprintf("type=%d code=%d id=%d ", t.kind, t.code, t.id)
	}
	switch t.proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_UDPLITE, unix.IPPROTO_SCTP, unix.IPPROTO_DCCP:
		s += fmt.Sprintf("sport=%d dport=%d ", t.sport, t.dport)
	}
	return s
}

// Numbers of ctnetlink are in network order.

func ctU32(v []byte) uint32 {
	if len(v) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(v)
}

func ctPort(v []byte) uint32 {
	if len(v) < 2 {
		return 0
	}
	return uint32(binary.BigEndian.Uint16(v))
}

func flowProto(p uint8) string {
	switch p {
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_DCCP:
		return "dccp"
	case unix.IPPROTO_GRE:
		return "gre"
	case unix.IPPROTO_ICMPV6:
		return "icmpv6"
	case unix.IPPROTO_SCTP:
		return "sctp"
	case unix.IPPROTO_UDPLITE:
		return "udplite"
	}
	return "unknown"
}

// flowState names the state of a connection whose protocol has states.
func flowState(info []byte) string {
	for kind, v := range rtAttributes(info) {
		var names []string
		switch kind {
		case ctaProtoInfoTCP:
			names = []string{"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2"}
		case ctaProtoInfoDCCP:
			names = []string{"NONE", "REQUEST", "RESPOND", "PARTOPEN", "OPEN", "CLOSEREQ", "CLOSING", "TIMEWAIT", "IGNORE", "INVALID"}
		case ctaProtoInfoSCTP:
			names = []string{"NONE", "CLOSED", "COOKIE_WAIT", "COOKIE_ECHOED", "ESTABLISHED", "SHUTDOWN_SENT", "SHUTDOWN_RECD", "SHUTDOWN_ACK_SENT", "HEARTBEAT_SENT"}
		default:
			continue
		}
		for kind, v := range rtAttributes(v) {
			if kind == ctaState && int(rtU8(v)) < len(names) && len(v) > 0 {
				return names[v[0]]
			}
		}
	}
	return ""
}
