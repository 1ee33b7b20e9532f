package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/svcnet/svcnet/explain/hns"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// Node is a node as data, everything that a check may look at. It is used by one goroutine.
type Node struct {
	// Name is the node's; empty when nothing in the evidence says.
	Name     string
	Rulesets []*netfilter.Ruleset
	NFT      []*nft.Ruleset
	// IPVS are the virtual servers, nil where they were not read; Sets the IP sets that rules ask, likewise.
	IPVS *ipvs.Table
	Sets map[string]*netfilter.Set
	// HNS is what a Windows node has in place of rules.
	HNS     *hns.State
	Host    *host.Host
	Objects *objects.Set
	Plan    *intent.Plan
	Proxy   traits.Proxy
	// Captured is when the evidence was taken, or the newest time in it; zero when it has none.
	Captured time.Time
	// Taken is when a collector took the evidence; zero for files of which nothing says so.
	Taken time.Time
	// Ports are the service ports that the proxy programs, with what was observed.
	Ports []Port
	// Discoveries are the messages of neighbour discovery that rules end for certain.
	Discoveries []Discovery
	// ForeignTables are the nftables tables that nobody evaluates here, as "inet firewalld".
	ForeignTables []string
	// Answers says of each source why it does not answer; a source that is not in it was answered.
	Answers map[Source]string
	// PodScope says which pods the evidence holds.
	PodScope PodScope

	missing []Source
	// exempting are the rules that take packets out of connection tracking, once gathered.
	exempting map[hooked][]exemption
	// refusals are those of earlyAcceptHidesReject, gathered at the first question.
	refusals refusals
	// labelled are pods by label, built at the first question.
	labelled map[podLabel][]int
	// servicesOf and families are gathered at the first question, as are the obstacles.
	servicesOf []*service
	families   map[netfilter.Family]bool
	obstacles  []*Obstacle
	gathered   bool
	// entranceOf is built at the first question.
	entranceOf map[dialled]entrance
}

// Port is one service port with its cells.
type Port struct {
	*intent.ServicePort
	// On is the node that the cells are of.
	On *Node
	// Cells are the paths of each cell, in the order of the document. They are nil for a port that is like another one,
	// of which no check had anything to say; Alike then holds the obstacles that the other one met.
	Cells [][]report.Path
	Alike []*Obstacle
}

// Source is a kind of evidence that checks rest on.
type Source string

// The sources. Their text completes "… was not read".
const (
	Rules4     Source = "iptables rules (IPv4)"
	Rules6     Source = "iptables rules (IPv6)"
	Services   Source = "Services"
	Slices     Source = "EndpointSlices"
	LegacyEPs  Source = "Endpoints"
	Pods       Source = "Pods"
	Nodes      Source = "Nodes"
	SelectedBy Source = "pods that Services select"
	NodeName   Source = "name of the node"
	Flows      Source = "tracked connections"
	FlowStats  Source = "connection tracking counters"
	Sysctls    Source = "sysctls"
	Addrs      Source = "addresses of interfaces"
	Links      Source = "interfaces"
	Bridges    Source = "bridge ports"
	Routes4    Source = "IPv4 routes"
	Routes6    Source = "IPv6 routes"
	RouteRules Source = "routing rules"
	Sockets    Source = "listening sockets"
	ProxyLog   Source = "kube-proxy's log"
	ProxyHTTP  Source = "kube-proxy's /healthz and /metrics"
	ProxyConf  Source = "kube-proxy's configuration"
	Kernel     Source = "kernel release"
	KernelLog  Source = "kernel log"
	Offloads   Source = "offload settings"
	IPSets     Source = "IP sets"
	// ServiceTables are where the service proxy has its translations. Rules of iptables are, where it runs in that mode;
	// other modes and other programs keep them elsewhere.
	ServiceTables Source = "tables of the service proxy"
	// RuleCounters are missing where rules were captured without them.
	RuleCounters Source = "packet counters of iptables rules"
	// ServerConns are missing where real servers were captured without them.
	ServerConns Source = "connections of real servers"
)

// hints say how a source is had; shown where it is missing.
var hints = map[Source]string{
	Rules4:     "`iptables-save -c`",
	Rules6:     "`ip6tables-save -c`",
	Services:   "`kubectl get services -A -o json`",
	Slices:     "`kubectl get endpointslices -A -o json`",
	LegacyEPs:  "`kubectl get endpoints -A -o json`",
	Pods:       "`kubectl get pods -A -o json`",
	Nodes:      "`kubectl get nodes -o json`",
	SelectedBy: "`kubectl get pods -A -o json`",
	NodeName:   "`kubectl get nodes -o json`, or --node NAME",
	Flows:      "`conntrack -L`",
	FlowStats:  "`conntrack -S`",
	Sysctls:    "`sysctl -a`",
	Addrs:      "`ip addr`",
	Links:      "`ip -d link`",
	Bridges:    "`bridge -d link`",
	Routes4:    "`ip route show table all`",
	Routes6:    "`ip -6 route show table all`",
	RouteRules: "`ip rule`",
	Sockets:    "`ss -lntup`",
	ProxyLog:   "`kubectl logs` of the kube-proxy pod",
	ProxyHTTP:  "http://127.0.0.1:10256/healthz and http://127.0.0.1:10249/metrics of the node",
	ProxyConf:  "the kube-proxy ConfigMap or command line",
	Kernel:     "`uname -a`",
	KernelLog:  "`dmesg`",
	Offloads:   "`ethtool -k` of the tunnel device",
	IPSets:     "`ipset save`",

	RuleCounters: "`iptables-save -c`",
	ServerConns:  "`ipvsadm -Ln`",
}

