package check

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// externalIPIsNodeIP: an externalIP is the address of a node. In IPVS mode every node takes it for its own, and loses
// contact to the one that has it; in the other modes only the port is taken over. Load balancer addresses may be those
// of nodes: there are load balancers that work so.
var externalIPIsNodeIP = Check{
	ID: "external-ip-is-node-ip", Rests: onObjects, Severity: Critical,
	Title: "external IPs that are addresses of nodes",
	Node: func(n *Node) []report.Finding {
		if !n.Needs(Services) {
			return nil
		}
		type key struct {
			namespace, name string
			addr            netip.Addr
		}
		var out []report.Finding
		done := make(map[key]bool)
		for _, sp := range n.Plan.Ports {
			for _, f := range sp.Frontends {
				k := key{sp.Namespace, sp.Name, f.Addr}
				if f.Kind != intent.ExternalIP || done[k] || !n.Needs(Nodes) {
					continue
				}
				done[k] = true
				if found, ok := n.ofNode(sp, f); ok {
					out = append(out, found)
				}
			}
		}
		return out
	},
}

func (n *Node) ofNode(sp *intent.ServicePort, f intent.Frontend) (report.Finding, bool) {
	node, ok := n.nodeOf(f.Addr)
	if !ok {
		return report.Finding{}, false
	}
	found := report.Finding{
		Object:  report.Object{Kind: "Service", Namespace: sp.Namespace, Name: sp.Name},
		Subject: f.Addr.String(),
		Want:    "an external IP that no node has",
		Evidence: []report.Evidence{
			serviceEvidence(sp), ObjectEvidence(node.Evidence, "Node "+node.Name),
		},
		Remedy: fmt.Sprintf("remove %s from the externalIPs of %s/%s; use a node port, or an address that is nobody's", f.Addr, sp.Namespace, sp.Name),
	}
	subject := fmt.Sprintf("externalIP %s of %s/%s is the address of node %s", f.Addr, sp.Namespace, sp.Name, node.Name)
	if n.Proxy.Mode != "ipvs" {
		found.Severity = Warning
		found.Message = fmt.Sprintf("%s: in this mode of kube-proxy only its port %d is taken over; in IPVS mode the other nodes would lose contact to it", subject, f.Port)
		found.Got = "a node's address, of which one port is taken over"
		return found, true
	}
	found.Message = fmt.Sprintf("%s: in IPVS mode every other node binds it to kube-ipvs0, takes %s for itself, and loses contact to it", subject, node.Name)
	found.Got = "the address of node " + node.Name
	if has, ok := n.onInterface(f.Addr); ok {
		found.Evidence = append(found.Evidence, HostEvidence("ip addr", has.Evidence))
		found.Got += ", here on " + has.Link
	}
	return found, true
}
