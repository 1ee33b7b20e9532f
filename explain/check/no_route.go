package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/report"
)

const (
	noRouteToBackendID = "no-route-to-backend"
	noRouteToServiceID = "no-route-to-service"
)

// toService tells whether the node had no route to the service address itself: it looks one up before any rule sees
// the packet.
func (o *Obstacle) toService() bool {
	h := o.Hits[0]
	return o.Result == string(report.ResultNoRoute) && !o.Reply && h.Path.Origin == "node" && h.Backend == nil
}

// noRouteToBackend: the node has no route to a pod range or tunnel, or one that discards.
var noRouteToBackend = Check{
	ID: noRouteToBackendID, Severity: Error, Rests: onGrid,
	Title: "backends to which the node has no route",
	Node: func(n *Node) []report.Finding {
		return n.unrouted(noRouteToBackendID, "a route to the pod range of the backend's node", "look at the network plugin on this node: it makes the routes to pod ranges (ip route get BACKEND)")
	},
}

// noRouteToService: the node's own connections fail before any rule is asked, because no route covers the service
// address.
var noRouteToService = Check{
	ID: noRouteToServiceID, Severity: Error, Rests: onGrid,
	Title: "service addresses to which the node has no route for its own connections",
	Node: func(n *Node) []report.Finding {
		return n.unrouted(noRouteToServiceID, "any route that covers the service address: it is looked up before the rules translate", "add a default route, or a route for the service range by the interface that leads to pods (ip route add SERVICE-CIDR dev …)")
	},
}

func (n *Node) unrouted(id, want, remedy string) []report.Finding {
	var out []report.Finding
	for _, o := range n.Obstacles() {
		if o.Reply || o.namedBy() != id {
			continue
		}
		f := o.finding()
		if o.toService() {
			f.Subject = "service addresses"
		}
		if b := o.Hits[0].Backend; b != nil {
			f.Message = fmt.Sprintf("connections of %s to %s at %s are given up: %s", list(o.clients(), 4), named(o.services()), joinAddr(b), o.Text)
		}
		f.Want, f.Remedy = want, remedy
		out = append(out, f)
	}
	return out
}
