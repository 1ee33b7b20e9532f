package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// policies names the traffic policies of a port that are Local and matter.
func (p *Port) policies() []string {
	var out []string
	if p.InternalLocal {
		out = append(out, "internalTrafficPolicy")
	}
	external := slices.ContainsFunc(p.Frontends, func(f intent.Frontend) bool { return f.Kind == intent.ExternalIP || f.Kind == intent.LoadBalancer })
	if p.ExternalLocal && (external || p.NodePort != 0) {
		out = append(out, "externalTrafficPolicy")
	}
	return out
}

// remoteByMistake are the ready endpoints that run on this node and that kube-proxy does not take for its own: by the
// slice's nodeName, which the proxy compares with another name, or by their pod, where the slice has no nodeName.
func (n *Node) remoteByMistake(p *Port) []*intent.Endpoint {
	var out []*intent.Endpoint
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		if !e.Ready || e.Local || n.Name == "" {
			continue
		}
		pod, known := n.podByName(e.Pod)
		if e.NodeName == n.Name || known && pod.Spec.NodeName == n.Name && slices.Contains(podAddrs(pod.Pod), e.Addr) {
			out = append(out, e)
		}
	}
	return out
}

// localEndpointNotUsed: under a Local policy an endpoint on this node is treated as one of another node.
var localEndpointNotUsed = Check{
	ID: "local-endpoint-not-used", Rests: onObjects, Severity: Error,
	Title: "endpoints of this node that kube-proxy takes for another node's",
	Port: func(p *Port) []report.Finding {
		policies := p.policies()
		if len(policies) == 0 {
			return nil
		}
		mistaken := p.On.remoteByMistake(p)
		if len(mistaken) == 0 {
			return nil
		}
		e := mistaken[0]
		f := report.Finding{
			Object: report.Object{Endpoint: e.String()}, Subject: p.Key(),
			Message: fmt.Sprintf("%s has %s Local, and its ready endpoint %s runs on %s, but kube-proxy takes it for another node's", p.Key(), strings.Join(policies, " and "), e, p.On.Name),
			Want:    "connections go to " + e.String(), Got: "it is treated as remote",
			Evidence: []report.Evidence{
				{Source: "objects", File: e.Evidence.File, Line: e.Evidence.Line, Text: fmt.Sprintf("EndpointSlice %s/%s lists %s, nodeName %q", p.Namespace, e.Slice, e, e.NodeName)},
				p.objectEvidence(),
			},
		}
		if at, rule := p.deadEnd(); at != "" {
			f.Got = at
			f.Evidence = append(f.Evidence, rule...)
		}
		if own := p.On.Proxy.NodeName; own != "" && own != p.On.Name {
			f.Message += fmt.Sprintf(": it takes itself for node %q", own)
			f.Causes = []string{fmt.Sprintf("kube-proxy runs with another node name (--hostname-override, hostnameOverride: %q) than its Node object %q", own, p.On.Name)}
			f.Remedy = fmt.Sprintf("remove --hostname-override from kube-proxy or set it to %s, and restart it", p.On.Name)
			return []report.Finding{f}
		}
		f.Message += fmt.Sprintf(": the EndpointSlice says nodeName %q", e.NodeName)
		f.Causes = []string{"the slice was written by hand or by another controller, without nodeName or with a wrong one"}
		f.Remedy = fmt.Sprintf("set nodeName: %s for the endpoint in EndpointSlice %s/%s", p.On.Name, p.Namespace, e.Slice)
		return []report.Finding{f}
	},
}

// deadEnd is where connections end for want of a local endpoint: "drop at NodePort 192.168.10.11:31081/TCP", with the
// rule. Empty where none was seen to.
func (p *Port) deadEnd() (at string, rule []report.Evidence) {
	for _, paths := range p.Cells {
		if first := &paths[0]; len(paths) == 1 && p.noLocal(first) && ends(first.Result) {
			return fmt.Sprintf("%s at %s", first.Result, frontend(first)), verdict(first)
		}
	}
	return "", nil
}

// noLocal tells whether a cell ought to be refused, which with a ready endpoint somewhere is for want of a local one,
// unless the Service's own source ranges keep the client out.
func (p *Port) noLocal(path *report.Path) bool {
	return path.Intended != nil && !p.keepsOut(path) && len(path.Intended.Backends) == 0 && path.Frontend.Kind != string(intent.HealthCheck) && ends(path.Intended.Result)
}

// keepsOut tells whether the client of a path is in none of the loadBalancerSourceRanges that it would have to be in.
func (p *Port) keepsOut(path *report.Path) bool {
	if path.Frontend.Kind != string(intent.LoadBalancer) || len(p.SourceRanges) == 0 {
		return false
	}
	client, err := netip.ParseAddr(path.Source)
	return err == nil && !slices.ContainsFunc(p.SourceRanges, func(r netip.Prefix) bool { return r.Contains(client) })
}

func ends(r report.Result) bool { return r == report.ResultDrop || r == report.ResultReject }

