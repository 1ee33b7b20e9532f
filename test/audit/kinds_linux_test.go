package audit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/test/lab"
)

// a mutant is one change to a node that is as it should be.
type mutant struct {
	kind string
	// what is the change in words, with all that is needed to do it by hand.
	what string
	// do makes the change, undo takes it back.
	do, undo func(ctx context.Context) error
	// family is 4 or 6 where the change is about packets of one alone.
	family int
	// about are the Services that the change is about; none: it may be about all.
	about []string
	// places are words of which a finding must name one, in its subject or evidence: the chain, the rule, the entry of
	// a map, the sysctl, the route; none: the Service is enough.
	places []string
	// nameless tells that nothing which is left of a Service on the node says whose it is.
	nameless bool
	// hazards are findings that are true of the change whether packets meet it or not.
	hazards []string
	// byWalk: connections do not show it, shares do. They are those of the program's own walk.
	byWalk bool
	// certain: what happens is wrong from now on by what the objects ask for, though no connection of the grid shows it.
	certain bool
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

// a plane is how the rules of a node's kube-proxy are written, and so what can be changed in them.
type plane interface {
	// kinds are the changes, in the order of the table.
	kinds() []kind
	// rules are those of the node, in a form to compare.
	rules(ctx context.Context) (string, error)
}

// a kind of changes makes a mutant, or none when the dice chose something that is not there.
type kind struct {
	name string
	make func() *mutant
}

// maker makes mutants of a stage.
type maker struct {
	*stage
	dice *rand.Rand
}

// stop has kube-proxy hang, so that nobody mends what is changed.
func (m *maker) stop(t *testing.T) {
	t.Helper()
	if err := m.n1.SignalProxy(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// common are the changes that do not depend on how rules are written.
func (m *maker) common() []kind {
	return []kind{
		{"sysctl", m.sysctl},
		{"route", m.route},
		{"stale UDP flow", m.staleFlow},
		{"Service changed", m.serviceChanged},
		{"endpoints changed", m.endpointsChanged},
	}
}

func choose[T any](dice *rand.Rand, of []T) T { return of[dice.IntN(len(of))] }

// halves are both halves of the pod ranges of n1 and n3.
func (m *maker) halves(family int) []string {
	if family == 4 {
		return []string{"10.244.1.0/25", "10.244.1.128/25", "10.244.3.0/25", "10.244.3.128/25"}
	}
	return []string{"fd00:244:1::/65", "fd00:244:1:0:8000::/65", "fd00:244:3::/65", "fd00:244:3:0:8000::/65"}
}

// frontend is an address of a Service of the stage; not valid for a node port.
func (m *maker) frontend(family int) (service string, addr netip.Addr, port int32, protocol string) {
	a := choose(m.dice, m.acts)
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
	addr = netip.MustParseAddr(choose(m.dice, addrs))
	if p.NodePort != 0 && m.dice.IntN(2) == 0 {
		return a.svc.Name, netip.Addr{}, p.NodePort, protocol
	}
	return a.svc.Name, addr, p.Port, protocol
}

// oldRules are the rules of a kube-proxy in iptables mode, which comes and goes on node n2, where there is none else. It
// leaves them there.
func (m *maker) oldRules(t *testing.T) map[int]*ruleText {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	var mode any
	m.n2.ConfigureProxy(func(config map[string]any) { mode, config["mode"] = config["mode"], "iptables" })
	must(m.n2.StartProxy(ctx))
	must(m.WaitSynced(ctx))
	must(m.n2.StopProxy())
	m.n2.ConfigureProxy(func(config map[string]any) { config["mode"] = mode })
	old := m.save(t, m.n2)
	for _, r := range old {
		for _, t := range r.tables {
			for i, rule := range t.rules {
				t.rules[i] = nfacct.ReplaceAllString(rule, "") // it names a counter of that node
			}
		}
	}
	return old
}

var nfacct = regexp.MustCompile(` -m nfacct --nfacct-name +\S+`)

// spoil changes rules of iptables mode to some that may be left when nobody keeps them any more, and says how.
func (m *maker) spoil(family int, r *ruleText) string {
	owner := r.owners()
	r.tables = slices.DeleteFunc(r.tables, func(t *tableText) bool { return t.name != "nat" && t.name != "filter" })
	how := choose(m.dice, []string{"a copy", "a copy without jumps", "old rules that lead to other pods"})
	for _, t := range r.tables {
		switch how {
		case "a copy without jumps":
			t.rules = slices.DeleteFunc(t.rules, isJump)
		case "old rules that lead to other pods":
			for i, rule := range t.rules {
				if to := destination.FindStringSubmatch(rule); to != nil && serviceChain.MatchString(chainOf(rule)) && owner[chainOf(rule)] != "" {
					old := netip.MustParseAddrPort(to[1])
					t.rules[i] = destination.ReplaceAllString(rule, "--to-destination "+netip.AddrPortFrom(m.pods["client-1b"].Addr(family == 6), old.Port()).String())
				}
			}
		}
	}
	return how
}

// beside puts rules of iptables mode into one backend of iptables, beside those that the node goes by.
func (m *maker) beside(family int, r *ruleText, backend lab.Backend, undo func(ctx context.Context) error) *mutant {
	how := m.spoil(family, r)
	return &mutant{
		family: family, what: fmt.Sprintf("IPv%d: %s in %s", family, how, backend), do: m.restore(backend, family, r.String()), undo: undo,
		places:  []string{"KUBE-"},
		hazards: []string{"iptables-legacy-and-nft-both-have-kube-rules", "iptables-backend-split", "leftover-proxy-mode-rules", "two-service-proxies"},
	}
}

// restore gives rules to one backend of iptables, whichever is the node's.
func (m *maker) restore(backend lab.Backend, family int, text string) func(ctx context.Context) error {
	program := map[int]string{4: "iptables-restore", 6: "ip6tables-restore"}[family]
	return m.run(text, "xtables-"+string(backend)+"-multi", program)
}

// run runs a command on the node.
func (m *maker) run(stdin string, argv ...string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := m.n1.Netns().Run(ctx, stdin, argv...)
		return err
	}
}

// a knob is a sysctl and another value of it.
type knob struct{ name, now, hazard string }

func (m *maker) sysctl() *mutant {
	return m.setting(choose(m.dice, []knob{
		{"net.ipv4.ip_forward", "0", "ip-forward-off"},
		{"net.ipv6.conf.all.forwarding", "0", "ip-forward-off"},
		{"net.bridge.bridge-nf-call-iptables", "0", "bridge-nf-call-iptables-off"},
		{"net.bridge.bridge-nf-call-ip6tables", "0", "bridge-nf-call-iptables-off"},
		{"net.ipv4.conf.all.route_localnet", "0", ""},
		{"net.ipv4.conf.all.rp_filter", "1", ""},
		{"net.ipv4.conf.all.rp_filter", "2", ""},
		{"net.netfilter.nf_conntrack_tcp_be_liberal", "1", ""},
		{"net.netfilter.nf_conntrack_udp_timeout", "60", ""},
		{"net.ipv4.conf.cni0.forwarding", "0", "ip-forward-off"},
		{"net.ipv4.conf.eth0.forwarding", "0", "ip-forward-off"},
	}))
}

// setting is a mutant of a sysctl; none where the node has that value already.
func (m *maker) setting(k knob) *mutant {
	var was []byte
	err := m.n1.Netns().Do(func() (err error) {
		was, err = os.ReadFile("/proc/sys/" + strings.ReplaceAll(k.name, ".", "/"))
		return err
	})
	if err != nil || strings.TrimSpace(string(was)) == k.now {
		return nil
	}
	write := func(value string) func(context.Context) error {
		return func(context.Context) error { return m.n1.Netns().Sysctl(k.name + "=" + value) }
	}
	u := &mutant{what: k.name + " = " + k.now, do: write(k.now), undo: write(strings.TrimSpace(string(was))), places: []string{k.name, strings.ReplaceAll(k.name, ".", "/")}}
	if k.hazard != "" {
		u.hazards = []string{k.hazard}
	}
	return u
}

func (m *maker) route() *mutant {
	family := choose(m.dice, []int{4, 6})
	to := []string{"10.244.3.0/25", "10.244.1.20/32", "10.244.3.20/32", "10.244.1.128/25", "10.96.0.0/16", "172.30.0.200/32", "10.244.2.0/25", "192.0.2.0/24"}
	if family == 6 {
		to = []string{"fd00:244:3::/65", "fd00:244:1::20/128", "fd00:244:3::20/128", "fd00:244:1:0:8000::/65", "fd00:96::/112", "fd00:30::200/128", "fd00:244:2::/65", "2001:db8:77::/64"}
	}
	dest := choose(m.dice, to)
	kind := choose(m.dice, []string{"blackhole", "unreachable", "prohibit"})
	add, del := fmt.Sprintf("-%d route add %s %s", family, kind, dest), fmt.Sprintf("-%d route del %s %s", family, kind, dest)
	if m.dice.IntN(4) == 0 {
		add, del = fmt.Sprintf("-%d rule add pref 100 to %s %s", family, dest, kind), fmt.Sprintf("-%d rule del pref 100 to %s %s", family, dest, kind)
	}
	run := func(line string) func(ctx context.Context) error {
		return m.run("", append([]string{"ip"}, strings.Fields(line)...)...)
	}
	return &mutant{family: family, what: "ip " + add, do: run(add), undo: run(del), places: []string{strings.TrimSuffix(strings.TrimSuffix(dest, "/32"), "/128")}}
}

// staleFlow is a UDP flow to a backend that is gone, as it stays when nobody removes it.
func (m *maker) staleFlow() *mutant {
	family := choose(m.dice, []int{4, 6})
	a := m.actOf("dns")
	to := netip.AddrPortFrom(netip.MustParseAddr(a.svc.Spec.ClusterIPs[family/2-2]), 53)
	gone := map[int]string{4: "10.244.1.99", 6: "fd00:244:1::99"}[family]
	pod := m.pods[choose(m.dice, []string{"client-1", "client-1b"})]
	from := netip.AddrPortFrom(pod.Addr(family == 6), uint16(40000+m.dice.IntN(1000)))
	line := fmt.Sprintf("conntrack -I -p udp -s %s -d %s --sport %d --dport 53 -g %s -t 120", from.Addr(), to.Addr(), from.Port(), gone)
	return &mutant{
		family: family, what: line, about: []string{"dns"}, places: []string{fmt.Sprintf("sport=%d ", from.Port())},
		do:   m.run("", strings.Fields(line)...),
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
		what: fmt.Sprintf("%s: %s", a.svc.Name, what), about: []string{a.svc.Name}, certain: true,
		do:   func(ctx context.Context) error { return m.put(ctx, b) },
		undo: func(ctx context.Context) error { return m.put(ctx, a) },
	}
}

func (m *maker) serviceChanged() *mutant {
	a := choose(m.dice, m.acts)
	served := a.svc.Name != "none" && a.svc.Name != "none-port" // nobody sees how traffic to nobody is to be spread
	switch m.dice.IntN(6) {
	case 0:
		return &mutant{
			what: a.svc.Name + ": deleted", about: []string{a.svc.Name}, certain: true, nameless: m.ipvs,
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
		if !served || m.ipvs && !a.spread("n1") {
			return nil // the virtual server has the same endpoints either way: its own, or those of other nodes
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
	a := choose(m.dice, m.acts)
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
