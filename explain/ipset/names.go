package ipset

import (
	"slices"
	"strconv"
	"strings"
)

const (
	protoICMP    = 1
	protoTCP     = 6
	protoUDP     = 17
	protoICMPv6  = 58
	protoSCTP    = 132
	protoUDPLite = 136
)

// protocolNumber reads a protocol as ipset prints it: by the name that /etc/protocols gives it, which are IANA's, or by
// its number.
func protocolNumber(s string) (uint8, bool) {
	if n, err := strconv.ParseUint(s, 10, 8); err == nil {
		return uint8(n), true
	}
	i, ok := slices.BinarySearchFunc(protocols, strings.ToLower(s), func(p protocol, name string) int { return strings.Compare(p.name, name) })
	if ok {
		return protocols[i].number, true
	}
	return 0, false
}

// protocol is a row of /etc/protocols, names in lower case.
type protocol struct {
	name   string
	number uint8
}

var protocols = []protocol{
	{"ah", 51},
	{"ax.25", 93},
	{"dccp", 33},
	{"ddp", 37},
	{"egp", 8},
	{"eigrp", 88},
	{"encap", 98},
	{"esp", 50},
	{"etherip", 97},
	{"ethernet", 143},
	{"fc", 133},
	{"ggp", 3},
	{"gre", 47},
	{"hip", 139},
	{"hmp", 20},
	{"icmp", protoICMP},
	{"icmpv6", protoICMPv6},
	{"idpr-cmtp", 38},
	{"idrp", 45},
	{"igmp", 2},
	{"igp", 9},
	{"ipcomp", 108},
	{"ipencap", 4},
	{"ipip", 94},
	{"ipv4", 4},
	{"ipv6", 41},
	{"ipv6-frag", 44},
	{"ipv6-icmp", protoICMPv6},
	{"ipv6-nonxt", 59},
	{"ipv6-opts", 60},
	{"ipv6-route", 43},
	{"isis", 124},
	{"iso-tp4", 29},
	{"l2tp", 115},
	{"manet", 138},
	{"mh", 135},
	{"mobility-header", 135},
	{"mpls-in-ip", 137},
	{"ospf", 89},
	{"pim", 103},
	{"pup", 12},
	{"rdp", 27},
	{"rohc", 142},
	{"rspf", 73},
	{"rsvp", 46},
	{"sctp", protoSCTP},
	{"shim6", 140},
	{"skip", 57},
	{"st", 5},
	{"tcp", protoTCP},
	{"udp", protoUDP},
	{"udplite", protoUDPLite},
	{"vmtp", 81},
	{"vrrp", 112},
	{"wesp", 141},
	{"xns-idp", 22},
	{"xtp", 36},
}

// icmpName is a type and code of ICMP by the name that ipset gives them (lib/icmp.c, lib/icmpv6.c).
type icmpName struct {
	name       string
	kind, code uint8
}

var icmpNames = []icmpName{
	{"echo-reply", 0, 0},
	{"pong", 0, 0},
	{"network-unreachable", 3, 0},
	{"host-unreachable", 3, 1},
	{"protocol-unreachable", 3, 2},
	{"port-unreachable", 3, 3},
	{"fragmentation-needed", 3, 4},
	{"source-route-failed", 3, 5},
	{"network-unknown", 3, 6},
	{"host-unknown", 3, 7},
	{"network-prohibited", 3, 9},
	{"host-prohibited", 3, 10},
	{"TOS-network-unreachable", 3, 11},
	{"TOS-host-unreachable", 3, 12},
	{"communication-prohibited", 3, 13},
	{"host-precedence-violation", 3, 14},
	{"precedence-cutoff", 3, 15},
	{"source-quench", 4, 0},
	{"network-redirect", 5, 0},
	{"host-redirect", 5, 1},
	{"TOS-network-redirect", 5, 2},
	{"TOS-host-redirect", 5, 3},
	{"echo-request", 8, 0},
	{"ping", 8, 0},
	{"router-advertisement", 9, 0},
	{"router-solicitation", 10, 0},
	{"ttl-zero-during-transit", 11, 0},
	{"ttl-zero-during-reassembly", 11, 1},
	{"ip-header-bad", 12, 0},
	{"required-option-missing", 12, 1},
	{"timestamp-request", 13, 0},
	{"timestamp-reply", 14, 0},
	{"address-mask-request", 17, 0},
	{"address-mask-reply", 18, 0},
}

var icmpv6Names = []icmpName{
	{"no-route", 1, 0},
	{"communication-prohibited", 1, 1},
	{"address-unreachable", 1, 3},
	{"port-unreachable", 1, 4},
	{"packet-too-big", 2, 0},
	{"ttl-zero-during-transit", 3, 0},
	{"ttl-zero-during-reassembly", 3, 1},
	{"bad-header", 4, 0},
	{"unknown-header-type", 4, 1},
	{"unknown-option", 4, 2},
	{"echo-request", 128, 0},
	{"ping", 128, 0},
	{"echo-reply", 129, 0},
	{"pong", 129, 0},
	{"router-solicitation", 133, 0},
	{"router-advertisement", 134, 0},
	{"neighbour-solicitation", 135, 0},
	{"neigbour-solicitation", 135, 0},
	{"neighbour-advertisement", 136, 0},
	{"neigbour-advertisement", 136, 0},
	{"redirect", 137, 0},
}

// icmpPort reads "8/0" or a name; the type stands in the upper byte.
func icmpPort(s string, v6 bool) (uint16, bool) {
	if kind, code, ok := strings.Cut(s, "/"); ok {
		k, okKind := number(kind, 255)
		c, okCode := number(code, 255)
		return uint16(k)<<8 | uint16(c), okKind && okCode
	}
	names := icmpNames
	if v6 {
		names = icmpv6Names
	}
	for _, n := range names {
		if strings.EqualFold(n.name, s) {
			return uint16(n.kind)<<8 | uint16(n.code), true
		}
	}
	return 0, false
}
