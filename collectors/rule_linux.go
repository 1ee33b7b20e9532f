package collectors

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// readRules reads the routing rules of both families, in the text of `ip rule show` and `ip -6 rule show`.
func readRules(ctx context.Context, p *place) []snapshot.Evidence {
	data, err := ruleText(ctx, unix.AF_INET)
	out := []snapshot.Evidence{dumped(p.dir+"ip-rule.txt", snapshot.IPRule, 4, "IPv4 routing rules", data, err)}
	six := p.dir + "ip6-rule.txt"
	if !hasIPv6() {
		return append(out, noIPv6(six, snapshot.IPRule))
	}
	data, err = ruleText(ctx, unix.AF_INET6)
	return append(out, dumped(six, snapshot.IPRule, 6, "IPv6 routing rules", data, err))
}

func ruleText(ctx context.Context, family int) ([]byte, error) {
	messages, err := rtnlDump(ctx, unix.RTM_GETRULE, unix.RTM_NEWRULE, &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT):
		return nil, errors.New("this kernel has no policy routing: only the tables local and main are asked")
	case err != nil && !errors.Is(err, nl.ErrDumpInterrupted):
		return nil, err
	}
	var b bytes.Buffer
	for _, m := range messages {
		writeRule(&b, family, m)
	}
	return b.Bytes(), err
}

// Attributes of rules that x/sys does not know, and the flags of struct fib_rule_hdr.
const (
	fraDSCP          = 25
	fraFlowLabel     = 26
	fraFlowLabelMask = 27
	fraSportMask     = 28
	fraDportMask     = 29
	fraDSCPMask      = 30

	ruleInvert      = 0x2
	ruleUnresolved  = 0x4
	ruleInDetached  = 0x8
	ruleOutDetached = 0x10
)

