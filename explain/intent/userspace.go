package intent

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// heed takes away from a service port what the proxy's mode pays no attention to, so that nobody expects it.
//
// Userspace mode knows no traffic policies, source ranges or health check ports: its portals lead every client to one
// socket, and the process behind it chooses among all ready endpoints. Kernelspace mode has no source ranges.
func (b *planner) heed(sp *ServicePort) {
	switch b.in.Proxy.Mode {
	case modeUserspace:
		sp.InternalLocal, sp.ExternalLocal, sp.SourceRanges, sp.HealthCheckNodePort = false, false, nil, 0
	case modeKernelspace:
		sp.SourceRanges = nil
	}
}

// unserved says whether the proxy's mode leaves a family of a Service alone: userspace mode reads spec.clusterIP only,
// and an overlay network of Windows has one family (DualStackCompatible in pkg/proxy/winkernel).
func (b *planner) unserved(svc *corev1.Service, fam int) bool {
	switch b.in.Proxy.Mode {
	case modeUserspace:
		a, ok := parseAddr(svc.Spec.ClusterIP)
		return ok && family(a) != fam
	case modeKernelspace:
		return b.in.OnlyFamily != 0 && b.in.OnlyFamily != fam
	}
	return false
}

// userspace is what userspace mode (up to 1.25) does: portals lead connections to a socket of kube-proxy, whether there
// are endpoints or not, and the process goes round the ready ones by itself (openPortal and openOnePortal of
// pkg/proxy/userspace, NextEndpoint of its LoadBalancerRR). Each backend then sees an address of this node as client.
func (q question) userspace() Outcome {
	out := Outcome{Result: resultRedirect, Backends: slices.Clone(q.sp.Cluster), Because: q.roundRobin()}
	for range out.Backends {
		out.Masquerade = append(out.Masquerade, true)
	}
	if q.f.Kind != ExternalIP || q.toNode() {
		return out
	}
	// An external IP that is none of the node's has no rule for the node's own packets, and none for packets that come
	// in through a bridge.
	if q.fromNode() {
		return Outcome{Result: resultNoMatch, Because: "userspace mode leaves the node's own connections to external IPs alone"}
	}
	if q.c.Class == LocalPod || q.c.Class == Hairpin {
		out.Alternative = &Outcome{Result: resultNoMatch, Condition: throughBridge,
			Because: "userspace mode leaves connections to external IPs that come from a bridge alone"}
	}
	return out
}

// roundRobin says what the process does with a connection.
func (q question) roundRobin() string {
	const taken = "kube-proxy's own process takes the connection"
	switch n := len(q.sp.Cluster); {
	case n == 0:
		return taken + " and closes it: the port has no ready endpoint"
	case n == 1:
		return taken + " and makes one to the ready endpoint"
	case q.sp.AffinitySeconds > 0:
		return fmt.Sprintf("%s and makes one to the endpoint that the client had before, or to the next of %d ready ones in turn", taken, n)
	default:
		return fmt.Sprintf("%s and makes one to the next of %d ready endpoints in turn", taken, n)
	}
}

// chooseReady fills the lists for userspace mode: the process takes what Endpoints list as ready, wherever it is.
func (s *ServicePort) chooseReady() {
	s.Cluster = s.where(ready)
	s.Usable = s.Cluster
}
