package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// sent are tracked connections to one frontend that go to one and the same address.
type sent struct {
	frontend intent.Frontend
	// to is where packets go: the address that answers are expected from.
	to    netip.AddrPort
	flows []*host.Flow
}

// flows are the tracked connections to the frontends of a service port, by frontend and by where they go. Those of other
// conntrack zones belong to another network.
func (p *Port) flows(wanted func(*host.Flow) bool) []*sent {
	var out []*sent
	for _, f := range p.Frontends {
		if f.Kind == intent.HealthCheck {
			continue
		}
		first := len(out)
		for _, flow := range p.On.Host.FlowsTo(dataplane.ProtocolNumber(p.Protocol), f.Addr, uint16(f.Port)) {
			if flow.Zone != 0 || !wanted(flow) {
				continue
			}
			to := netip.AddrPortFrom(flow.ReplySrc, flow.ReplySrcPort)
			at := slices.IndexFunc(out[first:], func(s *sent) bool { return s.to == to })
			if at < 0 {
				out = append(out, &sent{frontend: f, to: to})
				at = len(out) - 1 - first
			}
			s := out[first+at]
			s.flows = append(s.flows, flow)
		}
	}
	return out
}

// staleFlows are the connections that go to an address which is no endpoint of the port.
func (p *Port) staleFlows(wanted func(*host.Flow) bool) []*sent {
	stale := p.flows(func(f *host.Flow) bool { return translated(f) && wanted(f) })
	if len(stale) > 0 && p.EndpointsUnknown {
		p.On.NeedsAny(Slices, LegacyEPs)
		return nil
	}
	stale = slices.DeleteFunc(stale, func(s *sent) bool { return p.lists(s.to) })
	if len(stale) == 0 {
		p.On.Needs(Flows) // what was cut off may hold one
	}
	return stale
}

// staleFinding is what findings about connections to an address that is no endpoint have in common. noun names one of
// them.
func (p *Port) staleFinding(stale []*sent, noun string) report.Finding {
	freshestFirst(stale)
	f := report.Finding{
		Subject:  dialledAddrs(stale, p.Protocol) + " to " + several(goesTo(stale)),
		Got:      fmt.Sprintf("%s to %s", plural(countFlows(stale), noun), several(goesTo(stale))),
		Evidence: p.flowEvidence(stale),
	}
	if to := goesTo(stale); len(to) == 1 {
		f.Object.Endpoint = to[0]
	}
	return f
}

// translated tells whether a connection goes elsewhere than to what was dialled.
func translated(f *host.Flow) bool {
	return f.ReplySrc != f.Dst || f.ReplySrcPort != f.DstPort
}

// lists tells whether an address is an endpoint of the port, in whatever state.
func (p *Port) lists(a netip.AddrPort) bool {
	return slices.ContainsFunc(p.Endpoints, func(e intent.Endpoint) bool {
		return e.Addr == a.Addr() && e.Port == int(a.Port())
	})
}

// countFlows counts the connections of several.
func countFlows(of []*sent) int {
	n := 0
	for _, s := range of {
		n += len(s.flows)
	}
	return n
}

// dialledAddrs names the frontends, and goesTo where connections go, each once.
func dialledAddrs(of []*sent, protocol string) string {
	var out []string
	for _, s := range of {
		out = once(out, netip.AddrPortFrom(s.frontend.Addr, uint16(s.frontend.Port)).String()+"/"+protocol)
	}
	return several(out)
}

func goesTo(of []*sent) []string {
	var out []string
	for _, s := range of {
		out = once(out, s.to.String())
	}
	return out
}

// flowEvidence shows the first few connections.
func (p *Port) flowEvidence(of []*sent) []report.Evidence {
	const few = 3
	var out []report.Evidence
	for _, s := range of {
		for _, f := range s.flows {
			if len(out) < few {
				out = append(out, HostEvidence("conntrack", f.Evidence))
			}
		}
	}
	return append(out, p.objectEvidence())
}

