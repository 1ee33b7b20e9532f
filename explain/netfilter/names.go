package netfilter

import (
	"slices"
	"strings"
	"sync"
)

// named is a row of a table of names.
type named[T any] struct {
	name  string
	value T
}

func lookUp[T any](table []named[T], name string) (T, bool) {
	i, ok := slices.BinarySearchFunc(table, name, func(n named[T], s string) int { return strings.Compare(n.name, s) })
	if !ok {
		var zero T
		return zero, false
	}
	return table[i].value, true
}

// byName gives a table that is asked for every rule an index, made at the first question.
func byName[T any](table []T, name func(*T) string) func() map[string]*T {
	return sync.OnceValue(func() map[string]*T {
		out := make(map[string]*T, len(table))
		for i := range table {
			out[name(&table[i])] = &table[i]
		}
		return out
	})
}

// protocolNumber knows the protocol names that iptables prints: its own short list (xtables_chain_protos)
// and the entries of /etc/protocols that are the same everywhere, because they are IANA's.
func protocolNumber(name string) (uint8, bool) {
	switch name {
	case "tcp":
		return ProtoTCP, true
	case "udp":
		return ProtoUDP, true
	}
	return lookUp(protocols, strings.ToLower(name))
}

var protocols = []named[uint8]{
	{"ah", 51},
	{"all", 0},
	{"dccp", ProtoDCCP},
	{"egp", 8},
	{"encap", 98},
	{"esp", 50},
	{"etherip", 97},
	{"ggp", 3},
	{"gre", 47},
	{"icmp", ProtoICMP},
	{"icmpv6", ProtoICMPv6},
	{"igmp", 2},
	{"igp", 9},
	{"ip", 0},
	{"ipcomp", 108},
	{"ipencap", 4},
	{"ipip", 94},
	{"ipv4", 4},
	{"ipv6", 41},
	{"ipv6-frag", 44},
	{"ipv6-icmp", ProtoICMPv6},
	{"ipv6-mh", 135},
	{"ipv6-nonxt", 59},
	{"ipv6-opts", 60},
	{"ipv6-route", 43},
	{"isis", 124},
	{"l2tp", 115},
	{"mh", 135},
	{"mobility-header", 135},
	{"mpls-in-ip", 137},
	{"ospf", 89},
	{"pim", 103},
	{"rsvp", 46},
	{"sctp", ProtoSCTP},
	{"skip", 57},
	{"tcp", ProtoTCP},
	{"udp", ProtoUDP},
	{"udplite", ProtoUDPLite},
	{"vrrp", 112},
}

// servicePort knows the names of common ports as `iptables -L` prints them without -n: IANA's names, and the
// older ones of distributions. A name that is not here stays unread; another node's /etc/services is no
// evidence.
func servicePort(name string) (uint16, bool) { return lookUp(services, name) }

var services = []named[uint16]{
	{"amqp", 5672},
	{"amqps", 5671},
	{"auth", 113},
	{"bgp", 179},
	{"bootpc", 68},
	{"bootps", 67},
	{"dhcpv6-client", 546},
	{"dhcpv6-server", 547},
	{"domain", 53},
	{"domain-s", 853},
	{"echo", 7},
	{"epmd", 4369},
	{"ftp", 21},
	{"ftp-data", 20},
	{"git", 9418},
	{"gopher", 70},
	{"http", 80},
	{"http-alt", 8080},
	{"https", 443},
	{"imap", 143},
	{"imap2", 143},
	{"imaps", 993},
	{"ipp", 631},
	{"isakmp", 500},
	{"kerberos", 88},
	{"ldap", 389},
	{"ldaps", 636},
	{"mdns", 5353},
	{"microsoft-ds", 445},
	{"ms-sql-s", 1433},
	{"ms-wbt-server", 3389},
	{"mysql", 3306},
	{"netbios-dgm", 138},
	{"netbios-ns", 137},
	{"netbios-ssn", 139},
	{"nfs", 2049},
	{"ntp", 123},
	{"openvpn", 1194},
	{"pop3", 110},
	{"pop3s", 995},
	{"postgres", 5432},
	{"postgresql", 5432},
	{"redis", 6379},
	{"router", 520},
	{"rsync", 873},
	{"sip", 5060},
	{"sip-tls", 5061},
	{"smtp", 25},
	{"smtps", 465},
	{"snmp", 161},
	{"snmp-trap", 162},
	{"snmptrap", 162},
	{"ssh", 22},
	{"submission", 587},
	{"sunrpc", 111},
	{"telnet", 23},
	{"tftp", 69},
	{"time", 37},
	{"webcache", 8080},
	{"webmin", 10000},
	{"whois", 43},
	{"www", 80},
	{"x11", 6000},
	{"zabbix-agent", 10050},
}
