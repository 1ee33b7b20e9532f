package snapshot

import (
	"net/netip"
	"strings"
)

// familyBytes bounds how much text is searched for addresses of the second family.
const familyBytes = 8 << 20

// familyOfAddresses tells the family of what `ip` printed by the addresses in it, then by the name; 0 when
// both occur. The table "default" exists for IPv4 only.
func familyOfAddresses(name string, text []byte) int {
	if len(text) > familyBytes {
		return 0
	}
	var four, six bool
	for line := range strings.Lines(string(text)) {
		a, b := addressFamilies(line)
		four, six = four || a || strings.Contains(line, " lookup default"), six || b
		if four && six {
			return 0
		}
	}
	if four || six {
		return oneFamily(four, six)
	}
	return familyOfName(name)
}

// addressFamilies tells which families the words of a line show addresses of. Link-layer addresses, times
// and chain names with colons are none.
func addressFamilies(line string) (four, six bool) {
	for word := range strings.FieldsFuncSeq(line, betweenAddresses) {
		if !strings.ContainsAny(word, ".:") {
			continue
		}
		if host, _, ok := strings.Cut(word, "/"); ok {
			word = host
		}
		word, _, _ = strings.Cut(word, "%")
		a, err := netip.ParseAddr(word)
		if err != nil {
			p, err := netip.ParseAddrPort(word)
			if err != nil {
				continue
			}
			a = p.Addr()
		}
		four = four || a.Is4()
		six = six || a.Is6()
	}
	return four, six
}

func betweenAddresses(r rune) bool {
	return r == ' ' || r == '\t' || r == '\r' || r == '\n' || r == ',' || r == '=' || r == '"' || r == '(' || r == ')' || r == '{' || r == '}'
}
