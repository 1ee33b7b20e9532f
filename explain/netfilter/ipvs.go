package netfilter

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/ipvs"
)

// HopIPVS is the kind of a step in which a virtual server chose a real server, or has none: its text is that of
// `ipvsadm -Sn`.
const HopIPVS HopKind = "virtual-server"

// Priorities at which IPVS hooks in (ip_vs_ops4, ip_vs_ops6): answers of real servers get the virtual server's address
// back, and right behind that clients' packets are scheduled. Nothing else is registered between the two.
const (
	prioIPVSInput   = prioSource - 1
	prioIPVSForward = prioSource
	prioIPVSOutput  = prioDestination + 2
)

// VirtualConn is the connection of a packet through a virtual server; zero for none.
type VirtualConn struct {
	Service *ipvs.Service
	Dest    *ipvs.Dest
	// Client dialled Virtual and was given Server. The port of a client that is not known is 0.
	Client, Virtual, Server netip.AddrPort
	// Untracked tells that IPVS takes its packets out of connection tracking (net.ipv4.vs.conntrack is 0).
	Untracked bool
	// Handled tells that IPVS has had the packet: it meets IPVS once (ipvs_property).
	Handled bool
}

// ipvsStage is IPVS at INPUT, FORWARD and OUTPUT. It returns the states that go on in the hook: packets that IPVS has
// nothing to do with, answers that it translated back, and packets for real servers on this node. Those for real
// servers elsewhere are sent from here: they leave through OUTPUT, which they meet from its beginning, and POSTROUTING,
// and never see FORWARD (ip_vs_nat_send_or_cont).
func (r *run) ipvsStage(h Hook, s state) (on []state) {
	t := r.Kernel.IPVS
	if t == nil || s.p.IPVS.Handled {
		return []state{s}
	}
	if s.p.IPVS.answeredBy(&s.p) {
		return r.ipvsOut(h, s)
	}
	if h == Forward {
		return []state{s}
	}
	return r.ipvsIn(h, s)
}

// answeredBy tells whether p goes from the connection's real server to its client (ip_vs_conn_out_get). Real servers
// that see the virtual server's address as the destination answer with it by themselves, and packets that are
// scheduled one by one leave no connection behind.
func (c *VirtualConn) answeredBy(p *Packet) bool {
	return c.Service != nil && c.Dest.Method == ipvs.Masq && !c.Service.OnePacket && p.Answer &&
		p.Src == c.Server.Addr() && p.SrcPort == c.Server.Port() &&
		p.Dst == c.Client.Addr() && (p.DstPort == c.Client.Port() || c.Client.Port() == 0)
}

// ipvsOut gives an answer the address of the virtual server as its source (handle_response). Answers that leave the
// node are routed again, for that source.
func (r *run) ipvsOut(h Hook, s state) []state {
	c := s.p.IPVS
	s = s.hop(Hop{Kind: HopIPVS, Hook: h, Index: -1, File: c.Dest.File, Line: c.Dest.Line, Text: c.Service.DestString(c.Dest), P: 1})
	s.p.Src, s.p.SrcPort = c.Virtual.Addr(), c.Virtual.Port()
	s.p.IPVS.Handled = true
	if c.Untracked {
		s = s.outOfTracking()
	}
	if h == Input || s.p.Out == loopback || r.ipvsSetting("snat_reroute") == "0" {
		return []state{s}
	}
	probe := s
	probe.p.Local, probe.p.In = true, NoIface
	d := r.route(&probe)
	switch d.Type {
	case "unknown":
		return []state{s}
	case "local", "unicast", "broadcast", "multicast":
		s.p.Out = s.leaveBy(r.Kernel, d).p.Out
		if h == Output {
			s.out = s.p.Out
		}
		return []state{s}
	}
	r.noRoute(decided{s, d})
	return nil
}

// outOfTracking makes the packet one without a connection (ip_vs_notrack).
func (s state) outOfTracking() state {
	s.untracked, s.undo, s.tracked = true, nil, nil
	s.p.State, s.p.Reply, s.p.DNATed, s.p.SNATed = StateUntracked, false, false, false
	return s
}

func (r *run) ipvsSetting(name string) string { return r.Kernel.Host.Sysctls["net.ipv4.vs."+name] }

