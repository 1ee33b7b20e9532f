package check

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// deafSockets are the ports to which rules of userspace mode lead and on which nobody takes connections: kube-proxy
// opens a socket for each service port before it makes the rules.
func (p *Port) deafSockets() []report.Finding {
	if !p.On.Has(Sockets) {
		return nil
	}
	var (
		out  []report.Finding
		seen []int
	)
	taken := func(b *report.Backend) bool {
		a, err := netip.ParseAddr(b.Address)
		return err == nil && p.On.Host.Listener(dataplane.ProtocolNumber(p.Protocol), a, uint16(b.Port)) != nil
	}
	for _, paths := range p.Cells {
		for i := range paths {
			for j := range paths[i].Backends {
				b := &paths[i].Backends[j]
				if !dataplane.IsPortal(b.TranslatedBy) || slices.Contains(seen, b.Port) || taken(b) {
					continue
				}
				seen = append(seen, b.Port)
				out = append(out, p.deafSocket(&paths[i], b))
			}
		}
	}
	return out
}

func (p *Port) deafSocket(path *report.Path, b *report.Backend) report.Finding {
	return report.Finding{
		Subject: fmt.Sprintf("port %d/%s", b.Port, p.Protocol),
		Message: fmt.Sprintf("packets to %s (%s) are led to port %d of kube-proxy's own, and no process listens there: connections are refused", frontend(path), p.Key(), b.Port),
		Want:    fmt.Sprintf("a socket of kube-proxy on port %d/%s", b.Port, strings.ToLower(p.Protocol)), Got: "none",
		Evidence: append(rules(b), p.objectEvidence()),
		Causes: []string{
			"kube-proxy has stopped or was started anew, and its rules are those of the process before",
			"a rule was left behind when the Service changed: in userspace mode kube-proxy removes rules one by one",
		},
		Remedy: "restart kube-proxy on this node: it flushes its chains when it starts, and opens its sockets anew",
	}
}

// crossedPortals are rules of userspace mode for different service ports that lead to one socket. kube-proxy opens one for
// each service port, so that the clients of all but one get the endpoints of another Service. Rules that no Service asks
// for are a matter of stale-service-rule.
func (n *Node) crossedPortals() []report.Finding {
	type socket struct {
		family   netfilter.Family
		protocol uint8
		port     uint16
	}
	known := n.frontends()
	var order []socket
	rules := make(map[socket]map[string][]dataplane.Programmed)
	dataplane.EachProgrammed(n.served(), n.chainIDs(), func(p dataplane.Programmed) {
		t, ok := p.Rule.Target.(*netfilter.Translate)
		if !ok || !dataplane.IsPortal(p.Chain.Name) || t.MinPort == 0 || !known.has(p.Portal) {
			return
		}
		at := socket{p.Family, p.Protocol, t.MinPort}
		if rules[at] == nil {
			rules[at] = make(map[string][]dataplane.Programmed)
			order = append(order, at)
		}
		rules[at][p.ServicePort] = append(rules[at][p.ServicePort], p)
	})
	var out []report.Finding
	for _, at := range order {
		if len(rules[at]) < 2 {
			continue
		}
		// The most rules are those of the service port that the socket is for.
		keys := slices.SortedFunc(maps.Keys(rules[at]), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(rules[at][b]), len(rules[at][a])), cmp.Compare(a, b))
		})
		first := rules[at][keys[0]][0]
		for _, key := range keys[1:] {
			wrong := rules[at][key][0]
			o := servicePortNamed(key)
			o.Protocol = nameOfProtocol(at.protocol)
			out = append(out, report.Finding{
				Object: o, Subject: fmt.Sprintf("port %d/%s", at.port, o.Protocol),
				Message: fmt.Sprintf("rules for %s lead to port %d of kube-proxy's own, and so do those for %s: one of them gets the endpoints of the other", key, at.port, keys[0]),
				Want:    "a port of its own for each service port", Got: fmt.Sprintf("port %d for both", at.port),
				Evidence: []report.Evidence{RuleEvidence(wrong.Ruleset, wrong.Rule), RuleEvidence(first.Ruleset, first.Rule)},
				Causes: []string{
					"something other than kube-proxy changed its rules",
					"rules of a process before were left behind, and the port is another Service's now",
				},
				Remedy: "restart kube-proxy on this node: it flushes its chains when it starts, and opens its sockets anew",
			})
		}
	}
	return out
}
