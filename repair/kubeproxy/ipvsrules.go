package kubeproxy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/traits"
)

// oldestIPVS is the oldest minor release of Kubernetes 1.x whose rules of IPVS mode are known here.
const oldestIPVS = 25

// IPVSRulesFor says which rules of iptables a kube-proxy in IPVS mode writes for one family: a few for each set that has
// entries, and for each load balancer address that the node itself may not reach. node is its name, empty where it is not
// known.
//
// Known are the releases 1.25 to 1.36, read from the source and held against what 1.29, 1.33 and 1.36 wrote; newer ones
// are taken for the newest. The error says in words what is not known: the release, how local pods are told, endpoints.
func IPVSRulesFor(family netfilter.Family, plan *intent.Plan, p *traits.Proxy, on *IPTablesNode, node string) (*IPTables, error) {
	s, err := settingsOf(family, plan, p, on)
	if err != nil {
		return nil, err
	}
	if s.minor < oldestIPVS {
		return nil, fmt.Errorf("what kube-proxy %s writes in IPVS mode is not known here: rules can be written as those of 1.%d and newer", p.VersionText(), oldestIPVS)
	}
	w := &ipvsWriter{iptablesSettings: s, filled: make(map[string]bool)}
	for _, set := range IPSets(plan, p, on.Host, node) {
		if set.Family != 0 && set.Family != int(family) {
			continue
		}
		if slices.ContainsFunc(set.Entries, func(e IPSetEntry) bool { return !e.Leave }) {
			w.filled[set.Name] = true
		}
	}
	w.nat()
	w.filter(on)
	w.outFilter(plan, on)
	return w.result(), nil
}

// ipvsWriter writes the rules of one family, in the order in which kube-proxy does (writeIptablesRules of
// pkg/proxy/ipvs/proxier.go).
type ipvsWriter struct {
	iptablesSettings
	// filled are the sets that have entries.
	filled map[string]bool

	services, nodePorts, balancers, postrouting, markMasq          chainText // of nat
	forward, healthChecks, firewall, ranges, addresses, ownClients chainText // of filter
}

// asked is the test for a set, by its name in IPv4.
func (w *ipvsWriter) asked(set, dirs string) string {
	return "-m set --match-set " + dataplane.IPVSSetName(set, int(w.family)) + " " + dirs
}

// has tells whether a set has entries, by its name in IPv4.
func (w *ipvsWriter) has(set string) bool {
	return w.filled[dataplane.IPVSSetName(set, int(w.family))]
}

// The comments of rules, which are those of their sets.
const (
	noteLoopBack      = "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"
	noteClusterIP     = "Kubernetes service cluster ip + port for masquerade purpose"
	noteExternal      = "Kubernetes service external ip + port for masquerade and filter purpose"
	noteExternalLocal = "Kubernetes service external ip + port with externalTrafficPolicy=local"
	noteBalancer      = "Kubernetes service lb portal"
	noteBalancerLocal = "Kubernetes service load balancer ip + port with externalTrafficPolicy=local"
	noteFirewall      = "Kubernetes service load balancer ip + port for load balancer with sourceRange"
	noteSourceRange   = "Kubernetes service load balancer ip + port + source cidr for packet filter purpose"
	noteSourceIP      = "Kubernetes service load balancer ip + port + source IP for packet filter purpose"
	noteHealthCheck   = "Kubernetes health check node port"
	// Single quotes are printed with a backslash.
	noteNodePort = `Kubernetes nodeport %s port for masquerade purpose%s`
	noteLocal    = `Kubernetes nodeport %s port with externalTrafficPolicy=local%s`
	noteHash     = ` with type \'hash ip:port\'`
)

