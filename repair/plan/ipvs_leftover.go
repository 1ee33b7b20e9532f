package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// mendLeftIPVS removes what a kube-proxy that ran in IPVS mode left on a node where it runs in another one, beside rules:
// virtual servers, the device with the addresses of Services, and sets that no rule asks any more once the rules are gone.
// Between IPVS and iptables mode no version of kube-proxy does that.
func mendLeftIPVS(s *site) []report.RepairStep {
	if mode := s.node.Proxy.Mode; mode == ipvsMode || !slices.Contains(ownedModes, mode) {
		return nil
	}
	asking := s.which(func(f *report.Finding) bool {
		return f.ID == "leftover-proxy-mode-rules" && strings.Contains(f.Subject, ipvsMode)
	})
	if len(asking) == 0 {
		return nil
	}
	l := leftIPVS{site: s, asking: asking}
	var out []report.RepairStep
	for _, step := range []func() (report.RepairStep, bool){l.servers, l.device, l.sets} {
		if r, ok := step(); ok {
			out = append(out, r)
		}
	}
	return out
}

// leftIPVS is what is left of IPVS mode.
type leftIPVS struct {
	*site
	asking []int
}

// kubes tells whether a virtual server is one that kube-proxy made: its address is on kube-ipvs0, or it is the frontend
// of a Service. Others are another program's.
func (l *leftIPVS) kubes(v *ipvs.Service) bool {
	if v.FWMark != 0 || l.excluded(v.Addr) {
		return false
	}
	if deviceAddress(l.node.Host, netip.PrefixFrom(v.Addr, v.Addr.BitLen())) != nil {
		return true
	}
	for _, sp := range l.node.Plan.Ports {
		if dataplane.ProtocolNumber(sp.Protocol) != v.Proto {
			continue
		}
		if sp.NodePort != 0 && sp.NodePort == int(v.Port) && l.own(v.Addr) {
			return true
		}
		if slices.ContainsFunc(sp.Frontends, func(f intent.Frontend) bool { return f.Addr == v.Addr && f.Port == int(v.Port) }) {
			return true
		}
	}
	return false
}

// own tells whether an address is the node's.
func (l *leftIPVS) own(a netip.Addr) bool {
	return slices.ContainsFunc(l.node.Host.Addrs, func(h host.Addr) bool { return h.Prefix.Addr() == a })
}

// servers are the virtual servers that go.
func (l *leftIPVS) servers() (report.RepairStep, bool) {
	if !readsServers(l.node) {
		return report.RepairStep{}, false
	}
	var changes []serverChange
	for i := range l.node.IPVS.Services {
		if v := &l.node.IPVS.Services[i]; l.kubes(v) {
			changes = append(changes, serverChange{have: v, whole: "kube-proxy does not run in IPVS mode any more", findings: l.asking})
		}
	}
	if len(changes) == 0 {
		return report.RepairStep{}, false
	}
	step := l.serverStep(changes, ownerProxy)
	step.Title += " that kube-proxy left"
	step.Affects = "connections that go through them still, which end; new ones meet the rules of " + l.node.Proxy.Mode + " mode"
	step.Risk = "connections that were made in IPVS mode end with their next packet"
	step.Lasts = ""
	return step, true
}

// device is kube-ipvs0 with its addresses.
func (l *leftIPVS) device() (report.RepairStep, bool) {
	h := l.node.Host
	if !h.HasLinks || !h.HasAddrs || !slices.ContainsFunc(h.Links, func(k host.Link) bool { return k.Name == check.KubeIPVS0 }) {
		return report.RepairStep{}, false
	}
	findings := l.mends(l.asking...)
	const reason = "kube-proxy does not run in IPVS mode any more"
	edits := []report.RepairEdit{}
	undo := []string{"link add " + check.KubeIPVS0 + " type dummy"}
	count := 0
	for i := range h.Addrs {
		a := &h.Addrs[i]
		// The kernel gives a device that is up an address of its own.
		if a.Link != check.KubeIPVS0 || a.Prefix.Addr().IsLinkLocalUnicast() {
			continue
		}
		count++
		edits = append(edits, report.RepairEdit{
			Table: check.KubeIPVS0, Object: "address " + a.Prefix.String(), Reason: reason, Findings: findings,
			Was: []string{addressLine(a)}, Will: []string{}, Remove: true,
		})
		undo = append(undo, addressCommand("add", a.Prefix))
	}
	edits = append(edits, report.RepairEdit{
		Table: deviceTable, Object: check.KubeIPVS0, Reason: reason, Findings: findings, Was: []string{deviceLine}, Will: []string{}, Remove: true,
	})
	return report.RepairStep{
		Kind: kindAddress, Owner: ownerProxy, Title: fmt.Sprintf("delete %s with %s", check.KubeIPVS0, addresses(count)),
		Reason:  "the node takes the addresses of Services on it for its own: ports that a Service does not have reach the node itself",
		Affects: "packets to these addresses that no rule translates: they leave the node, where they ended on it",
		Risk:    "an address that was put there by hand goes with the device",
		Edits:   edits,
		Do:      report.RepairCommand{Command: []string{"ip", "-batch", "-"}, Input: "link del " + check.KubeIPVS0 + "\n"},
		Undo:    report.RepairCommand{Command: []string{"ip", "-batch", "-"}, Input: lines(undo)},
	}, true
}

// sets are those that no rule asks once the rules of IPVS mode are gone.
func (l *leftIPVS) sets() (report.RepairStep, bool) {
	stays := l.staying()
	m := setMending{site: l.site, findingIndex: l.indexed()}
	var names []string
	for name, set := range l.node.Sets {
		if dataplane.IsIPVSSet(name) && set.Captured != nil && set.Captured.Missing == "" && !stays[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		have := l.captured(name)
		m.changes = append(m.changes, setChange{
			findings: l.asking, do: []string{"flush " + name, "destroy " + name}, undo: remade(have, name),
			RepairEdit: report.RepairEdit{
				Table: setsTable, Object: setName(name), Reason: "kube-proxy does not run in IPVS mode any more", Was: setLines(have), Will: []string{}, Remove: true,
			},
		})
	}
	steps := m.steps()
	if len(steps) == 0 {
		return report.RepairStep{}, false
	}
	step := steps[0]
	step.Title = fmt.Sprintf("destroy %s that kube-proxy left", plural(len(names), "set"))
	step.Affects, step.Risk, step.Lasts = "nobody: no rule asks them", "none", ""
	return step, true
}

// staying are the sets that rules ask which stay.
func (l *leftIPVS) staying() map[string]bool {
	out := make(map[string]bool)
	p := &xtPlanner{site: l.site, tables: map[xtKey]*xtTable{}}
	for _, rs := range l.node.Rulesets {
		for _, t := range rs.Tables {
			of := leftover{planner: p, table: p.table(rs, t.Name), all: l.node.Proxy.Mode == "nftables"}
			gone := make(map[string]bool)
			for _, c := range t.Chains {
				if t.Complete && of.goes(c.Name) {
					gone[c.Name] = true
				}
			}
			of.keepWhatOthersNeed(gone)
			for _, c := range t.Chains {
				if gone[c.Name] {
					continue
				}
				for i := range c.Rules {
					for _, match := range c.Rules[i].Matches {
						if q, ok := match.(*netfilter.SetMatch); ok {
							out[q.Set] = true
						}
					}
				}
			}
		}
	}
	for _, set := range l.node.Sets {
		if set.Captured != nil {
			for i := range set.Captured.Entries {
				out[set.Captured.Entries[i].Member] = true
			}
		}
	}
	return out
}
