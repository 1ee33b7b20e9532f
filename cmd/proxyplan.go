package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
	"github.com/svcnet/svcnet/repair/apply"
	"github.com/svcnet/svcnet/repair/plan"
	"github.com/svcnet/svcnet/repair/proxy"
	"github.com/svcnet/svcnet/repair/proxy/table"
)

// proxyPlan is what the proxy would do on this node.
type proxyPlan struct {
	node    string
	only    []table.Service
	objects *proxy.Objects
	// proxy is what it would be like.
	proxy traits.Proxy
	// localFrom and nodePortsFrom say in words where two settings come from.
	localFrom, nodePortsFrom string
	nodePortIPs              []netip.Addr
	stats                    proxy.Stats
	tables                   []*nft.Table
	audit                    explain.AuditOptions
	// after is the audit of the node with the tables in place; obstacles are in the way then.
	after     *report.Report
	obstacles []*check.Obstacle
	// anyway are the findings that the tables do not change.
	anyway map[string]bool
	// serves is set where kube-proxy serves as it should; others are programs that serve Services instead.
	serves  bool
	others  []string
	running *proxy.Running
	missing []table.Service
}

// planProxy reads the node and says what would be done.
func (a *app) planProxy(ctx context.Context, f *proxyFlags, names []string, changed func(string) bool) (*proxyPlan, error) {
	s, err := a.readNode(ctx, f)
	if err != nil {
		return nil, err
	}
	p := &proxyPlan{node: s.Node, anyway: map[string]bool{}}
	if p.node == "" {
		return nil, errors.New("which node this is is not known: no Node object has this machine's name or an address of it (name it with --node)")
	}
	f.node = p.node
	if p.running, err = proxy.IsRunning(f.runtime); err != nil {
		return nil, err
	}
	if len(names) > 0 {
		p.audit.Namespace, p.audit.Services = f.namespace, names
		for _, name := range names {
			p.only = append(p.only, table.Service{Namespace: f.namespace, Name: name})
		}
	}
	known := decoded(s)
	if why := unreadObjects(s); why != "" && len(known.Services) == 0 {
		return nil, fmt.Errorf("there are no Services to serve: %s (with the API server down, give objects with -f)", why)
	}
	p.objects = objectsOf(known, p.only, p.node)
	p.missing = p.objects.Missing()
	for _, m := range p.missing {
		return nil, fmt.Errorf("there is no Service %s/%s (name another with svcnet proxy svc/NAME -n NAMESPACE)", m.Namespace, m.Name)
	}
	// Where kube-proxy is broken every Service may be, and to walk each takes minutes on a large cluster: what the node is
	// like is asked without that.
	now, err := explain.Read(s, explain.AuditOptions{Selector: labels.Nothing()})
	if err != nil {
		return nil, err
	}
	if err := p.settings(f, now.Node(), changed); err != nil {
		return nil, err
	}
	p.neighbours(now)
	if n := now.Node(); n.Proxy.Presence == traits.Running && n.Proxy.Health.Word == "healthy" {
		whole, err := explain.Read(s, p.audit)
		if err != nil {
			return nil, err
		}
		p.serves, _ = servesBySelf(whole, p)
	}
	if f.userspace.on {
		return p, nil
	}
	return p, p.compute(s)
}

// unreadObjects says why Services or their endpoints could not be read, empty where they were.
func unreadObjects(s *snapshot.Snapshot) string {
	for _, e := range s.Of(snapshot.Objects) {
		if !e.Status.Answers() && e.Error != "" {
			return e.Error
		}
	}
	return ""
}

// objectsOf are objects that are known already.
func objectsOf(known *objects.Set, only []table.Service, node string) *proxy.Objects {
	o := proxy.NewObjects(only, node)
	for _, x := range known.Services {
		_ = o.Add(x.Service) // it never fails
	}
	for _, x := range known.EndpointSlices {
		_ = o.Add(x.EndpointSlice)
	}
	for _, x := range known.Nodes {
		_ = o.Add(x.Node)
	}
	return o
}

