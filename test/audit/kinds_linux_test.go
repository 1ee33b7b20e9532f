package audit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/test/lab"
)

// a mutant is one change to a node that is as it should be.
type mutant struct {
	kind string
	// what is the change in words, with all that is needed to do it by hand.
	what string
	// rules are the rules of one family to load in place of the node's; nil: do and undo change something else.
	rules    *ruleText
	family   int
	do, undo func(ctx context.Context) error
	// about are the Services that the change is about; none: it may be about all.
	about []string
	// places are words of which a finding must name one, in its subject or evidence: the chain, the rule, the sysctl,
	// the route; none: the Service is enough.
	places []string
	// hazards are findings that are true of the change whether packets meet it or not.
	hazards []string
	// byWalk: connections do not show it, shares do. They are those of the program's own walk.
	byWalk bool
	// byObjects: the objects change and no packet moves, so that what happens is wrong from now on.
	byObjects bool
	// flow is a connection that must be answered, beside those of the grid.
	flow *flow
}

// a flow is one connection by its two ends.
type flow struct {
	service string
	from    lab.Place
	source  netip.AddrPort
	to      netip.AddrPort
}

// maker makes mutants of a stage.
type maker struct {
	*stage
	dice *rand.Rand
	// clean are the rules of the node as it should be, by family.
	clean map[int]*ruleText
	owner map[int]map[string]string
}

// kinds are the changes, in the order of the table. Each makes a mutant, or none when the dice chose something that
// is not there.
var kinds = []struct {
	name string
	make func(m *maker) *mutant
}{
	{"rule deleted", (*maker).deleted},
	{"rule duplicated", (*maker).duplicated},
	{"rule moved", (*maker).movedRule},
	{"DNAT target changed", (*maker).target},
	{"mark changed", (*maker).mark},
	{"probability changed", (*maker).probability},
	{"address changed", (*maker).address},
	{"chain flushed", (*maker).flushed},
	{"jump removed", (*maker).jumpRemoved},
	{"ACCEPT before jump", (*maker).accepted},
	{"policy DROP", (*maker).policy},
	{"DROP for half a range", (*maker).half},
	{"foreign DNAT", (*maker).foreign},
	{"NOTRACK", (*maker).notrack},
	{"second backend", (*maker).second},
	{"sysctl", (*maker).sysctl},
	{"route", (*maker).route},
	{"stale UDP flow", (*maker).staleFlow},
	{"Service changed", (*maker).serviceChanged},
	{"endpoints changed", (*maker).endpointsChanged},
}

func choose[T any](m *maker, of []T) T { return of[m.dice.IntN(len(of))] }

// either is IPv4 or IPv6, with a copy of the rules to change.
func (m *maker) either() (int, *ruleText) {
	family := choose(m, []int{4, 6})
	return family, m.clean[family].clone()
}

// notOurs leaves out rules that nobody dials: of the lab's own Services, and canaries.
var notOurs = regexp.MustCompile(`default/kubernetes|svcnet-lab/sentinel|CANARY`)

// eligible are the indexes of rules that fit and are of Services of the stage, or of all.
func (m *maker) eligible(family int, t *tableText, fits func(rule string) bool) []int {
	var out []int
	for i, rule := range t.rules {
		chain := chainOf(rule)
		if notOurs.MatchString(rule) || serviceChain.MatchString(chain) && m.owner[family][chain] == "" {
			continue
		}
		if fits == nil || fits(rule) {
			out = append(out, i)
		}
	}
	return out
}

// some chooses a rule.
func (m *maker) some(fits func(rule string) bool) (int, *ruleText, *tableText, int) {
	family, r := m.either()
	t := r.table("nat")
	if m.dice.IntN(4) == 0 {
		t = r.table("filter")
	}
	in := m.eligible(family, t, fits)
	if len(in) == 0 {
		return family, r, nil, 0
	}
	return family, r, t, choose(m, in)
}

