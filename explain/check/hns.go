package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/hns"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// hnsTable is the table of a step that HNS takes, on a Windows node, and the source of evidence for it.
const hnsTable = "hns"

// byHNS tells whether a load balancer of HNS leads to a backend.
func byHNS(b *report.Backend) bool {
	return slices.ContainsFunc(b.Hops, func(h report.Hop) bool { return h.Table == hnsTable })
}

// policies are the load balancers of HNS on a path, as evidence.
func policies(p *report.Path) []report.Evidence {
	var out []report.Evidence
	for _, h := range p.Hops {
		if h.Table == hnsTable {
			e := h.Evidence
			e.Text = h.Text
			out = append(out, e)
		}
	}
	return out
}

// balancerEvidence is a load balancer of HNS, for a finding.
func balancerEvidence(b *hns.LoadBalancer) report.Evidence {
	return report.Evidence{Source: hnsTable, File: b.File, Line: b.Line, Text: b.String()}
}

// balancers are the load balancers of HNS that serve the port's frontends, each once, with the first frontend of each.
func (p *Port) balancers() (out []*hns.LoadBalancer, at []intent.Frontend) {
	if p.On.Proxy.Mode != kernelspace || p.On.HNS == nil || !p.On.Has(ServiceTables) {
		return nil, nil
	}
	for _, f := range p.Frontends {
		if f.Kind == intent.HealthCheck {
			continue
		}
		dst := netip.AddrPortFrom(f.Addr, uint16(f.Port))
		for _, b := range p.On.HNS.Serving(dst, dataplane.ProtocolNumber(p.Protocol), f.OnNode) {
			if !slices.Contains(out, b) {
				out, at = append(out, b), append(at, f)
			}
		}
	}
	return out, at
}

// whoseInHNS tells how a load balancer came to lead to a backend that no slice lists: to an endpoint of the Service's at
// another port, or to one that it had once.
func (p *Port) whoseInHNS(b *report.Backend) origin {
	if len(p.portsOf(b.Address)) > 0 {
		return ownWrong
	}
	return ownStale
}

// portsOf are the ports of the Service's endpoints at an address.
func (p *Port) portsOf(address string) []int {
	var out []int
	for i := range p.Endpoints {
		if e := &p.Endpoints[i]; e.Addr.String() == address {
			out = append(out, e.Port)
		}
	}
	return out
}

// atOtherPort tells whether an endpoint that gets no traffic does get some at a port that is not its own: then the load
// balancer's port is wrong, and wrong-translation says so.
func (e *byEndpoint) atOtherPort() bool {
	return slices.ContainsFunc(e.path.Backends, func(b report.Backend) bool {
		return b.Address == e.first.Address && b.Port != e.first.Port && b.Probability > 0 && byHNS(&b)
	})
}

// placeInHNS says what HNS has of an endpoint that gets no traffic.
func (p *Port) placeInHNS(e *byEndpoint) (place string, evidence []report.Evidence) {
	evidence = policies(e.path)
	a, err := netip.ParseAddr(e.first.Address)
	if err != nil || p.On.HNS == nil {
		return "", evidence
	}
	in := p.On.HNS.EndpointAt(a)
	if in == nil {
		return ": HNS has no endpoint of that address, which kube-proxy makes for pods of other nodes, and the network plugin for those of this one", evidence
	}
	return ": the load balancer does not list its endpoint in HNS", append(evidence, report.Evidence{
		Source: hnsTable, File: in.File, Line: in.Line, Text: fmt.Sprintf("endpoint %s: %s", in.ID, a),
	})
}

// wrongPorts are the load balancers that lead to endpoints of the Service at a port that is none of theirs.
func (p *Port) wrongPorts(strays []*byEndpoint) []report.Finding {
	var out []report.Finding
	var seen []string
	for _, e := range strays {
		if !byHNS(e.first) || slices.Contains(seen, e.first.TranslatedBy) {
			continue
		}
		seen = append(seen, e.first.TranslatedBy)
		right := report.Backend{Address: e.first.Address, Port: p.portsOf(e.first.Address)[0]}
		f := report.Finding{
			Object:  report.Object{Endpoint: e.address},
			Subject: e.first.TranslatedBy,
			Message: fmt.Sprintf("%s of new connections to %s go to %s, where the endpoint has port %d: the load balancer of HNS knows one port for all endpoints, and it is %d", percent(e.share), p.Key(), e.address, right.Port, e.first.Port),
			Want:    joinAddr(&right), Got: e.address + " at " + strings.Join(e.seen, ", "),
			Evidence: append(append(policies(e.path), rules(e.first)...), p.objectEvidence()),
			Causes:   []string{proxyStopped, "something other than kube-proxy changed the load balancer"},
			Remedy:   restartProxy,
		}
		if p.manyPorts() {
			f.Causes = []string{"the endpoints of the Service have different ports (a named targetPort), which kube-proxy cannot express in HNS"}
			f.Remedy = "give all pods of the Service the same port, or split it into one Service for each port"
		} else if p.On.Proxy.Within(0, 33) {
			f.Causes = append(f.Causes, "kube-proxy up to 1.33 takes the number in the Service's targetPort and not the port that the EndpointSlice has")
		}
		out = append(out, e.provided(f))
	}
	return out
}

