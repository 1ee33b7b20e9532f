package relay

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
)

// HeaderVersion is a version of the PROXY protocol, 0 for none: a header before what the client sends, which tells the
// backend who the client is (haproxy.org/download/2.9/doc/proxy-protocol.txt).
type HeaderVersion uint8

// The versions: 1 is a line of text, 2 is binary.
const (
	NoHeader HeaderVersion = 0
	HeaderV1 HeaderVersion = 1
	HeaderV2 HeaderVersion = 2
)

// ParseHeaderVersion reads "v1", "v2" or "none".
func ParseHeaderVersion(s string) (HeaderVersion, error) {
	switch s {
	case "v1":
		return HeaderV1, nil
	case "v2":
		return HeaderV2, nil
	case "none", "":
		return NoHeader, nil
	}
	return NoHeader, fmt.Errorf("PROXY protocol %q: want v1, v2 or none", s)
}

// longestHeader is enough for every header that is written here.
const longestHeader = 108

var signatureV2 = [12]byte{'\r', '\n', '\r', '\n', 0, '\r', '\n', 'Q', 'U', 'I', 'T', '\n'}

// append writes the header for a TCP connection of client to front, the address that it dialled. Both are of one family.
func (v HeaderVersion) append(to []byte, client, front netip.AddrPort) []byte {
	switch v {
	case HeaderV1:
		name := "TCP6"
		if client.Addr().Is4() {
			name = "TCP4"
		}
		to = append(to, "PROXY "...)
		to = append(to, name...)
		to = append(to, ' ')
		to = client.Addr().AppendTo(to)
		to = append(to, ' ')
		to = front.Addr().AppendTo(to)
		to = append(to, ' ')
		to = strconv.AppendUint(to, uint64(client.Port()), 10)
		to = append(to, ' ')
		to = strconv.AppendUint(to, uint64(front.Port()), 10)
		return append(to, '\r', '\n')
	case HeaderV2:
		const versionAndProxy, tcp4, tcp6 = 0x21, 0x11, 0x21
		to = append(to, signatureV2[:]...)
		to = append(to, versionAndProxy)
		c, f := client.Addr().AsSlice(), front.Addr().AsSlice()
		family := byte(tcp6)
		if client.Addr().Is4() {
			family = tcp4
		}
		to = append(to, family)
		to = binary.BigEndian.AppendUint16(to, uint16(2*len(c)+4))
		to = append(to, c...)
		to = append(to, f...)
		to = binary.BigEndian.AppendUint16(to, client.Port())
		return binary.BigEndian.AppendUint16(to, front.Port())
	}
	return to
}
