package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/hns"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// modeKernelspace is the mode of kube-proxy on Windows: load balancers of HNS take the place of rules.
const modeKernelspace = "kernelspace"

// hnsTable is the table of a step that HNS takes, and hopHNS its kind: a load balancer maps an address to endpoints.
const (
	hnsTable                   = "hns"
	hopHNS   netfilter.HopKind = "map"
)

// switched is what is said of every connection that a load balancer of HNS takes.
const switched = "what the virtual switch of Windows (VFP) makes of the load balancer, and the policies of its ports, are not evaluated"

// windows is what was read of a Windows node.
type windows struct {
	hns.State
	// part says what of the captures could not be read.
	part []string
}

// readHNS reads a capture of load balancers or endpoints.
func (r *reader) readHNS(e *snapshot.Evidence, fail func(snapshot.Status, string, ...any)) {
	w := &r.model.windows
	problems, err := hns.Parse(&w.State, e.Text(), e.File)
	switch {
	case errors.Is(err, hns.ErrNothing) && strings.HasSuffix(strings.TrimSpace(e.Text()), "[]"):
		// Of what the empty list is, the name of the file or the command in it says.
		about := strings.ToLower(e.File + e.Text())
		w.HasEndpoints = w.HasEndpoints || strings.Contains(about, "endpoint")
		w.HasBalancers = w.HasBalancers || strings.Contains(about, "balancer") || strings.Contains(about, "policy")
	case err != nil:
		fail(snapshot.Failed, "%v", err)
		w.part = append(w.part, fmt.Sprintf("%s: %v", e.File, err))
	case len(problems) > 0:
		p := problems[0]
		fail(snapshot.Truncated, "line %d: %s (%d in all)", p.Line, p.Why, len(problems))
		w.part = append(w.part, fmt.Sprintf("%s: line %d: %s", e.File, p.Line, p.Why))
	case e.Status == snapshot.Truncated:
		w.part = append(w.part, e.File+": "+e.Error)
	}
}

// ofWindows is what the captures of HNS say of the proxy: nothing but kube-proxy in kernelspace mode makes load
// balancers there.
func (m *model) ofWindows() []traits.Source {
	if len(m.windows.Balancers) == 0 {
		return nil
	}
	b := &m.windows.Balancers[0]
	return []traits.Source{{File: b.File, Line: b.Line, Text: b.String()}}
}

// onWindows tells whether the node is one of Windows, where HNS serves Services and there are no rules.
func (m *model) onWindows() bool { return m.proxy.Mode == modeKernelspace }

// nodeOfHNS is the one node in whose pod range the local endpoints of HNS are, empty where that is not one.
func (m *model) nodeOfHNS() string {
	found := ""
	for _, n := range m.objects.Nodes {
		ranges := append(podCIDRs(n.Node, netfilter.IPv4), podCIDRs(n.Node, netfilter.IPv6)...)
		local := func(e hns.Endpoint) bool {
			return !e.Remote && slices.ContainsFunc(e.Addrs, func(a netip.Addr) bool {
				return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
			})
		}
		if !slices.ContainsFunc(m.windows.Endpoints, local) {
			continue
		}
		if found != "" {
			return ""
		}
		found = n.Name
	}
	return found
}

// onlyFamily is the one address family of a node whose pods are in an overlay network: that of the node's own address.
func (m *model) onlyFamily() int {
	if !m.onWindows() || !m.windows.Overlay() {
		return 0
	}
	if n := m.nodeObject(); n != nil {
		for _, a := range nodeAddrs(n) {
			return int(netfilter.FamilyOf(a))
		}
	}
	return 0
}

// unreadHNS says why HNS does not answer for Services, empty where it does.
func (m *model) unreadHNS() string {
	w := &m.windows
	incomplete := 0
	for i := range w.Balancers {
		if !w.Balancers[i].Complete() {
			incomplete++
		}
	}
	switch {
	case len(w.part) > 0:
		return w.part[0]
	case !w.HasBalancers:
		return "kube-proxy runs in kernelspace mode, and the load balancers of HNS were not read " + giveBalancers
	case incomplete > 0:
		return fmt.Sprintf("%s of HNS show no address or no port, which hnsdiag's table and PowerShell's list form leave out %s", plural(incomplete, "load balancer"), giveBalancers)
	case !w.HasEndpoints && len(w.Balancers) > 0:
		return "the endpoints of HNS were not read: nothing says where its load balancers lead (give the output of `hnsdiag list endpoints -d` or `Get-HnsEndpoint | ConvertTo-Json -Depth 10`)"
	}
	return ""
}

// seen tells whether any capture of HNS was given.
func (w *windows) seen() bool { return w.HasBalancers || w.HasEndpoints || len(w.part) > 0 }

// undecided says why captures of HNS do not even tell that kube-proxy runs in kernelspace mode.
func (w *windows) undecided() string {
	switch {
	case len(w.part) > 0:
		return w.part[0]
	case w.HasBalancers:
		return "HNS holds no load balancer, and nothing else says which service proxy runs on this Windows node (give kube-proxy's configuration or log)"
	}
	return "the load balancers of HNS were not read " + giveBalancers
}

// giveBalancers says which commands show load balancers with addresses and ports.
const giveBalancers = "(give the output of `hnsdiag list loadbalancers -d` or `Get-HnsPolicyList | ConvertTo-Json -Depth 10`)"

// answerForWindows takes out of the sources that were not answered those that there are none of.
func (m *model) answerForWindows(out map[check.Source]string) {
	if !m.onWindows() {
		return
	}
	for _, s := range check.OnLinuxOnly {
		delete(out, s)
	}
}

