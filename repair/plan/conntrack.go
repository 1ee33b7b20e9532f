package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/report"
)

// kindConntrack is the kind of steps that remove tracked connections.
const kindConntrack = "conntrack"

// keptBy are the findings about tracked connections that are to be removed, with what becomes of the clients.
var keptBy = []struct{ id, risk string }{
	{"conntrack-stale-udp", "none that is known: the next packet of each flow is a new one, and the rules choose an endpoint for it"},
	{"conntrack-stale-tcp", "the clients' next packets go to another endpoint, which refuses them: connections that would have come to life again are lost"},
	{untranslatedFlow, "none that is known: the next packet of each flow is a new one, and the rules translate it"},
}

const untranslatedFlow = "conntrack-untranslated-service-flow"

// A stuck is the connections to one frontend that go to one address.
type stuck struct {
	id, risk, protocol string
	service            string
	check.Kept
	findings []int
}

// mendFlows removes tracked connections that keep clients from endpoints. It comes last: what is tracked anew goes by the
// rules that are there then. Where other steps put rules back for a Service, flows that were tracked without them go as
// well, though no finding speaks of them yet.
func mendFlows(s *site) []report.RepairStep {
	served := make(map[string]bool)
	for i := range s.findings {
		if f := &s.findings[i]; s.mended[i] && f.Object.Kind == "Service" {
			served[f.Object.Namespace+"/"+f.Object.Name] = true
		}
	}
	var all []*stuck
	for _, by := range keptBy {
		found := s.which(func(f *report.Finding) bool { return f.ID == by.id })
		for _, sp := range s.node.Plan.Ports {
			service := sp.Namespace + "/" + sp.Name
			of := slices.DeleteFunc(slices.Clone(found), func(i int) bool {
				o := &s.findings[i].Object
				return o.Namespace != sp.Namespace || o.Name != sp.Name || o.Protocol != "" && o.Protocol != sp.Protocol || o.Port != sp.PortName
			})
			if len(of) == 0 && (by.id != untranslatedFlow || !served[service]) {
				continue
			}
			for _, kept := range (&check.Port{ServicePort: sp, On: s.node}).Kept(by.id) {
				all = append(all, &stuck{id: by.id, risk: by.risk, protocol: sp.Protocol, service: service, Kept: kept, findings: of})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *stuck) int {
		return cmp.Or(a.Frontend.Addr.Compare(b.Frontend.Addr), cmp.Compare(a.Frontend.Port, b.Frontend.Port), a.To.Compare(b.To), cmp.Compare(a.protocol, b.protocol))
	})
	var out []report.RepairStep
	for i, k := range all {
		if i > 0 && all[i-1].tuple() == k.tuple() {
			continue // an address of several kinds
		}
		out = append(out, s.forget(k))
	}
	return out
}

// forget is the step that removes them.
func (s *site) forget(k *stuck) report.RepairStep {
	dialled := netip.AddrPortFrom(k.Frontend.Addr, uint16(k.Frontend.Port))
	reason := "they were tracked while no rule translated them, and stay as they are"
	if len(k.findings) > 0 {
		reason = s.findings[k.findings[0]].Message
	}
	step := report.RepairStep{
		Kind: kindConntrack, Owner: ownerNode,
		Title:   fmt.Sprintf("remove tracked %s connections to %s that go to %s", k.protocol, dialled, k.To),
		Reason:  reason,
		Affects: fmt.Sprintf("clients with such a connection to %s", k.service),
		Risk:    k.risk + "; it cannot be taken back",
		Do:      report.RepairCommand{Command: []string{"conntrack", "-D"}},
		Undo:    report.RepairCommand{Command: []string{}},
		Lasts:   "for good: entries that come later go by the rules",
	}
	if dialled.Addr().Is6() {
		step.Do.Command = append(step.Do.Command, "-f", "ipv6")
	}
	step.Do.Command = append(step.Do.Command, "-p", strings.ToLower(k.protocol),
		"--orig-dst", dialled.Addr().String(), "--orig-port-dst", fmt.Sprint(dialled.Port()),
		"--reply-src", k.To.Addr().String(), "--reply-port-src", fmt.Sprint(k.To.Port()))
	step.Edits = []report.RepairEdit{{
		Table: "tracked connections", Object: k.tuple(), Reason: reason, Service: k.service, Findings: s.mends(k.findings...),
		Was: []string{k.tuple()}, Will: []string{}, Remove: true,
	}}
	return step
}

// tuple names the connections as `conntrack -L` prints what they have in common.
func (k *stuck) tuple() string {
	return fmt.Sprintf("%s dst=%s dport=%d src=%s sport=%d", strings.ToLower(k.protocol), k.Frontend.Addr, k.Frontend.Port, k.To.Addr(), k.To.Port())
}

// findFlows tells whether such connections are tracked.
func findFlows(n *check.Node, e report.RepairEdit) (lines []string, there bool, err error) {
	for i := range n.Host.Flows {
		f := &n.Host.Flows[i]
		tuple := fmt.Sprintf("dst=%s dport=%d src=%s sport=%d", f.Dst, f.DstPort, f.ReplySrc, f.ReplySrcPort)
		if proto, rest, _ := strings.Cut(e.Object, " "); rest == tuple && dataplane.ProtocolNumber(proto) == f.Proto && f.Zone == 0 {
			return []string{e.Object}, true, nil
		}
	}
	return nil, false, nil
}
