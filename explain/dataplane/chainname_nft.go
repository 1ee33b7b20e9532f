package dataplane

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strings"
)

// The prefixes of kube-proxy's per-service chains (and, for affinity-, sets) in nftables mode.
const (
	nftService  = "service-"
	nftLocal    = "local-"
	nftExternal = "external-"
	nftFirewall = "firewall-" // a chain since 1.30
	nftEndpoint = "endpoint-" // with affinity only since 1.36
	nftAffinity = "affinity-"
)

// nftNameMax is the longest name that kube-proxy makes, not counting the prefix; longer ones end in "...".
// Only names with an IPv6 endpoint get there.
const nftNameMax = 240

// NFTServiceName is the chain of all endpoints that the Cluster policy uses. Names of this mode can be
// read back: see ServicePortOfNFT. The two spellings of a port without name give the same chain.
func NFTServiceName(servicePort, protocol string) string {
	return nftName(nftService, nftBase(servicePort, protocol))
}

// NFTLocalName is the chain of the node's own endpoints.
func NFTLocalName(servicePort, protocol string) string {
	return nftName(nftLocal, nftBase(servicePort, protocol))
}

// NFTExternalName is the chain that external addresses lead to.
func NFTExternalName(servicePort, protocol string) string {
	return nftName(nftExternal, nftBase(servicePort, protocol))
}

// NFTFirewallName is the chain that checks the source ranges of a load balancer address.
func NFTFirewallName(servicePort, protocol string) string {
	return nftName(nftFirewall, nftBase(servicePort, protocol))
}

// NFTEndpointName is the chain of one endpoint, "1.2.3.4:80" or "[fd00::1]:80".
func NFTEndpointName(servicePort, protocol, endpoint string) string {
	return nftName(nftEndpoint, nftEndpointBase(servicePort, protocol, endpoint))
}

// NFTAffinityName is the set that remembers the clients of one endpoint.
func NFTAffinityName(servicePort, protocol, endpoint string) string {
	return nftName(nftAffinity, nftEndpointBase(servicePort, protocol, endpoint))
}

func nftName(prefix, base string) string {
	sum := sha256.Sum256([]byte(base))
	name := base32.StdEncoding.EncodeToString(sum[:])[:8] + "-" + base
	if len(name) > nftNameMax {
		name = name[:nftNameMax-3] + "..."
	}
	return prefix + name
}

func nftBase(servicePort, protocol string) string {
	service, port, _ := strings.Cut(servicePort, ":")
	return service + "/" + strings.ToLower(protocol) + "/" + port
}

func nftEndpointBase(servicePort, protocol, endpoint string) string {
	host, port := endpoint, ""
	if i := strings.LastIndexByte(endpoint, ':'); i >= 0 {
		host, port = endpoint[:i], endpoint[i+1:]
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	// nft allows no colon in a name.
	return nftBase(servicePort, protocol) + "__" + strings.ReplaceAll(host, ":", ".") + "/" + port
}

// ServicePortOfNFT reads back what the name of a per-service chain or set says: the service port as
// "namespace/name:port" ("namespace/name" when the port has no name), the protocol in upper case, and for
// endpoint- and affinity- names the endpoint, which is not valid where the name was cut short.
//
// ok is false for the chains that every kube-proxy has ("services", "nat-prerouting"…) and for names of
// other programs. The hash inside the name is not verified.
func ServicePortOfNFT(chain string) (key, protocol string, endpoint netip.AddrPort, ok bool) {
	base, ofEndpoint, ok := trimNFTPrefix(chain)
	if !ok {
		return "", "", netip.AddrPort{}, false
	}
	service, address := base, ""
	if ofEndpoint {
		if service, address, ok = strings.Cut(base, "__"); !ok {
			return "", "", netip.AddrPort{}, false
		}
	}
	parts := strings.Split(service, "/")
	if len(parts) != 4 {
		return "", "", netip.AddrPort{}, false
	}
	key = parts[0] + "/" + parts[1]
	if parts[3] != "" {
		key += ":" + parts[3]
	}
	switch parts[2] {
	case "tcp", "udp", "sctp":
	default:
		return "", "", netip.AddrPort{}, false
	}
	if !isServicePort(key) {
		return "", "", netip.AddrPort{}, false
	}
	return key, strings.ToUpper(parts[2]), parseNFTEndpoint(address), true
}

// trimNFTPrefix removes the prefix and the hash: "service-YVSKLJHA-ns/name/tcp/http" → "ns/name/tcp/http".
func trimNFTPrefix(name string) (base string, ofEndpoint, ok bool) {
	for _, prefix := range [...]string{nftAffinity, nftEndpoint, nftExternal, nftFirewall, nftLocal, nftService} {
		rest, found := strings.CutPrefix(name, prefix)
		if !found {
			continue
		}
		if len(rest) < 10 || rest[8] != '-' {
			return "", false, false
		}
		return rest[9:], prefix == nftEndpoint || prefix == nftAffinity, true
	}
	return "", false, false
}

func parseNFTEndpoint(s string) netip.AddrPort {
	host, port, ok := strings.Cut(s, "/")
	if !ok {
		return netip.AddrPort{}
	}
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.String()
	} else {
		host = "[" + strings.ReplaceAll(host, ".", ":") + "]"
	}
	// An address that is not valid is the answer for a name that was cut short.
	ap, _ := netip.ParseAddrPort(host + ":" + port)
	return ap
}
