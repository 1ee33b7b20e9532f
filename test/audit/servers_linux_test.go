package audit

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
)

// ipvsNode changes a node whose kube-proxy is in IPVS mode: virtual servers, IP sets, addresses, and the rules that go
// with them.
type ipvsNode struct {
	*xtables
	servers map[string]*virtualServer
	sets    []*ipSet
	// old are the rules of iptables mode, as a kube-proxy would have left them.
	old map[int]*ruleText
}

// an ipSet is a set as ipset saves it.
type ipSet struct {
	name, create string
	entries      []string
}

func newIPVS(t *testing.T, m *maker) plane {
	t.Helper()
	m.ipvs = true
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	x := &ipvsNode{}
	// This takes time, and a sample does not get as far as leftover rules.
	if os.Getenv("SVCNET_MUTANTS") != "" || os.Getenv("SVCNET_REPAIR_MUTANTS") != "" {
		x.old = m.oldRules(t)
		empty := &ruleText{}
		for _, table := range []string{"mangle", "nat", "filter"} {
			empty.table(table)
		}
		for _, restore := range []string{"iptables-restore", "ip6tables-restore"} {
			_, err := m.n2.Run(ctx, empty.String(), restore)
			must(err)
		}
	}
	x.xtables = newXTables(t, m).(*xtables)
	var err error
	x.servers, err = virtualServers(m.n1)
	must(err)
	text, err := m.n1.Run(ctx, "", "ipset", "save")
	must(err)
	x.sets = parseSets(text)
	return x
}

// parseSets reads the output of ipset save.
func parseSets(text string) []*ipSet {
	var out []*ipSet
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) > 2 && words[0] == "create":
			out = append(out, &ipSet{name: words[1], create: strings.TrimSpace(line)})
		case len(words) == 3 && words[0] == "add" && len(out) > 0:
			s := out[len(out)-1]
			s.entries = append(s.entries, words[2])
		}
	}
	return out
}

func (x *ipvsNode) kinds() []kind {
	return append([]kind{
		{"real server deleted", x.realDeleted},
		{"set entry deleted", x.entryDeleted},
		{"virtual server deleted", x.serverDeleted},
		{"real server added", x.realAdded},
		{"rule deleted", x.deleted},
		{"address removed", x.addressRemoved},
		{"persistence changed", x.persistence},
		{"weight set to 0", x.weightZero},
		{"scheduler changed", x.schedulerChanged},
		{"set entry added", x.entryAdded},
		{"method changed", x.method},
		{"address added", x.addressAdded},
		{"virtual server added", x.serverAdded},
		{"weight changed", x.weightChanged},
		{"set emptied", x.emptied},
		{"IPVS sysctl", x.serversSysctl},
		{"rule changed", x.ruleChanged},
		{"rule moved", x.movedRule},
		{"jump removed", x.jumpRemoved},
		{"chain flushed", x.flushed},
		{"foreign DNAT", x.foreign},
		{"DROP for half a range", x.half},
		{"policy DROP", x.policy},
		{"leftover iptables rules", x.leftover},
	}, x.common()...)
}

func (x *ipvsNode) rules(ctx context.Context) (string, error) {
	out, err := x.xtables.rules(ctx)
	if err != nil {
		return "", err
	}
	text, err := x.n1.Run(ctx, "", "ipset", "save")
	if err != nil {
		return "", err
	}
	for _, s := range parseSets(text) {
		slices.Sort(s.entries)
		out += fmt.Sprintln(s.name, s.entries)
	}
	servers, err := virtualServers(x.n1)
	if err != nil {
		return "", err
	}
	for _, key := range slices.Sorted(maps.Keys(servers)) {
		out += servers[key].String() + "\n"
	}
	addrs, err := x.n1.Run(ctx, "", "sh", "-c", "ip -o addr | sed 's/^[0-9]*: //; s/valid_lft.*//' | sort")
	return out + addrs, err
}

