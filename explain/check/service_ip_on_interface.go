package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// serviceIPOnInterface: a cluster IP is the address of an interface that is not made for service addresses. The node,
// and who is on the same network, then take it for a host.
var serviceIPOnInterface = Check{
	ID: "service-ip-on-interface", Rests: onObjects, Severity: Error,
	Title: "cluster IPs that are addresses of an interface of the node",
	Node: func(n *Node) []report.Finding {
		if !n.Needs(Services) || len(n.Plan.Ports) == 0 || !n.Needs(Addrs) {
			return nil
		}
		owners := make(map[netip.Addr]*intent.ServicePort)
		for _, sp := range n.Plan.Ports {
			for _, f := range sp.Frontends {
				if f.Kind == intent.ClusterIP && owners[f.Addr] == nil {
					owners[f.Addr] = sp
				}
			}
		}
		var out []report.Finding
		for _, a := range n.Host.Addrs {
			sp := owners[a.Prefix.Addr()]
			if sp == nil || carriesServices(a.Link) {
				continue
			}
			name := sp.Namespace + "/" + sp.Name
			out = append(out, report.Finding{
				Object:   report.Object{Kind: "Service", Namespace: sp.Namespace, Name: sp.Name},
				Subject:  a.Prefix.Addr().String(),
				Message:  fmt.Sprintf("%s, the cluster IP of %s, is also the address %s of interface %s", a.Prefix.Addr(), name, a.Prefix, a.Link),
				Want:     "a cluster IP that no interface has",
				Got:      a.Prefix.String() + " on " + a.Link,
				Evidence: []report.Evidence{HostEvidence("ip addr", a.Evidence), serviceEvidence(sp)},
				Causes: []string{
					"the range of Services overlaps the network of this interface",
					"somebody added the address by hand",
				},
				Remedy: fmt.Sprintf("ip addr del %s dev %s, where nothing puts it back; where the interface's network overlaps the range of Services, one of them has to move", a.Prefix, a.Link),
			})
		}
		return out
	},
}

// serviceLinks are devices on which service addresses belong: those of kube-proxy's IPVS mode, NodeLocal DNS and
// kube-router.
var serviceLinks = []string{"kube-ipvs0", "nodelocaldns", "kube-dummy-if"}

func carriesServices(link string) bool {
	return slices.Contains(serviceLinks, link) || strings.HasPrefix(link, "cilium_")
}
