package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
	"github.com/svcnet/svcnet/repair/kubeproxy"
)

const (
	// kindAddress is the kind of the steps that change addresses of kube-ipvs0; their input is what `ip -batch -` reads.
	kindAddress = "address"
	// deviceTable is the Table of the edit that makes the device.
	deviceTable = "interfaces"
)

// mendAddresses brings the addresses of kube-ipvs0 that findings speak of to what kube-proxy keeps there in IPVS mode: a
// packet comes to a virtual server only where its destination is an address of the node.
func mendAddresses(s *site) []report.RepairStep {
	if s.node.Proxy.Mode != ipvsMode || !s.node.Host.HasAddrs {
		return nil
	}
	m := addressMending{site: s, about: s.indexed()}
	wanted, there := make(map[netip.Addr]bool), make(map[netip.Prefix]bool)
	for i := range s.node.Host.Addrs {
		if a := &s.node.Host.Addrs[i]; a.Link == check.KubeIPVS0 {
			there[a.Prefix] = true
		}
	}
	for _, a := range kubeproxy.Addresses(s.node.Plan, s.node.Host) {
		wanted[a.Addr] = true
		if !a.May && !there[a.Prefix()] {
			m.lacks(&a)
		}
	}
	for i := range s.node.Host.Addrs {
		a := &s.node.Host.Addrs[i]
		if a.Link != check.KubeIPVS0 || wanted[a.Prefix.Addr()] {
			continue
		}
		if found := m.about.about("ipvs-vip-without-service", a.Prefix.Addr().String()); len(found) > 0 {
			m.change(a.Prefix, "", "no Service has it: packets to it end on this node", found, addressLine(a), false)
		}
	}
	return m.steps()
}

// addressMending is what a plan does to addresses.
type addressMending struct {
	*site
	about    *findingIndex
	edits    []report.RepairEdit
	do, undo []string
	first    string
	services []string
}

// ofAddresses are the findings that an address of a Service which the node lacks is behind.
var ofAddresses = map[string]bool{
	"frontend-unreachable":             true,
	"masquerade-missing":               true,
	"missing-service-rule":             true,
	"no-route-to-service":              true,
	"nodeport-reply-bypasses-node":     true,
	"refusal-missing":                  true,
	"reject-rule-with-ready-endpoints": true,
	"reply-blocked":                    true,
}

// lacks plans an address that is not there, where a finding is about one of its service ports.
func (m *addressMending) lacks(a *kubeproxy.Address) {
	var found []int
	for _, sp := range a.Ports {
		found = append(found, m.about.port(sp, func(f *report.Finding) bool { return ofAddresses[f.ID] })...)
	}
	if len(found) == 0 {
		return
	}
	sp := a.Ports[0]
	m.change(a.Prefix(), sp.Namespace+"/"+sp.Name, "without it the node does not take packets to "+a.Addr.String()+" for its own, and they pass its virtual server by", found,
		addressLine(&host.Addr{Prefix: a.Prefix(), Link: check.KubeIPVS0, Scope: "global"}), true)
}

// change is one address, added or deleted.
func (m *addressMending) change(p netip.Prefix, service, reason string, found []int, line string, add bool) {
	e := report.RepairEdit{
		Table: check.KubeIPVS0, Object: "address " + p.String(), Reason: reason, Service: service,
		Was: []string{}, Will: []string{line}, Absent: true, Findings: m.mends(found...),
	}
	do, undo := addressCommand("add", p), addressCommand("del", p)
	if !add {
		e.Was, e.Will, e.Absent, e.Remove = e.Will, e.Was, false, true
		do, undo = undo, do
	}
	if m.first == "" {
		m.first = m.findings[found[0]].Message
	}
	if service != "" {
		m.services = once(m.services, service)
	}
	m.edits = append(m.edits, e)
	m.do, m.undo = append(m.do, do), append([]string{undo}, m.undo...)
}

func addressCommand(verb string, p netip.Prefix) string {
	return fmt.Sprintf("addr %s %s dev %s", verb, p, check.KubeIPVS0)
}