// forget is what removes the connections from the table, one command for each frontend and address.
func (p *Port) forget(of []*sent) string {
	const few = 4
	var out []string
	for i, s := range of {
		if i == few {
			out = append(out, fmt.Sprintf("and the same for %d more", len(of)-few))
			break
		}
		family := ""
		if s.frontend.Addr.Is6() {
			family = " -f ipv6"
		}
		out = append(out, fmt.Sprintf("conntrack -D%s -p %s --orig-dst %s --orig-port-dst %d --reply-src %s --reply-port-src %d",
			family, strings.ToLower(p.Protocol), s.frontend.Addr, s.frontend.Port, s.to.Addr(), s.to.Port()))
	}
	return strings.Join(out, "; ")
}

// The timeouts of connection tracking, by the state that they are of.
const (
	timeoutUDP            = "net.netfilter.nf_conntrack_udp_timeout"
	timeoutUDPStream      = "net.netfilter.nf_conntrack_udp_timeout_stream"
	timeoutTCPEstablished = "net.netfilter.nf_conntrack_tcp_timeout_established"
	timeoutTCPRetrans     = "net.netfilter.nf_conntrack_tcp_timeout_max_retrans"
)

// seconds is a sysctl that holds a time; ok is false when it is not known.
func (n *Node) seconds(name string) (s int, ok bool) {
	value, _, ok := n.Host.Sysctl(name)
	if !ok {
		return 0, false
	}
	s, err := strconv.Atoi(value)
	return s, err == nil
}

// freshness says how long ago the newest packet of the connections passed, where the timeout that it set is known, and
// otherwise how long the freshest entry has left.
func (n *Node) freshness(of []*sent, timeout func(*host.Flow) string) string {
	newest, left := -1, 0
	for _, s := range of {
		for _, f := range s.flows {
			left = max(left, f.Timeout)
			full, known := n.seconds(timeout(f))
			if idle := full - f.Timeout; known && idle >= 0 && (newest < 0 || idle < newest) {
				newest = idle
			}
		}
	}
	if newest >= 0 {
		return fmt.Sprintf("the last packet passed %d s before the capture", newest)
	}
	return fmt.Sprintf("the freshest entry has %d s left, and every packet renews it", left)
}

// freshestFirst orders connections by what they have left, so that evidence shows those in use first.
func freshestFirst(of []*sent) {
	for _, s := range of {
		slices.SortStableFunc(s.flows, func(a, b *host.Flow) int { return cmp.Compare(b.Timeout, a.Timeout) })
	}
}

// Kept are tracked connections that keep packets from the endpoints of a port, whatever the rules say.
type Kept struct {
	Frontend intent.Frontend
	// To is where the packets go.
	To netip.AddrPort
	// Flows are how many there are.
	Flows int
}

// Kept are those that the finding of this id speaks of: conntrack-stale-udp, conntrack-stale-tcp or
// conntrack-untranslated-service-flow. Without the cells of the port the last are all that are not translated, also where
// no rule would translate new ones.
func (p *Port) Kept(id string) []Kept {
	var of []*sent
	switch id {
	case conntrackStaleUDP.ID:
		if p.Protocol == "UDP" {
			of = p.staleFlows(func(*host.Flow) bool { return true })
		}
	case conntrackStaleTCP.ID:
		if p.Protocol == "TCP" {
			of = p.On.used(p.staleFlows(establishedTCP))
		}
	case conntrackUntranslatedServiceFlow.ID:
		if !p.EndpointsUnknown && len(p.Usable) > 0 {
			of = p.untranslated()
		}
	}
	out := make([]Kept, 0, len(of))
	for _, s := range of {
		out = append(out, Kept{s.frontend, s.to, len(s.flows)})
	}
	return out
}

func establishedTCP(f *host.Flow) bool { return f.State == "ESTABLISHED" && f.Assured }
