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
	// The firewall comes before the translation, and before it is asked whether there are endpoints. In 1.29 it came at
	// INPUT and FORWARD, where the address is translated already: it held for the node's own connections alone.
	if !q.admitted() {
		if q.release.minor >= 30 || q.fromNode() {
			return Outcome{Result: resultDrop, Because: q.outside() + ": the firewall chain drops"}
		}
		open := *q.sp
		open.SourceRanges = nil
		q.sp = &open
	}
	if len(q.sp.Usable) == 0 {
		return Outcome{Result: resultReject, Because: noEndpoint}
	}
	if q.externalLocal() && len(q.sp.Local) == 0 {
		return q.nftablesNoneHere()
	}
	return q.iptablesExternal()
}

// nftablesNoneHere is policy Local without a local endpoint. The node's own connections, which are meant to get any
// endpoint, were dropped by versions that looked for missing endpoints before the translation: at OUTPUT, up to 1.33.5,
// and since 1.30 for addresses of load balancers and external IPs only. Connections of pods are translated in PREROUTING,
// before any version looks.
func (q question) nftablesNoneHere() Outcome {
	drop := Outcome{Result: resultDrop, Because: fmt.Sprintf(
		"externalTrafficPolicy is Local and %s has no ready endpoint: this version drops the node's own connections before it translates", q.node())}
	minor, patch := q.release.minor, q.release.patch
	early := q.fromNode() && (minor <= 29 || q.f.Kind != NodePort)
	switch {
	case early && minor <= 32, early && minor == 33 && patch >= 0 && patch <= 5:
		return drop
	}
	out := q.iptablesExternal()
	if early && minor == 33 && patch < 0 && !drop.same(out) {
		drop.Condition = "the proxy is kube-proxy 1.33.5 or older"
		out.Alternative = &drop
	}
	return out
}