// writeRule writes a rule from its message. A selector that this program does not know is written by its number,
// so that nobody takes the rule for one that matches more than it does.
func writeRule(b *bytes.Buffer, family int, m []byte) {
	// struct fib_rule_hdr is laid out as struct rtmsg: the action stands in the place of the type.
	if len(m) < unix.SizeofRtMsg {
		return
	}
	msg := nl.DeserializeRtMsg(m)
	if int(msg.Family) != family {
		return
	}
	values := map[uint16][]byte{}
	var unknown []uint16
	for kind, v := range rtAttributes(m[unix.SizeofRtMsg:]) {
		values[kind] = v
		if kind > fraDSCPMask {
			unknown = append(unknown, kind)
		}
	}
	has := func(kind uint16) bool { _, ok := values[kind]; return ok }
	number := func(kind uint16) uint32 { return rtU32(values[kind]) }

	fmt.Fprintf(b, "%d:\t", number(unix.FRA_PRIORITY))
	if msg.Flags&ruleInvert != 0 {
		b.WriteString("not ")
	}
	b.WriteString("from " + routeEnd(values[unix.FRA_SRC], msg.Src_len, "all"))
	if has(unix.FRA_DST) || msg.Dst_len > 0 {
		b.WriteString(" to " + routeEnd(values[unix.FRA_DST], msg.Dst_len, "all"))
	}
	if msg.Tos != 0 {
		fmt.Fprintf(b, " tos %#02x", msg.Tos)
	}
	if has(unix.FRA_FWMARK) || has(unix.FRA_FWMASK) {
		fmt.Fprintf(b, " fwmark %#x", number(unix.FRA_FWMARK))
		if mask := number(unix.FRA_FWMASK); has(unix.FRA_FWMASK) && mask != 0xffffffff {
			fmt.Fprintf(b, "/%#x", mask)
		}
	}
	writeRuleDev(b, "iif", values[unix.FRA_IIFNAME], msg.Flags&ruleInDetached != 0)
	writeRuleDev(b, "oif", values[unix.FRA_OIFNAME], msg.Flags&ruleOutDetached != 0)
	if v := values[unix.FRA_UID_RANGE]; len(v) >= 8 {
		fmt.Fprintf(b, " uidrange %d-%d", rtU32(v), rtU32(v[4:]))
	}
	if has(unix.FRA_IP_PROTO) {
		b.WriteString(" ipproto " + ruleProto(rtU8(values[unix.FRA_IP_PROTO])))
	}
	writeRulePorts(b, "sport", values[unix.FRA_SPORT_RANGE], values[fraSportMask])
	writeRulePorts(b, "dport", values[unix.FRA_DPORT_RANGE], values[fraDportMask])
	if v := values[unix.FRA_TUN_ID]; len(v) >= 8 {
		fmt.Fprintf(b, " tun_id %d", binary.BigEndian.Uint64(v))
	}
	if has(fraDSCP) {
		fmt.Fprintf(b, " dscp %d", rtU8(values[fraDSCP]))
		if mask := rtU8(values[fraDSCPMask]); has(fraDSCPMask) && mask != 0x3f {
			fmt.Fprintf(b, "/%#x", mask)
		}
	}
	if v := values[fraFlowLabel]; len(v) >= 4 {
		fmt.Fprintf(b, " flowlabel %#x", binary.BigEndian.Uint32(v))
		if mask := values[fraFlowLabelMask]; len(mask) >= 4 {
			fmt.Fprintf(b, "/%#x", binary.BigEndian.Uint32(mask))
		}
	}
	for _, kind := range unknown {
		fmt.Fprintf(b, " selector-%d", kind)
	}

	table := uint32(msg.Table)
	if has(unix.FRA_TABLE) {
		table = number(unix.FRA_TABLE)
	}
	switch l3mdev := rtU8(values[unix.FRA_L3MDEV]) != 0; {
	case l3mdev:
		b.WriteString(" lookup [l3mdev-table]")
	case table != 0:
		b.WriteString(" lookup " + rtTable(table))
	}
	if n := int32(number(unix.FRA_SUPPRESS_PREFIXLEN)); has(unix.FRA_SUPPRESS_PREFIXLEN) && n >= 0 {
		fmt.Fprintf(b, " suppress_prefixlength %d", n)
	}
	if n := int32(number(unix.FRA_SUPPRESS_IFGROUP)); has(unix.FRA_SUPPRESS_IFGROUP) && n >= 0 {
		fmt.Fprintf(b, " suppress_ifgroup %d", n)
	}
	if realm := number(unix.FRA_FLOW); realm != 0 {
		fmt.Fprintf(b, " realms %d", realm&0xffff)
	}
	switch msg.Type {
	case unix.FR_ACT_TO_TBL:
	case unix.FR_ACT_GOTO:
		fmt.Fprintf(b, " goto %d", number(unix.FRA_GOTO))
		if msg.Flags&ruleUnresolved != 0 {
			b.WriteString(" [unresolved]")
		}
	case unix.FR_ACT_NOP:
		b.WriteString(" nop")
	default:
		b.WriteString(" " + rtType(msg.Type))
	}
	if p := rtU8(values[unix.FRA_PROTOCOL]); p != unix.RTPROT_UNSPEC && p != unix.RTPROT_KERNEL {
		b.WriteString(" proto " + rtProto(p))
	}
	b.WriteByte('\n')
}

// writeRuleDev writes an interface that a rule names; detached says that there is none of this name.
func writeRuleDev(b *bytes.Buffer, word string, name []byte, detached bool) {
	if name == nil {
		return
	}
	fmt.Fprintf(b, " %s %s", word, rtText(name))
	if detached {
		b.WriteString(" [detached]")
	}
}

func writeRulePorts(b *bytes.Buffer, word string, ports, mask []byte) {
	if len(ports) < 4 {
		return
	}
	from, to := rtU16(ports), rtU16(ports[2:])
	switch m := rtU16(mask); {
	case len(mask) >= 2 && m != 0xffff:
		fmt.Fprintf(b, " %s %#x/%#x", word, from, m)
	case from == to:
		fmt.Fprintf(b, " %s %d", word, from)
	default:
		fmt.Fprintf(b, " %s %d-%d", word, from, to)
	}
}

func ruleProto(p uint8) string {
	switch p {
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_ICMPV6:
		return "ipv6-icmp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}
	return fmt.Sprint(p)
}
