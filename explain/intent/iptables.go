package intent

import "fmt"

// iptables is what iptables mode does.
func (q question) iptables() Outcome {
	switch q.f.Kind {
	case ClusterIP:
		return q.iptablesInternal()
	case NodePort:
		if out, ok := q.iptablesUnservedNodePort(); ok {
			return out
		}
	case ExternalIP:
		if out, ok := q.oldExternalIP(); ok {
			return out
		}
	}
	return q.iptablesExternal()
}

// iptablesInternal is the cluster IP.
func (q question) iptablesInternal() Outcome {
	backends, because := q.sp.Cluster, q.anyEndpoint("internalTrafficPolicy is Cluster")
	switch onNode := fmt.Sprintf("internalTrafficPolicy is Local: the endpoints on %s", q.node()); {
	case !q.sp.InternalLocal:
	case q.release.does(twoLists):
		backends, because = q.sp.Local, onNode
	case q.sp.ExternalLocal:
		because = "internalTrafficPolicy Local has no effect beside externalTrafficPolicy Local up to 1.23: any ready endpoint"
	default:
		because = onNode
	}
	switch {
	case len(backends) > 0:
		return q.withMasquerade(backends, q.clusterIPMasquerade(), q.fallback(backends, because))
	case len(q.sp.Usable) > 0:
		return q.noneHere(fmt.Sprintf("internalTrafficPolicy is Local and %s has no ready endpoint", q.node()))
	case q.sp.InternalLocal && len(q.sp.where(ready)) > 0:
		return Outcome{Result: resultReject, Because: fmt.Sprintf(
			"internalTrafficPolicy is Local and %s has no ready endpoint: kube-proxy up to 1.23 rejects as if there were none at all", q.node())}
	}
	return Outcome{Result: resultReject, Because: noEndpoint}
}

const noEndpoint = "the port has no usable endpoint: kube-proxy rejects"

// iptablesExternal is an external address, load balancer address or node port that the rules serve.
func (q question) iptablesExternal() Outcome {
	if len(q.sp.Usable) == 0 {
		return q.iptablesReject()
	}
	if !q.admitted() {
		if q.release.does(filterFirewall) {
			return Outcome{Result: resultDrop, Because: q.outside() + ": kube-proxy 1.25+ drops in KUBE-PROXY-FIREWALL"}
		}
		return q.markDrop(q.outside())
	}
	if !q.externalLocal() {
		return q.withMasquerade(q.sp.Cluster, q.externalMasquerade(), q.fallback(q.sp.Cluster, q.anyEndpoint("externalTrafficPolicy is Cluster")))
	}
	if q.c.DetectedLocal {
		return q.deliver(q.sp.Cluster, false, q.shortcut("pods of the cluster keep their address and"))
	}
	if q.fromNode() && q.release.does(localShortcutForNode) {
		return q.deliver(q.sp.Cluster, true, q.shortcut("the node itself is masqueraded and"))
	}
	if len(q.sp.Local) == 0 {
		return q.noneHere(fmt.Sprintf("externalTrafficPolicy is Local and %s has no ready endpoint", q.node()))
	}
	out := q.deliver(q.sp.Local, q.fromLoopback(), q.fallback(q.sp.Local, fmt.Sprintf("externalTrafficPolicy is Local: the endpoints on %s, client address kept", q.node())))
	if exists, why := q.detector(); exists == maybe && (q.c.Class == LocalPod || q.c.Class == Hairpin || q.c.Class == RemotePod) {
		other := q.deliver(q.sp.Cluster, false, q.shortcut("pods of the cluster keep their address and"))
		other.Condition = "the proxy's local detector knows the client for a pod: " + why
		out.Alternative = &other
	}
	return out
}

// externalMasquerade is policy Cluster from outside: always masqueraded, because the endpoint may be on
// another node; but 1.21 to 1.23 spared local pods that dial an external IP, and only there.
func (q question) externalMasquerade() masquerade {
	if q.f.Kind == ExternalIP && q.release.does(plainExternalIP) && !q.release.does(externalChains) {
		switch exists, why := q.detector(); {
		case q.c.DetectedLocal:
			return masquerade{because: "kube-proxy 1.21 to 1.23 keeps the address of pods that dial an external IP"}
		case exists == maybe:
			return masquerade{unknown: why}
		}
	}
	return masquerade{on: true, because: "masqueraded"}
}

// fromLoopback is true for clients whose loopback address must not leave the node.
func (q question) fromLoopback() bool { return q.c.Addr.IsLoopback() }

// noneHere is a Local policy without a local endpoint while there are endpoints elsewhere.
func (q question) noneHere(reason string) Outcome {
	if q.release.does(filterDrops) {
		return Outcome{Result: resultDrop, Because: reason + ": kube-proxy 1.25+ drops"}
	}
	return q.markDrop(reason)
}