// ipvsIn schedules a client's packet (ip_vs_in).
func (r *run) ipvsIn(h Hook, s state) []state {
	switch s.p.Proto {
	case ProtoTCP, ProtoUDP, ProtoSCTP:
	default:
		return []state{s}
	}
	if r.ipvsSetting("backup_only") == "1" {
		s = s.note("net.ipv4.vs.backup_only is 1: a director that is in reserve schedules nothing; this one is taken to be none")
	}
	if svc, d := r.ipvsKnown(&s); svc != nil {
		return r.ipvsSend(h, s, svc, d, 1)
	}
	svc := r.Kernel.IPVS.Find(int(s.p.Family), s.p.Mark, s.p.Proto, s.p.Dst, s.p.DstPort, r.unprivilegedPort())
	switch {
	case svc == nil:
		if m := r.Kernel.IPVS.Missing; m != "" {
			s = s.note("there may be virtual servers that the capture does not show: %s", m)
		}
		return []state{s}
	case s.p.HasSrcPort && s.p.SrcPort == 20:
		return []state{s} // data of active FTP: never scheduled
	case !svc.Persistent && svc.FWMark == 0 && svc.Port != s.p.DstPort:
		// A virtual server of FTP is found for every high port, and one for all ports works with persistence alone
		// (ip_vs_schedule, ip_vs_leave).
		if svc.Port == 21 {
			return []state{s}
		}
		r.ipvsRefuse(h, s, svc, 1)
		return nil
	}
	var on []state
	for _, c := range r.ipvsSchedule(s, svc) {
		if c.dest == nil {
			r.ipvsRefuse(h, c.state, svc, c.share)
			continue
		}
		on = append(on, r.ipvsSend(h, c.state, svc, c.dest, c.share)...)
	}
	return on
}

// unprivilegedPort is the first port that everyone may listen on.
func (r *run) unprivilegedPort() int {
	var n int
	if _, err := fmt.Sscanf(r.Kernel.Host.Sysctls["net.ipv4.ip_unprivileged_port_start"], "%d", &n); err != nil {
		return 1024
	}
	return n
}

// ipvsRefuse ends a packet for which there is no real server (ip_vs_leave).
func (r *run) ipvsRefuse(h Hook, s state, svc *ipvs.Service, share float64) {
	s.prob *= share
	s = s.hop(Hop{Kind: HopIPVS, Hook: h, Index: -1, File: svc.File, Line: svc.Line, Text: svc.String(), P: share})
	with := "icmp-port-unreachable"
	if s.p.Family == IPv6 {
		with = "icmp6-port-unreachable"
	}
	why := "the virtual server has no real server"
	if len(svc.Dests) > 0 {
		why = "no real server of the virtual server takes new connections"
	}
	r.end(s, Rejected, func(e *Ending) { e.RejectWith, e.Why = with, why })
}

// ipvsSend hands a packet to a real server: the transmitters of ip_vs_xmit.c.
func (r *run) ipvsSend(h Hook, s state, svc *ipvs.Service, d *ipvs.Dest, share float64) []state {
	s.prob *= share
	s = s.hop(Hop{Kind: HopIPVS, Hook: h, Index: -1, File: d.File, Line: d.Line, Text: svc.DestString(d), P: share})
	port := s.p.DstPort
	if d.Port != 0 && (!svc.Persistent || svc.Port == s.p.DstPort) {
		port = d.Port
	}
	c := VirtualConn{
		Service: svc, Dest: d,
		Client: netip.AddrPortFrom(s.p.Src, s.p.SrcPort), Virtual: netip.AddrPortFrom(s.p.Dst, s.p.DstPort), Server: netip.AddrPortFrom(d.Addr, port),
		Handled: true,
	}
	s.dstBound, s.dstBy, s.toSelf = true, s.hops, false
	switch r.ipvsSetting("conntrack") {
	case "0":
		c.Untracked = true
	case "":
		s = s.note("net.ipv4.vs.conntrack is taken to be 1, as IPVS with masquerading needs it: it is not in the capture")
	}
	s.p.IPVS = c
	switch d.Method {
	case ipvs.Tunnel:
		r.end(s, UnknownVerdict, func(e *Ending) {
			e.Why = fmt.Sprintf("the packet goes to %s inside of another, which is not followed", d.Addr)
		})
		return nil
	case ipvs.UnknownMethod:
		s = s.note("how real servers are reached is not in the capture: masquerading is taken for granted (ipvsadm -Sn)")
	}
	var on []state
	for _, way := range r.ipvsRoutes(s, d) {
		on = append(on, r.ipvsLeave(h, way)...)
	}
	return on
}

// ipvsRoutes looks up the way to a real server: by its address alone, as for a packet of the node itself; neither the
// mark nor the source counts (do_output_route4).
func (r *run) ipvsRoutes(s state, d *ipvs.Dest) []decided {
	probe := s
	probe.p.Dst, probe.p.Src, probe.p.Mark, probe.p.Local, probe.p.In = d.Addr, netip.Addr{}, 0, true, NoIface
	ways := r.decide(probe)
	for i := range ways {
		back := s
		back.assumed, back.notes = ways[i].assumed, ways[i].notes
		ways[i].state = back
	}
	return ways
}

