package check

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// serviceEvidence is the Service of a port, as evidence.
func serviceEvidence(sp *intent.ServicePort) report.Evidence {
	return planEvidence(sp.Evidence, "Service "+sp.Namespace+"/"+sp.Name)
}

// planEvidence is an object that the plan was made from, as evidence.
func planEvidence(e intent.Evidence, text string) report.Evidence {
	return report.Evidence{Source: "objects", File: e.File, Line: e.Line, Text: text}
}

// servicePortObject is a service port as the object of a finding.
func servicePortObject(sp *intent.ServicePort) report.Object {
	return report.Object{Kind: "Service", Namespace: sp.Namespace, Name: sp.Name, Port: sp.PortName, Protocol: sp.Protocol}
}

// observed is a service port with its cells, nil when it is not among those that are looked at.
func (n *Node) observed(sp *intent.ServicePort) *Port {
	for i := range n.Ports {
		if n.Ports[i].ServicePort == sp {
			return &n.Ports[i]
		}
	}
	return nil
}

// nodeOf is the Node that has an address.
func (n *Node) nodeOf(a netip.Addr) (objects.Node, bool) {
	for _, node := range n.Objects.Nodes {
		for _, has := range node.Status.Addresses {
			if addr, err := netip.ParseAddr(has.Address); err == nil && addr.Unmap() == a {
				return node, true
			}
		}
	}
	return objects.Node{}, false
}

// onInterface is where an interface of the node has an address.
func (n *Node) onInterface(a netip.Addr) (host.Addr, bool) {
	for _, has := range n.Host.Addrs {
		if has.Prefix.Addr() == a {
			return has, true
		}
	}
	return host.Addr{}, false
}

// bothFamilies are the families for which a Service has ports.
func bothFamilies(ports []*intent.ServicePort) []netfilter.Family {
	var out []netfilter.Family
	for _, sp := range ports {
		out = once(out, netfilter.Family(sp.Family))
	}
	return out
}

// familyName is "IPv4" or "IPv6".
func familyName(f netfilter.Family) string { return fmt.Sprintf("IPv%d", f) }