// markDrop is how it was up to 1.24: KUBE-MARK-DROP marks the packet in nat and the kubelet's KUBE-FIREWALL
// drops it in INPUT and OUTPUT. Nothing looks at the mark in FORWARD, so a packet to an address that is not
// the node's goes on, untranslated, to wherever it is routed: with a load balancer's address, to the load
// balancer.
func (q question) markDrop(reason string) Outcome {
	if q.fromNode() || q.toNode() {
		return Outcome{Result: resultDrop, Because: reason + ": kube-proxy up to 1.24 marks the packet and KUBE-FIREWALL drops it"}
	}
	return Outcome{Result: resultNoMatch, Because: reason + ": kube-proxy up to 1.24 marks the packet for dropping, but nothing looks at the mark while it is forwarded, so it leaves the node untranslated"}
}

// iptablesReject is an external address without any usable endpoint. The REJECT rule stands in a filter
// chain that not every hook reaches.
func (q question) iptablesReject() Outcome {
	because := noEndpoint
	if q.sp.InternalLocal && !q.externalLocal() && len(q.sp.where(ready)) > 0 {
		because = fmt.Sprintf("internalTrafficPolicy is Local and %s has no ready endpoint: kube-proxy up to 1.23 rejects traffic from outside too", q.node())
	}
	if q.reachesReject() {
		return Outcome{Result: resultReject, Because: because}
	}
	return Outcome{Result: resultNoMatch, Because: "the port has no usable endpoint, but the REJECT rule is not on this way: the packet leaves the node untranslated"}
}

// reachesReject follows the hooks: KUBE-SERVICES is reached from FORWARD and OUTPUT (from INPUT too up to
// 1.19), KUBE-EXTERNAL-SERVICES from INPUT (from FORWARD too since 1.20). A packet of the node to one of
// its own addresses passes OUTPUT and then INPUT.
func (q question) reachesReject() bool {
	outsideChain := q.f.Kind != LoadBalancer || q.release.does(loadBalancerRejectOutside)
	switch {
	case q.toNode():
		return true
	case q.fromNode():
		return !outsideChain
	default:
		return !outsideChain || q.release.does(externalRejectForwarded)
	}
}

// iptablesUnservedNodePort is a node port on an address of the node on which the proxy does not serve it.
// The filter rules for missing endpoints do not look at the address and hold all the same.
func (q question) iptablesUnservedNodePort() (Outcome, bool) {
	served, why := nodePortServed(NodePort, q.f.Addr, q.sp.NodeIP, q.p, q.release)
	if served {
		return Outcome{}, false
	}
	switch {
	case len(q.sp.Usable) == 0:
		return q.iptablesReject(), true
	case q.externalLocal() && len(q.sp.Local) == 0 && q.release.does(filterDrops):
		return q.noneHere(fmt.Sprintf("%s; externalTrafficPolicy is Local and %s has no ready endpoint", why, q.node())), true
	}
	return Outcome{Result: resultNoMatch, Because: why}, true
}

// throughBridge is the condition on which rules for external IPs leave a pod's packets alone.
const throughBridge = "the pod's packets come in through a port of a Linux bridge and bridge-nf-call-iptables is on"

// oldExternalIP is what the rules for external IPs left out up to 1.20: the node's own connections and
// those that come in through a bridge (pods, with bridge networking), unless the address is the node's.
func (q question) oldExternalIP() (Outcome, bool) {
	if q.release.does(plainExternalIP) || q.toNode() || len(q.sp.Usable) == 0 {
		return Outcome{}, false
	}
	if q.fromNode() {
		return Outcome{Result: resultNoMatch, Because: "kube-proxy up to 1.20 leaves the node's own connections to external IPs alone"}, true
	}
	if q.c.Class != LocalPod && q.c.Class != Hairpin {
		return Outcome{}, false
	}
	out := q.iptablesExternal()
	out.Alternative = &Outcome{Result: resultNoMatch, Condition: throughBridge,
		Because: "kube-proxy up to 1.20 leaves connections to external IPs that come from a bridge alone"}
	return out, true
}

// shortcut is the sentence for clients whom policy Local does not hold for.
func (q question) shortcut(who string) string {
	return q.fallback(q.sp.Cluster, fmt.Sprintf("externalTrafficPolicy is Local, but %s may reach any ready endpoint", who)) + q.topology()
}

// anyEndpoint is the sentence for a Cluster policy.
func (q question) anyEndpoint(policy string) string {
	return policy + ": any ready endpoint" + q.topology()
}

func (q question) topology() string {
	if q.sp.TopologyNote == "" {
		return ""
	}
	return " (" + q.sp.TopologyNote + ")"
}

// fallback adds to a reason that only terminating endpoints are left.
func (q question) fallback(backends []int, because string) string {
	for _, i := range backends {
		if q.sp.Endpoints[i].Ready {
			return because
		}
	}
	return because + "; none is ready, those that still serve while they terminate are used (kube-proxy 1.26+)"
}