// Needs tells whether all of the sources were answered. Those that were not make the running check unknown: call it
// where the answer is about to rest on them, and not before.
func (n *Node) Needs(sources ...Source) bool {
	ok := true
	for _, s := range sources {
		if _, unanswered := n.Answers[s]; unanswered {
			ok = false
			n.lacks(s)
		}
	}
	return ok
}

// NeedsAny tells whether one of the sources was answered.
func (n *Node) NeedsAny(sources ...Source) bool {
	for _, s := range sources {
		if n.Has(s) {
			return true
		}
	}
	n.lacks(sources...)
	return false
}

// needsBasis asks for what a group of checks rests on.
func (n *Node) needsBasis(on basis) {
	families := n.familiesInUse()
	if on&onObjects != 0 && n.Needs(Services) && len(families) > 0 {
		n.NeedsAny(Slices, LegacyEPs)
	}
	if on&onGrid == onGrid {
		n.Needs(ServiceTables)
		if n.Proxy.Mode == ipvsMode {
			// Packets come to a virtual server because its address is the node's, and rules ask sets about them.
			n.Needs(Addrs, IPSets)
		}
	}
	if on&onRules == 0 {
		return
	}
	if len(families) == 0 {
		if !n.Has(Services) {
			n.NeedsAny(Rules4, Rules6)
		}
		return
	}
	for _, f := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if families[f] {
			n.Needs(RulesOf(f))
		}
	}
}

// familiesInUse are those in which Services have addresses.
func (n *Node) familiesInUse() map[netfilter.Family]bool {
	if n.families == nil {
		n.families = make(map[netfilter.Family]bool)
		for _, sp := range n.Plan.Ports {
			n.families[netfilter.Family(sp.Family)] = true
		}
	}
	return n.families
}

// Has tells whether a source was answered, for what a check can do without.
func (n *Node) Has(s Source) bool {
	_, unanswered := n.Answers[s]
	return !unanswered
}

func (n *Node) lacks(sources ...Source) {
	for _, s := range sources {
		if !slices.Contains(n.missing, s) && !n.hasNone(s) {
			n.missing = append(n.missing, s)
		}
	}
}

// RulesOf is the source of the rules of a family.
func RulesOf(f netfilter.Family) Source {
	if f == netfilter.IPv6 {
		return Rules6
	}
	return Rules4
}

// RoutesOf is the source of the routes of a family.
func RoutesOf(f netfilter.Family) Source {
	if f == netfilter.IPv6 {
		return Routes6
	}
	return Routes4
}

// Sysctl is the value of a sysctl with where it was read. ok is false when it is not known, which makes the running
// check unknown.
func (n *Node) Sysctl(name string) (value string, e report.Evidence, ok bool) {
	value, ev, ok := n.Host.Sysctl(name)
	if !ok {
		n.lacks(Sysctls)
		return "", report.Evidence{}, false
	}
	return value, HostEvidence("sysctl", ev), true
}

// HostEvidence is evidence of the node's state, for a finding.
func HostEvidence(source string, e host.Evidence) report.Evidence {
	return report.Evidence{Source: source, File: e.File, Line: e.Line, Text: e.Text}
}

// ObjectEvidence is where an object was read, for a finding.
func ObjectEvidence(e objects.Evidence, text string) report.Evidence {
	return report.Evidence{Source: "objects", File: e.File, Line: e.Line, Text: text}
}

// RuleEvidence is a rule, for a finding.
func RuleEvidence(rs *netfilter.Ruleset, r *netfilter.Rule) report.Evidence {
	return report.Evidence{Source: iptablesSource(rs), File: rs.File, Line: r.Line, Text: r.Text}
}

// iptablesSource names the rules of a capture as evidence.
func iptablesSource(rs *netfilter.Ruleset) string {
	if rs.Backend == netfilter.UnknownBackend {
		return "iptables"
	}
	return "iptables-" + string(rs.Backend)
}

// unknown says which sources the running check lacked.
func (n *Node) unknown(id string) report.Unknown {
	u := report.Unknown{ID: id}
	var texts []string
	for _, s := range n.missing {
		u.Sources = append(u.Sources, string(s))
		text := fmt.Sprintf("%s: %s", s, n.Answers[s])
		if n.Answers[s] == "" {
			text = fmt.Sprintf("%s: only a part was read (%s)", s, hints[s])
		}
		texts = append(texts, text)
	}
	u.Text = strings.Join(texts, "; ")
	return u
}
