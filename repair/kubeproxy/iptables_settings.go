package kubeproxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/traits"
)

// The minor releases of Kubernetes 1.x whose iptables mode is known here. Newer ones are taken for the newest.
const (
	oldestIPTables = 24
	newestIPTables = 36
)

// IPTablesNode is what the rules depend on beside objects and the proxy's settings.
type IPTablesNode struct {
	// Rulesets are the rules as they are, without those of a backend that is not the proxy's. They tell what nobody can
	// be asked: what the sysctl was when kube-proxy started, whether it has counters, which options its iptables knows.
	Rulesets []*netfilter.Ruleset
	Host     *host.Host
}

// iptablesSettings are what the rules of one family depend on.
type iptablesSettings struct {
	family netfilter.Family
	// minor is the release, Kubernetes 1.x.
	minor int
	// localSource and localIface are the tests that tell a local pod, of which at most one is set: "-s 10.244.0.0/16",
	// "-i cni0". Neither: the proxy cannot tell.
	localSource, localIface string
	masqueradeAll           bool
	// mark is the masquerade mark as iptables prints it: "0x4000".
	mark string
	// loopback: node ports are served on loopback addresses.
	loopback bool
	// nodePortAddrs are the addresses on which node ports are served, nil for all of the node's; nodePortUnknown that they
	// cannot be told.
	nodePortAddrs   []netip.Addr
	nodePortAll     bool
	nodePortUnknown bool
	// large: more than 1000 endpoints, so that rules of endpoints carry no comments.
	large bool
	// dropInvalid: KUBE-FORWARD drops INVALID packets. countInvalid and countLoopback: there are counters for them and for
	// packets to node ports on loopback addresses (1.31 and newer, where nfacct works).
	dropInvalid, countInvalid, countLoopback bool
	// randomFully: the proxy's iptables knows MASQUERADE --random-fully.
	randomFully bool
}

// The names of kube-proxy's packet counters (1.31 and newer).
const (
	invalidCounter  = "ct_state_invalid_dropped_pkts"
	loopbackCounter = "localhost_nps_accepted_pkts"
)

// largeCluster is the number of endpoints of a family, each counted once for each service port that has it, above which
// kube-proxy saves comments.
const largeCluster = 1000

// settingsOf gathers the settings of one family. The error says in words what is not known of the proxy.
func settingsOf(family netfilter.Family, plan *intent.Plan, p *traits.Proxy, on *IPTablesNode) (iptablesSettings, error) {
	minor, err := minorOf(p)
	if err != nil {
		return iptablesSettings{}, err
	}
	s := iptablesSettings{family: family, minor: minor, masqueradeAll: p.MasqueradeAll, mark: fmt.Sprintf("%#x", p.MasqueradeMark)}
	if err := s.detectLocal(p); err != nil {
		return iptablesSettings{}, err
	}
	s.nodePorts(p, plan, on)
	endpoints := 0
	for _, sp := range plan.Ports {
		if sp.EndpointsUnknown {
			return iptablesSettings{}, fmt.Errorf("no EndpointSlices were read, so that nobody knows what %s leads to", sp.Key())
		}
		if sp.Family == int(family) {
			endpoints += len(sp.Endpoints)
		}
	}
	s.large = endpoints > largeCluster
	s.learn(on)
	return s, nil
}

// minorOf is the release whose rules are written. Of a range it is the newest: what tells its members apart is in no
// rule that is there, or it would have made the range smaller.
func minorOf(p *traits.Proxy) (int, error) {
	v := p.Version
	if p.VersionFromRules {
		v = p.Newest
	}
	switch {
	case v == traits.Version{}:
		return newestIPTables, nil
	case v.Major != 1 || v.Minor < oldestIPTables:
		return 0, fmt.Errorf("what kube-proxy %s writes is not known here: rules can be written as those of 1.%d and newer", p.VersionText(), oldestIPTables)
	}
	return min(v.Minor, newestIPTables), nil
}

// detectLocal finds the test that tells local pods. A family without range has none, and so has a proxy without one.
func (s *iptablesSettings) detectLocal(p *traits.Proxy) error {
	switch p.LocalMode {
	case "-":
		return nil
	case "BridgeInterface", "InterfaceNamePrefix":
		s.localIface = "-i " + p.LocalInterface
		if p.LocalMode == "InterfaceNamePrefix" {
			s.localIface += "+"
		}
		return nil
	}
	for _, r := range p.ClusterCIDRs {
		if netfilter.FamilyOf(r.Addr()) == s.family {
			s.localSource = "-s " + r.Masked().String()
			return nil
		}
	}
	if p.LocalMode == "" && len(p.ClusterCIDRs) == 0 {
		return fmt.Errorf("how kube-proxy tells local pods is not known (its configuration was not read, and no rule shows it)")
	}
	return nil
}