// of begins a mutant of a rule: about whom it is, and which chains a finding may name.
func (m *maker) of(family int, r *ruleText, rule, what string) *mutant {
	u := &mutant{rules: r, family: family, what: what, places: []string{chainOf(rule)}}
	if j := jumpOf(rule); strings.HasPrefix(j, "KUBE-") {
		u.places = append(u.places, j)
	}
	if s := m.serviceOf(family, rule); s != "" {
		u.about = []string{s}
	}
	return u
}

func (m *maker) serviceOf(family int, rule string) string {
	if c := serviceComment.FindStringSubmatch(rule); c != nil {
		return c[1]
	}
	return m.owner[family][chainOf(rule)]
}

func (m *maker) deleted() *mutant {
	family, r, t, i := m.some(nil)
	if t == nil {
		return nil
	}
	rule := t.rules[i]
	t.rules = slices.Delete(t.rules, i, i+1)
	u := m.of(family, r, rule, fmt.Sprintf("IPv%d -t %s -D: %s", family, t.name, rule))
	if isJump(rule) {
		u.hazards = []string{"kube-jump-missing"}
	}
	return u
}

// isJump tells the jumps into kube-proxy's chains from the kernel's own.
func isJump(rule string) bool {
	return strings.HasPrefix(jumpOf(rule), "KUBE-") && !strings.HasPrefix(chainOf(rule), "KUBE-")
}

func (m *maker) duplicated() *mutant {
	family, r, t, i := m.some(nil)
	if t == nil {
		return nil
	}
	rule := t.rules[i]
	at := m.dice.IntN(len(t.of(chainOf(rule))) + 1)
	t.insert(at, rule)
	u := m.of(family, r, rule, fmt.Sprintf("IPv%d -t %s again at %d: %s", family, t.name, at+1, rule))
	u.byWalk = true
	return u
}

func (m *maker) movedRule() *mutant {
	family, r, t, i := m.some(nil)
	if t == nil {
		return nil
	}
	rule := t.rules[i]
	n := len(t.of(chainOf(rule)))
	if n < 2 {
		return nil
	}
	t.rules = slices.Delete(t.rules, i, i+1)
	at := m.dice.IntN(n)
	t.insert(at, rule)
	u := m.of(family, r, rule, fmt.Sprintf("IPv%d -t %s moved to %d: %s", family, t.name, at+1, rule))
	u.byWalk = true
	if serviceChain.MatchString(chainOf(rule)) {
		return u
	}
	u.about = nil // what stood behind it may be met no more
	if isJump(rule) {
		u.hazards = []string{"kube-jump-missing"}
	}
	return u
}

// replaced is a mutant with one rule in place of another.
func (m *maker) replaced(family int, r *ruleText, t *tableText, i int, rule string) *mutant {
	old := t.rules[i]
	if rule == old {
		return nil
	}
	t.rules[i] = rule
	return m.of(family, r, old, fmt.Sprintf("IPv%d -t %s: %s\n  now: %s", family, t.name, old, rule))
}

var destination = regexp.MustCompile(`--to-destination (\S+)`)

func (m *maker) target() *mutant {
	family, r := m.either()
	t := r.table("nat")
	in := m.eligible(family, t, destination.MatchString)
	i := choose(m, in)
	old := netip.MustParseAddrPort(destination.FindStringSubmatch(t.rules[i])[1])
	var to netip.AddrPort
	switch m.dice.IntN(3) {
	case 0: // another pod
		to = netip.AddrPortFrom(m.pods[choose(m, []string{"a1", "a2", "c1", "c2", "client-1b"})].Addr(family == 6), old.Port())
	case 1: // nobody
		to = netip.AddrPortFrom(netip.MustParseAddr(map[int]string{4: "10.244.1.77", 6: "fd00:244:1::77"}[family]), old.Port())
	case 2:
		to = netip.AddrPortFrom(old.Addr(), old.Port()+1)
	}
	return m.replaced(family, r, t, i, destination.ReplaceAllString(t.rules[i], "--to-destination "+to.String()))
}

