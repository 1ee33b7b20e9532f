package intent

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/traits"
)

// RealServers are indexes into sp.Endpoints: those that kube-proxy gives the virtual servers of one kind of frontend in
// IPVS mode. A health check port has no virtual server, and none.
func RealServers(sp *ServicePort, kind FrontendKind, p *traits.Proxy) []int {
	_, high := releases(*p)
	q := question{sp: sp, f: Frontend{Kind: kind}, p: *p, release: high}
	switch kind {
	case HealthCheck:
		return nil
	case ClusterIP:
		return q.ipvsList(sp.InternalLocal && q.release.does(twoLists))
	}
	return q.ipvsList(q.externalLocal())
}

// ipvs is what IPVS mode does: a virtual server has one list of real servers for all clients, so that the
// policies are the same for pods, the node and the world.
func (q question) ipvs() Outcome {
	switch q.f.Kind {
	case ClusterIP:
		return q.ipvsServer(q.sp.InternalLocal && q.release.does(twoLists), "internalTrafficPolicy", q.clusterIPMasquerade())
	case NodePort:
		if served, why := nodePortServed(NodePort, q.f.Addr, q.sp.NodeIP, q.p, q.release); !served {
			return Outcome{Result: resultNoMatch, Because: why}
		}
	default:
		// An empty virtual server refuses what the node itself sends before the filter table sees it.
		empty := q.fromNode() && len(q.ipvsList(q.externalLocal())) == 0
		if !empty && !q.admitted() && (q.release.does(ipvsOutputFirewall) || !q.release.does(filterFirewall) || !q.fromNode()) {
			return Outcome{Result: resultDrop, Because: q.outside()}
		}
	}
	m := masquerade{because: "client address kept"}
	if !q.externalLocal() {
		m = masquerade{on: true, because: "masqueraded"}
	}
	return q.ipvsServer(q.externalLocal(), "externalTrafficPolicy", m)
}

// ipvsList are the endpoints of a virtual server under one policy. Under policy Local without a local endpoint they are
// those of the cluster since 1.24, if the Service can be reached from outside: without that it has no Cluster list.
func (q question) ipvsList(onlyLocal bool) []int {
	if onlyLocal && (len(q.sp.Local) > 0 || !q.release.does(ipvsClusterFallback)) {
		return q.sp.Local
	}
	return q.sp.Cluster
}

// ipvsServer is a virtual server under one policy.
func (q question) ipvsServer(onlyLocal bool, policy string, m masquerade) Outcome {
	backends, because := q.ipvsList(onlyLocal), q.anyEndpoint(policy+" is Cluster")
	older := false
	if onlyLocal {
		because = fmt.Sprintf("%s is Local: the endpoints on %s, for every client", policy, q.node())
		if len(q.sp.Local) == 0 && q.release.does(ipvsClusterFallback) {
			older = q.p.VersionFromRules
			because = fmt.Sprintf("%s is Local and %s has no ready endpoint: IPVS mode of kube-proxy 1.24+ takes any ready endpoint instead", policy, q.node())
		}
	}
	if len(backends) == 0 {
		reason := "the port has no usable endpoint"
		if onlyLocal && len(q.sp.Usable) > 0 {
			reason = fmt.Sprintf("%s is Local and %s has no ready endpoint", policy, q.node())
		}
		return Outcome{Result: resultReject, Because: reason + ": the virtual server is empty and the kernel answers port unreachable"}
	}
	out := q.withMasquerade(backends, m, q.fallback(backends, because))
	if older {
		out.Alternative = &Outcome{
			Result: resultReject, Condition: "kube-proxy is older than 1.24",
			Because: fmt.Sprintf("%s is Local and %s has no ready endpoint: the virtual server is empty and the kernel answers port unreachable", policy, q.node()),
		}
	}
	return out
}