// changed is a mutant with other virtual servers.
func (x *ipvsNode) changed(v *virtualServer, what string, change func(all map[string]*virtualServer, v *virtualServer)) *mutant {
	all := maps.Clone(x.servers)
	w := v.clone()
	if all[v.key()] != nil {
		all[v.key()] = w
	}
	change(all, w)
	to := func(all map[string]*virtualServer) func(context.Context) error {
		return func(context.Context) error { return program(x.n1, all) }
	}
	family := 4
	if v.at.Addr().Is6() {
		family = 6
	}
	return &mutant{
		family: family, what: fmt.Sprintf("%s: %s", v.key(), what), do: to(all), undo: to(x.servers), places: []string{v.at.String()},
		about: x.servedAt(v.at, strings.ToLower(v.proto)),
	}
}

// servedAt are the Services that have an address and port. Node ports are ports alone.
func (x *ipvsNode) servedAt(at netip.AddrPort, proto string) []string {
	var out []string
	for _, a := range x.acts {
		p := a.svc.Spec.Ports[0]
		if strings.ToLower(string(p.Protocol)) != proto {
			continue
		}
		if int(p.Port) == int(at.Port()) && slices.Contains(a.addresses(), at.Addr().String()) || p.NodePort != 0 && int(p.NodePort) == int(at.Port()) {
			out = append(out, a.svc.Name)
		}
	}
	return out
}

// addresses are those of a Service.
func (a *act) addresses() []string {
	out := slices.Concat(a.svc.Spec.ClusterIPs, a.svc.Spec.ExternalIPs)
	for _, in := range a.svc.Status.LoadBalancer.Ingress {
		out = append(out, in.IP)
	}
	return out
}

// some chooses a virtual server of the stage that fits.
func (x *ipvsNode) server(fits func(v *virtualServer) bool) *virtualServer {
	var in []*virtualServer
	for _, key := range slices.Sorted(maps.Keys(x.servers)) {
		v := x.servers[key]
		if len(x.servedAt(v.at, strings.ToLower(v.proto))) > 0 && (fits == nil || fits(v)) {
			in = append(in, v)
		}
	}
	return choose(x.dice, in)
}

func serves(v *virtualServer) bool { return len(v.reals) > 0 }
func shares(v *virtualServer) bool { return len(v.reals) > 1 }

func (x *ipvsNode) serverDeleted() *mutant {
	return x.changed(x.server(nil), "deleted", func(all map[string]*virtualServer, v *virtualServer) { delete(all, v.key()) })
}

func (x *ipvsNode) serverAdded() *mutant {
	six := x.dice.IntN(2) == 0
	of := x.server(func(v *virtualServer) bool { return serves(v) && v.at.Addr().Is6() == six })
	pod := choose(x.dice, []string{"a1", "c1"})
	own, other := x.n1.IPv4, x.n3.IPv4
	if six {
		own, other = x.n1.IPv6, x.n3.IPv6
	}
	port := of.reals[0].to.Port()
	at := choose(x.dice, []netip.AddrPort{
		netip.AddrPortFrom(x.pods[pod].Addr(six), port), netip.AddrPortFrom(own, 7777), netip.AddrPortFrom(other, port),
		netip.AddrPortFrom(of.at.Addr(), 7777), netip.MustParseAddrPort(map[bool]string{false: "192.0.2.77:80", true: "[2001:db8::77]:80"}[six]),
	})
	v := of.clone()
	v.at = at
	to := x.pods[choose(x.dice, []string{"client-1b", "a2", "c2"})].Addr(six)
	v.reals = []realServer{{netip.AddrPortFrom(to, port), "Masq", 1}}
	u := x.changed(v, fmt.Sprintf("added, to %s", to), func(all map[string]*virtualServer, v *virtualServer) { all[v.key()] = v })
	u.about = nil
	return u
}

func (x *ipvsNode) realDeleted() *mutant {
	v := x.server(serves)
	i := x.dice.IntN(len(v.reals))
	return x.changed(v, "without "+v.reals[i].to.String(), func(_ map[string]*virtualServer, v *virtualServer) { v.reals = slices.Delete(v.reals, i, i+1) })
}

