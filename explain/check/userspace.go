package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
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
