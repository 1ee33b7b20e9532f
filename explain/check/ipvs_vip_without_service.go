package check

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// ipvsVIPWithoutService: kube-ipvs0 has an address that no Service has: the node takes packets to it for its own.
var ipvsVIPWithoutService = Check{
	ID: "ipvs-vip-without-service", Rests: onObjects, Severity: Warning,
	Title: "addresses of kube-ipvs0 that no Service has",
	Node: func(n *Node) []report.Finding {
		if n.Proxy.Mode != ipvsMode || !n.Needs(Services, Addrs) {
			return nil
		}
		// Every cluster has this Service: without it the others that are given are not all there are.
		if _, whole := n.Objects.Service("default", "kubernetes"); !whole {
			n.lacks(Services)
			return nil
		}
		known := make(map[netip.Addr]bool)
		for _, sp := range n.Plan.Ports {
			for _, f := range sp.Frontends {
				if f.Kind != intent.NodePort {
					known[f.Addr] = true
				}
			}
			for _, a := range n.ingressOf(sp) {
				known[a] = true
			}
		}
		var out []report.Finding
		for i := range n.Host.Addrs {
			a := &n.Host.Addrs[i]
			addr := a.Prefix.Addr()
			if a.Link != KubeIPVS0 || known[addr] || addr.IsLinkLocalUnicast() {
				continue
			}
			out = append(out, report.Finding{
				Subject:  addr.String(),
				Message:  fmt.Sprintf("%s has the address %s, and no Service has it: packets to it end on this node", KubeIPVS0, addr),
				Want:     "addresses of Services only",
				Got:      addr.String(),
				Evidence: []report.Evidence{HostEvidence("ip addr", a.Evidence)},
				Causes:   []string{proxyStopped, "the Service is gone, and kube-proxy did not take its address away (kubernetes#71071)"},
				Remedy:   fmt.Sprintf("restart kube-proxy on this node; by hand: ip addr del %s dev %s", a.Prefix, KubeIPVS0),
			})
		}
		return out
	},
}
