package check

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// localhostNodePortUnsupported: in IPVS and nftables mode node ports do not answer on loopback addresses, whatever
// the sysctls say.
var localhostNodePortUnsupported = Check{
	ID: "localhost-nodeport-unsupported", Rests: onObjects, Severity: Info,
	Title: "node ports that the proxy's mode does not serve on 127.0.0.1",
	Node: func(n *Node) []report.Finding {
		mode := n.Proxy.Mode
		if mode != "ipvs" && mode != "nftables" || !n.Needs(Services) {
			return nil
		}
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		var names []string
		var first *intent.ServicePort
		for _, sp := range n.Plan.Ports {
			if sp.NodePort == 0 || sp.Family != 4 || n.listensOn(sp, loopback) {
				continue
			}
			if first == nil {
				first = sp
			}
			names = append(names, fmt.Sprintf("%d (%s)", sp.NodePort, sp.Key()))
		}
		if first == nil {
			return nil
		}
		return []report.Finding{{
			Subject:  loopback.String(),
			Message:  fmt.Sprintf("kube-proxy in %s mode does not serve node ports on 127.0.0.1: %s", mode, several(names)),
			Want:     "clients on the node use the node's address",
			Got:      fmt.Sprintf("%d node ports, none on 127.0.0.1", len(names)),
			Evidence: append(n.modeEvidence(), serviceEvidence(first)),
			Remedy:   "use the node's own address instead of 127.0.0.1; only iptables mode serves node ports there (route_localnet=1 does not change this)",
		}}
	},
}

// listensOn tells whether a process is known to listen on the node port at an address: newest kube-proxy can serve
// loopback that way, and a process of the node's own is nobody's surprise.
func (n *Node) listensOn(sp *intent.ServicePort, a netip.Addr) bool {
	return n.Host.Listener(dataplane.ProtocolNumber(sp.Protocol), a, uint16(sp.NodePort)) != nil
}

// modeEvidence is what tells the proxy's mode.
func (n *Node) modeEvidence() []report.Evidence {
	for _, f := range n.Proxy.Facts {
		if f.Name == "mode" && f.File != "" {
			return []report.Evidence{{Source: "kube-proxy mode", File: f.File, Line: f.Line, Text: f.Text}}
		}
	}
	return nil
}
