package kubeproxy

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/traits"
)

// IPTablesFor says what a kube-proxy in iptables mode writes for one family.
//
// Known are the releases 1.24 to 1.36, read from the source of each and held against what 1.29 to 1.36 wrote; newer ones
// are taken for the newest. The error says in words what is not known: the release, how local pods are told, endpoints.
func IPTablesFor(family netfilter.Family, plan *intent.Plan, p *traits.Proxy, on *IPTablesNode) (*IPTables, error) {
	s, err := settingsOf(family, plan, p, on)
	if err != nil {
		return nil, err
	}
	w := newIPTablesWriter(s)
	w.begin()
	for _, sp := range plan.Ports {
		if sp.Family == int(family) {
			w.port(sp)
		}
	}
	w.end(on)
	return w.result(), nil
}

// iptablesWriter writes the rules of one family, in the order in which kube-proxy does.
type iptablesWriter struct {
	iptablesSettings
	refusals, external, forward, healthChecks, firewall, kubelets chainText // of filter
	services, nodePorts, postrouting, markMasq                    chainText // of nat
	// perService are the chains of nat that are of one Service each.
	perService []*Chain
}

func newIPTablesWriter(s iptablesSettings) *iptablesWriter {
	w := &iptablesWriter{iptablesSettings: s}
	w.refusals.name, w.external.name, w.forward.name = "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-FORWARD"
	w.healthChecks.name, w.firewall.name, w.kubelets.name = "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL", "KUBE-FIREWALL"
	w.services.name, w.nodePorts.name = "KUBE-SERVICES", "KUBE-NODEPORTS"
	w.postrouting.name, w.markMasq.name = "KUBE-POSTROUTING", "KUBE-MARK-MASQ"
	return w
}

// begin writes what is the same for all Services.
func (w *iptablesWriter) begin() {
	masked := w.mark + "/" + w.mark
	w.postrouting.add("-m mark ! --mark", masked, "-j RETURN")
	w.postrouting.add("-j MARK --set-xmark", w.mark+"/0x0")
	random := ""
	if w.randomFully {
		random = "--random-fully"
	}
	w.postrouting.add(comment("kubernetes service traffic requiring SNAT"), "-j MASQUERADE", random)
	w.markMasq.add("-j MARK --set-xmark", masked)
	if w.minor >= 27 && w.family == netfilter.IPv4 && w.loopback {
		w.kubelets.add("! -s 127.0.0.0/8 -d 127.0.0.0/8", comment("block incoming localnet connections"), "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP")
	}
}