// settings are those of the kube-proxy that the proxy stands in for, as far as they are known, and what flags say.
func (p *proxyPlan) settings(f *proxyFlags, n *check.Node, changed func(string) bool) error {
	was := &n.Proxy
	p.proxy = traits.Proxy{
		Mode: proxy.Mode, NodeName: p.node, LocalMode: was.LocalMode, ClusterCIDRs: was.ClusterCIDRs, LocalInterface: was.LocalInterface,
		MasqueradeAll: was.MasqueradeAll, MasqueradeMark: was.MasqueradeMark, NodePortAddresses: was.NodePortAddresses, NodePortPrimary: was.NodePortPrimary,
	}
	if was.NodeName != "" {
		p.proxy.NodeName = was.NodeName // local is what kube-proxy takes for it
	}
	p.localFrom, p.nodePortsFrom = "as this node's kube-proxy", "as this node's kube-proxy"
	if changed("cluster-cidr") {
		p.proxy.LocalMode, p.proxy.ClusterCIDRs, p.localFrom = "ClusterCIDR", nil, "--cluster-cidr"
		for _, text := range f.clusterCIDRs {
			r, err := netip.ParsePrefix(text)
			if err != nil {
				return usage("--cluster-cidr %s: %v", text, err)
			}
			if slices.ContainsFunc(p.proxy.ClusterCIDRs, func(o netip.Prefix) bool { return o.Addr().Is4() == r.Addr().Is4() }) {
				return usage("--cluster-cidr: one range of each family at most, as kube-proxy takes them")
			}
			p.proxy.ClusterCIDRs = append(p.proxy.ClusterCIDRs, r.Masked())
		}
	} else if p.proxy.LocalMode == "" {
		p.nodeRanges()
	}
	if changed("masquerade-all") {
		p.proxy.MasqueradeAll = f.masqueradeAll
	}
	if !changed("nodeport-addresses") {
		if was.Mode == "" && was.NodePortAddresses == nil {
			p.nodePortsFrom = "nothing says what kube-proxy serves"
		}
		return nil
	}
	p.proxy.NodePortAddresses, p.proxy.NodePortPrimary, p.nodePortsFrom = nil, false, "--nodeport-addresses"
	for _, text := range f.nodePorts {
		switch r, err := netip.ParsePrefix(text); {
		case text == "primary":
			p.proxy.NodePortPrimary = true
		case text == "all":
		case err != nil:
			return usage("--nodeport-addresses %s is no range, and not primary or all", text)
		default:
			p.proxy.NodePortAddresses = append(p.proxy.NodePortAddresses, r.Masked())
		}
	}
	if len(f.nodePorts) > 1 && (p.proxy.NodePortPrimary || slices.Contains(f.nodePorts, "all")) {
		return usage("--nodeport-addresses: primary and all stand alone")
	}
	return nil
}

// nodeRanges tell pods of this node by the ranges of the Node object, where nothing says how kube-proxy does.
func (p *proxyPlan) nodeRanges() {
	p.proxy.LocalMode, p.localFrom = "-", "nothing says how kube-proxy tells pods, and the Node object has no range of pods"
	n := p.objects.Node()
	if n == nil {
		return
	}
	ranges := n.Spec.PodCIDRs
	if len(ranges) == 0 && n.Spec.PodCIDR != "" {
		ranges = []string{n.Spec.PodCIDR}
	}
	for _, text := range ranges {
		if r, err := netip.ParsePrefix(text); err == nil {
			p.proxy.LocalMode, p.localFrom = "NodeCIDR", "the pod ranges of the Node object: nothing says how kube-proxy tells pods"
			p.proxy.ClusterCIDRs = append(p.proxy.ClusterCIDRs, r.Masked())
		}
	}
}

// neighbours finds who serves Services on the node already.
func (p *proxyPlan) neighbours(now *explain.Reading) {
	n := now.Node()
	for _, o := range n.Proxy.Others {
		p.others = append(p.others, fmt.Sprintf("%s (%s)", o.Name, o.Value))
	}
	for _, x := range now.Report.Findings {
		if x.ID == "other-dataplane" && !strings.Contains(x.Got, "in the pod") {
			p.others = append(p.others, x.Subject)
		}
	}
	for _, l := range n.Host.Links {
		switch {
		case l.Name == "cilium_host":
			p.others = append(p.others, "Cilium (interface cilium_host), whose eBPF programs may translate before any rule is met")
		case strings.HasPrefix(l.Name, "bpfin.cali"):
			p.others = append(p.others, "Calico's eBPF dataplane (interface "+l.Name+"), which translates before any rule is met")
		}
	}
}

