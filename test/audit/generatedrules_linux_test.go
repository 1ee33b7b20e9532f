package audit

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/repair/kubeproxy"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// generatedDiffers sets the rules of a kube-proxy in iptables mode beside those that repair/kubeproxy says it writes, text
// by text. Empty: they are the same, but for the order of Services in chains of all.
func generatedDiffers(s *snapshot.Snapshot) (string, error) {
	reading, err := explain.Read(s, explain.AuditOptions{})
	if err != nil {
		return "", err
	}
	n := reading.Node()
	chance := map[string]bool{}
	for _, sp := range n.Plan.Ports {
		if sp.ByChance {
			chance[sp.Namespace+"/"+sp.Name] = true
		}
	}
	var out strings.Builder
	families := 0
	for _, rs := range n.Rulesets {
		if string(rs.Backend) != n.Proxy.Backend {
			continue
		}
		families++
		want, err := kubeproxy.IPTablesFor(rs.Family, n.Plan, &n.Proxy, &kubeproxy.IPTablesNode{Rulesets: n.Rulesets, Host: n.Host})
		if err != nil {
			return "", err
		}
		saved, generated := savedText(rs), generatedText(want, chance)
		for name := range saved {
			if generated[name] == nil && !slices.ContainsFunc(want.Tables, func(t *kubeproxy.Table) bool { return strings.HasPrefix(name, t.Name+" ") }) {
				delete(saved, name) // of a table that kube-proxy leaves alone
			}
		}
		for name, rules := range generated {
			if slices.Equal(rules, []string{"by chance"}) {
				delete(generated, name)
				delete(saved, name)
			}
		}
		if d := cmp.Diff(saved, generated); d != "" {
			fmt.Fprintf(&out, "IPv%d (-live +generated):\n%s", rs.Family, d)
		}
	}
	if families != 2 {
		fmt.Fprintf(&out, "%d families", families)
	}
	return out.String(), nil
}

func savedText(rs *netfilter.Ruleset) map[string][]string {
	out := map[string][]string{}
	for _, t := range rs.Tables {
		for _, c := range t.Chains {
			rules := []string{}
			for i := range c.Rules {
				rules = append(rules, c.Rules[i].Text)
			}
			if c.Policy != "" {
				// Whichever was made last comes first.
				slices.Sort(rules)
			}
			out[t.Name+" "+c.Name] = sortedServices(c.Name, rules)
		}
	}
	return out
}

func generatedText(s *kubeproxy.IPTables, chance map[string]bool) map[string][]string {
	out := map[string][]string{}
	for _, t := range s.Tables {
		for _, c := range t.Chains {
			rules := []string{}
			for _, r := range c.Rules {
				rules = append(rules, r.Text)
			}
			out[t.Name+" "+c.Name] = sortedServices(c.Name, rules)
			if chance[c.Service] {
				out[t.Name+" "+c.Name] = []string{"by chance"}
			}
		}
		for _, c := range builtin[t.Name] {
			rules := []string{}
			for _, j := range t.Jumps {
				if j.From == c {
					rules = append(rules, j.Text)
				}
			}
			slices.Sort(rules)
			out[t.Name+" "+c] = rules
		}
	}
	return out
}

// sortedServices sorts the rules of chains in which Services stand in another order after each sync.
func sortedServices(chain string, rules []string) []string {
	switch chain {
	case "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL":
		last := len(rules)
		for last > 0 && strings.HasSuffix(rules[last-1], "-j KUBE-NODEPORTS") {
			last--
		}
		slices.Sort(rules[:last])
		slices.Sort(rules[last:])
	}
	return rules
}