// balance follows the cell's packet through HNS. Load balancers are the same for every client.
func (m *model) balance(c *cell, p netfilter.Packet) []fate {
	p.OrigDst, p.OrigDstPort, p.OrigSrc = p.Dst, p.DstPort, p.Src
	end := func(v netfilter.Verdict, why string) netfilter.Ending {
		return netfilter.Ending{Verdict: v, P: 1, Packet: p, DstBy: -1, SrcBy: -1, Why: why}
	}
	local := netfilter.Forwarded
	if m.isNodeAddr(p.Dst) || p.Dst.IsLoopback() {
		local = netfilter.Delivered
	}
	if c.at.Kind == intent.HealthCheck {
		return []fate{m.fate(c, end(local, ""))}
	}
	if why := m.unreadHNS(); why != "" {
		return []fate{m.fate(c, end(netfilter.UnknownVerdict, why))}
	}
	found := m.windows.Serving(c.dst, c.proto, local == netfilter.Delivered)
	if len(found) == 0 {
		return []fate{m.fate(c, end(local, ""))}
	}
	var (
		out     []fate
		assumed []netfilter.Assumption
	)
	for i, b := range found {
		if slices.ContainsFunc(found[:i], b.LeadsAs) {
			continue
		}
		with := slices.Clone(assumed)
		if slices.ContainsFunc(found[i+1:], func(x *hns.LoadBalancer) bool { return !b.LeadsAs(x) }) {
			fact := netfilter.Fact{
				Key: "hns=" + b.ID, Yes: "HNS uses load balancer " + b.ID, No: "HNS does not use load balancer " + b.ID,
				Because: fmt.Sprintf("HNS has several load balancers for %s that lead to different endpoints, and no capture shows which of them it uses", b.At()),
			}
			with = append(with, netfilter.Assumption{Fact: fact, Answer: true})
			assumed = append(assumed, netfilter.Assumption{Fact: fact})
		}
		for _, e := range m.balanced(b, end) {
			e.Assumed = with
			f := m.fate(c, e)
			f.balancer = b
			if e.DstBy >= 0 {
				f.notes = append(f.notes, switched)
			}
			out = append(out, f)
		}
	}
	return out
}

// balanced are the ways that a load balancer leads.
func (m *model) balanced(b *hns.LoadBalancer, end func(netfilter.Verdict, string) netfilter.Ending) []netfilter.Ending {
	policy := netfilter.Hop{
		Kind: hopHNS, Table: hnsTable, Chain: b.ID, Index: -1, File: b.File, Line: b.Line, Text: b.String(), P: 1, Cumulative: 1,
	}
	stuck := func(why string) netfilter.Ending {
		e := end(netfilter.UnknownVerdict, why)
		e.Hops = []netfilter.Hop{policy}
		return e
	}
	switch {
	case b.HasState && b.State != hns.Applied:
		return []netfilter.Ending{stuck(fmt.Sprintf("load balancer %s is in state %d: HNS has not applied it, and what it does with packets meanwhile is not known", b.ID, b.State))}
	case len(b.Endpoints) == 0:
		return []netfilter.Ending{stuck(fmt.Sprintf("load balancer %s has no endpoint, and what HNS does with its packets is not known", b.ID))}
	}
	share := 1 / float64(len(b.Endpoints))
	var out []netfilter.Ending
	for _, id := range b.Endpoints {
		e := m.windows.Endpoint(id)
		to := netip.AddrPort{}
		if e != nil {
			to = b.Backend(e)
		}
		if !to.IsValid() {
			lost := stuck(fmt.Sprintf("load balancer %s leads to endpoint %s, which HNS does not have", b.ID, id))
			lost.P = share
			out = append(out, lost)
			continue
		}
		x := end(netfilter.Forwarded, "")
		x.P, x.DstBy = share, 0
		x.Packet.Dst, x.Packet.DstPort, x.Packet.DNATed = to.Addr(), to.Port(), true
		if b.SourceVIP.IsValid() && !b.DSR {
			x.Packet.Src, x.Packet.SNATed = b.SourceVIP, true
		}
		x.Hops = []netfilter.Hop{policy, {
			Kind: hopHNS, Table: hnsTable, Chain: b.ID, Index: -1, File: e.File, Line: e.Line,
			Text: fmt.Sprintf("endpoint %s: %s", id, to.Addr()), P: share, Cumulative: share,
		}}
		out = append(out, x)
	}
	return out
}

// hidesClient tells whether it is known that a load balancer keeps, or does not keep, the client's address: by direct
// server return it does, and with a source address of its own it does not. Without either the type of the network
// decides.
func (f *fate) hidesClient() (known bool) {
	return f.balancer == nil || f.balancer.DSR || f.balancer.SourceVIP.IsValid()
}

// distance is by how many backends the paths of a cell differ from an outcome. Whether HNS supports what a Service asks
// for is the same for all its load balancers, so that a broken one is held against the outcome that it is nearer to.
func distance(sp *intent.ServicePort, o intent.Outcome, paths []report.Path) int {
	left := make(map[netip.AddrPort]bool, len(o.Backends))
	for _, at := range o.Backends {
		left[endpointAddr(&sp.Endpoints[at])] = true
	}
	n := 0
	for i := range paths {
		if string(paths[i].Result) != o.Result {
			n++
		}
		for j := range paths[i].Backends {
			ap := backendAddr(&paths[i].Backends[j])
			if !left[ap] {
				n++
			}
			delete(left, ap)
		}
	}
	return n + len(left)
}
