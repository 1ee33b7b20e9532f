package dataplane

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// The prefixes of kube-proxy's per-service chains in iptables mode. SVC holds the endpoints of the
// Cluster policy, SVL (1.24+) those of the Local policy, EXT (1.24+) is where external traffic enters,
// XLB (up to 1.23) where it entered under externalTrafficPolicy Local, FW a load balancer address, SEP
// one endpoint.
const (
	SVCPrefix = "KUBE-SVC-"
	SVLPrefix = "KUBE-SVL-"
	EXTPrefix = "KUBE-EXT-"
	FWPrefix  = "KUBE-FW-"
	XLBPrefix = "KUBE-XLB-"
	SEPPrefix = "KUBE-SEP-"
)

// ChainID is the 16 characters that the SVC, SVL, EXT, FW and XLB chains of one service port share.
//
// servicePort is "namespace/name:port". For a port without name kube-proxy 1.19 and newer hashes
// "namespace/name", older releases "namespace/name:"; pass the spelling of the version at hand. The
// protocol is TCP, UDP or SCTP in any case; kube-proxy hashes it in lower case.
func ChainID(servicePort, protocol string) string {
	return hash16(servicePort + strings.ToLower(protocol))
}

// SVCName is the chain of all endpoints that the Cluster policy uses.
func SVCName(servicePort, protocol string) string {
	return SVCPrefix + ChainID(servicePort, protocol)
}

// SVLName is the chain of the node's own endpoints (1.24 and newer).
func SVLName(servicePort, protocol string) string {
	return SVLPrefix + ChainID(servicePort, protocol)
}

// EXTName is the chain that external addresses lead to (1.24 and newer).
func EXTName(servicePort, protocol string) string {
	return EXTPrefix + ChainID(servicePort, protocol)
}

// FWName is the chain of a load balancer address: up to 1.23 always, later only with source ranges.
func FWName(servicePort, protocol string) string {
	return FWPrefix + ChainID(servicePort, protocol)
}

// XLBName is the chain that external addresses lead to under externalTrafficPolicy Local up to 1.23.
func XLBName(servicePort, protocol string) string {
	return XLBPrefix + ChainID(servicePort, protocol)
}

// SEPName is the chain of one endpoint, "1.2.3.4:80" or "[fd00::1]:80", the address as RFC 5952 spells it.
func SEPName(servicePort, protocol, endpoint string) string {
	return SEPPrefix + hash16(servicePort+strings.ToLower(protocol)+endpoint)
}

// hash16 keeps names under the 28 characters that the kernel allows for a chain.
func hash16(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}
