package redact

import (
	"encoding/hex"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text is rewritten token by token: what looks like an address is one, a word is looked at as names.go says, and
// everything between stays.

var (
	timestamp  = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?([.,]\d+)?(Z|[+-]\d{2}:?\d{2})?`)
	clock      = regexp.MustCompile(`^\d{1,2}:\d{2}:\d{2}([.,]\d+)?`)
	hardware   = regexp.MustCompile(`^[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}`)
	dotted     = regexp.MustCompile(`^\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)
	underlined = regexp.MustCompile(`^\d{1,3}_\d{1,3}_\d{1,3}_\d{1,3}`)
	colons     = regexp.MustCompile(`^[0-9A-Fa-f:]*:(?:\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}|[0-9A-Fa-f]*)`)
	nftName    = regexp.MustCompile(`^(service|local|external|firewall|endpoint|affinity)-[A-Z2-7]{8}-[A-Za-z0-9./_-]*`)
	kubeChain  = regexp.MustCompile(`^(KUBE-(?:SVC|SVL|EXT|FW|XLB|SEP)-)([A-Z2-7]{16})\b`)
	maskAfter  = regexp.MustCompile(`^/(255\.\d{1,3}\.\d{1,3}\.\d{1,3}|128\.0\.0\.0|192\.0\.0\.0|224\.0\.0\.0|240\.0\.0\.0|248\.0\.0\.0|252\.0\.0\.0|254\.0\.0\.0)`)
	bitsAfter  = regexp.MustCompile(`^/(\d{1,3})\b`)
	clusterDNS = regexp.MustCompile(`^svc\.cluster\.local\b`)
	// arpa is an IPv6 address as the DNS has it, digit by digit from its end.
	arpa = regexp.MustCompile(`^((?:[0-9A-Fa-f]\.){3,31}[0-9A-Fa-f])(\.ip6\.arpa)\b`)
	// foreign is a word with letters beyond ASCII.
	foreign = regexp.MustCompile(`^[\pL\pN\pM](?:[\pL\pN\pM]|-+[\pL\pN\pM])*`)
)

// window is as much as is looked at for tokens that have a greatest length: the others of a long line are looked at once.
const window = 96

// longestAddress is the length of an IPv6 address that ends in an IPv4 one.
const longestAddress = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")

// text rewrites text whose words are taken in one mode.
func (r *renaming) text(s string, m mode) string {
	var b strings.Builder
	b.Grow(len(s))
	given, hostEnd := m, 0
	for i := 0; i < len(s); {
		// A server in a URL, and in text for people that of "user@server".
		if i >= hostEnd && (strings.HasSuffix(s[:i], "://") || given == prose && i > 1 && s[i-1] == '@' && letterAfter(s[i-2:])) {
			hostEnd = i + hostLength(s[i:])
		}
		m = given
		if i < hostEnd && m != name {
			m = host
		}
		if !startsToken(s, i) {
			b.WriteByte(s[i])
			i++
			continue
		}
		n, out := r.token(s[i:], m)
		if n == 0 {
			b.WriteByte(s[i])
			i++
			continue
		}
		b.WriteString(out)
		i += n
	}
	return b.String()
}

// startsToken tells bytes that can begin a token: letters, digits, bytes beyond ASCII, and the colon of "::1".
func startsToken(s string, i int) bool {
	c := s[i]
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80 || c == ':' && i+1 < len(s) && s[i+1] == ':'
}

// token rewrites the token at the start of s and says how long it was; 0 for none.
func (r *renaming) token(s string, m mode) (int, string) {
	c := s[0]
	digit := c >= '0' && c <= '9'
	near := s[:min(len(s), window)]
	if digit || c == ':' || isHex(c) && strings.IndexByte(s[:min(len(s), 5)], ':') > 0 {
		if n, out := r.addressToken(s); n > 0 {
			return n, out
		}
	}
	if c == ':' {
		return 0, ""
	}
	if isHex(c) && len(s) > 1 && s[1] == '.' {
		if f := arpa.FindStringSubmatch(near); f != nil {
			return len(f[0]), r.renamed(f[1]) + f[2]
		}
	}
	if digit {
		for _, kept := range []*regexp.Regexp{timestamp, clock} {
			if f := kept.FindString(near); f != "" {
				return len(f), f
			}
		}
		if f := underlined.FindString(near); f != "" {
			return len(f), r.renamed(f)
		}
	}
	switch c {
	case 's', 'l', 'e', 'f', 'a':
		if f := nftName.FindString(s); f != "" {
			if out := r.nftName(f); out != "" {
				return len(f), out
			}
		}
		if f := clusterDNS.FindString(near); f != "" {
			return len(f), f
		}
	case 'K':
		if f := kubeChain.FindStringSubmatch(near); f != nil {
			return len(f[0]), f[1] + r.chainHash(f[2])
		}
	}
	if n := wordLength(s); n > 0 {
		return n, r.word(s[:n], m)
	}
	// Letters beyond ASCII are somebody's; signs are nobody's; what is no UTF-8 may be anything.
	if f := foreign.FindString(s); f != "" {
		return len(f), r.renamed(f)
	}
	if c < 0x80 {
		return 0, ""
	}
	sign, n := utf8.DecodeRuneInString(s)
	if sign == utf8.RuneError {
		return n, "?"
	}
	return n, s[:n]
}

// wordLength is the length of the word at the start of s: ASCII letters and digits, with hyphens between them.
func wordLength(s string) int {
	end := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z':
			end = i + 1
		case c == '-' && end > 0:
		case c >= 0x80 && foreign.MatchString(s[i:]):
			return 0 // part of a word with other letters
		default:
			return end
		}
	}
	return end
}

