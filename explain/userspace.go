package explain

import (
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// modeUserspace is the mode in which kube-proxy (up to 1.25) holds connections itself.
const modeUserspace = "userspace"

// held is what is said of every connection that kube-proxy holds itself.
const held = "kube-proxy's own process takes the connection (userspace mode) and makes another one to a backend: which one it picks cannot be read from rules"

// portal tells whether a rule of userspace mode handed the packet to a socket of kube-proxy's. A rule for the node's own
// packets names an address of the node by itself; where the node's addresses were not captured, its word is taken for
// it.
func (m *model) portal(e *netfilter.Ending) bool {
	if m.proxy.Mode != modeUserspace || e.DstBy < 0 || !dataplane.IsPortal(e.Hops[e.DstBy].Chain) {
		return false
	}
	return e.Verdict == netfilter.Delivered || e.Verdict == netfilter.Forwarded && !m.kernel.Host.HasAddrs
}

// proxied tells whether a backend is a socket of kube-proxy's own, where that is what the objects ask for.
func proxied(asked report.Result, b *report.Backend) bool {
	return asked == report.ResultRedirect && dataplane.IsPortal(b.TranslatedBy)
}

// keepsPort tells whether a socket is there for nothing but that nobody else gets a node port: kube-proxy up to 1.23, and
// up to 1.25 in userspace mode, opens one for each and never takes a connection from it (openLocalPort, claimNodePort).
func keepsPort(c *cell, s *host.Socket) bool {
	return c.at.Kind == intent.NodePort && strings.HasPrefix(s.Process, "kube-proxy")
}
