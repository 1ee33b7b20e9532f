package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// What several checks say of a kube-proxy that does not keep up.
const (
	proxyStopped = "kube-proxy on this node has stopped, hangs, or cannot reach the API server"
	syncFailed   = "its last sync failed (look for iptables-restore errors in its log)"
	restartProxy = "find out whether kube-proxy still syncs (its log, /healthz); restarting it on this node rewrites all rules"
)

// byEndpoint gathers what one backend shows in the cells of a port, so that one broken endpoint is one
// finding and not one for each way to reach it.
type byEndpoint struct {
	address string // "address:port"
	// first is the backend as it shows first, path the path it is in.
	first *report.Backend
	path  *report.Path
	// share is the largest share that it has in any cell.
	share float64
	// seen are the frontends where it shows.
	seen []string
	// condition is what that rests on, empty where it shows in some cell whatever the evidence leaves open.
	condition string
}

// provided puts a finding under the condition on which its backend rests.
func (e *byEndpoint) provided(f report.Finding) report.Finding {
	if e.condition != "" {
		f.Message += ", provided that " + e.condition
	}
	return f
}

// restsOn is the first condition of a path that decides whether a backend shows in a state, empty where it shows on
// every way that the evidence leaves open.
func restsOn(paths []report.Path, path *report.Path, state, address string) string {
	met := make(map[string]bool)
	for i := range paths {
		way := fmt.Sprint(paths[i].Uncertain)
		met[way] = met[way] || slices.ContainsFunc(paths[i].Backends, func(b report.Backend) bool { return b.State == state && joinAddr(&b) == address })
	}
	for _, m := range met {
		if !m && len(path.Uncertain) > 0 {
			return path.Uncertain[0].Condition
		}
	}
	return ""
}

// endpoints collects the backends in a state, in the order in which they appear.
func (p *Port) endpoints(state string) []*byEndpoint {
	var out []*byEndpoint
	for _, paths := range p.Cells {
		if paths[0].Frontend.Kind == string(intent.HealthCheck) {
			continue // answered by kube-proxy itself: it has no backends
		}
		for i := range paths {
			if want := paths[i].Intended; want != nil && paths[i].Result == report.ResultDrop && want.Result == report.ResultDrop {
				continue // a virtual server has chosen one, and the packet is dropped behind it, as it should be
			}
			for j := range paths[i].Backends {
				b := &paths[i].Backends[j]
				if b.State != state {
					continue
				}
				address := joinAddr(b)
				condition := restsOn(paths, &paths[i], state, address)
				at := slices.IndexFunc(out, func(e *byEndpoint) bool { return e.address == address })
				if at < 0 {
					out = append(out, &byEndpoint{address: address, first: b, path: &paths[i], condition: condition})
					at = len(out) - 1
				}
				e := out[at]
				if condition == "" {
					e.condition = ""
				}
				e.share = max(e.share, b.Probability)
				e.seen = once(e.seen, frontend(&paths[i]))
			}
		}
	}
	return out
}

// Differs tells whether a path is not surely the intended one.
func Differs(p report.Path) bool {
	if p.Intended == nil || p.Result != p.Intended.Result || len(p.Uncertain) > 0 {
		return p.Intended != nil
	}
	return slices.ContainsFunc(p.Backends, func(b report.Backend) bool {
		return b.State != "ok" || b.Result != p.Result || b.Masquerade != nil && b.MasqueradeIntended != nil && *b.Masquerade != *b.MasqueradeIntended
	})
}

func joinAddr(b *report.Backend) string {
	a, err := netip.ParseAddr(b.Address)
	if err != nil {
		return fmt.Sprintf("%s:%d", b.Address, b.Port)
	}
	return netip.AddrPortFrom(a, uint16(b.Port)).String()
}

func frontend(p *report.Path) string {
	return fmt.Sprintf("%s %s", p.Frontend.Kind, strings.TrimSuffix(address(p), "/"))
}

