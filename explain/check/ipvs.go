package check

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/report"
)

const (
	ipvsMode = "ipvs"
	// virtualServer stands where other modes have the chain that translates.
	virtualServer = "virtual server"
	// KubeIPVS0 is the device that has the addresses of Services in IPVS mode.
	KubeIPVS0 = "kube-ipvs0"
)

// refusedByServer tells whether a path ends at a virtual server without a real server that takes connections.
func refusedByServer(p *report.Path) bool {
	return p.Result == report.ResultReject && len(p.Hops) > 0 && p.Hops[len(p.Hops)-1].Kind == "virtual-server"
}

// refusedAt are the frontends of a port whose virtual servers refuse.
func (p *Port) refusedAt() []string {
	var out []string
	for _, paths := range p.Cells {
		if len(paths) == 1 && refusedByServer(&paths[0]) {
			out = once(out, frontend(&paths[0]))
		}
	}
	return out
}

// servers are the virtual servers of a service port, with the frontends.
func (n *Node) servers(p *Port, f func(at netip.AddrPort, s *ipvs.Service)) {
	if n.IPVS == nil {
		return
	}
	proto := dataplane.ProtocolNumber(p.Protocol)
	for _, fe := range p.Frontends {
		for i := range n.IPVS.Services {
			if s := &n.IPVS.Services[i]; s.FWMark == 0 && s.Proto == proto && s.Addr == fe.Addr && int(s.Port) == fe.Port {
				f(netip.AddrPortFrom(fe.Addr, uint16(fe.Port)), s)
			}
		}
	}
}

// destEvidence is a real server, for a finding.
func destEvidence(s *ipvs.Service, d *ipvs.Dest) report.Evidence {
	return report.Evidence{Source: "ipvs", File: d.File, Line: d.Line, Text: s.DestString(d)}
}

// Vs names a virtual server for people.
func serverText(s *ipvs.Service) string {
	if s.FWMark != 0 {
		return fmt.Sprintf("the virtual server of mark %d", s.FWMark)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(s.Addr, s.Port), nameOfProtocol(s.Proto))
}

// offDevice says that the address which clients dial is none of the node's, though it has a virtual server: packets to
// it pass the node by. Empty where that is not what stops them.
func (p *Port) offDevice(path *report.Path) (text string, at report.Evidence) {
	addr, err := netip.ParseAddr(path.Frontend.Address)
	if p.On.Proxy.Mode != ipvsMode || len(p.On.Host.Addrs) == 0 || err != nil {
		return "", at
	}
	for i := range p.On.Host.Addrs {
		if p.On.Host.Addrs[i].Prefix.Addr() == addr {
			return "", at
		}
	}
	p.On.servers(p, func(to netip.AddrPort, s *ipvs.Service) {
		if to.Addr() == addr {
			text, at = fmt.Sprintf("%s is no address of this node, of %s or of another interface, so that packets do not come to virtual server %s", addr, KubeIPVS0, serverText(s)), HostEvidence("ipvs", s.Evidence)
		}
	})
	return text, at
}
