package dataplane

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// protocols are those that Services know.
var protocols = [...]struct {
	name   string
	number uint8
}{
	{"TCP", netfilter.ProtoTCP}, {"UDP", netfilter.ProtoUDP}, {"SCTP", netfilter.ProtoSCTP},
}

// ProtocolNumber is the IP protocol number of a Service's protocol, in any case; 0 for one that Services do not know.
func ProtocolNumber(name string) uint8 {
	for _, p := range protocols {
		if strings.EqualFold(p.name, name) {
			return p.number
		}
	}
	return 0
}

// ProtocolName is the Service's name of an IP protocol number, or the number as text.
func ProtocolName(number uint8) string {
	for _, p := range protocols {
		if p.number == number {
			return p.name
		}
	}
	return fmt.Sprint(number)
}
