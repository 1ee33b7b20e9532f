package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// duplicateExternalAddress: several Services claim one external address and port. The API does not see to it that
// they are unique.
var duplicateExternalAddress = Check{
	ID: "duplicate-external-address", Rests: onObjects, Severity: Error,
	Title: "external addresses that more than one Service claims",
	Node: func(n *Node) []report.Finding {
		if !n.Needs(Services) {
			return nil
		}
		var out []report.Finding
		var done []claimed
		for i := range n.Plan.Notes {
			note := &n.Plan.Notes[i]
			at, err := netip.ParseAddrPort(note.Endpoint)
			c := claimed{at, note.Protocol}
			if note.Kind != intent.NoteExternalTwice || err != nil || slices.Contains(done, c) {
				continue
			}
			done = append(done, c)
			out = append(out, n.contested(c)...)
		}
		return out
	},
}

// claimed is an external address and port.
type claimed struct {
	netip.AddrPort
	protocol string
}

func (c claimed) String() string { return c.AddrPort.String() + "/" + c.protocol }

// frontendOf is the frontend by which a service port claims the address.
func (c claimed) frontendOf(sp *intent.ServicePort) (intent.Frontend, bool) {
	for _, f := range sp.Frontends {
		if (f.Kind == intent.ExternalIP || f.Kind == intent.LoadBalancer) && f.Addr == c.Addr() && f.Port == int(c.Port()) && sp.Protocol == c.protocol {
			return f, true
		}
	}
	return intent.Frontend{}, false
}

// fields are where the API holds external addresses.
var fields = map[intent.FrontendKind]string{intent.ExternalIP: "externalIPs", intent.LoadBalancer: "status.loadBalancer"}

// contested has a finding for each Service that claims an address and does not get it.
func (n *Node) contested(c claimed) []report.Finding {
	var claimants []*intent.ServicePort
	var names []string
	var evidence []report.Evidence
	for _, sp := range n.Plan.Ports {
		f, ok := c.frontendOf(sp)
		if !ok {
			continue
		}
		claimants = append(claimants, sp)
		names = append(names, fmt.Sprintf("%s (%s)", sp.Key(), fields[f.Kind]))
		evidence = append(evidence, serviceEvidence(sp))
	}
	winner := n.winner(c, claimants)
	outcome := "which of them gets it can change with every sync"
	if winner != nil {
		outcome = "on this node " + winner.Key() + " gets it, which another sync can change"
	}
	var out []report.Finding
	for i, sp := range claimants {
		if sp == winner || winner == nil && i == 0 {
			continue
		}
		out = append(out, report.Finding{
			Object:   servicePortObject(sp),
			Subject:  c.String(),
			Message:  fmt.Sprintf("%s is claimed by %s; %s", c, strings.Join(names, " and "), outcome),
			Want:     "one Service for each external address, port and protocol",
			Got:      fmt.Sprintf("%d Services", len(claimants)),
			Evidence: evidence,
			Causes:   []string{"nobody allocates externalIPs, and a load balancer address can be given to several Services as long as their ports differ"},
			Remedy:   "give each Service an address or a port of its own",
		})
	}
	return out
}

// winner is the one claimant whose endpoints get the connections, nil when the cells do not tell.
func (n *Node) winner(c claimed, claimants []*intent.ServicePort) *intent.ServicePort {
	var winner *intent.ServicePort
	for _, sp := range claimants {
		p := n.observed(sp)
		if p == nil || !p.reached(c) {
			continue
		}
		if winner != nil {
			return nil
		}
		winner = sp
	}
	return winner
}

// reached tells whether connections to an address arrive at endpoints of this port: by the chain that is named for the
// endpoint where there is one, because two Services may have the same endpoints.
func (p *Port) reached(c claimed) bool {
	for _, paths := range p.Cells {
		if f := &paths[0].Frontend; f.Address != c.Addr().String() || f.Port != int(c.Port()) {
			continue
		}
		for i := range paths {
			for j := range paths[i].Backends {
				if b := &paths[i].Backends[j]; b.Probability > 0 && p.serves(b) {
					return true
				}
			}
		}
	}
	return false
}

// serves tells whether a backend stands for one of the port's endpoints.
func (p *Port) serves(b *report.Backend) bool {
	if strings.HasPrefix(b.TranslatedBy, dataplane.SEPPrefix) {
		_, ok := p.standsFor(b.TranslatedBy)
		return ok
	}
	return slices.ContainsFunc(p.Endpoints, func(e intent.Endpoint) bool {
		return netip.AddrPortFrom(e.Addr, uint16(e.Port)).String() == joinAddr(b)
	})
}