// addressToken rewrites an address, with its prefix length or mask, at the start of s.
func (r *renaming) addressToken(whole string) (int, string) {
	if n := octets(whole); n > 6 {
		return 3*n - 1, r.octets(whole[:3*n-1])
	}
	// What is longer than an address is none, and may hold several.
	if n := hexLength(whole); n > longestAddress && strings.Count(whole[:longestAddress], ":") > 1 {
		var out []string
		for part := range strings.SplitSeq(whole[:n], ":") {
			if part != "" {
				part = r.renamed(part)
			}
			out = append(out, part)
		}
		return n, strings.Join(out, ":")
	}
	s := whole[:min(len(whole), window)]
	if f := hardware.FindString(s); f != "" && !continues(s[len(f):]) {
		digits := strings.NewReplacer(":", "", "-", "").Replace(f)
		raw, err := hex.DecodeString(digits)
		if err == nil && strings.Count(f, f[2:3]) == 5 {
			mac := r.hardware([6]byte(raw))
			return len(f), macText(mac, f)
		}
	}
	if f := dotted.FindString(s); f != "" {
		rest := s[len(f):]
		if a, err := netip.ParseAddr(f); err == nil && !(len(rest) > 1 && rest[0] == '.' && rest[1] >= '0' && rest[1] <= '9') && (rest == "" || rest[0] < '0' || rest[0] > '9') {
			return r.withPrefix(f, a, rest)
		}
		// Octets with zeros in front, or five of them: an address that somebody wrote in their own way.
		return len(f), r.renamed(f)
	}
	if f := colons.FindString(s); strings.Count(f, ":") >= 2 {
		for end := len(f); end > 1; end-- {
			if a, err := netip.ParseAddr(f[:end]); err == nil && !letterAfter(s[end:]) {
				return r.withPrefix(f[:end], a, s[end:])
			}
			if c := f[end-1]; c != ':' && c != '.' {
				break
			}
		}
	}
	return 0, ""
}

// octets counts the hardware address at the start of s, if nothing but pairs of digits stands there.
func octets(s string) int {
	n := 0
	for i := 0; i+1 < len(s) && isHex(s[i]) && isHex(s[i+1]); i += 3 {
		n++
		if i+2 == len(s) || s[i+2] != ':' {
			if letterAfter(s[i+2:]) {
				return 0
			}
			return n
		}
	}
	return 0
}

// octets rewrites a hardware address that is longer than Ethernet's, or the header of a packet in the kernel's log: two
// addresses and a type.
func (r *renaming) octets(f string) string {
	digits := strings.ReplaceAll(f, ":", "")
	if raw, err := hex.DecodeString(digits); err == nil && len(raw) == 14 {
		return macText(r.hardware([6]byte(raw)), f) + ":" + macText(r.hardware([6]byte(raw[6:])), f) + f[35:]
	}
	fresh := cased(f, r.digits(digits, len(digits)))
	var out []string
	for i := 0; i < len(fresh); i += 2 {
		out = append(out, fresh[i:i+2])
	}
	return strings.Join(out, ":")
}

// hexLength is how far hexadecimal digits and colons go.
func hexLength(s string) int {
	n := 0
	for n < len(s) && (isHex(s[n]) || s[n] == ':') {
		n++
	}
	return n
}

// hostLength is how far the name of a server goes.
func hostLength(s string) int {
	n := 0
	for n < len(s) && (letterAfter(s[n:]) || s[n] >= 0x80 || strings.IndexByte(".-_", s[n]) >= 0) {
		n++
	}
	return n
}

// continues tells whether what stands before goes on: eight groups of two digits are no hardware address.
func continues(rest string) bool {
	return len(rest) > 1 && rest[0] == ':' && isHex(rest[1]) || rest != "" && isHex(rest[0])
}

func letterAfter(rest string) bool {
	return rest != "" && (rest[0]|0x20 >= 'a' && rest[0]|0x20 <= 'z' || rest[0] >= '0' && rest[0] <= '9')
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func (r *renaming) withPrefix(f string, a netip.Addr, rest string) (int, string) {
	if m := bitsAfter.FindStringSubmatch(rest); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil && n <= a.BitLen() {
			p := netip.PrefixFrom(a, n)
			// "-s 10.0.0.0/8" is a range; "inet 10.1.2.3/24" is an address with the range around it.
			return len(f) + len(m[0]), r.prefix(p).String()
		}
	}
	if m := maskAfter.FindStringSubmatch(rest); m != nil && a.Is4() {
		if mask, err := netip.ParseAddr(m[1]); err == nil {
			x, y, z := r.address(a).As4(), mask.As4(), a.As4()
			whole := true
			for i := range z {
				whole = whole && z[i]&^y[i] == 0
			}
			if whole {
				for i := range x {
					x[i] &= y[i]
				}
			}
			return len(f) + len(m[0]), netip.AddrFrom4(x).String() + m[0]
		}
	}
	return len(f), r.address(a).String()
}

// macText writes a hardware address as the old one was written.
func macText(mac [6]byte, like string) string {
	var parts []string
	for _, b := range mac {
		parts = append(parts, hex.EncodeToString([]byte{b}))
	}
	out := strings.Join(parts, like[2:3])
	if like == strings.ToUpper(like) && like != strings.ToLower(like) {
		return strings.ToUpper(out)
	}
	return out
}