func (x *ipvsNode) realAdded() *mutant {
	v := x.server(nil)
	port := uint16(8080)
	if v.proto == "UDP" {
		port = 5353
	}
	to := netip.AddrPortFrom(x.pods[choose(x.dice, []string{"client-1b", "client-1b", "a2", "c2"})].Addr(v.at.Addr().Is6()), port)
	if slices.ContainsFunc(v.reals, func(r realServer) bool { return r.to == to }) {
		return nil
	}
	return x.changed(v, "with "+to.String(), func(_ map[string]*virtualServer, v *virtualServer) {
		v.reals = append(v.reals, realServer{to, "Masq", 1})
	})
}

// otherReal is a mutant with one real server changed.
func (x *ipvsNode) otherReal(fits func(v *virtualServer) bool, change func(r *realServer)) *mutant {
	v := x.server(fits)
	i := x.dice.IntN(len(v.reals))
	r := v.reals[i]
	change(&r)
	return x.changed(v, fmt.Sprintf("%s %s with weight %d", r.method, r.to, r.weight), func(_ map[string]*virtualServer, v *virtualServer) { v.reals[i] = r })
}

func (x *ipvsNode) weightZero() *mutant {
	return x.otherReal(serves, func(r *realServer) { r.weight = 0 })
}

func (x *ipvsNode) weightChanged() *mutant {
	u := x.otherReal(shares, func(r *realServer) { r.weight = choose(x.dice, []int{2, 5, 100}) })
	u.byWalk = true
	return u
}

func (x *ipvsNode) method() *mutant {
	to := choose(x.dice, []string{"Tunnel", "Route"})
	return x.otherReal(serves, func(r *realServer) { r.method = to })
}

func (x *ipvsNode) schedulerChanged() *mutant {
	to := choose(x.dice, []string{"sh", "sh", "wrr", "lc"})
	weigh := to == "wrr" && x.dice.IntN(2) == 0
	what := "scheduler " + to
	if weigh {
		what += ", and weight 9 for one"
	}
	u := x.changed(x.server(shares), what, func(_ map[string]*virtualServer, v *virtualServer) {
		v.scheduler = to
		if weigh {
			v.reals[0].weight = 9
		}
	})
	u.byWalk = true
	return u
}

func (x *ipvsNode) persistence() *mutant {
	to := choose(x.dice, []int{0, 0, 300})
	v := x.server(func(v *virtualServer) bool { return shares(v) && v.persistent > 0 })
	if x.dice.IntN(3) == 0 {
		to, v = 600, x.server(func(v *virtualServer) bool { return shares(v) && v.persistent == 0 })
	}
	return x.changed(v, fmt.Sprintf("persistent for %d s", to), func(_ map[string]*virtualServer, v *virtualServer) { v.persistent = to })
}

// ipset runs lines of ipset.
func (x *ipvsNode) ipset(lines ...string) func(ctx context.Context) error {
	return x.run(strings.Join(lines, "\n")+"\n", "ipset", "restore")
}

// inSet begins a mutant of a set.
func (x *ipvsNode) inSet(set string, about []string, what, do, undo string) *mutant {
	family := 4
	if strings.HasPrefix(set, "KUBE-6-") {
		family = 6
	}
	u := &mutant{family: family, what: what, about: about, places: []string{set}, do: x.ipset(do), undo: x.ipset(undo)}
	if strings.Contains(set, "-HEALTH-CHECK-") {
		u.hazards = []string{"ipset-entry-missing"} // nobody dials where only kube-proxy would answer
	}
	return u
}

// entry chooses an entry of a Service of the stage.
func (x *ipvsNode) entry() (set, entry string, about []string) {
	var in []*ipSet
	for _, s := range x.sets {
		if slices.ContainsFunc(s.entries, func(e string) bool { return len(x.entryOf(s.name, e)) > 0 }) {
			in = append(in, s)
		}
	}
	s := choose(x.dice, in)
	for {
		e := choose(x.dice, s.entries)
		if about := x.entryOf(s.name, e); len(about) > 0 {
			return s.name, e, about
		}
	}
}