func (m *maker) mark() *mutant {
	family, r, t, i := m.some(func(rule string) bool { return strings.Contains(rule, "0x4000") })
	if t == nil {
		return nil
	}
	return m.replaced(family, r, t, i, strings.ReplaceAll(t.rules[i], "0x4000", choose(m, []string{"0x8000", "0x2000", "0x1"})))
}

var probability = regexp.MustCompile(`--probability (\S+)`)

func (m *maker) probability() *mutant {
	family, r := m.either()
	t := r.table("nat")
	i := choose(m, m.eligible(family, t, probability.MatchString))
	old, err := strconv.ParseFloat(probability.FindStringSubmatch(t.rules[i])[1], 64)
	if err != nil {
		return nil
	}
	now := choose(m, []float64{0.05, 0.2, 0.7, 0.9, 0, old + 0.001, old - 0.0005})
	u := m.replaced(family, r, t, i, probability.ReplaceAllString(t.rules[i], fmt.Sprintf("--probability %.11f", now)))
	if u != nil {
		u.byWalk = true
	}
	return u
}

var dport = regexp.MustCompile(`--dport (\d+)`)

func (m *maker) address() *mutant {
	matches := []*regexp.Regexp{regexp.MustCompile(` -d \S+`), dport, regexp.MustCompile(` -s \S+`)}
	re := choose(m, matches)
	family, r, t, i := m.some(func(rule string) bool {
		return re.MatchString(withoutComment(rule)) && strings.Contains(rule, "store/")
	})
	if t == nil {
		return nil
	}
	rule := t.rules[i]
	switch re {
	case dport:
		rule = dport.ReplaceAllString(rule, fmt.Sprintf("--dport %d", 1000+m.dice.IntN(1000)))
	default:
		flag := re.FindString(withoutComment(rule))[:4]
		rule = strings.Replace(rule, re.FindString(withoutComment(rule)), flag+map[int]string{4: "10.96.99.99/32", 6: "fd00:96::9999/128"}[family], 1)
	}
	return m.replaced(family, r, t, i, rule)
}

func (m *maker) flushed() *mutant {
	family, r, t, i := m.some(func(rule string) bool { return strings.HasPrefix(chainOf(rule), "KUBE-") })
	if t == nil {
		return nil
	}
	chain := chainOf(t.rules[i])
	u := &mutant{rules: r, family: family, what: fmt.Sprintf("IPv%d -t %s -F %s", family, t.name, chain), places: []string{chain}}
	if s := m.owner[family][chain]; s != "" {
		u.about = []string{s}
	}
	t.rules = slices.DeleteFunc(t.rules, func(rule string) bool { return chainOf(rule) == chain })
	return u
}

func (m *maker) jumpRemoved() *mutant {
	family, r, t, i := m.some(isJump)
	if t == nil {
		return nil
	}
	rule := t.rules[i]
	t.rules = slices.Delete(t.rules, i, i+1)
	u := m.of(family, r, rule, fmt.Sprintf("IPv%d -t %s -D: %s", family, t.name, rule))
	u.hazards = []string{"kube-jump-missing"}
	return u
}

// added is a mutant with one more rule at a place of its chain.
func (m *maker) added(family int, table, rule string, at int) *mutant {
	r := m.clean[family].clone()
	r.table(table).insert(at, rule)
	return &mutant{rules: r, family: family, what: fmt.Sprintf("IPv%d -t %s at %d: %s", family, table, at+1, rule), places: []string{withoutComment(rule)}}
}

