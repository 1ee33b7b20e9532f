package collectors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// readAddrs reads interfaces with their addresses, in the text of `ip -d addr show`. Lifetimes are left out: they
// run, and no question rests on them.
func readAddrs(ctx context.Context, p *place) []snapshot.Evidence {
	data, err := addrText(ctx)
	return []snapshot.Evidence{dumped(p.dir+"ip-addr.txt", snapshot.IPAddr, 0, "interfaces and addresses", data, err)}
}

// ifAddr is an address as RTM_NEWADDR tells it.
type ifAddr struct {
	family, length, scope uint8
	flags                 uint32
	index                 int
	local, peer           []byte
	brd, anycast          []byte
	label                 string
	metric                uint32
	proto                 uint8
}

// addrText is of one moment as far as that can be: an address of an interface that was not there yet when the
// interfaces were read sends it back to the start.
func addrText(ctx context.Context) ([]byte, error) {
	var last []byte
	for range dumpTries {
		list, err := linkList(ctx)
		if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
			return nil, err
		}
		addrs, errAddrs := addrList(ctx)
		if errAddrs != nil && !errors.Is(errAddrs, nl.ErrDumpInterrupted) {
			return nil, errAddrs
		}
		byLink := map[int][]ifAddr{}
		for _, a := range addrs {
			byLink[a.index] = append(byLink[a.index], a)
		}
		ls, strays := indexLinks(list), false
		for index := range byLink {
			strays = strays || ls[index] == nil
		}
		last = writeAddrs(list, ls, byLink)
		if !strays {
			return last, errors.Join(err, errAddrs)
		}
	}
	return last, nl.ErrDumpInterrupted
}

// addrList reads the addresses of both families in the order of the kernel, which is that in which it picks a
// source address.
func addrList(ctx context.Context) ([]ifAddr, error) {
	families := []int{unix.AF_INET}
	if hasIPv6() {
		families = append(families, unix.AF_INET6)
	}
	var (
		out         []ifAddr
		interrupted error
	)
	for _, family := range families {
		messages, err := rtnlDump(ctx, unix.RTM_GETADDR, unix.RTM_NEWADDR, nl.NewIfAddrmsg(family))
		switch {
		case errors.Is(err, nl.ErrDumpInterrupted):
			interrupted = err
		case err != nil:
			return nil, err
		}
		for _, m := range messages {
			if a, ok := ifAddrOf(m); ok && int(a.family) == family {
				out = append(out, a)
			}
		}
	}
	return out, interrupted
}

// Attributes of addresses that x/sys does not know.
const ifaProto = 11

func ifAddrOf(m []byte) (ifAddr, bool) {
	if len(m) < unix.SizeofIfAddrmsg {
		return ifAddr{}, false
	}
	msg := nl.DeserializeIfAddrmsg(m)
	a := ifAddr{family: msg.Family, length: msg.Prefixlen, scope: msg.Scope, flags: uint32(msg.Flags), index: int(msg.Index)}
	for kind, v := range rtAttributes(m[unix.SizeofIfAddrmsg:]) {
		switch kind {
		case unix.IFA_LOCAL:
			a.local = v
		case unix.IFA_ADDRESS:
			a.peer = v
		case unix.IFA_BROADCAST:
			a.brd = v
		case unix.IFA_ANYCAST:
			a.anycast = v
		case unix.IFA_LABEL:
			a.label = rtText(v)
		case unix.IFA_FLAGS: // all of them: the header has room for eight
			a.flags = rtU32(v)
		case unix.IFA_RT_PRIORITY:
			a.metric = rtU32(v)
		case ifaProto:
			a.proto = rtU8(v)
		}
	}
	// IFA_ADDRESS is the address itself, but for the other end where IFA_LOCAL is the address.
	if a.local == nil {
		a.local = a.peer
	}
	if a.peer == nil {
		a.peer = a.local
	}
	return a, rtAddr(a.local).IsValid()
}

