package collectors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// kindLine writes the line about the kind of an interface, with the properties of those kinds that carry the
// traffic of pods.
func (l *link) kindLine(ls links) string {
	var b strings.Builder
	b.WriteString(l.kind)
	values := map[uint16][]byte{}
	for kind, v := range rtAttributes(l.data) {
		values[kind] = v
	}
	number := func(word string, kind uint16) {
		switch v := values[kind]; len(v) {
		case 1:
			fmt.Fprintf(&b, " %s %d", word, v[0])
		case 2:
			fmt.Fprintf(&b, " %s %d", word, rtU16(v))
		case 4:
			fmt.Fprintf(&b, " %s %d", word, rtU32(v))
		}
	}
	switch l.kind {
	case "bridge":
		number("vlan_filtering", unix.IFLA_BR_VLAN_FILTERING)
		number("nf_call_iptables", unix.IFLA_BR_NF_CALL_IPTABLES)
		number("nf_call_ip6tables", unix.IFLA_BR_NF_CALL_IP6TABLES)
		number("nf_call_arptables", unix.IFLA_BR_NF_CALL_ARPTABLES)
	case "vlan":
		number("id", unix.IFLA_VLAN_ID)
	case "vrf":
		number("table", unix.IFLA_VRF_TABLE)
	case "vxlan":
		number("id", unix.IFLA_VXLAN_ID)
		for _, a := range []struct {
			word string
			kind uint16
		}{
			{"group", unix.IFLA_VXLAN_GROUP}, {"group", unix.IFLA_VXLAN_GROUP6},
			{"local", unix.IFLA_VXLAN_LOCAL}, {"local", unix.IFLA_VXLAN_LOCAL6},
		} {
			if addr := rtAddr(values[a.kind]); addr.IsValid() && !addr.IsUnspecified() {
				fmt.Fprintf(&b, " %s %s", a.word, addr)
			}
		}
		if i := rtU32(values[unix.IFLA_VXLAN_LINK]); i != 0 {
			b.WriteString(" dev " + ls.name(int(i)))
		}
		if v := values[unix.IFLA_VXLAN_PORT]; len(v) == 2 {
			fmt.Fprintf(&b, " dstport %d", binary.BigEndian.Uint16(v))
		}
	}
	return b.String()
}

// portState is the state of a bridge port in the word that both ip and bridge use.
func portState(s uint8) string {
	names := []string{"disabled", "listening", "learning", "forwarding", "blocking"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("(%d)", s)
}

// portLine writes what ip shows of a port below its interface: for a port of a bridge whether it sends frames
// back out of the port that they came in on, without which a pod does not reach itself through a Service.
func (l *link) portLine() string {
	line := l.masterKind + "_slave"
	if l.masterKind != "bridge" {
		return line
	}
	var head bytes.Buffer
	hairpin := ""
	for kind, v := range rtAttributes(l.port) {
		switch kind {
		case unix.IFLA_BRPORT_STATE:
			fmt.Fprintf(&head, " state %s", portState(rtU8(v)))
		case unix.IFLA_BRPORT_PRIORITY:
			fmt.Fprintf(&head, " priority %d", rtU16(v))
		case unix.IFLA_BRPORT_COST:
			fmt.Fprintf(&head, " cost %d", rtU32(v))
		case unix.IFLA_BRPORT_MODE:
			hairpin = " hairpin " + onOff(v)
		}
	}
	return line + head.String() + hairpin
}

func onOff(v []byte) string {
	if rtU8(v) != 0 {
		return "on"
	}
	return "off"
}
