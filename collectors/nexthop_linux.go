package collectors

import (
	"bytes"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"
)

// hop is one next hop of a route, or the only one.
type hop struct {
	dev       int
	gateway   []byte
	via       []byte // a gateway of the other family
	viaFamily uint16
	encap     uint16
	flags     uint8
	weight    int
	realm     uint32
}

func (h *hop) attribute(kind uint16, v []byte) {
	switch kind {
	case unix.RTA_GATEWAY:
		h.gateway = v
	case unix.RTA_VIA:
		h.viaFamily, h.via = rtVia(v)
	case unix.RTA_ENCAP_TYPE:
		h.encap = rtU16(v)
	case unix.RTA_FLOW:
		h.realm = rtU32(v)
	}
}

// nextHops yields the next hops of RTA_MULTIPATH.
func nextHops(b []byte) iter.Seq[hop] {
	return func(yield func(hop) bool) {
		for len(b) >= unix.SizeofRtNexthop {
			size := int(rtU16(b))
			if size < unix.SizeofRtNexthop || size > len(b) {
				return
			}
			h := hop{flags: b[2], weight: int(b[3]) + 1, dev: int(rtU32(b[4:]))}
			for kind, v := range rtAttributes(b[unix.SizeofRtNexthop:size]) {
				h.attribute(kind, v)
			}
			if !yield(h) {
				return
			}
			b = b[min(len(b), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
		}
	}
}

// writeEncap names an encapsulation; what is in it decides nothing about where the packet goes.
func (h *hop) writeEncap(b *bytes.Buffer) {
	if h.encap == 0 {
		return
	}
	names := []string{"none", "mpls", "ip", "ila", "ip6", "seg6", "bpf", "seg6local", "rpl", "ioam6", "xfrm"}
	name := fmt.Sprint(h.encap)
	if int(h.encap) < len(names) {
		name = names[h.encap]
	}
	b.WriteString(" encap " + name)
}

func (h *hop) writeGateway(b *bytes.Buffer, ls links) {
	if a := rtAddr(h.gateway); a.IsValid() {
		b.WriteString(" via " + a.String())
	}
	if a := rtAddr(h.via); a.IsValid() {
		family := "inet"
		if h.viaFamily == unix.AF_INET6 {
			family = "inet6"
		}
		b.WriteString(" via " + family + " " + a.String())
	}
	if h.dev != 0 {
		b.WriteString(" dev " + ls.name(h.dev))
	}
}

func (h *hop) writeFlags(b *bytes.Buffer) {
	for _, f := range []struct {
		bit  uint8
		name string
	}{
		{unix.RTNH_F_DEAD, "dead"}, {unix.RTNH_F_ONLINK, "onlink"}, {unix.RTNH_F_PERVASIVE, "pervasive"},
		{unix.RTNH_F_OFFLOAD, "offload"}, {unix.RTNH_F_LINKDOWN, "linkdown"}, {unix.RTNH_F_UNRESOLVED, "unresolved"},
	} {
		if h.flags&f.bit != 0 {
			b.WriteString(" " + f.name)
		}
	}
}