// proxySettings are those on which the rules of iptables mode depend, each beside the lab's own.
var proxySettings = []struct {
	name   string
	change func(config map[string]any)
}{
	{"masquerade all, another mark", func(config map[string]any) {
		lab.Section(config, "iptables")["masqueradeAll"], lab.Section(config, "iptables")["masqueradeBit"] = true, 10
	}},
	{"local by bridge", func(config map[string]any) {
		config["detectLocalMode"], config["detectLocal"] = "BridgeInterface", map[string]any{"bridgeInterface": "cni0"}
	}},
	{"local by prefix, loopback off", func(config map[string]any) {
		config["detectLocalMode"], config["detectLocal"] = "InterfaceNamePrefix", map[string]any{"interfaceNamePrefix": "veth"}
		lab.Section(config, "iptables")["localhostNodePorts"] = false
	}},
	{"no detector", func(config map[string]any) { config["clusterCIDR"] = "" }},
	{"cluster range of IPv4 alone, node port ranges", func(config map[string]any) {
		config["clusterCIDR"], config["nodePortAddresses"] = "10.244.0.0/16", []string{"172.30.0.0/24", "127.0.0.0/8", "fd00:30::/64"}
	}},
	{"node port range without loopback", func(config map[string]any) { config["nodePortAddresses"] = []string{"172.30.0.0/24"} }},
	{"primary node ports", func(config map[string]any) { config["nodePortAddresses"] = []string{"primary"} }},
	{"no node ports anywhere", func(config map[string]any) { config["nodePortAddresses"] = []string{"192.0.2.0/24", "2001:db8::/64"} }},
	{"node range", func(config map[string]any) { config["detectLocalMode"], config["clusterCIDR"] = "NodeCIDR", "" }},
	{"liberal tracking", func(config map[string]any) { lab.Section(config, "conntrack")["tcpBeLiberal"] = true }},
}

// TestGeneratedSettings starts kube-proxy with one setting after the other, on random objects and through both backends,
// and sets what it wrote beside what repair/kubeproxy says it writes.
func TestGeneratedSettings(t *testing.T) {
	l := labtest.Bring(t, lab.Options{
		Name: fmt.Sprintf("g%d", os.Getpid()), NoProxy: true, NodeBackend: map[string]lab.Backend{"n2": lab.Legacy},
	})
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w := &world{lab: l, dice: rand.New(rand.NewPCG(uint64(setting(t, "SVCNET_AUDIT_SEED", worldSeed)), 1)), services: map[string]*worldService{}}
	w.begin(t)
	nodes := []*lab.Node{l.Node("n1"), l.Node("n2")}
	for _, n := range nodes {
		must(l.Patch(ctx, "Node", "", n.Name, "", fmt.Sprintf(`{"spec":{"podCIDR":"10.244.%s.0/24","podCIDRs":["10.244.%[1]s.0/24","fd00:244:%[1]s::/64"]}}`, n.Name[1:])))
	}
	look := func(name string) {
		t.Helper()
		must(l.WaitSynced(ctx, nodes...))
		for _, n := range nodes {
			r, err := newReader(l, n)
			must(err)
			s, err := r.read(ctx)
			must(err)
			d, err := generatedDiffers(s)
			must(err)
			if d != "" {
				t.Errorf("%s, node %s (%s): %s", name, n, n.Backend(), d)
				keep(t, fmt.Sprintf("generated-%s-%s", strings.ReplaceAll(name, " ", "-"), n), s)
			}
		}
	}
	restart := func(change func(config map[string]any)) {
		t.Helper()
		for _, n := range nodes {
			must(n.StopProxy())
			// What one setting leaves behind is not what the next one writes.
			for _, program := range []string{"iptables-restore", "ip6tables-restore"} {
				_, err := n.Run(ctx, "*nat\nCOMMIT\n*filter\nCOMMIT\n*mangle\nCOMMIT\n", program)
				must(err)
			}
			must(n.Netns().Sysctl("net.netfilter.nf_conntrack_tcp_be_liberal=0"))
			n.ConfigureProxy(func(config map[string]any) {
				clear(lab.Section(config, "iptables"))
				delete(config, "nodePortAddresses")
				delete(lab.Section(config, "conntrack"), "tcpBeLiberal")
				config["clusterCIDR"], config["detectLocalMode"] = lab.ClusterCIDRs, ""
				change(config)
			})
			must(n.StartProxy(ctx))
		}
	}
	for _, s := range proxySettings {
		restart(s.change)
		look(s.name)
		must(w.step(ctx))
		look(s.name + ", after a change")
	}

	// Above a thousand endpoints rules carry fewer comments.
	many := corev1.Service{}
	many.Name, many.Namespace = "many", namespace
	many.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, SessionAffinity: corev1.ServiceAffinityClientIP, Ports: []corev1.ServicePort{{Name: "web", Port: 80}}}
	must(l.Apply(ctx, many))
	for i := range 11 {
		var ends []discoveryv1.Endpoint
		for j := range 100 {
			ends = append(ends, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.%d.%d", 100+i, 1+j)}})
		}
		slice := lab.EndpointSlice(namespace, many.Name, fmt.Sprintf("many-%d", i), discoveryv1.AddressTypeIPv4, lab.Ports("web=TCP:8080"))
		slice.Endpoints = ends
		must(l.Apply(ctx, slice))
	}
	restart(func(map[string]any) {})
	look("a large cluster")
}