func (m *maker) accepted() *mutant {
	family := choose(m, []int{4, 6})
	where := choose(m, []struct{ table, chain string }{
		{"nat", "PREROUTING"}, {"nat", "OUTPUT"}, {"nat", "POSTROUTING"}, {"filter", "INPUT"}, {"filter", "FORWARD"}, {"filter", "OUTPUT"},
	})
	match := choose(m, []string{"", "", " -p tcp", " -s " + m.halves(family)[0]})
	u := m.added(family, where.table, "-A "+where.chain+match+" -j ACCEPT", 0)
	u.hazards = []string{"kube-jump-missing"}
	return u
}

func (m *maker) policy() *mutant {
	family, r := m.either()
	chain := "FORWARD"
	if family == 4 { // neighbour discovery of IPv6 would meet it too, some time
		chain = choose(m, []string{"INPUT", "FORWARD", "OUTPUT"})
	}
	t := r.table("filter")
	for i, c := range t.chains {
		if strings.HasPrefix(c, ":"+chain+" ") {
			t.chains[i] = ":" + chain + " DROP [0:0]"
		}
	}
	return &mutant{rules: r, family: family, what: fmt.Sprintf("IPv%d -P %s DROP", family, chain), places: []string{chain}}
}

// halves are both halves of the pod ranges of n1 and n3.
func (m *maker) halves(family int) []string {
	if family == 4 {
		return []string{"10.244.1.0/25", "10.244.1.128/25", "10.244.3.0/25", "10.244.3.128/25"}
	}
	return []string{"fd00:244:1::/65", "fd00:244:1:0:8000::/65", "fd00:244:3::/65", "fd00:244:3:0:8000::/65"}
}

func (m *maker) half() *mutant {
	family := choose(m, []int{4, 6})
	chain := choose(m, []string{"FORWARD", "FORWARD", "FORWARD", "INPUT", "OUTPUT"})
	rule := fmt.Sprintf("-A %s %s %s%s -j %s", chain, choose(m, []string{"-s", "-d"}), choose(m, m.halves(family)),
		choose(m, []string{"", "", " -p tcp", " -p udp"}), choose(m, []string{"DROP", "DROP", "REJECT"}))
	if family == 6 && chain != "FORWARD" && !strings.Contains(rule, " -p ") {
		return nil // neighbour discovery
	}
	n := len(m.clean[family].table("filter").of(chain))
	return m.added(family, "filter", rule, choose(m, []int{0, n}))
}

// frontend is an address of a Service of the stage, as matches.
func (m *maker) frontend(family int) (service, matches, protocol string) {
	a := choose(m, m.acts)
	p := a.svc.Spec.Ports[0]
	protocol = strings.ToLower(string(p.Protocol))
	i := family/2 - 2
	addrs := []string{a.svc.Spec.ClusterIPs[i]}
	if len(a.svc.Spec.ExternalIPs) > 0 {
		addrs = append(addrs, a.svc.Spec.ExternalIPs[i])
	}
	if in := a.svc.Status.LoadBalancer.Ingress; len(in) > 0 {
		addrs = append(addrs, in[i].IP)
	}
	matches = fmt.Sprintf("-d %s -p %s -m %[2]s --dport %d", prefixed(choose(m, addrs)), protocol, p.Port)
	if p.NodePort != 0 && m.dice.IntN(2) == 0 {
		matches = fmt.Sprintf("-p %s -m %[1]s --dport %d", protocol, p.NodePort)
	}
	return a.svc.Name, matches, protocol
}

func prefixed(addr string) string {
	a := netip.MustParseAddr(addr)
	return netip.PrefixFrom(a, a.BitLen()).String()
}

func (m *maker) foreign() *mutant {
	family := choose(m, []int{4, 6})
	service, matches, _ := m.frontend(family)
	to := netip.AddrPortFrom(m.pods[choose(m, []string{"client-1b", "a2", "c2"})].Addr(family == 6), 8080)
	if strings.Contains(matches, "udp") {
		to = netip.AddrPortFrom(to.Addr(), 5353)
	}
	chain := choose(m, []string{"PREROUTING", "PREROUTING", "OUTPUT"})
	how := choose(m, []string{"DNAT --to-destination " + to.String(), "DNAT --to-destination " + to.String(), "REDIRECT --to-ports 9999"})
	n := len(m.clean[family].table("nat").of(chain))
	u := m.added(family, "nat", fmt.Sprintf("-A %s %s -j %s", chain, matches, how), choose(m, []int{0, 0, n}))
	u.about = []string{service}
	return u
}