// end writes what comes behind all Services.
func (w *iptablesWriter) end(on *IPTablesNode) {
	w.services.service, w.services.last = "", true
	note := comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")
	switch {
	case w.nodePortUnknown:
		w.keepNodePorts(on)
	case w.nodePortAll:
		spared := ""
		switch {
		case w.minor < 26:
		case w.family == netfilter.IPv6:
			spared = "! -d ::1/128"
		case !w.loopback:
			spared = "! -d 127.0.0.0/8"
		}
		w.services.add(spared, note, "-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS")
	default:
		for _, a := range w.nodePortAddrs {
			w.services.add("-d", single(a), note, "-j KUBE-NODEPORTS")
		}
	}
	if w.dropInvalid {
		counter := ""
		if w.countInvalid {
			counter = "-m nfacct --nfacct-name  " + invalidCounter
		}
		w.forward.add("-m conntrack --ctstate INVALID", counter, "-j DROP")
	}
	w.forward.add(comment("kubernetes forwarding rules"), "-m mark --mark", w.mark+"/"+w.mark, "-j ACCEPT")
	w.forward.add(comment("kubernetes forwarding conntrack rule"), "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
}

// keepNodePorts takes the jumps to node ports as they are, where nobody knows the addresses that they ought to name.
func (w *iptablesWriter) keepNodePorts(on *IPTablesNode) {
	for _, rs := range on.Rulesets {
		if rs.Family != w.family {
			continue
		}
		for _, r := range rulesOf(rs, "nat", w.services.name) {
			if j, ok := r.Target.(netfilter.Jump); ok && j.Chain == w.nodePorts.name {
				w.services.add(r.Text[len("-A KUBE-SERVICES "):])
			}
		}
	}
}

// result puts the tables together.
func (w *iptablesWriter) result() *IPTables {
	filter := &Table{Name: "filter", Jumps: w.filterJumps()}
	for _, c := range []*chainText{&w.refusals, &w.external, &w.healthChecks, &w.firewall} {
		if c == &w.firewall && w.minor < 25 {
			continue
		}
		chain := c.chain()
		chain.AnyOrder = true
		filter.Chains = append(filter.Chains, chain)
	}
	filter.Chains = append(filter.Chains, w.forward.chain())
	if w.minor >= 27 {
		firewall := w.kubelets.chain()
		firewall.Kubelets = true
		filter.Chains = append(filter.Chains, firewall)
	}

	nat := &Table{Name: "nat", Jumps: []Jump{
		{"PREROUTING", "KUBE-SERVICES", "-A PREROUTING " + portals + " -j KUBE-SERVICES"},
		{"OUTPUT", "KUBE-SERVICES", "-A OUTPUT " + portals + " -j KUBE-SERVICES"},
		{"POSTROUTING", "KUBE-POSTROUTING", "-A POSTROUTING " + comment("kubernetes postrouting rules") + " -j KUBE-POSTROUTING"},
	}}
	for _, c := range []*chainText{&w.services, &w.nodePorts} {
		chain := c.chain()
		chain.AnyOrder = true
		nat.Chains = append(nat.Chains, chain)
	}
	nat.Chains = append(nat.Chains, w.postrouting.chain(), w.markMasq.chain())
	if w.minor == 24 {
		nat.Chains = append(nat.Chains, &Chain{Name: "KUBE-MARK-DROP", Kubelets: true, Exists: true})
	}
	nat.Chains = append(nat.Chains, w.perService...)

	mangle := &Table{Name: "mangle"}
	out := &IPTables{Family: w.family, Tables: []*Table{filter, mangle, nat}}
	for _, t := range out.Tables {
		t.Chains = append(t.Chains, &Chain{Name: canary})
		slices.SortFunc(t.Chains, func(a, b *Chain) int { return cmp.Compare(a.Name, b.Name) })
		t.index()
	}
	return out
}

// canary is a chain that nothing leads to: kube-proxy writes everything anew when somebody removed it.
const canary = "KUBE-PROXY-CANARY"

var portals = comment("kubernetes service portals")

// filterJumps are the jumps of the filter table, by chain.
func (w *iptablesWriter) filterJumps() []Jump {
	const fresh = "-m conntrack --ctstate NEW"
	firewall := fresh + " " + comment("kubernetes load balancer firewall")
	external := fresh + " " + comment("kubernetes externally-visible service portals")
	services := fresh + " " + portals
	var out []Jump
	add := func(since int, from, to, tests string) {
		if w.minor < since {
			return
		}
		text := "-A " + from
		if tests != "" {
			text += " " + tests
		}
		out = append(out, Jump{from, to, text + " -j " + to})
	}
	add(27, "INPUT", "KUBE-FIREWALL", "")
	add(25, "INPUT", "KUBE-PROXY-FIREWALL", firewall)
	add(0, "INPUT", "KUBE-NODEPORTS", comment("kubernetes health check service ports"))
	add(0, "INPUT", "KUBE-EXTERNAL-SERVICES", external)
	add(25, "FORWARD", "KUBE-PROXY-FIREWALL", firewall)
	add(0, "FORWARD", "KUBE-FORWARD", comment("kubernetes forwarding rules"))
	add(0, "FORWARD", "KUBE-SERVICES", services)
	add(0, "FORWARD", "KUBE-EXTERNAL-SERVICES", external)
	add(27, "OUTPUT", "KUBE-FIREWALL", "")
	add(25, "OUTPUT", "KUBE-PROXY-FIREWALL", firewall)
	add(0, "OUTPUT", "KUBE-SERVICES", services)
	return out
}

// iptablesPort writes the rules of one service port.
type iptablesPort struct {
	*iptablesWriter
	*intent.ServicePort
	key, service, proto, id string
	// chains are those of the Service, made so far.
	hasEndpoints, hasInternal, hasExternal bool
	vips, externals                        []netip.Addr
}

func (w *iptablesWriter) port(sp *intent.ServicePort) {
	p := iptablesPort{iptablesWriter: w, ServicePort: sp, key: sp.Key(), service: sp.Namespace + "/" + sp.Name, proto: lower(sp.Protocol)}
	p.id = dataplane.ChainID(p.key, sp.Protocol)
	for _, f := range sp.Frontends {
		switch f.Kind {
		case intent.LoadBalancer:
			p.vips = append(p.vips, f.Addr)
		case intent.ExternalIP:
			p.externals = append(p.externals, f.Addr)
		}
	}
	p.hasEndpoints = len(sp.Usable) > 0
	p.hasInternal = p.hasEndpoints && (!sp.InternalLocal || len(sp.Local) > 0)
	p.hasExternal = p.hasEndpoints && (!sp.ExternalLocal || len(sp.Local) > 0)
	if w.minor == 24 { // refuses what it cannot deliver with a mark
		p.hasInternal, p.hasExternal = p.hasEndpoints, p.hasEndpoints
	}
	for _, c := range []*chainText{&w.services, &w.refusals, &w.external, &w.nodePorts, &w.healthChecks, &w.firewall} {
		c.service = p.service
	}
	p.portals()
	p.write()
}

// lower is a protocol as iptables names it.
func lower(protocol string) string {
	switch protocol {
	case "TCP":
		return "tcp"
	case "UDP":
		return "udp"
	}
	return "sctp"
}

// clusterIP is the Service's own address.
func (p *iptablesPort) clusterIP() netip.Addr {
	for _, f := range p.Frontends {
		if f.Kind == intent.ClusterIP {
			return f.Addr
		}
	}
	return netip.Addr{}
}

func (p *iptablesPort) svc() string { return dataplane.SVCPrefix + p.id }
func (p *iptablesPort) svl() string { return dataplane.SVLPrefix + p.id }
func (p *iptablesPort) ext() string { return dataplane.EXTPrefix + p.id }
func (p *iptablesPort) fw() string  { return dataplane.FWPrefix + p.id }

// internal is the chain of what comes to the cluster IP.
func (p *iptablesPort) internal() string {
	if p.InternalLocal {
		return p.svl()
	}
	return p.svc()
}

// usesFirewall tells whether load balancer addresses are for some sources only.
func (p *iptablesPort) usesFirewall() bool {
	return p.hasEndpoints && len(p.vips) > 0 && len(p.SourceRanges) > 0
}

// to is the rule for packets to an address of the port: its tests around a comment.
func (p *iptablesPort) to(c *chainText, a netip.Addr, note, target string) {
	c.add("-d", single(a), "-p", p.proto, note, "-m", p.proto, "--dport", strconv.Itoa(p.Port), "-j", target)
}

// portals writes the rules of shared chains.
func (p *iptablesPort) portals() {
	nobody, noneHere := comment(p.key, " has no endpoints"), comment(p.key, " has no local endpoints")
	reject := "REJECT --reject-with icmp-port-unreachable"
	if p.family == netfilter.IPv6 {
		reject = "REJECT --reject-with icmp6-port-unreachable"
	}
	refusal, why := reject, nobody
	if p.hasEndpoints {
		refusal, why = "DROP", noneHere
	}

	if p.hasInternal {
		p.to(&p.services, p.clusterIP(), comment(p.key, " cluster IP"), p.internal())
	} else {
		p.to(&p.refusals, p.clusterIP(), why, refusal)
	}
	for _, a := range p.externals {
		if p.hasEndpoints {
			p.to(&p.services, a, comment(p.key, " external IP"), p.ext())
		}
		if !p.hasExternal {
			p.to(&p.external, a, why, refusal)
		}
	}
	for _, a := range p.vips {
		if p.hasEndpoints {
			target := p.ext()
			if p.usesFirewall() {
				target = p.fw()
			}
			p.to(&p.services, a, comment(p.key, " loadbalancer IP"), target)
		}
		if p.usesFirewall() && p.minor >= 25 {
			p.to(&p.firewall, a, comment(p.key, " traffic not accepted by ", p.fw()), "DROP")
		}
		if !p.hasExternal {
			p.to(&p.external, a, why, refusal)
		}
	}
	p.nodePort(why, refusal)
	if p.HealthCheckNodePort != 0 {
		p.healthChecks.add("-p tcp", comment(p.key, " health check node port"), "-m tcp --dport", strconv.Itoa(p.HealthCheckNodePort), "-j ACCEPT")
	}
}

// nodePort writes the rules of the node port. Up to 1.26 there are none where no address of the node serves any.
func (p *iptablesPort) nodePort(why, refusal string) {
	nowhere := !p.nodePortAll && !p.nodePortUnknown && len(p.nodePortAddrs) == 0
	if p.NodePort == 0 || nowhere && p.minor < 27 {
		return
	}
	port := strconv.Itoa(p.NodePort)
	if p.hasEndpoints {
		if p.countLoopback {
			p.nodePorts.add("-d 127.0.0.0/8 -p", p.proto, comment(p.key), "-m", p.proto, "--dport", port, "-m nfacct --nfacct-name ", loopbackCounter, "-j", p.ext())
		}
		p.nodePorts.add("-p", p.proto, comment(p.key), "-m", p.proto, "--dport", port, "-j", p.ext())
	}
	if !p.hasExternal {
		p.external.add("-p", p.proto, why, "-m addrtype --dst-type LOCAL -m", p.proto, "--dport", port, "-j", refusal)
	}
}

// write writes the chains of the port.
func (p *iptablesPort) write() {
	if !p.hasEndpoints {
		return
	}
	if p.usesCluster() {
		c := p.start(p.svc())
		p.masqueradeInternal(c)
		p.choose(c, p.Cluster)
		p.done(c)
	}
	if p.usesLocal() {
		c := p.start(p.svl())
		p.masqueradeInternal(c)
		if p.minor == 24 && len(p.Local) == 0 {
			c.add(comment(p.key, " has no local endpoints"), "-j KUBE-MARK-DROP")
		}
		p.choose(c, p.Local)
		p.done(c)
	}
	if len(p.externals) > 0 || len(p.vips) > 0 || p.NodePort != 0 {
		p.externalChain()
	}
	if p.usesFirewall() {
		p.firewallChain()
	}
	p.endpoints()
}

// usesCluster and usesLocal tell whether there is a chain of the endpoints of that policy. 1.24 makes one without any.
func (p *iptablesPort) usesCluster() bool {
	return len(p.Cluster) > 0
}

func (p *iptablesPort) usesLocal() bool {
	outside := len(p.externals) > 0 || len(p.vips) > 0 || p.NodePort != 0
	return len(p.Local) > 0 || p.minor == 24 && (p.InternalLocal || p.ExternalLocal && outside)
}

func (p *iptablesPort) start(name string) *chainText {
	return &chainText{name: name, service: p.service}
}

func (p *iptablesPort) done(c *chainText) {
	chain := c.chain()
	chain.Service = p.service
	p.perService = append(p.perService, chain)
}

// masqueradeInternal is the rule for sources outside of the cluster that come to the cluster IP.
func (p *iptablesPort) masqueradeInternal(c *chainText) {
	if c.name != p.internal() || !p.hasInternal {
		return
	}
	tests := []string{"-d " + single(p.clusterIP())}
	switch {
	case p.masqueradeAll:
	case p.localSource != "":
		tests = []string{not(p.localSource), tests[0]}
	case p.localIface != "":
		tests = append(tests, not(p.localIface))
	default:
		return
	}
	c.add(append(tests, "-p "+p.proto, comment(p.key, " cluster IP"), "-m", p.proto, "--dport", strconv.Itoa(p.Port), "-j KUBE-MARK-MASQ")...)
}

// choose chooses one endpoint of a list: that of the client's last connection, or one by lot.
func (p *iptablesPort) choose(c *chainText, list []int) {
	for _, i := range list {
		if p.AffinitySeconds == 0 {
			break
		}
		sep := p.sep(i)
		c.add(p.endpointComment(" -> ", p.Endpoints[i].String()), "-m recent --rcheck --seconds", strconv.Itoa(p.AffinitySeconds),
			"--reap --name", sep, recentMask(p.family), "-j", sep)
	}
	for at, i := range list {
		chance := ""
		if left := len(list) - at; left > 1 {
			chance = "-m statistic --mode random --probability " + probability(left)
		}
		c.add(p.endpointComment(" -> ", p.Endpoints[i].String()), chance, "-j", p.sep(i))
	}
}

// endpointComment is a comment that large clusters do without.
func (p *iptablesPort) endpointComment(rest ...string) string {
	if p.large {
		return ""
	}
	return comment(append([]string{p.key}, rest...)...)
}

// recentMask is how the kernel keeps the clients of a list: each by itself, by source.
func recentMask(f netfilter.Family) string {
	if f == netfilter.IPv6 {
		return "--mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource"
	}
	return "--mask 255.255.255.255 --rsource"
}

// probability is 1/n as kube-proxy writes it, with ten digits, and as iptables prints what the kernel makes of that: a
// multiple of 2^-31.
func probability(n int) string {
	written, err := strconv.ParseFloat(strconv.FormatFloat(1/float64(n), 'f', 10, 64), 64)
	if err != nil {
		panic(err) // a number that was printed a moment ago
	}
	const unit = 1 << 31
	return strconv.FormatFloat(float64(int64(written*unit+0.5))/unit, 'f', 11, 64)
}

func (p *iptablesPort) sep(i int) string {
	return dataplane.SEPName(p.key, p.Protocol, p.Endpoints[i].String())
}

// externalChain is where packets to external addresses, load balancer addresses and node ports enter.
func (p *iptablesPort) externalChain() {
	c := p.start(p.ext())
	about := func(before string) string { return comment(before, p.key, " external destinations") }
	if !p.ExternalLocal {
		c.add(about("masquerade traffic for "), "-j KUBE-MARK-MASQ")
		c.add("-j", p.svc())
		p.done(c)
		return
	}
	if p.localSource != "" || p.localIface != "" {
		c.add(p.localSource, p.localIface, about("pod traffic for "), "-j", p.svc())
	}
	c.add(about("masquerade LOCAL traffic for "), "-m addrtype --src-type LOCAL -j KUBE-MARK-MASQ")
	c.add(about("route LOCAL traffic for "), "-m addrtype --src-type LOCAL -j", p.svc())
	if p.hasExternal {
		c.add("-j", p.svl())
	}
	p.done(c)
}

// firewallChain lets the source ranges of a load balancer in. Where the node itself is in one of them, so is the address
// of the load balancer: it is what the node takes as its source when it has that address.
func (p *iptablesPort) firewallChain() {
	c := p.start(p.fw())
	about := comment(p.key, " loadbalancer IP")
	inside := slices.ContainsFunc(p.SourceRanges, func(r netip.Prefix) bool { return p.NodeIP.IsValid() && r.Contains(p.NodeIP) })
	ranges := func() {
		for _, r := range p.SourceRanges {
			c.add(source(r), about, "-j", p.ext())
		}
	}
	if p.minor == 24 { // all of it again for each address
		for _, a := range p.vips {
			ranges()
			if inside {
				c.add("-s "+single(a), about, "-j", p.ext())
			}
			c.add(about, "-j KUBE-MARK-DROP")
		}
		p.done(c)
		return
	}
	ranges()
	if inside {
		for _, a := range p.vips {
			c.add("-s "+single(a), about, "-j", p.ext())
		}
	}
	if p.minor >= 27 {
		c.add(comment("other traffic to ", p.key, " will be dropped by KUBE-PROXY-FIREWALL"))
	}
	p.done(c)
}

// endpoints writes the chain of each endpoint that is used.
func (p *iptablesPort) endpoints() {
	for i := range p.Endpoints {
		if !slices.Contains(p.Cluster, i) && !slices.Contains(p.Local, i) {
			continue
		}
		e := &p.Endpoints[i]
		c := p.start(p.sep(i))
		note := p.endpointComment()
		c.add("-s", single(e.Addr), note, "-j KUBE-MARK-MASQ")
		remember := ""
		if p.AffinitySeconds != 0 {
			remember = "-m recent --set --name " + c.name + " " + recentMask(p.family)
		}
		c.add("-p", p.proto, note, remember, "-m", p.proto, "-j DNAT --to-destination", e.String())
		p.done(c)
	}
}