func writeAddrs(list []link, ls links, addrs map[int][]ifAddr) []byte {
	var b bytes.Buffer
	for i := range list {
		l := &list[i]
		ls.head(&b, l)
		if l.qdisc != "" {
			b.WriteString(" qdisc " + l.qdisc)
		}
		if l.master != 0 {
			b.WriteString(" master " + ls.name(l.master))
		}
		b.WriteString(" state " + operState(l.operState))
		if l.group == 0 {
			b.WriteString(" group default")
		} else {
			fmt.Fprintf(&b, " group %d", l.group)
		}
		if l.queue != 0 {
			fmt.Fprintf(&b, " qlen %d", l.queue)
		}
		fmt.Fprintf(&b, "\n    link/%s %s", hardwareName(l.hardware), hardwareAddr(l.hardware, l.addr))
		if len(l.brd) > 0 {
			word := "brd"
			if l.flags&unix.IFF_POINTOPOINT != 0 {
				word = "peer"
			}
			fmt.Fprintf(&b, " %s %s", word, hardwareAddr(l.hardware, l.brd))
		}
		if l.away {
			if int32(l.awayID) < 0 {
				b.WriteString(" link-netnsid unknown")
			} else {
				fmt.Fprintf(&b, " link-netnsid %d", l.awayID)
			}
		}
		b.WriteByte('\n')
		if l.kind != "" {
			b.WriteString("    " + l.kindLine(ls) + "\n")
		}
		if l.masterKind != "" {
			b.WriteString("    " + l.portLine() + "\n")
		}
		for _, a := range addrs[l.index] {
			b.WriteString("    " + a.line(l.name) + "\n")
		}
	}
	return b.Bytes()
}

// flagNames are the words of ip for flags, in its order. PERMANENT is shown by its absence: dynamic.
func (a *ifAddr) flagNames() []string {
	temporary := "secondary"
	if a.family == unix.AF_INET6 {
		temporary = "temporary"
	}
	var words []string
	for _, f := range []struct {
		bit  uint32
		name string
	}{
		{unix.IFA_F_SECONDARY, temporary}, {unix.IFA_F_NODAD, "nodad"}, {unix.IFA_F_OPTIMISTIC, "optimistic"},
		{unix.IFA_F_DADFAILED, "dadfailed"}, {unix.IFA_F_HOMEADDRESS, "home"}, {unix.IFA_F_DEPRECATED, "deprecated"},
		{unix.IFA_F_TENTATIVE, "tentative"}, {unix.IFA_F_PERMANENT, ""}, {unix.IFA_F_MANAGETEMPADDR, "mngtmpaddr"},
		{unix.IFA_F_NOPREFIXROUTE, "noprefixroute"}, {unix.IFA_F_MCAUTOJOIN, "autojoin"},
		{unix.IFA_F_STABLE_PRIVACY, "stable-privacy"},
	} {
		switch set := a.flags&f.bit != 0; {
		case f.bit == unix.IFA_F_PERMANENT && !set:
			words = append(words, "dynamic")
		case set && f.name != "":
			words = append(words, f.name)
		}
	}
	return words
}

func (a *ifAddr) line(dev string) string {
	local, peer := rtAddr(a.local), rtAddr(a.peer)
	words := []string{"inet", local.String()}
	if a.family == unix.AF_INET6 {
		words[0] = "inet6"
	}
	if peer.IsValid() && peer != local {
		words = append(words, "peer", fmt.Sprintf("%s/%d", peer, a.length))
	} else {
		words[1] = fmt.Sprintf("%s/%d", local, a.length)
	}
	if a.metric != 0 {
		words = append(words, "metric", fmt.Sprint(a.metric))
	}
	if brd := rtAddr(a.brd); brd.IsValid() {
		words = append(words, "brd", brd.String())
	}
	if anycast := rtAddr(a.anycast); anycast.IsValid() {
		words = append(words, "any", anycast.String())
	}
	words = append(words, "scope", rtScope(a.scope))
	words = append(words, a.flagNames()...)
	switch a.proto {
	case 0:
	case 1:
		words = append(words, "proto", "kernel_lo")
	case 2:
		words = append(words, "proto", "kernel_ra")
	case 3:
		words = append(words, "proto", "kernel_ll")
	default:
		words = append(words, "proto", fmt.Sprint(a.proto))
	}
	if a.family == unix.AF_INET {
		// The label is the interface's name unless somebody gave another.
		if a.label == "" {
			a.label = dev
		}
		words = append(words, a.label)
	}
	return strings.Join(words, " ")
}