// localPolicyNoLocalEndpoints: a Local policy leaves clients of this node without a backend, as documented.
var localPolicyNoLocalEndpoints = Check{
	ID: "local-policy-no-local-endpoints", Rests: onObjects, Severity: Warning,
	Title: "Local policies without an endpoint on this node",
	Port: func(p *Port) []report.Finding {
		policies := p.policies()
		ready := p.usableNodes()
		if len(policies) == 0 || len(ready) == 0 || len(p.Local) > 0 {
			return nil
		}
		if p.On.Name == "" && p.On.Proxy.NodeName == "" {
			p.On.lacks(NodeName) // every endpoint looks remote
			return nil
		}
		if len(p.On.remoteByMistake(p)) > 0 {
			return nil // local-endpoint-not-used
		}
		return []report.Finding{p.nothingLocal(policies, ready)}
	},
}

// usableNodes are the nodes of the endpoints that may get traffic from somewhere, each once: ready ones or, where none is,
// those that still serve while they terminate.
func (p *Port) usableNodes() []string {
	var out []string
	for _, i := range p.Usable {
		out = once(out, p.Endpoints[i].NodeName)
	}
	return out
}

func (p *Port) nothingLocal(policies, elsewhere []string) report.Finding {
	node := p.On.Name
	if node == "" {
		node = p.On.Proxy.NodeName
	}
	on := "elsewhere"
	if names := slices.DeleteFunc(elsewhere, func(n string) bool { return n == "" }); len(names) > 0 {
		on = "on " + list(names, 3)
	}
	f := report.Finding{
		Subject: p.Key(),
		Message: fmt.Sprintf("%s has %s Local and no ready endpoint on %s (there are some %s)", p.Key(), strings.Join(policies, " and "), node, on),
		Want:    "an endpoint on " + node, Got: "none",
		Evidence: []report.Evidence{p.objectEvidence()},
		Remedy:   "run an endpoint on every node with clients (a DaemonSet), or set the policy to Cluster",
	}
	if p.InternalLocal {
		f.Remedy += "; trafficDistribution: PreferClose prefers near endpoints without refusing where there are none"
	}
	left := p.leftOut()
	if len(left.results) == 0 {
		if p.On.Proxy.Mode == kernelspace {
			f.Message += ": kube-proxy makes no load balancer in HNS here where the policy holds, and nothing refuses packets"
		}
		if p.On.Proxy.Mode == "ipvs" && slices.ContainsFunc(p.Cells, func(paths []report.Path) bool { return paths[0].Intended != nil }) {
			f.Message += ": in IPVS mode kube-proxy 1.24 and newer takes endpoints of other nodes instead, as if the policy were Cluster; older ones leave the virtual server empty, so that clients are refused"
			empty := p.refusedAt()
			if len(empty) > 0 {
				f.Message += ", as here at " + list(empty, 4)
				return f
			}
			f.Severity = Info // nobody is left out
			if p.HealthCheckNodePort != 0 && !p.InternalLocal {
				f.Message += p.healthCheckLeavesOut()
			}
		}
		return f
	}
	f.Message += fmt.Sprintf(": connections of %s to %s are %s, as documented", strings.Join(left.clients(), ", "), strings.Join(left.frontends, ", "), strings.Join(left.results, " or "))
	f.Evidence = append(f.Evidence, left.rule...)
	if p.HealthCheckNodePort != 0 && left.outsideOnly() {
		f.Severity = Info
		f.Message += p.healthCheckLeavesOut()
	}
	return f
}

func (p *Port) healthCheckLeavesOut() string {
	return fmt.Sprintf("; health check port %d tells the load balancer to leave this node out", p.HealthCheckNodePort)
}

// leftOut is who gets no backend under a Local policy, and where.
type leftOut struct {
	classes, frontends, results []string
	rule                        []report.Evidence
}

func (p *Port) leftOut() leftOut {
	var l leftOut
	for _, paths := range p.Cells {
		first := &paths[0]
		if !p.noLocal(first) || len(paths) != 1 || !ends(first.Result) || dialsElsewhere(first) {
			continue
		}
		result := "dropped"
		if first.Result == report.ResultReject {
			result = "refused"
		}
		l.classes, l.frontends, l.results = once(l.classes, first.SourceClass), once(l.frontends, frontend(first)), once(l.results, result)
		if l.rule == nil {
			l.rule = verdict(first)
		}
	}
	return l
}

// dialsElsewhere tells whether a client has its connections to a frontend translated on its own node and not on this
// one: cluster IPs are no addresses of the network.
func dialsElsewhere(path *report.Path) bool {
	return translatedAtHome(path) || path.Frontend.Kind == string(intent.ClusterIP) && path.SourceClass == string(intent.External)
}

func (l *leftOut) clients() []string {
	var out []string
	for _, c := range l.classes {
		out = append(out, intent.Class(c).Words())
	}
	return out
}

// outsideOnly tells whether clients of this node and its pods are served.
func (l *leftOut) outsideOnly() bool {
	for _, c := range l.classes {
		switch intent.Class(c) {
		case intent.LocalPod, intent.Hairpin, intent.Node, intent.Localhost:
			return false
		}
	}
	return true
}
