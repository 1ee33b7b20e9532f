package intent

import "fmt"

// nftables is what nftables mode does: the same policies as iptables mode, in chains that every hook
// reaches, with node ports on fewer addresses.
func (q question) nftables() Outcome {
	if q.f.Kind == ClusterIP {
		return q.iptablesInternal()
	}
	if q.f.Kind == NodePort {
		if served, why := nodePortServed(NodePort, q.f.Addr, q.sp.NodeIP, q.p, q.release); !served {
			return Outcome{Result: resultNoMatch, Because: why}
		}
	}
	// The firewall comes before the translation, and before it is asked whether there are endpoints.
	if !q.admitted() {
		return Outcome{Result: resultDrop, Because: q.outside() + ": the firewall chain drops"}
	}
	if len(q.sp.Usable) == 0 {
		return Outcome{Result: resultReject, Because: noEndpoint}
	}
	if q.externalLocal() && len(q.sp.Local) == 0 {
		return q.nftablesNoneHere()
	}
	return q.iptablesExternal()
}

// nftablesNoneHere is policy Local without a local endpoint. Versions that tested for missing endpoints
// before the translation dropped the connections of pods and of the node too, which are meant to get any
// endpoint: 1.29 those of the node, 1.30 to 1.33.5 all.
func (q question) nftablesNoneHere() Outcome {
	drop := Outcome{Result: resultDrop, Because: fmt.Sprintf(
		"externalTrafficPolicy is Local and %s has no ready endpoint: this version drops before it translates, pods and the node included", q.node())}
	minor, patch := q.release.minor, q.release.patch
	switch {
	case minor <= 29 && q.fromNode(), minor >= 30 && minor <= 32, minor == 33 && patch >= 0 && patch <= 5:
		return drop
	}
	out := q.iptablesExternal()
	if minor == 33 && patch < 0 && !drop.same(out) {
		drop.Condition = "the proxy is kube-proxy 1.33.5 or older"
		out.Alternative = &drop
	}
	return out
}