func (m *maker) notrack() *mutant {
	family := choose(m, []int{4, 6})
	service, matches, protocol := m.frontend(family)
	chain := choose(m, []string{"PREROUTING", "OUTPUT"})
	if m.dice.IntN(2) == 0 {
		u := m.added(family, "raw", fmt.Sprintf("-A %s %s -j CT --notrack", chain, matches), 0)
		u.about = []string{service}
		return u
	}
	// The answers of a backend.
	backend := m.pods[choose(m, []string{"a1", "a2", "c1", "c2"})].Addr(family == 6)
	return m.added(family, "raw", fmt.Sprintf("-A %s -s %s -p %s -j CT --notrack", chain, prefixed(backend.String()), protocol), 0)
}

// second puts rules of kube-proxy's into the other backend.
func (m *maker) second() *mutant {
	family, r := m.either()
	other := lab.Legacy
	if m.n1.Backend() == lab.Legacy {
		other = lab.NFT
	}
	r.tables = slices.DeleteFunc(r.tables, func(t *tableText) bool { return t.name != "nat" && t.name != "filter" })
	how := choose(m, []string{"a copy", "a copy without jumps", "old rules that lead to other pods"})
	for _, t := range r.tables {
		switch how {
		case "a copy without jumps":
			t.rules = slices.DeleteFunc(t.rules, isJump)
		case "old rules that lead to other pods":
			for i, rule := range t.rules {
				if to := destination.FindStringSubmatch(rule); to != nil && serviceChain.MatchString(chainOf(rule)) && m.owner[family][chainOf(rule)] != "" {
					old := netip.MustParseAddrPort(to[1])
					t.rules[i] = destination.ReplaceAllString(rule, "--to-destination "+netip.AddrPortFrom(m.pods["client-1b"].Addr(family == 6), old.Port()).String())
				}
			}
		}
	}
	program := map[int]string{4: "iptables-restore", 6: "ip6tables-restore"}[family]
	load := func(text string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := m.n1.Netns().Run(ctx, text, "xtables-"+string(other)+"-multi", program)
			return err
		}
	}
	empty := &ruleText{}
	empty.table("nat")
	empty.table("filter")
	return &mutant{
		family: family, what: fmt.Sprintf("IPv%d: %s in %s", family, how, other), do: load(r.String()), undo: load(empty.String()),
		places:  []string{"KUBE-"},
		hazards: []string{"iptables-legacy-and-nft-both-have-kube-rules", "iptables-backend-split", "leftover-proxy-mode-rules", "two-service-proxies"},
	}
}

func (m *maker) sysctl() *mutant {
	s := choose(m, []struct{ name, now, was, hazard string }{
		{"net.ipv4.ip_forward", "0", "1", "ip-forward-off"},
		{"net.ipv6.conf.all.forwarding", "0", "1", "ip-forward-off"},
		{"net.bridge.bridge-nf-call-iptables", "0", "1", "bridge-nf-call-iptables-off"},
		{"net.bridge.bridge-nf-call-ip6tables", "0", "1", "bridge-nf-call-iptables-off"},
		{"net.ipv4.conf.all.route_localnet", "0", "1", ""},
		{"net.ipv4.conf.all.rp_filter", "1", "0", ""},
		{"net.ipv4.conf.all.rp_filter", "2", "0", ""},
		{"net.netfilter.nf_conntrack_tcp_be_liberal", "1", "0", ""},
		{"net.netfilter.nf_conntrack_udp_timeout", "60", "30", ""},
		{"net.ipv4.conf.cni0.forwarding", "0", "1", "ip-forward-off"},
		{"net.ipv4.conf.eth0.forwarding", "0", "1", "ip-forward-off"},
	})
	write := func(value string) func(context.Context) error {
		return func(context.Context) error { return m.n1.Netns().Sysctl(s.name + "=" + value) }
	}
	u := &mutant{what: s.name + " = " + s.now, do: write(s.now), undo: write(s.was), places: []string{s.name, strings.ReplaceAll(s.name, ".", "/")}}
	if s.hazard != "" {
		u.hazards = []string{s.hazard}
	}
	return u
}

