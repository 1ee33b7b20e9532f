package check

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// nodeNameMismatch: kube-proxy takes itself for a node that there is not, and finds none of its endpoints local.
var nodeNameMismatch = Check{
	ID: "node-name-mismatch", Severity: Error,
	Title:    "proxies whose node name is that of no Node",
	Explains: []string{"local-endpoint-not-used"},
	Node: func(n *Node) []report.Finding {
		name := n.Proxy.NodeName
		if _, known := n.Objects.Node(name); known || name == "" {
			return nil
		}
		said := n.nodeNotFound(name)
		own, sure := n.ownNode(name)
		if said == nil && !sure || !n.Needs(Nodes) {
			return nil
		}
		f := report.Finding{
			Subject: fmt.Sprintf("node name %q", name),
			Message: fmt.Sprintf("kube-proxy runs as node %q, and no Node has that name: every endpoint looks remote to it, so that policies Local drop traffic here and health checks of load balancers fail", name),
			Want:    "the name of this machine's Node",
			Got:     name,
			Causes:  []string{"--hostname-override (hostnameOverride) with an address or another name than the kubelet's", "a host name that changed after the node had joined"},
			Remedy:  "set hostnameOverride of kube-proxy to the name of the Node, or remove it where the host name is that; then " + n.restart(),
		}
		if sure {
			f.Want = own.Name
			f.Message = fmt.Sprintf("kube-proxy runs as node %q, and no Node has that name (this one is %s): every endpoint looks remote to it, %s; policies Local drop traffic here and health checks of load balancers fail",
				name, own.Name, n.localEndpoints(own.Name))
			f.Remedy = fmt.Sprintf("set hostnameOverride of kube-proxy to %s, or remove it where the host name is that; then %s", own.Name, n.restart())
			f.Evidence = append(f.Evidence, ObjectEvidence(own.Evidence, "Node "+own.Name))
		}
		for _, fact := range n.Proxy.Facts {
			if fact.Name == "nodeName" && fact.Value == name {
				f.Evidence = append(f.Evidence, factEvidence(fact))
			}
		}
		if said != nil {
			f.Evidence = append(f.Evidence, eventEvidence(said))
		}
		return []report.Finding{f}
	},
}

// nodeNotFound is where the log says that there is no Node of that name, nil where it does not.
func (n *Node) nodeNotFound(name string) *traits.Event {
	for i := range n.Proxy.Events {
		if e := &n.Proxy.Events[i]; e.Kind == traits.NodeNotFound && e.Subject == name {
			return e
		}
	}
	return nil
}

// ownNode is the Node object of this machine where something other than kube-proxy tells it for sure: its address is
// the name that kube-proxy uses, or is on an interface here.
func (n *Node) ownNode(name string) (objects.Node, bool) {
	if a, err := netip.ParseAddr(name); err == nil {
		if own, ok := n.nodeOf(a.Unmap()); ok {
			return own, true
		}
	}
	own, ok := n.Objects.Node(n.Name)
	if !ok {
		return objects.Node{}, false
	}
	return own, slices.ContainsFunc(n.Host.Addrs, func(a host.Addr) bool {
		of, ok := n.nodeOf(a.Prefix.Addr())
		return ok && of.Name == own.Name
	})
}

// localEndpoints counts the endpoints that are on a node.
func (n *Node) localEndpoints(node string) string {
	count, first := 0, ""
	for _, s := range n.Objects.EndpointSlices {
		for _, e := range s.Endpoints {
			if e.NodeName == nil || *e.NodeName != node || len(e.Addresses) == 0 {
				continue
			}
			if count++; first == "" {
				first = fmt.Sprintf("%s of %s/%s", e.Addresses[0], s.Namespace, s.Labels["kubernetes.io/service-name"])
			}
		}
	}
	switch count {
	case 0:
		return "though none is here now"
	case 1:
		return "also " + first + ", which is here"
	}
	return fmt.Sprintf("also the %d that are here, as %s", count, first)
}
