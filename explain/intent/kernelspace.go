package intent

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// preservesDestination is the annotation of kernelspace mode that keeps node ports and load balancer addresses to the
// endpoints of the node, as externalTrafficPolicy Local does.
const preservesDestination = "preserve-destination"

// chooseForHNS fills the lists for kernelspace mode.
func (b *planner) chooseForHNS(svc *corev1.Service, sp *ServicePort) {
	sp.LocalDestination = svc.Annotations[preservesDestination] == "true"
	sp.forHNS()
}

// forHNS fills the lists as syncProxyRules of pkg/proxy/winkernel does: Cluster holds the endpoints that are made
// backends at all, Local those of them on this node. There is no topology.
//
// A Service with a load balancer address falls back to endpoints that still serve while they terminate; where none
// serves either, all that there are stay, ready or not. Under externalTrafficPolicy Local only this node's endpoints are
// asked about that.
func (s *ServicePort) forHNS() {
	leaving, serving := s.windDown()
	fallsBack := hasKind(s.Frontends, LoadBalancer)
	s.Usable = s.where(func(e *Endpoint) bool {
		switch {
		case !fallsBack:
			return e.Ready && e.Serving
		case !serving:
			return true
		default:
			return e.Serving && (e.Ready || leaving)
		}
	})
	s.Cluster, s.Local = nil, nil
	for _, i := range s.Usable {
		if s.Endpoints[i].Local {
			s.Local = append(s.Local, i)
		}
		if s.Endpoints[i].Local || !s.InternalLocal || !s.ExternalLocal {
			s.Cluster = append(s.Cluster, i)
		}
	}
}

// windDown says of the endpoints whether all that may be used are terminating, and whether any still serves. Under
// externalTrafficPolicy Local only those of this node count (isAllEndpointsTerminating, isAllEndpointsNonServing).
func (s *ServicePort) windDown() (leaving, serving bool) {
	leaving = true
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if s.ExternalLocal && !e.Local {
			continue
		}
		serving = serving || e.Serving
		leaving = leaving && (e.Terminating || !e.Ready)
	}
	return leaving, serving
}

// kernelspace is what kernelspace mode on Windows does: a load balancer of HNS for each frontend, the same for every
// client, and none at all where it would have no endpoint.
func (q question) kernelspace() Outcome {
	out := q.balanced()
	if q.sp.dsr == yes || !q.sp.ExternalLocal && !q.sp.LocalDestination {
		return out
	}
	// Without direct server return in HNS kube-proxy takes externalTrafficPolicy for Cluster and ignores the annotation.
	sp := *q.sp
	sp.ExternalLocal, sp.LocalDestination = false, false
	sp.forHNS()
	q.sp = &sp
	if other := q.balanced(); !other.same(out) {
		other.Condition = "HNS of this Windows does not support direct server return"
		out.Alternative = &other
	}
	return out
}

// balanced is the load balancer for the frontend.
func (q question) balanced() Outcome {
	backends, because := q.sp.Cluster, "any ready endpoint"
	switch onNode := fmt.Sprintf("the endpoints on %s", q.node()); {
	case q.f.Kind == ClusterIP && q.sp.InternalLocal:
		backends, because = q.sp.Local, "internalTrafficPolicy is Local: "+onNode
	case q.f.Kind == ClusterIP:
	case q.sp.ExternalLocal:
		backends, because = q.sp.Local, "externalTrafficPolicy is Local: "+onNode
	case q.sp.LocalDestination && q.f.Kind != ExternalIP:
		backends, because = q.sp.Local, "the annotation "+preservesDestination+" is set: "+onNode
	}
	if hasKind(q.sp.Frontends, LoadBalancer) && (q.f.Kind == NodePort || q.f.Kind == ExternalIP) {
		if leaving, serving := q.sp.windDown(); leaving || !serving {
			return Outcome{Result: resultNoMatch, Because: "no endpoint is ready that does not terminate: kube-proxy makes no load balancer in HNS for node ports and external IPs then"}
		}
	}
	if len(backends) == 0 {
		return Outcome{Result: resultNoMatch, Because: "there is no endpoint for it: kube-proxy makes no load balancer in HNS, and nothing refuses packets"}
	}
	out := q.deliver(backends, false, because)
	out.MasqueradeUnknown = "HNS decides by direct server return and network type whether to keep the client's address"
	out.Masquerade = make([]bool, len(backends))
	return out
}

// returnsDirectly says whether HNS of the node supports direct server return: all of Windows does but Server 2019
// without updates (DSRVersion of hcsshim: HNS 9.3).
func returnsDirectly(n *corev1.Node) presence {
	if n == nil {
		return maybe
	}
	// "10.0.20348.2031"
	words := strings.Split(n.Status.NodeInfo.KernelVersion, ".")
	if len(words) < 3 || words[0] != "10" {
		return maybe
	}
	const server2019 = 17763
	if build, err := strconv.Atoi(words[2]); err == nil && build > server2019 {
		return yes
	}
	return maybe
}
