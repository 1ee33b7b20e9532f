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
	colons     = regexp.MustCompile(`^[0-9A-Fa-f:]*:[0-9A-Fa-f:]*(?:\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})?`)
	nftName    = regexp.MustCompile(`^(service|local|external|firewall|endpoint|affinity)-[A-Z2-7]{8}-[A-Za-z0-9./_-]*`)
	kubeChain  = regexp.MustCompile(`^(KUBE-(?:SVC|SVL|EXT|FW|XLB|SEP)-)([A-Z2-7]{16})\b`)
	maskAfter  = regexp.MustCompile(`^/(255\.\d{1,3}\.\d{1,3}\.\d{1,3}|128\.0\.0\.0|192\.0\.0\.0|224\.0\.0\.0|240\.0\.0\.0|248\.0\.0\.0|252\.0\.0\.0|254\.0\.0\.0)`)
	bitsAfter  = regexp.MustCompile(`^/(\d{1,3})\b`)
	clusterDNS = regexp.MustCompile(`^svc\.cluster\.local\b`)
	// foreign is a word with letters beyond ASCII.
	foreign = regexp.MustCompile(`^[\pL\pN\pM](?:[\pL\pN\pM]|-+[\pL\pN\pM])*`)
)

// text rewrites text whose words are taken in one mode.
func (r *renaming) text(s string, m mode) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
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
	if digit || c == ':' || isHex(c) && strings.IndexByte(s[:min(len(s), 5)], ':') > 0 {
		if n, out := r.addressToken(s); n > 0 {
			return n, out
		}
	}
	if c == ':' {
		return 0, ""
	}
	if digit {
		for _, kept := range []*regexp.Regexp{timestamp, clock} {
			if f := kept.FindString(s); f != "" {
				return len(f), f
			}
		}
		if f := underlined.FindString(s); f != "" {
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
		if f := clusterDNS.FindString(s); f != "" {
			return len(f), f
		}
	case 'K':
		if f := kubeChain.FindStringSubmatch(s); f != nil {
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
func (r *renaming) addressToken(s string) (int, string) {
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
