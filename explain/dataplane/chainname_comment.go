package dataplane

import (
	"net/netip"
	"strings"
)

// commentForm is a text that kube-proxy wraps around the service port in a rule's comment.
type commentForm struct{ before, after string }

// commentForms are the texts of all versions, the more specific before the more general. The bare service
// port (node ports, SEP chains, and the selection rules up to 1.23) needs no entry.
var commentForms = [...]commentForm{
	{"", " cluster IP"},
	{"", " external IP"},
	{"", " loadbalancer IP"},
	{"", " has no endpoints"},
	{"", " has no local endpoints"},                                  // XLB up to 1.23, filter since 1.25
	{"", " health check node port"},                                  // 1.21+
	{"masquerade traffic for ", " external destinations"},            // EXT, 1.24+
	{"pod traffic for ", " external destinations"},                   // EXT, 1.24+
	{"masquerade LOCAL traffic for ", " external destinations"},      // EXT, 1.24+
	{"route LOCAL traffic for ", " external destinations"},           // EXT, 1.24+
	{"masquerade LOCAL traffic for ", " LB IP"},                      // XLB, 1.15 to 1.23
	{"route LOCAL traffic for ", " LB IP to service chain"},          // XLB, 1.15 to 1.23
	{"other traffic to ", " will be dropped by KUBE-PROXY-FIREWALL"}, // FW, 1.27+
}

// ServicePortOf reads the service port, and the endpoint where there is one, out of the comment of one of
// kube-proxy's rules, as any version writes them:
//
//	store/web:http
//	store/web:http cluster IP
//	store/web:http -> 10.244.1.11:8080
//	masquerade traffic for store/web:http external destinations
//
// key is "namespace/name:port", or "namespace/name" for a port without name: the colon that releases up to
// 1.18 leave at the end is removed (they hash it, though: see ChainID). endpoint is not valid where the
// comment names none. ok is false for comments without a service port and for those of other programs, as
// far as the text can tell: whether "a/b" is kube-proxy's depends on the chain.
func ServicePortOf(comment string) (key string, endpoint netip.AddrPort, ok bool) {
	if subject, address, found := strings.Cut(comment, " -> "); found {
		// Since 1.24. An endpoint that cannot be read makes it somebody else's comment.
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return "", netip.AddrPort{}, false
		}
		key, ok = servicePortKey(subject)
		if !ok {
			return "", netip.AddrPort{}, false
		}
		return key, ap, true
	}
	key, ok = servicePortKey(subjectOf(comment))
	return key, netip.AddrPort{}, ok
}

// subjectOf removes the text around the service port.
func subjectOf(comment string) string {
	for _, f := range commentForms {
		s, ok := strings.CutPrefix(comment, f.before)
		if !ok {
			continue
		}
		if s, ok = strings.CutSuffix(s, f.after); ok {
			return s
		}
	}
	// KUBE-PROXY-FIREWALL, 1.25+.
	if s, chain, ok := strings.Cut(comment, " traffic not accepted by "); ok && strings.HasPrefix(chain, FWPrefix) {
		return s
	}
	// XLB up to 1.22 numbers its endpoints: "Balancing rule 0 for store/web:http".
	if s, ok := strings.CutPrefix(comment, "Balancing rule "); ok {
		if _, s, ok = strings.Cut(s, " for "); ok {
			return s
		}
	}
	return comment
}

func servicePortKey(s string) (key string, ok bool) {
	key = strings.TrimSuffix(s, ":")
	return key, isServicePort(key)
}

// isServicePort says whether s is "namespace/name" or "namespace/name:port". The three are DNS labels
// (port names too, since 1.1), which keeps the comments of other programs apart.
func isServicePort(s string) bool {
	namespace, rest, ok := strings.Cut(s, "/")
	if !ok {
		return false
	}
	name, port, named := strings.Cut(rest, ":")
	return isLabel(namespace) && isLabel(name) && (!named || isLabel(port))
}

func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