// recorder takes no transaction: what the tables would be is asked of the server.
type recorder struct{}

func (recorder) Write(*table.Transaction) error      { return nil }
func (recorder) Has(nft.Family) (bool, error)        { return true, nil }
func (recorder) Remove(families ...nft.Family) error { return nil }

// compute makes the tables, and looks at the node as it would be with them.
func (p *proxyPlan) compute(s *snapshot.Snapshot) error {
	addrs, err := proxy.NodeAddrs()
	if err != nil {
		return err
	}
	server := proxy.NewServer(proxy.Options{Objects: p.objects, Writer: recorder{}, Proxy: p.proxy, Addrs: addrs})
	server.Compute()
	p.stats, p.nodePortIPs = server.Stats(), server.NodePortIPs()
	p.tables = server.Tables()
	var listing strings.Builder
	for _, t := range p.tables {
		listing.WriteString(t.Print())
	}
	with := *s
	with.Evidence = append(slices.Clone(s.Evidence), snapshot.Evidence{
		File: "svcnet-proxy.nft", Format: snapshot.NFTText, Status: snapshot.OK, Data: []byte(listing.String()),
	})
	with.Arrange()
	if p.after, p.obstacles, err = explain.AuditInTheWay(&with, p.audit); err != nil {
		return err
	}
	// What is no rule (a route that is missing, forwarding that is off) nothing is removed for: it is told as a finding.
	p.obstacles = slices.DeleteFunc(p.obstacles, func(o *check.Obstacle) bool { return o.Chain == "" })
	for i := range p.after.Findings {
		p.anyway[findingKey(&p.after.Findings[i])] = true
	}
	return nil
}

// obstacleText is an obstacle on one line.
func obstacleText(o *check.Obstacle) string {
	what := "connections"
	if o.Reply {
		what = "answers"
	}
	services := o.Services()
	named := strings.Join(services[:min(3, len(services))], ", ")
	if len(services) > 3 {
		named += fmt.Sprintf(" and %d more", len(services)-3)
	}
	return fmt.Sprintf("%s of %s to %s are %s by %s: %s", what, strings.Join(o.Clients(), ", "), named, o.Verb(), o.Place(), o.Text)
}

// refusal says why nothing is to be done, empty where something is.
func (p *proxyPlan) refusal(f *proxyFlags) string {
	switch {
	case p.running != nil:
		return fmt.Sprintf("%v: process %d, since %s (stop it with kill %d)", proxy.ErrRunning, p.running.PID, p.running.Started.Format(time.RFC3339), p.running.PID)
	case os.Geteuid() != 0:
		return "writing rules needs root: run it with sudo"
	case f.force:
		return ""
	case len(p.others) > 0:
		return fmt.Sprintf("Services are served by another program on this node: %s. Repair that; --force serves all the same", strings.Join(p.others, "; "))
	case p.serves:
		return "kube-proxy runs on this node and serves as it should, so that there is nothing to stand in for (--force does it all the same)"
	case p.stats.Ports == 0:
		return "no Service that was asked for has anything to serve on a node: headless, ExternalName, or left to another proxy (svcnet trace says which)"
	case len(p.obstacles) > 0 && !f.removeObstacles:
		return fmt.Sprintf("%s in the way of its packets, as listed: remove them (svcnet repair shows how), or have them removed with --remove-obstacles; --force serves what gets through", countIs(len(p.obstacles), "rule"))
	}
	return ""
}

func countIs(n int, word string) string {
	if n == 1 {
		return "1 " + word + " is"
	}
	return fmt.Sprintf("%d %ss are", n, word)
}

