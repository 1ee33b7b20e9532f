package redact

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Where nft knows no name for bytes of a packet it writes where they are and what they are compared with as a number
// ("@nh,128,32 0xa010203"), and that may be an address.

// packetBytes are bytes of a packet as nft names them, empty for none.
type packetBytes struct{ base, offset, length string }

var (
	// packetField is such bytes with what they are compared with: a number, a range, or several in braces.
	packetField  = regexp.MustCompile(`@(nh|ll|ih),(\d+),(\d+)((?:\s+set)?(?:\s+&\s+0x[0-9a-fA-F]+)?(?:\s+[!=<>]=?)?\s+)(\{[^}]*\}|[0-9a-fA-Fx-]+)`)
	packetNumber = regexp.MustCompile(`0x[0-9a-fA-F]+|\d+`)
)

// packetLine rewrites the numbers that bytes of packets are compared with in a line of nft.
func (r *renaming) packetLine(line string) string {
	if !strings.Contains(line, "@") {
		return line
	}
	return packetField.ReplaceAllStringFunc(line, func(f string) string {
		m := packetField.FindStringSubmatch(f)
		at := packetBytes{m[1], m[2], m[3]}
		return "@" + m[1] + "," + m[2] + "," + m[3] + m[4] + packetNumber.ReplaceAllStringFunc(m[5], func(n string) string {
			return r.packetNumber(n, at)
		})
	})
}

// packetNumber is the new number of one that bytes of a packet are compared with. One of up to 16 bits is no address.
func (r *renaming) packetNumber(s string, at packetBytes) string {
	n, err := strconv.ParseUint(s, 0, 64)
	if err == nil && n < 1<<16 {
		return s
	}
	if !packetNumber.MatchString(s) {
		return r.text(s, name)
	}
	h := r.hash("packet", s)
	fresh := binary.BigEndian.Uint64(h[:]) >> 1
	if err == nil && n < 1<<32 {
		fresh >>= 31
		if at.base == "nh" && at.length == "32" && (at.offset == "96" || at.offset == "128") { // of IPv4
			var b [4]byte
			binary.BigEndian.PutUint32(b[:], uint32(n))
			b = r.address(netip.AddrFrom4(b)).As4()
			fresh = uint64(binary.BigEndian.Uint32(b[:]))
		}
	}
	if digits, ok := strings.CutPrefix(s, "0x"); ok {
		return fmt.Sprintf("0x%0*x", len(digits), fresh)
	}
	return strconv.FormatUint(fresh, 10)
}