// nat writes the rules of the nat table.
func (w *ipvsWriter) nat() {
	w.services.name, w.nodePorts.name, w.balancers.name = "KUBE-SERVICES", "KUBE-NODE-PORT", "KUBE-LOAD-BALANCER"
	w.postrouting.name, w.markMasq.name = "KUBE-POSTROUTING", "KUBE-MARK-MASQ"
	const toMark = "-j KUBE-MARK-MASQ"
	if w.minor >= 26 {
		loopback := "127.0.0.0/8"
		if w.family == netfilter.IPv6 {
			loopback = "::1/128"
		}
		w.services.add("-s", loopback, "-j RETURN")
	}
	if w.has("KUBE-LOOP-BACK") {
		w.postrouting.add(comment(noteLoopBack), w.asked("KUBE-LOOP-BACK", "dst,dst,src"), "-j MASQUERADE")
	}
	if w.has("KUBE-LOAD-BALANCER") {
		w.services.add(comment(noteBalancer), w.asked("KUBE-LOAD-BALANCER", "dst,dst"), "-j KUBE-LOAD-BALANCER")
	}
	if w.has("KUBE-LOAD-BALANCER-LOCAL") {
		w.balancers.add(comment(noteBalancerLocal), w.asked("KUBE-LOAD-BALANCER-LOCAL", "dst,dst"), "-j RETURN")
	}
	for _, proto := range []string{"TCP", "UDP", "SCTP"} {
		suffix, dirs, note := proto, "dst", ""
		if proto == "SCTP" {
			suffix, dirs, note = "SCTP-HASH", "dst,dst", noteHash
		}
		test := "-p " + strings.ToLower(proto)
		if set := "KUBE-NODE-PORT-LOCAL-" + suffix; w.has(set) {
			w.nodePorts.add(test, comment(fmt.Sprintf(noteLocal, proto, note)), w.asked(set, dirs), "-j RETURN")
		}
		if set := "KUBE-NODE-PORT-" + suffix; w.has(set) {
			w.nodePorts.add(test, comment(fmt.Sprintf(noteNodePort, proto, note)), w.asked(set, dirs), toMark)
		}
	}
	if w.has("KUBE-CLUSTER-IP") {
		local := cmp.Or(w.localSource, w.localIface)
		switch {
		case w.masqueradeAll:
			w.services.add(comment(noteClusterIP), w.asked("KUBE-CLUSTER-IP", "dst,dst"), toMark)
		case local != "":
			w.services.add(not(local), comment(noteClusterIP), w.asked("KUBE-CLUSTER-IP", "dst,dst"), toMark)
		default:
			w.services.add(comment(noteClusterIP), w.asked("KUBE-CLUSTER-IP", "src,dst"), toMark)
		}
	}
	for _, external := range []struct{ set, note string }{{"KUBE-EXTERNAL-IP", noteExternal}, {"KUBE-EXTERNAL-IP-LOCAL", noteExternalLocal}} {
		if !w.has(external.set) {
			continue
		}
		test := comment(external.note) + " " + w.asked(external.set, "dst,dst")
		if external.set == "KUBE-EXTERNAL-IP" {
			w.services.add(test, toMark)
		}
		w.services.add(test, "-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT")
		w.services.add(test, "-m addrtype --dst-type LOCAL -j ACCEPT")
	}
	w.services.add("-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT")
	w.balancers.add(toMark)
	for _, set := range []string{"KUBE-CLUSTER-IP", "KUBE-LOAD-BALANCER"} {
		if w.has(set) {
			w.services.add(w.asked(set, "dst,dst"), "-j ACCEPT")
		}
	}
	masked := w.mark + "/" + w.mark
	w.postrouting.add("-m mark ! --mark", masked, "-j RETURN")
	w.postrouting.add("-j MARK --set-xmark", w.mark+"/0x0")
	random := ""
	if w.randomFully {
		random = "--random-fully"
	}
	w.postrouting.add(comment("kubernetes service traffic requiring SNAT"), "-j MASQUERADE", random)
	w.markMasq.add("-j MARK --set-xmark", masked)
}

