package intent

import (
	"fmt"
	"slices"

	"github.com/svcnet/svcnet/explain/traits"
)

// The results of an outcome.
const (
	resultDNAT         = "dnat"
	resultIPVS         = "ipvs"
	resultRedirect     = "redirect"
	resultReject       = "reject"
	resultDrop         = "drop"
	resultLocalProcess = "local-process"
	resultNoMatch      = "no-match"
	resultUnknown      = "unknown"
)

// The proxy modes that have rules of their own here.
const (
	modeIPTables    = "iptables"
	modeIPVS        = "ipvs"
	modeNFTables    = "nftables"
	modeUserspace   = "userspace"
	modeKernelspace = "kernelspace"
	// modeFallback is svcnet's own proxy, which does what nftables mode of the newest version does.
	modeFallback = "svcnet"
)

// question is one client asking for one frontend of one proxy version.
type question struct {
	sp      *ServicePort
	f       Frontend
	c       Client
	p       traits.Proxy
	release release
}

// Intend says what ought to happen to new connections of a client to a frontend of this port. The lists of
// endpoints are those that Compute chose. Where the proxy's version is a range whose ends differ, the
// outcome is that of the newest and Alternative that of the oldest.
//
// Modes of other proxies (cilium, calico-ebpf) get the outcome that the API asks for, as iptables mode of the newest version fulfils it, with the masquerade left open.
func (s *ServicePort) Intend(f Frontend, c Client, p traits.Proxy) Outcome {
	low, high := releases(p)
	out := question{s, f, c, p, high}.answer()
	if low == high || out.Alternative != nil {
		return out
	}
	if old := (question{s, f, c, p, low}).answer(); !old.same(out) {
		old.Condition = fmt.Sprintf("the proxy is as old as kube-proxy %s", low)
		out.Alternative = &old
	}
	return out
}

// same says whether two outcomes mean the same for a client.
func (o Outcome) same(x Outcome) bool {
	return o.Result == x.Result && slices.Equal(o.Backends, x.Backends) && slices.Equal(o.Masquerade, x.Masquerade) &&
		(o.MasqueradeUnknown == "") == (x.MasqueradeUnknown == "")
}

func (q question) answer() Outcome {
	if q.c.Addr.IsValid() && family(q.c.Addr.Unmap()) != q.sp.Family {
		return Outcome{Result: resultNoMatch, Because: fmt.Sprintf("%s is not an IPv%d address", q.c.Addr, q.sp.Family)}
	}
	if q.f.Addr.IsLoopback() && !q.fromNode() {
		return Outcome{Result: resultNoMatch, Because: "loopback addresses are reached from the node itself only"}
	}
	if q.f.Kind == HealthCheck {
		return q.healthCheck()
	}
	if q.sp.EndpointsUnknown {
		return Outcome{Result: resultUnknown, Because: "the evidence holds neither EndpointSlices nor Endpoints"}
	}
	if q.f.Kind == LoadBalancer && len(q.sp.SourceRanges) > 0 && !q.c.Addr.IsValid() {
		return Outcome{Result: resultUnknown, Because: "loadBalancerSourceRanges decide by the client's address, which is not known"}
	}
	switch q.p.Mode {
	case modeIPVS:
		return q.ipvs()
	case modeNFTables, modeFallback:
		return q.nftables()
	case modeIPTables, "":
		return q.iptables()
	case modeUserspace:
		return q.userspace()
	case modeKernelspace:
		return q.kernelspace()
	}
	q.release = newest
	out := q.iptables()
	if len(out.Backends) > 0 {
		out.MasqueradeUnknown = fmt.Sprintf("%s decides by itself whether to keep the client's address", q.p.Mode)
		out.Masquerade = q.hairpins(out.Backends)
	}
	return out
}

// fromNode says whether the client is the node itself (--src-type LOCAL).
func (q question) fromNode() bool {
	return q.c.OnNode || q.c.Class == Node || q.c.Class == Localhost || q.c.Addr.IsLoopback()
}

// toNode says whether the frontend's address is one of the node's.
func (q question) toNode() bool {
	return q.f.OnNode || q.f.Kind == NodePort || q.f.Addr.IsLoopback()
}

// externalLocal says whether policy Local holds for this frontend: up to 1.18 externalIPs know Cluster only.
func (q question) externalLocal() bool {
	if q.f.Kind == ExternalIP && !q.release.does(externalIPPolicy) {
		return false
	}
	return q.sp.ExternalLocal
}

// deliver is the outcome for traffic that is translated to one of the backends.
func (q question) deliver(backends []int, masquerade bool, because string) Outcome {
	out := Outcome{Result: resultDNAT, Backends: slices.Clone(backends), Because: because, Masquerade: q.hairpins(backends)}
	for i := range out.Masquerade {
		out.Masquerade[i] = out.Masquerade[i] || masquerade
	}
	if q.p.Mode == modeIPVS {
		out.Result = resultIPVS
	}
	return out
}

// hairpins says for each backend whether it is the client itself: then it has to see another source, or it
// would answer itself without the translation being undone.
func (q question) hairpins(backends []int) []bool {
	out := make([]bool, len(backends))
	client := q.c.Addr.Unmap()
	for i, at := range backends {
		out[i] = client.IsValid() && q.sp.Endpoints[at].Addr == client
	}
	return out
}

// node names the node in sentences.
func (q question) node() string {
	if q.p.NodeName == "" {
		return "this node"
	}
	return q.p.NodeName
}

// admitted says whether loadBalancerSourceRanges let the client in. Where the proxy's own address is in a
// range, the load balancer's address counts as a source too: a node that has the address on an interface
// uses it as the source of its own connections to it.
func (q question) admitted() bool {
	if q.f.Kind != LoadBalancer || len(q.sp.SourceRanges) == 0 {
		return true
	}
	client := q.c.Addr.Unmap()
	nodeInside := false
	for _, r := range q.sp.SourceRanges {
		if r.Contains(client) {
			return true
		}
		nodeInside = nodeInside || q.sp.NodeIP.IsValid() && r.Contains(q.sp.NodeIP)
	}
	return nodeInside && client == q.f.Addr
}

// outside is the sentence for a client that source ranges keep out.
func (q question) outside() string {
	return fmt.Sprintf("%s is in none of the loadBalancerSourceRanges", q.c.Addr)
}

// healthCheck is a port on which the proxy itself answers with the number of local endpoints.
func (q question) healthCheck() Outcome {
	if served, why := nodePortServed(HealthCheck, q.f.Addr, q.sp.NodeIP, q.p, q.release); !served {
		return Outcome{Result: resultNoMatch, Because: "the health check listens on the NodePort addresses only, and " + why}
	}
	because := fmt.Sprintf("kube-proxy itself answers on the healthCheckNodePort: %s has %s", q.node(), q.sp.localReady())
	if q.sp.EndpointsUnknown {
		because = "kube-proxy itself answers on the healthCheckNodePort; whether there are local endpoints is not known"
	}
	return Outcome{Result: resultLocalProcess, Because: because}
}

// localReady counts what the health check counts: the addresses of endpoints that are local and ready
// (those that only serve while they terminate do not count).
func (s *ServicePort) localReady() string {
	addrs := map[string]bool{}
	for _, i := range s.where(local, ready) {
		addrs[s.Endpoints[i].Addr.String()] = true
	}
	switch len(addrs) {
	case 0:
		return "no ready endpoint, it says 503"
	case 1:
		return "1 ready endpoint, it says 200"
	}
	return fmt.Sprintf("%d ready endpoints, it says 200", len(addrs))
}
