package intent

import "fmt"

// masquerade is an answer on whether the client's address is hidden from the backend, with the reason.
type masquerade struct {
	on      bool
	unknown string // why it cannot be told; empty when it can
	because string
}

// clusterIPMasquerade is the rule for cluster IPs: clients that the local detector does not know for pods
// are masqueraded, because the answer has to come back through this node. Without a detector nobody is.
func (q question) clusterIPMasquerade() masquerade {
	if q.p.MasqueradeAll {
		return masquerade{on: true, because: "masqueradeAll is on"}
	}
	if q.c.DetectedLocal {
		return masquerade{because: "the client counts as a pod of this cluster and keeps its address"}
	}
	switch exists, why := q.detector(); {
	case exists == no && q.p.Mode == modeIPVS:
		// KUBE-CLUSTER-IP is then tested with the client's address as the service address: that is the
		// source the node itself takes, since IPVS mode puts service addresses on kube-ipvs0.
		return masquerade{on: q.fromNode(), because: why}
	case exists == no:
		return masquerade{because: why + ": nothing is masqueraded"}
	case exists == maybe:
		return masquerade{unknown: why}
	default:
		return masquerade{on: true, because: why + " does not hold for the client: masqueraded"}
	}
}

// presence is a three-valued answer.
type presence int

const (
	maybe presence = iota
	yes
	no
)

// detector says whether the proxy can tell local pods in this family, and how.
func (q question) detector() (presence, string) {
	hasCIDR := false
	for _, r := range q.p.ClusterCIDRs {
		if r.IsValid() && family(r.Addr()) == q.sp.Family {
			hasCIDR = true
		}
	}
	switch q.p.LocalMode {
	case "-":
		return no, "the proxy has no local detector (no clusterCIDR)"
	case "BridgeInterface", "InterfaceNamePrefix":
		return yes, fmt.Sprintf("%s %s", q.p.LocalMode, q.p.LocalInterface)
	}
	mode := q.p.LocalMode
	if mode == "" {
		mode = "ClusterCIDR"
	}
	switch {
	case hasCIDR:
		return yes, mode
	case len(q.p.ClusterCIDRs) > 0:
		return no, fmt.Sprintf("the proxy's %s has no IPv%d range", mode, q.sp.Family)
	}
	return maybe, "how the proxy tells local pods is not known"
}

// withMasquerade is deliver for a masquerade that may be unknown.
func (q question) withMasquerade(backends []int, m masquerade, because string) Outcome {
	out := q.deliver(backends, m.on, because)
	out.MasqueradeUnknown = m.unknown
	if m.because != "" {
		out.Because += "; " + m.because
	}
	return out
}
