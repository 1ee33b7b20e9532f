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

// readRoutes reads all routing tables, in the text of `ip -4 -d route show table all` and its like for IPv6.
func readRoutes(ctx context.Context, p *place) []snapshot.Evidence {
	four, six := p.dir+"ip-route.txt", p.dir+"ip6-route.txt"
	ls, err := readLinks(ctx)
	if err != nil {
		return []snapshot.Evidence{
			dumped(four, snapshot.IPRoute, 4, "IPv4 routes", nil, err),
			dumped(six, snapshot.IPRoute, 6, "IPv6 routes", nil, err),
		}
	}
	data, err := routeText(ctx, ls, unix.AF_INET)
	out := []snapshot.Evidence{dumped(four, snapshot.IPRoute, 4, "IPv4 routes", data, err)}
	if !hasIPv6() {
		return append(out, noIPv6(six, snapshot.IPRoute))
	}
	data, err = routeText(ctx, ls, unix.AF_INET6)
	return append(out, dumped(six, snapshot.IPRoute, 6, "IPv6 routes", data, err))
}

func routeText(ctx context.Context, ls links, family int) ([]byte, error) {
	messages, err := rtnlDump(ctx, unix.RTM_GETROUTE, unix.RTM_NEWROUTE, &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}})
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return nil, err
	}
	var b bytes.Buffer
	for _, m := range messages {
		writeRoute(&b, ls, family, m)
	}
	return b.Bytes(), err
}

// Attributes of routes that x/sys does not know.
const rtaNextHopID = 30

// writeRoute writes a route from its message. Copies that the kernel made for one destination (redirects, path
// MTU) are left out, as ip does.
func writeRoute(b *bytes.Buffer, ls links, family int, m []byte) {
	if len(m) < unix.SizeofRtMsg {
		return
	}
	msg := nl.DeserializeRtMsg(m)
	if int(msg.Family) != family || msg.Flags&unix.RTM_F_CLONED != 0 {
		return
	}
	var (
		dst, src, prefsrc, metrics, hops, cache []byte
		own                                     hop
		metric, nextHopID, realm                uint32
		pref                                    uint8
		hasPref                                 bool
	)
	table := uint32(msg.Table)
	for kind, v := range rtAttributes(m[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_DST:
			dst = v
		case unix.RTA_SRC:
			src = v
		case unix.RTA_PREFSRC:
			prefsrc = v
		case unix.RTA_TABLE:
			table = rtU32(v)
		case unix.RTA_PRIORITY:
			metric = rtU32(v)
		case unix.RTA_METRICS:
			metrics = v
		case unix.RTA_MULTIPATH:
			hops = v
		case unix.RTA_CACHEINFO:
			cache = v
		case unix.RTA_PREF:
			pref, hasPref = rtU8(v), true
		case unix.RTA_FLOW:
			realm = rtU32(v)
		case rtaNextHopID:
			nextHopID = rtU32(v)
		case unix.RTA_OIF:
			own.dev = int(rtU32(v))
		default:
			own.attribute(kind, v)
		}
	}
	own.flags = uint8(msg.Flags)

	b.WriteString(rtType(msg.Type) + " " + routeEnd(dst, msg.Dst_len, "default"))
	if src != nil || msg.Src_len > 0 {
		b.WriteString(" from " + routeEnd(src, msg.Src_len, "all"))
	}
	own.writeEncap(b)
	if msg.Tos != 0 {
		fmt.Fprintf(b, " tos %#02x", msg.Tos)
	}
	if nextHopID != 0 {
		fmt.Fprintf(b, " nhid %d", nextHopID)
	}
	own.writeGateway(b, ls)
	if table != unix.RT_TABLE_MAIN {
		b.WriteString(" table " + rtTable(table))
	}
	fmt.Fprintf(b, " proto %s scope %s", rtProto(msg.Protocol), rtScope(msg.Scope))
	if a := rtAddr(prefsrc); a.IsValid() {
		b.WriteString(" src " + a.String())
	}
	if metric != 0 {
		fmt.Fprintf(b, " metric %d", metric)
	}
	own.writeFlags(b)
	writeRealm(b, realm)
	writeMetrics(b, metrics)
	if len(cache) >= 16 {
		// An IPv6 route that refuses says with which error.
		if code := int32(rtU32(cache[12:])); code != 0 {
			fmt.Fprintf(b, " error %d", code)
		}
	}
	if hasPref {
		b.WriteString(" pref " + routePref(pref))
	}
	b.WriteByte('\n')
	for h := range nextHops(hops) {
		b.WriteString("\tnexthop")
		h.writeEncap(b)
		h.writeGateway(b, ls)
		if h.weight > 0 {
			fmt.Fprintf(b, " weight %d", h.weight)
		}
		h.writeFlags(b)
		writeRealm(b, h.realm)
		b.WriteByte('\n')
	}
}

// routeEnd is a destination or a source; any is the word for all of them.
func routeEnd(addr []byte, length uint8, whole string) string {
	if a := rtAddr(addr); a.IsValid() {
		return rtPrefix(a, length)
	}
	if length > 0 {
		return fmt.Sprintf("0/%d", length)
	}
	return whole
}

func routePref(p uint8) string {
	switch p {
	case 0:
		return "medium"
	case 1:
		return "high"
	case 3:
		return "low"
	}
	return fmt.Sprint(p)
}

// writeMetrics writes those properties of a route that bound or lose packets.
func writeMetrics(b *bytes.Buffer, metrics []byte) {
	var locked uint32
	for kind, v := range rtAttributes(metrics) {
		if kind == unix.RTAX_LOCK {
			locked = rtU32(v)
		}
	}
	for kind, v := range rtAttributes(metrics) {
		word := ""
		switch kind {
		case unix.RTAX_MTU:
			word = "mtu"
		case unix.RTAX_ADVMSS:
			word = "advmss"
		case unix.RTAX_WINDOW:
			word = "window"
		case unix.RTAX_HOPLIMIT:
			word = "hoplimit"
		case unix.RTAX_INITCWND:
			word = "initcwnd"
		case unix.RTAX_INITRWND:
			word = "initrwnd"
		default:
			continue
		}
		lock := ""
		if locked&(1<<kind) != 0 {
			lock = " lock"
		}
		fmt.Fprintf(b, " %s%s %d", word, lock, rtU32(v))
	}
}

func writeRealm(b *bytes.Buffer, r uint32) {
	switch from := r >> 16; {
	case r == 0:
	case from != 0:
		fmt.Fprintf(b, " realms %d/%d", from, r&0xffff)
	default:
		fmt.Fprintf(b, " realm %d", r)
	}
}

// rtVia is RTA_VIA: a gateway of another family than the route's.
func rtVia(v []byte) (family uint16, addr []byte) {
	if len(v) < 2 {
		return 0, nil
	}
	return binary.NativeEndian.Uint16(v), v[2:]
}