// print says what would be done.
func (p *proxyPlan) print(out io.Writer, f *proxyFlags) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "  %-10s %s\n", name, render.Clean(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(out, "Fallback proxy on node %s, kernel mode (nftables)\n", render.Clean(p.node))
	line("serves", "%s of %s", plural(p.stats.Ports, "service port"), plural(p.stats.Services, "Service"))
	chains, elements := 0, 0
	var names []string
	for _, t := range p.tables {
		names = append(names, t.String())
		chains += len(t.Chains)
		for _, s := range t.Sets {
			elements += len(s.Entries)
		}
	}
	if len(names) > 0 {
		line("writes", "the tables %s: %s, %s; nothing else", strings.Join(names, " and "), plural(chains, "chain"), plural(elements, "element"))
		line("", "they translate before kube-proxy's rules (priority -105 before -100), and refuse before filters accept (-5)")
	}
	line("pods", "%s (%s)", p.localText(), p.localFrom)
	line("node ports", "on %s (%s); not on loopback addresses", addrText(p.nodePortIPs), p.nodePortsFrom)
	line("masquerade", "by mark %#x, kube-proxy's own, which other programs know", p.proxy.MasqueradeMark)
	end := "until it is interrupted"
	if f.ttl > 0 {
		end += fmt.Sprintf(", or %s are over", f.ttl)
	}
	if f.untilHealthy {
		end += ", or kube-proxy serves again"
	}
	if f.temporary {
		end += "; killed, the kernel removes the tables"
	} else {
		end += "; killed, the tables stay until the next start or svcnet cleanup"
	}
	line("ends", "%s", end)
	for _, o := range p.obstacles {
		line("in the way", "%s", obstacleText(o))
	}
	for _, x := range p.after.Findings {
		if check.Rank(x.Severity) <= check.Rank(check.Error) && x.CausedBy == "" && x.ID != "proxy-not-running" {
			line("remains", "%s %s: %s", x.Severity, x.ID, x.Message)
		}
	}
}

func (p *proxyPlan) localText() string {
	var ranges []string
	for _, r := range p.proxy.ClusterCIDRs {
		ranges = append(ranges, r.String())
	}
	switch p.proxy.LocalMode {
	case "-":
		return "cannot be told from other clients: addresses of clients of cluster IPs stay"
	case "BridgeInterface":
		return "are those behind bridge " + p.proxy.LocalInterface
	case "InterfaceNamePrefix":
		return "are those behind interfaces " + p.proxy.LocalInterface + "*"
	}
	return "are those with addresses in " + strings.Join(ranges, ", ")
}

func addrText(addrs []netip.Addr) string {
	if len(addrs) == 0 {
		return "no address"
	}
	var out []string
	for _, a := range addrs[:min(len(addrs), 6)] {
		out = append(out, a.String())
	}
	text := strings.Join(out, ", ")
	if len(addrs) > 6 {
		text += fmt.Sprintf(" and %d more", len(addrs)-6)
	}
	return text
}

// removeObstacles has repair remove the rules that are in the way, with its journal: `repair --rollback` brings them back.
func (a *app) removeObstacles(ctx context.Context, f *proxyFlags, p *proxyPlan, now *report.Report) {
	read := func(ctx context.Context) (*explain.Reading, error) {
		s, err := a.collectAgain(ctx, f, nil)
		if err != nil {
			return nil, err
		}
		return explain.Read(s, p.audit)
	}
	var ids []string
	for _, x := range now.Findings {
		if check.Rank(x.Severity) <= check.Rank(check.Error) && !slices.Contains(ids, x.ID) {
			ids = append(ids, x.ID)
		}
	}
	for _, id := range ids {
		r, err := read(ctx)
		if err != nil {
			a.log("obstacles stay: %v", err)
			return
		}
		made := plan.Make(r, plan.Options{Finding: id})
		if len(made.Steps) == 0 {
			continue
		}
		run, err := apply.Apply(ctx, made, apply.Options{
			Folder: f.journal, Plan: plan.Options{Finding: id}, Consents: []string{"--allow foreign"}, Program: versionText(), Read: read,
			Say: func(n apply.Notice) { a.log("%s", n.Text) },
		})
		if err != nil {
			a.log("what %s names stays: %v", id, err)
			continue
		}
		a.log("removed what %s names (run %s: svcnet repair --rollback %s brings it back)", id, run.ID, run.ID)
	}
}
