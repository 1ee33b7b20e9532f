package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// several names the first few of a list.
func several(list []string) string {
	const few = 5
	if len(list) <= few+1 {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:few], ", "), len(list)-few)
}

// appendNew appends what the list does not hold yet.
func appendNew[T comparable](list []T, item T) []T {
	if slices.Contains(list, item) {
		return list
	}
	return append(list, item)
}

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
		out = appendNew(out, netfilter.Family(sp.Family))
	}
	return out
}

// familyName is "IPv4" or "IPv6".
func familyName(f netfilter.Family) string { return fmt.Sprintf("IPv%d", f) }

// familyOf is the family of an address.
func familyOf(a netip.Addr) netfilter.Family {
	if a.Is4() {
		return netfilter.IPv4
	}
	return netfilter.IPv6
}
