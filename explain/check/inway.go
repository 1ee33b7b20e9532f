package check

import (
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// InTheWay are the obstacles of a node that svcnet's own proxy serves, or would: Obstacles, and besides those what rules of
// kube-proxy refuse. For kube-proxy's own packets that is a rule that speaks of the Service; for another proxy's it is one
// that was true when kube-proxy stopped.
func (n *Node) InTheWay() []*Obstacle {
	out := slices.Clone(n.Obstacles())
	at := make(map[string]*Obstacle)
	for i := range n.Ports {
		p := &n.Ports[i]
		for _, paths := range p.Cells {
			for j := range paths {
				path := &paths[j]
				if path.Intended == nil || !serves(path.Intended.Result) || translatedAtHome(path) || path.Result != report.ResultDrop && path.Result != report.ResultReject {
					continue
				}
				if !refusesByService(path) || strings.HasSuffix(path.Table, " svcnet") {
					continue
				}
				o := onRequest(p, path)
				if !onEveryWay(p, paths, o) && !certain(paths) {
					continue
				}
				if known := at[o.key()]; known != nil {
					known.Hits = append(known.Hits, o.Hits...)
					continue
				}
				at[o.key()] = o
				out = append(out, o)
			}
		}
	}
	return out
}

// Services names the Services that meet the obstacle, as namespace/name, sorted.
func (o *Obstacle) Services() []string { return o.services() }

// Clients names the source classes that meet it in words, in the order of the grid.
func (o *Obstacle) Clients() []string { return o.clients() }