func (m *maker) route() *mutant {
	family := choose(m, []int{4, 6})
	to := []string{"10.244.3.0/25", "10.244.1.20/32", "10.244.3.20/32", "10.244.1.128/25", "10.96.0.0/16", "172.30.0.200/32", "10.244.2.0/25", "192.0.2.0/24"}
	if family == 6 {
		to = []string{"fd00:244:3::/65", "fd00:244:1::20/128", "fd00:244:3::20/128", "fd00:244:1:0:8000::/65", "fd00:96::/112", "fd00:30::200/128", "fd00:244:2::/65", "2001:db8:77::/64"}
	}
	dest := choose(m, to)
	kind := choose(m, []string{"blackhole", "unreachable", "prohibit"})
	add, del := fmt.Sprintf("-%d route add %s %s", family, kind, dest), fmt.Sprintf("-%d route del %s %s", family, kind, dest)
	if m.dice.IntN(4) == 0 {
		add, del = fmt.Sprintf("-%d rule add pref 100 to %s %s", family, dest, kind), fmt.Sprintf("-%d rule del pref 100 to %s %s", family, dest, kind)
	}
	run := func(line string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := m.n1.Netns().Run(ctx, "", append([]string{"ip"}, strings.Fields(line)...)...)
			return err
		}
	}
	return &mutant{family: family, what: "ip " + add, do: run(add), undo: run(del), places: []string{strings.TrimSuffix(strings.TrimSuffix(dest, "/32"), "/128")}}
}

// staleFlow is a UDP flow to a backend that is gone, as it stays when nobody removes it.
func (m *maker) staleFlow() *mutant {
	family := choose(m, []int{4, 6})
	a := m.actOf("dns")
	to := netip.AddrPortFrom(netip.MustParseAddr(a.svc.Spec.ClusterIPs[family/2-2]), 53)
	gone := map[int]string{4: "10.244.1.99", 6: "fd00:244:1::99"}[family]
	pod := m.pods[choose(m, []string{"client-1", "client-1b"})]
	from := netip.AddrPortFrom(pod.Addr(family == 6), uint16(40000+m.dice.IntN(1000)))
	line := fmt.Sprintf("conntrack -I -p udp -s %s -d %s --sport %d --dport 53 -g %s -t 120", from.Addr(), to.Addr(), from.Port(), gone)
	return &mutant{
		family: family, what: line, about: []string{"dns"}, places: []string{fmt.Sprintf("sport=%d ", from.Port())},
		do: func(ctx context.Context) error {
			_, err := m.n1.Netns().Run(ctx, "", strings.Fields(line)...)
			return err
		},
		undo: func(context.Context) error { return nil }, // all flows are forgotten after every mutant
		flow: &flow{"dns", pod, from, to},
	}
}

// objects makes a mutant of a Service and its slices in the API, which kube-proxy does not see.
func (m *maker) objects(a *act, what string, change func(b *act)) *mutant {
	b := &act{svc: *a.svc.DeepCopy()}
	for _, sl := range a.slices {
		b.slices = append(b.slices, sl.DeepCopy())
	}
	change(b)
	return &mutant{
		what: fmt.Sprintf("%s: %s", a.svc.Name, what), about: []string{a.svc.Name}, byObjects: true,
		do:   func(ctx context.Context) error { return m.put(ctx, b) },
		undo: func(ctx context.Context) error { return m.put(ctx, a) },
	}
}

