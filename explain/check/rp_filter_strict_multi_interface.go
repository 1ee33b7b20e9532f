package check

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// rpFilterStrictMultiInterface: the reverse path test refuses packets of Services. The kernel makes it after
// translation: it asks for the way from the endpoint back to the client, and a routing rule for the pod's address may
// lead that way through another interface than the one that the packet came in on. What the test would refuse with the
// node's own address as well is no matter of Services.
var rpFilterStrictMultiInterface = Check{
	ID: "rp-filter-strict-multi-interface", Rests: onGrid, Severity: Warning,
	Title: "interfaces whose reverse path filter discards packets of Services",
	Node: func(n *Node) []report.Finding {
		var found []*refusedIn
		for _, outside := range []bool{true, false} { // clients from outside make the better example
			for i := range n.Ports {
				found = n.Ports[i].refusedAfterTranslation(found, outside)
			}
		}
		for _, o := range n.Obstacles() {
			if o.Result == string(report.ResultMartian) {
				found = n.refusedOnTheWay(found, o)
			}
		}
		out := make([]report.Finding, 0, len(found))
		for _, r := range found {
			out = append(out, r.finding())
		}
		return out
	},
}

// refusedIn is what the reverse path test refuses on one interface.
type refusedIn struct {
	in  string
	why host.Finding
	// port and example are of the first packet: "a client at 192.0.2.9 to NodePort 192.168.10.11:31080/TCP for 10.244.1.140:8080".
	port    *Port
	example string
	// services are the service ports that it concerns, said the messages of the kernel's log that speak of it.
	services []string
	said     []host.KernelMessage
}

// refusedAfterTranslation looks at packets that come in on an interface, from outside of the cluster or from other nodes
// and their pods, keep their source and go to a pod of this node.
func (p *Port) refusedAfterTranslation(found []*refusedIn, outside bool) []*refusedIn {
	if p.Family != 4 {
		return found
	}
	for _, paths := range p.Cells {
		for i := range paths {
			if path := &paths[i]; path.Origin == "external" && (path.SourceClass == string(intent.External)) == outside && path.Result == report.ResultDNAT {
				found = p.refusedOnPath(found, path)
			}
		}
	}
	return found
}

// refusedOnPath takes packets to come in where the address that they dial is, or else where the way to the client is.
func (p *Port) refusedOnPath(found []*refusedIn, path *report.Path) []*refusedIn {
	dialled, err1 := netip.ParseAddr(path.Frontend.Address)
	client, err2 := netip.ParseAddr(path.Source)
	if err1 != nil || err2 != nil || path.Frontend.Kind == string(intent.ClusterIP) || dialled.IsLoopback() {
		return found
	}
	n := p.On
	for i := range path.Backends {
		b := &path.Backends[i]
		pod, err := netip.ParseAddr(b.Address)
		if err != nil || b.Result != report.ResultDNAT || b.Masquerade == nil || *b.Masquerade || !n.isHere(b) {
			continue
		}
		in := n.Host.Towards(client)
		if a, on := n.onInterface(dialled); on {
			in = a.Link
		} else if path.Frontend.Kind == string(intent.NodePort) {
			n.Needs(Addrs)
			continue
		}
		if strict, _ := n.Host.StrictSourceCheck(in); in != "" && strict != host.No && n.Host.ReversePath(in, client, dialled, 0).Is != host.No {
			found = n.refuses(found, p, in, client, pod, fmt.Sprintf("a client at %s to %s for %s", client, frontend(path), joinAddr(b)))
		}
	}
	return found
}

// isHere tells whether a backend is a pod of this node, with an address of its own.
func (n *Node) isHere(b *report.Backend) bool {
	a, err := netip.ParseAddr(b.Address)
	if err != nil || b.Node == "" || b.Node != cmp.Or(n.Proxy.NodeName, n.Name) {
		return false
	}
	_, own := n.onInterface(a)
	return !own
}

// refusedOnTheWay looks at what the walk found to be refused: packets of pods, and answers.
func (n *Node) refusedOnTheWay(found []*refusedIn, o *Obstacle) []*refusedIn {
	for _, h := range o.Hits {
		if h.Backend == nil || h.Port.Family != 4 {
			continue
		}
		from, err1 := netip.ParseAddr(h.Path.Source)
		to, err2 := netip.ParseAddr(h.Backend.Address)
		if err1 != nil || err2 != nil {
			continue
		}
		what := fmt.Sprintf("a client at %s to %s for %s", from, frontend(h.Path), joinAddr(h.Backend))
		if o.Reply {
			from, to = to, from
			what = fmt.Sprintf("the answer of %s to a client at %s", joinAddr(h.Backend), to)
		}
		if in := n.Host.Towards(from); in != "" {
			found = n.refuses(found, h.Port, in, from, to, what)
		}
	}
	return found
}

// refuses adds what the test of an interface refuses because its mode is strict. Where that rests on what was not
// captured, the running check is unknown.
func (n *Node) refuses(found []*refusedIn, p *Port, in string, from, to netip.Addr, what string) []*refusedIn {
	why := n.Host.ReversePath(in, from, to, 0)
	strict, _ := n.Host.StrictSourceCheck(in)
	switch {
	case strict == host.No:
		return found
	case why.Is == host.Yes:
		// A routing rule may lead another way, which takes a second uplink.
		if n.uplinks() > 1 {
			n.Needs(RouteRules)
		}
		return found
	case strict == host.Unknown:
		n.lacks(Sysctls)
		return found
	case why.Is == host.Unknown:
		n.Needs(Routes4, RouteRules)
		return found
	}
	for _, r := range found {
		if r.in == in {
			r.services = once(r.services, p.Key())
			return found
		}
	}
	r := &refusedIn{in: in, why: why, port: p, example: what, services: []string{p.Key()}}
	for _, m := range n.Host.KernelSaid(host.MartianSource) {
		if m.Dev == in {
			r.said = append(r.said, m)
		}
	}
	return append(found, r)
}

// uplinks counts the interfaces with addresses of the node that others reach.
func (n *Node) uplinks() int {
	links := make(map[string]bool)
	for _, a := range n.Host.Addrs {
		if addr := a.Prefix.Addr(); addr.Is4() && !addr.IsLoopback() && !a.Prefix.IsSingleIP() {
			links[a.Link] = true
		}
	}
	return len(links)
}

func (r *refusedIn) finding() report.Finding {
	f := report.Finding{
		Subject: r.in,
		Message: fmt.Sprintf("rp_filter is 1 on %s and discards packets of %s, e.g. of %s: %s", r.in, named(r.services), r.example, r.why.Because),
		Want:    fmt.Sprintf("net.ipv4.conf.%s.rp_filter = 2, or a way back through %s", r.in, r.in), Got: "rp_filter = 1, and a way back through another interface",
		Evidence: []report.Evidence{HostEvidence("sysctl", r.why.Evidence), r.port.objectEvidence()},
		Causes:   []string{"pods have addresses of a second network interface, and a routing rule sends what they send through it"},
		Remedy:   fmt.Sprintf("sysctl -w net.ipv4.conf.%s.rp_filter=2, and let the network plugin mark such connections so that answers leave by %s as well (today's Amazon VPC CNI does both)", r.in, r.in),
	}
	if len(r.said) > 0 {
		f.Evidence = append(f.Evidence, HostEvidence("dmesg", r.said[len(r.said)-1].Evidence))
		f.Message += fmt.Sprintf(" (the kernel's log has %s of a martian source on %s)", plural(len(r.said), "message"), r.in)
	}
	return f
}
