package relay

import "fmt"

// Reach is how packets to addresses get here that are not the node's own: cluster IPs, and external addresses that are
// routed to the node.
type Reach string

// The ways.
const (
	// ReachAuto is ReachNamespace where the kernel can do it, else ReachLocal.
	ReachAuto Reach = ""
	// ReachNamespace: the sockets are in a network namespace of the relay's own, behind a pair of virtual devices, and the
	// addresses are routed there. Nothing of the node's has the same address and port, processes of the node that listen
	// on all addresses are not in the way and cannot be reached there, and nobody answers for the addresses on the
	// node's networks. All of it is gone with the process, however that ends: the kernel removes the namespace, the
	// devices with it, and the routes with those.
	ReachNamespace Reach = "namespace"
	// ReachLocal: the addresses are made the node's own, by entries of the local routing table with a number of the
	// relay's as their protocol (RouteProtocol). A port that a process of the node has on all addresses cannot be served
	// then, and what the process listens on can be reached through every Service's address. The entries have to be removed
	// (RemoveRoutes) when the process was killed.
	ReachLocal Reach = "local"
	// ReachNone: nothing is done; only addresses that are the node's already are served.
	ReachNone Reach = "none"
)

// ParseReach reads what a user typed.
func ParseReach(s string) (Reach, error) {
	switch r := Reach(s); r {
	case ReachNamespace, ReachLocal, ReachNone:
		return r, nil
	case "auto":
		return ReachAuto, nil
	}
	return "", fmt.Errorf("%q: want auto, namespace, local or none", s)
}

// RouteProtocol marks the entries of routing tables that a relay made (rtm_protocol; rt_protos of iproute2 has no name
// for it).
const RouteProtocol = 115

// Device is the node's end of the pair that leads to the relay's namespace; the other end has the same name there.
const Device = "svcnet0"