func (m *maker) serviceChanged() *mutant {
	a := choose(m, m.acts)
	served := a.svc.Name != "none" && a.svc.Name != "none-port" // nobody sees how traffic to nobody is to be spread
	switch m.dice.IntN(6) {
	case 0:
		return &mutant{
			what: a.svc.Name + ": deleted", about: []string{a.svc.Name}, byObjects: true,
			do: func(ctx context.Context) error {
				for _, sl := range a.slices {
					if err := m.Delete(ctx, "EndpointSlice", namespace, sl.Name); err != nil {
						return err
					}
				}
				return m.Delete(ctx, "Service", namespace, a.svc.Name)
			},
			undo: func(ctx context.Context) error { return m.put(ctx, a) },
		}
	case 1:
		if !served {
			return nil
		}
		return m.objects(a, "another port", func(b *act) { b.svc.Spec.Ports[0].Port = 8000 })
	case 2:
		if a.svc.Spec.Ports[0].NodePort == 0 {
			return nil
		}
		return m.objects(a, "another node port", func(b *act) { b.svc.Spec.Ports[0].NodePort += 200 })
	case 3:
		if !served {
			return nil
		}
		return m.objects(a, "other session affinity", func(b *act) {
			if b.svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
				b.svc.Spec.SessionAffinity, b.svc.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
			} else {
				b.svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			}
		})
	case 4:
		if !served {
			return nil
		}
		return m.objects(a, "other traffic policies", func(b *act) {
			local := corev1.ServiceInternalTrafficPolicyLocal
			if b.svc.Spec.InternalTrafficPolicy != nil {
				local = corev1.ServiceInternalTrafficPolicyCluster
			}
			b.svc.Spec.InternalTrafficPolicy = &local
		})
	}
	if !served {
		return nil
	}
	return m.objects(a, "an external IP more", func(b *act) { b.svc.Spec.ExternalIPs = append(b.svc.Spec.ExternalIPs, "198.51.100.99") })
}

func (m *maker) endpointsChanged() *mutant {
	a := choose(m, m.acts)
	each := func(b *act, f func(sl *discoveryv1.EndpointSlice)) {
		for _, sl := range b.slices {
			f(sl)
		}
	}
	usable := a.svc.Name != "none" && a.svc.Name != "none-port"
	switch m.dice.IntN(5) {
	case 0:
		if !usable {
			return nil
		}
		return m.objects(a, "no endpoints any more", func(b *act) {
			each(b, func(sl *discoveryv1.EndpointSlice) { sl.Endpoints = []discoveryv1.Endpoint{} })
		})
	case 1:
		if !usable {
			return nil
		}
		return m.objects(a, "the first endpoint is gone", func(b *act) {
			each(b, func(sl *discoveryv1.EndpointSlice) { sl.Endpoints = sl.Endpoints[1:] })
		})
	case 2:
		if !usable {
			return nil
		}
		return m.objects(a, "the first endpoint is not ready", func(b *act) {
			each(b, func(sl *discoveryv1.EndpointSlice) {
				c := &sl.Endpoints[0].Conditions
				c.Ready, c.Serving = new(false), new(false)
			})
		})
	case 3:
		return m.objects(a, "client-1b on n1 is an endpoint too", func(b *act) {
			each(b, func(sl *discoveryv1.EndpointSlice) {
				more := lab.EndpointSlice(namespace, b.svc.Name, sl.Name, sl.AddressType, sl.Ports, lab.Ready(m.pods["client-1b"])...)
				sl.Endpoints = append(sl.Endpoints, more.Endpoints...)
			})
		})
	}
	if !usable {
		return nil
	}
	return m.objects(a, "the endpoints have another port", func(b *act) {
		each(b, func(sl *discoveryv1.EndpointSlice) { sl.Ports[0].Port = new(*sl.Ports[0].Port + 1) })
	})
}