// nodePorts finds the addresses of node ports, as kube-proxy reads them from the interfaces when it writes the rules.
func (s *iptablesSettings) nodePorts(p *traits.Proxy, plan *intent.Plan, on *IPTablesNode) {
	var ranges []netip.Prefix
	for _, r := range p.NodePortAddresses {
		if netfilter.FamilyOf(r.Addr()) == s.family {
			ranges = append(ranges, r.Masked())
		}
	}
	known := true
	if p.NodePortPrimary {
		var primary netip.Addr
		if primary, known = primaryOf(s.family, plan); known {
			ranges = []netip.Prefix{netip.PrefixFrom(primary, primary.BitLen())}
		}
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 0})
	s.loopback = s.family == netfilter.IPv4 && p.LocalhostNodePorts && (len(ranges) == 0 ||
		slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Addr().IsLoopback() || r.Contains(loopback) }))
	if s.minor < 26 { // there is no such setting, and node ports are on loopback addresses of both families
		s.loopback = true
	}
	if known && (len(ranges) == 0 || slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Bits() == 0 })) {
		s.nodePortAll = true
		return
	}
	if !known || on.Host == nil || !on.Host.HasAddrs {
		s.nodePortUnknown = true
		return
	}
	for i := range on.Host.Addrs {
		a := on.Host.Addrs[i].Prefix.Addr()
		in := slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
		if in && (!a.IsLoopback() || s.loopback) && !slices.Contains(s.nodePortAddrs, a) {
			s.nodePortAddrs = append(s.nodePortAddrs, a)
		}
	}
	slices.SortFunc(s.nodePortAddrs, netip.Addr.Compare)
}

// primaryOf is the node's primary address of a family, as the plan took it from the Node object.
func primaryOf(family netfilter.Family, plan *intent.Plan) (netip.Addr, bool) {
	for _, sp := range plan.Ports {
		if sp.Family == int(family) {
			return sp.NodeIP, sp.NodeIP.IsValid()
		}
	}
	return netip.Addr{}, false
}

// learn reads off the rules what nothing else tells. What no rule shows gets kube-proxy's default, but counters: a rule
// that names one which the kernel does not have cannot be made, and a rule without does the same to packets.
func (s *iptablesSettings) learn(on *IPTablesNode) {
	var invalid, counted, loopback, masquerades, random bool
	for _, rs := range on.Rulesets {
		for _, r := range rulesOf(rs, "filter", "KUBE-FORWARD") {
			if _, drops := r.Target.(netfilter.Drop); drops && strings.Contains(r.Text, " --ctstate INVALID ") {
				invalid = true
			}
			counted = counted || strings.Contains(r.Text, invalidCounter)
		}
		for _, r := range rulesOf(rs, "nat", "KUBE-NODEPORTS") {
			loopback = loopback || strings.Contains(r.Text, loopbackCounter)
		}
		for _, r := range rulesOf(rs, "nat", "KUBE-POSTROUTING") {
			if t, ok := r.Target.(*netfilter.Translate); ok && t.Kind == netfilter.Masquerade {
				masquerades = true
				random = random || t.RandomFully
			}
		}
	}
	s.dropInvalid = true
	if s.minor >= 29 && !invalid {
		liberal := on.Host != nil && on.Host.Sysctls["net.netfilter.nf_conntrack_tcp_be_liberal"] != "" && on.Host.Sysctls["net.netfilter.nf_conntrack_tcp_be_liberal"] != "0"
		s.dropInvalid = !liberal
	}
	// The counters are made together.
	counters := s.minor >= 31 && (counted || loopback)
	s.countInvalid = counters && (counted || !invalid)
	s.countLoopback = counters && s.loopback && s.family == netfilter.IPv4
	s.randomFully = random || !masquerades
}

// rulesOf are the rules of a chain, nil where it is not there.
func rulesOf(rs *netfilter.Ruleset, table, chain string) []netfilter.Rule {
	t := rs.Table(table)
	if t == nil {
		return nil
	}
	c := t.Chain(chain)
	if c == nil {
		return nil
	}
	return c.Rules
}