// manyPorts tells whether the Service's usable endpoints differ in their port.
func (p *Port) manyPorts() bool {
	return slices.ContainsFunc(p.Usable, func(i int) bool { return p.Endpoints[i].Port != p.Endpoints[p.Usable[0]].Port })
}

// hnsAffinity compares what the load balancers do for session affinity with what the Service asks for. The time for
// which HNS remembers a client is its own.
func (p *Port) hnsAffinity() (report.Finding, bool) {
	all, at := p.balancers()
	for i, b := range all {
		if !b.HasDistribution || b.Sticky() == (p.AffinitySeconds > 0) {
			continue
		}
		want, got := "none", "one endpoint for each client"
		what := "keeps clients at their endpoint, and the Service does not ask for session affinity"
		if p.AffinitySeconds > 0 {
			want, got = "one endpoint for each client", "none"
			what = "distributes every connection by itself, and the Service asks for session affinity"
		}
		return report.Finding{
			Subject:  p.Key(),
			Message:  fmt.Sprintf("the load balancer of HNS for %s %s (%s) %s", at[i].Kind, b.At(), p.Key(), what),
			Want:     want,
			Got:      got,
			Evidence: []report.Evidence{balancerEvidence(b), p.objectEvidence()},
			Causes: []string{
				"kube-proxy has not synced since sessionAffinity of the Service was changed",
				"HNS before Windows Server 2022 does not know session affinity",
			},
			Remedy: restartProxy,
		}, true
	}
	return report.Finding{}, false
}

// staleBalancers are the load balancers for addresses and ports that no Service has. HNS knows no names.
func (n *Node) staleBalancers() []report.Finding {
	if n.HNS == nil || len(n.HNS.Balancers) == 0 || !n.Needs(ServiceTables, Services) {
		return nil
	}
	// Every cluster has this Service: without it the others that are given are not all there are.
	if _, whole := n.Objects.Service("default", "kubernetes"); !whole {
		n.lacks(Services)
		return nil
	}
	known := make(frontendSet)
	for id := range n.frontends() {
		id.servicePort = ""
		known[id] = true
	}
	checks := n.healthVIPs()
	var out []report.Finding
	dataplane.EachBalanced(n.HNS, func(b dataplane.Balanced) {
		id := frontendID{protocol: b.Protocol, family: b.Family, addr: b.Addr, port: b.Port}
		if known[id] || checks[netip.AddrPortFrom(b.Addr, b.Port)] {
			return
		}
		out = append(out, n.staleBalancer(b))
	})
	return out
}

// healthPort is the port on which kube-proxy answers for its own health.
const healthPort = 10256

// healthVIPs are the addresses of load balancers and the ports at which kube-proxy lets health checks through to the
// node (forwardHealthCheckVip): the Service's own, or that of kube-proxy.
func (n *Node) healthVIPs() map[netip.AddrPort]bool {
	out := make(map[netip.AddrPort]bool)
	for _, sp := range n.Plan.Ports {
		for _, f := range sp.Frontends {
			if f.Kind != intent.LoadBalancer {
				continue
			}
			out[netip.AddrPortFrom(f.Addr, healthPort)] = true
			out[netip.AddrPortFrom(f.Addr, uint16(sp.HealthCheckNodePort))] = true
		}
	}
	return out
}

func (n *Node) staleBalancer(b dataplane.Balanced) report.Finding {
	f := report.Finding{
		Subject:  b.Balancer.At(),
		Message:  fmt.Sprintf("HNS still serves %s, which no Service has, with load balancer %s", b.Balancer.At(), b.Balancer.ID),
		Want:     "no load balancer",
		Got:      b.Balancer.String(),
		Evidence: []report.Evidence{balancerEvidence(b.Balancer)},
		Causes: []string{
			proxyStopped,
			"HNS refused to delete it (known of Windows Server 2019): kube-proxy tries again at its next sync, while it runs",
		},
		Remedy: "restart kube-proxy on this node: it deletes all load balancers of HNS when it starts, and makes them anew",
	}
	for _, sp := range n.Plan.Ports {
		if netfilter.Family(sp.Family) == b.Family && slices.ContainsFunc(sp.Frontends, func(x intent.Frontend) bool { return b.Addr.IsValid() && x.Addr == b.Addr }) {
			f.Message += fmt.Sprintf("; the address is that of %s/%s, at other ports", sp.Namespace, sp.Name)
			f.Evidence = append(f.Evidence, serviceEvidence(sp))
			break
		}
	}
	return f
}