// entryOf are the Services that an entry is for.
func (x *ipvsNode) entryOf(set, entry string) []string {
	parts := strings.Split(entry, ",")
	var out []string
	for _, a := range x.acts {
		p := a.svc.Spec.Ports[0]
		proto := strings.ToLower(string(p.Protocol))
		of := false
		switch {
		case strings.Contains(set, "-HEALTH-"):
			of = a.svc.Spec.HealthCheckNodePort != 0 && entry == fmt.Sprint(a.svc.Spec.HealthCheckNodePort)
		case strings.Contains(set, "-NODE-PORT-"):
			of = strings.HasSuffix(set, strings.ToUpper(proto)) && entry == fmt.Sprint(p.NodePort)
		case strings.Contains(set, "-LOOP-BACK"):
			of = parts[1] == fmt.Sprintf("%s:%d", proto, p.TargetPort.IntVal) && a.listsAddr(parts[0])
		default:
			of = slices.Contains(a.addresses(), parts[0])
		}
		if of {
			out = append(out, a.svc.Name)
		}
	}
	return out
}

func (x *ipvsNode) entryDeleted() *mutant {
	set, entry, about := x.entry()
	at := set + " " + entry
	return x.inSet(set, about, "ipset del "+at, "del "+at, "add "+at)
}

func (x *ipvsNode) entryAdded() *mutant {
	family := choose(x.dice, []int{4, 6})
	a := choose(x.dice, x.acts)
	p := a.svc.Spec.Ports[0]
	proto := strings.ToLower(string(p.Protocol))
	addr := a.addresses()[family/2-2]
	if n := len(a.addresses()); n > 2 {
		addr = a.addresses()[n-2+family/2-2]
	}
	service := fmt.Sprintf("%s,%s:%d", addr, proto, p.Port)
	client, own, pod := "172.30.0.0/24", x.n1.IPv4, x.pods["c2"].Addr(false)
	if family == 6 {
		client, own, pod = "fd00:30::/64", x.n1.IPv6, x.pods["c2"].Addr(true)
	}
	of := []struct{ set, entry string }{
		{"CLUSTER-IP", fmt.Sprintf("%s,%s:%d", addr, proto, 7777)},
		{"LOAD-BALANCER-LOCAL", service},
		{"LOAD-BALANCER-FW", service},
		{"LOAD-BALANCER-SOURCE-CIDR", service + "," + client},
		{"EXTERNAL-IP", service},
		{"EXTERNAL-IP-LOCAL", service},
		{"LOOP-BACK", fmt.Sprintf("%s,tcp:8080,%[1]s", pod)},
		{"IPVS-IPS", own.String()},
	}
	if p.NodePort != 0 {
		set := "NODE-PORT-LOCAL-" + strings.ToUpper(proto)
		of = append(of, struct{ set, entry string }{set, fmt.Sprint(p.NodePort)}, struct{ set, entry string }{set, fmt.Sprint(p.NodePort)})
	}
	add := choose(x.dice, of)
	prefix := map[int]string{4: "KUBE-", 6: "KUBE-6-"}[family]
	i := slices.IndexFunc(x.sets, func(s *ipSet) bool { return s.name == (prefix + add.set)[:min(31, len(prefix+add.set))] })
	if i < 0 || slices.Contains(x.sets[i].entries, add.entry) {
		return nil
	}
	at := x.sets[i].name + " " + add.entry
	u := x.inSet(x.sets[i].name, x.entryOf(x.sets[i].name, add.entry), "ipset add "+at, "add "+at, "del "+at)
	return u
}

func (x *ipvsNode) emptied() *mutant {
	set, _, _ := x.entry()
	i := slices.IndexFunc(x.sets, func(s *ipSet) bool { return s.name == set })
	return x.inSet(set, nil, "ipset flush "+set, "flush "+set, "add "+set+" "+strings.Join(x.sets[i].entries, "\nadd "+set+" "))
}

const kubeDevice = "kube-ipvs0"

// onDevice is a mutant of the addresses of kube-ipvs0.
func (x *ipvsNode) onDevice(addr netip.Addr, how, back string, about []string) *mutant {
	line := func(how string) []string {
		return []string{"ip", "addr", how, prefixed(addr), "dev", kubeDevice}
	}
	family := 4
	if addr.Is6() {
		family = 6
	}
	return &mutant{
		family: family, what: strings.Join(line(how), " "), about: about, places: []string{addr.String()},
		do: x.run("", line(how)...), undo: x.run("", line(back)...),
	}
}