// steps are the one that changes addresses, or none.
func (m *addressMending) steps() []report.RepairStep {
	if len(m.edits) == 0 {
		return nil
	}
	var did []string
	h := m.node.Host
	if h.HasLinks && !slices.ContainsFunc(h.Links, func(l host.Link) bool { return l.Name == check.KubeIPVS0 }) {
		// kube-proxy makes it and leaves it down (EnsureDummyDevice of pkg/proxy/ipvs/netlink_linux.go).
		m.edits = append([]report.RepairEdit{{
			Table: deviceTable, Object: check.KubeIPVS0, Reason: "kube-proxy keeps the addresses of Services on it, and it is not there",
			Was: []string{}, Will: []string{deviceLine}, Absent: true, Findings: m.edits[0].Findings,
		}}, m.edits...)
		m.do = append([]string{"link add " + check.KubeIPVS0 + " type dummy"}, m.do...)
		// With the device go its addresses.
		m.undo = []string{"link del " + check.KubeIPVS0}
		did = append(did, "make "+check.KubeIPVS0)
	}
	add := len(slices.DeleteFunc(slices.Clone(m.edits), func(e report.RepairEdit) bool { return !e.Absent || e.Table == deviceTable }))
	del := len(slices.DeleteFunc(slices.Clone(m.edits), func(e report.RepairEdit) bool { return !e.Remove }))
	if add > 0 {
		did = append(did, fmt.Sprintf("add %s to %s", addresses(add), check.KubeIPVS0))
	}
	if del > 0 {
		did = append(did, fmt.Sprintf("take %s from %s", addresses(del), check.KubeIPVS0))
	}
	step := report.RepairStep{
		Kind: kindAddress, Owner: ownerProxy, Title: strings.Join(did, ", "), Reason: m.first,
		Affects: "packets of the node, of its pods and of others to " + names(m.services, 3),
		Risk:    "where the network of an interface holds the address, the node answers ARP for it unless arp_ignore is set",
		Edits:   m.edits,
		Do:      report.RepairCommand{Command: []string{"ip", "-batch", "-"}, Input: lines(m.do)},
		Undo:    report.RepairCommand{Command: []string{"ip", "-batch", "-"}, Input: lines(m.undo)},
		Lasts:   "until kube-proxy's next sync, which keeps the same addresses",
	}
	if add == 0 {
		step.Affects, step.Risk = "packets to the addresses, which end on this node now", "somebody may have put an address there on purpose"
	}
	if m.node.Proxy.Presence == traits.Gone {
		step.Lasts = "until kube-proxy runs again: its first sync keeps the same addresses"
	}
	return []report.RepairStep{step}
}

func addresses(n int) string {
	if n == 1 {
		return "1 address"
	}
	return fmt.Sprintf("%d addresses", n)
}

// addressLine is an address as `ip addr` prints it, without flags: "inet 10.96.0.1/32 scope global kube-ipvs0".
func addressLine(a *host.Addr) string {
	family := "inet"
	if a.Prefix.Addr().Is6() {
		family = "inet6"
	}
	return fmt.Sprintf("%s %s scope %s %s", family, a.Prefix, a.Scope, a.Link)
}

// deviceLine is what there is to say of kube-ipvs0.
const deviceLine = "dummy"

// deviceAddress is an address of kube-ipvs0, nil where it is not there.
func deviceAddress(h *host.Host, p netip.Prefix) *host.Addr {
	for i := range h.Addrs {
		if a := &h.Addrs[i]; a.Link == check.KubeIPVS0 && a.Prefix == p {
			return a
		}
	}
	return nil
}

// findAddress is the address or the device of an edit.
func findAddress(n *check.Node, e report.RepairEdit) (lines []string, there bool, err error) {
	if e.Table == deviceTable {
		if !n.Host.HasLinks {
			return nil, false, fmt.Errorf("find %s: the interfaces of the node were not read", e.Object)
		}
		if slices.ContainsFunc(n.Host.Links, func(l host.Link) bool { return l.Name == e.Object }) {
			return []string{deviceLine}, true, nil
		}
		return nil, false, nil
	}
	if !n.Host.HasAddrs {
		return nil, false, fmt.Errorf("find %s of %s: the addresses of the node were not read", e.Object, e.Table)
	}
	p, err := netip.ParsePrefix(strings.TrimPrefix(e.Object, "address "))
	if err != nil {
		return nil, false, fmt.Errorf("find %s of %s: %q is no address", e.Object, e.Table, e.Object)
	}
	if a := deviceAddress(n.Host, p); a != nil {
		return []string{addressLine(a)}, true, nil
	}
	return nil, false, nil
}