func address(p *report.Path) string {
	a, err := netip.ParseAddr(p.Frontend.Address)
	if err != nil {
		return fmt.Sprintf("%s:%d/%s", p.Frontend.Address, p.Frontend.Port, p.Frontend.Protocol)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(a, uint16(p.Frontend.Port)), p.Frontend.Protocol)
}

// rules are the hops of a backend as evidence: the rule that chooses it and the one that translates to it.
func rules(b *report.Backend) []report.Evidence {
	var out []report.Evidence
	for _, h := range b.Hops {
		if h.Table != hnsTable && h.Kind != "virtual-server" && (h.Kind != "rule" || h.Table != "nat" && !nativeTable(h.Table)) {
			continue
		}
		out = append(out, hopEvidence(&h))
	}
	return out
}

// hopEvidence is a hop's rule as evidence. Rules of nftables do not say of themselves in which chain they are.
func hopEvidence(h *report.Hop) report.Evidence {
	e := h.Evidence
	e.Text = h.Text
	if h.Kind == "rule" && nativeTable(h.Table) {
		e.Text = nativeRule(h.Table, h.Chain, h.Text)
	}
	return e
}

// nativeRule is a rule of nftables with its place: "table ip kube-proxy chain reject-chain { reject }".
func nativeRule(table, chain, rule string) string {
	return fmt.Sprintf("table %s chain %s { %s }", table, chain, rule)
}

// rules are those that lead to an endpoint: on a Windows node with the load balancer, which stands on the path.
func (e *byEndpoint) rules() []report.Evidence { return append(policies(e.path), rules(e.first)...) }

// nativeTable tells whether a table is one of nftables: those are named with their family, as "ip kube-proxy".
func nativeTable(table string) bool { return strings.Contains(table, " ") }

// tableOfProxy tells whether a table of nftables is kube-proxy's, or that of svcnet's own proxy in its place.
func tableOfProxy(table string) bool {
	switch table {
	case "ip kube-proxy", "ip6 kube-proxy", "ip svcnet", "ip6 svcnet":
		return true
	}
	return false
}

// verdict is the hop where a path ends, as evidence.
func verdict(p *report.Path) []report.Evidence {
	if len(p.Hops) == 0 {
		return nil
	}
	h := &p.Hops[len(p.Hops)-1]
	if h.Evidence.File == "" {
		return nil // a decision of the kernel's that no line of a file shows
	}
	return []report.Evidence{hopEvidence(h)}
}

func (p *Port) objectEvidence() report.Evidence {
	return report.Evidence{Source: "objects", File: p.Evidence.File, Line: p.Evidence.Line, Text: p.Evidence.Text}
}

// certain is true for a cell whose paths rest on no undecided condition.
func certain(paths []report.Path) bool {
	return !slices.ContainsFunc(paths, func(p report.Path) bool { return len(p.Uncertain) > 0 })
}

// clientWords name the clients of a path for people.
func clientWords(p *report.Path) string {
	return cmp.Or(intent.Class(p.SourceClass).Words(), "the client")
}

// endpointAt is the port's endpoint with an address and port, nil for none.
func (p *Port) endpointAt(a netip.AddrPort) *intent.Endpoint {
	for i := range p.Endpoints {
		if e := &p.Endpoints[i]; e.Addr == a.Addr() && e.Port == int(a.Port()) {
			return e
		}
	}
	return nil
}

// isUsed tells whether an endpoint is one of those that a traffic policy uses on this node.
func (p *Port) isUsed(a netip.AddrPort) bool {
	for _, i := range slices.Concat(p.Cluster, p.Local) {
		if e := &p.Endpoints[i]; e.Addr == a.Addr() && e.Port == int(a.Port()) {
			return true
		}
	}
	return false
}

// usable names the endpoints that ought to get traffic, the first few.
func (p *Port) usable() string {
	var out []string
	for _, i := range p.Usable {
		out = append(out, p.Endpoints[i].String())
	}
	if len(out) == 0 {
		return "none"
	}
	return list(out, 5)
}

func percent(share float64) string {
	return fmt.Sprintf("%.1f%%", share*100)
}