func (x *ipvsNode) addressRemoved() *mutant {
	a := choose(x.dice, x.acts)
	return x.onDevice(netip.MustParseAddr(choose(x.dice, a.addresses())), "del", "add", []string{a.svc.Name})
}

func (x *ipvsNode) addressAdded() *mutant {
	six := x.dice.IntN(2) == 0
	client, other, nobody := x.Client.IPv4, x.n3.IPv4, "10.96.7.99"
	if six {
		client, other, nobody = x.Client.IPv6, x.n3.IPv6, "fd00:96::799"
	}
	pod := x.pods[choose(x.dice, []string{"c1", "c2", "a1", "client-1"})].Addr(six)
	return x.onDevice(choose(x.dice, []netip.Addr{client, other, pod, pod, netip.MustParseAddr(nobody)}), "add", "del", nil)
}

func (x *ipvsNode) serversSysctl() *mutant {
	return x.setting(choose(x.dice, []knob{
		{"net.ipv4.vs.conntrack", "0", ""},
		{"net.ipv4.vs.conntrack", "0", ""},
		{"net.ipv4.vs.conn_reuse_mode", "0", ""},
		{"net.ipv4.vs.expire_nodest_conn", "0", ""},
		{"net.ipv4.vs.expire_quiescent_template", "0", ""},
		{"net.ipv4.vs.snat_reroute", "0", ""},
		{"net.ipv4.vs.nat_icmp_send", "1", ""},
	}))
}

// ruleChanged has a rule ask another set, or otherwise, or mark otherwise.
func (x *ipvsNode) ruleChanged() *mutant {
	if x.dice.IntN(3) == 0 {
		return x.mark()
	}
	family, r, t, i := x.some(asksSet.MatchString)
	if t == nil {
		return nil
	}
	rule := t.rules[i]
	asks := asksSet.FindStringSubmatch(rule)
	set, dirs, not := asks[2], asks[3], asks[1]
	switch x.dice.IntN(3) {
	case 0:
		if not != "" {
			not = ""
		} else {
			not = "! "
		}
	case 1:
		first, rest, _ := strings.Cut(dirs, ",")
		dirs = map[string]string{"src": "dst", "dst": "src"}[first]
		if rest != "" {
			dirs += "," + rest
		}
	case 2:
		var in []string
		for _, s := range x.sets {
			if strings.HasPrefix(s.name, "KUBE-6-") == (family == 6) && s.kind() == x.kindOf(set) && s.name != set {
				in = append(in, s.name)
			}
		}
		if len(in) == 0 {
			return nil
		}
		set = choose(x.dice, in)
	}
	return x.replaced(family, r, t, i, strings.Replace(rule, asks[0], not+"--match-set "+set+" "+dirs, 1))
}

// kind is the type of a set.
func (s *ipSet) kind() string { return strings.Fields(s.create)[2] }

func (x *ipvsNode) kindOf(set string) string {
	for _, s := range x.sets {
		if s.name == set {
			return s.kind()
		}
	}
	return ""
}

// leftover puts rules of iptables mode among those of IPVS mode, as when kube-proxy's mode was changed.
func (x *ipvsNode) leftover() *mutant {
	if x.old == nil {
		return nil
	}
	family, r := x.either()
	old := x.old[family].clone()
	what := x.spoil(family, old)
	for _, t := range old.tables {
		to := r.table(t.name)
		for _, c := range t.chains {
			name, _, _ := strings.Cut(c, " ")
			if !slices.ContainsFunc(to.chains, func(have string) bool { return strings.HasPrefix(have, name+" ") }) {
				to.chains = append(to.chains, c)
			}
		}
		at := map[string]int{}
		for _, rule := range t.rules {
			if slices.Contains(to.rules, rule) {
				continue
			}
			to.insert(at[chainOf(rule)], rule)
			at[chainOf(rule)]++
		}
	}
	u := x.mutant(family, r, fmt.Sprintf("IPv%d: %s of iptables mode among its rules", family, what), "KUBE-")
	// Answers of pods elsewhere go past the node, so that their clients cannot tell a rule that drops from one that does not.
	u.hazards = []string{"leftover-proxy-mode-rules", "two-service-proxies", "reject-rule-with-ready-endpoints"}
	return u
}