// filter writes those of the filter table, without the ones for single load balancers.
func (w *ipvsWriter) filter(on *IPTablesNode) {
	w.forward.name, w.healthChecks.name, w.firewall.name = "KUBE-FORWARD", "KUBE-NODE-PORT", "KUBE-PROXY-FIREWALL"
	w.ranges.name, w.addresses.name, w.ownClients.name = "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER"
	if w.has("KUBE-LOAD-BALANCER-FW") {
		w.firewall.add(comment(noteFirewall), w.asked("KUBE-LOAD-BALANCER-FW", "dst,dst"), "-j KUBE-SOURCE-RANGES-FIREWALL")
	}
	if w.has("KUBE-LOAD-BALANCER-SOURCE-CIDR") {
		w.ranges.add(comment(noteSourceRange), w.asked("KUBE-LOAD-BALANCER-SOURCE-CIDR", "dst,dst,src"), "-j RETURN")
	}
	if w.has("KUBE-LOAD-BALANCER-SOURCE-IP") {
		w.ranges.add(comment(noteSourceIP), w.asked("KUBE-LOAD-BALANCER-SOURCE-IP", "dst,dst,src"), "-j RETURN")
	}
	w.ranges.add("-j DROP")
	w.forward.add(comment("kubernetes forwarding rules"), "-m mark --mark", w.mark+"/"+w.mark, "-j ACCEPT")
	w.forward.add(comment("kubernetes forwarding conntrack rule"), "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	w.healthChecks.add(comment(noteHealthCheck), w.asked("KUBE-HEALTH-CHECK-NODE-PORT", "dst"), "-j ACCEPT")
	if w.minor < 26 {
		return
	}
	sets := []string{"KUBE-LOAD-BALANCER", "KUBE-CLUSTER-IP", "KUBE-EXTERNAL-IP"}
	if w.minor >= 29 || w.minor == 28 && w.passesExternalLocal(on) {
		sets = append(sets, "KUBE-EXTERNAL-IP-LOCAL")
	}
	for _, set := range sets {
		w.addresses.add(w.asked(set, "dst,dst"), "-j RETURN")
	}
	w.addresses.add(w.asked("KUBE-HEALTH-CHECK-NODE-PORT", "dst"), "-j RETURN")
	unreachable := map[netfilter.Family]string{netfilter.IPv4: "icmp-port-unreachable", netfilter.IPv6: "icmp6-port-unreachable"}[w.family]
	w.addresses.add("-m conntrack --ctstate NEW", w.asked("KUBE-IPVS-IPS", "dst"), "-j REJECT --reject-with", unreachable)
}

// passesExternalLocal tells whether a kube-proxy 1.28 lets packets to external addresses of policy Local pass, as its
// later patches do (1.28.0 does not, 1.28.15 does): the rules show it, where they are there.
func (w *ipvsWriter) passesExternalLocal(on *IPTablesNode) bool {
	for _, rs := range on.Rulesets {
		rules := rulesOf(rs, "filter", w.addresses.name)
		if rs.Family == w.family && len(rules) > 0 {
			return slices.ContainsFunc(rules, func(r netfilter.Rule) bool { return strings.Contains(r.Text, "-EXTERNAL-IP-LOCAL ") })
		}
	}
	return true
}

// outFilter writes the rules for load balancers whose source ranges do not hold the node: IPVS takes its own packets
// before any chain looks at sources.
func (w *ipvsWriter) outFilter(plan *intent.Plan, on *IPTablesNode) {
	if w.minor < 29 {
		return
	}
	there := make(map[string]bool)
	for _, rs := range on.Rulesets {
		if rs.Family == w.family {
			for _, r := range rulesOf(rs, "filter", w.ownClients.name) {
				there[r.Text] = true
			}
		}
	}
	for _, sp := range plan.Ports {
		if sp.Family != int(w.family) || len(sp.SourceRanges) == 0 {
			continue
		}
		inside := false
		for _, r := range sp.SourceRanges {
			inside = inside || sp.NodeIP.IsValid() && r.Contains(sp.NodeIP)
		}
		for _, f := range sp.Frontends {
			if f.Kind != intent.LoadBalancer || inside {
				continue
			}
			rule := fmt.Sprintf("-s %s -m ipvs --vproto %d --vaddr %s --vport %d -j DROP", single(f.Addr), dataplane.ProtocolNumber(sp.Protocol), f.Addr, f.Port)
			// Where the node's own address is not known, what is there is right.
			if sp.NodeIP.IsValid() || there["-A "+w.ownClients.name+" "+rule] {
				w.ownClients.add(rule) // no comment says whose it is
			}
		}
	}
}

// result puts the tables together.
func (w *ipvsWriter) result() *IPTables {
	jump := func(from, to, note string) Jump {
		return Jump{from, to, "-A " + from + " " + comment(note) + " -j " + to}
	}
	filter := &Table{Name: "filter", Jumps: []Jump{
		jump("FORWARD", "KUBE-FORWARD", "kubernetes forwarding rules"),
		jump("INPUT", "KUBE-NODE-PORT", "kubernetes health check rules"),
		jump("INPUT", "KUBE-PROXY-FIREWALL", "kube-proxy firewall rules"),
		jump("FORWARD", "KUBE-PROXY-FIREWALL", "kube-proxy firewall rules"),
	}}
	for _, c := range []*chainText{&w.forward, &w.healthChecks, &w.firewall, &w.ranges} {
		filter.Chains = append(filter.Chains, c.chain())
	}
	if w.minor >= 26 {
		filter.Chains = append(filter.Chains, w.addresses.chain())
		filter.Jumps = append(filter.Jumps, jump("INPUT", "KUBE-IPVS-FILTER", "kubernetes ipvs access filter"))
	}
	if w.minor >= 29 {
		own := w.ownClients.chain()
		own.AnyOrder = true
		filter.Chains = append(filter.Chains, own)
		filter.Jumps = append(filter.Jumps, jump("OUTPUT", "KUBE-IPVS-OUT-FILTER", "kubernetes ipvs access filter"))
	}
	nat := &Table{Name: "nat", Jumps: []Jump{
		jump("OUTPUT", "KUBE-SERVICES", "kubernetes service portals"),
		jump("PREROUTING", "KUBE-SERVICES", "kubernetes service portals"),
		jump("POSTROUTING", "KUBE-POSTROUTING", "kubernetes postrouting rules"),
	}}
	for _, c := range []*chainText{&w.services, &w.nodePorts, &w.balancers, &w.postrouting, &w.markMasq} {
		nat.Chains = append(nat.Chains, c.chain())
	}
	out := &IPTables{Family: w.family, Tables: []*Table{filter, nat}}
	for _, t := range out.Tables {
		slices.SortFunc(t.Chains, func(a, b *Chain) int { return cmp.Compare(a.Name, b.Name) })
		t.index()
	}
	return out
}
