package check

import (
	"slices"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// What is left of proxyStopped where the evidence says how the proxy is.
const (
	proxyGone = "kube-proxy does not run on this node"
	proxyDeaf = "kube-proxy on this node hears of no changes: it runs and answers as healthy, which it also does when its watch of the API has died"
	proxyHung = "kube-proxy on this node runs, but hangs or cannot reach the API server"
)

// possible leaves of the causes of findings those that the evidence does not exclude: of a proxy that answers nobody
// ought to be told that it has stopped.
func (n *Node) possible(fs []report.Finding) {
	stopped := proxyStopped
	switch {
	case n.Proxy.Health.Word == traits.Healthy:
		stopped = proxyDeaf
	case n.Proxy.Presence == traits.Running:
		stopped = proxyHung
	case n.Proxy.Presence == traits.Gone:
		stopped = proxyGone
	}
	never := n.syncsNeverFailed()
	for i := range fs {
		fs[i].Causes = slices.DeleteFunc(slices.Clone(fs[i].Causes), func(c string) bool { return c == syncFailed && never })
		for j, c := range fs[i].Causes {
			if c == proxyStopped {
				fs[i].Causes[j] = stopped
			}
		}
	}
}

// syncsNeverFailed tells whether the proxy counts its failed syncs, and counts none.
func (n *Node) syncsNeverFailed() bool {
	syncs := n.Proxy.Health.Syncs
	return len(syncs) > 0 && !slices.ContainsFunc(syncs, func(s traits.Sync) bool { return s.Failures > 0 || s.FailureEvidence == (traits.Fact{}) })
}
