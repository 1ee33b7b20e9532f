package check

import (
	"fmt"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// proxyAPIUnreachable: kube-proxy gets no connection to its API server, and what it knows grows old.
var proxyAPIUnreachable = Check{
	ID: "proxy-api-unreachable", Severity: Critical,
	Title:    "proxies that cannot reach their API server",
	Explains: append([]string{"proxy-watch-stalled"}, unsynced...),
	Node: func(n *Node) []report.Finding {
		t, ok := n.unreachable()
		if !ok {
			n.silentProxy()
			return nil
		}
		last := t.end()
		f := report.Finding{
			Subject:  last.Server,
			Message:  fmt.Sprintf("kube-proxy on this node has not reached its API server %s (%s): it keeps serving what it knew before: %s", last.Server, t.when(), last.Reason),
			Want:     "a connection to an API server",
			Got:      last.Reason,
			Evidence: t.evidence(),
			Causes:   []string{"that API server is down, or its address has changed"},
			Remedy:   "point kube-proxy's kubeconfig at the load-balanced address of the API servers (kubeadm: kubectl -n kube-system edit configmap kube-proxy, key kubeconfig.conf), then " + n.restart(),
		}
		for _, fact := range n.Proxy.Facts {
			if fact.Name == "server" && fact.Value == n.Proxy.Server {
				f.Evidence = append(f.Evidence, factEvidence(fact))
			}
		}
		if others := n.apiServers(); len(others) > 0 && !slices.ContainsFunc(others, func(a string) bool { return strings.Contains(last.Server, a) }) {
			f.Causes = append(f.Causes, fmt.Sprintf("its address is none of the endpoints of Service default/kubernetes (%s): kube-proxy is pinned to one server that is gone, or uses a load balancer that does not work", several(others)))
		}
		return []report.Finding{f}
	},
}

// unreachable is what the log says of connections to the API server that fail to this day.
func (n *Node) unreachable() (trouble, bool) {
	t := n.watchTrouble()
	t.events = slices.DeleteFunc(t.events, func(e *traits.Event) bool { return e.Server == "" })
	if len(t.events) == 0 {
		return t, false
	}
	t.since, _ = t.events[0].When(n.Captured)
	t.last, _ = t.end().When(n.Captured)
	return t, t.lasts() && n.Captured.Sub(t.last) <= logReach
}

// watchTrouble is what the log says of lists and watches that fail. Each type is watched on its own.
func (n *Node) watchTrouble() trouble {
	return n.trouble(
		func(e *traits.Event) bool { return e.Kind == traits.WatchFailed },
		func(failed, later *traits.Event) bool {
			return later.Kind == traits.SyncDone || later.Kind == traits.Listed && later.Subject == failed.Subject
		})
}

// apiServers are the addresses of the API servers, as the endpoints of their own Service have them.
func (n *Node) apiServers() []string {
	var out []string
	for _, s := range n.Objects.SlicesOf("default", "kubernetes") {
		if s.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				out = once(out, a)
			}
		}
	}
	return out
}
