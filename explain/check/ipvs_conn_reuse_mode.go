package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/report"
)

// ipvsConnReuseMode: with conn_reuse_mode 0 a kernel up to 5.15 keeps a new connection whose source port an old one has
// had with the old one's real server, even when that is on its way out (kubernetes#81775, fixed by the kernel in 5.16
// and by kube-proxy leaving the setting alone from 5.9 on).
var ipvsConnReuseMode = Check{
	ID: "ipvs-conn-reuse-mode", Rests: onObjects, Severity: Warning,
	Title: "virtual servers that send new connections to real servers on their way out",
	Node: func(n *Node) []report.Finding {
		if n.Proxy.Mode != ipvsMode || !n.Needs(ServiceTables) {
			return nil
		}
		s, d := n.drained()
		if s == nil {
			if !n.countsConns() {
				n.lacks(ServerConns)
			}
			return nil
		}
		const name = "net.ipv4.vs.conn_reuse_mode"
		value, at, ok := n.Sysctl(name)
		if !ok || value != "0" {
			return nil
		}
		if !n.Needs(Kernel) || n.Host.KernelAtLeast(5, 16) == host.Yes {
			return nil
		}
		f := report.Finding{
			Subject:  name,
			Message:  fmt.Sprintf("%s is 0, and real server %s of %s has weight 0 and %d connections: a new connection with the source port of one of them goes to it all the same, and waits for a pod that is gone", name, d.AddrPort(), serverText(s), d.ActiveConns+d.InactConns),
			Want:     "a kernel of 5.9 or newer with " + name + " = 1",
			Got:      name + " = 0",
			Evidence: []report.Evidence{at, destEvidence(s, d)},
			Causes:   []string{"kube-proxy sets it to 0 on kernels from 4.1 to 5.8, because 1 delays new connections by a second there (kubernetes#70747)"},
			Remedy:   "upgrade the kernel (5.9 or newer; 5.16 has both mended); until then spread clients over more source addresses, or use another proxy mode",
		}
		return []report.Finding{f}
	},
}

// drained is the first real server with weight 0 that still has connections.
func (n *Node) drained() (*ipvs.Service, *ipvs.Dest) {
	for i := range n.IPVS.Services {
		s := &n.IPVS.Services[i]
		for j := range s.Dests {
			if d := &s.Dests[j]; d.HasWeight && d.Weight == 0 && d.HasConns && d.ActiveConns+d.InactConns > 0 {
				return s, d
			}
		}
	}
	return nil, nil
}

// countsConns tells whether the connections of real servers were captured: `ipvsadm -Ln` shows them, `ipvsadm -Sn` does
// not. Where no real server has weight 0, nobody asks.
func (n *Node) countsConns() bool {
	for i := range n.IPVS.Services {
		for j := range n.IPVS.Services[i].Dests {
			if d := &n.IPVS.Services[i].Dests[j]; d.HasWeight && d.Weight == 0 && !d.HasConns {
				return false
			}
		}
	}
	return true
}