// ipvsLeave sends a packet on its way to the real server.
func (r *run) ipvsLeave(h Hook, way decided) []state {
	s, d, c := way.state, way.decision, way.p.IPVS
	drop := func(why string) []state {
		if c.Dest.Method == ipvs.Masq {
			s.p.Dst, s.p.DstPort = c.Server.Addr(), c.Server.Port() // where it was to go
		}
		r.end(s, Martian, func(e *Ending) { e.Why = why })
		return nil
	}
	masq := c.Dest.Method == ipvs.Masq || c.Dest.Method == ipvs.UnknownMethod
	local := d.Type == "local" || c.Dest.Method == ipvs.Local
	switch {
	case local && masq && c.Dest.Addr.IsLoopback() && h == Input && s.p.In.Name != "lo":
		return drop("IPVS does not hand a packet from outside to a loopback address")
	case local, d.Type == "unicast", d.Type == "broadcast", d.Type == "multicast":
	default:
		r.noRoute(way)
		return nil
	}
	if !local && s.p.Src.IsLoopback() {
		return drop("IPVS does not send a packet with a loopback source off the node (crosses_local_route_boundary)")
	}
	if masq {
		s.p.Dst, s.p.DstPort = c.Server.Addr(), c.Server.Port()
	}
	if c.Untracked {
		s = s.outOfTracking()
	}
	if local {
		return []state{s}
	}
	in := s.p.In
	s.p.In, s.out = NoIface, Iface{}
	for _, s := range r.hook(Output, []state{s.leaveBy(r.Kernel, d)}) {
		if s.out != (Iface{}) {
			s.p.Out = s.out
		}
		s.p.In = in
		r.send(s)
	}
	return nil
}

// ipvsKnown is the virtual server and the real server of a packet whose connection is known already: from IPVS's own
// table or, where that was not captured, from connection tracking.
func (r *run) ipvsKnown(s *state) (*ipvs.Service, *ipvs.Dest) {
	t := r.Kernel.IPVS
	if !s.p.HasSrcPort {
		return nil, nil
	}
	svc := t.Find(int(s.p.Family), s.p.Mark, s.p.Proto, s.p.Dst, s.p.DstPort, r.unprivilegedPort())
	if svc == nil {
		return nil, nil
	}
	conn := t.Conn(s.p.Proto, netip.AddrPortFrom(s.p.Src, s.p.SrcPort), netip.AddrPortFrom(s.p.Dst, s.p.DstPort))
	if conn == nil {
		if s.tracked != nil && s.p.State == StateEstablished {
			if f := s.tracked; r.ipvsFlow(f) {
				return svc, svc.Dest(netip.AddrPortFrom(f.ReplySrc, f.ReplySrcPort))
			}
		}
		return nil, nil
	}
	d := svc.Dest(conn.Server)
	switch {
	case s.p.State == StateEstablished && d != nil:
		return svc, d
	case d == nil:
		*s = s.note("the connection is known to IPVS, and its real server %s is gone: it is scheduled anew (or dropped, without net.ipv4.vs.expire_nodest_conn)", conn.Server)
		return nil, nil
	case r.reschedules(svc, d, conn):
		return nil, nil
	}
	*s = s.hop(Hop{Kind: HopIPVS, Index: -1, File: conn.File, Line: conn.Line, Text: conn.Text, P: 1})
	return svc, d
}

// reschedules tells whether the first packet of a connection whose ports an old one has had gets a new real server
// (ip_vs_in_hook). Until Linux 5.16 conn_reuse_mode 0 kept it with the old one even when that is on its way out.
func (r *run) reschedules(svc *ipvs.Service, d *ipvs.Dest, conn *ipvs.Conn) bool {
	if conn.Proto == ProtoUDP {
		return false
	}
	mode := r.ipvsSetting("conn_reuse_mode")
	leaving := r.ipvsSetting("expire_nodest_conn") == "1" && d.HasWeight && d.Weight == 0
	if leaving && (mode != "0" || r.Kernel.Host.KernelAtLeast(5, 16) == host.Yes) {
		return true
	}
	if mode == "0" || svc.Persistent {
		return false
	}
	return conn.State == "TIME_WAIT" || conn.State == "CLOSE" || conn.State == "CLOSED"
}

// ipvsFlow tells whether a tracked connection was translated by IPVS and not by a rule: it was dialled at a virtual
// server and answers come from one of its real servers. Its packets are not translated before INPUT: connection
// tracking only knows where the answers come from (ip_vs_update_conntrack).
func (r *run) ipvsFlow(f *host.Flow) bool {
	t := r.Kernel.IPVS
	if t == nil || f == nil {
		return false
	}
	svc := t.Find(f.Family, 0, f.Proto, f.Dst, f.DstPort, r.unprivilegedPort())
	return svc != nil && svc.Dest(netip.AddrPortFrom(f.ReplySrc, f.ReplySrcPort)) != nil
}
